/* kernels/cpu/rows_scan.c -- steps of cumsum, for one level of x86-64: float32 adds in
** float64, integers in int64.
**
** A line is cut into blocks of MT_SCAN_BLOCK. y = more + (value + the sum within eight
** elements): more is the sum of the blocks before, value that of the eights before in
** this block, from 0. So blocks can be summed by themselves, and sums of what is not
** negative never fall. All levels add in the same order.
**
** Stores that pass the caches stand in the loop itself, beside fetches of what comes
** later: memory works while sums are formed. */
#include "kernels/cpu/along.h"
#include "kernels/cpu/four.h"

#define EIGHT  8
#define INLINE MT_INLINE

#ifdef __AVX512F__ /* ---- eight in a register ---- */
typedef __m512d vector;

INLINE void spread(double x, vector *v) { *v = _mm512_set1_pd(x); }
INLINE double one_of(const vector *v) { return _mm512_cvtsd_f64(*v); }

/* The sums of one, two, four, and of eight: each adds what the half before came to. */
INLINE void sums_within(vector *v, bool back) {
  const vector zero = _mm512_setzero_pd();
  *v += back ? _mm512_unpackhi_pd(*v, zero) : _mm512_unpacklo_pd(zero, *v);
  *v += back ? _mm512_maskz_permutex_pd(0x33, *v, 0xaa)
             : _mm512_maskz_permutex_pd(0xcc, *v, 0x55);
  *v += back ? _mm512_maskz_permutexvar_pd(0x0f, _mm512_set1_epi64(4), *v)
             : _mm512_maskz_permutexvar_pd(0xf0, _mm512_set1_epi64(3), *v);
}

INLINE void load_f64(const double *x, vector *v) { *v = _mm512_loadu_pd(x); }
INLINE void load_f32(const float *x, vector *v) {
  *v = _mm512_cvtps_pd(_mm256_loadu_ps(x));
}
INLINE void store_f64(double *y, const vector *v, bool past) {
  if (past)
    _mm512_stream_pd(y, *v);
  else
    _mm512_storeu_pd(y, *v);
}
INLINE void store_f32(float *y, const vector *v, bool past) {
  const __m256 f = _mm512_cvtpd_ps(*v);
  if (past)
    _mm256_stream_ps(y, f);
  else
    _mm256_storeu_ps(y, f);
}

#define EIGHT_SUMS(T, sfx)                                                        \
  INLINE void eight_##sfx(const T *x, T *y, const vector *more, vector *value,    \
                          bool back, bool past) {                                 \
    vector v;                                                                     \
    load_##sfx(x, &v);                                                            \
    sums_within(&v, back);                                                        \
    const vector all = _mm512_permutexvar_pd(_mm512_set1_epi64(back ? 0 : 7), v); \
    v = *more + (*value + v);                                                     \
    store_##sfx(y, &v, past);                                                     \
    *value += all;                                                                \
  }
#else /* ---- four in a register, or in two ---- */
typedef mt_four vector;
#define spread    mt_four_spread
#define one_of    mt_four_first
#define places    mt_four_places
#define load_f32  mt_four_load_f32
#define load_f64  mt_four_load_f64
#define store_f32 mt_four_store_f32
#define store_f64 mt_four_store_f64

/* v[0], v[0] + v[1], (v[0] + v[1]) + v[2], (v[0] + v[1]) + (v[2] + v[3]); back: the
** same from v[3] on. */
INLINE void sums_within(vector *v, bool back) {
  const vector zero = {0};
  *v += back ? __builtin_shuffle(zero, *v, (places){5, 0, 7, 0})
             : __builtin_shuffle(zero, *v, (places){0, 4, 2, 6});
  *v += back ? __builtin_shuffle(zero, *v, (places){6, 6, 0, 0})
             : __builtin_shuffle(zero, *v, (places){0, 1, 5, 5});
}

#define LAST(v, back)                                  \
  ((back) ? __builtin_shuffle(v, (places){0, 0, 0, 0}) \
          : __builtin_shuffle(v, (places){3, 3, 3, 3}))

#define EIGHT_SUMS(T, sfx)                                                     \
  INLINE void eight_##sfx(const T *x, T *y, const vector *more, vector *value, \
                          bool back, bool past) {                              \
    const int first = back ? 4 : 0, then = 4 - first;                          \
    vector a, b;                                                               \
    load_##sfx(x + first, &a);                                                 \
    load_##sfx(x + then, &b);                                                  \
    sums_within(&a, back);                                                     \
    sums_within(&b, back);                                                     \
    b += LAST(a, back);                                                        \
    const vector end = *value + LAST(b, back);                                 \
    a = *more + (*value + a);                                                  \
    b = *more + (*value + b);                                                  \
    store_##sfx(y + first, &a, past);                                          \
    store_##sfx(y + then, &b, past);                                           \
    *value = end;                                                              \
  }
#endif

/* Eight in pairs of pairs, which is their last sum, in both directions. */
#ifdef __AVX__
INLINE double sum_of_eight(__m256d a, __m256d b) {
  const __m256d pairs = _mm256_hadd_pd(a, b);
  const __m128d fours =
      _mm_add_pd(_mm256_castpd256_pd128(pairs), _mm256_extractf128_pd(pairs, 1));
  return _mm_cvtsd_f64(_mm_add_sd(fours, _mm_unpackhi_pd(fours, fours)));
}
INLINE double sum_f64_eight(const double *x) {
  return sum_of_eight(_mm256_loadu_pd(x), _mm256_loadu_pd(x + 4));
}
INLINE double sum_f32_eight(const float *x) {
  return sum_of_eight(_mm256_cvtps_pd(_mm_loadu_ps(x)),
                      _mm256_cvtps_pd(_mm_loadu_ps(x + 4)));
}
#else
#define SUM_OF_FOUR(x) \
  (((double)(x)[0] + (double)(x)[1]) + ((double)(x)[2] + (double)(x)[3]))
INLINE double sum_f64_eight(const double *x) {
  return SUM_OF_FOUR(x) + SUM_OF_FOUR(x + 4);
}
INLINE double sum_f32_eight(const float *x) {
  return SUM_OF_FOUR(x) + SUM_OF_FOUR(x + 4);
}
#endif

/* Begin a line, or take the block before into what went before. */
#define BEGIN_BLOCK(F)                              \
  if (first == 0) s->value[0].F = s->more[0].F = 0; \
  if (first % MT_SCAN_BLOCK == 0) s->more[0].F += s->value[0].F, s->value[0].F = 0;

/* x and y: the first elements, the next ones before them if `back`. few: less than eight,
** added in the same order. */
#define FLOAT_STEPS(T, sfx)                                                           \
  EIGHT_SUMS(T, sfx)                                                                  \
  INLINE void few_##sfx(int64_t n, const T *x, T *y, mt_along_state *s, bool back) {  \
    const double more = s->more[0].f, value = s->value[0].f;                          \
    double two = 0, four = 0, eight = 0, pair = 0, half = 0;                          \
    for (int64_t i = 0; i < n; i++) {                                                 \
      const int64_t at = back ? -i : i;                                               \
      two = i & 1 ? two + (double)x[at] : (double)x[at];                              \
      four = i & 2 ? pair + two : two;                                                \
      eight = i & 4 ? half + four : four;                                             \
      if (i % 4 == 1) pair = two;                                                     \
      if (i == 3) half = four;                                                        \
      y[at] = (T)(more + (value + eight));                                            \
    }                                                                                 \
    s->value[0].f = value + eight;                                                    \
  }                                                                                   \
  INLINE void eights_##sfx(int64_t n, const T *x, T *y, mt_along_state *s, bool back, \
                           bool past) {                                               \
    vector more, value;                                                               \
    spread(s->more[0].f, &more);                                                      \
    spread(s->value[0].f, &value);                                                    \
    const int64_t step = back ? -EIGHT : EIGHT;                                       \
    int64_t i = 0, at = back ? 1 - EIGHT : 0;                                         \
    for (; i + EIGHT <= n; i += EIGHT, at += step) {                                  \
      if (past) mt_fetch_ahead(x + at, back);                                         \
      eight_##sfx(x + at, y + at, &more, &value, back, past);                         \
    }                                                                                 \
    s->value[0].f = one_of(&value);                                                   \
    if (i < n) {                                                                      \
      const int64_t first = back ? -i : i;                                            \
      few_##sfx(n - i, x + first, y + first, s, back);                                \
    }                                                                                 \
  }                                                                                   \
  static double only_sum_##sfx(int64_t n, const T *x, double sum, bool back) {        \
    const int64_t step = back ? -EIGHT : EIGHT;                                       \
    int64_t i = 0;                                                                    \
    for (x += back ? 1 - EIGHT : 0; i + EIGHT <= n; i += EIGHT, x += step) {          \
      mt_fetch_ahead(x, back);                                                        \
      sum += sum_##sfx##_eight(x);                                                    \
    }                                                                                 \
    if (i < n) {                                                                      \
      T rest[EIGHT] = {0};                                                            \
      const int64_t left = n - i, skip = back ? EIGHT - left : 0;                     \
      memcpy(rest + skip, x + skip, (size_t)left * sizeof(T));                        \
      sum += sum_##sfx##_eight(rest);                                                 \
    }                                                                                 \
    return sum;                                                                       \
  }                                                                                   \
  static void sum_##sfx(int64_t n, int how, int64_t first, char *const *p,            \
                        mt_along_state *s) {                                          \
    const T *x = (const T *)p[MT_ALONG_X];                                            \
    T *y = (T *)p[MT_ALONG_Y];                                                        \
    double *sums = &s->value[0].f;                                                    \
    if (!how) {                                                                       \
      if (first == 0) memset(sums, 0, (size_t)n * sizeof *sums);                      \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =                     \
          (T)(sums[i] += (double)x[i]);                                               \
      return;                                                                         \
    }                                                                                 \
    BEGIN_BLOCK(f)                                                                    \
    const bool back = how & MT_ALONG_BACK, past = how & MT_ALONG_PAST;                \
    if (!y)                                                                           \
      *sums = only_sum_##sfx(n, x, *sums, back);                                      \
    else if (n < EIGHT)                                                               \
      few_##sfx(n, x, y, s, back);                                                    \
    else if (past)                                                                    \
      back ? eights_##sfx(n, x, y, s, true, true)                                     \
           : eights_##sfx(n, x, y, s, false, true);                                   \
    else                                                                              \
      back ? eights_##sfx(n, x, y, s, true, false)                                    \
           : eights_##sfx(n, x, y, s, false, false);                                  \
  }
FLOAT_STEPS(float, f32)
FLOAT_STEPS(double, f64)

INLINE void whole_sums(int64_t n, const int64_t *x, int64_t *y, int64_t step,
                       mt_along_state *s, bool past) {
  const int64_t more = s->more[0].i;
  int64_t sum = more + s->value[0].i;
  for (int64_t i = 0; i < n; i++, x += step) {
    sum += *x;
    if (past && i % EIGHT == 0) mt_fetch_ahead(x, step < 0);
    if (y) mt_put_word(y + i * step, sum, past);
  }
  s->value[0].i = sum - more;
}

static void sum_i64(int64_t n, int how, int64_t first, char *const *p,
                    mt_along_state *s) {
  const int64_t *x = (const int64_t *)p[MT_ALONG_X];
  int64_t *y = (int64_t *)p[MT_ALONG_Y], *sums = &s->value[0].i;
  if (!how) {
    if (first == 0) memset(sums, 0, (size_t)n * sizeof *sums);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = sums[i] += x[i];
    return;
  }
  BEGIN_BLOCK(i)
  const int64_t step = how & MT_ALONG_BACK ? -1 : 1;
  if (!y)
    whole_sums(n, x, NULL, step, s, false);
  else if (how & MT_ALONG_PAST)
    whole_sums(n, x, y, step, s, true);
  else
    whole_sums(n, x, y, step, s, false);
}

const mt_along_fn MT_ISA_NAME(mt_scan_steps)[3] = {sum_f32, sum_f64, sum_i64};
