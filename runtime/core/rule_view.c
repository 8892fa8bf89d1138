/* runtime/core/rule_view.c -- geometry of views: shape, strides and offset, no copies.
 */
#include <string.h>
#include "runtime/core/rules.h"

/* Start out[0] as x itself. */
static mt_view *as_input(mt_plan *p) {
  mt_view_copy(&p->out[0], p->in[0]);
  return &p->out[0];
}

static void remove_dim(mt_view *v, int dim) {
  for (int d = dim; d + 1 < v->ndim; d++)
    v->shape[d] = v->shape[d + 1], v->stride[d] = v->stride[d + 1];
  v->ndim--;
}

static mt_status room_for_dim(const mt_view *x) {
  if (x->ndim < MT_MAX_DIMS) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, 1, "shape %s has all the %d dims that are possible",
                     mt_view_text(x), MT_MAX_DIMS);
}

static mt_status needs_dims(const mt_view *x) {
  if (x->ndim > 0) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, 1, "a tensor with dims expected, got shape []");
}

mt_status mt_rule_alias(mt_plan *p) {
  as_input(p);
  return MT_OK;
}

mt_status mt_rule_view(mt_plan *p) {
  const mt_view *x = p->in[0];
  mt_view *y = as_input(p);
  mt_attr *shape = &p->attr[0];
  MT_TRY(mt_infer_shape(mt_numel(x), shape->n, shape->i, x));
  if (!mt_view_strides(x, shape->n, shape->i, y->stride))
    return mt_fail_arg(
        MT_ESHAPE, 1,
        "shape %s with these strides cannot be seen as %s without a copy: "
        "use reshape",
        mt_view_text(x), mt_shape_text(shape->n, shape->i));
  mt_plan_shape(p, 0, shape->n, shape->i);
  return MT_OK;
}

static mt_status range(const mt_plan *p, int64_t dim, int64_t start, int64_t length,
                       int64_t step) {
  const int64_t size = p->in[0]->shape[dim];
  int64_t reach = 0;
  if (step < 1) return mt_fail_arg(MT_EARG, 5, "step %lld: 1 or more", (long long)step);
  if (length < 0)
    return mt_fail_arg(MT_EARG, 4, "length %lld is negative", (long long)length);
  if (start >= 0 && start <= size &&
      (length == 0 ||
       (!__builtin_mul_overflow(length - 1, step, &reach) && reach < size - start)))
    return MT_OK;
  return mt_fail_arg(MT_EARG, 4,
                     "%lld elements from %lld do not fit dim %lld of shape %s",
                     (long long)length, (long long)start + 1, (long long)dim + 1,
                     mt_view_text(p->in[0]));
}

mt_status mt_rule_slice(mt_plan *p) {
  MT_TRY(needs_dims(p->in[0]));
  mt_view *y = as_input(p);
  const int64_t dim = p->attr[0].i[0], start = p->attr[1].i[0],
                length = p->attr[2].i[0], step = p->op->nattr > 3 ? p->attr[3].i[0] : 1;
  MT_TRY(range(p, dim, start, length, step));
  p->offset = length > 0 ? start * y->stride[dim] : 0;
  y->shape[dim] = length;
  y->stride[dim] *= step;
  return MT_OK;
}

mt_status mt_rule_narrow(mt_plan *p) { return mt_rule_slice(p); }

mt_status mt_rule_select(mt_plan *p) {
  const mt_view *x = p->in[0];
  MT_TRY(needs_dims(x));
  mt_view *y = as_input(p);
  const int64_t dim = p->attr[0].i[0], index = p->attr[1].i[0];
  if (index < 0 || index >= x->shape[dim])
    return mt_fail_arg(MT_EARG, 3,
                       "index %lld is out of range for dim %lld of shape %s",
                       (long long)index + 1, (long long)dim + 1, mt_view_text(x));
  p->offset = index * x->stride[dim];
  remove_dim(y, (int)dim);
  return MT_OK;
}

mt_status mt_rule_transpose(mt_plan *p) {
  mt_view *y = as_input(p);
  const int64_t a = p->attr[0].i[0], b = p->attr[1].i[0];
  if (y->ndim == 0) return MT_OK;
  const int64_t shape = y->shape[a], stride = y->stride[a];
  y->shape[a] = y->shape[b], y->stride[a] = y->stride[b];
  y->shape[b] = shape, y->stride[b] = stride;
  return MT_OK;
}

mt_status mt_rule_permute(mt_plan *p) {
  const mt_view *x = p->in[0];
  mt_view *y = as_input(p);
  const mt_attr *order = &p->attr[0];
  uint32_t seen = 0;
  if (order->n != x->ndim)
    return mt_fail_arg(MT_EARG, 2, "%d dims given for shape %s of %d", order->n,
                       mt_view_text(x), x->ndim);
  for (int d = 0; d < x->ndim; d++) {
    if (seen >> order->i[d] & 1u)
      return mt_fail_arg(MT_EARG, 2, "dim %lld is given twice",
                         (long long)order->i[d] + 1);
    seen |= 1u << order->i[d];
    y->shape[d] = x->shape[order->i[d]];
    y->stride[d] = x->stride[order->i[d]];
  }
  return MT_OK;
}

mt_status mt_rule_expand(mt_plan *p) {
  const mt_view *x = p->in[0];
  mt_attr *shape = &p->attr[0];
  mt_view *y = as_input(p);
  const int added = shape->n - x->ndim;
  bool fits = added >= 0;
  for (int d = 0; fits && d < shape->n; d++) {
    const int s = d - added;
    if (shape->i[d] == -1 && s >= 0) shape->i[d] = x->shape[s];
    y->shape[d] = shape->i[d];
    y->stride[d] = s < 0 ? 0 : x->stride[s];
    if (shape->i[d] < 0)
      fits = false;
    else if (s >= 0 && x->shape[s] != shape->i[d]) {
      y->stride[d] = 0;
      fits = x->shape[s] == 1;
    }
  }
  if (!fits)
    return mt_fail_arg(MT_ESHAPE, 2, "shape %s does not expand to %s", mt_view_text(x),
                       mt_shape_text(shape->n, shape->i));
  y->ndim = shape->n;
  return MT_OK;
}

mt_status mt_rule_squeeze(mt_plan *p) {
  const mt_view *x = p->in[0];
  const mt_attr *dim = &p->attr[0];
  mt_view *y = as_input(p);
  uint32_t remove = dim->n < 0 ? ~0u : 0;
  for (int k = 0; k < dim->n; k++) remove |= 1u << dim->i[k];
  y->ndim = 0;
  for (int d = 0; d < x->ndim; d++) {
    if ((remove >> d & 1u) && x->shape[d] == 1) continue;
    y->shape[y->ndim] = x->shape[d];
    y->stride[y->ndim++] = x->stride[d];
  }
  return MT_OK;
}

mt_status mt_rule_unsqueeze(mt_plan *p) {
  const mt_view *const x = p->in[0];
  const mt_attr *const dim = &p->attr[0];
  mt_view *const y = &p->out[0];
  uint32_t added = 0;
  if (x->ndim + dim->n > MT_MAX_DIMS) {
    return mt_fail_arg(MT_ESHAPE, 1, "shape %s cannot have %d dims more: %d at most",
                       mt_view_text(x), dim->n, MT_MAX_DIMS);
  }
  as_input(p);
  y->ndim = x->ndim + dim->n;
  for (int k = 0; k < dim->n; k++) added |= 1u << dim->i[k];
  for (int d = y->ndim - 1, from = x->ndim - 1; d >= 0; d--) {
    if (added >> d & 1u) {
      y->shape[d] = 1;
      y->stride[d] = d + 1 < y->ndim ? y->shape[d + 1] * y->stride[d + 1] : 1;
    } else {
      y->shape[d] = x->shape[from];
      y->stride[d] = x->stride[from--];
    }
  }
  return MT_OK;
}

mt_status mt_rule_unfold(mt_plan *p) {
  const mt_view *x = p->in[0];
  MT_TRY(needs_dims(x));
  MT_TRY(room_for_dim(x));
  mt_view *y = as_input(p);
  const int64_t dim = p->attr[0].i[0], size = p->attr[1].i[0], step = p->attr[2].i[0];
  if (step < 1) return mt_fail_arg(MT_EARG, 4, "step %lld: 1 or more", (long long)step);
  if (size < 0 || size > x->shape[dim])
    return mt_fail_arg(MT_EARG, 3, "windows of %lld do not fit dim %lld of shape %s",
                       (long long)size, (long long)dim + 1, mt_view_text(x));
  y->shape[y->ndim] = size;
  y->stride[y->ndim++] = x->stride[dim];
  y->shape[dim] = (x->shape[dim] - size) / step + 1;
  if (__builtin_mul_overflow(x->stride[dim], step, &y->stride[dim]))
    y->stride[dim] = 0; /* then there is one window only */
  return MT_OK;
}

mt_status mt_rule_diagonal(mt_plan *p) {
  const mt_view *x = p->in[0];
  mt_view *y = as_input(p);
  const int64_t offset = p->attr[0].i[0], a = p->attr[1].i[0], b = p->attr[2].i[0];
  if (x->ndim < 2)
    return mt_fail_arg(MT_ESHAPE, 1, "2 dims or more expected, got shape %s",
                       mt_view_text(x));
  if (a == b)
    return mt_fail_arg(MT_EARG, 4, "dim %lld is given twice", (long long)a + 1);
  const int64_t rows = x->shape[a], columns = x->shape[b];
  const int64_t down = offset < 0 ? (offset < -rows ? rows : -offset) : 0;
  const int64_t right = offset > 0 ? (offset > columns ? columns : offset) : 0;
  const int64_t length = rows - down < columns - right ? rows - down : columns - right;
  const int64_t stride = x->stride[a] + x->stride[b];
  if (length > 0) p->offset = down * x->stride[a] + right * x->stride[b];
  remove_dim(y, (int)(a > b ? a : b));
  remove_dim(y, (int)(a > b ? b : a));
  y->shape[y->ndim] = length > 0 ? length : 0;
  y->stride[y->ndim++] = stride;
  return MT_OK;
}

mt_status mt_rule_as_strided(mt_plan *p) {
  const mt_attr *shape = &p->attr[0], *stride = &p->attr[1];
  as_input(p);
  if (shape->n != stride->n)
    return mt_fail_arg(MT_EARG, 3, "%d strides given for shape %s", stride->n,
                       mt_shape_text(shape->n, shape->i));
  mt_plan_shape(p, 0, shape->n, shape->i);
  for (int d = 0; d < shape->n; d++) p->out[0].stride[d] = stride->i[d];
  p->offset = p->attr[2].i[0]; /* from the storage's start, not x's */
  return MT_OK;
}
