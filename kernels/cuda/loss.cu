// kernels/cuda/loss.cu -- nll_loss and cross_entropy, and their backward ops: a block a
// sample, or a thread where classes do not lie side by side.
#include "kernels/cuda/held_rows.cuh"
#include "kernels/cuda/positions.cuh"

namespace {

enum reduction { MEAN, SUM, NONE };

// x (contiguous) as (outer, classes, inner); labels as (outer, inner).
struct loss_shape {
  int64_t outer, classes, inner;
  int reduction;
  bool entropy; // x are logits, not log-probabilities
};

loss_shape find_shape(const mt_call *call, bool entropy) {
  const mt_view *x = call->in[0];
  loss_shape s = {x->ndim > 1 ? x->shape[0] : 1, x->shape[x->ndim > 1], 1,
                  int(call->attr[0].i[0]), entropy};
  for (int d = 2; d < x->ndim; d++) s.inner *= x->shape[d];
  return s;
}

__device__ inline int64_t origin(const loss_shape &s, int64_t i) {
  return i / s.inner * s.classes * s.inner + i % s.inner;
}

// The sample's largest logit and sum of exponentials, known to all threads of its row.
template <class S>
__device__ inline maximum_sum<compute_t<S>> sample_sum(const S *x, const loss_shape &s,
                                                       bool here) {
  using T = compute_t<S>;
  maximum_sum<T> m = {-T(INFINITY), T(0)};
  if (here && s.inner == 1)
    feed_row(m, x, s.classes);
  else if (here)
    for (int64_t c = threadIdx.x; c < s.classes; c += blockDim.x)
      feed(m, load_as<T>(x[c * s.inner]));
  return row_join(m);
}

// The loss of each sample, as double in `each`, or in y itself.
template <class S>
__global__ void __launch_bounds__(512)
    loss_kernel(const S *x, positions labels, loss_shape s, double *each, S *y) {
  using T = compute_t<S>;
  const int64_t n = s.outer * s.inner;
  each_row(n, [&](int64_t i, bool here) {
    const S *from = x + origin(s, here ? i : 0);
    maximum_sum<T> m = {T(0), T(1)};
    if (s.entropy) m = sample_sum(from, s, here);
    if (!here || threadIdx.x != 0) return;
    const int64_t label = position_at(labels, i);
    double value = 0;
    if (label >= 0) {
      const double at = double(load_as<T>(from[label * s.inner]));
      value = s.entropy ? log(double(m.sum)) + (double(m.largest) - at) : -at;
    }
    if (each)
      each[i] = value;
    else if constexpr (sizeof(S) == 2)
      y[i] = store_as<S>(float(value));
    else
      y[i] = S(value);
  });
}

// One block adds all of them, in an order that depends on n alone.
template <class S>
__global__ void __launch_bounds__(512)
    loss_total_kernel(const double *each, int64_t n, bool mean, S *y) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += each[i];
  sum = row_sum(sum);
  if (threadIdx.x != 0) return;
  if (mean) sum /= double(n);
  if constexpr (sizeof(S) == 2)
    *y = store_as<S>(float(sum));
  else
    *y = S(sum);
}

size_t forward_scratch(const mt_call *call) {
  return call->attr[0].i[0] == NONE ? 0 : size_t(numel(call->in[1])) * sizeof(double);
}

template <bool Entropy> mt_status run_forward(const mt_call *call) {
  const mt_view *x = call->in[0];
  const loss_shape s = find_shape(call, Entropy);
  const int64_t n = s.outer * s.inner;
  const positions labels = positions_of(call, call->in[1], s.classes, true);
  const cudaStream_t stream = stream_of(call);
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    S *y = reinterpret_cast<S *>(call->out[0]->data);
    double *each = s.reduction == NONE ? nullptr : static_cast<double *>(call->scratch);
    if (n > 0) {
      const row_shape r = rows_of_blocks(n, Entropy ? s.classes : 1, 16);
      loss_kernel<S><<<r.grid, r.block, 0, stream>>>(
          reinterpret_cast<const S *>(x->data), labels, s, each, y);
      if (const mt_status status = launched()) return status;
    }
    if (s.reduction == NONE) return MT_OK;
    loss_total_kernel<S><<<1, 512, 0, stream>>>(each, n, s.reduction == MEAN, y);
    return launched();
  });
}

// What comes back to sample i; 0, and the fault noted, if its label is out of range.
template <class S>
__device__ inline compute_t<S> returned(const S *dy, const loss_shape &s, int64_t i,
                                        int64_t label) {
  using T = compute_t<S>;
  T g = load_as<T>(dy[s.reduction == NONE ? i : 0]);
  if (s.reduction == MEAN) g = T(g / T(s.outer * s.inner));
  return label < 0 ? T(0) : g;
}

// dx[c] = dy * (softmax(x)[c] - (c == label)), or without the softmax.
template <class S>
__global__ void __launch_bounds__(512)
    loss_backward_kernel(S *dx, const S *x, const S *dy, positions labels,
                         loss_shape s) {
  using T = compute_t<S>;
  const int64_t n = s.outer * s.inner;
  each_row(n, [&](int64_t i, bool here) {
    const int64_t at = origin(s, here ? i : 0);
    maximum_sum<T> m = {T(0), T(1)};
    if (s.entropy) m = sample_sum(x + at, s, here);
    if (!here) return;
    const int64_t label = position_at(labels, i);
    const T g = returned(dy, s, i, label), scale = T(1) / m.sum;
    for (int64_t c = threadIdx.x; c < s.classes; c += blockDim.x) {
      T p = T(0);
      if (s.entropy) p = exp(load_as<T>(x[at + c * s.inner]) - m.largest) * scale;
      dx[at + c * s.inner] = store_as<S>(c == label ? g * (p - T(1)) : g * p);
    }
  });
}

// Many classes side by side: the logits are read once.
template <class S, bool Ahead>
__global__ void __launch_bounds__(1024)
    entropy_backward_shared_kernel(S *dx, const S *x, const S *dy, positions labels,
                                   loss_shape s) {
  using T = compute_t<S>;
  constexpr int V = shared_row<S>::V;
  extern __shared__ uint4 room[];
  const shared_row<S> held(room, s.classes);
  constexpr maximum_sum<T> none = {-T(INFINITY), T(0)};
  maximum_sum<T> arrived = none;
  const auto take = [&](const pack<S, V> &p) { feed_piece(arrived, p); };
  held.fetch_all(x + blockIdx.x * s.classes);
  held.each(take);
  for (int64_t i = blockIdx.x; i < s.outer; i += gridDim.x) {
    const int64_t label = position_at(labels, i), next = i + gridDim.x;
    const maximum_sum<T> m = row_join(arrived);
    const T g = returned(dy, s, i, label), scale = g / m.sum;
    arrived = none;
    const int chosen = int(label); // -1: none
    held.template replace<Ahead>(
        dx + i * s.classes, next < s.outer ? x + next * s.classes : nullptr,
        [&](const pack<S, V> &p, int c) {
          T v[V];
          pack<S, V> q;
#pragma unroll
          for (int j = 0; j < V; j++)
            v[j] = exp(load_as<T>(p.at[j]) - m.largest) * scale;
          if (unsigned(chosen - c) < V) {
#pragma unroll
            for (int j = 0; j < V; j++)
              if (c + j == chosen) v[j] -= g;
          }
#pragma unroll
          for (int j = 0; j < V; j++) q.at[j] = store_as<S>(v[j]);
          return q;
        },
        take);
  }
}

template <bool Entropy> mt_status run_backward(const mt_call *call) {
  const mt_view *x = call->in[0];
  const loss_shape s = find_shape(call, Entropy);
  const int64_t n = s.outer * s.inner;
  if (n == 0 || s.classes == 0) return MT_OK;
  const positions labels = positions_of(call, call->in[1], s.classes, true);
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    S *dx = reinterpret_cast<S *>(call->out[0]->data);
    const S *from = reinterpret_cast<const S *>(x->data);
    const S *dy = reinterpret_cast<const S *>(call->in[2]->data);
    held_shape h = {};
    if (Entropy && s.inner == 1 && s.classes > 1024 &&
        whole_pieces(s.classes, x->dtype, dx, from)) {
      if (const mt_status status =
              shared_rows(entropy_backward_shared_kernel<S, false>,
                          entropy_backward_shared_kernel<S, true>, call->device, n,
                          s.classes, sizeof(S), &h))
        return status;
    }
    if (h.threads) {
      const auto kernel = h.ahead ? entropy_backward_shared_kernel<S, true>
                                  : entropy_backward_shared_kernel<S, false>;
      kernel<<<h.grid, h.threads, h.bytes, stream_of(call)>>>(dx, from, dy, labels, s);
      return launched();
    }
    const row_shape r = rows_of_blocks(n, s.classes, 16);
    loss_backward_kernel<S>
        <<<r.grid, r.block, 0, stream_of(call)>>>(dx, from, dy, labels, s);
    return launched();
  });
}

} // namespace

CUDA_ENTRY(nll_loss) = {run_forward<false>, forward_scratch, MT_FLOAT_MASK, 3};
CUDA_ENTRY(cross_entropy) = {run_forward<true>, forward_scratch, MT_FLOAT_MASK, 3};
CUDA_ENTRY(nll_loss_backward) = {run_backward<false>, nullptr, MT_FLOAT_MASK, 7};
CUDA_ENTRY(cross_entropy_backward) = {run_backward<true>, nullptr, MT_FLOAT_MASK, 7};
