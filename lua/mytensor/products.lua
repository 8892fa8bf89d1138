-- lua/mytensor/products.lua: products over named dims: einsum, tensordot; norms of
-- matrices. Each step is one batched product, so gradients of any order come with it.

local mt = require "mytensor"
local check = require "mytensor.check"
local contraction = require "mytensor.contraction"

local products = {}
local most_dims = 12

-- ---- the equation -------------------------------------------------------------------
-- A subscript is a letter; the dims that "..." stands for are the numbers -1, -2, ...
-- from the last.

local function short(text) return #text > 60 and text:sub(1, 57) .. "..." or text end

local function fail(equation, format, ...)
  check.fail(1, "einsum", "'%s': " .. format, short(equation), ...)
end

-- The subscripts of one operand: letters, and where "..." stands.
local function parse_operand(equation, text)
  local labels, dots = {}, nil
  local i = 1
  while i <= #text do
    local c = text:sub(i, i)
    if c:find "%a" then
      labels[#labels + 1] = c
    elseif text:sub(i, i + 2) == "..." then
      if dots then fail(equation, "'...' stands twice in '%s'", short(text)) end
      dots = #labels + 1
      i = i + 2
    else
      fail(equation, "'%s' is no subscript: letters and '...' are", c)
    end
    i = i + 1
  end
  return { labels = labels, dots = dots, text = text }
end

local function parse(equation)
  local text = equation:gsub("%s+", "")
  local left, right = text, text:match "%->(.*)$"
  if right then left = text:match "^(.-)%->" end
  local operands = {}
  for part in (left .. ","):gmatch "([^,]*)," do
    operands[#operands + 1] = parse_operand(equation, part)
  end
  local parsed = { operands = operands }
  if right then
    parsed.output = parse_operand(equation, right)
    local seen = {}
    for _, label in ipairs(parsed.output.labels) do
      if seen[label] then fail(equation, "'%s' stands twice in the result", label) end
      seen[label] = true
    end
    return parsed
  end
  -- without "->": "...", then what stands once, by the alphabet
  local count, once = {}, {}
  for _, operand in ipairs(operands) do
    for _, label in ipairs(operand.labels) do count[label] = (count[label] or 0) + 1 end
  end
  for label, n in pairs(count) do
    if n == 1 then once[#once + 1] = label end
  end
  table.sort(once)
  parsed.output = { labels = once, dots = 1, text = table.concat(once) }
  return parsed
end

-- The labels of an operand of ndim dims.
local function with_dots(equation, operand, ndim, which)
  local n = #operand.labels
  if operand.dots and ndim < n or not operand.dots and ndim ~= n then
    fail(equation, "tensor %d has %d dims, '%s' wants %d%s", which, ndim,
         short(operand.text), n, operand.dots and " or more" or "")
  end
  local list = {}
  for i = 1, n + 1 do
    if i == operand.dots then
      for k = ndim - n, 1, -1 do list[#list + 1] = -k end
    end
    list[#list + 1] = operand.labels[i]
  end
  return list
end

-- ---- einsum -------------------------------------------------------------------------

local parsed_equations, plans, plan_count = {}, {}, 0
local most_plans = 512

local function sizes_of(equation, inputs, shapes, tensors)
  local sizes, first = {}, {}
  for i, labels in ipairs(inputs) do
    local own = {}
    for d, label in ipairs(labels) do
      local size = shapes[i][d]
      if own[label] and own[label] ~= size then
        fail(equation, "'%s' is %d and %d in tensor %d of shape %s", label, own[label],
             size, i, check.shape_text(tensors[i]:shape()))
      end
      own[label] = size
      if sizes[label] == nil or sizes[label] == 1 then
        sizes[label], first[label] = size, i
      elseif size ~= 1 and size ~= sizes[label] then
        local name = type(label) == "string" and label or "..."
        fail(equation, "'%s' is %d in tensor %d and %d in tensor %d", name,
             sizes[label], first[label], size, i)
      end
    end
  end
  return sizes
end

local function plan_for(equation, tensors, shapes)
  local parsed = parsed_equations[equation]
  if not parsed then
    parsed = parse(equation)
    parsed_equations[equation] = parsed
  end
  if #parsed.operands ~= #tensors then
    fail(equation, "%d operands, but %d tensors", #parsed.operands, #tensors)
  end
  local inputs, dots = {}, 0
  for i, operand in ipairs(parsed.operands) do
    inputs[i] = with_dots(equation, operand, #shapes[i], i)
    dots = math.max(dots, #inputs[i] - #operand.labels)
  end
  local sizes = sizes_of(equation, inputs, shapes, tensors)
  for _, label in ipairs(parsed.output.labels) do
    if not sizes[label] then fail(equation, "no tensor has '%s'", label) end
  end
  local output = parsed.output.dots
    and with_dots(equation, parsed.output, #parsed.output.labels + dots, 0)
    or parsed.output.labels
  local plan = contraction.plan(inputs, shapes, output, sizes)
  for _, step in ipairs(plan.steps) do
    local a, b, y = step.a_shape or {}, step.b_shape or {}, step.shape or {}
    local n = math.max(#a, #b, #y)
    if n > most_dims then
      fail(equation, "a product on the way has %d dims, more than %d", n, most_dims)
    end
    plan.sums = plan.sums or step.kind == "matmul"
  end
  return plan
end

--- Sums of products over named dims (Einstein's convention): in "bij,bjk->bik" each dim
--- has a letter; letters that the result lacks are summed over, a letter twice in one
--- tensor means its diagonal, "..." any dims, which are broadcast. Without "->" the
--- result has the letters that stand once, by the alphabet. The order of the products
--- is the cheapest. Letters that one tensor alone has are summed as by sum(), integers
--- in int64; products of small integers keep their dtype.
--- @param equation string
--- @param ... mytensor.Tensor the operands, or one list of them
--- @return mytensor.Tensor
function products.einsum(equation, ...)
  check.type(1, "einsum", equation, "string")
  local tensors, n = { ... }, select("#", ...)
  if n == 1 and type(tensors[1]) == "table" then
    tensors, n = tensors[1], #tensors[1]
  end
  while n > 0 and tensors[n] == nil do n = n - 1 end -- as of arguments left out
  if n == 0 then check.fail(2, "einsum", "tensors expected, got none") end
  if n > 60 then check.fail(2, "einsum", "more than 60 tensors") end
  local shapes, key, bools = {}, { equation }, 0
  for i = 1, n do
    local t = tensors[i]
    check.type(i + 1, "einsum", t, "tensor")
    if t:dtype() == "bool" then bools = bools + 1 end
    shapes[i] = t:shape()
    key[i + 1] = table.concat(shapes[i], ",")
  end
  key = table.concat(key, ";")
  local plan = plans[key]
  if not plan then
    if plan_count >= most_plans then
      plans, parsed_equations, plan_count = {}, {}, 0
    end
    plan = plan_for(equation, tensors, shapes)
    plans[key], plan_count = plan, plan_count + 1
  end
  if plan.sums and bools == #tensors then
    check.fail(2, "einsum",
               "sums of products of bool are not supported; convert with "
                 .. ":to(\"int64\")")
  end
  return contraction.run(plan, tensors)
end

-- ---- tensordot ----------------------------------------------------------------------

local function dim_list(n, dims, ndim, shape)
  local list = type(dims) == "table" and dims or { dims }
  local result, seen = {}, {}
  for i, dim in ipairs(list) do
    local d = check.integer(3, "tensordot", dim, ("dims[%d][%d]"):format(n, i))
    if d < 0 then d = d + ndim + 1 end
    if d < 1 or d > ndim then
      check.fail(3, "tensordot", "dim %d is out of range for shape %s", dim,
                 check.shape_text(shape))
    end
    if seen[d] then check.fail(3, "tensordot", "dim %d stands twice", dim) end
    result[i], seen[d] = d, true
  end
  return result
end

--- Sums of products over some dims of each: the result has the dims that are left, a's
--- before b's.
--- @param a mytensor.Tensor
--- @param b mytensor.Tensor
--- @param dims? integer|integer[][] how many: the last of a and the first of b, 2
---   unless given; or two lists, of a's dims and of b's
--- @return mytensor.Tensor
function products.tensordot(a, b, dims)
  check.type(1, "tensordot", a, "tensor")
  check.type(2, "tensordot", b, "tensor")
  local sa, sb = a:shape(), b:shape()
  local da, db = {}, {}
  if dims == nil or type(dims) == "number" then
    local n = check.integer(3, "tensordot", dims or 2, "dims", 0)
    if n > #sa or n > #sb then
      check.fail(3, "tensordot", "%d dims of shapes %s and %s", n, check.shape_text(sa),
                 check.shape_text(sb))
    end
    for i = 1, n do da[i], db[i] = #sa - n + i, i end
  else
    check.type(3, "tensordot", dims, "table")
    da, db = dim_list(1, dims[1], #sa, sa), dim_list(2, dims[2], #sb, sb)
    if #da ~= #db then
      check.fail(3, "tensordot", "%d dims of a, %d of b", #da, #db)
    end
  end
  local la, lb, output, sizes, inner = {}, {}, {}, {}, {}
  for d = 1, #sa do la[d] = d end
  for d = 1, #sb do lb[d] = #sa + d end
  for i, d in ipairs(da) do
    if sa[d] ~= sb[db[i]] then
      check.fail(3, "tensordot", "dim %d of shape %s and dim %d of shape %s differ", d,
                 check.shape_text(sa), db[i], check.shape_text(sb))
    end
    lb[db[i]], inner[d] = d, true
  end
  if #da > 0 and a:dtype() == "bool" and b:dtype() == "bool" then
    check.fail(1, "tensordot",
               "sums of products of bool are not supported; convert with "
                 .. ":to(\"int64\")")
  end
  for d, label in ipairs(la) do sizes[label] = sa[d] end
  for d, label in ipairs(lb) do sizes[label] = sb[d] end
  for _, label in ipairs(la) do
    if not inner[label] then output[#output + 1] = label end
  end
  for _, label in ipairs(lb) do
    if label > #sa then output[#output + 1] = label end
  end
  if #output > 12 then
    check.fail(2, "tensordot", "shapes %s and %s: a result of %d dims, at most 12 are "
      .. "possible", check.shape_text(sa), check.shape_text(sb), #output)
  end
  local plan = contraction.plan({ la, lb }, { sa, sb }, output, sizes)
  return contraction.run(plan, { a, b })
end

-- ---- norms of matrices --------------------------------------------------------------

-- 1 where x is 0, so that it may divide.
local function divisor(x) return mt.where(x:eq(0), mt.ones_like(x), x) end

local function trace_of(x) return x:diagonal(0, -2, -1):sum(-1):unsqueeze { -2, -1 } end

-- The largest singular value: powers of A'A, each the square of the one before and
-- scaled to trace 1, end at the projection on the vectors that belong to it.
local function spectral(x)
  local gram
  if x:size(-2) < x:size(-1) then
    gram = x:matmul(x:transpose(-1, -2))
  else
    gram = x:transpose(-1, -2):matmul(x)
  end
  local power = gram / divisor(trace_of(gram))
  for _ = 1, 60 do
    power = power:matmul(power)
    power = power / divisor(trace_of(power))
  end
  return (gram * power):sum { -2, -1 }:sqrt()
end

-- A' where A is wider than high, and its orthogonal factor, which is where
-- X := 3/2 X - 1/2 X X'X ends (Newton and Schulz): a singular value that float64 tells
-- from 0 is 1 after 90 steps.
local function polar(x)
  local y = x:size(-2) < x:size(-1) and x:transpose(-1, -2) or x
  local factor = y / divisor(y:norm(2, { -2, -1 }, true))
  for _ = 1, 90 do
    local square = factor:transpose(-1, -2):matmul(factor)
    factor = factor * 1.5 - factor:matmul(square) * 0.5
  end
  return y, factor
end

-- The sum of the singular values: of A times its orthogonal factor.
local function nuclear(x)
  local y, factor = polar(x)
  return (factor * y):sum { -2, -1 }
end

-- The smallest singular value: 1 over the largest one of the inverse. What isn't square
-- becomes so, with the same singular values, times the transposed orthogonal factor.
local function smallest(x)
  local m, n = x:size(-2), x:size(-1)
  if math.min(m, n) == 0 then
    check.fail(1, "matrix_norm", "shape %s has no singular values",
               check.shape_text(x:shape()))
  end
  if m ~= n then
    local y, factor = polar(x)
    x = factor:transpose(-1, -2):matmul(y)
  end
  local scale = divisor(x:detach():abs():amax({ -2, -1 }, true))
  x = x / scale
  local singular = x:detach():slogdet():eq(0)
  local one = mt.eye(math.min(m, n), { dtype = x:dtype(), device = x:device() })
  local inverse = mt.where(singular:unsqueeze { -2, -1 }, one, x):inverse()
  local length = divisor(inverse:detach():abs():amax({ -2, -1 }, true))
  local largest = spectral(inverse / length) * length:squeeze { -2, -1 }
  return mt.where(singular, 0, scale:squeeze { -2, -1 } / largest)
end

local function extreme_sum(x, largest, along)
  local sums = x:abs():sum(along)
  return largest and sums:amax(-1) or sums:amin(-1)
end

--- Norm of the matrices in the last two dims, or in others.
--- @param x mytensor.Tensor floats
--- @param p? string|number "fro" (the default: root of the sum of squares), "nuc" (sum
---   of the singular values), 2 and -2 (the largest and the smallest), 1 and -1 (the
---   largest and the smallest sum of a column's absolute values), math.huge and
---   -math.huge (of a row's)
--- @param dim? integer[] the two dims
--- @param keepdim? boolean keep them, with size 1
--- @return mytensor.Tensor
function products.matrix_norm(x, p, dim, keepdim)
  check.type(1, "matrix_norm", x, "tensor")
  p, dim = p or "fro", dim or { -2, -1 }
  check.type(3, "matrix_norm", dim, "table")
  if x:dim() < 2 or #dim ~= 2 then
    check.fail(1, "matrix_norm", "two dims expected, got shape %s",
               check.shape_text(x:shape()))
  end
  if not check.is_float(x) then
    check.fail(1, "matrix_norm", "floats expected, got %s", x:dtype())
  end
  local first = check.dim(3, "matrix_norm", x, dim[1])
  dim = { first, check.dim(3, "matrix_norm", x, dim[2]) }
  if dim[1] == dim[2] then
    check.fail(3, "matrix_norm", "dim %d stands twice", dim[1])
  end
  local y, dtype = x:movedim(dim, { -2, -1 }), x:dtype()
  if p == "fro" then
    y = y:norm(2, { -2, -1 })
  elseif p == "nuc" then
    y = nuclear(y:double()):to(dtype)
  elseif p == 2 then
    y = spectral(y:double()):to(dtype)
  elseif p == -2 then
    y = smallest(y:double()):to(dtype)
  elseif p == 1 or p == -1 then
    y = extreme_sum(y, p == 1, -2)
  elseif p == math.huge or p == -math.huge then
    y = extreme_sum(y, p > 0, -1)
  else
    check.fail(2, "matrix_norm",
               "'fro', 'nuc', 2, -2, 1, -1, inf or -inf expected, got %s", tostring(p))
  end
  if not keepdim then return y end
  table.sort(dim)
  return y:unsqueeze(dim)
end

-- ---- exponentials -------------------------------------------------------------------

--- e to the power of square matrices, by scaling and squaring: the Taylor polynomial of
--- x / 2^s, whose norm is below 1/2, squared s times.
--- @param x mytensor.Tensor (..., n, n) floats
--- @return mytensor.Tensor
function products.matrix_exp(x)
  check.type(1, "matrix_exp", x, "tensor")
  local dtype, shape = x:dtype(), x:shape()
  if not check.is_float(x) then
    check.fail(1, "matrix_exp", "floats expected, got %s", dtype)
  end
  if #shape < 2 or shape[#shape] ~= shape[#shape - 1] then
    check.fail(1, "matrix_exp", "square matrices expected, got shape %s",
               check.shape_text(shape))
  end
  if x:numel() == 0 then return x:clone() end
  local largest = x:detach():abs():double():sum(-1):amax():item()
  local squarings = 0
  if largest > 0.5 and largest < math.huge then
    squarings = math.ceil(math.log(largest, 2)) + 1
  end
  local y = x:double() * 2.0 ^ -squarings
  local one = mt.eye(shape[#shape], { dtype = "float64", device = x:device() })
  local power = one
  for k = 14, 1, -1 do power = one + y:matmul(power) / k end
  for _ = 1, squarings do power = power:matmul(power) end
  return power:to(dtype)
end

-- ---- directions ---------------------------------------------------------------------

--- x over its norm along a dim, which is taken to be epsilon at least.
--- @param x mytensor.Tensor
--- @param p? number of the norm, 2 unless given
--- @param dim? integer 2 unless given, of a vector 1
--- @param epsilon? number 1e-12 unless given
--- @return mytensor.Tensor
function products.normalize(x, p, dim, epsilon)
  check.type(1, "normalize", x, "tensor")
  p = p or 2
  if type(p) ~= "number" then
    check.fail(2, "normalize", "p must be a number, got %s", check.type_name(p))
  end
  dim = check.any_dim(3, "normalize", x, dim or (x:dim() > 1 and 2 or 1))
  epsilon = check.number(4, "normalize", epsilon or 1e-12, "epsilon")
  return x / x:norm(p, dim, true):clamp(epsilon)
end

--- Cosine of the angle between vectors along a dim; broadcasts.
--- @param a mytensor.Tensor
--- @param b mytensor.Tensor
--- @param dim? integer 2 unless given, of vectors 1
--- @param epsilon? number the least length, 1e-8 unless given
--- @return mytensor.Tensor
function products.cosine_similarity(a, b, dim, epsilon)
  check.type(1, "cosine_similarity", a, "tensor")
  check.type(2, "cosine_similarity", b, "tensor")
  local shape = check.call(2, "cosine_similarity", mt.broadcast_shapes, a:shape(),
                           b:shape())
  a, b = a:expand(shape), b:expand(shape)
  dim = check.any_dim(3, "cosine_similarity", a, dim or (#shape > 1 and 2 or 1))
  epsilon = check.number(4, "cosine_similarity", epsilon or 1e-8, "epsilon")
  local lengths = a:norm(2, dim):clamp(epsilon) * b:norm(2, dim):clamp(epsilon)
  return (a * b):sum(dim) / lengths
end

check.take_names(products, {
  tensordot = { "a", "b", "dims" },
  matrix_norm = { "x", "p", "dim", "keepdim" },
  normalize = { "x", "p", "dim", "epsilon" },
  cosine_similarity = { "a", "b", "dim", "epsilon" },
})

return products
