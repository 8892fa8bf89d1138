/* runtime/bind/pinned.c -- tensors in pinned host memory, which a GPU reads and fills by
** itself. */
#include <stdint.h>

#include "runtime/bind/state.h"

/* user: bit i is set when a copy to or from GPU i was started and not waited for. */
static void release_pinned(void *user, void *data) {
  const char *reason;
  const mt_backend *backend = mt_cuda_backend(&reason);
  const uintptr_t used = (uintptr_t)user;
  for (int gpu = 0; gpu < MT_MAX_GPUS; gpu++) {
    if (used >> gpu & 1u) backend->device->device_synchronize(gpu);
  }
  if (data) backend->device->host_free(data);
}

void mtl_note_pinned(mt_tensor *t, mt_device gpu) {
  mt_storage *s = t->storage;
  if (s->release != release_pinned) return;
  s->user = (void *)((uintptr_t)s->user | (uintptr_t)1 << gpu.index);
}

mt_status mtl_empty_pinned(mt_context *ctx, mt_dtype dtype, int ndim,
                           const int64_t *shape, mt_tensor **out) {
  int64_t numel;
  *out = NULL;
  const mt_device gpu = {MT_CUDA, (int8_t)ctx->gpu};
  const mt_backend *backend = mt_backend_of(gpu);
  if (!backend) return MT_EDEVICE;
  MT_TRY(mt_shape_numel(ndim, shape, mt_dtype_size(dtype), &numel));
  const size_t bytes = (size_t)numel * mt_dtype_size(dtype);
  void *data = NULL;
  if (bytes > 0) {
    if (backend->device->open(gpu.index) != MT_OK) {
      return mt_fail(MT_EDEVICE, "%s", backend->device->error_text());
    }
    data = backend->device->host_alloc(bytes);
    if (!data && ctx->collect) {
      ctx->collect(ctx);
      data = backend->device->host_alloc(bytes);
    }
    if (!data) {
      return mt_fail(MT_EMEMORY, "out of pinned host memory: %zu bytes requested",
                     bytes);
    }
    ctx->gc_debt += bytes;
  }
  const mt_device cpu = {MT_CPU, 0};
  return mt_from_blob(ctx, data, dtype, cpu, ndim, shape, release_pinned, NULL, out);
}

static bool is_pinned(const mt_tensor *t) {
  const char *reason;
  if (mt_device_of(t).kind != MT_CPU || !t->storage->release || !t->v.data) {
    return false;
  }
  const mt_backend *backend = mt_cuda_backend(&reason);
  return backend && backend->device->host_is_pinned(t->v.data);
}

/* A copy of t in pinned memory, recorded. *out: also after an error the caller's. */
static mt_status pin(mt_context *ctx, mt_tensor *t, mt_tensor **out /* [out] */) {
  MT_TRY(mtl_empty_pinned(ctx, t->v.dtype, t->v.ndim, t->v.shape, out));
  MT_TRY(mt_copy(ctx, *out, t));
  return mt_record_transfer(ctx, t, *out);
}

/* t:pin_memory() -> tensor: a copy of t in pinned host memory, from and to which GPUs
** copy faster and without waiting; t itself if it lies there */
static int tensor_pin_memory(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_tensor **out = mtl_new_tensor(L);
  mt_tensor *t = mtl_check_tensor(L, 1, "pin_memory");
  if (is_pinned(t)) {
    lua_pushvalue(L, 1);
    return 1;
  }
  mt_retain(t);
  const mt_status status = pin(ctx, t, out);
  mt_release(t);
  if (status != MT_OK) return mtl_raise(L, "pin_memory");
  return 1;
}

/* t:is_pinned(): is t in pinned host memory? */
static int tensor_is_pinned(lua_State *L) {
  lua_pushboolean(L, is_pinned(mtl_check_tensor(L, 1, "is_pinned")));
  return 1;
}

static const luaL_Reg methods[] = {
    {"pin_memory", tensor_pin_memory}, {"is_pinned", tensor_is_pinned}, {NULL, NULL}};

/* stack: module */
void mtl_open_pinned(lua_State *L) { mtl_set_methods(L, methods); }
