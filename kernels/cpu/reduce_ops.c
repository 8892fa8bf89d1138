/* kernels/cpu/reduce_ops.c -- the reductions: which fold each takes, and what its
** result is. */
#include "kernels/cpu/reduce.h"

/* ---- results --------------------------------------------------------------------- */
static void store_value(const mt_reduction *r, int k, const mt_cell *cell, char *out) {
  if (r->dtype[k] == MT_F32 && !r->whole) {
    const float y = (float)cell->f;
    memcpy(out, &y, sizeof y);
  } else if (r->whole) {
    mt_cpu_store_i64(r->dtype[k], out, cell->i);
  } else {
    mt_cpu_store_f64(r->dtype[k], out, cell->f);
  }
}

static void store_f64(const mt_reduction *r, double y, char *out) {
  mt_cpu_store_f64(r->dtype[0], out, y);
}

static void finish_value(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_value(r, 0, s, out[0]);
}

static void finish_mean(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, s->f / (double)r->folded.numel, out[0]);
}

static void finish_count(const mt_reduction *r, const mt_cell *s, char *const *out) {
  mt_cpu_store_i64(r->dtype[0], out[0], s->i);
}

static void finish_any(const mt_reduction *r, const mt_cell *s, char *const *out) {
  (void)r;
  out[0][0] = s->i != 0;
}

static void finish_all(const mt_reduction *r, const mt_cell *s, char *const *out) {
  out[0][0] = s->i == r->folded.numel;
}

static void finish_position(const mt_reduction *r, const mt_cell *s, char *const *out) {
  mt_cpu_store_i64(r->dtype[0], out[0], s[1].i + 1);
}

static void finish_both(const mt_reduction *r, const mt_cell *s, char *const *out) {
  if (out[0] != NULL) store_value(r, 0, s, out[0]);
  if (r->out[1] != NULL) mt_cpu_store_i64(r->dtype[1], out[1], s[1].i + 1);
}

static double variance(const mt_reduction *r, const mt_cell *s) {
  const int64_t n = r->folded.numel, over = n - r->correction;
  return n == 0 ? (double)NAN : s[1].f / (double)(over > 0 ? over : 0);
}

static void finish_var(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, variance(r, s), out[0]);
}

static void finish_std(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, sqrt(variance(r, s)), out[0]);
}

static void finish_root(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, sqrt(s->f), out[0]);
}

static void finish_power(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, pow(s->f, 1 / r->p), out[0]);
}

static void finish_norm_0(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, (double)s->i, out[0]);
}

static void finish_log(const mt_reduction *r, const mt_cell *s, char *const *out) {
  store_f64(r, log(s[1].f) + fold_shift(s[0].f), out[0]);
}

/* ---- kernels --------------------------------------------------------------------- */
#define REDUCTION(op, fold, result, types)                   \
  static mt_status op##_run(const mt_call *call) {           \
    mt_reduction r; /* large: mt_cpu_reduce sets the rest */ \
    r.kind = fold, r.p = 0, r.correction = 0;                \
    r.finish = result;                                       \
    return mt_cpu_reduce(call, &call->attr[0], &r);          \
  }                                                          \
  extern const mt_entry mt_cpu_##op;                         \
  const mt_entry mt_cpu_##op = {op##_run, scratch, types, 0}

/* attr[0]: dim */
static size_t scratch(const mt_call *call) {
  return mt_cpu_reduce_scratch(call, &call->attr[0]);
}

REDUCTION(sum, MT_FOLD_SUM, finish_value, MT_ALL_MASK);
REDUCTION(mean, MT_FOLD_SUM, finish_mean, MT_FLOAT_MASK);
REDUCTION(prod, MT_FOLD_PROD, finish_value, MT_ALL_MASK);
REDUCTION(amax, MT_FOLD_MAX, finish_value, MT_ALL_MASK);
REDUCTION(amin, MT_FOLD_MIN, finish_value, MT_ALL_MASK);
REDUCTION(_max_dim, MT_FOLD_ARGMAX, finish_both, MT_ALL_MASK);
REDUCTION(_min_dim, MT_FOLD_ARGMIN, finish_both, MT_ALL_MASK);
REDUCTION(argmax, MT_FOLD_ARGMAX, finish_position, MT_ALL_MASK);
REDUCTION(argmin, MT_FOLD_ARGMIN, finish_position, MT_ALL_MASK);
REDUCTION(any, MT_FOLD_COUNT, finish_any, MT_ALL_MASK);
REDUCTION(all, MT_FOLD_COUNT, finish_all, MT_ALL_MASK);
REDUCTION(count_nonzero, MT_FOLD_COUNT, finish_count, MT_ALL_MASK);
REDUCTION(logsumexp, MT_FOLD_EXP, finish_log, MT_FLOAT_MASK);

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
    r.kind = MT_FOLD_COUNT, r.finish = finish_norm_0;
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
