// kernels/cuda/reduce.cu -- sums, products, means, counts, moments and norms over dims.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/marked.cuh"
#include "kernels/cuda/reduce.cuh"

namespace {

// Sums of floats run in float64: exact to rounding whatever the order, and still within
// what memory delivers.
template <class S>
using wide_t =
    typename std::conditional<std::is_integral<S>::value, int64_t, double>::type;

template <class S> __device__ inline wide_t<S> widen(S x) {
  return wide_t<S>(load_as<compute_t<S>>(x));
}
template <class O, class T> __device__ inline void put(void *out, int64_t i, T x) {
  if constexpr (std::is_same<O, __half>::value || std::is_same<O, __nv_bfloat16>::value)
    static_cast<O *>(out)[i] = store_as<O>(float(x));
  else
    static_cast<O *>(out)[i] = O(x);
}

// O: the output's type: S itself, int64 of integers.
template <class S> struct sum_reducer : without_positions<wide_t<S>> {
  using part = wide_t<S>;
  using O = typename std::conditional<std::is_integral<S>::value, int64_t, S>::type;
  bool mean;
  static __device__ part none() { return part(0); }
  __device__ void begin(S) {}
  __device__ void feed(part &p, S x, int) { p += widen(x); }
  static __device__ void join(part &p, const part &q) { p += q; }
  __device__ void finish(const part &p, int64_t n, int64_t i, void *const *out) {
    put<O>(out[0], i, mean ? p / part(n) : p);
  }
};

template <class S> struct prod_reducer : without_positions<wide_t<S>> {
  using part = wide_t<S>;
  using O = typename std::conditional<std::is_integral<S>::value, int64_t, S>::type;
  static __device__ part none() { return part(1); }
  __device__ void begin(S) {}
  __device__ void feed(part &p, S x, int) { p *= widen(x); }
  static __device__ void join(part &p, const part &q) { p *= q; }
  __device__ void finish(const part &p, int64_t, int64_t i, void *const *out) {
    put<O>(out[0], i, p);
  }
};

// How many are not 0; any and all are comparisons of that with 0 and n.
enum class counted { count, any, all };
template <class S> struct count_reducer : without_positions<int64_t> { // S: bits
  counted what;
  S mask; // all, or all but a float's sign
  static __device__ part none() { return 0; }
  __device__ void begin(S) {}
  __device__ void feed(part &p, S x, int) { p += (x & mask) != 0; }
  static __device__ void join(part &p, const part &q) { p += q; }
  __device__ void finish(const part &p, int64_t n, int64_t i, void *const *out) {
    if (what == counted::count)
      static_cast<int64_t *>(out[0])[i] = p;
    else
      static_cast<uint8_t *>(out[0])[i] = what == counted::any ? p > 0 : p == n;
  }
};

// Variance by sums of x - x0 and its square, x0 the row's first element: one pass, and no
// cancellation unless the spread is some 10^-8 of the distance from x0.
struct moments {
  double sum, square;
};
template <class S> struct var_reducer : without_positions<moments> {
  using part = moments;
  double correction;
  bool root;
  double shift;
  static __device__ part none() { return {0, 0}; }
  __device__ void begin(S x0) {
    shift = widen(x0);
    if (!(fabs(shift) < INFINITY)) shift = 0;
  }
  __device__ void feed(part &p, S x, int) {
    const double d = widen(x) - shift;
    p.sum += d, p.square += d * d;
  }
  static __device__ void join(part &p, const part &q) {
    p.sum += q.sum, p.square += q.square;
  }
  __device__ void finish(const part &p, int64_t n, int64_t i, void *const *out) {
    double squares = p.square - p.sum * p.sum / double(n);
    if (squares < 0) squares = 0;
    const double freedom = double(n) - correction;
    const double var = squares / (freedom > 0 ? freedom : 0.0);
    put<S>(out[0], i, root ? sqrt(var) : var);
  }
};

enum class norm_kind { zero, one, two, most, least, power };
template <class S> struct norm_reducer : without_positions<double> {
  using part = double;
  norm_kind kind;
  double p;
  static __device__ part none() { return 0; }
  __device__ void begin(S) {}
  __device__ double value(double x) const {
    switch (kind) {
    case norm_kind::zero: return x != 0;
    case norm_kind::two: return x * x;
    case norm_kind::power: return pow(fabs(x), p);
    default: return fabs(x);
    }
  }
  __device__ void feed(part &a, S x, int) { a += value(widen(x)); }
  static __device__ void join(part &a, const part &b) { a += b; }
  __device__ void finish(const part &a, int64_t, int64_t i, void *const *out) {
    double r = a;
    if (kind == norm_kind::two)
      r = sqrt(a);
    else if (kind == norm_kind::power)
      r = pow(a, 1 / p);
    put<S>(out[0], i, r);
  }
};

// The extremes of |x|, for p = inf and -inf.
template <class S, bool Most> struct extreme_norm_reducer : without_positions<double> {
  using part = double;
  static __device__ part none() { return Most ? 0 : INFINITY; }
  __device__ void begin(S) {}
  __device__ void feed(part &a, S x, int) { join(a, fabs(double(widen(x)))); }
  static __device__ void join(part &a, const part &b) {
    if (b != b || (Most ? b > a : b < a)) a = b; // once NaN, no comparison replaces it
  }
  __device__ void finish(const part &a, int64_t n, int64_t i, void *const *out) {
    put<S>(out[0], i, n == 0 && !Most ? INFINITY : a);
  }
};

// log(sum(exp(x))) with a running maximum (Milakov and Gimelshein, arXiv 1805.02867).
struct log_sum {
  double most, sum;
};
template <class S> struct logsumexp_reducer : without_positions<log_sum> {
  using part = log_sum;
  static __device__ part none() { return {-INFINITY, 0}; }
  __device__ void begin(S) {}
  __device__ void feed(part &p, S s, int) {
    const double x = widen(s);
    if (x == -INFINITY) return; // adds nothing
    if (x <= p.most)
      p.sum += p.most == INFINITY ? x == INFINITY : exp(x - p.most);
    else if (x > p.most) {
      p.sum = (p.most == -INFINITY ? p.sum : p.sum * exp(p.most - x)) + 1; // 0 or NaN
      p.most = x;
    } else
      p.sum = NAN;
  }
  static __device__ void join(part &p, const part &q) {
    if (q.most == p.most)
      p.sum += q.sum;
    else if (q.most < p.most)
      p.sum += q.sum * exp(q.most - p.most);
    else {
      p.sum = p.sum * exp(p.most - q.most) + q.sum;
      p.most = q.most;
    }
  }
  __device__ void finish(const part &p, int64_t, int64_t i, void *const *out) {
    const bool infinite = p.most == INFINITY || p.most == -INFINITY;
    put<S>(out[0], i, p.sum != p.sum ? p.sum : infinite ? p.most : p.most + log(p.sum));
  }
};

const mt_attr *attr_of(const mt_call *call, int i) { return &call->attr[i]; }

// Run F::launch for the storage type of x: uint8 serves for bool.
template <class F> mt_status for_storage(const mt_call *call, F f) {
  const mt_dtype d = call->in[0]->dtype;
  return d == MT_BOOL ? f(tag<uint8_t>{}) : with_number(d, f);
}

uint32_t dims_of(const mt_call *call, int i) {
  return reduced_dims(call->in[0], attr_of(call, i));
}

template <int Bytes> struct part_of { // for scratch: only the size matters
  struct part {
    char bytes[Bytes];
  };
};
template <int Bytes, int Dim> size_t scratch(const mt_call *call) {
  const bool may_be_rare = !MT_IS_FLOAT(call->in[0]->dtype) || call->op == MT_OP_norm;
  return reduce_scratch<part_of<Bytes>>(call->in[0], dims_of(call, Dim), call->device,
                                        may_be_rare);
}

// int16, int8; uint8 and bool are summed more often.
template <class S>
constexpr bool is_rare = std::is_integral<S>::value &&std::is_signed<S>::value &&
                         sizeof(S) < 4;

mt_status run_sum(const mt_call *call) {
  return for_storage(call, [&](auto t) {
    using S = typename decltype(t)::type;
    const sum_reducer<S> r{{}, call->op == MT_OP_mean};
    return launch_reduce<sum_reducer<S>, S, is_rare<S>>(
        call, r, call->in[0], dims_of(call, 0), call->out[0]->data);
  });
}

mt_status run_prod(const mt_call *call) {
  return for_storage(call, [&](auto t) {
    using S = typename decltype(t)::type;
    return launch_reduce<prod_reducer<S>, S, std::is_integral<S>::value>(
        call, {}, call->in[0], dims_of(call, 0), call->out[0]->data);
  });
}

mt_status run_count(const mt_call *call) {
  const counted what = call->op == MT_OP_any   ? counted::any
                       : call->op == MT_OP_all ? counted::all
                                               : counted::count;
  const mt_dtype d = call->in[0]->dtype;
  if (what == counted::count && is_plain_mask(call->in[0]) &&
      numel(call->out[0]) == 1 && numel(call->in[0]) >= 1 << 16)
    return count_marked(call);
  const auto run = [&](auto bits) {
    using S = decltype(bits);
    const S mask = MT_IS_FLOAT(d) ? S(S(-1) >> 1) : S(-1);
    return launch_reduce<count_reducer<S>, S>(call, {{}, what, mask}, call->in[0],
                                              dims_of(call, 0), call->out[0]->data);
  };
  switch (dtype_size(d)) {
  case 1: return run(uint8_t());
  case 2: return run(uint16_t());
  case 4: return run(uint32_t());
  default: return run(uint64_t());
  }
}

mt_status run_var(const mt_call *call) {
  return with_float(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    const var_reducer<S> r{
        {}, double(attr_of(call, 1)->i[0]), call->op == MT_OP_std, 0};
    return launch_reduce<var_reducer<S>, S>(call, r, call->in[0], dims_of(call, 0),
                                            call->out[0]->data);
  });
}

mt_status run_norm(const mt_call *call) {
  const double p = attr_of(call, 0)->f;
  return with_float(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    const mt_view *x = call->in[0];
    void *out = call->out[0]->data;
    if (p == INFINITY)
      return launch_reduce<extreme_norm_reducer<S, true>, S, true>(
          call, {}, x, dims_of(call, 1), out);
    if (p == -INFINITY)
      return launch_reduce<extreme_norm_reducer<S, false>, S, true>(
          call, {}, x, dims_of(call, 1), out);
    const norm_kind kind = p == 0   ? norm_kind::zero
                           : p == 1 ? norm_kind::one
                           : p == 2 ? norm_kind::two
                                    : norm_kind::power;
    return launch_reduce<norm_reducer<S>, S>(call, {{}, kind, p}, x, dims_of(call, 1),
                                             out);
  });
}

mt_status run_logsumexp(const mt_call *call) {
  return with_float(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    return launch_reduce<logsumexp_reducer<S>, S>(call, {}, call->in[0],
                                                  dims_of(call, 0), call->out[0]->data);
  });
}

constexpr uint32_t floats = MT_FLOAT_MASK;

} // namespace

CUDA_ENTRY(sum) = {run_sum, scratch<8, 0>, MT_ALL_MASK, 0};
CUDA_ENTRY(mean) = {run_sum, scratch<8, 0>, floats, 0};
CUDA_ENTRY(prod) = {run_prod, scratch<8, 0>, MT_ALL_MASK, 0};
CUDA_ENTRY(count_nonzero) = {run_count, scratch<8, 0>, MT_ALL_MASK, 0};
CUDA_ENTRY(any) = {run_count, scratch<8, 0>, MT_ALL_MASK, 0};
CUDA_ENTRY(all) = {run_count, scratch<8, 0>, MT_ALL_MASK, 0};
CUDA_ENTRY(var) = {run_var, scratch<16, 0>, floats, 0};
CUDA_ENTRY(std) = {run_var, scratch<16, 0>, floats, 0};
CUDA_ENTRY(norm) = {run_norm, scratch<8, 1>, floats, 0};
CUDA_ENTRY(logsumexp) = {run_logsumexp, scratch<16, 0>, floats, 0};
