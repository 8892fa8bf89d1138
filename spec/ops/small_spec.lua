-- spec/ops/small_spec.lua: few elements take shorter ways; the results are the same.

local mt = require "mytensor"
local shell = require "spec.support.shell"

local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32",
  "int16", "int8", "uint8", "bool" }
local SIZES = { 0, 1, 2, 3, 15, 16, 17, 31, 33, 48, 255, 256, 257, 272 }

-- The same values with gaps between them, which no short way takes.
local function spread(x)
  local wide = mt.zeros(x:size(1), 2, { dtype = x:dtype() })
  wide:select(2, 1):copy_(x)
  return wide:select(2, 1)
end

local function values(n, dtype)
  return mt.arange(1, n + 1):remainder(7):to(dtype)
end

local OPS = {
  add = function(a, b) return a + b end,
  more = function(a, b) return a:gt(b) end,
  number = function(a) return a * 3 end,
  reversed = function(a)
    return 2 - a:to(a:dtype() == "bool" and "int64" or a:dtype())
  end,
  where = function(a, b) return mt.where(a:eq(b), a, b) end,
  exp = function(a) return a:exp() end,
}

describe("small tensors", function()
  for _, dtype in ipairs(DTYPES) do
    it("give what larger ways give, in " .. dtype, function()
      for _, n in ipairs(SIZES) do
        local a, b = values(n, dtype), values(n, dtype):flip(1)
        for name, op in pairs(OPS) do
          local y, z = op(a, b), op(spread(a), spread(b))
          assert.equal(z:dtype(), y:dtype(), name)
          assert.is_true(y:equal(z), name .. " of " .. n)
        end
      end
    end)
  end

  it("in place too, on the tensor itself as well", function()
    for _, n in ipairs(SIZES) do
      local a, b = values(n, "float32"), values(n, "float32"):flip(1)
      local expected = spread(a) + spread(b)
      assert.equal(n, a:add_(b):numel())
      assert.is_true(a:equal(expected))
      assert.is_true(a:add_(a):equal(expected * 2))
    end
  end)

  it("keep what lies behind an output that fills no whole row", function()
    local all = mt.zeros(64)
    all[{ { 1, 5 } }]:add_(mt.ones(5))
    assert.equal(5, all:sum():item())
    all:view(4, 16)[2]:mul_(0):add_(1)
    assert.equal(21, all:sum():item())
  end)

  it("overlap safely", function()
    local x = mt.arange(1, 9)
    x[{ { 2, 8 } }]:add_(x[{ { 1, 7 } }])
    assert.same({ 1, 3, 5, 7, 9, 11, 13, 15 }, x:totable())
  end)

  it("have gradients that larger ways give", function()
    for _, n in ipairs(SIZES) do
      local function gradients(lay)
        local a = values(n, "float32"):requires_grad_()
        local b = values(n, "float32"):flip(1):requires_grad_();
        (lay(a) * lay(b) + lay(a) / (lay(b) + 1)):relu():sum():backward()
        return a.grad, b.grad
      end
      local da, db = gradients(function(x) return x end)
      local ea, eb = gradients(function(x)
        return mt.stack { x, x }:t():select(2, 1)
      end)
      assert.is_true(da:allclose(ea))
      assert.is_true(db:allclose(eb))
    end
  end)

  it("report an integer division by zero with its position", function()
    local a, b = mt.tensor({ 1, 2, 3 }):to "int32", mt.tensor({ 1, 0, 1 }):to "int32"
    local ok, message = pcall(function() return a // b end)
    assert.is_false(ok)
    assert.truthy(message:find("zero at element 2", 1, true), message)
  end)
end)

describe("small tensors in memory", function()
  it("are counted to the byte, at the peak too", function()
    collectgarbage()
    collectgarbage()
    mt.reset_peak_memory()
    local before = mt.memory_stats()
    local x = mt.zeros(5)
    local y = x:view(1, 5)
    local during = mt.memory_stats()
    assert.equal(before.live_bytes + 20, during.live_bytes)
    assert.equal(before.live_tensors + 2, during.live_tensors)
    assert.equal(before.allocations + 1, during.allocations)
    assert.equal(during.live_bytes, during.peak_bytes)
    x:free()
    assert.equal(during.live_bytes, mt.memory_stats().live_bytes) -- the view holds them
    y:free()
    local after = mt.memory_stats()
    assert.equal(before.live_bytes, after.live_bytes)
    assert.equal(during.peak_bytes, after.peak_bytes)
    assert.equal(before.frees + 1, after.frees)
  end)

  it("count for the limit", function()
    collectgarbage()
    collectgarbage()
    mt.set_memory_limit(mt.memory_stats().live_bytes + 100)
    local x = mt.zeros(20)
    local ok, message = pcall(mt.zeros, 6)
    mt.set_memory_limit()
    assert.is_false(ok)
    assert.truthy(message:find("out of memory on cpu: 24 bytes requested", 1, true),
      message)
    assert.equal(20, x:numel())
  end)
end)

describe("small tensors", function()
  it("wake no thread, in forward, backward or an optimiser's step", function()
    if shell.sanitized then pending "a sanitizer has a thread of its own" end
    local r = shell.lua_run [[
      local mt = require "mytensor"
      mt.set_num_threads(2)
      local nn = mt.nn
      local function threads()
        for line in io.lines "/proc/self/status" do
          local n = line:match "^Threads:%s*(%d+)"
          if n then return n end
        end
      end
      local net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16),
        nn.Linear(16, 4))
      local optimiser = mt.optim.Adam(net:parameters())
      for _ = 1, 3 do
        optimiser:zero_grad()
        local labels = mt.randint(1, 4, { 4 })
        nn.CrossEntropyLoss()(net(mt.randn(4, 8)), labels):backward()
        optimiser:step()
      end
      local y = nn.Conv2d(2, 3, 3)(mt.randn(2, 2, 8, 8))
      mt.max_pool2d(y, 2):sum(1):cumsum(1):softmax(1):exp()
      io.write(threads(), " ")
      mt.ones(2000000):exp()
      io.write(threads())]]
    assert.equal("", r.err)
    assert.equal("1 2", r.out)
  end)
end)
