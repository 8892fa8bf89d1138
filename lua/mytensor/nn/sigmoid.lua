-- lua/mytensor/nn/sigmoid.lua: 1 / (1 + exp(-x)), elementwise.

local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.Sigmoid: mytensor.nn.Module
local Sigmoid = class("Sigmoid", Module)

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function Sigmoid:forward(x)
  return x:sigmoid()
end

return Sigmoid
