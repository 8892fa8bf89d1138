-- lua/mytensor/optim/adam.lua: Adam (Kingma and Ba, arXiv 1412.6980).

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local Optimiser = require "mytensor.optim.optimiser"

--- Steps by the running mean of the gradients over the root of that of their squares.
--- The weight decay is added to the gradient. As PyTorch's Adam.
---
--- `Adam(parameters, options)`: as Optimiser; the options are lr = 1e-3,
--- betas = {0.9, 0.999}, epsilon = 1e-8, weight_decay = 0.
--- @class mytensor.optim.Adam: mytensor.optim.Optimiser
local Adam = class("Adam", Optimiser)

Adam.defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, epsilon = 1e-8, weight_decay = 0 }

--- Is the decay applied to the parameter instead of to the gradient?
Adam.decoupled = false

function Adam:validate(n, o)
  local name = self.__name
  check.number(n, name, o.lr, "lr", 0)
  if type(o.betas) ~= "table" or #o.betas ~= 2 then
    check.fail(n, name, "betas must be a list of two numbers")
  end
  o.betas = { o.betas[1], o.betas[2] } -- the caller may change its own
  check.number(n, name, o.betas[1], "betas[1]", 0, 1, true)
  check.number(n, name, o.betas[2], "betas[2]", 0, 1, true)
  check.number(n, name, o.epsilon, "epsilon", 0)
  check.number(n, name, o.weight_decay, "weight_decay", 0)
end

--- A step was captured in a graph: its replays count as steps, with the learning rate
--- that the group has then.
function Adam:follow_replays(group, batch, first, slots)
  mt._on_replay(function(graph)
    local step
    for _, p in ipairs(batch) do
      local state = self:state_of(p)
      step = state.step + 1
      state.step = step
    end
    graph:_set(first, slots, step, group.lr)
  end)
end

function Adam:step_group(group, parameters)
  -- One fused call for all parameters that have made as many steps: usually all.
  local by_step = {}
  for _, p in ipairs(parameters) do
    local state = self:state_of(p)
    if not state.step then
      state.step = 0
      state.mean, state.square = mt.keep(mt.zeros_like(p), mt.zeros_like(p))
    end
    local step = state.step + 1
    state.step = step
    local batch = by_step[step]
    if not batch then
      batch = {}
      by_step[step] = batch
    end
    batch[#batch + 1] = p
  end
  for step, batch in pairs(by_step) do
    local first, slots = mt._adam_step(
      batch, nil, mt._states(self.state, batch, "mean"),
      mt._states(self.state, batch, "square"), step, group.lr, group.betas[1],
      group.betas[2], group.epsilon, group.weight_decay, self.decoupled)
    if first then self:follow_replays(group, batch, first, slots) end
  end
end

return Adam
