-- lua/mytensor/nn/parameter.lua: tensors that modules train.

local check = require "mytensor.check"

local Parameter = {}

-- The tensors that are parameters, also while they are frozen.
local marked = setmetatable({}, { __mode = "k" })

--- Is `v` a parameter: made by `nn.Parameter`, or once assigned to a module as one?
--- @return boolean
function Parameter.is_parameter(v)
  return marked[v] == true
end

--- Note that the tensor is a parameter.
function Parameter.mark(tensor)
  marked[tensor] = true
end

--- Make a parameter: a leaf of the graph over the tensor's own storage.
--- @param tensor mytensor.Tensor
--- @param requires_grad? boolean default true
--- @return mytensor.Tensor
local function parameter(_, tensor, requires_grad)
  check.type(1, "Parameter", tensor, "tensor")
  local result = tensor:detach()
  if requires_grad ~= false then
    if not check.is_float(tensor) then
      check.fail(1, "Parameter", "only float tensors can have gradients, this is %s",
                 tensor:dtype())
    end
    result:requires_grad_()
  end
  marked[result] = true
  return result
end

return setmetatable(Parameter, { __call = parameter })
