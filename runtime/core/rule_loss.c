/* runtime/core/rule_loss.c -- shapes of nll_loss, cross_entropy and their backward ops.
 */
#include <inttypes.h>
#include "runtime/core/rules.h"

/* x (C) with labels (), or x (N, C, ...) with labels (N, ...). Sets the loss' shape. */
static mt_status check_labels(mt_plan *p, mt_attr reduction,
                              mt_view *loss /* [out] */) {
  const mt_view *x = p->in[0], *labels = p->in[1];
  if (x->ndim == 0)
    return mt_fail_arg(MT_ESHAPE, 1, "input is 0-dim, want (C) or (N, C, ...)");
  mt_view want = {.ndim = x->ndim - 1};
  for (int i = 0, d = 0; i < x->ndim; i++)
    if (i != 1 && x->ndim > 1) want.shape[d++] = x->shape[i];
  if (!mt_same_shape(&want, labels))
    return mt_fail_arg(MT_ESHAPE, 2, "labels have shape %s, input %s wants %s",
                       mt_view_text(labels), mt_view_text(x), mt_view_text(&want));
  if (labels->dtype == MT_BOOL)
    return mt_fail_arg(MT_EDTYPE, 2, "labels are bool, want whole numbers from 1");
  if (x->shape[x->ndim > 1] == 0 && mt_numel(labels) > 0)
    return mt_fail_arg(MT_ESHAPE, 1, "input %s has no classes", mt_view_text(x));
  *loss = want;
  if (reduction.i[0] != 2) loss->ndim = 0;
  p->keep_dtype |= 2;
  return MT_OK;
}

static mt_dtype float_of(const mt_plan *p, mt_dtype d) {
  return MT_IS_FLOAT(d) ? d : p->ctx->default_dtype;
}

mt_status mt_rule_nll(mt_plan *p) {
  mt_view loss;
  MT_TRY(check_labels(p, p->attr[0], &loss));
  p->dtype = p->out[0].dtype = float_of(p, p->in[0]->dtype);
  mt_plan_shape(p, 0, loss.ndim, loss.shape);
  return MT_OK;
}

mt_status mt_rule_nll_backward(mt_plan *p) {
  const mt_view *x = p->in[0], *dy = p->in[2];
  mt_view loss;
  MT_TRY(check_labels(p, p->attr[0], &loss));
  if (!mt_same_shape(&loss, dy))
    return mt_fail_arg(MT_ESHAPE, 3, "dy has shape %s, the forward's result %s",
                       mt_view_text(dy), mt_view_text(&loss));
  p->dtype = p->out[0].dtype = float_of(p, x->dtype);
  mt_plan_shape(p, 0, x->ndim, x->shape);
  return MT_OK;
}
