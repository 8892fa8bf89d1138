-- spec/ops/sum_spec.lua: how exactly long sums are added up.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"

describe("a long sum", function()
  it("of 10^8 float32 ones is exact, over a broadcast view", function()
    local t = mt.ones(1):expand(100000000)
    assert.equal(100000000, t:sum():item())
    assert.equal(1, t:mean():item())
  end)

  it("of 10^8 float32 ones is exact, in memory", function()
    if os.getenv "MYTENSOR_GC_STRESS" == "1" then
      pending "a 400 MB tensor is not for the stressed run"
    end
    local t = mt.ones(100000000)
    assert.equal(100000000, t:sum():item())
    t:free()
    mt.empty_cache()
  end)

  it("over rows and over columns is as exact", function()
    local t = mt.full({ 30000, 3 }, 0.1)
    local exact = 30000 * tensors.to_float32(0.1)
    for _, v in ipairs(t:sum(1):totable()) do
      assert.is_true(math.abs(v - exact) <= exact * 2e-7, tostring(v))
    end
    for _, v in ipairs(t:transpose(1, 2):contiguous():sum(2):totable()) do
      assert.is_true(math.abs(v - exact) <= exact * 2e-7, tostring(v))
    end
  end)

  it("does not depend on the number of threads", function()
    mt.manual_seed(9)
    local threads = mt.get_num_threads()
    local x = mt.randn(300007)
    local results = {}
    for n = 1, 4 do
      mt.set_num_threads(n)
      results[n] = { x:sum():item(), x:mean():item(), x:norm():item(),
        x:narrow(1, 1, 300006):view(3, 100002):sum(2)[2]:item() }
    end
    mt.set_num_threads(threads)
    for n = 2, 4 do assert.same(results[1], results[n]) end
  end)

  it("of integers wraps in int64 and is exact beyond 2^53", function()
    local big = mt.tensor({ 1 << 53, 1, 1 }, { dtype = "int64" })
    assert.equal((1 << 53) + 2, big:sum():item())
    local edge = mt.tensor({ math.maxinteger, 1 }, { dtype = "int64" })
    assert.equal(math.mininteger, edge:sum():item())
    local bytes = mt.full({ 1000 }, 255, { dtype = "uint8" })
    assert.equal("int64", bytes:sum():dtype())
    assert.equal(255000, bytes:sum():item())
  end)

  it("carries NaN and infinities", function()
    local t = mt.zeros(1000)
    t[777] = math.huge
    assert.equal(math.huge, t:sum():item())
    t[3] = -math.huge
    local s = t:sum():item()
    assert.is_true(s ~= s)
  end)
end)

describe("the largest and the smallest", function()
  it("of long tensors with a NaN are NaN", function()
    for _, place in ipairs { 1, 500, 1000 } do
      local t = mt.arange(1, 1001):view(10, 100):clone()
      t:view(1000)[place] = 0 / 0
      for _, f in ipairs { "max", "min", "amax", "amin" } do
        local v = t[f](t):item()
        assert.is_true(v ~= v, f)
      end
      assert.equal(place, t:argmax():item())
      assert.equal(place, t:argmin():item())
    end
  end)
end)
