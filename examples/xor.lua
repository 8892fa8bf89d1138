-- examples/xor.lua: the smallest network that needs a hidden layer.

local mt = require "mytensor"
local nn = mt.nn

mt.manual_seed(2)
local inputs = mt.tensor { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } }
local targets = mt.tensor { { 0 }, { 1 }, { 1 }, { 0 } }

local model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
local criterion = nn.MSELoss()
local optimiser = mt.optim.Adam(model:parameters(), { lr = 0.05 })

for step = 1, 500 do
  local loss = criterion(model(inputs), targets)
  optimiser:zero_grad()
  loss:backward()
  optimiser:step()
  if step % 100 == 0 then print(("step %3d  loss %.5f"):format(step, loss:item())) end
end

local outputs = mt.no_grad(function() return model(inputs) end)
for i = 1, 4 do
  print(("%d xor %d = %.3f"):format(inputs[{ i, 1 }]:item(), inputs[{ i, 2 }]:item(),
                                    outputs[{ i, 1 }]:item()))
end
