/* runtime/core/rule_norm.c -- shapes of layer_norm and of its backward op. */
#include <inttypes.h>
#include "runtime/core/rules.h"

/* attr[0], argument arg, counts dims of x from the end; epsilon comes behind it. */
static mt_status check_dims(const mt_plan *p, int arg) {
  const mt_view *x = p->in[0];
  const int64_t dims = p->attr[0].i[0];
  if (x->ndim == 0) return mt_fail_arg(MT_ESHAPE, 1, "input is 0-dim, want (..., n)");
  if (dims < 1 || dims > x->ndim)
    return mt_fail_arg(MT_EARG, arg,
                       "dims %" PRId64 " is out of range for shape %s: 1 .. %d", dims,
                       mt_view_text(x), x->ndim);
  const double epsilon = p->attr[1].f;
  if (!(epsilon >= 0))
    return mt_fail_arg(MT_EARG, arg + 1, "epsilon is %g, want 0 or more", epsilon);
  return MT_OK;
}

/* Has v the shape of x's last dims? */
static mt_status check_affine(const mt_plan *p, const mt_view *v, const char *name,
                              int arg) {
  const mt_view *x = p->in[0];
  const int dims = (int)p->attr[0].i[0];
  if (!v) return MT_OK;
  bool fits = v->ndim == dims;
  for (int d = 0; fits && d < dims; d++)
    fits = v->shape[d] == x->shape[x->ndim - dims + d];
  if (fits) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg,
                     "%s has shape %s, the last %d dims of input %s want %s", name,
                     mt_view_text(v), dims, mt_view_text(x),
                     mt_shape_text(dims, x->shape + x->ndim - dims));
}

mt_status mt_rule_layer_norm(mt_plan *p) {
  MT_TRY(check_dims(p, 4));
  MT_TRY(check_affine(p, p->in[1], "weight", 2));
  MT_TRY(check_affine(p, p->in[2], "bias", 3));
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_layer_norm_backward(mt_plan *p) {
  const mt_view *x = p->in[0], *dy = p->in[1];
  MT_TRY(check_dims(p, 4));
  if (!mt_same_shape(x, dy))
    return mt_fail_arg(MT_ESHAPE, 2, "dy has shape %s, x %s", mt_view_text(dy),
                       mt_view_text(x));
  MT_TRY(check_affine(p, p->in[2], "weight", 3));
  const int dims = (int)p->attr[0].i[0];
  mt_plan_shape(p, 0, x->ndim, x->shape);
  mt_plan_shape(p, 1, dims, x->shape + x->ndim - dims);
  mt_plan_shape(p, 2, dims, x->shape + x->ndim - dims);
  return MT_OK;
}
