// kernels/cuda/random.cu -- random numbers and dropout, as kernels/philox.h defines them:
// the words of a block become neighbouring elements, one thread a block.
#include <cub/device/device_radix_sort.cuh>
#include "kernels/cuda/elementwise.cuh"
#include "kernels/philox.h"

namespace {

struct draw {
  uint64_t seed, position;
  double a, b; // lo and hi, mean and std, or p and the factor of what is kept
  float f[2];  // the same in float32
  int64_t low;
  uint64_t range;          // 0: 2^64
  const mt_replay *replay; // what a graph's replays add to position, or NULL

  __device__ uint64_t place() const {
    return position + (replay ? replay->positions : 0);
  }
};

draw draw_of(const mt_call *call) {
  draw d{};
  d.seed = call->seed, d.position = call->position, d.replay = call->replay;
  return d;
}

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
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              S *out) {
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
  __device__ static void make(const draw &, const uint32_t *w, int64_t, int64_t,
                              S *out) {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = store_as<S>(unit_of<S>(w[i]));
  }
};
template <> struct uniform_maker<double> {
  static constexpr int many = 2;
  using made = double;
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              double *out) {
    const double width = d.b - d.a;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const double u = __dmul_rn(double(int64_t(word64(w, i) >> 11)), 0x1p-53);
      const double y = __dadd_rn(d.a, __dmul_rn(u, width));
      out[i] = y < d.b || !(d.a < d.b) ? y : d.a;
    }
  }
};

__device__ inline float root(float x) { // within 1 ulp
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log(x) within 1.4 ulp, for 2^-126 <= x <= 1 alone: x = 2^e (1 + f), 1 + f about 1.
__device__ inline float log_of_unit(float x) {
  const int above = __float_as_int(x) - 0x3f3504f3, e = above >> 23; // sqrt(1/2)
  const float f = __int_as_float((above & 0x7fffff) + 0x3f3504f3) - 1;
  float p = -0.0763446014f;
  p = fmaf(p, f, 0.127615625f), p = fmaf(p, f, -0.131601893f);
  p = fmaf(p, f, 0.142017604f), p = fmaf(p, f, -0.166233569f);
  p = fmaf(p, f, 0.200012268f), p = fmaf(p, f, -0.25000821f);
  p = fmaf(p, f, 0.333333317f);
  return fmaf(float(e), 0.693147182f, fmaf(f * f, fmaf(f, p, -0.5f), f));
}

// Sine and cosine of 2 pi k / 2^24, within 1e-7: k falls into a quarter q, a beside it.
__device__ inline void sine_cosine_of_turn(uint32_t k, float *sine, float *cosine) {
  const int q = int(k + (1u << 21)) >> 22;
  const float a = float(int(k) - (q << 22)) * (6.2831853f * 0x1p-24f), z = a * a;
  float s = fmaf(-0.000195172662f, z, 0.00833217791f);
  s = fmaf(a * z, fmaf(s, z, -0.166666549f), a);
  float c = fmaf(2.43904093e-05f, z, -0.00138867634f);
  c = fmaf(fmaf(fmaf(c, z, 0.0416666233f), z, -0.499999997f), z, 1.0f);
  const float x = q & 1 ? s : c, y = q & 1 ? c : s;
  *sine = q & 2 ? -y : y, *cosine = (q + 1) & 2 ? -x : x;
}

template <class S> struct normal_maker {
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              S *out) {
    const float mean = d.f[0], std = d.f[1];
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float u = float(w[i]) * 0x1p-32f + 0x1p-33f;
      const float r = root(-2 * log_of_unit(u));
      float sine, cosine;
      sine_cosine_of_turn(w[i + 1] >> 8, &sine, &cosine);
      out[i] = store_as<S>(mean + std * (r * cosine));
      out[i + 1] = store_as<S>(mean + std * (r * sine));
    }
  }
};
template <> struct normal_maker<double> {
  static constexpr int many = 2;
  using made = double;
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              double *out) {
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
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              S *out) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      out[i] = whole<S>(d.low + int64_t(uint64_t(w[i]) * d.range >> 32));
  }
};
template <class S> struct random64_maker {
  static constexpr int many = 2;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              S *out) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint64_t x = word64(w, i);
      out[i] =
          whole<S>(int64_t(uint64_t(d.low) + (d.range ? __umul64hi(x, d.range) : x)));
    }
  }
};

__device__ inline bool under(const draw &d, uint32_t w) {
  return double(w >> 8) * 0x1p-24 < d.a;
}
template <class S> struct bernoulli_maker {
  static constexpr int many = 4;
  using made = S;
  __device__ static void make(const draw &d, const uint32_t *w, int64_t, int64_t,
                              S *out) {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = whole<S>(under(d, w[i]));
  }
};

// Blocks of words that a thread makes at once: independent work for what is short.
template <class M> constexpr int at_once = 1;
template <class S> constexpr int at_once<unit_maker<S>> = 2;

template <class M>
__global__ void __launch_bounds__(256)
    generate_kernel(draw d, typename M::made *out, const __grid_constant__ space<1> s) {
  using S = typename M::made;
  constexpr int N = M::many, U = at_once<M>;
  const int64_t blocks = (s.numel + N - 1) / N, step = int64_t(gridDim.x) * blockDim.x;
  const uint64_t place = d.place();
  const bool plain = s.ndim <= 1 && (s.ndim == 0 || s.stride[0][0] == 1) &&
                     reinterpret_cast<uintptr_t>(out) % sizeof(pack<S, N>) == 0;
  const int64_t whole = plain ? s.numel / N : 0;
  int64_t q = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; q + (U - 1) * step < whole; q += U * step) {
    uint32_t w[U][4];
#pragma unroll
    for (int u = 0; u < U; u++) mt_philox(d.seed, place, uint64_t(q + u * step), w[u]);
#pragma unroll
    for (int u = 0; u < U; u++) {
      pack<S, N> made;
      M::make(d, w[u], q + u * step, s.numel, made.at);
      reinterpret_cast<pack<S, N> *>(out)[q + u * step] = made;
    }
  }
  for (; q < blocks; q += step) {
    uint32_t w[4];
    pack<S, N> made;
    mt_philox(d.seed, place, uint64_t(q), w);
    M::make(d, w, q, s.numel, made.at);
#pragma unroll
    for (int i = 0; i < N; i++) {
      int64_t offset;
      if (q * N + i >= s.numel) break;
      seek(s, q * N + i, &offset);
      out[offset] = made.at[i];
    }
  }
}

template <class M> mt_status launch_generate(const mt_call *call, const draw &d) {
  const mt_view *const view[1] = {call->out[0]};
  const space<1> s = make_space(view, true);
  if (s.numel == 0) return MT_OK;
  const int64_t blocks = (s.numel + 256 * M::many - 1) / (256 * M::many);
  const int64_t most = int64_t(multiprocessors(call->device)) * 128;
  generate_kernel<M>
      <<<unsigned(blocks < most ? blocks : most), 256, 0, stream_of(call)>>>(
          d, reinterpret_cast<typename M::made *>(call->out[0]->data), s);
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
  d.a = call->attr[0].f;
  return for_storage(call->out[0]->dtype, [&](auto t) {
    return launch_generate<bernoulli_maker<typename decltype(t)::type>>(call, d);
  });
}

// ---- dropout ----------------------------------------------------------------------------

template <class S>
__global__ void __launch_bounds__(256)
    dropout_kernel(draw d, S *out, const S *x, const __grid_constant__ space<2> s) {
  using T = compute_t<S>;
  const int64_t blocks = (s.numel + 3) / 4, step = int64_t(gridDim.x) * blockDim.x;
  const uint64_t place = d.place();
  const T factor = T(d.b);
  for (int64_t q = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; q < blocks;
       q += step) {
    uint32_t w[4];
    mt_philox(d.seed, place, uint64_t(q), w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (q * 4 + i >= s.numel) break;
      int64_t offset[2];
      seek(s, q * 4 + i, offset);
      const T v = load_as<T>(x[offset[1]]);
      out[offset[0]] = store_as<S>(under(d, w[i]) ? T(0) : v * factor);
    }
  }
}

mt_status launch_dropout(const mt_call *call, draw d) {
  const mt_view *const view[2] = {call->out[0], call->in[0]};
  const space<2> s = make_space(view, true);
  if (s.numel == 0) return MT_OK;
  d.a = call->attr[0].f;
  d.b = d.a < 1 ? 1 / (1 - d.a) : 0;
  return with_float(call->in[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    dropout_kernel<S>
        <<<blocks_for((s.numel + 3) / 4, 256, call->device), 256, 0, stream_of(call)>>>(
            d, reinterpret_cast<S *>(call->out[0]->data),
            reinterpret_cast<S *>(call->in[0]->data), s);
    return launched();
  });
}

mt_status run_dropout(const mt_call *call) {
  return launch_dropout(call, draw_of(call));
}

mt_status run_dropout_backward(const mt_call *call) {
  draw d{};
  d.seed = uint64_t(call->attr[1].i[0]), d.position = uint64_t(call->attr[2].i[0]);
  d.replay = call->replay;
  return launch_dropout(call, d);
}

// ---- permutation: keys with the index in their low bits, sorted ------------------------

int index_bits(int64_t n) {
  int bits = 0;
  while (bits < 62 && (int64_t(1) << bits) < n) bits++;
  return bits;
}

__global__ void permutation_keys_kernel(draw d, int64_t n, uint64_t mask,
                                        uint64_t *key) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  const uint64_t place = d.place();
  for (int64_t q = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; q < (n + 1) / 2;
       q += step) {
    uint32_t w[4];
    mt_philox(d.seed, place, uint64_t(q), w);
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
