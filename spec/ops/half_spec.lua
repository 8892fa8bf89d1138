-- spec/ops/half_spec.lua: products and convolutions of float16 and bfloat16: sums in
-- float32, rounded once, whatever the layout, the size and the number of threads.

local mt = require "mytensor"

-- Largest error, relative to the largest value: half a unit of the last place, and what
-- sums in float32 lose.
local WORST = { float16 = 2 ^ -11 * 1.05, bfloat16 = 2 ^ -8 * 1.02 }

local function off(got, want)
  return ((got:double() - want):abs():max() / want:abs():max():clamp(1e-30)):item()
end

local function is_close(dtype, got, want, ...)
  assert.equal(dtype, got:dtype())
  local error = off(got, want)
  assert.is_true(error <= WORST[dtype], ("%s: off by %g"):format(
    table.concat({ dtype, ... }, " "), error))
end

-- m x k in four layouts
local function matrices(m, k, dtype)
  local odd = mt.randn(m, 2 * k + 1):to(dtype)
  return { plain = mt.randn(m, k):to(dtype), turned = mt.randn(k, m):to(dtype):t(),
    part = odd:narrow(2, 2, k),
    spaced = odd:unfold(2, 1, 2):squeeze(3):narrow(2, 1, k) }
end

local SIZES = {
  { 64, 784, 256 }, { 1, 300, 77 }, { 77, 301, 1 }, { 33, 1, 65 }, { 5, 2, 9 },
  { 100, 1030, 50 }, { 13, 7, 31 }, { 130, 513, 70 }, { 400, 33, 45 }, { 3, 50, 1000 },
}
if os.getenv "MYTENSOR_GC_STRESS" == "1" then SIZES = { SIZES[7] } end

-- N, channels, height, width, filters, window, stride, padding, dilation, groups
local CONVOLUTIONS = {
  { 2, 8, 13, 22, 12, { 3, 3 }, 1, 1 }, { 3, 16, 28, 28, 20, { 3, 3 }, 1, { 1, 0 } },
  { 2, 3, 20, 28, 7, { 5, 5 }, 1, 0 }, { 1, 12, 17, 19, 16, { 3, 2 }, 2, 1 },
  { 2, 8, 18, 24, 12, { 3, 3 }, 1, { 2, 3 }, 2, 2 },
  { 2, 33, 9, 35, 5, { 1, 1 }, 1, 0 },
  { 1, 70, 8, 19, 4, { 3, 3 }, 1, 1 }, { 2, 9, 14, 21, 10, { 5, 5 }, 1, 2 },
}
if os.getenv "MYTENSOR_GC_STRESS" == "1" then CONVOLUTIONS = { CONVOLUTIONS[1] } end

for _, dtype in ipairs { "float16", "bfloat16" } do
  describe("products of " .. dtype, function()
    it("are rounded once, in any layout", function()
      mt.manual_seed(31)
      for _, size in ipairs(SIZES) do
        local m, k, n = table.unpack(size)
        local rights = matrices(k, n, dtype)
        for left, a in pairs(matrices(m, k, dtype)) do
          for right, b in pairs(rights) do
            is_close(dtype, a:matmul(b), a:double():matmul(b:double()), m, k, n, left,
              right)
          end
        end
      end
    end)

    it("take a bias and an activation", function()
      mt.manual_seed(32)
      for _, size in ipairs(SIZES) do
        local m, k, n = table.unpack(size)
        local x, w = mt.randn(m, k):to(dtype), mt.randn(n, k):to(dtype)
        local b = mt.randn(n):to(dtype)
        for _, activation in ipairs { "none", "relu", "gelu" } do
          is_close(dtype, mt.linear(x, w, b, activation),
            mt.linear(x:double(), w:double(), b:double(), activation), m, k, n,
            activation)
        end
      end
    end)

    it("have gradients, and batches", function()
      mt.manual_seed(33)
      local function gradients(x, w, b)
        x, w, b = x:requires_grad_(), w:requires_grad_(), b:requires_grad_()
        mt.linear(x, w, b):backward(mt.ones(4, 9, 50):to(x:dtype()) * 0.5)
        return x.grad, w.grad, b.grad
      end
      local x, w = mt.randn(4, 9, 70):to(dtype), mt.randn(50, 70):to(dtype)
      local b = mt.randn(50):to(dtype)
      local want = { gradients(x:double(), w:double(), b:double()) }
      for i, got in ipairs { gradients(x, w, b) } do
        is_close(dtype, got:detach(), want[i], "gradient", i)
      end
      local y, z = mt.randn(5, 1, 20, 30):to(dtype), mt.randn(3, 30, 40):to(dtype)
      is_close(dtype, y:matmul(z), y:double():matmul(z:double()), "batches")
    end)

    it("do not depend on the number of threads", function()
      mt.manual_seed(34)
      local threads = mt.get_num_threads()
      for _, size in ipairs(SIZES) do
        local m, k, n = table.unpack(size)
        local a, b = mt.randn(m, k):to(dtype), mt.randn(k, n):to(dtype)
        local first
        for _, count in ipairs { 1, 2, 5 } do
          mt.set_num_threads(count)
          local now = a:matmul(b)
          first = first or now
          assert.is_true(now:equal(first), table.concat(size, " "))
        end
      end
      mt.set_num_threads(threads)
    end)
  end)

  describe("convolutions of " .. dtype, function()
    local function results(case, x, w, b, dy)
      local opts = { stride = case[7], padding = case[8], dilation = case[9] or 1,
        groups = case[10] or 1 }
      x, w = x:clone():requires_grad_(), w:clone():requires_grad_()
      local y = mt.conv2d(x, w, b, opts)
      dy = dy or mt.randn(y:shape()):to(dtype)
      y:backward(dy:to(y:dtype()))
      return { y:detach(), x.grad, w.grad }, dy
    end

    it("are rounded once, and so are their gradients", function()
      mt.manual_seed(35)
      local threads = mt.get_num_threads()
      for number, case in ipairs(CONVOLUTIONS) do
        local x = mt.randn(case[1], case[2], case[3], case[4]):to(dtype)
        local w = mt.randn(case[5], case[2] // (case[10] or 1), table.unpack(case[6]))
          :to(dtype)
        local b = mt.randn(case[5]):to(dtype)
        mt.set_num_threads(1)
        local got, dy = results(case, x, w, b)
        local want = results(case, x:double(), w:double(), b:double(), dy)
        mt.set_num_threads(3)
        local again = results(case, x, w, b, dy)
        for i, name in ipairs { "y", "dx", "dw" } do
          is_close(dtype, got[i], want[i], "case", number, name)
          assert.is_true(got[i]:equal(again[i]), ("case %d, %s: threads"):format(number,
            name))
        end
      end
      mt.set_num_threads(threads)
    end)

    it("of no channels or images are those of zeros", function()
      local b = mt.tensor({ 1, 2, 3 }, { dtype = dtype })
      local y = mt.conv2d(mt.zeros({ 2, 0, 5, 5 }, { dtype = dtype }),
        mt.zeros({ 3, 0, 3, 3 }, { dtype = dtype }), b)
      assert.is_true(y:equal(b:view(1, 3, 1, 1):expand(2, 3, 3, 3)))
      assert.same({ 0, 3, 3, 3 }, mt.conv2d(mt.zeros({ 0, 2, 5, 5 }, { dtype = dtype }),
        mt.zeros({ 3, 2, 3, 3 }, { dtype = dtype }), b):shape())
    end)
  end)
end
