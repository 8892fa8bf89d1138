// kernels/cuda/conv_image.cuh -- what conv_image.cu and conv_image_weight.cu share: an image
// with its padding as floats in shared memory.
#ifndef MT_CUDA_CONV_IMAGE_CUH
#define MT_CUDA_CONV_IMAGE_CUH

#include "kernels/cuda/conv_tiles.cuh"

namespace {

constexpr int image_threads = 512;
constexpr int64_t image_bytes = 96 << 10; // of shared memory, at most

// Rows of `quads` pieces lie one more apart: threads that write them down a column would
// meet in one bank.
__host__ __device__ constexpr int pitch_of(int quads) { return quads + 1; }

struct image_shape {
  int channels, height, width; // as they lie in shared memory, padding included
  divider by_width, by_height;
  int plane() const { return height * width; }
};

inline image_shape image_of(const conv &v, int64_t channels) {
  const int width = (int(v.w + 2 * v.pw) + 3) / 4 * 4; // pieces of four are aligned
  image_shape s{int(channels), int(v.h + 2 * v.ph), width, {}, {}};
  s.by_width = make_divider(s.width), s.by_height = make_divider(s.height);
  return s;
}

// Channels first .. of image n; zeros beyond its border.
template <class S>
__device__ inline void load_image(float *to, const S *x, const conv &v,
                                  const image_shape &s, int first) {
#pragma unroll 8
  for (int e = int(threadIdx.x); e < s.channels * s.height * s.width;
       e += image_threads) {
    const int line = int(divide(uint32_t(e), s.by_width));
    const int c = int(divide(uint32_t(line), s.by_height));
    const int column = e - line * s.width - int(v.pw);
    const int row = line - c * s.height - int(v.ph);
    const bool inside = first + c < v.c && uint32_t(row) < uint32_t(v.h) &&
                        uint32_t(column) < uint32_t(v.w);
    to[e] = inside ? load_as<float>(
                         x[(first + c) * v.xs[1] + row * v.xs[2] + column * v.xs[3]])
                   : 0.0f;
  }
}

// Bytes of shared memory that a block may have here: image_bytes, if there are so many.
inline int64_t shared_bytes(int device) {
  int most = 0;
  if (cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
      cudaSuccess)
    return 0;
  return std::min<int64_t>(most, image_bytes);
}

// The kernel with so many bytes of shared memory.
template <class K, class... Arguments>
mt_status launch_image(const mt_call *call, K kernel, int64_t grid, int64_t bytes,
                       Arguments... arguments) {
  if (bytes > 48 << 10) // the usual limit
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(shared_bytes(call->device))));
  kernel<<<unsigned(grid), image_threads, size_t(bytes), stream_of(call)>>>(
      arguments...);
  return launched();
}

// f(storage, width of the window) for v.
template <class F> mt_status with_window(const conv &v, F f) {
  const auto wide = [&](auto s) {
    return v.kw == 3 ? f(s, std::integral_constant<int, 3>{})
                     : f(s, std::integral_constant<int, 5>{});
  };
  switch (v.dtype) {
  case MT_F16: return wide(tag<__half>{});
  case MT_BF16: return wide(tag<__nv_bfloat16>{});
  default: return wide(tag<float>{});
  }
}

} // namespace

// dw (conv_image_weight.cu).
bool image_weight_serves(const mt_call *call, const conv &v);
size_t image_weight_scratch(const mt_call *call, const conv &v); // bytes
mt_status run_image_weight(const mt_call *call, const conv &v, const conv_data &d,
                           void *scratch);

#endif
