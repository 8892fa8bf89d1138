-- spec/soak_spec.lua: long loops in which memory stays where it is, and collecting
-- takes a small part of the time. `make test-soak` runs them at full length.

local mt = require "mytensor"
local shell = require "spec.support.shell"
local nn = mt.nn

local LONG = os.getenv "MYTENSOR_SOAK" == "1"

local function collect()
  collectgarbage()
  collectgarbage()
end

local function status(key)
  for line in io.lines "/proc/self/status" do
    local kb = line:match(key .. ":%s*(%d+)")
    if kb then return tonumber(kb) * 1024 end
  end
end

-- steps of step(): live tensors, live bytes and resident memory are flat after the
-- first tenth, and the peak is at most 1.3 times what one step needs by itself, beside
-- what may come between two collections (MOST in runtime/bind/collect.c).
local function soak(steps, step)
  if shell.sanitized then pending "a sanitizer keeps freed memory for a while" end
  for _ = 1, 3 do step() end
  collect()
  mt.reset_peak_memory()
  collectgarbage "stop"
  step()
  collectgarbage "restart"
  local alone = mt.memory_stats().peak_bytes
  collect()
  mt.reset_peak_memory()
  local live = mt.memory_stats()
  local rss
  for i = 1, steps do
    step()
    if i == steps // 10 then
      collect()
      rss = status "VmRSS"
    end
  end
  local peak = mt.memory_stats().peak_bytes
  collect()
  local after = mt.memory_stats()
  assert.equal(live.live_tensors, after.live_tensors)
  assert.equal(live.live_bytes, after.live_bytes)
  local grown = status "VmRSS" - rss
  assert.is_true(grown < 4 << 20, grown .. " bytes more are resident")
  local most = 1.3 * alone + (512 << 10)
  assert.is_true(peak <= most, ("peak %d, alone %d"):format(peak, alone))
  if LONG then
    print(("    %d steps: peak %.2f of one step's, resident grew by %d KB"):format(
      steps, peak / alone, grown // 1024))
  end
end

describe("memory in a long loop", function()
  it("of 4 MB tensors beside a million tables", function()
    if shell.sanitized then pending "a sanitizer keeps freed memory for a while" end
    local script = [[
      local mt = require "mytensor"
      mt.set_num_threads(1)
      local keep = {}
      for i = 1, 1000000 do keep[i] = { i } end
      local function status(key)
        for line in io.lines "/proc/self/status" do
          local kb = line:match(key .. ":%s*(%d+)")
          if kb then return tonumber(kb) // 1024 end
        end
      end
      collectgarbage()
      local before, x, start = status "VmRSS", mt.zeros(1024, 1024), mt._clock()
      for i = 1, STEPS do local y = x + 1 end
      io.write(status "VmHWM" - before, " ", mt._collecting() / (mt._clock() - start))
      ]]
    local r = shell.lua_run((script:gsub("STEPS", LONG and 20000 or 5000)))
    assert.equal(0, r.code, r.err)
    local above, share = r.out:match "(%d+) (%S+)"
    if LONG then print(("    %d MB above the tables, %.1f%% collecting"):format(above,
      share * 100)) end
    assert.is_true(tonumber(above) < 250, above .. " MB above the tables")
    -- the first half second, in which it is found out, weighs more in the short form
    assert.is_true(tonumber(share) < (LONG and 0.1 or 0.25), share)
  end)

  it("that trains a perceptron", function()
    mt.manual_seed(1)
    local model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    local loss = nn.CrossEntropyLoss()
    local optimiser = mt.optim.Adam(model:parameters(), { lr = 0.001 })
    local x, labels = mt.randn(32, 256), mt.randint(1, 10, { 32 })
    soak(LONG and 100000 or 1000, function()
      optimiser:zero_grad()
      local l = loss(model(x), labels)
      l:backward()
      optimiser:step()
    end)
  end)

  it("that trains a convolutional network", function()
    mt.manual_seed(1)
    local model = nn.Sequential(nn.Conv2d(1, 8, 3, { padding = 1 }), nn.ReLU(),
      nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, { padding = 1 }), nn.ReLU(), nn.MaxPool2d(2),
      nn.Flatten(), nn.Linear(16 * 16, 10))
    local loss = nn.CrossEntropyLoss()
    local optimiser = mt.optim.SGD(model:parameters(), { lr = 0.01, momentum = 0.9 })
    local x, labels = mt.randn(8, 1, 16, 16), mt.randint(1, 10, { 8 })
    soak(LONG and 10000 or 300, function()
      optimiser:zero_grad()
      local l = loss(model(x), labels)
      l:backward()
      optimiser:step()
    end)
  end)

  it("that reaches the limit again and again", function()
    if shell.sanitized then pending "a sanitizer keeps freed memory for a while" end
    collect()
    mt.empty_cache()
    local before = mt.memory_stats().live_bytes
    mt.set_memory_limit(before + (64 << 20))
    local errors = 0
    for _ = 1, LONG and 2000 or 200 do
      local kept = {}
      local ok, err = pcall(function()
        for i = 1, 100 do kept[i] = mt.empty(1 << 20) end
      end)
      assert.is_false(ok)
      assert.truthy(tostring(err):find "out of memory", err)
      assert.is_true(#kept >= 15)
      for i = 1, #kept do kept[i] = nil end
      errors = errors + 1
      assert.equal(3, mt.ones(3):sum():item())
    end
    mt.set_memory_limit()
    collect()
    assert.equal(before, mt.memory_stats().live_bytes)
  end)
end)
