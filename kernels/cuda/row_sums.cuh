// kernels/cuda/row_sums.cuh -- sums and maxima over the threads of a row: blockDim.x of
// them, a multiple of 32; every thread gets the result, in a fixed order of additions.
#ifndef MT_CUDA_ROW_SUMS_CUH
#define MT_CUDA_ROW_SUMS_CUH

#include "kernels/cuda/cuda.cuh"

// The larger; NaN if either is.
template <class T> __device__ inline T larger(T a, T b) {
  return a > b || a != a ? a : b;
}

// What to shift by: a row of -inf alone has nothing to shift.
template <class T> __device__ inline T finite_or_0(T x) {
  return x == -T(INFINITY) ? T(0) : x;
}

// The largest value so far, and the sum of exp(value - largest).
template <class T> struct maximum_sum { T largest, sum; };

template <class T> __device__ inline void feed(maximum_sum<T> &m, T x) {
  if (x > m.largest) {
    m.sum = m.sum * exp(m.largest - x) + T(1);
    m.largest = x;
  } else
    m.sum += x == -T(INFINITY) ? T(0) : exp(x - m.largest);
}

// The same for N values at once: one change of the largest, N exponentials.
template <class T, int N>
__device__ inline void feed_all(maximum_sum<T> &m, const T (&x)[N]) {
  T largest = m.largest;
#pragma unroll
  for (int i = 0; i < N; i++) largest = x[i] > largest ? x[i] : largest;
  if (largest > m.largest) {
    m.sum *= exp(m.largest - largest);
    m.largest = largest;
  }
  const T shift = finite_or_0(m.largest);
#pragma unroll
  for (int i = 0; i < N; i++) m.sum += exp(x[i] - shift);
}

template <class T>
__device__ inline maximum_sum<T> join(const maximum_sum<T> &a,
                                      const maximum_sum<T> &b) {
  const T largest = larger(a.largest, b.largest), shift = finite_or_0(largest);
  return {largest, a.sum * exp(a.largest - shift) + b.sum * exp(b.largest - shift)};
}

struct add_fn {
  template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
struct larger_fn {
  template <class T> __device__ T operator()(T a, T b) const { return larger(a, b); }
};

// Combine over the row's threads, whose warps are a power of 2; held: one value a warp.
template <class T, class F> __device__ inline T row_combine(T x, F f) {
  __shared__ T held[32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  const int warps = blockDim.x / 32;
  if (warps == 1) return x;
  const int base = threadIdx.y * warps;
  __syncthreads();
  if (threadIdx.x % 32 == 0) held[base + threadIdx.x / 32] = x;
  __syncthreads();
  x = held[base + threadIdx.x % warps];
  for (int step = warps / 2; step > 0; step /= 2)
    x = f(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

template <class T> __device__ inline T row_sum(T x) { return row_combine(x, add_fn{}); }
template <class T> __device__ inline T row_largest(T x) {
  return row_combine(x, larger_fn{});
}
// The sum of exponentials as it is when `largest` is what they are shifted by.
template <class T> __device__ inline T shifted_sum(const maximum_sum<T> &m, T largest) {
  return m.sum == T(0) ? T(0) : m.sum * exp(m.largest - finite_or_0(largest));
}
template <class T> __device__ inline maximum_sum<T> row_join(const maximum_sum<T> &m) {
  __shared__ maximum_sum<T> held[32];
  const auto join_lanes = [](maximum_sum<T> x, int lanes) {
    T largest = x.largest;
    for (int step = lanes / 2; step > 0; step /= 2)
      largest = larger(largest, __shfl_xor_sync(~0u, largest, step));
    T sum = shifted_sum(x, largest);
    for (int step = lanes / 2; step > 0; step /= 2)
      sum += __shfl_xor_sync(~0u, sum, step);
    return maximum_sum<T>{largest, sum};
  };
  const maximum_sum<T> mine = join_lanes(m, 32);
  const int warps = blockDim.x / 32, base = threadIdx.y * warps;
  if (warps == 1) return mine;
  __syncthreads();
  if (threadIdx.x % 32 == 0) held[base + threadIdx.x / 32] = mine;
  __syncthreads();
  return join_lanes(held[base + threadIdx.x % warps], warps);
}

struct row_shape {
  dim3 block;
  unsigned grid;
};

// f(row, here) for the rows of this block, as rows_of_blocks has shaped it. All threads take
// part to the end, where some have no row: here = false.
template <class F> __device__ inline void each_row(int64_t rows, F f) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < rows; row += int64_t(gridDim.x) * blockDim.y)
    f(row, row < rows);
}

// Threads for rows of n elements, a power of 2, `per` a thread where that many exist.
inline row_shape rows_of_blocks(int64_t rows, int64_t n, int per) {
  unsigned threads = 512;
  while (threads > 32 && int64_t(threads / 2) * per >= n) threads /= 2;
  const unsigned high = threads < 128 ? 128 / threads : 1;
  const int64_t blocks = (rows + high - 1) / high;
  return {dim3(threads, high), unsigned(blocks < INT32_MAX ? blocks : INT32_MAX)};
}

#endif
