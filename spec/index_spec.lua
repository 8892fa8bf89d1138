-- spec/index_spec.lua: reading and assigning by index, range, mask and index tensor.

local mt = require "mytensor"
local expect = require "spec.support.expect"

local function matrix() return mt.arange(1, 13):view(3, 4):clone() end

local message = expect.message

local function ints(t) return mt.tensor(t, { dtype = "int64" }) end

describe("reading", function()
  it("by number gives the slice, also one element as a tensor", function()
    local x = matrix()
    assert.same({ 5, 6, 7, 8 }, x[2]:totable())
    assert.same({ 9, 10, 11, 12 }, x[-1]:totable())
    local e = x[2][3]
    assert.same({}, e:shape())
    assert.equal(7, e:item())
  end)

  it("by a table takes numbers, ranges and whole dims", function()
    local x = matrix()
    assert.equal(7, x[{ 2, 3 }]:item())
    assert.same({ 3, 7, 11 }, x[{ {}, 3 }]:totable())
    assert.same({ { 2, 3 }, { 6, 7 } }, x[{ { 1, 2 }, { 2, 3 } }]:totable())
    assert.same({ { 11, 12 } }, x[{ { -1, -1 }, { -2, -1 } }]:totable())
    assert.same({ { 5, 6, 7, 8 }, { 9, 10, 11, 12 } }, x[{ { 2, 3 } }]:totable())
    assert.same({ 4 }, x[{ { 1, 1 }, {} }]:select(1, 1):shape())
    assert.same({ 3, 4 }, x[{}]:shape())
  end)

  it("by '...' for the dims that are left", function()
    local x = mt.arange(24):view(2, 3, 4)
    assert.same(x:select(3, 1):totable(), x[{ "...", 1 }]:totable())
    assert.same(x:select(1, 2):totable(), x[{ 2, "..." }]:totable())
    assert.same({ 3, 7, 11 }, x[{ 1, "...", -1 }]:totable())
    assert.same(x:totable(), x[{ "..." }]:totable())
    assert.same({ 6 }, x[{ { 1, 1 }, 2, "...", 3 }]:totable())
    local mask = x[1]:gt(9)
    assert.same({ { 10, 11 }, { 22, 23 } }, x[{ "...", mask }]:totable())
    assert.same({ 3 }, mt.tensor(3)[{ "..." }]:view(1):totable())
    x[{ "...", 1 }] = 0
    assert.equal(0, x:select(3, 1):sum():item())
  end)

  it("by the positions that where gives", function()
    local x = matrix()
    local at = mt.where(x:gt(10))
    assert.same({ 3, 3 }, at[1]:totable())
    assert.same({ 3, 4 }, at[2]:totable())
    assert.same({ 11, 12 }, x[at]:totable())
    assert.same({ 1, 3 }, mt.tensor { 2, 0, 1 }:where()[1]:totable())
    expect.says("calling 'where' on bad self (a tensor with dims expected)",
      function() mt.tensor(true):where() end)
    assert.same({ 0 }, mt.where(x:gt(99))[2]:shape())
    x[mt.where(x:gt(10))] = 0
    assert.equal(10, x:max():item())
  end)

  it("by a range with a step", function()
    assert.same({ 1, 3, 5 }, mt.arange(1, 7)[{ { 1, 6, 2 } }]:totable())
    assert.same({ 2, 5 }, mt.arange(1, 7)[{ { 2, 6, 3 } }]:totable())
  end)

  it("by a range with a negative step is a copy, turned round", function()
    local x = mt.arange(1, 7)
    assert.same({ 6, 5, 4, 3, 2, 1 }, x[{ { -1, 1, -1 } }]:totable())
    assert.same({ 5, 3 }, x[{ { 5, 2, -2 } }]:totable())
    assert.same({ 0 }, x[{ { 2, 3, -1 } }]:shape())
    local y = x[{ { 3, 1, -1 } }]
    y:fill_(0)
    assert.same({ 1, 2, 3, 4, 5, 6 }, x:totable())
    y = matrix()[{ { 3, 2, -1 }, { 2, 1, -1 } }]
    assert.same({ { 10, 9 }, { 6, 5 } }, y:totable())
  end)

  it("by several index tensors pairs their positions", function()
    local x = matrix()
    assert.same({ 2, 8, 12 }, x[{ ints { 1, 2, 3 }, ints { 2, 4, -1 } }]:totable())
    assert.same({ { 2, 4 }, { 10, 12 } },
      x[{ ints { { 1 }, { 3 } }, ints { 2, 4 } }]:totable())
    local rows = mt.tensor { true, false, true }
    assert.same({ 3, 12 }, x[{ rows, ints { 3, 4 } }]:totable())
  end)

  it("puts dims of index tensors where they stood, or, apart, in front", function()
    local x, i = mt.zeros(2, 3, 4, 5), ints { 1, 2, 1, 2, 1, 2, 1 }
    assert.same({ 2, 7, 5 }, x[{ {}, i, i }]:shape())
    assert.same({ 7, 2, 4 }, x[{ {}, i, {}, i }]:shape())
    assert.same({ 2, 7 }, x[{ {}, i, 2, i }]:shape())
  end)

  it("by an empty range gives nothing", function()
    assert.same({ 0, 4 }, matrix()[{ { 2, 1 } }]:shape())
  end)

  it("by a mask gives the elements where it is true", function()
    local x = matrix()
    assert.same({ 6, 7, 8, 9, 10, 11, 12 }, x[x:gt(5)]:totable())
    assert.same({ 0 }, x[x:gt(50)]:shape())
    local rows = mt.tensor { true, false, true }
    assert.same({ { 1, 2, 3, 4 }, { 9, 10, 11, 12 } }, x[rows]:totable())
  end)

  it("by an index tensor selects along the first dim", function()
    local x = matrix()
    assert.same({ { 9, 10, 11, 12 }, { 1, 2, 3, 4 }, { 9, 10, 11, 12 } },
      x[ints { 3, 1, -1 }]:totable())
    assert.same({ 2, 2, 4 }, x[ints { { 1, 2 }, { 3, 1 } }]:shape())
  end)

  it("by what argmax gives", function()
    local x = mt.tensor { 3, 9, 4 }
    assert.equal(9, x[x:argmax():item()]:item())
    assert.equal(9, x[x:argmax()]:item())
  end)

  it("combines index tensors with ranges", function()
    local x = matrix()
    assert.same({ { 3, 1 }, { 7, 5 } }, x[{ { 1, 2 }, ints { 3, 1 } }]:totable())
  end)

  it("out of range says the index and the size", function()
    local x = matrix()
    for _, bad in ipairs { 4, 0, -4 } do
      local err = message(function() return x[bad] end)
      assert.truthy(err:find(tostring(bad), 1, true) and err:find("3", 1, true), err)
    end
    message(function() return x[{ 1, 5 }] end)
    message(function() return x[{ 1, 1, 1 }] end)
    message(function() return x[{ { 0, 2 } }] end)
    message(function() return x[{ { 1, 4 } }] end)
    message(function() return x[{ { 1, 2, 0 } }] end)
    message(function() return x[1.5] end)
    message(function() return x[mt.tensor { true, false }] end)
    message(function() return x[ints { 4 }] end)
    message(function() return mt.tensor(1)[1] end)
  end)

  it("by an unknown name gives nil as other Lua values would, or an error", function()
    local x = matrix()
    local ok, value = pcall(function() return x.no_such_method end)
    assert.is_true(not ok or value == nil)
  end)
end)

describe("assigning", function()
  it("a number fills", function()
    local x = matrix()
    x[{ {}, 2 }] = 0
    x[1] = -1
    assert.same({ { -1, -1, -1, -1 }, { 5, 0, 7, 8 }, { 9, 0, 11, 12 } }, x:totable())
    x[{ 3, 4 }] = 5
    assert.equal(5, x[3][4]:item())
  end)

  it("a tensor is copied, broadcast and converted", function()
    local x = matrix()
    x[2] = mt.tensor({ 1, 2, 3, 4 }, { dtype = "int64" })
    x[{ { 1, 3, 2 } }] = mt.tensor { { 0 }, { 9 } }
    assert.same({ { 0, 0, 0, 0 }, { 1, 2, 3, 4 }, { 9, 9, 9, 9 } }, x:totable())
  end)

  it("through a mask", function()
    local x = matrix()
    x[x:gt(5)] = 0
    assert.same({ { 1, 2, 3, 4 }, { 5, 0, 0, 0 }, { 0, 0, 0, 0 } }, x:totable())
    x[x:eq(0)] = mt.arange(1, 8)
    assert.same({ { 1, 2, 3, 4 }, { 5, 1, 2, 3 }, { 4, 5, 6, 7 } }, x:totable())
  end)

  it("through an index tensor", function()
    local x = matrix()
    x[ints { 3, 1 }] = mt.tensor { { 1, 1, 1, 1 }, { 2, 2, 2, 2 } }
    assert.same({ { 2, 2, 2, 2 }, { 5, 6, 7, 8 }, { 1, 1, 1, 1 } }, x:totable())
    x[ints { 2, -1 }] = 0
    assert.equal(8, x:sum():item())
  end)

  it("a table of numbers is a tensor", function()
    local x = matrix()
    local ok = pcall(function() x[1] = { 0, 0, 0, 0 } end)
    if ok then assert.same({ 0, 0, 0, 0 }, x[1]:totable()) end
  end)

  it("from a part of itself", function()
    local x = mt.arange(1, 6):clone()
    x[{ { 2, 5 } }] = x[{ { 1, 4 } }]
    assert.same({ 1, 1, 2, 3, 4 }, x:totable())
    x = mt.arange(1, 6):clone()
    x[{ { 1, 4 } }] = x[{ { 2, 5 } }]
    assert.same({ 2, 3, 4, 5, 5 }, x:totable())
  end)

  it("what does not fit names both shapes", function()
    local x = matrix()
    local err = message(function() x[1] = mt.zeros(3) end)
    assert.truthy(err:find("[3]", 1, true) and err:find("[4]", 1, true), err)
    message(function() x[5] = 0 end)
    message(function() x[1] = "a" end)
    message(function() x[1] = nil end)
    message(function() x.colour = 1 end)
    message(function() x.shape = 1 end)
    assert.equal(78, x:sum():item())
  end)

  it("is recorded", function()
    local x = mt.ones({ 3 }, { requires_grad = true })
    local y = x * 2
    y[2] = 5
    local v = mt.tensor({ 7 }, { requires_grad = true })
    y[{ { 3, 3 } }] = v;
    (y * mt.tensor { 1, 10, 100 }):sum():backward()
    assert.same({ 2, 0, 0 }, x.grad:totable())
    assert.same({ 100 }, v.grad:totable())
  end)
end)

describe("the gradient of reading", function()
  it("adds up where an element was read twice", function()
    local x = mt.arange(1, 5):requires_grad_()
    local y = x[ints { 2, 2, 4 }]:sum() + x[2]
    y = y + x[{ { 1, 2 } }]:sum() + x[x:gt(3)]:sum()
    y:backward()
    assert.same({ 1, 4, 0, 2 }, x.grad:totable())
  end)
end)

describe("index_put", function()
  it("writes like an assignment, to a copy or in place", function()
    local x = matrix()
    local y = x:index_put({ ints { 1, 3 }, ints { 2, 4 } }, -1)
    assert.equal(2, x[{ 1, 2 }]:item())
    assert.same({ 1, -1, 3, 4 }, y[1]:totable())
    assert.same({ 9, 10, 11, -1 }, y[3]:totable())
    assert.is_true(rawequal(x, x:index_put_(1, 0)))
    assert.same({ 0, 0, 0, 0 }, x[1]:totable())
  end)

  it("adds as often as a place is named", function()
    local x = mt.zeros(2, 3)
    local at = { ints { 1, 1, 2 }, ints { 3, 3, 1 } }
    x:index_put_(at, mt.tensor { 1, 10, 100 }, true)
    assert.same({ { 0, 0, 11 }, { 100, 0, 0 } }, x:totable())
    x:index_put_({ {}, 2 }, 5, true)
    assert.same({ { 0, 5, 11 }, { 100, 5, 0 } }, x:totable())
    x:index_put_(x:gt(6), 1, true)
    assert.same({ { 0, 5, 12 }, { 101, 5, 0 } }, x:totable())
  end)

  it("has gradients to what was there and to what is added", function()
    local opts = { dtype = "float64" }
    local x = mt.rand({ 2, 3 }, opts):requires_grad_()
    local v = mt.rand({ 4 }, opts):requires_grad_()
    local at = { ints { 1, 1, 2, 2 }, ints { 3, 3, 1, 2 } }
    assert.is_true(mt.gradcheck(function(a, b)
      return (a * a):index_put(at, b * b, true)
    end, { x, v }))
    assert.is_true(mt.gradgradcheck(function(a, b)
      return (a * a):index_put(at, b * b, true)
    end, { x, v }))
  end)
end)
