-- spec/profile_spec.lua: mt.profile: what ops cost.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"
local nn = mt.nn

local on_gpu = devices.on_gpu(_ENV)

local fails = expect.says

local limits = { ceilings = { bandwidth = 1e10, flops = 1e11 } }

local function row_of(report, name, by)
  for _, row in ipairs(report:rows(by)) do
    if row.name == name then return row end
  end
  error("no row " .. name .. " in\n" .. tostring(report))
end

describe("mt.profile", function()
  it("counts calls, and bytes and operations by their shapes", function()
    local a, b, column = mt.rand(30, 40), mt.rand(40, 50), mt.rand(30, 1)
    local report, sum, none = mt.profile(function()
      local y = a:matmul(b)
      y:add_(1)
      return (y + column):relu():sum(), nil
    end, limits)
    assert.is_true(mt.is_tensor(sum) and none == nil)
    local product = row_of(report, "matmul")
    assert.equal(1, product.calls)
    assert.equal(2 * 30 * 40 * 50, product.flops)
    assert.equal(4 * (30 * 40 + 40 * 50 + 30 * 50), product.bytes)
    local add = row_of(report, "add")
    assert.equal(2, add.calls)
    assert.equal(4 * (2 * 1500 + 2 * 1500 + 30), add.bytes) -- the column counts once
    assert.equal(6000, row_of(report, "relu").allocated // 1000 * 1000)
    assert.equal(0, report.dropped)
    assert.equal(5, #report.records)
    for _, r in ipairs(report.records) do
      assert.is_true(r.host > 0 and r.start >= 0 and r.start < report.seconds)
      assert.equal("cpu", r.device)
    end
    local record = report.records[1]
    assert.same({ "matmul", "float32", { 30, 50 } },
                { record.name, record.dtype, record.shape })
    local share = (4 * 3000 / 1e10) / row_of(report, "relu").host
    assert.is_true(math.abs(row_of(report, "relu").share - share) < 1e-9)
  end)

  it("tells backward and optimisers, and which module a call belongs to", function()
    local net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    local opt = mt.optim.SGD(net:parameters(), { lr = 0.1 })
    local report = mt.profile(function()
      mt.profile_range("step", function()
        net(mt.ones(4, 6)):sum():backward()
        opt:step()
      end)
    end, limits)
    assert.equal(2, row_of(report, "linear").calls)
    assert.equal(1, row_of(report, "tanh").calls)
    assert.equal(1, row_of(report, "tanh (backward)").calls)
    assert.equal(1, row_of(report, "sgd step").calls)
    assert.equal(2, row_of(report, "step/Sequential/2 Tanh", "module").calls)
    assert.is_true(row_of(report, "step/Sequential/1 Linear", "module").calls >= 2)
    assert.is_true(row_of(report, "step", "module").calls >= 2)
    assert.equal(1, row_of(report, "linear [4, 3]", "shape").calls)
    net(mt.ones(4, 6)) -- modules run as ever afterwards
    local plain = mt.profile(function() net(mt.ones(4, 6)) end,
                             { ceilings = limits.ceilings, modules = false })
    assert.equal(#plain.records, row_of(plain, "(no module)", "module").calls)
  end)

  it("costs nothing where it doesn't run, and leaves no memory", function()
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    do
      local report = mt.profile(function()
        for _ = 1, 300 do mt.ones(3):exp() end
      end, limits)
      assert.equal(300, row_of(report, "exp").calls)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before, mt.memory_stats().live_tensors)
  end)

  it("is a table, the longest first", function()
    local report = mt.profile(function()
      local x = mt.rand(300, 300)
      for _ = 1, 5 do x = x:matmul(x) end
      return x:sum() + 1
    end, limits)
    local text = tostring(report)
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.truthy(lines[1]:find "^op%s+device%s+calls%s+host us%s+device us%s+%%%s+b")
    assert.truthy(text:find "\nmatmul%s+cpu%s+5%s")
    assert.truthy(lines[#lines]:find("^" .. #report.records .. " calls in %d"))
    local last = math.huge
    for _, row in ipairs(report:rows()) do
      assert.is_true(row.device_time <= last)
      last = row.device_time
    end
    fails("bad argument #1 to 'rows' (one of op, module, shape", report.rows, report,
          "name")
  end)

  -- A report of calls that took what is said here.
  local function made_report()
    local report = mt.profile(function() return mt.ones(2) + 1 end, limits)
    local function call(fields)
      local r = { name = "matmul", gradient = false, module = "", device = "cpu",
        dtype = "float32", shape = { 2, 3 }, start = 0.5, host = 2e-3, bytes = 1e5,
        flops = 1e7, allocated = 24, kind = "float32" }
      for key, value in pairs(fields) do r[key] = value end
      return r
    end
    report.records = { call {}, call { host = 1e-3 },
      call { name = "add", device = "cuda:0", flops = 0, device_start = 0.75,
        device_time = 4e-3, bytes = 1e6 } }
    report.ceilings = { cpu = { bandwidth = 1e9, flops = { float32 = 1e10 } },
      ["cuda:0"] = { bandwidth = 1e9, flops = {} } }
    report.seconds, report.dropped = 0.01, 3
    return report
  end

  it("adds up calls, and compares them with what the device could do", function()
    local report = made_report()
    local text = tostring(report)
    assert.truthy(text:find("\nmatmul +cpu +2 +3000%.0 +3000%.0 +42%.9 +200%.0 KB +48 B"
      .. " +6%.7 GFLOP/s +67%%\n"), text)
    assert.truthy(text:find("\nadd +cuda:0 +1 +2000%.0 +4000%.0 +57%.1 +1%.0 MB +24 B "
      .. "+0%.2 GB/s +25%%\n"), text)
    assert.truthy(text:find("\n3 calls in 10000.0 us: 5000.0 us in calls, 7000.0 us of "
      .. "devices; 3 more were not noted", 1, true), text)
    report.records[1].flops = 4e10
    text = tostring(report)
    assert.truthy(text:find(" 13.3 TFLOP/s ", 1, true), text)
    assert.equal(4e10 + 1e7, row_of(report, "matmul").flops)
  end)

  it("keeps the limits that are given, and all results", function()
    local function fn() return mt.ones(2, 2):matmul(mt.ones(2, 2)), nil end
    local results = table.pack(mt.profile(fn, limits))
    assert.equal(3, results.n)
    assert.same({ cpu = { bandwidth = 1e10, flops = { float32 = 1e11 } } },
                results[1].ceilings)
  end)

  it("measures a copy and a product", function()
    local r = shell.lua_run [[
      local mt = require "mytensor"
      local seconds = 0
      function mt._clock() seconds = seconds + 1 return seconds end
      local x = mt.ones(2, 2)
      local report = mt.profile(function() return x:matmul(x) end)
      print(report.ceilings.cpu.bandwidth, report.ceilings.cpu.flops.float32)
    ]]
    assert.equal(("%.1f\t%.1f\n"):format(8 * 2.0 ^ 24, 2 * 512.0 ^ 3), r.out, r.err)
  end)

  it("measures the limits of a device once", function()
    local function run()
      return mt.profile(function() return mt.ones(50, 50):matmul(mt.ones(50, 50)) end)
    end
    local state = mt.get_rng_state()
    local first, second = run(), run()
    assert.same(state, mt.get_rng_state())
    assert.same(first.ceilings, second.ceilings)
    assert.is_true(first.ceilings.cpu.bandwidth > 1e8)
    assert.is_true(first.ceilings.cpu.flops.float32 > 1e8)
  end)

  it("writes a trace", function()
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local report = mt.profile(function()
      mt.profile_range('a "name"\n', function() return mt.ones(2) + 1 end)
    end, limits)
    assert.is_true(report:trace(path))
    local f = assert(io.open(path))
    local text = f:read "a"
    f:close()
    local trace = mt._json_decode(text)
    local names = {}
    for _, event in ipairs(trace.traceEvents) do
      names[event.name] = event
      if event.ph == "X" then assert.is_true(event.dur >= 0 and event.ts >= 0) end
    end
    assert.equal(1, names["add"].args.flops == 0 and 1)
    assert.equal("[2]", names["add"].args.shape)
    assert.truthy(names['a "name"\n'])
    assert.equal("X", names["add"].ph)
    assert.is_true(made_report():trace(path))
    f = assert(io.open(path))
    text = f:read "a"
    f:close()
    local times = {}
    for _, event in ipairs(mt._json_decode(text).traceEvents) do
      if event.ph == "X" then
        times[#times + 1] = ("%s %d %.1f %.1f"):format(event.name, event.tid, event.ts,
          event.dur)
      end
    end
    assert.same({ "matmul 1 500000.0 2000.0", "matmul 1 500000.0 1000.0",
      "add 1 500000.0 2000.0", "add 2 750000.0 4000.0" }, times)
    if shell.exists "/dev/full" then
      local written, problem = report:trace "/dev/full"
      assert.is_nil(written)
      assert.truthy(problem:find "No space left", problem)
    end
    local ok, message = report:trace "/nowhere/trace.json"
    assert.is_nil(ok)
    assert.truthy(message:find "/nowhere/trace.json")
  end)

  it("shows names of any bytes", function()
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local report = mt.profile(function()
      mt.profile_range("\xff\nß", function() return mt.ones(2) + 1 end)
      mt.profile_range("größe", function() return mt.ones(2) * 2 end)
    end, limits)
    local text = report:text "module"
    assert.truthy(text:find("\xff?ß ", 1, true), text)
    assert.truthy(text:find("größe ", 1, true), text)
    assert.is_true(report:trace(path))
    local f = assert(io.open(path))
    text = f:read "a"
    f:close()
    assert.truthy(utf8.len(text))
    assert.truthy(mt._json_decode(text))
  end)

  it("ends when the coroutine that ran it is abandoned", function()
    local step = coroutine.wrap(function() mt.profile(coroutine.yield) end)
    step()
    step = nil -- luacheck: ignore
    local report = mt.profile(function() return mt.ones(2) * 2 end, limits)
    assert.equal(1, row_of(report, "mul").calls)
  end)

  it("ends with its function, also by an error", function()
    local object = {}
    local ok, err = pcall(mt.profile, function()
      mt.profile_range("within", error, object)
    end, limits)
    assert.is_false(ok)
    assert.equal(object, err)
    fails("profile: another one is running", mt.profile, function()
      mt.profile(print)
    end)
    assert.equal(1, row_of(mt.profile(function() return mt.ones(1) + 1 end, limits),
                           "add").calls)
    assert.equal(7, mt.profile_range("nothing runs", function(x) return x end, 7))
  end)

  it("checks its arguments", function()
    fails("bad argument #1 to 'profile' (function expected, got integer)", mt.profile,
          1)
    fails("bad argument #2 to 'profile'", mt.profile, print, { ceiling = 1 })
    fails("bad argument #2 to 'profile'", mt.profile, print, { ceilings = 3 })
    fails("bandwidth", mt.profile, print, { ceilings = { bandwidth = "fast" } })
    fails("bad argument #1 to 'profile_range'", mt.profile_range, nil, print)
    fails("bad argument #2 to 'profile_range'", mt.profile_range, "a", 5)
  end)

  it("works with hooks, functions of Lua, graphs of gradients", function()
    local Twice = mt.Function("Twice", {
      forward = function(_, x) return x * 2 end,
      backward = function(_, g) return g * 2 end,
    })
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    local report = mt.profile(function()
      local y = Twice(x):pow(3)
      y:register_hook(function(g) return g + 0 end)
      local dx = mt.grad(y:sum(), x, { create_graph = true })[1]
      dx:sum():backward()
    end, limits)
    assert.is_true(row_of(report, "mul").calls >= 1)
    assert.is_true(row_of(report, "mul (backward)").calls >= 1)
  end)
end)

describe("mt.profile on a GPU", function()
  on_gpu("times ops by events", function()
    local n = 1 << 24
    local x = mt.rand({ n }, { device = "cuda" })
    local y = x * 2
    mt.cuda.synchronize()
    local report, sum = mt.profile(function()
      for _ = 1, 10 do y = x * 2 end
      return y:sum():item()
    end)
    assert.is_true(sum > 0)
    local mul = row_of(report, "mul")
    assert.equal("cuda:0", mul.device)
    assert.equal(10, mul.timed)
    assert.is_true(mul.share > 0.2 and mul.share < 1.3, tostring(report))
    assert.is_true(report.ceilings["cuda:0"].bandwidth > 1e11)
    for _, r in ipairs(report.records) do
      assert.is_true(r.device_time == nil or r.device_time > 0)
      assert.is_true(r.device_start == nil or r.device_start < report.seconds + 1)
    end
  end)

  on_gpu("does not charge short ops with the host's time", function()
    local x = mt.rand({ 1000 }, { device = "cuda" })
    local function run() for _ = 1, 200 do x = x * 1.0001 end end
    run()
    local report = mt.profile(run, limits)
    local mul = row_of(report, "mul")
    assert.equal(200, mul.timed)
    assert.is_true(mul.device_time / 200 < 20e-6, tostring(report))
  end)

  on_gpu("sees graphs, kernels and copies, and several streams", function()
    local x = mt.rand({ 1000 }, { device = "cuda" })
    local step = mt.cuda.graph(function(v) return v * 2 + 1 end)
    step(x)
    local stream = mt.cuda.Stream()
    local report = mt.profile(function()
      for _ = 1, 3 do step(x) end -- the first captures
      mt.cuda.synchronize()
      stream:use(function() return (x + 1):sum() end)
      stream:synchronize()
      return x:cpu():cuda():sum():item()
    end, limits)
    local graph = row_of(report, "graph")
    assert.equal(3, graph.calls)
    assert.equal(3, graph.timed)
    assert.equal(2, row_of(report, "to").calls)
    local event = mt.cuda.Event()
    mt.profile(function()
      for _ = 1, 10 do x = x + 1 end
      event:record()
      event:synchronize() -- the GPU is not held back meanwhile
      fails("profile cannot be captured", mt.cuda.graph(function()
        mt.profile(print)
      end, { warmup = 0 }))
    end, limits)
  end)
end)
