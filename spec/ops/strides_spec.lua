-- spec/ops/strides_spec.lua: elementwise operators, copies and sums of random views,
-- permuted, cut, stepped over, spread and turned, against a model in plain Lua that
-- knows strides only. MYTENSOR_STRIDES_SEED repeats a run.

local mt = require "mytensor"

local SEED = tonumber(os.getenv "MYTENSOR_STRIDES_SEED") or os.time()
local SIZES <const> = { 1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 40, 65, 127, 130, 260, 520,
  1100 }
local MOST <const> = 9000 -- elements of a view
local CASES <const> = 12  -- of each dtype
local DTYPES <const> = { "float32", "float64", "float16", "bfloat16", "int64", "int32",
  "int16", "int8", "uint8", "bool" }

local rand = math.random

local function product(list)
  local p = 1
  for _, v in ipairs(list) do p = p * v end
  return p
end

-- One to five sizes, few elements.
local function random_shape()
  local shape = {}
  for d = 1, rand(1, 5) do
    local size = SIZES[rand(#SIZES)]
    shape[d] = product(shape) * size <= MOST and size or rand(1, 2)
  end
  for d = #shape, 2, -1 do
    local e = rand(d)
    shape[d], shape[e] = shape[e], shape[d]
  end
  return shape
end

-- A view of this shape into a base of its own: { tensor, base, values of the base,
-- shape, strides, offset }. spread: dims may have the stride 0.
local function random_view(shape, dtype, spread)
  local n = #shape
  local order, whole, first, step, still = {}, {}, {}, {}, {}
  for d = 1, n do table.insert(order, rand(d), d) end -- of dims in memory
  for d = 1, n do
    still[d] = spread and rand(3) == 1
    step[d] = rand(4) == 1 and 2 or 1
    first[d] = rand(3) == 1 and rand(0, 2) or 0
    whole[d] = still[d] and 1 or first[d] + shape[d] * step[d] + rand(0, 1)
    if still[d] then first[d], step[d] = 0, 1 end
  end
  local sizes, strides, offset, stride, values = {}, {}, 0, 1, {}
  for i = n, 1, -1 do
    local d = order[i]
    sizes[i] = whole[d]
    strides[d] = still[d] and 0 or stride * step[d]
    offset = offset + first[d] * stride
    stride = stride * whole[d]
  end
  for i = 1, stride do
    values[i] = rand(0, 50)
    if dtype == "bool" then values[i] = values[i] % 2 end
  end
  local base = mt.tensor(values, { dtype = "int64" }):to(dtype):reshape(sizes)
  local back = {}
  for i, d in ipairs(order) do back[d] = i end
  local t = base:permute(table.unpack(back))
  for d = 1, n do
    if not still[d] then
      local key = {}
      for e = 1, n do key[e] = {} end
      key[d] = { first[d] + 1, first[d] + shape[d] * step[d], step[d] }
      t = t[key]
    end
  end
  t = t:expand(table.unpack(shape))
  return { t = t, base = base, values = values, shape = shape, strides = strides,
    offset = offset }
end

-- The positions of a view's elements among its base's values, from 1.
local function positions(v)
  local list = { v.offset + 1 }
  for d = 1, #v.shape do
    local longer = {}
    for _, p in ipairs(list) do
      for i = 0, v.shape[d] - 1 do longer[#longer + 1] = p + i * v.strides[d] end
    end
    list = longer
  end
  return list
end

local function elements(v)
  local list = {}
  for i, p in ipairs(positions(v)) do list[i] = v.values[p] end
  return list
end

local function as_tensor(list, shape, dtype)
  return mt.tensor(list, { dtype = "int64" }):to(dtype):reshape(shape)
end

local function both(a, b, fn)
  local list = {}
  for i = 1, #a do list[i] = fn(a[i], b[i]) end
  return list
end

local function text_of(v)
  return ("shape %s, strides %s, offset %d"):format(table.concat(v.shape, " "),
    table.concat(v.strides, " "), v.offset)
end

local function check(dtype)
  local shape = random_shape()
  local a, b = random_view(shape, dtype, true), random_view(shape, dtype, true)
  local to = random_view(shape, dtype, false)
  local where = ("seed %d, %s: %s; %s; %s"):format(SEED, dtype, text_of(a),
    text_of(b), text_of(to))
  local x, y = elements(a), elements(b)
  local plus = dtype == "bool" and function(v, w) return v | w end
    or function(v, w) return v + w end

  assert.is_true(a.t:clone():equal(as_tensor(x, shape, dtype)), "clone, " .. where)
  local float = as_tensor(x, shape, "float32")
  assert.is_true(a.t:to "float32":equal(float), "to, " .. where)
  local sum = as_tensor(both(x, y, plus), shape, dtype)
  assert.is_true((a.t + b.t):equal(sum), "add, " .. where)
  assert.is_true((b.t + a.t):equal(sum), "add, the other way round, " .. where)
  local twice = as_tensor(both(x, x, plus), shape, dtype)
  assert.is_true((a.t + a.t):equal(twice), "add to itself, " .. where)
  local smaller = both(x, y, function(v, w) return v < w and 1 or 0 end)
  assert.is_true(a.t:lt(b.t):equal(as_tensor(smaller, shape, "bool")), "lt, " .. where)

  -- into a view: what lies between is left alone
  local at = positions(to)
  local values = table.move(to.values, 1, #to.values, 1, {})
  to.t:copy_(a.t)
  for i, p in ipairs(at) do values[p] = x[i] end
  assert.is_true(to.base:equal(as_tensor(values, to.base:shape(), dtype)),
    "copy_, " .. where)
  to.t:add_(b.t)
  for i, p in ipairs(at) do values[p] = plus(values[p], y[i]) end
  assert.is_true(to.base:equal(as_tensor(values, to.base:shape(), dtype)),
    "add_, " .. where)
end

describe("random views", function()
  for _, dtype in ipairs(DTYPES) do
    it("of " .. dtype .. " are read and written where they lie", function()
      math.randomseed(SEED)
      for _ = 1, CASES do check(dtype) end
    end)
  end

  it("give the same with one thread and with two", function()
    mt.manual_seed(SEED)
    local threads = mt.get_num_threads()
    local x = mt.rand(70, 50, 90)
    local function results()
      local column = x:permute(3, 1, 2)
      return { column + 1, column + column, column + x[{ 1, 1, {} }]:reshape(90, 1, 1),
        x:permute(2, 3, 1):contiguous(), x:flip(1, 3),
        x[{ {}, {}, { 1, 80, 3 } }] * x[{ {}, 1, { 1, 27 } }]:unsqueeze(2),
        x:half():permute(3, 2, 1):neg(), x:permute(3, 2, 1):double() }
    end
    mt.set_num_threads(1)
    local one = results()
    mt.set_num_threads(2)
    local two = results()
    mt.set_num_threads(threads)
    for i = 1, #one do assert.is_true(one[i]:equal(two[i]), "result " .. i) end
  end)
end)
