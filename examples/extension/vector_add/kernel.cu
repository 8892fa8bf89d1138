// examples/extension/vector_add/kernel.cu -- z = x + y on a GPU: kernel and launch.
#include "mytensor.h"

__global__ void vector_add_kernel(const float *x, const float *y, float *z, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

// All contiguous float32 of as many elements, on one GPU.
extern "C" void vector_add_cuda(lua_State *L, const mytensor_api *mt,
                                const mytensor_info *x, const mytensor_info *y,
                                const mytensor_info *z) {
  const int64_t n = z->numel, block = 256;
  if (n == 0) return; // a grid of 0 is an error, an empty tensor is not
  const auto stream = static_cast<cudaStream_t>(mt->cuda_stream(L, z->cuda));
  vector_add_kernel<<<unsigned((n + block - 1) / block), block, 0, stream>>>(
      static_cast<const float *>(x->data), static_cast<const float *>(y->data),
      static_cast<float *>(z->data), n);
  MT_CUDA_LAUNCHED(L, mt, z->cuda, "vector_add_kernel");
}
