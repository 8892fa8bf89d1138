-- spec/faults_spec.lua: each allocation of a piece of work fails in its turn, alone and
-- with those that follow it: an error or a right result, nothing lost; then it works.
--
-- Needs the host of `make test-faults`, which spec/support/faults.c has made fallible.

local mt = require "mytensor"
local shell = require "spec.support.shell"

local have, faults = pcall(require, "faults")

-- One allocation; a few in a row, which outlast the retries of allocators; all.
local WIDTHS = { 1, 3, 1 << 40 }

local function settle()
  collectgarbage()
  collectgarbage()
  mt.empty_cache()
end

local function is_clean(err)
  return err:find "memory" and not err:find "internal"
end

-- Run work() with allocation n, n + 1 ... failing, for every n until none is met.
-- verify(result of work or nil) runs after each, with all allocations in order.
local function exhaust(work, verify, widths)
  if not have then pending "allocations do not fail in this build" end
  local runs, errors = 0, 0
  for _ = 1, 2 do work() end -- what is made once, is made
  if verify then verify(nil, false) end
  for _, width in ipairs(widths or WIDTHS) do
    local n = 0
    repeat
      n = n + 1
      settle()
      local s = mt.memory_stats()
      local tensors, bytes, blocks = s.live_tensors, s.live_bytes, faults.blocks()
      local fired, ok, result = faults.call(n, width, work)
      if not ok then result = tostring(result) end -- busted's assert raises tables
      local where = ("allocation %d, width %d: "):format(n, width)
      if not ok and not is_clean(result) then error(where .. tostring(result), 0) end
      if not ok and fired == 0 then error(where .. "no failure, but " .. result, 0) end
      if not ok then errors = errors + 1 end
      if verify then
        local fine, why = pcall(verify, ok and result or nil, ok)
        if not fine then error(where .. "afterwards: " .. tostring(why), 0) end
      end
      result = nil -- luacheck: ignore 311 (it may be a tensor)
      settle()
      s = mt.memory_stats()
      if s.live_tensors ~= tensors or s.live_bytes ~= bytes then
        error(("%s%d tensors and %d bytes more are alive"):format(where,
          s.live_tensors - tensors, s.live_bytes - bytes), 0)
      end
      if faults.blocks() ~= blocks then
        error(("%s%d blocks of C more are alive"):format(where,
          faults.blocks() - blocks), 0)
      end
      runs = runs + 1
    until fired == 0
  end
  assert.is_true(errors > 5, errors .. " errors only")
  if os.getenv "MYTENSOR_SPEC_TRACE" then
    print(("    %d runs, %d errors"):format(runs, errors))
  end
end

describe("an allocation that fails", function()
  it("in a training step is an error, and the next step works", function()
    local nn = mt.nn
    mt.manual_seed(1)
    local model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.1),
      nn.Linear(5, 3))
    local loss = nn.CrossEntropyLoss()
    local x, labels = mt.randn(4, 6), mt.tensor { 1, 2, 3, 1 }
    for _, optimiser in ipairs { mt.optim.SGD(model:parameters(), { lr = 0.01,
      momentum = 0.9 }), mt.optim.Adam(model:parameters(), { lr = 0.01 }) } do
      local function step()
        optimiser:zero_grad()
        local l = loss(model(x), labels)
        l:backward()
        optimiser:step()
        return l:item()
      end
      exhaust(step, function()
        local l = step()
        assert(l == l and l < 10, "loss " .. l)
      end)
    end
  end)

  it("in a convolution's step does no harm", function()
    local nn = mt.nn
    local model = nn.Sequential(nn.Conv2d(1, 2, 3, { padding = 1 }), nn.ReLU(),
      nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2))
    local x = mt.randn(2, 1, 4, 4)
    local function step()
      model:zero_grad()
      local y = model(x):square():mean()
      y:backward()
      return y:item()
    end
    local expected = step()
    exhaust(step, function() assert(step() == expected) end)
  end)

  it("in hooks, Functions, views in place and second gradients does no harm", function()
    local Square = mt.Function {
      forward = function(ctx, x)
        ctx:save(x)
        return x * x
      end,
      backward = function(ctx, g)
        local x = ctx:saved()
        return g * x * 2
      end,
    }
    local function work()
      local a = mt.ones({ 3, 4 }, { requires_grad = true })
      local handle = a:register_hook(function(g) return g * 2 end)
      local b = a * 3
      b:narrow(1, 1, 2):mul_(2)
      local y = Square(b):sum()
      local g = mt.grad({ y }, { a }, { create_graph = true })
      local sum = g[1]:sum()
      sum:backward()
      if handle then handle:remove() end
      return a.grad:sum():item()
    end
    local expected = work()
    exhaust(work, function(got, ok)
      if ok then assert(got == expected, got) end
      assert(work() == expected)
    end)
  end)

  it("in fused operators and their gradients does no harm", function()
    local x, w = mt.randn(3, 40):requires_grad_(), mt.rand(40)
    local function work()
      local f = mt.fuse(function(a, b)
        local y = a:silu() * b
        return y:softmax(-1), y + y:amax(-1, true)
      end)
      local y, z = f(x, w)
      local g = mt.grad({ (y * z):sum() }, { x }, { create_graph = true })
      return mt.grad({ g[1]:sum() }, { x })[1]:sum():item(), #f:source()
    end
    local expected = work()
    exhaust(work, function(got, ok)
      if ok then assert(got == expected, got) end
      assert(work() == expected)
    end)
  end)

  it("in views, indices, lists, text and tables does no harm", function()
    local x = mt.arange(1, 25):view(4, 6)
    local function work()
      local parts = { x[1], x[{ { 2, 3 }, {} }], x:t(), x:select(2, 1) }
      local c = mt.cat { x, x, x:flip(1), x, x, x, x, x, x, x }
      local s = mt.scope(function()
        return c:sum(1) + mt.stack { x[1], x[2] }:sum(1)
      end)
      local y = x:clone()
      y[2] = 5
      y[{ {}, 1 }] = mt.zeros(4)
      y[y:gt(20)] = 0
      local values, positions = y:max(1)
      local chunks = x:chunk(2)
      local text = y:format() .. tostring(positions)
      assert(#text > 50 and #parts == 4 and #chunks == 2)
      local t = mt.tensor { { 1, 2 }, { 3, 4 } }
      return s:sum():item() + values:sum():item() + t:totable()[2][2]
        + mt.no_grad(function() return y:sum():item() end)
    end
    local expected = work()
    exhaust(work, function(got)
      if got then assert(got == expected) end
      assert(work() == expected)
    end)
  end)

  it("in large blocks and conversions does no harm", function()
    local function work()
      local x = mt.ones(1024, 1024)
      local y = x:to "float64":t():contiguous()
      local z = x:half():matmul(mt.ones(1024, 1):half())
      return y:sum():item() + z[1]:item()
    end
    exhaust(work, function(got)
      if got then assert(got == 2 ^ 20 + 1024, got) end
    end)
  end)

  it("in a loader's batches does no harm", function()
    local set = mt.data.TensorDataset { mt.arange(1, 9), mt.arange(1, 9) }
    local loader = mt.data.DataLoader { dataset = set, batch_size = 3 }
    local function work()
      local sum = 0
      for _, a, b in loader:iter() do sum = sum + (a + b):sum():item() end
      return sum
    end
    local expected = work()
    exhaust(work, function(got) if got then assert(got == expected) end end)
  end)

  it("in saving leaves the old file, and no other", function()
    local dir = os.tmpname()
    os.remove(dir)
    assert(require "lfs".mkdir(dir))
    local path = dir .. "/t.safetensors"
    local old, new = { a = mt.zeros(3) }, { a = mt.ones(40, 3), b = mt.arange(1, 4) }
    exhaust(function()
      assert(mt.save_tensors(path, new, { note = "x" }))
      return true
    end, function(_, ok)
      local got = assert(mt.load_tensors(path))
      assert(not ok or got.b, "the new file is not there")
      for name in require "lfs".dir(dir) do
        assert(name:find "^%.*$" or name == "t.safetensors", name)
      end
      assert(mt.save_tensors(path, old))
    end)
    os.remove(path)
    require "lfs".rmdir(dir)
  end)

  it("in loading is an error", function()
    local path = os.tmpname()
    local given = { a = mt.ones(40, 3), b = mt.arange(1, 4) }
    assert(mt.save_tensors(path, given, { k = "v" }))
    local function work()
      local t, metadata = assert(mt.load_tensors(path))
      assert(metadata.k == "v")
      return t.a:sum():item() + t.b:sum():item()
    end
    exhaust(work, function() assert(work() == 126) end)
    os.remove(path)
  end)

  it("in reading an IDX file, packed or not, is an error", function()
    local path = os.tmpname()
    local bytes = (">I4I4I4"):pack(0x802, 2, 3) .. "\1\2\3\4\5\6"
    shell.write(path, bytes)
    local function work() return assert(mt.data.idx(path)):sum():item() end
    exhaust(work, function() assert(work() == 21) end)
    if shell.run("gzip -c " .. path .. " >" .. path .. ".gz").code == 0 then
      local function packed() return assert(mt.data.idx(path .. ".gz")):sum():item() end
      exhaust(packed, function() assert(packed() == 21) end)
      os.remove(path .. ".gz")
    end
    os.remove(path)
  end)

  it("in loading the module is an error; the next state loads it", function()
    if not have then pending "allocations do not fail in this build" end
    local code = [[
      local mt = require "mytensor"
      assert((mt.ones(2) + 1):sum():item() == 4)]]
    assert.equal(0, (faults.fresh(code, 1 << 40)))
    for _, width in ipairs { 1, 1 << 40 } do
      local n, fired, err = 0, 1, nil
      while fired > 0 do
        n = n + (n < 300 and 7 or 97)
        mt.empty_cache()
        local before = faults.blocks()
        fired, err = faults.fresh(code, n, width)
        if err and not is_clean(err) then
          error(("allocation %d: %s"):format(n, err), 0)
        end
        mt.empty_cache()
        if faults.blocks() ~= before then
          local more = faults.blocks() - before
          error(("allocation %d: %d blocks of C more"):format(n, more), 0)
        end
      end
      assert.is_nil(err)
    end
    mt.empty_cache()
  end)
end)

describe("the prompt", function()
  it("survives failing allocations in a line, line after line", function()
    if not have then pending "allocations do not fail in this build" end
    -- _PROMPT is asked for before each line: it disarms, and arms the next failure.
    local set = [[
      faults, n, width, met = require "faults", 0, 1, 0
      local mt = require "mytensor"
      _PROMPT = setmetatable({}, {__tostring = function()
        local fired = faults.disarm()
        if fired > 0 then met = met + 1
        elseif n > 50 and width == 1 then n, width = 0, 4
        elseif n > 50 then width = 0 end
        n = n + 1
        if width > 0 then faults.arm(n, width) end
        return "> "
      end})]]
    local lines = {}
    for i = 1, 1500 do lines[i] = "= mt.ones(2, 3) * 2 + 1, {1, 'two'}" end
    lines[#lines + 1] = "faults.disarm() width = 0"
    lines[#lines + 1] = "= 'met', met > 100, (mt.ones(3) + 1):sum():item()"
    local code = set:gsub("\n%s*", " ")
    local r = shell.run(("%s -i -e %s"):format(shell.lua_command(), shell.quote(code)),
      { stdin = table.concat(lines, "\n") .. "\n" })
    assert.equal(0, r.code, r.err:sub(-2000))
    assert.truthy(r.out:find "met%s+true%s+6", r.out:sub(-300) .. r.err:sub(-500))
    for line in r.err:gmatch "[^\n]+" do
      local traced = line:find "^stack traceback" or line:find "^%s"
      assert.truthy(traced or is_clean(line), line)
    end
  end)
end)
