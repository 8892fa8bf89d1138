-- lua/mytensor/nn/tanh.lua: the hyperbolic tangent, elementwise.

local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.Tanh: mytensor.nn.Module
local Tanh = class("Tanh", Module)

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function Tanh:forward(x)
  return x:tanh()
end

return Tanh
