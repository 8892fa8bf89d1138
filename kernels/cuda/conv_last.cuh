// kernels/cuda/conv_last.cuh -- what conv_last.cu and conv_last_weight.cu share: copies of
// 16 bytes that run ahead, and products of small tiles by tensor cores.
#ifndef MT_CUDA_CONV_LAST_CUH
#define MT_CUDA_CONV_LAST_CUH

#include <cuda_pipeline.h>
#include "kernels/cuda/conv_tiles.cuh"

// dw of channels-last tensors (conv_last_weight.cu).
size_t last_weight_scratch(const mt_call *call, const conv &v); // bytes
mt_status run_last_weight(const mt_call *call, const conv &v, const conv_data &d,
                          void *scratch);

namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int row_bytes = 128,
              chunks = row_bytes / 16; // of a tile's row in shared memory

struct no_tensor_cores {}; // float32 as it is

// Blocks of a multiprocessor: with large tiles of float32 each thread needs all registers.
template <class M> constexpr int blocks_of(int columns) {
  return std::is_same<M, no_tensor_cores>::value && columns > 64 ? 1 : 2;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define HAS_ASYNC 0 // the host takes other ways (last_serves)
#else
#define HAS_ASYNC 1
#endif

#if HAS_ASYNC
__device__ inline uint32_t shared_address(const void *p) {
  return uint32_t(__cvta_generic_to_shared(p));
}
// 16 bytes, or zeros: then `from` may be any address.
__device__ inline void copy_chunk(uint32_t to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// sum (16 x 8) += a (16 x 32 bytes) b (32 bytes x 8)
#define MMA(shape, type)                                                              \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type                \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <class S>
__device__ inline void multiply(float (&sum)[4], const uint32_t (&a)[4],
                                const uint32_t *b) {
  if constexpr (std::is_same<S, __half>::value)
    MMA("m16n8k16", "f16");
  else if constexpr (std::is_same<S, __nv_bfloat16>::value)
    MMA("m16n8k16", "bf16");
  else
    MMA("m16n8k8", "tf32");
}
#undef MMA

// float32 is rounded to TF32, halves stay.
template <class S> __device__ inline void rounded(uint32_t (&r)[4]) {
  if constexpr (std::is_same<S, float>::value)
#pragma unroll
    for (int i = 0; i < 4; i++)
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(__uint_as_float(r[i])));
}

__device__ inline float4 load_four(uint32_t at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
#endif

// ---- host side --------------------------------------------------------------------------

inline int elements_of_chunk(const conv &v) {
  return 16 / int(dtype_size(mt_dtype(v.dtype)));
}

inline bool by_tensor_cores(const mt_call *call, const conv &v) {
  return v.dtype != MT_F32 || call->precision > 0;
}

// The kernel with its shared memory, of which a block has more than the usual 48 KiB.
template <class K, class... Arguments>
mt_status launch_last(const mt_call *call, K kernel, unsigned grid, int bytes,
                      Arguments... arguments) {
  CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<grid, threads, size_t(bytes), stream_of(call)>>>(arguments...);
  return launched();
}

// f(storage, how products are formed) for v.
template <class F> mt_status with_products(const mt_call *call, const conv &v, F f) {
  switch (v.dtype) {
  case MT_F16: return f(tag<__half>{}, tag<__half>{});
  case MT_BF16: return f(tag<__nv_bfloat16>{}, tag<__nv_bfloat16>{});
  default:
    return by_tensor_cores(call, v) ? f(tag<float>{}, tag<float>{})
                                    : f(tag<float>{}, tag<no_tensor_cores>{});
  }
}

} // namespace

#endif
