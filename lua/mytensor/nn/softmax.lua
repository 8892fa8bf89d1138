-- lua/mytensor/nn/softmax.lua: exp(x) / sum(exp(x)) along a dim.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.Softmax: mytensor.nn.Module
local Softmax = class("Softmax", Module)

--- @param dim? integer default -1, the last
function Softmax:init(dim)
  self.dim = check.integer(1, "Softmax", dim or -1, "dim")
end

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function Softmax:forward(x)
  return x:softmax(self.dim)
end

function Softmax:extra_repr()
  return ("dim = %d"):format(self.dim)
end

return Softmax
