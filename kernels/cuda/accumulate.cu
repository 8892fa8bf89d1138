// kernels/cuda/accumulate.cu -- sums and extremes at the positions of an index by
// atomics, in any order. Extremes are the same in each; sums of floats are not.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/walk.cuh"

namespace {

// What folds elements of a dtype: atomics have 4 or 8 bytes, and half types are rounded
// once, from a float32 sum.
mt_dtype accumulator(mt_dtype d) {
  if (d == MT_F16 || d == MT_BF16) return MT_F32;
  return d == MT_I16 || d == MT_I8 || d == MT_U8 || d == MT_BOOL ? MT_I32 : d;
}

constexpr int few_targets = 4096; // of 8 bytes at most: 32 KB

// Sums in memory: said to return nothing, or the old values come back all the same.
struct to_memory {
  static __device__ void add(float *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(place(to)), "f"(x)
                 : "memory");
  }
  static __device__ void add(double *to, double x) {
    asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::"l"(place(to)), "d"(x)
                 : "memory");
  }
  static __device__ void add(int32_t *to, int32_t x) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(place(to)), "r"(x)
                 : "memory");
  }
  static __device__ void add(int64_t *to, int64_t x) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(place(to)), "l"(x)
                 : "memory");
  }
  static __device__ size_t place(void *to) { return __cvta_generic_to_global(to); }
};

// Sums in shared memory.
struct to_shared {
  template <class T> static __device__ void add(T *to, T x) { atomicAdd(to, x); }
  static __device__ void add(int64_t *to, int64_t x) {
    atomicAdd(reinterpret_cast<unsigned long long *>(to),
              static_cast<unsigned long long>(x));
  }
};

// y += src. A warp whose elements all go to one place adds them up first.
template <class Sums, bool Line, class T, class S>
__device__ inline void sum_at(T *y, const S *src, const walk &w) {
  for (int64_t b = blockIdx.x; b * walk_block < w.s.numel; b += gridDim.x) {
    int64_t to[batch];
    S v[batch];
    walk_read<Line>(w, b, src, to, v);
#pragma unroll
    for (int j = 0; j < batch; j++) {
      const T x = load_as<T>(v[j]);
      if (__all_sync(~0u, to[j] == __shfl_sync(~0u, to[j], 0))) {
        const T sum = lane_sum(x);
        if (to[j] >= 0 && threadIdx.x % 32 == 0) Sums::add(y + to[j], sum);
      } else if (to[j] >= 0)
        Sums::add(y + to[j], x);
    }
  }
}

template <bool Line, class T, class S>
__global__ void __launch_bounds__(walk_threads)
    sum_at_kernel(T *y, const S *src, const __grid_constant__ walk w) {
  sum_at<to_memory, Line>(y, src, w);
}

// The same for few targets, where atomics would wait for each other: each block sums in
// shared memory first.
template <bool Line, class T, class S>
__global__ void __launch_bounds__(walk_threads)
    sum_at_few_kernel(T *y, const S *src, int targets, const __grid_constant__ walk w) {
  __shared__ T held[few_targets];
  for (int i = threadIdx.x; i < targets; i += walk_threads) held[i] = T(0);
  __syncthreads();
  sum_at<to_shared, Line>(held, src, w);
  __syncthreads();
  for (int i = threadIdx.x; i < targets; i += walk_threads)
    if (held[i] != T(0)) to_memory::add(y + i, held[i]);
}

// Does a replace b? NaN comes before all, and 0 is larger than -0: so the result doesn't
// depend on the order.
template <class T> __device__ inline bool replaces(T a, T b, bool largest) {
  if (b != b) return false;
  if (a != a) return true;
  if constexpr (std::is_floating_point<T>::value)
    if (a == b) return largest ? signbit(b) && !signbit(a) : signbit(a) && !signbit(b);
  return largest ? a > b : a < b;
}

// y = the larger, or the smaller, of y and src.
template <class T, class S>
__global__ void __launch_bounds__(walk_threads)
    extreme_at_kernel(T *y, const S *src, bool largest,
                      const __grid_constant__ walk w) {
  using bits = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  for (int64_t b = blockIdx.x; b * walk_block < w.s.numel; b += gridDim.x) {
    int64_t to[batch];
    S v[batch];
    walk_read<false>(w, b, src, to, v);
    for (int j = 0; j < batch; j++) {
      if (to[j] < 0) continue;
      T x = load_as<T>(v[j]);
      if constexpr (std::is_floating_point<T>::value)
        if (x != x) x = T(NAN); // whose NaN it is doesn't show
      bits mine, *const at = reinterpret_cast<bits *>(y + to[j]);
      memcpy(&mine, &x, sizeof x);
      for (bits old = *static_cast<volatile bits *>(at), found;; old = found) {
        T there;
        memcpy(&there, &old, sizeof old);
        if (!replaces(x, there, largest)) break;
        found = atomicCAS(at, old, mine);
        if (found == old) break;
      }
    }
  }
}

template <bool Line, class T, class S>
void launch_sum(const mt_call *call, T *y, const S *src, const walk &w) {
  const int64_t targets = numel(call->out[0]);
  // blocks that have much more to add than to pass on
  const int64_t blocks = w.s.numel / std::max<int64_t>(4 * targets, walk_block);
  if (targets <= few_targets && blocks > 0)
    sum_at_few_kernel<Line, T, S>
        <<<blocks_for(blocks, 1, call->device), walk_threads, 0, stream_of(call)>>>(
            y, src, int(targets), w);
  else
    sum_at_kernel<Line, T, S>
        <<<walk_grid(w), walk_threads, 0, stream_of(call)>>>(y, src, w);
}

template <class T, class S>
mt_status launch(const mt_call *call, void *y, const void *src, const walk &w,
                 fold_kind how) {
  T *const to = static_cast<T *>(y);
  const S *const from = static_cast<const S *>(src);
  if (how != FOLD_SUM)
    extreme_at_kernel<T, S><<<walk_grid(w), walk_threads, 0, stream_of(call)>>>(
        to, from, how == FOLD_AMAX, w);
  else if (is_line(w))
    launch_sum<true>(call, to, from, w);
  else
    launch_sum<false>(call, to, from, w);
  return launched();
}

mt_status launch_for(const mt_call *call, void *y, const void *src, const walk &w,
                     fold_kind how) {
  switch (call->out[0]->dtype) {
  case MT_F32: return launch<float, float>(call, y, src, w, how);
  case MT_F64: return launch<double, double>(call, y, src, w, how);
  case MT_F16: return launch<float, __half>(call, y, src, w, how);
  case MT_BF16: return launch<float, __nv_bfloat16>(call, y, src, w, how);
  case MT_I64: return launch<int64_t, int64_t>(call, y, src, w, how);
  case MT_I32: return launch<int32_t, int32_t>(call, y, src, w, how);
  case MT_I16: return launch<int32_t, int16_t>(call, y, src, w, how);
  case MT_I8: return launch<int32_t, int8_t>(call, y, src, w, how);
  default: return launch<int32_t, uint8_t>(call, y, src, w, how);
  }
}

} // namespace

bool accumulates(const mt_call *call, int64_t n, fold_kind how) {
  const mt_view *out = call->out[0];
  if (how == FOLD_PROD) return false; // by compare and swap alone: one at a time
  if (how != FOLD_SUM) return true;
  if (call->deterministic && MT_IS_FLOAT(out->dtype)) return false;
  // scratch as large as y is worth it for many elements only
  return accumulator(out->dtype) == out->dtype || n >= numel(out) / 8;
}

size_t accumulate_scratch(const mt_call *call) {
  const mt_view *out = call->out[0];
  const mt_dtype d = accumulator(out->dtype);
  return d == out->dtype ? 0 : size_t(numel(out) * dtype_size(d));
}

mt_status accumulate(const mt_call *call, const mt_view *from, const void *src,
                     const walk &w, fold_kind how) {
  mt_view sums = *call->out[0];
  sums.dtype = accumulator(sums.dtype);
  const bool apart = sums.dtype != call->out[0]->dtype;
  if (apart) sums.data = static_cast<char *>(call->scratch);
  if (from) {
    if (const mt_status status = copy_view(call, from, &sums)) return status;
  } else
    CUDA_TRY(cudaMemsetAsync(
        sums.data, 0, size_t(numel(&sums) * dtype_size(sums.dtype)), stream_of(call)));
  if (const mt_status status = launch_for(call, sums.data, src, w, how)) return status;
  return apart ? copy_view(call, &sums, call->out[0]) : MT_OK;
}
