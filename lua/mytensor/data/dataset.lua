-- lua/mytensor/data/dataset.lua: tensors whose first dims run over the same examples.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"

--- Tensors of N examples each: `#dataset` is N. They are reached by number, and by name
--- if names were given: `TensorDataset({ x, y }, { "images", "labels" }).images`.
--- @class mytensor.data.TensorDataset
--- @field tensors mytensor.Tensor[]
local TensorDataset = class "TensorDataset"

--- @param tensors mytensor.Tensor[] each (N, ...)
--- @param names? string[] a field for each
function TensorDataset:init(tensors, names)
  check.type(1, "TensorDataset", tensors, "table")
  if tensors[1] == nil then
    check.fail(1, "TensorDataset", "the list of tensors is empty")
  end
  if names ~= nil then check.type(2, "TensorDataset", names, "table") end
  for i, t in ipairs(tensors) do
    if not mt.is_tensor(t) then
      check.fail(1, "TensorDataset", "tensor %d: tensor expected, got %s", i,
                 check.type_name(t))
    elseif t:dim() == 0 then
      check.fail(1, "TensorDataset", "tensor %d has no dims", i)
    elseif t:size(1) ~= tensors[1]:size(1) then
      check.fail(1, "TensorDataset", "tensor %d has %d examples, the first has %d", i,
                 t:size(1), tensors[1]:size(1))
    end
    if names and names[i] then self[names[i]] = t end
  end
  self.tensors = table.move(tensors, 1, #tensors, 1, {})
end

function TensorDataset:__len()
  return self.tensors[1]:size(1)
end

--- @param i integer 1..N, negative from the end
--- @return mytensor.Tensor ... the i-th example: a view of each tensor
function TensorDataset:get(i)
  local fields = {}
  for k, t in ipairs(self.tensors) do fields[k] = t:select(1, i) end
  return table.unpack(fields)
end

--- @param index mytensor.Tensor positions from 1, a vector
--- @return mytensor.Tensor ... these examples of each tensor
function TensorDataset:batch(index)
  local fields = {}
  for k, t in ipairs(self.tensors) do
    if index:device() ~= t:device() then index = index:to(t:device()) end
    fields[k] = t:index_select(1, index)
  end
  return table.unpack(fields)
end

--- @param start integer from 1
--- @param length integer
--- @return mytensor.Tensor ... examples that follow each other: views
function TensorDataset:range(start, length)
  local fields = {}
  for k, t in ipairs(self.tensors) do fields[k] = t:narrow(1, start, length) end
  return table.unpack(fields)
end

--- Part of the examples, as for validation: `dataset:split(50000)`.
--- @param n integer how many the first part has
--- @return mytensor.data.TensorDataset, mytensor.data.TensorDataset views
function TensorDataset:split(n)
  n = check.integer(1, "split", n, "number of examples", 0)
  if n > #self then check.fail(1, "split", "%d examples of %d", n, #self) end
  local names = {}
  for name, value in pairs(self) do
    for i, t in ipairs(self.tensors) do
      if rawequal(t, value) then names[i] = name end
    end
  end
  return TensorDataset({ self:range(1, n) }, names),
         TensorDataset({ self:range(n + 1, #self - n) }, names)
end

--- Move the tensors to a device: a set that fits is copied once, not batch by batch.
--- @param device string
--- @return mytensor.data.TensorDataset self
function TensorDataset:to(device)
  for i, t in ipairs(self.tensors) do
    local moved = t:to(device)
    for name, value in pairs(self) do
      if rawequal(t, value) then self[name] = moved end
    end
    self.tensors[i] = moved
  end
  return self
end

return TensorDataset
