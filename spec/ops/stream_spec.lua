-- spec/ops/stream_spec.lua: results that are larger than the caches are written in
-- another way: they hold what the same computation gives piece by piece.

local mt = require "mytensor"

local LARGE <const> = (33 << 20) // 4 + 13 -- float32 elements: above the largest limit
local PIECES <const> = 11

-- Walk dim 1 in pieces whose results stay in the caches.
local function pieces(n, fn)
  local size = n // PIECES + 1
  for first = 1, n, size do fn(first, math.min(size, n - first + 1)) end
end

-- fn of the whole inputs is fn of their pieces, by one thread and by two. Inputs whose
-- dim 1 is shorter go to each piece as they are.
local function check(fn, ...)
  local inputs = { ... }
  local n, threads = inputs[1]:size(1), mt.get_num_threads()
  mt.set_num_threads(1)
  local y = fn(...)
  mt.set_num_threads(2)
  local by_two = fn(...)
  mt.set_num_threads(threads)
  assert.is_true(y:equal(by_two), "two threads")
  assert.equal(n, y:size(1))
  pieces(n, function(first, length)
    local args = {}
    for i, x in ipairs(inputs) do
      args[i] = x:size(1) == n and x:narrow(1, first, length) or x
    end
    local small = fn(table.unpack(args))
    assert.is_true(y:narrow(1, first, length):equal(small), "elements from " .. first)
  end)
end

describe("a result larger than the caches", function()
  setup(function() mt.manual_seed(9) end)

  it("of one and of two inputs", function()
    local x, y = mt.rand(LARGE), mt.rand(LARGE)
    check(function(a) return a:neg() end, x)
    check(function(a) return a:exp() end, x)
    check(function(a, b) return a + b end, x, y)
    -- inputs that begin within a line
    check(function(a, b) return a * b end, x:narrow(1, 2, LARGE - 1),
          y:narrow(1, 1, LARGE - 1))
  end)

  it("in other types", function()
    local x = mt.rand(LARGE // 2 + 5, { dtype = "float64" })
    check(function(a) return a:sqrt() end, x)
    check(function(a) return a:to("int64") end, x)
    local b = mt.randint(0, 2, 34 << 20, { dtype = "uint8" })
    check(function(a) return a:eq(1) end, b)
    check(function(a) return a:to("float16") end, b)
    check(function(a) return a:half():neg() end, mt.rand(18 << 20))
  end)

  it("with broadcast rows and columns, long and short", function()
    local x = mt.rand(2100, 4112)
    check(function(a, row) return a + row end, x, mt.rand(4112))
    check(function(a, column) return a * column end, x, mt.rand(2100, 1))
    check(function(a, row) return a + row end, mt.rand(LARGE // 5, 5), mt.rand(5))
    check(function(a, column) return a + column end, mt.rand(LARGE // 5, 5),
          mt.rand(LARGE // 5, 1))
    -- a row is no multiple of a line
    check(function(a, row) return a + row end, mt.rand(2100, 4111), mt.rand(4111))
  end)

  it("copied, also between layouts", function()
    local x = mt.rand(3001, 3003)
    check(function(a) return a:clone() end, x)
    check(function(a) return a:contiguous() end, x:t())
    check(function(a) return a:contiguous() end, mt.rand(3008, 3072):t())
    check(function(a) return a:contiguous() end, mt.rand(3072, 3008):double():t())
    check(function(a) return a:contiguous() end,
          mt.rand(16, 64, 96, 100):permute(1, 3, 4, 2))
    check(function(a) return a:contiguous() end,
          mt.rand(16, 96, 100, 64):permute(1, 4, 2, 3))
    check(function(a, b) return a + b end, mt.rand(3008, 3072):t(), mt.rand(3072, 3008))
  end)

  it("filled", function()
    for _, value in ipairs { 0, 1.5 } do
      local x = mt.full({ LARGE }, value)
      assert.equal(value, x:min():item())
      assert.equal(value, x:max():item())
    end
    local x = mt.zeros(LARGE + 1)
    x:narrow(1, 2, LARGE - 1):fill_(7)
    assert.same({ 0, 7 }, x[{ { 1, 2 } }]:totable())
    assert.same({ 7, 0 }, x[{ { LARGE, LARGE + 1 } }]:totable())
    assert.equal(7 * (LARGE - 1), x:sum():item())
  end)

  it("in place, and gradients of both inputs", function()
    local x = mt.ones(LARGE)
    x:add_(1):mul_(x)
    assert.equal(4, x:min():item())
    assert.equal(4, x:max():item())
    local a, b = mt.rand(LARGE):requires_grad_(), mt.rand(LARGE):requires_grad_()
    local da, db = table.unpack(mt.grad({ (a * b):sum() }, { a, b }))
    assert.is_true(da:equal(b))
    assert.is_true(db:equal(a))
  end)

  it("selected by a mask", function()
    local threads = mt.get_num_threads()
    for dtype, n in pairs { float32 = 2 * LARGE, float64 = LARGE, int16 = 4 * LARGE } do
      for _, part in ipairs { 0.02, 0.7 } do
        local x = mt.randint(0, 100, { n }, { dtype = dtype })
        local mask = mt.rand(n):lt(part)
        mask:narrow(1, n // 2, n // 8):fill_(false)
        local list = {}
        pieces(n, function(first, length)
          list[#list + 1] = x:narrow(1, first, length)
            :masked_select(mask:narrow(1, first, length))
        end)
        local want = mt.cat(list)
        for count = 1, 3 do
          mt.set_num_threads(count)
          local y = x:masked_select(mask)
          assert.is_true(y:equal(want), ("%s, %d threads"):format(dtype, count))
        end
        mt.set_num_threads(threads)
      end
    end
  end)

  it("normalised in rows", function()
    local x = mt.rand(8200, 1056)
    check(function(a) return a:softmax(2) end, x)
    check(function(a) return a:log_softmax(2) end, x)
    local norm = mt.fuse("x, w", "(x - mean(x, -1, true)) * w / amax(x, -1, true)")
    check(norm, x, mt.rand(1056))
    check(norm, mt.rand(LARGE // 48, 48), mt.rand(48)) -- several rows at once
    check(norm, mt.rand(LARGE // 1051, 1051), mt.rand(1051)) -- not streamed
    check(norm, mt.rand(40, 1 << 18), mt.rand(1 << 18)) -- rows that are cut
    check(norm, mt.rand(4, 2100, 1056), mt.rand(1056))
    check(function(a) return a:layer_norm() end, x)
  end)
end)
