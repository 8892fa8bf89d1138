-- spec/ops/ulp_spec.lua: how far float32's functions lie from float64, in units of the
-- last place, over the whole range of floats, on each device. Prints the worst of each.

local mt = require "mytensor"
local expect = require "spec.support.expect"
local devices = require "spec.support.devices"

local STEP <const> = 4099 -- every so many of the 2^23 fractions of a binade

-- Floats of every exponent, of both signs, denormal ones included.
local samples
setup(function()
  local fractions = mt.arange(0, 2 ^ 23, STEP, { dtype = "float64" }) * 2 ^ -23
  local parts = { fractions * 2.0 ^ -126 }
  for exponent = -126, 127 do
    parts[#parts + 1] = (fractions + 1) * 2.0 ^ exponent
  end
  local positive = mt.cat(parts)
  samples = mt.cat { positive, -positive }:float()
end)
teardown(function() samples = nil end)

-- The worst error, and where. What overflows float32 must be infinite, or the largest.
local function worst(got, exact, at)
  local rounded = exact:float()
  local finite = rounded:isfinite()
  local ends = got:eq(rounded):logical_or(got:isnan():logical_and(rounded:isnan()))
  local bit = mt.ldexp(mt.ones_like(exact), select(2, exact:frexp()):clamp(-125) - 24)
  local wrong = (got:double() - exact):abs() / bit
  -- infinities and NaN must agree; next to the largest number either may stand
  local edge = exact:abs():ge(0x1.fffffcp127):logical_and(exact:isfinite())
  local other = mt.full_like(wrong, math.huge):masked_fill(ends:logical_or(edge), 0)
  wrong = mt.where(finite:logical_and(edge:logical_not()), wrong, other)
  local most, index = wrong:nan_to_num(math.huge):max(1)
  local place = {}
  for i, x in ipairs(at) do place[i] = ("%.9g"):format(x[index:item()]:item()) end
  return most:item(), table.concat(place, ", ")
end

-- Most units: for functions of one number 4 at most, as the best libraries have; of the
-- special functions what was found, on either device.
local UNARY = {
  exp = 2, exp2 = 2.5, expm1 = 4, log = 4, log2 = 4, log10 = 4, log1p = 4, sqrt = 0.5,
  rsqrt = 2, reciprocal = 1, sin = 4, cos = 4, tan = 4, asin = 4, acos = 4, atan = 4,
  sinh = 4, cosh = 4, tanh = 4, asinh = 4, acosh = 4, atanh = 4, erf = 4, erfc = 4,
  sinc = 4, logit = 4, deg2rad = 1, rad2deg = 1,
  lgamma = 4, digamma = 4, polygamma = 4, i0 = 4, i0e = 4, i1 = 4, i1e = 4, erfinv = 4,
  ndtr = 1,
}

-- Pairs of numbers for functions of two.
local function shuffled(x, seed)
  mt.manual_seed(seed)
  return x:index_select(1, mt.randperm(x:numel()))
end
local BINARY = {
  pow = { 4, function(x)
    local a = shuffled(x, 1):abs()
    -- results of every size: b * log(a) within what float32 holds, and a little beyond
    local b = (mt.rand_like(a) * 220 - 110) / a:double():log():float()
    return a, b
  end },
  atan2 = { 4, function(x) return shuffled(x, 2), shuffled(x, 3) end },
  hypot = { 4, function(x) return shuffled(x, 4), shuffled(x, 5) end },
  ldexp = { 1, function(x) return x, (mt.rand_like(x) * 300 - 150):round() end },
}

local function on(device)
  describe("float32 on " .. device, function()
    local found = {}
    teardown(function()
      local line = "units of the last place on " .. device .. ":"
      for _, text in ipairs(found) do
        if #line + #text > 86 then
          print(line)
          line = " "
        end
        line = line .. " " .. text
      end
      print(line)
    end)

    local function check(name, bound, inputs)
      local here, exact = {}, {}
      for i, x in ipairs(inputs) do here[i], exact[i] = x:to(device), x:double() end
      local got = mt[name](table.unpack(here)):to "cpu"
      local most, place = worst(got, mt[name](table.unpack(exact)), inputs)
      found[#found + 1] = ("%s %.2f"):format(name, most)
      assert(most <= bound,
        ("%s: %g units of the last place at %s"):format(name, most, place))
    end

    for _, name in ipairs(expect.names(UNARY)) do
      it(("%s within %g units"):format(name, UNARY[name]), function()
        check(name, UNARY[name], { samples })
      end)
    end
    for _, name in ipairs(expect.names(BINARY)) do
      it(("%s within %g units"):format(name, BINARY[name][1]), function()
        check(name, BINARY[name][1], { BINARY[name][2](samples) })
      end)
    end
  end)
end

devices.each(_ENV, on)

-- From mpmath. The argument of erfc, once rounded, would cost hundreds of units.
describe("ndtr of float64", function()
  local VALUES = {
    { -36.1, 0x1.5959c1af60fcbp-947 },
    { -30.3, 0x1.676969d381f81p-669 },
    { -17.2, 0x1.1e593e1d99d94p-219 },
    { -8.7, 0x1.e9c64bc3d21c0p-60 },
    { -1.3, 0x1.8c7eaa3883ae2p-4 },
    { 2.9, 0x1.ff0b71b1c9effp-1 },
  }
  it("lies within 4 units of the last place far below 0", function()
    for _, pair in ipairs(VALUES) do
      local both = mt.tensor(pair, { dtype = "float64" })
      local y = both[1]:ndtr():item()
      local unit = 2.0 ^ (select(2, both[2]:frexp()):item() - 53)
      assert(math.abs(y - pair[2]) <= 4 * unit, ("%g: %a"):format(pair[1], y))
    end
  end)

  it("is 0, 1 or NaN at the ends, without gradients that are not numbers", function()
    local x = mt.tensor({ -1e300, -math.huge, 1e300, math.huge, 0 / 0 },
      { dtype = "float64", requires_grad = true })
    local y = x:ndtr()
    y:sum():backward()
    assert.same({ 0, 0, 1, 1 }, y:detach()[{ { 1, 4 } }]:totable())
    assert.same({ 0, 0, 0, 0 }, x.grad[{ { 1, 4 } }]:totable())
    assert.is_true(y:isnan()[5]:item() and x.grad:isnan()[5]:item())
  end)
end)
