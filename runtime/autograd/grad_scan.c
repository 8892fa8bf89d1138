/* runtime/autograd/grad_scan.c -- gradients of running sums, products, extremes, and
** linear recurrences: mostly a scan from the other end. */
#include <math.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_status cumsum_run(mt_grad_call *c) {
  const mt_attr attr[] = {c->attr[0], mt_attr_i(!c->attr[1].i[0])};
  c->dx[0] = mt_c1a(c->calc, MT_OP_cumsum, c->g[0], 2, attr);
  return c->calc->status;
}

const mt_grad_rule mt_grad_cumsum = {0, 0, cumsum_run};

/* ---- helpers: parts of a tensor along a dim ---- */

/* A slice of x's shape but 1 along dim, of one value. */
static mt_tensor *slice_of(mt_calc *c, const mt_tensor *x, int64_t dim, double value) {
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < x->v.ndim; d++) shape[d] = d == dim ? 1 : x->v.shape[d];
  mt_tensor *const zeros = mt_czeros(c, x->v.dtype, mt_device_of(x), x->v.ndim, shape);
  return value == 0 ? zeros : mt_c2(c, MT_OP_add, zeros, mt_cnum(c, value));
}

/* x moved on by one along dim: the first is `value`, the last drops out; in reverse the
** other way round. */
static mt_tensor *moved(mt_calc *c, mt_tensor *x, int64_t dim, double value,
                        bool reverse) {
  if (!x) return NULL;
  const int64_t n = x->v.shape[dim];
  mt_tensor *const edge = slice_of(c, x, dim, value);
  return reverse ? mt_cjoin(c, mt_cpart(c, x, dim, 1, n - 1), edge, dim)
                 : mt_cjoin(c, edge, mt_cpart(c, x, dim, 0, n - 1), dim);
}

static mt_tensor *recurrence(mt_calc *c, mt_tensor *a, mt_tensor *b, int64_t dim,
                             bool reverse) {
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(reverse)};
  return mt_ca(c, MT_OP__recurrence, 2, (mt_tensor *[]){a, b}, 0, 2, attr, NULL);
}

static bool single(const mt_meta *x) { return x->ndim == 0; }
static bool empty(const mt_meta *x) {
  for (int d = 0; d < x->ndim; d++)
    if (x->shape[d] == 0) return true;
  return false;
}

/* ---- _recurrence: y[i] = a[i] y[i - 1] + b[i] ----
** What flows into b[i] is a recurrence from the other end: G[i] = g[i] + a[i + 1]
** G[i + 1]; into a[i] flows G[i] y[i - 1]. */
static mt_status recurrence_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const int64_t dim = call->attr[0].i[0];
  const bool reverse = call->attr[1].i[0] != 0;
  if (single(&call->in_meta[0]) || empty(&call->in_meta[0])) {
    call->dx[0] = mt_c2(c, MT_OP_mul, call->g[0], mt_cnum(c, 0));
    call->dx[1] = call->g[0];
    return c->status;
  }
  mt_tensor *const next = moved(c, call->in[0], dim, 0, !reverse);
  mt_tensor *const g = recurrence(c, next, call->g[0], dim, !reverse);
  if (call->needs[1]) call->dx[1] = g;
  if (call->needs[0])
    call->dx[0] = mt_c2(c, MT_OP_mul, g, moved(c, call->out[0], dim, 0, reverse));
  return c->status;
}

const mt_grad_rule mt_grad_recurrence = {1u << 0, 1u << 0, recurrence_run};

/* ---- cumprod: the recurrence with b = 1, 0, 0, ...: no division by x ---- */
static mt_status cumprod_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const int64_t dim = call->attr[0].i[0];
  if (single(&call->in_meta[0]) || empty(&call->in_meta[0])) {
    call->dx[0] = call->g[0];
    return c->status;
  }
  mt_tensor *const next = moved(c, call->in[0], dim, 0, true);
  mt_tensor *const g = recurrence(c, next, call->g[0], dim, true);
  call->dx[0] = mt_c2(c, MT_OP_mul, g, moved(c, call->out[0], dim, 1, false));
  return c->status;
}

const mt_grad_rule mt_grad_cumprod = {1u << 0, 1u << 0, cumprod_run};

/* ---- cummax, cummin: to where the extreme stands ---- */
static mt_status cummax_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const zeros = mt_czeros_of(c, &call->in_meta[0]);
  call->dx[0] = mt_calong(c, MT_OP_scatter_add, zeros, call->attr[0].i[0], call->out[1],
                          call->g[0]);
  return c->status;
}

const mt_grad_rule mt_grad_cummax = {0, 1u << 1, cummax_run};

/* ---- logcumsumexp ----
** dx[k] = sum over i >= k of g[i] exp(x[k] - y[i]) = exp(x[k] - y[k]) S[k], where S[k] =
** g[k] + exp(y[k] - y[k + 1]) S[k + 1]: no exponent is above 0, since y only grows. */
static mt_status logcumsumexp_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const int64_t dim = call->attr[0].i[0];
  mt_tensor *const x = call->in[0], *const y = call->out[0];
  if (single(&call->in_meta[0]) || empty(&call->in_meta[0])) {
    call->dx[0] = call->g[0];
    return c->status;
  }
  const double inf = (double)INFINITY;
  /* exp(-inf - -inf) is meant to be 0: where nothing has come yet */
  mt_tensor *const none = mt_c2(c, MT_OP_eq, y, mt_cnum(c, -inf));
  mt_tensor *const safe = mt_c3(c, MT_OP_where, none, mt_cnum(c, 0), y);
  mt_tensor *const low = mt_c3(c, MT_OP_where, none, mt_cnum(c, -inf), safe);
  mt_tensor *const steps =
      mt_c1(c, MT_OP_exp, mt_c2(c, MT_OP_sub, low, moved(c, safe, dim, inf, true)));
  mt_tensor *const own = mt_c1(c, MT_OP_exp, mt_c2(c, MT_OP_sub, x, safe));
  /* what should be 1, but for the digits that a large y has lost */
  mt_tensor *const total =
      recurrence(c, moved(c, steps, dim, 0, false), own, dim, false);
  mt_tensor *const g = mt_c2(c, MT_OP_div, call->g[0],
                             mt_c3(c, MT_OP_where, none, mt_cnum(c, 1), total));
  mt_tensor *const s = recurrence(c, steps, g, dim, true);
  call->dx[0] = mt_c2(c, MT_OP_mul, own, s);
  return c->status;
}

const mt_grad_rule mt_grad_logcumsumexp = {1u << 0, 1u << 0, logcumsumexp_run};
