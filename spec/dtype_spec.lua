-- spec/dtype_spec.lua: all ten dtypes store, convert and print; what their arithmetic
-- does at the edges.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"

local ALL = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }
local LIMITS = {
  int64 = { math.mininteger, math.maxinteger }, int32 = { -(1 << 31), (1 << 31) - 1 },
  int16 = { -32768, 32767 }, int8 = { -128, 127 }, uint8 = { 0, 255 },
}

describe("every dtype", function()
  it("stores, clones, copies, views, reads and prints", function()
    for _, dtype in ipairs(ALL) do
      local t = mt.tensor({ { 0, 1 }, { 1, 0 } }, { dtype = dtype })
      assert.equal(dtype, t:dtype())
      assert.same(t:totable(), t:clone():totable())
      assert.same({ t:totable()[1][2], t:totable()[2][2] }, t:select(2, 2):totable())
      assert.same(t:transpose(1, 2):totable(), t:transpose(1, 2):contiguous():totable())
      assert.is_string(tostring(t))
      assert.truthy(t:format():find(dtype, 1, true) or dtype == "float32", dtype)
      local u = mt.zeros({ 2, 2 }, { dtype = dtype })
      u:copy_(t)
      assert.is_true(u:equal(t))
      assert.equal(dtype, mt.cat({ t, u }, 1):dtype())
      assert.same({ 4, 2 }, mt.cat({ t, u }, 1):shape())
    end
  end)

  it("gives Lua values of its kind", function()
    for _, dtype in ipairs(ALL) do
      local v = mt.ones({ 1 }, { dtype = dtype }):item()
      if dtype == "bool" then
        assert.equal("boolean", type(v))
      else
        assert.equal(tensors.is_float(dtype) and "float" or "integer", math.type(v))
      end
    end
  end)

  it("has the size that its name says", function()
    local bytes = { float32 = 4, float64 = 8, float16 = 2, bfloat16 = 2, int64 = 8,
      int32 = 4, int16 = 2, int8 = 1, uint8 = 1, bool = 1 }
    for dtype, n in pairs(bytes) do
      assert.equal(n, mt.zeros({ 1 }, { dtype = dtype }):element_size(), dtype)
    end
  end)
end)

describe("integer arithmetic", function()
  it("wraps at the limits", function()
    for dtype, limit in pairs(LIMITS) do
      local top = mt.tensor({ limit[2] }, { dtype = dtype })
      assert.equal(limit[1], (top + 1):item(), dtype)
      local bottom = mt.tensor({ limit[1] }, { dtype = dtype })
      assert.equal(limit[2], (bottom - 1):item(), dtype)
    end
  end)

  it("divides to a float, floors towards minus infinity, and % follows", function()
    local a = mt.tensor({ 7, -7, 7, -7 }, { dtype = "int64" })
    local b = mt.tensor({ 2, 2, -2, -2 }, { dtype = "int64" })
    assert.same({ 3.5, -3.5, -3.5, 3.5 }, (a / b):totable())
    assert.equal("float32", (a / b):dtype())
    assert.same({ 3, -4, -4, 3 }, (a // b):totable())
    assert.equal("int64", (a // b):dtype())
    assert.same({ 1, 1, -1, -1 }, (a % b):totable())
    assert.same({ 1, -1, 1, -1 }, a:fmod(b):totable())
    local edge = mt.tensor({ math.mininteger }, { dtype = "int64" })
    assert.equal(math.mininteger, (edge // -1):item())
    assert.equal(0, (edge % -1):item())
    assert.equal(0, edge:fmod(-1):item())
  end)

  it("raises on a division by zero", function()
    local a = mt.tensor({ 1, 2 }, { dtype = "int64" })
    local zero = mt.tensor({ 1, 0 }, { dtype = "int64" })
    for name, f in pairs {
      ["//"] = function() return a // zero end, ["%"] = function() return a % zero end,
      floordiv = function() return a:floordiv(0) end,
      remainder = function() return a:remainder(0) end,
      fmod = function() return a:fmod(zero) end,
    } do
      local ok, err = pcall(f)
      assert.is_false(ok, name)
      assert.truthy(err:find "zero", err)
    end
  end)

  it("has the bit operators", function()
    local a = mt.tensor({ 12, 10 }, { dtype = "int32" })
    assert.same({ 8, 8 }, (a & mt.tensor({ 10, 12 }, { dtype = "int32" })):totable())
    assert.same({ 14, 11 }, (a | mt.tensor({ 2, 1 }, { dtype = "int32" })):totable())
    assert.same({ 13, 11 }, (a ~ 1):totable())
    assert.same({ -13, -11 }, (~a):totable())
    assert.same({ 24, 20 }, (a << 1):totable())
    assert.same({ 6, 5 }, (a >> 1):totable())
    local t = mt.tensor { true, false }
    assert.same({ false, true }, (~t):totable())
    assert.same({ true, true }, (t | ~t):totable())
    assert.is_false((pcall(function() return mt.ones(2) & 1 end)))
  end)
end)

describe("float16 and bfloat16", function()
  it("round to nearest, ties to even", function()
    -- 1 + 2^-11 lies halfway between 1 and the next float16
    local h = mt.tensor({ 1 + 2 ^ -11, 1 + 3 * 2 ^ -11, 65519, 65520, 1e-8, 2 ^ -24,
      2 ^ -25, 3 * 2 ^ -25, -0.0 }, { dtype = "float64" }):to "float16"
    assert.same({ 1, 1 + 2 ^ -9, 65504, math.huge, 0, 2 ^ -24, 0, 2 ^ -23, -0.0 },
      h:totable())
    local b = mt.tensor({ 1 + 2 ^ -8, 1 + 3 * 2 ^ -8, 3.4e38 }, { dtype = "float64" })
      :to "bfloat16"
    assert.same({ 1, 1 + 2 ^ -6, math.huge }, b:totable())
  end)

  it("round once, also from float64", function()
    -- through float32 the tie would be broken before the second rounding
    local x = 1 + 2 ^ -11 + 2 ^ -40
    local t = mt.tensor({ x }, { dtype = "float64" })
    assert.equal(1 + 2 ^ -10, t:to "float16":item())
  end)

  it("keep infinities, and NaN", function()
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local t = mt.tensor({ math.huge, -math.huge, 0 / 0 }):to(dtype):totable()
      assert.equal(math.huge, t[1])
      assert.equal(-math.huge, t[2])
      assert.is_true(t[3] ~= t[3])
    end
  end)

  it("give float32 exactly", function()
    local values = { 0.5, -2, 65504, 2 ^ -24 }
    assert.same(values, mt.tensor(values, { dtype = "float16" }):float():totable())
  end)
end)

describe("bool", function()
  it("is true for what is not zero", function()
    local t = mt.tensor({ 0, -0.0, 0.5, -1, 0 / 0 }):to "bool"
    assert.same({ false, false, true, true, true }, t:totable())
    assert.same({ 0, 0, 1, 1, 1 }, t:to "int32":totable())
  end)

  it("counts in sums and means", function()
    local t = mt.tensor { true, true, false, true }
    assert.equal(3, t:sum():item())
    assert.equal("int64", t:sum():dtype())
    assert.equal(0.75, t:float():mean():item())
    assert.is_true(t:any():item())
    assert.is_false(t:all():item())
  end)
end)
