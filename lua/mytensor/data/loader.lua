-- lua/mytensor/data/loader.lua: a dataset in batches.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local TensorDataset = require "mytensor.data.dataset"

--- Batches of a dataset, in a new random order each time with `shuffle`:
---
---     local loader = mt.data.DataLoader {
---       dataset = train, batch_size = 64, shuffle = true,
---     }
---     for i, images, labels in loader:iter() do ... end -- i = 1..#loader
---
--- A dataset is a TensorDataset, a list of tensors, or an object of your own: `#d` is
--- the number of examples and `d:get(i)` gives the tensors of one; equal shapes are
--- stacked. An object may have `d:batch(index)`, which gets a tensor of positions,
--- instead.
--- @class mytensor.data.DataLoader
local DataLoader = class "DataLoader"

--- @param options table dataset; batch_size = 1, shuffle = false, drop_last = false
---   (leave the last batch out if it is smaller), seed (the orders repeat from program
---   to program and take nothing from the global generator)
function DataLoader:init(options)
  options = check.options(1, "DataLoader", options, {
    dataset = check.none, batch_size = 1, shuffle = false, drop_last = false,
    seed = check.none,
  })
  local dataset = options.dataset
  if type(dataset) == "table" and getmetatable(dataset) == nil then
    dataset = TensorDataset(dataset)
  end
  local kind = type(dataset)
  if kind ~= "table" and kind ~= "userdata" or not (dataset.get or dataset.batch) then
    check.fail(1, "DataLoader", "dataset: TensorDataset, list of tensors, or object"
               .. " with 'get' or 'batch' expected, got %s", check.type_name(dataset))
  end
  self.dataset = dataset
  self.batch_size = check.integer(1, "DataLoader", options.batch_size, "batch_size", 1)
  self.shuffle, self.drop_last = options.shuffle, options.drop_last
  if options.seed ~= nil then
    self.seed = check.integer(1, "DataLoader", options.seed, "seed")
  end
  self.epoch = 0 -- how many times `iter` was called
end

--- The number of batches.
function DataLoader:__len()
  local n = #self.dataset
  if self.drop_last then return n // self.batch_size end
  return (n + self.batch_size - 1) // self.batch_size
end

-- A random order of 1..n.
local function order(self, n)
  if not self.seed then return mt.randperm(n, { device = "cpu" }) end
  local state = mt.get_rng_state()
  -- An odd factor spreads the epochs, so that seed + 1 isn't this seed's next epoch.
  mt.manual_seed((self.seed + self.epoch * 0x9E3779B97F4A7C15) & math.maxinteger)
  local permutation = mt.randperm(n, { device = "cpu" })
  mt.set_rng_state(state)
  return permutation
end

-- Examples one by one, their tensors stacked.
local function stack(dataset, positions)
  local columns, width = {}, 0
  for i, position in ipairs(positions) do
    local fields = table.pack(dataset:get(position))
    width = fields.n
    for k = 1, width do
      columns[k] = columns[k] or {}
      columns[k][i] = fields[k]
    end
  end
  for k = 1, width do columns[k] = mt.stack(columns[k], 1) end
  return table.unpack(columns, 1, width)
end

local function fetch(self, permutation, start, length)
  local dataset = self.dataset
  if permutation then
    local index = permutation:narrow(1, start, length)
    if dataset.batch then return dataset:batch(index) end
    return stack(dataset, index:totable())
  end
  if dataset.range then return dataset:range(start, length) end
  if dataset.batch then
    return dataset:batch(mt.arange(start, start + length, 1,
                                   { dtype = "int64", device = "cpu" }))
  end
  local positions = {}
  for i = 1, length do positions[i] = start + i - 1 end
  return stack(dataset, positions)
end

--- One pass over the dataset, for the generic `for`: the number of the batch, then its
--- tensors. Without `shuffle` the batches of a TensorDataset are views of it. Passes
--- don't disturb each other, and may be left early.
--- @return function
function DataLoader:iter()
  local n, batches, i = #self.dataset, #self, 0
  local permutation = self.shuffle and order(self, n) or nil
  self.epoch = self.epoch + 1
  return function()
    if i == batches then return nil end
    i = i + 1
    local start = (i - 1) * self.batch_size + 1
    return i, fetch(self, permutation, start, math.min(self.batch_size, n - start + 1))
  end
end

return DataLoader
