// spec/support/device_blob.cu -- an extension that lends memory of a GPU, and launches
// kernels, good and bad ones.
#include "mytensor.h"

namespace {

int released;

__global__ void count_kernel(float *x, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) x[i] = float(i);
}

__global__ void wild_kernel(float *x) { x[int64_t(1) << 40] = 1; }

void release(void *user, void *data) {
  (void)user;
  cudaFree(data);
  released++;
}

// device_blob.count(n): 0, 1, ... in memory of this module
int count(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  const int64_t n = luaL_checkinteger(L, 1);
  const int cuda = mt->cuda_current(L);
  const auto stream = static_cast<cudaStream_t>(mt->cuda_stream(L, cuda));
  void *data = nullptr;
  MT_CUDA_CHECK(L, cudaMalloc(&data, size_t(n) * sizeof(float)));
  count_kernel<<<unsigned((n + 255) / 256), 256, 0, stream>>>(
      static_cast<float *>(data), n);
  MT_CUDA_LAUNCHED(L, mt, cuda, "count_kernel");
  mt->push_blob_on(L, data, MYTENSOR_FLOAT32, cuda, 1, &n, release, nullptr);
  return 1;
}

// device_blob.released(): how many were given back
int count_released(lua_State *L) {
  lua_pushinteger(L, released);
  return 1;
}

// device_blob.too_large(): a launch that cannot be
int too_large(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  const int cuda = mt->cuda_current(L);
  const auto stream = static_cast<cudaStream_t>(mt->cuda_stream(L, cuda));
  count_kernel<<<1, 4096, 0, stream>>>(nullptr, 0);
  MT_CUDA_LAUNCHED(L, mt, cuda, "count_kernel");
  return 0;
}

// device_blob.wild(x): writes where nothing is
int wild(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  mytensor_info x;
  mt->info(L, 1, &x);
  const auto stream = static_cast<cudaStream_t>(mt->cuda_stream(L, x.cuda));
  wild_kernel<<<1, 1, 0, stream>>>(static_cast<float *>(x.data));
  MT_CUDA_LAUNCHED(L, mt, x.cuda, "wild_kernel");
  return 0;
}

// device_blob.exhaust(): a call of CUDA that fails
int exhaust(lua_State *L) {
  void *data = nullptr;
  mytensor_get_api(L)->cuda_stream(L, 0);
  MT_CUDA_CHECK(L, cudaMalloc(&data, size_t(1) << 50));
  return 0;
}

} // namespace

MT_EXTENSION_OPEN(L) {
  static const luaL_Reg functions[] = {
      {"count", count}, {"released", count_released}, {"too_large", too_large},
      {"wild", wild},   {"exhaust", exhaust},         {nullptr, nullptr}};
  luaL_newlib(L, functions);
  return 1;
}
