/* runtime/core/plan.c -- what dispatch decides before it runs a kernel: dtype and
 * device. */
#include <string.h>
#include "runtime/core/plan.h"
#include "runtime/core/rules.h"

/* PyTorch's rule: a tensor with dims decides over a 0-dim one, that over a number,
** unless the lesser is of a higher kind (bool < integer < float). */
static int combine(int higher, int lower) {
  if (higher < 0) return lower;
  if (lower < 0 || MT_IS_FLOAT(higher)) return higher;
  if (higher == MT_BOOL || MT_IS_FLOAT(lower))
    return mt_dtype_promote((mt_dtype)higher, (mt_dtype)lower);
  return higher;
}

static int join(int a, mt_dtype b) {
  return a < 0 ? (int)b : (int)mt_dtype_promote((mt_dtype)a, b);
}

static mt_status check_class(const mt_opinfo *op, mt_dtype *dtype, mt_context *ctx) {
  const mt_dtype d = *dtype;
  switch (op->dtypes) {
  case MT_CLASS_FLOAT:
    if (!MT_IS_FLOAT(d)) *dtype = ctx->default_dtype;
    return MT_OK;
  case MT_CLASS_NUMBER:
    if (d == MT_BOOL)
      return mt_fail_arg(MT_EDTYPE, 1,
                         "bool is not supported; convert with :to(\"int64\")");
    return MT_OK;
  case MT_CLASS_INT:
    if (MT_IS_FLOAT(d))
      return mt_fail_arg(MT_EDTYPE, 1, "%s is not supported, only integers and bool",
                         mt_dtype_name(d));
    return MT_OK;
  default: return MT_OK;
  }
}

mt_status mt_plan_dtype(mt_context *ctx, const mt_opinfo *op, int nin,
                        mt_tensor *const *in, mt_dtype *dtype) {
  const uint32_t ignore = op->kept;
  int dims = -1, zero = -1, number = -1;
  for (int i = 0; i < nin; i++) {
    const mt_tensor *t = in[i];
    if (!t || (i < 32 && (ignore >> i & 1u))) continue;
    const mt_dtype d = t->v.dtype;
    if (t->wrapped)
      number = join(number, MT_IS_FLOAT(d) ? ctx->default_dtype : d);
    else if (t->v.ndim == 0)
      zero = join(zero, d);
    else
      dims = join(dims, d);
  }
  const int result = combine(dims, combine(zero, number));
  *dtype = result < 0 ? (nin > 0 && in[0] ? in[0]->v.dtype : ctx->default_dtype)
                      : (mt_dtype)result;
  return check_class(op, dtype, ctx);
}

/* Where input i stands among the parameters, from 1: attributes may come before it. */
static int input_arg(const mt_opinfo *op, int i) {
  for (int k = 0; k < op->nparams; k++)
    if (op->param[k].type <= MT_PARAM_OPTIONAL && op->param[k].slot == i) return k + 1;
  return 0;
}

mt_status mt_plan_device(const mt_opinfo *op, int nin, mt_tensor *const *in,
                         mt_device *device) {
  int first = -1;
  for (int i = 0; i < nin; i++) {
    if (!in[i]) continue;
    const mt_device d = mt_device_of(in[i]);
    const bool follows = d.kind == MT_CPU && in[i]->v.ndim == 0;
    if (first < 0)
      first = i, *device = d;
    else if (mt_same_device(d, *device) || follows)
      continue;
    else if (device->kind == MT_CPU && in[first]->v.ndim == 0)
      first = i, *device = d;
    else {
      char one[16];
      strcpy(one, mt_device_name(*device));
      return mt_fail_arg(MT_EDEVICE, op->list ? 1 : input_arg(op, i),
                         "tensors on %s and on %s; move one with :to(device)", one,
                         mt_device_name(d));
    }
  }
  if (first < 0) return mt_fail_arg(MT_EARG, 1, "no tensor given");
  return MT_OK;
}

static int kind_of(mt_dtype d) { return d == MT_BOOL ? 0 : MT_IS_INT(d) ? 1 : 2; }

mt_status mt_plan_result(mt_context *ctx, mt_dtype dtype, mt_device device,
                         const mt_view *v, bool channels_last, mt_tensor **out) {
  MT_TRY(mt_empty(ctx, dtype, device, v->ndim, v->shape, out));
  if (channels_last && v->ndim == 4)
    mt_channels_last_strides(v->shape, (*out)->v.stride);
  return MT_OK;
}

bool mt_plan_may_store(mt_dtype from, mt_dtype to) {
  return kind_of(from) <= kind_of(to);
}

void mt_plan_shape(mt_plan *p, int i, int ndim, const int64_t *shape) {
  p->out[i].ndim = ndim;
  if (ndim) memcpy(p->out[i].shape, shape, (size_t)ndim * sizeof *shape);
}
