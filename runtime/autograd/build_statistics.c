/* runtime/autograd/build_statistics.c -- composite reductions: aminmax, std_mean,
** var_mean, nansum, nanmean, diff, trapezoid, cov, corrcoef. */
#include <inttypes.h>
#include <math.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

mt_status mt_build_aminmax(mt_build_call *c) {
  mt_attr attr[] = {c->attr[0], c->attr[1]};
  int64_t dim = 0;
  if (attr[0].n >= 0) {
    MT_TRY(mt_cdim(&attr[0], &c->in[0]->v, 2, &dim));
    attr[0] = mt_attr_list(1, &dim);
  }
  c->out[0] = mt_c1a(c->calc, MT_OP_amin, c->in[0], 2, attr);
  c->out[1] = mt_c1a(c->calc, MT_OP_amax, c->in[0], 2, attr);
  return MT_OK;
}

static mt_status with_mean(mt_build_call *c, mt_op op) {
  const mt_attr mean[] = {c->attr[0], c->attr[2]};
  c->out[0] = mt_c1a(c->calc, op, c->in[0], 3, c->attr);
  c->out[1] = mt_c1a(c->calc, MT_OP_mean, c->in[0], 2, mean);
  return MT_OK;
}

mt_status mt_build_std_mean(mt_build_call *c) { return with_mean(c, MT_OP_std); }
mt_status mt_build_var_mean(mt_build_call *c) { return with_mean(c, MT_OP_var); }

/* The sum over dims of what is not NaN. Of the devices, the CPU has an op for it. */
static mt_tensor *sum_of_numbers(mt_build_call *call, mt_tensor *x) {
  mt_calc *const c = call->calc;
  mt_op op = MT_OP_sum;
  if (MT_IS_FLOAT(x->v.dtype)) {
    if (mt_device_of(x).kind == MT_CPU)
      op = MT_OP__nansum;
    else
      x = mt_c3(c, MT_OP_where, mt_ceq_self(c, x), x, mt_cnum(c, 0));
  }
  return mt_c1a(c, op, x, 2, call->attr);
}

mt_status mt_build_nansum(mt_build_call *call) {
  call->out[0] = sum_of_numbers(call, call->in[0]);
  return MT_OK;
}

mt_status mt_build_nanmean(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  if (!MT_IS_FLOAT(x->v.dtype)) {
    call->out[0] = mt_c1a(c, MT_OP_mean, x, 2, call->attr);
    return MT_OK;
  }
  mt_tensor *const count = mt_c1a(c, MT_OP_sum, mt_ceq_self(c, x), 2, call->attr);
  mt_tensor *const wide = mt_cwide(c, x);
  if (wide)
    call->out[0] =
        mt_cas(c, mt_c2(c, MT_OP_div, sum_of_numbers(call, wide), count), x->v.dtype);
  return MT_OK;
}

/* ---- diff ---- */

/* Neighbours along dim: the latter ones, and the former ones. */
static void neighbours(mt_calc *c, mt_tensor *x, int64_t dim, mt_tensor **next,
                       mt_tensor **previous) {
  const int64_t n = x && x->v.shape[dim] > 0 ? x->v.shape[dim] - 1 : 0;
  const int64_t from = x && x->v.shape[dim] > 0 ? 1 : 0;
  *next = mt_cpart(c, x, dim, from, n);
  *previous = mt_cpart(c, x, dim, 0, n);
}

mt_status mt_build_diff(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0], *next, *previous;
  const int64_t n = call->attr[0].i[0];
  int64_t dim;
  if (x->v.ndim == 0)
    return mt_fail_arg(MT_ESHAPE, 1, "x is 0-dim: it has no neighbours");
  if (n < 0) return mt_fail_arg(MT_EARG, 2, "n is %" PRId64 ", want 0 or more", n);
  MT_TRY(mt_cdim(&call->attr[1], &x->v, 3, &dim));
  if (call->in[1]) x = mt_cjoin(c, call->in[1], x, dim);
  if (call->in[2]) x = mt_cjoin(c, x, call->in[2], dim);
  if (n == 0) x = mt_c1(c, MT_OP_clone, x);
  for (int64_t i = 0; i < n && c->status == MT_OK && x; i++) {
    if (i > 0 && x->v.shape[dim] == 0) break;
    neighbours(c, x, dim, &next, &previous);
    x = mt_c2(c, x->v.dtype == MT_BOOL ? MT_OP_ne : MT_OP_sub, next, previous);
  }
  call->out[0] = x;
  return MT_OK;
}

/* ---- trapezoid, cumulative_trapezoid ---- */

/* Does x give each number along dim of y a place? Its other dims may broadcast. */
static bool are_points(const mt_view *x, const mt_view *y, int dim) {
  bool ok = x->ndim == y->ndim;
  for (int d = 0; ok && d < y->ndim; d++) {
    const int64_t n = x->shape[d], m = y->shape[d];
    ok = n == m || (d != dim && (n == 1 || m == 1));
  }
  return ok;
}

/* Twice the areas between neighbours of y along dim, with dx = 1 where there is no x. */
static mt_status areas(mt_build_call *call, int64_t *dim, mt_tensor **area) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = mt_cfloat(c, call->in[0]), *x = call->in[1];
  mt_tensor *next, *previous;
  *area = NULL;
  if (!y) return MT_OK;
  if (y->v.ndim == 0)
    return mt_fail_arg(MT_ESHAPE, 1, "y is 0-dim: it has no neighbours");
  MT_TRY(mt_cdim(&call->attr[1], &y->v, 4, dim));
  if (x && x->v.ndim == 1 && y->v.ndim > 1) { /* points that all lines share */
    int64_t shape[MT_MAX_DIMS];
    for (int d = 0; d < y->v.ndim; d++) shape[d] = d == *dim ? x->v.shape[0] : 1;
    x = mt_creshape(c, x, y->v.ndim, shape);
  }
  if (x && !are_points(&x->v, &y->v, (int)*dim))
    return mt_fail_arg(MT_ESHAPE, 2, "x has shape %s, y %s",
                       mt_view_text(&call->in[1]->v), mt_view_text(&y->v));
  neighbours(c, y, *dim, &next, &previous);
  *area = mt_c2(c, MT_OP_add, next, previous);
  if (!x) return MT_OK;
  neighbours(c, mt_cfloat(c, x), *dim, &next, &previous);
  *area = mt_c2(c, MT_OP_mul, *area, mt_c2(c, MT_OP_sub, next, previous));
  return MT_OK;
}

/* Half of the areas, or of their sum: by dx where there is no x. */
static mt_tensor *halved(mt_build_call *call, mt_tensor *area) {
  const double width = call->in[1] ? 1 : call->attr[0].f;
  return mt_c2(call->calc, MT_OP_mul, area, mt_cnum(call->calc, 0.5 * width));
}

/* Points at equal distances: all but the first and the last count twice. */
static mt_status even_trapezoid(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = mt_cfloat(c, call->in[0]);
  int64_t dim;
  if (!y) return MT_OK;
  MT_TRY(mt_cdim(&call->attr[1], &y->v, 4, &dim));
  const int64_t n = y->v.shape[dim];
  if (n < 2) { /* nothing between */
    call->out[0] = mt_creduce(c, MT_OP_sum, mt_cpart(c, y, dim, 0, 0), dim, false);
    return MT_OK;
  }
  mt_tensor *const ends = mt_c2(c, MT_OP_add, mt_cpick(c, y, dim, 0, false),
                                mt_cpick(c, y, dim, n - 1, false));
  mt_tensor *const inner =
      mt_creduce(c, MT_OP_sum, mt_cpart(c, y, dim, 1, n - 2), dim, false);
  call->out[0] =
      mt_c2(c, MT_OP_mul,
            mt_c2(c, MT_OP_add, inner, mt_c2(c, MT_OP_mul, ends, mt_cnum(c, 0.5))),
            mt_cnum(c, call->attr[0].f));
  return MT_OK;
}

mt_status mt_build_trapezoid(mt_build_call *call) {
  int64_t dim;
  mt_tensor *area;
  if (!call->in[1] && call->in[0]->v.ndim > 0) return even_trapezoid(call);
  MT_TRY(areas(call, &dim, &area));
  if (area)
    call->out[0] = halved(call, mt_creduce(call->calc, MT_OP_sum, area, dim, false));
  return MT_OK;
}

mt_status mt_build_cumulative_trapezoid(mt_build_call *call) {
  int64_t dim;
  mt_tensor *area;
  MT_TRY(areas(call, &dim, &area));
  if (!area) return MT_OK;
  const mt_attr attr = mt_attr_i(dim);
  call->out[0] = mt_c1a(call->calc, MT_OP_cumsum, halved(call, area), 1, &attr);
  return MT_OK;
}

/* ---- cov, corrcoef ---- */

static mt_status check_weights(const mt_view *w, const char *name, int arg, int64_t n) {
  if (w->ndim == 1 && w->shape[0] == n) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "%s has shape %s, want [%" PRId64 "]", name,
                     mt_view_text(w), n);
}

/* x: (variables, n). fweights and aweights may be NULL. */
static mt_tensor *covariances(mt_calc *c, mt_tensor *x, int64_t correction,
                              mt_tensor *fweights, mt_tensor *aweights) {
  if (!x) return NULL;
  const int64_t n = x->v.shape[1];
  mt_tensor *w = NULL, *total = NULL, *norm;
  if (fweights) w = mt_cas(c, fweights, x->v.dtype);
  if (aweights) w = w ? mt_c2(c, MT_OP_mul, w, aweights) : aweights;
  if (w) w = mt_cas(c, w, x->v.dtype);
  mt_tensor *const weighed = w ? mt_c2(c, MT_OP_mul, x, w) : x;
  if (w)
    total = mt_c1(c, MT_OP_sum, w);
  else
    total = mt_cnum(c, (double)n);
  mt_tensor *const mean =
      mt_c2(c, MT_OP_div, mt_creduce(c, MT_OP_sum, weighed, 1, true), total);
  mt_tensor *const off = mt_c2(c, MT_OP_sub, x, mean);
  if (!w) {
    const double left = (double)n - (double)correction;
    norm = mt_cnum(c, left > 0 ? left : 0);
  } else {
    mt_tensor *lost = mt_cnum(c, (double)correction);
    if (aweights && correction != 0) {
      mt_tensor *const sum = mt_c1(c, MT_OP_sum, mt_c2(c, MT_OP_mul, w, aweights));
      lost = mt_c2(c, MT_OP_mul, mt_c2(c, MT_OP_div, sum, total), lost);
    }
    norm = mt_c2(c, MT_OP_maximum, mt_c2(c, MT_OP_sub, total, lost), mt_cnum(c, 0));
  }
  mt_tensor *const turned =
      mt_ctranspose(c, w ? mt_c2(c, MT_OP_mul, off, w) : off, 0, 1);
  return mt_c2(c, MT_OP_div, mt_c2(c, MT_OP_matmul, off, turned), norm);
}

/* The covariances of the call's x, of one variable as (1, 1), no 16-bit floats. */
static mt_status matrix(mt_build_call *call, int64_t correction, mt_tensor *fweights,
                        mt_tensor *aweights, mt_tensor **y) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = mt_cwide(c, mt_cfloat(c, call->in[0]));
  *y = NULL;
  if (!x) return MT_OK;
  if (x->v.ndim > 2)
    return mt_fail_arg(MT_ESHAPE, 1, "x has shape %s, want (variables, observations)",
                       mt_view_text(&x->v));
  const int64_t n = x->v.ndim ? x->v.shape[x->v.ndim - 1] : 1;
  const int64_t shape[] = {x->v.ndim == 2 ? x->v.shape[0] : 1, n};
  if (fweights) {
    MT_TRY(check_weights(&fweights->v, "fweights", 3, n));
    if (MT_IS_FLOAT(fweights->v.dtype))
      return mt_fail_arg(MT_EDTYPE, 3, "fweights is %s, want integers",
                         mt_dtype_name(fweights->v.dtype));
  }
  if (aweights) MT_TRY(check_weights(&aweights->v, "aweights", 4, n));
  *y = covariances(c, mt_creshape(c, x, 2, shape), correction, fweights, aweights);
  return MT_OK;
}

/* The result: y in x's float dtype, a number if x is one variable. */
static void set_matrix(mt_build_call *call, mt_tensor *y) {
  mt_calc *const c = call->calc;
  const mt_tensor *const x = call->in[0];
  const int64_t none = 0; /* no sizes */
  y = mt_ccast(c, y, MT_IS_FLOAT(x->v.dtype) ? x->v.dtype : c->ctx->default_dtype);
  call->out[0] = x->v.ndim == 2 ? y : mt_creshape(c, y, 0, &none);
}

mt_status mt_build_cov(mt_build_call *call) {
  mt_tensor *y;
  MT_TRY(matrix(call, call->attr[0].i[0], call->in[1], call->in[2], &y));
  set_matrix(call, y);
  return MT_OK;
}

mt_status mt_build_corrcoef(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *y;
  MT_TRY(matrix(call, 1, NULL, NULL, &y));
  if (!y) return MT_OK;
  const int64_t n = y->v.shape[0], row[] = {1, n}, column[] = {n, 1};
  mt_tensor *const spread = mt_c1(c, MT_OP_sqrt, mt_c1(c, MT_OP_diagonal, y));
  y = mt_c2(c, MT_OP_div, y, mt_creshape(c, spread, 2, column));
  y = mt_c2(c, MT_OP_div, y, mt_creshape(c, spread, 2, row));
  const mt_attr limits[] = {mt_attr_f(-1), mt_attr_f(1)};
  set_matrix(call, mt_c1a(c, MT_OP_clamp, y, 2, limits));
  return MT_OK;
}
