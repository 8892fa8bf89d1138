/* kernels/cpu/reduce_ops.c -- the reductions: which fold each takes, and what its
** result is. */
#include "kernels/cpu/reduce.h"

/* ---- results --------------------------------------------------------------------- */
#define FINISH(name) \
  static void finish_##name(const mt_reduction *r, const mt_cell *s, mt_cell *y)
#define ALONE (void)r

#define finish_value NULL /* the cell itself */
#define finish_count NULL
FINISH(mean) { y[0].f = s->f / (double)r->folded.numel; }
FINISH(any) {
  ALONE;
  y[0].i = s->i != 0;
}
FINISH(all) { y[0].i = s->i == r->folded.numel; }
FINISH(position) {
  ALONE;
  y[0].i = s[1].i + 1;
}
FINISH(both) {
  ALONE;
  y[0] = s[0], y[1].i = s[1].i + 1;
}

static double variance(const mt_reduction *r, const mt_cell *s) {
  const int64_t n = r->folded.numel, over = n - r->correction;
  return n == 0 ? (double)NAN : s[1].f / (double)(over > 0 ? over : 0);
}
FINISH(var) { y[0].f = variance(r, s); }
FINISH(std) { y[0].f = sqrt(variance(r, s)); }

FINISH(root) {
  ALONE;
  y[0].f = sqrt(s->f);
}
FINISH(power) { y[0].f = pow(s->f, 1 / r->p); }
FINISH(log) {
  ALONE;
  y[0].f = log(s[1].f) + fold_shift(s[0].f);
}

/* ---- kernels --------------------------------------------------------------------- */
#define COUNTS_value    false
#define COUNTS_mean     false
#define COUNTS_both     false
#define COUNTS_log      false
#define COUNTS_count    true
#define COUNTS_position true
#define COUNTS_any      true
#define COUNTS_all      true
#define REDUCTION(op, fold, result, types)                   \
  static mt_status op##_run(const mt_call *call) {           \
    mt_reduction r; /* large: mt_cpu_reduce sets the rest */ \
    r.kind = fold, r.p = 0, r.correction = 0;                \
    r.finish = finish_##result, r.counts = COUNTS_##result;  \
    return mt_cpu_reduce(call, &call->attr[0], &r);          \
  }                                                          \
  extern const mt_entry mt_cpu_##op;                         \
  const mt_entry mt_cpu_##op = {op##_run, scratch, types, 0}

/* attr[0]: dim */
static size_t scratch(const mt_call *call) {
  return mt_cpu_reduce_scratch(call, &call->attr[0]);
}

REDUCTION(sum, MT_FOLD_SUM, value, MT_ALL_MASK);
REDUCTION(_nansum, MT_FOLD_NANSUM, value, MT_FLOAT_MASK);
REDUCTION(mean, MT_FOLD_SUM, mean, MT_FLOAT_MASK);
REDUCTION(prod, MT_FOLD_PROD, value, MT_ALL_MASK);
REDUCTION(amax, MT_FOLD_MAX, value, MT_ALL_MASK);
REDUCTION(amin, MT_FOLD_MIN, value, MT_ALL_MASK);
REDUCTION(_max_dim, MT_FOLD_ARGMAX, both, MT_ALL_MASK);
REDUCTION(_min_dim, MT_FOLD_ARGMIN, both, MT_ALL_MASK);
REDUCTION(argmax, MT_FOLD_ARGMAX, position, MT_ALL_MASK);
REDUCTION(argmin, MT_FOLD_ARGMIN, position, MT_ALL_MASK);
REDUCTION(any, MT_FOLD_COUNT, any, MT_ALL_MASK);
REDUCTION(all, MT_FOLD_COUNT, all, MT_ALL_MASK);
REDUCTION(count_nonzero, MT_FOLD_COUNT, count, MT_ALL_MASK);
REDUCTION(logsumexp, MT_FOLD_EXP, log, MT_FLOAT_MASK);

/* var, std (x, dim, correction) */
static mt_status spread_run(const mt_call *call) {
  mt_reduction r = {.kind = MT_FOLD_MOMENTS, .correction = call->attr[1].i[0]};
  r.finish = call->op == MT_OP_std ? finish_std : finish_var;
  return mt_cpu_reduce(call, &call->attr[0], &r);
}
extern const mt_entry mt_cpu_var, mt_cpu_std;
const mt_entry mt_cpu_var = {spread_run, scratch, MT_FLOAT_MASK, 0};
const mt_entry mt_cpu_std = {spread_run, scratch, MT_FLOAT_MASK, 0};

/* norm(x, p, dim) */
static mt_status norm_run(const mt_call *call) {
  mt_reduction r = {.p = call->attr[0].f};
  if (r.p == 2)
    r.kind = MT_FOLD_SQUARE, r.finish = finish_root;
  else if (r.p == 1)
    r.kind = MT_FOLD_ABS, r.finish = finish_value;
  else if (r.p == 0)
    r.kind = MT_FOLD_COUNT, r.finish = finish_count, r.counts = true;
  else if (r.p == (double)INFINITY)
    r.kind = MT_FOLD_LARGEST, r.finish = finish_value;
  else if (r.p == -(double)INFINITY)
    r.kind = MT_FOLD_SMALLEST, r.finish = finish_value;
  else
    r.kind = MT_FOLD_POWER, r.finish = finish_power;
  return mt_cpu_reduce(call, &call->attr[1], &r);
}
static size_t norm_scratch(const mt_call *call) {
  return mt_cpu_reduce_scratch(call, &call->attr[1]);
}
extern const mt_entry mt_cpu_norm;
const mt_entry mt_cpu_norm = {norm_run, norm_scratch, MT_FLOAT_MASK, 0};
