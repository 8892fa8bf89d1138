-- spec/fuse_shapes_spec.lua: shapes of what fused operators give, and extreme rows.

local mt = require "mytensor"
local devices = require "spec.support.devices"

for _, device in ipairs { "cpu", "cuda" } do
  local function on_device(name, fn)
    it(name .. " on " .. device, function()
      if device == "cuda" and not devices.cuda then
        return devices.without_cuda(pending)
      end
      fn()
    end)
  end

  local function double(shape)
    return mt.randn(shape, { dtype = "float64" }):to(device)
  end

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
    local ok, err = pcall(mt.fuse, fn)
    assert.is_false(ok)
    return err
  end

  it("tells of a tensor to its left, too", function()
    local x = mt.ones(2)
    local text = "fuse: a tensor that is no argument: give it to the function as one"
    assert.truthy(message(function(a) return a * x, 1 end):find(text, 1, true))
    assert.truthy(message(function(a) return x * a, 1 end):find(text, 1, true))
  end)

  it("is called what it is", function()
    local twice = mt.fuse("b", "b * 2")
    local err = message(function(a) return twice(a), 1 end)
    local text = "tensor or number expected for 'b', got fused value"
    assert.truthy(err:find(text, 1, true), err)
  end)

  it("points at the user's line, also behind a tail call", function()
    for _, fn in ipairs {
      function(a) return a:add("x") end,
      function(a) return a:clamp { min = 0 } end,
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
