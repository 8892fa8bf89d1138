-- spec/convert_spec.lua: from each dtype to each, to Lua and back.

local mt = require "mytensor"

local INTS = { int64 = { math.mininteger, math.maxinteger },
  int32 = { -(1 << 31), (1 << 31) - 1 }, int16 = { -32768, 32767 },
  int8 = { -128, 127 },
  uint8 = { 0, 255 } }
local ALL = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }

describe("to", function()
  it("converts small whole numbers between any two dtypes", function()
    for _, from in ipairs(ALL) do
      for _, to in ipairs(ALL) do
        local x = mt.tensor({ 0, 1, 2, 100 }, { dtype = from }):to(to)
        assert.equal(to, x:dtype())
        local bool = from == "bool" or to == "bool"
        local want = bool and { 0, 1, 1, 1 } or { 0, 1, 2, 100 }
        assert.same(want, x:to "int64":totable(), from .. " to " .. to)
      end
    end
  end)

  it("truncates and saturates from float to integer, and NaN gives 0", function()
    for dtype, limit in pairs(INTS) do
      for _, from in ipairs { "float32", "float64" } do
        local x = mt.tensor({ 2.9, -2.9, 1e30, -1e30, math.huge, -math.huge, 0 / 0 },
          { dtype = from }):to(dtype)
        local low = math.max(limit[1], -2)
        assert.same({ 2, low, limit[2], limit[1], limit[2], limit[1], 0 }, x:totable(),
          from .. " to " .. dtype)
      end
    end
  end)

  it("wraps from integer to a shorter integer", function()
    local x = mt.tensor({ 255, 256, -1, 128 }, { dtype = "int64" })
    assert.same({ 255, 0, 255, 128 }, x:to "uint8":totable())
    assert.same({ -1, 0, -1, -128 }, x:to "int8":totable())
  end)

  it("does the same on views", function()
    local x = mt.tensor { { 1.5, 300 }, { -7.5, 0 / 0 } }
    assert.same({ { 1, 0 }, { 255, 0 } }, x:transpose(1, 2):to "uint8":totable())
  end)

  it("gives the tensor itself where nothing changes", function()
    local x = mt.ones(2)
    assert.is_true(rawequal(x, x:to "float32") or x:to "float32":equal(x))
    x:to "float32"[1] = 5
    assert.equal(5, x[1]:item())
  end)

  it("takes a dtype, a device or both", function()
    local x = mt.ones(2)
    assert.equal("float64", x:to "float64":dtype())
    assert.equal("cpu", x:to "cpu":device())
    local y = x:to { dtype = "int32", device = "cpu" }
    assert.equal("int32", y:dtype())
    assert.is_false((pcall(x.to, x, "float31")))
  end)

  it("has short names", function()
    local x = mt.ones(2)
    for name, dtype in pairs { float = "float32", double = "float64", half = "float16",
      bfloat16 = "bfloat16", long = "int64", int = "int32", short = "int16",
      char = "int8", byte = "uint8", bool = "bool" } do
      assert.equal(dtype, x[name](x):dtype(), name)
    end
  end)

  it("carries gradients between float dtypes", function()
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    x:double():mul(mt.tensor({ 3, 4 }, { dtype = "float64" })):sum():backward()
    assert.equal("float32", x.grad:dtype())
    assert.same({ 3, 4 }, x.grad:totable())
  end)

  it("carries gradients through a copy that is not waited for, also twice", function()
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    local opts = { dtype = "float64", non_blocking = true }
    local function cubes() return x:to(opts):pow(3):sum() end
    cubes():backward()
    assert.equal("float32", x.grad:dtype())
    assert.same({ 3, 12 }, x.grad:totable())
    local dx = mt.grad(cubes(), x, { create_graph = true })[1]
    assert.same({ 6, 12 }, mt.grad(dx:sum(), x)[1]:totable())
    assert.is_false(mt.no_grad(x.to, x, opts).requires_grad)
    assert.is_false(x:to("int64", { non_blocking = true }).requires_grad)
  end)
end)

describe("cpu and gpu", function()
  it("give the tensor there, or nil and the reason", function()
    local x = mt.ones(2)
    assert.equal("cpu", x:cpu():device())
    if mt.cuda.is_available() then
      assert.equal("cuda:0", x:gpu():device())
    else
      local g, reason = x:gpu()
      assert.is_nil(g)
      assert.is_string(reason)
      local ok, err = mt.cuda.is_available()
      assert.is_false(ok)
      assert.is_string(err)
    end
  end)

  it("raises in constructors and in to when there is no GPU", function()
    if mt.cuda.is_available() then pending "there is a GPU" end
    assert.is_false((pcall(mt.zeros, { 2 }, { device = "cuda" })))
    assert.is_false((pcall(function() return mt.ones(2):to "cuda" end)))
  end)
end)

describe("item", function()
  it("gives the only element of any shape", function()
    assert.equal(3, mt.full({ 1, 1, 1 }, 3):item())
    assert.equal("integer", math.type(mt.tensor({ 3 }, { dtype = "uint8" }):item()))
    assert.equal("float", math.type(mt.tensor({ 3 }):item()))
    assert.equal(true, mt.tensor({ true }):item())
  end)

  it("says how many elements there are instead of one", function()
    local ok, err = pcall(function() return mt.zeros(2, 3):item() end)
    assert.is_false(ok)
    assert.truthy(err:find("[2, 3]", 1, true) or err:find("6", 1, true), err)
    assert.is_false((pcall(function() return mt.zeros(0):item() end)))
  end)
end)

describe("totable", function()
  it("and tensor are each other's inverse", function()
    mt.manual_seed(1)
    for _, shape in ipairs { { 1 }, { 5 }, { 2, 3 }, { 2, 3, 4 }, { 1, 2, 1, 2 } } do
      local x = mt.randn(shape)
      local back = mt.tensor(x:totable())
      assert.is_true(back:equal(x))
      local y = mt.randint(-100, 100, shape)
      assert.is_true(mt.tensor(y:totable(), { dtype = "int64" }):equal(y))
    end
  end)

  it("gives a Lua value for a 0-dim tensor", function()
    assert.equal(2.5, mt.tensor(2.5):totable())
  end)

  it("keeps empty dims as far as tables can", function()
    assert.same({}, mt.zeros(0, 3):totable())
    assert.same({ {}, {} }, mt.zeros(2, 0):totable())
  end)

  it("follows views", function()
    local x = mt.arange(1, 7):view(2, 3)
    assert.same({ { 1, 4 }, { 2, 5 }, { 3, 6 } }, x:transpose(1, 2):totable())
    assert.same({ 2, 2, 2 }, x[{ 1, 2 }]:expand(3):totable())
  end)
end)
