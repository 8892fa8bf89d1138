/* runtime/core/copy.c -- values between tensors, dtypes, devices and the host; calls
** over many tensors. */
#include <stdlib.h>
#include <string.h>
#include "runtime/core/cuda_graph.h"
#include "runtime/core/memory.h"
#include "runtime/core/plan.h"
#include "runtime/core/profile.h"
#include "runtime/core/watch.h"

static mt_status api_status(const mt_device_api *api, mt_status status) {
  return status == MT_OK ? MT_OK : mt_fail(status, "%s", api->error_text());
}

mt_status mt_kernel_status(mt_context *ctx, mt_device device, const char *op,
                           mt_status status) {
  static int sync = -1;
  if (device.kind == MT_CPU) {
    if (__atomic_load_n(&ctx->interrupt.stop, __ATOMIC_RELAXED)) {
      ctx->interrupt.stop = 0;
      return mt_fail(MT_EINTERRUPT, "interrupted!");
    }
    if (status == MT_OK) return MT_OK;
    return mt_fail(status, "%s: the kernel does not take these arguments", op);
  }
  const mt_device_api *api = mt_backend_of(device)->device;
  if (sync < 0) {
    const char *text = getenv("MYTENSOR_SYNC");
    sync = text && *text && strcmp(text, "0") != 0;
  }
  if (status == MT_OK && sync && !ctx->graph)
    status = api->stream_synchronize(device.index, ctx->stream[device.index]);
  return status == MT_OK ? MT_OK : mt_fail(status, "%s: %s", op, api->error_text());
}

static void *stream_of(const mt_context *ctx, mt_device device) {
  return device.kind == MT_CPU ? NULL : ctx->stream[device.index];
}

static void note_stream(mt_context *ctx, mt_tensor *t) {
  if (!t || mt_device_of(t).kind == MT_CPU) return;
  if (ctx->graph) {
    mt_graph_hold(ctx->graph, t);
    return;
  }
  void *stream = stream_of(ctx, mt_device_of(t));
  if (t->storage->stream != stream && !t->storage->release)
    mt_block_used_on(mt_device_of(t), t->storage->data, stream);
}

void mt_note_streams(mt_context *ctx, int nin, mt_tensor *const *in, int nout,
                     mt_tensor *const *out) {
  for (int i = 0; i < nin; i++) note_stream(ctx, in[i]);
  for (int i = 0; i < nout; i++) note_stream(ctx, out[i]);
}

mt_status mt_copy_view(mt_context *ctx, mt_device device, const mt_view *src,
                       const mt_view *dst) {
  const mt_backend *backend = mt_backend_of(device);
  if (!backend) return MT_EDEVICE;
  if (backend->device)
    MT_TRY(api_status(backend->device, backend->device->open(device.index)));
  mt_fault fault = {0}; /* a copy has none to report */
  mt_view target = *dst;
  const mt_view *const in[1] = {src};
  mt_view *const out[1] = {&target};
  const mt_call call = {.op = MT_OP__copy,
                        .nin = 1,
                        .nout = 1,
                        .in = in,
                        .out = out,
                        .stream = stream_of(ctx, device),
                        .fault = &fault,
                        .device = device.index,
                        .num_threads = mt_get_num_threads(),
                        .interrupt = &ctx->interrupt,
                        .deterministic = ctx->deterministic};
  return mt_kernel_status(ctx, device, "copy", backend->copy(&call));
}

/* Bytes of src, contiguous, to dst, contiguous, of the same dtype and shape. */
static mt_status move_bytes(mt_context *ctx, mt_tensor *dst, mt_tensor *src,
                            bool non_blocking) {
  const mt_device to = mt_device_of(dst), from = mt_device_of(src);
  const size_t bytes = (size_t)mt_numel(&src->v) * mt_dtype_size(src->v.dtype);
  if (bytes == 0) return MT_OK;
  const mt_device gpu = to.kind == MT_CPU ? from : to;
  const mt_backend *backend = mt_backend_of(gpu);
  if (!backend) return MT_EDEVICE;
  const mt_copy_kind kind = to.kind == MT_CPU     ? MT_COPY_TO_HOST
                            : from.kind == MT_CPU ? MT_COPY_TO_DEVICE
                                                  : MT_COPY_WITHIN;
  MT_TRY(mt_graph_refuse(ctx, "a copy to another device"));
  if (ctx->profile) mt_profile_release(ctx->profile);
  if (kind ==
      MT_COPY_WITHIN) { /* the copy runs on the target's stream, after src's work */
    MT_TRY(mt_synchronize(ctx, from));
  }
  if (kind == MT_COPY_TO_HOST && !non_blocking) MT_TRY(mt_wait(ctx, from));
  MT_TRY(
      api_status(backend->device,
                 backend->device->copy(gpu.index, ctx->stream[gpu.index], kind,
                                       dst->v.data, src->v.data, bytes, non_blocking)));
  if (kind == MT_COPY_TO_DEVICE && !non_blocking && src->storage->release &&
      backend->device->host_is_pinned(src->v.data)) /* read when its turn comes */
    return api_status(backend->device, backend->device->stream_synchronize(
                                           gpu.index, ctx->stream[gpu.index]));
  if (kind == MT_COPY_TO_HOST && !non_blocking) return mt_settle(ctx, from);
  return MT_OK;
}

/* dst = src across devices, by way of contiguous copies where a side is strided; the
** dtype is converted where the smaller type lies. */
static mt_status copy_across(mt_context *ctx, mt_tensor *dst, mt_tensor *src,
                             bool non_blocking) {
  const mt_dtype dtype = mt_dtype_size(src->v.dtype) <= mt_dtype_size(dst->v.dtype)
                             ? src->v.dtype
                             : dst->v.dtype;
  mt_tensor *packed = NULL, *landed = NULL;
  mt_status status = MT_OK;
  if (src->v.dtype != dtype || !mt_is_contiguous(&src->v)) {
    status = mt_convert(ctx, src, dtype, mt_device_of(src), &packed);
    src = packed;
  }
  if (status == MT_OK && (dst->v.dtype != dtype || !mt_is_contiguous(&dst->v)))
    status =
        mt_empty(ctx, dtype, mt_device_of(dst), src->v.ndim, src->v.shape, &landed);
  if (status == MT_OK)
    status = move_bytes(ctx, landed ? landed : dst, src, non_blocking && !landed);
  if (status == MT_OK && landed)
    status = mt_copy_view(ctx, mt_device_of(dst), &landed->v, &dst->v);
  mt_release(packed);
  mt_release(landed);
  return status;
}

mt_status mt_copy_from(mt_context *ctx, mt_tensor *dst, mt_tensor *src,
                       bool non_blocking) {
  if (__builtin_expect(ctx->watch != 0, 0))
    return mt_watched_copy(ctx, dst, src, non_blocking);
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
  mt_tensor *held = NULL;
  /* A number on the host goes along as it is, to any device. */
  const bool across =
      !src->v.host && !mt_same_device(mt_device_of(dst), mt_device_of(src));
  mt_status status = MT_OK;
  if (mt_device_of(dst).kind != MT_CPU || mt_device_of(src).kind != MT_CPU) {
    mt_tensor *both[2] = {dst, src};
    mt_note_streams(ctx, 2, both, 0, NULL);
  }
  if (across ? !mt_same_shape(&dst->v, &src->v) || src->v.ndim != dst->v.ndim
             : mt_may_overlap(dst, src)) {
    if (across) { /* broadcast where it arrives */
      status = mt_convert(ctx, src, src->v.dtype, mt_device_of(dst), &held);
    } else
      status = mt_convert(ctx, src, src->v.dtype, mt_device_of(src), &held);
    src = held;
  } else if (across) {
    status = copy_across(ctx, dst, src, non_blocking);
    dst->storage->version++;
    return status;
  }
  if (status == MT_OK) {
    mt_view expanded;
    mt_view_expand(&src->v, dst->v.ndim, dst->v.shape, &expanded);
    status = mt_copy_view(ctx, mt_device_of(dst), &expanded, &dst->v);
  }
  mt_release(held);
  dst->storage->version++;
  return status;
}

mt_status mt_copy(mt_context *ctx, mt_tensor *dst, mt_tensor *src) {
  return mt_copy_from(ctx, dst, src, false);
}

mt_status mt_convert(mt_context *ctx, mt_tensor *t, mt_dtype dtype, mt_device device,
                     mt_tensor **out) {
  *out = NULL;
  if (__builtin_expect(ctx->watch != 0, 0))
    return mt_watched_convert(ctx, t, dtype, device, out);
  mt_tensor *copy;
  note_stream(ctx, t);
  MT_TRY(mt_empty(ctx, dtype, device, t->v.ndim, t->v.shape, &copy));
  const mt_status status = mt_same_device(mt_device_of(t), device)
                               ? mt_copy_view(ctx, device, &t->v, &copy->v)
                               : copy_across(ctx, copy, t, false);
  if (status != MT_OK) return mt_release(copy), status;
  *out = copy;
  return MT_OK;
}

mt_status mt_item(mt_context *ctx, mt_tensor *t, double *f, int64_t *i) {
  if (__builtin_expect(ctx->watch != 0, 0)) return mt_watched_item(ctx, t, f, i);
  if (mt_numel(&t->v) != 1)
    return mt_fail_arg(MT_ESHAPE, 1, "a tensor of one element expected, got shape %s",
                       mt_view_text(&t->v));
  int64_t value; /* room for any dtype */
  const void *p = t->v.data;
  if (mt_device_of(t).kind != MT_CPU) {
    const mt_device device = mt_device_of(t);
    const mt_device_api *api = mt_backend_of(device)->device;
    MT_TRY(mt_graph_refuse(ctx, "a value that Lua reads"));
    if (ctx->profile) mt_profile_release(ctx->profile);
    note_stream(ctx, t);
    MT_TRY(mt_wait(ctx, device));
    MT_TRY(api_status(api, api->copy(device.index, ctx->stream[device.index],
                                     MT_COPY_TO_HOST, &value, p,
                                     mt_dtype_size(t->v.dtype), 0)));
    MT_TRY(mt_settle(ctx, device));
    p = &value;
  }
  *f = mt_load_f64(t->v.dtype, p);
  *i = mt_load_i64(t->v.dtype, p);
  return MT_OK;
}

static mt_status same_device(int n, mt_tensor *const *t, mt_device device) {
  for (int i = 0; i < n; i++)
    if (!mt_same_device(mt_device_of(t[i]), device))
      return mt_fail(MT_EDEVICE, "tensors on several devices in one call");
  return MT_OK;
}

/* A captured step's numbers that change from one replay to the next. */
static mt_status take_slots(mt_graph *g, mt_many which, mt_attr *attr) {
  int last = 0;
  if (which == MT_MANY_SGD) last = mt_graph_slot(g, &attr[0], 0); /* learning rate */
  if (which == MT_MANY_ADAM) {
    mt_graph_slot(g, &attr[0], 1); /* the step's number */
    last = mt_graph_slot(g, &attr[1], 0);
  }
  if (last >= 0) return MT_OK;
  return mt_fail(MT_EUNSUPPORTED, "too many steps of optimisers for one graph");
}

mt_status mt_dispatch_many(mt_context *ctx, mt_many which, int nin,
                           mt_tensor *const *in, int nout, mt_tensor *const *out,
                           int nattr, const double *attr) {
  if (nout == 0) return MT_OK;
  if (__builtin_expect(ctx->watch != 0, 0))
    return mt_watched_many(ctx, which, nin, in, nout, out, nattr, attr);
  const mt_device device = mt_device_of(out[0]);
  const mt_backend *backend = mt_backend_of(device);
  if (!backend) return MT_EDEVICE;
  MT_TRY(same_device(nin, in, device));
  MT_TRY(same_device(nout, out, device));
  if (device.kind != MT_CPU) {
    mt_note_streams(ctx, nin, in, nout, out);
    MT_TRY(api_status(backend->device, backend->device->open(device.index)));
  }
  mt_attr values[MT_MAX_ATTRS];
  for (int i = 0; i < nattr; i++) values[i] = mt_attr_f(attr[i]);
  if (ctx->graph) MT_TRY(take_slots(ctx->graph, which, values));
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
  mt_call call = {.nin = nin,
                  .nout = nout,
                  .stream = stream_of(ctx, device),
                  .device = device.index,
                  .in = source,
                  .out = target,
                  .attr = values,
                  .fault = &fault,
                  .num_threads = mt_get_num_threads(),
                  .interrupt = &ctx->interrupt,
                  .deterministic = ctx->deterministic};
  mt_status status = MT_OK;
  if (which == MT_MANY_SQUARE_SUM && device.kind != MT_CPU)
    status = mt_scratch_alloc(ctx, device, MT_MANY_SCRATCH, &call);
  if (status == MT_OK)
    status =
        mt_kernel_status(ctx, device, "optimiser step", backend->many[which](&call));
  mt_block_free(device, call.scratch, call.scratch_bytes);
  free(views);
  return status;
}
