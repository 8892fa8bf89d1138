-- spec/ops/random_spec.lua: what can be said about ops that draw: range, distribution,
-- the same numbers for the same seed, other numbers in the next call.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"
local random_ops = require "spec.support.random_ops"
local says = require "spec.support.expect".says

local N = os.getenv "MYTENSOR_GC_STRESS" == "1" and 4000 or 20000

-- draw(n, dtype) for each op, with the range and the moments that it should have.
local draws = {
  uniform = {
    draw = function(n, dtype) return mt.zeros(n, { dtype = dtype }):uniform(-1, 3) end,
    lo = -1, hi = 3, half_open = true, mean = 1, variance = 16 / 12,
  },
  normal = {
    draw = function(n, dtype) return mt.zeros(n, { dtype = dtype }):normal(2, 3) end,
    lo = 2 - 3 * 7, hi = 2 + 3 * 7, mean = 2, variance = 9,
  },
  random = {
    draw = function(n, dtype) return mt.zeros(n, { dtype = dtype }):random(-2, 5) end,
    lo = -2, hi = 5, whole = true, mean = 1.5, variance = 63 / 12,
  },
  bernoulli = {
    draw = function(n, dtype) return mt.zeros(n, { dtype = dtype }):bernoulli(0.25) end,
    lo = 0, hi = 1, whole = true, mean = 0.25, variance = 0.1875,
  },
  dropout = {
    draw = function(n, dtype) return mt.ones(n, { dtype = dtype }):dropout(0.25) end,
    lo = 0, hi = 4 / 3, mean = 1, variance = 1 / 3,
  },
}

describe("the ops that draw", function()
  it("each have a test here", function()
    for _, row in ipairs(mt.ops()) do
      if row.random and not row.name:find "^_" then
        assert.is_true(random_ops[row.name] == true, row.name)
        assert.is_table(draws[row.name], row.name)
      end
    end
    for name in pairs(random_ops) do assert.is_table(draws[name], name) end
  end)
end)

for name, d in pairs(draws) do
  for _, dtype in ipairs { "float32", "float64" } do
    describe(name .. " in " .. dtype, function()
      it("keeps to its range", function()
        mt.manual_seed(7)
        local seen_lo, seen_hi = math.huge, -math.huge
        for _, v in ipairs(tensors.flat(d.draw(N, dtype))) do
          local fits = v >= d.lo and v <= d.hi + 1e-6
            and not (d.half_open and v >= d.hi) and not (d.whole and v ~= v // 1)
          if not fits then error("drew " .. tostring(v)) end
          if v < seen_lo then seen_lo = v end
          if v > seen_hi then seen_hi = v end
        end
        if d.whole then
          assert.equal(d.lo, seen_lo)
          assert.equal(d.hi, seen_hi)
        end
      end)

      it("has its mean and its variance", function()
        mt.manual_seed(11)
        local list = tensors.flat(d.draw(N, dtype))
        local sum, squares = 0, 0
        for _, v in ipairs(list) do sum = sum + v end
        local mean = sum / N
        for _, v in ipairs(list) do squares = squares + (v - mean) ^ 2 end
        -- six standard errors of the mean; the variance within 6 percent
        assert.is_true(math.abs(mean - d.mean) < 6 * math.sqrt(d.variance / N),
          "mean " .. mean)
        assert.is_true(math.abs(squares / N - d.variance) < 0.06 * d.variance,
          "variance " .. squares / N)
      end)

      it("draws the same after the same seed, and other numbers next time", function()
        mt.manual_seed(5)
        local first, second = d.draw(100, dtype), d.draw(100, dtype)
        mt.manual_seed(5)
        assert.is_true(d.draw(100, dtype):equal(first))
        assert.is_true(d.draw(100, dtype):equal(second))
        assert.is_false(first:equal(second))
        mt.manual_seed(6)
        assert.is_false(d.draw(100, dtype):equal(first))
      end)

      it("does not depend on the number of threads", function()
        local threads = mt.get_num_threads()
        mt.manual_seed(3)
        mt.set_num_threads(1)
        local one = d.draw(100003, dtype)
        mt.manual_seed(3)
        mt.set_num_threads(2)
        local two = d.draw(100003, dtype)
        mt.set_num_threads(threads)
        assert.is_true(one:equal(two))
      end)
    end)
  end
end

describe("random numbers", function()
  -- Philox4x32-10 with 64-bit key 0 and counter 0, from the paper's known answers
  -- (Salmon et al., Parallel random numbers: as easy as 1, 2, 3)
  it("come from Philox4x32-10", function()
    mt.manual_seed(0)
    local words = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 }
    local u = mt.rand(4)
    for i, w in ipairs(words) do
      assert.equal((w >> 8) * 2.0 ^ -24, u[i]:item())
    end
  end)

  it("go on from a saved state", function()
    mt.manual_seed(1)
    mt.rand(10)
    local state = mt.get_rng_state()
    local a = mt.randn(33)
    mt.set_rng_state(state)
    assert.is_true(mt.randn(33):equal(a))
  end)

  it("give the whole numbers low .. high, both included", function()
    mt.manual_seed(2)
    local seen = {}
    local t = mt.randint(1, 6, 600)
    assert.equal("int64", t:dtype())
    for _, v in ipairs(t:totable()) do seen[v] = (seen[v] or 0) + 1 end
    for v = 1, 6 do assert.is_true(seen[v] > 50, v .. ": " .. tostring(seen[v])) end
    seen[1], seen[2], seen[3], seen[4], seen[5], seen[6] = nil, nil, nil, nil, nil, nil
    assert.is_nil(next(seen))
  end)

  it("give every whole number of a permutation once", function()
    mt.manual_seed(2)
    for _, n in ipairs { 0, 1, 2, 1000 } do
      local list = mt.randperm(n):totable()
      assert.equal(n, #list)
      local moved = 0
      for i, v in ipairs(list) do if i ~= v then moved = moved + 1 end end
      if n == 1000 then assert.is_true(moved > 900) end
      table.sort(list)
      for i, v in ipairs(list) do assert.equal(i, v) end
    end
  end)
end)

describe("bernoulli", function()
  it("takes the probability of each element", function()
    mt.manual_seed(5)
    local p = mt.tensor { 0, 0.25, 1 }
    for _, dtype in ipairs { "float32", "bfloat16", "int64", "bool" } do
      local x = mt.zeros({ 4000, 3 }, { dtype = dtype })
      for _, y in ipairs { x:bernoulli(p), x:bernoulli { p = p }, x:bernoulli_(p) } do
        assert.equal(dtype, y:dtype())
        local mean = y:double():mean(1):totable()
        assert.equal(0, mean[1])
        assert.is_true(math.abs(mean[2] - 0.25) < 4 * (0.1875 / 4000) ^ 0.5, mean[2])
        assert.equal(1, mean[3])
      end
    end
  end)

  it("takes them from x where none is given, and 0.5 in place", function()
    assert.same({ 0, 1 }, mt.bernoulli(mt.tensor { 0, 1 }):totable())
    assert.equal("float64", mt.ones(2, { dtype = "float64" }):bernoulli():dtype())
    local mean = mt.zeros(4000):bernoulli_():mean():item()
    assert.is_true(math.abs(mean - 0.5) < 4 * 0.5 / 4000 ^ 0.5, mean)
    assert.same({ 0 }, mt.zeros(0):bernoulli():shape())
  end)

  it("names what is no probability", function()
    local x = mt.tensor { 0, 1.5 }
    says("calling 'bernoulli' on bad self (x has elements that are not in 0 .. 1)",
      function() x:bernoulli() end)
    for _, bad in ipairs { -1, 2, 0 / 0 } do
      says("bad argument #1 to 'bernoulli_' (p has elements that are not in 0 .. 1)",
        function() x:bernoulli_(mt.tensor(bad)) end)
    end
    says("bad argument #1 to 'bernoulli' (p has shape [3, 1], which does not broadcast "
      .. "to [2])", function() x:bernoulli(mt.ones(3, 1)) end)
  end)
end)

describe("dropout", function()
  it("zeroes or scales each element, and its gradient the same ones", function()
    mt.manual_seed(4)
    local x = mt.full({ 40, 50 }, 3, { requires_grad = true })
    local y = x:dropout(0.4)
    local zeros = 0
    for _, v in ipairs(tensors.flat(y)) do
      if v == 0 then
        zeros = zeros + 1
      else
        assert.is_true(tensors.close(v, 5, 0, 1e-6), tostring(v))
      end
    end
    assert.is_true(zeros > 650 and zeros < 950, zeros .. " zeros")
    y:backward(mt.full({ 40, 50 }, 2))
    local g, values = tensors.flat(x.grad), tensors.flat(y)
    for i = 1, #g do
      assert.is_true(tensors.close(g[i], values[i] == 0 and 0 or 2 / 0.6, 0, 1e-6))
    end
  end)

  it("has a gradient of its gradient", function()
    mt.manual_seed(4)
    local x = mt.ones(50, { dtype = "float64", requires_grad = true })
    local y = x:dropout(0.5)
    local dy = mt.ones(50, { dtype = "float64", requires_grad = true })
    local dx = mt.grad({ y }, { x }, { grad_outputs = { dy }, create_graph = true })[1]
    local ddy = mt.grad({ dx:sum() }, { dy })[1]
    assert.is_true(ddy:equal(y:detach()))
  end)

  it("gives x itself when not training, and nothing but zeros at p = 1", function()
    local x = mt.rand(10)
    assert.is_true(x:dropout(0.5, false):equal(x))
    assert.is_true(x:dropout(0):equal(x))
    assert.is_true(x:dropout(1):equal(mt.zeros(10)))
  end)

  it("takes probabilities only", function()
    local x = mt.rand(3)
    for _, p in ipairs { -0.1, 1.5, 0 / 0 } do
      assert.is_false((pcall(x.dropout, x, p)))
    end
  end)
end)
