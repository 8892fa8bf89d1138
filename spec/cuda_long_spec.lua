-- spec/cuda_long_spec.lua: long lists and long runs on a GPU: optimisers over many
-- tensors, memory that stays flat, large copies.

local mt = require "mytensor"
local system = require "system"
local devices = require "spec.support.devices"

local on_gpu = devices.on_gpu(_ENV)

-- The same parameters and gradients on a device: sizes from 0 to some thousands, every
-- third not aligned to 16 bytes.
local function parameters(n, device, dtype)
  mt.manual_seed(n)
  local list = {}
  for i = 1, n do
    local size = i % 50 == 0 and 9001 or i * 7 % 53
    local values, grads = mt.randn(size + 1), mt.randn(size + 1)
    local function part(t)
      t = t:to(dtype):to(device)
      return i % 3 == 0 and t:narrow(1, 2, size) or t:narrow(1, 1, size):clone()
    end
    list[i] = part(values):requires_grad_()
    list[i].grad = part(grads)
  end
  return list
end

local function close(a, b, tolerance)
  for i, x in ipairs(a) do
    local d = (x:detach():cpu():double() - b[i]:detach():double()):abs()
    assert.is_true(d:numel() == 0 or d:max():item() <= tolerance, "tensor " .. i)
  end
end

describe("optimisers on a GPU", function()
  local makers = {
    SGD = function(p)
      return mt.optim.SGD(p, { lr = 0.1, momentum = 0.9, weight_decay = 0.01 })
    end,
    Adam = function(p) return mt.optim.Adam(p, { lr = 0.1, weight_decay = 0.01 }) end,
    AdamW = function(p) return mt.optim.AdamW(p, { lr = 0.1 }) end,
  }
  for _, n in ipairs { 1, 33, 1700 } do
    for name, make in pairs(makers) do
      on_gpu(("%s: %d tensors of all sizes"):format(name, n), function()
        for dtype, tolerance in pairs { float32 = 2e-6, float64 = 1e-13 } do
          local here, there = parameters(n, "cpu", dtype), parameters(n, "cuda", dtype)
          local a, b = make(here), make(there)
          for _ = 1, 3 do
            a:step()
            b:step()
          end
          close(there, here, tolerance)
        end
      end)
    end
    on_gpu(("gradients of %d tensors are clipped by their norm"):format(n), function()
      local here = parameters(n, "cpu", "float32")
      local there = parameters(n, "cuda", "float32")
      local a = mt.nn.utils.clip_grad_norm_(here, 0.5):item()
      local b = mt.nn.utils.clip_grad_norm_(there, 0.5)
      assert.equal("cuda:0", tostring(b:device()))
      assert.is_true(math.abs(a - b:item()) <= 1e-6 * a, a .. " " .. b:item())
      for i, p in ipairs(there) do
        local d = p.grad:cpu() - here[i].grad
        assert.is_true(d:numel() == 0 or d:abs():max():item() <= 1e-6)
      end
    end)
  end

  on_gpu("the norm is the same each time", function()
    local list = {}
    for i, p in ipairs(parameters(200, "cuda", "float32")) do list[i] = p.grad end
    list[#list + 1] = mt.randn({ 10000000 }, { device = "cuda" })
    local first = mt._grad_norm(list):item()
    for _ = 1, 5 do assert.equal(first, mt._grad_norm(list):item()) end
    assert.equal(0, mt._grad_norm { mt.zeros({ 0 }, { device = "cuda" }) }:item())
  end)
end)

describe("memory of a GPU over a long run", function()
  -- The peak of fn in bytes over what was there before.
  local function peak(fn)
    collectgarbage()
    collectgarbage()
    mt.cuda.reset_peak()
    local before = mt.cuda.memory_stats().live_bytes
    fn()
    return mt.cuda.memory_stats().peak_bytes - before
  end

  local GB <const> = 1 << 30

  -- The peak of temporaries of 1 GB, in GB; between() is called after each.
  local function peak_of_temporaries(between)
    local top = peak(function()
      local x = mt.zeros({ GB / 4 }, { device = "cuda" })
      local y
      for _ = 1, 60 do
        y = x + 1 -- lives: x, y, the next y
        if between then between() end
      end
      assert.equal(1, y[5]:item())
    end)
    mt.cuda.empty_cache()
    return top / GB
  end

  local function needs_16_gb()
    if mt.cuda.get_device_properties().total_bytes < 16 * GB then
      pending "needs 16 GB on the device"
    end
  end

  -- Once so much has lived, a major collection waits for half more.
  local function hold_8_gb()
    local held = {}
    for i = 1, 8 do held[i] = mt.zeros({ GB / 4 }, { device = "cuda" }) end
    return held
  end

  on_gpu("temporaries of 1 GB: at most one more than what lives", function()
    needs_16_gb()
    local top = peak_of_temporaries()
    assert.is_true(top <= 4.5, top)
  end)

  on_gpu("temporaries of 1 GB: no more when Lua's heap has grown and shrunk", function()
    needs_16_gb()
    hold_8_gb()
    local kept = {}
    for round = 1, 24 do
      for _ = 1, #kept / 4 + 5000 do kept[#kept + 1] = { round } end
      local top = peak_of_temporaries()
      assert.is_true(top <= 4.5, top)
      if round % 8 == 0 then kept = {} end
    end
  end)

  on_gpu("temporaries of 1 GB: no more where Lua's collector seldom runs", function()
    needs_16_gb()
    local mode = collectgarbage("incremental", 1000) -- its heap is to grow ten times
    hold_8_gb()
    local top = peak_of_temporaries()
    collectgarbage("incremental", 200)
    collectgarbage(mode)
    assert.is_true(top <= 4.5, top)
  end)

  on_gpu("temporaries of 1 GB: half more where they die old", function()
    needs_16_gb()
    local function renew_heap()
      local bytes = collectgarbage "count" * 1024 // 16
      for i = 1, 16 do local _ = ("x"):rep(bytes + i) end
    end
    system.sleep(2.1) -- after two seconds what lived before doesn't count
    local top = peak_of_temporaries(renew_heap)
    assert.is_true(top <= 1.5 * 3 + 1, top)
  end)

  on_gpu("training: within 1.5 of what a step needs", function()
    local nn = mt.nn
    local net = nn.Sequential(nn.Linear(2000, 4000), nn.ReLU(), nn.Linear(4000, 1000))
    net:to "cuda"
    local x = mt.rand({ 512, 2000 }, { device = "cuda" })
    local labels = mt.randint(1, 1001, { 512 }, { device = "cuda" })
    local optimiser = mt.optim.Adam(net:parameters())
    local loss = nn.CrossEntropyLoss()
    local function step()
      optimiser:zero_grad()
      loss(net(x), labels):backward()
      optimiser:step()
    end
    step()
    local one = peak(step)
    local live = mt.cuda.memory_stats().live_bytes
    local many = peak(function() for _ = 1, 1000 do step() end end)
    assert.is_true(live + many <= 1.5 * (live + one),
      ("%d, %d, %d"):format(live, one, many))
  end)
end)

describe("copies of pageable memory", function()
  on_gpu("of all lengths arrive whole", function()
    for _, n in ipairs { 16384, 16385, 524288, 524289, 3000017, 20000003 } do
      local x = mt.randint(0, 1 << 30, n):int()
      local g = x:to "cuda"
      assert.is_true(g:cpu():equal(x), tostring(n))
      assert.equal(x:sum():item(), g:sum():item())
      local part = g:narrow(1, 7, n - 9):cpu()
      assert.is_true(part:equal(x:narrow(1, 7, n - 9)))
    end
  end)
end)
