// kernels/cuda/reduce_extreme.cu -- largest and smallest values over dims, and where.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace {

template <class T> __device__ inline bool is_nan(T x) { return x != x; }

// Does b, which stands later, replace a? NaN wins over numbers; of ties the first stays.
template <bool Most, class T> __device__ inline bool replaces(T a, T b) {
  return (Most ? b > a : b < a) || (is_nan(b) && !is_nan(a));
}

template <class T> struct found {
  T value;
  int64_t at; // -1: nothing yet
};

// Index: 0 the value, 1 the position, 2 both.
template <class S, bool Most, int Index> struct extreme_reducer {
  using T = compute_t<S>;
  using part = found<T>;
  static __device__ part none() { return {T(0), -1}; }
  __device__ void begin(S) {}
  __device__ void feed(part &p, S s, int64_t i) {
    const T x = load_as<T>(s);
    if (p.at < 0 || replaces<Most>(p.value, x)) p.value = x, p.at = i;
  }
  static __device__ void join(part &p, const part &q) {
    if (q.at < 0) return;
    const bool tie =
        !replaces<Most>(p.value, q.value) && !replaces<Most>(q.value, p.value);
    if (p.at < 0 || replaces<Most>(p.value, q.value) || (tie && q.at < p.at)) p = q;
  }
  __device__ void finish(const part &p, int64_t, int64_t i, void *const *out) {
    if (Index != 1) static_cast<S *>(out[0])[i] = store_as<S>(p.value);
    if (Index == 1) static_cast<int64_t *>(out[0])[i] = p.at + 1;
    if (Index == 2) static_cast<int64_t *>(out[1])[i] = p.at + 1;
  }
};

// The value alone needs no positions: a smaller part, and fewer instructions.
template <class S, bool Most> struct value_reducer {
  using T = compute_t<S>;
  struct part {
    T value;
    int some;
  };
  static __device__ part none() { return {T(0), 0}; }
  __device__ void begin(S) {}
  __device__ void feed(part &p, S s, int64_t) {
    const T x = load_as<T>(s);
    if (!p.some || replaces<Most>(p.value, x)) p.value = x, p.some = 1;
  }
  static __device__ void join(part &p, const part &q) {
    if (q.some && (!p.some || replaces<Most>(p.value, q.value))) p = q;
  }
  __device__ void finish(const part &p, int64_t, int64_t i, void *const *out) {
    static_cast<S *>(out[0])[i] = store_as<S>(p.value);
  }
};

template <class F> mt_status for_storage(const mt_call *call, F f) {
  const mt_dtype d = call->in[0]->dtype;
  return d == MT_BOOL ? f(tag<uint8_t>{}) : with_number(d, f);
}

// Without a dim: positions in the flattened x, row-major.
uint32_t dims_of(const mt_call *call) {
  return reduced_dims(call->in[0], &call->attr[0]);
}

size_t scratch(const mt_call *call) {
  struct room {
    struct part {
      char bytes[16];
    };
  };
  return reduce_scratch<room>(call->in[0], dims_of(call), call->device);
}

template <bool Most> mt_status run_value(const mt_call *call) {
  return for_storage(call, [&](auto t) {
    using S = typename decltype(t)::type;
    return launch_reduce<value_reducer<S, Most>, S>(call, {}, call->in[0],
                                                    dims_of(call), call->out[0]->data);
  });
}

template <bool Most, int Index> mt_status run_extreme(const mt_call *call) {
  return for_storage(call, [&](auto t) {
    using S = typename decltype(t)::type;
    return launch_reduce<extreme_reducer<S, Most, Index>, S>(
        call, {}, call->in[0], dims_of(call), call->out[0]->data,
        Index == 2 ? call->out[1]->data : nullptr);
  });
}

} // namespace

CUDA_ENTRY(amax) = {run_value<true>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(amin) = {run_value<false>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(argmax) = {run_extreme<true, 1>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(argmin) = {run_extreme<false, 1>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(_max_dim) = {run_extreme<true, 2>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(_min_dim) = {run_extreme<false, 2>, scratch, MT_ALL_MASK, 0};
