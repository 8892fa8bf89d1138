/* kernels/cpu/masked_select.c -- the elements where a mask is true, in order: parts count
** theirs, then write them. */
#include "kernels/cpu/select.h"

#define PIECE 65536 /* elements between two looks at call->interrupt */

typedef struct selection {
  const mt_call *call;
  const mt_select_loops *loops;
  int64_t n, parts, count;
  int64_t before[MT_SELECT_PARTS + 1]; /* how many a part has; then those before it */
} selection;

static int64_t begin_of(const selection *s, int64_t part) {
  return s->n * part / s->parts;
}

static void count_parts(void *context, int64_t lo, int64_t hi) {
  selection *s = context;
  const uint8_t *mask = (const uint8_t *)s->call->in[1]->data;
  for (int64_t part = lo; part < hi; part++) {
    const int64_t begin = begin_of(s, part);
    s->before[part] = s->loops->count(begin_of(s, part + 1) - begin, mask + begin);
  }
}

static void select_parts(void *context, int64_t lo, int64_t hi) {
  const selection *s = context;
  const mt_view *x = s->call->in[0];
  const uint8_t *mask = (const uint8_t *)s->call->in[1]->data;
  const int64_t size = mt_cpu_size(x->dtype);
  const mt_select_fn select = s->loops->select[__builtin_ctz((unsigned)size)];
  for (int64_t part = lo; part < hi; part++) {
    const int64_t end = begin_of(s, part + 1);
    int64_t found = s->before[part];
    for (int64_t i = begin_of(s, part); i < end && !mt_stopped(s->call); i += PIECE)
      found +=
          select(end - i < PIECE ? end - i : PIECE, mask + i, x->data + i * size,
                 s->call->out[0]->data + found * size, s->before[part + 1] - found);
  }
}

/* _masked_select(x, mask, count) */
static mt_status masked_select_run(const mt_call *call) {
  const mt_view *x = call->in[0];
  selection s = {.call = call, .loops = MT_ISA_PICK(mt_select), .n = mt_cpu_numel(x)};
  const int64_t count = call->attr[0].i[0];
  if (s.n == 0 || count == 0) return MT_OK;
  s.parts = mt_select_parts(call, s.n);
  if (s.parts > 1) {
    mt_cpu_parallel_for(call, s.parts, 1, count_parts, &s);
    if (mt_stopped(call)) return MT_OK;
    if (mt_select_before(s.parts, s.before) != count) return MT_OK; /* not the mask's */
  }
  s.before[s.parts] = count;
  mt_cpu_parallel_for(call, s.parts, 1, select_parts, &s);
  return MT_OK;
}

extern const mt_entry mt_cpu__masked_select;
const mt_entry mt_cpu__masked_select = {masked_select_run, NULL, MT_ALL_MASK, 3};
