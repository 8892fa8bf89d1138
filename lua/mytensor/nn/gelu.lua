-- lua/mytensor/nn/gelu.lua: x times the normal distribution function of x, elementwise.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"

--- Hendrycks and Gimpel, arXiv 1606.08415.
--- @class mytensor.nn.GELU: mytensor.nn.Module
local GELU = class("GELU", Module)

--- @param options? { approximate: string } "none" (default) or "tanh"
function GELU:init(options)
  options = check.options(1, "GELU", options, { approximate = "none" })
  if options.approximate ~= "none" and options.approximate ~= "tanh" then
    check.fail(1, "GELU", "approximate must be 'none' or 'tanh', got '%s'",
               tostring(options.approximate))
  end
  self.approximate = options.approximate
end

--- @param x mytensor.Tensor any shape
--- @return mytensor.Tensor the same shape
function GELU:forward(x)
  if self.approximate == "tanh" then return x:gelu_tanh() end
  return x:gelu()
end

function GELU:extra_repr()
  return self.approximate == "tanh" and "approximate = tanh" or ""
end

return GELU
