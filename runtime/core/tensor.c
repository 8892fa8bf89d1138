/* runtime/core/tensor.c -- making, sharing and releasing tensors and their storage. */
#include "runtime/core/context.h"
#include "runtime/core/cuda_graph.h"
#include "runtime/core/guard.h"
#include "runtime/core/memory.h"
#include "runtime/core/small.h"

void (*mt_autograd_release)(mt_autograd *part);

static mt_status out_of_host_memory(size_t bytes) {
  return mt_fail(MT_EMEMORY, "out of memory: no %zu bytes for a tensor's header",
                 bytes);
}

/* Elements of up to so many bytes lie behind their storage, in one small block. */
#define INLINE_BYTES 448

_Static_assert(sizeof(mt_storage) <= MT_SMALL_UNIT, "elements follow one unit later");
_Static_assert(MT_SMALL_UNIT + INLINE_BYTES <= MT_SMALL_MAX,
               "a small block holds both");

static void release_storage(mt_storage *s) {
  if (--s->refs > 0) return;
  if (s->data == (char *)s + MT_SMALL_UNIT) {
    mt_heap *mine = &mt_heap_mine;
    mt_small_count(&mine->live_bytes, -(int64_t)s->bytes);
    mt_small_count(&mine->frees, 1);
    mt_small_give(s, MT_SMALL_UNIT + s->bytes);
    return;
  }
  if (s->release)
    s->release(s->user, s->data);
  else
    mt_block_free(s->device, s->data, s->bytes);
  mt_small_give(s, sizeof *s);
}

void mt_tensor_free(mt_tensor *t) {
  mt_autograd *part = t->autograd;
  mt_memory_count_tensor(t->storage->device, -1);
  release_storage(t->storage);
  mt_small_give(t, sizeof *t);
  if (part) mt_autograd_release(part);
}

/* A tensor over s, whose reference it takes over; shape and strides are not set. NULL:
** no memory; s is released. */
static mt_tensor *wrap_storage(mt_storage *s, mt_dtype dtype) {
  mt_tensor *t = mt_small_take(sizeof *t);
  if (!t) {
    release_storage(s);
    return NULL;
  }
  t->v.data = s->data;
  t->v.dtype = dtype;
  t->refs = 1;
  t->wrapped = t->gradient = false;
  t->storage = s;
  t->offset = 0;
  t->autograd = NULL;
  mt_memory_count_tensor(s->device, 1);
  return t;
}

static void set_shape(mt_tensor *t, int ndim, const int64_t *shape) {
  int64_t step = 1;
  t->v.ndim = ndim;
  for (int d = ndim - 1; d >= 0; d--) {
    t->v.shape[d] = shape[d];
    t->v.stride[d] = step;
    step *= shape[d] > 0 ? shape[d] : 1;
  }
  t->v.host = ndim == 0 && t->storage->device.kind == MT_CPU;
}

static mt_storage *set_storage(mt_storage *s, mt_device device, void *data,
                               size_t bytes) {
  s->refs = 1;
  s->version = 0;
  s->device = device;
  s->data = data;
  s->bytes = bytes;
  s->stream = NULL;
  s->release = NULL;
  s->user = NULL;
  return s;
}

/* Storage and elements in one block. The collector hears of the headers too, which are
** most of a small tensor: fewer dead ones lie about, and those stay in the caches. */
static mt_status small_storage(mt_context *ctx, size_t bytes, mt_storage **out) {
  mt_heap *mine = &mt_heap_mine;
  if (mine->live_bytes + (int64_t)bytes >
      __atomic_load_n(&mine->mark, __ATOMIC_RELAXED))
    MT_TRY(mt_memory_admit(ctx, bytes));
  mt_storage *s = mt_small_take(MT_SMALL_UNIT + bytes);
  if (!s) return out_of_host_memory(MT_SMALL_UNIT + bytes);
  mt_small_count(&mine->live_bytes, (int64_t)bytes);
  mt_small_count(&mine->allocations, 1);
  if (ctx) ctx->gc_debt += bytes + sizeof(mt_tensor) + MT_SMALL_UNIT;
  *out = set_storage(s, (mt_device){MT_CPU, 0}, (char *)s + MT_SMALL_UNIT, bytes);
  return MT_OK;
}

static mt_status block_storage(mt_context *ctx, mt_device device, size_t bytes,
                               mt_storage **out) {
  void *data = NULL;
  MT_TRY(mt_block_alloc(ctx, device, bytes, &data));
  mt_storage *s = mt_small_take(sizeof *s);
  if (!s) {
    mt_block_free(device, data, bytes);
    return out_of_host_memory(sizeof *s);
  }
  *out = set_storage(s, device, data, bytes);
  if (device.kind != MT_CPU) s->stream = mt_graph_pool(ctx, device.index);
  return MT_OK;
}

mt_status mt_empty(mt_context *ctx, mt_dtype dtype, mt_device device, int ndim,
                   const int64_t *shape, mt_tensor **out) {
  int64_t numel;
  mt_storage *s = NULL;
  *out = NULL;
  MT_TRY(mt_shape_numel(ndim, shape, mt_dtype_size(dtype), &numel));
  const size_t bytes = (size_t)numel * mt_dtype_size(dtype);
  if (device.kind == MT_CPU && bytes > 0 && bytes <= INLINE_BYTES && !mt_guard_on())
    MT_TRY(small_storage(ctx, bytes, &s));
  else
    MT_TRY(block_storage(ctx, device, bytes, &s));
  mt_tensor *t = wrap_storage(s, dtype);
  if (!t) return out_of_host_memory(sizeof *t);
  set_shape(t, ndim, shape);
  *out = t;
  return MT_OK;
}

static mt_status scalar(mt_context *ctx, mt_dtype dtype, mt_tensor **out) {
  MT_TRY(mt_empty(ctx, dtype, (mt_device){MT_CPU, 0}, 0, NULL, out));
  (*out)->wrapped = true;
  return MT_OK;
}

mt_status mt_scalar_f64(mt_context *ctx, double x, mt_tensor **out) {
  MT_TRY(scalar(ctx, MT_F64, out));
  mt_store_f64(MT_F64, (*out)->v.data, x);
  return MT_OK;
}

mt_status mt_scalar_i64(mt_context *ctx, int64_t x, mt_tensor **out) {
  MT_TRY(scalar(ctx, MT_I64, out));
  mt_store_i64(MT_I64, (*out)->v.data, x);
  return MT_OK;
}

mt_status mt_scalar_bool(mt_context *ctx, bool x, mt_tensor **out) {
  MT_TRY(scalar(ctx, MT_BOOL, out));
  mt_store_i64(MT_BOOL, (*out)->v.data, x);
  return MT_OK;
}

mt_status mt_from_blob(mt_context *ctx, void *data, mt_dtype dtype, mt_device device,
                       int ndim, const int64_t *shape,
                       void (*release)(void *user, void *data), void *user,
                       mt_tensor **out) {
  (void)ctx;
  int64_t numel;
  *out = NULL;
  mt_status status = mt_shape_numel(ndim, shape, mt_dtype_size(dtype), &numel);
  if (status == MT_OK && !data && numel > 0)
    status = mt_fail(MT_EARG, "%lld elements in no memory (NULL)", (long long)numel);
  if (status != MT_OK) {
    release(user, data);
    return status;
  }
  mt_storage *s = mt_small_take(sizeof *s);
  if (!s) {
    release(user, data);
    return out_of_host_memory(sizeof *s);
  }
  set_storage(s, device, data, (size_t)numel * mt_dtype_size(dtype));
  s->release = release;
  s->user = user;
  mt_tensor *t = wrap_storage(s, dtype);
  if (!t) return out_of_host_memory(sizeof *t);
  set_shape(t, ndim, shape);
  *out = t;
  return MT_OK;
}

/* Does every element of the geometry lie within elements 0 .. limit - 1? Checked
** without overflow: sizes and strides may come from users. */
static bool within(int ndim, const int64_t *shape, const int64_t *stride,
                   int64_t offset, int64_t limit) {
  int64_t last = offset, span;
  for (int d = 0; d < ndim; d++)
    if (shape[d] == 0) return offset >= 0;
  if (offset < 0) return false;
  for (int d = 0; d < ndim; d++)
    if (stride[d] < 0 || __builtin_mul_overflow(shape[d] - 1, stride[d], &span) ||
        __builtin_add_overflow(last, span, &last))
      return false;
  return last < limit;
}

mt_status mt_alias(mt_tensor *t, int ndim, const int64_t *shape, const int64_t *stride,
                   int64_t offset, mt_tensor **out) {
  const size_t size = mt_dtype_size(t->v.dtype);
  int64_t numel;
  *out = NULL;
  MT_TRY(mt_shape_numel(ndim, shape, size, &numel));
  const int64_t limit = (int64_t)(t->storage->bytes / size);
  if (!within(ndim, shape, stride, offset, limit))
    return mt_fail(MT_EARG, "shape %s at offset %lld reaches outside a storage of %lld",
                   mt_shape_text(ndim, shape), (long long)offset, (long long)limit);
  if (offset > limit) offset = limit; /* no elements: slice 2 of shape [2, 0] */
  t->storage->refs++;
  mt_tensor *alias = wrap_storage(t->storage, t->v.dtype);
  if (!alias) return out_of_host_memory(sizeof *alias);
  alias->offset = offset;
  alias->wrapped = t->wrapped && ndim == 0;
  alias->v.ndim = ndim;
  alias->v.host = ndim == 0 && t->storage->device.kind == MT_CPU;
  for (int d = 0; d < ndim; d++)
    alias->v.shape[d] = shape[d], alias->v.stride[d] = stride[d];
  if (t->storage->data)
    alias->v.data = (char *)t->storage->data + (size_t)offset * size;
  *out = alias;
  return MT_OK;
}

mt_status mt_alias_same(mt_tensor *t, mt_tensor **out) {
  t->storage->refs++;
  mt_tensor *alias = wrap_storage(t->storage, t->v.dtype);
  *out = alias;
  if (!alias) return out_of_host_memory(sizeof *alias);
  mt_view_copy(&alias->v, &t->v);
  alias->offset = t->offset;
  alias->wrapped = t->wrapped;
  return MT_OK;
}

/* A count of elements of `from` bytes as one of elements of `to` bytes. */
static bool recount(int64_t *n, size_t from, size_t to) {
  const int64_t bytes = *n * (int64_t)from;
  *n = bytes / (int64_t)to;
  return bytes % (int64_t)to == 0;
}

static bool recount_view(mt_view *v, size_t from, size_t to) {
  const int last = v->ndim - 1;
  if (from == to) return true;
  if (last < 0 || (v->stride[last] != 1 && v->shape[last] > 1)) return false;
  bool fits = recount(&v->shape[last], from, to);
  v->stride[last] = 1;
  if (mt_numel(v) == 0) mt_default_strides(v->ndim, v->shape, v->stride);
  for (int d = 0; d < last && mt_numel(v) > 0; d++) {
    if (v->shape[d] == 1) v->stride[d] = 1;
    fits = (recount(&v->stride[d], from, to) || v->shape[d] == 1) && fits;
  }
  return fits;
}

mt_status mt_alias_bits(mt_tensor *t, mt_dtype dtype, mt_tensor **out) {
  const size_t from = mt_dtype_size(t->v.dtype), to = mt_dtype_size(dtype);
  mt_tensor *alias;
  *out = NULL;
  if (t->v.dtype == MT_BOOL || dtype == MT_BOOL)
    return mt_fail_arg(MT_EDTYPE, 1, "bool shares no bytes with %s; to() converts",
                       mt_dtype_name(dtype == MT_BOOL ? t->v.dtype : dtype));
  MT_TRY(mt_alias_same(t, &alias));
  alias->wrapped = false;
  alias->v.dtype = dtype;
  if (recount_view(&alias->v, from, to) && recount(&alias->offset, from, to)) {
    *out = alias;
    return MT_OK;
  }
  mt_release(alias);
  return mt_fail_arg(
      MT_ESHAPE, 1,
      "elements of %zu bytes do not fit %s of shape %s: its last dim has "
      "to be contiguous, and its size, offset and other strides "
      "multiples of that",
      to, mt_dtype_name(t->v.dtype), mt_view_text(&t->v));
}

mt_status mt_check_number(const mt_tensor *value, mt_dtype d, int arg) {
  if (!value->wrapped || value->v.dtype == MT_BOOL) return MT_OK;
  mt_attr number = {.n = 1, .is_int = MT_IS_INT(value->v.dtype)};
  number.f = mt_load_f64(value->v.dtype, value->v.data);
  if (number.is_int) number.i[0] = mt_load_i64(value->v.dtype, value->v.data);
  return mt_check_holds(d, &number, arg);
}
