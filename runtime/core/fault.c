/* runtime/core/fault.c -- what a kernel noted of bad data, as an error. */
#include <math.h>
#include <stdio.h>
#include "runtime/core/dtype.h"
#include "runtime/core/op.h"
#include "runtime/core/plan.h"

/* ": 2.5", the element of v that is the position-th from 0. */
static const char *number_at(const mt_view *v, int64_t position) {
  static __thread char text[40];
  int64_t at = 0;
  for (int d = v->ndim - 1; d >= 0; d--) {
    if (v->shape[d] == 0) return "";
    at += position % v->shape[d] * v->stride[d];
    position /= v->shape[d];
  }
  const char *const p = v->data + at * (int64_t)mt_dtype_size(v->dtype);
  const double x = mt_load_f64(v->dtype, p);
  snprintf(text, sizeof text, ": %.14g", isnan(x) ? (double)NAN : x); /* not -nan */
  return text;
}

mt_status mt_fault_error(const mt_fault *f, const mt_view *const *in) {
  const mt_opinfo *op = mt_op_info((mt_op)f->op);
  const mt_view *positions = NULL;
  int arg = 0;
  for (int k = 0; k < op->nparams; k++) {
    const int slot = op->param[k].slot;
    if (op->param[k].type != MT_PARAM_INPUT || !(op->kept >> slot & 1u)) continue;
    arg = k + 1;
    if (in) positions = in[slot];
  }
  if (f->op == MT_OP_inverse || f->op == MT_OP__solve) {
    char which[40] = "the matrix";
    if (f->hi > 1)
      snprintf(which, sizeof which, "matrix %lld of the batch",
               (long long)f->position + 1);
    return mt_fail_arg(MT_EFAULT, 1, "%s is singular: column %lld has no pivot", which,
                       (long long)f->value);
  }
  if (f->lo > f->hi)
    return mt_fail_arg(MT_EFAULT, 2, "integer division by zero at element %lld",
                       (long long)f->position + 1);
  if (f->value == MT_NOT_WHOLE && !(positions && MT_IS_INT(positions->dtype))) {
    const char *found = positions ? number_at(positions, f->position) : "";
    return mt_fail_arg(MT_EFAULT, arg, "no whole number at element %lld%s",
                       (long long)f->position + 1, found);
  }
  return mt_fail_arg(MT_EFAULT, arg,
                     "value %lld at element %lld is out of range %lld .. %lld",
                     (long long)f->value, (long long)f->position + 1, (long long)f->lo,
                     (long long)f->hi);
}
