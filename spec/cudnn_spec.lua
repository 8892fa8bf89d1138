-- spec/cudnn_spec.lua: mt.backends.cudnn, and convolutions on a GPU that are large
-- enough for a choice between cuDNN and our own kernels, in either layout.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

local cudnn = mt.backends.cudnn

local fails = expect.matches
local on_gpu = devices.on_gpu(_ENV, function()
  finally(function()
    cudnn.enabled = true
    mt.set_deterministic(false)
    mt.set_matmul_precision "highest"
  end)
end)

--- The elements of (N, C, H, W) in the order (N, H, W, C).
local function channels_last(t)
  return t:permute(1, 3, 4, 2):contiguous():permute(1, 4, 2, 3)
end

local function set(key, value)
  return function() cudnn[key] = value end
end

describe("mt.backends.cudnn", function()
  it("is enabled until it is told otherwise", function()
    finally(function() cudnn.enabled = true end)
    assert.is_true(cudnn.enabled)
    cudnn.enabled = false
    assert.is_false(cudnn.enabled)
  end)

  it("refuses other values and other fields", function()
    local expected = "mt%.backends%.cudnn%.enabled: boolean expected, got "
    fails(expected .. "number", set("enabled", 1))
    fails(expected .. "nil", set("enabled", nil))
    fails("mt%.backends%.cudnn has no field 'benchmark' to assign",
      set("benchmark", true))
    fails("mt%.backends%.cudnn has no field 'version' to assign", set("version", print))
    fails("mt%.backends%.cudnn has no field 'is_available' to assign",
      set("is_available", nil))
    assert.equal("function", type(cudnn.is_available))
    assert.is_nil(cudnn.benchmark)
    assert.is_true(cudnn.enabled)
  end)

  it("is completed by the prompt", function()
    local global = rawget(_G, "mt")
    finally(function() rawset(_G, "mt", global) end)
    rawset(_G, "mt", mt)
    assert.same({ "enabled", "is_available(", "version(" },
      require "mytensor.repl".complete "mt.backends.cudnn.")
  end)

  it("has a version, or says why not", function()
    local available, reason = cudnn.is_available()
    local version, why = cudnn.version()
    if available then
      assert.is_true(version >= 90000)
      assert.equal(mt.info().libraries.cudnn, ("%d.%d.%d"):format(version // 10000,
        version // 100 % 100, version % 100))
    else
      assert.is_nil(version)
      assert.equal(reason, why)
      assert.equal("none (" .. reason .. ")", mt.info().libraries.cudnn)
      assert.truthy(#reason > 0)
    end
    if not devices.cuda then assert.is_false(available) end
  end)
end)

-- ---- results ------------------------------------------------------------------------
local SHAPES = {
  { "3 x 3", x = { 8, 16, 28, 27 }, w = { 32, 16, 3, 3 }, opts = { padding = 1 } },
  { "7 x 7 by 2", x = { 4, 3, 64, 63 }, w = { 20, 3, 7, 7 },
    opts = { stride = 2, padding = 3 } },
  { "groups, dilated", x = { 8, 32, 30, 21 }, w = { 48, 8, 3, 3 },
    opts = { stride = { 2, 1 }, padding = { 0, 2 }, dilation = { 1, 2 }, groups = 4 } },
  { "1 x 1", x = { 16, 64, 14, 13 }, w = { 40, 64, 1, 1 }, opts = {} },
  { "one channel", x = { 64, 1, 28, 28 }, w = { 16, 1, 5, 5 }, opts = {} },
  { "depthwise", x = { 16, 48, 32, 31 }, w = { 48, 1, 3, 3 },
    opts = { padding = 1, groups = 48 } },
  { "3 x 3 by 2, wide", x = { 4, 72, 22, 19 }, w = { 104, 72, 3, 3 },
    opts = { stride = 2, padding = 1 } },
  { "small images", x = { 64, 18, 12, 12 }, w = { 30, 18, 5, 5 }, opts = {} },
  { "small images by 2", x = { 70, 5, 13, 11 }, w = { 22, 5, 3, 5 },
    opts = { stride = { 2, 1 }, padding = { 1, 2 }, dilation = { 2, 1 } } },
  { "small images, dilated", x = { 70, 5, 13, 11 }, w = { 22, 5, 3, 3 },
    opts = { padding = { 1, 2 }, dilation = { 1, 2 } } },
  { "many channels", x = { 2, 160, 9, 10 }, w = { 136, 160, 3, 3 },
    opts = { padding = 1 } },
}
-- Errors beside the largest element: inputs are rounded first, so these are the sums'
-- own: of float32 (1.1e-5 was seen in dw of a 3 x 3 with cuDNN; Winograd's way may be
-- the cause), of TF32's 10 bits, and of the result's.
local KINDS = {
  { "float64", precision = "highest", error = 1e-13 },
  { "float32", precision = "highest", error = 2e-5 },
  { "float32", precision = "high", error = 2e-3 },
  { "float16", precision = "highest", error = 2e-3 },
  { "bfloat16", precision = "highest", error = 1e-2 },
}

local function run(x, w, b, opts)
  x, w, b = x:detach():requires_grad_(), w:detach():requires_grad_(),
    b:detach():requires_grad_()
  local y = mt.conv2d(x, w, b, opts)
  local dy = (mt.arange(y:numel(), { dtype = "float64" }) % 11 - 4):view(y:shape())
  dy = dy:to(y:dtype()):to(y:device())
  if y:stride()[2] == 1 and y:shape()[2] > 1 then dy = channels_last(dy) end
  local g = mt.grad({ y }, { x, w, b }, { grad_outputs = { dy } })
  return { y = y:detach(), dx = g[1], dw = g[2], db = g[3] }
end

local function compare(got, want, limit, what)
  for name, expected in pairs(want) do
    local value = got[name]:to("cpu"):to("float64")
    local off = (value - expected):abs():max():item() / expected:abs():max():item()
    assert(off <= limit, ("%s, %s: off by %.2g, %.2g allowed"):format(what, name, off,
      limit))
  end
end

describe("a convolution on the GPU", function()
  for _, shape in ipairs(SHAPES) do
    for _, kind in ipairs(KINDS) do
      on_gpu(("%s, %s, %s"):format(shape[1], kind[1], kind.precision), function()
        mt.manual_seed(1)
        local dtype = kind[1]
        local x, w = mt.randn(shape.x):to(dtype), (mt.randn(shape.w) * 0.1):to(dtype)
        local b = mt.randn(shape.w[1]):to(dtype)
        local want = run(x:to("float64"), w:to("float64"), b:to("float64"), shape.opts)
        x, w, b = x:to("cuda"), w:to("cuda"), b:to("cuda")
        mt.set_matmul_precision(kind.precision)
        -- of our own ways time picks one, and the deterministic mode the first
        for _, way in ipairs { { true, false }, { false, false }, { false, true } } do
          local enabled = way[1]
          cudnn.enabled = enabled
          mt.set_deterministic(way[2])
          for _, order in ipairs { "contiguous", "channels-last" } do
            local last = order == "channels-last"
            local got = run(last and channels_last(x) or x,
              last and channels_last(w) or w, b, shape.opts)
            compare(got, want, kind.error, ("cudnn %s, %s%s"):format(enabled, order,
              way[2] and ", deterministic" or ""))
          end
        end
      end)
    end
  end

  on_gpu("keeps channels-last, as elementwise ops do", function()
    local x = channels_last(mt.randn(4, 8, 6, 5, { device = "cuda" }))
    local w = mt.randn(16, 8, 3, 3, { device = "cuda" })
    local y = mt.conv2d(x, w, nil, { padding = 1 })
    assert.same({ 480, 1, 80, 16 }, y:stride())
    assert.same(y:stride(), y:relu():stride())
    assert.same(y:stride(), (y * 2 + y):stride())
    assert.same({ 480, 30, 5, 1 },
      mt.conv2d(x:contiguous(), w, nil, { padding = 1 }):stride())
    assert.same({ 480, 30, 5, 1 }, y:contiguous():stride())
  end)

  on_gpu("gives the same bits again when deterministic", function()
    mt.set_deterministic(true)
    local x, w = mt.randn(8, 32, 28, 28, { device = "cuda" }),
      mt.randn(64, 32, 3, 3, { device = "cuda" })
    local b = mt.zeros(64, { device = "cuda" })
    local first = run(x, w, b, { padding = 1 })
    for _ = 1, 3 do
      local again = run(x, w, b, { padding = 1 })
      for name, t in pairs(first) do assert.is_true(t:equal(again[name]), name) end
    end
  end)

  on_gpu("takes views that begin anywhere", function()
    local base = mt.randn(9 * 16 * 28 * 28 + 8, { device = "cuda" })
    local x = base:narrow(1, 2, 8 * 16 * 28 * 28):view(8, 16, 28, 28)
    local w = mt.randn(32, 16, 3, 3, { device = "cuda" })
    local want = mt.conv2d(x:to("cpu"):to("float64"), w:to("cpu"):to("float64"))
    compare({ y = mt.conv2d(x, w) }, { y = want }, 1e-5, "from the second element")
    local wide = mt.randn(8, 16, 28, 56, { device = "cuda" })
    x = wide:narrow(4, 15, 28)
    want = mt.conv2d(x:to("cpu"):to("float64"), w:to("cpu"):to("float64"))
    compare({ y = mt.conv2d(x, w) }, { y = want }, 1e-5, "a window of a wider image")
  end)
end)

describe("a convolution with relu on the GPU", function()
  for _, shape in ipairs(SHAPES) do
    for _, kind in ipairs(KINDS) do
      on_gpu(("%s, %s, %s"):format(shape[1], kind[1], kind.precision), function()
        mt.manual_seed(2)
        local dtype = kind[1]
        local x, w = mt.randn(shape.x):to(dtype), (mt.randn(shape.w) * 0.1):to(dtype)
        local b = mt.randn(shape.w[1]):to(dtype)
        local plain, opts = shape.opts or {}, { activation = "relu" }
        for k, v in pairs(plain) do opts[k] = v end
        local function reference(bias)
          return mt.conv2d(x:to("float64"), w:to("float64"),
                           bias and bias:to("float64"), plain):relu()
        end
        local want, bare = reference(b), reference()
        x, w, b = x:to("cuda"), w:to("cuda"), b:to("cuda")
        local nans = b:clone()
        nans[1] = 0 / 0
        mt.set_matmul_precision(kind.precision)
        for _, way in ipairs { { true, false }, { false, false }, { false, true } } do
          cudnn.enabled = way[1]
          mt.set_deterministic(way[2])
          for _, last in ipairs { false, true } do
            local fx, fw = x, w
            if last then fx, fw = channels_last(x), channels_last(w) end
            local what = ("cudnn %s, channels last %s"):format(way[1], last)
            compare({ y = mt.conv2d(fx, fw, b, opts) }, { y = want }, kind.error, what)
            local y = mt.conv2d(fx, fw, nil, opts)
            compare({ y = y }, { y = bare }, kind.error, what)
            y = mt.conv2d(fx, fw, nans, opts)
            assert.is_true(y:select(2, 1):isnan():all():item(), what)
            assert.equal(y:select(2, 1):numel(), y:isnan():sum():item(), what)
          end
        end
      end)
    end
  end

  on_gpu("takes a bias that begins anywhere", function()
    local x, w = mt.randn(8, 16, 28, 28, { device = "cuda" }),
      mt.randn(32, 16, 3, 3, { device = "cuda" })
    local b = mt.randn(40, { device = "cuda" }):narrow(1, 2, 32)
    local want = mt.conv2d(x:cpu():double(), w:cpu():double(), b:cpu():double()):relu()
    compare({ y = mt.conv2d(x, w, b, { activation = "relu" }) }, { y = want }, 1e-5, "")
  end)
end)

describe("max pooling with relu on the GPU", function()
  on_gpu("equals the relu before it", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      local x = mt.randn(5, 3, 24, 23, { device = "cuda" }):to(dtype):requires_grad_()
      local y, mask = mt.max_pool2d(x, 2, { activation = "relu" })
      local z = mt.max_pool2d(x:relu(), 2)
      assert.is_true(y:equal(z) and mask:eq(0):equal(y:eq(0)))
      local dy = mt.randn(y:shape()):to(dtype):to "cuda"
      local g = mt.grad({ y }, { x }, { grad_outputs = { dy } })[1]
      local h = mt.grad({ z }, { x }, { grad_outputs = { dy } })[1]
      assert.is_true(g:equal(h))
    end
  end)
end)

describe("max pooling backward on the GPU", function()
  local function check(shape, kernel, opts)
    local x = mt.randn(shape)
    local results = {}
    for _, device in ipairs { "cpu", "cuda" } do
      local leaf = x:to(device):requires_grad_()
      local y = mt.max_pool2d(leaf, kernel, opts)
      local dy = (mt.arange(y:numel()) % 5 + 1):view(y:shape()):to(device)
      results[device] = mt.grad({ y }, { leaf }, { grad_outputs = { dy } })[1]:to("cpu")
    end
    assert.is_true(results.cpu:equal(results.cuda))
  end

  on_gpu("adds windows that overlap, of small, many and large planes", function()
    check({ 3, 5, 24, 24 }, 2)
    check({ 700, 32, 8, 8 }, 2)
    check({ 2, 3, 30, 29 }, 3, { stride = 1, padding = 1 })
    check({ 2, 3, 30, 29 }, 5, { stride = 2, dilation = 2 })
    check({ 1, 2, 150, 149 }, 3, { stride = 2, padding = 1 })
  end)
end)
