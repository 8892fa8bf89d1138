-- spec/ops/pairs_spec.lua: the forward and backward pairs for training steps by hand,
-- on the reference data of the ops that they are.

local mt = require "mytensor"
local nn = mt.nn
local reference = require "spec.support.reference"
local tensors = require "spec.support.tensors"
local tolerances = require "spec.support.tolerances"

local function pair_of(v)
  if type(v) == "table" then return v[1], v[2] end
  return v, v
end

local function check(t, entry, op, dtype, what)
  local different = tensors.difference(t, entry,
    { dtype = dtype, tolerance = tolerances.of(op, dtype) })
  if different then error(what .. ": " .. different, 0) end
end

-- Run fn(case, inputs, dy, check) for each case of op that `wanted` takes.
local function each_case(op, wanted, fn)
  local count = 0
  for _, dtype in ipairs { "float32", "float64" } do
    for _, case in ipairs(reference.load(op)) do
      if case.float and case.gradients and wanted(case) then
        local inputs = {}
        for i, entry in ipairs(case.inputs) do
          inputs[i] = entry and tensors.build(entry, dtype) or nil
        end
        local dy = tensors.build(case.cotangents[1], dtype)
        fn(case, inputs, dy, function(t, entry, what)
          check(t, entry, op, dtype, case.name .. ", " .. what)
        end)
        count = count + 1
      end
    end
  end
  assert.is_true(count > 0, "no case of " .. op .. " serves")
end

local function any() return true end

describe("relu, sigmoid and tanh by hand", function()
  for _, name in ipairs { "relu", "sigmoid", "tanh" } do
    it("compute " .. name .. " and its gradient from the input", function()
      each_case(name, any, function(case, inputs, dy, expect)
        local x = inputs[1]
        expect(x[name .. "_forward"](x), case.outputs[1], "forward")
        expect(x[name .. "_backward"](x, dy), case.gradients[1], "backward")
      end)
    end)

    it("want dy in the shape of x for " .. name, function()
      local x = mt.zeros(2, 3)
      local ok, err = pcall(x[name .. "_backward"], x, mt.zeros(3, 2))
      assert.is_false(ok)
      assert.truthy(err:find("[3, 2]", 1, true) and err:find("[2, 3]", 1, true), err)
    end)
  end
end)

local function plain_linear(case) return not case.attrs.activation end

describe("nn.fc_forward and nn.fc_backward", function()
  it("are the affine map and its three gradients", function()
    each_case("linear", plain_linear, function(case, inputs, dy, expect)
      local x, w, b = inputs[1], inputs[2], inputs[3]
      expect(nn.fc_forward(x, w, b), case.outputs[1], "forward")
      local dx, dw, db = nn.fc_backward(x, w, dy)
      expect(dx, case.gradients[1], "dx")
      expect(dw, case.gradients[2], "dw")
      if b then
        expect(db, case.gradients[3], "db")
      else
        assert.same({ w:size(1) }, db:shape())
      end
    end)
  end)

  it("check shapes before anything runs", function()
    local x, w, b = mt.zeros(2, 3), mt.zeros(4, 3), mt.zeros(4)
    for _, bad in ipairs {
      { nn.fc_forward, mt.zeros(2, 5), w, b }, { nn.fc_forward, x, mt.zeros(4), b },
      { nn.fc_forward, x, w, mt.zeros(3) }, { nn.fc_backward, x, w, mt.zeros(2, 3) },
      { nn.fc_backward, x, w, mt.zeros(3, 4) },
    } do
      local ok, err = pcall(table.unpack(bad))
      assert.is_false(ok)
      assert.truthy(err:find "fc_%w+ward" and err:find "%[", err)
    end
  end)
end)

local function plain_conv(case)
  return not (case.attrs.dilation or case.attrs.groups or case.attrs.activation)
end

local function plain_pool(case) return not case.attrs.activation end

describe("nn.conv_forward and nn.conv_backward", function()
  it("are the convolution and its three gradients", function()
    each_case("conv2d", plain_conv, function(case, inputs, dy, expect)
      local x, w, b = inputs[1], inputs[2], inputs[3]
      local sh, sw = pair_of(case.attrs.stride or 1)
      local ph, pw = pair_of(case.attrs.padding or 0)
      expect(nn.conv_forward(x, w, b, sh, sw, ph, pw), case.outputs[1], "forward")
      local dx, dw, db = nn.conv_backward(x, w, dy, sh, sw, ph, pw)
      expect(dx, case.gradients[1], "dx")
      expect(dw, case.gradients[2], "dw")
      if b then
        expect(db, case.gradients[3], "db")
      else
        assert.same({ w:size(1) }, db:shape())
      end
    end)
  end)

  it("check dims, channels, sizes and dy", function()
    local x, w, b = mt.zeros(2, 3, 5, 5), mt.zeros(4, 3, 3, 3), mt.zeros(4)
    for _, bad in ipairs {
      { nn.conv_forward, mt.zeros(3, 5, 5), w, b, 1, 1, 0, 0 },
      { nn.conv_forward, x, mt.zeros(4, 2, 3, 3), b, 1, 1, 0, 0 },
      { nn.conv_forward, x, mt.zeros(4, 3, 3), b, 1, 1, 0, 0 },
      { nn.conv_forward, x, mt.zeros(4, 3, 6, 3), b, 1, 1, 0, 0 },
      { nn.conv_forward, x, w, mt.zeros(3), 1, 1, 0, 0 },
      { nn.conv_forward, x, w, b, 0, 1, 0, 0 },
      { nn.conv_forward, x, w, b, 1, 1, -1, 0 },
      { nn.conv_backward, x, w, mt.zeros(2, 4, 4, 3), 1, 1, 0, 0 },
      { nn.conv_backward, x, w, mt.zeros(2, 3, 3, 3), 1, 1, 0, 0 },
    } do
      local ok, err = pcall(table.unpack(bad))
      assert.is_false(ok)
      assert.truthy(err:find "conv_%w+ward", err)
    end
  end)
end)

describe("nn.maxpool_forward and nn.maxpool_backward", function()
  it("give the largest, where it was, and the gradient there", function()
    each_case("max_pool2d", plain_pool, function(case, inputs, dy, expect)
      local x = inputs[1]
      local kh, kw = pair_of(case.attrs.kernel)
      local sh, sw = pair_of(case.attrs.stride or case.attrs.kernel)
      local ph, pw = pair_of(case.attrs.padding or 0)
      local y, mask = nn.maxpool_forward(x, kh, kw, sh, sw, ph, pw)
      expect(y, case.outputs[1], "forward")
      assert.equal("int64", mask:dtype())
      expect(mask, case.outputs[2], "mask")
      expect(nn.maxpool_backward(x, mask, dy, kh, kw, sh, sw, ph, pw),
        case.gradients[1], "dx")
    end)
  end)

  it("let ties go to the first and overlapping windows add up", function()
    local x = mt.tensor { { { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } } } }
    local _, first = nn.maxpool_forward(x, 2, 2, 1, 1, 0, 0)
    assert.same({ { { { 1, 2 }, { 4, 5 } } } }, first:totable())
    local same = mt.tensor { { { { 0, 0, 0 }, { 0, 9, 0 }, { 0, 0, 0 } } } }
    local y, mask = nn.maxpool_forward(same, 2, 2, 1, 1, 0, 0)
    assert.same({ { { { 5, 5 }, { 5, 5 } } } }, mask:totable())
    for _ = 1, 2 do -- the result starts from zero each time
      local dx = nn.maxpool_backward(same, mask, mt.ones_like(y), 2, 2, 1, 1, 0, 0)
      assert.equal(4, dx[{ 1, 1, 2, 2 }]:item())
      assert.equal(4, dx:sum():item())
    end
  end)

  it("check the mask's and dy's shape", function()
    local x = mt.rand(1, 2, 4, 4)
    local _, mask = nn.maxpool_forward(x, 2, 2, 2, 2, 0, 0)
    for _, bad in ipairs {
      { nn.maxpool_backward, x, mask, mt.zeros(1, 2, 3, 2), 2, 2, 2, 2, 0, 0 },
      { nn.maxpool_backward, x, mask:narrow(3, 1, 1), mt.zeros(1, 2, 2, 2), 2, 2, 2, 2,
        0, 0 },
      { nn.maxpool_forward, x, 5, 5, 1, 1, 0, 0 },
      { nn.maxpool_forward, x, 2, 2, 0, 1, 0, 0 },
      { nn.maxpool_forward, x, 2, 2, 1, 1, 2, 0 },
      { nn.maxpool_forward, mt.zeros(4, 4), 2, 2, 1, 1, 0, 0 },
    } do
      local ok, err = pcall(table.unpack(bad))
      assert.is_false(ok)
      assert.truthy(err:find "maxpool_%w+ward", err)
    end
  end)
end)

describe("nn.avgpool_forward and nn.avgpool_backward", function()
  it("give means with the padding counted, and spread the gradient", function()
    each_case("avg_pool2d", any, function(case, inputs, dy, expect)
      local x = inputs[1]
      local kh, kw = pair_of(case.attrs.kernel)
      local sh, sw = pair_of(case.attrs.stride or case.attrs.kernel)
      local ph, pw = pair_of(case.attrs.padding or 0)
      expect(nn.avgpool_forward(x, kh, kw, sh, sw, ph, pw), case.outputs[1], "forward")
      local dx = nn.avgpool_backward(x, dy, kh, kw, sh, sw, ph, pw)
      expect(dx, case.gradients[1], "dx")
    end)
  end)
end)

describe("nn.softmax_forward and nn.softmax_backward", function()
  local function last_dim(case)
    local dim = case.attrs.dim
    return dim == -1 or dim == #case.inputs[1].shape
  end

  it("work over the last dim", function()
    each_case("softmax", last_dim, function(case, inputs, dy, expect)
      local y = nn.softmax_forward(inputs[1])
      expect(y, case.outputs[1], "forward")
      expect(nn.softmax_backward(y, dy), case.gradients[1], "backward")
    end)
  end)
end)

describe("nn.cross_entropy_forward and nn.cross_entropy_backward", function()
  local function mean_of_matrix(case)
    return not case.attrs.reduction and #case.inputs[1].shape == 2
  end

  it("give the mean loss and its gradient", function()
    each_case("cross_entropy", mean_of_matrix, function(case, inputs, dy, expect)
      local logits, labels = inputs[1], inputs[2]
      expect(nn.cross_entropy_forward(logits, labels), case.outputs[1], "loss")
      local scaled = nn.cross_entropy_backward(logits, labels) * dy
      expect(scaled, case.gradients[1], "dlogits")
    end)
  end)

  it("take labels of any integer dtype, and floats that hold integers", function()
    local logits = mt.randn(4, 5)
    local want = nn.cross_entropy_forward(logits, mt.tensor({ 1, 5, 3, 2 },
      { dtype = "int64" })):item()
    for _, dtype in ipairs { "int32", "int16", "int8", "uint8", "float32",
      "float64" } do
      local labels = mt.tensor({ 1, 5, 3, 2 }, { dtype = dtype })
      assert.equal(want, nn.cross_entropy_forward(logits, labels):item(), dtype)
    end
  end)

  it("name the label that is out of range", function()
    local logits = mt.randn(3, 5)
    for _, bad in ipairs { 0, 6, -6 } do
      local ok, err = pcall(nn.cross_entropy_forward, logits,
        mt.tensor({ 1, bad, 2 }, { dtype = "int64" }))
      assert.is_false(ok)
      assert.truthy(err:find(tostring(bad), 1, true), err)
      assert.truthy(err:find("5", 1, true), err)
    end
    local ok, err = pcall(nn.cross_entropy_forward, logits, mt.tensor { 1, 1.5, 2 })
    assert.is_false(ok)
    assert.truthy(err:find("whole", 1, true), err)
  end)
end)

describe("the pairs", function()
  it("record: a step by hand and one by backward agree", function()
    mt.manual_seed(1)
    local x, w, b = mt.randn(4, 3), mt.randn(2, 3), mt.randn(2)
    local labels = mt.tensor({ 1, 2, 2, 1 }, { dtype = "int64" })
    local y = nn.fc_forward(x, w, b)
    local h = y:relu_forward()
    local dh = nn.cross_entropy_backward(h, labels)
    local dy = y:relu_backward(dh)
    local dx, dw, db = nn.fc_backward(x, w, dy)
    x:requires_grad_()
    w:requires_grad_()
    b:requires_grad_()
    nn.cross_entropy_forward(nn.fc_forward(x, w, b):relu_forward(), labels):backward()
    for _, p in ipairs { { dx, x.grad }, { dw, w.grad }, { db, b.grad } } do
      assert.is_nil(tensors.differ(p[1], p[2], { atol = 1e-6, rtol = 1e-5 }))
    end
  end)

  it("have gradients of their gradients", function()
    local x = mt.randn(2, 2, 5, 4, { dtype = "float64", requires_grad = true })
    local w = mt.randn(3, 2, 2, 2, { dtype = "float64", requires_grad = true })
    local dy = mt.randn(2, 3, 4, 3, { dtype = "float64", requires_grad = true })
    assert.truthy(mt.gradcheck(function(a, b, c)
      return nn.conv_backward(a, b, c, 1, 1, 0, 0)
    end, { x, w, dy }))
    local z = mt.randn(3, 4, { dtype = "float64", requires_grad = true })
    local dz = mt.randn(3, 4, { dtype = "float64", requires_grad = true })
    for _, name in ipairs { "sigmoid_backward", "tanh_backward" } do
      assert.truthy(mt.gradcheck(function(a, b) return a[name](a, b) end, { z, dz }))
    end
  end)
end)
