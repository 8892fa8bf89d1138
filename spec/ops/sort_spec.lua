-- spec/ops/sort_spec.lua: sorting, selecting and scans on sizes that the reference
-- cases do not reach, against plain Lua or against each other, on each device.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local tensors = require "spec.support.tensors"

local FLOATS = { "float32", "float64", "float16", "bfloat16" }
local ALL = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }

-- Values with many ties, some of them special, in a dtype.
local function values(shape, dtype, device)
  local x = mt.randint(-60, 60, shape, { device = device })
  if dtype == "bool" then return x:gt(0) end
  if dtype == "uint8" then x = x:abs() end
  x = x:to(dtype)
  if tensors.is_float(dtype) then
    x:masked_fill_(x:eq(17), 0 / 0)
    x:masked_fill_(x:eq(18), -math.huge)
    x:masked_fill_(x:eq(19), -0.0)
  end
  return x
end

-- Is y, index what a stable sort of x along its last dim gives? x and y in any layout.
local function check_sorted(x, y, index, descending)
  local n = y:size(-1)
  assert.is_true(y:isnan():eq(x:take_along_dim(index, -1):isnan()):all():item())
  local same = y:eq(x:take_along_dim(index, -1)):logical_or(y:isnan())
  assert.is_true(same:all():item(), "not the elements at index")
  local a, b = y:narrow(-1, 1, n - 1), y:narrow(-1, 2, n - 1)
  local i, j = index:narrow(-1, 1, n - 1), index:narrow(-1, 2, n - 1)
  if descending then a, b = b, a end
  local equal = a:eq(b):logical_or(a:isnan():logical_and(b:isnan()))
  local below = a:lt(b):logical_or(b:isnan():logical_and(a:isnan():logical_not()))
  local right = below:logical_or(equal:logical_and(i:lt(j)))
  assert.is_true(right:all():item(), "out of order")
end

local function on(device)
  local function name(text) return text .. " on " .. device end
  local opts = { device = device }

  describe(name "sort", function()
    it("orders lines of all lengths, in every dtype", function()
      mt.manual_seed(5)
      for _, dtype in ipairs(ALL) do
        for _, n in ipairs { 2, 31, 33, 257, 1030, 5000 } do
          for _, descending in ipairs { false, true } do
            local x = values({ 3, n }, dtype, device)
            local y, index = x:sort(-1, descending)
            check_sorted(x, y, index, descending)
          end
        end
      end
    end)

    it("orders one long line, and columns", function()
      mt.manual_seed(6)
      for _, dtype in ipairs { "float32", "float64", "int16", "int64" } do
        local x = values({ 200003 }, dtype, device)
        check_sorted(x, x:sort())
        x = values({ 70, 9000 }, dtype, device):t()
        local y, index = x:sort(1)
        check_sorted(x:t(), y:t(), index:t())
      end
    end)

    it("gives the same with any number of threads", function()
      mt.manual_seed(7)
      local x = values({ 100000 }, "float32", device)
      local before = mt.get_num_threads()
      local results = {}
      for threads = 1, 3 do
        mt.set_num_threads(threads)
        local _, index = x:sort()
        local _, place = x:topk(100)
        results[threads] = { index, place }
      end
      mt.set_num_threads(before)
      for threads = 2, 3 do
        assert.is_true(results[threads][1]:equal(results[1][1]))
        assert.is_true(results[threads][2]:equal(results[1][2]))
      end
    end)

    it("keeps signs of zeros", function()
      local x = mt.tensor({ 0.0, -0.0, 1, -0.0, 0.0 }, opts)
      local y = x:sort()
      assert.same({ 1 / 0, -1 / 0, -1 / 0, 1 / 0, 1 }, y:reciprocal():totable())
    end)
  end)

  describe(name "unique", function()
    it("is sorted, and what its inverse and counts say", function()
      mt.manual_seed(17)
      for _, dtype in ipairs(ALL) do
        for _, n in ipairs { 20, 3000, 100000 } do
          local x = values({ n }, dtype, device)
          if tensors.is_float(dtype) then x:masked_fill_(x:isnan(), 100) end
          local y, inverse, counts = x:unique(true, true)
          assert.is_true(y:take(inverse):eq(x):all():item(), dtype)
          assert.equal(n, counts:sum():item())
          local m = y:numel()
          if m > 1 then
            local rising = y:narrow(1, 1, m - 1):lt(y:narrow(1, 2, m - 1))
            assert.is_true(rising:all():item(), dtype)
          end
          assert.is_true(x:unique():eq(y):all():item(), dtype)
          assert.is_true(inverse:bincount():equal(counts), dtype)
        end
      end
    end)

    it("sorts rows of any length, by as many columns as tell them apart", function()
      mt.manual_seed(19)
      for _, width in ipairs { 1, 7, 8, 9, 20, 45 } do
        for _, range in ipairs { 1, 2, 3 } do
          local half = mt.randint(0, range, { 40, width }, opts)
          local x = mt.cat({ half, half:flip(1), half:double():long() })
          local texts, times, list = {}, {}, {}
          for i, row in ipairs(x:totable()) do
            texts[i] = table.concat(row) -- one digit each
            if not times[texts[i]] then list[#list + 1] = texts[i] end
            times[texts[i]] = (times[texts[i]] or 0) + 1
          end
          table.sort(list)
          for _, t in ipairs { x, x:double() } do
            local y, inverse, counts = t:unique(true, true, 1)
            assert.equal(#list, y:size(1))
            for i, row in ipairs(y:long():totable()) do
              assert.equal(list[i], table.concat(row))
              assert.equal(times[list[i]], counts[i]:item())
            end
            assert.is_true(y:index_select(1, inverse):equal(t))
          end
        end
      end
      local nan = mt.zeros(4, 10, { device = device })
      nan:select(2, 1):copy_(mt.tensor { 0 / 0, 0 / 0, 1, 1 })
      nan:select(2, 10):copy_(mt.tensor { 5, 3, 3, 1 })
      assert.same({ 1, 3, 3, 5 }, nan:unique(false, false, 1):select(2, 10):totable())
    end)

    it("takes integers close together, wherever they lie", function()
      mt.manual_seed(20)
      for _, at in ipairs { math.mininteger, -70, 1, math.maxinteger - 99 } do
        local x = mt.randint(0, 99, { 300, 99 }, opts) + at
        for _, t in ipairs { x, x:t() } do
          local y, inverse, counts = t:unique(true, true)
          assert.is_true(t:flatten():sort():unique_consecutive():equal(y))
          assert.is_true(t:unique():equal(y) and y:take(inverse):equal(t))
          assert.is_true(inverse:flatten():bincount():equal(counts))
        end
      end
    end)

    it("takes integers of any range, and lines", function()
      mt.manual_seed(18)
      for _, shift in ipairs { 7, 15, 31, 62 } do
        local wide = mt.randint(-(1 << shift), (1 << shift) - 1, { 40000 }, opts)
        for _, x in ipairs { wide, wide - (1 << (shift - 1)) } do
          local y = x:unique()
          local sorted = x:sort()
          assert.is_true(sorted:unique_consecutive():equal(y))
        end
      end
      local x = values({ 3, 5000 }, "float32", device)
      local low = x:quantile(0, { dim = 2 })
      local nan = x:isnan():any(2)
      assert.is_true(low:isnan():eq(nan):all():item())
      for _, dtype in ipairs { "float64", "float32" } do
        x = mt.rand({ 3, 5000 }, { device = device, dtype = dtype })
        assert.is_true(x:quantile(1, { dim = 2 }):equal(x:amax(2)))
        assert.is_true(x:quantile(0, { dim = 2 }):equal(x:amin(2)))
        assert.is_true(x:quantile(0.5, { dim = 2, interpolation = "lower" })
          :equal((x:median(2))))
      end
    end)
  end)

  describe(name "kthvalue, median, nanmedian", function()
    -- Of the first of a stable sort: the values, and where they stand.
    local function check(x, text)
      local n = x:size(-1)
      local sorted, places = x:sort(-1)
      local function same(y, index, k)
        local want = sorted:gather(-1, k)
        local alike = y:eq(want):logical_or(y:isnan():logical_and(want:isnan()))
        assert.is_true(alike:all():item(), text)
        assert.is_true(index:equal(places:gather(-1, k)), "positions, " .. text)
      end
      local shape = x:shape()
      shape[#shape] = 1
      local function all(k)
        return mt.full(shape, k, { dtype = "int64", device = device })
      end
      for _, k in ipairs { 1, (n + 3) // 4, n // 2 + 1, n } do
        local y, index = x:kthvalue(k, -1, true)
        same(y, index, all(k))
      end
      local numbers = x:isnan():logical_not():sum(-1, true)
      local first_nan = mt.where(numbers:lt(n), numbers + 1, (n + 1) // 2)
      local y, index = x:median(-1, true)
      same(y, index, first_nan)
      y, index = x:nanmedian(-1, true)
      same(y, index, ((numbers + 1) // 2):clamp(1))
    end

    it("are elements of a stable sort", function()
      mt.manual_seed(10)
      for _, dtype in ipairs(ALL) do
        for _, n in ipairs { 1, 2, 15, 16, 17, 64, 999, 5000 } do
          local x = values({ 3, n }, dtype, device)
          check(x, dtype .. " of " .. n)
          check(x:t():contiguous():t(), dtype .. " with a stride, of " .. n)
        end
      end
      for _, dtype in ipairs { "float32", "int64" } do
        local rising = mt.arange(6000, { device = device }):to(dtype)
        for _, x in ipairs { rising, rising:flip(1), mt.cat { rising, rising:flip(1) },
          rising:mul(0), rising:remainder(2), rising:remainder(37) } do
          check(x:unsqueeze(1), dtype .. " in order")
        end
      end
    end)

    it("are alike by any number of threads, and found in a long line", function()
      local before <const>, x = mt.get_num_threads(), mt.rand({ 700000 },
        { device = device })
      local want = x:sort()[350000]:item()
      for threads = 1, 3 do
        mt.set_num_threads(threads)
        assert.equal(want, x:median():item())
        local rows = x:reshape(700, 1000)
        local y, index = rows:median(2)
        assert.is_true(rows:gather(2, index:unsqueeze(2)):squeeze(2):equal(y))
      end
      mt.set_num_threads(before)
    end)

    -- Each sample of this line has the largest of what is left, so that quickselect
    -- hardly gets on, and gives up.
    it("do not depend on luck", function()
      local n <const> = 1000
      local place, value, next_value = {}, {}, n
      for i = 1, n do place[i] = i end
      local left = n
      while left > 16 do
        local quarter <const> = left // 4
        for _, at in ipairs { 0, quarter, left // 2, left - quarter, left - 1 } do
          value[place[at + 1]] = next_value
          next_value = next_value - 1
        end
        local less = 1
        for i = 1, left do
          local one = place[i]
          place[i], place[less] = place[less], one
          if not value[one] then less = less + 1 end
        end
        left = less - 1
      end
      for i = 1, left do value[place[i]] = i end
      for _, dtype in ipairs { "float32", "float64" } do
        local x = mt.tensor(value, { dtype = dtype, device = device })
        local y, index = x:kthvalue(1)
        assert.equal(1, y:item())
        assert.equal(1, x[index:item()]:item())
      end
    end)
  end)

  describe(name "topk", function()
    it("is the beginning of a stable sort", function()
      mt.manual_seed(8)
      for _, dtype in ipairs(ALL) do
        for _, shape in ipairs { { 2, 5000 }, { 3, 300 }, { 150000 } } do
          for _, k in ipairs { 1, 7, 300 } do
            for _, largest in ipairs { true, false } do
              local x = values(shape, dtype, device)
              local y, index = x:topk(k, -1, largest)
              local all, places = x:sort(-1, largest)
              assert.is_true(index:equal(places:narrow(-1, 1, k)),
                ("%s, k %d of %d"):format(dtype, k, shape[#shape]))
              local want = all:narrow(-1, 1, k)
              assert.is_true(y:eq(want):logical_or(y:isnan()):all():item())
            end
          end
        end
      end
    end)

    it("gives more than a block sorts", function()
      mt.manual_seed(9)
      local x = values({ 40000 }, "float32", device)
      local _, index = x:topk(6000)
      local _, places = x:sort(1, true)
      assert.is_true(index:equal(places:narrow(1, 1, 6000)))
    end)
  end)

  describe(name "scans", function()
    it("along long lines are those along short ones, joined", function()
      mt.manual_seed(10)
      local wide = { device = device, dtype = "float64" }
      local x = mt.rand({ 3, 70000 }, wide) * 0.02 + 0.99
      for _, f in ipairs { "cumprod", "cummax", "cummin", "logcumsumexp" } do
        local y, at = x[f](x, 2)
        local columns, places = x:t()[f](x:t():contiguous(), 1)
        assert.is_true((y - columns:t()):abs():div(y:abs()):amax():item() < 1e-9, f)
        if at then assert.is_true(at:equal(places:t()), f) end
      end
      local sum = x:exp():cumsum(2):log()
      assert.is_true((x:logcumsumexp(2) - sum):abs():amax():item() < 1e-9)
    end)

    it("take every dtype in any layout", function()
      mt.manual_seed(11)
      for _, dtype in ipairs(ALL) do
        local x = values({ 40, 50 }, dtype, device)
        for _, f in ipairs { "cummax", "cummin" } do
          local y, at = x[f](x, 2)
          local z, other = x:t()[f](x:t(), 1)
          assert.is_true(at:equal(other:t()), f .. " of " .. dtype)
          assert.is_true(y:eq(z:t()):logical_or(y:isnan()):all():item())
          assert.is_true(x:gather(2, at):eq(y):logical_or(y:isnan()):all():item())
        end
      end
    end)
  end)

  describe(name "searchsorted", function()
    it("finds where a sort would put what is searched", function()
      mt.manual_seed(12)
      for _, dtype in ipairs(FLOATS) do
        local sorted = values({ 5, 300 }, dtype, device):sort()
        local x = values({ 5, 40 }, dtype, device)
        local left = mt.searchsorted(sorted, x)
        local right = mt.searchsorted(sorted, x, true)
        for line = 1, 5 do
          local s, v = tensors.flat(sorted[line]), tensors.flat(x[line])
          local l, r = tensors.flat(left[line]), tensors.flat(right[line])
          for i, w in ipairs(v) do
            local below, upto = 0, 0
            for _, u in ipairs(s) do
              if u < w or (w ~= w and u == u) then below = below + 1 end
              if u <= w or w ~= w then upto = upto + 1 end
            end
            assert.same({ below + 1, upto + 1 }, { l[i], r[i] })
          end
        end
      end
    end)
  end)

  describe(name "selecting", function()
    it("by a mask takes every dtype and size", function()
      mt.manual_seed(13)
      for _, dtype in ipairs(ALL) do
        for _, n in ipairs { 1, 7, 64, 1001, 300000 } do
          local x, mask = values({ n }, dtype, device), mt.rand({ n }, opts):lt(0.4)
          local y = x:masked_select(mask)
          local want = x:index_select(1, mask:nonzero():select(2, 1))
          assert.same(want:shape(), y:shape())
          assert.is_true(y:eq(want):logical_or(y:isnan()):all():item())
        end
      end
    end)

    it("scatter, and what is read back, agree", function()
      mt.manual_seed(14)
      for _, dtype in ipairs(ALL) do
        local index = mt.randperm(5000, opts):reshape(50, 100)
        local src = values({ 50, 100 }, dtype, device)
        local flat = index:reshape(5000)
        local y = mt.zeros({ 5000 }, { dtype = dtype, device = device })
          :scatter(1, flat, src:reshape(5000))
        local back = y:take(index)
        assert.is_true(back:eq(src):logical_or(src:isnan()):all():item(), dtype)
        -- many to one place: the last one stays
        mt.set_deterministic(true)
        local one = mt.ones({ 5000 }, { dtype = "int64", device = device })
        local last = y:scatter(1, one, src:reshape(5000))[1]
        mt.set_deterministic(false)
        assert.is_true(last:eq(src[50][100]):logical_or(last:isnan()):item(), dtype)
      end
    end)

    it("the last of several at one place has the gradient", function()
      local wide = { device = device, dtype = "float64" }
      local x = mt.rand({ 2, 4 }, wide):requires_grad_()
      local src = mt.rand({ 2, 3 }, wide):requires_grad_()
      local index = mt.tensor({ { 2, 2, 2 }, { 3, 1, 3 } }, { device = device })
      local function f(a, b) return (a * a):scatter(2, index, b * b) end
      local y = f(x, src)
      assert.equal(src[{ 1, 3 }]:item() ^ 2, y[{ 1, 2 }]:item())
      y:sum():backward()
      assert.equal(0, src.grad[{ 1, 1 }]:item())
      assert.equal(2 * src[{ 1, 3 }]:item(), src.grad[{ 1, 3 }]:item())
      mt.set_deterministic(true) -- difference quotients are taken without recording
      local good = mt.gradcheck(f, { x, src })
      local gradgood = mt.gradgradcheck(f, { x, src })
      mt.set_deterministic(false)
      assert.is_true(good and gradgood)
    end)

    it("folds what meets at one place", function()
      mt.manual_seed(15)
      local index = mt.randint(1, 40, { 6, 500 }, opts)
      local src = mt.rand({ 6, 500 }, { device = device, dtype = "float64" }) + 0.5
      local x = mt.rand({ 6, 40 }, { device = device, dtype = "float64" })
      local hit = index:unsqueeze(3):eq(mt.arange(1, 41, opts))  -- (6, 500, 40)
      local spread = src:unsqueeze(3)
      local want = {
        amax = mt.where(hit, spread, -1):amax(2):maximum(x),
        amin = mt.where(hit, spread, 9):amin(2):minimum(x),
        prod = mt.where(hit, spread, 1):prod(2) * x,
        sum = mt.where(hit, spread, 0):sum(2) + x,
      }
      for reduce, expected in pairs(want) do
        local y = x:scatter_reduce(2, index, src, reduce)
        assert.is_true((y / expected - 1):abs():amax():item() < 1e-12, reduce)
      end
    end)
  end)

  describe(name "_recurrence", function()
    it("is a loop over the dim, both ways, with its gradients", function()
      mt.manual_seed(16)
      local wide = { device = device, dtype = "float64" }
      local a, b = mt.rand({ 2, 5 }, wide), mt.rand({ 2, 5 }, wide)
      -- cumprod's gradient is the recurrence, and the gradient of that one's as well
      local x = mt.cat({ a, b }, 2):requires_grad_()
      assert.is_true(mt.gradcheck(function(t) return t:cumprod(2) end, { x }))
      assert.is_true(mt.gradgradcheck(function(t) return t:cumprod(2) end, { x }))
      local zeros = (a * 0):requires_grad_()
      assert.is_true(mt.gradgradcheck(function(t) return t:cumprod(1) end, { zeros }))
    end)
  end)
end

devices.each(_ENV, on)

-- Several elements are searched for at a time.
describe("searchsorted", function()
  local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32",
    "int16", "int8", "uint8", "bool" }

  -- How many of a line lie before x, and how many equal it: NaN comes last.
  local function counted(line, x, right)
    line, x = line:to("float64"):unsqueeze(-2), x:to("float64"):unsqueeze(-1)
    local none = x:isnan()
    local before = line:lt(x):logical_or(none:logical_and(line:isnan():logical_not()))
    if right then
      before = before:logical_or(line:eq(x)):logical_or(none:logical_and(line:isnan()))
    end
    return before:sum(-1) + 1
  end

  for _, dtype in ipairs(DTYPES) do
    it("counts what lies before, in lines of " .. dtype, function()
      mt.manual_seed(43)
      local most = dtype == "bool" and 1 or 100
      for _, n in ipairs { 1, 2, 3, 7, 16, 33, 1000 } do
        for _, lines in ipairs { {}, { 3 } } do
          local function draw(count)
            local shape = table.move(lines, 1, #lines, 1, {})
            shape[#shape + 1] = count
            local t = mt.randint(0, most, shape)
            if dtype:find "float" then t = mt.where(t:lt(4), 0 / 0, t:to "float32") end
            return t:to(dtype)
          end
          local line = draw(n):sort(-1)
          for _, m in ipairs { 1, 15, 50 } do
            local x = draw(m)
            for _, right in ipairs { false, true } do
              local y = mt.searchsorted(line, x, right)
              local text = ("%d of %d, right %s"):format(m, n, right)
              assert.is_true(y:equal(counted(line, x, right)), text)
            end
          end
        end
      end
      assert.is_true(mt.searchsorted(mt.zeros(0):to(dtype), mt.zeros(20):to(dtype))
        :equal(mt.ones({ 20 }, { dtype = "int64" })))
    end)
  end

  it("gives the same with one thread and with two", function()
    local line, x = mt.rand(5000):sort(), mt.rand(100003)
    local threads, y = mt.get_num_threads(), {}
    for n = 1, 2 do
      mt.set_num_threads(n)
      y[n] = mt.searchsorted(line, x)
    end
    mt.set_num_threads(threads)
    assert.is_true(y[1]:equal(y[2]))
  end)
end)
