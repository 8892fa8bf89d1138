-- spec/ops/reduce_spec.lua: what small reference data does not reach: reductions of
-- tensors so long that they are cut into pieces, products of integers, drawing into
-- views, long lists.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"

local N = os.getenv "MYTENSOR_GC_STRESS" == "1" and 70001 or 600001

local function with_threads(fn)
  local threads, results = mt.get_num_threads(), {}
  for n = 1, 3 do
    mt.set_num_threads(n)
    local ok, value = pcall(fn)
    mt.set_num_threads(threads)
    if not ok then error(value, 0) end
    results[n] = value
  end
  for n = 2, 3 do assert.same(results[1], results[n]) end
  return results[1]
end

local function draw(dtype, n)
  mt.manual_seed(17)
  return mt.randn({ n or N }, { dtype = "float64" }):to(dtype or "float64")
end

describe("a long tensor", function()
  it("has its largest and smallest element, and their places", function()
    for _, dtype in ipairs { "float32", "float64", "int64", "int32", "int8",
      "uint8" } do
      for _, place in ipairs { 1, N // 3, N - 1, N } do
        local x = mt.full({ N }, 7, { dtype = dtype })
        x[place] = 9
        if place > 5 then x[place - 4] = 3 end
        local got = with_threads(function()
          return { x:amax():item(), x:max():item(), x:argmax():item(), x:amin():item(),
            x:min():item(), x:argmin():item() }
        end)
        assert.equal(9, got[1])
        assert.equal(9, got[2])
        assert.equal(place, got[3])
        assert.equal(place > 5 and 3 or 7, got[4])
        assert.equal(place > 5 and place - 4 or (place == 1 and 2 or 1), got[6])
      end
    end
  end)

  it("gives the first of ties that lie in different pieces", function()
    local x = mt.zeros(N)
    x[N // 2] = 5
    x[N - 3] = 5
    assert.equal(N // 2, with_threads(function() return x:argmax():item() end))
    assert.equal(1, with_threads(function() return x:argmin():item() end))
  end)

  it("has its product", function()
    local x = mt.ones({ N }, { dtype = "float64" })
    x[3], x[N // 2], x[N] = -2, 3, 0.25
    assert.equal(-1.5, with_threads(function() return x:prod():item() end))
    local i = mt.ones({ N }, { dtype = "int64" })
    i[3], i[N // 2], i[N] = -2, 3, 5
    assert.equal(-30, with_threads(function() return i:prod():item() end))
  end)

  it("has the sum of its integers", function()
    local x = mt.full({ N }, 3, { dtype = "int32" })
    assert.equal(3 * N, with_threads(function() return x:sum():item() end))
    assert.equal(N, with_threads(function() return x:count_nonzero():item() end))
    x:zero_()
    assert.is_false(x:any():item())
    x[N - 1] = 1
    assert.is_true(x:any():item())
    assert.is_false(x:all():item())
  end)

  it("has mean, variance, norm and logsumexp", function()
    for _, dtype in ipairs { "float64", "float32" } do
      local x = draw(dtype)
      local wide = x:double()
      local mean = wide:sum():item() / N
      local d = wide - mean
      local var = (d * d):sum():item() / (N - 1)
      local want = { mean, var, var ^ 0.5, (wide * wide):sum():item() ^ 0.5,
        math.log(wide:exp():sum():item()), wide:abs():sum():item() }
      local got = with_threads(function()
        return { x:mean():item(), x:var():item(), x:std():item(), x:norm():item(),
          x:logsumexp():item(), x:norm(1):item() }
      end)
      local rtol = dtype == "float64" and 1e-11 or 1e-5
      for i = 1, #want do
        assert.is_true(tensors.close(got[i], want[i], rtol, rtol),
          ("%s, %d: %.17g, not %.17g"):format(dtype, i, got[i], want[i]))
      end
    end
  end)

  it("is reduced by rows and by columns as piece by piece", function()
    local rows = N // 7
    local x = draw("float64", rows * 7):view(rows, 7)
    for _, name in ipairs { "sum", "mean", "amax", "amin", "var", "logsumexp", "norm",
      "prod", "any", "all" } do
      local function reduce(t, dim) return t[name](t, { dim = dim }) end
      local columns = reduce(x, 1)
      local turned = reduce(x:transpose(1, 2):contiguous(), 2)
      local tolerance = { atol = 1e-11, rtol = 1e-10 }
      assert.is_nil(tensors.differ(columns, turned, tolerance), name)
      for _, c in ipairs { 1, 4, 7 } do
        local one = x:select(2, c):contiguous()
        assert.is_nil(tensors.differ(columns[c], one[name](one), tolerance), name)
      end
      local some = x:narrow(1, rows - 5, 5):contiguous()
      assert.is_nil(tensors.differ(reduce(x, 2):narrow(1, rows - 5, 5), reduce(some, 2),
        tolerance), name)
    end
    for _, name in ipairs { "argmax", "argmin", "max", "min" } do
      -- the last result is the index
      local turned = x:transpose(1, 2):contiguous()
      local by_columns = table.pack(x[name](x, 1))
      local by_rows = table.pack(turned[name](turned, 2))
      assert.is_true(by_columns[by_columns.n]:equal(by_rows[by_rows.n]), name)
    end
  end)
end)

describe("short rows, many of them,", function()
  local EXACT = { "amax", "amin", "max", "min", "argmax", "argmin", "any", "all",
    "count_nonzero" }
  local ROUNDED = { "sum", "prod", "logsumexp", "mean", "var", "norm" }
  local FLOATS = { mean = true, var = true, norm = true }
  local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32",
    "int16", "int8", "uint8", "bool" }

  local function reduced(x, name) return { x[name](x, { dim = -1 }) } end

  local function alike(a, b, rtol)
    local same = a:eq(b):logical_or(a:isnan():logical_and(b:isnan()))
    if rtol then same = same:logical_or((a - b):abs():le(b:abs() * rtol + 1e-12)) end
    return same:all():item()
  end

  -- What is reduced by rows and columns, with a stride, and in rows of rows.
  local function check(rows, n, dtype)
    local x = (mt.randn(rows, 2 * n) * 3):abs():floor():to(dtype):narrow(2, 2, n)
    if tensors.is_float(dtype) and n > 2 then x[{ 3, 2 }] = 0 / 0 end
    local flat, turned = x:contiguous(), x:t():contiguous():t()
    local deep = x:narrow(1, 1, rows // 2 * 2):unflatten(1, { 2, rows // 2 })
    local rtol = dtype:find "16$" and 2 ^ -7 or 1e-6
    local function compare(name, tolerance)
      local want = reduced(turned, name)
      for _, y in ipairs { flat, x, deep } do
        for i, got in ipairs(reduced(y, name)) do
          local a = got:flatten()
          local b = want[i]:narrow(1, 1, a:size(1))
          assert.is_true(alike(a, b, tolerance),
            ("%s of %d x %d %s"):format(name, rows, n, dtype))
        end
      end
    end
    for _, name in ipairs(EXACT) do compare(name) end
    for _, name in ipairs(ROUNDED) do
      if tensors.is_float(dtype) or not FLOATS[name] then compare(name, rtol) end
    end
  end

  it("are reduced as columns are", function()
    mt.manual_seed(23)
    for _, dtype in ipairs(DTYPES) do
      for _, n in ipairs { 1, 2, 7, 8, 9, 31, 64, 65, 128, 129 } do
        for _, rows in ipairs { 16, 131, 300 } do
          if n % 8 ~= 0 or rows ~= 16 then check(rows, n, dtype) end
        end
      end
    end
  end)

  it("are alike by any number of threads", function()
    local x = draw("float32", 40000 * 31):view(40000, 31)
    for _, name in ipairs { "sum", "var", "logsumexp", "argmin" } do
      with_threads(function() return x[name](x, 2):totable() end)
    end
  end)
end)

describe("products of integers", function()
  it("are exact and wrap", function()
    for _, dtype in ipairs { "int64", "int32", "int16", "int8", "uint8" } do
      local a = mt.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = dtype })
      local b = mt.tensor({ { 7, 8 }, { 9, 10 }, { 11, 12 } }, { dtype = dtype })
      local y = a:matmul(b)
      assert.equal(dtype, y:dtype())
      local want = { { 58, 64 }, { 139, 154 } }
      if dtype == "int8" then want[2] = { 139 - 256, 154 - 256 } end
      assert.same(want, y:totable())
      assert.same(want, b:transpose(1, 2):matmul(a:transpose(1, 2)):transpose(1, 2)
        :totable())
      assert.equal(14, a[1]:matmul(a[1]):item())
    end
    local big = mt.full({ 1, 2 }, 1 << 62, { dtype = "int64" })
    assert.equal(math.mininteger, big:matmul(mt.ones({ 2, 1 }, { dtype = "int64" }))
      :item())
  end)

  it("agree with float64 on larger matrices, on any number of threads", function()
    mt.manual_seed(3)
    local a, b = mt.randint(-50, 50, { 61, 83 }), mt.randint(-50, 50, { 83, 47 })
    local want = a:double():matmul(b:double()):long():totable()
    assert.same(want, with_threads(function() return a:matmul(b):totable() end))
  end)
end)

describe("drawing into a view", function()
  it("gives the elements of the view what a tensor of its shape gets", function()
    for _, name in ipairs { "uniform_", "normal_", "bernoulli_" } do
      mt.manual_seed(8)
      local want = mt.zeros(5, 7)
      want[name](want)
      mt.manual_seed(8)
      local turned = mt.zeros(7, 5):transpose(1, 2)
      turned[name](turned)
      assert.is_true(turned:equal(want), name)
      mt.manual_seed(8)
      local frame = mt.zeros(9, 11)
      local cut = frame:narrow(1, 3, 5):narrow(2, 2, 7)
      cut[name](cut)
      assert.is_true(cut:equal(want), name)
      frame:narrow(1, 3, 5):narrow(2, 2, 7):zero_()
      assert.equal(0, frame:abs():sum():item())
    end
  end)
end)

describe("many tensors", function()
  it("are joined in their order", function()
    local list = {}
    for i = 1, 100 do list[i] = mt.full({ 2, i % 3 }, i, { dtype = "int64" }) end
    local y = mt.cat(list, 2)
    local row = {}
    for i = 1, 100 do for _ = 1, i % 3 do row[#row + 1] = i end end
    assert.same({ row, row }, y:totable())
  end)

  it("have their gradients when joined, also those that are empty", function()
    local list = {}
    for i = 1, 40 do
      list[i] = mt.full({ i % 4 }, i, { dtype = "float64", requires_grad = true })
    end
    local y = mt.cat(list)
    local dy = mt.arange(1, y:numel() + 1, { dtype = "float64" })
    local g = mt.grad({ y }, list, { grad_outputs = { dy } })
    assert.is_true(mt.cat(g):equal(dy))
  end)
end)

describe("scatter_add of a source larger than the index", function()
  it("takes the front part of the source, and its gradient is zero behind", function()
    local x = mt.zeros({ 3, 2 }, { dtype = "float64", requires_grad = true })
    local index = mt.tensor({ { 3, 1 } }, { dtype = "int64" })
    local src = mt.tensor({ { 1, 2 }, { 3, 4 } }, { dtype = "float64",
      requires_grad = true })
    local y = x:scatter_add(1, index, src)
    assert.same({ { 0, 2 }, { 0, 0 }, { 1, 0 } }, y:totable())
    assert.is_true(mt.gradcheck(function(a, b) return a:scatter_add(1, index, b) end,
      { x, src }))
  end)
end)

-- Many short lines are reduced side by side: each as if it were alone.
describe("short lines", function()
  local OPS = {
    sum = {}, mean = { float = true }, prod = {}, amax = {}, amin = {}, argmax = {},
    argmin = {}, any = {}, all = {}, count_nonzero = {}, logsumexp = { float = true },
    var = { float = true }, std = { float = true },
  }
  for _, p in ipairs { 0, 1, 2, 3, math.huge, -math.huge } do
    OPS["norm " .. p] = { float = true, p = p }
  end

  local function apply(name, x, dim)
    local op = OPS[name]
    if op.p then return x:norm(op.p, dim) end
    return x[name](x, dim)
  end

  -- x, dim: lines of 5 to 40 elements.
  local function check(x, dim, dtype)
    local lines = x:movedim(dim, -1):reshape(-1, x:size(dim))
    for name, op in pairs(OPS) do
      if not op.float or dtype:find "float" then
        local y = apply(name, x, dim):reshape(-1)
        for i = 1, lines:size(1), 7 do
          local want = apply(name, lines[i], 1)
          local text = ("%s of %s, line %d"):format(name, dtype, i)
          local a, b = y[i]:item(), want:item()
          if math.type(a) == "float" and a == a and a - a == 0 then
            local part = dtype == "bfloat16" and 1e-2 or dtype == "float16" and 2e-3
              or 1e-6
            assert.is_true(math.abs(a - b) <= part * math.max(1, math.abs(b)), text)
          else
            assert.equal(tostring(b), tostring(a), text)
          end
        end
      end
    end
  end

  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64",
    "int32", "int16", "int8", "uint8", "bool" } do
    it("of " .. dtype .. " are reduced as they are alone", function()
      mt.manual_seed(31)
      local function draw_lines(...)
        if dtype:find "float" then return mt.randn(...):to(dtype) end
        return mt.randint(0, dtype == "bool" and 1 or 3, ...):to(dtype)
      end
      for _, n in ipairs { 1, 3, 5, 8, 13, 16, 31, 33, 40 } do
        local x = draw_lines(83, n)
        check(x, 2, dtype)
        check(x:t(), 1, dtype)
        check(draw_lines(83, n, 2):select(3, 1), 2, dtype)
      end
      check(draw_lines(9, 11, 6, 3), 3, dtype)
      for _, few in ipairs { 2, 5, 32 } do
        check(draw_lines(2, 64, few), 2, dtype)
        check(draw_lines(2, 131, few), 2, dtype)
      end
      check(draw_lines(9000, 3), 1, dtype)
      check(draw_lines(500):unfold(1, 5, 1), 2, dtype)
      check(draw_lines(500):unfold(1, 11, 3), 2, dtype)
    end)
  end

  it("with NaN and infinities", function()
    local x = mt.randn(100, 9)
    x[{ {}, 4 }] = 0 / 0
    x[{ { 1, 50 }, 4 }] = math.huge
    x[{ { 20, 30 }, 7 }] = -math.huge
    check(x, 2, "float32")
  end)

  it("give the same with one thread and with two", function()
    local x = mt.randn(9000, 12)
    local threads, results = mt.get_num_threads(), {}
    for n = 1, 2 do
      mt.set_num_threads(n)
      results[n] = { x:sum(2), x:std(2), x:argmax(2), x:unfold(2, 3, 1):sum(3) }
    end
    mt.set_num_threads(threads)
    for i, y in ipairs(results[1]) do assert.is_true(y:equal(results[2][i])) end
  end)
end)

-- float16 ends at 65504, and has no odd numbers from 2048.
describe("more numbers than their dtype counts to", function()
  local devices = require "spec.support.devices"
  local M = 70000

  local function near(want, got, dtype)
    assert.equal(dtype, got:dtype())
    local part = dtype == "float16" and 2 ^ -10 or 2 ^ -7
    for i, v in ipairs(tensors.flat(want)) do
      local g = tensors.flat(got)[i]
      assert.is_true(math.abs(g - v) <= part * math.abs(v) + 1e-7, g .. " ~= " .. v)
    end
  end

  devices.each(_ENV, function(device)
    for _, dtype in ipairs { "float16", "bfloat16" } do
      local function drawn(...)
        mt.manual_seed(51)
        return mt.rand({ ... }, { dtype = "float64" }):to(dtype):to(device)
      end

      it(("nanmean of %s on %s"):format(dtype, device), function()
        local x = drawn(2, M)
        x[{ 1, { 1, 100 } }] = 0 / 0
        near(x:double():nanmean(2), x:nanmean(2), dtype)
        near(x:double():nanmean(), x:nanmean(), dtype)
        near(mt.ones({}), mt.ones({ M }, { dtype = dtype, device = device }):nanmean(),
          dtype)
        local leaf = x:detach():requires_grad_()
        local g = mt.grad(leaf:nanmean() * 1000, leaf)[1]
        near(mt.tensor { 0, 1000 / (2 * M - 100) }, g[{ 1, { 100, 101 } }], dtype)
      end)

      it(("gradients of %s on %s"):format(dtype, device), function()
        local x = drawn(M)
        local index = mt.ones({ M }, { dtype = "int64", device = device })
        local function gradient(fn, t)
          local leaf = t:detach():requires_grad_()
          return mt.grad(fn(leaf) * 1000, leaf)[1]
        end
        for name, fn in pairs {
          mean = function(t) return t:mean() end,
          var = function(t) return t:var() end,
          std = function(t) return t:std() end,
          ["the largest, all alike"] = function(t) return (t - t:detach()):amax() end,
          ["the norm, all alike"] = function(t)
            return (t - t:detach() + 1):norm(math.huge)
          end,
          ["the largest of a place"] = function(t)
            local zero = t - t:detach()
            return zero:narrow(1, 1, 1):scatter_reduce(1, index, zero, "amax")
          end,
          mse = function(t) return mt.mse_loss(t, t:detach() * 0) end,
        } do
          local want, got = gradient(fn, x:double()), gradient(fn, x):double()
          local part = dtype == "float16" and 2 ^ -9 or 2 ^ -6
          local off = (want - got):abs():max():item()
          assert.is_true(off <= part * want:abs():max():item(), name .. ": " .. off)
        end
      end)

      it(("cov and corrcoef of %s on %s"):format(dtype, device), function()
        local x = drawn(2, M)
        x[2] = x[2] * 0.5 + x[1] * 0.25
        near(x:double():cov(), x:cov(), dtype)
        near(x[1]:double():cov(), x[1]:cov(), dtype)
        near(x:double():corrcoef(), x:corrcoef(), dtype)
        local w = mt.full({ M }, 3, { dtype = "int64", device = device })
        near(x:double():cov(1, w), x:cov(1, w), dtype)
      end)

      it(("means at indices of %s on %s"):format(dtype, device), function()
        local x, src = drawn(3):mul_(100), drawn(M)
        local index = mt.ones({ M }, { dtype = "int64", device = device })
        index[{ { 1, 3 } }] = 2
        for _, own in ipairs { true, false } do
          near(x:double():scatter_reduce(1, index, src:double(), "mean", own),
            x:scatter_reduce(1, index, src, "mean", own), dtype)
          near(x:double():index_reduce(1, index, src:double(), "mean", own),
            x:index_reduce(1, index, src, "mean", own), dtype)
        end
      end)
    end

    it("scatter_reduce of small integers on " .. device, function()
      for _, dtype in ipairs { "int8", "uint8", "int16" } do
        local opts = { dtype = dtype, device = device }
        local index = mt.ones({ 512 }, { dtype = "int64", device = device })
        local y = mt.zeros({ 2 }, opts):scatter_reduce(1, index,
          mt.full({ 512 }, 100, opts), "mean", false)
        assert.same({ 100, 0 }, y:totable())
        assert.equal(dtype, y:dtype())
      end
    end)
  end)
end)
