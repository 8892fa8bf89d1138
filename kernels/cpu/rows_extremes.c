/* kernels/cpu/rows_extremes.c -- steps of cummax and cummin, for one level of x86-64: the
** last of equal ones; NaN, once met, gives way to another NaN alone. */
#include "kernels/cpu/along.h"
#include "kernels/cpu/past.h"

#define PART   64 /* elements looked at at once */
#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX2__
/* PART elements without NaN, a vector at a time: of each the extreme up to it, within one
** pair, four, eight; where an element is that extreme, its place, and the largest place
** up to it. Of zeros, and these alone, max and min give the later one. */

/* ---- eight of 32 bits ---- */
INLINE __m256 farther(__m256 before, __m256 x, bool least) {
  return least ? _mm256_min_ps(before, x) : _mm256_max_ps(before, x);
}

#define EVEN(x)     _mm256_permute_ps(x, _MM_SHUFFLE(2, 2, 0, 0))
#define SECOND(x)   _mm256_permute_ps(x, _MM_SHUFFLE(1, 1, 1, 0))
#define LAST(x, of) _mm256_permute_ps(_mm256_permute2f128_ps(x, x, of), 0xff)
#define FIRST_HALF  0x00
#define OTHER_HALF  0x11
#define INTS(x)     _mm256_castps_si256(x)
#define FLOATS(x)   _mm256_castsi256_ps(x)

INLINE __m256 later(__m256 before, __m256 place) {
  return FLOATS(_mm256_max_epi32(INTS(before), INTS(place)));
}

INLINE void part_f32(bool least, int64_t first, const float *x, float *y, int64_t *at,
                     float *value, int64_t *last, bool past) {
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
    mt_put(y + k, &m, 32, past);
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
      const __m256i place = _mm256_blendv_epi8(here, before, is_none);
      mt_put(at + k + 4 * half, &place, 32, past);
    }
    number = _mm256_add_epi32(number, _mm256_set1_epi32(8));
  }
  const int here = _mm_cvtsi128_si32(_mm256_castsi256_si128(INTS(p)));
  *value = _mm256_cvtss_f32(v), *last = here > 0 ? first + here : *last;
}

/* ---- four of 64 bits; places are float64, as these have a maximum ---- */
INLINE __m256d farther_f64(__m256d before, __m256d x, bool least) {
  return least ? _mm256_min_pd(before, x) : _mm256_max_pd(before, x);
}
INLINE __m256d equal_f64(__m256d a, __m256d b) {
  return _mm256_cmp_pd(a, b, _CMP_EQ_OQ);
}

#define WORDS(x)   _mm256_castpd_si256(x)
#define DOUBLES(x) _mm256_castsi256_pd(x)

INLINE __m256d farther_i64(__m256d before, __m256d x, bool least) {
  const __m256i less = least ? _mm256_cmpgt_epi64(WORDS(x), WORDS(before))
                             : _mm256_cmpgt_epi64(WORDS(before), WORDS(x));
  return _mm256_blendv_pd(x, before, DOUBLES(less));
}
INLINE __m256d equal_i64(__m256d a, __m256d b) {
  return DOUBLES(_mm256_cmpeq_epi64(WORDS(a), WORDS(b)));
}

#define FIRST_OF_PAIR(x)  _mm256_movedup_pd(x)
#define SECOND_OF_FOUR(x) _mm256_permute4x64_pd(x, _MM_SHUFFLE(1, 1, 1, 0))
#define LAST_OF_FOUR(x)   _mm256_permute4x64_pd(x, 0xff)

#define WIDE_PART(T, sfx)                                                          \
  INLINE void part_##sfx(bool least, int64_t first, const T *x, T *y, int64_t *at, \
                         T *value, int64_t *last, bool past) {                     \
    const __m256d big =                                                            \
        _mm256_set1_pd(0x1p52); /* plus a place: that in the low bits */           \
    const __m256i before = _mm256_set1_epi64x(*last);                              \
    const __m256i base = _mm256_sub_epi64(_mm256_set1_epi64x(first), WORDS(big));  \
    const __m256d none = _mm256_setzero_pd();                                      \
    __m256d number = _mm256_setr_pd(1, 2, 3, 4), p = none, v;                      \
    v = _mm256_broadcast_sd((const double *)value);                                \
    for (int k = 0; k < PART; k += 4) {                                            \
      const __m256d own = _mm256_loadu_pd((const double *)(x + k));                \
      __m256d m = farther_##sfx(FIRST_OF_PAIR(own), own, least);                   \
      m = farther_##sfx(SECOND_OF_FOUR(m), m, least);                              \
      m = farther_##sfx(v, m, least);                                              \
      mt_put(y + k, &m, 32, past);                                                 \
      v = LAST_OF_FOUR(m);                                                         \
      __m256d q = _mm256_and_pd(equal_##sfx(own, m), number);                      \
      q = _mm256_max_pd(FIRST_OF_PAIR(q), q);                                      \
      q = _mm256_max_pd(SECOND_OF_FOUR(q), q);                                     \
      q = _mm256_max_pd(p, q);                                                     \
      p = LAST_OF_FOUR(q);                                                         \
      const __m256i here = _mm256_add_epi64(WORDS(_mm256_add_pd(q, big)), base);   \
      const __m256d is_none = _mm256_cmp_pd(q, none, _CMP_EQ_OQ);                  \
      const __m256i place = _mm256_blendv_epi8(here, before, WORDS(is_none));      \
      mt_put(at + k, &place, 32, past);                                            \
      number = _mm256_add_pd(number, _mm256_set1_pd(4));                           \
    }                                                                              \
    const int64_t here = (int64_t)_mm256_cvtsd_f64(p);                             \
    _mm_storel_pd((double *)value, _mm256_castpd256_pd128(v));                     \
    *last = here > 0 ? first + here : *last;                                       \
  }
WIDE_PART(double, f64)
WIDE_PART(int64_t, i64)
#endif

/* ---- all types, the largest and the smallest ---- */
#define AT_LEAST >=
#define BEYOND   >
#define BELOW    <

#define IS_NAN(x)  ((x) != (x))
#define START      (-(T)INFINITY)
#define T          float
#define NAME(name) largest_##name##_f32
#ifdef __AVX2__
#define RUN_PART(...) part_f32(false, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef RUN_PART

#define T          double
#define NAME(name) largest_##name##_f64
#ifdef __AVX2__
#define RUN_PART(...) part_f64(false, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef RUN_PART
#undef IS_NAN
#undef START

#define IS_NAN(x)  0
#define START      INT64_MIN
#define T          int64_t
#define NAME(name) largest_##name##_i64
#ifdef __AVX2__
#define RUN_PART(...) part_i64(false, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef NAME
#undef RUN_PART
#undef START
#undef AT_LEAST
#undef BEYOND
#undef BELOW

#define AT_LEAST <=
#define BEYOND   <
#define BELOW    >

#define START      INT64_MAX
#define NAME(name) smallest_##name##_i64
#ifdef __AVX2__
#define RUN_PART(...) part_i64(true, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef RUN_PART
#undef START
#undef IS_NAN

#define IS_NAN(x)  ((x) != (x))
#define START      ((T)INFINITY)
#define T          double
#define NAME(name) smallest_##name##_f64
#ifdef __AVX2__
#define RUN_PART(...) part_f64(true, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"
#undef T
#undef NAME
#undef RUN_PART

#define T          float
#define NAME(name) smallest_##name##_f32
#ifdef __AVX2__
#define RUN_PART(...) part_f32(true, __VA_ARGS__)
#endif
#include "kernels/cpu/rows_extremes.inc"

const mt_along_fn MT_ISA_NAME(mt_largest_steps)[3] = {
    largest_steps_f32, largest_steps_f64, largest_steps_i64};
const mt_along_fn MT_ISA_NAME(mt_smallest_steps)[3] = {
    smallest_steps_f32, smallest_steps_f64, smallest_steps_i64};
