-- lua/mytensor/nn/conv2d.lua: 2-d convolution over images.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local initialise = require "mytensor.nn.initialise"
local Module = require "mytensor.nn.module"
local pair = require "mytensor.nn.pair"
local Parameter = require "mytensor.nn.parameter"

--- Cross-correlation with learned filters, as the field calls convolution. Weight and
--- bias start uniform in +-1/sqrt(fan in), fan in = channels / groups * kernel area.
--- @class mytensor.nn.Conv2d: mytensor.nn.Module
--- @field weight mytensor.Tensor (filters, channels / groups, kernel h, kernel w)
--- @field bias mytensor.Tensor? (filters)
local Conv2d = class("Conv2d", Module)

--- Sizes are numbers, or {height, width}.
--- @param channels integer in
--- @param filters integer channels out
--- @param kernel integer|integer[]
--- @param options? table stride = 1, padding = 0, dilation = 1, groups = 1,
---   bias = true, dtype, device
function Conv2d:init(channels, filters, kernel, options)
  channels = check.integer(1, "Conv2d", channels, "number of channels in", 1)
  filters = check.integer(2, "Conv2d", filters, "number of channels out", 1)
  kernel = pair.check(3, "Conv2d", kernel, "kernel size", 1)
  options = check.options(4, "Conv2d", options, {
    stride = 1, padding = 0, dilation = 1, groups = 1, bias = true,
    dtype = check.none, device = check.none,
  })
  local groups = check.integer(4, "Conv2d", options.groups, "groups", 1)
  if channels % groups ~= 0 or filters % groups ~= 0 then
    check.fail(4, "Conv2d", "groups = %d divides not both %d channels in and %d out",
               groups, channels, filters)
  end
  local place = { dtype = options.dtype, device = options.device }
  self.channels, self.filters, self.kernel = channels, filters, kernel
  self.stride = pair.check(4, "Conv2d", options.stride, "stride", 1)
  self.padding = pair.check(4, "Conv2d", options.padding, "padding", 0)
  self.dilation = pair.check(4, "Conv2d", options.dilation, "dilation", 1)
  self.groups = groups
  local shape = { filters, channels // groups, kernel[1], kernel[2] }
  self.weight = Parameter(mt.empty(shape, place))
  if options.bias then self.bias = Parameter(mt.empty({ filters }, place)) end
  initialise.fan_in_uniform_(self.weight, self.bias)
end

--- @param x mytensor.Tensor (N, channels, H, W)
--- @return mytensor.Tensor (N, filters, H', W')
function Conv2d:forward(x)
  return mt.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation,
                   self.groups)
end

function Conv2d:extra_repr()
  return ("%d, %d, %s%s%s%s%s%s"):format(
    self.channels, self.filters, pair.text(self.kernel),
    pair.option_text("stride", self.stride, { 1, 1 }),
    pair.option_text("padding", self.padding, { 0, 0 }),
    pair.option_text("dilation", self.dilation, { 1, 1 }),
    self.groups ~= 1 and (", groups = %d"):format(self.groups) or "",
    self.bias and "" or ", bias = false")
end

return Conv2d
