-- lua/mytensor/nn/log_softmax.lua: the logarithm of softmax along a dim, without
-- overflow.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.LogSoftmax: mytensor.nn.Module
local LogSoftmax = class("LogSoftmax", Module)

--- @param dim? integer default -1, the last
function LogSoftmax:init(dim)
  self.dim = check.integer(1, "LogSoftmax", dim or -1, "dim")
end

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function LogSoftmax:forward(x)
  return x:log_softmax(self.dim)
end

function LogSoftmax:extra_repr()
  return ("dim = %d"):format(self.dim)
end

return LogSoftmax
