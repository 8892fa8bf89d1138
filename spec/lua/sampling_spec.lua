-- spec/lua/sampling_spec.lua: draws from further distributions, by their moments and
-- quantiles, on every device.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

local says = expect.says
local many = 40000

-- 4 standard deviations of a mean of that many, and no more
local function near(want, got, std)
  assert.is_true(math.abs(got - want) < 4 * std / many ^ 0.5, ("%g ~= %g"):format(got,
    want))
end

-- The share of x that lies below a bound.
local function share(x, bound) return x:lt(bound):double():mean():item() end

local function below(want, x, bound)
  near(want, share(x, bound), (want * (1 - want)) ^ 0.5)
end

local function on(device)
  local function floats(dtype)
    mt.manual_seed(7)
    return mt.zeros({ many }, { dtype = dtype, device = device })
  end

  describe("on " .. device, function()
    it("exponential_", function()
      for _, dtype in ipairs { "float32", "float64", "float16" } do
        local x = floats(dtype)
        assert.is_true(rawequal(x, x:exponential_(2)))
        assert.equal(dtype, x:dtype())
        near(0.5, x:double():mean():item(), 0.5)
        below(1 - math.exp(-1), x, 0.5)
        assert.is_true(x:ge(0):logical_and(x:isfinite()):all():item())
      end
    end)

    it("log_normal_", function()
      local x = floats():log_normal_(0.5, 0.25)
      near(0.5, x:log():mean():item(), 0.25)
      below(0.5, x, math.exp(0.5))
      below(0.8413, x, math.exp(0.75))
    end)

    it("cauchy_", function()
      local x = floats():cauchy_(1, 2)
      below(0.5, x, 1)
      below(0.25, x, -1)
      below(0.75, x, 3)
    end)

    it("geometric_", function()
      for _, dtype in ipairs { "float32", "int64", "uint8" } do
        local x = floats(dtype):geometric_(0.3)
        assert.equal(1, x:amin():item())
        below(0.3, x, 2)
        below(0.51, x, 3)
        near(1 / 0.3, x:double():mean():item(), 0.7 ^ 0.5 / 0.3)
      end
    end)

    it("poisson", function()
      for _, rate in ipairs { 1e-3, 0.5, 9.5, 10, 70, 1e6 } do
        local x = floats("float64"):fill_(rate):poisson()
        near(rate, x:mean():item(), rate ^ 0.5)
        -- of a variance: its own is rate + 2 rate^2 over the number
        near(rate, x:var():item(), (rate + 2 * rate ^ 2) ^ 0.5)
        assert.is_true(x:eq(x:floor()):logical_and(x:ge(0)):all():item())
      end
      for _, rate in ipairs { 3, 12 } do -- one by inversion, one by rejection
        local x, p, sum = floats():fill_(rate):poisson(), math.exp(-rate), 0
        for k = 1, 2 * rate do
          sum = sum + p
          below(sum, x, k)
          p = p * rate / k
        end
      end
      local mixed = mt.tensor({ { 0, 1e5 }, { 0, 1e-9 } }, { dtype = "float16",
        device = device })
      local x = mixed:clamp(0, 6e4):poisson()
      assert.same({ "float16", { 2, 2 } }, { x:dtype(), x:shape() })
      assert.same({ 0, 0 }, x:select(1, 2):totable())
      assert.same({ 0 }, mt.poisson(mt.zeros({ 0 }, { device = device })):shape())
    end)

    it("randint_like", function()
      local x = mt.randint_like(floats("int16"), -2, 2)
      assert.equal("int16", x:dtype())
      assert.equal(device, (x:device():gsub(":%d+", "")))
      below(0.4, x, 0)
      assert.same({ -2, 2 }, { x:amin():item(), x:amax():item() })
    end)

    it("multinomial with replacement", function()
      mt.manual_seed(3)
      local w = mt.tensor({ 1, 0, 3, 4, 0 }, { device = device })
      local x = w:multinomial(many, true)
      assert.same({ "int64", { many } }, { x:dtype(), x:shape() })
      for i, want in ipairs { 1 / 8, 0, 3 / 8, 4 / 8, 0 } do
        local got = x:eq(i):double():mean():item()
        if want == 0 then assert.equal(0, got) else
          near(want, got, (want * (1 - want)) ^ 0.5)
        end
      end
      local rows = mt.tensor({ { 0, 1 }, { 2, 0 } }, { device = device })
      assert.same({ { 2, 2, 2 }, { 1, 1, 1 } }, rows:multinomial(3, true):totable())
    end)

    it("multinomial without", function()
      mt.manual_seed(3)
      local w = mt.tensor({ 1, 0, 3, 4 }, { device = device }):expand(many, 4)
      local x = w:multinomial(2)
      assert.same({ many, 2 }, x:shape())
      assert.is_false(x:eq(2):any():item())
      assert.is_false(x:narrow(2, 1, 1):eq(x:narrow(2, 2, 1)):any():item())
      local first = x:select(2, 1)
      for i, want in pairs { [1] = 1 / 8, [3] = 3 / 8, [4] = 4 / 8 } do
        near(want, first:eq(i):double():mean():item(), (want * (1 - want)) ^ 0.5)
      end
      -- then 1 after 4: 4 / 8 * 1 / 4, after 3: 3 / 8 * 1 / 5
      local second = x:select(2, 2):eq(1):double():mean():item()
      near(1 / 8 + 3 / 40, second, 0.4)
      assert.same({ 1, 3, 4 }, (mt.tensor({ 1, 0, 3, 4 }, { device = device })
        :multinomial(3):sort():totable()))
    end)
  end)
end

devices.each(_ENV, on)

describe("wrong arguments", function()
  it("are named", function()
    local w = mt.tensor { 1, 0, 2 }
    says("'multinomial' (3 draws without replacement, but 2 weights are not 0)",
      w.multinomial, w, 3)
    says("'multinomial' (all weights of a row are 0)", mt.multinomial, mt.zeros(2, 3))
    says("'multinomial' (weights of 0 or more, and finite", mt.multinomial,
      mt.tensor { 1, -1 })
    says("'multinomial' (weights of 0 or more, and finite", mt.multinomial,
      mt.tensor { 1, 0 / 0 })
    says("'multinomial' (a vector of weights, or rows of them, expected, got shape [])",
      mt.multinomial, mt.tensor(1))
    says("'exponential_' (a float dtype expected, got int64)", mt.exponential_,
      mt.arange(3, { dtype = "int64" }))
    says("'exponential_' (rate must be above 0, got 0", mt.exponential_, mt.zeros(2), 0)
    says("'geometric_' (p must be below 1, got 1", mt.geometric_, mt.zeros(2), 1)
    says("'log_normal_' (std must be above 0", mt.log_normal_, mt.zeros(2), 0, -1)
    says("'poisson' (rates of 0 .. 2^52 expected)", mt.poisson, mt.tensor { 1, -1 })
    says("'poisson' (rates of 0 .. 2^52 expected)", mt.poisson, mt.tensor { 0 / 0 })
    says("'poisson' (a float dtype expected, got int64)", mt.poisson,
      mt.ones(2, { dtype = "int64" }))
    says("'randint_like' (high must be at least 3, got 2)", mt.randint_like,
      mt.zeros(2), 3, 2)
  end)
end)
