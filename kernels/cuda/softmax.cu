// kernels/cuda/softmax.cu -- softmax and log_softmax along any dim, and their backward ops.
// Rows that fit a block's registers are read once; longer ones twice, the first time with a
// running maximum (Milakov and Gimelshein, arXiv 1805.02867).
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/row_sums.cuh"

namespace {

// Contiguous tensors as (outer, n, inner), n being the dim.
struct shape3 {
  int64_t outer, n, inner;
};

shape3 find_shape(const mt_view *x, const mt_attr *dim) {
  shape3 s = {1, x->ndim ? x->shape[dim->i[0]] : 1, 1};
  for (int d = 0; d < x->ndim; d++) {
    if (d < dim->i[0]) s.outer *= x->shape[d];
    if (d > dim->i[0]) s.inner *= x->shape[d];
  }
  return s;
}

// A block a row. PER > 0: the row fits PER elements a thread and stays in registers.
template <class S, int PER>
__global__ void __launch_bounds__(512)
    softmax_rows_kernel(S *y, const S *x, shape3 s, bool logarithm) {
  using T = compute_t<S>;
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < s.outer; row += int64_t(gridDim.x) * blockDim.y) {
    const bool here = row < s.outer;
    const S *from = x + row * s.n;
    S *to = y + row * s.n;
    T held[PER > 0 ? PER : 1];
    maximum_sum<T> m = {-T(INFINITY), T(0)};
    if constexpr (PER > 0) {
#pragma unroll
      for (int k = 0; k < PER; k++) {
        const int64_t i = threadIdx.x + int64_t(k) * blockDim.x;
        held[k] = here && i < s.n ? load_as<T>(from[i]) : -T(INFINITY);
        m.largest = larger(m.largest, held[k]);
      }
      m.largest = row_largest(m.largest);
#pragma unroll
      for (int k = 0; k < PER; k++) m.sum += exp(held[k] - finite_or_0(m.largest));
      m.sum = row_sum(m.sum);
    } else {
      for (int64_t i = threadIdx.x; here && i < s.n; i += blockDim.x)
        feed(m, load_as<T>(from[i]));
      m = row_join(m);
    }
    const T shift = m.largest, log_sum = log(m.sum), scale = T(1) / m.sum;
    if (!here) continue;
    for (int k = 0; PER == 0 || k < PER; k++) {
      const int64_t i = threadIdx.x + int64_t(k) * blockDim.x;
      if (i >= s.n) break;
      T v;
      if constexpr (PER > 0)
        v = held[k];
      else
        v = load_as<T>(from[i]);
      to[i] = store_as<S>(logarithm ? v - shift - log_sum : exp(v - shift) * scale);
    }
  }
}

// inner > 1: a thread a line, neighbours side by side.
template <class S>
__global__ void __launch_bounds__(256)
    softmax_columns_kernel(S *y, const S *x, shape3 s, bool logarithm) {
  using T = compute_t<S>;
  const int64_t lines = s.outer * s.inner, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; l < lines;
       l += step) {
    const int64_t at = l / s.inner * s.n * s.inner + l % s.inner;
    maximum_sum<T> m = {-T(INFINITY), T(0)};
    for (int64_t i = 0; i < s.n; i++) feed(m, load_as<T>(x[at + i * s.inner]));
    const T log_sum = log(m.sum), scale = T(1) / m.sum;
    for (int64_t i = 0; i < s.n; i++) {
      const T v = load_as<T>(x[at + i * s.inner]);
      y[at + i * s.inner] =
          store_as<S>(logarithm ? v - m.largest - log_sum : exp(v - m.largest) * scale);
    }
  }
}

template <class S>
__device__ inline compute_t<S> backward_term(S y, S dy, bool logarithm) {
  using T = compute_t<S>;
  return logarithm ? load_as<T>(dy) : load_as<T>(y) * load_as<T>(dy);
}
template <class S>
__device__ inline S backward_value(S y, S dy, compute_t<S> sum, bool logarithm) {
  using T = compute_t<S>;
  return store_as<S>(logarithm ? load_as<T>(dy) - exp(load_as<T>(y)) * sum
                               : load_as<T>(y) * (load_as<T>(dy) - sum));
}

template <class S>
__global__ void __launch_bounds__(512)
    softmax_backward_rows_kernel(S *dx, const S *y, const S *dy, shape3 s,
                                 bool logarithm) {
  using T = compute_t<S>;
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < s.outer; row += int64_t(gridDim.x) * blockDim.y) {
    const int64_t at = row * s.n;
    const bool here = row < s.outer;
    T sum = 0;
    for (int64_t i = threadIdx.x; here && i < s.n; i += blockDim.x)
      sum += backward_term(y[at + i], dy[at + i], logarithm);
    sum = row_sum(sum);
    for (int64_t i = threadIdx.x; here && i < s.n; i += blockDim.x)
      dx[at + i] = backward_value(y[at + i], dy[at + i], sum, logarithm);
  }
}

template <class S>
__global__ void __launch_bounds__(256)
    softmax_backward_columns_kernel(S *dx, const S *y, const S *dy, shape3 s,
                                    bool logarithm) {
  using T = compute_t<S>;
  const int64_t lines = s.outer * s.inner, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; l < lines;
       l += step) {
    const int64_t at = l / s.inner * s.n * s.inner + l % s.inner;
    T sum = 0;
    for (int64_t i = 0; i < s.n; i++)
      sum += backward_term(y[at + i * s.inner], dy[at + i * s.inner], logarithm);
    for (int64_t i = 0; i < s.n; i++) {
      const int64_t k = at + i * s.inner;
      dx[k] = backward_value(y[k], dy[k], sum, logarithm);
    }
  }
}

template <bool Logarithm> mt_status run_forward(const mt_call *call) {
  const mt_view *x = call->in[0];
  const shape3 s = find_shape(x, &call->attr[0]);
  const cudaStream_t stream = stream_of(call);
  if (s.outer * s.n * s.inner == 0) return MT_OK;
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    S *y = reinterpret_cast<S *>(call->out[0]->data);
    const S *from = reinterpret_cast<const S *>(x->data);
    if (s.inner > 1) {
      softmax_columns_kernel<S>
          <<<blocks_for(s.outer * s.inner, 256, call->device), 256, 0, stream>>>(
              y, from, s, Logarithm);
      return launched();
    }
    const row_shape r = rows_of_blocks(s.outer, s.n, 8);
    if (s.n <= int64_t(r.block.x) * 8)
      softmax_rows_kernel<S, 8><<<r.grid, r.block, 0, stream>>>(y, from, s, Logarithm);
    else if (s.n <= int64_t(r.block.x) * 32)
      softmax_rows_kernel<S, 32><<<r.grid, r.block, 0, stream>>>(y, from, s, Logarithm);
    else
      softmax_rows_kernel<S, 0><<<r.grid, r.block, 0, stream>>>(y, from, s, Logarithm);
    return launched();
  });
}

template <bool Logarithm> mt_status run_backward(const mt_call *call) {
  const mt_view *y = call->in[0], *dy = call->in[1];
  const shape3 s = find_shape(y, &call->attr[0]);
  const cudaStream_t stream = stream_of(call);
  if (s.outer * s.n * s.inner == 0) return MT_OK;
  return with_float(y->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    S *dx = reinterpret_cast<S *>(call->out[0]->data);
    const S *a = reinterpret_cast<const S *>(y->data);
    const S *b = reinterpret_cast<const S *>(dy->data);
    if (s.inner > 1)
      softmax_backward_columns_kernel<S>
          <<<blocks_for(s.outer * s.inner, 256, call->device), 256, 0, stream>>>(
              dx, a, b, s, Logarithm);
    else {
      const row_shape r = rows_of_blocks(s.outer, s.n, 8);
      softmax_backward_rows_kernel<S>
          <<<r.grid, r.block, 0, stream>>>(dx, a, b, s, Logarithm);
    }
    return launched();
  });
}

} // namespace

CUDA_ENTRY(softmax) = {run_forward<false>, nullptr, MT_FLOAT_MASK, 1};
CUDA_ENTRY(log_softmax) = {run_forward<true>, nullptr, MT_FLOAT_MASK, 1};
CUDA_ENTRY(softmax_backward) = {run_backward<false>, nullptr, MT_FLOAT_MASK, 3};
CUDA_ENTRY(log_softmax_backward) = {run_backward<true>, nullptr, MT_FLOAT_MASK, 3};
