-- spec/found_spec.lua: what fuzzing has found (make fuzz, make fuzz-readers).

local mt = require "mytensor"

-- The metatable in the registry that has this field and, if given, this name.
local function metatable(field, name)
  for _, v in pairs(debug.getregistry()) do
    if type(v) == "table" and rawget(v, field) and rawget(v, "__name") == name
      and not rawget(v, "__index") then
      return v
    end
  end
end

describe("found by fuzzing:", function()
  it("a hook that frees its tensor, which owns the list of hooks", function()
    local x = mt.ones({ 2 }, { requires_grad = true })
    local y = (x * 2):sum()
    local calls = 0
    x:register_hook(function() x:free() end)
    x:register_hook(function(d)
      calls = calls + 1
      return d * 2
    end)
    y:backward()
    assert.equal(1, calls)
  end)

  it("no_grad's guard closed by hand, or with another self", function()
    local close = 0
    for _, v in pairs(debug.getregistry()) do
      local f = type(v) == "table" and rawget(v, "__close")
      local name = f and rawget(v, "__name")
      if f and (not name or name:find "^mytensor") then -- other libraries do crash
        close = close + 1
        for _, self in ipairs { {}, io.stdout, 1, print } do pcall(f, self) end
        pcall(f)
      end
    end
    assert.is_true(close >= 2)
    assert.is_true(mt.is_grad_enabled())
  end)

  it("a suspended no_grad closed by its own function", function()
    local guard
    local co
    co = coroutine.create(function()
      mt.no_grad(function()
        for level = 0, 8 do
          for i = 1, 8 do
            local ok, _, value = pcall(debug.getlocal, co, level, i)
            if ok and type(value) == "userdata" then guard = value end
          end
        end
        coroutine.yield(1)
      end)
    end)
    coroutine.resume(co)
    local mtab = guard and debug.getmetatable(guard)
    if mtab and mtab.__close then pcall(mtab.__close, guard) end
    coroutine.resume(co)
    assert.is_true(mt.is_grad_enabled())
  end)

  it("a gunzip that is finalized with another self", function()
    local unpacker = metatable("__gc", "mytensor.unpacker")
    assert.is_table(unpacker)
    for _, self in ipairs { mt.ones(1), {}, io.stdout } do
      pcall(unpacker.__gc, self)
    end
  end)

  it("a hook's handle that is none", function()
    local x = mt.ones({ 1 }, { requires_grad = true })
    local handle = x:register_hook(print)
    local other = io.tmpfile()
    local before = debug.getmetatable(other)
    debug.setmetatable(other, debug.getmetatable(handle))
    assert.is_false((pcall(handle.remove, other)))
    assert.is_false((pcall(x.remove_hook, x, other)))
    debug.setmetatable(other, before)
    other:close()
    handle:remove()
  end)

  it("a Function's ctx with fields that are not its own", function()
    local values = { -5, 1 << 40, io.stdout, "x", mt.ones(1), { n = -3 }, {} }
    local function tamper(ctx, v)
      local keys = {}
      for k in next, ctx do
        if type(k) == "userdata" then keys[#keys + 1] = k end
      end
      for _, k in ipairs(keys) do
        if type(ctx[k]) == "table" then ctx[k].n = v else ctx[k] = v end
      end
    end
    for _, v in ipairs(values) do
      for _, where in ipairs { "forward", "backward" } do
        local F = mt.Function {
          forward = function(ctx, x)
            ctx:save(x)
            if where == "forward" then tamper(ctx, v) end
            return x * 2
          end,
          backward = function(ctx, g)
            if where == "backward" then tamper(ctx, v) end
            ctx:saved()
            return g
          end,
        }
        local x = mt.ones({ 2 }, { requires_grad = true })
        pcall(function() F(x):sum():backward() end)
      end
    end
  end)
end)
