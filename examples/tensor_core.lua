-- examples/tensor_core.lua: a kernel for Tensor Cores, written in the script that uses
-- it: relu(a * b) of float16 matrices in one launch.
--
--   mtlua examples/tensor_core.lua [size]

local mt = require "mytensor"

local available, reason = mt.cuda.is_available()
if not available then
  print("this example needs a GPU: " .. reason)
  os.exit(0)
end

-- A warp computes 32 x 32 elements as 2 x 2 fragments of 16 x 16; a block has 2 x 2
-- warps.
local product_relu = mt.cuda.kernel {
  name = "product_relu",
  block = 128,
  grid = function(_, _, _, m, n) return n // 64, m // 64 end,
  source = [[
#include <mma.h>
using namespace nvcuda;

typedef wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_fragment;
typedef wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_fragment;
typedef wmma::fragment<wmma::accumulator, 16, 16, 16, float> c_fragment;

// a (m, k), b (k, n), c (m, n), all row-major
__global__ void product_relu(const half *a, const half *b, float *c, int m, int n,
                             int k) {
  const int warp = threadIdx.x / 32;
  const int row = blockIdx.y * 64 + warp / 2 * 32;
  const int column = blockIdx.x * 64 + warp % 2 * 32;
  c_fragment sum[2][2];
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) wmma::fill_fragment(sum[i][j], 0.0f);
  for (int at = 0; at < k; at += 16) {
    a_fragment x[2];
    b_fragment y[2];
    for (int i = 0; i < 2; i++) {
      wmma::load_matrix_sync(x[i], a + size_t(row + 16 * i) * k + at, k);
      wmma::load_matrix_sync(y[i], b + size_t(at) * n + column + 16 * i, n);
    }
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) wmma::mma_sync(sum[i][j], x[i], y[j], sum[i][j]);
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      for (int e = 0; e < sum[i][j].num_elements; e++)
        sum[i][j].x[e] = fmaxf(sum[i][j].x[e], 0.0f);
      wmma::store_matrix_sync(c + size_t(row + 16 * i) * n + column + 16 * j,
                              sum[i][j], n, wmma::mem_row_major);
    }
}
]],
}

local size = math.tointeger(arg and arg[1] or 2048)
if not size or size < 64 or size % 64 ~= 0 then
  print "the size must be a multiple of 64"
  os.exit(2)
end
local opts = { device = "cuda", dtype = "float16" }
mt.manual_seed(1)
local a, b = mt.rand({ size, size }, opts) - 0.5, mt.rand({ size, size }, opts) - 0.5
local c = mt.empty({ size, size }, { device = "cuda" })
product_relu(a, b, c, size, size, size)

local expected = a:float():matmul(b:float()):relu()
local worst = (c - expected):abs():max():item()
print(("%d x %d: largest difference from matmul and relu in float32: %.2g"):format(size,
  size, worst))
assert(worst < 1e-2)

local from, to = mt.cuda.Event { timing = true }, mt.cuda.Event { timing = true }
from:record()
for _ = 1, 20 do product_relu(a, b, c, size, size, size) end
to:record()
local ms = from:elapsed(to) / 20
print(("%.3f ms, %.1f TFLOP/s"):format(ms, 2 * size ^ 3 / ms / 1e9))
