-- spec/fuse_shapes_spec.lua: shapes of what fused operators give, and extreme rows.

local mt = require "mytensor"
local support = require "spec.support.fused"

for _, device in ipairs { "cpu", "cuda" } do
  local on_device = support.on(device, _ENV)
  local function double(shape) return support.double(device, shape) end

  describe("sums of squares", function()
    on_device("are right, whoever else needs the squares", function()
      local cases = {
        { "sum(square(x), -1, true)", function(x) return (x * x):sum(-1, true) end },
        { "x * sum(square(x), -1, true)",
          function(x) return x * (x * x):sum(-1, true) end },
        { "square(x) - mean(square(x), -1, true)",
          function(x) return x * x - (x * x):mean(-1, true) end },
        { "sum(square(x), -1, true) * amax(square(x - 1), -1, true)",
          function(x)
            return (x * x):sum(-1, true) * (x - 1):square():amax(-1, true)
          end },
        { "var(x, -1, 0, true) + square(mean(x, -1, true))",
          function(x) return x:var(-1, 0, true) + x:mean(-1, true):square() end },
      }
      for _, case in ipairs(cases) do
        local f = mt.fuse("x", case[1])
        -- short rows, one unit, a block, and rows that are cut
        for _, shape in ipairs { { 9, 5 }, { 3, 16 }, { 4, 1027 }, { 2, 1 << 18 } } do
          local x = double(shape)
          local want = case[2](x)
          assert.is_true(f(x):allclose(want, 1e-11), case[1])
          local y = f(x:float())
          assert.is_true(y:allclose(case[2](x:float():double()):float(), 1e-4, 1e-5),
            case[1] .. " in float32")
        end
      end
    end)
  end)

  describe("results of reductions and columns", function()
    local formula = "a:sum(-1, true) * c"
    local fused = mt.fuse("a, c", formula)
    local function plain(a, c) return a:sum(-1, true) * c end

    on_device("have the shape that the ops give", function()
      local cases = {
        { { 2, 5 }, { 2, 1 } }, { { 2, 5 }, { 1 } }, { { 2, 5 }, {} },
        { { 5 }, { 3, 1 } }, { { 2, 5 }, { 2, 5 } }, { { 3, 0 }, { 3, 1 } },
        { { 4, 1, 5 }, { 3, 1 } }, { { 5 }, {} },
      }
      for i, case in ipairs(cases) do
        local a, c = double(case[1]), double(case[2])
        local y, z = fused(a, c), plain(a, c)
        assert.same(z:shape(), y:shape(), "case " .. i)
        assert.is_true(y:allclose(z, 1e-12), "case " .. i)
      end
    end)

    on_device("have gradients of that shape", function()
      local a, c = double({ 3, 5 }):requires_grad_(), double({ 3, 1 }):requires_grad_()
      local dy = double({ 3, 1 })
      local got = mt.grad(fused(a, c), { a, c }, { grad_outputs = dy })
      local want = mt.grad(plain(a, c), { a, c }, { grad_outputs = dy })
      assert.is_true(got[1]:allclose(want[1]))
      assert.is_true(got[2]:allclose(want[2]))
      assert.is_true(mt.gradcheck(fused, { a, c }))
      assert.is_true(mt.gradgradcheck(fused, { a, c }))
    end)

    on_device("stand beside others", function()
      local both = mt.fuse("a, c", "a:amax(-1, true) - c, c - 1, a + c")
      local a, c = double({ 4, 7 }), double({ 4, 1 })
      local x, y, z = both(a, c)
      assert.same({ 4, 1 }, x:shape())
      assert.same({ 4, 1 }, y:shape())
      assert.same({ 4, 7 }, z:shape())
      assert.is_true(x:allclose(a:amax(-1, true) - c))
    end)
  end)

  describe("results of a choice by a number", function()
    on_device("have the shape that all arguments give", function()
      local choice = mt.fuse("a, b", "where(1, a, b), where(false, b * 2, a)")
      local a, b = double({ 3, 1 }):requires_grad_(), double({ 5 })
      for _, y in ipairs { choice(a, b) } do
        assert.same({ 3, 5 }, y:shape())
        assert.is_true(y:equal(a:expand(3, 5)))
        local dy = double({ 3, 5 })
        local dx = mt.grad(y, { a }, { grad_outputs = dy, retain_graph = true })[1]
        assert.is_true(dx:allclose(dy:sum(2, true)))
      end
      assert.same({ 2, 3, 5 }, (choice(double({ 5 }), double({ 2, 3, 1 }))):shape())
      local same = mt.fuse("c, a", "where(c, a, a)")
      assert.same({ 3, 5 }, same(a:gt(0), b):shape())
    end)

    on_device("are rows where what was not chosen has rows", function()
      local a, b = double({ 4, 7 }):requires_grad_(), double({ 4, 7 }):requires_grad_()
      local wide = mt.fuse("a, b", "where(1, sum(a, -1, true), b)")
      assert.is_true(wide(a, b):allclose(a:sum(-1, true):expand(4, 7)))
      local mean = mt.fuse("a, b", "where(0, b, sum(a, -1, true)):sum(-1)")
      local y = mean(a, b)
      assert.is_true(y:allclose(a:sum(-1) * 7))
      assert.is_true(mt.grad(y:sum(), { a })[1]:allclose(mt.full({ 4, 7 }, 7):to(a)))
      assert.is_true(mean(a, double({ 4, 1 })):allclose(a:sum(-1)))
    end)
  end)

  describe("fused softmax, log_softmax and logsumexp", function()
    local infinite = math.huge
    local rows = { { 1, infinite, 2 }, { -infinite, -infinite, -infinite },
      { 1, -infinite, 2 }, { 1, 0 / 0, 2 }, { infinite, infinite, 0 }, { 1, 2, 3 } }

    on_device("treat infinite elements as the ops do", function()
      local x = mt.tensor(rows):to(device)
      for _, name in ipairs { "softmax", "log_softmax" } do
        local y = mt.fuse("x", name .. "(x)")(x)
        assert.is_true(y:allclose(x[name](x, -1), 1e-5, 1e-6, true), name)
      end
    end)

    on_device("lose no digits where elements are large", function()
      local x = mt.tensor({ { 10000, 10000.5 }, { -30000, -30001 } }):to(device)
      local y = mt.fuse("x", "log_softmax(x)")(x)
      assert.is_true(y:allclose(x:log_softmax(-1), 1e-6))
    end)

    on_device("of rows without elements are what the ops give", function()
      local x = double({ 3, 0 }):requires_grad_()
      local y = mt.fuse("x", "logsumexp(x, -1) + 1")(x)
      assert.is_true(y:equal(x:logsumexp(-1) + 1))
      assert.same({ 3, 0 }, mt.grad(y:sum(), x)[1]:shape())
      assert.same({ 3, 0 }, mt.fuse("x", "softmax(x)")(x):shape())
    end)

    on_device("have gradients", function()
      local x = double({ 3, 6 }):requires_grad_()
      for _, name in ipairs { "softmax", "log_softmax" } do
        local fused = mt.fuse("x", name .. "(x)")
        assert.is_true(mt.gradcheck(fused, { x }), name)
        assert.is_true(mt.gradgradcheck(fused, { x }), name)
      end
    end)
  end)
end

describe("arguments of a fused reduction", function()
  it("say where a boolean stands too early", function()
    local ok, err = pcall(mt.fuse, "a", "std(a, -1, true)")
    assert.is_false(ok)
    assert.truthy(err:find("the correction, which comes before keepdim, must be a "
      .. "number at position 12", 1, true), err)
  end)
end)

describe("a traced value", function()
  local function message(fn)
    local ok, err = pcall(mt.fuse, fn) -- here, since the message names this file
    assert.is_false(ok)
    return err
  end

  it("tells of a tensor to its left, too", function()
    local x = mt.ones(2)
    local text = "fuse: a tensor that is no argument: give it to the function as one"
    assert.truthy(message(function(a) return a * x, 1 end):find(text, 1, true))
    assert.truthy(message(function(a) return x * a, 1 end):find(text, 1, true))
  end)

  it("goes through fused operators, whose formulas become part of this one", function()
    local swiglu = mt.fuse("a, b", "silu(a) * b")
    local f = mt.fuse(function(a) return swiglu(a, a) + 1 end)
    local x, w = mt.randn(4, 6):requires_grad_(), mt.randn(6):requires_grad_()
    assert.is_true(f(x):allclose(x:silu() * x + 1))
    local norm = mt.fuse("x, e", "m = mean(x, -1, true); x = x - m;\n"
      .. "v = (x * x):mean(-1, true); x * rsqrt(v + e), amax(x, -1, true) * 1e0;")
    local g = mt.fuse(function(e, t1)
      local y, most = norm(e, 1e-5)
      local z = norm(swiglu(-2, y) * t1, 0.5)
      return z, most + swiglu(true, t1), norm(e, 1)
    end)
    local function plain(a, b)
      local y, most = norm(a, 1e-5)
      local z = norm(swiglu(-2, y) * b, 0.5)
      return z, most + mt.tensor(1.0):silu() * b, norm(a, 1)
    end
    local ys, zs = { g(x, w) }, { plain(x, w) }
    assert.equal(4, #ys) -- the last call gives both of its results
    for i, y in ipairs(ys) do assert.is_true(y:allclose(zs[i], 1e-5, 1e-6), i) end
    local total = ys[1]:square():sum() + ys[2]:sum()
    local wanted = zs[1]:square():sum() + zs[2]:sum()
    local got, want = mt.grad(total, { x, w }), mt.grad(wanted, { x, w })
    for i = 1, 2 do assert.is_true(got[i]:allclose(want[i], 1e-4, 1e-5), i) end
  end)

  it("is an argument like others of a fused operator", function()
    local twice = mt.fuse("b", "b * 2", { name = "twice" })
    local x = mt.ones(2)
    for text, fn in pairs {
      ["twice: 1 argument expected (b), got 2"] = function(a) return twice(a, a) end,
      ["a tensor that is no argument"] = function(a)
        return mt.fuse("a, b", "a + b")(x, a)
      end,
      ["a string among the arguments"] = function(a)
        return mt.fuse("a, b", "a + b")(a, "x")
      end,
      ["'mean' of what was reduced already"] = function(a)
        return mt.fuse("a", "mean(a, -1)")(a:sum(-1, true))
      end,
    } do
      local err = message(fn)
      assert.truthy(err:find(text, 1, true), err)
    end
    local escaped
    mt.fuse(function(a) escaped = a return a + 1 end)
    local ok, err = pcall(twice, escaped)
    assert.is_false(ok)
    assert.truthy(err:find("outlived the traced function", 1, true), err)
  end)

  it("points at the user's line, also behind a tail call", function()
    for _, fn in ipairs {
      function(a) return a:add("x") end,
      function(a) return a:clamp { least = 0 } end,
      function(a) return a:add(nil) end,
    } do
      local err = message(fn)
      assert.truthy(err:find("^spec/") or err:find("^fuse:"), err)
    end
  end)
end)

describe("an operator with a tensor to its left", function()
  it("is the right operand's, where that is no tensor", function()
    local right = setmetatable({}, { __add = function(a, b)
      return mt.is_tensor(a) and type(b) == "table" and "mine"
    end })
    assert.equal("mine", mt.ones(2) + right)
    local ok, err = pcall(function() return mt.ones(2) - right end)
    assert.is_false(ok)
    local text = "'-' does not take a tensor of shape [2] and a table"
    assert.truthy(err:find(text, 1, true), err)
  end)
end)

it("names the option of mt.fuse that has a wrong type", function()
  local ok, err = pcall(mt.fuse, "a", "a", { name = 5 })
  assert.is_false(ok)
  assert.truthy(err:find("fuse: name: string expected, got integer", 1, true), err)
end)
