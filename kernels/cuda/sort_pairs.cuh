// kernels/cuda/sort_pairs.cuh -- CUB's radix sort of keys with 32-bit companions,
// compiled once.
#ifndef MT_CUDA_SORT_PAIRS_CUH
#define MT_CUDA_SORT_PAIRS_CUH

#include "kernels/cuda/cuda.cuh"

// Two buffers each; after sorting the result lies in the ones `at` names.
template <class K> struct pair_buffers {
  K *key[2];
  uint32_t *value[2];
  int at;
};

// Scratch of a sort of n pairs, beside the buffers.
template <class K> size_t sort_pairs_bytes(uint32_t n);
// Sort by bits 0 .. bits - 1 of the keys; equal keys stay in order. K is uint32_t or
// uint64_t. room: sort_pairs_bytes(n) bytes.
template <class K>
mt_status sort_pairs(const mt_call *call, pair_buffers<K> *b, uint32_t n, int bits,
                     void *room);

// The same without companions: the keys that are sorted lie in key[*at].
template <class K> size_t sort_keys_bytes(uint32_t n);
template <class K>
mt_status sort_keys(const mt_call *call, K *const (&key)[2], int *at /* [out] */,
                    uint32_t n, int bits, void *room);

inline size_t round256(size_t n) { return (n + 255) / 256 * 256; }

// Bits that numbers 0 .. n need.
inline int bits_for(int64_t n) {
  int bits = 1;
  while (bits < 63 && (int64_t(1) << bits) <= n) bits++;
  return bits;
}

#endif
