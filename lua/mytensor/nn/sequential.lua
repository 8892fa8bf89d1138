-- lua/mytensor/nn/sequential.lua: modules one after the other.

local check = require "mytensor.check"
local class = require "mytensor.class"
local Module = require "mytensor.nn.module"
local walk = require "mytensor.nn.walk"

--- A chain: each module takes what the one before gave. `seq[i]` is the i-th, `#seq`
--- their number, `seq[i] = module` replaces one or, at `#seq + 1`, appends.
--- @class mytensor.nn.Sequential: mytensor.nn.Module
local Sequential = class("Sequential", Module)

--- @param ... mytensor.nn.Module or one list of them
function Sequential:init(...)
  local modules = table.pack(...)
  local first = modules[1]
  if modules.n == 1 and type(first) == "table" and not walk.is_module(first) then
    modules = table.move(first, 1, #first, 1, { n = #first })
  end
  for i = 1, modules.n do
    local module = modules[i]
    if not walk.is_module(module) then
      check.fail(i, self.__name, "module expected, got %s", check.type_name(module))
    end
    self[i] = module
  end
end

--- @param module mytensor.nn.Module
--- @return mytensor.nn.Sequential self
function Sequential:append(module)
  if not walk.is_module(module) then
    check.fail(1, "append", "module expected, got %s", check.type_name(module))
  end
  self[#self + 1] = module
  return self
end

function Sequential:__len()
  return #walk.children(self)
end

--- @param ... any the input of the first module
--- @return any what the last one gives; the input if there is none
function Sequential:forward(...)
  local n = #self
  if n == 0 then return ... end
  local x = self[1](...)
  for i = 2, n do x = self[i](x) end
  return x
end

return Sequential
