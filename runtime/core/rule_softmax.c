/* runtime/core/rule_softmax.c -- shapes of the backward ops of softmax and log_softmax.
 */
#include "runtime/core/rules.h"

mt_status mt_rule_softmax_backward(mt_plan *p) {
  const mt_view *y = p->in[0], *dy = p->in[1];
  if (!mt_same_shape(y, dy))
    return mt_fail_arg(MT_ESHAPE, 2, "dy has shape %s, y %s", mt_view_text(dy),
                       mt_view_text(y));
  mt_plan_shape(p, 0, y->ndim, y->shape);
  return MT_OK;
}
