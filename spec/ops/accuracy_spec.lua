-- spec/ops/accuracy_spec.lua: how far float32's exp and what is made of it lie from the
-- values that float64 gives, over the whole range of floats.

local mt = require "mytensor"
local shell = require "spec.support.shell"

-- MYTENSOR_VERBOSE=1 prints the worst of each.
local verbose = os.getenv "MYTENSOR_VERBOSE" == "1"

-- Fractions between 1 and 2, and the neighbours of 1.
local STEP <const> = 1009 -- every so many of the 2^23
local fractions
setup(function()
  fractions = mt.cat { mt.arange(0, 64, { dtype = "float64" }),
    mt.arange(64, 2 ^ 23, STEP, { dtype = "float64" }) } * 2 ^ -23 + 1
end)
teardown(function() fractions = nil end)

-- The last bit of float32 values as large as r.
local function last_bit(r)
  local exponent = r:abs():clamp(2 ^ -126):log2():floor()
  return mt.full_like(r, 2):pow(exponent - 23)
end

-- The largest error in units of the last place, and where it lies. exact: in float64.
local function worst(fn, exact, low, high)
  local most, at = 0, 0
  for exponent = -127, 127 do
    for _, sign in ipairs { 1, -1 } do
      -- below 2^-126 the denormal floats, which have less digits
      local scale = exponent < -126 and 2.0 ^ -126 or 2.0 ^ exponent
      local x = (exponent < -126 and fractions - 1 or fractions) * (sign * scale)
      x = x:float()
      if low then x = x:masked_select(x:ge(low):logical_and(x:le(high))) end
      if x:numel() > 0 then
        local r = exact(x:double())
        local y = fn(x)
        -- what rounds to infinity must be infinite
        local finite = r:float():isfinite()
        assert.is_true(y:isfinite():equal(finite), "infinities near " .. x[1]:item())
        local zero = mt.zeros_like(r)
        local wrong = mt.where(finite, (y:double() - r):abs() / last_bit(r), zero)
        local largest, where = wrong:max(1)
        if largest:item() > most or largest:item() ~= largest:item() then
          most, at = largest:item(), x[where:item()]:item()
        end
      end
    end
  end
  if verbose then print(("%.3f units of the last place at %.9g"):format(most, at)) end
  return most
end

describe("in float32", function()
  it("exp lies within 1.1 units of the last place", function()
    assert.is_true(worst(mt.exp, mt.exp) <= 1.1)
  end)

  it("tanh lies within 2.6", function()
    assert.is_true(worst(mt.tanh, mt.tanh) <= 2.6)
  end)

  it("sigmoid lies within 2.5 where exp(-x) is finite", function()
    assert.is_true(worst(mt.sigmoid, mt.sigmoid, -87, math.huge) <= 2.5)
  end)

  it("they take infinities, NaN and both zeros as they should", function()
    local inf, nan = math.huge, 0 / 0
    local x = mt.tensor { inf, -inf, nan, -nan, 0.0, -0.0, 89, -104 }
    local function texts(t)
      local list = t:totable()
      for i, v in ipairs(list) do list[i] = v ~= v and "nan" or ("%g"):format(v) end
      return table.concat(list, " ")
    end
    assert.equal("inf 0 nan nan 1 1 inf 0", texts(x:exp()))
    assert.equal("1 -1 nan nan 0 -0 1 -1", texts(x:tanh()))
    assert.equal("1 0 nan nan 0.5 0.5 1 0", texts(x:sigmoid()))
  end)
end)

describe("with AVX2 and with AVX-512", function()
  it("exp, sigmoid and tanh of float32 give the same bits", function()
    local code = [[local mt = require "mytensor"
      local x = mt.cat { mt.linspace(-110, 110, 70001),
        mt.tensor { 1 / 0, -1 / 0, 0 / 0, -0.0, 1e-40, -87.4, 88.5, 88.8, -103.9 } }
      for _, op in ipairs { "exp", "sigmoid", "tanh" } do
        local y, sum = x[op](x):totable(), 0
        for i, v in ipairs(y) do
          sum = (sum * 31 + (v ~= v and 1 or string.unpack("I4", string.pack("f", v))))
            % 2 ^ 40
        end
        print(op, sum)
      end]]
    local wide = shell.lua_run(code, { env = "MYTENSOR_ISA=v4" })
    local narrow = shell.lua_run(code, { env = "MYTENSOR_ISA=v3" })
    assert.equal(0, wide.code, wide.err)
    assert.equal(narrow.out, wide.out)
  end)
end)

describe("fmod and remainder in float32", function()
  -- Lua's own fmod, in float64, is exact; so is its result in float32.
  local function exact(a, b)
    if b == 0 or a ~= a or b ~= b or math.abs(a) == math.huge then return 0 / 0 end
    return math.fmod(a, b)
  end

  local function text(v) return v ~= v and "nan" or ("%a"):format(v) end

  local function check(a, b)
    local fmod, remainder = a:fmod(b):totable(), a:remainder(b):totable()
    local x, y = a:totable(), b:totable()
    for i = 1, #x do
      local m = exact(x[i], y[i])
      local where = ("%a, %a"):format(x[i], y[i])
      assert.equal(text(m), text(fmod[i]), where)
      if m ~= 0 and (m < 0) ~= (y[i] < 0) then
        m = mt.tensor(m) + mt.tensor(y[i]) -- rounded once, in float32
        m = m:item()
      end
      assert.equal(text(m), text(remainder[i]), where)
    end
  end

  it("are exact for quotients of every size", function()
    mt.manual_seed(4)
    for _, most in ipairs { 3, 20, 28, 30, 60, 120 } do
      local power = mt.full({ 4000 }, 2):pow(mt.randint(0, most, 4000))
      check(mt.randn(4000) * power, mt.randn(4000))
      check((mt.randn(4000) * 50):floor() * 0.5, mt.randint(1, 9, 4000) * 0.25)
    end
  end)

  it("take zeros, infinities, NaN and denormals", function()
    local inf, a, b = math.huge, {}, {}
    local list = { 0.0, -0.0, 1, -1, inf, -inf, 0 / 0, 2 ^ -149, -2 ^ -130, 2 ^ 127,
      0.1 }
    for _, x in ipairs(list) do
      for _, y in ipairs(list) do
        a[#a + 1], b[#b + 1] = x, y
      end
    end
    check(mt.tensor(a), mt.tensor(b))
  end)
end)
