-- lua/mytensor/nn/dropout.lua: random elements become 0 during training.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- In training each element is 0 with probability p, the others are divided by 1 - p;
--- in evaluation the input passes (Srivastava et al., JMLR 15, 2014).
--- @class mytensor.nn.Dropout: mytensor.nn.Module
local Dropout = class("Dropout", Module)

--- @param p? number probability of 0, default 0.5
function Dropout:init(p)
  self.p = check.number(1, "Dropout", p or 0.5, "p", 0, 1)
end

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function Dropout:forward(x)
  return x:dropout(self.p, self.training)
end

function Dropout:extra_repr()
  return ("%g"):format(self.p)
end

return Dropout
