-- spec/function_spec.lua: mt.Function, forward and backward written in Lua.

local mt = require "mytensor"
local shell = require "spec.support.shell"
local expect = require "spec.support.expect"

local function leaf(values)
  return mt.tensor(values, { dtype = "float64", requires_grad = true })
end

local fails = expect.says

local function cube()
  return mt.Function("Cube", {
    forward = function(ctx, x)
      ctx:save(x)
      return x * x * x
    end,
    backward = function(ctx, g)
      local x = ctx:saved()
      return g * x * x * 3
    end,
  })
end

describe("mt.Function", function()
  it("runs forward unrecorded, and backward in the walk", function()
    local x = leaf { 2, 3 }
    local y = cube()(x * 1)
    assert.same({ 8, 27 }, y:totable())
    assert.is_true(y.requires_grad)
    y:sum():backward()
    assert.same({ 12, 27 }, x.grad:totable())
  end)

  it("is differentiated again", function()
    local x = leaf { 0.5, -1.5 }
    local f = cube()
    assert.is_true(mt.gradcheck(function(a) return f(a) end, { x }))
    assert.is_true(mt.gradgradcheck(function(a) return f(a) end, { x }))
    assert.is_true(mt.gradcheck(f, { x })) -- as it is
    assert.is_true(mt.gradgradcheck(f, { x }))
    fails("bad argument #1 to 'gradcheck' (function expected, got table)", mt.gradcheck,
          {}, { x })
  end)

  it("knows the fields of its definition", function()
    local function same(_, x) return x * 1 end
    fails("bad argument #1 to 'Function' (unknown field 'once_diferentiable' (known: "
      .. "forward, backward, once_differentiable, name))", mt.Function,
      { forward = same, backward = same, once_diferentiable = true })
    fails("unknown field '1'", mt.Function, "f",
      { forward = same, backward = same, same })
  end)

  it("says that a gradient was freed", function()
    local f = mt.Function("freeing", {
      forward = function(_, x) return x * 1 end,
      backward = function(_, g) g = g * 1; g:free(); return g end,
    })
    local y = f(leaf { 1 }):sum()
    fails("freeing: backward's gradient 1 is a freed tensor", y.backward, y)
  end)

  it("takes several tensors and values, and gives several tensors", function()
    local Both = mt.Function("Both", {
      forward = function(ctx, a, b, k)
        ctx.k = k
        return a * k, b + a
      end,
      backward = function(ctx, ga, gb) return ga * ctx.k + gb, gb end,
    })
    local a, b = leaf { 1, 2 }, leaf { 3, 4 }
    local p, q = Both(a, b, 5)
    assert.same({ 5, 10 }, p:totable())
    assert.same({ 4, 6 }, q:totable());
    (p * 2 + q):sum():backward()
    assert.same({ 11, 11 }, a.grad:totable())
    assert.same({ 1, 1 }, b.grad:totable())
  end)

  it("leaves recording as it was when forward fails, in a coroutine, too", function()
    local object = {}
    for _, fail in ipairs { function() error(object) end, coroutine.yield } do
      local F = mt.Function { forward = fail, backward = print }
      assert.is_false((pcall(F, leaf { 1 })))
      assert.is_true(mt.is_grad_enabled())
      local co = coroutine.create(function() F(leaf { 1 }) end)
      local ok, err = coroutine.resume(co)
      assert.is_false(ok)
      if fail ~= coroutine.yield then assert.equal(object, err) end
      assert.is_true(mt.is_grad_enabled())
    end
  end)

  it("says that forward has freed what is needed", function()
    local function backward(_, g) return g end
    local F = mt.Function("F", { backward = backward, forward = function(ctx, x)
      mt.scope(function() ctx:save(nil, x * 2) end)
      return x * 1
    end })
    fails("F: what ctx:save got as 2 is a freed tensor", F, leaf { 1 })
    F = mt.Function("F", { backward = backward, forward = function(_, x, y)
      local z = x + y
      y:free()
      return z
    end })
    fails("F: argument 2 was freed", F, leaf { 1 }, leaf { 2 } * 1)
  end)

  it("passes errors of backward on", function()
    local Bad = mt.Function("Bad", {
      forward = function(_, x) return x * 1 end,
      backward = function() error("in backward", 0) end,
    })
    local x = leaf { 1 }
    local ok, err = pcall(function() Bad(x):backward() end)
    assert.is_false(ok)
    assert.truthy(tostring(err):find "in backward", err)
  end)

  it("says when backward gives the wrong thing", function()
    local x = leaf { 1, 2 }
    for _, bad in ipairs {
      function() return mt.ones(3, { dtype = "float64" }) end,
      function() return 5 end,
    } do
      local F = mt.Function("Shapely", {
        forward = function(_, a) return a * 1 end, backward = bad,
      })
      local ok, err = pcall(function() F(x):sum():backward() end)
      assert.is_false(ok)
      assert.truthy(tostring(err):find "Shapely", tostring(err))
    end
  end)

  it("keeps and frees what it saved", function()
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    do
      local x = leaf { 1, 2 }
      assert.is_true(cube()(x).requires_grad)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before, mt.memory_stats().live_tensors)
  end)

  it("saves its own result without a cycle, and differentiates it again", function()
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    do
      local Exp = mt.Function("Exp", {
        forward = function(ctx, x)
          local y = x:exp()
          ctx:save(y)
          return y
        end,
        backward = function(ctx, g) return g * ctx:saved() end,
      })
      local x = leaf { 0.5, -1 }
      assert.is_true(mt.gradgradcheck(function(a) return Exp(a) end, { x }))
      Exp(x) -- and never walked back
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before, mt.memory_stats().live_tensors)
  end)

  it("saves an argument that it returns as the argument", function()
    local Same = mt.Function("Same", {
      forward = function(ctx, x)
        ctx:save(x)
        return x
      end,
      backward = function(ctx, g) return g * ctx:saved() end,
    })
    local x = leaf { 3 }
    local dx = mt.grad(Same(x), x, { create_graph = true })[1]
    assert.same({ 3 }, dx:totable())
    assert.same({ 1 }, mt.grad(dx, x)[1]:totable())
  end)

  it("may walk its own graph in backward, which is let go once", function()
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    local function walk(inner)
      local x, y, depth = leaf { 2 }, nil, 0
      local Again = mt.Function("Again", {
        forward = function(ctx, a)
          ctx:save(a, a * 1)
          return a * a
        end,
        backward = function(ctx, g)
          local a = ctx:saved()
          depth = depth + 1
          if depth < 3 then y:backward(nil, { retain_graph = inner }) end
          return g * a * 2
        end,
      })
      y = Again(x)
      local ok, err = pcall(y.backward, y)
      return ok, err, x.grad:totable()
    end
    assert.same({ true, nil, { 12 } }, { walk(true) })
    local ok, err, grad = walk(false)
    assert.is_false(ok)
    assert.truthy(err:find("Again: the graph was released", 1, true), err)
    assert.same({ 4 }, grad) -- of the innermost walk
    collectgarbage()
    collectgarbage()
    assert.equal(before, mt.memory_stats().live_tensors)
  end)

  it("lends backward what it saved", function()
    local kept
    local Lent = mt.Function("Lent", {
      forward = function(ctx, a)
        kept = ctx
        ctx:save(a * 2)
        return a * a
      end,
      backward = function(ctx, g)
        local double = ctx:saved()
        local gradient = g * double
        assert.is_false(double.requires_grad)
        double:requires_grad_()
        double:free()
        return gradient
      end,
    })
    local x = leaf { 3 }
    local y = Lent(x)
    y:backward(nil, { retain_graph = true })
    y:backward()
    assert.same({ 12 }, x.grad:totable())
    fails("saved: the graph was released", kept.saved, kept)
  end)

  it("says which arguments want a gradient, and may return one of them", function()
    local needs
    local Same = mt.Function {
      forward = function(ctx, a)
        needs = ctx.needs_input_grad
        return a
      end,
      backward = function(_, g) return g * 2 end,
    }
    local a = leaf { 1, 2 }
    local y = Same(a, mt.ones(2), "text")
    assert.same({ true, false, false }, needs)
    y:sum():backward()
    assert.same({ 2, 2 }, a.grad:totable())
    assert.is_true(a:is_leaf())
    Same(a:detach())
    assert.same({ false }, needs)
    mt.no_grad(function() Same(a) end)
    assert.same({ false }, needs)
  end)

  it("checks how many gradients come, and for what", function()
    local gradients
    local Two = mt.Function("Two", {
      forward = function(_, a, _, b) return a * b end,
      backward = function(_, g) return gradients(g) end,
    })
    local a, b = leaf { 1, 2 }, leaf { 3, 4 }
    local function walk(fn)
      gradients = fn
      Two(a, "text", b):sum():backward()
    end
    fails("Two: backward gave 1 gradients, argument 3 of forward wants one", walk,
          function(g) return g end)
    fails("Two: backward gave 4 gradients for 3 arguments", walk,
          function(g) return g, nil, g, g end)
    fails("Two: backward gave a gradient for argument 2, which is no tensor", walk,
          function(g) return g, g, g end)
    fails("Two: the gradient of input 3 has shape [1], the input [2]", walk,
          function(g) return g, nil, g:sum():reshape(1) end)
    fails("Two: backward's gradient 1 is a string", walk,
          function(g) return "g", nil, g end)
    walk(function(g) return nil, nil, g end) -- none for a
    assert.is_nil(a.grad)
    assert.same({ 1, 1 }, b.grad:totable())
    walk(function(g) return g:float(), nil, g, nil end) -- more nil; another dtype
    assert.equal("float64", a.grad:dtype())
  end)

  it("gives results without a gradient", function()
    local seen
    local Reversed = mt.Function("Reversed", {
      forward = function(ctx, x)
        local order = mt.tensor({ 3, 2, 1 }, { dtype = "int64" })
        local rank = order:to "float64"
        ctx:mark_non_differentiable(rank)
        ctx:save(order)
        return x:index_select(1, order), rank, order
      end,
      backward = function(ctx, g, ...)
        seen = table.pack(...)
        return g:index_select(1, ctx:saved())
      end,
    })
    local x = leaf { 3, 1, 2 }
    local values, rank, order = Reversed(x)
    assert.is_true(values.requires_grad)
    assert.is_false(rank.requires_grad)
    assert.same({ 3, 2, 1 }, order:totable());
    (values * mt.tensor({ 10, 20, 30 }, { dtype = "float64" })):sum():backward()
    assert.same({ 30, 20, 10 }, x.grad:totable())
    assert.same({ n = 2 }, seen)
  end)

  it("gives zeros, or nil, for results that nothing came of", function()
    local nils, got
    local Pair = mt.Function("Pair", {
      forward = function(ctx, x)
        if nils then ctx.materialize_grads = false end
        return x * 2, x * 3
      end,
      backward = function(_, a, b)
        got = { a, b }
        return b * 3
      end,
    })
    local x = leaf { 1, 2 }
    select(2, Pair(x)):sum():backward()
    assert.same({ 0, 0 }, got[1]:totable())
    nils = true
    select(2, Pair(x)):sum():backward()
    assert.is_nil(got[1])
    assert.same({ 6, 6 }, x.grad:totable())
  end)

  describe("changes arguments in place", function()
    local Double = mt.Function("Double", {
      forward = function(ctx, x)
        ctx:mark_dirty(x)
        return x:mul_(2)
      end,
      backward = function(_, g) return g * 2 end,
    })

    it("that it marks, and returns them with their new history", function()
      local x = leaf { 1, 2 }
      local y = x * 3
      local view = y[1]
      local z = Double(y)
      assert.is_true(rawequal(y, z))
      assert.same({ 6, 12 }, y:totable());
      (view + y:sum()):backward() -- a view made before follows
      assert.same({ 12, 6 }, x.grad:totable())
    end)

    it("also views", function()
      local x = leaf { 1, 2, 3 }
      local y = x * 1
      Double(y:narrow(1, 2, 2))
      assert.same({ 1, 4, 6 }, y:totable())
      y:sum():backward()
      assert.same({ 1, 2, 2 }, x.grad:totable())
    end)

    it("of a tensor that takes no part, which does then", function()
      local Add = mt.Function("Add", {
        forward = function(ctx, to, x)
          ctx:mark_dirty(to)
          to:add_(x)
          return to
        end,
        backward = function(_, g) return g, g end,
      })
      local to, x = mt.ones({ 2 }, { dtype = "float64" }), leaf { 5, 6 }
      Add(to, x):pow(2):sum():backward()
      assert.same({ 12, 14 }, x.grad:totable())
      assert.is_true(to.requires_grad)
    end)

    it("but no leaf, and nothing that others need", function()
      fails("Double: argument 1: a leaf that requires grad cannot be changed", Double,
            leaf { 1 })
      local x = leaf { 1, 2 }
      local y = x * 1
      local z = y * y
      Double(y)
      fails("changed in place", function() z:sum():backward() end)
    end)

    it("only if it says so and returns them", function()
      local Silent = mt.Function("Silent", {
        forward = function(_, x) return x:mul_(2) end,
        backward = function(_, g) return g * 2 end,
      })
      local Forgetful = mt.Function("Forgetful", {
        forward = function(ctx, x)
          ctx:mark_dirty(x)
          return x * 2
        end,
        backward = function(_, g) return g * 2 end,
      })
      fails("Silent: forward changed argument 1 in place, without ctx:mark_dirty",
            Silent, leaf { 1 } * 1)
      fails("Forgetful: argument 1 is marked dirty, and forward did not return it",
            Forgetful, leaf { 1 } * 1)
      assert.same({ 2 }, Silent(mt.ones(1)):totable()) -- nothing is recorded
    end)
  end)

  it("may be declared to be differentiable once", function()
    local Once = mt.Function("Once", {
      once_differentiable = true,
      forward = function(ctx, x)
        ctx:save(x)
        return x ^ 3
      end,
      backward = function(ctx, g)
        assert(not mt.is_grad_enabled())
        return g * ctx:saved() ^ 2 * 3
      end,
    })
    local x = leaf { 1, 2 }
    Once(x):sum():backward()
    assert.same({ 3, 12 }, x.grad:totable())
    local dx = mt.grad(Once(x):sum(), x, { create_graph = true })[1]
    assert.same({ 3, 12 }, dx:totable())
    assert.is_true(dx.requires_grad)
    fails("Once: its gradient is not differentiable (it is declared "
            .. "once_differentiable)", mt.grad, dx:sum(), x)
    assert.is_true(mt.gradcheck(Once, { x }))
    fails("once_differentiable", mt.gradgradcheck, Once, { x })
  end)

  it("is shown by an example", function()
    local r = shell.run(shell.lua .. " examples/custom_function.lua")
    assert.equal(0, r.code, r.err)
    assert.truthy(r.out:find("softplus\t0.0 0.31326168751822", 1, true), r.out)
    assert.truthy(r.out:find("checked\ttrue\ttrue", 1, true), r.out)
  end)

  it("marks and saves in forward alone", function()
    local F
    local function with(backward)
      F = mt.Function("F", {
        forward = function(ctx, x)
          ctx:save(x)
          return x * 1
        end,
        backward = backward,
      })
      F(leaf { 1 }):backward()
    end
    for _, name in ipairs { "save", "mark_dirty", "mark_non_differentiable" } do
      fails(name .. ": only forward can call it", with,
            function(ctx, g) ctx[name](ctx, g) end)
    end
    fails("bad argument #1 to 'mark_dirty' (", mt.Function("G", {
      forward = function(ctx) ctx:mark_dirty(5) end,
      backward = function() end,
    }))
  end)

  it("is walked once, as other ops are", function()
    local y = cube()(leaf { 1 })
    y:backward()
    local ok, err = pcall(y.backward, y)
    assert.is_false(ok)
    assert.truthy(err:find("Cube: the graph was released", 1, true), err)
  end)
end)
