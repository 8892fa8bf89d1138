-- spec/support/tolerances.lua: how far results may lie from the reference. An entry
-- that is wider than its dtype's default says why.
--
-- A value passes when not (|actual - expected| > atol + rtol * |expected|).

-- float64: the reference is float64 too, so both sides round; float32: row functions
-- keep within 4 ulp (2.4e-7 each), and a gradient is a handful of them.
local default = {
  float64 = { atol = 1e-12, rtol = 1e-12 },
  float32 = { atol = 1e-6, rtol = 3e-6 },
  -- one rounding of the float32 result: half an ulp is 2^-12, 2^-9
  float16 = { atol = 2e-7, rtol = 2 ^ -11 },
  bfloat16 = { atol = 1e-38, rtol = 2 ^ -8 },
}

local by_op = {
  -- two roundings to 11 or 8 bits, and more where an op is made of others; sums of
  -- numbers of both signs lose digits before they are rounded
  half = {
    float16 = { atol = 2 ^ -9, rtol = 2 ^ -8 },
    bfloat16 = { atol = 2 ^ -5, rtol = 2 ^ -5 },
  },
}

return {
  default = default,
  by_op = by_op,
  of = function(op, dtype)
    local row = by_op[op]
    return row and row[dtype] or default[dtype] or { atol = 0, rtol = 0 }
  end,
}
