-- spec/support/hostile.lua: what no honest script does, for spec/fuzz_spec.lua: scenes
-- that call metamethods by hand, swap metatables, raise in finalizers, hooks and
-- modules, yield where they may not, free what is in use.

local mt = require "mytensor"

local random = math.random

-- g: pick, tensor (a fresh one), pooled (one that other calls use), argument, apply
-- (calls a random public function).
return function(g)
  local pick = g.pick
  local scenes = {}
  local function scene(name, f) scenes[#scenes + 1] = { name = name, f = f } end

  -- A leaf and something made of it.
  local function graph()
    local x = mt.randn({ random(3), random(3) }, { requires_grad = true })
    local y = x * 2
    for _ = 1, random(3) do
      y = pick { function() return y:tanh() end, function() return y + x end,
        function() return y:t():contiguous():t() end,
        function() return y:narrow(1, 1, 1) * 3 end }()
    end
    return x, y
  end

  local function arguments(n)
    local list = { n = n or random(0, 4) }
    for i = 1, list.n do list[i] = g.argument() end
    return list
  end
  local function call(f, list) return pcall(f, table.unpack(list, 1, list.n)) end

  -- Every metatable of ours: Tensor's, and those that the registry holds.
  local function metatables()
    local list, seen = {}, {}
    for _, v in pairs(debug.getregistry()) do
      local ours = type(v) == "table" and (rawget(v, "__gc") or rawget(v, "__close")
        or rawget(v, "__index") or rawget(v, "__call"))
      local name = ours and rawget(v, "__name")
      if ours and not seen[v] and (not name or tostring(name):find "^mytensor") then
        seen[v] = true
        list[#list + 1] = v
      end
    end
    return list
  end
  local tables = metatables()
  assert(#tables >= 4, "the metatables are not found")

  -- Values of every kind of userdata of ours.
  local function object()
    local x, y = graph()
    return pick {
      function() return x end, function() return y end,
      function() return x:register_hook(function() end) end,
      function() return mt.randn(0, 3) end,
      function() return io.stdout end, function() return {} end,
      function() return coroutine.create(function() end) end,
      function() local t = mt.ones(2); t:free(); return t end,
      function()
        return mt.Function { forward = function(_, a) return a end,
          backward = function(_, d) return d end }
      end,
    }()
  end

  local function methods_of(t)
    local names = {}
    for k, v in pairs(t) do if type(v) == "function" then names[#names + 1] = k end end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    return names
  end

  scene("metamethods by hand", function()
    local t = pick(tables)
    local names = methods_of(t)
    if #names == 0 then return end
    local list = arguments()
    if random(3) > 1 then
      list[1] = object()
      list.n = math.max(list.n, 1)
    end
    call(t[pick(names)], list)
  end)

  scene("foreign self", function()
    local method = mt.Tensor[pick(methods_of(mt.Tensor))]
    if method == mt.Tensor.show then return end
    local list = arguments(random(1, 3))
    list[1] = object()
    call(method, list)
  end)

  scene("debug.setmetatable", function()
    local value = object()
    if value == io.stdout then return end
    local before = debug.getmetatable(value)
    local other = pick { pick(tables), {}, { __gc = error, __index = error } }
    local ok = pcall(debug.setmetatable, value, other)
    if not ok then return end
    pcall(function() return value + 1 end)
    pcall(function() return value.grad end)
    pcall(function() return #value, value[1] end)
    pcall(function() return value(1) end)
    pcall(tostring, value)
    pcall(mt.is_tensor, value)
    pcall(mt.ones(2).add, mt.ones(2), value)
    pcall(function() local _ <close> = value end)
    debug.setmetatable(value, before) -- or the tensor would never be finalized
  end)

  scene("metatable of a number", function()
    local kind = pick { 1, "x", true, print }
    local before = debug.getmetatable(kind)
    debug.setmetatable(kind, debug.getmetatable(mt.ones(1)))
    pcall(function() return kind + mt.ones(1) end)
    pcall(function() return kind[1], kind.grad end)
    pcall(function() kind.grad = 1 end)
    pcall(function() return #kind, -kind, kind() end)
    pcall(tostring, kind)
    debug.setmetatable(kind, before)
  end)

  scene("finalizers that raise", function()
    for _ = 1, 3 do
      local x, y = graph()
      local t = { x, y }
      t.self = t
      setmetatable(t, { __gc = function(self)
        pick { function() error "in a finalizer" end,
          function() self[2]:sum():backward() end,
          function() self[1]:free() end,
          function() g.apply() end,
          function() mt.no_grad(error, {}) end,
          function() setmetatable(self, getmetatable(self)) end,
          function() mt.empty_cache() end,
          function() mt.scope(function() error(self[1] + 1) end) end }()
      end })
    end
    pick { function() collectgarbage() end, function() collectgarbage "step" end,
      function() for _ = 1, 20 do mt.zeros(20000) end end }()
  end)

  scene("coroutines that yield", function()
    local inside = pick { mt.no_grad, mt.enable_grad, mt.scope, mt.detect_anomaly,
      pcall }
    local function body(...)
      local x = mt.ones({ 2 }, { requires_grad = true })
      for i = 1, random(3) do
        inside(function(a)
          local y = (a or x) * 2
          coroutine.yield(y)
          if random(3) == 1 then inside(coroutine.yield, i) end
          if random(4) == 1 then error "within" end
          return y
        end, ...)
      end
      return x
    end
    local threads = { coroutine.create(body), coroutine.create(body) }
    for _ = 1, random(6) do
      local co = pick(threads)
      local ok, v = coroutine.resume(co, g.pooled())
      if ok and mt.is_tensor(v) then pcall(function() return v:sum():item() end) end
      if random(5) == 1 then coroutine.close(co) end
      if random(5) == 1 then collectgarbage "step" end
    end
  end)

  scene("yields where there is no way back", function()
    local x, y = graph()
    local yielding = pick {
      function() x:register_hook(coroutine.yield); y:sum():backward() end,
      function() return mt.ones(2):map_(coroutine.yield) end,
      function() table.sort({ x, y, x }, coroutine.yield) end,
      function() mt.scope(coroutine.yield) end,
    }
    local co = coroutine.create(yielding)
    coroutine.resume(co)
    coroutine.resume(co)
    if random(2) == 1 then coroutine.close(co) end
  end)

  scene("hooks that raise, free and walk", function()
    local x, y = graph()
    local what = pick {
      function() error "in a hook" end, function() error(nil) end,
      function() error(mt.ones(1)) end, function() x:free() end,
      function(d) d:free() end, function() y:free() end,
      function() return mt.ones(random(3)) end, function() return 1 end,
      function() return {} end,
      function() y:sum():backward() end, -- the walk within the walk
      function() mt.grad({ y:sum() }, { x }) end,
      function(d) d:fill_(1 / 0) end, function() collectgarbage() end,
      function(d) return d:to "float64" end, function(d) return d:expand(2, -1, -1) end,
      function() mt.set_grad_enabled(random(2) == 1) end,
      function(d) x.grad = d; return d end, function() g.apply() end,
    }
    local ok, handle = pcall(function() return pick { x, y }:register_hook(what) end)
    pcall(function() y:sum():backward({ retain_graph = random(2) == 1 }) end)
    pcall(function() y:sum():backward() end)
    if ok then pcall(handle.remove, handle) end -- a hook that holds its tensor keeps it
    mt.set_grad_enabled(true)
  end)

  scene("Functions that break their promise", function()
    local holder
    local results = {
      function(_, a) return a end, function(_, a) return a * 2, a end,
      function() return nil end, function() return 1, "x" end,
      function() error "forward" end, function(_, a) a:free() return mt.ones(2) end,
      function(ctx, a) ctx:save(a, nil, a) return a + 1 end,
      function(ctx, a) ctx:save() ctx:save(g.argument()) return a * a end,
      function(ctx, a)
        holder, ctx.a = ctx, a
        ctx:save(a)
        return a:narrow(1, 1, 1)
      end,
      function(_, a) return a:add_(1) end, function(_, a) return a:long() end,
      function(ctx) return ctx end, function(_, a) return a, a, a, a end,
    }
    local gradients = {
      function(_, d) return d end, function() return nil end, function() return 1 end,
      function() error "backward" end, function(_, d) return d, d, d, d, d end,
      function(ctx, d) local a = ctx:saved() return a and a * d or d end,
      function(ctx) ctx:save(mt.ones(1)) end, function(_, d) return d:long() end,
      function(_, d) return d:unsqueeze(1) end, function(_, d) d:free() return d end,
      function(ctx) return ctx.a end, function() collectgarbage() end,
      function(_, d) return d:sum() end, function() return mt.ones(9, 9) end,
      function() return g.argument() end,
    }
    local F = mt.Function(pick { "F", "%s", "" }, { forward = pick(results),
      backward = pick(gradients) })
    local x, y = graph()
    pcall(function()
      local out = table.pack(F(pick { x, y }, pick { y, 1, nil, g.argument() }))
      local again = random(2) == 1
      for i = 1, out.n do
        if mt.is_tensor(out[i]) then
          pcall(function()
            local d = mt.grad({ out[i]:sum() }, { x }, { create_graph = again,
              retain_graph = true, allow_unused = true })
            if again then d[1]:sum():backward() end
          end)
          pcall(function() out[i]:sum():backward() end)
        end
      end
    end)
    if holder then holder.a = nil end -- a field that holds a result would keep it
  end)

  scene("modules that break their promise", function()
    local Broken = mt.class and mt.class("Broken", mt.nn.Module) or nil
    local made = pcall(function()
      local model = mt.nn.Sequential(mt.nn.Linear(3, 2), mt.nn.ReLU())
      pick { function() model[1].weight = nil end,
        function() model[2] = g.argument() end,
        function() model[1].weight:free() end, function() model.forward = error end,
        function() model[1].bias = mt.ones(random(4)) end,
        function() model:to(pick { "float16", "int64", "nowhere", 1 }) end,
        function() model:load_state_dict(g.argument()) end,
        function() model[1].forward = function() return g.argument() end end,
        function() model.x = model end,
        function() setmetatable(model, nil) end }()
      local optimiser = mt.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
      local y = model(mt.randn(2, 3))
      y:sum():backward()
      if random(3) == 1 then model[1].weight.grad = nil end
      if random(3) == 1 then model[1].weight:free() end
      optimiser:step()
      optimiser:zero_grad()
      model:state_dict()
    end)
    return made, Broken
  end)

  scene("scopes", function()
    local kept = {}
    pcall(mt.scope, function()
      local x, y = graph()
      kept[1] = mt.keep(pick { x, y, { x, y }, g.argument() })
      pcall(mt.scope, function()
        kept[2] = y * 2
        if random(3) == 1 then error(kept[2]) end
        return pick { y, { y, { x } }, kept }
      end)
      if random(3) == 1 then y:sum():backward() end
      return kept
    end)
    pcall(function() return kept[2] + 1 end)
    pcall(function() return kept[1]:sum() end)
  end)

  scene("writing to what is shared", function()
    local base = mt.randn(random(3), random(3) + 1)
    if random(2) == 1 then base:requires_grad_() base = base * 1 end
    local views = { base, base:t(), base:narrow(2, 1, base:size(2) - 1),
      base:narrow(2, 2, base:size(2) - 1), base:select(1, 1), base:flatten(),
      base:unsqueeze(1):expand(3, -1, -1), base:unfold(2, 2, 1), base[{ {}, { 1, 2 } }],
      base:detach() }
    for _ = 1, 4 do
      local a, b = pick(views), pick(views)
      pcall(pick {
        function() a:copy_(b) end, function() a:add_(b) end, function() a:mul_(a) end,
        function() a[1] = b end, function() a[b:gt(0)] = a:sum() end,
        function() a:index_copy_(1, mt.tensor { 1, 1 }, b) end,
        function() a:masked_fill_(b:lt(0), 1) end, function() a:fill_(b:sum()) end,
        function() a:scatter_add_(1, mt.ones(a:shape()):long(), b) end,
        function() mt.cat({ a, b, a }) end, function() a:sub_(b:t()) end,
        function() a:sum():backward() end, function() a:free() end,
      })
    end
  end)

  scene("the collector's modes", function()
    pick { function() collectgarbage "generational" end,
      function() collectgarbage "incremental" end,
      function() collectgarbage "stop" end, function() collectgarbage "restart" end,
      function() collectgarbage("step", random(1000)) end }()
    for _ = 1, 3 do g.apply() end
    collectgarbage "restart"
  end)

  scene("bytes from anywhere", function()
    local function text()
      local t = {}
      for i = 1, random(0, 30) do
        t[i] = pick { string.char(random(0, 255)), "{", "}", '"', "[", "]", ":", ",",
          "\\u00", "1e9", "null", "\31\139\8\0", "-", "true", "\0" }
      end
      return table.concat(t)
    end
    pcall(mt._json_decode, text())
    pcall(mt._gunzip, text(), random(2) == 1 and random(0, 1000) or nil)
    pcall(mt._from_bytes, text(), g.argument(), g.argument(), true, random(-1, 40))
    pcall(mt._to_bytes, g.argument())
  end)

  return scenes
end
