-- spec/bench/rows_einsum.lua: rows of einsum, which rows.lua takes in.

local mt = require "mytensor"

-- name -> equation and shapes, on a GPU and on the CPU
local CASES = {
  einsum_attention = { "bhqd,bhkd->bhqk", { { 8, 16, 256, 64 }, { 8, 16, 256, 64 } },
    { { 4, 8, 128, 64 }, { 4, 8, 128, 64 } } },
  einsum_chain = { "ij,jk,kl->il", { { 4096, 32 }, { 32, 4096 }, { 4096, 32 } },
    { { 1024, 32 }, { 32, 1024 }, { 1024, 32 } } },
  einsum_small = { "ij,kj->ik", { { 16, 16 }, { 16, 16 } },
    { { 16, 16 }, { 16, 16 } } },
}

return function(rows, on_gpu)
  for name, case in pairs(CASES) do
    rows[name] = function()
      local x = {}
      for i, shape in ipairs(case[on_gpu and 2 or 3]) do x[i] = mt.randn(shape) end
      return function() return mt.einsum(case[1], x[1], x[2], x[3]) end
    end
  end
end
