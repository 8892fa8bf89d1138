/* kernels/cpu/running.c -- running products, extremes, logarithms of sums, and linear
** recurrences along a dim: floats in float64, integers in int64. */
#include "kernels/cpu/cpu.h"

#define BLOCK 256 /* elements of a buffer */

/* What a line has come to so far: a double or an int64 in value. */
typedef union number {
  double f;
  int64_t i;
} number;
typedef struct state {
  number value;
  double largest; /* of the exponents */
  int64_t at;     /* where the extreme stands, from 1 */
} state;

/* n steps. v: the elements, which become the results; a: the factors; at: positions, if
** wanted; first: the position of the first, from 1. along: of one line, else one step
** of each of n lines. */
typedef void (*step_fn)(int64_t n, bool along, int64_t first, number *v,
                        const number *a, int64_t *at, state *s);

#define STEPS(name)                                                                    \
  static void name##_steps(int64_t n, bool along, int64_t first, number *v,            \
                           const number *a, int64_t *at, state *s) {                   \
    (void)a, (void)at, (void)first;                                                    \
    if (along) {                                                                       \
      state t = *s;                                                                    \
      for (int64_t i = 0; i < n; i++)                                                  \
        name##_step(&t, &v[i], a + i, at + i, first + i);                              \
      *s = t;                                                                          \
    } else {                                                                           \
      for (int64_t i = 0; i < n; i++) name##_step(&s[i], &v[i], a + i, at + i, first); \
    }                                                                                  \
  }
#define STEP(name)                                                                  \
  static inline void name##_step(state *s, number *v, const number *a, int64_t *at, \
                                 int64_t i)
#define UNUSED (void)a, (void)at, (void)i

STEP(product_f) {
  UNUSED;
  v->f = s->value.f *= v->f;
}
STEP(product_i) {
  UNUSED;
  v->i = s->value.i *= v->i;
}
/* the last of equal ones; NaN, once met, gives way to another NaN alone */
STEP(largest_f) {
  (void)a;
  if (v->f >= s->value.f || v->f != v->f || s->at == 0)
    if (!(s->value.f != s->value.f) || v->f != v->f) s->value = *v, s->at = i;
  *v = s->value, *at = s->at;
}
STEP(smallest_f) {
  (void)a;
  if (v->f <= s->value.f || v->f != v->f || s->at == 0)
    if (!(s->value.f != s->value.f) || v->f != v->f) s->value = *v, s->at = i;
  *v = s->value, *at = s->at;
}
STEP(largest_i) {
  (void)a;
  if (v->i >= s->value.i || s->at == 0) s->value = *v, s->at = i;
  *v = s->value, *at = s->at;
}
STEP(smallest_i) {
  (void)a;
  if (v->i <= s->value.i || s->at == 0) s->value = *v, s->at = i;
  *v = s->value, *at = s->at;
}
STEP(recurrence) {
  (void)at, (void)i;
  v->f = s->value.f = a->f * s->value.f + v->f;
}
/* the sum of exp(x - largest) is kept beside the largest; infinities stay themselves */
STEP(logsum) {
  UNUSED;
  const double x = v->f, none = -(double)INFINITY;
  if (x <= s->largest)
    s->value.f += x == s->largest ? 1 : exp(x - s->largest);
  else if (!isnan(s->largest)) {
    s->value.f = s->largest == none ? 1 : s->value.f * exp(s->largest - x) + 1;
    s->largest = x; /* also NaN */
  }
  v->f = isinf(s->largest) ? s->largest : s->largest + log(s->value.f);
}
STEPS(product_f)
STEPS(product_i)
STEPS(largest_f)
STEPS(smallest_f)
STEPS(largest_i)
STEPS(smallest_i)
STEPS(recurrence)
STEPS(logsum)

typedef struct running {
  const mt_call *call;
  step_fn step;
  state start;
  mt_space others;          /* y, index, x, a without the dim */
  int64_t length, along[4]; /* of the dim; bytes, negative in reverse */
  char *data[4];            /* y; index, a: NULL where there is none */
  mt_dtype dtype[4], work;  /* of the steps */
  int64_t blocks;           /* of neighbours in the innermost other dim */
} running;

static void block_steps(const running *r, int64_t n, bool along, int64_t i,
                        const int64_t *offset, const int64_t *stride, state *s) {
  _Alignas(64) number v[BLOCK], a[BLOCK];
  int64_t at[BLOCK];
  mt_cpu_load(r->dtype[2], n, r->data[2] + offset[2] + i * r->along[2], stride[2],
              r->work, v);
  if (r->data[3])
    mt_cpu_load(r->dtype[3], n, r->data[3] + offset[3] + i * r->along[3], stride[3],
                r->work, a);
  r->step(n, along, i + 1, v, a, at, s);
  if (r->data[0])
    mt_cpu_store(r->work, n, v, r->dtype[0], r->data[0] + offset[0] + i * r->along[0],
                 stride[0]);
  if (r->data[1])
    mt_cpu_store(MT_I64, n, at, MT_I64, r->data[1] + offset[1] + i * r->along[1],
                 stride[1]);
}

static void line_range(void *context, int64_t lo, int64_t hi) {
  const running *r = context;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  for (int64_t line = lo; line < hi; line++) {
    state s = r->start;
    mt_space_seek(&r->others, line, coord, offset);
    for (int64_t i = 0; i < r->length; i += BLOCK) {
      const int64_t n = r->length - i < BLOCK ? r->length - i : BLOCK;
      if (i % (BLOCK << 12) == 0 && mt_stopped(r->call)) return;
      block_steps(r, n, true, i, offset, r->along, &s);
    }
  }
}

static void across_range(void *context, int64_t lo, int64_t hi) { /* blocks of lines */
  const running *r = context;
  const mt_space *o = &r->others;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS], stride[4];
  for (int k = 0; k < 4; k++) stride[k] = o->stride[k][0];
  for (int64_t item = lo; item < hi; item++) {
    const int64_t first = item % r->blocks * BLOCK, left = o->size[0] - first;
    const int64_t n = left < BLOCK ? left : BLOCK;
    state s[BLOCK];
    for (int64_t k = 0; k < n; k++) s[k] = r->start;
    mt_space_seek(o, item / r->blocks * o->size[0] + first, coord, offset);
    for (int64_t i = 0; i < r->length; i++) {
      if (i % 1024 == 0 && mt_stopped(r->call)) return;
      block_steps(r, n, false, i, offset, stride, s);
    }
  }
}

/* Take dim d out of v; returns its stride in bytes. */
static int64_t without_dim(const mt_view *v, int d, mt_view *rest) {
  *rest = *v;
  rest->ndim = 0;
  for (int e = 0; e < v->ndim; e++)
    if (e != d) {
      rest->shape[rest->ndim] = v->shape[e];
      rest->stride[rest->ndim++] = v->stride[e];
    }
  return v->ndim ? v->stride[d] * mt_cpu_size(v->dtype) : 0;
}

/* x, the factors a or NULL, in dim `dim`. */
static mt_status run(const mt_call *call, const mt_view *x, const mt_view *a, int dim,
                     bool reverse, bool floats, step_fn step, state start) {
  running r = {.call = call, .step = step, .start = start};
  const mt_view *const view[4] = {call->out[0], call->nout > 1 ? call->out[1] : NULL, x,
                                  a};
  mt_view rest[4];
  const mt_view *arg[4] = {NULL, NULL, NULL, NULL};
  r.length = x->ndim ? x->shape[dim] : 1;
  r.work = floats ? MT_F64 : MT_I64;
  for (int k = 0; k < 4; k++) {
    if (!view[k]) continue;
    r.along[k] = without_dim(view[k], dim, &rest[k]);
    r.data[k] = view[k]->data, r.dtype[k] = view[k]->dtype;
    if (reverse) r.data[k] += (r.length - 1) * r.along[k], r.along[k] = -r.along[k];
    arg[k] = &rest[k];
  }
  if (!arg[0]) arg[0] = arg[2];
  mt_space_make(&r.others, 4, arg, false);
  if (r.others.numel == 0 || r.length == 0) return MT_OK;
  const int64_t size = mt_cpu_size(x->dtype);
  r.blocks = (r.others.size[0] + BLOCK - 1) / BLOCK;
  if (r.along[2] != size && r.others.stride[2][0] == size && r.others.size[0] >= 8)
    mt_cpu_parallel_for(call, r.others.numel / r.others.size[0] * r.blocks,
                        mt_cpu_grain(4 * r.length * BLOCK), across_range, &r);
  else
    mt_cpu_parallel_for(call, r.others.numel, mt_cpu_grain(4 * r.length), line_range,
                        &r);
  return MT_OK;
}

static mt_status run_one(const mt_call *call, step_fn floats, step_fn ints, state s) {
  const bool is_float = MT_IS_FLOAT(call->in[0]->dtype);
  return run(call, call->in[0], NULL, (int)call->attr[0].i[0], false, is_float,
             is_float ? floats : ints, s);
}

static mt_status cumprod_run(const mt_call *call) {
  state s = {.value.f = 1};
  if (!MT_IS_FLOAT(call->in[0]->dtype)) s.value.i = 1;
  return run_one(call, product_f_steps, product_i_steps, s);
}
static mt_status cummax_run(const mt_call *call) {
  return run_one(call, largest_f_steps, largest_i_steps, (state){.at = 0});
}
static mt_status cummin_run(const mt_call *call) {
  return run_one(call, smallest_f_steps, smallest_i_steps, (state){.at = 0});
}
static mt_status logcumsumexp_run(const mt_call *call) {
  return run_one(call, logsum_steps, NULL, (state){.largest = -(double)INFINITY});
}
static mt_status recurrence_run(const mt_call *call) {
  return run(call, call->in[1], call->in[0], (int)call->attr[0].i[0],
             call->attr[1].i[0] != 0, true, recurrence_steps, (state){.value.f = 0});
}

extern const mt_entry mt_cpu_cumprod, mt_cpu_cummax, mt_cpu_cummin, mt_cpu_logcumsumexp,
    mt_cpu__recurrence;
const mt_entry mt_cpu_cumprod = {cumprod_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_cummax = {cummax_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_cummin = {cummin_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_logcumsumexp = {logcumsumexp_run, NULL, MT_FLOAT_MASK, 0};
const mt_entry mt_cpu__recurrence = {recurrence_run, NULL, MT_FLOAT_MASK, 0};
