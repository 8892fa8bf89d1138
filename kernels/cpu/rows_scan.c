/* kernels/cpu/rows_scan.c -- steps of cumsum, for one level of x86-64: float32 adds in
** float64, integers in int64.
**
** A line is cut into blocks of MT_SCAN_BLOCK. y = more + (value + the sum within eight
** elements): more is the sum of the blocks before, value that of the eights before in
** this block, from 0. So blocks can be summed by themselves, and sums of what is not
** negative never fall. All levels add in the same order. */
#include "kernels/cpu/along.h"

#define EIGHT 8

typedef double four __attribute__((vector_size(32)));
typedef int64_t places __attribute__((vector_size(32)));

/* Vectors go by address: without AVX they are no arguments. */
#define INLINE static inline __attribute__((always_inline))

/* v[0], v[0] + v[1], (v[0] + v[1]) + v[2], (v[0] + v[1]) + (v[2] + v[3]) */
INLINE void sums_of_four(four *v) {
  const four zero = {0};
  *v += __builtin_shuffle(zero, *v, (places){0, 4, 2, 6});
  *v += __builtin_shuffle(zero, *v, (places){0, 1, 5, 5});
}

INLINE void load_f64(const double *x, four *v) { memcpy(v, x, sizeof *v); }
INLINE void store_f64(double *y, const four *v) { memcpy(y, v, sizeof *v); }

typedef float four_floats __attribute__((vector_size(16)));
INLINE void load_f32(const float *x, four *v) {
  four_floats f;
  memcpy(&f, x, sizeof f);
#ifdef __AVX__
  *v = (four)__builtin_ia32_cvtps2pd256(
      f); /* else it comes in halves, by way of memory */
#else
  *v = __builtin_convertvector(f, four);
#endif
}
INLINE void store_f32(float *y, const four *v) {
  const four_floats f = __builtin_convertvector(*v, four_floats);
  memcpy(y, &f, sizeof f);
}

/* Begin a line, or take the block before into what went before. */
#define BEGIN_BLOCK(F)                              \
  if (first == 0) s->value[0].F = s->more[0].F = 0; \
  if (first % MT_SCAN_BLOCK == 0) s->more[0].F += s->value[0].F, s->value[0].F = 0;

#define LAST(v) __builtin_shuffle(v, (places){3, 3, 3, 3})

#define FLOAT_STEPS(T, sfx)                                                   \
  INLINE void eight_##sfx(const T *x, T *y, const four *more, four *value) {  \
    four a, b;                                                                \
    load_##sfx(x, &a);                                                        \
    load_##sfx(x + 4, &b);                                                    \
    sums_of_four(&a);                                                         \
    sums_of_four(&b);                                                         \
    b += LAST(a);                                                             \
    const four end = *value + LAST(b);                                        \
    if (y) {                                                                  \
      a = *more + (*value + a);                                               \
      b = *more + (*value + b);                                               \
      store_##sfx(y, &a);                                                     \
      store_##sfx(y + 4, &b);                                                 \
    }                                                                         \
    *value = end;                                                             \
  }                                                                           \
  INLINE void eights_##sfx(int64_t n, const T *x, T *y, const four *more,     \
                           four *value) {                                     \
    int64_t i = 0;                                                            \
    for (; i + EIGHT <= n; i += EIGHT)                                        \
      eight_##sfx(x + i, y ? y + i : NULL, more, value);                      \
    if (i == n) return;                                                       \
    T rest[EIGHT] = {0}, sums[EIGHT];                                         \
    memcpy(rest, x + i, (size_t)(n - i) * sizeof(T));                         \
    eight_##sfx(rest, sums, more, value);                                     \
    if (y) memcpy(y + i, sums, (size_t)(n - i) * sizeof(T));                  \
  }                                                                           \
  static void sum_##sfx(int64_t n, bool along, int64_t first, char *const *p, \
                        mt_along_state *s) {                                  \
    const T *x = (const T *)p[MT_ALONG_X];                                    \
    T *y = (T *)p[MT_ALONG_Y];                                                \
    double *sums = &s->value[0].f;                                            \
    if (!along) {                                                             \
      if (first == 0) memset(sums, 0, (size_t)n * sizeof *sums);              \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =             \
          (T)(sums[i] += (double)x[i]);                                       \
      return;                                                                 \
    }                                                                         \
    BEGIN_BLOCK(f)                                                            \
    const double m = s->more[0].f, v = s->value[0].f;                         \
    four more = {m, m, m, m}, value = {v, v, v, v};                           \
    if (y)                                                                    \
      eights_##sfx(n, x, y, &more, &value);                                   \
    else                                                                      \
      eights_##sfx(n, x, NULL, &more, &value);                                \
    s->value[0].f = value[0];                                                 \
  }
FLOAT_STEPS(float, f32)
FLOAT_STEPS(double, f64)

static void sum_i64(int64_t n, bool along, int64_t first, char *const *p,
                    mt_along_state *s) {
  const int64_t *x = (const int64_t *)p[MT_ALONG_X];
  int64_t *y = (int64_t *)p[MT_ALONG_Y], *sums = &s->value[0].i;
  if (!along) {
    if (first == 0) memset(sums, 0, (size_t)n * sizeof *sums);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = sums[i] += x[i];
    return;
  }
  BEGIN_BLOCK(i)
  const int64_t more = s->more[0].i;
  int64_t sum = more + s->value[0].i;
  if (y)
    for (int64_t i = 0; i < n; i++) y[i] = sum += x[i];
  else
    for (int64_t i = 0; i < n; i++) sum += x[i];
  s->value[0].i = sum - more;
}

const mt_along_fn MT_ISA_NAME(mt_scan_steps)[3] = {sum_f32, sum_f64, sum_i64};
