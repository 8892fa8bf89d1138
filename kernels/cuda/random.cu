// kernels/cuda/random.cu -- random numbers and dropout, as kernels/philox.h defines them:
// the words of a block become neighbouring elements, made by one thread.
#include <cub/device/device_radix_sort.cuh>
#include "kernels/cuda/elementwise.cuh"
#include "kernels/philox.h"

namespace {

struct draw {
  uint64_t seed, position;
  double a, b;    // lo and hi, mean and std, or the factor of what is kept
  float f[2];     // the same in float32
  uint32_t limit; // bernoulli and dropout: words >> 8 below it
  uint32_t key[2][MT_PHILOX_ROUNDS]; // of each round
  int64_t low;
  uint64_t range;          // 0: 2^64
  const mt_replay *replay; // what a graph's replays add to position, or NULL

  __device__ uint64_t place() const {
    return position + (replay ? replay->positions : 0);
  }
};

draw draw_at(const mt_call *call, uint64_t seed, uint64_t position) {
  draw d{};
  d.seed = seed, d.position = position, d.replay = call->replay;
  for (int k = 0; k < 2; k++) {
    uint32_t key = uint32_t(seed >> (32 * k));
    for (uint32_t &round : d.key[k])
      round = key, key += k == 0 ? MT_PHILOX_W0 : MT_PHILOX_W1;
  }
  return d;
}

draw draw_of(const mt_call *call) { return draw_at(call, call->seed, call->position); }

// (w >> 8) * 2^-24 < p, in whole numbers.
uint32_t limit_of(double p) {
  return p > 0 ? uint32_t(ceil((p < 1 ? p : 1) * 0x1p24)) : 0;
}

// Both halves of a product by one instruction: of (uint64_t)a * b >> 32 the compiler makes
// two, and an addition of zero.
__device__ inline uint64_t wide(uint32_t a, uint32_t b) {
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}
__device__ inline uint32_t upper(uint64_t x) { return uint32_t(x >> 32); }
__device__ inline uint32_t lower(uint64_t x) { return uint32_t(x); }

// mt_philox for blocks q whose upper half is the same: what its first two rounds make of
// that and of the position is found once.
struct philox_line {
  uint32_t x[4];
  __device__ philox_line(const draw &d, uint64_t place, uint32_t q_upper) {
    const uint64_t a = wide(MT_PHILOX_M0, lower(place));
    const uint64_t b = wide(MT_PHILOX_M1, upper(a) ^ q_upper ^ d.key[1][0]);
    x[0] = upper(place) ^ d.key[0][0], x[1] = upper(b) ^ d.key[0][1];
    x[2] = lower(a) ^ d.key[1][1], x[3] = lower(b);
  }
  __device__ void words(const draw &d, uint32_t q, uint32_t *w /* [out] [4] */) const {
    uint64_t b = wide(MT_PHILOX_M1, q), a = wide(MT_PHILOX_M0, upper(b) ^ x[0]);
    uint32_t c0 = lower(b) ^ x[1], c1 = x[3], c2 = upper(a) ^ x[2], c3 = lower(a);
#pragma unroll
    for (int round = 2; round < MT_PHILOX_ROUNDS; round++) {
      a = wide(MT_PHILOX_M0, c0), b = wide(MT_PHILOX_M1, c2);
      c0 = upper(b) ^ c1 ^ d.key[0][round], c1 = lower(b);
      c2 = upper(a) ^ c3 ^ d.key[1][round], c3 = lower(a);
    }
    w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
  }
};

__device__ inline uint64_t word64(const uint32_t *w, int i) {
  return uint64_t(w[2 * i + 1]) << 32 | w[2 * i];
}

// A maker gives the elements of one block: `many` of them, in the type `made`.
// In [0, 1), as a whole number of 2^-bits.
template <class S> __device__ inline float unit_of(uint32_t w) {
  constexpr int bits = std::is_same<S, __half>::value          ? 11
                       : std::is_same<S, __nv_bfloat16>::value ? 8
                                                               : 24;
  return __fmul_rn(float(int(w >> (32 - bits))), 1.0f / float(1 << bits));
}

template <class S> struct uniform_maker { // float32 and half types
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, S *out) {
    const float lo = d.f[0], hi = d.f[1], width = hi - lo;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      S s = store_as<S>(__fadd_rn(lo, __fmul_rn(unit_of<S>(w[i]), width)));
      if (!(load_as<float>(s) < hi) && lo < hi) s = store_as<S>(lo);
      out[i] = s;
    }
  }
};
// The same from 0 to 1, which needs no more than u.
template <class S> struct unit_maker {
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &, const uint32_t *w, S *out) {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = store_as<S>(unit_of<S>(w[i]));
  }
};
template <> struct uniform_maker<double> {
  static constexpr int many = 2;
  using made = double;
  __device__ static void make(const draw &d, const uint32_t *w, double *out) {
    const double width = d.b - d.a;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const double u = __dmul_rn(double(int64_t(word64(w, i) >> 11)), 0x1p-53);
      const double y = __dadd_rn(d.a, __dmul_rn(u, width));
      out[i] = y < d.b || !(d.a < d.b) ? y : d.a;
    }
  }
};

__device__ inline float root(float x) { // within 1 ulp, of no denormal
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// -2 log(x), for 2^-126 <= x <= 1 alone: x = 2^e (1 + f), 1 + f about 1.
__device__ inline float minus_two_logs(float x) {
  const int bits = __float_as_int(x), e = (bits - 0x3f3504f3) & 0xff800000; // sqrt(1/2)
  const float f = __int_as_float(bits - e) - 1;
  float p = -0.174008757f;
  p = fmaf(p, f, 0.285349846f), p = fmaf(p, f, -0.298295379f);
  p = fmaf(p, f, 0.331551671f), p = fmaf(p, f, -0.399261266f);
  p = fmaf(p, f, 0.500026762f), p = fmaf(p, f, -0.66667819f);
  p = fmaf(p, f, 1.0f), p = fmaf(p, f, -2.0f);
  return fmaf(float(e), -1.38629436f * 0x1p-23f, p * f);
}

// Sine and cosine of 2 pi k / 2^24, within 5e-7.
__device__ inline void sine_cosine_of_turn(int k, float *sine, float *cosine) {
  const float t = float(k) * (6.28318531f * 0x1p-24f); // from -pi to pi
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(*sine) : "f"(t));
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(*cosine) : "f"(t));
}

template <class S> struct normal_maker {
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, S *out) {
    const float mean = d.f[0], std = d.f[1];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float u = float(w[i]) * 0x1p-32f + 0x1p-33f;
      const float r = std * root(minus_two_logs(u));
      float sine, cosine;
      sine_cosine_of_turn(int(w[i + 1]) >> 8, &sine, &cosine);
      out[i] = store_as<S>(fmaf(r, cosine, mean));
      out[i + 1] = store_as<S>(fmaf(r, sine, mean));
    }
  }
};
template <> struct normal_maker<double> {
  static constexpr int many = 2;
  using made = double;
  __device__ static void make(const draw &d, const uint32_t *w, double *out) {
    const double u = double(int64_t(word64(w, 0) >> 11)) * 0x1p-53 + 0x1p-54;
    const double t =
        double(int64_t(word64(w, 1) >> 11)) * (6.283185307179586 * 0x1p-53);
    const double r = sqrt(-2 * log(u));
    out[0] = d.a + d.b * (r * cos(t));
    out[1] = d.a + d.b * (r * sin(t));
  }
};

// Whole numbers: of 32-bit words for small ranges, else of 64-bit ones.
template <class S> __device__ inline S whole(int64_t x) {
  if constexpr (std::is_same<S, __half>::value)
    return __float2half_rn(float(x));
  else if constexpr (std::is_same<S, __nv_bfloat16>::value)
    return __float2bfloat16_rn(float(x));
  else
    return S(x);
}
template <class S> struct random32_maker {
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, S *out) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      out[i] = whole<S>(d.low + int64_t(uint64_t(w[i]) * d.range >> 32));
  }
};
template <class S> struct random64_maker {
  static constexpr int many = 2;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, S *out) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint64_t x = word64(w, i);
      out[i] =
          whole<S>(int64_t(uint64_t(d.low) + (d.range ? __umul64hi(x, d.range) : x)));
    }
  }
};

__device__ inline bool under(const draw &d, uint32_t w) { return w >> 8 < d.limit; }
template <class S> struct bernoulli_maker {
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, S *out) {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = whole<S>(under(d, w[i]));
  }
};

// Blocks of words that a thread makes, and how many at once: what takes long needs
// independent work, what is short little to begin with.
template <class M> constexpr int each = 4;
template <class M> constexpr int at_once = 1;
template <class S> constexpr int each<normal_maker<S>> = 16;
template <class S> constexpr int at_once<normal_maker<S>> = sizeof(S) < 8 ? 2 : 1;

// Elements side by side, whole blocks of them. They begin at block first, a multiple of
// 2^31; there are up to 2^31.
template <class M>
__global__ void __launch_bounds__(256)
    generate_kernel(const __grid_constant__ draw d, typename M::made *out,
                    uint64_t first, uint32_t blocks) {
  using S = typename M::made;
  constexpr int N = M::many, U = at_once<M>;
  const philox_line line(d, d.place(), upper(first));
  const uint32_t begin = blockIdx.x * (256 * each<M>);
  const uint32_t end = min(blocks, begin + 256 * each<M>);
  uint32_t q = begin + threadIdx.x;
  const auto make = [&](auto many) {
    constexpr int n = decltype(many)::value;
    uint32_t w[n][4];
#pragma unroll
    for (int u = 0; u < n; u++) line.words(d, lower(first) + q + u * 256, w[u]);
#pragma unroll
    for (int u = 0; u < n; u++) {
      pack<S, N> made;
      M::make(d, w[u], made.at);
      reinterpret_cast<pack<S, N> *>(out)[first + q + u * 256] = made;
    }
    q += n * 256;
  };
  while (q + (U - 1) * 256 < end) make(std::integral_constant<int, U>{});
  if constexpr (U > 1)
    while (q < end) make(std::integral_constant<int, 1>{});
}

// Elements anywhere, from block first on.
template <class M>
__global__ void __launch_bounds__(256)
    generate_strided_kernel(const __grid_constant__ draw d, typename M::made *out,
                            uint64_t first, const __grid_constant__ space<1> s) {
  constexpr int N = M::many;
  const int64_t blocks = (s.numel + N - 1) / N, step = int64_t(gridDim.x) * blockDim.x;
  const uint64_t place = d.place();
  for (int64_t q = first + int64_t(blockIdx.x) * blockDim.x + threadIdx.x; q < blocks;
       q += step) {
    uint32_t w[4];
    typename M::made made[N];
    philox_line(d, place, upper(q)).words(d, lower(q), w);
    M::make(d, w, made);
#pragma unroll
    for (int i = 0; i < N; i++) {
      int64_t offset;
      if (q * N + i >= s.numel) break;
      seek(s, q * N + i, &offset);
      out[offset] = made[i];
    }
  }
}

template <class M> mt_status launch_generate(const mt_call *call, const draw &d) {
  using S = typename M::made;
  constexpr int N = M::many;
  constexpr int64_t most = int64_t(1) << 31;
  const mt_view *const view[1] = {call->out[0]};
  const space<1> s = make_space(view, true);
  const cudaStream_t stream = stream_of(call);
  S *out = reinterpret_cast<S *>(call->out[0]->data);
  const bool plain = s.ndim == 0 || (s.ndim == 1 && s.stride[0][0] == 1);
  const bool aligned = reinterpret_cast<uintptr_t>(out) % sizeof(pack<S, N>) == 0;
  const int64_t whole = plain && aligned ? s.numel / N : 0;
  for (int64_t first = 0; first < whole; first += most) {
    const int64_t blocks = std::min(whole - first, most);
    const unsigned grid = unsigned((blocks + 256 * each<M> - 1) / (256 * each<M>));
    generate_kernel<M><<<grid, 256, 0, stream>>>(d, out, first, uint32_t(blocks));
  }
  const int64_t left = (s.numel + N - 1) / N - whole;
  if (left > 0)
    generate_strided_kernel<M>
        <<<blocks_for(left, 256, call->device), 256, 0, stream>>>(d, out, whole, s);
  return launched();
}

mt_status run_uniform(const mt_call *call) {
  draw d = draw_of(call);
  d.a = call->attr[0].f, d.b = call->attr[1].f;
  d.f[0] = float(d.a), d.f[1] = float(d.b);
  return with_float(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    if constexpr (!std::is_same<S, double>::value)
      if (d.a == 0 && d.b == 1) return launch_generate<unit_maker<S>>(call, d);
    return launch_generate<uniform_maker<S>>(call, d);
  });
}

mt_status run_normal(const mt_call *call) {
  draw d = draw_of(call);
  d.a = call->attr[0].f, d.b = call->attr[1].f;
  d.f[0] = float(d.a), d.f[1] = float(d.b);
  return with_float(call->out[0]->dtype, [&](auto t) {
    return launch_generate<normal_maker<typename decltype(t)::type>>(call, d);
  });
}

template <class F> mt_status for_storage(mt_dtype d, F f) {
  return d == MT_BOOL ? f(tag<uint8_t>{}) : with_number(d, f);
}

mt_status run_random(const mt_call *call) {
  draw d = draw_of(call);
  if (call->attr[1].i[0] < call->attr[0].i[0])
    return cuda_fail_text(MT_EARG, "the range is empty");
  d.low = call->attr[0].i[0];
  d.range = uint64_t(call->attr[1].i[0]) - uint64_t(d.low) + 1;
  const bool small = d.range != 0 && d.range <= 1 << 16;
  return for_storage(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    return small ? launch_generate<random32_maker<S>>(call, d)
                 : launch_generate<random64_maker<S>>(call, d);
  });
}

mt_status run_bernoulli(const mt_call *call) {
  draw d = draw_of(call);
  d.limit = limit_of(call->attr[0].f);
  return for_storage(call->out[0]->dtype, [&](auto t) {
    return launch_generate<bernoulli_maker<typename decltype(t)::type>>(call, d);
  });
}

// ---- dropout ----------------------------------------------------------------------------

// Where `whole`, elements lie side by side in both, and so do the words' blocks.
template <class S>
__global__ void __launch_bounds__(256)
    dropout_kernel(const __grid_constant__ draw d, S *out, const S *x, bool whole,
                   const __grid_constant__ space<2> s) {
  using T = compute_t<S>;
  const int64_t blocks = (s.numel + 3) / 4, step = int64_t(gridDim.x) * blockDim.x;
  const uint64_t place = d.place();
  const T factor = T(d.b);
  for (int64_t q = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; q < blocks;
       q += step) {
    uint32_t w[4];
    philox_line(d, place, upper(q)).words(d, lower(q), w);
    const auto kept = [&](S v, int i) {
      return store_as<S>(under(d, w[i]) ? T(0) : load_as<T>(v) * factor);
    };
    if (whole) {
      pack<S, 4> p = reinterpret_cast<const pack<S, 4> *>(x)[q];
#pragma unroll
      for (int i = 0; i < 4; i++) p.at[i] = kept(p.at[i], i);
      reinterpret_cast<pack<S, 4> *>(out)[q] = p;
      continue;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (q * 4 + i >= s.numel) break;
      int64_t offset[2];
      seek(s, q * 4 + i, offset);
      out[offset[0]] = kept(x[offset[1]], i);
    }
  }
}

mt_status launch_dropout(const mt_call *call, draw d) {
  const mt_view *const view[2] = {call->out[0], call->in[0]};
  const space<2> s = make_space(view, true);
  if (s.numel == 0) return MT_OK;
  const double p = call->attr[0].f;
  d.limit = limit_of(p);
  d.b = p < 1 ? 1 / (1 - p) : 0;
  return with_float(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    S *out = reinterpret_cast<S *>(call->out[0]->data);
    const S *x = reinterpret_cast<const S *>(call->in[0]->data);
    const uintptr_t ends =
        reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(x);
    const bool whole = s.ndim == 1 && s.stride[0][0] == 1 && s.stride[1][0] == 1 &&
                       s.numel % 4 == 0 && ends % sizeof(pack<S, 4>) == 0;
    dropout_kernel<S>
        <<<blocks_for((s.numel + 3) / 4, 256, call->device), 256, 0, stream_of(call)>>>(
            d, out, x, whole, s);
    return launched();
  });
}

mt_status run_dropout(const mt_call *call) {
  return launch_dropout(call, draw_of(call));
}

mt_status run_dropout_backward(const mt_call *call) {
  const mt_attr *drawn = call->attr + 1;
  return launch_dropout(
      call, draw_at(call, uint64_t(drawn[0].i[0]), uint64_t(drawn[1].i[0])));
}

// ---- permutation: keys with the index in their low bits, sorted ------------------------

int index_bits(int64_t n) {
  int bits = 0;
  while (bits < 62 && (int64_t(1) << bits) < n) bits++;
  return bits;
}

__global__ void permutation_keys_kernel(const __grid_constant__ draw d, int64_t n,
                                        uint64_t mask, uint64_t *key) {
  const uint64_t place = d.place();
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t q = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; q < (n + 1) / 2;
       q += step) {
    uint32_t w[4];
    philox_line(d, place, upper(q)).words(d, lower(q), w);
    for (int i = 0; i < 2 && q * 2 + i < n; i++)
      key[q * 2 + i] = (word64(w, i) & ~mask) | uint64_t(q * 2 + i);
  }
}

template <class S>
__global__ void permutation_order_kernel(const uint64_t *key, uint64_t mask, S *out,
                                         const __grid_constant__ space<1> s) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset;
    seek(s, i, &offset);
    out[offset] = whole<S>(int64_t(key[i] & mask) + 1);
  }
}

size_t round256(size_t n) { return (n + 255) / 256 * 256; }

size_t sort_bytes(int64_t n) {
  size_t bytes = 0;
  uint64_t *none = nullptr;
  cub::DeviceRadixSort::SortKeys(nullptr, bytes, none, none, n);
  return bytes;
}

size_t permutation_scratch(const mt_call *call) {
  const int64_t n = numel(call->out[0]);
  return n == 0 ? 0 : 2 * round256(size_t(n) * 8) + sort_bytes(n);
}

mt_status run_permutation(const mt_call *call) {
  const mt_view *const view[1] = {call->out[0]};
  const space<1> s = make_space(view, true);
  if (s.numel == 0) return MT_OK;
  const cudaStream_t stream = stream_of(call);
  const unsigned blocks = blocks_for(s.numel, 256, call->device);
  const uint64_t mask = (uint64_t(1) << index_bits(s.numel)) - 1;
  char *room = static_cast<char *>(call->scratch);
  uint64_t *key = reinterpret_cast<uint64_t *>(room);
  uint64_t *sorted = reinterpret_cast<uint64_t *>(room + round256(size_t(s.numel) * 8));
  size_t bytes = sort_bytes(s.numel);
  permutation_keys_kernel<<<blocks, 256, 0, stream>>>(draw_of(call), s.numel, mask,
                                                      key);
  if (const mt_status status = launched()) return status;
  CUDA_TRY(cub::DeviceRadixSort::SortKeys(room + 2 * round256(size_t(s.numel) * 8),
                                          bytes, key, sorted, s.numel, 0, 64, stream));
  return with_number(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    permutation_order_kernel<S><<<blocks, 256, 0, stream>>>(
        sorted, mask, reinterpret_cast<S *>(call->out[0]->data), s);
    return launched();
  });
}

} // namespace

CUDA_ENTRY(uniform) = {run_uniform, nullptr, MT_FLOAT_MASK, 0};
CUDA_ENTRY(normal) = {run_normal, nullptr, MT_FLOAT_MASK, 0};
CUDA_ENTRY(random) = {run_random, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(bernoulli) = {run_bernoulli, nullptr, MT_ALL_MASK, 0};
CUDA_ENTRY(_dropout) = {run_dropout, nullptr, MT_FLOAT_MASK, 0};
CUDA_ENTRY(_dropout_backward) = {run_dropout_backward, nullptr, MT_FLOAT_MASK, 0};
CUDA_ENTRY(_permutation) = {run_permutation, permutation_scratch,
                            MT_FLOAT_MASK | MT_INT_MASK, 0};
