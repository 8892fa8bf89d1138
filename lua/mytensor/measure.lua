-- lua/mytensor/measure.lua: histograms, slopes of what is sampled, interpolation, sums
-- to a shape: made of recorded operators.

local mt = require "mytensor"
local check = require "mytensor.check"

local measure = {}

local function floats(x)
  return check.is_float(x) and x or x:to(mt.get_default_dtype())
end

-- ---- histogram ----------------------------------------------------------------------

-- Raise if an edge is below the one before it, or NaN. what: " of dim 2", or "".
local function check_ascent(name, edges, what)
  edges = edges:detach():cpu()
  local n = edges:numel()
  local falls = ~edges:narrow(1, 2, n - 1):ge(edges:narrow(1, 1, n - 1))
  if not falls:any():item() then return end
  local at = falls:byte():argmax():item()
  local before, edge = edges[at]:item(), edges[at + 1]:item()
  if before ~= before then
    check.fail(2, name, "edge %d%s is nan", at, what)
  elseif edge ~= edge then
    check.fail(2, name, "edge %d%s is nan", at + 1, what)
  end
  check.fail(2, name, "edge %d%s is %s, below the one before, %s", at + 1, what, edge,
             before)
end

-- The edges of bins: given, or evenly spaced over a range.
local function edges_of(name, x, bins, range, what)
  if mt.is_tensor(bins) then
    if bins:dim() ~= 1 or bins:numel() < 2 then
      check.fail(2, name, "a vector of two edges or more expected, got shape %s",
                 check.shape_text(bins:shape()))
    end
    if range then check.fail(3, name, "a range beside edges") end
    check_ascent(name, bins, what)
    return bins:to(x:dtype())
  end
  bins = check.integer(2, name, bins or 100, "bins", 1)
  local low, high = 0.0, 1.0
  if range then
    check.type(3, name, range, "table")
    if #range ~= 2 then
      check.fail(3, name, "the range%s has %d numbers, want 2", what,
                 #range)
    end
    low = check.number(3, name, range[1], "range[1]")
    high = check.number(3, name, range[2], "range[2]", low)
  elseif x:numel() > 0 then
    low, high = x:amin():item(), x:amax():item()
  end
  local width = high - low
  if width ~= width or width == math.huge then
    check.fail(1, name, "the range of the elements is not finite")
  end
  if low == high then low, high = low - 0.5, high + 0.5 end
  return check.call(2, name, mt.linspace, low, high, math.max(bins, bins + 1),
                    { dtype = x:dtype(), device = x:device() })
end

-- 1: below, 2 .. n + 1: in one of n bins, n + 2: above.
local function bin_of(edges, x)
  local last = edges:numel()
  return mt.where(x:eq(edges[last]), last, mt.searchsorted(edges, x, true))
end

--- How many elements lie between edges; the last bin includes both of its edges.
--- @param x mytensor.Tensor
--- @param bins? integer|mytensor.Tensor how many, 100 unless given, or their edges,
---   ascending
--- @param opts? { range: number[], weight: mytensor.Tensor, density: boolean } range:
---   the first and the last edge, the least and the largest element unless given;
---   weight: of x's shape, summed instead; density: divided by sum and width
--- @return mytensor.Tensor counts, floats
--- @return mytensor.Tensor edges one more
function measure.histogram(x, bins, opts)
  check.type(1, "histogram", x, "tensor")
  opts = check.options(3, "histogram", opts,
    { range = check.none, weight = check.none, density = false })
  x = floats(x:detach())
  local edges = edges_of("histogram", x, bins, opts.range, "")
  local n = edges:numel() - 1
  local weight = opts.weight and check.type(3, "histogram", opts.weight, "tensor")
  if weight and check.shape_text(weight:shape()) ~= check.shape_text(x:shape()) then
    check.fail(3, "histogram", "weight has shape %s, x %s",
               check.shape_text(weight:shape()), check.shape_text(x:shape()))
  end
  weight = weight and weight:to(x:dtype()) or mt.ones_like(x)
  local at = bin_of(edges, x)
  local sums = mt.zeros({ n + 2 }, { dtype = x:dtype(), device = x:device() })
    :index_add(1, at:reshape(-1), weight:reshape(-1)):narrow(1, 2, n)
  if opts.density then sums = sums / (sums:sum() * edges:diff()) end
  return sums, edges
end

--- How many points of a space lie in each of its boxes; the last bin of a dim includes
--- both of its edges.
--- @param x mytensor.Tensor (points, dims)
--- @param bins? integer|table how many for each dim, 10 unless given; or a list with a
---   number, or edges, for each
--- @param opts? { range: number[][], weight: mytensor.Tensor, density: boolean } range:
---   for each dim the first and the last edge, or false; weight: of each point, summed
---   instead; density: divided by sum and volume
--- @return mytensor.Tensor counts, floats
--- @return mytensor.Tensor[] edges of each dim
function measure.histogramdd(x, bins, opts)
  local name = "histogramdd"
  check.type(1, name, x, "tensor")
  opts = check.options(3, name, opts,
    { range = check.none, weight = check.none, density = false })
  if x:dim() ~= 2 or x:size(2) == 0 or x:size(2) > 12 then
    check.fail(1, name, "points of 1 .. 12 dims expected, got shape %s",
               check.shape_text(x:shape()))
  end
  x = floats(x:detach())
  local ndim = x:size(2)
  if type(bins) == "table" and #bins ~= ndim then
    check.fail(2, name, "%d bins for %d dims", #bins, ndim)
  end
  local range = opts.range or {}
  check.type(3, name, range, "table")
  if opts.range and #range ~= ndim then
    check.fail(3, name, "%d ranges for %d dims", #range, ndim)
  end
  local edges, counts, at = {}, {}, 0
  local inside = mt.ones({ x:size(1) }, { dtype = "bool", device = x:device() })
  for d = 1, ndim do
    local of_dim = type(bins) == "table" and bins[d] or bins or 10
    edges[d] = edges_of(name, x[{ {}, d }], of_dim, range[d], " of dim " .. d)
    counts[d] = edges[d]:numel() - 1
    local bin = bin_of(edges[d], x[{ {}, d }]:contiguous())
    inside = inside & bin:gt(1) & bin:le(counts[d] + 1)
    at = at * counts[d] + (bin - 2)
  end
  local weight = opts.weight and check.type(3, name, opts.weight, "tensor")
  if weight and (weight:dim() ~= 1 or weight:numel() ~= x:size(1)) then
    check.fail(3, name, "weight has shape %s, want [%d]",
               check.shape_text(weight:shape()), x:size(1))
  end
  weight = weight and weight:to(x:dtype()) or inside:to(x:dtype())
  local sums = check.call(2, name, mt.zeros, counts,
                          { dtype = x:dtype(), device = x:device() })
  weight = weight:masked_fill(~inside, 0)
  sums:view(-1):index_add_(1, mt.where(inside, at + 1, 1), weight)
  if opts.density then
    sums = sums / sums:sum()
    for d = 1, ndim do
      local shape = {}
      for e = 1, ndim do shape[e] = e == d and counts[d] or 1 end
      sums = sums / edges[d]:diff():view(shape)
    end
  end
  return sums, edges
end

-- ---- gradient -----------------------------------------------------------------------

-- n slices of x along dim from the first, or those at `first`.
local function part(x, dim, first, n) return x:narrow(dim, first, n) end

-- Distances of neighbours along dim: one number, or a tensor that broadcasts with x.
local function gaps_of(x, dim, spacing)
  if type(spacing) == "number" then return spacing end
  if not mt.is_tensor(spacing) then
    check.fail(2, "gradient", "spacing: number or vector expected, got %s",
               check.type_name(spacing))
  end
  if spacing:dim() ~= 1 or spacing:numel() ~= x:size(dim) then
    check.fail(2, "gradient", "coordinates of shape %s for dim %d of shape %s",
               check.shape_text(spacing:shape()), dim, check.shape_text(x:shape()))
  end
  local shape = {}
  for d = 1, x:dim() do shape[d] = d == dim and x:size(dim) - 1 or 1 end
  return floats(spacing):diff():view(shape)
end

-- The slope at one end, of the parabola through three neighbours. near, far: the gaps.
local function end_slope(a, b, c, near, far)
  return a * (-(2 * near + far) / (near * (near + far)))
    + b * ((near + far) / (near * far)) - c * (near / (far * (near + far)))
end

local function slope(x, dim, spacing, order)
  local n = x:size(dim)
  if n < order + 1 then
    check.fail(1, "gradient", "dim %d of shape %s has fewer than %d elements", dim,
               check.shape_text(x:shape()), order + 1)
  end
  local gaps = gaps_of(x, dim, spacing)
  local function gap(first, count)
    return type(gaps) == "number" and gaps or part(gaps, dim, first, count)
  end
  local pieces = {}
  local function at(i) return part(x, dim, i, 1) end
  if order == 1 then
    pieces[1] = (at(2) - at(1)) / gap(1, 1)
  else
    pieces[1] = end_slope(at(1), at(2), at(3), gap(1, 1), gap(2, 1))
  end
  if n > 2 then
    local below, here, above = part(x, dim, 1, n - 2), part(x, dim, 2, n - 2),
      part(x, dim, 3, n - 2)
    if type(gaps) == "number" then
      pieces[2] = (above - below) / (2 * gaps)
    else
      local a, b = gap(1, n - 2), gap(2, n - 2)
      pieces[2] = (above * (a * a) + here * (b * b - a * a) - below * (b * b))
        / (a * b * (a + b))
    end
  end
  if order == 1 then
    pieces[#pieces + 1] = (at(n) - at(n - 1)) / gap(n - 1, 1)
  else
    pieces[#pieces + 1] = -end_slope(at(n), at(n - 1), at(n - 2), gap(n - 1, 1),
                                     gap(n - 2, 1))
  end
  return mt.cat(pieces, dim)
end

--- Slopes of a function that is sampled, along dims: central differences, and one-sided
--- ones at the ends. One result for each dim.
--- @param x mytensor.Tensor
--- @param spacing? number|table the distance of neighbours, 1 unless given; or a list
---   with one for each dim, or with the coordinates as a vector
--- @param dim? integer|integer[] all unless given
--- @param edge_order? integer 1 unless given, or 2: parabolas at the ends
--- @return mytensor.Tensor ...
function measure.gradient(x, spacing, dim, edge_order)
  check.type(1, "gradient", x, "tensor")
  local order = check.integer(4, "gradient", edge_order or 1, "edge_order", 1)
  if order > 2 then
    check.fail(4, "gradient", "edge_order is %d, want 1 or 2", order)
  end
  local dims = type(dim) == "table" and dim or { dim }
  if dim == nil then
    for d = 1, x:dim() do dims[d] = d end
  end
  if type(spacing) == "table" and #spacing ~= #dims then
    check.fail(2, "gradient", "%d spacings for %d dims", #spacing, #dims)
  end
  x = floats(x)
  local results = {}
  for i, d in ipairs(dims) do
    d = check.dim(3, "gradient", x, d)
    local own = spacing or 1
    if type(own) == "table" then own = own[i] end
    results[i] = slope(x, d, own, order)
  end
  return table.unpack(results)
end

-- ---- interpolation ------------------------------------------------------------------

-- Which x are at a point, or beyond all, beside an infinite difference or a gap of 0:
-- arithmetic would not give the value there; and that value.
local function at_point(x, low, high, first, last)
  local finite = ((x - low) * (last - first) / (high - low)):detach():isfinite()
  return (x:le(low) | x:ge(high)) & ~finite, mt.where(x:ge(high), last, first)
end

--- A function that is given at some points, linear between them, constant beyond; at a
--- point that is there twice it has the last one's value.
--- @param x mytensor.Tensor where it is wanted
--- @param points mytensor.Tensor a vector, ascending
--- @param values mytensor.Tensor a vector: the function at each of them
--- @return mytensor.Tensor of x's shape
function measure.interp(x, points, values)
  check.type(1, "interp", x, "tensor")
  check.type(2, "interp", points, "tensor")
  check.type(3, "interp", values, "tensor")
  local n = points:numel()
  if points:dim() ~= 1 or n == 0 then
    check.fail(2, "interp", "a vector of one point or more expected, got shape %s",
               check.shape_text(points:shape()))
  end
  if values:dim() ~= 1 or values:numel() ~= n then
    check.fail(3, "interp", "values has shape %s, want [%d]",
               check.shape_text(values:shape()), n)
  end
  x, points, values = floats(x), floats(points), floats(values)
  if n == 1 then return values:expand(x:numel()):reshape(x:shape()) end
  local at = mt.searchsorted(points:detach(), x:detach(), true):sub(1):clamp(1, n - 1)
  local low, high = points:take(at), points:take(at + 1)
  local first, last = values:take(at), values:take(at + 1)
  local known, value = at_point(x, low, high, first, last)
  -- what is not used has finite gradients
  x, low, high = x:masked_fill(known, 0), low:masked_fill(known, 0),
    high:masked_fill(known, 1)
  first, last = first:masked_fill(known, 0), last:masked_fill(known, 0)
  return mt.where(known, value,
                  first:lerp(last, ((x - low) / (high - low)):clamp(0, 1)))
end

-- ---- powers, sums -------------------------------------------------------------------

--- a to the power b, in float64.
--- @param a mytensor.Tensor|number
--- @param b mytensor.Tensor|number
--- @return mytensor.Tensor float64
function measure.float_power(a, b)
  if not mt.is_tensor(a) and not mt.is_tensor(b) then
    check.fail(1, "float_power", "tensor expected, got %s", check.type_name(a))
  end
  a, b = mt.is_tensor(a) and a:double() or a, mt.is_tensor(b) and b:double() or b
  return check.call_behind(0, 2, "float_power", mt.pow, a, b)
end

--- x summed to a shape that broadcasts to x's: the gradient of expand.
--- @param x mytensor.Tensor
--- @param ... integer|integer[] the shape
--- @return mytensor.Tensor
function measure.sum_to_size(x, ...)
  check.type(1, "sum_to_size", x, "tensor")
  local shape = { ... }
  if type(shape[1]) == "table" then
    shape = table.move(shape[1], 1, #shape[1], 1, {})
  end
  local own, dims = x:shape(), {}
  local before = #own - #shape
  local fits = before >= 0
  for d = 1, #own do
    local size = d <= before and 1
      or fits and check.integer(2, "sum_to_size", shape[d - before], "size", 0)
    fits = fits and (size == 1 or size == own[d])
    if size == 1 and (own[d] ~= 1 or d <= before) then dims[#dims + 1] = d end
  end
  if not fits then
    check.fail(2, "sum_to_size", "shape %s does not sum to the shape given",
               check.shape_text(own))
  end
  local y = #dims > 0 and x:sum(dims, true) or x
  return check.call(2, "sum_to_size", y.reshape, y, shape)
end

check.take_names(measure, {
  gradient = { "x", "spacing", "dim", "edge_order" },
})

return measure
