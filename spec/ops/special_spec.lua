-- spec/ops/special_spec.lua: elementwise functions whose values depend on the dtype:
-- neighbours among its numbers, its largest ones; and arguments that they refuse.

local mt = require "mytensor"
local devices = require "spec.support.devices"

local inf <const>, nan <const> = math.huge, 0 / 0

-- Digits behind the point, and the smallest and the largest number.
local FLOATS = {
  float64 = { 52, 2.0 ^ -1074, (2 - 2.0 ^ -52) * 2.0 ^ 1023 },
  float32 = { 23, 2.0 ^ -149, (2 - 2.0 ^ -23) * 2.0 ^ 127 },
  bfloat16 = { 7, 2.0 ^ -133, (2 - 2.0 ^ -7) * 2.0 ^ 127 },
  float16 = { 10, 2.0 ^ -24, 65504.0 },
}

local function on(device)
  for dtype, facts in pairs(FLOATS) do
    local digits, least, most = table.unpack(facts)
    local unit = 2.0 ^ -digits
    local options = { dtype = dtype, device = device }
    local function one(x) return mt.tensor({ x }, options) end

    describe(dtype .. " on " .. device, function()
      it("has neighbours", function()
        local cases = {
          { 1, 2, 1 + unit }, { 1, 0, 1 - unit / 2 }, { -1, -2, -1 - unit },
          { -1, 5, -1 + unit / 2 }, { 0, 1, least }, { 0, -1, -least },
          { least, 0, 0 }, { least, 1, 2 * least }, { most, inf, inf },
          { inf, 0, most }, { -inf, inf, -most }, { -most, -inf, -inf },
          { 3, 3, 3 }, { 1.5, inf, 1.5 + unit },
        }
        -- where the denormal numbers begin
        local normal = least * 2.0 ^ digits
        cases[#cases + 1] = { normal, 0, normal - least }
        cases[#cases + 1] = { normal, 1, normal + least }
        cases[#cases + 1] = { normal - least, 1, normal }
        for _, c in ipairs(cases) do
          local y = mt.nextafter(one(c[1]), one(c[2]))
          assert.equal(dtype, y:dtype())
          assert.equal(c[3], y[1]:item(), ("%a to %a"):format(c[1], c[2]))
        end
        local y = mt.nextafter(one(nan), one(1))[1]:item()
        assert.is_true(y ~= y)
      end)

      it("replaces infinities by its largest numbers", function()
        local x = mt.tensor({ nan, inf, -inf, 1.5 }, options)
        assert.same({ 0.0, most, -most, 1.5 }, x:nan_to_num():totable())
        assert.same({ 2.0, most, -7.0, 1.5 }, x:nan_to_num(2, nil, -7):totable())
        assert.same({ inf, most, -most, 1.5 }, x:nan_to_num(inf):totable())
        assert.equal(x, x:nan_to_num_ { posinf = 3 })
        assert.same({ 0.0, 3.0, -most, 1.5 }, x:totable())
      end)
    end)
  end

  describe("on " .. device, function()
    it("frexp takes floats apart", function()
      local x = mt.tensor({ 8, -0.75, 0, 2 ^ -140, inf }, { device = device })
      local m, e = x:frexp()
      assert.same({ 0.5, -0.75, 0.0, 0.5, inf }, m:totable())
      assert.same({ 4, 0, 0, -139, 0 }, e:totable())
      assert.equal("int32", e:dtype())
      assert.is_true(mt.ldexp(m, e):equal(x))
    end)

    it("polygamma takes whole orders", function()
      local x = mt.tensor({ 0.75, 2 }, { dtype = "float64", device = device })
      assert.is_true(x:polygamma(0):equal(x:digamma()))
      assert.is_true(x:polygamma(0.5):isnan():all():item())
      assert.is_true(x:polygamma(-1):isnan():all():item())
      assert.is_true(x:polygamma(171):isnan():all():item())
      assert.is_true(x:polygamma(2 ^ 60):isnan():all():item())
      assert.is_true(x:polygamma(170):isnan():logical_not():all():item())
    end)

    it("far below 0 polygamma takes no longer", function()
      local x = mt.tensor({ -1e6 - 0.25, -2.0 ^ 60, 1e300 },
        { dtype = "float64", device = device })
      local y = x:polygamma(1)
      assert(math.abs(y[1]:item() / (math.pi / math.sin(math.pi / 4)) ^ 2 - 1) < 1e-6)
      assert.equal(inf, y[2]:item())
      assert(y[3]:item() < 1e-299)
    end)

    it("just below 0 polygamma is finite, of any order", function()
      local x = mt.tensor({ -2.0 ^ -53, -2.0 ^ -54, -2.0 ^ -70 },
        { dtype = "float64", device = device })
      local factorial = 1
      for order = 1, 5 do
        factorial = factorial * order -- the other terms of the series do not count
        local relative = x:polygamma(order) * (-x) ^ (order + 1) / factorial
        assert.is_true((relative - 1):abs():max():item() <= 1e-14, order)
      end
    end)

    it("popcount counts the bits that the dtype has", function()
      for dtype, bits in pairs { int8 = 8, int16 = 16, int32 = 32, int64 = 64 } do
        local x = mt.tensor({ 0, 7, -7, -1, 127, -128 },
          { dtype = dtype, device = device })
        assert.same({ 0, 3, bits - 2, bits, 7, bits - 7 }, x:popcount():totable())
      end
    end)

    it("gcd and lcm take the least number", function()
      local x = mt.tensor({ -128, -128, -128 }, { dtype = "int8", device = device })
      local y = mt.tensor({ 0, 96, -1 }, { dtype = "int8", device = device })
      assert.same({ -128, 32, 1 }, x:gcd(y):totable())
      assert.same({ 0, -128, -128 }, x:lcm(y):totable())
    end)
  end)
end

devices.each(_ENV, on)
