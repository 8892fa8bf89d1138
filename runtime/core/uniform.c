/* runtime/core/uniform.c -- the commonest calls without a plan: elementwise ops on
** tensors of one dtype, shape and device, and numbers that do not promote. */
#include "runtime/core/guard.h"
#include "runtime/core/plan.h"

/* Dtypes of numbers that leave a tensor of dtype as it is. */
static uint32_t lesser(mt_dtype dtype) {
  if (MT_IS_FLOAT(dtype)) return MT_ALL_MASK;
  return dtype == MT_BOOL ? MT_BIT(MT_BOOL) : MT_INT_MASK | MT_BIT(MT_BOOL);
}

/* The tensor that says what the others are like; NULL: they differ. */
static const mt_tensor *leader(const mt_opinfo *op, int nin, mt_tensor *const *in) {
  const mt_tensor *x = NULL;
  for (int i = 0; i < nin; i++) {
    if (in[i]->wrapped) continue;
    if (!x)
      x = in[i];
    else if (in[i] != x && (in[i]->v.dtype != x->v.dtype ||
                            !mt_same_device(mt_device_of(in[i]), mt_device_of(x)) ||
                            !mt_same_shape(&in[i]->v, &x->v)))
      return NULL;
  }
  if (!x || !(op->as_they_are >> x->v.dtype & 1u)) return NULL;
  for (int i = 0; i < nin; i++)
    if (in[i]->wrapped && !(lesser(x->v.dtype) >> in[i]->v.dtype & 1u)) return NULL;
  return x;
}

/* A number as the kernel wants to see it: of like's dtype, repeated over its shape. */
static const mt_view *number_view(const mt_tensor *t, const mt_view *like,
                                  int64_t *value, mt_view *v) {
  if (MT_IS_FLOAT(t->v.dtype))
    mt_store_f64(like->dtype, value, mt_load_f64(t->v.dtype, t->v.data));
  else
    mt_store_i64(like->dtype, value, mt_load_i64(t->v.dtype, t->v.data));
  v->data = (char *)value;
  v->dtype = like->dtype;
  v->ndim = like->ndim;
  v->host = 1;
  for (int d = 0; d < like->ndim; d++) v->shape[d] = like->shape[d], v->stride[d] = 0;
  return v;
}

/* May the kernel write the result of these inputs into x's memory? */
static bool may_write(const mt_tensor *x, const mt_tensor *like, mt_dtype dtype,
                      int nin, mt_tensor *const *in) {
  if (x->v.dtype != dtype || !mt_same_shape(&x->v, &like->v) ||
      !mt_is_contiguous(&x->v) || !mt_same_device(mt_device_of(x), mt_device_of(like)))
    return false;
  for (int i = 0; i < nin; i++)
    if (in[i] != x && in[i]->storage->data == x->storage->data) return false;
  return true;
}

bool mt_uniform_run(mt_context *ctx, const mt_opinfo *op, int nin, mt_tensor *const *in,
                    const mt_attr *attr, mt_tensor **out, mt_status *status) {
  const mt_tensor *x = leader(op, nin, in);
  if (!x) return false;
  const mt_device device = mt_device_of(x);
  const bool host = device.kind == MT_CPU; /* nothing to ask for there */
  const mt_backend *backend = host ? mt_cpu_backend() : mt_backend_of(device);
  const mt_entry *entry = backend ? backend->forward[op->op] : NULL;
  if (!entry || !(entry->dtypes >> x->v.dtype & 1u) || entry->contiguous ||
      entry->scratch)
    return false;
  const bool boolean = op->kind == MT_KIND_PREDICATE || op->kind == MT_KIND_COMPARE;
  const mt_dtype dtype = boolean ? MT_BOOL : x->v.dtype;
  if (out[0] && !may_write(out[0], x, dtype, nin, in)) return false;
  mt_fault local, *fault = &local;
  local.set = 0;
  if (!host && !(fault = mt_fault_word(ctx, device, &local))) return false;
  mt_view number[3];
  int64_t value[3];
  const mt_view *seen[3];
  for (int i = 0; i < nin; i++)
    seen[i] =
        in[i]->wrapped ? number_view(in[i], &x->v, &value[i], &number[i]) : &in[i]->v;
  if (!host) mt_note_streams(ctx, nin, in, 1, out);
  mt_guard_name(op->name);
  mt_tensor *y = out[0];
  if (!y) {
    *status = mt_plan_result(ctx, dtype, device, &x->v,
                             !host && mt_is_channels_last(&x->v), &y);
    if (*status != MT_OK) return true;
  }
  mt_view *const target = &y->v;
  const mt_call call = {.op = (int)op->op,
                        .nin = nin,
                        .nout = 1,
                        .in = seen,
                        .out = &target,
                        .attr = attr,
                        .stream = host ? NULL : ctx->stream[device.index],
                        .seed = ctx->seed,
                        .fault = fault,
                        .device = device.index,
                        .num_threads = mt_get_num_threads(),
                        .interrupt = &ctx->interrupt,
                        .precision = ctx->precision,
                        .deterministic = ctx->deterministic};
  *status = entry->run(&call);
  if (!host || *status != MT_OK ||
      __atomic_load_n(&ctx->interrupt.stop, __ATOMIC_RELAXED))
    *status = mt_kernel_status(ctx, device, op->name, *status);
  if (*status == MT_OK && fault == &local && local.set)
    *status = mt_fault_error(&local, NULL);
  if (*status != MT_OK) {
    if (!out[0]) mt_release(y);
  } else if (out[0]) {
    y->storage->version++;
  } else {
    out[0] = y;
  }
  return true;
}
