-- lua/mytensor/nn/mse_loss.lua: mean squared error.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"
local reductions = { mean = true, sum = true, none = true }

--- @class mytensor.nn.MSELoss: mytensor.nn.Module
local MSELoss = class("MSELoss", Module)

--- @param options? { reduction: string } "mean" (default), "sum" or "none"
function MSELoss:init(options)
  options = check.options(1, "MSELoss", options, { reduction = "mean" })
  if not reductions[options.reduction] then
    check.fail(1, "MSELoss", "reduction must be 'mean', 'sum' or 'none', got '%s'",
               tostring(options.reduction))
  end
  self.reduction = options.reduction
end

--- @param x mytensor.Tensor
--- @param target mytensor.Tensor the same shape
--- @return mytensor.Tensor a 0-dim tensor; of the shape of x for "none"
function MSELoss:forward(x, target)
  return x:mse_loss(target, self.reduction)
end

return MSELoss
