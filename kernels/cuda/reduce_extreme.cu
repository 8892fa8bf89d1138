// kernels/cuda/reduce_extreme.cu -- largest and smallest values over dims, and where.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace {

// Small integers are compared as int, halves as float.
template <class S> struct compared {
  using type = typename std::conditional<std::is_integral<S>::value && sizeof(S) < 4,
                                         int, compute_t<S>>::type;
};
template <class S> using compared_t = typename compared<S>::type;

// What every element is at least (at most) as large (small) as.
template <bool Most, class T> __device__ inline T worst() {
  if constexpr (std::is_floating_point<T>::value)
    return Most ? -T(INFINITY) : T(INFINITY);
  else
    return Most ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
}

// Does b replace a? NaN wins over numbers; of ties the one that stood first stays.
template <bool Most, class T> __device__ inline bool replaces(T a, T b) {
  if constexpr (std::is_floating_point<T>::value)
    return !(Most ? b <= a : b >= a) && a == a;
  else
    return Most ? b > a : b < a;
}

// at = -1: no element was better than worst().
template <class T> struct found_here {
  T value;
  int at;
};
template <class T> struct found {
  T value;
  uint32_t low; // of the position; two words, so that nothing is padded
  int32_t high;
  __device__ int64_t at() const { return int64_t(high) << 32 | low; }
};

// out: the value or NULL, the position.
template <class S, bool Most> struct extreme_reducer {
  using T = compared_t<S>;
  using local = found_here<T>;
  using part = found<T>;
  static __device__ local none() { return {worst<Most, T>(), -1}; }
  __device__ void begin(S) {}
  __device__ void feed(local &p, S s, int i) {
    const T x = load_as<T>(s);
    if (replaces<Most>(p.value, x)) p.value = x, p.at = i;
  }
  static __device__ part close(const local &p, int64_t base) {
    const int64_t at = p.at < 0 ? -1 : base + p.at;
    return {p.value, uint32_t(at), int32_t(at >> 32)};
  }
  static __device__ void join(part &p, const part &q) {
    if (q.high < 0) return;
    const bool tie = !replaces<Most>(p.value, q.value) &&
                     !replaces<Most>(q.value, p.value) && p.high >= 0;
    if (replaces<Most>(p.value, q.value) || (tie && q.at() < p.at())) p = q;
  }
  __device__ void finish(const part &p, int64_t, int64_t i, void *const *out) {
    const int64_t at = p.high < 0 ? 1 : p.at() + 1; // all are worst(): the first
    if (out[0]) static_cast<S *>(out[0])[i] = store_as<S>(p.value);
    static_cast<int64_t *>(out[1])[i] = at;
  }
};

// The value alone needs no positions: a smaller part, and fewer instructions.
template <class S, bool Most> struct value_reducer : without_positions<compared_t<S>> {
  using T = compared_t<S>;
  static __device__ T none() { return worst<Most, T>(); }
  __device__ void begin(S) {}
  __device__ void feed(T &p, S s, int) { join(p, load_as<T>(s)); }
  static __device__ void join(T &p, const T &q) {
    if (replaces<Most>(p, q)) p = q;
  }
  __device__ void finish(const T &p, int64_t, int64_t i, void *const *out) {
    static_cast<S *>(out[0])[i] = store_as<S>(p);
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
  return reduce_scratch<room>(call->in[0], dims_of(call), call->device,
                              !MT_IS_FLOAT(call->in[0]->dtype));
}

// int16, int8 and uint8
template <class S> constexpr bool is_rare = std::is_integral<S>::value && sizeof(S) < 4;

template <bool Most> mt_status run_value(const mt_call *call) {
  return for_storage(call, [&](auto t) {
    using S = typename decltype(t)::type;
    return launch_reduce<value_reducer<S, Most>, S, is_rare<S>>(
        call, {}, call->in[0], dims_of(call), call->out[0]->data);
  });
}

template <bool Most>
mt_status launch_extreme(const mt_call *call, void *value, void *position) {
  return for_storage(call, [&](auto t) {
    using S = typename decltype(t)::type;
    return launch_reduce<extreme_reducer<S, Most>, S, is_rare<S>>(
        call, {}, call->in[0], dims_of(call), value, position);
  });
}
template <bool Most> mt_status run_position(const mt_call *call) {
  return launch_extreme<Most>(call, nullptr, call->out[0]->data);
}
template <bool Most> mt_status run_both(const mt_call *call) {
  return launch_extreme<Most>(call, call->out[0] ? call->out[0]->data : nullptr,
                              call->out[1]->data);
}

} // namespace

CUDA_ENTRY(amax) = {run_value<true>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(amin) = {run_value<false>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(argmax) = {run_position<true>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(argmin) = {run_position<false>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(_max_dim) = {run_both<true>, scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(_min_dim) = {run_both<false>, scratch, MT_ALL_MASK, 0};
