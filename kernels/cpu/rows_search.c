/* kernels/cpu/rows_search.c -- halving a sorted line for several elements at a time,
** which wait for memory together, without a branch, for one level of x86-64. */
#include "kernels/cpu/search.h"

#define LANES 16 /* elements searched for at a time */

/* NaN comes behind all others. */
#define FLOAT_LESS(a, b) (((a) < (b)) | (((b) != (b)) & ((a) == (a))))
#define INT_LESS(a, b)   ((a) < (b))
#define SAME(x)          (x)

/* POSITION: holds the positions of a line. step_*: whether v lies behind w. */
#define SEARCH(T, sfx, V, POSITION, VALUE, LESS)                                     \
  static inline __attribute__((always_inline)) void lanes_##sfx(                     \
      const V *v, int64_t n, const T *line, bool right, int64_t *y, int64_t count) { \
    POSITION at[LANES] = {0};                                                        \
    int64_t left = n;                                                                \
    while (left > 1) {                                                               \
      const int64_t half = left / 2;                                                 \
      const T *middle = line + half - 1;                                             \
      for (int j = 0; j < LANES; j++) {                                              \
        const V w = VALUE(middle[at[j]]);                                            \
        const POSITION behind = right ? !(LESS(v[j], w)) : (LESS(w, v[j]));          \
        at[j] += -behind & (POSITION)half;                                           \
      }                                                                              \
      left -= half;                                                                  \
    }                                                                                \
    for (int64_t j = 0; j < count; j++) {                                            \
      const V w = VALUE(line[at[j]]);                                                \
      y[j] = (int64_t)at[j] + 1 + (right ? !(LESS(v[j], w)) : (LESS(w, v[j])));      \
    }                                                                                \
  }                                                                                  \
  static void search_##sfx(int64_t count, const void *values, int64_t n,             \
                           const void *line, bool right, int64_t *y) {               \
    const T *x = values;                                                             \
    for (int64_t i = 0; i < count; i += LANES) {                                     \
      const int64_t some = count - i < LANES ? count - i : LANES;                    \
      V v[LANES];                                                                    \
      for (int j = 0; j < LANES; j++) v[j] = VALUE(x[j < some ? i + j : i]);         \
      if (right)                                                                     \
        lanes_##sfx(v, n, line, true, y + i, some);                                  \
      else                                                                           \
        lanes_##sfx(v, n, line, false, y + i, some);                                 \
    }                                                                                \
  }
SEARCH(float, f32, float, int64_t, SAME, FLOAT_LESS)
SEARCH(double, f64, double, int64_t, SAME, FLOAT_LESS)
SEARCH(uint16_t, f16, float, int64_t, mt_f16_to_f32, FLOAT_LESS)
SEARCH(uint16_t, bf16, float, int64_t, mt_bf16_to_f32, FLOAT_LESS)
SEARCH(int64_t, i64, int64_t, int64_t, SAME, INT_LESS)
SEARCH(int32_t, i32, int32_t, int64_t, SAME, INT_LESS)
SEARCH(int16_t, i16, int16_t, int64_t, SAME, INT_LESS)
SEARCH(int8_t, i8, int8_t, int64_t, SAME, INT_LESS)
SEARCH(uint8_t, u8, uint8_t, int64_t, SAME, INT_LESS)

const mt_search_fn MT_ISA_NAME(mt_searches)[MT_NDTYPES] = {
    [MT_F32] = search_f32,   [MT_F64] = search_f64, [MT_F16] = search_f16,
    [MT_BF16] = search_bf16, [MT_I64] = search_i64, [MT_I32] = search_i32,
    [MT_I16] = search_i16,   [MT_I8] = search_i8,   [MT_U8] = search_u8,
    [MT_BOOL] = search_u8};
