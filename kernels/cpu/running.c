/* kernels/cpu/running.c -- running products, extremes, logarithms of sums, and linear
** recurrences along a dim: floats in float64, integers in int64. */
#include "kernels/cpu/along.h"

typedef mt_along_number number;

/* A step: *value becomes a result, and stays for the next one. */
#define STEPS(name, start, rest)                                                    \
  static void name##_steps(int64_t n, int how, int64_t first, char *const *p,       \
                           mt_along_state *s) {                                     \
    const number *x = (const number *)p[MT_ALONG_X];                                \
    const number *a = (const number *)p[MT_ALONG_A];                                \
    number *y = (number *)p[MT_ALONG_Y], *value = s->value, *more = s->more;        \
    if (first == 0)                                                                 \
      for (int64_t i = 0; i < (how ? 1 : n); i++) value[i] = start, more[i] = rest; \
    if (how) {                                                                      \
      number v = *value, m = *more;                                                 \
      for (int64_t i = 0; i < n; i++) y[i] = name##_step(&v, &m, x[i], a + i);      \
      *value = v, *more = m;                                                        \
    } else {                                                                        \
      for (int64_t i = 0; i < n; i++)                                               \
        y[i] = name##_step(&value[i], &more[i], x[i], a + i);                       \
    }                                                                               \
  }
#define STEP(name)                                                        \
  static inline number name##_step(number *value, number *more, number x, \
                                   const number *a)
#define REAL(x) ((number){.f = x})

STEP(recurrence) {
  (void)more;
  value->f = a->f * value->f + x.f;
  return *value;
}
/* value: the sum of exp(x - largest); more: the largest. Infinities stay themselves. */
STEP(logsum) {
  (void)a;
  const double none = -(double)INFINITY;
  double *largest = &more->f;
  if (x.f <= *largest)
    value->f += x.f == *largest ? 1 : exp(x.f - *largest);
  else if (!isnan(*largest)) {
    value->f = *largest == none ? 1 : value->f * exp(*largest - x.f) + 1;
    *largest = x.f; /* also NaN */
  }
  return REAL(isinf(*largest) ? *largest : *largest + log(value->f));
}
STEPS(recurrence, REAL(0), REAL(0))
STEPS(logsum, REAL(0), REAL(-(double)INFINITY))

/* x, the factors a or NULL. */
static mt_status run(const mt_call *call, const mt_view *x, const mt_view *a,
                     bool reverse, mt_dtype work, mt_along_fn step, int able) {
  const mt_view *const view[MT_ALONG_ARGS] = {
      call->out[0], call->nout > 1 ? call->out[1] : NULL, x, a};
  mt_along j;
  mt_along_make(&j, call, view, (int)call->attr[0].i[0], reverse, work, step, able);
  mt_along_run(&j);
  return MT_OK;
}

/* By steps of the dtype of y, which may pass the caches. */
static mt_status by_table(const mt_call *call, mt_along_table *table) {
  const mt_dtype work = mt_along_work(call->out[0]->dtype);
  return run(call, call->in[0], NULL, false, work, (*table)[mt_along_place(work)],
             MT_ALONG_PAST);
}

static mt_status cumprod_run(const mt_call *call) {
  return by_table(call, MT_ISA_PICK(mt_product_steps));
}
static mt_status cummax_run(const mt_call *call) {
  return by_table(call, MT_ISA_PICK(mt_largest_steps));
}
static mt_status cummin_run(const mt_call *call) {
  return by_table(call, MT_ISA_PICK(mt_smallest_steps));
}
static mt_status logcumsumexp_run(const mt_call *call) {
  return run(call, call->in[0], NULL, false, MT_F64, logsum_steps, 0);
}
static mt_status recurrence_run(const mt_call *call) {
  return run(call, call->in[1], call->in[0], call->attr[1].i[0] != 0, MT_F64,
             recurrence_steps, 0);
}

extern const mt_entry mt_cpu_cumprod, mt_cpu_cummax, mt_cpu_cummin, mt_cpu_logcumsumexp,
    mt_cpu__recurrence;
const mt_entry mt_cpu_cumprod = {cumprod_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_cummax = {cummax_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_cummin = {cummin_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_logcumsumexp = {logcumsumexp_run, NULL, MT_FLOAT_MASK, 0};
const mt_entry mt_cpu__recurrence = {recurrence_run, NULL, MT_FLOAT_MASK, 0};
