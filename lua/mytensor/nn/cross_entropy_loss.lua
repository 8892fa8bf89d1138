-- lua/mytensor/nn/cross_entropy_loss.lua: cross entropy between logits and class
-- labels.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"
local reductions = { mean = true, sum = true, none = true }

--- @class mytensor.nn.CrossEntropyLoss: mytensor.nn.Module
local CrossEntropyLoss = class("CrossEntropyLoss", Module)

--- @param options? { reduction: string } "mean" (default), "sum" or "none"
function CrossEntropyLoss:init(options)
  options = check.options(1, "CrossEntropyLoss", options, { reduction = "mean" })
  if not reductions[options.reduction] then
    check.fail(1, "CrossEntropyLoss",
               "reduction must be 'mean', 'sum' or 'none', got '%s'",
               tostring(options.reduction))
  end
  self.reduction = options.reduction
end

--- @param logits mytensor.Tensor (N, C), or (N, C, ...)
--- @param labels mytensor.Tensor (N), or (N, ...): classes 1..C
--- @return mytensor.Tensor a 0-dim tensor; of the shape of the labels for "none"
function CrossEntropyLoss:forward(logits, labels)
  return logits:cross_entropy(labels, self.reduction)
end

return CrossEntropyLoss
