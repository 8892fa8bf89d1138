/* runtime/autograd/grad_reduce.c -- gradients of sums, means, products, extremes, and
** variances. Subgradients and shares at ties are PyTorch's. */
#include <math.h>
#include "runtime/autograd/reduced.h"
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* ---- helpers ---- */

mt_reduced mt_reduced_of(const mt_meta *x, const mt_attr *dims) {
  mt_reduced r = {.ndim = x->ndim, .count = 1};
  for (int d = 0; d < x->ndim; d++) {
    bool gone = dims->n < 0;
    for (int i = 0; i < dims->n; i++) gone = gone || dims->i[i] == d;
    r.gone[d] = gone;
    r.kept[d] = gone ? 1 : x->shape[d];
    if (gone) r.count *= x->shape[d];
  }
  return r;
}

mt_tensor *mt_reduced_keep(mt_calc *c, const mt_reduced *r, mt_tensor *t) {
  return mt_creshape(c, t, r->ndim, r->kept);
}

mt_tensor *mt_reduced_sum(mt_calc *c, const mt_reduced *r, mt_tensor *t) {
  int64_t dims[MT_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < r->ndim; d++) {
    if (r->gone[d]) dims[n++] = d;
  }
  if (n == 0) return t;
  const mt_attr attr[] = {mt_attr_list(n, dims), mt_attr_i(1)};
  return mt_c1a(c, MT_OP_sum, t, 2, attr);
}

static mt_tensor *times(mt_calc *c, mt_tensor *t, double factor) {
  return mt_c2(c, MT_OP_mul, t, mt_cnum(c, factor));
}

/* ---- sum, mean ---- */

static mt_status sum_run(mt_grad_call *call) {
  const mt_meta *const x = &call->in_meta[0];
  const mt_reduced r = mt_reduced_of(x, &call->attr[0]);
  mt_tensor *const g = mt_reduced_keep(call->calc, &r, call->g[0]);
  call->dx[0] = mt_cexpand(call->calc, g, x->ndim, x->shape);
  return call->calc->status;
}

const mt_grad_rule mt_grad_sum = {0, 0, sum_run};

static mt_status nansum_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_reduced r = mt_reduced_of(&call->in_meta[0], &call->attr[0]);
  mt_tensor *const g = mt_reduced_keep(c, &r, call->g[0]);
  call->dx[0] = mt_c3(c, MT_OP_where, mt_ceq_self(c, call->in[0]), g, mt_cnum(c, 0));
  return c->status;
}

const mt_grad_rule mt_grad_nansum = {1u << 0, 0, nansum_run};

static mt_status mean_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  const mt_reduced r = mt_reduced_of(x, &call->attr[0]);
  mt_tensor *g = mt_reduced_keep(c, &r, call->g[0]);
  if (r.count > 0) g = mt_cshare(c, g, mt_cnum(c, (double)r.count));
  call->dx[0] = mt_cexpand(c, g, x->ndim, x->shape);
  return c->status;
}

const mt_grad_rule mt_grad_mean = {0, 0, mean_run};

/* ---- amax, amin, max and min along a dim ---- */

static mt_status amax_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_reduced r = mt_reduced_of(&call->in_meta[0], &call->attr[0]);
  mt_tensor *const y = mt_reduced_keep(c, &r, call->out[0]);
  mt_tensor *const ties = mt_c2(c, MT_OP_eq, call->in[0], y);
  mt_tensor *const g = mt_reduced_keep(c, &r, call->g[0]);
  mt_tensor *const share = mt_cshare(c, g, mt_reduced_sum(c, &r, ties));
  call->dx[0] = mt_c3(c, MT_OP_where, ties, share, mt_cnum(c, 0));
  return c->status;
}

const mt_grad_rule mt_grad_amax = {1u << 0, 1u << 0, amax_run};

static mt_status max_dim_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  if (x->ndim == 0) {
    call->dx[0] = call->g[0];
    return MT_OK;
  }
  const mt_reduced r = mt_reduced_of(x, &call->attr[0]);
  call->dx[0] = mt_calong(c, MT_OP_scatter_add, mt_czeros_of(c, x), call->attr[0].i[0],
                          mt_reduced_keep(c, &r, call->out[1]),
                          mt_reduced_keep(c, &r, call->g[0]));
  return c->status;
}

const mt_grad_rule mt_grad_max_dim = {0, 1u << 1, max_dim_run};

/* ---- var, std ---- */

/* 2 (x - mean) / (n - correction) times g, which has y's shape */
static mt_tensor *var_gradient(mt_grad_call *call, mt_tensor *g) {
  mt_calc *const c = call->calc;
  const mt_reduced r = mt_reduced_of(&call->in_meta[0], &call->attr[0]);
  const double free = fmax(0, (double)(r.count - call->attr[1].i[0]));
  mt_tensor *const x = mt_cwide(c, call->in[0]);
  mt_tensor *const sum = mt_reduced_sum(c, &r, x);
  mt_tensor *const mean = mt_c2(c, MT_OP_div, sum, mt_cnum(c, (double)r.count));
  mt_tensor *const off = mt_c2(c, MT_OP_sub, x, mean);
  g = mt_reduced_keep(c, &r, mt_cwide(c, g));
  mt_tensor *const dx = mt_c2(c, MT_OP_mul, times(c, g, 2 / free), off);
  return mt_ccast(c, dx, call->in_meta[0].dtype);
}

static mt_status var_run(mt_grad_call *call) {
  call->dx[0] = var_gradient(call, call->g[0]);
  return call->calc->status;
}

const mt_grad_rule mt_grad_var = {1u << 0, 0, var_run};

/* g / (2 y), and 0 where y is 0 */
static mt_status std_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = call->out[0];
  mt_tensor *const flat = mt_c2(c, MT_OP_eq, y, mt_cnum(c, 0));
  mt_tensor *const safe = mt_c3(c, MT_OP_where, flat, mt_cnum(c, 1), y);
  mt_tensor *const g = mt_c2(c, MT_OP_div, call->g[0], times(c, safe, 2));
  call->dx[0] = var_gradient(call, mt_c3(c, MT_OP_where, flat, mt_cnum(c, 0), g));
  return c->status;
}

const mt_grad_rule mt_grad_std = {1u << 0, 1u << 0, std_run};

/* ---- logsumexp ---- */

/* g exp(x - y); 0 where all of x is -inf. Where x is large, y has no digits left for
** its fraction: dividing by the sum of exp(x - y), which should be 1, makes up for
** that. */
static mt_status logsumexp_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_reduced r = mt_reduced_of(&call->in_meta[0], &call->attr[0]);
  mt_tensor *const y = mt_reduced_keep(c, &r, call->out[0]);
  mt_tensor *const none = mt_c2(c, MT_OP_eq, y, mt_cnum(c, -(double)INFINITY));
  mt_tensor *const safe = mt_c3(c, MT_OP_where, none, mt_cnum(c, 0), y);
  mt_tensor *const p = mt_c1(c, MT_OP_exp, mt_c2(c, MT_OP_sub, call->in[0], safe));
  mt_tensor *const finite = mt_c1(c, MT_OP_isfinite, y);
  mt_tensor *const total =
      mt_c3(c, MT_OP_where, finite, mt_reduced_sum(c, &r, p), mt_cnum(c, 1));
  mt_tensor *const g = mt_reduced_keep(c, &r, call->g[0]);
  call->dx[0] = mt_c2(c, MT_OP_mul, mt_c2(c, MT_OP_div, g, total), p);
  return c->status;
}

const mt_grad_rule mt_grad_logsumexp = {1u << 0, 1u << 0, logsumexp_run};
