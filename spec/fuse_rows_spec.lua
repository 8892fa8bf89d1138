-- spec/fuse_rows_spec.lua: fused reductions of rows of any length, wherever they lie:
-- a GPU gives a row lanes, a block or several, and pieces, elements or shared memory.

local mt = require "mytensor"
local fused = require "spec.support.fused"
local near = fused.near

-- With one, two and three levels, and results of rows beside full ones.
local FORMULAS = {
  { "softmax(x) * w", function(x, w) return x:softmax(-1) * w end },
  { "(x - w):square():mean(-1), amax(x, -1, true) - amin(x * b, -1, true)",
    function(x, w, b)
      return (x - w):square():mean(-1), x:amax(-1, true) - (x * b):amin(-1, true)
    end },
  { "y = (x - mean(x, -1, true)) * rsqrt(var(x, -1, 0, true) + 1e-5);"
    .. "gelu(y * w + b), sum(x, -1, true)",
    function(x, w, b)
      local y = (x - x:mean(-1, true)) * (x:var(-1, 0, true) + 1e-5):rsqrt()
      return (y * w + b):gelu(), x:sum(-1, true)
    end },
}
local TOLERANCE = { float32 = 3e-5, float64 = 1e-11, float16 = 5e-3, bfloat16 = 4e-2 }

for _, device in ipairs { "cpu", "cuda" } do
  local on_device = fused.on(device, _ENV)
  local function double(...) return fused.double(device, ...) end
  local operators = {}
  for i, case in ipairs(FORMULAS) do operators[i] = mt.fuse("x, w, b", case[1]) end

  -- f(x, w, b) in the dtype of x against the ops in float64.
  local function compare(i, x, w, b, what)
    local ys = { operators[i](x, w, b) }
    local zs = { FORMULAS[i][2](x:double(), w:double(), b:double()) }
    for k, y in ipairs(ys) do
      near(y, zs[k], TOLERANCE[x:dtype()], ("%s, result %d of '%s'"):format(what, k,
        FORMULAS[i][1]))
    end
  end

  describe("fused rows", function()
    on_device("are right at any length", function()
      for k, n in ipairs { 1, 2, 3, 5, 8, 16, 17, 24, 31, 33, 36, 63, 66, 100, 127, 129,
        140, 256, 257, 1000, 1001, 2052, 4097, 8192, 8193, 16384, 20001, 40000, 65537,
        262144, 300001 } do
        for _, rows in ipairs(n > 5000 and { 1, 5 } or { 1, 37, 300 }) do
          local i = (k + rows) % #FORMULAS + 1
          local x, w, b = double(rows, n), double(n), double(n)
          local what = rows .. " rows of " .. n
          compare(i, x:float(), w:float(), b:float(), what)
          if k % 4 == 0 then
            local dtype = ({ "float64", "float16", "bfloat16" })[k // 4 % 3 + 1]
            compare(i, x:to(dtype), w:to(dtype), b:to(dtype), what .. " " .. dtype)
          end
        end
      end
    end)

    on_device("lie anywhere", function()
      for _, n in ipairs { 3, 7, 16, 31, 100, 1024, 1027 } do
        local x = double(6, 5, n + 3):float()
        local w, b = double(n + 1):float():narrow(1, 2, n), double(n):float()
        for i = 1, #FORMULAS do
          compare(i, x:narrow(3, 2, n), w, b, n .. ", narrowed")
          compare(i, x:narrow(3, 1, n):transpose(1, 2), w, b, n .. ", in two dims")
          compare(i, double(n, 9):float():t(), w, b, n .. ", down the columns")
          compare(i, x:view(-1):narrow(1, 2, 5 * n):view(5, n), w, b, n .. ", shifted")
          compare(i, x:view(-1):narrow(1, 5, 5 * n):view(5, n), w,
            x:view(-1):narrow(1, 5, 5 * n):view(5, n), n .. ", beside itself")
        end
      end
    end)

    on_device("have gradients at any length", function()
      for _, n in ipairs { 1, 3, 7, 16, 33, 130, 1001, 9000 } do
        for i = 1, #FORMULAS do
          local function leaf(...) return double(...):requires_grad_() end
          fused.agree(device, operators[i], FORMULAS[i][2],
            { leaf(7, n), leaf(n), leaf(n) }, 1e-9)
        end
      end
    end)
  end)
end
