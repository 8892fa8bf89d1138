-- spec/ops/scatter_spec.lua: what meets at one place, in every dtype, on sizes that
-- take each way of the kernels, with and without mt.set_deterministic, on each device.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"
local tensors = require "spec.support.tensors"

local NUMBERS = { "float32", "float64", "float16", "bfloat16", "int64", "int32",
  "int16", "int8", "uint8" }

-- Whole numbers, whose sums are exact in any order.
local function source(shape, dtype, device)
  return mt.randint(0, 3, shape, { device = device }):to(dtype)
end

-- What x is after adding src's slices at index, along the dim of size `targets` of
-- (outer, targets, inner): in integers.
local function added(x, index, src, outer, targets, inner)
  local y, at, more = tensors.flat(x), tensors.flat(index), tensors.flat(src)
  local m = #at
  for o = 0, outer - 1 do
    for k = 1, m do
      local to = at[k] < 0 and at[k] + targets or at[k] - 1
      for i = 1, inner do
        local p = (o * targets + to) * inner + i
        y[p] = y[p] + more[(o * m + k - 1) * inner + i]
      end
    end
  end
  for p, sum in ipairs(y) do y[p] = math.tointeger(sum) end
  return mt.tensor(y, { dtype = "int64" }):to(x:dtype()):view(x:shape())
end

local function in_both_modes(fn)
  return function()
    finally(function() mt.set_deterministic(false) end)
    for _, deterministic in ipairs { false, true } do
      mt.set_deterministic(deterministic)
      fn(deterministic)
    end
  end
end

local function same(want, y, what)
  local is = y:cpu():eq(want):logical_or(want:isnan():logical_and(y:cpu():isnan()))
  assert.is_true(is:all():item(), what)
end

local function on(device)
  local function name(text) return text .. " on " .. device end
  local opts = { device = device }
  -- targets, elements: one place, few places, as many as elements, many for few
  local SIZES = { { 1, 3000 }, { 10, 9000 }, { 4097, 4097 }, { 9000, 70 },
    { 300, 40000 } }

  describe(name "sums at positions", function()
    it("of scatter_add, index_add and put are those of a loop", in_both_modes(function()
      mt.manual_seed(21)
      for _, dtype in ipairs(NUMBERS) do
        for _, size in ipairs(SIZES) do
          local targets, n = size[1], size[2]
          local what = ("%s: %d at %d"):format(dtype, n, targets)
          local x = source({ targets }, dtype, device)
          local src = source({ n }, dtype, device)
          local index = mt.randint(1, targets, { n }, opts)
          if targets > 5 then index[n // 2] = -3 end
          local want = added(x, index, src, 1, targets, 1)
          same(want, x:scatter_add(1, index, src), what)
          same(want, x:index_add(1, index, src), what)
          same(want, x:put(index, src, true), what)
        end
      end
    end))

    it("along each dim, of strided sources, for indices of any dtype",
      in_both_modes(function()
        mt.manual_seed(22)
        for _, dtype in ipairs(NUMBERS) do
          local x = source({ 5, 7, 9 }, dtype, device)
          local src = source({ 9, 30, 5 }, dtype, device):transpose(1, 3)
          for _, kind in ipairs { "int64", "int32", "uint8", "float32" } do
            local index = mt.randint(1, 7, { 30 }, opts):to(kind)
            local want = added(x, index:to "int64", src:contiguous(), 5, 7, 9)
            same(want, x:index_add(2, index, src), dtype .. " index_add " .. kind)
            local wide = index:view(1, 30, 1):expand(5, 30, 9)
            same(want, x:scatter_add(2, wide, src), dtype .. " scatter_add " .. kind)
            local turned = x:transpose(2, 3):scatter_add(3, wide:transpose(2, 3),
              src:transpose(2, 3))
            same(want, turned:transpose(2, 3), dtype .. " turned " .. kind)
          end
        end
      end))

    it("of long slices are products with the index's matrix", in_both_modes(function()
      mt.manual_seed(23)
      for _, dtype in ipairs { "float32", "float64", "bfloat16", "int32" } do
        for _, inner in ipairs { 2048, 2047 } do
          local x, src = source({ 600, inner }, dtype, device),
            source({ 520, inner }, dtype, device)
          local index = mt.randint(1, 600, { 520 }, opts)
          local hit = index:unsqueeze(1):eq(mt.arange(1, 601, opts):unsqueeze(2))
          local sums = hit:to "float32":matmul(src:to "float32")
          local want = (sums + x:to "float32"):to(dtype)
          assert.is_true(x:index_add(1, index, src):equal(want), dtype)
          if tensors.is_float(dtype) then
            local dw = mt.embedding_backward(index, src, 600)
            assert.is_true(dw:equal(sums:to(dtype)), dtype)
          end
          -- the last of several stays
          local number = mt.arange(1, 521, opts)
          local last = mt.where(hit, number, 0):amax(2):unsqueeze(2)
          local kept = src:index_select(1, last:squeeze(2):clamp(1))
          local copied = mt.where(last:gt(0), kept, x)
          assert.is_true(x:index_copy(1, index, src):equal(copied), dtype)
        end
      end
    end))

    it("have the same bits each time when deterministic", function()
      mt.manual_seed(24)
      mt.set_deterministic(true)
      finally(function() mt.set_deterministic(false) end)
      for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
        local x = mt.randn({ 50 }, opts):to(dtype)
        local src = mt.randn({ 60000 }, opts):to(dtype)
        local index = mt.randint(1, 50, { 60000 }, opts)
        local slices = src:view(600, 100)
        local function run()
          local first, rows = index:narrow(1, 1, 600), mt.zeros_like(slices)
          return x:scatter_add(1, index, src), rows:index_add(1, first, slices),
            x:scatter_reduce(1, index, src * 0.01 + 1, "prod"),
            x:scatter_reduce(1, index, src, "mean"),
            mt.embedding_backward(first, slices, 50)
        end
        local once = { run() }
        for _ = 1, 3 do
          for i, again in ipairs { run() } do
            assert.is_true(again:equal(once[i]), dtype .. " " .. i)
          end
        end
      end
    end)

    it("of half types are rounded once", in_both_modes(function()
      local ones = mt.ones({ 40000 }, opts)
      local index = mt.ones({ 40000 }, { device = device, dtype = "int64" })
      for _, dtype in ipairs { "float16", "bfloat16" } do
        local x = mt.zeros({ 1 }, { device = device, dtype = dtype })
        local want = mt.tensor { 40000 }:to(dtype)
        same(want, x:scatter_add(1, index, ones:to(dtype)), dtype)
        same(want, x:index_add(1, index, ones:to(dtype)), dtype)
      end
    end))

    it("name a position that is out of range, and write nowhere else",
      in_both_modes(function()
        for _, n in ipairs { 100, 5000 } do
          local x, src = mt.zeros({ 64 }, opts), mt.ones({ n }, opts)
          for _, bad in ipairs { 65, 0, -65, 1 << 40 } do
            local index = mt.ones({ n }, { device = device, dtype = "int64" })
            index[n - 3] = bad
            for _, call in ipairs {
              function() return x:scatter_add(1, index, src) end,
              function() return x:index_add(1, index, src) end,
              function() return x:index_copy(1, index, src) end,
              function() return x:scatter(1, index, src) end,
              function() return x:scatter_reduce(1, index, src, "amax") end,
            } do
              local text = ("value %d at element %d "):format(bad, n - 3)
              expect.says(text, function() call():sum():item() end)
            end
            assert.equal(0, x:abs():sum():item())
          end
        end
      end))
  end)

  describe(name "extremes at positions", function()
    it("are those of a loop, with NaN before all", in_both_modes(function()
      mt.manual_seed(25)
      for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64",
        "int32", "int16", "int8", "uint8", "bool" } do
        for _, size in ipairs(SIZES) do
          local targets, n = size[1], size[2]
          local function draw(count)
            local t = mt.randint(dtype == "uint8" and 0 or -100, 100, { count }, opts)
            if dtype == "bool" then return t:gt(0) end
            t = t:to(dtype)
            if tensors.is_float(dtype) then t:masked_fill_(t:eq(50), 0 / 0) end
            return t
          end
          local x, src = draw(targets), draw(n)
          local index = mt.randint(1, targets, { n }, opts)
          local at, from = tensors.flat(index), tensors.flat(src)
          for _, how in ipairs { "amax", "amin" } do
            local y = tensors.flat(x)
            for k, to in ipairs(at) do
              local a, b = y[to], from[k]
              if a == a and (b ~= b or (how == "amax" and b > a)
                or (how == "amin" and b < a)) then y[to] = b end
            end
            local got = tensors.flat(x:scatter_reduce(1, index, src, how))
            for i, want in ipairs(y) do
              if not (got[i] == want or (got[i] ~= got[i] and want ~= want)) then
                error(("%s %s of %d at %d: %s, not %s"):format(dtype, how, n, targets,
                  got[i], want))
              end
            end
          end
        end
      end
    end))
  end)

  describe(name "scatter", function()
    it("copies what no element goes to", in_both_modes(function()
      mt.manual_seed(26)
      for _, n in ipairs { 1, 1023, 1024, 1025, 9001 } do
        for _, dtype in ipairs { "float32", "float64", "float16", "int8", "bool" } do
          local x, src = source({ 2 * n }, dtype, device), source({ n }, dtype, device)
          for _, index in ipairs { mt.randperm(2 * n, opts):narrow(1, 1, n),
            mt.arange(n, 2 * n, opts), mt.arange(1, 2 * n, 2, opts) } do
            local want, from = tensors.flat(x), tensors.flat(src)
            for i, to in ipairs(tensors.flat(index)) do want[to] = from[i] end
            assert.same(want, tensors.flat(x:scatter(1, index, src)))
            assert.same(want, tensors.flat(x:index_copy(1, index, src)))
          end
        end
      end
    end))
  end)
end

devices.each(_ENV, on)

-- Threads share a line whose index rises, unless an element goes astray.
describe("a long line", function()
  local N <const> = 300007

  local function indices()
    local sorted = mt.randint(1, N, { N }):sort()
    local ties = mt.randint(1, 5, { N }):sort() * 1000
    local few = sorted:clone() -- all alike where threads part
    few:narrow(1, N // 4, N // 2):fill_(few[N // 2]:item())
    local astray = sorted:clone()
    astray[N // 2 + 77] = 3
    astray[5] = N
    return { sorted = sorted, ties = ties, few = few, astray = astray,
      falling = sorted:flip(1), ["from the end"] = sorted - N - 1,
      random = mt.randint(1, N, { N }), alike = mt.full({ N }, 9, { dtype = "int64" }) }
  end

  it("is scattered in the order of the index by any number of threads", function()
    mt.manual_seed(61)
    local threads = mt.get_num_threads()
    finally(function() mt.set_num_threads(threads) end)
    for _, dtype in ipairs { "float32", "float64", "bfloat16", "int64", "int16",
      "bool" } do
      local x, src = mt.rand(N), mt.rand(2 * N)[{ { 1, 2 * N, 2 } }]
      if not dtype:find "float" then x, src = (x * 50):floor(), (src * 50):floor() end
      x, src = x:to(dtype), src:to(dtype)
      for name, index in pairs(indices()) do
        if dtype == "int16" then index = index:to "int32" end
        if dtype == "int64" then index = index:to "float64" end
        local function results()
          local list = { x:scatter(1, index, src) }
          if dtype ~= "bool" then
            list[2] = x:scatter_add(1, index, src)
            list[3] = x:scatter_reduce(1, index, src, "amax")
            list[4] = x:scatter_reduce(1, index, src, "prod")
          end
          return list
        end
        mt.set_num_threads(1)
        local want = results()
        for n = 2, 5 do
          mt.set_num_threads(n)
          for i, y in ipairs(results()) do
            local text = ("%s, %s, result %d, %d threads"):format(dtype, name, i, n)
            assert.is_true(y:equal(want[i]), text)
          end
        end
      end
    end
  end)

  it("says what is out of range", function()
    local threads = mt.get_num_threads()
    finally(function() mt.set_num_threads(threads) end)
    mt.set_num_threads(2)
    for _, place in ipairs { 100, N // 2 - 3, N - 10 } do
      local index = mt.arange(1, N + 1, { dtype = "int64" })
      index[place] = N + 1
      local ok, message = pcall(mt.scatter, mt.zeros(N), 1, index, mt.ones(N))
      assert.is_false(ok)
      assert.truthy(message:find(("%d"):format(N + 1), 1, true), message)
    end
  end)
end)

describe("many short lines", function()
  it("are those of one long line", function()
    mt.manual_seed(62)
    local threads = mt.get_num_threads()
    finally(function() mt.set_num_threads(threads) end)
    for _, n in ipairs { 1, 2, 7, 31, 127, 128, 129, 300 } do
      local shape = { 3, 200, n }
      local x, src = mt.randn(shape), mt.randn(shape)
      local index = mt.randint(1, n, shape)
      local lines = mt.arange(0, 600 * n, n, { dtype = "int64" }):view(3, 200, 1)
      local flat, at = x:flatten(), (index + lines):flatten()
      local want = { flat:take(at), flat:scatter(1, at, src:flatten()),
        flat:scatter_add(1, at, src:flatten()) }
      for k = 1, 3 do
        mt.set_num_threads(k)
        for _, order in ipairs { { 1, 2, 3 }, { 2, 1, 3 }, { 3, 2, 1 } } do
          local a, b, i = x:permute(order), src:permute(order), index:permute(order)
          local dim = order[1] == 3 and 1 or 3
          local got = { a:gather(dim, i), a:scatter(dim, i, b),
            a:scatter_add(dim, i, b) }
          for j, y in ipairs(got) do
            local text = ("result %d, lines of %d, %d threads"):format(j, n, k)
            assert.is_true(y:permute(order):flatten():equal(want[j]), text)
          end
        end
      end
    end
  end)
end)
