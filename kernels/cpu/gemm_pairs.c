/* kernels/cpu/gemm_pairs.c -- products of bfloat16 by instructions that multiply and add
** pairs of them (AVX512_BF16): a pair, adjacent in k, is a word of a packed panel. */
#include <immintrin.h>
#include "kernels/cpu/gemm.h"

#pragma GCC target("arch=x86-64-v4,avx512bf16")
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the parts serve */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
#define VECTOR      64 /* bytes */
#define MR          12
#define NAME(x)     JOIN(x, SUFFIX)
#define V           NAME(vec)
#define VU          NAME(vec_unaligned)
#define VI          NAME(vec_word)
#define LANES       16
#define VH          NAME(half)
#define VIH         NAME(half_word)
#define HALF        (LANES / 2)
#define NR          (2 * LANES)

#define T      float /* of c; of panels, two bfloat16 */
#define WORD   int32_t
#define SUFFIX pairs
#define ADD_PRODUCT(sum, a, b) \
  ((V)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b)))
#include "kernels/cpu/gemm_block.inc"

/* Words as they lie in memory, at any even address. */
typedef uint32_t word __attribute__((aligned(2), may_alias));
typedef float words __attribute__((vector_size(64), aligned(2), may_alias));
typedef float few_words __attribute__((vector_size(32), aligned(2), may_alias));
#define OF(x) JOIN(x, words)
#define S     word
static inline V load_words(const word *p) { return *(const words *)p; }
static inline VH load_half_words(const word *p) { return *(const few_words *)p; }
static inline float one_words(word x) { return mt_bits_f32(x); }
#include "kernels/cpu/gemm_pack.inc"

static inline uint32_t pair(uint16_t low, uint16_t high) {
  return low | (uint32_t)high << 16;
}

/* The first `count` of 16 at each of two places, as pairs; second NULL: zeros. */
static inline __m512i pairs_of(const uint16_t *first, const uint16_t *second,
                               int64_t count) {
  const __mmask16 mask = (__mmask16)((1u << count) - 1);
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first));
  if (!second) return low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* Pairs from `q` on of `width` columns, panels' columns `wide` apart: element (p, j) at
** from[p * ps + j * js]. */
static void pack_any(int64_t q, int64_t k, int64_t width, int64_t wide,
                     const uint16_t *from, int64_t ps, int64_t js, uint32_t *to) {
  for (; 2 * q < k; q++)
    for (int64_t j = 0; j < wide; j++) {
      const uint16_t *at = from + 2 * q * ps + j * js;
      to[q * wide + j] =
          j < width ? pair(at[0], 2 * q + 1 < k ? at[ps] : (uint16_t)0) : 0;
    }
}

static void pack_a_pairs(int64_t m, int64_t k, const void *a, int64_t rs, int64_t cs,
                         void *dst) {
  uint32_t *d = dst;
  for (int64_t i = 0; i < m; i += MR, d += (k + 1) / 2 * MR) {
    const uint16_t *from = (const uint16_t *)a + i * rs;
    const int64_t rows = mt_min(m - i, MR);
    int64_t q = 0;
    if (cs == 1 && rs % 2 == 0) {
      q = k / 2;
      pack_a_words(rows, q, from, rs / 2, 1, d);
    } else if (rs == 1) {
      for (; 2 * q < k; q++) {
        const uint16_t *at = from + 2 * q * cs;
        _mm512_mask_storeu_epi32(d + q * MR, (1u << MR) - 1,
                                 pairs_of(at, 2 * q + 1 < k ? at + cs : NULL, rows));
      }
    }
    pack_any(q, k, rows, MR, from, cs, rs, d);
  }
}

static void pack_b_pairs(int64_t k, int64_t n, const void *b, int64_t rs, int64_t cs,
                         void *dst) {
  uint32_t *d = dst;
  for (int64_t j = 0; j < n; j += NR, d += (k + 1) / 2 * NR) {
    const uint16_t *from = (const uint16_t *)b + j * cs;
    const int64_t columns = mt_min(n - j, NR);
    int64_t q = 0;
    if (cs == 1) {
      const int64_t first = mt_min(columns, LANES), second = columns - first;
      for (; 2 * q < k; q++) {
        const uint16_t *at = from + 2 * q * rs;
        const uint16_t *next = 2 * q + 1 < k ? at + rs : NULL;
        _mm512_store_si512(d + q * NR, pairs_of(at, next, first));
        _mm512_store_si512(d + q * NR + LANES,
                           pairs_of(at + first, next ? next + first : NULL, second));
      }
    } else if (rs == 1 && cs % 2 == 0) {
      q = k / 2;
      pack_b_words(q, columns, from, 1, cs / 2, d);
    }
    pack_any(q, k, columns, NR, from, rs, cs, d);
  }
}

static void pack_windows_pairs(int64_t k, int64_t n, const void *x, const int64_t *koff,
                               const int64_t *joff, void *dst) {
  const uint16_t *from = x;
  for (int64_t j = 0; j < n; j += LANES) {
    uint32_t *d = (uint32_t *)dst + j / NR * NR * ((k + 1) / 2) + j % NR;
    const int64_t columns = mt_min(n - j, LANES);
    const bool adjacent = joff[j + columns - 1] - joff[j] == columns - 1;
    for (int64_t p = 0; p < k; p += 2, d += NR) {
      const uint16_t *at = from + koff[p],
                     *next = p + 1 < k ? from + koff[p + 1] : NULL;
      if (adjacent) {
        _mm512_store_si512(
            d, pairs_of(at + joff[j], next ? next + joff[j] : NULL, columns));
        continue;
      }
      for (int64_t c = 0; c < columns; c++)
        d[c] = pair(at[joff[j + c]], next ? next[joff[j + c]] : (uint16_t)0);
      for (int64_t c = columns; c < LANES; c++) d[c] = 0;
    }
  }
}

const mt_gemm_isa mt_gemm_pairs = {.mr = MR,
                                   .nr = NR,
                                   .depth = 2,
                                   .pack_a = pack_a_pairs,
                                   .pack_b = pack_b_pairs,
                                   .block = block_pairs,
                                   .pack_windows = pack_windows_pairs,
                                   .add_windows = add_windows_pairs};
