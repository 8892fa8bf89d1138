-- spec/lua/initialise_spec.lua: how weights start: bounds, means, variances.

local mt = require "mytensor"
local expect = require "spec.support.expect"
local nn = mt.nn

local seed = 20240
local n = 40000 -- elements of a (200, 200) weight

setup(function() mt.manual_seed(seed) end)

local raises = expect.says

local function near(expected, actual, tolerance, what)
  assert.is_true(math.abs(expected - actual) <= tolerance,
                 ("%s: %.6g is not %.6g, seed %d"):format(what, actual, expected, seed))
end

-- Uniform in +-bound: never outside, and mean and variance within five sigma.
local function check_uniform(t, bound)
  local count = t:numel()
  assert.is_true(t:min():item() >= -bound, "below")
  assert.is_true(t:max():item() <= bound, "above")
  near(0, t:mean():item(), 5 * bound / math.sqrt(3 * count), "mean")
  local variance = bound ^ 2 / 3
  -- The variance of x^2 is 4/45 bound^4.
  near(variance, t:square():mean():item(),
       5 * math.sqrt(4 / 45 / count) * bound ^ 2, "variance")
end

local function check_normal(t, std)
  local count = t:numel()
  near(0, t:mean():item(), 5 * std / math.sqrt(count), "mean")
  near(std ^ 2, t:square():mean():item(), 5 * std ^ 2 * math.sqrt(2 / count),
       "variance")
  -- 4.55% lie beyond two sigma.
  local beyond = t:abs():gt(2 * std):to("float32"):mean():item()
  near(0.0455, beyond, 5 * math.sqrt(0.0455 / count), "beyond two sigma")
end

describe("nn.init", function()
  local function weight() return mt.empty(200, 200) end

  it("knows the gains", function()
    local gain = nn.init.calculate_gain
    assert.equal(1, gain "linear")
    assert.equal(5 / 3, gain "tanh")
    assert.equal(math.sqrt(2), gain "relu")
    near(math.sqrt(2 / 1.04), gain("leaky_relu", 0.2), 1e-12, "leaky_relu")
    raises("bad argument #1 to 'calculate_gain' (unknown nonlinearity 'rel')", gain,
           "rel")
  end)

  it("fills uniformly between bounds", function()
    local t = nn.init.uniform_(weight(), 2, 4)
    check_uniform(t - 3, 1)
    assert.equal(n, t:numel())
  end)

  it("fills normally, with constants, and returns its tensor", function()
    check_normal(nn.init.normal_(weight(), 1, 0.5) - 1, 0.5)
    local t = mt.empty(2, 2)
    assert.equal(t, nn.init.constant_(t, 3))
    assert.same({ { 3, 3 }, { 3, 3 } }, t:totable())
    assert.same({ { 1, 1 }, { 1, 1 } }, nn.init.ones_(t):totable())
    assert.same({ { 0, 0 }, { 0, 0 } }, nn.init.zeros_(t):totable())
  end)

  it("has Xavier's and Kaiming's bounds", function()
    check_uniform(nn.init.xavier_uniform_(mt.empty(300, 100), 2),
                  2 * math.sqrt(6 / 400))
    check_normal(nn.init.xavier_normal_(mt.empty(300, 100)), math.sqrt(2 / 400))
    check_uniform(nn.init.kaiming_uniform_(mt.empty(300, 100)), math.sqrt(6 / 100))
    check_uniform(nn.init.kaiming_uniform_(mt.empty(100, 10, 5, 5),
                                             { a = math.sqrt(5) }),
                  1 / math.sqrt(250))
    check_normal(nn.init.kaiming_normal_(mt.empty(300, 100),
                                         { mode = "fan_out", nonlinearity = "relu" }),
                 math.sqrt(2 / 300))
  end)

  it("records nothing, also for parameters", function()
    local p = nn.Parameter(mt.zeros(3, 3))
    nn.init.xavier_uniform_(p)
    assert.is_true(p:is_leaf())
    assert.is_true(p.requires_grad)
  end)

  it("names what is wrong with its arguments", function()
    raises("bad argument #1 to 'kaiming_uniform_' (a tensor of 2 dims or more expected,"
           .. " got shape [3])", nn.init.kaiming_uniform_, mt.zeros { 3 })
    raises("bad argument #1 to 'normal_' (tensor expected, got nil)", nn.init.normal_)
    raises("bad argument #1 to 'zeros_' (float tensor expected, got int64)",
           nn.init.zeros_, mt.zeros({ 2 }, { dtype = "int64" }))
    raises("bad argument #3 to 'normal_' (std must be at least 0, got -1)",
           nn.init.normal_, mt.zeros { 3 }, 0, -1)
    raises("bad argument #2 to 'kaiming_normal_' (mode must be 'fan_in' or 'fan_out',"
           .. " got 'fan')", nn.init.kaiming_normal_, mt.zeros(2, 2), { mode = "fan" })
  end)
end)

describe("layers", function()
  it("start uniform in +-1/sqrt(fan in), weight and bias", function()
    local linear = nn.Linear(100, 400)
    check_uniform(linear.weight:detach(), 0.1)
    check_uniform(linear.bias:detach(), 0.1)
    local conv = nn.Conv2d(8, 120, 5, { groups = 2 })
    check_uniform(conv.weight:detach(), 0.1)
    check_uniform(conv.bias:detach(), 0.1)
    check_normal(nn.Embedding(200, 100).weight:detach(), 1)
  end)

  it("start the same after the same seed", function()
    mt.manual_seed(7)
    local a = nn.Linear(5, 4)
    mt.manual_seed(7)
    local b = nn.Linear(5, 4)
    assert.is_true(a.weight:equal(b.weight))
    assert.is_false(a.weight:equal(nn.Linear(5, 4).weight))
  end)
end)
