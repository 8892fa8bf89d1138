-- spec/ops/exact_spec.lua: float64's special functions beside values that were found
-- with 60 digits; what they give at infinities, poles and NaN; powers of exponents that
-- have a way of their own.

local mt = require "mytensor"
local expect = require "spec.support.expect"
local devices = require "spec.support.devices"

local inf <const>, nan <const> = math.huge, 0 / 0

-- Each x beside f(x), on both sides of where one way ends and another begins; mpmath's,
-- rounded once. polygamma is of order 1.
local EXACT = {
  lgamma = {
    { 1e-300, 0x1.5963447f87fb5p+9 }, { 0.125, 0x1.027c4cfd515b0p+1 },
    { 0.75, 0x1.a051c372609eep-3 }, { 1.0625, -0x1.0dfc0c7dd2324p-5 },
    { 1.9375, -0x1.9c04c2ba1e2efp-6 }, { 2.5, 0x1.2383e809a67e8p-2 },
    { 3.25, 0x1.df216e434a8ecp-1 }, { 7.9375, 0x1.0cc83fe27f4b5p+3 },
    { 8.0625, 0x1.14d8412efe00dp+3 }, { 31.5, 0x1.317c1b4b39e34p+6 },
    { 1e10, 0x1.9a43710f467c1p+37 }, { -0.25, 0x1.96ee685defb2dp+0 },
    { -2.4375, 0x1.01af35dad112ep-5 }, { -5.5, -0x1.2124298f0b825p+2 },
    { -7.00390625, -0x1.7e71536dde140p+1 }, { -9.75, -0x1.a0e6c225edb65p+3 },
    { -40.625, -0x1.bda8d1fb6506dp+6 },
  },
  digamma = {
    { 0x1p-40, -0x1.000000000093cp+40 }, { 0.25, -0x1.0e8e9943cd7c3p+2 },
    { 1.0, -0x1.2788cfc6fb619p-1 }, { 2.5, 0x1.680425af12b5ep-1 },
    { 5.25, 0x1.8f5aacba5f211p+0 }, { 9.9375, 0x1.1f61567fa3e62p+1 },
    { 10.0, 0x1.20396dc85cc95p+1 }, { 10.0625, 0x1.21101afa5b7cep+1 },
    { 1000.5, 0x1.ba18a9c5bd388p+2 }, { -0.25, 0x1.750282bca7d92p+1 },
    { -3.125, 0x1.1c03c4cce0bd4p+3 }, { -20.375, 0x1.15c18be028520p+2 },
  },
  polygamma = {
    { 0x1p-40, 0x1p+80 }, { 0.25, 0x1.1328429d927c6p+4 },
    { 1.0, 0x1.a51a6625307d3p+0 }, { 2.5, 0x1.f62057f7296c9p-2 },
    { 5.25, 0x1.ad96ddf67f59cp-3 }, { 9.9375, 0x1.b19bd7107c89ap-4 },
    { 10.0, 0x1.aec2e54649b87p-4 }, { 10.0625, 0x1.abf3742e96c89p-4 },
    { 1000.5, 0x1.0624dbc099aa2p-10 }, { -0.25, 0x1.28ab89fe51e18p+4 },
    { -3.125, 0x1.0c7a9746f9dcbp+6 }, { -20.375, 0x1.707b6b347adfbp+3 },
  },
  i0 = {
    { 0.0, 0x1p+0 }, { 0.5, 0x1.104072392c800p+0 },
    { -2.25, 0x1.5d10e6e781fc3p+1 }, { 7.0, 0x1.513014c6b9055p+7 },
    { 10.9375, 0x1.ad2ee3c037e53p+12 }, { 11.0, 0x1.c787d455fe0e4p+12 },
    { 11.0625, 0x1.e380f17b6aed2p+12 }, { 30.5, 0x1.2992709558910p+40 },
    { -100.25, 0x1.f9d4745b1e934p+139 }, { 700.5, 0x1.786fe701da2eap+1004 },
    { 713.0, 0x1.7defd11043518p+1022 },
  },
  i0e = {
    { 0.0, 0x1p+0 }, { 0.5, 0x1.4a42101eb0f47p-1 },
    { -2.25, 0x1.26548ee58f87ep-2 }, { 7.0, 0x1.3adadacc3f204p-3 },
    { 10.9375, 0x1.f410b6d4b7d41p-4 }, { 11.0, 0x1.f29b553364b0cp-4 },
    { 11.0625, 0x1.f1293447ed980p-4 }, { 30.5, 0x1.291e6d9468dd8p-4 },
    { -100.25, 0x1.46d0a7d6d6db9p-5 }, { 700.5, 0x1.ee01e722b4302p-7 },
    { 1e10, 0x1.0bb9c30b73a3bp-18 },
  },
  i1 = {
    { 0x1p-30, 0x1p-31 }, { 0.5, 0x1.081571ddea056p-2 },
    { -2.25, -0x1.00820170e164ep+1 }, { 7.0, 0x1.381403fb0bee5p+7 },
    { 10.9375, 0x1.991109fd45cf7p+12 }, { 11.0, 0x1.b24dbd12123a1p+12 },
    { 11.0625, 0x1.cd1aa1454afb2p+12 }, { 30.5, 0x1.24a705c3cc78bp+40 },
    { -100.25, -0x1.f74cfadddb933p+139 }, { 700.5, 0x1.782b17bb7c347p+1004 },
    { 713.0, 0x1.7dab39e0e2874p+1022 },
  },
  i1e = {
    { 0x1p-30, 0x1.fffffff800000p-32 }, { 0.5, 0x1.40598cd0be9efp-3 },
    { -2.25, -0x1.b0925650fec09p-3 }, { 7.0, 0x1.236889cd346adp-3 },
    { 10.9375, 0x1.dca055dc19bcep-4 }, { 11.0, 0x1.db5f613c968cap-4 },
    { 11.0625, 0x1.da20eab4f3014p-4 }, { 30.5, 0x1.2434edc24540dp-4 },
    { -100.25, -0x1.452e530be1d87p-5 }, { 700.5, 0x1.eda79a30680aep-7 },
    { 1e10, 0x1.0bb9c30b3a255p-18 },
  },
  erfinv = {
    { 0x1p-40, 0x1.c5bf891b4ef6bp-41 }, { 0.25, 0x1.cd70681d5ff70p-3 },
    { -0.5, -0x1.e861fbb24c00ap-2 }, { 0.984375, 0x1.b59ffb450828dp+0 },
    { 0.9990234375, 0x1.2a6d8937b12d6p+1 }, { 0.99908447265625, 0x1.2c10841a7742cp+1 },
    { -0.9999998807907104, -0x1.df38cf0476ddep+1 },
    { 0.99999988734, 0x1.e027db81f8da7p+1 },
    { 0.9999999990686774, 0x1.14fe6a4f2e9d0p+2 },
    { 0.9999999999999999, 0x1.7744f8f74e94ap+2 },
  },
}

local EDGES = {
  lgamma = { { 0, inf }, { -0.0, inf }, { -3, inf }, { -2.0 ^ 60, inf }, { inf, inf },
    { -inf, inf }, { nan, nan }, { 1, 0 }, { 2, 0 } },
  digamma = { { 0, -inf }, { -0.0, inf }, { -3, nan }, { inf, inf }, { -inf, nan },
    { nan, nan } },
  polygamma = { { 0, inf }, { -0.0, inf }, { -3, inf }, { inf, 0 }, { -inf, nan },
    { nan, nan } },
  i0 = { { 0, 1 }, { 1e300, inf }, { -inf, inf }, { nan, nan } },
  i0e = { { 0, 1 }, { inf, 0 }, { -inf, 0 }, { nan, nan } },
  i1 = { { 0, 0 }, { 1e300, inf }, { -inf, -inf }, { nan, nan } },
  i1e = { { 0, 0 }, { inf, 0 }, { -inf, 0 }, { nan, nan } },
  erfinv = { { 0, 0 }, { 1, inf }, { -1, -inf }, { 1.5, nan }, { inf, nan },
    { nan, nan } },
}

local POWERS <const> = { 0.5, -0.5, 3, 2, -1 }

local function same(a, b) return a == b or (a ~= a and b ~= b) end

local function column(list, k)
  local out = {}
  for i, pair in ipairs(list) do out[i] = pair[k] end
  return out
end

local function on(device)
  -- a GPU's own lgamma loses digits near its zeros
  local most = device == "cpu" and 12 or 1000

  local function apply(name, values, dtype)
    local x = mt.tensor(values, { dtype = dtype, device = device })
    return mt[name](x):double():totable()
  end

  describe("float64 on " .. device, function()
    for _, name in ipairs(expect.names(EXACT)) do
      it(("%s lies within %d units of the last place"):format(name, most), function()
        local points = EXACT[name]
        -- alone, and among others in one vector
        local xs = column(points, 1)
        local together = apply(name, xs, "float64")
        for i, point in ipairs(points) do
          local x, y = point[1], point[2]
          local bit = y == 0 and 2.0 ^ -1074
            or 2.0 ^ (math.floor(math.log(math.abs(y), 2)) - 52)
          for _, got in ipairs { together[i], apply(name, { x }, "float64")[1] } do
            assert(math.abs(got - y) <= most * bit,
              ("%s(%g): %a instead of %a"):format(name, x, got, y))
          end
        end
      end)
    end
  end)

  for _, dtype in ipairs { "float64", "float32" } do
    describe(dtype .. " on " .. device, function()
      for _, name in ipairs(expect.names(EDGES)) do
        it(name .. " takes poles, infinities and NaN", function()
          local got = apply(name, column(EDGES[name], 1), dtype)
          for i, point in ipairs(EDGES[name]) do
            assert(same(got[i], point[2]),
              ("%s(%g): %g instead of %g"):format(name, point[1], got[i], point[2]))
          end
        end)
      end

      -- What a tensor of exponents gives goes by logarithms.
      it("powers of one exponent give what a tensor of exponents gives", function()
        local unit = dtype == "float64" and 2 ^ -52 or 2 ^ -23
        local edges = mt.tensor { 0.0, -0.0, inf, -inf, nan, 1, -1, -3, 1e-30, 1e30 }
        local x = mt.cat { edges, mt.linspace(0.05, 20, 70) }:to(dtype):to(device)
        for _, e in ipairs(POWERS) do
          local one, many = x:clone():requires_grad_(), x:clone():requires_grad_()
          local y, z = one:pow(e), many:pow(mt.full_like(x, e))
          y:backward(mt.ones_like(y))
          z:backward(mt.ones_like(z))
          for what, pair in pairs {
            value = { y:totable(), z:totable() },
            gradient = { one.grad:totable(), many.grad:totable() },
          } do
            for i, a in ipairs(pair[1]) do
              local b = pair[2][i]
              local right = same(a, b) and (a ~= 0 or 1 / a == 1 / b)
              assert(right or math.abs(a - b) <= 6 * unit * math.abs(b),
                ("%s of %g ^ %g: %a instead of %a"):format(what, x[i]:item(), e, a, b))
            end
          end
        end
      end)
    end)
  end
end

devices.each(_ENV, on)
