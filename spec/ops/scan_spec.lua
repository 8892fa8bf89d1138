-- spec/ops/scan_spec.lua: running sums and extremes on the CPU against plain Lua, with
-- sizes around the blocks that their kernels have, in any layout, by any number of
-- threads.

local mt = require "mytensor"
local shell = require "spec.support.shell"
local tensors = require "spec.support.tensors"

local ALL = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }
local SIZES = { 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 9000 }
if os.getenv "MYTENSOR_GC_STRESS" then SIZES = { 1, 9, 65, 513 } end

-- Random values with ties: many small ones, in order, or with NaN, infinities and -0.
local function values(n, dtype, kind)
  local x = mt.randint(-50, 50, { n })
  if kind == "rising" then x = mt.arange(n):mul(0.05) + mt.randint(0, 4, { n }) end
  if kind == "falling" then x = mt.arange(n):mul(-0.05) + mt.randint(0, 4, { n }) end
  if dtype == "bool" then return x:gt(0) end
  if dtype == "uint8" then x = x:abs() end
  x = x:to(dtype)
  if kind == "special" and tensors.is_float(dtype) then
    x:masked_fill_(mt.rand(n):lt(1 / 700), 0 / 0)
    x:masked_fill_(mt.rand(n):lt(1 / 300), -math.huge)
    x:masked_fill_(mt.rand(n):lt(1 / 300), math.huge)
    x:masked_fill_(x:eq(7), -0.0)
  end
  return x
end

-- The same elements as a vector, with a stride, as a column, as two of many columns.
local function layouts(x)
  local n = x:size(1)
  local wide = mt.stack({ x, x, x }, 2)
  local many = x:reshape(n, 1):expand(n, 19):contiguous()
  return { x, wide:select(2, 2), many, many:t():contiguous():t(), wide:narrow(2, 1, 2) }
end

-- fn(y) for each column of what f(x, dim) gives in each layout.
local function each_column(x, f, fn)
  for _, v in ipairs(layouts(x)) do
    local y, at = f(v)
    if v:dim() == 1 then
      fn(y, at)
    else
      fn(y:select(2, 1), at and at:select(2, 1))
      fn(y:select(2, -1), at and at:select(2, -1))
    end
  end
end

local function with_threads(fn)
  local before <const> = mt.get_num_threads()
  for _, threads in ipairs { 1, 2, 3, 5 } do
    mt.set_num_threads(threads)
    fn(threads)
  end
  mt.set_num_threads(before)
end

-- Is y what is wanted, NaN where that is NaN, with the same zeros?
local function check(y, want, text)
  local alike = y:eq(want):logical_or(y:isnan():logical_and(want:isnan()))
  if tensors.is_float(y:dtype()) then
    alike = alike:logical_and(y:ne(0):logical_or((1 / y):eq(1 / want)))
  end
  if alike:all():item() then return end
  local i = alike:logical_not():nonzero()[{ 1, 1 }]:item()
  error(("%s, %d: %s, want %s"):format(text, i, y[i]:item(), want[i]:item()))
end

describe("running sums", function()
  setup(function() mt.manual_seed(31) end)

  it("are those of plain Lua, forwards and backwards", function()
    for _, dtype in ipairs(ALL) do
      for _, n in ipairs(SIZES) do
        local x = values(n, dtype, n % 2 == 0 and "special" or "plain")
        local list, integer = tensors.flat(x), not tensors.is_float(dtype)
        for _, reverse in ipairs { false, true } do
          local want, sum = {}, integer and 0 or 0.0
          for i = 1, n do
            local k = reverse and n + 1 - i or i
            sum = sum + list[k]
            want[k] = sum
          end
          -- whole numbers: exact in float64, then rounded once
          local exact = mt.tensor(want, { dtype = integer and "int64" or "float64" })
          local rounded = integer and exact or exact:to(dtype)
          each_column(x, function(v) return v:cumsum(1, reverse) end, function(y)
            check(y, rounded, dtype .. " of " .. n)
          end)
        end
      end
    end
  end)

  it("err less than sums in order do", function()
    local n = 60000
    for _, dtype in ipairs { "float32", "float64" } do
      local x = (mt.rand({ n }, { dtype = "float64" }) - 0.3):to(dtype)
      local y, list = tensors.flat(x:cumsum(1)), tensors.flat(x)
      local sum, lost, worst = 0.0, 0.0, 0.0 -- Kahan and Babuska, as Neumaier has it
      for i = 1, n do
        local v <const> = list[i]
        local t <const> = sum + v
        lost = lost + (math.abs(sum) >= math.abs(v) and (sum - t) + v or (v - t) + sum)
        sum = t
        local want = sum + lost
        if dtype == "float32" then want = tensors.to_float32(want) end
        worst = math.max(worst, math.abs(y[i] - want) / math.max(math.abs(want), 1))
      end
      assert.is_true(worst < (dtype == "float32" and 2 ^ -23 or 1e-14), tostring(worst))
    end
  end)

  it("are the same by any number of threads, on a line that they share", function()
    local n = shell.sanitized and 150000 or 1500000
    for _, dtype in ipairs { "float32", "float64", "float16", "int32" } do
      local x = (mt.rand(n) * 100):to(dtype)
      local lines = x:narrow(1, 1, n // 2 * 2):reshape(2, n // 2)
      local whole, both, back, apart
      with_threads(function(threads)
        local y, z = x:cumsum(1), lines:cumsum(2)
        local r, s = x:cumsum(1, true), lines:reshape(n // 2, 2):cumsum(1)
        whole, both, back, apart = whole or y, both or z, back or r, apart or s
        assert.is_true(whole:equal(y), dtype .. " by " .. threads)
        assert.is_true(both:equal(z), dtype .. " of two lines by " .. threads)
        assert.is_true(back:equal(r), dtype .. " backwards by " .. threads)
        assert.is_true(apart:equal(s), dtype .. " of columns by " .. threads)
      end)
      assert.is_true(whole:narrow(1, 1, n // 2):equal(both[1]), dtype)
    end
  end)

  it("never fall where nothing is negative", function()
    for _, dtype in ipairs { "float32", "float64" } do
      local y = mt.rand({ 300000 }, { dtype = dtype }):pow(8):cumsum(1)
      local n = y:size(1) - 1
      assert.is_true(y:narrow(1, 2, n):ge(y:narrow(1, 1, n)):all():item(), dtype)
    end
  end)

  it("larger than the caches are those of a copy in pieces", function()
    if shell.sanitized then pending "takes long" end
    local n = (33 << 20) // 4
    local x = mt.randint(-9, 9, { n }):to "float32" -- exact sums
    with_threads(function(threads)
      local y, ints = x:cumsum(1), x:to("int64"):cumsum(1)
      assert.is_true(y:eq(ints):all():item(), "threads: " .. threads)
    end)
    local m = x:narrow(1, 1, 2048 * 4096):reshape(2048, 4096)
    for dim = 1, 2 do
      assert.is_true(m:cumsum(dim):eq(m:to("int64"):cumsum(dim)):all():item())
    end
  end)

  it("from the other end are those of what is flipped, bit by bit", function()
    local function compare(n, dtype)
      local x = dtype == "bool" and mt.rand(n):gt(0.5) or (mt.rand(n) * 100):to(dtype)
      local want = x:flip(1):cumsum(1):flip(1)
      assert.is_true(x:cumsum(1, true):equal(want), dtype .. " of " .. n)
    end
    for _, n in ipairs(SIZES) do
      for _, dtype in ipairs(ALL) do compare(n, dtype) end
    end
    if shell.sanitized then return end
    for dtype, n in pairs { float32 = 9 << 20, float64 = 9 << 19, int64 = 9 << 19 } do
      compare(n, dtype) -- past the caches
      compare(n + 5, dtype) -- not so: the last element ends within a line
    end
  end)

  it("of nothing, and of one number", function()
    assert.same({ 0 }, mt.zeros(0):cumsum(1):shape())
    assert.same({ 3, 0 }, mt.zeros(3, 0):cumsum(1):shape())
    assert.same({ 0, 3 }, mt.zeros(0, 3):cumsum(1):shape())
    assert.equal(2.5, mt.tensor(2.5):cumsum(1):item())
    assert.equal(3, mt.tensor(3, { dtype = "int8" }):cumsum(1):item())
  end)
end)

describe("running products", function()
  setup(function() mt.manual_seed(33) end)

  -- Near 1 in size, with both signs; now and then what ends them.
  local function factors(n, dtype)
    if dtype == "bool" then return mt.rand(n):gt(0.01) end
    if not tensors.is_float(dtype) then
      return mt.randint(dtype == "uint8" and 1 or -3, 5, { n }):to(dtype)
    end
    local x = (mt.rand(n) * 0.5 + 0.78) * (mt.randint(0, 1, { n }) * 2 - 1)
    x:masked_fill_(mt.rand(n):lt(1 / 5000), 0):masked_fill_(mt.rand(n):lt(1e-4), 0 / 0)
    x:masked_fill_(mt.rand(n):lt(1 / 5000), math.huge)
    return x:to(dtype)
  end

  it("are those of plain Lua", function()
    for _, dtype in ipairs(ALL) do
      for _, n in ipairs(SIZES) do
        local x = factors(n, dtype)
        local float = tensors.is_float(dtype)
        local want, product = {}, float and 1.0 or 1
        for i, v in ipairs(tensors.flat(x)) do
          if v == true or v == false then v = v and 1 or 0 end
          product = product * v
          want[i] = product
        end
        local exact = mt.tensor(want, { dtype = float and "float64" or "int64" })
        each_column(x, function(v) return v:cumprod(1) end, function(y)
          local near = y:eq(exact:to(y:dtype()))
            :logical_or(y:isnan():logical_and(exact:isnan()))
          if float then -- rounded once, of products that are rounded to float64
            local bound = exact:abs() * (dtype:find "16" and 2 ^ -8 or 2 ^ -23) + 1e-40
            local far = (y:double() - exact):abs()
            if dtype ~= "float64" then near = near:logical_or(far:le(bound)) end
          end
          assert.is_true(near:all():item(), dtype .. " of " .. n)
        end)
      end
    end
  end)

  it("hold any four of float32", function()
    local large, small = 3e38, 1e-38
    local x = mt.tensor { large, large, small, small, small, small, large, large, 2 }
    local y = x:cumprod(1)
    local want = { large, math.huge, math.huge, 9, 9e-38, 0, 27e-38, 81, 162 }
    for i, product in ipairs(want) do
      local got = y[i]:item()
      assert.is_true(got == product or math.abs(got - product) <= 1e-6 * product, i)
    end
  end)

  it("are alike by any number of threads, and past the caches", function()
    for dtype, rows in pairs { float32 = 2100, float64 = 1050, int64 = 1050 } do
      local n = shell.sanitized and 64 or rows
      local x = factors(n * 4096, dtype):reshape(n, 4096)
      local few = x:narrow(1, 30, 20):contiguous():cumprod(2)
      with_threads(function(threads)
        local y = x:cumprod(2):narrow(1, 30, 20)
        local same = y:eq(few):logical_or(y:isnan():logical_and(few:isnan()))
        assert.is_true(same:all():item(), dtype .. " by " .. threads)
      end)
    end
    local x = mt.rand(5000, 12)
    assert.is_true(x:cumprod(2)[4321]:equal(x[4321]:cumprod(1)))
  end)
end)

describe("running extremes", function()
  setup(function() mt.manual_seed(32) end)

  -- The last of equal ones; NaN, once met, gives way to another NaN alone.
  local function naive(list, sign)
    local y, at = {}, {}
    local top, place
    for i, v in ipairs(list) do
      local wins = place == nil or v ~= v or sign * v >= sign * top
      if wins then top, place = v, i end
      y[i], at[i] = top, place
    end
    return y, at
  end

  for name, sign in pairs { cummax = 1, cummin = -1 } do
    it("are those of plain Lua: " .. name, function()
      for _, dtype in ipairs(ALL) do
        for _, n in ipairs(SIZES) do
          for _, kind in ipairs { "plain", "rising", "falling", "special" } do
            local x = values(n, dtype, kind)
            local want, places = naive(tensors.flat(x), sign)
            local top = mt.tensor(want, { dtype = dtype })
            local place = mt.tensor(places, { dtype = "int64" })
            local text = ("%s of %d, %s %s"):format(name, n, kind, dtype)
            each_column(x, function(v) return v[name](v, 1) end, function(y, at)
              check(y, top, text)
              check(at, place, "positions, " .. text)
            end)
          end
        end
      end
    end)
  end

  it("begin anew on each line, and are alike by any number of threads", function()
    for _, dtype in ipairs { "float32", "float64", "int16" } do
      local x = values(300 * 700, dtype, "special"):reshape(300, 700)
      local first, place
      with_threads(function()
        for _, v in ipairs { x, x:t():contiguous():t() } do
          local y, at = v:cummax(2)
          first, place = first or y, place or at
          assert.is_true(place:equal(at))
          assert.is_true(y:eq(first):logical_or(y:isnan()):all():item())
        end
      end)
      assert.is_true(place:amax():item() <= 700)
      local there = x:gather(2, place):eq(first):logical_or(first:isnan())
      assert.is_true(there:all():item())
    end
  end)

  it("larger than the caches", function()
    if shell.sanitized then pending "takes long" end
    for dtype, n in pairs { float32 = 2100, float64 = 1050, int64 = 1050 } do
      local x = mt.rand(n, 4096):mul(1e6):to(dtype)
      x[{ {}, { 1, 2000 } }] = mt.arange(2000):neg():div(8):floor() -- in steps
      for dim = 1, 2 do
        local y, at = x:cummin(dim)
        local few, places = x:narrow(3 - dim, 40, 64):cummin(dim)
        assert.is_true(y:narrow(3 - dim, 40, 64):equal(few))
        assert.is_true(at:narrow(3 - dim, 40, 64):equal(places))
        assert.is_true(x:gather(dim, at):equal(y))
      end
    end
  end)
end)
