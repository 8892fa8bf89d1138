-- spec/ops/tiles_spec.lua: scans of long lines and selections from long vectors, at the
-- sizes where a GPU's tiles, groups of 32 and supergroups of 1,024 tiles begin and end,
-- against float64 on the CPU.

local mt = require "mytensor"
local devices = require "spec.support.devices"

local HOST = { device = "cpu", dtype = "float64" }
local EPSILON = { float32 = 2^-23, float64 = 2^-52, bfloat16 = 2^-7 }

-- Lengths around so many tiles.
local function lengths(tile, counts)
  local list = {}
  for _, count in ipairs(counts) do
    local n = tile * count
    for _, length in ipairs { n - 1, n, n + 4, n + tile + 3 } do
      list[#list + 1] = length
    end
  end
  return list
end

-- Largest |y - want| / |want| in units of the dtype's epsilon.
local function worst(y, want, dtype)
  local error = (y:to("cpu"):to("float64") - want):abs()
  return error:div(want:abs():clamp(1e-30)):amax():item() / EPSILON[dtype]
end

-- Rises over all its length, with ties; now and then a zero of either sign.
local function rising(n, device)
  local x = mt.arange(0, n, { device = device, dtype = "float64" }):mul(1e-3):floor()
  x = x + mt.randint(0, 40, { n }, { device = device }):to("float64") - n * 5e-4
  local sign = mt.rand({ n }, { device = device }):lt(0.5):to("float64") * 2 - 1
  return mt.where(x:abs():lt(5), sign * 0, x)
end

local function on(device, counts)
  local function name(text) return text .. " on " .. device end
  local opts = { device = device }
  local function there(x, dtype) return x:to(dtype):to(device) end
  local function same(a, b) return a:to("cpu"):equal(b) end

  describe(name "cumsum", function()
    -- Whole numbers of 2^-20: no sum in float64 is rounded.
    it("is rounded once wherever tiles meet", function()
      mt.manual_seed(21)
      for dtype, tile in pairs { float32 = 4096, float64 = 2048, bfloat16 = 8192 } do
        for _, n in ipairs(lengths(tile, counts)) do
          local x = (mt.rand({ n }, HOST) * 2^20):floor():mul(2^-20):to(dtype)
          local y, want = x:to(device):cumsum(1), x:to("float64"):cumsum(1)
          local most = dtype == "bfloat16" and 0.51 or 0.5 -- by way of float32
          if dtype == "float64" then most = 0 end
          assert.is_true(worst(y, want, dtype) <= most, dtype .. ", " .. n)
        end
      end
    end)

    it("gives the same bits each time", function()
      mt.manual_seed(29)
      for _, dtype in ipairs { "float32", "float64" } do
        local x = there(mt.rand({ 3 * 4096 * counts[#counts] }, HOST):log(), dtype)
        local y, z = x:cumsum(1), x:logcumsumexp(1)
        for _ = 1, 3 do
          assert.is_true(x:cumsum(1):equal(y) and x:logcumsumexp(1):equal(z), dtype)
        end
      end
    end)

    it("of integers is exact, both ways, in any layout", function()
      mt.manual_seed(22)
      for _, n in ipairs(lengths(2048, counts)) do
        for _, dtype in ipairs { "int64", "int8", "bool" } do
          local x = mt.randint(-1, 1, { n }, { device = "cpu" })
          x = dtype == "bool" and x:gt(0) or x:to(dtype)
          local want, other = x:cumsum(1), x:flip():cumsum(1):flip()
          local t = x:to(device)
          assert.is_true(same(t:cumsum(1), want), dtype .. ", " .. n)
          assert.is_true(same(t:cumsum(1, true), other), dtype .. " reversed, " .. n)
          local odd = mt.cat({ t:narrow(1, 1, 1), t }):narrow(1, 2, n)
          assert.is_true(same(odd:cumsum(1), want), dtype .. " shifted, " .. n)
          local apart = mt.stack({ t, t, t }, 2):select(2, 2)
          assert.is_true(same(apart:cumsum(1), want), dtype .. " with a stride, " .. n)
          assert.is_true(same(apart:cumsum(1, true), other))
        end
      end
    end)

    it("shares few long lines, and walks many", function()
      mt.manual_seed(23)
      for _, shape in ipairs { { 3, 40001 }, { 2, 5, 33000 }, { 700, 17000 } } do
        local x = mt.randint(-9, 9, shape, { device = "cpu" })
        for _, dtype in ipairs { "int64", "float32" } do
          local y = there(x, dtype):cumsum(-1)
          assert.is_true(same(y:to("int64"), x:cumsum(-1)), dtype)
        end
      end
    end)
  end)

  describe(name "cummax and cummin", function()
    it("say where the last of the largest stands, wherever tiles meet", function()
      mt.manual_seed(24)
      for dtype, tile in pairs { float32 = 2048, float64 = 2048, int32 = 4096 } do
        for _, n in ipairs(lengths(tile, counts)) do
          local x = rising(n, "cpu"):to(dtype)
          for _, f in ipairs { "cummax", "cummin" } do
            local from = f == "cummin" and -x or x
            local t = from:to(device)
            local y, at = t[f](t, 1)
            local want, place = from[f](from, 1)
            assert.is_true(same(at, place), f .. " of " .. dtype .. ", " .. n)
            assert.is_true(same(y, want))
            if dtype ~= "int32" then -- zeros have signs
              assert.is_true(same(y:reciprocal(), want:reciprocal()))
            end
            local odd = mt.cat({ t:narrow(1, 1, 1), t }):narrow(1, 2, n)
            y, at = odd[f](odd, 1)
            assert.is_true(same(at, place) and same(y, want), "shifted")
          end
        end
      end
    end)

    it("keep NaN once met, in long lines and in many", function()
      mt.manual_seed(25)
      for _, shape in ipairs { { 70000 }, { 300, 4100 }, { 2, 30000 } } do
        local x = mt.randn(shape, { device = "cpu" })
        x:masked_fill_(mt.rand(shape, { device = "cpu" }):lt(2e-4), 0 / 0)
        for _, f in ipairs { "cummax", "cummin" } do
          for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
            local from = x:to(dtype)
            local t = from:to(device)
            local y, at = t[f](t, -1)
            local want, place = from[f](from, -1)
            assert.is_true(same(at, place), f .. " of " .. dtype)
            assert.is_true(same(y:isnan(), want:isnan()))
            assert.is_true(same(y:nan_to_num(), want:nan_to_num()))
          end
        end
      end
    end)
  end)

  describe(name "cumprod and logcumsumexp", function()
    -- Powers of 2 whose products stay small: nothing is rounded, in the gradients' sums
    -- neither.
    it("are right wherever tiles meet, and the linear recurrence", function()
      mt.manual_seed(26)
      for dtype, tile in pairs { float32 = 4096, float64 = 2048 } do
        for _, n in ipairs(lengths(tile, counts)) do
          local power = mt.randint(-2, 2, { (n + 1) // 2 }, { device = "cpu" })
          local both = mt.stack({ power, -power }, 2):reshape(-1):narrow(1, 1, n)
          local sign = mt.randint(0, 1, { n }, { device = "cpu" }) * 2 - 1
          local x = (both:to("float64"):exp2() * sign):requires_grad_()
          local t = there(x:detach(), dtype):requires_grad_()
          local want, y, what = x:cumprod(1), t:cumprod(1), dtype .. ", " .. n
          assert.is_true(same(y:detach(), want:detach():to(dtype)), what)
          want:sum():backward()
          y:sum():backward()
          assert.is_true(same(t.grad, x.grad:to(dtype)), "gradient, " .. what)
        end
      end
    end)

    it("are logarithms of sums wherever tiles meet", function()
      mt.manual_seed(30)
      for dtype, most in pairs { float32 = 1, float64 = 1024 } do
        for _, n in ipairs(lengths(1024, counts)) do
          local x = mt.rand({ n }, HOST):to(dtype)
          local y, want = x:to(device):logcumsumexp(1), x:to("float64"):logcumsumexp(1)
          assert.is_true(worst(y, want, dtype) <= most, dtype .. ", " .. n)
        end
      end
    end)
  end)

  describe(name "a selection", function()
    local function check(x, mask, what)
      local t, m = x:to(device), mask:to(device)
      assert.is_true(same(t:masked_select(m), x:masked_select(mask)), what)
      assert.is_true(same(m:nonzero(), mask:nonzero()), "positions, " .. what)
    end

    it("takes what is marked in order, wherever tiles meet", function()
      mt.manual_seed(27)
      for _, dtype in ipairs { "int64", "float32", "int16", "uint8" } do
        local tile = dtype == "int64" and 2048 or 4096
        for _, n in ipairs(lengths(tile, counts)) do
          local x = mt.randint(0, 100, { n }, { device = "cpu" }):to(dtype)
          local random = mt.rand({ n }, { device = "cpu" })
          for _, share in ipairs { 0, 0.003, 0.5, 1 } do
            check(x, random:lt(share), ("%s, %d, %g"):format(dtype, n, share))
          end
        end
      end
    end)

    it("begins anywhere in memory, and may be one element", function()
      mt.manual_seed(28)
      local n = 70001
      local x = mt.arange(1, n + 1, { device = device, dtype = "int32" })
      local mask = mt.rand({ n }, opts):lt(0.4)
      for start = 2, 5 do
        local a, m = x:narrow(1, start, n - start), mask:narrow(1, start, n - start)
        local y = a:masked_select(m)
        assert.is_true(y:equal(a:to("cpu"):masked_select(m:to("cpu")):to(device)))
        assert.is_true(m:nonzero():select(2, 1):to("int32"):equal(y - (start - 1)))
      end
      for _, at in ipairs { 1, 2048, 2049, 4096, 4097, n } do
        assert.same({ at }, x:masked_select(x:eq(at)):totable())
        assert.same({ { at } }, x:eq(at):nonzero():totable())
      end
    end)
  end)
end

devices.each(_ENV, function(device)
  on(device, device == "cpu" and { 5 } or { 1, 2, 4, 32, 64, 1024, 2048 })
end)

describe("in a graph", function()
  local on_gpu = devices.on_gpu(_ENV, devices.without_guards)
  on_gpu("long scans begin anew at each replay", function()
    local gpu = { device = "cuda" }
    local scan = mt.cuda.graph(function(x)
      local y, at = x:cummax(1)
      return x:cumsum(1), x:cumprod(1), y, at
    end)
    for i = 1, 5 do
      local x = mt.randint(-1, 1, { 300000 + 4 }, gpu):to("float32") * i
      local sum, product, y, at = scan(x)
      assert.is_true(sum:equal(x:cumsum(1)) and product:equal(x:cumprod(1)))
      local want, place = x:cummax(1)
      assert.is_true(y:equal(want) and at:equal(place))
    end
  end)
end)
