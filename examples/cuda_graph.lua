-- examples/cuda_graph.lua: a training step captured in a CUDA graph and replayed,
-- beside the same step without one.
--
--   mtlua examples/cuda_graph.lua

local mt = require "mytensor"
local nn = mt.nn

local available, reason = mt.cuda.is_available()
if not available then
  print(reason)
  os.exit(0)
end
mt.set_default_device "cuda"

-- A batch of points of the plane; those within a ring belong to class 2.
local function batch()
  local x = mt.rand(64, 2) * 4 - 2
  local radius = x:square():sum(2):sqrt()
  return x, (radius:gt(0.8) * radius:lt(1.6)):long() + 1
end

local function training()
  mt.manual_seed(1)
  local model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1),
                              nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
  local criterion = nn.CrossEntropyLoss()
  local optimiser = mt.optim.Adam(model:parameters(), { lr = 0.005 })
  return function(x, y)
    optimiser:zero_grad()
    local loss = criterion(model(x), y)
    loss:backward()
    optimiser:step()
    return loss -- of a graph: a tensor that the next call overwrites
  end
end

local function run(name, step)
  local loss
  for _ = 1, 20 do step(batch()) end
  local x, y = batch()
  local from, to = mt.cuda.Event { timing = true }, mt.cuda.Event { timing = true }
  from:record()
  for _ = 1, 1000 do loss = step(x, y) end
  to:record()
  print(("%-6s %5.1f us a step, loss %.6f"):format(name, from:elapsed(to), loss:item()))
end

run("eager", training())
local step = mt.cuda.graph(training())
run("graph", step)
print(step)
