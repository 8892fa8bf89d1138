-- lua/mytensor/nn/layer_norm.lua: layer normalisation.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local initialise = require "mytensor.nn.initialise"
local Module = require "mytensor.nn.module"
local Parameter = require "mytensor.nn.parameter"

--- Normalises the last dims to mean 0 and variance 1, then scales by weight and adds
--- bias, which start as ones and zeros (Ba, Kiros and Hinton, arXiv 1607.06450).
--- @class mytensor.nn.LayerNorm: mytensor.nn.Module
--- @field weight mytensor.Tensor? of the shape that is normalised
--- @field bias mytensor.Tensor? of the shape that is normalised
local LayerNorm = class("LayerNorm", Module)

--- @param shape integer|integer[] sizes of the last dims
--- @param options? table epsilon = 1e-5 (added to the variance), affine = true (false:
---   neither weight nor bias), bias = true, dtype, device
function LayerNorm:init(shape, options)
  local list = {}
  if type(shape) ~= "table" or check.type_name(shape) ~= "table" then
    list[1] = check.integer(1, "LayerNorm", shape, "shape", 0)
  else
    if #shape == 0 then
      check.fail(1, "LayerNorm", "shape must have at least one dim, got {}")
    end
    for i, size in ipairs(shape) do
      list[i] = check.integer(1, "LayerNorm", size, ("shape[%d]"):format(i), 0)
    end
  end
  options = check.options(2, "LayerNorm", options, {
    epsilon = 1e-5, affine = true, bias = true, dtype = check.none,
    device = check.none,
  })
  self.shape = list
  self.epsilon = check.number(2, "LayerNorm", options.epsilon, "epsilon", 0)
  if not options.affine then return end
  local place = { dtype = options.dtype, device = options.device }
  self.weight = Parameter(mt.empty(list, place))
  initialise.ones_(self.weight)
  if options.bias then
    self.bias = Parameter(mt.empty(list, place))
    initialise.zeros_(self.bias)
  end
end

-- Without a weight the op has nothing to compare the input's shape with.
local function check_input(shape, x)
  local given = mt.is_tensor(x) and x:shape() or {}
  for i = 1, #shape do
    if given[#given - #shape + i] ~= shape[i] then
      check.fail(1, "LayerNorm", "input %s does not end with %s",
                 mt.is_tensor(x) and check.shape_text(given) or check.type_name(x),
                 check.shape_text(shape))
    end
  end
end

--- @param x mytensor.Tensor (..., shape)
--- @return mytensor.Tensor (..., shape)
function LayerNorm:forward(x)
  if not self.weight then check_input(self.shape, x) end
  return mt.layer_norm(x, self.weight, self.bias, #self.shape, self.epsilon)
end

function LayerNorm:extra_repr()
  local text = check.shape_text(self.shape)
  if self.epsilon ~= 1e-5 then
    text = ("%s, epsilon = %g"):format(text, self.epsilon)
  end
  if not self.weight then return text .. ", affine = false" end
  return self.bias and text or text .. ", bias = false"
end

return LayerNorm
