-- lua/mytensor/nn/initialise.lua: mt.nn.init, how weights start. All fill in place,
-- record nothing, and return their tensor.

local mt = require "mytensor"
local check = require "mytensor.check"

local initialise = {}

local gains = {
  linear = 1, conv2d = 1, sigmoid = 1, identity = 1, tanh = 5 / 3, selu = 3 / 4,
  relu = math.sqrt(2),
}

--- The factor by which a nonlinearity's weights are larger than those of a linear map,
--- so that the variance stays from layer to layer.
--- @param nonlinearity string linear conv2d sigmoid identity tanh selu relu leaky_relu
--- @param slope? number of leaky_relu, default 0.01
--- @return number
function initialise.calculate_gain(nonlinearity, slope)
  if nonlinearity == "leaky_relu" then
    slope = check.number(2, "calculate_gain", slope or 0.01, "slope")
    return math.sqrt(2 / (1 + slope * slope))
  end
  local gain = gains[nonlinearity]
  if not gain then
    check.fail(1, "calculate_gain", "unknown nonlinearity '%s'", tostring(nonlinearity))
  end
  return gain
end

-- Inputs and outputs of one unit: for (out, in, ...), times the size of the kernel.
local function fans(name, tensor)
  check.type(1, name, tensor, "tensor")
  local shape = tensor:shape()
  if #shape < 2 then
    check.fail(1, name, "a tensor of 2 dims or more expected, got shape %s",
               check.shape_text(shape))
  end
  local area = 1
  for i = 3, #shape do area = area * shape[i] end
  return shape[2] * area, shape[1] * area
end

local function fill(name, tensor, method, ...)
  check.type(1, name, tensor, "tensor")
  if not check.is_float(tensor) then
    check.fail(1, name, "float tensor expected, got %s", tensor:dtype())
  end
  mt.no_grad(tensor[method], tensor, ...)
  return tensor
end

--- Uniform in [low, high).
--- @param low? number default 0
--- @param high? number default 1
function initialise.uniform_(tensor, low, high)
  low = check.number(2, "uniform_", low or 0, "low")
  high = check.number(3, "uniform_", high or 1, "high", low)
  return fill("uniform_", tensor, "uniform_", low, high)
end

--- Normally distributed.
--- @param mean? number default 0
--- @param std? number default 1
function initialise.normal_(tensor, mean, std)
  mean = check.number(2, "normal_", mean or 0, "mean")
  std = check.number(3, "normal_", std or 1, "std", 0)
  return fill("normal_", tensor, "normal_", mean, std)
end

--- @param value number
function initialise.constant_(tensor, value)
  check.number(2, "constant_", value, "value")
  return fill("constant_", tensor, "fill_", value)
end

function initialise.zeros_(tensor)
  return fill("zeros_", tensor, "fill_", 0)
end

function initialise.ones_(tensor)
  return fill("ones_", tensor, "fill_", 1)
end

--- Uniform with variance gain^2 * 2 / (fan in + fan out) (Glorot and Bengio, AISTATS
--- 2010).
--- @param tensor mytensor.Tensor (out, in, ...)
--- @param gain? number default 1
function initialise.xavier_uniform_(tensor, gain)
  local fan_in, fan_out = fans("xavier_uniform_", tensor)
  gain = check.number(2, "xavier_uniform_", gain or 1, "gain", 0)
  local bound = gain * math.sqrt(6 / (fan_in + fan_out))
  return fill("xavier_uniform_", tensor, "uniform_", -bound, bound)
end

--- Normal with variance gain^2 * 2 / (fan in + fan out).
--- @param tensor mytensor.Tensor (out, in, ...)
--- @param gain? number default 1
function initialise.xavier_normal_(tensor, gain)
  local fan_in, fan_out = fans("xavier_normal_", tensor)
  gain = check.number(2, "xavier_normal_", gain or 1, "gain", 0)
  return fill("xavier_normal_", tensor, "normal_", 0,
              gain * math.sqrt(2 / (fan_in + fan_out)))
end

-- gain / sqrt(fan): the standard deviation of He et al.
local function kaiming_std(name, tensor, options)
  local fan_in, fan_out = fans(name, tensor)
  options = check.options(2, name, options,
                          { a = 0, mode = "fan_in", nonlinearity = "leaky_relu" })
  if options.mode ~= "fan_in" and options.mode ~= "fan_out" then
    check.fail(2, name, "mode must be 'fan_in' or 'fan_out', got '%s'",
               tostring(options.mode))
  end
  local fan = options.mode == "fan_in" and fan_in or fan_out
  local gain = initialise.calculate_gain(options.nonlinearity, options.a)
  return fan > 0 and gain / math.sqrt(fan) or 0
end

--- Uniform with variance gain^2 / fan (He et al., arXiv 1502.01852).
--- @param tensor mytensor.Tensor (out, in, ...)
--- @param options? table a = 0 (leaky_relu's slope), mode = "fan_in",
---   nonlinearity = "leaky_relu"
function initialise.kaiming_uniform_(tensor, options)
  local bound = math.sqrt(3) * kaiming_std("kaiming_uniform_", tensor, options)
  return fill("kaiming_uniform_", tensor, "uniform_", -bound, bound)
end

--- Normal with variance gain^2 / fan (He et al., arXiv 1502.01852).
--- @param tensor mytensor.Tensor (out, in, ...)
--- @param options? table as `kaiming_uniform_`
function initialise.kaiming_normal_(tensor, options)
  local std = kaiming_std("kaiming_normal_", tensor, options)
  return fill("kaiming_normal_", tensor, "normal_", 0, std)
end

--- How layers start unless told otherwise: weight and bias uniform in +-1/sqrt(fan in).
--- @param weight mytensor.Tensor (out, in, ...)
--- @param bias? mytensor.Tensor
function initialise.fan_in_uniform_(weight, bias)
  local fan_in = fans("fan_in_uniform_", weight)
  local bound = fan_in > 0 and 1 / math.sqrt(fan_in) or 0
  fill("fan_in_uniform_", weight, "uniform_", -bound, bound)
  if bias then fill("fan_in_uniform_", bias, "uniform_", -bound, bound) end
end

return initialise
