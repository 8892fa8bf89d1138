-- lua/mytensor/nn/sequential.lua: modules one after the other.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local Conv2d = require "mytensor.nn.conv2d"
local GELU = require "mytensor.nn.gelu"
local Linear = require "mytensor.nn.linear"
local MaxPool2d = require "mytensor.nn.max_pool2d"
local Module = require "mytensor.nn.module"
local ReLU = require "mytensor.nn.relu"
local walk = require "mytensor.nn.walk"

--- A chain: each module takes what the one before gave. `seq[i]` is the i-th, `#seq`
--- their number, `seq[i] = module` replaces one or, at `#seq + 1`, appends.
--- @class mytensor.nn.Sequential: mytensor.nn.Module
local Sequential = class("Sequential", Module)

--- @param ... mytensor.nn.Module or one list of them
function Sequential:init(...)
  local modules = table.pack(...)
  local first = modules[1]
  if modules.n == 1 and type(first) == "table" and getmetatable(first) == nil then
    local key = next(first)
    if key ~= nil and #first == 0 then
      check.fail(1, self.__name,
                 "a list of modules expected, got a table with the key %s",
                 tostring(key))
    end
    modules = table.move(first, 1, #first, 1, { n = #first })
  end
  for i = 1, modules.n do
    local module = modules[i]
    if not walk.is_module(module) then
      local name = type(module) == "table" and rawget(module, "__name")
      check.fail(i, self.__name, "module expected, got %s", name
        and ("the class %s: %s(...) makes one"):format(name, name)
        or check.type_name(module))
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

-- A field with a name, as a subclass may have, is no link of the chain.
function Sequential:__newindex(key, value)
  local n = #self
  if math.type(key) == "integer" then
    if value == nil and key ~= n or key < 1 or key > n + 1 then
      check.raise("%s[%d]: there %s %d module%s: replace one, append at [%d]%s",
                  self.__name, key, n == 1 and "is" or "are", n, n == 1 and "" or "s",
                  n + 1, n > 0 and (" or remove [%d]"):format(n) or "")
    elseif value ~= nil and not walk.is_module(value) then
      check.raise("%s[%d]: module expected, got %s", self.__name, key,
                  check.type_name(value))
    end
  end
  Module.__newindex(self, key, value)
end

function Sequential:__len()
  local kinds, n = self._state.kinds, 0
  while kinds[n + 1] == "module" do n = n + 1 end
  return n
end

local module_call = Module.__call

-- Is this an instance of the class itself, without hooks, whose forward is what it was?
local function is_plain(module, kind, forward)
  if getmetatable(module) ~= kind or kind.forward ~= forward then return false end
  if kind.__call ~= module_call or rawget(module, "forward") then return false end
  local state = module._state
  return not (state.before or state.after or state.values.forward)
end

local forward_of = {}
for _, kind in ipairs { Conv2d, GELU, Linear, MaxPool2d, ReLU } do
  forward_of[kind] = kind.forward
end
local function is(module, kind) return is_plain(module, kind, forward_of[kind]) end

local function linear(activation)
  return function(module, _, x)
    return mt.linear(x, module.weight, module.bias, activation)
  end
end
local linear_relu, linear_gelu = linear "relu", linear "gelu"

local function conv_relu(conv, _, x)
  return mt.conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation,
                   conv.groups, "relu")
end

local function relu_pool(_, pool, x)
  local y = mt.max_pool2d(x, pool.kernel, pool.stride, pool.padding, pool.dilation,
                          "relu")
  return y
end

-- What computes two modules in one pass, so that nobody can tell. Not gelu while ops
-- are recorded: its gradient would repeat the product. A relu before a pooling is taken
-- of what that leaves, which is less.
local function fused(module, after, third)
  if after == nil then return nil end
  if is(after, ReLU) then
    if is(module, Linear) then return linear_relu end
    return is(module, Conv2d) and not is(third, MaxPool2d) and conv_relu or nil
  elseif is(after, MaxPool2d) then
    return is(module, ReLU) and relu_pool or nil
  elseif is(after, GELU) and after.approximate == "none" and is(module, Linear)
         and not mt.is_grad_enabled() then
    return linear_gelu
  end
  return nil
end

--- A Linear or Conv2d with a ReLU behind it is computed in one pass, as are a ReLU with
--- a MaxPool2d behind it and, where nothing is recorded, a Linear with a GELU, unless
--- one of the two has hooks or is of a subclass.
--- @param ... any the input of the first module
--- @return any what the last one gives; the input if there is none
function Sequential:forward(...)
  local n = #self
  if n == 0 then return ... end
  local values = self._state.values
  local both = select("#", ...) == 1 and fused(values[1], values[2], values[3])
  local i, x = 2
  if both then
    i, x = 3, both(values[1], values[2], (...))
  else
    x = values[1](...)
  end
  while i <= n do
    local module, after = values[i], values[i + 1]
    both = fused(module, after, values[i + 2])
    if both then
      i, x = i + 2, both(module, after, x)
    else
      i, x = i + 1, module(x)
    end
  end
  return x
end

return Sequential
