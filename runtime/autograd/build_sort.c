/* runtime/autograd/build_sort.c -- composite ops on top of sort: argsort, msort,
** kthvalue, median, mode, quantile, and what searches sorted values. */
#include <inttypes.h>
#include <math.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

mt_status mt_build_argsort(mt_build_call *c) {
  int64_t dim;
  MT_TRY(mt_cdim(&c->attr[0], &c->in[0]->v, 2, &dim));
  mt_csorted(c->calc, c->in[0], dim, c->attr[1].i[0] != 0, &c->out[0]);
  return MT_OK;
}

mt_status mt_build_msort(mt_build_call *c) {
  c->out[0] = mt_csorted(c->calc, c->in[0], 0, false, NULL);
  return MT_OK;
}

static int64_t size_of(const mt_view *x, int64_t dim) {
  return x->ndim ? x->shape[dim] : 1;
}

static mt_status check_some(const mt_view *x, int64_t dim) {
  if (size_of(x, dim) > 0) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, 1,
                     "dim %" PRId64 " of shape %s has no elements to choose from",
                     dim + 1, mt_view_text(x));
}

/* The k-th smallest along dim, or with k 0 the middle one, which the CPU selects: of
** size 1 along dim. */
static mt_tensor *selected(mt_calc *c, mt_tensor *x, int64_t k, int64_t dim,
                           bool skip_nan, mt_tensor **index /* [out] */) {
  const mt_attr attr[] = {mt_attr_i(k), mt_attr_i(dim), mt_attr_i(skip_nan)};
  mt_tensor *out[MT_MAX_OUTPUTS] = {NULL};
  mt_tensor *const y = mt_ca(c, MT_OP__kth, 1, &x, 0, 3, attr, out);
  *index = out[1];
  return y;
}

/* The first k are looked for where that is cheaper than sorting. */
mt_status mt_build_kthvalue(mt_build_call *c) {
  mt_tensor *const x = c->in[0], *sorted, *index[MT_MAX_OUTPUTS] = {NULL};
  const int64_t k = c->attr[0].i[0];
  const bool keepdim = c->attr[2].i[0] != 0;
  int64_t dim;
  MT_TRY(mt_cdim(&c->attr[1], &x->v, 3, &dim));
  const int64_t n = size_of(&x->v, dim);
  if (k < 1 || k > n)
    return mt_fail_arg(MT_EARG, 2,
                       "k is %" PRId64 ", shape %s has 1 .. %" PRId64
                       " elements along dim %" PRId64,
                       k, mt_view_text(&x->v), n, dim + 1);
  if (mt_device_of(x).kind == MT_CPU) {
    c->out[0] = mt_cpick(c->calc, selected(c->calc, x, k, dim, false, &c->out[1]), dim,
                         0, keepdim);
    c->out[1] = mt_cpick(c->calc, c->out[1], dim, 0, keepdim);
    return MT_OK;
  }
  if (k <= n / 8) {
    const mt_attr attr[] = {mt_attr_i(k), mt_attr_i(dim), mt_attr_i(0)};
    sorted = mt_ca(c->calc, MT_OP_topk, 1, c->in, 0, 3, attr, index);
  } else {
    sorted = mt_csorted(c->calc, x, dim, false, &index[1]);
  }
  c->out[0] = mt_cpick(c->calc, sorted, dim, k - 1, keepdim);
  c->out[1] = mt_cpick(c->calc, index[1], dim, k - 1, keepdim);
  return MT_OK;
}

/* ---- median, nanmedian ---- */

/* What a median or mode works on: x, or with no dim x as a vector. */
typedef struct line {
  mt_tensor *x;
  int64_t dim;
  bool flat;
} line;

static mt_status line_of(mt_build_call *c, const mt_attr *attr, line *l) {
  l->x = c->in[0];
  l->flat = attr->n < 0;
  l->dim = 0;
  if (l->flat)
    l->x = mt_cflat(c->calc, l->x);
  else
    MT_TRY(mt_cdim(attr, &l->x->v, 2, &l->dim));
  return l->x ? check_some(&l->x->v, l->dim) : MT_OK;
}

/* A result with 1 element along the dim in its final shape. */
static mt_tensor *finished(mt_build_call *c, const line *l, mt_tensor *t,
                           bool keepdim) {
  if (!l->flat) return mt_cpick(c->calc, t, l->dim, 0, keepdim);
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < c->in[0]->v.ndim; d++) shape[d] = 1;
  return mt_creshape(c->calc, t, keepdim ? c->in[0]->v.ndim : 0, shape);
}

/* How many along dim are not NaN; 1 there. */
static mt_tensor *count_numbers(mt_calc *c, mt_tensor *x, int64_t dim) {
  return mt_creduce(c, MT_OP_sum, mt_ceq_self(c, x), dim, true);
}

/* y again, but its gradient is shared by all of x that equal it, as amax does. */
static mt_tensor *shared(mt_calc *c, mt_tensor *x, mt_tensor *y) {
  if (!y || !c->ctx->grad_enabled || !mt_requires_grad(x)) return y;
  mt_tensor *const low = mt_cnum(c, -(double)INFINITY);
  mt_tensor *const same = mt_c3(c, MT_OP_where, mt_c2(c, MT_OP_eq, x, y), x, low);
  return mt_c3(c, MT_OP_where, mt_ceq_self(c, y),
               mt_creduce(c, MT_OP_amax, same, 0, true), y);
}

/* The median of no floats is NaN, as their mean is. */
static mt_tensor *of_nothing(mt_calc *c, mt_tensor *x, bool keepdim) {
  const mt_attr attr[] = {mt_attr_none(), mt_attr_i(keepdim)};
  return mt_c1a(c, MT_OP_mean, x, 2, attr);
}

/* The middle one of what is sorted, of size 1 along dim; those that are NaN come last. */
static mt_tensor *middle_of_sorted(mt_calc *c, mt_tensor *x, int64_t dim, bool skip_nan,
                                   mt_tensor **index /* [out] */) {
  mt_tensor *const sorted = mt_csorted(c, x, dim, false, index);
  if (!sorted) return NULL;
  const int64_t n = size_of(&x->v, dim);
  if (!MT_IS_FLOAT(x->v.dtype)) {
    *index = mt_cpick(c, *index, dim, (n - 1) / 2, true);
    return mt_cpick(c, sorted, dim, (n - 1) / 2, true);
  }
  mt_tensor *const m = count_numbers(c, x, dim);
  mt_tensor *const more = mt_c2(c, MT_OP_add, m, mt_cint(c, 1));
  mt_tensor *k;
  if (skip_nan)
    k = mt_c2(c, MT_OP_maximum, mt_c2(c, MT_OP_floordiv, more, mt_cint(c, 2)),
              mt_cint(c, 1));
  else
    k = mt_c3(c, MT_OP_where, mt_c2(c, MT_OP_lt, m, mt_cint(c, n)), more,
              mt_cint(c, (n + 1) / 2));
  *index = mt_calong(c, MT_OP_gather, *index, dim, k, NULL);
  return mt_calong(c, MT_OP_gather, sorted, dim, k, NULL);
}

static mt_status median(mt_build_call *call, bool skip_nan) {
  mt_calc *const c = call->calc;
  const bool keepdim = call->attr[1].i[0] != 0;
  mt_tensor *const x = call->in[0];
  if (call->attr[0].n < 0 && MT_IS_FLOAT(x->v.dtype) && mt_numel(&x->v) == 0) {
    call->out[0] = of_nothing(c, x, keepdim);
    call->nout = 1;
    return MT_OK;
  }
  line l;
  MT_TRY(line_of(call, &call->attr[0], &l));
  if (!l.x) return MT_OK;
  mt_tensor *at, *y;
  if (mt_device_of(l.x).kind == MT_CPU)
    y = selected(c, l.x, 0, l.dim, skip_nan, &at);
  else
    y = middle_of_sorted(c, l.x, l.dim, skip_nan, &at);
  if (!y) return MT_OK;
  if (l.flat) y = shared(c, l.x, y);
  call->out[0] = finished(call, &l, y, keepdim);
  call->out[1] = finished(call, &l, at, keepdim);
  if (l.flat) call->nout = 1;
  return MT_OK;
}

mt_status mt_build_median(mt_build_call *c) { return median(c, false); }
mt_status mt_build_nanmedian(mt_build_call *c) { return median(c, true); }

/* ---- mode ---- */

/* Where do runs of equal neighbours begin? x sorted, of size n > 0 along dim. */
static mt_tensor *run_begins(mt_calc *c, mt_tensor *x, int64_t dim) {
  if (!x) return NULL;
  const int64_t n = x->v.shape[dim];
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < x->v.ndim; d++) shape[d] = d == dim ? 1 : x->v.shape[d];
  mt_tensor *const first = mt_cones(c, MT_BOOL, mt_device_of(x), x->v.ndim, shape);
  mt_tensor *const differ =
      mt_c2(c, MT_OP_ne, mt_cpart(c, x, dim, 1, n - 1), mt_cpart(c, x, dim, 0, n - 1));
  return mt_cjoin(c, first, differ, dim);
}

/* Each element's number within its run of equal ones; the first largest of them ends
** the longest run of the smallest value. */
mt_status mt_build_mode(mt_build_call *call) {
  mt_calc *const c = call->calc;
  const bool keepdim = call->attr[1].i[0] != 0;
  line l;
  MT_TRY(line_of(call, &call->attr[0], &l));
  mt_tensor *index, *const sorted = mt_csorted(c, l.x, l.dim, false, &index);
  if (!sorted || l.x->v.ndim == 0) {
    call->out[0] = sorted, call->out[1] = index;
    return MT_OK;
  }
  const int ndim = l.x->v.ndim;
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < ndim; d++) shape[d] = d == l.dim ? l.x->v.shape[d] : 1;
  mt_tensor *const place = mt_ccount(c, mt_device_of(l.x), ndim, shape, 1);
  mt_tensor *const begin =
      mt_c3(c, MT_OP_where, run_begins(c, sorted, l.dim), place, mt_cint(c, 0));
  const mt_attr along[] = {mt_attr_i(l.dim), mt_attr_i(1)};
  mt_tensor *const length =
      mt_c2(c, MT_OP_sub, place, mt_c1a(c, MT_OP_cummax, begin, 1, along));
  mt_tensor *const k = mt_c1a(c, MT_OP_argmax, length, 2, along);
  call->out[0] = mt_cpick(c, mt_calong(c, MT_OP_gather, sorted, l.dim, k, NULL), l.dim,
                          0, keepdim);
  call->out[1] =
      mt_cpick(c, mt_calong(c, MT_OP_gather, index, l.dim, k, NULL), l.dim, 0, keepdim);
  return MT_OK;
}

/* ---- quantile, nanquantile ---- */

/* Shares that the host can read are looked at: others fault where they are used. */
static mt_status check_shares(mt_calc *c, mt_tensor *q) {
  if (q->v.ndim > 1)
    return mt_fail_arg(MT_ESHAPE, 2, "q has shape %s, want a number or a vector",
                       mt_view_text(&q->v));
  if (mt_device_of(q).kind != MT_CPU || mt_numel(&q->v) == 0) return MT_OK;
  const mt_op extreme[] = {MT_OP_amin, MT_OP_amax};
  for (int i = 0; i < 2; i++) {
    double value;
    mt_citem(c, mt_c1(c, extreme[i], q), &value);
    if (c->status == MT_OK && !(value >= 0 && value <= 1))
      return mt_fail_arg(MT_EARG, 2, "q is %g, want 0 .. 1", value);
  }
  return MT_OK;
}

enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };

/* The elements of sorted (last dim) at ranks from 0, which are whole. */
static mt_tensor *at_ranks(mt_calc *c, mt_tensor *sorted, mt_tensor *rank) {
  mt_tensor *const k = mt_cas(c, mt_c2(c, MT_OP_add, rank, mt_cint(c, 1)), MT_I64);
  return sorted ? mt_calong(c, MT_OP_gather, sorted, sorted->v.ndim - 1, k, NULL)
                : NULL;
}

/* Of x's last dim: (..., q). */
static mt_tensor *quantiles(mt_calc *c, mt_tensor *x, mt_tensor *q, int64_t how,
                            bool skip_nan) {
  const int last = x->v.ndim - 1;
  mt_tensor *const sorted = mt_csorted_values(c, x, last, 0);
  mt_tensor *const m = count_numbers(c, x, last);
  mt_tensor *const all = mt_c2(c, MT_OP_maximum, m, mt_cint(c, 1));
  mt_tensor *const top = mt_cas(c, mt_c2(c, MT_OP_sub, all, mt_cint(c, 1)), MT_F64);
  mt_tensor *const rank = mt_c2(c, MT_OP_mul, top, mt_cas(c, q, MT_F64));
  mt_tensor *y;
  if (how == NEAREST) {
    y = at_ranks(c, sorted, mt_c1(c, MT_OP_round, rank));
  } else {
    mt_tensor *const below = mt_c1(c, MT_OP_floor, rank);
    mt_tensor *const low = how == HIGHER ? NULL : at_ranks(c, sorted, below);
    mt_tensor *const high =
        how == LOWER ? NULL : at_ranks(c, sorted, mt_c1(c, MT_OP_ceil, rank));
    mt_tensor *share = mt_cnum(c, 0.5);
    if (how == LINEAR) share = mt_cas(c, mt_c2(c, MT_OP_sub, rank, below), x->v.dtype);
    y = !high ? low : !low ? high : mt_c3(c, MT_OP_lerp, low, high, share);
  }
  mt_tensor *const bad = skip_nan ? mt_c2(c, MT_OP_eq, m, mt_cint(c, 0))
                                  : mt_c2(c, MT_OP_lt, m, mt_cint(c, x->v.shape[last]));
  return mt_c3(c, MT_OP_where, bad, mt_cnum(c, (double)NAN), y);
}

static mt_status quantile(mt_build_call *call, bool skip_nan) {
  mt_calc *const c = call->calc;
  mt_tensor *x = mt_cfloat(c, call->in[0]), *q = call->in[1];
  const mt_attr *const attr = &call->attr[0];
  const bool keepdim = call->attr[1].i[0] != 0, flat = attr->n < 0;
  const int ndim = call->in[0]->v.ndim;
  int64_t dim = 0;
  MT_TRY(check_shares(c, q));
  if (!flat) MT_TRY(mt_cdim(attr, &call->in[0]->v, 3, &dim));
  if (flat || ndim == 0)
    x = mt_cflat(c, x);
  else
    x = mt_ctranspose(c, x, (int)dim, ndim - 1);
  if (!x || !q) return MT_OK;
  MT_TRY(check_some(&x->v, x->v.ndim - 1));
  const bool vector = q->v.ndim == 1;
  mt_tensor *const shares = mt_cflat(c, mt_cas_beside(c, q, MT_F64, x));
  mt_tensor *y = quantiles(c, x, shares, call->attr[2].i[0], skip_nan);
  if (!y) return MT_OK;
  const int64_t nq = y->v.shape[y->v.ndim - 1];
  int64_t shape[MT_MAX_DIMS], order[MT_MAX_DIMS];
  int n = 0;
  if (!flat && ndim > 0) { /* q to the front, the rest in its order */
    y = mt_ctranspose(c, y, (int)dim, ndim - 1);
    order[0] = dim;
    for (int d = 0, m = 1; d < ndim; d++)
      if (d != dim) order[m++] = d;
    y = mt_cpermute(c, y, ndim, order);
  }
  if (vector) shape[n++] = nq;
  for (int d = 0; d < ndim; d++)
    if (!flat && d != dim)
      shape[n++] = call->in[0]->v.shape[d];
    else if (keepdim)
      shape[n++] = 1;
  if (n > MT_MAX_DIMS)
    return mt_fail_arg(MT_ESHAPE, 1, "the result has %d dims, at most %d are possible",
                       n, MT_MAX_DIMS);
  call->out[0] = mt_creshape(c, y, n, shape);
  return MT_OK;
}

mt_status mt_build_quantile(mt_build_call *c) { return quantile(c, false); }
mt_status mt_build_nanquantile(mt_build_call *c) { return quantile(c, true); }

/* ---- searching ---- */

mt_status mt_build_bucketize(mt_build_call *c) {
  mt_tensor *const in[] = {c->in[1], c->in[0]};
  if (c->in[1]->v.ndim != 1)
    return mt_fail_arg(MT_ESHAPE, 2, "boundaries has shape %s, want a vector",
                       mt_view_text(&c->in[1]->v));
  c->out[0] = mt_ca(c->calc, MT_OP_searchsorted, 2, in, 0, 1, c->attr, NULL);
  return MT_OK;
}

mt_status mt_build_isin(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const values = mt_cflat(c, call->in[1]);
  if (!values) return MT_OK;
  const int64_t n = values->v.shape[0];
  mt_tensor *found;
  if (n == 0) {
    found = mt_czeros(c, MT_BOOL, mt_device_of(x), x->v.ndim, x->v.shape);
  } else {
    mt_tensor *const sorted = mt_csorted_values(c, values, 0, 0);
    mt_tensor *const at =
        mt_c2(c, MT_OP_minimum, mt_c2(c, MT_OP_searchsorted, sorted, x), mt_cint(c, n));
    mt_tensor *const nearest =
        mt_calong(c, MT_OP_index_select, sorted, 0, mt_cflat(c, at), NULL);
    found = mt_c2(c, MT_OP_eq, mt_creshape(c, nearest, x->v.ndim, x->v.shape), x);
  }
  call->out[0] = call->attr[0].i[0] ? mt_c1(c, MT_OP_logical_not, found) : found;
  return MT_OK;
}
