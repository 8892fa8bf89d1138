/* kernels/cpu/rows_product.c -- steps of cumprod, for one level of x86-64. float32 goes by
** fours, in float64, which holds the product of any four: y = value * the product within
** four elements, value being that of the fours before. float64 and int64 go one by one. */
#include "kernels/cpu/along.h"
#include "kernels/cpu/four.h"

#define FOUR 4

/* v[0], v[0] v[1], (v[0] v[1]) v[2], (v[0] v[1]) (v[2] v[3]) */
MT_INLINE void products_within(mt_four *v) {
  const mt_four one = {1, 1, 1, 1};
  *v *= __builtin_shuffle(one, *v, (mt_four_places){0, 4, 2, 6});
  *v *= __builtin_shuffle(one, *v, (mt_four_places){0, 1, 5, 5});
}

MT_INLINE void four(const float *x, float *y, mt_four *value, bool past) {
  mt_four v;
  mt_four_load_f32(x, &v);
  products_within(&v);
  const mt_four all = __builtin_shuffle(v, (mt_four_places){3, 3, 3, 3});
  v *= *value;
  mt_four_store_f32(y, &v, past);
  *value *= all;
}

MT_INLINE double fours(int64_t n, const float *x, float *y, double before, bool past) {
  mt_four value;
  int64_t i = 0;
  mt_four_spread(before, &value);
  for (; i + FOUR <= n; i += FOUR) {
    if (past) mt_fetch_ahead(x + i, false);
    four(x + i, y + i, &value, past);
  }
  const double last = mt_four_first(&value);
  double all = 1; /* of what is left */
  for (; i < n; i++) {
    all *= (double)x[i];
    y[i] = (float)(last * all);
  }
  return last * all;
}

#define EACH_LINE(T, F, W)                                         \
  if (first == 0)                                                  \
    for (int64_t i = 0; i < (how ? 1 : n); i++) s->value[i].F = 1; \
  if (!how) {                                                      \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =    \
        (T)(s->value[i].F *= (W)x[i]);                             \
    return;                                                        \
  }
#define ONE_BY_ONE(T, sfx, F)                                                  \
  static void product_##sfx(int64_t n, int how, int64_t first, char *const *p, \
                            mt_along_state *s) {                               \
    const T *x = (const T *)p[MT_ALONG_X];                                     \
    T *y = (T *)p[MT_ALONG_Y], value;                                          \
    EACH_LINE(T, F, T)                                                         \
    value = s->value[0].F;                                                     \
    for (int64_t i = 0; i < n; i++) y[i] = value *= x[i];                      \
    s->value[0].F = value;                                                     \
  }
ONE_BY_ONE(double, f64, f)
ONE_BY_ONE(int64_t, i64, i)

static void product_f32(int64_t n, int how, int64_t first, char *const *p,
                        mt_along_state *s) {
  const float *x = (const float *)p[MT_ALONG_X];
  float *y = (float *)p[MT_ALONG_Y];
  EACH_LINE(float, f, double)
  const double value = s->value[0].f;
  s->value[0].f =
      how & MT_ALONG_PAST ? fours(n, x, y, value, true) : fours(n, x, y, value, false);
}

const mt_along_fn MT_ISA_NAME(mt_product_steps)[3] = {product_f32, product_f64,
                                                      product_i64};
