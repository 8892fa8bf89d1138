// kernels/cuda/running.cu -- running products, extremes, logarithms of sums, and linear
// recurrences along a dim: each is a scan with an associative operator.
#include "kernels/cuda/line_scan.cuh"

namespace {

// What is read and written: y, index, x, a (NULL where there is none).
struct running {
  char *y;
  int64_t *index;
  const char *x, *a;
  int64_t length, step[4]; // of the dim; elements, negative in reverse
  bool least;
  bool pieces; // all lines consist of whole pieces
  space<4> s;  // without the dim
};

struct running_place {
  int64_t at[4]; // where a line begins: elements
};

// V elements of view k from element i of a line on.
template <class S, int V>
__device__ inline pack<S, V> load_few(const running &r, const char *p, int k,
                                      const running_place &at, int64_t i) {
  const S *const from = reinterpret_cast<const S *>(p) + at.at[k] + i * r.step[k];
  if (r.pieces) return *reinterpret_cast<const pack<S, V> *>(from);
  pack<S, V> v{};
#pragma unroll
  for (int j = 0; j < V; j++)
    if (i + j < r.length) v.at[j] = from[j * r.step[k]];
  return v;
}
template <class S, int V>
__device__ inline void store_few(const running &r, void *p, int k,
                                 const running_place &at, int64_t i,
                                 const pack<S, V> &v) {
  S *const to = static_cast<S *>(p) + at.at[k] + i * r.step[k];
  if (r.pieces) return store_whole(to, v);
#pragma unroll
  for (int j = 0; j < V; j++)
    if (i + j < r.length) to[j * r.step[k]] = v.at[j];
}

// An operator, as line_scan.cuh wants it, over elements of S; what it gives are O's.
template <class S, class O, int Neighbours, int Pieces> struct running_op {
  static constexpr int V = Neighbours, U = Pieces;
  using raw = S;
  using out = O;
  using place = running_place;
  int64_t length;
  running r;
  __device__ place seek(int64_t line) const {
    place p;
    ::seek(r.s, line, p.at);
    return p;
  }
  __device__ pack<S, V> load(const place &at, int64_t i) const {
    return load_few<S, V>(r, r.x, 2, at, i);
  }
  __device__ void put(const place &at, int64_t i, const pack<O, V> &y) const {
    store_few(r, r.y, 0, at, i, y);
  }
};

template <class S>
using product_of = std::conditional_t<std::is_integral<S>::value, int64_t, S>;

// Those of integers are int64.
template <class S>
struct product : running_op<S, product_of<S>, 16 / int(sizeof(product_of<S>)), 4> {
  using base = running_op<S, product_of<S>, 16 / int(sizeof(product_of<S>)), 4>;
  using state = wide_t<S>;
  using typename base::out;
  using typename base::place;
  static __device__ state none() { return 1; }
  static __device__ state join(state a, state b) {
    if constexpr (std::is_integral<state>::value)
      return state(uint64_t(a) * uint64_t(b));
    else
      return a * b;
  }
  static __device__ state of(S x, int64_t) { return state(load_as<compute_t<S>>(x)); }
  __device__ void store(const place &at, int64_t i, const state (&s)[base::V]) const {
    pack<out, base::V> y;
#pragma unroll
    for (int j = 0; j < base::V; j++) y.at[j] = store_as<out>(compute_t<out>(s[j]));
    this->put(at, i, y);
  }
};

// ---- extremes: the last of equal ones; NaN gives way to another NaN alone ---------------

template <class T> struct indexed { // at: from 1; 0: none yet
  T value;
  int64_t at;
};

template <class S> struct wide_extreme : running_op<S, S, 2, 4> {
  using base = running_op<S, S, 2, 4>;
  using key = wide_t<S>;
  using state = indexed<key>;
  using typename base::place;
  static __device__ state none() { return {key(0), 0}; }
  static __device__ state join(const state &a, const state &b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool above = nan_b ? !nan_a : !nan_a && b.value > a.value;
    const bool same = nan_a ? nan_b : b.value == a.value;
    return a.at == 0 || (b.at != 0 && (above || (same && b.at > a.at))) ? b : a;
  }
  __device__ key turned(key x) const {
    if constexpr (std::is_integral<key>::value)
      return this->r.least ? ~x : x;
    else
      return this->r.least ? -x : x;
  }
  __device__ state of(S x, int64_t i) const {
    return {turned(key(load_as<compute_t<S>>(x))), i + 1};
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[2]) const {
    const running &r = this->r;
    if (r.index) store_few<int64_t, 2>(r, r.index, 1, at, i, {{s[0].at, s[1].at}});
    const auto value = [&](int j) {
      return store_as<S>(compute_t<S>(turned(s[j].value)));
    };
    if (r.y) this->put(at, i, {{value(0), value(1)}});
  }
};

// of at most 4 bytes, in lines of fewer than 2^31 - 1: one integer holds a key that orders
// as the values do, then the position from 1, then whether the value is -0. The largest
// of those is the last of the largest.
template <class S> struct packed_extreme : running_op<S, S, 2, 4> {
  using base = running_op<S, S, 2, 4>;
  using state = int64_t;
  using typename base::place;
  static __device__ state none() { return INT64_MIN; }
  static __device__ state join(state a, state b) { return a > b ? a : b; }
  __device__ state of(S x, int64_t i) const {
    const bool least = this->r.least;
    const uint32_t at = uint32_t(i + 1) << 1;
    if constexpr (std::is_integral<S>::value) {
      const int v = x;
      return state(uint64_t(uint32_t(least ? ~v : v)) << 32 | at);
    } else {
      const float f = load_as<float>(x), v = least ? -f : f;
      const int bits = __float_as_int(v);
      const int key = v != v ? INT32_MAX : v == 0 ? 0 : bits ^ (bits >> 31 & INT32_MAX);
      return state(uint64_t(uint32_t(key)) << 32 | at | (v == 0 && bits < 0));
    }
  }
  __device__ S value(state s) const {
    const bool least = this->r.least;
    const int key = int(s >> 32);
    if constexpr (std::is_integral<S>::value)
      return S(least ? ~key : key);
    else {
      const float v = __int_as_float(key == 0 ? int(uint32_t(s) << 31)
                                              : key ^ (key >> 31 & INT32_MAX));
      return store_as<S>(least && v == v ? -v : v);
    }
  }
  static __device__ int64_t position(state s) { return int64_t(uint32_t(s) >> 1); }
  __device__ void store(const place &at, int64_t i, const state (&s)[2]) const {
    const running &r = this->r;
    if (r.y) this->put(at, i, {{value(s[0]), value(s[1])}});
    if (r.index)
      store_few<int64_t, 2>(r, r.index, 1, at, i, {{position(s[0]), position(s[1])}});
  }
};

// ---- logarithms of sums, recurrences ----------------------------------------------------

// The largest, and the sum of exp(x - largest); infinities stay themselves.
struct sum_state {
  double largest, sum;
};
// What is added to is double; its terms and the result are as exact as S.
template <class S> struct log_sum : running_op<S, S, 8, 1> {
  static constexpr int V = 8;
  using state = sum_state;
  using T = compute_t<S>;
  using typename running_op<S, S, V, 1>::place;
  static __device__ state none() { return {-INFINITY, 0}; }
  static __device__ state join(const state &a, const state &b) {
    if (a.largest == b.largest) return {a.largest, a.sum + b.sum};
    if (isnan(a.largest) || isnan(b.largest)) return {NAN, 1};
    const bool first = a.largest > b.largest;
    const double factor = exp(T(first ? b.largest - a.largest : a.largest - b.largest));
    return first ? state{a.largest, a.sum + b.sum * factor}
                 : state{b.largest, a.sum * factor + b.sum};
  }
  static __device__ state of(S x, int64_t) { return {double(load_as<T>(x)), 1}; }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    pack<S, V> y;
#pragma unroll
    for (int j = 0; j < V; j++)
      y.at[j] = store_as<S>(
          T(isinf(s[j].largest) ? s[j].largest : s[j].largest + log(T(s[j].sum))));
    this->put(at, i, y);
  }
};

// y = factor * (what came before) + value.
template <class T> struct affine { T factor, value; };
template <class S> struct recurrence : running_op<affine<S>, S, 4, 1> {
  static constexpr int V = 4;
  using state = affine<double>;
  using T = compute_t<S>;
  using typename running_op<affine<S>, S, V, 1>::place;
  static __device__ state none() { return {1, 0}; }
  static __device__ state join(const state &a, const state &b) {
    return {a.factor * b.factor, b.factor * a.value + b.value};
  }
  static __device__ state of(const affine<S> &x, int64_t) {
    return {double(load_as<T>(x.factor)), double(load_as<T>(x.value))};
  }
  __device__ pack<affine<S>, V> load(const place &at, int64_t i) const {
    const pack<S, V> a = load_few<S, V>(this->r, this->r.a, 3, at, i);
    const pack<S, V> x = load_few<S, V>(this->r, this->r.x, 2, at, i);
    pack<affine<S>, V> both;
#pragma unroll
    for (int j = 0; j < V; j++) both.at[j] = {a.at[j], x.at[j]};
    return both;
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    pack<S, V> y;
#pragma unroll
    for (int j = 0; j < V; j++) y.at[j] = store_as<S>(T(s[j].value));
    this->put(at, i, y);
  }
};

// Lines side by side: a thread a line.
template <class Op>
__global__ void __launch_bounds__(256)
    running_across_kernel(const __grid_constant__ Op op, int64_t lines) {
  constexpr int V = Op::V, U = 8 / V;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t line = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; line < lines;
       line += step) {
    const running_place at = op.seek(line);
    typename Op::state sum = Op::none(), s[V];
    for (int64_t i = 0; i < op.length; i += U * V) {
      scan_piece<Op> p[U];
#pragma unroll
      for (int u = 0; u < U; u++)
        if (i + u * V < op.length) p[u] = op.load(at, i + u * V);
#pragma unroll
      for (int u = 0; u < U; u++)
        if (const int64_t k = i + u * V; k < op.length) {
#pragma unroll
          for (int j = 0; j < V; j++)
            s[j] = sum = Op::join(sum, op.of(p[u].at[j], k + j));
          op.store(at, k, s);
        }
    }
  }
}

struct plan {
  running r;
  bool across;
};

// Do the lines of view k, of elements of `size` bytes, consist of whole pieces of V?
bool whole_pieces(const running &r, int k, const void *p, int64_t size, int V) {
  if (!p) return true;
  bool fits = r.step[k] == 1 && reinterpret_cast<uintptr_t>(p) % (V * size) == 0;
  for (int d = 0; d < r.s.ndim; d++) fits = fits && r.s.stride[k][d] % V == 0;
  return fits;
}

plan make_plan(const mt_call *call) {
  const bool two = call->op == MT_OP__recurrence;
  const mt_view *view[4] = {call->out[0], call->nout > 1 ? call->out[1] : nullptr,
                            call->in[two ? 1 : 0], two ? call->in[0] : nullptr};
  const int dim = int(call->attr[0].i[0]);
  const bool reverse = two && call->attr[1].i[0];
  mt_view rest[4];
  const mt_view *shape[4];
  plan p{};
  running &r = p.r;
  r.length = view[2]->ndim ? view[2]->shape[dim] : 1;
  char *data[4];
  for (int k = 0; k < 4; k++) {
    const mt_view *v = view[k];
    rest[k] = without_dim(v ? v : view[2], dim);
    shape[k] = &rest[k];
    data[k] = v ? v->data : nullptr;
    r.step[k] = v && v->ndim ? v->stride[dim] : 0;
    if (reverse && v) {
      data[k] += (r.length - 1) * r.step[k] * dtype_size(v->dtype);
      r.step[k] = -r.step[k];
    }
  }
  const mt_view *const all[4] = {shape[0], shape[1], shape[2], shape[3]};
  r.s = make_space(all);
  r.y = data[0], r.index = reinterpret_cast<int64_t *>(data[1]);
  r.x = data[2], r.a = data[3];
  r.least = call->op == MT_OP_cummin;
  p.across = r.s.ndim > 0 && r.s.stride[2][0] == 1 && r.s.size[0] >= 32 &&
             r.step[2] != 1 && r.step[2] != -1;
  return p;
}

// f(an operator) for the call's dtype.
template <class F> auto with_operator(const mt_call *call, const running &r, F f) {
  const mt_dtype d = call->in[0]->dtype == MT_BOOL ? MT_U8 : call->in[0]->dtype;
  const auto with = [&](auto g) {
    switch (d) {
    case MT_F32: return g(float());
    case MT_F64: return g(double());
    case MT_F16: return g(__half());
    default: return g(__nv_bfloat16());
    }
  };
  const auto with_any = [&](auto g) {
    switch (d) {
    case MT_I64: return g(int64_t());
    case MT_I32: return g(int32_t());
    case MT_I16: return g(int16_t());
    case MT_I8: return g(int8_t());
    case MT_U8: return g(uint8_t());
    default: return with(g);
    }
  };
  switch (call->op) {
  case MT_OP_logcumsumexp:
    return with([&](auto x) { return f(log_sum<decltype(x)>()); });
  case MT_OP__recurrence:
    return with([&](auto x) { return f(recurrence<decltype(x)>()); });
  case MT_OP_cumprod:
    return with_any([&](auto x) { return f(product<decltype(x)>()); });
  default: break;
  }
  return with_any([&](auto x) {
    if constexpr (sizeof x < 8)
      if (r.length < INT32_MAX) return f(packed_extreme<decltype(x)>());
    return f(wide_extreme<decltype(x)>());
  });
}

size_t running_scratch(const mt_call *call) {
  const plan p = make_plan(call);
  if (p.across || p.r.s.numel == 0) return 0;
  return with_operator(call, p.r, [&](auto op) {
    return line_scan_scratch<decltype(op)>(p.r.s.numel, p.r.length, call->device);
  });
}

mt_status run(const mt_call *call) {
  const plan p = make_plan(call);
  const int64_t lines = p.r.s.numel;
  if (lines == 0 || p.r.length == 0) return MT_OK;
  return with_operator(call, p.r, [&](auto op) {
    using O = typename decltype(op)::out;
    constexpr int V = decltype(op)::V;
    op.length = p.r.length, op.r = p.r;
    running &r = op.r;
    r.pieces = r.length % V == 0 && whole_pieces(r, 0, r.y, sizeof(O), V) &&
               whole_pieces(r, 1, r.index, 8, V) &&
               whole_pieces(r, 2, r.x, dtype_size(call->in[0]->dtype), V) &&
               whole_pieces(r, 3, r.a, sizeof(O), V);
    if (!p.across) return launch_line_scan(call, op, lines);
    running_across_kernel<<<blocks_for(lines, 256, call->device), 256, 0,
                            stream_of(call)>>>(op, lines);
    return launched();
  });
}

} // namespace

CUDA_ENTRY(cumprod) = {run, running_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(cummax) = {run, running_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(cummin) = {run, running_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(logcumsumexp) = {run, running_scratch, MT_FLOAT_MASK, 0};
CUDA_ENTRY(_recurrence) = {run, running_scratch, MT_FLOAT_MASK, 0};
