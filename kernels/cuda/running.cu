// kernels/cuda/running.cu -- running products, extremes, logarithms of sums, and linear
// recurrences along a dim: each is a scan with an associative operator.
#include "kernels/cuda/line_scan.cuh"

namespace {

// What is read and written: y, index, x, a (NULL where there is none).
struct running {
  char *y;
  int64_t *index;
  const char *x, *a;
  mt_dtype dtype;
  int64_t length, step[4]; // of the dim; elements, negative in reverse
  bool least;
  bool pieces; // float32 whose lines are whole pieces of 16 bytes: all four
  space<4> s;  // without the dim
};

struct running_place {
  int64_t at[4]; // where a line begins: elements
};

// T: float, int for dtypes of at most 4 bytes; double, int64_t for all.
template <class T> __device__ inline T load_one(const void *p, int64_t i, mt_dtype d) {
  constexpr bool is_float = std::is_floating_point<T>::value;
  if (sizeof(T) == 8 && d == (is_float ? MT_F64 : MT_I64))
    return static_cast<const T *>(p)[i];
  if constexpr (is_float)
    return load_at<float, float_kind>(p, i, d);
  else
    return load_at<int, int_kind>(p, i, d == MT_BOOL ? MT_U8 : d);
}
template <class T>
__device__ inline void store_one(void *p, int64_t i, T x, mt_dtype d) {
  constexpr bool is_float = std::is_floating_point<T>::value;
  if (sizeof(T) == 8 && d == (is_float ? MT_F64 : MT_I64))
    static_cast<T *>(p)[i] = x;
  else if constexpr (is_float)
    store_at<float_kind, float>(p, i, float(x), d);
  else
    store_at<int_kind, int>(p, i, int(x), d == MT_BOOL ? MT_U8 : d);
}

// V elements of view k from element i of a line on, as T's.
template <class T, int V>
__device__ inline pack<T, V> load_few(const running &r, const char *p, int k,
                                      const running_place &at, int64_t i) {
  const int64_t from = at.at[k] + i * r.step[k];
  pack<T, V> v{};
  if constexpr (std::is_same<T, float>::value)
    if (r.pieces) {
      constexpr int P = V < 4 ? V : 4;
#pragma unroll
      for (int j = 0; j < V; j += P)
        if (i + j < r.length)
          *reinterpret_cast<pack<float, P> *>(v.at + j) =
              *reinterpret_cast<const pack<float, P> *>(
                  reinterpret_cast<const float *>(p) + from + j);
      return v;
    }
#pragma unroll
  for (int j = 0; j < V; j++)
    if (i + j < r.length) v.at[j] = load_one<T>(p, from + j * r.step[k], r.dtype);
  return v;
}
// To y, which is stored as d.
template <class T, int V>
__device__ inline void store_few(const running &r, const running_place &at, int64_t i,
                                 const pack<T, V> &v, mt_dtype d) {
  const int64_t to = at.at[0] + i * r.step[0];
  if constexpr (std::is_same<T, float>::value)
    if (r.pieces) {
      constexpr int P = V < 4 ? V : 4;
#pragma unroll
      for (int j = 0; j < V; j += P)
        if (i + j < r.length)
          *reinterpret_cast<pack<float, P> *>(reinterpret_cast<float *>(r.y) + to + j) =
              *reinterpret_cast<const pack<float, P> *>(v.at + j);
      return;
    }
#pragma unroll
  for (int j = 0; j < V; j++)
    if (i + j < r.length) store_one<T>(r.y, to + j * r.step[0], v.at[j], d);
}

// An operator, as line_scan.cuh wants it. From: how elements are held.
template <class From> struct running_op {
  using raw = From;
  using place = running_place;
  int64_t length;
  running r;
  __device__ place seek(int64_t line) const {
    place p;
    ::seek(r.s, line, p.at);
    return p;
  }
};

// Those of integers are int64.
template <class From> struct product : running_op<From> {
  static constexpr int V = 4, U = 16 / int(sizeof(From));
  using state =
      typename std::conditional<std::is_integral<From>::value, int64_t, double>::type;
  using typename running_op<From>::place;
  static __device__ state none() { return 1; }
  static __device__ state join(state a, state b) {
    if constexpr (std::is_integral<state>::value)
      return state(uint64_t(a) * uint64_t(b));
    else
      return a * b;
  }
  static __device__ state of(From x, int64_t) { return state(x); }
  __device__ pack<From, V> load(const place &at, int64_t i) const {
    return load_few<From, V>(this->r, this->r.x, 2, at, i);
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    pack<From, V> y;
#pragma unroll
    for (int j = 0; j < V; j++) y.at[j] = From(s[j]);
    const mt_dtype d = this->r.dtype;
    store_few<From, V>(this->r, at, i, y, MT_IS_FLOAT(d) ? d : MT_I64);
  }
};

// ---- extremes: the last of equal ones; NaN gives way to another NaN alone ---------------

template <class T> struct indexed { // at: from 1; 0: none yet
  T value;
  int64_t at;
};

// of 8 bytes
template <class From> struct wide_extreme : running_op<From> {
  static constexpr int V = 2, U = 4;
  using state = indexed<From>;
  using typename running_op<From>::place;
  static __device__ state none() { return {From(0), 0}; }
  static __device__ state join(const state &a, const state &b) {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool above = nan_b ? !nan_a : !nan_a && b.value > a.value;
    const bool same = nan_a ? nan_b : b.value == a.value;
    return a.at == 0 || (b.at != 0 && (above || (same && b.at > a.at))) ? b : a;
  }
  __device__ From turned(From x) const {
    if constexpr (std::is_integral<From>::value)
      return this->r.least ? ~x : x;
    else
      return this->r.least ? -x : x;
  }
  __device__ state of(From x, int64_t i) const { return {turned(x), i + 1}; }
  __device__ pack<From, V> load(const place &at, int64_t i) const {
    return load_few<From, V>(this->r, this->r.x, 2, at, i);
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    const running &r = this->r;
#pragma unroll
    for (int j = 0; j < V; j++)
      if (i + j < r.length) {
        if (r.index) r.index[at.at[1] + (i + j) * r.step[1]] = s[j].at;
        if (r.y)
          store_one<From>(r.y, at.at[0] + (i + j) * r.step[0], turned(s[j].value),
                          r.dtype);
      }
  }
};

// of at most 4 bytes, in lines of fewer than 2^31 - 1: one integer holds a key that orders
// as the values do, then the position from 1, then whether the value is -0. The largest
// of those is the last of the largest.
template <class From> struct packed_extreme : running_op<From> {
  static constexpr int V = 2, U = 4;
  using state = int64_t;
  using typename running_op<From>::place;
  static __device__ state none() { return INT64_MIN; }
  static __device__ state join(state a, state b) { return a > b ? a : b; }
  __device__ state of(From x, int64_t i) const {
    const bool least = this->r.least;
    const uint32_t at = uint32_t(i + 1) << 1;
    if constexpr (std::is_integral<From>::value)
      return state(uint64_t(uint32_t(least ? ~x : x)) << 32 | at);
    else {
      const float v = least ? -x : x;
      const int bits = __float_as_int(v);
      const int key = v != v ? INT32_MAX : v == 0 ? 0 : bits ^ (bits >> 31 & INT32_MAX);
      return state(uint64_t(uint32_t(key)) << 32 | at | (v == 0 && bits < 0));
    }
  }
  __device__ From value(state s) const {
    const bool least = this->r.least;
    const int key = int(s >> 32);
    if constexpr (std::is_integral<From>::value)
      return least ? ~key : key;
    else {
      const float v = __int_as_float(key == 0 ? int(uint32_t(s) << 31)
                                              : key ^ (key >> 31 & INT32_MAX));
      return least && v == v ? -v : v;
    }
  }
  static __device__ int64_t position(state s) { return int64_t(uint32_t(s) >> 1); }
  __device__ pack<From, V> load(const place &at, int64_t i) const {
    return load_few<From, V>(this->r, this->r.x, 2, at, i);
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    const running &r = this->r;
    if (r.y) store_few<From, V>(r, at, i, {{value(s[0]), value(s[1])}}, r.dtype);
    if (!r.index) return;
    int64_t *to = r.index + at.at[1] + i * r.step[1];
    if (r.pieces)
      *reinterpret_cast<longlong2 *>(to) = {position(s[0]), position(s[1])};
    else {
      to[0] = position(s[0]);
      if (i + 1 < r.length) to[r.step[1]] = position(s[1]);
    }
  }
};

// The largest, and the sum of exp(x - largest); infinities stay themselves.
struct sum_state {
  double largest, sum;
};
template <class From> struct log_sum : running_op<From> {
  static constexpr int V = 8, U = 1;
  using state = sum_state;
  using typename running_op<From>::place;
  static __device__ state none() { return {-INFINITY, 0}; }
  static __device__ state join(const state &a, const state &b) {
    if (a.largest == b.largest) return {a.largest, a.sum + b.sum};
    if (isnan(a.largest) || isnan(b.largest)) return {NAN, 1};
    return a.largest > b.largest
               ? state{a.largest, a.sum + b.sum * exp(b.largest - a.largest)}
               : state{b.largest, a.sum * exp(a.largest - b.largest) + b.sum};
  }
  static __device__ state of(From x, int64_t) { return {double(x), 1}; }
  __device__ pack<From, V> load(const place &at, int64_t i) const {
    return load_few<From, V>(this->r, this->r.x, 2, at, i);
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    pack<From, V> y;
#pragma unroll
    for (int j = 0; j < V; j++)
      y.at[j] = From(isinf(s[j].largest) ? s[j].largest : s[j].largest + log(s[j].sum));
    store_few<From, V>(this->r, at, i, y, this->r.dtype);
  }
};

// y = factor * (what came before) + value.
template <class T> struct affine { T factor, value; };
template <class From> struct recurrence : running_op<affine<From>> {
  static constexpr int V = 4, U = 1;
  using state = affine<double>;
  using typename running_op<affine<From>>::place;
  static __device__ state none() { return {1, 0}; }
  static __device__ state join(const state &a, const state &b) {
    return {a.factor * b.factor, b.factor * a.value + b.value};
  }
  static __device__ state of(const affine<From> &x, int64_t) {
    return {double(x.factor), double(x.value)};
  }
  __device__ pack<affine<From>, V> load(const place &at, int64_t i) const {
    const pack<From, V> a = load_few<From, V>(this->r, this->r.a, 3, at, i);
    const pack<From, V> x = load_few<From, V>(this->r, this->r.x, 2, at, i);
    pack<affine<From>, V> both;
#pragma unroll
    for (int j = 0; j < V; j++) both.at[j] = {a.at[j], x.at[j]};
    return both;
  }
  __device__ void store(const place &at, int64_t i, const state (&s)[V]) const {
    pack<From, V> y;
#pragma unroll
    for (int j = 0; j < V; j++) y.at[j] = From(s[j].value);
    store_few<From, V>(this->r, at, i, y, this->r.dtype);
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

// Do v's lines consist of whole pieces of four elements?
bool whole_pieces(const running &r, int k, const void *p, int64_t size) {
  if (!p) return true;
  bool fits = r.step[k] == 1 && reinterpret_cast<uintptr_t>(p) % (4 * size) == 0;
  for (int d = 0; d < r.s.ndim; d++) fits = fits && r.s.stride[k][d] % 4 == 0;
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
  r.dtype = view[2]->dtype;
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
  r.pieces = r.dtype == MT_F32 && r.length % 4 == 0 && whole_pieces(r, 0, r.y, 4) &&
             whole_pieces(r, 1, r.index, 8) && whole_pieces(r, 2, r.x, 4) &&
             whole_pieces(r, 3, r.a, 4);
  p.across = r.s.ndim > 0 && r.s.stride[2][0] == 1 && r.s.size[0] >= 32 &&
             r.step[2] != 1 && r.step[2] != -1;
  return p;
}

// f(an operator) for the call's dtype.
template <class F> auto with_operator(const mt_call *call, const running &r, F f) {
  const auto by_float = [&](auto op32, auto op64) {
    if (r.dtype == MT_F64) return f(op64);
    return f(op32);
  };
  switch (call->op) {
  case MT_OP_logcumsumexp: return by_float(log_sum<float>(), log_sum<double>());
  case MT_OP__recurrence: return by_float(recurrence<float>(), recurrence<double>());
  case MT_OP_cumprod:
    if (!MT_IS_FLOAT(r.dtype)) return f(product<int64_t>());
    return by_float(product<float>(), product<double>());
  default: break;
  }
  const bool wide = dtype_size(r.dtype) == 8 || r.length >= INT32_MAX;
  if (MT_IS_FLOAT(r.dtype))
    return wide ? f(wide_extreme<double>()) : f(packed_extreme<float>());
  return wide ? f(wide_extreme<int64_t>()) : f(packed_extreme<int>());
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
    op.length = p.r.length, op.r = p.r;
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
