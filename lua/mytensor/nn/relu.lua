-- lua/mytensor/nn/relu.lua: max(x, 0), elementwise.

local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.ReLU: mytensor.nn.Module
local ReLU = class("ReLU", Module)

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function ReLU:forward(x)
  return x:relu()
end

return ReLU
