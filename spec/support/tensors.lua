-- spec/support/tensors.lua: tensors from reference data, in any layout, and back.

local mt = require "mytensor"
local tensors = {}

local IS_FLOAT = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

function tensors.is_float(dtype) return IS_FLOAT[dtype] == true end

local function product(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end
tensors.product = product

--- A contiguous tensor from an entry {shape=, data=, dtype=}; entries without a dtype
--- are floats and become `dtype`.
function tensors.build(entry, dtype, device)
  local opts = { dtype = entry.dtype or dtype, device = device }
  if product(entry.shape) == 0 then return mt.zeros(entry.shape, opts) end
  local data = entry.data
  if entry.dtype == "bool" then
    local bools = {}
    for i, v in ipairs(data) do bools[i] = v == 1 or v == true end
    data = bools
  end
  return mt.tensor(data, opts):view(entry.shape)
end

--- The elements in row-major order as a flat list; booleans as 1 and 0.
function tensors.flat(t)
  if t:numel() == 0 then return {} end
  local list = t:detach():reshape({ t:numel() }):totable()
  if t:dtype() == "bool" then
    for i, v in ipairs(list) do list[i] = v and 1 or 0 end
  end
  return list
end

--- The nearest float32 (overflow gives infinity).
function tensors.to_float32(x)
  if x ~= x then return x end
  if math.abs(x) >= 0x1.ffffffp127 then return x > 0 and math.huge or -math.huge end
  return (string.unpack("<f", string.pack("<f", x)))
end

local function same_shape(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do if a[i] ~= b[i] then return false end end
  return true
end
tensors.same_shape = same_shape

local function shape_text(shape)
  return "[" .. table.concat(shape, ", ") .. "]"
end
tensors.shape_text = shape_text

--- Does a lie within atol + rtol * |e| of e? NaN only equals NaN, an infinity itself.
function tensors.close(a, e, atol, rtol)
  if e ~= e then return a ~= a end
  if a == e then return true end
  if math.abs(e) == math.huge then return false end
  return math.abs(a - e) <= atol + rtol * math.abs(e)
end

--- nil if t agrees with the entry, else what differs. An expected `false` is open.
--- opts: dtype (of floats), tolerance, exact
function tensors.difference(t, entry, opts)
  if not same_shape(t:shape(), entry.shape) then
    return ("shape %s instead of %s"):format(shape_text(t:shape()),
      shape_text(entry.shape))
  end
  local dtype = entry.dtype or opts.dtype
  if t:dtype() ~= dtype then
    return ("dtype %s instead of %s"):format(t:dtype(), dtype)
  end
  local atol, rtol = opts.tolerance.atol, opts.tolerance.rtol
  if opts.exact or not IS_FLOAT[dtype] then atol, rtol = 0, 0 end
  local narrow = dtype == "float32"
  local wrong, first = 0, nil
  local list = tensors.flat(t)
  if #list ~= #entry.data then
    return ("%d elements instead of %d"):format(#list, #entry.data)
  end
  for i, e in ipairs(entry.data) do
    if e == true then e = 1 end
    if e ~= false then
      if narrow then e = tensors.to_float32(e) end
      if not tensors.close(list[i], e, atol, rtol) then
        wrong = wrong + 1
        first = first or ("element %d is %.17g, not %.17g"):format(i, list[i], e)
      end
    end
  end
  if wrong > 0 then
    return ("%s (%d of %d differ)"):format(first, wrong, #entry.data)
  end
end

--- Largest |a - b| of two tensors of one shape as an entry's difference would see it:
--- nil if they agree within the tolerance.
function tensors.differ(a, b, tolerance)
  return tensors.difference(a, {
    shape = b:shape(), data = tensors.flat(b), dtype = b:dtype(),
  }, { tolerance = tolerance })
end

-- ---- layouts ------------------------------------------------------------------------
-- Each takes a contiguous x and gives a leaf and a function that views it: view(leaf)
-- has x's values in another layout. spread(g) is what a gradient of x is for the leaf.
local layouts = {}

function layouts.contiguous(x)
  local keep = function(t) return t end
  return x, keep, keep
end

function layouts.transposed(x)
  local n = x:dim()
  if n < 2 then return nil end
  local order = {}
  for i = 1, n do order[i] = n + 1 - i end
  local turn = function(t) return t:permute(order) end
  return turn(x):contiguous(), turn, turn
end

-- Surrounded by values that would show if they were read.
local function poison(dtype)
  if IS_FLOAT[dtype] then return 0 / 0 end
  return dtype == "bool" and 1 or 77
end

function layouts.sliced(x)
  local shape, padded = x:shape(), {}
  local n = #shape
  for i = 1, n do padded[i] = shape[i] + 3 end
  if n == 0 then padded[1] = 3 end
  local function cut(t)
    if n == 0 then return t:select(1, 2) end
    for i = 1, n do t = t:narrow(i, 2, shape[i]) end
    return t
  end
  local function frame(t, value)
    local base = mt.full(padded, value, { dtype = t:dtype(), device = t:device() })
    cut(base):copy_(t)
    return base
  end
  return frame(x, poison(x:dtype())), cut, function(g) return frame(g, 0) end
end

--- The rows of the first dim longer than 1 all equal the first one.
function layouts.broadcast(x)
  local shape = x:shape()
  for d = 1, #shape do
    if shape[d] > 1 then
      local function widen(t) return t:expand(shape) end
      local function sum(g) return g:sum({ dim = d, keepdim = true }) end
      return x:narrow(d, 1, 1):contiguous(), widen, sum
    end
  end
  return nil
end

tensors.layouts = layouts
tensors.layout_names = { "contiguous", "transposed", "sliced", "broadcast" }

return tensors
