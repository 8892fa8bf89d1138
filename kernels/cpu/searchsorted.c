/* kernels/cpu/searchsorted.c -- where elements go in sorted lines, by halving. */
#include "kernels/cpu/search.h"

typedef struct search {
  const mt_call *call;
  int64_t n, m; /* elements of a sorted line, of a line of x; lines if x has several */
  int64_t size; /* bytes of an element */
  bool right, shared; /* behind equal ones; one sorted line for all */
} search;

static void search_range(void *context, int64_t lo, int64_t hi) {
  const search *s = context;
  const mt_search_fn fn = (*MT_ISA_PICK(mt_searches))[s->call->in[0]->dtype];
  int64_t *const y = (int64_t *)s->call->out[0]->data;
  while (lo < hi) { /* what is searched for in one line */
    const int64_t line = s->shared ? 0 : lo / s->m;
    const int64_t end = s->shared || (line + 1) * s->m > hi ? hi : (line + 1) * s->m;
    if (s->n > 0)
      fn(end - lo, s->call->in[1]->data + lo * s->size, s->n,
         s->call->in[0]->data + line * s->n * s->size, s->right, y + lo);
    else
      for (int64_t i = lo; i < end; i++) y[i] = 1;
    lo = end;
  }
}

static mt_status searchsorted_run(const mt_call *call) {
  const mt_view *sorted = call->in[0], *x = call->in[1];
  search s = {.call = call,
              .n = sorted->shape[sorted->ndim - 1],
              .m = x->ndim ? x->shape[x->ndim - 1] : 1,
              .size = mt_cpu_size(sorted->dtype),
              .right = call->attr[0].i[0] != 0,
              .shared = sorted->ndim == 1};
  int64_t steps = 1;
  while (s.n >> steps) steps++;
  mt_cpu_parallel_for(call, mt_cpu_numel(x), mt_cpu_grain(2 * steps), search_range, &s);
  return MT_OK;
}

extern const mt_entry mt_cpu_searchsorted;
const mt_entry mt_cpu_searchsorted = {searchsorted_run, NULL, MT_ALL_MASK, 3};
