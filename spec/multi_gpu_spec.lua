-- spec/multi_gpu_spec.lua: two GPUs in one process. Where there is one, its specs are
-- not made at all, so that a run on one GPU has none pending.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"
local nn = mt.nn

local function count() return devices.cuda and mt.cuda.device_count() or 0 end

local fails = expect.matches

--- The losses of ten steps and the parameters after them.
local function train(device)
  mt.manual_seed(7)
  local net = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5)):to(device)
  local opt = mt.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
  local x, labels = mt.randn(32, 20):to(device), mt.randint(1, 5, { 32 }):to(device)
  local losses = {}
  for i = 1, 10 do
    opt:zero_grad()
    local loss = nn.CrossEntropyLoss()(net(x), labels)
    loss:backward()
    opt:step()
    losses[i] = loss:item()
  end
  local flat = {}
  for i, p in ipairs(net:parameters()) do
    assert.equal(device, p:device())
    assert.equal(device, p.grad:device())
    flat[i] = p:detach():cpu():reshape(-1)
  end
  return losses, mt.cat(flat)
end

if devices.cuda and count() < 2 then return end

describe("two GPUs", function()
  local function on_both(name, fn)
    it(name, function()
      if not devices.cuda then return devices.without_cuda(pending) end
      fn()
    end)
  end

  on_both("train alike, whichever is current", function()
    local losses, parameters = train "cuda:0"
    local other_losses, other = train "cuda:1"
    assert.same(losses, other_losses)
    assert.is_true(parameters:equal(other))
    mt.cuda.with_device(1, function()
      local again_losses, again = train "cuda:0"
      assert.same(losses, again_losses)
      assert.is_true(parameters:equal(again))
    end)
  end)

  on_both("exchange tensors of any layout and dtype", function()
    for _, dtype in ipairs { "float32", "float16", "int64", "bool" } do
      local x = mt.rand(257, 70):mul(4):to(dtype)
      local a = x:to "cuda:1"
      local b = a:t():to "cuda:0"
      assert.equal("cuda:0", b:device())
      assert.is_true(b:t():cpu():equal(x))
      assert.is_true(a[{ { 3, 250, 2 }, { 5, 60 } }]:to "cuda:0":cpu()
        :equal(x[{ { 3, 250, 2 }, { 5, 60 } }]))
    end
  end)

  on_both("order a copy behind what makes its source", function()
    local x = mt.ones({ 4096, 4096 }, { device = "cuda:1" })
    for _ = 1, 20 do x = x:mul(1.0) + 1 end
    local y = x:to "cuda:0" -- no synchronisation between
    assert.equal(21, y:amax():item())
    assert.equal(21, y:amin():item())
    x:zero_() -- and the source may change once the copy was asked for
    assert.equal(21, y:amin():item())
  end)

  on_both("do not mix in one operator", function()
    local a = mt.ones({ 2 }, { device = "cuda:0" })
    local b = mt.ones({ 2 }, { device = "cuda:1" })
    fails("cuda:0.*cuda:1", function() return a + b end)
    fails("cuda:", mt.cat, { a, b })
    assert.equal("cuda:1", (b + 1):device())
    assert.equal("cuda:1", (b * mt.tensor(2)):device())
  end)

  on_both("carry gradients over", function()
    local x = mt.tensor({ 1, 2, 3 }, { device = "cuda:0", requires_grad = true })
    local y = (x * 2):to "cuda:1"
    y:pow(2):sum():backward()
    assert.equal("cuda:0", x.grad:device())
    assert.same({ 8, 16, 24 }, x.grad:totable())
  end)

  on_both("count their memory apart", function()
    collectgarbage()
    collectgarbage()
    local zero = mt.cuda.memory_stats(0).live_bytes
    local one = mt.cuda.memory_stats(1).live_bytes
    local x = mt.empty({ 1 << 20 }, { device = "cuda:1" })
    assert.equal(zero, mt.cuda.memory_stats(0).live_bytes)
    assert.is_true(mt.cuda.memory_stats(1).live_bytes >= one + (4 << 20))
    x:free()
    assert.equal(one, mt.cuda.memory_stats(1).live_bytes)
  end)

  on_both("have faults of their own", function()
    local labels = mt.tensor({ 1, 9 }, { dtype = "int64", device = "cuda:1" })
    local weights = mt.ones({ 3, 2 }, { device = "cuda:1" })
    local _ = weights:index_select(1, labels)
    assert.equal(1, mt.ones({ 1 }, { device = "cuda:0" }):item()) -- that one is well
    fails("9", function() return mt.ones({ 1 }, { device = "cuda:1" }):item() end)
    assert.equal(1, mt.ones({ 1 }, { device = "cuda:1" }):item())
  end)

  on_both("have streams and events of their own", function()
    local stream = mt.cuda.Stream(1)
    local x
    stream:use(function() x = mt.full({ 1000 }, 3, { device = "cuda:1" }):cumsum(1) end)
    stream:synchronize()
    assert.equal(3000, x[1000]:item())
    mt.cuda.synchronize(0)
    mt.cuda.synchronize(1)
  end)

  -- Six losses; step(x, labels) is one training step, as a graph or not.
  local function train_by_graph(device, graph)
    mt.manual_seed(8)
    local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2),
      nn.Flatten(), nn.Dropout(0.2), nn.Linear(36, 5)):to(device)
    local opt = mt.optim.Adam(net:parameters(), { lr = 0.01 })
    local function step(x, labels)
      opt:zero_grad()
      local loss = nn.CrossEntropyLoss()(net(x), labels)
      loss:backward()
      opt:step()
      return loss
    end
    if graph then step = mt.cuda.graph(step, { device = device }) end
    local losses, from = {}, { "cuda:0", "cuda:1" }
    for i = 1, 6 do
      local x = mt.rand(16, 1, 8, 8, { device = from[i % 2 + 1] })
      local labels = mt.randint(1, 5, { 16 }, { device = from[i % 2 + 1] })
      if not graph then x, labels = x:to(device), labels:to(device) end
      local loss = step(x, labels)
      assert.equal(device, loss:device())
      losses[i] = loss:item()
    end
    return losses
  end

  on_both("capture and replay training on either, whichever is current", function()
    mt.set_deterministic(true)
    finally(function() mt.set_deterministic(false) end)
    local want = train_by_graph("cuda:0", false)
    for _, current in ipairs { 0, 1 } do
      mt.cuda.with_device(current, function()
        for _, device in ipairs { "cuda:0", "cuda:1" } do
          assert.same(want, train_by_graph(device, false))
          assert.same(want, train_by_graph(device, true))
        end
      end)
    end
  end)

  on_both("replay graphs side by side, and free them while the other works", function()
    local steps, states = {}, {}
    for i = 1, 2 do
      local place = { device = "cuda:" .. i - 1 }
      states[i] = mt.zeros({ 1 << 20 }, place)
      steps[i] = mt.cuda.graph(function(x)
        for _ = 1, 10 do states[i]:add_(x) end
        return states[i] * 2
      end, { device = place.device, warmup = 0 })
    end
    local results = {}
    for round = 1, 10 do
      for i = 1, 2 do
        local x = mt.full({ 1 << 20 }, i, { device = "cuda:" .. round % 2 })
        results[i] = steps[i](x)
      end
    end
    steps[1]:free()
    local again = steps[2](mt.zeros({ 1 << 20 }, { device = "cuda:1" }))
    steps[2]:free()
    for i = 1, 2 do
      assert.equal(100 * i, states[i]:amin():item())
      assert.equal(100 * i, states[i]:amax():item())
    end
    assert.equal(400, again:amin():item())
    assert.equal("cuda:0", results[1]:device())
  end)

  on_both("do not mix in a graph, which fails and works again", function()
    collectgarbage()
    collectgarbage()
    local here = mt.ones({ 3 }, { device = "cuda:0" })
    local there = mt.ones({ 3 }, { device = "cuda:1" })
    local before = { mt.cuda.memory_stats(0).live_bytes,
                     mt.cuda.memory_stats(1).live_bytes }
    for _ = 1, 10 do
      local wrong <close> = mt.cuda.graph(function(x)
        return x * 2, (there + 1):sum()
      end, { device = "cuda:0", warmup = 0 })
      fails("runs on cuda:1 and cannot be captured in a graph of cuda:0",
            function() wrong(here) end)
      local right <close> = mt.cuda.graph(function(x) return x * 2 end,
                                          { device = "cuda:1", warmup = 0 })
      assert.equal(6, right(here):sum():item())
    end
    collectgarbage()
    collectgarbage()
    for i = 0, 1 do
      assert.equal(before[i + 1], mt.cuda.memory_stats(i).live_bytes)
    end
  end)

  on_both("draw the same numbers from one seed", function()
    mt.manual_seed(3)
    local a = mt.rand({ 1000 }, { device = "cuda:0" }):cpu()
    mt.manual_seed(3)
    local b = mt.rand({ 1000 }, { device = "cuda:1" }):cpu()
    assert.is_true(a:equal(b))
  end)
end)
