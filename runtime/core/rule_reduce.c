/* runtime/core/rule_reduce.c -- shape rules of reductions and scans. Attribute dim: n =
*-1
** means every dim; keepdim leaves reduced dims with size 1. */
#include <string.h>
#include "runtime/core/rules.h"

static int position(const mt_plan *p, const char *name) {
  for (int k = 0; k < p->op->nparams; k++)
    if (!strcmp(p->op->param[k].name, name)) return k + 1;
  return 0;
}

/* Bit d: dim d is reduced. */
static mt_status reduced(const mt_plan *p, uint32_t *bits) {
  const mt_attr *dim = &p->attr[p->op->dim_slot];
  const mt_view *x = p->in[0];
  *bits = dim->n < 0 ? (1u << x->ndim) - 1u : 0;
  for (int k = 0; k < dim->n; k++) {
    if (x->ndim == 0) continue; /* dim 1 of a 0-dim tensor is itself */
    const uint32_t bit = 1u << dim->i[k];
    if (*bits & bit)
      return mt_fail_arg(MT_EARG, position(p, "dim"), "dim %lld is given twice",
                         (long long)dim->i[k] + 1);
    *bits |= bit;
  }
  return MT_OK;
}

static void drop(mt_plan *p, uint32_t bits) {
  const mt_view *x = p->in[0];
  const bool keep = p->attr[p->op->keepdim_slot].i[0] != 0;
  for (int o = 0; o < p->nout; o++) {
    int n = 0;
    for (int d = 0; d < x->ndim; d++)
      if (!(bits >> d & 1u))
        p->out[o].shape[n++] = x->shape[d];
      else if (keep)
        p->out[o].shape[n++] = 1;
    p->out[o].ndim = n;
  }
}

static mt_status reduce(mt_plan *p) {
  uint32_t bits;
  MT_TRY(reduced(p, &bits));
  drop(p, bits);
  return MT_OK;
}

mt_status mt_rule_reduce_float(mt_plan *p) { return reduce(p); }

mt_status mt_rule_reduce_sum(mt_plan *p) {
  if (!(MT_IS_FLOAT(p->dtype))) p->out[0].dtype = MT_I64;
  return reduce(p);
}

mt_status mt_rule_reduce_bool(mt_plan *p) {
  p->out[0].dtype = MT_BOOL;
  return reduce(p);
}

mt_status mt_rule_reduce_count(mt_plan *p) {
  p->out[0].dtype = MT_I64;
  return reduce(p);
}

/* A largest or smallest element must exist. */
static mt_status some(const mt_plan *p, uint32_t bits) {
  const mt_view *x = p->in[0];
  for (int d = 0; d < x->ndim; d++)
    if ((bits >> d & 1u) && x->shape[d] == 0)
      return mt_fail_arg(MT_ESHAPE, 1,
                         "dim %d of shape %s has no elements to choose from", d + 1,
                         mt_view_text(x));
  return MT_OK;
}

mt_status mt_rule_reduce_some(mt_plan *p) {
  uint32_t bits;
  MT_TRY(reduced(p, &bits));
  MT_TRY(some(p, bits));
  drop(p, bits);
  return MT_OK;
}

mt_status mt_rule_reduce_index(mt_plan *p) {
  p->out[1].dtype = MT_I64;
  return mt_rule_reduce_some(p);
}

mt_status mt_rule_reduce_arg(mt_plan *p) {
  p->out[0].dtype = MT_I64;
  return mt_rule_reduce_some(p);
}

mt_status mt_rule_scan(mt_plan *p) {
  if (!(MT_IS_FLOAT(p->dtype))) p->out[0].dtype = MT_I64;
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_scan_index(mt_plan *p) {
  p->out[1].dtype = MT_I64;
  for (int o = 0; o < 2; o++) mt_plan_shape(p, o, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_recurrence(mt_plan *p) {
  if (!mt_same_shape(p->in[0], p->in[1]))
    return mt_fail_arg(MT_ESHAPE, 2, "b has shape %s, a %s", mt_view_text(p->in[1]),
                       mt_view_text(p->in[0]));
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}
