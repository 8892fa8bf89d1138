-- spec/lua/gradcheck_spec.lua: gradcheck accepts what is right and finds what is wrong.

local mt = require "mytensor"

setup(function() mt.manual_seed(31) end)

-- f(x) computed rightly, with a gradient computed by `backward(dy, x)`.
local function with_gradient(forward, backward)
  local custom = mt.Function("custom", {
    forward = function(ctx, x)
      ctx:save(x)
      return forward(x)
    end,
    backward = function(ctx, dy) return backward(dy, ctx:saved()) end,
  })
  return function(x) return custom(x) end
end

describe("gradcheck", function()
  it("accepts right gradients of several inputs and outputs", function()
    assert.is_true(mt.gradcheck(function(a, b) return a * b:exp(), (a + b):sin() end,
                                { mt.randn(2, 3), mt.randn { 3 } }))
    assert.is_true(mt.gradcheck(function(a) return a:square() end, mt.randn { 4 }))
    assert.is_true(mt.gradcheck(function(a, b) return a:matmul(b) end,
                                { mt.randn(2, 3), mt.randn(3, 4) }))
  end)

  it("passes what isn't a float tensor on, and skips such outputs", function()
    local index = mt.tensor({ 2, 1, 2 }, { dtype = "int64" })
    assert.is_true(mt.gradcheck(function(x, dim, i)
      assert.equal("int64", i:dtype())
      return x:index_select(dim, i), x:argmax()
    end, { mt.randn(3, 2), 1, index }))
  end)

  it("checks only inputs that require grad, if some do", function()
    local seen = {}
    assert.is_true(mt.gradcheck(function(a, b)
      seen[1], seen[2] = seen[1] or a.requires_grad, seen[2] or b.requires_grad
      return a * b
    end, { mt.randn { 2 }, mt.randn({ 2 }, { requires_grad = true }) }))
    assert.same({ false, true }, seen)
  end)

  it("accepts inputs that nothing depends on, empty ones, and 0-dim ones", function()
    assert.is_true(mt.gradcheck(function(a) return a * 2 end,
                                { mt.randn { 2 }, mt.randn { 2 } }))
    assert.is_true(mt.gradcheck(function(a, b) return a:sum() + b:sum() end,
                                { mt.randn { 2 }, mt.zeros(0, 3) }))
    assert.is_true(mt.gradcheck(function(a) return a:exp() end, { mt.tensor(0.5) }))
    assert.is_true(mt.gradcheck(function(a) return a:exp() end, { mt.zeros { 0 } }))
  end)

  it("compares weighted sums when the Jacobian is large", function()
    assert.is_true(mt.gradcheck(function(a) return a:tanh() end, mt.randn(8, 9),
                                { max_full = 10 }))
  end)

  it("leaves the random state as it was", function()
    mt.manual_seed(9)
    local expected = mt.rand { 2 }:totable()
    mt.manual_seed(9)
    mt.gradcheck(function(a) return a:exp() end, mt.ones { 2 })
    assert.same(expected, mt.rand { 2 }:totable())
  end)

  describe("finds", function()
    local function wrong(fn, inputs, options)
      options = options or {}
      options.raise = false
      local ok, message = mt.gradcheck(fn, inputs, options)
      assert.is_false(ok)
      assert.truthy(message:find("^gradcheck: "), message)
      return message
    end

    it("a wrong factor, and says where", function()
      local fn = with_gradient(function(x) return x * x end,
                               function(dy, x) return dy * x end)
      local message = wrong(fn, mt.tensor { 1, 2 })
      assert.truthy(message:find("output 1, output element 1 by element 1 of input 1: 1"
                                 .. " by autograd, ", 1, true), message)
      assert.truthy(message:find("(2 of 4 entries differ)", 1, true), message)
      message = wrong(fn, mt.tensor { 1, 2 }, { max_full = 1 })
      assert.truthy(message:find("weighted sum of the output by element 1 of input 1",
                                 1, true), message)
    end)

    it("a single wrong element among many", function()
      local mask = mt.ones { 30 }
      mask[17] = 1.01
      local fn = with_gradient(function(x) return x * 3 end,
                               function(dy) return dy * 3 * mask:to(dy:dtype()) end)
      assert.truthy(wrong(fn, mt.randn { 30 })
        :find("(1 of 900 entries differ)", 1, true))
      assert.truthy(wrong(fn, mt.randn { 30 }, { max_full = 0 })
        :find("(1 of 30 entries differ)", 1, true))
    end)

    it("a gradient that is NaN", function()
      local fn = with_gradient(function(x) return x * 1 end,
                               function(dy) return dy * (0 / 0) end)
      wrong(fn, mt.randn { 2 })
    end)

    it("a gradient that is lost", function()
      assert.truthy(wrong(function(x) return x:detach() * 2 end, mt.randn { 2 })
        :find("no output depends on the inputs by a gradient", 1, true))
      wrong(function(x) return x * x:detach() end, mt.randn { 2 })
    end)

    it("a function that gives something else the second time", function()
      assert.truthy(wrong(function(x) return x * mt.rand { 2 } end, mt.randn { 2 })
        :find("output 1 differs when computed twice", 1, true))
    end)

    it("a function without a float result", function()
      assert.truthy(wrong(function(x) return x:argmax() end, mt.randn { 2 })
        :find("the function gave no float tensor", 1, true))
    end)
  end)

  it("raises by default, at the caller's line", function()
    local fn = with_gradient(function(x) return x * x end,
                             function(dy, x) return dy * x end)
    local ok, message = pcall(function() mt.gradcheck(fn, mt.tensor { 1, 2 }) end)
    assert.is_false(ok)
    assert.truthy(message:find("gradcheck_spec.lua:%d+: gradcheck: output 1"), message)
  end)

  it("lets errors of the function through", function()
    local ok, message = pcall(mt.gradcheck, function() error "mine" end, mt.ones { 1 })
    assert.is_false(ok)
    assert.truthy(message:find("mine", 1, true))
  end)

  it("checks its arguments", function()
    local ok, message = pcall(mt.gradcheck, function(x) return x end, { 3 })
    assert.is_false(ok)
    assert.truthy(message:find("bad argument #2 to 'gradcheck' (no float tensor among"
                               .. " the inputs)", 1, true), message)
    ok, message = pcall(mt.gradcheck, nil, {})
    assert.is_false(ok)
    assert.truthy(message:find("bad argument #1 to 'gradcheck' (function expected, got"
                               .. " nil)", 1, true), message)
  end)
end)

describe("gradgradcheck", function()
  it("accepts right second derivatives", function()
    assert.is_true(mt.gradgradcheck(function(a, b) return a * b:exp() end,
                                    { mt.randn(2, 2), mt.randn { 2 } }))
    assert.is_true(mt.gradgradcheck(function(a)
      return a:sigmoid(), a:square():sum()
    end, mt.randn { 3 }))
    assert.is_true(mt.gradgradcheck(function(x, w)
      return mt.conv2d(x, w, nil, { padding = 1 })
    end, { mt.randn { 1, 2, 3, 3 }, mt.randn { 2, 2, 3, 3 } }))
  end)

  it("accepts functions whose gradient doesn't depend on the input", function()
    assert.is_true(mt.gradgradcheck(function(a) return a * 3 end, mt.randn { 3 }))
  end)

  it("finds a gradient that is right but has a wrong gradient itself", function()
    -- d(x^3)/dx = 3 x^2 is right; detached, it has no derivative by x.
    local fn = with_gradient(function(x) return x * x * x end,
                             function(dy, x) return dy * (x * x * 3):detach() end)
    assert.is_true(mt.gradcheck(fn, mt.tensor { 1, 2 }))
    local ok, message = mt.gradgradcheck(fn, mt.tensor { 1, 2 }, { raise = false })
    assert.is_false(ok)
    assert.truthy(message:find("^gradgradcheck: output 1, "), message)
  end)
end)
