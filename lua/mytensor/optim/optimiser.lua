-- lua/mytensor/optim/optimiser.lua: what all optimisers share: groups of parameters,
-- the state of each parameter, saving and loading both.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"

--- Base class. A subclass has `defaults`, `validate(self, n, options)`, and
--- `step_group(self, group, parameters)`, which gets the parameters that have a
--- gradient, in a list that it may not change.
--- @class mytensor.optim.Optimiser
--- @field param_groups table[] each { params = {...}, lr =, ... }; may be changed
--- @field state table<mytensor.Tensor, table> what a step needs from the steps before
local Optimiser = class "Optimiser"

local function check_parameters(self, list, where)
  for i, p in ipairs(list) do
    local name = where .. i
    if not mt.is_tensor(p) then
      check.fail(1, self.__name, "%s: tensor expected, got %s", name,
                 check.type_name(p))
    elseif not p.requires_grad then
      check.fail(1, self.__name, "%s requires no grad", name)
    elseif not p:is_leaf() then
      check.fail(1, self.__name, "%s is the result of an operation, no parameter", name)
    elseif self.owner[p] then
      check.fail(1, self.__name, "%s is in the list twice", name)
    end
    self.owner[p] = true
  end
end

--- @param parameters table list of tensors, or of groups { params = {...}, lr =, ... }
--- @param options? table for all groups that don't say otherwise
function Optimiser:init(parameters, options)
  if mt.is_tensor(parameters) then parameters = { parameters } end
  check.type(1, self.__name, parameters, "table")
  options = check.options(2, self.__name, options, self.defaults)
  self:validate(2, options)
  self.options = {} -- what a group has unless it says otherwise
  for key, default in pairs(self.defaults) do
    self.options[key] = options[key] == nil and default or options[key]
  end
  self.param_groups, self.state = {}, {}
  self.owner = {} -- the tensors that stand in a group
  if parameters[1] == nil then
    check.fail(1, self.__name, "the list of parameters is empty")
  end
  if type(parameters[1]) == "table" and not mt.is_tensor(parameters[1]) then
    for _, group in ipairs(parameters) do self:add_param_group(group) end
  else
    self:add_param_group { params = parameters }
  end
end

--- Raise unless the options are legal.
function Optimiser:validate(n, options)
  check.number(n, self.__name, options.lr, "lr", 0)
end

--- Add parameters, as layers that thaw during training.
--- @param group table { params = {...}, lr =, ... }
function Optimiser:add_param_group(group)
  check.type(1, self.__name, group, "table")
  local list = group.params
  if mt.is_tensor(list) then list = { list } end
  local where = ("group %d, "):format(#self.param_groups + 1)
  if type(list) ~= "table" then
    check.fail(1, self.__name, "%sparams: list of tensors expected, got %s", where,
               check.type_name(list))
  end
  local options = {}
  for key, value in pairs(group) do
    if key ~= "params" then options[key] = value end
  end
  options = check.options(1, self.__name, options, self.options)
  self:validate(1, options)
  check_parameters(self, list, where .. "parameter ")
  options.params = table.move(list, 1, #list, 1, {})
  table.insert(self.param_groups, options)
end

--- Forget the gradients: the next backward starts from nothing.
function Optimiser:zero_grad()
  for _, group in ipairs(self.param_groups) do mt._clear_grads(group.params) end
end

local function step_groups(self)
  for _, group in ipairs(self.param_groups) do
    local ready = mt._with_grads(group.params)
    if ready[1] then self:step_group(group, ready) end
  end
end

--- Change the parameters by their gradients. Those without a gradient stay.
--- @param closure? fun(): any computes the loss and calls backward; runs first
--- @return any what the closure returned
function Optimiser:step(closure)
  local loss
  if closure ~= nil then
    check.type(1, "step", closure, "function")
    loss = closure()
  end
  mt.no_grad(step_groups, self)
  return loss
end

--- The state of a parameter, made at its first step.
--- @return table
function Optimiser:state_of(parameter)
  local state = self.state[parameter]
  if not state then
    state = {}
    self.state[parameter] = state
  end
  return state
end

local function copy(value)
  if mt.is_tensor(value) then return value:detach():clone() end
  if type(value) == "table" then return table.move(value, 1, #value, 1, {}) end
  return value
end

--- A snapshot of options and states, parameters named by their numbers over all groups.
--- @return table { param_groups = { { params = {1, 2}, lr = ... } }, state = {...} }
function Optimiser:state_dict()
  local dict, number = { param_groups = {}, state = {} }, 0
  for i, group in ipairs(self.param_groups) do
    local saved = {}
    for key, value in pairs(group) do saved[key] = copy(value) end
    saved.params = {}
    for j, p in ipairs(group.params) do
      number = number + 1
      saved.params[j] = number
      if self.state[p] then
        local state = {}
        for key, value in pairs(self.state[p]) do state[key] = copy(value) end
        dict.state[number] = state
      end
    end
    dict.param_groups[i] = saved
  end
  return dict
end

-- The parameters by the number that they have in `dict`; raises if the groups differ.
local function match_groups(self, dict)
  local groups, by_number = dict.param_groups, {}
  if #groups ~= #self.param_groups then
    check.fail(1, "load_state_dict", "%d groups of parameters here, %d given",
               #self.param_groups, #groups)
  end
  for i, group in ipairs(self.param_groups) do
    local numbers = groups[i].params
    if type(numbers) ~= "table" or #numbers ~= #group.params then
      check.fail(1, "load_state_dict", "group %d: %d parameters here, %s given", i,
                 #group.params, type(numbers) == "table" and #numbers or "none")
    end
    for j, p in ipairs(group.params) do by_number[numbers[j]] = p end
  end
  return by_number
end

--- Continue from a snapshot. The groups must have as many parameters as they had.
--- @param dict table as `state_dict` gives it
function Optimiser:load_state_dict(dict)
  check.type(1, "load_state_dict", dict, "table")
  if type(dict.param_groups) ~= "table" or type(dict.state) ~= "table" then
    check.fail(1, "load_state_dict", "fields 'param_groups' and 'state' expected")
  end
  local by_number = match_groups(self, dict)
  local state = {}
  for number, saved in pairs(dict.state) do
    local p = by_number[number]
    if not p then
      check.fail(1, "load_state_dict", "state of an unknown parameter %s",
                 tostring(number))
    end
    state[p] = {}
    for key, value in pairs(saved) do
      if mt.is_tensor(value) then
        local here, there = check.shape_text(p:shape()), check.shape_text(value:shape())
        if here ~= there then
          check.fail(1, "load_state_dict",
                     "%s of parameter %s: shape %s here, %s given", key,
                     tostring(number), here, there)
        end
        local mine = value:detach():clone():to(p:dtype()):to(p:device())
        state[p][key] = mt.keep(mine)
      else
        state[p][key] = copy(value)
      end
    end
  end
  for i, saved in ipairs(dict.param_groups) do
    local options = {}
    for key, value in pairs(saved) do
      if key ~= "params" then options[key] = value end
    end
    options = check.options(1, "load_state_dict", options, self.options)
    self:validate(1, options)
    for key, value in pairs(options) do self.param_groups[i][key] = value end
  end
  self.state = state
end

--- One line a group.
function Optimiser:__tostring()
  local lines = {}
  for _, group in ipairs(self.param_groups) do
    local names, options = {}, {}
    for key in pairs(group) do
      if key ~= "params" then names[#names + 1] = key end
    end
    table.sort(names)
    for _, key in ipairs(names) do
      local value = group[key]
      if type(value) == "table" then value = "{" .. table.concat(value, ", ") .. "}" end
      options[#options + 1] = ("%s = %s"):format(key, tostring(value))
    end
    lines[#lines + 1] = ("%s(%d parameters, %s)"):format(
      self.__name, #group.params, table.concat(options, ", "))
  end
  return table.concat(lines, "\n")
end

return Optimiser
