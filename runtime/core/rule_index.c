/* runtime/core/rule_index.c -- shapes of the ops that select by an index tensor. */
#include <inttypes.h>
#include "kernels/marks.h"
#include "runtime/core/rules.h"

static mt_status check_index(mt_plan *p, int slot, int arg) {
  if (p->in[slot]->dtype == MT_BOOL)
    return mt_fail_arg(MT_EDTYPE, arg, "index is bool, want whole numbers");
  p->keep_dtype |= 1u << slot;
  return MT_OK;
}

/* The result has x's dtype, whatever index has. */
static void take_dtype(mt_plan *p, mt_dtype d) { p->dtype = p->out[0].dtype = d; }

/* x's elements are replaced by src's: a float does not go into an integer. */
static mt_status check_src(mt_plan *p, int slot, int arg) {
  const mt_dtype x = p->in[0]->dtype, src = p->in[slot]->dtype;
  if (mt_dtype_promote(x, src) == x || (MT_IS_FLOAT(x) && MT_IS_FLOAT(src)) ||
      (MT_IS_INT(x) && MT_IS_INT(src)))
    return MT_OK;
  return mt_fail_arg(MT_EDTYPE, arg, "src is %s, x %s", mt_dtype_name(src),
                     mt_dtype_name(x));
}

/* The dim attribute, slot 0, from 0 within ndim. */
static mt_status check_dim(mt_plan *p, int ndim, int *dim /* [out] */) {
  int64_t d = p->attr[0].i[0];
  if (d < 0) d += ndim;
  if (d < 0 || d >= (ndim ? ndim : 1))
    return mt_fail_arg(MT_EARG, 2, "dim is out of range: x has %d dims", ndim);
  p->attr[0] = mt_attr_i(d);
  *dim = (int)d;
  return MT_OK;
}

static mt_status check_not_empty(const mt_view *x, int dim, const mt_view *index,
                                 int arg) {
  if (x->ndim == 0 || x->shape[dim] > 0 || mt_numel(index) == 0) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "index %s points into an empty dim of x %s",
                     mt_view_text(index), mt_view_text(x));
}

static mt_status check_dims(const mt_view *x, const mt_view *other, const char *name,
                            int arg) {
  if (x->ndim == other->ndim) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "%s has shape %s, x %s: %d dims ~= %d", name,
                     mt_view_text(other), mt_view_text(x), other->ndim, x->ndim);
}

/* index must not be larger than other along any dim but skip. */
static mt_status check_inside(const mt_view *index, const mt_view *other,
                              const char *name, int skip, int arg) {
  for (int i = 0; i < index->ndim; i++)
    if (i != skip && index->shape[i] > other->shape[i])
      return mt_fail_arg(MT_ESHAPE, arg,
                         "index %s does not fit %s %s: %" PRId64 " > %" PRId64
                         " in dim %d",
                         mt_view_text(index), name, mt_view_text(other),
                         index->shape[i], other->shape[i], i + 1);
  return MT_OK;
}

mt_status mt_rule_gather(mt_plan *p) {
  const mt_view *x = p->in[0], *index = p->in[1];
  int dim;
  MT_TRY(check_dim(p, x->ndim, &dim));
  MT_TRY(check_dims(x, index, "index", 3));
  MT_TRY(check_inside(index, x, "x", dim, 3));
  MT_TRY(check_not_empty(x, dim, index, 3));
  MT_TRY(check_index(p, 1, 3));
  take_dtype(p, x->dtype);
  mt_plan_shape(p, 0, index->ndim, index->shape);
  return MT_OK;
}

mt_status mt_rule_scatter_add(mt_plan *p) {
  const mt_view *x = p->in[0], *index = p->in[1], *src = p->in[2];
  int dim;
  MT_TRY(check_dim(p, x->ndim, &dim));
  MT_TRY(check_dims(x, index, "index", 3));
  MT_TRY(check_dims(x, src, "src", 4));
  MT_TRY(check_inside(index, x, "x", dim, 3));
  MT_TRY(check_inside(index, src, "src", -1, 4));
  MT_TRY(check_not_empty(x, dim, index, 3));
  MT_TRY(check_index(p, 1, 3));
  MT_TRY(check_src(p, 2, 4));
  take_dtype(p, x->dtype);
  mt_plan_shape(p, 0, x->ndim, x->shape);
  return MT_OK;
}

/* x's shape with n elements along dim. */
static mt_status vector_index(mt_plan *p, int *dim /* [out] */,
                              mt_view *slices /* [out] */) {
  const mt_view *x = p->in[0], *index = p->in[1];
  if (x->ndim == 0)
    return mt_fail_arg(MT_ESHAPE, 1, "x is 0-dim: it has no dim to index");
  MT_TRY(check_dim(p, x->ndim, dim));
  if (index->ndim > 1)
    return mt_fail_arg(MT_ESHAPE, 3, "index has shape %s, want a vector",
                       mt_view_text(index));
  MT_TRY(check_not_empty(x, *dim, index, 3));
  MT_TRY(check_index(p, 1, 3));
  *slices = *x;
  slices->shape[*dim] = index->ndim ? index->shape[0] : 1;
  take_dtype(p, x->dtype);
  return MT_OK;
}

mt_status mt_rule_index_select(mt_plan *p) {
  int dim;
  mt_view y;
  MT_TRY(vector_index(p, &dim, &y));
  mt_plan_shape(p, 0, y.ndim, y.shape);
  return MT_OK;
}

mt_status mt_rule_index_put(mt_plan *p) {
  int dim;
  mt_view slices;
  MT_TRY(vector_index(p, &dim, &slices));
  if (!mt_same_shape(&slices, p->in[2]))
    return mt_fail_arg(MT_ESHAPE, 4, "src has shape %s, x %s with index %s wants %s",
                       mt_view_text(p->in[2]), mt_view_text(p->in[0]),
                       mt_view_text(p->in[1]), mt_view_text(&slices));
  MT_TRY(check_src(p, 2, 4));
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_embedding(mt_plan *p) {
  const mt_view *weight = p->in[0], *index = p->in[1];
  if (weight->ndim != 2)
    return mt_fail_arg(MT_ESHAPE, 1, "weight has shape %s, want (rows, features)",
                       mt_view_text(weight));
  if (index->ndim == MT_MAX_DIMS)
    return mt_fail_arg(MT_ESHAPE, 2, "index %s has too many dims", mt_view_text(index));
  MT_TRY(check_not_empty(weight, 0, index, 2));
  MT_TRY(check_index(p, 1, 2));
  take_dtype(p, MT_IS_FLOAT(weight->dtype) ? weight->dtype : p->ctx->default_dtype);
  int64_t shape[MT_MAX_DIMS];
  for (int i = 0; i < index->ndim; i++) shape[i] = index->shape[i];
  shape[index->ndim] = weight->shape[1];
  mt_plan_shape(p, 0, index->ndim + 1, shape);
  return MT_OK;
}

mt_status mt_rule_embedding_backward(mt_plan *p) {
  const mt_view *index = p->in[0], *dy = p->in[1];
  const int64_t rows = p->attr[0].i[0];
  bool same = dy->ndim == index->ndim + 1;
  for (int i = 0; same && i < index->ndim; i++) same = dy->shape[i] == index->shape[i];
  if (!same)
    return mt_fail_arg(MT_ESHAPE, 2, "dy has shape %s, want index's %s and features",
                       mt_view_text(dy), mt_view_text(index));
  if (rows < 0 || (rows == 0 && mt_numel(index) > 0))
    return mt_fail_arg(MT_EARG, 3, "%" PRId64 " rows for index %s", rows,
                       mt_view_text(index));
  MT_TRY(check_index(p, 0, 1));
  take_dtype(p, MT_IS_FLOAT(dy->dtype) ? dy->dtype : p->ctx->default_dtype);
  const int64_t shape[2] = {rows, dy->shape[dy->ndim - 1]};
  mt_plan_shape(p, 0, 2, shape);
  return MT_OK;
}

mt_status mt_rule_marks(mt_plan *p) {
  const int64_t length = mt_marks_length(mt_numel(p->in[0]));
  p->out[0].dtype = MT_I64;
  mt_plan_shape(p, 0, 1, &length);
  return MT_OK;
}

mt_status mt_rule_nonzero(mt_plan *p) {
  const int64_t count = p->attr[0].i[0];
  if (count < 0) return mt_fail_arg(MT_EARG, 3, "count %" PRId64 " is negative", count);
  p->out[0].dtype = MT_I64;
  mt_plan_shape(p, 0, 1, &count);
  return MT_OK;
}
