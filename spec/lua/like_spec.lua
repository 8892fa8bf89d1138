-- spec/lua/like_spec.lua: what dtypes hold and give; new tensors like a given one.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

local says = expect.says
local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }

describe("limits of dtypes", function()
  it("of floats are those at which their numbers change", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      local f = mt.finfo(dtype)
      local function stored(x) return mt.tensor(x, { dtype = dtype }):item() end
      assert.equal(f.max, stored(f.max))
      assert.equal(f.min, stored(-f.max))
      assert.equal(f.tiny, stored(f.tiny))
      assert.is_true(stored(1 + f.eps) == 1 + f.eps and stored(1 + f.eps / 2) == 1)
      local one = mt.tensor(1, { dtype = dtype })
      assert.equal(1 + f.eps, one:nextafter(2 * one):item())
      local most = mt.tensor(f.max, { dtype = dtype })
      assert.equal(math.huge, most:nextafter(most * 2):item())
      assert.equal(mt.tensor(0, { dtype = dtype }):element_size() * 8, f.bits)
    end
    assert.equal("float32", mt.finfo().dtype)
    says("'finfo' (a float dtype expected, got int8)", mt.finfo, "int8")
    says("'finfo' (unknown dtype 'nothing')", mt.finfo, "nothing")
  end)

  it("of integers are those that mt.tensor takes", function()
    for _, dtype in ipairs { "int64", "int32", "int16", "int8", "uint8" } do
      local i = mt.iinfo(dtype)
      assert.equal(i.max, mt.tensor(i.max, { dtype = dtype }):item())
      assert.equal(i.min, mt.tensor(i.min, { dtype = dtype }):item())
      if dtype ~= "int64" then
        expect.message(mt.tensor, i.max + 1, { dtype = dtype })
        expect.message(mt.tensor, i.min - 1, { dtype = dtype })
      end
    end
    says("'iinfo' (an integer dtype expected, got bool)", mt.iinfo, mt.tensor { true })
  end)

  it("of two are promoted as by an op", function()
    for _, a in ipairs(DTYPES) do
      for _, b in ipairs(DTYPES) do
        local y = mt.zeros({ 1 }, { dtype = a }):eq(0):to(a)
        local sum = mt.where(mt.tensor { true }, y, mt.zeros({ 1 }, { dtype = b }))
        assert.equal(sum:dtype(), mt.promote_types(a, b))
      end
    end
    local i = mt.tensor({ 1 }, { dtype = "int8" })
    assert.equal("int8", mt.result_type(i, 3))
    assert.equal("float32", mt.result_type(i, 1.5))
    assert.equal("int8", mt.result_type(i, mt.tensor(3, { dtype = "int64" })))
    assert.equal("float64", mt.result_type(1, mt.zeros({}, { dtype = "float64" })))
    says("'result_type' (a tensor expected among the two)", mt.result_type, 1, 2)
  end)
end)

local function on(device)
  describe("on " .. device, function()
    it("new_zeros and its kin take over dtype and device", function()
      local x = mt.zeros({ 2 }, { dtype = "int16", device = device })
      for name, want in pairs { new_zeros = 0, new_ones = 1 } do
        for _, y in ipairs { x[name](x, 2, 3), x[name](x, { 2, 3 }) } do
          assert.same({ "int16", { 2, 3 }, x:device() },
            { y:dtype(), y:shape(), y:device() })
          assert.equal(6, y:eq(want):sum():item())
        end
      end
      assert.same({ 4 }, x:new_empty(4):shape())
      assert.same({}, x:new_zeros({}):shape())
      assert.same({}, x:new_zeros():shape())
      assert.same({ 7, 7 }, x:new_full({ 2 }, 7):totable())
      assert.same({ { 1 }, { 2 } }, x:new_tensor({ { 1 }, { 2 } }):totable())
      assert.equal("float64", x:new_ones(2, { dtype = "float64" }):dtype())
      assert.is_true(x:new_ones({ 2 }, { dtype = "float64", requires_grad = true })
        .requires_grad)
    end)

    it("type_as converts and moves", function()
      local x = mt.zeros({ 2 }, { dtype = "int16", device = device })
      local y = mt.tensor { 1.5, -2 }:type_as(x)
      assert.same({ "int16", x:device() }, { y:dtype(), y:device() })
      assert.same({ 1, -2 }, y:totable())
    end)

    it("fill_diagonal_ fills what has all positions alike", function()
      local x = mt.zeros({ 2, 3 }, { device = device })
      assert.is_true(rawequal(x, x:fill_diagonal_(5)))
      assert.same({ { 5, 0, 0 }, { 0, 5, 0 } }, x:totable())
      x = mt.zeros({ 7, 3 }, { device = device })
      assert.same({ { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 }, { 0, 0, 0 }, { 0, 0, 0 },
        { 0, 0, 0 }, { 0, 0, 0 } }, x:clone():fill_diagonal_(1):totable())
      assert.same({ { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 }, { 0, 0, 0 }, { 1, 0, 0 },
        { 0, 1, 0 }, { 0, 0, 1 } }, x:fill_diagonal_(1, true):totable())
      x = mt.zeros({ 3, 3, 3 }, { device = device }):fill_diagonal_(2)
      assert.equal(6, x:sum():item())
      for i = 1, 3 do assert.equal(2, x[{ i, i, i }]:item()) end
      local leaf = mt.ones({ 2, 2 }, { device = device, requires_grad = true })
      local y = leaf * 3
      y:fill_diagonal_(0)
      y:sum():backward()
      assert.same({ { 0, 3 }, { 3, 0 } }, leaf.grad:totable())
    end)
  end)
end

devices.each(_ENV, on)

describe("wrong arguments", function()
  it("are named", function()
    says("'fill_diagonal_' (two dims or more expected, got shape [2])",
      mt.fill_diagonal_, mt.zeros(2), 1)
    says("'fill_diagonal_' (dims of one size expected, got shape [2, 3, 2])",
      mt.fill_diagonal_, mt.zeros(2, 3, 2), 1)
    says("'fill_diagonal_' (number expected, got string)", mt.fill_diagonal_,
      mt.zeros(2, 2), "1")
    says("'new_zeros' (size must be an integer, got 1.5)", mt.new_zeros, mt.zeros(2),
      1.5)
    says("'type_as' (tensor expected, got string)", mt.type_as, mt.zeros(2), "int64")
  end)
end)
