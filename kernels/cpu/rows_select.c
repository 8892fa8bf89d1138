/* kernels/cpu/rows_select.c -- what is chosen by a mask moves together, for one level of
** x86-64: with AVX2 eight elements at a time, by a table of permutations. */
#include "kernels/cpu/select.h"

/* In bytes, as long as these suffice. */
static int64_t count(int64_t n, const uint8_t *set) {
  int64_t sum = 0, i = 0;
  while (i < n) {
    const int64_t stop = n - i < 255 ? n : i + 255;
    uint8_t few = 0;
    for (; i < stop; i++) few = (uint8_t)(few + (set[i] != 0));
    sum += few;
  }
  return sum;
}

static uint64_t eight_of(const uint8_t *set) {
  uint64_t word;
  memcpy(&word, set, sizeof word);
  return word;
}

#ifdef __AVX2__
#include <immintrin.h>

/* order[m]: the places of m's bits, from the lowest on, a byte each. */
#define PLACE(m, j) \
  ((uint64_t)((m) >> (j)&1 ? (j) : 0) << 8 * __builtin_popcount((m) & ((1 << (j)) - 1)))
#define ORDER(m)                                                                      \
  PLACE(m, 0) | PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) | \
      PLACE(m, 6) | PLACE(m, 7)
#define ORDER_4(m)  ORDER(m), ORDER(m + 1), ORDER(m + 2), ORDER(m + 3)
#define ORDER_16(m) ORDER_4(m), ORDER_4(m + 4), ORDER_4(m + 8), ORDER_4(m + 12)
#define ORDER_64(m) ORDER_16(m), ORDER_16(m + 16), ORDER_16(m + 32), ORDER_16(m + 48)
static const uint64_t order[256] = {ORDER_64(0), ORDER_64(64), ORDER_64(128),
                                    ORDER_64(192)};

#define STEP        32   /* elements of a loop */
#define FETCH_AHEAD 2048 /* bytes */

static inline uint32_t bits_of(const uint8_t *set) { /* of STEP */
  const __m256i v = _mm256_loadu_si256((const __m256i *)set);
  const __m256i none = _mm256_cmpeq_epi8(v, _mm256_setzero_si256());
  return ~(uint32_t)_mm256_movemask_epi8(none);
}
static inline __m128i order_of(uint32_t bits) {
  return _mm_loadl_epi64((const __m128i *)&order[bits]);
}

/* Eight elements: those of the bits come first. 64-bit ones: four. */
static inline void move_1(uint32_t bits, const uint8_t *x, uint8_t *y) {
  const __m128i v = _mm_loadl_epi64((const __m128i *)x);
  _mm_storel_epi64((__m128i *)y, _mm_shuffle_epi8(v, order_of(bits)));
}
static inline void move_2(uint32_t bits, const uint16_t *x, uint16_t *y) {
  const __m128i v = _mm_loadu_si128((const __m128i *)x);
  const __m128i twice =
      _mm_mullo_epi16(_mm_cvtepu8_epi16(order_of(bits)), _mm_set1_epi16(0x0202));
  const __m128i bytes = _mm_add_epi16(twice, _mm_set1_epi16(0x0100));
  _mm_storeu_si128((__m128i *)y, _mm_shuffle_epi8(v, bytes));
}
static inline void move_4(uint32_t bits, const uint32_t *x, uint32_t *y) {
  const __m256i v = _mm256_loadu_si256((const __m256i *)x);
  const __m256i from = _mm256_cvtepu8_epi32(order_of(bits));
  _mm256_storeu_si256((__m256i *)y, _mm256_permutevar8x32_epi32(v, from));
}
static inline void move_8(uint32_t bits, const uint64_t *x, uint64_t *y) {
  const __m256i v = _mm256_loadu_si256((const __m256i *)x);
  const __m256i low = _mm256_slli_epi64(_mm256_cvtepu8_epi64(order_of(bits)), 1);
  const __m256i high = _mm256_add_epi64(low, _mm256_set1_epi64x(1));
  const __m256i from = _mm256_or_si256(low, _mm256_slli_epi64(high, 32));
  _mm256_storeu_si256((__m256i *)y, _mm256_permutevar8x32_epi32(v, from));
}

/* A processor fetches by itself within a page. */
static inline void fetch(const void *x, int bytes) {
  for (int k = 0; k < bytes; k += 64)
    __builtin_prefetch((const char *)x + FETCH_AHEAD + k);
}

/* While a whole STEP fits: what is written too much is overwritten, or y's own. */
#define MOVE_STEPS(T, sfx, each)                             \
  for (; i + STEP <= n && found + STEP <= most; i += STEP) { \
    uint32_t bits = bits_of(set + i);                        \
    fetch(x + i, STEP * (int)sizeof(T));                     \
    for (int k = 0; k < STEP; k += each, bits >>= each) {    \
      const uint32_t some = bits & ((1u << each) - 1);       \
      move_##sfx(some, x + i + k, y + found);                \
      found += __builtin_popcount(some);                     \
    }                                                        \
  }
#else
#define MOVE_STEPS(T, sfx, each)
#endif

/* Eight at a time by way of a buffer, then one by one. */
#define SELECT(T, sfx, each)                                                   \
  static int64_t select_##sfx(int64_t n, const uint8_t *set, const void *from, \
                              void *to, int64_t most) {                        \
    const T *x = from;                                                         \
    T *y = to;                                                                 \
    int64_t i = 0, found = 0;                                                  \
    MOVE_STEPS(T, sfx, each)                                                   \
    for (; i + 8 <= n; i += 8) {                                               \
      T chosen[9];                                                             \
      int64_t m = 0;                                                           \
      if (eight_of(set + i) == 0) continue;                                    \
      for (int j = 0; j < 8; j++) chosen[m] = x[i + j], m += set[i + j] != 0;  \
      if (m > most - found) m = most - found;                                  \
      for (int64_t j = 0; j < m; j++) y[found + j] = chosen[j];                \
      found += m;                                                              \
    }                                                                          \
    for (; i < n; i++)                                                         \
      if (set[i] && found < most) y[found++] = x[i];                           \
    return found;                                                              \
  }
SELECT(uint8_t, 1, 8)
SELECT(uint16_t, 2, 8)
SELECT(uint32_t, 4, 8)
SELECT(uint64_t, 8, 4)

static int64_t positions(int64_t n, const uint8_t *set, int64_t first, int64_t *at,
                         int64_t most) {
  int64_t i = 0, found = 0;
#ifdef __AVX2__
  for (; i + STEP <= n && found + STEP <= most; i += STEP) {
    uint32_t bits = bits_of(set + i);
    for (int k = 0; k < STEP; k += 8, bits >>= 8) {
      const __m256i base = _mm256_set1_epi64x(first + i + k);
      const __m128i places = order_of(bits & 0xff);
      const __m256i low = _mm256_cvtepu8_epi64(places);
      const __m256i high = _mm256_cvtepu8_epi64(_mm_srli_epi64(places, 32));
      __m256i *to = (__m256i *)(at + found);
      _mm256_storeu_si256(to, _mm256_add_epi64(low, base));
      _mm256_storeu_si256(to + 1, _mm256_add_epi64(high, base));
      found += __builtin_popcount(bits & 0xff);
    }
  }
#endif
  for (; i + 8 <= n; i += 8) {
    int64_t chosen[9], m = 0;
    if (eight_of(set + i) == 0) continue;
    for (int j = 0; j < 8; j++) chosen[m] = first + i + j, m += set[i + j] != 0;
    if (m > most - found) m = most - found;
    for (int64_t j = 0; j < m; j++) at[found + j] = chosen[j];
    found += m;
  }
  for (; i < n; i++)
    if (set[i] && found < most) at[found++] = first + i;
  return found;
}

const mt_select_loops MT_ISA_NAME(mt_select) = {
    count, {select_1, select_2, select_4, select_8}, positions};
