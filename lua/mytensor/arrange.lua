-- lua/mytensor/arrange.lua: what gives several tensors, or makes them of positions:
-- grids, pieces, combinations, triangles, positions, copies with a part replaced.

local mt = require "mytensor"
local check = require "mytensor.check"

local arrange = {}

-- The tensors of f(a, b, ...) or f({a, b, ...}), and the table behind them.
local function tensors_of(name, ...)
  local list = table.pack(...)
  local options
  if type(list[1]) == "table" then
    options = list[2]
    list = table.pack(table.unpack(list[1])) -- the caller's stays as it is
  elseif list.n > 1 and type(list[list.n]) == "table" then
    options = list[list.n]
    list[list.n] = nil
    list.n = list.n - 1
  end
  if list.n == 0 then check.fail(1, name, "tensors expected, got none") end
  for i = 1, list.n do check.type(i, name, list[i], "tensor") end
  return list, options
end

--- Coordinates of a grid: for vectors x, y, ... one tensor each, of shape (#x, #y,
--- ...), in which it varies along its own dim. Views; several results.
--- @param ... mytensor.Tensor vectors, or one list of them; then options:
---   `indexing = "ij"`, or "xy", which exchanges the first two dims
--- @return mytensor.Tensor ...
function arrange.meshgrid(...)
  local list, options = tensors_of("meshgrid", ...)
  options = check.options(list.n + 1, "meshgrid", options, { indexing = "ij" })
  local indexing = options.indexing
  if indexing ~= "ij" and indexing ~= "xy" then
    check.fail(list.n + 1, "meshgrid", "indexing: 'ij' or 'xy' expected")
  end
  local shape, grids = {}, {}
  for i = 1, list.n do
    if list[i]:dim() > 1 then
      check.fail(i, "meshgrid", "a vector expected, got shape %s",
                 check.shape_text(list[i]:shape()))
    end
    shape[i] = list[i]:numel()
  end
  for i = 1, list.n do
    local own = {}
    for d = 1, list.n do own[d] = d == i and shape[i] or 1 end
    grids[i] = list[i]:reshape(own):expand(shape)
    if indexing == "xy" and list.n > 1 then grids[i] = grids[i]:transpose(1, 2) end
  end
  return table.unpack(grids, 1, list.n)
end

-- The shape that all shapes broadcast to.
local function broadcast(name, shapes)
  local ndim = 0
  for _, s in ipairs(shapes) do ndim = math.max(ndim, #s) end
  local shape = {}
  for d = 1, ndim do shape[d] = 1 end
  for _, s in ipairs(shapes) do
    for i, size in ipairs(s) do
      local d = ndim - #s + i
      if shape[d] == 1 then
        shape[d] = size
      elseif size ~= 1 and size ~= shape[d] then
        local texts = {}
        for k, other in ipairs(shapes) do texts[k] = check.shape_text(other) end
        check.raise("%s: shapes %s do not broadcast: dim %d is %d and %d", name,
                    table.concat(texts, ", "), d, shape[d], size)
      end
    end
  end
  return shape
end

--- Tensors expanded to one shape. Views; several results.
--- @param ... mytensor.Tensor tensors, or one list of them
--- @return mytensor.Tensor ...
function arrange.broadcast_tensors(...)
  local list = tensors_of("broadcast_tensors", ...)
  local shapes, results = {}, {}
  for i = 1, list.n do shapes[i] = list[i]:shape() end
  local shape = broadcast("broadcast_tensors", shapes)
  for i = 1, list.n do results[i] = list[i]:expand(shape) end
  return table.unpack(results, 1, list.n)
end

--- The shape that shapes broadcast to.
--- @param ... integer[] shapes
--- @return integer[]
function arrange.broadcast_shapes(...)
  local shapes = { ... }
  for i, s in ipairs(shapes) do
    check.type(i, "broadcast_shapes", s, "table")
    for d, size in ipairs(s) do
      check.integer(i, "broadcast_shapes", size, ("size [%d]"):format(d), 0)
    end
  end
  return broadcast("broadcast_shapes", shapes)
end

-- ---- pieces -------------------------------------------------------------------------

-- Sizes of the pieces: n of almost one size, or those that begin at the positions.
local function piece_sizes(name, size, pieces, equal)
  local sizes = {}
  if type(pieces) ~= "table" then
    local n = check.integer(2, name, pieces, "the number of pieces", 1)
    if equal and size % n ~= 0 then
      check.fail(2, name, "%d elements do not make %d equal pieces", size, n)
    end
    if n > math.max(size, 1) * 2 + 1000 then
      check.fail(2, name, "%d pieces of %d elements", n, size)
    end
    for i = 1, n do sizes[i] = size // n + (i <= size % n and 1 or 0) end
    return sizes
  end
  local start = 1
  for i, position in ipairs(pieces) do
    local p = check.integer(2, name, position, ("position [%d]"):format(i))
    if p < 0 then p = p + size + 1 end
    if p < start or p > size + 1 then
      check.fail(2, name, "position [%d] is %d: %d .. %d expected", i, position, start,
                 size + 1)
    end
    sizes[i] = p - start
    start = p
  end
  sizes[#sizes + 1] = size + 1 - start
  return sizes
end

local function cut(name, x, pieces, dim, equal)
  return x:split(piece_sizes(name, x:size(dim), pieces, equal), dim)
end

--- A tensor cut into a table of views.
--- @param x mytensor.Tensor
--- @param pieces integer|integer[] how many, of almost one size; or the positions, from
---   1, at which the pieces behind the first begin
--- @param dim? integer 1 unless given
--- @return mytensor.Tensor[]
function arrange.tensor_split(x, pieces, dim)
  check.type(1, "tensor_split", x, "tensor")
  return cut("tensor_split", x, pieces, check.dim(3, "tensor_split", x, dim or 1))
end

local function split_along(name, x, pieces, dim, least)
  check.type(1, name, x, "tensor")
  if x:dim() < least then
    check.fail(1, name, "%d dims or more expected, got shape %s", least,
               check.shape_text(x:shape()))
  end
  return cut(name, x, pieces, dim, true)
end

--- Columns (of a vector: elements) cut into a table of views, as tensor_split does.
--- @param x mytensor.Tensor
--- @param pieces integer|integer[] a number of equal pieces, or positions
--- @return mytensor.Tensor[]
function arrange.hsplit(x, pieces)
  check.type(1, "hsplit", x, "tensor")
  return split_along("hsplit", x, pieces, x:dim() == 1 and 1 or 2, 1)
end

--- Rows cut into a table of views, as tensor_split does.
--- @param x mytensor.Tensor of 2 dims or more
--- @param pieces integer|integer[] a number of equal pieces, or positions
--- @return mytensor.Tensor[]
function arrange.vsplit(x, pieces)
  return split_along("vsplit", x, pieces, 1, 2)
end

--- Dim 3 cut into a table of views, as tensor_split does.
--- @param x mytensor.Tensor of 3 dims or more
--- @param pieces integer|integer[] a number of equal pieces, or positions
--- @return mytensor.Tensor[]
function arrange.dsplit(x, pieces)
  return split_along("dsplit", x, pieces, 3, 3)
end

-- ---- positions ----------------------------------------------------------------------

local most_combinations, most_chosen = 1 << 22, 1 << 23 -- rows, elements

--- All choices of r elements of a vector, one a row, in the order of their positions.
--- @param x mytensor.Tensor a vector
--- @param r? integer how many, 2 unless given
--- @param with_replacement? boolean may one element be taken more than once?
--- @return mytensor.Tensor (count, r)
function arrange.combinations(x, r, with_replacement)
  check.type(1, "combinations", x, "tensor")
  r = check.integer(2, "combinations", r or 2, "r", 0)
  if x:dim() ~= 1 then
    check.fail(1, "combinations", "a vector expected, got shape %s",
               check.shape_text(x:shape()))
  end
  local n, step = x:numel(), with_replacement and 0 or 1
  if r > most_chosen then
    check.fail(2, "combinations", "%d elements a row, at most %d", r, most_chosen)
  end
  local count = 1.0
  for k = 1, r do
    count = count * (with_replacement and n + k - 1 or n - k + 1) / k
    if count <= 0 or count > most_combinations * math.max(r, 1) then break end
  end
  if count > most_combinations or count * r > most_chosen then
    check.fail(2, "combinations",
      count > most_combinations and "more than %d rows of %d elements"
        or "more than %d elements in rows of %d",
      count > most_combinations and most_combinations or most_chosen, r)
  end
  if r == 0 or count < 1 then -- the one way to choose nothing, or none
    return x:narrow(1, 1, 0):view(0, 1):expand(0, r):clone()
  end
  local positions, chosen, at = {}, {}, r
  for k = 1, r do chosen[k] = 1 + (k - 1) * step end
  while at > 0 do
    table.move(chosen, 1, r, #positions + 1, positions)
    at = r -- the last that can move on does so, those after it follow closely
    while at > 0 and chosen[at] >= n - (r - at) * step do at = at - 1 end
    if at > 0 then
      chosen[at] = chosen[at] + 1
      for k = at + 1, r do chosen[k] = chosen[k - 1] + step end
    end
  end
  local index = mt.tensor(positions, { dtype = "int64", device = x:device() })
  return x:index_select(1, index):view(#positions // r, r)
end

local function triangle(name, method, rows, columns, offset, opts)
  rows = check.integer(1, name, rows, "rows", 0)
  columns = check.integer(2, name, columns or rows, "columns", 0)
  offset = check.integer(3, name, offset or 0, "offset")
  opts = check.options(4, name, opts, { device = check.none })
  local ones = check.call(1, name, mt.ones, { rows, columns },
                          { dtype = "bool", device = opts.device })
  return ones[method](ones, offset):nonzero():t()
end

--- Positions of a matrix's lower triangle: (2, count), rows and columns, from 1.
--- @param rows integer
--- @param columns? integer as many as rows unless given
--- @param offset? integer the last diagonal, 0 unless given
--- @param opts? { device: string }
--- @return mytensor.Tensor int64
function arrange.tril_indices(rows, columns, offset, opts)
  return triangle("tril_indices", "tril", rows, columns, offset, opts)
end

--- Positions of a matrix's upper triangle: (2, count), rows and columns, from 1.
--- @param rows integer
--- @param columns? integer as many as rows unless given
--- @param offset? integer the first diagonal, 0 unless given
--- @param opts? { device: string }
--- @return mytensor.Tensor int64
function arrange.triu_indices(rows, columns, offset, opts)
  return triangle("triu_indices", "triu", rows, columns, offset, opts)
end

--- Class labels as rows of 0 and a 1.
--- @param labels mytensor.Tensor from 1, of any shape
--- @param classes? integer how many; the largest label unless given
--- @return mytensor.Tensor int64, with a last dim of classes
function arrange.one_hot(labels, classes)
  check.type(1, "one_hot", labels, "tensor")
  if labels:numel() == 0 and not classes then
    check.fail(2, "one_hot", "no labels: the number of classes is needed")
  end
  if labels:numel() > 0 then
    if labels:dtype() == "bool"
        or labels:is_floating_point() and not labels:eq(labels:long()):all():item() then
      check.fail(1, "one_hot", "labels that are whole numbers expected")
    end
    local least, most = labels:amin():item(), labels:amax():item()
    classes = check.integer(2, "one_hot", classes or most, "classes", 1)
    if least < 1 or most > classes then
      check.fail(1, "one_hot", "labels %s .. %s: 1 .. %d expected", least, most,
                 classes)
    end
  end
  classes = check.integer(2, "one_hot", classes, "classes", 1)
  local all = check.call(2, "one_hot", mt.arange, 1, classes + 1,
                         { dtype = "int64", device = labels:device() })
  return check.call(2, "one_hot", labels.eq, labels:unsqueeze(-1), all):long()
end

--- Numbers from base^first to base^last, their logarithms evenly spaced.
--- @param first number
--- @param last number
--- @param steps integer how many
--- @param base? number 10 unless given
--- @param opts? { dtype: string, device: string, requires_grad: boolean }
--- @return mytensor.Tensor
function arrange.logspace(first, last, steps, base, opts)
  check.number(1, "logspace", first, "first")
  check.number(2, "logspace", last, "last")
  steps = check.integer(3, "logspace", steps, "steps", 0)
  base = check.number(4, "logspace", base or 10, "base")
  opts = check.options(5, "logspace", opts,
    { dtype = check.none, device = check.none, requires_grad = false })
  local dtype = opts.dtype or mt.get_default_dtype()
  local exponents = mt.linspace(first, last, steps,
    { dtype = "float64", device = opts.device })
  local y = mt.pow(base, exponents):to(dtype)
  return opts.requires_grad and y:requires_grad_() or y
end

-- ---- copies with a part replaced ----------------------------------------------------

local function replaced(name, y, view, src)
  local want, got = check.shape_text(view:shape()), check.shape_text(src:shape())
  if want ~= got then check.fail(2, name, "src has shape %s, want %s", got, want) end
  check.call_behind(0, 2, name, view.copy_, view, src)
  return y
end

--- A copy of x with the slice at index of dim replaced.
--- @param x mytensor.Tensor
--- @param src mytensor.Tensor of the slice's shape
--- @param dim integer
--- @param index integer
--- @return mytensor.Tensor
function arrange.select_scatter(x, src, dim, index)
  check.type(1, "select_scatter", x, "tensor")
  check.type(2, "select_scatter", src, "tensor")
  local y = x:clone()
  local view = check.call_behind(1, 4, "select_scatter", mt.select, y, dim, index)
  return replaced("select_scatter", y, view, src)
end

--- A copy of x with the elements first, first + step, ... last of dim replaced.
--- @param x mytensor.Tensor
--- @param src mytensor.Tensor of their shape
--- @param dim? integer 1 unless given
--- @param first? integer 1 unless given
--- @param last? integer included; -1 unless given
--- @param step? integer 1 unless given
--- @return mytensor.Tensor
function arrange.slice_scatter(x, src, dim, first, last, step)
  check.type(1, "slice_scatter", x, "tensor")
  check.type(2, "slice_scatter", src, "tensor")
  dim = check.dim(3, "slice_scatter", x, dim or 1)
  first = check.integer(4, "slice_scatter", first or 1, "first")
  last = check.integer(5, "slice_scatter", last or -1, "last")
  step = check.integer(6, "slice_scatter", step or 1, "step", 1)
  local y, key = x:clone(), {}
  for d = 1, dim - 1 do key[d] = {} end
  key[dim] = { first, last, step }
  local ok, view = pcall(function() return y[key] end)
  if not ok then
    check.fail(4, "slice_scatter", "%s", (tostring(view):gsub("^.-:%d+: ", "")))
  end
  return replaced("slice_scatter", y, view, src)
end

--- A copy of x with a diagonal replaced.
--- @param x mytensor.Tensor
--- @param src mytensor.Tensor of the shape that x:diagonal gives
--- @param offset? integer 0 unless given
--- @param dim1? integer 1 unless given
--- @param dim2? integer 2 unless given
--- @return mytensor.Tensor
function arrange.diagonal_scatter(x, src, offset, dim1, dim2)
  check.type(1, "diagonal_scatter", x, "tensor")
  check.type(2, "diagonal_scatter", src, "tensor")
  local y = x:clone()
  local view = check.call_behind(1, 1, "diagonal_scatter", mt.diagonal, y, offset or 0,
                                 dim1 or 1, dim2 or 2)
  return replaced("diagonal_scatter", y, view, src)
end

--- x with the slices of src combined with its own at the positions of dim.
--- @param x mytensor.Tensor
--- @param dim integer
--- @param index mytensor.Tensor a vector of positions
--- @param src mytensor.Tensor of x's shape but along dim, where it has index's size
--- @param reduce string "sum", "prod", "mean", "amax" or "amin"
--- @param include_self? boolean does what x holds there count? Yes unless given
--- @return mytensor.Tensor
function arrange.index_reduce(x, dim, index, src, reduce, include_self)
  check.type(1, "index_reduce", x, "tensor")
  check.type(3, "index_reduce", index, "tensor")
  check.type(4, "index_reduce", src, "tensor")
  dim = check.dim(2, "index_reduce", x, dim)
  if index:dim() ~= 1 then
    check.fail(3, "index_reduce", "a vector expected, got shape %s",
               check.shape_text(index:shape()))
  end
  local want, along = x:shape(), {}
  for d = 1, #want do along[d] = 1 end
  want[dim], along[dim] = index:numel(), index:numel()
  if check.shape_text(src:shape()) ~= check.shape_text(want) then
    check.fail(4, "index_reduce", "src has shape %s, want %s",
               check.shape_text(src:shape()), check.shape_text(want))
  end
  if include_self == nil then include_self = true end
  return check.call_behind(0, 3, "index_reduce", mt.scatter_reduce, x, dim,
                           index:view(along):expand(want), src, reduce, include_self)
end

--- Positions in a tensor of a shape, one result for each dim, of positions in that
--- tensor flattened: `row, column = mt.unravel_index(x:argmax(), x:shape())`.
--- @param index mytensor.Tensor|integer from 1, negative from the end
--- @param shape integer[]
--- @return mytensor.Tensor|integer ... as index is
function arrange.unravel_index(index, shape)
  check.type(2, "unravel_index", shape, "table")
  local count = 1
  for d = 1, #shape do
    local size = check.integer(2, "unravel_index", shape[d], ("shape[%d]"):format(d), 0)
    count = count * size
  end
  local at, bad
  if mt.is_tensor(index) then
    at = check.type(1, "unravel_index", index, "tensor"):to "int64"
    bad = (at:eq(0) | at:lt(-count) | at:gt(count) | at:ne(index)):any():item()
    at = mt.where(at:lt(0), at + count, at - 1)
  else
    at = check.integer(1, "unravel_index", index, "index")
    bad = at == 0 or at < -count or at > count
    at = at < 0 and at + count or at - 1
  end
  if bad then
    check.fail(1, "unravel_index", "a position in a tensor of shape %s expected: "
      .. "1 .. %d or -%d .. -1", check.shape_text(shape), count, count)
  end
  local places = {}
  for d = #shape, 1, -1 do
    at, places[d] = at // shape[d], at % shape[d] + 1
  end
  return table.unpack(places, 1, #shape)
end

check.take_names(arrange, {
  tensor_split = { "x", "pieces", "dim" },
  combinations = { "x", "r", "with_replacement" },
  one_hot = { "labels", "classes" },
  select_scatter = { "x", "src", "dim", "index" },
  slice_scatter = { "x", "src", "dim", "first", "last", "step" },
  diagonal_scatter = { "x", "src", "offset", "dim1", "dim2" },
  index_reduce = { "x", "dim", "index", "src", "reduce", "include_self" },
})

return arrange
