-- spec/ops/conv_spec.lua: convolutions larger than a vector and a block: exact, and the
-- same for every number of threads.

local mt = require "mytensor"

-- N, channels, height, width, filters, kernel, padding, dilation, groups, stride
local CASES = {
  { 2, 3, 20, 28, 7, { 3, 3 }, { 1, 1 } }, { 2, 16, 12, 12, 7, { 5, 5 }, { 0, 0 } },
  { 1, 1, 28, 28, 16, { 5, 5 }, { 0, 0 } }, { 3, 64, 9, 32, 7, { 3, 3 }, { 1, 1 } },
  { 1, 40, 17, 24, 5, { 4, 5 }, { 3, 0 } }, { 1, 2, 9, 48, 3, { 3, 3 }, { 4, 4 } },
  { 2, 6, 18, 40, 8, { 3, 3 }, { 2, 3 }, 2, 2 },
  { 2, 4, 11, 57, 3, { 1, 1 }, { 0, 0 } }, { 1, 70, 8, 19, 4, { 3, 3 }, { 1, 1 } },
  { 5, 8, 16, 16, 8, { 3, 3 }, { 1, 1 }, 1, 8 },
  { 40, 3, 5, 16, 5, { 2, 3 }, { 0, 1 } },
  { 2, 3, 33, 35, 9, { 3, 3 }, { 1, 1 }, 1, 1, 2 },
}
if os.getenv "MYTENSOR_GC_STRESS" == "1" then CASES = { CASES[1] } end

-- Small whole numbers: sums of floats are exact.
local function whole(...)
  return mt.randint(-3, 3, { ... })
end

-- By the definition, in integers: the unrolled windows of each group times its filters.
local function by_definition(x, w, padding, dilation, groups, stride)
  local n, channels, filters = x:size(1), x:size(2), w:size(1)
  local h, width = x:size(3), x:size(4)
  local kh, kw = w:size(3), w:size(4)
  local padded = mt.zeros({ n, channels, h + 2 * padding[1], width + 2 * padding[2] },
                          { dtype = x:dtype() })
  padded[{ {}, {}, { padding[1] + 1, padding[1] + h },
           { padding[2] + 1, padding[2] + width } }] = x
  local oh = (h + 2 * padding[1] - dilation * (kh - 1) - 1) // stride + 1
  local ow = (width + 2 * padding[2] - dilation * (kw - 1) - 1) // stride + 1
  local y = mt.zeros({ n, filters, oh, ow }, { dtype = x:dtype() })
  for i = 1, kh do
    for j = 1, kw do
      local top, left = (i - 1) * dilation + 1, (j - 1) * dilation + 1
      local part = padded[{ {}, {}, { top, top + (oh - 1) * stride },
                            { left, left + (ow - 1) * stride } }]
      part = part:unfold(3, 1, stride):squeeze(5):unfold(4, 1, stride):squeeze(5)
      local per, out = channels // groups, filters // groups
      for g = 1, groups do
        local some = part:narrow(2, (g - 1) * per + 1, per):contiguous()
          :view(n, per, oh * ow)
        local weight = w:narrow(1, (g - 1) * out + 1, out):select(4, j):select(3, i)
        local sum = weight:matmul(some):view(n, out, oh, ow)
        y:narrow(2, (g - 1) * out + 1, out):add_(sum)
      end
    end
  end
  return y
end

local function options_of(case)
  local padding, dilation = case[7], case[8] or 1
  local groups, stride = case[9] or 1, case[10] or 1
  return padding, dilation, groups, stride
end

describe("conv2d of larger images", function()
  it("is exact for whole numbers, and so are its gradients", function()
    mt.manual_seed(21)
    for number, case in ipairs(CASES) do
      local padding, dilation, groups, stride = options_of(case)
      local x = whole(case[1], case[2], case[3], case[4])
      local w = whole(case[5], case[2] // groups, case[6][1], case[6][2])
      local b = whole(case[5])
      local want = by_definition(x, w, padding, dilation, groups, stride)
        + b:view(1, -1, 1, 1)
      for _, dtype in ipairs { "float32", "float64" } do
        local fx, fw = x:to(dtype):requires_grad_(), w:to(dtype):requires_grad_()
        local y = mt.conv2d(fx, fw, b:to(dtype), stride, padding, dilation, groups)
        assert.is_true(y:detach():to("int64"):equal(want),
                       ("case %d, %s"):format(number, dtype))
        -- <dy, conv(x, w)> = <dx, x> = <dw, w>, in exact numbers
        local dy = mt.randint(-3, 3, y:shape()):to(dtype)
        y:backward(dy)
        local without = y:detach() - b:to(dtype):view(1, -1, 1, 1)
        local product = (dy * without):sum():item()
        assert.equal(product, (fx.grad * fx:detach()):sum():item(), "dx " .. number)
        assert.equal(product, (fw.grad * fw:detach()):sum():item(), "dw " .. number)
      end
    end
  end)

  it("does not depend on the number of threads", function()
    mt.manual_seed(22)
    local threads = mt.get_num_threads()
    for number, case in ipairs(CASES) do
      local padding, dilation, groups, stride = options_of(case)
      local x = mt.randn(case[1], case[2], case[3], case[4])
      local w = mt.randn(case[5], case[2] // groups, case[6][1], case[6][2])
      local first
      for _, n in ipairs { 1, 2, 3, 5 } do
        mt.set_num_threads(n)
        local fx, fw = x:clone():requires_grad_(), w:clone():requires_grad_()
        local y = mt.conv2d(fx, fw, nil, stride, padding, dilation, groups)
        y:backward(y:detach())
        local now = { y:detach(), fx.grad, fw.grad }
        first = first or now
        for i = 1, 3 do
          local what = ("case %d, %d threads, result %d"):format(number, n, i)
          assert.is_true(now[i]:equal(first[i]), what)
        end
      end
    end
    mt.set_num_threads(threads)
  end)
end)

-- N, channels, height, width, filters, padding, groups, window if not 3: Winograd's
-- way, where sums are not exact.
local WINOGRAD = {
  { 3, 16, 28, 28, 20, { 1, 1 } }, { 2, 8, 17, 33, 9, { 0, 0 } },
  { 1, 64, 14, 15, 40, { 1, 1 } }, { 2, 24, 19, 8, 32, { 2, 1 }, 2 },
  { 1, 12, 3, 270, 12, { 1, 0 } }, { 20, 9, 6, 7, 11, { 1, 1 } },
  { 1, 130, 9, 66, 13, { 1, 2 } }, { 3, 16, 12, 12, 32, { 0, 0 }, 1, 5 },
  { 2, 20, 13, 70, 26, { 2, 2 }, 2, 5 }, { 2, 10, 11, 19, 9, { 3, 1 }, 1, 5 },
}
if os.getenv "MYTENSOR_GC_STRESS" == "1" then WINOGRAD = { WINOGRAD[2] } end

describe("conv2d with windows of 3 x 3 or 5 x 5 and stride 1", function()
  -- y, dx and dw
  local function results(case, x, w, b)
    x, w = x:clone():requires_grad_(), w:clone():requires_grad_()
    local y = mt.conv2d(x, w, b, { padding = case[6], groups = case[7] or 1 })
    mt.manual_seed(24)
    y:backward(mt.randn(y:shape()):to(y:dtype()))
    return { y:detach(), x.grad, w.grad }
  end

  local function operands(case)
    mt.manual_seed(23)
    return mt.randn(case[1], case[2], case[3], case[4]),
      mt.randn(case[5], case[2] // (case[7] or 1), case[8] or 3, case[8] or 3),
      mt.randn(case[5])
  end

  it("is as accurate as six digits are", function()
    for number, case in ipairs(WINOGRAD) do
      local x, w, b = operands(case)
      local got, want = results(case, x, w, b), results(case, x:double(), w:double(),
        b:double())
      for i, name in ipairs { "y", "dx", "dw" } do
        local size = want[i]:square():mean():sqrt():item()
        local off = (got[i]:double() - want[i]):abs():max():item() / size
        assert.is_true(off < 2.5e-5, ("case %d, %s: %g"):format(number, name, off))
      end
    end
  end)

  it("does not depend on the number of threads", function()
    local threads = mt.get_num_threads()
    for number, case in ipairs(WINOGRAD) do
      local x, w, b = operands(case)
      local first
      for _, n in ipairs { 1, 2, 3, 7 } do
        mt.set_num_threads(n)
        local now = results(case, x, w, b)
        first = first or now
        for i = 1, 3 do
          assert.is_true(now[i]:equal(first[i]),
            ("case %d, %d threads, result %d"):format(number, n, i))
        end
      end
    end
    mt.set_num_threads(threads)
  end)

  it("keeps NaN and infinities", function()
    local x, w = mt.ones(2, 8, 20, 20), mt.ones(8, 8, 3, 3)
    x[{ 1, 3, 10, 11 }] = 0 / 0
    x[{ 2, 3, 1, 1 }] = math.huge
    local y = mt.conv2d(x, w, nil, { padding = 1 })
    local bad = mt.conv2d(x:isfinite():logical_not():float(), w, nil, { padding = 1 })
      :gt(0)
    assert.is_false(y:masked_select(bad):isfinite():any():item())
    assert.equal(2 * 8 * (400 - 16), y:isfinite():sum():item()) -- all but their tiles
  end)
end)

describe("conv2d with relu", function()
  -- unrolled, directly in blocks of channels and padded, by Winograd's way
  local RECTIFIED = {
    { { 2, 5, 17, 33 }, { 9, 5, 3, 3 }, { stride = 2, padding = 1 } },
    { { 2, 300, 9, 21 }, { 7, 300, 1, 2 }, {} },
    { { 3, 4, 20, 37 }, { 10, 2, 5, 5 }, { groups = 2, padding = { 2, 1 } } },
    { { 1, 600, 6, 64 }, { 13, 600, 1, 1 }, {} },
    { { 2, 16, 28, 28 }, { 20, 16, 3, 3 }, { padding = 1 } },
    { { 2, 10, 17, 19 }, { 9, 10, 5, 5 }, {} },
    { { 3, 0, 4, 4 }, { 5, 0, 3, 3 }, {} },
  }

  local function run(case, dtype, bias, fused)
    mt.manual_seed(31)
    local x, w = mt.randn(case[1]):to(dtype), mt.randn(case[2]):to(dtype)
    local b = bias and mt.randn(case[2][1]):to(dtype) or nil
    if case[1][2] > 0 then x[{ 1, 1, 1, 1 }] = 0 / 0 end
    local opts = { activation = fused and "relu" or nil }
    for k, v in pairs(case[3]) do opts[k] = v end
    x:requires_grad_()
    local y = mt.conv2d(x, w, b, opts)
    if not fused then y = y:relu() end
    y:backward(mt.ones_like(y))
    return y:detach(), x.grad
  end

  it("equals the two after each other", function()
    for i, case in ipairs(RECTIFIED) do
      for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
        for _, bias in ipairs { true, false } do
          local y, dx = run(case, dtype, bias, true)
          local z, dz = run(case, dtype, bias, false)
          local what = ("case %d, %s"):format(i, dtype)
          assert.is_true(y:nan_to_num(7):equal(z:nan_to_num(7)), what)
          assert.is_true(y:isnan():equal(z:isnan()), what)
          assert.is_true(dx:equal(dz), what)
        end
      end
    end
  end)

  it("names what it does not know", function()
    local ok, err = pcall(mt.conv2d, mt.ones(1, 1, 2, 2), mt.ones(1, 1, 1, 1),
                          { activation = "gelu" })
    assert.is_false(ok)
    assert.truthy(err:find("none|relu", 1, true), err)
  end)
end)

describe("max_pool2d with relu", function()
  it("equals the relu before it, gradients of gradients too", function()
    for _, opts in ipairs { { 2 }, { 3, { stride = 2, padding = 1 } },
                            { { 2, 3 }, { stride = 1, dilation = 2 } } } do
      local x = mt.randn(2, 3, 12, 13):requires_grad_()
      local more = { activation = "relu" }
      for k, v in pairs(opts[2] or {}) do more[k] = v end
      local y, mask = mt.max_pool2d(x, opts[1], more)
      local z = mt.max_pool2d(x:relu(), opts[1], opts[2])
      assert.is_true(y:equal(z))
      assert.is_true(mask:eq(0):equal(y:eq(0)))
      local dy = mt.randn(y:shape()):requires_grad_()
      local g = mt.grad({ y }, { x }, { grad_outputs = { dy }, create_graph = true })[1]
      local h = mt.grad({ z }, { x }, { grad_outputs = { dy }, create_graph = true })[1]
      assert.is_true(g:equal(h))
      local v = mt.randn(x:shape())
      local gg = mt.grad({ (g * v):sum() }, { dy })[1]
      local hh = mt.grad({ (h * v):sum() }, { dy })[1]
      assert.is_true(gg:equal(hh))
    end
  end)

  it("keeps NaN and passes its gradient, as relu does", function()
    local nan = 0 / 0
    local x = mt.tensor { { { -1, nan, -1, -2 }, { 3, 2, -0.0, -3 } } }
    x:requires_grad_()
    local y, mask = mt.max_pool2d(x, 2, { activation = "relu" })
    local z = mt.max_pool2d(x:relu(), 2)
    assert.is_true(y:isclose(z, { equal_nan = true }):all():item())
    assert.same({ { { 2, 0 } } }, mask:totable())
    local g = mt.grad({ y }, { x }, { grad_outputs = { mt.ones(1, 1, 2) } })[1]
    local h = mt.grad({ z }, { x }, { grad_outputs = { mt.ones(1, 1, 2) } })[1]
    assert.same({ { { 0, 1, 0, 0 }, { 0, 0, 0, 0 } } }, g:totable())
    assert.is_true(g:equal(h))
  end)
end)
