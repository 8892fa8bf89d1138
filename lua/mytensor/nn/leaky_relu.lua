-- lua/mytensor/nn/leaky_relu.lua: x, or slope * x below 0, elementwise.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.LeakyReLU: mytensor.nn.Module
local LeakyReLU = class("LeakyReLU", Module)

--- @param slope? number default 0.01
function LeakyReLU:init(slope)
  self.slope = check.number(1, "LeakyReLU", slope or 0.01, "slope")
end

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function LeakyReLU:forward(x)
  return x:leaky_relu(self.slope)
end

function LeakyReLU:extra_repr()
  return ("%g"):format(self.slope)
end

return LeakyReLU
