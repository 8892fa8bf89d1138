-- lua/mytensor/nn/avg_pool2d.lua: the mean of each window, the padding counted as
-- zeros.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"
local pair = require "mytensor.nn.pair"

--- @class mytensor.nn.AvgPool2d: mytensor.nn.Module
local AvgPool2d = class("AvgPool2d", Module)

--- Sizes are numbers, or {height, width}.
--- @param kernel integer|integer[]
--- @param options? table stride = kernel, padding = 0
function AvgPool2d:init(kernel, options)
  self.kernel = pair.check(1, "AvgPool2d", kernel, "kernel size", 1)
  options = check.options(2, "AvgPool2d", options,
                          { stride = self.kernel, padding = 0 })
  self.stride = pair.check(2, "AvgPool2d", options.stride, "stride", 1)
  self.padding = pair.check(2, "AvgPool2d", options.padding, "padding", 0)
end

--- @param x mytensor.Tensor (N, C, H, W)
--- @return mytensor.Tensor (N, C, H', W')
function AvgPool2d:forward(x)
  return mt.avg_pool2d(x, self.kernel, self.stride, self.padding)
end

function AvgPool2d:extra_repr()
  return pair.text(self.kernel) .. pair.option_text("stride", self.stride, self.kernel)
         .. pair.option_text("padding", self.padding, { 0, 0 })
end

return AvgPool2d
