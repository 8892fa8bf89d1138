-- spec/construct_spec.lua: making tensors, and what cannot be made.

local mt = require "mytensor"
local expect = require "spec.support.expect"

local message = expect.message

local says = expect.says

describe("mt.tensor", function()
  it("takes nested tables", function()
    local t = mt.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.same({ 2, 3 }, t:shape())
    assert.equal("float32", t:dtype())
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t:totable())
  end)

  it("takes one number as a 0-dim tensor", function()
    local t = mt.tensor(2.5)
    assert.same({}, t:shape())
    assert.equal(0, t:dim())
    assert.equal(1, t:numel())
    assert.equal(2.5, t:item())
  end)

  it("makes float32 of integers and bool of booleans", function()
    assert.equal("float32", mt.tensor({ 1, 2 }):dtype())
    local b = mt.tensor { true, false }
    assert.equal("bool", b:dtype())
    assert.same({ true, false }, b:totable())
  end)

  it("takes an empty table as a tensor without elements", function()
    assert.same({ 0 }, mt.tensor({}):shape())
    assert.same({ 2, 0 }, mt.tensor({ {}, {} }):shape())
  end)

  it("takes dtype and requires_grad", function()
    local t = mt.tensor({ 1, 2 }, { dtype = "int64" })
    assert.equal("int64", t:dtype())
    assert.equal(math.type(t:totable()[1]), "integer")
    assert.is_true(mt.tensor({ 1 }, { requires_grad = true }).requires_grad)
  end)

  it("keeps all digits of large integers", function()
    local big = { math.maxinteger, math.mininteger, (1 << 53) + 1 }
    assert.same(big, mt.tensor(big, { dtype = "int64" }):totable())
  end)

  it("names the position where a table is ragged", function()
    says("[2]", mt.tensor, { { 1, 2 }, { 3 } })
    says("[2][1]", mt.tensor, { { { 1 }, { 2 } }, { { 3, 4 }, { 5 } } })
  end)

  it("names the position of a hole", function()
    says("[1][2]", mt.tensor, { { 1, nil, 3 }, { 4, 5, 6 } })
  end)

  it("names the position of a wrong type", function()
    says("[2]", mt.tensor, { 1, "x" })
    says("string", mt.tensor, { 1, "x" })
    says("[1][2]", mt.tensor, { { 1, {} }, { 2, 3 } })
    says("[2]", mt.tensor, { { 1, 2 }, 3 })
    says("[3]", mt.tensor, { 1, 2, print })
  end)

  it("does not follow a table that holds itself", function()
    local t = {}
    t[1] = t
    message(mt.tensor, t)
  end)

  it("knows its options only", function()
    says("dtyp", mt.tensor, { 1 }, { dtyp = "int64" })
    says("float33", mt.tensor, { 1 }, { dtype = "float33" })
    says("int64", mt.tensor, { 1 }, { dtype = "int64", requires_grad = true })
  end)

  it("is mt.Tensor.from_table, too", function()
    assert.same({ { 1, 2 }, { 3, 4 } }, mt.Tensor.from_table({ { 1, 2 }, { 3, 4 } })
      :totable())
  end)
end)

describe("mt.Tensor", function()
  it("holds zeros in the shape that it is given", function()
    local t = mt.Tensor { 2, 3 }
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, t:totable())
    assert.equal("float32", t:dtype())
    assert.equal("cpu", t:device())
  end)

  it("takes a device", function()
    assert.equal("cpu", mt.Tensor({ 2 }, mt.TensorDevice.CPU):device())
    assert.equal("cpu", mt.TensorDevice.CPU)
    assert.equal("cuda", mt.TensorDevice.GPU)
  end)
end)

describe("zeros, ones, full, empty and eye", function()
  it("take sizes as numbers or one table", function()
    for _, f in ipairs { mt.zeros, mt.ones, mt.empty, mt.rand, mt.randn } do
      assert.same({ 2, 3 }, f(2, 3):shape())
      assert.same({ 2, 3 }, f({ 2, 3 }):shape())
      assert.same({ 2, 3 }, f(2, 3, { dtype = "float64" }):shape())
      assert.equal("float64", f({ 2, 3 }, { dtype = "float64" }):dtype())
    end
    assert.same({}, mt.zeros({}):shape())
  end)

  it("hold what their names say", function()
    assert.same({ { 0, 0 } }, mt.zeros(1, 2):totable())
    assert.same({ { 1, 1 } }, mt.ones(1, 2):totable())
    assert.same({ { 7, 7 } }, mt.full({ 1, 2 }, 7):totable())
    assert.same({ { 1, 0, 0 }, { 0, 1, 0 } }, mt.eye(2, 3):totable())
    assert.same({ { 1, 0 }, { 0, 1 } }, mt.eye(2):totable())
  end)

  it("work in every dtype", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64",
      "int32", "int16", "int8", "uint8", "bool" } do
      for _, f in ipairs { mt.zeros, mt.ones, mt.empty } do
        local t = f({ 2, 2 }, { dtype = dtype })
        assert.equal(dtype, t:dtype())
      end
      local one = dtype == "bool" and true or 1
      assert.equal(one, mt.ones({ 1 }, { dtype = dtype }):item())
      assert.equal(one, mt.eye(3, { dtype = dtype })[{ 2, 2 }]:item())
    end
  end)

  it("refuse negative sizes and sizes whose product overflows", function()
    says("-1", mt.zeros, 2, -1)
    for _, shape in ipairs { { 1 << 40, 1 << 40 }, { math.maxinteger, 2 },
      { math.maxinteger } } do
      message(mt.zeros, shape)
      message(mt.empty, shape)
    end
    message(mt.zeros, { 0, math.maxinteger, math.maxinteger, 2 })
    says("number", mt.zeros, "x")
    message(mt.zeros, 1.5)
    message(mt.zeros, { 2, "x" })
    message(mt.zeros, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 })
  end)

  it("take floats with whole values as sizes", function()
    assert.same({ 4 }, mt.zeros(8 / 2):shape())
  end)
end)

describe("the *_like constructors", function()
  it("follow shape and dtype of their argument, but not its history", function()
    local x = mt.ones({ 2, 3 }, { dtype = "float64", requires_grad = true })
    for _, name in ipairs { "zeros", "ones", "empty", "rand", "randn" } do
      local y = mt[name .. "_like"](x)
      assert.same({ 2, 3 }, y:shape())
      assert.equal("float64", y:dtype())
      assert.is_false(y.requires_grad)
    end
    assert.same({ { 5, 5, 5 }, { 5, 5, 5 } }, mt.full_like(x, 5):totable())
    assert.equal("int64", mt.zeros_like(x, { dtype = "int64" }):dtype())
  end)
end)

describe("arange and linspace", function()
  it("count from 0 to before the end, as in PyTorch", function()
    assert.same({ 0, 1, 2, 3 }, mt.arange(4):totable())
    assert.same({ 2, 3 }, mt.arange(2, 4):totable())
    assert.same({ 1, 3, 5 }, mt.arange(1, 6, 2):totable())
    assert.same({ 1, 3 }, mt.arange(1, 5, 2):totable())
    assert.same({ 3, 2 }, mt.arange(3, 1, -1):totable())
    assert.same({ 0, 0.25, 0.5, 0.75 }, mt.arange(0, 1, 0.25):totable())
    assert.same({}, mt.arange(3, 1):totable())
    assert.equal("float32", mt.arange(3):dtype())
    assert.equal("int64", mt.arange(1, 3, 1, { dtype = "int64" }):dtype())
    assert.same({ 1 << 60, (1 << 60) + 1 },
      mt.arange(1 << 60, (1 << 60) + 2, { dtype = "int64" }):totable())
    assert.same({ 0, 1, 2 }, mt.arange(3, { dtype = "float64" }):totable())
  end)

  it("refuse a step of 0", function()
    says("step", mt.arange, 1, 3, 0)
  end)

  it("spread values evenly with both ends exact", function()
    assert.same({ 0, 0.25, 0.5, 0.75, 1 }, mt.linspace(0, 1, 5):totable())
    assert.same({ 3 }, mt.linspace(3, 5, 1):totable())
    assert.same({}, mt.linspace(3, 5, 0):totable())
    local t = mt.linspace(-1, 1 / 3, 1001, { dtype = "float64" }):totable()
    assert.equal(-1, t[1])
    assert.equal(1 / 3, t[1001])
    assert.is_true(math.abs(t[501] - (-1 + 4 / 3 / 2)) < 1e-15)
    message(mt.linspace, 0, 1, -1)
  end)
end)

describe("the default dtype", function()
  it("is what constructors without a dtype use", function()
    assert.equal("float32", mt.get_default_dtype())
    mt.set_default_dtype "float64"
    local ok, err = pcall(function()
      assert.equal("float64", mt.zeros(1):dtype())
      assert.equal("float64", mt.tensor({ 1 }):dtype())
      assert.equal("float64", mt.rand(1):dtype())
      assert.equal("float64", mt.arange(3):dtype())
      assert.equal("float64", (mt.tensor({ 1 }, { dtype = "int64" }) / 2):dtype())
    end)
    mt.set_default_dtype "float32"
    if not ok then error(err, 0) end
    assert.equal("float32", mt.zeros(1):dtype())
  end)

  it("is a float dtype", function()
    says("int64", mt.set_default_dtype, "int64")
  end)
end)

describe("the default device", function()
  it("is the CPU unless something else is said", function()
    assert.equal("cpu", mt.zeros(1):device())
    mt.set_default_device "cpu"
    assert.equal("cpu", mt.zeros(1):device())
    message(mt.set_default_device, "tpu")
  end)

  it("may be auto: a GPU if there is one", function()
    mt.set_default_device "auto"
    local device = mt.zeros(1):device()
    mt.set_default_device "cpu"
    assert.equal(mt.cuda.is_available() and "cuda:0" or "cpu", device)
  end)

  it("comes from MYTENSOR_DEVICE", function()
    local shell = require "spec.support.shell"
    local r = shell.lua_run('io.write(require("mytensor").zeros(1):device())',
      { env = "MYTENSOR_DEVICE=cpu" })
    assert.equal("cpu", r.out)
  end)
end)

describe("metadata", function()
  it("tells shape, sizes, strides, dtype and device", function()
    local t = mt.zeros(2, 3, 4)
    assert.same({ 2, 3, 4 }, t:shape())
    assert.equal(3, t:dim())
    assert.equal(24, t:numel())
    assert.equal(3, t:size(2))
    assert.equal(4, t:size(-1))
    assert.same({ 12, 4, 1 }, t:stride())
    assert.equal("float32", t:dtype())
    assert.equal("cpu", t:device())
    assert.is_true(t:is_contiguous())
    assert.is_false(t:transpose(1, 2):is_contiguous())
    assert.equal(2, #t)
  end)

  it("says which dims there are", function()
    local t = mt.zeros(2, 3)
    says("size", t.size, t, 3)
    says("size", t.size, t, 0)
    says("size", t.size, t, -3)
  end)

  it("tells tensors from other values", function()
    assert.is_true(mt.is_tensor(mt.zeros(1)))
    assert.is_false(mt.is_tensor({}))
    assert.is_false(mt.is_tensor(nil))
    assert.is_false(mt.is_tensor(io.stdout))
  end)
end)
