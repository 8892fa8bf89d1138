-- lua/mytensor/like.lua: dtypes and their limits; new tensors like a given one.

local mt = require "mytensor"
local check = require "mytensor.check"

local like = {}

-- ---- dtypes -------------------------------------------------------------------------

-- bits, and digits behind the point; the largest and the least normal number
local floats = {
  float64 = { 64, 52, 0x1.fffffffffffffp1023, 0x1p-1022 },
  float32 = { 32, 23, 0x1.fffffep127, 0x1p-126 },
  float16 = { 16, 10, 65504.0, 0x1p-14 },
  bfloat16 = { 16, 7, 0x1.fep127, 0x1p-126 },
}
local integers = { int64 = 64, int32 = 32, int16 = 16, int8 = 8, uint8 = 8 }

local function dtype_name(n, name, dtype)
  if mt.is_tensor(dtype) then return dtype:dtype() end
  check.type(n, name, dtype, "string")
  local ok, t = pcall(mt.empty, 0, { dtype = dtype })
  if not ok then check.fail(n, name, "unknown dtype '%.40s'", dtype) end
  return t:dtype()
end

--- What a float dtype can tell apart.
--- @param dtype? string|mytensor.Tensor the default dtype unless given
--- @return { dtype: string, bits: integer, eps: number, max: number, min: number,
---   tiny: number } eps: from 1 to the next number; tiny: the least normal number
function like.finfo(dtype)
  local name = dtype_name(1, "finfo", dtype or mt.get_default_dtype())
  local f = floats[name]
  if not f then check.fail(1, "finfo", "a float dtype expected, got %s", name) end
  return { dtype = name, bits = f[1], eps = 2.0 ^ -f[2], max = f[3], min = -f[3],
    tiny = f[4] }
end

--- What an integer dtype holds.
--- @param dtype string|mytensor.Tensor
--- @return { dtype: string, bits: integer, max: integer, min: integer }
function like.iinfo(dtype)
  local name = dtype_name(1, "iinfo", dtype)
  local bits = integers[name]
  if not bits then check.fail(1, "iinfo", "an integer dtype expected, got %s", name) end
  if name == "uint8" then return { dtype = name, bits = 8, max = 255, min = 0 } end
  local most = math.maxinteger >> (64 - bits)
  return { dtype = name, bits = bits, max = most, min = -most - 1 }
end

--- The dtype of results of two tensors that have dims.
--- @param a string a dtype
--- @param b string
--- @return string
function like.promote_types(a, b)
  a, b = dtype_name(1, "promote_types", a), dtype_name(2, "promote_types", b)
  return mt.maximum(mt.empty(0, { dtype = a }), mt.empty(0, { dtype = b })):dtype()
end

--- The dtype of results of two tensors, or of a tensor and a number.
--- @param a mytensor.Tensor|number|boolean
--- @param b mytensor.Tensor|number|boolean
--- @return string
function like.result_type(a, b)
  local none, given = {}, { a, b }
  for i = 1, 2 do
    local x = given[i]
    none[i] = x
    if mt.is_tensor(x) then
      check.type(i, "result_type", x, "tensor")
      none[i] = mt.empty(x:dim() > 0 and { 0 } or {}, { dtype = x:dtype() })
    elseif type(x) ~= "number" and type(x) ~= "boolean" then
      check.fail(i, "result_type", "tensor or number expected, got %s",
                 check.type_name(x))
    end
  end
  if not mt.is_tensor(a) and not mt.is_tensor(b) then
    check.fail(1, "result_type", "a tensor expected among the two")
  end
  return mt.maximum(none[1], none[2]):dtype()
end

-- ---- like a given one ---------------------------------------------------------------

--- x in another tensor's dtype, on its device; x itself if that is so already.
--- @param x mytensor.Tensor
--- @param other mytensor.Tensor
--- @return mytensor.Tensor
function like.type_as(x, other)
  check.type(1, "type_as", x, "tensor")
  check.type(2, "type_as", other, "tensor")
  return x:to(other:dtype()):to(other:device())
end

-- x's dtype and device, unless opts say otherwise.
local function options_of(n, name, x, opts)
  opts = check.options(n, name, opts,
    { dtype = check.none, device = check.none, requires_grad = false })
  return { dtype = opts.dtype or x:dtype(), device = opts.device or x:device(),
    requires_grad = opts.requires_grad }
end

-- A shape as numbers or one list, and the options behind it.
local function shape_and_options(name, x, ...)
  check.type(1, name, x, "tensor")
  local given, opts = table.pack(...), nil
  if type(given[1]) == "table" and #given[1] > 0 or given.n == 0
      or type(given[1]) == "table" and next(given[1]) == nil then
    return given[1] or {}, options_of(3, name, x, given[2])
  end
  if type(given[given.n]) == "table" then
    opts = given[given.n]
    given.n = given.n - 1
  end
  local shape = {}
  for i = 1, given.n do shape[i] = check.integer(i + 1, name, given[i], "size", 0) end
  return shape, options_of(given.n + 2, name, x, opts)
end

--- Zeros of x's dtype, on its device.
--- @param x mytensor.Tensor
--- @param ... integer|integer[]|table the shape, as for mt.zeros; options
--- @return mytensor.Tensor
function like.new_zeros(x, ...)
  return check.call_behind(1, 2, "new_zeros", mt.zeros,
                           shape_and_options("new_zeros", x, ...))
end

--- Ones of x's dtype, on its device.
--- @param x mytensor.Tensor
--- @param ... integer|integer[]|table the shape, as for mt.ones; options
--- @return mytensor.Tensor
function like.new_ones(x, ...)
  return check.call_behind(1, 2, "new_ones", mt.ones,
                           shape_and_options("new_ones", x, ...))
end

--- A tensor of x's dtype, on its device, whose elements are not set.
--- @param x mytensor.Tensor
--- @param ... integer|integer[]|table the shape, as for mt.empty; options
--- @return mytensor.Tensor
function like.new_empty(x, ...)
  return check.call_behind(1, 2, "new_empty", mt.empty,
                           shape_and_options("new_empty", x, ...))
end

--- A tensor of x's dtype, on its device, filled with a value.
--- @param x mytensor.Tensor
--- @param shape integer|integer[]
--- @param value number|boolean
--- @param opts? { dtype: string, device: string, requires_grad: boolean }
--- @return mytensor.Tensor
function like.new_full(x, shape, value, opts)
  check.type(1, "new_full", x, "tensor")
  return check.call_behind(1, 2, "new_full", mt.full, shape, value,
                           options_of(4, "new_full", x, opts))
end

--- A tensor of x's dtype, on its device, made of a table of numbers.
--- @param x mytensor.Tensor
--- @param data table|number|boolean
--- @param opts? { dtype: string, device: string, requires_grad: boolean }
--- @return mytensor.Tensor
function like.new_tensor(x, data, opts)
  check.type(1, "new_tensor", x, "tensor")
  return check.call_behind(1, 2, "new_tensor", mt.tensor, data,
                           options_of(3, "new_tensor", x, opts))
end

--- The diagonal (i, i, ..., i) filled with a value.
--- @param x mytensor.Tensor with two dims, or more of one size
--- @param value number
--- @param wrap? boolean in a matrix higher than wide the diagonal starts again below,
---   one row left out
--- @return mytensor.Tensor x
function like.fill_diagonal_(x, value, wrap)
  check.type(1, "fill_diagonal_", x, "tensor")
  local shape = x:shape()
  if #shape < 2 then
    check.fail(1, "fill_diagonal_", "two dims or more expected, got shape %s",
               check.shape_text(shape))
  end
  for d = 3, #shape do
    if shape[d] ~= shape[1] or shape[2] ~= shape[1] then
      check.fail(1, "fill_diagonal_", "dims of one size expected, got shape %s",
                 check.shape_text(shape))
    end
  end
  if type(value) ~= "number" and type(value) ~= "boolean" then
    check.fail(2, "fill_diagonal_", "number expected, got %s", check.type_name(value))
  end
  if #shape > 2 then
    local diagonal = x
    for _ = 2, #shape do diagonal = diagonal:diagonal(0, 1, -1) end
    check.call_behind(0, 1, "fill_diagonal_", diagonal.fill_, diagonal, value)
    return x
  end
  local rows, columns = shape[1], shape[2]
  local first = 1
  repeat
    local n = math.min(columns, rows - first + 1)
    if n > 0 then
      local diagonal = x:narrow(1, first, n):diagonal()
      check.call_behind(0, 1, "fill_diagonal_", diagonal.fill_, diagonal, value)
    end
    first = first + columns + 1
  until not wrap or first > rows
  return x
end

return like
