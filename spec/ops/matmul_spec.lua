-- spec/ops/matmul_spec.lua: products larger than the blocks they are cut into: exact,
-- in any layout, and the same for every number of threads.

local mt = require "mytensor"

-- A matrix with the values of t, laid out in another way.
local layouts = {
  plain = function(t) return t end,
  turned = function(t) return t:t():contiguous():t() end,
  sliced = function(t)
    local wide = mt.zeros({ t:size(1), 2 * t:size(2) + 3 }, { dtype = t:dtype() })
    local part = wide[{ {}, { 3, t:size(2) + 2 } }]
    part:copy_(t)
    return part
  end,
  strided = function(t) return mt.stack({ t, t }, 3):select(3, 1) end,
}
local NAMES = { "plain", "turned", "sliced", "strided" }

local SIZES = { -- rows, columns, terms
  { 2, 70, 300 }, { 3, 33, 500 }, { 5, 300, 40 }, { 64, 10, 128 }, { 64, 256, 784 },
  { 61, 45, 1 }, { 37, 400, 3 }, { 150, 31, 770 }, { 300, 17, 400 }, { 7, 130, 1000 },
  { 129, 129, 129 }, { 256, 200, 64 }, { 1, 90, 600 }, { 400, 1, 90 }, { 97, 64, 512 },
  { 200, 1600, 30 }, { 260, 40, 1025 }, { 90, 256, 256 },
}
if os.getenv "MYTENSOR_GC_STRESS" == "1" then SIZES = { { 64, 40, 300 } } end

-- Whole numbers: sums of floats are exact, and other code makes products of integers.
local function whole(rows, columns)
  return mt.randint(-4, 4, { rows, columns }, { dtype = "int32" })
end

describe("matmul of large matrices", function()
  it("is exact for whole numbers, in every layout", function()
    mt.manual_seed(11)
    for k, size in ipairs(SIZES) do
      local m, n, terms = size[1], size[2], size[3]
      local a, b = whole(m, terms), whole(terms, n)
      local want = a:matmul(b)
      for i, left in ipairs(NAMES) do
        local right = NAMES[(i + k) % 4 + 1]
        for _, dtype in ipairs { "float32", "float64" } do
          local y = layouts[left](a:to(dtype)):matmul(layouts[right](b:to(dtype)))
          assert.is_true(y:to("int32"):equal(want),
                         ("%d x %d x %d, %s and %s, %s"):format(m, n, terms, left,
                                                                right, dtype))
        end
      end
    end
  end)

  it("reads no stride of a dim of size 1", function()
    local turned = mt.arange(1, 4001):reshape(1, 1000, 1, 4):permute(2, 3, 1, 4)
    local cut = mt.arange(1, 13):reshape(2, 1, 3, 2):narrow(3, 1, 2)
    for _, x in ipairs { turned, cut, cut:transpose(1, 2), cut:unsqueeze(3) } do
      local width = x:shape()[x:ndim()]
      local w, b = mt.arange(width * 3):reshape(3, width), mt.ones(3)
      local flat = x:contiguous()
      assert.is_true(x:matmul(w:t()):equal(flat:matmul(w:t())))
      assert.is_true(mt.linear(x, w, b, "relu"):equal(mt.linear(flat, w, b, "relu")))
      w:requires_grad_()
      local function gradient(v)
        return mt.grad(mt.linear(v, w, b):square():sum(), w)[1]
      end
      assert.is_true(gradient(x):equal(gradient(flat)))
    end
  end)

  it("does not depend on the number of threads", function()
    mt.manual_seed(12)
    local threads = mt.get_num_threads()
    for _, size in ipairs(SIZES) do
      for _, layout in ipairs(NAMES) do
        local a = layouts[layout](mt.randn(size[1], size[3]))
        local w = layouts[layout](mt.randn(size[2], size[3]))
        local b, first = mt.randn(size[2]), nil
        for _, n in ipairs { 1, 2, 3, 5 } do
          mt.set_num_threads(n)
          local y = mt.linear(a, w, b, "gelu")
          first = first or y
          assert.is_true(y:equal(first), ("%d threads, %s, %s"):format(
            n, layout, table.concat(size, " x ")))
        end
      end
    end
    mt.set_num_threads(threads)
  end)
end)
