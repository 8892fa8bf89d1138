-- spec/ops/select_spec.lua: what masks and positions choose on the CPU, against plain
-- Lua: sizes around the steps of the kernels, few and many true ones, by any number of
-- threads.

local mt = require "mytensor"

local ALL = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }

describe("a mask", function()
  local threads = mt.get_num_threads()
  setup(function() mt.manual_seed(33) end)
  teardown(function() mt.set_num_threads(threads) end)

  local function places_of(mask)
    local places = {}
    for i, set in ipairs(mask:totable()) do
      if set then places[#places + 1] = i end
    end
    return mt.tensor(places, { dtype = "int64" })
  end

  it("chooses in order, and tells how many and where", function()
    for _, n in ipairs { 1, 7, 8, 31, 32, 33, 64, 95, 511, 513, 70001, 200003 } do
      for _, share in ipairs { 0, 0.003, 0.5, 0.99, 1 } do
        local mask = mt.rand(n):lt(share)
        if share == 0.99 then mask:narrow(1, n // 2 + 1, n - n // 2):fill_(0) end
        local places = places_of(mask)
        for count = 1, n < 70000 and 1 or 3 do
          mt.set_num_threads(count)
          local text = ("%d, %g by %d"):format(n, share, count)
          assert.equal(places:numel(), mask:count_nonzero():item(), text)
          assert.equal(places:numel() > 0, mask:any():item(), text)
          assert.equal(places:numel() == n, mask:all():item(), text)
          if places:numel() == 0 then
            assert.same({ 0 }, mt.rand(n):masked_select(mask):shape())
            assert.same({ 0, 1 }, mask:nonzero():shape())
          else
            assert.is_true(mask:nonzero():select(2, 1):equal(places), text)
            for _, dtype in ipairs(ALL) do
              local x = mt.randint(0, 99, { n }):to(dtype)
              local y = x:masked_select(mask)
              assert.is_true(y:equal(x:index_select(1, places)), text .. " " .. dtype)
            end
          end
        end
      end
    end
  end)

  it("with strides, and of numbers, tells where", function()
    for count = 1, 3 do
      mt.set_num_threads(count)
      local x = mt.randint(0, 3, { 300, 501 })
      local want = places_of(x:ne(0):reshape(-1))
      for _, v in ipairs { x, x:t():contiguous():t(), x:to "float16" } do
        local at = v:nonzero()
        local flat = (at:select(2, 1) - 1) * 501 + at:select(2, 2)
        assert.is_true(flat:equal(want))
      end
      local wide = mt.stack({ x, x }, 3):ne(0):select(3, 1)
      assert.equal(want:numel(), wide:count_nonzero():item())
      assert.equal(want:numel(), wide:contiguous():t():count_nonzero():item())
      assert.is_true(wide:count_nonzero(2):equal(x:count_nonzero(2)))
      assert.is_true(wide:contiguous():count_nonzero(2):equal(x:count_nonzero(2)))
      assert.is_true(wide:contiguous():count_nonzero(1):equal(x:count_nonzero(1)))
    end
  end)
end)

describe("index_select of few bytes", function()
  it("along a dim that comes after others is a gather", function()
    mt.manual_seed(83)
    local threads = mt.get_num_threads()
    finally(function() mt.set_num_threads(threads) end)
    for _, dtype in ipairs { "uint8", "bfloat16", "float32", "float64" } do
      for _, m in ipairs { 1, 5, 300, 4096, 4100 } do
        for inner = 1, 3 do
          local n = 700
          local x = mt.randint(0, 200, { 37, n, inner }):to(dtype)
          local index = mt.randint(1, n, { m })
          index[m] = -1
          local all = index:reshape(1, m, 1):expand(37, m, inner)
          local want = x:gather(2, all)
          for count = 1, 2 do
            mt.set_num_threads(count)
            for _, kind in ipairs { "int64", "int16", "float32" } do
              local y = x:index_select(2, index:to(kind))
              local text = ("%s, %d of %d, %d inside"):format(dtype, m, n, inner)
              assert.is_true(y:equal(want), text)
            end
          end
        end
      end
    end
  end)

  it("says what is out of range", function()
    local index = mt.tensor({ 3, 2, 8 }, { dtype = "int64" })
    local ok, message = pcall(mt.index_select, mt.zeros(40, 7), 2, index)
    assert.is_false(ok)
    assert.truthy(message:find("8", 1, true), message)
  end)
end)

describe("index_select of what passes the caches", function()
  it("gives what it gives of parts, by one thread and two", function()
    local threads = mt.get_num_threads()
    finally(function() mt.set_num_threads(threads) end)
    local x = mt.randn({ 1001, 2, 48 }, { dtype = "float32" })
    local index = mt.randint(1, 1001, { 100000 })
    for count = 1, 2 do
      mt.set_num_threads(count)
      local y = x:index_select(1, index) -- 38 MB in slices of six lines
      for i = 1, 100000, 12500 do
        local part = index:narrow(1, i, 12500)
        assert.is_true(y:narrow(1, i, 12500):equal(x:index_select(1, part)))
      end
      assert.is_true(y[77777]:equal(x[index[77777]:item()]))
    end
  end)
end)
