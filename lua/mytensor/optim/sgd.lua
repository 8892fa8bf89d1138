-- lua/mytensor/optim/sgd.lua: stochastic gradient descent, with momentum.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local Optimiser = require "mytensor.optim.optimiser"

--- p <- p - lr * v with v <- momentum * v + (1 - dampening) * (g + weight_decay * p).
--- The first step of a parameter starts v without dampening. With nesterov the step
--- uses g + momentum * v (Sutskever et al., ICML 2013). As PyTorch's SGD.
---
--- `SGD(parameters, options)`: as Optimiser; the options are lr (no default), momentum
--- = 0, dampening = 0, weight_decay = 0, nesterov = false.
--- @class mytensor.optim.SGD: mytensor.optim.Optimiser
local SGD = class("SGD", Optimiser)

--- lr has no default: it must be given, for all or for each group.
SGD.defaults = {
  lr = check.none, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false,
}

function SGD:validate(n, o)
  if n == 1 or o.lr ~= nil then check.number(n, "SGD", o.lr, "lr", 0) end
  check.number(n, "SGD", o.momentum, "momentum", 0)
  check.number(n, "SGD", o.dampening, "dampening")
  check.number(n, "SGD", o.weight_decay, "weight_decay", 0)
  if o.nesterov and (o.momentum == 0 or o.dampening ~= 0) then
    check.fail(n, "SGD", "nesterov needs a momentum above 0 and no dampening")
  end
end

-- One fused call for parameters whose velocities are in the same phase.
local function step(list, velocities, group, dampening)
  if not list[1] then return end
  local first, slots = mt._sgd_step(list, nil, velocities, group.lr, group.momentum,
                                    dampening, group.weight_decay, group.nesterov)
  if first then -- captured: replays take the rate that the group has then
    mt._on_replay(function(graph) graph:_set(first, slots, group.lr) end)
  end
end

function SGD:step_group(group, parameters)
  if group.momentum == 0 then return step(parameters, nil, group, 0) end
  local velocities = mt._states(self.state, parameters, "momentum")
  if velocities then return step(parameters, velocities, group, group.dampening) end
  local fresh, fresh_v, old, old_v = {}, {}, {}, {}
  for _, p in ipairs(parameters) do
    local state = self:state_of(p)
    if state.momentum then
      old[#old + 1], old_v[#old_v + 1] = p, state.momentum
    else
      state.momentum = mt.keep(mt.zeros_like(p))
      fresh[#fresh + 1], fresh_v[#fresh_v + 1] = p, state.momentum
    end
  end
  step(fresh, fresh_v, group, 0)
  step(old, old_v, group, group.dampening)
end

return SGD
