/* kernels/philox.h -- Philox4x32-10 and how its words become random numbers, the same on
** every device.
**
** Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
** Block q of a call is philox(key = seed, counter = {p lo, p hi, q lo, q hi}), p being
** the position that was reserved for the call: four words of 32 bits.
**
** Element i of a call takes w = word i % 4 of block i / 4. Where 64 bits are wanted it
** takes w64 = words 2 (i % 2) and 2 (i % 2) + 1, low half first, of block i / 2.
**
** uniform: lo + u * (hi - lo), each step rounded; lo, should that give hi. u is
**   (w >> 8) * 2^-24 in float32, (w64 >> 11) * 2^-53 in float64; half types keep as many
**   bits as they have: (w >> 21) * 2^-11 in float16, (w >> 24) * 2^-8 in bfloat16.
**
** normal: Box and Muller's pairs. With w0 and w1 the words (float64: w64) of elements
**   2 j and 2 j + 1, z is r cos(t) and r sin(t), r = sqrt(-2 log(u)). In float32,
**   u = w0 * 2^-32 + 2^-33 and t = 2 pi (w1 >> 8) * 2^-24; in float64,
**   u = (w0 >> 11) * 2^-53 + 2^-54 and t = 2 pi (w1 >> 11) * 2^-53. Then mean + std * z.
**
** random: range = high - low + 1. low + ((w * range) >> 32) for ranges up to 2^16, else
**   low + ((w64 * range) >> 64), or low + w64 for 2^64.
**
** bernoulli: 1 where (w >> 8) * 2^-24 < p. Dropout drops there.
**
** permutation: the numbers 1 .. n in the order of their keys: w64 of element i with its
**   low b bits replaced by i, b being the least with 2^b >= n. */
#ifndef MT_PHILOX_H
#define MT_PHILOX_H

#include <stdint.h>

#define MT_PHILOX_ROUNDS 10
#define MT_PHILOX_M0     0xD2511F53u
#define MT_PHILOX_M1     0xCD9E8D57u
#define MT_PHILOX_W0     0x9E3779B9u
#define MT_PHILOX_W1     0xBB67AE85u

#ifdef __CUDACC__
#define MT_PHILOX_FN static __host__ __device__ __forceinline__
#else
#define MT_PHILOX_FN static inline __attribute__((unused))
#endif

/* Block q of the call at position p. */
MT_PHILOX_FN void mt_philox(uint64_t seed, uint64_t p, uint64_t q,
                            uint32_t *word /* [out] [4] */) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)p, c1 = (uint32_t)(p >> 32);
  uint32_t c2 = (uint32_t)q, c3 = (uint32_t)(q >> 32);
  for (int round = 0; round < MT_PHILOX_ROUNDS; round++) {
    const uint64_t a = (uint64_t)MT_PHILOX_M0 * c0, b = (uint64_t)MT_PHILOX_M1 * c2;
    const uint32_t d0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    const uint32_t d2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c0 = d0, c1 = (uint32_t)b, c2 = d2, c3 = (uint32_t)a;
    k0 += MT_PHILOX_W0, k1 += MT_PHILOX_W1;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

#endif
