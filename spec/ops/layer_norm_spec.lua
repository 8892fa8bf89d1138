-- spec/ops/layer_norm_spec.lua: what the reference data cannot say about layer_norm.

local mt = require "mytensor"

describe("layer_norm", function()
  it("gives the same bits with any number of threads", function()
    mt.manual_seed(5)
    local x, dy, w = mt.randn(3001, 70), mt.randn(3001, 70), mt.randn(70)
    local threads, first = mt.get_num_threads(), nil
    for n = 1, 4 do
      mt.set_num_threads(n)
      local found = { mt.layer_norm(x, w), mt.layer_norm_backward(x, dy, w) }
      first = first or found
      for i = 1, 4 do assert.is_true(found[i]:equal(first[i]), n .. " threads") end
    end
    mt.set_num_threads(threads)
  end)

  it("is as exact in float32 for a mean far above the deviation", function()
    mt.manual_seed(6)
    local x = mt.randn(16, 4000) + 1000
    local y, exact = x:layer_norm(), x:double():layer_norm()
    -- values up to 5 have an ulp of 5e-7
    assert.is_true((y:double() - exact):abs():max():item() < 1e-6)
  end)

  it("sums the gradients of weight and bias over many rows", function()
    mt.manual_seed(7)
    local x, dy = mt.randn(20000, 3), mt.rand(20000, 3)
    local _, _, db = mt.layer_norm_backward(x, dy)
    assert.is_true((db:double() / dy:double():sum(1) - 1):abs():max():item() < 1e-7)
  end)
end)
