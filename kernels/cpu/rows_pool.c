/* kernels/cpu/rows_pool.c -- 2 x 2 windows without branches, for one level of x86-64. */
#include "kernels/cpu/pool.h"

#define ROW_PARAMETERS(T) \
  int64_t n, int64_t w, int64_t at, const T *upper, const T *lower, T *y, int64_t *mask

/* A row of at least `lanes` windows, so many at once; what is left over is done by a last
** step that overlaps. WORD: an integer of T's size, since comparisons give 0 or -1. */
#define MAX_STEPS(name, T, WORD, lanes, ...)                                           \
  typedef T name##_v                                                                   \
      __attribute__((vector_size(lanes * sizeof(T)), may_alias, aligned(sizeof(T))));  \
  typedef WORD name##_w __attribute__((vector_size(lanes * sizeof(T))));               \
  typedef int64_t name##_m                                                             \
      __attribute__((vector_size(lanes * 8), may_alias, aligned(8)));                  \
  static inline name##_v name##_pick(name##_w which, name##_v x, name##_v other) {     \
    return (name##_v)(((name##_w)x & which) | ((name##_w)other & ~which));             \
  }                                                                                    \
  static inline name##_w name##_larger(name##_v x, name##_v than) {                    \
    return (x > than) | ((x != x) & (than == than));                                   \
  }                                                                                    \
  static void name(ROW_PARAMETERS(T)) {                                                \
    const name##_w even = {__VA_ARGS__}, odd = even + 1;                               \
    for (int64_t i = 0; i < n; i += lanes) {                                           \
      const int64_t j = i + lanes <= n ? i : n - lanes;                                \
      const T *up = upper + 2 * j, *under = lower + 2 * j;                             \
      const name##_v u0 = *(const name##_v *)up, u1 = *(const name##_v *)(up + lanes); \
      const name##_v l0 = *(const name##_v *)under;                                    \
      const name##_v l1 = *(const name##_v *)(under + lanes);                          \
      const name##_v a = __builtin_shuffle(u0, u1, even);                              \
      const name##_v b = __builtin_shuffle(u0, u1, odd);                               \
      const name##_v c = __builtin_shuffle(l0, l1, even);                              \
      const name##_v d = __builtin_shuffle(l0, l1, odd);                               \
      const name##_w right = name##_larger(b, a), low_right = name##_larger(d, c);     \
      const name##_v top = name##_pick(right, b, a),                                   \
                     low = name##_pick(low_right, d, c);                               \
      const name##_w down = name##_larger(low, top);                                   \
      *(name##_v *)(y + j) = name##_pick(down, low, top);                              \
      const name##_w place = (down & ((WORD)w - low_right)) | (~down & -right);        \
      *(name##_m *)(mask + j) =                                                        \
          __builtin_convertvector(place + even, name##_m) + (at + 2 * j);              \
    }                                                                                  \
  }

MAX_STEPS(max_4_f32, float, int32_t, 4, 0, 2, 4, 6)
MAX_STEPS(max_2_f64, double, int64_t, 2, 0, 2)
#ifdef __AVX2__
MAX_STEPS(max_8_f32, float, int32_t, 8, 0, 2, 4, 6, 8, 10, 12, 14)
MAX_STEPS(max_4_f64, double, int64_t, 4, 0, 2, 4, 6)
#endif

#define MAX_FEW(T, sfx)                                                                \
  static void max_few_##sfx(ROW_PARAMETERS(T)) {                                       \
    for (int64_t i = 0; i < n; i++) {                                                  \
      const T x[4] = {upper[2 * i], upper[2 * i + 1], lower[2 * i], lower[2 * i + 1]}; \
      int best = 0;                                                                    \
      for (int k = 1; k < 4; k++)                                                      \
        if (x[k] > x[best] || (x[k] != x[k] && x[best] == x[best])) best = k;          \
      y[i] = x[best];                                                                  \
      mask[i] = at + 2 * i + (best > 1 ? w + best - 2 : best);                         \
    }                                                                                  \
  }
MAX_FEW(float, f32)
MAX_FEW(double, f64)

static void max_row_f32(ROW_PARAMETERS(float)) {
#ifdef __AVX2__
  if (n >= 8) {
    max_8_f32(n, w, at, upper, lower, y, mask);
    return;
  }
#endif
  if (n >= 4)
    max_4_f32(n, w, at, upper, lower, y, mask);
  else
    max_few_f32(n, w, at, upper, lower, y, mask);
}

static void max_row_f64(ROW_PARAMETERS(double)) {
#ifdef __AVX2__
  if (n >= 4) {
    max_4_f64(n, w, at, upper, lower, y, mask);
    return;
  }
#endif
  if (n >= 2)
    max_2_f64(n, w, at, upper, lower, y, mask);
  else
    max_few_f64(n, w, at, upper, lower, y, mask);
}

const mt_pool_rows MT_ISA_NAME(mt_pool) = {max_row_f32, max_row_f64};
