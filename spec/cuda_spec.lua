-- spec/cuda_spec.lua: devices, memory, streams, faults and copies of mt.cuda. Without a
-- GPU: that everything says why there is none.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"

local GB = 1 << 30

local on_gpu, fails = devices.on_gpu(_ENV), expect.matches

local function collect()
  for _ = 1, 2 do collectgarbage() end
end

local function ones(n) return mt.ones({ n }, { device = "cuda" }) end

describe("mt.cuda without a GPU", function()
  local function without(fn)
    return function()
      if mt.cuda.is_available() then pending "there is a GPU" end
      fn()
    end
  end

  it("says why", without(function()
    for _, name in ipairs { "Stream", "Event", "current_device", "synchronize",
      "get_device_properties", "memory_stats", "empty_cache", "reset_peak" } do
      fails(("^mt%%.cuda%%.%s: no device cuda:0: %%a+"):format(name), mt.cuda[name])
    end
    fails("^mt%.cuda%.with_device: no device cuda:2", mt.cuda.with_device, 2, print)
    fails("^mt%.cuda%.set_memory_limit: no device", mt.cuda.set_memory_limit, 0.5)
    fails("no device cuda:0: %a+", mt.Tensor.pin_memory, mt.ones(2))
    assert.equal(0, mt.cuda.device_count())
    local _, reason = mt.cuda.is_available()
    assert.equal(reason, "no device cuda:0: " .. mt.info().cuda)
  end))

  it("has tensors that are not pinned", function()
    assert.is_false(mt.ones(2):is_pinned())
  end)
end)

describe("arguments of mt.cuda", function()
  it("are checked first", function()
    fails("GPU 99: they are numbered from 0 to 15", mt.cuda.synchronize, 99)
    fails("GPU expected, got cpu", mt.cuda.memory_stats, "cpu")
    fails("unknown device 'tpu'", mt.cuda.Stream, "tpu")
    fails("unknown option 'time'", mt.cuda.Event, { time = true })
    for _, limit in ipairs { 0, -1, 0 / 0 } do
      fails("bytes, or a fraction above 0", mt.cuda.set_memory_limit, limit)
    end
    fails("number expected, got string", mt.cuda.set_memory_limit, "1")
  end)
end)

describe("matmul precision", function()
  it("is highest, and changes by name", function()
    finally(function() mt.set_matmul_precision "highest" end)
    assert.equal("highest", mt.get_matmul_precision())
    for _, name in ipairs { "medium", "high", "highest" } do
      mt.set_matmul_precision(name)
      assert.equal(name, mt.get_matmul_precision())
    end
    fails("unknown precision 'low'", mt.set_matmul_precision, "low")
    fails("got number", mt.set_matmul_precision, 1)
  end)

  on_gpu("trades exactness on the GPU", function()
    finally(function() mt.set_matmul_precision "highest" end)
    mt.manual_seed(3)
    local a, b = mt.rand(256, 512), mt.rand(512, 256)
    local exact = a:double():matmul(b:double())
    local function worst(name)
      mt.set_matmul_precision(name)
      local c = a:cuda():matmul(b:cuda()):cpu():double()
      return ((c - exact) / exact):abs():max():item()
    end
    local highest, medium = worst "highest", worst "medium"
    assert.is_true(highest < 1e-5, tostring(highest))
    assert.is_true(worst "high" < 2e-3)
    assert.is_true(medium < 2e-2 and medium > highest, tostring(medium))
  end)
end)

describe("GPUs", function()
  on_gpu("are counted, named and described", function()
    local n = mt.cuda.device_count()
    assert.is_true(n >= 1)
    assert.equal(0, mt.cuda.current_device())
    for i = 0, n - 1 do
      local p = mt.cuda.get_device_properties(i)
      assert.is_true(#p.name > 0)
      assert.truthy(p.capability:find "^%d+%.%d+$")
      assert.is_true(p.multiprocessors > 0)
      assert.is_true(0 < p.free_bytes and p.free_bytes <= p.total_bytes)
      assert.equal(p.name, mt.cuda.get_device_properties("cuda:" .. i).name)
      assert.truthy(mt.info().cuda:find(p.name, 1, true))
    end
    if n < 16 then fails("no device cuda:15: there", mt.cuda.synchronize, 15) end
  end)

  on_gpu("are the current one for the time of a function", function()
    local last = mt.cuda.device_count() - 1
    local name = "cuda:" .. last
    local seen = { mt.cuda.with_device(last, function(...)
      local x = mt.ones({ 2 }, { device = "cuda" })
      return x:device(), mt.ones(2):cuda():device(), mt.cuda.current_device(), ...
    end, "a", nil, "c") }
    assert.same({ name, name, last, "a", nil, "c" }, seen)
    local object = {}
    local ok, err = pcall(mt.cuda.with_device, last, error, object)
    assert.is_false(ok)
    assert.equal(object, err)
    assert.equal(0, mt.cuda.current_device())
    local co = coroutine.create(mt.cuda.with_device)
    assert.is_false((coroutine.resume(co, last, coroutine.yield)))
    assert.equal(0, mt.cuda.current_device())
  end)

  on_gpu("exchange tensors", function()
    if mt.cuda.device_count() < 2 then pending "one GPU only" end
    local x = mt.rand(300, 70)
    local a = x:to "cuda:1"
    local b = a:t():to "cuda:0"
    assert.equal("cuda:0", b:device())
    assert.is_true(b:t():cpu():equal(x))
  end)
end)

describe("copies between devices", function()
  on_gpu("carry the gradient back", function()
    local x = mt.tensor({ 1, 2, 3 }, { requires_grad = true })
    local y = x:cuda()
    assert.equal("cuda:0", y:device())
    y:pow(2):sum():backward()
    assert.equal("cpu", x.grad:device())
    assert.same({ 2, 4, 6 }, x.grad:totable())
    local z = mt.tensor({ 1, 2 }, { device = "cuda", requires_grad = true })
    z:to { device = "cpu", dtype = "float64" }:pow(3):sum():backward()
    assert.equal("cuda:0", z.grad:device())
    assert.equal("float32", z.grad:dtype())
    assert.same({ 3, 12 }, z.grad:totable())
    x.grad = nil
    x:gpu():cpu():to(z):sum():backward()
    assert.same({ 1, 1, 1 }, x.grad:totable())
    assert.is_false(mt.no_grad(x.cuda, x).requires_grad)
  end)

  on_gpu("carry gradients of gradients", function()
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    local dx = mt.grad(x:cuda():pow(3):sum(), x, { create_graph = true })[1]
    assert.equal("cpu", dx:device())
    assert.same({ 6, 12 }, mt.grad(dx:sum(), x)[1]:totable())
  end)

  on_gpu("give numbers and what copy_ reads their gradients on the CPU", function()
    local x = mt.tensor(3, { requires_grad = true })
    local y = ones(4) * x
    y:sum():backward()
    assert.equal("cpu", x.grad:device())
    assert.equal(4, x.grad:item())
    local source = mt.tensor({ 1, 2 }, { requires_grad = true })
    local target = mt.zeros({ 2 }, { device = "cuda" })
    target:copy_(source)
    target:pow(2):sum():backward()
    assert.equal("cpu", source.grad:device())
    assert.same({ 2, 4 }, source.grad:totable())
  end)

  on_gpu("need not be waited for from and to pinned memory", function()
    local x = mt.rand(1000, 300)
    local p = x:pin_memory()
    assert.is_true(p:is_pinned())
    assert.is_true(p:equal(x))
    assert.is_true(p:pin_memory() == p)
    assert.is_true(p:narrow(1, 2, 5):is_pinned())
    local g = p:to("cuda", { non_blocking = true })
    local double = p:to("cuda", "float64", { non_blocking = true })
    local down = g:to("cpu", { non_blocking = true })
    local turned = g:t():to("cpu", { non_blocking = true })
    mt.cuda.synchronize()
    assert.is_true(down:is_pinned())
    assert.is_true(down:equal(x))
    assert.is_true(turned:equal(x:t()))
    assert.is_true(double:cpu():equal(x:double()))
    assert.is_false(g:cpu():is_pinned())
    assert.equal(0, mt.zeros(0, 3):pin_memory():numel())
  end)

  on_gpu("read pinned memory before it changes or goes, unless told not to", function()
    for _, n in ipairs { 100, 1000000 } do
      local p = mt.ones(n):pin_memory()
      local busy = mt.rand({ 2048, 2048 }, { device = "cuda" })
      for _ = 1, 10 do busy = busy:matmul(busy):sigmoid() end
      local g = p:to "cuda"
      p:zero_()
      assert.equal(n, g:sum():item())
      local q = mt.ones(n):pin_memory()
      for _ = 1, 10 do busy = busy:matmul(busy):sigmoid() end
      local h = q:to("cuda", { non_blocking = true })
      q:free()
      assert.equal(n, h:sum():item())
    end
  end)

  on_gpu("carry gradients from pinned memory", function()
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    x:pin_memory():to("cuda", { non_blocking = true }):pow(2):sum():backward()
    assert.same({ 2, 4 }, x.grad:totable())
    assert.is_false(x.grad:is_pinned())
  end)
end)

describe("memory of a GPU", function()
  on_gpu("is counted, cached and given back", function()
    collect()
    local before = mt.cuda.memory_stats()
    for key in pairs(mt.memory_stats "cpu") do
      assert.equal("integer", math.type(before[key]), key)
    end
    local x = mt.zeros({ 1 << 26 }, { dtype = "uint8", device = "cuda" })
    local during = mt.cuda.memory_stats(0)
    assert.equal(before.live_tensors + 1, during.live_tensors)
    assert.is_true(during.live_bytes >= before.live_bytes + (1 << 26))
    assert.is_true(during.peak_bytes >= during.live_bytes)
    x:free()
    local after = mt.cuda.memory_stats()
    assert.equal(before.live_bytes, after.live_bytes)
    assert.is_true(after.cached_bytes >= 1 << 26)
    mt.cuda.reset_peak()
    assert.equal(after.live_bytes, mt.cuda.memory_stats().peak_bytes)
    mt.cuda.empty_cache()
    assert.is_true(mt.cuda.memory_stats().cached_bytes < after.cached_bytes)
    assert.equal(4, ones(4):sum():item())
  end)

  on_gpu("has a limit", function()
    finally(function() mt.cuda.set_memory_limit() end)
    collect()
    local total = mt.cuda.get_device_properties().total_bytes
    mt.cuda.set_memory_limit(0.5)
    assert.is_true(math.abs(mt.cuda.memory_stats().limit_bytes - total / 2) < 2)
    mt.cuda.set_memory_limit(256 << 20)
    assert.equal(256 << 20, mt.cuda.memory_stats().limit_bytes)
    local opts = { dtype = "uint8", device = "cuda" }
    fails("out of memory on cuda:0: 512.0 MiB requested", mt.empty, { 512 << 20 }, opts)
    assert.equal(64 << 20, mt.empty({ 64 << 20 }, opts):numel())
    mt.cuda.set_memory_limit()
    assert.equal(total, mt.cuda.memory_stats().limit_bytes)
    assert.equal(512 << 20, mt.empty({ 512 << 20 }, opts):numel())
  end)

  on_gpu("runs out with an error, after which things work", function()
    local opts = { dtype = "uint8", device = "cuda" }
    local bytes = math.max(200000000000,
      mt.cuda.get_device_properties().total_bytes * 2)
    for _ = 1, 2 do
      fails("out of memory on cuda:0: .* requested, .* allocated, .* cached, .* free",
        mt.zeros, { bytes }, opts)
      assert.equal(4, ones(4):sum():item())
    end
    local held = {}
    fails("out of memory on cuda:0", function()
      for i = 1, 1000 do held[i] = mt.empty({ 4 * GB }, opts) end
    end)
    assert.is_true(#held > 0)
    for _, t in ipairs(held) do t:free() end
    assert.equal(4 * GB, mt.empty({ 4 * GB }, opts):numel())
    assert.equal(4, ones(4):sum():item())
    collect()
    mt.cuda.empty_cache()
  end)

  on_gpu("stays flat under temporaries of 1 GB", function()
    collect()
    mt.cuda.empty_cache()
    local x = mt.ones({ GB // 4 }, { device = "cuda" })
    mt.cuda.reset_peak()
    for i = 1, 60 do
      local y = x + i
      assert.equal(x:numel(), y:numel())
    end
    local s = mt.cuda.memory_stats()
    assert.is_true(s.peak_bytes <= 5 * GB, ("%.1f GB at the peak"):format(
      s.peak_bytes / GB))
    assert.is_true(s.cached_bytes + s.live_bytes <= 6 * GB)
    x:free()
    collect()
    mt.cuda.empty_cache()
  end)

  on_gpu("holds tensors of more than 2^31 elements", function()
    if mt.cuda.get_device_properties().free_bytes < 12 * GB then
      pending "less than 12 GB are free on the GPU"
    end
    local n = (1 << 31) + 12352
    local x = mt.zeros({ n }, { dtype = "uint8", device = "cuda" })
    x[n] = 7
    assert.equal(7, x[-1]:item())
    local y = x + 1
    assert.equal(8, y[n]:item())
    assert.equal(1, y[1]:item())
    assert.equal(n + 7, y:sum():item())
    assert.equal(1, x:eq(7):sum():item())
    assert.equal(n, x:argmax():item())
    local tail = x:narrow(1, n - 4, 5):cpu()
    assert.same({ 0, 0, 0, 0, 7 }, tail:totable())
    local wide = x:view(5, n // 5) -- 5 divides n
    assert.equal(7, wide:t():contiguous()[-1][-1]:item())
    for _, t in ipairs { x, y, wide, tail } do t:free() end
    collect()
    mt.cuda.empty_cache()
  end)
end)

describe("bad data on a GPU", function()
  local function bad_index()
    local index = mt.tensor({ 1, 9 }, { dtype = "int64", device = "cuda" })
    return mt.ones({ 2, 3 }, { device = "cuda" }):index_select(2, index)
  end

  on_gpu("is raised once, by the next call that waits", function()
    local y = bad_index()
    fails("index_select: .*9", y.sum(y).item, y.sum(y))
    assert.same({ 2, 2 }, y:shape())
    assert.equal(4, ones(4):sum():item())
    for _, wait in ipairs { mt.cuda.synchronize, function() return ones(1):cpu() end,
      function() return ones(1):totable() end } do
      bad_index()
      fails("index_select: .*9", wait)
      assert.is_true((pcall(wait)))
    end
  end)

  on_gpu("is raised for the first of several", function()
    local zero = mt.zeros({ 3 }, { dtype = "int32", device = "cuda" })
    local _ = mt.ones({ 3 }, { dtype = "int32", device = "cuda" }):floordiv(zero)
    bad_index()
    fails("floordiv: .*zero", mt.cuda.synchronize)
    mt.cuda.synchronize()
  end)

  on_gpu("goes to warn when nobody asked", function()
    local mtlua = shell.quote(shell.mtlua)
    local r = shell.run(mtlua .. [[ -W -e '
      local mt = require "mytensor"
      local i = mt.tensor({ 9 }, { dtype = "int64", device = "cuda" })
      mt.ones({ 2, 3 }, { device = "cuda" }):index_select(2, i)' 2>&1]])
    assert.equal(0, r.code, r.out)
    assert.truthy(r.out:find "warning: mytensor: index_select", r.out)
  end)
end)

describe("random numbers on a GPU", function()
  on_gpu("are those of the CPU, bit for bit where no rounding is", function()
    for _, dtype in ipairs { "float32", "float64" } do
      for _, n in ipairs { 1, 5, 1000, 123457 } do
        local function draw(device)
          mt.manual_seed(11)
          local o = { dtype = dtype, device = device }
          return { mt.rand({ n }, o), mt.rand({ n }, o), mt.randn({ n }, o) }
        end
        local c, g = draw "cpu", draw "cuda"
        assert.equal("cuda:0", g[1]:device())
        assert.is_true(c[1]:equal(g[1]:cpu()), dtype)
        assert.is_true(c[2]:equal(g[2]:cpu()), dtype)
        assert.is_true(c[3]:allclose(g[3]:cpu(), 1e-5, 1e-5), dtype)
      end
    end
    local function integers(device)
      mt.manual_seed(5)
      return mt.randint(-3, 1000, { 7777 }, { device = device }):cpu()
    end
    assert.is_true(integers "cpu":equal(integers "cuda"))
  end)
end)

describe("streams and events", function()
  on_gpu("order work", function()
    local s = mt.cuda.Stream()
    assert.equal("cuda:0", s:device())
    assert.truthy(tostring(s):find "^<Stream on cuda:0>$")
    local n = 1 << 22
    for i = 1, 20 do
      local ready, done = mt.cuda.Event(), mt.cuda.Event()
      local a = ones(n) * i
      ready:record()
      local b, extra = s:use(function(...)
        ready:wait()
        local result = a * 2
        a:free() -- its memory must not serve the default stream yet
        done:record()
        return result, ...
      end, "extra")
      assert.equal("extra", extra)
      local c = mt.zeros({ n }, { device = "cuda" })
      done:wait()
      assert.equal(2 * i, b:min():item())
      assert.equal(2 * i, b:max():item())
      assert.equal(0, c:max():item())
    end
  end)

  on_gpu("are what they were after an error", function()
    local s <close> = mt.cuda.Stream "cuda:0"
    local object = {}
    local ok, err = pcall(s.use, s, function() error(object) end)
    assert.is_false(ok)
    assert.equal(object, err)
    assert.equal(0, mt.cuda.current_device())
    assert.equal(4, ones(4):sum():item())
    s:synchronize()
  end)

  on_gpu("raise the faults of their work when they are waited for", function()
    local s = mt.cuda.Stream()
    s:use(function()
      local index = mt.tensor({ 9 }, { dtype = "int64", device = "cuda" })
      mt.ones({ 2, 3 }, { device = "cuda" }):index_select(2, index)
    end)
    fails("index_select: .*9", s.synchronize, s)
    s:synchronize()
  end)

  on_gpu("tell the time", function()
    local from, to = mt.cuda.Event { timing = true }, mt.cuda.Event { timing = true }
    fails("never recorded", from.elapsed, from, to)
    local x = mt.rand({ 2048, 2048 }, { device = "cuda" })
    from:record()
    for _ = 1, 5 do x:matmul(x) end
    to:record()
    local ms = from:elapsed(to)
    assert.is_true(ms > 0 and ms < 10000, tostring(ms))
    assert.is_true(to:query())
    assert.truthy(tostring(to):find "^<Event on cuda:0>$")
    local plain = mt.cuda.Event()
    plain:record()
    plain:synchronize()
    assert.is_true(plain:query())
    fails("without {timing = true}", from.elapsed, from, plain)
  end)

  on_gpu("can be closed, also while work is under way, and made by the thousand",
    function()
      local s = mt.cuda.Stream()
      local y = s:use(function() return ones(1 << 20) * 3 end)
      do
        local closing <close> = s
        assert.equal("cuda:0", closing:device())
      end
      fails("the stream was finalized", s.synchronize, s)
      fails("the stream was finalized", s.use, s, print)
      mt.cuda.synchronize()
      assert.equal(3, y:max():item())
      for _ = 1, 2000 do
        local t <close> = mt.cuda.Stream()
        local e <close> = mt.cuda.Event()
        e:record(t)
      end
    end)
end)
