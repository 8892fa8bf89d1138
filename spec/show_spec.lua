-- spec/show_spec.lua: how tensors print.

local mt = require "mytensor"

local function options(opts, fn)
  local before = mt.get_printoptions()
  mt.set_printoptions(opts)
  local ok, err = pcall(fn)
  mt.set_printoptions(before)
  if not ok then error(err, 0) end
end

describe("tostring", function()
  it("shows shape and device, and a dtype other than float32", function()
    assert.equal("<Tensor shape=[2, 3] on CPU>", tostring(mt.zeros(2, 3)))
    assert.equal("<Tensor shape=[] on CPU>", tostring(mt.tensor(1)))
    assert.equal("<Tensor shape=[0] int64 on CPU>",
      tostring(mt.zeros({ 0 }, { dtype = "int64" })))
    assert.equal("<Tensor shape=[2] float64 on CPU>",
      tostring(mt.zeros({ 2 }, { dtype = "float64" })))
    assert.equal("<Tensor shape=[1] bool on CPU>", tostring(mt.tensor { true }))
  end)

  it("works on a freed tensor", function()
    local x = mt.zeros(2)
    x:free()
    assert.truthy(tostring(x):find "freed", tostring(x))
  end)
end)

describe("show", function()
  local function lines(t)
    local text = t:format()
    local list = {}
    for line in (text .. "\n"):gmatch "(.-)\n" do list[#list + 1] = line end
    return list, text
  end

  it("aligns columns, and names shape and dtype in the trailer", function()
    local list, text = lines(mt.tensor { { 1.5, -20 }, { 300.25, 4 } })
    local widths = {}
    for _, line in ipairs(list) do
      if line:find "1.5" or line:find "300.25" then widths[#widths + 1] = #line end
    end
    assert.equal(2, #widths)
    assert.equal(widths[1], widths[2], text)
    assert.truthy(list[#list]:find("[2, 2]", 1, true), text)
    assert.truthy(text:find("300.25", 1, true), text)
  end)

  it("writes integers and bools as they are", function()
    local _, text = lines(mt.tensor({ 1, -2, 30 }, { dtype = "int64" }))
    assert.truthy(text:find "%-2" and text:find "30" and not text:find "%.", text)
    assert.truthy(text:find("int64", 1, true), text)
    _, text = lines(mt.tensor { true, false })
    assert.truthy(text:find "true" and text:find "false" and text:find "bool", text)
  end)

  it("shows NaN and infinities", function()
    local _, text = lines(mt.tensor { 0 / 0, math.huge, -math.huge, 1 })
    for _, word in ipairs { "nan", "inf", "-inf" } do
      assert.truthy(text:find(word, 1, true), text)
    end
  end)

  it("shares an exponent where values differ much", function()
    local _, text = lines(mt.tensor { 1e-9, 2e10 })
    assert.truthy(text:find "e", text)
    assert.is_true(#text < 200)
  end)

  it("leaves out the middle above 1,000 elements", function()
    local _, text = lines(mt.arange(1, 1001))
    assert.is_nil(text:find("...", 1, true))
    _, text = lines(mt.arange(1, 1002))
    assert.truthy(text:find("...", 1, true), text)
    assert.is_true(#text < 500, text)
    _, text = lines(mt.zeros(100, 100))
    assert.truthy(text:find("...", 1, true))
    assert.is_true(#text < 2000, text)
  end)

  it("shows 0-dim, empty and many-dim tensors", function()
    assert.truthy(mt.tensor(2.5):format():find("2.5", 1, true))
    assert.truthy(mt.zeros(0, 3):format():find("[0, 3]", 1, true))
    local text = mt.arange(1, 25):view(2, 3, 4):format()
    assert.truthy(text:find "24" and text:find("[2, 3, 4]", 1, true), text)
  end)

  it("follows set_printoptions", function()
    local x = mt.tensor { 1 / 3, 2 / 3 }
    options({ precision = 2 }, function()
      assert.truthy(x:format():find("0.33", 1, true))
      assert.is_nil(x:format():find("0.333", 1, true))
    end)
    options({ threshold = 5, edgeitems = 1 }, function()
      assert.truthy(mt.arange(1, 7):format():find("...", 1, true))
    end)
    assert.is_false((pcall(mt.set_printoptions, { precison = 2 })))
  end)

  it("prints to standard output", function()
    local shell = require "spec.support.shell"
    local r = shell.lua_run 'require("mytensor").tensor({1.5, 2}):show()'
    assert.equal(0, r.code, r.err)
    assert.truthy(r.out:find("1.5", 1, true), r.out)
    assert.equal("\n", r.out:sub(-1))
  end)
end)
