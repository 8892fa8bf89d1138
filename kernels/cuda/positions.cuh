// kernels/cuda/positions.cuh -- reading index tensors: positions from 1 to offsets from 0.
#ifndef MT_CUDA_POSITIONS_CUH
#define MT_CUDA_POSITIONS_CUH

#include <climits>
#include "kernels/cuda/elementwise.cuh"

// A contiguous tensor of positions, of any dtype.
struct positions {
  const void *p;
  mt_dtype dtype;
  int64_t size;  // allowed: 1 .. size
  bool from_end; // and -size .. -1
  mt_fault *fault;
  int op;
};

inline positions positions_of(const mt_call *call, const mt_view *index, int64_t size,
                              bool from_end) {
  return {index->data, index->dtype, size, from_end, call->fault, call->op};
}

// Elements i[0], i[1], ... as they stand; one look at the dtype for all, so that their
// loads are under way together.
template <int V>
__device__ inline void positions_read(const positions &q, const int64_t (&i)[V],
                                      int64_t (&value /* [out] */)[V]) {
  const auto read = [&](auto p) {
#pragma unroll
    for (int j = 0; j < V; j++) value[j] = int64_t(p[i[j]]);
  };
  switch (q.dtype) {
  case MT_I64: return read(static_cast<const int64_t *>(q.p));
  case MT_I32: return read(static_cast<const int32_t *>(q.p));
  case MT_I16: return read(static_cast<const int16_t *>(q.p));
  case MT_I8: return read(static_cast<const int8_t *>(q.p));
  case MT_U8:
  case MT_BOOL: return read(static_cast<const uint8_t *>(q.p));
  default:
#pragma unroll
    for (int j = 0; j < V; j++) {
      double x;
      if (q.dtype == MT_F64)
        x = static_cast<const double *>(q.p)[i[j]];
      else if (q.dtype == MT_F32)
        x = static_cast<const float *>(q.p)[i[j]];
      else if (q.dtype == MT_F16)
        x = __half2float(static_cast<const __half *>(q.p)[i[j]]);
      else
        x = __bfloat162float(static_cast<const __nv_bfloat16 *>(q.p)[i[j]]);
      value[j] = x == floor(x) && fabs(x) < 0x1p53 ? int64_t(x) : MT_NOT_WHOLE;
    }
  }
}

// What stands as element i, as an offset in 0 .. size - 1; -1, and the fault noted, if it
// is out of range.
__device__ inline int64_t position_within(const positions &q, int64_t i,
                                          int64_t value) {
  const int64_t at = value > 0                 ? value - 1
                     : q.from_end && value < 0 ? value + q.size
                                               : -1;
  if (at >= 0 && at < q.size) return at;
  if (!q.from_end && value == 0) return -1; // names none
  fault_set(q.fault, q.op, i, value, 1, q.size);
  return -1;
}

// Element i as such an offset.
__device__ inline int64_t position_at(const positions &q, int64_t i) {
  const int64_t one[1] = {i};
  int64_t value[1];
  positions_read(q, one, value);
  return position_within(q, i, value[0]);
}

#endif
