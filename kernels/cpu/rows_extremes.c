/* kernels/cpu/rows_extremes.c -- steps of cummax and cummin, for one level of x86-64: the
** last of equal ones; NaN, once met, gives way to another NaN alone. */
#include "kernels/cpu/along.h"

#define PART 64 /* elements looked at at once */

#ifdef __AVX2__
#include <immintrin.h>

/* Of zeros, and these alone, the later one. */
static inline __m256 farther(__m256 before, __m256 x, bool least) {
  return least ? _mm256_min_ps(before, x) : _mm256_max_ps(before, x);
}

#define EVEN(x)     _mm256_permute_ps(x, _MM_SHUFFLE(2, 2, 0, 0))
#define SECOND(x)   _mm256_permute_ps(x, _MM_SHUFFLE(1, 1, 1, 0))
#define LAST(x, of) _mm256_permute_ps(_mm256_permute2f128_ps(x, x, of), 0xff)
#define FIRST_HALF  0x00
#define OTHER_HALF  0x11
#define INTS(x)     _mm256_castps_si256(x)
#define FLOATS(x)   _mm256_castsi256_ps(x)

static inline __m256 later(__m256 before, __m256 place) {
  return FLOATS(_mm256_max_epi32(INTS(before), INTS(place)));
}

/* PART elements without NaN, eight at a time: of each the extreme up to it, within one
** pair, four, eight; where an element is that extreme, its place. */
static inline __attribute__((always_inline)) void part_f32(bool least, int64_t first,
                                                           const float *x, float *y,
                                                           int64_t *at, float *value,
                                                           int64_t *last) {
  const __m256i before = _mm256_set1_epi64x(*last);
  const __m256i base = _mm256_set1_epi64x(first), none = _mm256_setzero_si256();
  __m256i number = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8);
  __m256 v = _mm256_set1_ps(*value), p = FLOATS(none); /* in this part; 0: before it */
  for (int k = 0; k < PART; k += 8) {
    const __m256 own = _mm256_loadu_ps(x + k);
    __m256 m = farther(EVEN(own), own, least);
    m = farther(SECOND(m), m, least);
    m = farther(_mm256_blend_ps(m, LAST(m, FIRST_HALF), 0xf0), m, least);
    m = farther(v, m, least);
    _mm256_storeu_ps(y + k, m);
    v = LAST(m, OTHER_HALF);
    __m256 q = _mm256_and_ps(_mm256_cmp_ps(own, m, _CMP_EQ_OQ), FLOATS(number));
    q = later(EVEN(q), q);
    q = later(SECOND(q), q);
    q = later(_mm256_blend_ps(q, LAST(q, FIRST_HALF), 0xf0), q);
    q = later(p, q);
    p = LAST(q, OTHER_HALF);
    for (int half = 0; half < 2; half++) {
      const __m128i four =
          half ? _mm256_extracti128_si256(INTS(q), 1) : _mm256_castsi256_si128(INTS(q));
      const __m256i wide = _mm256_cvtepu32_epi64(four);
      const __m256i here = _mm256_add_epi64(wide, base);
      const __m256i is_none = _mm256_cmpeq_epi64(wide, none);
      _mm256_storeu_si256((__m256i *)(at + k + 4 * half),
                          _mm256_blendv_epi8(here, before, is_none));
    }
    number = _mm256_add_epi32(number, _mm256_set1_epi32(8));
  }
  *value = y[PART - 1], *last = at[PART - 1];
}
#endif

#define IS_NAN(x) ((x) != (x))

#define T          float
#define NAME(name) largest_##name##_f32
#define AT_LEAST   >=
#define BEYOND     >
#define START      (-(T)INFINITY)
#ifdef __AVX2__
#define RUN_PART(...) part_f32(false, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef RUN_PART

#define T          double
#define NAME(name) largest_##name##_f64
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef AT_LEAST
#undef BEYOND
#undef START

#define T          float
#define NAME(name) smallest_##name##_f32
#define AT_LEAST   <=
#define BEYOND     <
#define START      ((T)INFINITY)
#ifdef __AVX2__
#define RUN_PART(...) part_f32(true, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef RUN_PART

#define T          double
#define NAME(name) smallest_##name##_f64
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef START
#undef IS_NAN

#define T          int64_t
#define IS_NAN(x)  0
#define NAME(name) smallest_##name##_i64
#define START      INT64_MAX
#include "kernels/cpu/rows_extremes.inc"
#undef NAME
#undef AT_LEAST
#undef BEYOND
#undef START

#define NAME(name) largest_##name##_i64
#define AT_LEAST   >=
#define BEYOND     >
#define START      INT64_MIN
#include "kernels/cpu/rows_extremes.inc"

const mt_along_fn MT_ISA_NAME(mt_largest_steps)[3] = {
    largest_steps_f32, largest_steps_f64, largest_steps_i64};
const mt_along_fn MT_ISA_NAME(mt_smallest_steps)[3] = {
    smallest_steps_f32, smallest_steps_f64, smallest_steps_i64};
