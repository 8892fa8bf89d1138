-- spec/ops/product_spec.lua: matmul and linear of many sizes and layouts. The elements
-- are small whole numbers, so every device, dtype and order of adding gives one sum.

local mt = require "mytensor"
local devices = require "spec.support.devices"

local function whole(...)
  return mt.randint(-3, 4, { ... }):double()
end

-- x (..., n) with other strides: every second element of a larger tensor, the dims
-- turned, or a broadcast one.
local layouts = {
  { "contiguous", function(x) return x end },
  { "turned", function(x)
    return x:transpose(-1, -2):contiguous():transpose(-1, -2)
  end },
  { "every second column", function(x)
    return mt.stack({ x, x + 1 }, -1):select(-1, 1)
  end },
  { "turned, every second", function(x)
    local t = x:transpose(-1, -2)
    return mt.stack({ t, t + 1 }, -1):select(-1, 1):transpose(-1, -2)
  end },
  { "one row for all", function(x)
    local shape = x:shape()
    return x:narrow(-2, 1, 1):expand(table.unpack(shape))
  end },
}

-- What a sum of products is, without matmul.
local function product_of(a, b)
  return (a:unsqueeze(-1) * b:unsqueeze(-3)):sum(-2)
end

local sizes = {
  { 4, 4, 4 }, { 1, 1, 1 }, { 16, 16, 16 }, { 17, 15, 33 }, { 3, 700, 5 },
  { 40, 1, 40 },
  { 1, 300, 50 }, { 50, 300, 1 }, { 64, 64, 257 }, { 100, 2100, 20 }, { 300, 90, 310 },
}

for _, device in ipairs(devices.list) do
  describe("products on " .. device, function()
    local function check(a, b, dtype, expected)
      local x, y = a:to(dtype):to(device), b:to(dtype):to(device)
      for _, la in ipairs(layouts) do
        for _, lb in ipairs(layouts) do
          local xl, yl = la[2](x), lb[2](y)
          local e = expected
          if la[1] == "one row for all" or lb[1] == "one row for all" then
            e = product_of(xl:cpu():double(), yl:cpu():double())
          end
          local c = xl:matmul(yl)
          assert.is_true(c:cpu():equal(e:to(dtype)),
            ("%s of shape %s, %s and %s"):format(dtype,
              table.concat(c:shape(), " "), la[1], lb[1]))
        end
      end
    end

    for _, size in ipairs(sizes) do
      local m, k, n = table.unpack(size)
      it(("of %d x %d and %d x %d"):format(m, k, k, n), function()
        mt.manual_seed(m + k + n)
        local a, b = whole(m, k), whole(k, n)
        local expected = product_of(a, b)
        for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
          check(a, b, dtype, expected)
        end
      end)
    end

    it("of batches", function()
      mt.manual_seed(5)
      for _, shapes in ipairs {
        { { 5, 3, 4 }, { 5, 4, 6 } }, { { 2, 3, 20, 9 }, { 3, 9, 17 } },
        { { 5, 1, 33 }, { 33, 18 } }, { { 4, 1, 3, 8 }, { 1, 2, 8, 5 } },
        { { 3, 70, 40 }, { 3, 40, 90 } },
      } do
        local a = whole(table.unpack(shapes[1]))
        local b = whole(table.unpack(shapes[2]))
        check(a, b, "float32", product_of(a, b))
        check(a, b, "float64", product_of(a, b))
      end
    end)

    it("of one row a matrix, whose columns are apart", function()
      local wide = whole(5, 1, 120):float():to(device)
      local a = wide:view(5, 1, 60, 2):select(-1, 1)
      for _, n in ipairs { 7, 30000 } do
        local b = whole(60, n):float():to(device)
        local expected = product_of(a:cpu():double(), b:cpu():double())
        assert.is_true(a:matmul(b):cpu():double():equal(expected))
      end
    end)

    it("linear adds its bias", function()
      mt.manual_seed(6)
      for _, size in ipairs { { 3, 5, 4 }, { 70, 33, 20 }, { 500, 300, 200 } } do
        local m, k, n = table.unpack(size)
        local x, w, b = whole(m, k), whole(n, k), whole(n)
        for _, dtype in ipairs { "float32", "float64", "float16" } do
          local function there(t) return t:to(dtype):to(device) end
          local y = mt.linear(there(x), there(w), there(b))
          assert.is_true(y:cpu():equal((product_of(x, w:t()) + b):to(dtype)), dtype)
        end
      end
    end)

    -- the last size is a library's work on a GPU, activation included where it can
    it("linear's relu gives 0 below 0, and keeps NaN and infinity", function()
      mt.manual_seed(7)
      for _, size in ipairs { { 3, 5, 4 }, { 70, 33, 20 }, { 500, 300, 200 } } do
        local m, k, n = table.unpack(size)
        local x, w, b = whole(m, k), whole(n, k), whole(n)
        x[2], b[n] = 0 / 0, math.huge
        local z = product_of(x, w:t()) + b
        for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
          local function there(t) return t:to(dtype):to(device) end
          local y = mt.linear(there(x), there(w), there(b), "relu"):cpu()
          assert.equal(n, y[2]:isnan():sum():item())
          assert.is_true(y[1]:equal(z[1]:to(dtype):relu()), dtype)
          assert.is_true(y[{ { 3, m } }]:equal(z[{ { 3, m } }]:to(dtype):relu()), dtype)
          assert.equal(math.huge, y[1][n]:item())
        end
      end
    end)
  end)
end
