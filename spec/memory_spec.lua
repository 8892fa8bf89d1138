-- spec/memory_spec.lua: memory is given back, limits hold, exhaustion is an error.

local mt = require "mytensor"
local system = require "system"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"

local function collect()
  collectgarbage()
  collectgarbage()
end

local message = expect.message

describe("memory_stats", function()
  it("has the same keys on every device, and counts", function()
    collect()
    local before = mt.memory_stats()
    for _, key in ipairs { "live_tensors", "live_bytes", "cached_bytes", "peak_bytes",
      "allocations", "frees", "limit_bytes" } do
      assert.equal("integer", math.type(before[key]), key)
    end
    local during
    do
      local x = mt.zeros(1000, 256)
      local y = x:view(256, 1000)
      during = mt.memory_stats "cpu"
      assert.equal(x:numel(), y:numel())
    end
    assert.equal(before.live_tensors + 2, during.live_tensors)
    assert.is_true(during.live_bytes >= before.live_bytes + 1024000)
    assert.is_true(during.live_bytes < before.live_bytes + 2048000)
    assert.is_true(during.peak_bytes >= during.live_bytes)
    collect()
    assert.equal(before.live_bytes, mt.memory_stats().live_bytes)
    assert.equal(before.live_tensors, mt.memory_stats().live_tensors)
  end)
end)

describe("cdist", function()
  it("holds the differences of a block of rows, unless a gradient needs all", function()
    mt.manual_seed(7)
    local a, b = mt.randn(2, 600, 128), mt.randn(150, 128)
    local function peak_of(f)
      collect()
      mt.reset_peak_memory()
      local before = mt.memory_stats().live_bytes
      local y = f()
      return mt.memory_stats().peak_bytes - before, y
    end
    local least, y = peak_of(function() return a:cdist(b) end)
    assert.same({ 2, 600, 150 }, y:shape())
    assert.is_true(least < 40 << 20, ("%d bytes"):format(least))
    local most, z = peak_of(function() return a:clone():requires_grad_():cdist(b) end)
    assert.is_true(most > 80 << 20, ("%d bytes"):format(most))
    assert.is_true(mt.allclose(y, z, 1e-5, 0))
    local long, short = (a * 9):long(), (b * 9):long()
    local floats = long:float():cdist(short, 1)
    assert.equal("float32", long:cdist(short):dtype())
    assert.is_true(mt.allclose(long:cdist(short, 1), floats))
  end)
end)

describe("free, close and scope", function()
  it("give memory back at once", function()
    local x = mt.zeros(1000)
    local n = mt.memory_stats().live_tensors
    x:free()
    assert.equal(n - 1, mt.memory_stats().live_tensors)
    x:free() -- once more does nothing
    do
      local y <close> = mt.zeros(1000)
      assert.equal(n, mt.memory_stats().live_tensors)
      assert.equal(1000, y:numel())
    end
    assert.equal(n - 1, mt.memory_stats().live_tensors)
  end)

  it("make every later use an error that says so", function()
    local x = mt.zeros(2)
    x:free()
    for _, f in ipairs {
      function() return x + 1 end, function() return x:shape() end,
      function() return x[1] end, function() x[1] = 0 end,
      function() return mt.ones(2):add(x) end, function() return mt.cat { x, x } end,
      function() return x.grad end, function() x:backward() end,
    } do
      assert.truthy(message(f):find "freed", message(f))
    end
  end)

  it("leave views alive", function()
    local x = mt.arange(1, 5)
    local y = x:narrow(1, 2, 2)
    x:free()
    assert.same({ 2, 3 }, y:totable())
  end)

  it("mt.scope frees what was made inside, but what is returned or kept", function()
    collect()
    local n = mt.memory_stats().live_tensors
    local kept
    local a, b = mt.scope(function(k)
      local x = mt.ones(3)
      local y = x * k
      kept = mt.keep(mt.zeros(1))
      local _ = y + 1
      return y, "text"
    end, 4)
    assert.equal(n + 2, mt.memory_stats().live_tensors)
    assert.same({ 4, 4, 4 }, a:totable())
    assert.equal("text", b)
    assert.equal(0, kept:item())
  end)

  it("scopes nest, and end with an error too", function()
    collect()
    local n = mt.memory_stats().live_tensors
    local outer = mt.scope(function()
      local x = mt.ones(2)
      local y = mt.scope(function() return x + 1 end)
      return y * 2
    end)
    assert.same({ 4, 4 }, outer:totable())
    assert.truthy(message(mt.scope, function()
      local _ = mt.ones(5)
      error "inside"
    end):find "inside")
    assert.equal(n + 1, mt.memory_stats().live_tensors)
  end)

  it("scope leaves gradients, and parameters of modules", function()
    local x = mt.ones({ 2 }, { requires_grad = true })
    local model
    mt.scope(function()
      (x * 2):sum():backward()
      model = mt.nn.Linear(2, 3)
    end)
    assert.same({ 2, 2 }, x.grad:totable())
    assert.same({ 1, 3 }, model(mt.ones(1, 2)):shape())
  end)
end)

describe("the collector", function()
  it("keeps 20,000 tensors of 4 MB under 250 MB without being called", function()
    if shell.sanitized then pending "a sanitizer keeps freed memory for a while" end
    local r = shell.lua_run([[
      local mt = require "mytensor"
      local x = mt.zeros(1024, 1024)
      for i = 1, 20000 do local y = x + 1 end
      for line in io.lines "/proc/self/status" do
        local kb = line:match "VmHWM:%s*(%d+)"
        if kb then io.write(kb) end
      end]], { env = "OMP_NUM_THREADS=1" })
    assert.equal(0, r.code, r.err)
    assert.is_true(tonumber(r.out) < 250 * 1024, r.out .. " KB")
  end)

  it("forgets what lived seconds ago: temporaries that die old stay few", function()
    do
      local held = {}
      for i = 1, 100 do held[i] = mt.zeros { 2 << 20 } end -- 800 MB
      collect()
      assert.equal(100, #held)
    end
    for _ = 1, 50 do mt.zeros { 2 << 20 } end
    collect()
    system.sleep(2.1)
    local before, top = mt.memory_stats().live_bytes, 0
    local old = {}
    for i = 1, 100 do
      local bytes = collectgarbage "count" * 1024 // 16
      old[i % 2] = mt.zeros { 2 << 20 }
      for k = 1, 16 do local _ = ("x"):rep(bytes + k) end -- what is alive grows old
      top = math.max(top, mt.memory_stats().live_bytes - before)
    end
    assert.is_truthy(old[0] and old[1])
    assert.is_true(top <= 200e6, top)
  end)

  it("leaves a stopped collector alone", function()
    collect()
    collectgarbage "stop"
    local n = mt.memory_stats().live_tensors
    for _ = 1, 50 do mt.zeros(100000) end
    local after = mt.memory_stats().live_tensors
    collectgarbage "restart"
    assert.equal(n + 50, after)
    collect()
    assert.equal(n, mt.memory_stats().live_tensors)
  end)

  it("may finalize tensors in any order, also in cycles", function()
    collect()
    local n = mt.memory_stats().live_tensors
    for _ = 1, 20 do
      local x = mt.ones({ 2 }, { requires_grad = true })
      local y = x * 2
      local cycle = { x, y }
      cycle[3] = cycle
      setmetatable(cycle, { __gc = function(self) local _ = self[1] + self[2] end })
      y:register_hook(function(g) return g * 2 end)
    end
    collect()
    collect()
    assert.equal(n, mt.memory_stats().live_tensors)
  end)
end)

describe("the memory limit", function()
  local function limited(bytes, fn)
    collect()
    mt.empty_cache()
    mt.set_memory_limit(bytes)
    local ok, err = pcall(fn)
    mt.set_memory_limit()
    if not ok then error(err, 0) end
  end

  it("is by default most of what the machine has", function()
    assert.is_true(mt.memory_stats().limit_bytes > 1 << 28)
  end)

  it("tells of nothing free where more is in use already", function()
    local held = mt.zeros(1 << 18)
    limited(1 << 10, function()
      local err = message(mt.zeros, 1 << 10)
      assert.truthy(err:find("0 bytes free of a limit of 1.0 KiB", 1, true), err)
    end)
    held:free()
  end)

  it("raises an error with sizes and the device, and nothing is lost", function()
    limited(64 << 20, function()
      assert.equal(64 << 20, mt.memory_stats().limit_bytes)
      local err = message(mt.zeros, 1024, 1024, 64)
      assert.truthy(err:find "memory", err)
      for _, word in ipairs { "requested", "allocated", "cached", "free", "cpu" } do
        assert.truthy(err:lower():find(word, 1, true), word .. " is missing: " .. err)
      end
      assert.equal(12, mt.ones(3, 4):sum():item())
    end)
  end)

  it("first collects what Lua no longer uses", function()
    limited(64 << 20, function()
      collectgarbage "stop"
      local ok, err = pcall(function()
        for _ = 1, 40 do mt.zeros(4 << 20) end
      end)
      collectgarbage "restart"
      if not ok then error(err, 0) end
    end)
  end)

  it("holds for results of ops and for gradients", function()
    limited(40 << 20, function()
      local x = mt.ones({ 2 << 20 }, { requires_grad = true }) -- 8 MB
      local err = message(function()
        local list = {}
        for i = 1, 10 do list[i] = x:exp() end
        return list
      end)
      assert.truthy(err:find "memory", err)
      collect();
      (x * 2):sum():backward()
      assert.equal(2, x.grad[1]:item())
    end)
  end)

  it("is a whole number of bytes", function()
    message(mt.set_memory_limit, -1)
    message(mt.set_memory_limit, "x")
  end)
end)

describe("lua_close", function()
  it("frees what is left without a fault", function()
    local r = shell.lua_run [[
      local mt = require "mytensor"
      kept = {}
      for i = 1, 100 do kept[i] = mt.randn(10, {requires_grad = true}) * 2 end
      os.exit(0, true)]]
    assert.equal(0, r.code, r.err)
  end)
end)
