/* kernels/cpu/join.c -- copies that put tensors together or turn them round: cat,
** flip. */
#include "kernels/cpu/cpu.h"

/* cat(xs..., dim): each input is copied to its slice of y. */
static mt_status cat_run(const mt_call *call) {
  const mt_view *y = call->out[0];
  const int d = (int)call->attr[0].i[0];
  mt_view slice = *y;
  for (int i = 0; i < call->nin; i++) {
    const mt_view *x = call->in[i];
    if (mt_cpu_numel(x) == 0) continue;
    slice.shape[d] = x->shape[d];
    const mt_status status = mt_cpu_copy_view(call, &slice, x);
    if (status != MT_OK) return status;
    slice.data += x->shape[d] * y->stride[d] * mt_cpu_size(y->dtype);
  }
  return MT_OK;
}

/* flip(x, dims): a copy of x seen from the other end. */
static mt_status flip_run(const mt_call *call) {
  const mt_attr *dims = &call->attr[0];
  mt_view x = *call->in[0];
  const int64_t size = mt_cpu_size(x.dtype);
  if (mt_cpu_numel(&x) == 0) return MT_OK;
  for (int k = 0; k < (dims->n < 0 ? x.ndim : dims->n); k++) {
    const int64_t d = dims->n < 0 ? k : dims->i[k];
    if (d >= x.ndim) continue; /* dim 1 of a 0-dim tensor */
    x.data += (x.shape[d] - 1) * x.stride[d] * size;
    x.stride[d] = -x.stride[d];
  }
  return mt_cpu_copy_view(call, call->out[0], &x);
}

extern const mt_entry mt_cpu_cat, mt_cpu_flip;
const mt_entry mt_cpu_cat = {cat_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_flip = {flip_run, NULL, MT_ALL_MASK, 0};
