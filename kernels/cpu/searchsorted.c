/* kernels/cpu/searchsorted.c -- where elements go in sorted lines, by halving. */
#include "kernels/cpu/cpu.h"

typedef struct search {
  const mt_call *call;
  int64_t n, m; /* elements of a sorted line, of a line of x; lines if x has several */
  bool right, shared; /* behind equal ones; one sorted line for all */
} search;

/* NaN comes behind all others. */
#define FLOAT_LESS(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define INT_LESS(a, b)   ((a) < (b))
#define SAME(x)          (x)

#define SEARCH(T, sfx, VALUE, LESS)                                   \
  static void search_##sfx(void *context, int64_t lo, int64_t hi) {   \
    const search *s = context;                                        \
    const T *sorted = (const T *)s->call->in[0]->data;                \
    const T *x = (const T *)s->call->in[1]->data;                     \
    int64_t *y = (int64_t *)s->call->out[0]->data;                    \
    for (int64_t i = lo; i < hi; i++) {                               \
      const T *line = s->shared ? sorted : sorted + i / s->m * s->n;  \
      const __typeof__(VALUE(*x)) v = VALUE(x[i]);                    \
      int64_t from = 0, count = s->n;                                 \
      while (count > 0) {                                             \
        const int64_t half = count / 2;                               \
        const __typeof__(VALUE(*x)) w = VALUE(line[from + half]);     \
        const bool goes_on = s->right ? !(LESS(v, w)) : (LESS(w, v)); \
        from = goes_on ? from + half + 1 : from;                      \
        count = goes_on ? count - half - 1 : half;                    \
      }                                                               \
      y[i] = from + 1;                                                \
    }                                                                 \
  }
SEARCH(float, f32, SAME, FLOAT_LESS)
SEARCH(double, f64, SAME, FLOAT_LESS)
SEARCH(uint16_t, f16, mt_f16_to_f32, FLOAT_LESS)
SEARCH(uint16_t, bf16, mt_bf16_to_f32, FLOAT_LESS)
SEARCH(int64_t, i64, SAME, INT_LESS)
SEARCH(int32_t, i32, SAME, INT_LESS)
SEARCH(int16_t, i16, SAME, INT_LESS)
SEARCH(int8_t, i8, SAME, INT_LESS)
SEARCH(uint8_t, u8, SAME, INT_LESS)

static mt_status searchsorted_run(const mt_call *call) {
  static const mt_range_fn by_dtype[MT_NDTYPES] = {
      [MT_F32] = search_f32,   [MT_F64] = search_f64, [MT_F16] = search_f16,
      [MT_BF16] = search_bf16, [MT_I64] = search_i64, [MT_I32] = search_i32,
      [MT_I16] = search_i16,   [MT_I8] = search_i8,   [MT_U8] = search_u8,
      [MT_BOOL] = search_u8};
  const mt_view *sorted = call->in[0], *x = call->in[1];
  search s = {.call = call,
              .n = sorted->shape[sorted->ndim - 1],
              .m = x->ndim ? x->shape[x->ndim - 1] : 1,
              .right = call->attr[0].i[0] != 0,
              .shared = sorted->ndim == 1};
  int64_t steps = 1;
  while (s.n >> steps) steps++;
  mt_cpu_parallel_for(call, mt_cpu_numel(x), mt_cpu_grain(4 * steps),
                      by_dtype[sorted->dtype], &s);
  return MT_OK;
}

extern const mt_entry mt_cpu_searchsorted;
const mt_entry mt_cpu_searchsorted = {searchsorted_run, NULL, MT_ALL_MASK, 3};
