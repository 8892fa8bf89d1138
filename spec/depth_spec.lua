-- spec/depth_spec.lua: calls within calls until the C stack that Lua counts is full.
-- At its very end Lua drops finalizers, with what they would free: ours stop before.

local mt = require "mytensor"
local message = require("spec.support.expect").message

local function leaf(values)
  return mt.tensor(values, { requires_grad = true })
end

describe("calls within calls without end", function()
  local function live()
    for _ = 1, 2 do collectgarbage() end
    return mt.memory_stats("cpu").live_tensors
  end

  -- f() below `depth` calls from C
  local function below(depth, f)
    if depth == 0 then return f() end
    local result
    string.gsub("x", "x", function() result = below(depth - 1, f) end)
    return result
  end

  local Again
  Again = mt.Function("Again", { forward = function(_, x) return Again(x + 1) end,
    backward = function(_, g) return g end })
  local endless = {
    backward = function(_, y)
      return function() y:sum():backward { retain_graph = true } end
    end,
    grad = function(x, y)
      return function() mt.grad(y:sum(), x, { retain_graph = true }) end
    end,
    Function = Again,
    scope = function(x, y)
      local function again() return (y + x):add(mt.scope(again)) end
      again()
    end,
    no_grad = function(x, y)
      local function again() return (y + x):add(mt.no_grad(again)) end
      again()
    end,
    gsub = function(x, y)
      local function again() string.gsub("x", "x", again, (y + x):numel()) end
      again()
    end,
  }

  -- A hook that holds its tensor keeps it: it is removed.
  local function refusal(f, x, y)
    local ok, hook = pcall(f, x, y)
    if not ok then return hook end
    local handle = y:register_hook(hook)
    local err = message(y.backward, y, mt.ones_like(y))
    handle:remove()
    return err
  end

  for name, f in pairs(endless) do
    it(("of %s are refused, and nothing stays alive"):format(name), function()
      local before = live()
      for depth = 0, 180 do
        local err = below(depth, function()
          local x = leaf { { 1, 2, 3 }, { 4, 5, 6 } }
          local y = ((x * 2):tanh() + x):narrow(1, 1, 1) * 3
          return refusal(f, x, y)
        end)
        assert.truthy(err:find "calls within calls leave no room on Lua's C stack", err)
      end
      assert.equal(before, live())
    end)
  end
end)
