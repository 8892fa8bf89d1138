-- examples/extension/bias_silu/bias_silu.lua: silu(x + bias) as one operator with a
-- gradient: C++ and CUDA below, mt.Function above.

local mt = require "mytensor"
local here = arg and arg[0] and arg[0]:match "^(.*/)" or "./"

local sources = { here .. "binding.cpp" }
local with_cuda = mt.extension.nvcc() and mt.cuda.is_available()
if with_cuda then sources[2] = here .. "kernel.cu" end
local kernels = mt.extension.load {
  name = "bias_silu",
  sources = sources,
  flags = "-O3",
}

local bias_silu = mt.Function("bias_silu", {
  forward = function(ctx, x, bias)
    ctx:save(x, bias)
    return kernels.forward(x, bias)
  end,
  backward = function(ctx, dy)
    local x, bias = ctx:saved()
    local dx = kernels.backward(x, bias, dy)
    return dx, dx:reshape(-1, bias:numel()):sum(1)
  end,
})

for _, device in ipairs(with_cuda and { "cpu", "cuda" } or { "cpu" }) do
  local opts = { device = device, dtype = "float64", requires_grad = true }
  local x, bias = mt.randn({ 8, 5 }, opts), mt.randn({ 5 }, opts)
  local worst = (bias_silu(x, bias) - (x + bias):silu()):abs():max():item()
  local right = mt.gradcheck(bias_silu, { x, bias })
  print(("%s: largest difference from (x + bias):silu() %.2g, gradient %s"):format(
    device, worst, right and "right" or "wrong"))
end
