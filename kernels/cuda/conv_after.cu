// kernels/cuda/conv_after.cu -- what follows the sums of a convolution where its kernel
// doesn't do it: the bias of each channel, and relu, in one pass.
#include "kernels/cuda/conv.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

struct channels {
  divider inner, count; // pieces of a channel side by side; pieces or channels then
  uint32_t pieces;
};

// Pieces of V elements that lie side by side: of one channel, or (last) of V channels.
template <class S, int V, bool last>
__global__ void __launch_bounds__(256)
    after_kernel(S *y, const S *bias, bool relu, channels c) {
  const uint32_t p = blockIdx.x * 256 + threadIdx.x;
  if (p >= c.pieces) return;
  using T = compute_t<S>;
  const uint32_t outer = divide(p, c.inner);
  const uint32_t at =
      last ? p - outer * c.inner.d : outer - divide(outer, c.count) * c.count.d;
  piece<S, V> v;
  T x[V], b[V] = {};
  char *const to = reinterpret_cast<char *>(y + size_t(p) * V);
  v.load(to, MT_F32);
  v.get(x, MT_F32);
  if (bias)
#pragma unroll
    for (int i = 0; i < V; i++) b[i] = load_as<T>(bias[last ? at * V + i : at]);
#pragma unroll
  for (int i = 0; i < V; i++) x[i] = relu ? rectified(x[i] + b[i]) : x[i] + b[i];
  v.set(x, MT_F32);
  v.store(to, MT_F32);
}

// Elements anywhere.
template <class S>
__global__ void __launch_bounds__(256)
    after_strided_kernel(S *y, const S *bias, bool relu,
                         const __grid_constant__ space<2> s) {
  using T = compute_t<S>;
  const int64_t step = int64_t(gridDim.x) * 256;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < s.numel; i += step) {
    int64_t at[2];
    seek(s, i, at);
    const T x = load_as<T>(y[at[0]]) + (bias ? load_as<T>(bias[at[1]]) : T(0));
    y[at[0]] = store_as<S>(relu ? rectified(x) : x);
  }
}

template <class S>
mt_status run(const mt_call *call, const mt_view *y, const S *bias, bool relu) {
  constexpr int V = 16 / int(sizeof(S));
  S *out = reinterpret_cast<S *>(y->data);
  const int64_t n = numel(y), plane = y->shape[2] * y->shape[3], k = y->shape[1];
  const bool rows = is_contiguous(y) && plane % V == 0;
  const bool last = y->stride[1] == 1 && y->stride[3] == k && k % V == 0 &&
                    y->stride[2] == k * y->shape[3] && y->stride[0] == k * plane;
  if ((rows || last) && n / V < INT32_MAX && aligned16(y->data)) {
    channels c{};
    c.inner = make_divider(last ? k / V : plane / V), c.count = make_divider(k);
    c.pieces = uint32_t(n / V);
    const unsigned grid = (c.pieces + 255) / 256;
    if (last)
      after_kernel<S, V, true><<<grid, 256, 0, stream_of(call)>>>(out, bias, relu, c);
    else
      after_kernel<S, V, false><<<grid, 256, 0, stream_of(call)>>>(out, bias, relu, c);
    return launched();
  }
  mt_view channel = *y;
  for (int d = 0; d < 4; d++) channel.stride[d] = d == 1;
  const mt_view *const views[2] = {y, &channel};
  after_strided_kernel<S>
      <<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(
          out, bias, relu, make_space<2>(views));
  return launched();
}

} // namespace

mt_status run_after(const mt_call *call, const mt_view *y, const void *bias,
                    bool relu) {
  return with_float(y->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    return run<S>(call, y, static_cast<const S *>(bias), relu);
  });
}
