-- lua/mytensor/nn/max_pool2d.lua: the largest value of each window.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"
local pair = require "mytensor.nn.pair"

--- @class mytensor.nn.MaxPool2d: mytensor.nn.Module
local MaxPool2d = class("MaxPool2d", Module)

--- Sizes are numbers, or {height, width}.
--- @param kernel integer|integer[]
--- @param options? table stride = kernel, padding = 0, dilation = 1
function MaxPool2d:init(kernel, options)
  self.kernel = pair.check(1, "MaxPool2d", kernel, "kernel size", 1)
  options = check.options(2, "MaxPool2d", options,
                          { stride = self.kernel, padding = 0, dilation = 1 })
  self.stride = pair.check(2, "MaxPool2d", options.stride, "stride", 1)
  self.padding = pair.check(2, "MaxPool2d", options.padding, "padding", 0)
  self.dilation = pair.check(2, "MaxPool2d", options.dilation, "dilation", 1)
end

--- @param x mytensor.Tensor (N, C, H, W)
--- @return mytensor.Tensor (N, C, H', W')
function MaxPool2d:forward(x)
  local y = mt.max_pool2d(x, self.kernel, self.stride, self.padding, self.dilation)
  return y
end

function MaxPool2d:extra_repr()
  return pair.text(self.kernel) .. pair.option_text("stride", self.stride, self.kernel)
         .. pair.option_text("padding", self.padding, { 0, 0 })
         .. pair.option_text("dilation", self.dilation, { 1, 1 })
end

return MaxPool2d
