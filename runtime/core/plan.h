/* runtime/core/plan.h -- the steps of dispatch that decide: dtype, device, shapes. */
#ifndef MT_PLAN_H
#define MT_PLAN_H

#include "runtime/core/op.h"

/* The bits of inputs that hold positions, labels or masks: they keep their dtype and do
** not count for promotion. By name: index, labels, mask, cond. */
uint32_t mt_plan_kept(const mt_opinfo *op);

/* PyTorch's result type of the inputs that count, by the row's class.
** MT_EDTYPE: a class that the op does not take. */
mt_status mt_plan_dtype(mt_context *ctx, const mt_opinfo *op, int nin,
                        mt_tensor *const *in, mt_dtype *dtype /* [out] */);

/* The device that all inputs share; 0-dim CPU tensors go along with any.
** MT_EDEVICE names both. */
mt_status mt_plan_device(const mt_opinfo *op, int nin, mt_tensor *const *in,
                         mt_device *device /* [out] */);

/* May values of from be written into a tensor of to by an in-place op? Not float into
** integer, nor anything else into bool. */
bool mt_plan_may_store(mt_dtype from, mt_dtype to);

#endif
