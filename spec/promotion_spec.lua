-- spec/promotion_spec.lua: which dtype a result has, and how shapes are broadcast.

local mt = require "mytensor"

-- PyTorch's table for two tensors with dims, upper triangle.
local ORDER = { "bool", "uint8", "int8", "int16", "int32", "int64", "float16",
  "bfloat16", "float32", "float64" }
local RANK = {}
for i, name in ipairs(ORDER) do RANK[name] = i end

local function promoted(a, b)
  if a == b then return a end
  if RANK[a] > RANK[b] then a, b = b, a end
  if a == "uint8" and b == "int8" then return "int16" end
  if a == "float16" and b == "bfloat16" then return "float32" end
  return b
end

local function ones(dtype, shape) return mt.ones(shape or { 2 }, { dtype = dtype }) end

describe("two tensors", function()
  it("promote as in PyTorch", function()
    for _, a in ipairs(ORDER) do
      for _, b in ipairs(ORDER) do
        local want = promoted(a, b)
        assert.equal(want, (ones(a) + ones(b)):dtype(), a .. " + " .. b)
      end
    end
  end)

  it("compare in the promoted dtype and give bool", function()
    local a = mt.tensor({ 1, 2 }, { dtype = "int64" })
    local b = mt.tensor({ 1.5, 2 })
    assert.equal("bool", a:lt(b):dtype())
    assert.same({ true, false }, a:lt(b):totable())
  end)

  it("without dims promote only across kinds", function()
    local x = ones "float32"
    assert.equal("float32", (x + mt.tensor(2, { dtype = "float64" })):dtype())
    assert.equal("float32", (x + mt.tensor(2, { dtype = "int64" })):dtype())
    local two = mt.tensor(2, { dtype = "float64" })
    assert.equal("float64", (ones "int64" + two):dtype())
    assert.equal("int32", (ones "int32" + mt.tensor(2, { dtype = "int64" })):dtype())
  end)
end)

describe("a Lua number", function()
  it("does not promote within its kind", function()
    assert.equal("float32", (ones "float32" + 1.5):dtype())
    assert.equal("float64", (1.5 * ones "float64"):dtype())
    assert.equal("int32", (ones "int32" + 1):dtype())
    assert.equal("uint8", (ones "uint8" * 2):dtype())
  end)

  it("of a higher kind gives the default float dtype", function()
    assert.equal("float32", (ones "int64" + 1.5):dtype())
    assert.equal("float32", (ones "bool" * 0.5):dtype())
    assert.equal("int64", (ones "bool" + 1):dtype())
  end)

  it("that is an integer may stand beside float tensors", function()
    assert.equal("float32", (ones "float32" + 1):dtype())
    assert.equal("float64", (3 - ones "float64"):dtype())
    assert.equal("float32", (ones "int64" / 2):dtype())
    assert.equal("float64", (ones "float64" / 2):dtype())
  end)

  it("stands on either side of every operator", function()
    local x = mt.tensor { 2, 4 }
    assert.same({ 3, 5 }, (1 + x):totable())
    assert.same({ -1, -3 }, (1 - x):totable())
    assert.same({ 6, 12 }, (3 * x):totable())
    assert.same({ 4, 2 }, (8 / x):totable())
    assert.same({ 4, 16 }, (2 ^ x):totable())
    assert.same({ 4, 16 }, (x ^ 2):totable())
    assert.same({ 3, 1 }, (7 // x):totable())
    assert.same({ 1, 3 }, (7 % x):totable())
    assert.same({ -2, -4 }, (-x):totable())
  end)

  it("keeps its digits in int64 and float64", function()
    local big = (1 << 53) + 1
    assert.equal(big + 1, (ones("int64", { 1 }) + big):item())
    assert.equal(0.1, (mt.zeros(1, { dtype = "float64" }) + 0.1):item())
  end)
end)

describe("float ops on integers", function()
  it("compute in the default float dtype", function()
    local x = mt.tensor({ 0, 1, 4 }, { dtype = "int64" })
    for _, name in ipairs { "exp", "sqrt", "sin", "sigmoid", "log1p" } do
      local y = x[name](x)
      assert.equal("float32", y:dtype(), name)
      assert.is_true(y:equal(x:float()[name](x:float())), name)
    end
    assert.equal("float32", mt.tensor({ true, false }):exp():dtype())
  end)
end)

describe("broadcasting", function()
  it("stretches dims of size 1 and adds leading ones", function()
    local a = mt.arange(1, 4):view(3, 1)
    local b = mt.arange(1, 5):view(1, 4)
    assert.same({ 3, 4 }, (a + b):shape())
    assert.same({ 2, 3, 4 }, (mt.zeros(2, 1, 4) + a):shape())
    assert.same({ 2, 3 }, (mt.zeros(2, 3) + mt.tensor(1)):shape())
    assert.same({ 0, 3 }, (mt.zeros(0, 3) + mt.zeros(1, 3)):shape())
    assert.same({ 0 }, (mt.zeros(1) + mt.zeros(0)):shape())
  end)

  it("names both shapes where they do not fit", function()
    for _, pair in ipairs { { { 2, 3 }, { 2, 4 } }, { { 2, 3 }, { 2 } },
      { { 0 }, { 2 } } } do
      local ok, err = pcall(function() return mt.zeros(pair[1]) + mt.zeros(pair[2]) end)
      assert.is_false(ok)
      for _, shape in ipairs(pair) do
        assert.truthy(err:find("[" .. table.concat(shape, ", ") .. "]", 1, true), err)
      end
    end
  end)
end)

describe("equality", function()
  it("== is identity, eq compares elements, equal whole tensors", function()
    local a, b = mt.ones(2), mt.ones(2)
    assert.is_false(a == b)
    assert.is_true(a == a)
    assert.same({ true, true }, a:eq(b):totable())
    assert.is_true(a:equal(b))
    assert.is_false(a:equal(mt.ones(3)))
    assert.is_false(a:equal(mt.tensor { 1, 2 }))
    local nan = mt.tensor { 0 / 0 }
    assert.is_false(nan:equal(nan))
  end)
end)

describe("a distance", function()
  it("has the dtype of the floats, and of integers does not wrap", function()
    local a = mt.tensor({ 1, 2, 3 }, { dtype = "uint8" })
    local b = mt.tensor({ 4, 2, 3 }, { dtype = "float16" })
    assert.equal("float16", a:dist(b):dtype())
    assert.equal(3, a:dist(b:byte()):item())
    assert.equal("float32", a:dist(b:byte()):dtype())
    assert.equal(1, mt.dist(a:gt(1), b:lt(3)):item())
  end)
end)
