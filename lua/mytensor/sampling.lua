-- lua/mytensor/sampling.lua: draws from further distributions, made of uniform and
-- normal numbers: so the same seed gives nearly the same on every device.

local mt = require "mytensor"
local check = require "mytensor.check"

local sampling = {}

-- Uniform in [0, 1), of x's shape and device: float64 for float64 and integers, else
-- float32, which half types are too coarse for.
local function uniform(x)
  local dtype = x:dtype()
  local narrow = dtype == "float32" or dtype == "float16" or dtype == "bfloat16"
  return mt.rand(x:shape(), { dtype = narrow and "float32" or "float64",
    device = x:device() })
end

local function check_floats(name, x)
  check.type(1, name, x, "tensor")
  if not check.is_float(x) then
    check.fail(1, name, "a float dtype expected, got %s", x:dtype())
  end
end

local function check_positive(n, name, v, what)
  check.number(n, name, v, what)
  if v <= 0 then check.fail(n, name, "%s must be above 0, got %s", what, v) end
  return v
end

--- x overwritten by numbers of an exponential distribution.
--- @param x mytensor.Tensor floats
--- @param rate? number lambda: 1 over the mean; 1 unless given
--- @return mytensor.Tensor x
function sampling.exponential_(x, rate)
  check_floats("exponential_", x)
  rate = check_positive(2, "exponential_", rate or 1, "rate")
  local y = uniform(x):neg_():log1p_():mul_(-1 / rate)
  return check.call(1, "exponential_", x.copy_, x, y)
end

--- x overwritten by e to the power of normally distributed numbers.
--- @param x mytensor.Tensor floats
--- @param mean? number of the logarithms, 1 unless given
--- @param std? number of the logarithms, 2 unless given
--- @return mytensor.Tensor x
function sampling.log_normal_(x, mean, std)
  check_floats("log_normal_", x)
  mean = check.number(2, "log_normal_", mean or 1, "mean")
  std = check_positive(3, "log_normal_", std or 2, "std")
  return check.call(1, "log_normal_", x.copy_, x, uniform(x):normal_(mean, std):exp_())
end

--- x overwritten by numbers of a Cauchy distribution.
--- @param x mytensor.Tensor floats
--- @param median? number 0 unless given
--- @param sigma? number half the distance between the quartiles, 1 unless given
--- @return mytensor.Tensor x
function sampling.cauchy_(x, median, sigma)
  check_floats("cauchy_", x)
  median = check.number(2, "cauchy_", median or 0, "median")
  sigma = check_positive(3, "cauchy_", sigma or 1, "sigma")
  local y = uniform(x):sub_(0.5):mul_(math.pi):tan_():mul_(sigma):add_(median)
  return check.call(1, "cauchy_", x.copy_, x, y)
end

--- x overwritten by how many trials it takes until one succeeds: 1, 2, ...
--- @param x mytensor.Tensor of any dtype but bool
--- @param p number the probability that a trial succeeds, above 0 and below 1
--- @return mytensor.Tensor x
function sampling.geometric_(x, p)
  check.type(1, "geometric_", x, "tensor")
  if x:dtype() == "bool" then
    check.fail(1, "geometric_", "numbers expected, got bool")
  end
  check_positive(2, "geometric_", p, "p")
  if p >= 1 then check.fail(2, "geometric_", "p must be below 1, got %s", p) end
  local failures = uniform(x):neg_():log1p_():mul_(1 / math.log(1 - p)):floor_()
  return check.call(1, "geometric_", x.copy_, x, failures:add_(1))
end

--- x's shape, dtype and device, whole numbers low .. high, both included.
--- @param x mytensor.Tensor
--- @param low integer
--- @param high integer
--- @return mytensor.Tensor
function sampling.randint_like(x, low, high)
  check.type(1, "randint_like", x, "tensor")
  low = check.integer(2, "randint_like", low, "low")
  high = check.integer(3, "randint_like", high, "high", low)
  return check.call(2, "randint_like", mt.randint, low, high, x:shape(),
                    { dtype = x:dtype(), device = x:device() })
end

-- What is wrong with weights, if anything. Waits for the device.
local function check_weights(weights, n, replacement)
  local name = "multinomial"
  local shape = check.shape_text(weights:shape())
  if weights:dim() < 1 or weights:dim() > 2 or weights:size(-1) == 0 then
    check.fail(1, name, "a vector of weights, or rows of them, expected, got shape %s",
               shape)
  end
  if weights:lt(0):logical_or_(weights:isfinite():logical_not_()):any():item() then
    check.fail(1, name, "weights of 0 or more, and finite, expected")
  end
  local least = weights:count_nonzero(-1)
  least = least:numel() > 0 and least:amin():item() or n
  if least == 0 then check.fail(1, name, "all weights of a row are 0") end
  if not replacement and n > least then
    check.fail(2, name, "%d draws without replacement, but %d weights are not 0", n,
               least)
  end
end

--- Positions drawn with given probabilities, from 1.
--- @param weights mytensor.Tensor (classes) or (rows, classes): not negative; their sum
---   need not be 1
--- @param n? integer how many of each row, 1 unless given
--- @param replacement? boolean may one be drawn twice? No unless given
--- @return mytensor.Tensor int64: (n) or (rows, n)
function sampling.multinomial(weights, n, replacement)
  check.type(1, "multinomial", weights, "tensor")
  n = check.integer(2, "multinomial", n or 1, "n", 1)
  weights = weights:detach():double()
  check_weights(weights, n, replacement)
  if not replacement then
    -- the least of times that are exponential with these rates
    local times = mt.empty_like(weights):exponential_():clamp_min_(1e-300)
    return (select(2, (weights / times):topk(n, -1)))
  end
  local sums = weights:cumsum(-1)
  local shape = weights:shape()
  shape[#shape] = n
  local at = check.call(2, "multinomial", mt.rand, shape,
                        { dtype = "float64", device = weights:device() })
  at:mul_(1 - 2 ^ -50):mul_(sums:narrow(-1, -1, 1)) -- stays below the last sum
  return mt.searchsorted(sums, at, true)
end

-- The smallest k whose cumulative probability lies above u, for rates below 10: those
-- of more than 100 have none that float64 could add.
local function poisson_by_inversion(rates)
  local u, k = uniform(rates), mt.zeros_like(rates)
  local term = (-rates):exp()
  local sum = term:clone()
  for step = 1, 100 do
    local above = u:ge(sum)
    if step % 8 == 1 and not above:any():item() then break end
    k:add_(above:double())
    term:mul_(rates):div_(step)
    sum:add_(term)
  end
  return k
end

-- Transformed rejection (Hoermann, The transformed rejection method for generating
-- Poisson random variables, 1993: PTRS), for rates of 10 and more.
local function poisson_by_rejection(rates)
  local result = mt.zeros_like(rates)
  local open = rates:eq(rates):nonzero():flatten() -- positions still to be filled
  while open:numel() > 0 do
    local rate = rates[open]
    local b = rate:sqrt() * 2.53 + 0.931
    local a = b * 0.02483 - 0.059
    local u, v = uniform(rate) - 0.5, 1 - uniform(rate)
    local us = 0.5 - u:abs()
    local k = ((2 * a / us + b) * u + rate + 0.43):floor()
    local left = v:log() + (1.1239 + 1.1328 / (b - 3.4)):log() - (a / us ^ 2 + b):log()
    local right = k * rate:log() - rate - (k + 1):lgamma()
    local sure = us:ge(0.07) & v:le(0.9277 - 3.6224 / (b - 2))
    local possible = k:ge(0) & (us:ge(0.013) | v:le(us))
    local takes = sure | (possible & left:le(right))
    result[open[takes] ] = k[takes]
    open = open[takes:logical_not()]
  end
  return result
end

--- Numbers of Poisson distributions.
--- @param rates mytensor.Tensor floats: the means, 0 .. 2^52
--- @return mytensor.Tensor of the shape and dtype of rates, whole numbers
function sampling.poisson(rates)
  check_floats("poisson", rates)
  local all = rates:detach():double():flatten()
  if (all:ge(0) & all:le(2 ^ 52)):logical_not():any():item() then
    check.fail(1, "poisson", "rates of 0 .. 2^52 expected")
  end
  local large = all:ge(10)
  local result = mt.zeros_like(all)
  result[large] = poisson_by_rejection(all[large])
  local small = large:logical_not()
  result[small] = poisson_by_inversion(all[small])
  return result:view(rates:shape()):to(rates:dtype())
end

check.take_names(sampling, {
  exponential_ = { "x", "rate" },
  log_normal_ = { "x", "mean", "std" },
  cauchy_ = { "x", "median", "sigma" },
  geometric_ = { "x", "p" },
  randint_like = { "x", "low", "high" },
  multinomial = { "weights", "n", "replacement" },
})

return sampling
