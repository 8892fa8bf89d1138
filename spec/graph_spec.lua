-- spec/graph_spec.lua: mt.cuda.graph: work that is captured once and replayed.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"

local on_gpu = devices.on_gpu(_ENV, devices.without_guards)

local fails = expect.says

local function collect()
  for _ = 1, 2 do collectgarbage() end
end

local gpu = { device = "cuda" }

-- After whatever went wrong: the device computes, another graph works.
local function assert_usable()
  assert.equal(6, mt.ones({ 6 }, gpu):sum():item())
  local twice <close> = mt.cuda.graph(function(x) return x * 2 end, { warmup = 0 })
  assert.same({ 2, 4 }, twice(mt.tensor({ 1, 2 }, gpu)):totable())
end

describe("a graph", function()
  on_gpu("computes what its function computes, from copies of its inputs", function()
    local calls = 0
    local step = mt.cuda.graph(function(x, k, y)
      calls = calls + 1
      return (x * k + y):relu(), "text", nil, x
    end)
    local expected = mt.tensor({ 1, -3, 5 }, gpu)
    for i = 1, 5 do
      local x, y = expected * i, mt.ones({ 3 }, gpu)
      if i == 4 then x, y = x:cpu(), y:cpu() end -- from anywhere
      local out, text, none, back = step(x, 2, y)
      assert.same({ 2 * i + 1, 0, 10 * i + 1 }, out:totable())
      assert.same({ "text", true, "cuda:0" }, { text, none == nil, out:device() })
      assert.same(x:totable(), back:totable())
      assert.is_false(out.requires_grad)
    end
    assert.equal(2, calls)
    assert.truthy(tostring(step):find "^<Graph on cuda:0: %d+ nodes, 4 replays>$")
  end)

  on_gpu("warms up as often as it is told", function()
    local calls = 0
    local step = mt.cuda.graph(function(x)
      calls = calls + 1
      return x + 1
    end, { warmup = 3 })
    assert.equal("<Graph on cuda:0, not captured>", tostring(step))
    for i = 1, 6 do assert.equal(i + 1, step(mt.tensor(i, gpu)):item()) end
    assert.equal(4, calls)
    step:reset()
    assert.equal(3, step(mt.tensor(2, gpu)):item())
    assert.equal(5, calls)
  end)

  on_gpu("gives results that the next call overwrites", function()
    local step = mt.cuda.graph(function(x) return x * 10 end, { warmup = 0 })
    local first = step(mt.tensor({ 1 }, gpu))
    local kept = first:clone()
    step(mt.tensor({ 2 }, gpu))
    assert.equal(20, first:item())
    assert.equal(10, kept:item())
    local w = mt.tensor({ 3 }, { device = "cuda", requires_grad = true })
    local product = w * first
    step(mt.tensor({ 5 }, gpu))
    fails("changed in place", product.backward, product)
  end)

  on_gpu("reads its inputs where they are written", function()
    local step = mt.cuda.graph(function(x, _, y) return x - y end, { warmup = 0 })
    step(mt.zeros({ 2 }, gpu), 7, mt.zeros({ 2 }, gpu))
    local x, k, y = step:inputs()
    assert.is_nil(k)
    x:fill_(8)
    y:fill_(3)
    assert.same({ 5, 5 }, step(x, 7, y):totable())
  end)

  on_gpu("differentiates its inputs", function()
    local step = mt.cuda.graph(function(x) return mt.grad((x ^ 3):sum(), x)[1] end)
    for i = 1, 4 do
      local x = mt.tensor({ i, 2 }, { device = "cuda", requires_grad = true })
      assert.same({ 3 * i * i, 12 }, step(x):totable())
    end
  end)

  on_gpu("draws what its function would draw", function()
    local function draw()
      local p = mt.randperm(50, gpu)
      return mt.randn({ 33 }, gpu), mt.rand({ 9 }, gpu), p,
        mt.randint(1, 100, { 7 }, gpu), mt.dropout(mt.ones({ 40 }, gpu), 0.5, true)
    end
    local function sequence(fn)
      mt.manual_seed(123)
      local rows = {}
      for i = 1, 6 do
        for _, t in ipairs { fn() } do rows[#rows + 1] = t:totable() end
        if i == 4 then rows[#rows + 1] = mt.rand({ 3 }, gpu):totable() end
      end
      rows[#rows + 1] = mt.rand({ 3 }, gpu):totable()
      return rows
    end
    local step = mt.cuda.graph(draw)
    local expected = sequence(draw)
    assert.same(expected, sequence(step))
    assert.same(expected, sequence(step)) -- another call of manual_seed
    mt.manual_seed(4)
    local a = draw():totable()
    mt.manual_seed(4)
    assert.same(a, (step():totable())) -- another seed: captured anew
  end)

  on_gpu("holds what it uses", function()
    local w, b = mt.full({ 1000 }, 2, gpu), mt.full({ 1000 }, 1, gpu)
    local step = mt.cuda.graph(function(x) return x * w + b end, { warmup = 0 })
    step(mt.ones({ 1000 }, gpu))
    w:free()
    b = nil
    collect()
    for _ = 1, 10 do mt.full({ 1000 }, 99, gpu) end
    assert.equal(4000, step(mt.full({ 1000 }, 1.5, gpu)):sum():item())
    assert.is_nil(b)
  end)

  on_gpu("lets the collector run while it is captured", function()
    local w = mt.randn({ 64, 64 }, gpu)
    local function work(x)
      for i = 1, 40 do
        x = (x:matmul(w) * 0.1):tanh()
        local other = mt.cuda.graph(function() end) -- and be freed
        local _, event = tostring(other), mt.cuda.Event()
        assert(event)
        if i % 8 == 0 then collectgarbage() end
      end
      return x
    end
    for _ = 1, 20 do mt.randn({ 300, 300 }, gpu) end -- garbage of the time before
    local step = mt.cuda.graph(work, { warmup = 0 })
    local x = mt.randn({ 16, 64 }, gpu)
    local expected = work(x)
    for _ = 1, 3 do
      for _ = 1, 20 do mt.full({ 16, 64 }, 1e9, gpu) end
      assert.is_true(step(x):equal(expected))
    end
  end)

  on_gpu("gives its memory back, also while it is under way", function()
    collect()
    mt.cuda.synchronize()
    local before = mt.cuda.memory_stats()
    local x = mt.ones({ 1 << 20 }, gpu)
    do
      local step = mt.cuda.graph(function(v)
        for _ = 1, 30 do v = v * 1.0001 + 0.5 end
        return v
      end)
      for _ = 1, 20 do step(x) end
      mt.cuda.empty_cache() -- what the graph has stays
      for _ = 1, 3 do mt.full({ 1 << 20 }, 0 / 0, gpu) end
      local y = step(x)
      step(x)
      step:free()
      assert.is_true(y:isnan():any():item() == false)
      fails("the graph was freed", step, x)
      assert.equal("<Graph, freed>", tostring(step))
      step:free()
    end
    x:free()
    collect()
    local after = mt.cuda.memory_stats()
    assert.equal(before.live_tensors, after.live_tensors)
    assert.equal(before.live_bytes, after.live_bytes)
    mt.cuda.empty_cache()
    assert.is_true(mt.cuda.memory_stats().cached_bytes <= before.cached_bytes)
  end)

  on_gpu("belongs to one GPU", function()
    if mt.cuda.device_count() < 2 then pending "one GPU only" end
    local there = { device = "cuda:1" }
    local w = mt.full({ 3 }, 2, there)
    local step = mt.cuda.graph(function(x)
      return x * w + mt.ones({ 3 }, gpu) -- "cuda" means this one
    end, there)
    for i = 1, 4 do
      local from = { device = i % 2 == 0 and "cuda:0" or "cuda:1" }
      local y = step(mt.full({ 3 }, i, from))
      assert.equal("cuda:1", y:device())
      assert.equal(2 * i + 1, y[1]:item())
    end
    local here = mt.ones({ 3 }, gpu)
    fails("add: runs on cuda:0 and cannot be captured in a graph of cuda:1",
          mt.cuda.graph(function() return here + 1 end,
                        { warmup = 0, device = "cuda:1" }))
    assert_usable()
  end)

  on_gpu("stands beside others, and on other streams", function()
    local steps, x = {}, mt.arange(1, 1001, gpu)
    for k = 1, 4 do
      steps[k] = mt.cuda.graph(function(v) return (v * k):sum(), v + k end)
    end
    local stream = mt.cuda.Stream()
    local sum = x:sum():item()
    for round = 1, 6 do
      for k, step in ipairs(steps) do
        local total, moved
        local function call() total, moved = step(x) end
        if (round + k) % 3 == 0 then
          mt.cuda.synchronize()
          stream:use(call)
          stream:synchronize()
        else
          call()
        end
        assert.equal(k * sum, total:item())
        assert.equal(1 + k, moved[1]:item())
      end
    end
  end)

  on_gpu("tells of bad data when the GPU is next waited for", function()
    local table_, labels = mt.randn({ 5, 3 }, gpu), mt.tensor({ 1, 2 }, gpu):long()
    local step = mt.cuda.graph(function(i) return mt.embedding(table_, i) end)
    step(labels)
    step(labels)
    step(mt.tensor({ 1, 9 }, { device = "cuda", dtype = "int64" }))
    fails("value 9", mt.cuda.synchronize)
    assert.equal(2, step(labels):size(1))
    mt.cuda.synchronize()
  end)
end)

describe("what cannot be captured is an error that names it:", function()
  local function refused(text, fn, ...)
    local step = mt.cuda.graph(fn, { warmup = 0 })
    for _ = 1, 2 do fails(text, step, ...) end
    assert_usable()
  end
  local x = devices.cuda and mt.ones({ 3 }, gpu)
  teardown(function() x = nil end)

  on_gpu("reading a value", function()
    refused("item: a value that Lua reads cannot be captured",
            function(v) return v:sum():item() end, x)
    refused("totable: ", function(v) return v:totable() end, x)
    refused("cpu: ", function(v) return v:cpu() end, x)
    refused("cannot be captured", function(v) return v:show() end, x)
  end)

  on_gpu("data of the host", function()
    refused("tensor: a copy to another device cannot be captured", function()
      return mt.tensor({ 1, 2 }, gpu)
    end)
    local host = mt.ones(3)
    refused("add: runs on the CPU and cannot be captured", function()
      return host + 1
    end)
    refused("result 1 is on the CPU", function() return host end)
    refused("cannot be captured", function(v) return v + host:cuda() end, x)
  end)

  on_gpu("waiting, other streams, marks, seeds", function()
    refused("synchronize cannot be captured", mt.cuda.synchronize)
    local stream, event = mt.cuda.Stream(), mt.cuda.Event()
    refused("use cannot be captured", function() stream:use(print) end)
    refused("cannot be captured", function() stream:synchronize() end)
    refused("record cannot be captured", function() event:record() end)
    refused("wait cannot be captured", function() event:wait() end)
    refused("manual_seed cannot be captured", function() mt.manual_seed(3) end)
  end)

  on_gpu("a graph within a graph", function()
    local inner = mt.cuda.graph(function(v) return v + 1 end, { warmup = 0 })
    inner(x)
    refused("a graph cannot be captured within another",
            function(v) return inner(v) end, x)
    local own
    own = mt.cuda.graph(function() return own() end)
    fails("is being called already", own)
    assert.same({ 2, 2, 2 }, inner(x):totable())
  end)

  on_gpu("errors of the function pass", function()
    local object = {}
    local step = mt.cuda.graph(function(v)
      error(object, v:numel())
    end, { warmup = 0 })
    local ok, err = pcall(step, x)
    assert.is_false(ok)
    assert.equal(object, err)
    assert_usable()
    refused("matmul", function(v) return v:matmul(mt.ones({ 7, 2 }, gpu)) end, x)
    refused("yield", function() coroutine.yield() end)
  end)

  on_gpu("freeing the graph that is captured", function()
    local step
    step = mt.cuda.graph(function(v)
      step:free()
      return v
    end, { warmup = 0 })
    fails("free: the graph is being called", step, x)
    assert_usable()
  end)

  on_gpu("other inputs than those that it was captured with", function()
    local step = mt.cuda.graph(function(a, k) return a * k end, { warmup = 0 })
    step(x, 2)
    fails("bad argument #1 to 'graph' (shape [4], float32: the graph was captured with "
            .. "[3], float32)", step, mt.ones({ 4 }, gpu), 2)
    fails("float64: the graph", step, x:double(), 2)
    fails("bad argument #2 to 'graph' (what is no tensor is a constant", step, x, 3)
    fails("bad argument #1 to 'graph' (tensor expected, got number", step, 1, 2)
    fails("1 arguments, the graph was captured with 2", step, x)
    assert.same({ 2, 2, 2 }, step(x, 2):totable())
  end)
end)

describe("captured calls", function()
  it("follow those whose memory they touch, and no others", function()
    local files = "spec/units/graph_order.c runtime/core/cuda_graph_order.c"
    if not shell.exists "runtime/core/cuda_graph_order.c" then
      pending "no sources: this is a bundle"
    elseif shell.run("command -v gcc").code ~= 0 then
      pending "no gcc"
    end
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local built = shell.run("gcc -std=gnu11 -O1 -Wall -Wextra -Werror -I. -o " .. path
                              .. " " .. files)
    assert.equal(0, built.code, built.err)
    local r = shell.run(path .. " 40")
    assert.equal(0, r.code, r.out .. r.err)
    assert.is_true(tonumber(r.out:match "all in order, (%d+)%% of the pairs free") > 5)
  end)

  on_gpu("give the same side by side and in a chain", function()
    local a, b = mt.randn({ 64, 64 }, gpu), mt.randn({ 64, 64 }, gpu)
    local function work(x)
      local left, right = x, x
      for i = 1, 12 do
        left = (left:matmul(a) * 0.1):tanh()
        right = (right:matmul(b) * 0.1):sigmoid()
        if i % 4 == 0 then
          left:add_(right)
          right:narrow(1, 1, 32):add_(left:narrow(1, 33, 32))
        end
      end
      return left, right, left:sum() + right:sum()
    end
    local steps = {}
    for _, parallel in ipairs { true, false } do
      steps[#steps + 1] = mt.cuda.graph(work, { warmup = 0, parallel = parallel })
    end
    for i = 1, 5 do
      local x = mt.randn({ 64, 64 }, gpu) * i
      local l1, r1, s1 = work(x)
      for _, step in ipairs(steps) do
        local l, r, s = step(x)
        assert.is_true(l:equal(l1) and r:equal(r1) and s:equal(s1))
      end
    end
  end)
end)

describe("arguments of mt.cuda.graph", function()
  it("are checked", function()
    fails("bad argument #1 to 'graph' (function expected, got nil)", mt.cuda.graph, nil)
    local function options(o) return mt.cuda.graph(print, o) end
    fails("unknown option 'warm'", options, { warm = 1 })
    fails("warmup: a number of calls from 0", options, { warmup = -1 })
    fails("warmup: a number of calls from 0", options, { warmup = 1.5 })
    fails("GPU expected, got cpu", options, { device = "cpu" })
    if not mt.cuda.is_available() then
      fails("mt.cuda.graph: no device cuda:0", mt.cuda.graph, print)
    end
  end)
end)
