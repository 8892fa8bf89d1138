/* runtime/autograd/build_distance.c -- composite ops made of norms of differences: dist,
** cdist, pdist, pairwise_distance; renorm. */
#include <math.h>
#include "runtime/autograd/graph.h"
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_tensor *norm(mt_calc *c, mt_tensor *x, mt_attr p, mt_attr dims,
                       bool keepdim) {
  const mt_attr attr[] = {p, dims, mt_attr_i(keepdim)};
  return mt_c1a(c, MT_OP_norm, x, 3, attr);
}

/* Of integers as floats: it does not wrap; bool has none. */
static mt_tensor *difference(mt_calc *c, mt_tensor *a, mt_tensor *b) {
  if (!a || !b || MT_IS_FLOAT(a->v.dtype) || MT_IS_FLOAT(b->v.dtype))
    return mt_c2(c, MT_OP_sub, a, b);
  return mt_c2(c, MT_OP_sub, mt_cfloat(c, a), mt_cfloat(c, b));
}

mt_status mt_build_dist(mt_build_call *c) {
  mt_tensor *const d = difference(c->calc, c->in[0], c->in[1]);
  c->out[0] = norm(c->calc, d, c->attr[0], mt_attr_none(), false);
  return MT_OK;
}

mt_status mt_build_pairwise_distance(mt_build_call *c) {
  mt_tensor *d = difference(c->calc, c->in[0], c->in[1]);
  d = mt_c2(c->calc, MT_OP_add, d, mt_cnum(c->calc, c->attr[1].f));
  if (!d) return MT_OK;
  const mt_attr last =
      d->v.ndim > 0 ? mt_attr_list(1, (int64_t[]){d->v.ndim - 1}) : mt_attr_none();
  c->out[0] = norm(c->calc, d, c->attr[0], last, c->attr[2].i[0] != 0);
  return MT_OK;
}

static mt_tensor *unsqueezed(mt_calc *c, mt_tensor *x, int64_t dim) {
  const mt_attr attr = mt_attr_list(1, &dim);
  return mt_c1a(c, MT_OP_unsqueeze, x, 1, &attr);
}

/* p-norms of the differences of all rows of a and b. */
static mt_tensor *distances(mt_calc *c, mt_tensor *a, mt_tensor *b, mt_attr p) {
  mt_tensor *const d =
      difference(c, unsqueezed(c, a, a->v.ndim - 1), unsqueezed(c, b, b->v.ndim - 2));
  if (!d) return NULL;
  return norm(c, d, p, mt_attr_list(1, (int64_t[]){d->v.ndim - 1}), false);
}

/* Elements of one row's differences, all batches together; 0 if those do not broadcast. */
static double row_differences(const mt_view *a, const mt_view *b) {
  double n = (double)b->shape[b->ndim - 2] * (double)b->shape[b->ndim - 1];
  for (int d = 3; d <= a->ndim || d <= b->ndim; d++) {
    const int64_t of_a = d <= a->ndim ? a->shape[a->ndim - d] : 1;
    const int64_t of_b = d <= b->ndim ? b->shape[b->ndim - d] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) return 0;
    n *= (double)(of_a == 1 ? of_b : of_a);
  }
  return n;
}

/* Of n rows of a from start, into *all, which the first call makes. What it takes besides
** is given back. */
static mt_status some_distances(mt_build_call *call, int64_t start, int64_t n,
                                mt_tensor **all /* [in, out] */) {
  mt_tensor *const a = call->in[0];
  mt_calc c;
  mt_calc_begin(&c, call->calc->ctx);
  mt_tensor *const rows = mt_cpart(&c, a, a->v.ndim - 2, start, n);
  mt_tensor *const y = rows ? distances(&c, rows, call->in[1], call->attr[0]) : NULL;
  if (y && !*all) {
    int64_t shape[MT_MAX_DIMS];
    for (int d = 0; d < y->v.ndim; d++) shape[d] = y->v.shape[d];
    shape[y->v.ndim - 2] = a->v.shape[a->v.ndim - 2];
    c.status = mt_empty(c.ctx, y->v.dtype, mt_device_of(y), y->v.ndim, shape, all);
  }
  if (y && *all) {
    mt_tensor *const place = mt_cpart(&c, *all, y->v.ndim - 2, start, n);
    mt_cinplace(&c, MT_OP__copy, 2, (mt_tensor *[]){place, y}, NULL);
  }
  return mt_calc_end(&c, 0, NULL);
}

static mt_status distances_in_blocks(mt_build_call *call, int64_t block) {
  const int64_t rows = call->in[0]->v.shape[call->in[0]->v.ndim - 2];
  mt_tensor *all = NULL;
  mt_status status = MT_OK;
  for (int64_t i = 0; i < rows && status == MT_OK; i += block)
    status = some_distances(call, i, rows - i < block ? rows - i : block, &all);
  mt_cown(call->calc, all);
  if (status == MT_OK) call->out[0] = all;
  return status;
}

/* Elements of the differences that are held at once, unless a gradient needs all. */
#define BLOCK 0x1p22

mt_status mt_build_cdist(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const a = call->in[0], *const b = call->in[1];
  for (int i = 0; i < 2; i++) {
    if (call->in[i]->v.ndim < 2 || call->in[i]->v.ndim == MT_MAX_DIMS)
      return mt_fail_arg(MT_ESHAPE, i + 1, "matrices or batches expected, got shape %s",
                         mt_view_text(&call->in[i]->v));
  }
  const int64_t k = a->v.shape[a->v.ndim - 1];
  if (b->v.shape[b->v.ndim - 1] != k)
    return mt_fail_arg(MT_ESHAPE, 2, "rows of shapes %s and %s differ in length",
                       mt_view_text(&a->v), mt_view_text(&b->v));
  const double p = call->attr[0].f;
  if (!(p >= 0))
    return mt_fail_arg(MT_EARG, 3, "p is %g, want 0 or more",
                       isnan(p) ? (double)NAN : p);
  const bool recorded = c->ctx->grad_enabled && mt_any_requires_grad(2, call->in);
  const double row = row_differences(&a->v, &b->v);
  if (!recorded && row * (double)a->v.shape[a->v.ndim - 2] > BLOCK)
    return distances_in_blocks(call, row < BLOCK ? (int64_t)(BLOCK / row) : 1);
  call->out[0] = distances(c, a, b, call->attr[0]);
  return MT_OK;
}

mt_status mt_build_pdist(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  const double p = call->attr[0].f;
  MT_TRY(mt_check_ndim(x, 1, 2, "a matrix"));
  if (!(p >= 0))
    return mt_fail_arg(MT_EARG, 2, "p is %g, want 0 or more",
                       isnan(p) ? (double)NAN : p);
  const int64_t n = x->v.shape[0], square[] = {n, n};
  mt_tensor *const both[] = {x, x};
  mt_tensor *const all = mt_ca(c, MT_OP_cdist, 2, both, 0, 1, call->attr, NULL);
  if (!all) return MT_OK;
  const mt_attr beside = mt_attr_i(1);
  mt_tensor *const ones = mt_cones(c, MT_BOOL, mt_device_of(x), 2, square);
  mt_tensor *const above = mt_c1a(c, MT_OP_triu, ones, 1, &beside);
  call->out[0] = mt_cmasked_select(c, all, above, n * (n - 1) / 2);
  return MT_OK;
}

mt_status mt_build_renorm(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  const int64_t dim = call->attr[1].i[0];
  const double p = call->attr[0].f, most = call->attr[2].f;
  if (x->v.ndim < 2)
    return mt_fail_arg(MT_ESHAPE, 1, "2 dims or more expected, got shape %s",
                       mt_view_text(&x->v));
  if (!MT_IS_FLOAT(x->v.dtype))
    return mt_fail_arg(MT_EDTYPE, 1, "a float dtype expected, got %s",
                       mt_dtype_name(x->v.dtype));
  if (!(p > 0))
    return mt_fail_arg(MT_EARG, 2, "p is %g, want more than 0",
                       isnan(p) ? (double)NAN : p);
  if (!(most >= 0)) return mt_fail_arg(MT_EARG, 4, "most is %g, want 0 or more", most);
  mt_attr others = {.is_int = 1};
  for (int d = 0; d < x->v.ndim; d++)
    if (d != dim) others.i[others.n++] = d;
  mt_tensor *const length = norm(c, x, call->attr[0], others, true);
  mt_tensor *const large = mt_c2(c, MT_OP_gt, length, mt_cnum(c, most));
  /* the 1e-7 is PyTorch's */
  mt_tensor *const safe =
      mt_c2(c, MT_OP_add, mt_c3(c, MT_OP_where, large, length, mt_cint(c, 1)),
            mt_cnum(c, 1e-7));
  mt_tensor *const factor =
      mt_c3(c, MT_OP_where, large, mt_c2(c, MT_OP_div, mt_cnum(c, most), safe),
            mt_cint(c, 1));
  call->out[0] = mt_c2(c, MT_OP_mul, x, factor);
  return MT_OK;
}
