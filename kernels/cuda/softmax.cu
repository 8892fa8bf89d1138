// kernels/cuda/softmax.cu -- softmax and log_softmax along any dim, and their backward ops.
// Rows that fit on chip are read once; longer ones twice, the first time with a running
// maximum (Milakov and Gimelshein, arXiv 1805.02867).
#include "kernels/cuda/held_rows.cuh"
#include "kernels/cuda/space.cuh"

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

// What a row's largest value and sum of exponentials make of an element.
template <class T> struct row_scale {
  T shift, log_sum, scale;
  bool logarithm;
  __device__ row_scale(const maximum_sum<T> &m, bool logarithm)
      : shift(m.largest), log_sum(log(m.sum)), scale(T(1) / m.sum),
        logarithm(logarithm) {}
  __device__ T operator()(T x) const {
    return logarithm ? x - shift - log_sum : exp(x - shift) * scale;
  }
};

template <class S, int V>
__global__ void __launch_bounds__(512)
    softmax_registers_kernel(S *y, const S *x, int64_t rows, int n, bool logarithm) {
  using T = compute_t<S>;
  each_row(rows, [&](int64_t row, bool here) {
    register_row<S, V> held;
    T largest = -T(INFINITY), sum = 0;
    held.load(x + (here ? row : 0) * n, n, -T(INFINITY));
    held.each([&](T v) { // a NaN is left to the sum
      largest = fmax(largest, v);
      return v;
    });
    largest = row_largest(largest);
    const T shift = finite_or_0(largest);
    if (logarithm) {
      held.each([&](T v) {
        sum += exp(v - shift);
        return v;
      });
      const T log_sum = log(row_sum(sum));
      held.each([&](T v) { return v - largest - log_sum; });
    } else { // each exponential once; a row of -inf alone gives 0 / 0
      held.each([&](T v) {
        const T e = exp(v - shift);
        sum += e;
        return e;
      });
      const T scale = T(1) / row_sum(sum);
      held.each([&](T e) { return e * scale; });
    }
    if (here) held.store(y + row * n, n);
  });
}

template <class S, bool Ahead>
__global__ void __launch_bounds__(1024)
    softmax_shared_kernel(S *y, const S *x, int64_t rows, int64_t n, bool logarithm) {
  using T = compute_t<S>;
  constexpr int V = shared_row<S>::V;
  extern __shared__ uint4 room[];
  const shared_row<S> held(room, n);
  constexpr maximum_sum<T> none = {-T(INFINITY), T(0)};
  maximum_sum<T> arrived = none;
  const auto take = [&](const pack<S, V> &p) { feed_piece(arrived, p); };
  held.fetch_all(x + blockIdx.x * n);
  held.each(take);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const row_scale<T> f(row_join(arrived), logarithm);
    arrived = none;
    const int64_t next = row + gridDim.x;
    held.template replace<Ahead>(
        y + row * n, next < rows ? x + next * n : nullptr,
        [&](const pack<S, V> &p, int) {
          pack<S, V> q;
#pragma unroll
          for (int j = 0; j < V; j++) q.at[j] = store_as<S>(f(load_as<T>(p.at[j])));
          return q;
        },
        take);
  }
}

// Rows that do not fit: a block of one row.
template <class S>
__global__ void __launch_bounds__(512)
    softmax_online_kernel(S *y, const S *x, int64_t rows, int64_t n, bool logarithm) {
  using T = compute_t<S>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const S *from = x + row * n;
    maximum_sum<T> m = {-T(INFINITY), T(0)};
    feed_row(m, from, n);
    const row_scale<T> f(row_join(m), logarithm);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      y[row * n + i] = store_as<S>(f(load_as<T>(from[i])));
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

template <class S, int V>
__global__ void __launch_bounds__(512)
    softmax_backward_registers_kernel(S *dx, const S *y, const S *dy, int64_t rows,
                                      int n, bool logarithm) {
  using T = compute_t<S>;
  each_row(rows, [&](int64_t row, bool here) {
    const int64_t at = (here ? row : 0) * n;
    register_row<S, V> a, b;
    T sum = 0;
    a.load(y + at, n, T(0));
    b.load(dy + at, n, T(0));
#pragma unroll
    for (int k = 0; k < a.pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++)
        sum += logarithm ? b.at[k][j] : a.at[k][j] * b.at[k][j];
    sum = row_sum(sum);
#pragma unroll
    for (int k = 0; k < a.pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++)
        a.at[k][j] = logarithm ? b.at[k][j] - exp(a.at[k][j]) * sum
                               : a.at[k][j] * (b.at[k][j] - sum);
    if (here) a.store(dx + at, n);
  });
}

template <class S>
__global__ void __launch_bounds__(512)
    softmax_backward_rows_kernel(S *dx, const S *y, const S *dy, int64_t rows,
                                 int64_t n, bool logarithm) {
  using T = compute_t<S>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t at = row * n;
    T sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      sum += backward_term(y[at + i], dy[at + i], logarithm);
    sum = row_sum(sum);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
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
    const bool whole = whole_pieces(s.n, x->dtype, y, from);
    held_shape h = {};
    if (whole && is_long<S>(s.n)) {
      if (const mt_status status = shared_rows(
              softmax_shared_kernel<S, false>, softmax_shared_kernel<S, true>,
              call->device, s.outer, s.n, sizeof(S), &h))
        return status;
    }
    if (h.threads) {
      const auto kernel =
          h.ahead ? softmax_shared_kernel<S, true> : softmax_shared_kernel<S, false>;
      kernel<<<h.grid, h.threads, h.bytes, stream>>>(y, from, s.outer, s.n, Logarithm);
    } else if (!held_in_registers<S>(s.outer, s.n, whole, [&](auto v, row_shape r) {
                 softmax_registers_kernel<S, v><<<r.grid, r.block, 0, stream>>>(
                     y, from, s.outer, int(s.n), Logarithm);
               }))
      softmax_online_kernel<S>
          <<<blocks_of(s.outer), 512, 0, stream>>>(y, from, s.outer, s.n, Logarithm);
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
      const bool whole = whole_pieces(s.n, y->dtype, dx, a) && aligned16(b);
      if (!held_in_registers<S>(s.outer, s.n, whole, [&](auto v, row_shape r) {
            softmax_backward_registers_kernel<S, v><<<r.grid, r.block, 0, stream>>>(
                dx, a, b, s.outer, int(s.n), Logarithm);
          }))
        softmax_backward_rows_kernel<S>
            <<<blocks_of(s.outer), 512, 0, stream>>>(dx, a, b, s.outer, s.n, Logarithm);
    }
    return launched();
  });
}

} // namespace

CUDA_ENTRY(softmax) = {run_forward<false>, nullptr, MT_FLOAT_MASK, 1};
CUDA_ENTRY(log_softmax) = {run_forward<true>, nullptr, MT_FLOAT_MASK, 1};
CUDA_ENTRY(softmax_backward) = {run_backward<false>, nullptr, MT_FLOAT_MASK, 3};
CUDA_ENTRY(log_softmax_backward) = {run_backward<true>, nullptr, MT_FLOAT_MASK, 3};
