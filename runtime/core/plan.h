/* runtime/core/plan.h -- the steps of dispatch that decide: dtype, device, shapes. */
#ifndef MT_PLAN_H
#define MT_PLAN_H

#include "runtime/core/op.h"

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

/* Run an elementwise op whose inputs are alike, and give true and its status. False: the
** call needs a plan; nothing has been done. */
bool mt_uniform_run(mt_context *ctx, const mt_opinfo *op, int nin, mt_tensor *const *in,
                    const mt_attr *attr, mt_tensor **out,
                    mt_status *status /* [out] */);

/* A new tensor of v's shape; channels_last: 4 dims lie as (N, H, W, C). So do, on a GPU,
** the results of elementwise ops on inputs that do, and of convolutions: a network's
** tensors then stay as its convolutions like them best. The CPU's are contiguous. */
mt_status mt_plan_result(mt_context *ctx, mt_dtype dtype, mt_device device,
                         const mt_view *v, bool channels_last,
                         mt_tensor **out /* [out] */);

/* dst = src on one device: equal shapes, any strides and dtypes. */
mt_status mt_copy_view(mt_context *ctx, mt_device device, const mt_view *src,
                       const mt_view *dst);
/* What a kernel returned, with a text; under MYTENSOR_SYNC=1 after waiting for it. */
mt_status mt_kernel_status(mt_context *ctx, mt_device device, const char *op,
                           mt_status status);
/* Tell the allocator of tensors that were made for another stream than the current one. */
void mt_note_streams(mt_context *ctx, int nin, mt_tensor *const *in, int nout,
                     mt_tensor *const *out);

/* Where kernels note bad data: local, which is cleared; on a GPU a word in mapped memory,
** made at the first use. NULL: the device fails. */
mt_fault *mt_fault_word(mt_context *ctx, mt_device device, mt_fault *local);
/* The error that a kernel's fault stands for (fault.c); its op is named in the text. in:
** what the kernel read, where the host can read it. */
mt_status mt_fault_error(const mt_fault *f, const mt_view *const *in /* [optional] */);

#endif
