-- spec/function_spec.lua: mt.Function, forward and backward written in Lua.

local mt = require "mytensor"

local function leaf(values)
  return mt.tensor(values, { dtype = "float64", requires_grad = true })
end

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
  end)

  it("is walked once, as other ops are", function()
    local y = cube()(leaf { 1 })
    y:backward()
    local ok, err = pcall(y.backward, y)
    assert.is_false(ok)
    assert.truthy(err:find("Cube: the graph was released", 1, true), err)
  end)
end)
