// kernels/cuda/sort_keys.cuh -- elements of any dtype as unsigned keys whose ascending
// order is the one that is wanted: NaN is the largest, -0 equals 0.
#ifndef MT_CUDA_SORT_KEYS_CUH
#define MT_CUDA_SORT_KEYS_CUH

#include "kernels/cuda/sort_pairs.cuh"
#include "kernels/cuda/space.cuh"

// Key of K's width or less: sign and magnitude of a float become one number.
template <class K> __device__ inline K float_key(K b, int bits, K infinity) {
  const K top = K(1) << (bits - 1), magnitude = b & (top - 1);
  if (magnitude == 0) b = 0;
  if (magnitude > infinity) b = top - 1;
  return (b & top ? ~b : b | top) & (top | (top - 1));
}

template <class K>
__device__ inline K key_at(const void *x, int64_t i, mt_dtype d, bool descending) {
  K k, all;
  if constexpr (sizeof(K) == 8) {
    const K b = static_cast<const uint64_t *>(x)[i];
    all = ~K(0);
    k = d == MT_F64 ? float_key<K>(b, 64, K(0x7ff) << 52) : b ^ (K(1) << 63);
  } else {
    switch (d) {
    case MT_F32:
      k = float_key<K>(static_cast<const uint32_t *>(x)[i], 32, 0x7f800000u);
      all = ~K(0);
      break;
    case MT_I32:
      k = static_cast<const uint32_t *>(x)[i] ^ 0x80000000u, all = ~K(0);
      break;
    case MT_F16:
      k = float_key<K>(static_cast<const uint16_t *>(x)[i], 16, 0x7c00u), all = 0xffffu;
      break;
    case MT_BF16:
      k = float_key<K>(static_cast<const uint16_t *>(x)[i], 16, 0x7f80u), all = 0xffffu;
      break;
    case MT_I16:
      k = static_cast<const uint16_t *>(x)[i] ^ 0x8000u, all = 0xffffu;
      break;
    case MT_I8: k = static_cast<const uint8_t *>(x)[i] ^ 0x80u, all = 0xffu; break;
    default: k = static_cast<const uint8_t *>(x)[i], all = 0xffu;
    }
  }
  return descending ? k ^ all : k;
}

// The element of an ascending key, at y[i]; all zeros come back as 0.
template <class K>
__device__ inline void store_key(void *y, int64_t i, K k, mt_dtype d) {
  if constexpr (sizeof(K) == 8) {
    const K top = K(1) << 63;
    static_cast<uint64_t *>(y)[i] = d == MT_F64 ? (k & top ? k & ~top : ~k) : k ^ top;
  } else {
    switch (d) {
    case MT_F32:
      static_cast<uint32_t *>(y)[i] = k & 0x80000000u ? k & 0x7fffffffu : ~k;
      break;
    case MT_I32: static_cast<uint32_t *>(y)[i] = k ^ 0x80000000u; break;
    case MT_F16:
    case MT_BF16:
      static_cast<uint16_t *>(y)[i] = uint16_t(k & 0x8000u ? k & 0x7fffu : ~k);
      break;
    case MT_I16: static_cast<uint16_t *>(y)[i] = uint16_t(k ^ 0x8000u); break;
    case MT_I8: static_cast<uint8_t *>(y)[i] = uint8_t(k ^ 0x80u); break;
    default: static_cast<uint8_t *>(y)[i] = uint8_t(k);
    }
  }
}

// y[to] = x[from]: whatever it is.
__device__ inline void copy_element(void *y, int64_t to, const void *x, int64_t from,
                                    int64_t size) {
  switch (size) {
  case 1: static_cast<uint8_t *>(y)[to] = static_cast<const uint8_t *>(x)[from]; break;
  case 2:
    static_cast<uint16_t *>(y)[to] = static_cast<const uint16_t *>(x)[from];
    break;
  case 4:
    static_cast<uint32_t *>(y)[to] = static_cast<const uint32_t *>(x)[from];
    break;
  default: static_cast<uint64_t *>(y)[to] = static_cast<const uint64_t *>(x)[from];
  }
}

// Lines along a dim of x, and of the results; steps in elements.
struct sort_lines {
  const void *x;
  void *y;        // NULL: not wanted
  int64_t *index; // the same
  mt_dtype dtype;
  int size; // bytes of an element
  bool descending;
  int64_t n, k; // of a line: elements, wanted ones
  int64_t x_step, y_step, index_step;
  space<3> s; // y, x, index without the dim
};

// The element that stands at `from` (from 0) of a line goes to place `to`.
__device__ inline void store_sorted(const sort_lines &l, const int64_t *offset,
                                    int64_t to, int64_t from) {
  if (l.index) l.index[offset[2] + to * l.index_step] = from + 1;
  if (l.y)
    copy_element(l.y, offset[0] + to * l.y_step, l.x, offset[1] + from * l.x_step,
                 l.size);
}

// The lines of a call whose in[0] is x and out = {y, index}.
sort_lines make_sort_lines(const mt_call *call, int dim, bool descending, int64_t k);

// The first k of each line of l, for n beyond what a block sorts (select.cu): keys and
// places, line by line, in the order of the places where keys are equal.
constexpr int64_t block_sort_most = 4096;
template <class K> size_t first_keys_bytes(const mt_call *call, const sort_lines &l);
template <class K>
mt_status first_keys(const mt_call *call, const sort_lines &l, void *scratch,
                     const K **key /* [out] */, const uint32_t **place /* [out] */);

#endif
