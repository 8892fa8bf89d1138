// kernels/cuda/scan.cu -- running sums along a dim.
#include "kernels/cuda/line_scan.cuh"

namespace {

template <class O, class T> __device__ inline O narrow(T x) {
  if constexpr (sizeof(O) == 2 && !std::is_integral<O>::value)
    return store_as<O>(float(x));
  else
    return O(x);
}

// Sums of S's, stored as O's. V > 1: whole pieces, forwards or backwards.
template <class S, class O, int Neighbours, bool Backwards = false> struct sum_op {
  static constexpr int V = Neighbours, U = V == 1 ? 8 : 4;
  using state = wide_t<S>;
  using raw = S;
  struct place {
    int64_t at[2];
  };
  O *y;
  const S *x;
  int64_t length, y_step, x_step; // elements, negative in reverse
  space<2> s;

  static __device__ state none() { return 0; }
  static __device__ state join(state a, state b) {
    if constexpr (std::is_integral<state>::value)
      return state(uint64_t(a) + uint64_t(b));
    else
      return a + b;
  }
  static __device__ state of(S x, int64_t) { return state(load_as<compute_t<S>>(x)); }
  __device__ place seek(int64_t line) const {
    place p;
    ::seek(s, line, p.at);
    return p;
  }
  __device__ pack<S, V> load(const place &p, int64_t i) const {
    const S *const from = x + p.at[1];
    if constexpr (V == 1) return {{from[i * x_step]}};
    if constexpr (Backwards)
      return reversed(*reinterpret_cast<const pack<S, V> *>(from - i - (V - 1)));
    return *reinterpret_cast<const pack<S, V> *>(from + i);
  }
  __device__ void store(const place &p, int64_t i, const state (&sum)[V]) const {
    O *const to = y + p.at[0];
    pack<O, V> out;
#pragma unroll
    for (int j = 0; j < V; j++) out.at[j] = narrow<O>(sum[j]);
    if constexpr (V == 1)
      to[i * y_step] = out.at[0];
    else
      store_whole(Backwards ? to - i - (V - 1) : to + i,
                  Backwards ? reversed(out) : out);
  }
  template <class T> static __device__ pack<T, V> reversed(const pack<T, V> &p) {
    pack<T, V> r;
#pragma unroll
    for (int j = 0; j < V; j++) r.at[j] = p.at[V - 1 - j];
    return r;
  }
};

struct scan_line {
  int64_t length, x_step, y_step;
};

// Many lines side by side: a thread a line.
template <class S, class O>
__global__ void __launch_bounds__(256)
    scan_across_kernel(O *y, const S *x, scan_line q,
                       const __grid_constant__ space<2> s) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; l < s.numel;
       l += step) {
    int64_t offset[2];
    wide_t<S> sum = 0;
    seek(s, l, offset);
    const S *from = x + offset[1];
    O *to = y + offset[0];
    for (int64_t i = 0; i < q.length; i += 8) {
      S v[8];
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (i + j < q.length) v[j] = from[(i + j) * q.x_step];
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (i + j < q.length) {
          sum += wide_t<S>(load_as<compute_t<S>>(v[j]));
          to[(i + j) * q.y_step] = narrow<O>(sum);
        }
    }
  }
}

// What a cumsum walks: out's and in's lines, and how.
struct scan_plan {
  space<2> s;
  scan_line q;
  bool across;
};

scan_plan plan_scan(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  const int dim = int(call->attr[0].i[0]);
  const mt_view rest_y = without_dim(y, dim), rest_x = without_dim(x, dim);
  const mt_view *const view[2] = {&rest_y, &rest_x};
  scan_plan p;
  p.s = make_space(view);
  p.q = {x->ndim ? x->shape[dim] : 1, x->ndim ? x->stride[dim] : 1,
         y->ndim ? y->stride[dim] : 1};
  const bool side_by_side = p.s.ndim > 0 && p.s.stride[1][0] == 1 && p.s.size[0] >= 32;
  p.across = side_by_side && p.q.x_step != 1;
  return p;
}

// f(sum_op's S, O): of x's dtype.
template <class F> auto with_sums(mt_dtype d, F f) {
  switch (d) {
  case MT_F32: return f(float(), float());
  case MT_F64: return f(double(), double());
  case MT_F16: return f(__half(), __half());
  case MT_BF16: return f(__nv_bfloat16(), __nv_bfloat16());
  case MT_I64: return f(int64_t(), int64_t());
  case MT_I32: return f(int32_t(), int64_t());
  case MT_I16: return f(int16_t(), int64_t());
  case MT_I8: return f(int8_t(), int64_t());
  default: return f(uint8_t(), int64_t());
  }
}

// Pieces of 16 bytes of what is written.
template <class O> constexpr int sum_neighbours = 16 / int(sizeof(O));

// Whether pieces serve is seen when data lie somewhere: room for either.
size_t scan_scratch(const mt_call *call) {
  const scan_plan p = plan_scan(call);
  if (p.across || p.s.numel == 0) return 0;
  return with_sums(call->in[0]->dtype, [&](auto from, auto to) {
    using S = decltype(from);
    using O = decltype(to);
    const int64_t lines = p.s.numel, length = p.q.length;
    return std::max(line_scan_scratch<sum_op<S, O, 1>>(lines, length, call->device),
                    line_scan_scratch<sum_op<S, O, sum_neighbours<O>>>(lines, length,
                                                                       call->device));
  });
}

// Does every piece of V elements of a line lie at a multiple of its size?
template <class S, class O, int V>
bool in_pieces(const scan_plan &p, const S *x, O *y) {
  if (p.q.x_step != 1 || p.q.y_step != 1 || p.q.length % V) return false;
  for (int d = 0; d < p.s.ndim; d++)
    if (p.s.stride[0][d] % V || p.s.stride[1][d] % V) return false;
  return reinterpret_cast<uintptr_t>(x) % (V * sizeof(S)) == 0 &&
         reinterpret_cast<uintptr_t>(y) % (V * sizeof(O)) == 0;
}

template <class S, class O> mt_status launch_scan(const mt_call *call, scan_plan p) {
  constexpr int V = sum_neighbours<O>;
  O *y = reinterpret_cast<O *>(call->out[0]->data);
  const S *x = reinterpret_cast<const S *>(call->in[0]->data);
  const bool pieces = in_pieces<S, O, V>(p, x, y);
  scan_line &q = p.q;
  if (call->attr[1].i[0]) { // from the end
    x += (q.length - 1) * q.x_step, y += (q.length - 1) * q.y_step;
    q.x_step = -q.x_step, q.y_step = -q.y_step;
  }
  const int64_t lines = p.s.numel;
  if (p.across) {
    const unsigned grid = blocks_for(lines, 256, call->device);
    scan_across_kernel<S, O><<<grid, 256, 0, stream_of(call)>>>(y, x, q, p.s);
    return launched();
  }
  const sum_op<S, O, V> forwards{y, x, q.length, q.y_step, q.x_step, p.s};
  const sum_op<S, O, V, true> backwards{y, x, q.length, q.y_step, q.x_step, p.s};
  if (pieces && q.x_step == 1) return launch_line_scan(call, forwards, lines);
  if (pieces) return launch_line_scan(call, backwards, lines);
  return launch_line_scan(
      call, sum_op<S, O, 1>{y, x, q.length, q.y_step, q.x_step, p.s}, lines);
}

mt_status run_cumsum(const mt_call *call) {
  const scan_plan p = plan_scan(call);
  if (p.s.numel == 0 || p.q.length == 0) return MT_OK;
  return with_sums(call->in[0]->dtype, [&](auto from, auto to) {
    return launch_scan<decltype(from), decltype(to)>(call, p);
  });
}

} // namespace

CUDA_ENTRY(cumsum) = {run_cumsum, scan_scratch, MT_ALL_MASK, 0};
