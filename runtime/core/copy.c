/* runtime/core/copy.c -- values between tensors, dtypes, devices and the host; calls
** over many tensors. */
#include <stdlib.h>
#include <string.h>
#include "runtime/core/op.h"

static mt_status run_copy(mt_context *ctx, const mt_view *src, mt_tensor *dst) {
  const mt_backend *backend = mt_backend_of(mt_device_of(dst));
  if (!backend) return MT_EDEVICE;
  mt_fault fault = {0};
  mt_view target = dst->v;
  const mt_view *const in[1] = {src};
  mt_view *const out[1] = {&target};
  const mt_call call = {.op = MT_OP__copy,
                        .nin = 1,
                        .nout = 1,
                        .in = in,
                        .out = out,
                        .fault = &fault,
                        .num_threads = mt_get_num_threads(),
                        .deterministic = ctx->deterministic};
  return backend->copy(&call);
}

mt_status mt_copy(mt_context *ctx, mt_tensor *dst, mt_tensor *src) {
  int ndim = dst->v.ndim;
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, dst->v.shape, sizeof shape);
  const mt_status fits = mt_broadcast(&ndim, shape, &src->v);
  if (fits != MT_OK || ndim != dst->v.ndim ||
      memcmp(shape, dst->v.shape, (size_t)ndim * sizeof *shape))
    return mt_fail_arg(MT_ESHAPE, 2, "shape %s does not broadcast to shape %s",
                       mt_view_text(&src->v), mt_view_text(&dst->v));
  if (mt_overlaps_itself(&dst->v))
    return mt_fail_arg(MT_EARG, 1,
                       "in place: elements of shape %s share memory; clone it first",
                       mt_view_text(&dst->v));
  if (!mt_same_device(mt_device_of(dst), mt_device_of(src)))
    return mt_fail(MT_EDEVICE, "no copy from %s to another device",
                   mt_device_name(mt_device_of(src)));
  mt_tensor *held = NULL;
  if (mt_may_overlap(dst, src)) {
    MT_TRY(mt_convert(ctx, src, src->v.dtype, mt_device_of(src), &held));
    src = held;
  }
  const mt_view expanded = mt_view_expand(&src->v, dst->v.ndim, dst->v.shape);
  const mt_status status = run_copy(ctx, &expanded, dst);
  mt_release(held);
  dst->storage->version++;
  return status;
}

mt_status mt_convert(mt_context *ctx, mt_tensor *t, mt_dtype dtype, mt_device device,
                     mt_tensor **out) {
  *out = NULL;
  if (!mt_same_device(mt_device_of(t), device))
    return mt_backend_of(device)
               ? mt_fail(MT_EDEVICE, "no copy to %s", mt_device_name(device))
               : MT_EDEVICE;
  mt_tensor *copy;
  MT_TRY(mt_empty(ctx, dtype, device, t->v.ndim, t->v.shape, &copy));
  const mt_status status = run_copy(ctx, &t->v, copy);
  if (status != MT_OK) return mt_release(copy), status;
  *out = copy;
  return MT_OK;
}

mt_status mt_item(mt_context *ctx, mt_tensor *t, double *f, int64_t *i) {
  (void)ctx;
  if (mt_numel(&t->v) != 1)
    return mt_fail_arg(MT_ESHAPE, 1, "a tensor of one element expected, got shape %s",
                       mt_view_text(&t->v));
  *f = mt_load_f64(t->v.dtype, t->v.data);
  *i = mt_load_i64(t->v.dtype, t->v.data);
  return MT_OK;
}

static mt_status same_device(int n, mt_tensor *const *t, mt_device device) {
  for (int i = 0; i < n; i++)
    if (!mt_same_device(mt_device_of(t[i]), device))
      return mt_fail(MT_EDEVICE, "tensors on several devices in one call");
  return MT_OK;
}

mt_status mt_dispatch_many(mt_context *ctx, mt_many which, int nin,
                           mt_tensor *const *in, int nout, mt_tensor *const *out,
                           int nattr, const double *attr) {
  if (nout == 0) return MT_OK;
  const mt_device device = mt_device_of(out[0]);
  const mt_backend *backend = mt_backend_of(device);
  if (!backend) return MT_EDEVICE;
  MT_TRY(same_device(nin, in, device));
  MT_TRY(same_device(nout, out, device));
  mt_attr values[MT_MAX_ATTRS];
  for (int i = 0; i < nattr; i++) values[i] = mt_attr_f(attr[i]);
  const size_t pointers = (size_t)(nin + nout) * sizeof(void *);
  mt_view *views = malloc(pointers + (size_t)nout * sizeof *views);
  if (!views) return mt_fail(MT_EMEMORY, "out of memory for %d tensors", nin + nout);
  mt_view **target = (mt_view **)(views + nout);
  const mt_view **source = (const mt_view **)(target + nout);
  for (int i = 0; i < nin; i++) source[i] = &in[i]->v;
  for (int i = 0; i < nout; i++) {
    views[i] = out[i]->v;
    target[i] = &views[i];
    out[i]->storage->version++;
  }
  mt_fault fault = {0};
  const mt_call call = {.nin = nin,
                        .nout = nout,
                        .in = source,
                        .out = target,
                        .attr = values,
                        .fault = &fault,
                        .num_threads = mt_get_num_threads(),
                        .deterministic = ctx->deterministic};
  const mt_status status = backend->many[which](&call);
  free(views);
  return status;
}
