/* kernels/cpu/masked_select.c -- the elements where a mask is true, in order. */
#include "kernels/cpu/cpu.h"

#define MOST_PARTS 64

typedef struct selection {
  const mt_call *call;
  int64_t n, parts, count;
  int64_t before[MOST_PARTS]; /* how many a part has, then how many lie before it */
} selection;

static int64_t begin_of(const selection *s, int64_t part) {
  return s->n * part / s->parts;
}

static void count_parts(void *context, int64_t lo, int64_t hi) {
  selection *s = context;
  const uint8_t *mask = (const uint8_t *)s->call->in[1]->data;
  for (int64_t part = lo; part < hi; part++) {
    int64_t sum = 0;
    for (int64_t i = begin_of(s, part), end = begin_of(s, part + 1); i < end;) {
      const int64_t stop = end - i < 128 ? end : i + 128;
      uint8_t few = 0; /* at most 128 */
      for (; i < stop; i++) few = (uint8_t)(few + (mask[i] != 0));
      sum += few;
    }
    s->before[part] = sum;
  }
}

/* Eight elements at a time, by way of a buffer, so that none is written beyond the
** part's own. */
#define SELECT(T, sfx)                                                           \
  static void select_##sfx(void *context, int64_t lo, int64_t hi) {              \
    const selection *s = context;                                                \
    const uint8_t *mask = (const uint8_t *)s->call->in[1]->data;                 \
    const T *x = (const T *)s->call->in[0]->data;                                \
    for (int64_t part = lo; part < hi; part++) {                                 \
      int64_t i = begin_of(s, part), end = begin_of(s, part + 1);                \
      T *y = (T *)s->call->out[0]->data + s->before[part];                       \
      T *const last = (T *)s->call->out[0]->data + s->count;                     \
      for (; i + 8 <= end; i += 8) {                                             \
        uint64_t eight;                                                          \
        T chosen[9];                                                             \
        int m = 0;                                                               \
        memcpy(&eight, mask + i, 8);                                             \
        if (eight == 0) continue;                                                \
        for (int j = 0; j < 8; j++) chosen[m] = x[i + j], m += mask[i + j] != 0; \
        if (m > last - y) m = (int)(last - y);                                   \
        for (int j = 0; j < m; j++) y[j] = chosen[j];                            \
        y += m;                                                                  \
      }                                                                          \
      for (; i < end; i++)                                                       \
        if (mask[i] && y < last) *y++ = x[i];                                    \
    }                                                                            \
  }
SELECT(uint8_t, 1)
SELECT(uint16_t, 2)
SELECT(uint32_t, 4)
SELECT(uint64_t, 8)

/* _masked_select(x, mask, count) */
static mt_status masked_select_run(const mt_call *call) {
  const mt_view *x = call->in[0];
  selection s = {.call = call, .n = mt_cpu_numel(x), .count = call->attr[0].i[0]};
  if (s.n == 0 || s.count == 0) return MT_OK;
  s.parts = call->num_threads < 2 ? 1 : call->num_threads;
  if (s.parts > MOST_PARTS) s.parts = MOST_PARTS;
  if (s.n / s.parts < MT_GRAIN) s.parts = 1;
  mt_cpu_parallel_for(call, s.parts, 1, count_parts, &s);
  if (mt_stopped(call)) return MT_OK;
  int64_t sum = 0;
  for (int64_t part = 0; part < s.parts; part++) {
    const int64_t count = s.before[part];
    s.before[part] = sum;
    sum += count;
  }
  static const mt_range_fn by_size[] = {
      [1] = select_1, [2] = select_2, [4] = select_4, [8] = select_8};
  mt_cpu_parallel_for(call, s.parts, 1, by_size[mt_cpu_size(x->dtype)], &s);
  return MT_OK;
}

extern const mt_entry mt_cpu__masked_select;
const mt_entry mt_cpu__masked_select = {masked_select_run, NULL, MT_ALL_MASK, 3};
