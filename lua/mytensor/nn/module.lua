-- lua/mytensor/nn/module.lua: the base class of networks and of their layers.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local Parameter = require "mytensor.nn.parameter"
local walk = require "mytensor.nn.walk"

--- A network, or a part of one.
---
--- A subclass creates its parts in `init` and uses them in `forward`:
---
---     local Net = mt.class("Net", nn.Module)
---     function Net:init()
---       self.hidden = nn.Linear(784, 128)
---       self.out = nn.Linear(128, 10)
---     end
---     function Net:forward(x) return self.out(self.hidden(x):relu()) end
---     local logits = Net()(x)
---
--- What is assigned to a field is registered by its kind, in the order of assignment
--- (of `self.a, self.b = x, y` Lua assigns b first): `nn.Parameter(t)`, or a leaf
--- tensor that requires grad, is a parameter; a module is a child; anything else, a
--- plain table of modules too, is just a field.
--- @class mytensor.nn.Module
--- @field training boolean true after creation and `train`, false after `eval`
local Module = class "Module"

Module.is_module = true

-- All fields of an instance live in `_state`, so that every assignment is seen:
-- values: field -> value; kinds: field -> "parameter" | "buffer" | "module";
-- order: the fields that have a kind; transient: buffers that state_dict leaves out.
function Module.__allocate(cls)
  local self = {
    _state = { values = { training = true }, kinds = {}, order = {}, transient = {} },
  }
  return setmetatable(self, cls)
end

function Module.__make_index(cls)
  return function(self, key)
    if key == "_state" then return nil end -- no instance, or a broken one
    local value = self._state.values[key]
    if value == nil then return cls[key] end
    return value
  end
end

Module.__index = Module:__make_index()

function Module.__pairs(self)
  return next, rawget(self, "_state").values, nil
end

local function kind_of(value, old_kind)
  if walk.is_module(value) then return "module" end
  if not mt.is_tensor(value) then return nil end
  if old_kind == "buffer" and not Parameter.is_parameter(value) then return "buffer" end
  if Parameter.is_parameter(value) then return "parameter" end
  if value.requires_grad and value:is_leaf() then
    Parameter.mark(value)
    return "parameter"
  end
  return nil
end

-- Names are joined by dots.
local function check_name(key, kind)
  if type(key) == "string" and (key == "" or key:find(".", 1, true)) then
    check.raise("the name '%s' of a %s must be without dots and not empty", key, kind)
  elseif type(key) ~= "string" and math.type(key) ~= "integer" then
    check.raise("the name of a %s must be a string or an integer, got %s", kind,
                check.type_name(key))
  end
end

local function unregister(state, key)
  state.kinds[key] = nil
  state.transient[key] = nil
  for i, name in ipairs(state.order) do
    if name == key then
      table.remove(state.order, i)
      return
    end
  end
end

function Module:__newindex(key, value)
  local state = rawget(self, "_state")
  local old = state.kinds[key]
  local kind = value ~= nil and kind_of(value, old) or nil
  if old == "parameter" and value ~= nil and kind ~= "parameter" then
    check.raise("cannot assign a %s to the parameter '%s' of %s (give nn.Parameter(t),"
                .. " or change the values: mt.no_grad(function() p:copy_(t) end))",
                mt.is_tensor(value) and "tensor that isn't a parameter"
                or check.type_name(value), tostring(key), self.__name)
  end
  if kind then check_name(key, kind) end
  if old and not kind then
    unregister(state, key)
  elseif kind and not old then
    state.order[#state.order + 1] = key
  end
  state.kinds[key] = kind
  state.values[key] = mt.keep(value) -- outlives an mt.scope
end

--- Register a tensor that belongs to the state but isn't trained, as running averages.
--- @param name string
--- @param tensor mytensor.Tensor
--- @param persistent? boolean whether state_dict holds it, default true
function Module:register_buffer(name, tensor, persistent)
  check.type(1, "register_buffer", name, "string")
  check.type(2, "register_buffer", tensor, "tensor")
  local state = rawget(self, "_state")
  if state.kinds[name] and state.kinds[name] ~= "buffer" then
    check.fail(1, "register_buffer", "'%s' is a %s already", name, state.kinds[name])
  end
  if not state.kinds[name] then
    check_name(name, "buffer")
    state.order[#state.order + 1] = name
  end
  state.kinds[name] = "buffer"
  state.values[name] = mt.keep(tensor)
  state.transient[name] = persistent == false or nil
end

--- Register a parameter; the same as assigning it.
--- @param name string
--- @param parameter mytensor.Tensor? nil removes it
function Module:register_parameter(name, parameter)
  check.type(1, "register_parameter", name, "string")
  if parameter ~= nil then check.type(2, "register_parameter", parameter, "tensor") end
  if parameter and not Parameter.is_parameter(parameter) then
    parameter = Parameter(parameter)
  end
  self[name] = parameter
end

--- What the module computes: to be defined by the subclass.
function Module:forward()
  check.raise("%s has no method 'forward'", self.__name)
end

-- Called instead with the module, `run`, and the arguments, while a profile runs.
local watch

--- For mt.profile: let fn(module, run, ...) make each call of a module, by
--- run(module, ...).
function Module._watch(fn) watch = fn end

local function run(self, ...)
  local state = self._state
  local before, after = state.before, state.after
  if not before and not after then return self:forward(...) end
  local inputs = table.pack(...)
  for _, hook in ipairs(before or {}) do
    local changed = table.pack(hook.fn(self, table.unpack(inputs, 1, inputs.n)))
    if changed.n > 0 and changed[1] ~= nil then inputs = changed end
  end
  local outputs = table.pack(self:forward(table.unpack(inputs, 1, inputs.n)))
  for _, hook in ipairs(after or {}) do
    local changed =
      table.pack(hook.fn(self, inputs, table.unpack(outputs, 1, outputs.n)))
    if changed.n > 0 and changed[1] ~= nil then outputs = changed end
  end
  return table.unpack(outputs, 1, outputs.n)
end

--- Call the hooks and `forward`.
function Module:__call(...)
  if watch then return watch(self, run, ...) end
  local state = self._state
  if not state.before and not state.after then return self:forward(...) end
  return run(self, ...)
end

local function add_hook(self, when, name, fn)
  check.type(1, name, fn, "function")
  local state = rawget(self, "_state")
  local hook = { fn = fn }
  -- A new list each time: a hook may remove itself while the list is walked.
  state[when] = table.move(state[when] or {}, 1, #(state[when] or {}), 1, {})
  table.insert(state[when], hook)
  function hook.remove()
    local rest = {}
    for _, other in ipairs(state[when] or {}) do
      if other ~= hook then rest[#rest + 1] = other end
    end
    state[when] = rest[1] and rest or nil
  end
  return hook
end

--- Call `fn(module, inputs, output...)` after each forward, `inputs` in a table. What
--- it returns, unless nil, replaces the output.
--- @param fn function
--- @return { remove: function }
function Module:register_forward_hook(fn)
  return add_hook(self, "after", "register_forward_hook", fn)
end

--- Call `fn(module, input...)` before each forward. What it returns, unless nil,
--- replaces the inputs.
--- @param fn function
--- @return { remove: function }
function Module:register_forward_pre_hook(fn)
  return add_hook(self, "before", "register_forward_pre_hook", fn)
end

--- Iterate: `for name, module in net:named_children() do`.
--- @return function
function Module:named_children()
  return walk.iterate(walk.children(self))
end

--- @return mytensor.nn.Module[]
function Module:children()
  return walk.values(walk.children(self))
end

--- Iterate over the module itself, named "", and all below it, each once, parents
--- first: `for name, module in net:named_modules() do`, names as "features.1".
--- @return function
function Module:named_modules()
  return walk.iterate(walk.modules(self))
end

--- @return mytensor.nn.Module[]
function Module:modules()
  return walk.values(walk.modules(self))
end

--- Iterate: `for name, tensor in net:named_parameters() do`, names as
--- "features.1.weight", in the order of registration. One that several modules share
--- comes once.
--- @return function
function Module:named_parameters()
  return walk.iterate(walk.tensors(self, "parameter"))
end

--- The list that optimisers take.
--- @return mytensor.Tensor[]
function Module:parameters()
  return walk.values(walk.tensors(self, "parameter"))
end

--- @return function
function Module:named_buffers()
  return walk.iterate(walk.tensors(self, "buffer"))
end

--- @return mytensor.Tensor[]
function Module:buffers()
  return walk.values(walk.tensors(self, "buffer"))
end

--- The module at a dotted name, as `named_modules` gives them.
--- @param name string
--- @return mytensor.nn.Module
function Module:get_submodule(name)
  check.type(1, "get_submodule", name, "string")
  for path, module in self:named_modules() do
    if path == name then return module end
  end
  check.fail(1, "get_submodule", "%s has no module '%s'", self.__name, name)
end

--- All parameters and persistent buffers under their dotted names, detached: they share
--- their storage with the module, clone them to keep a snapshot.
--- @return table<string, mytensor.Tensor>
function Module:state_dict()
  local dict = {}
  for _, entry in ipairs(walk.state(self)) do dict[entry[1]] = entry[2]:detach() end
  return dict
end

--- Copy values in, by name. Nothing is changed when something doesn't fit.
--- @param dict table<string, mytensor.Tensor> from `state_dict` or `mt.load_tensors`
--- @param options? { strict: boolean } strict = false: names may be missing or unknown
--- @return string[] missing names, sorted
--- @return string[] unexpected names, sorted
function Module:load_state_dict(dict, options)
  check.type(1, "load_state_dict", dict, "table")
  options = check.options(2, "load_state_dict", options, { strict = true })
  local missing, unexpected, misfits, copies, known = {}, {}, {}, {}, {}
  for _, entry in ipairs(walk.state(self)) do
    local name, tensor = entry[1], entry[2]
    local new = dict[name]
    known[name] = true
    if new == nil then
      missing[#missing + 1] = name
    elseif not mt.is_tensor(new) then
      check.fail(1, "load_state_dict", "'%s': tensor expected, got %s", name,
                 check.type_name(new))
    else
      local ours = check.shape_text(tensor:shape())
      local theirs = check.shape_text(new:shape())
      if ours ~= theirs then
        local text = "%s: shape %s here, %s given"
        misfits[#misfits + 1] = text:format(name, ours, theirs)
      end
      copies[#copies + 1] = { tensor, new }
    end
  end
  for name in pairs(dict) do
    if not known[name] then unexpected[#unexpected + 1] = tostring(name) end
  end
  table.sort(missing)
  table.sort(unexpected)
  table.sort(misfits)
  local lines = {}
  if options.strict and missing[1] then
    lines[1] = "missing: " .. table.concat(missing, ", ")
  end
  if options.strict and unexpected[1] then
    lines[#lines + 1] = "unexpected: " .. table.concat(unexpected, ", ")
  end
  table.move(misfits, 1, #misfits, #lines + 1, lines)
  if lines[1] then
    check.fail(1, "load_state_dict", "does not fit %s:\n  %s", self.__name,
               table.concat(lines, "\n  "))
  end
  mt.no_grad(function()
    for _, pair in ipairs(copies) do pair[1]:copy_(pair[2]) end
  end)
  return missing, unexpected
end

--- Switch this module and all below it to training, or with false to evaluation.
--- @param on? boolean default true
--- @return mytensor.nn.Module self
function Module:train(on)
  for _, module in ipairs(self:modules()) do module.training = on ~= false end
  return self
end

--- Switch to evaluation: Dropout passes its input on.
--- @return mytensor.nn.Module self
function Module:eval()
  return self:train(false)
end

--- Call `fn(module)` for all modules below this one, then for this one.
--- @param fn fun(module: mytensor.nn.Module)
--- @return mytensor.nn.Module self
function Module:apply(fn)
  check.type(1, "apply", fn, "function")
  for _, child in ipairs(self:children()) do child:apply(fn) end
  fn(self)
  return self
end

--- Forget the gradients.
function Module:zero_grad()
  mt._clear_grads(self:parameters())
end

--- Freeze the parameters (false), or let them train again.
--- @param on? boolean default true
--- @return mytensor.nn.Module self
function Module:requires_grad_(on)
  for _, p in ipairs(self:parameters()) do p:requires_grad_(on ~= false) end
  return self
end

--- Move to a device, or convert the float tensors to a dtype. Tensors that change are
--- replaced by new ones: create the optimiser afterwards.
--- @param target string|table "cuda", "float64", or { device =, dtype = }
--- @return mytensor.nn.Module self
function Module:to(target)
  local options
  if type(target) == "string" then
    options = walk.dtypes[target] and { dtype = target } or { device = target }
  else
    check.type(1, "to", target, "table")
    options = check.options(1, "to", target,
                            { device = check.none, dtype = check.none })
  end
  if options.dtype and not walk.float_dtypes[options.dtype] then
    check.fail(1, "to", "a module takes a float dtype, got %s", tostring(options.dtype))
  end
  walk.convert(self, options.dtype, options.device)
  return self
end

--- The same as `to "float32"`.
function Module:float()
  return self:to "float32"
end

--- The same as `to "float64"`.
function Module:double()
  return self:to "float64"
end

--- The same as `to "float16"`.
function Module:half()
  return self:to "float16"
end

--- The same as `to "bfloat16"`.
function Module:bfloat16()
  return self:to "bfloat16"
end

--- What stands between the parentheses in `tostring`: for subclasses to define.
--- @return string
function Module:extra_repr()
  return ""
end

--- The tree: one line a module.
function Module:__tostring()
  local lines = {}
  for name, child in self:named_children() do
    lines[#lines + 1] = ("  (%s): %s"):format(name, tostring(child):gsub("\n", "\n  "))
  end
  local extra = self:extra_repr()
  if not lines[1] then return ("%s(%s)"):format(self.__name, extra) end
  if extra ~= "" then table.insert(lines, 1, "  " .. extra) end
  return ("%s(\n%s\n)"):format(self.__name, table.concat(lines, "\n"))
end

return Module
