// kernels/cuda/elements.cuh -- elements as they are stored and as they are computed with.
#ifndef MT_CUDA_ELEMENTS_CUH
#define MT_CUDA_ELEMENTS_CUH

#include "kernels/cuda/cuda.cuh"

template <class T, class S> __device__ inline T load_as(S x) { return T(x); }
template <> __device__ inline float load_as<float, __half>(__half x) {
  return __half2float(x);
}
template <> __device__ inline float load_as<float, __nv_bfloat16>(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class S, class T> __device__ inline S store_as(T x) { return S(x); }
template <> __device__ inline __half store_as<__half, float>(float x) {
  return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 store_as<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}

template <class S, int V> struct alignas(sizeof(S) * V) pack { S at[V]; };

// Store a pack as a whole: of a plain store the compiler may make one for each element.
template <class S, int V>
__device__ inline void store_whole(void *to, const pack<S, V> &p) {
  constexpr int size = int(sizeof p);
  if constexpr (size % 16 == 0) {
    uint4 part[size / 16];
    memcpy(part, &p, size);
#pragma unroll
    for (int i = 0; i < size / 16; i++) __stcg(static_cast<uint4 *>(to) + i, part[i]);
  } else
    *static_cast<pack<S, V> *>(to) = p;
}

// ---- classes of storage -----------------------------------------------------------------
// One kernel serves all dtypes of a class, which are told apart as it runs. A class S may
// also be a plain type. Arithmetic is in T: float of half_kind and float_kind, int of
// small_kind and int_kind.
struct half_kind {};  // float16, bfloat16
struct small_kind {}; // int16, int8, uint8
struct float_kind {}; // float32 and half_kind
struct int_kind {};   // int32 and small_kind

template <class S> constexpr bool is_kind = std::is_empty<S>::value;

// The class that a kernel for any strides has instead.
template <class S> struct widest { using type = S; };
template <> struct widest<float> { using type = float_kind; };
template <> struct widest<half_kind> { using type = float_kind; };
template <> struct widest<int32_t> { using type = int_kind; };
template <> struct widest<small_kind> { using type = int_kind; };

__device__ inline float half_value(uint16_t bits, mt_dtype d) {
  const float f16 = __half2float(__ushort_as_half(bits));
  const float bf16 = __uint_as_float(uint32_t(bits) << 16);
  return d == MT_F16 ? f16 : bf16;
}
__device__ inline uint16_t half_bits(float x, mt_dtype d) {
  const uint16_t f16 = __half_as_ushort(__float2half_rn(x));
  const uint16_t bf16 = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return d == MT_F16 ? f16 : bf16;
}

// Element i of p, which is stored as d, of class S.
template <class T, class S>
__device__ inline T load_at(const void *p, int64_t i, mt_dtype d) {
  if constexpr (!is_kind<S>)
    return load_as<T>(static_cast<const S *>(p)[i]);
  else if constexpr (std::is_same<T, float>::value) {
    if (std::is_same<S, float_kind>::value && d == MT_F32)
      return static_cast<const float *>(p)[i];
    return half_value(static_cast<const uint16_t *>(p)[i], d);
  } else {
    if (std::is_same<S, int_kind>::value && d == MT_I32)
      return static_cast<const int32_t *>(p)[i];
    if (d == MT_I16) return static_cast<const int16_t *>(p)[i];
    if (d == MT_I8) return static_cast<const int8_t *>(p)[i];
    return static_cast<const uint8_t *>(p)[i];
  }
}
template <class S, class T>
__device__ inline void store_at(void *p, int64_t i, T x, mt_dtype d) {
  if constexpr (!is_kind<S>)
    static_cast<S *>(p)[i] = store_as<S>(x);
  else if constexpr (std::is_same<T, float>::value) {
    if (std::is_same<S, float_kind>::value && d == MT_F32)
      static_cast<float *>(p)[i] = x;
    else
      static_cast<uint16_t *>(p)[i] = half_bits(x, d);
  } else {
    if (std::is_same<S, int_kind>::value && d == MT_I32)
      static_cast<int32_t *>(p)[i] = x;
    else if (d == MT_I16)
      static_cast<int16_t *>(p)[i] = int16_t(x);
    else
      static_cast<uint8_t *>(p)[i] = uint8_t(x);
  }
}

// V neighbours on their way between memory and arithmetic: moved as they are, converted
// when they are needed.
template <class S, int V> struct piece {
  pack<S, V> raw;
  __device__ void load(const char *p, mt_dtype) {
    raw = *reinterpret_cast<const pack<S, V> *>(p);
  }
  __device__ void store(char *p, mt_dtype) const {
    *reinterpret_cast<pack<S, V> *>(p) = raw;
  }
  template <class T> __device__ void get(T (&x)[V], mt_dtype) const {
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = load_as<T>(raw.at[i]);
  }
  template <class T> __device__ void set(const T (&x)[V], mt_dtype) {
#pragma unroll
    for (int i = 0; i < V; i++) raw.at[i] = store_as<S>(x[i]);
  }
};
template <int V> struct piece<half_kind, V> {
  pack<uint16_t, V> raw;
  __device__ void load(const char *p, mt_dtype) {
    raw = *reinterpret_cast<const pack<uint16_t, V> *>(p);
  }
  __device__ void store(char *p, mt_dtype) const {
    *reinterpret_cast<pack<uint16_t, V> *>(p) = raw;
  }
  // The dtype is asked for once; two are rounded by one instruction.
  __device__ void get(float (&x)[V], mt_dtype d) const {
    if (d == MT_F16) {
#pragma unroll
      for (int i = 0; i < V; i++) x[i] = __half2float(__ushort_as_half(raw.at[i]));
    } else {
#pragma unroll
      for (int i = 0; i < V; i++) x[i] = __uint_as_float(uint32_t(raw.at[i]) << 16);
    }
  }
  __device__ void set(const float (&x)[V], mt_dtype d) {
    if (d == MT_F16) {
#pragma unroll
      for (int i = 0; i < V; i += 2)
        reinterpret_cast<__half2 *>(raw.at)[i / 2] = __floats2half2_rn(x[i], x[i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < V; i += 2)
        reinterpret_cast<__nv_bfloat162 *>(raw.at)[i / 2] =
            __floats2bfloat162_rn(x[i], x[i + 1]);
    }
  }
};
template <int V> struct piece<small_kind, V> {
  int at[V];
  __device__ void load(const char *p, mt_dtype d) {
    if (d == MT_I16) {
      const auto raw = *reinterpret_cast<const pack<int16_t, V> *>(p);
#pragma unroll
      for (int i = 0; i < V; i++) at[i] = raw.at[i];
    } else {
      const auto raw = *reinterpret_cast<const pack<uint8_t, V> *>(p);
#pragma unroll
      for (int i = 0; i < V; i++) at[i] = d == MT_I8 ? int8_t(raw.at[i]) : raw.at[i];
    }
  }
  __device__ void store(char *p, mt_dtype d) const {
    if (d == MT_I16) {
      pack<int16_t, V> raw;
#pragma unroll
      for (int i = 0; i < V; i++) raw.at[i] = int16_t(at[i]);
      *reinterpret_cast<pack<int16_t, V> *>(p) = raw;
    } else {
      pack<uint8_t, V> raw;
#pragma unroll
      for (int i = 0; i < V; i++) raw.at[i] = uint8_t(at[i]);
      *reinterpret_cast<pack<uint8_t, V> *>(p) = raw;
    }
  }
  template <class T> __device__ void get(T (&x)[V], mt_dtype) const {
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = T(at[i]);
  }
  template <class T> __device__ void set(const T (&x)[V], mt_dtype) {
#pragma unroll
    for (int i = 0; i < V; i++) at[i] = int(x[i]);
  }
};

// Neighbours that a thread takes at once: 16 bytes of them, 4 of small integers.
template <class S> struct neighbours {
  static constexpr int value = 16 / int(sizeof(S));
};
template <> struct neighbours<half_kind> { static constexpr int value = 8; };
template <> struct neighbours<small_kind> { static constexpr int value = 4; };

// Of a warp, in each lane.
template <class T> __device__ inline T lane_sum(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

#endif
