-- lua/mytensor/nn/linear.lua: y = x * W^T + b.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local initialise = require "mytensor.nn.initialise"
local Module = require "mytensor.nn.module"
local Parameter = require "mytensor.nn.parameter"

--- Affine map of the last dim. Weight and bias start uniform in +-1/sqrt(nin).
--- @class mytensor.nn.Linear: mytensor.nn.Module
--- @field weight mytensor.Tensor (nout, nin)
--- @field bias mytensor.Tensor? (nout)
local Linear = class("Linear", Module)

--- @param nin integer features in
--- @param nout integer features out
--- @param options? { bias: boolean, dtype: string, device: string }
function Linear:init(nin, nout, options)
  nin = check.integer(1, "Linear", nin, "number of features in", 0)
  nout = check.integer(2, "Linear", nout, "number of features out", 0)
  options = check.options(3, "Linear", options,
                          { bias = true, dtype = check.none, device = check.none })
  local place = { dtype = options.dtype, device = options.device }
  self.nin, self.nout = nin, nout
  self.weight = Parameter(mt.empty({ nout, nin }, place))
  if options.bias then self.bias = Parameter(mt.empty({ nout }, place)) end
  initialise.fan_in_uniform_(self.weight, self.bias)
end

--- @param x mytensor.Tensor (..., nin)
--- @return mytensor.Tensor (..., nout)
function Linear:forward(x)
  return mt.linear(x, self.weight, self.bias)
end

function Linear:extra_repr()
  return ("%d, %d%s"):format(self.nin, self.nout, self.bias and "" or ", bias = false")
end

return Linear
