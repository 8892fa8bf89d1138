// examples/extension/bias_silu/kernel.cu -- silu(x + bias) and its gradient on a GPU.
#include "mytensor.h"

namespace {

template <class T>
__global__ void bias_silu_kernel(const T *x, const T *bias, const T *g, T *y, int64_t n,
                                 int64_t columns) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const T v = x[i] + bias[i % columns], s = T(1) / (T(1) + exp(-v));
    y[i] = g ? g[i] * s * (T(1) + v * (T(1) - s)) : v * s;
  }
}

template <class T>
void launch(const mytensor_info *x, const mytensor_info *bias, const mytensor_info *g,
            const mytensor_info *y, cudaStream_t stream) {
  const int64_t block = 256, blocks = (x->numel + block - 1) / block;
  bias_silu_kernel<T><<<unsigned(blocks < 65536 ? blocks : 65536), block, 0, stream>>>(
      static_cast<const T *>(x->data), static_cast<const T *>(bias->data),
      g ? static_cast<const T *>(g->data) : nullptr, static_cast<T *>(y->data),
      x->numel, bias->numel);
}

} // namespace

void bias_silu_cuda(lua_State *L, const mytensor_api *mt, const mytensor_info *x,
                    const mytensor_info *bias, const mytensor_info *g,
                    const mytensor_info *y) {
  const auto stream = static_cast<cudaStream_t>(mt->cuda_stream(L, x->cuda));
  if (x->dtype == MYTENSOR_FLOAT32)
    launch<float>(x, bias, g, y, stream);
  else
    launch<double>(x, bias, g, y, stream);
  MT_CUDA_LAUNCHED(L, mt, x->cuda, "bias_silu_kernel");
}
