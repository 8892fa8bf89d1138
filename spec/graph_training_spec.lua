-- spec/graph_training_spec.lua: training steps in a graph of mt.cuda.graph, against the
-- same steps without one.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local shell = require "spec.support.shell"
local nn = mt.nn

local on_gpu = devices.on_gpu(_ENV, devices.without_guards)

local gpu = { device = "cuda" }

local function batches(n, size, shape)
  mt.manual_seed(77)
  local list = {}
  for i = 1, n do
    list[i] = { mt.randn({ size, table.unpack(shape) }, gpu),
                mt.randint(1, 10, { size }, gpu) }
  end
  return list
end

-- Losses of 50 steps, and the parameters afterwards. lr(i): the rate of step i.
local function train(make, optimiser, data, graph, lr)
  mt.manual_seed(5)
  local net = make():to "cuda"
  local opt = optimiser(net:parameters())
  local criterion = nn.CrossEntropyLoss()
  local function step(x, y)
    opt:zero_grad()
    local loss = criterion(net(x), y)
    loss:backward()
    opt:step()
    return loss
  end
  if graph then step = mt.cuda.graph(step) end
  local losses = {}
  for i = 1, 50 do
    if lr then opt.param_groups[1].lr = lr(i) end
    local batch = data[(i - 1) % #data + 1]
    losses[i] = step(batch[1], batch[2]):item()
  end
  local values, states = {}, {}
  for i, p in ipairs(net:parameters()) do
    values[i] = p:detach():cpu()
    states[i] = opt.state[p] and opt.state[p].step
  end
  if graph then
    assert.is_true(step:nodes() > 5)
    step:free()
  end
  return losses, values, mt.get_rng_state().position, states
end

local function assert_same_training(...)
  local losses, values, position, states = train(...)
  local make, optimiser, data, _, lr = ...
  local glosses, gvalues, gposition, gstates = train(make, optimiser, data, true, lr)
  assert.is_true(losses[1] == losses[1] and losses[1] ~= losses[50])
  assert.same(losses, glosses)
  assert.equal(position, gposition)
  assert.same(states, gstates)
  for i = 1, #values do
    assert.is_true(values[i]:equal(gvalues[i]), "parameter " .. i)
  end
end

local function mlp(...)
  local extra = { ... }
  return function()
    return nn.Sequential(nn.Linear(40, 64), nn.ReLU(), table.unpack(extra))
      :append(nn.Linear(64, 10))
  end
end

local function lenet()
  return nn.Sequential(
    nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(),
    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.3),
    nn.Linear(64, 10))
end

local function sgd(parameters)
  return mt.optim.SGD(parameters, { lr = 0.05, momentum = 0.9, weight_decay = 1e-3 })
end
local function adam(parameters) return mt.optim.Adam(parameters, { lr = 2e-3 }) end

describe("a graph of training steps equals the steps", function()
  local function deterministic(fn)
    return function()
      mt.set_deterministic(true)
      finally(function() mt.set_deterministic(false) end)
      fn()
    end
  end

  on_gpu("with SGD and momentum", deterministic(function()
    assert_same_training(mlp(), sgd, batches(3, 32, { 40 }))
  end))

  on_gpu("with Adam and dropout, whose counters go on", deterministic(function()
    assert_same_training(mlp(nn.Dropout(0.4)), adam, batches(3, 32, { 40 }))
  end))

  on_gpu("with AdamW, clipped gradients and a schedule", deterministic(function()
    local function clipping(parameters)
      local opt = mt.optim.AdamW(parameters, { lr = 1e-3 })
      local step = opt.step
      opt.step = function(self)
        mt.optim.clip_grad_norm_(parameters, 0.5)
        return step(self)
      end
      return opt
    end
    assert_same_training(mlp(), clipping, batches(2, 16, { 40 }), false,
                         function(i) return 1e-3 * (1 + i % 7) end)
  end))

  on_gpu("of a convolutional network", deterministic(function()
    assert_same_training(lenet, sgd, batches(2, 16, { 1, 28, 28 }))
    assert_same_training(lenet, adam, batches(2, 16, { 1, 28, 28 }))
  end))

  on_gpu("to rounding when algorithms are chosen by time", function()
    local data = batches(2, 64, { 1, 28, 28 })
    local losses = train(lenet, sgd, data)
    local glosses = train(lenet, sgd, data, true)
    for i = 1, 10 do -- then chaos takes over
      assert.is_true(math.abs(losses[i] - glosses[i]) < 1e-3 * losses[i])
    end
  end)

  on_gpu("and steps without it may come in between", deterministic(function()
    local function run(graph)
      mt.manual_seed(9)
      local net = nn.Linear(4, 3):to "cuda"
      local opt = adam(net:parameters())
      local x = mt.randn({ 8, 4 }, gpu)
      local function eager(v)
        opt:zero_grad()
        local loss = (net(v) + mt.randn({ 8, 3 }, gpu)):square():mean()
        loss:backward()
        opt:step()
        return loss
      end
      local step = graph and mt.cuda.graph(eager) or eager
      local losses = {}
      for i = 1, 20 do losses[i] = (i % 5 == 0 and eager or step)(x):item() end
      return losses
    end
    assert.same(run(false), run(true))
  end))
end)

describe("examples/cuda_graph.lua", function()
  it("has one loss with and without a graph; without a GPU it says so", function()
    local r = shell.run(shell.lua_command() .. " examples/cuda_graph.lua")
    assert.equal(0, r.code, r.err)
    if not devices.cuda then return assert.truthy(r.out:find "^no device cuda:0: ") end
    local eager, graph = r.out:match "eager .- loss ([%d.]+)\ngraph .- loss ([%d.]+)\n"
    assert.is_true(math.abs(eager - graph) < 1e-4, r.out)
  end)
end)
