-- lua/mytensor/nn/flatten.lua: several dims made one, as between conv and fc layers.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- @class mytensor.nn.Flatten: mytensor.nn.Module
local Flatten = class("Flatten", Module)

--- @param first? integer the first dim to join, default 2: the batch dim stays
--- @param last? integer the last one, default -1
function Flatten:init(first, last)
  self.first = check.integer(1, "Flatten", first or 2, "first dim")
  self.last = check.integer(2, "Flatten", last or -1, "last dim")
end

--- @param x mytensor.Tensor
--- @return mytensor.Tensor
function Flatten:forward(x)
  return x:flatten(self.first, self.last)
end

function Flatten:extra_repr()
  if self.first == 2 and self.last == -1 then return "" end
  return ("%d, %d"):format(self.first, self.last)
end

return Flatten
