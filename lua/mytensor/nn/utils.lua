-- lua/mytensor/nn/utils.lua: mt.nn.utils, what is done to gradients between backward
-- and step.

local mt = require "mytensor"
local check = require "mytensor.check"

local utils = {}

-- The gradients of the parameters that have one.
local function gradients(name, parameters)
  if mt.is_tensor(parameters) then parameters = { parameters } end
  check.type(1, name, parameters, "table")
  local grads = {}
  for i, p in ipairs(parameters) do
    if not mt.is_tensor(p) then
      check.fail(1, name, "parameter %d: tensor expected, got %s", i,
                 check.type_name(p))
    end
    grads[#grads + 1] = p.grad
  end
  return grads
end

--- Scale all gradients by one factor so that their common 2-norm is at most `max_norm`.
--- Nothing is moved to Lua: on a GPU this doesn't wait.
---
--- A norm that isn't finite makes the gradients NaN or 0: look at it if that can
--- happen.
--- @param parameters mytensor.Tensor[] those without a gradient are skipped
--- @param max_norm number
--- @return mytensor.Tensor the norm before, a 0-dim tensor
function utils.clip_grad_norm_(parameters, max_norm)
  local grads = gradients("clip_grad_norm_", parameters)
  check.number(2, "clip_grad_norm_", max_norm, "max_norm", 0)
  if not grads[1] then return mt.zeros {} end
  return mt.no_grad(function()
    local norm = mt._grad_norm(grads)
    -- The small term keeps 0 / 0 away; PyTorch has the same.
    local factor = ((norm + 1e-6):reciprocal() * max_norm):clamp(0, 1)
    mt._scale_(grads, factor)
    return norm
  end)
end

--- Limit each element of the gradients to -limit .. limit.
--- @param parameters mytensor.Tensor[] those without a gradient are skipped
--- @param limit number
function utils.clip_grad_value_(parameters, limit)
  local grads = gradients("clip_grad_value_", parameters)
  check.number(2, "clip_grad_value_", limit, "limit", 0)
  mt.no_grad(function()
    for _, grad in ipairs(grads) do grad:clamp_(-limit, limit) end
  end)
end

return utils
