// kernels/cuda/cuda.cuh -- what all CUDA kernels share: launches, element types, geometry.
#ifndef MT_CUDA_CUH
#define MT_CUDA_CUH

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "kernels/kernel.h"
#include "kernels/ops.h"

// ---- errors ---------------------------------------------------------------------------
// Note what failed for mt_device_api.error_text and give the status for it.
mt_status cuda_fail(cudaError_t error, const char *what);
mt_status cuda_fail_text(mt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define CUDA_TRY(call)                                                          \
  do {                                                                          \
    const cudaError_t cuda_try_error = (call);                                  \
    if (cuda_try_error != cudaSuccess) return cuda_fail(cuda_try_error, #call); \
  } while (0)

// The status of the launch just made.
inline mt_status launched() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? MT_OK : cuda_fail(error, "launch");
}

inline cudaStream_t stream_of(const mt_call *call) {
  return static_cast<cudaStream_t>(call->stream);
}

// Multiprocessors of the device; asked once.
int multiprocessors(int device);

// Defines what backend.cu's table looks for: CUDA_ENTRY(cat) = {run, scratch, dtypes, 0};
#define CUDA_ENTRY(op)                \
  extern const mt_entry mt_cuda_##op; \
  const mt_entry mt_cuda_##op

// ---- element types --------------------------------------------------------------------
// Storage type and the type that arithmetic runs in.
template <class T> struct compute { using type = T; };
template <> struct compute<__half> { using type = float; };
template <> struct compute<__nv_bfloat16> { using type = float; };
template <class T> using compute_t = typename compute<T>::type;

template <class T> struct tag { using type = T; };

// Call f(tag<T>{}) with the C++ type of a dtype; f returns an mt_status.
template <class F> mt_status with_float(mt_dtype d, F f) {
  switch (d) {
  case MT_F32: return f(tag<float>{});
  case MT_F64: return f(tag<double>{});
  case MT_F16: return f(tag<__half>{});
  case MT_BF16: return f(tag<__nv_bfloat16>{});
  default: return cuda_fail_text(MT_EUNSUPPORTED, "no kernel for this dtype");
  }
}
template <class F> mt_status with_int(mt_dtype d, F f) {
  switch (d) {
  case MT_I64: return f(tag<int64_t>{});
  case MT_I32: return f(tag<int32_t>{});
  case MT_I16: return f(tag<int16_t>{});
  case MT_I8: return f(tag<int8_t>{});
  case MT_U8: return f(tag<uint8_t>{});
  default: return cuda_fail_text(MT_EUNSUPPORTED, "no kernel for this dtype");
  }
}
template <class F> mt_status with_number(mt_dtype d, F f) {
  return MT_IS_FLOAT(d) ? with_float(d, f) : with_int(d, f);
}

inline int64_t dtype_size(mt_dtype d) { // bytes
  static const uint8_t size[MT_NDTYPES] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
  return size[d];
}

// ---- views ----------------------------------------------------------------------------
inline int64_t numel(const mt_view *v) {
  int64_t n = 1;
  for (int d = 0; d < v->ndim; d++) n *= v->shape[d];
  return n;
}
inline bool is_contiguous(const mt_view *v) {
  int64_t expected = 1;
  for (int d = v->ndim - 1; d >= 0; d--) {
    if (v->shape[d] != 1 && v->stride[d] != expected) return false;
    expected *= v->shape[d];
  }
  return true;
}
inline bool aligned16(const void *p) {
  return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

// ---- bad data -------------------------------------------------------------------------
// As mt_fault_set, from a kernel; the word lies in mapped host memory, and the host reads it
// when the kernel is done, so no atomic of the whole system is needed.
__device__ inline void fault_set(mt_fault *f, int op, int64_t position, int64_t value,
                                 int64_t lo, int64_t hi) {
  if (atomicCAS(&f->set, 0, 1) == 0) {
    f->op = op, f->position = position, f->value = value, f->lo = lo, f->hi = hi;
    __threadfence_system();
  }
}

#endif
