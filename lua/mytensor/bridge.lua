-- lua/mytensor/bridge.lua: between tensors and Lua's values: loops over slices, Lua
-- functions of elements, strings of bytes.

local mt = require "mytensor"
local check = require "mytensor.check"

local bridge = {}

--- Slices one after the other: `for i, row in t:iter() do`. Views: writing to a slice
--- writes to the tensor.
--- @param t mytensor.Tensor
--- @param dim? integer along which, 1 unless given
--- @return function
function bridge.iter(t, dim)
  check.type(1, "iter", t, "tensor")
  if t:dim() == 0 then check.fail(1, "iter", "a tensor with dims expected") end
  local d = check.dim(2, "iter", t, dim or 1)
  return function(n, i)
    if i < n then return i + 1, t:select(d, i + 1) end
  end, t:size(d), 0
end

-- The elements as a flat list.
local function elements(t)
  if t:numel() == 0 then return {} end
  return t:detach():reshape({ t:numel() }):totable()
end

-- n: the argument of `name` that has made the list.
local function rebuilt(n, name, list, t)
  if #list == 0 then return mt.empty_like(t:detach()) end
  local opts = { dtype = t:dtype(), device = t:device() }
  return check.call(n, name, mt.tensor, list, opts):view(t:shape())
end

local function check_value(name, y, i, t)
  if type(y) ~= "number" and type(y) ~= "boolean" then
    check.raise("%s: the function gave %s for element %d of shape %s", name,
                check.type_name(y), i, check.shape_text(t:shape()))
  end
end

--- A Lua function of each element, in row-major order, as a new tensor of t's dtype and
--- device. With more tensors, of t's shape, the function gets an element of each. Slow
--- beside the operators, since each element passes through Lua; no gradient flows.
--- @param t mytensor.Tensor
--- @param ... mytensor.Tensor|function the other tensors, if any; last the function
--- @return mytensor.Tensor
function bridge.map(t, ...)
  check.type(1, "map", t, "tensor")
  local n = select("#", ...)
  local fn = check.type(n + 1, "map", (select(math.max(n, 1), ...)), "function")
  local others = { ... }
  others[n] = nil
  for i, u in ipairs(others) do
    check.type(i + 1, "map", u, "tensor")
    local shape, own = u:shape(), t:shape()
    local same = #shape == #own
    for d = 1, #own do same = same and shape[d] == own[d] end
    if not same then
      check.fail(i + 1, "map", "shape %s expected, got %s", check.shape_text(own),
                 check.shape_text(shape))
    end
    others[i] = elements(u)
  end
  local list = elements(t)
  for i = 1, #list do
    if #others == 0 then
      list[i] = fn(list[i])
    else
      local values = { list[i] }
      for k, other in ipairs(others) do values[k + 1] = other[i] end
      list[i] = fn(table.unpack(values))
    end
    check_value("map", list[i], i, t)
  end
  return rebuilt(n + 1, "map", list, t)
end

--- The same in place, as torch7's: an element for which the function gives nil stays.
--- @param t mytensor.Tensor
--- @param fn fun(x: number|boolean): number|boolean|nil
--- @return mytensor.Tensor t
function bridge.apply(t, fn)
  check.type(1, "apply", t, "tensor")
  check.type(2, "apply", fn, "function")
  local list = elements(t)
  for i = 1, #list do
    local y = fn(list[i])
    if y ~= nil then
      check_value("apply", y, i, t)
      list[i] = y
    end
  end
  return check.call(1, "apply", t.copy_, t, rebuilt(2, "apply", list, t))
end

local sizes = { float64 = 8, float32 = 4, float16 = 2, bfloat16 = 2, int64 = 8,
  int32 = 4, int16 = 2, int8 = 1, uint8 = 1, bool = 1 }

--- A tensor of the bytes of a string, which are copied.
--- @param bytes string
--- @param dtype? string "float32" unless given
--- @param shape? integer[] all elements as a vector unless given
--- @param opts? { offset: integer, big_endian: boolean, device: string } offset: bytes
---   to leave out in front
--- @return mytensor.Tensor
function bridge.frombuffer(bytes, dtype, shape, opts)
  check.type(1, "frombuffer", bytes, "string")
  dtype = dtype or "float32"
  local size = sizes[dtype]
  if not size then
    check.fail(2, "frombuffer", "unknown dtype '%s'", tostring(dtype))
  end
  opts = check.options(4, "frombuffer", opts,
                       { offset = 0, big_endian = false, device = check.none })
  local offset = check.integer(4, "frombuffer", opts.offset, "offset", 0)
  local rest = #bytes - offset
  if rest < 0 then
    check.fail(4, "frombuffer", "offset %d lies behind the %d bytes of the string",
               offset, #bytes)
  end
  if shape == nil then
    if rest % size ~= 0 then
      check.fail(1, "frombuffer", "%d bytes are no multiple of the %d of %s", rest,
                 size, dtype)
    end
    shape = { rest // size }
  end
  check.type(3, "frombuffer", shape, "table")
  local wanted = size + 0.0 -- a float: does not wrap
  for i, s in ipairs(shape) do
    wanted = wanted * check.integer(3, "frombuffer", s, ("shape[%d]"):format(i), 0)
  end
  if wanted > rest then
    check.fail(1, "frombuffer", "%s of shape %s takes %.0f bytes, %d are there", dtype,
               check.shape_text(shape), wanted, rest)
  end
  local t = mt._from_bytes(bytes, dtype, shape, opts.big_endian == true, offset)
  return opts.device and t:to(opts.device) or t
end

--- The elements as a string, in row-major order, little-endian: what frombuffer reads.
--- @param t mytensor.Tensor
--- @return string
function bridge.tobytes(t)
  check.type(1, "tobytes", t, "tensor")
  return mt._to_bytes(t)
end

return bridge
