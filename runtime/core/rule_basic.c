/* runtime/core/rule_basic.c -- shape rules of ops that keep a shape, select by a
** condition, join or reverse. */
#include <string.h>
#include "runtime/core/rules.h"

/* y has x's shape and the op's dtype. */
mt_status mt_rule_same(mt_plan *p) {
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_fill(mt_plan *p) {
  MT_TRY(mt_check_holds(p->in[0]->dtype, &p->attr[0], 2));
  return mt_rule_same(p);
}

/* The same for ops along a dim that must be there: softmax of a number is over itself.
 */
mt_status mt_rule_same_float(mt_plan *p) { return mt_rule_same(p); }

mt_status mt_rule_cast(mt_plan *p) {
  p->keep_dtype |= 1u;
  p->out[0].dtype = (mt_dtype)p->attr[0].i[0];
  return mt_rule_same(p);
}

/* Only reached without a tensor to write to. */
mt_status mt_rule_copy(mt_plan *p) {
  return mt_fail(MT_EINTERNAL, "%s works in place only", p->op->name);
}

mt_status mt_rule_where(mt_plan *p) {
  mt_view *out = &p->out[0];
  if (p->in[0]->dtype != MT_BOOL)
    return mt_fail_arg(MT_EDTYPE, 1, "a bool tensor expected, got %s",
                       mt_dtype_name(p->in[0]->dtype));
  out->ndim = 0;
  for (int i = 0; i < p->nin; i++) {
    const mt_status status = mt_broadcast(&out->ndim, out->shape, p->in[i]);
    if (status != MT_OK) return mt_fail_arg(status, i + 1, "%s", mt_last_error()->text);
  }
  p->broadcast = true;
  return MT_OK;
}

/* Empty vectors (shape [0]) join with anything, as in PyTorch. */
mt_status mt_rule_cat(mt_plan *p) {
  const mt_view *first = NULL;
  const int64_t dim = p->attr[0].i[0];
  int64_t total = 0;
  for (int i = 0; i < p->nin; i++) {
    const mt_view *v = p->in[i];
    if (v->ndim == 1 && v->shape[0] == 0) continue;
    if (v->ndim == 0)
      return mt_fail_arg(MT_ESHAPE, 1, "tensor %d has no dims; stack joins such",
                         i + 1);
    if (!first) first = v;
    bool fits = v->ndim == first->ndim && dim < v->ndim;
    for (int d = 0; fits && d < v->ndim; d++)
      fits = d == dim || v->shape[d] == first->shape[d];
    if (!fits)
      return mt_fail_arg(
          MT_ESHAPE, 1, "tensor %d of shape %s does not join shape %s along dim %lld",
          i + 1, mt_view_text(v), mt_view_text(first), (long long)dim + 1);
    if (__builtin_add_overflow(total, v->shape[dim], &total))
      return mt_fail_arg(MT_ESHAPE, 1, "the joined dim is too large");
  }
  if (!first) first = p->in[0];
  mt_plan_shape(p, 0, first->ndim, first->shape);
  p->out[0].shape[first->ndim > 0 ? dim : 0] = total;
  return MT_OK;
}

mt_status mt_rule_flip(mt_plan *p) { return mt_rule_same(p); }
