/* runtime/bind/extension.c -- the functions that mytensor.h offers to C code. */
#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/plan.h"
#include "runtime/core/toolchain.h"
#include "runtime/mytensor.h"

_Static_assert((int)MYTENSOR_FLOAT16 == (int)MT_F16 &&
                   (int)MYTENSOR_INT64 == (int)MT_I64 &&
                   (int)MYTENSOR_UINT8 == (int)MT_U8 &&
                   (int)MYTENSOR_BOOL == (int)MT_BOOL && MT_BOOL + 1 == MT_NDTYPES,
               "the two lists of dtypes differ");
_Static_assert(MYTENSOR_MAX_DIMS == MT_MAX_DIMS, "the two numbers of dims differ");

static const mt_device cpu = {MT_CPU, 0};

static int api_is_tensor(lua_State *L, int index) {
  return mtl_to_tensor(L, index) != NULL;
}

static void api_info(lua_State *L, int index, mytensor_info *out) {
  mt_tensor *t = mtl_check_tensor(L, lua_absindex(L, index), "mytensor.info");
  const mt_device device = mt_device_of(t);
  if (device.kind != MT_CPU) {
    mt_note_streams(mtl_context(L), 1, &t, 0, NULL);
  }
  out->data = t->v.data;
  out->dtype = (mytensor_dtype)t->v.dtype;
  out->cuda = device.kind == MT_CPU ? -1 : device.index;
  out->ndim = t->v.ndim;
  out->contiguous = mt_is_contiguous(&t->v);
  out->numel = mt_numel(&t->v);
  for (int d = 0; d < MT_MAX_DIMS; d++) {
    out->shape[d] = d < t->v.ndim ? t->v.shape[d] : 1;
    out->stride[d] = d < t->v.ndim ? t->v.stride[d] : 0;
  }
}

static mt_dtype check_dtype(lua_State *L, mytensor_dtype dtype) {
  if ((unsigned)dtype >= MT_NDTYPES) luaL_error(L, "no dtype %d", (int)dtype);
  return (mt_dtype)dtype;
}

static mt_device check_device(lua_State *L, int cuda) {
  if (cuda < MYTENSOR_CPU || cuda >= MT_MAX_GPUS) luaL_error(L, "no GPU %d", cuda);
  return cuda == MYTENSOR_CPU ? cpu : (mt_device){MT_CUDA, (int8_t)cuda};
}

/* Push the tensor at index as a contiguous one: itself, or a copy. */
static void push_as(lua_State *L, int index, int dtype, const mt_device *device,
                    const char *fname) {
  mt_context *ctx = mtl_enter(L);
  index = lua_absindex(L, index);
  luaL_checkstack(L, 3, NULL);
  mt_tensor **out = mtl_new_tensor(L); /* before the argument is read */
  mt_tensor *t = mtl_check_tensor(L, index, fname);
  const mt_dtype wanted = dtype < 0 ? t->v.dtype : (mt_dtype)dtype;
  const mt_device there = device ? *device : mt_device_of(t);
  if (t->v.dtype == wanted && mt_same_device(mt_device_of(t), there) &&
      mt_is_contiguous(&t->v)) {
    lua_pop(L, 1);
    lua_pushvalue(L, index);
  } else if (mt_convert(ctx, t, wanted, there, out) != MT_OK) {
    mtl_raise(L, fname);
  }
}

static void api_push_contiguous(lua_State *L, int index, mytensor_dtype dtype) {
  push_as(L, index, (int)check_dtype(L, dtype), &cpu, "mytensor.push_contiguous");
}

static void api_push_contiguous_here(lua_State *L, int index) {
  push_as(L, index, -1, NULL, "mytensor.push_contiguous_here");
}

static void api_push_converted(lua_State *L, int index, mytensor_dtype dtype,
                               int cuda) {
  const mt_device device = check_device(L, cuda);
  push_as(L, index, (int)check_dtype(L, dtype), &device, "mytensor.push_converted");
}

static void api_push_empty(lua_State *L, mytensor_dtype dtype, int cuda, int ndim,
                           const int64_t *shape) {
  mt_context *ctx = mtl_enter(L);
  const mt_dtype wanted = check_dtype(L, dtype);
  const mt_device device = check_device(L, cuda);
  luaL_checkstack(L, 3, NULL);
  mt_tensor **out = mtl_new_tensor(L);
  if (mt_empty(ctx, wanted, device, ndim, shape, out) != MT_OK) {
    mtl_raise(L, "mytensor.push_empty");
  }
}

static void api_push_empty_like(lua_State *L, int index) {
  mt_context *ctx = mtl_enter(L);
  index = lua_absindex(L, index);
  luaL_checkstack(L, 3, NULL);
  mt_tensor **out = mtl_new_tensor(L);
  const mt_tensor *t = mtl_check_tensor(L, index, "mytensor.push_empty_like");
  if (mt_empty(ctx, t->v.dtype, mt_device_of(t), t->v.ndim, t->v.shape, out) != MT_OK) {
    mtl_raise(L, "mytensor.push_empty_like");
  }
}

static void api_push_zeros(lua_State *L, mytensor_dtype dtype, int ndim,
                           const int64_t *shape) {
  mt_context *ctx = mtl_enter(L);
  const mt_dtype wanted = check_dtype(L, dtype);
  luaL_checkstack(L, 3, NULL);
  mt_tensor **out = mtl_new_tensor(L);
  if (mt_empty(ctx, wanted, cpu, ndim, shape, out) != MT_OK ||
      mtl_fill(ctx, *out, 0) != MT_OK) {
    mtl_raise(L, "mytensor.push_zeros");
  }
}

static void release_nothing(void *user, void *data) { (void)user, (void)data; }

/* What push_blob needs when it runs protected. */
typedef struct blob {
  void *data;
  mytensor_dtype dtype;
  int cuda;
  int ndim;
  const int64_t *shape;
  void (*release)(void *user, void *data);
  void *user;
  int taken; /* release is the tensor's matter now */
} blob;

static int push_blob(lua_State *L) {
  blob *b = lua_touserdata(L, 1);
  const mt_dtype dtype = check_dtype(L, b->dtype);
  const mt_device device = check_device(L, b->cuda);
  if (mt_backend_of(device) == NULL) mtl_raise(L, "mytensor.push_blob");
  mt_tensor **out = mtl_new_tensor(L);
  b->taken = 1;
  if (mt_from_blob(mtl_context(L), b->data, dtype, device, b->ndim, b->shape,
                   b->release, b->user, out) != MT_OK) {
    mtl_raise(L, "mytensor.push_blob");
  }
  return 1;
}

static void api_push_blob_on(lua_State *L, void *data, mytensor_dtype dtype, int cuda,
                             int ndim, const int64_t *shape,
                             void (*release)(void *user, void *data), void *user) {
  blob b = {data, dtype, cuda, ndim, shape, release, user, 0};
  if (release == NULL) b.release = release_nothing;
  if (!lua_checkstack(L, 4)) {
    b.release(user, data);
    luaL_error(L, "stack overflow");
  }
  lua_pushcfunction(L, push_blob);
  lua_pushlightuserdata(L, &b);
  if (lua_pcall(L, 1, 1, 0) == LUA_OK) return;
  if (!b.taken) b.release(user, data);
  lua_error(L);
}

static void api_push_blob(lua_State *L, void *data, mytensor_dtype dtype, int ndim,
                          const int64_t *shape, void (*release)(void *user, void *data),
                          void *user) {
  api_push_blob_on(L, data, dtype, MYTENSOR_CPU, ndim, shape, release, user);
}

static void api_mark_written(lua_State *L, int index) {
  mt_bump(mtl_check_tensor(L, lua_absindex(L, index), "mytensor.mark_written"));
}

static void api_check_writable(lua_State *L, int index, int arg) {
  mt_tensor *t = mtl_check_tensor(L, lua_absindex(L, index), "mytensor.check_writable");
  if (mt_check_written(mtl_context(L), t) != MT_OK) {
    luaL_argerror(L, arg, mt_last_error()->text);
  }
}

/* ---- for messages ---- */

static const char *api_dtype_name(mytensor_dtype dtype) {
  return (unsigned)dtype < MT_NDTYPES ? mt_dtype_name((mt_dtype)dtype) : "?";
}

static size_t api_dtype_size(mytensor_dtype dtype) {
  return (unsigned)dtype < MT_NDTYPES ? mt_dtype_size((mt_dtype)dtype) : 0;
}

static const char *api_push_text(lua_State *L, int index) {
  const mt_tensor *t = mtl_to_tensor(L, index);
  luaL_checkstack(L, 3, NULL);
  if (t == NULL) return lua_pushstring(L, mtl_typename(L, index));
  return lua_pushfstring(L, "%s of shape %s on %s", mt_dtype_name(t->v.dtype),
                         mt_view_text(&t->v), mt_device_name(mt_device_of(t)));
}

/* ---- GPUs ---- */

/* The GPU's toolchain, once the GPU is open. */
static const mt_backend *check_gpu(lua_State *L, int cuda) {
  if (cuda < 0) luaL_error(L, "a GPU expected, got the CPU");
  const mt_backend *backend = mt_backend_of(check_device(L, cuda));
  if (backend == NULL) luaL_error(L, "%s", mt_last_error()->text);
  if (backend->device->open(cuda) != MT_OK) {
    luaL_error(L, "%s", backend->device->error_text());
  }
  return backend;
}

static void *api_cuda_stream(lua_State *L, int cuda) {
  check_gpu(L, cuda);
  return mtl_context(L)->stream[cuda];
}

static void api_cuda_launched(lua_State *L, int cuda, const char *name, int error,
                              const char *text) {
  const mt_backend *backend = check_gpu(L, cuda);
  mt_context *ctx = mtl_context(L);
  const mt_toolchain *t = backend->table ? backend->table("toolchain") : NULL;
  if (t == NULL) {
    if (error != 0) luaL_error(L, "%s: %s", name, text);
    return;
  }
  const mt_status status = t->launched(cuda, ctx->stream[cuda], name, error);
  if (mt_kernel_status(ctx, check_device(L, cuda), name, status) != MT_OK) {
    mtl_raise(L, name);
  }
}

static int api_cuda_current(lua_State *L) {
  const mt_device d = mtl_current_gpu(L);
  return mt_backend_of(d) != NULL ? d.index : MYTENSOR_CPU;
}

#define VERSION_1                                                       \
  .is_tensor = api_is_tensor, .info = api_info,                         \
  .push_contiguous = api_push_contiguous, .push_zeros = api_push_zeros, \
  .push_blob = api_push_blob, .mark_written = api_mark_written

static const mytensor_api api = {.version = MT_API_VERSION,
                                 VERSION_1,
                                 .dtype_name = api_dtype_name,
                                 .dtype_size = api_dtype_size,
                                 .push_text = api_push_text,
                                 .push_contiguous_here = api_push_contiguous_here,
                                 .push_converted = api_push_converted,
                                 .push_empty = api_push_empty,
                                 .push_empty_like = api_push_empty_like,
                                 .push_blob_on = api_push_blob_on,
                                 .check_writable = api_check_writable,
                                 .cuda_stream = api_cuda_stream,
                                 .cuda_launched = api_cuda_launched,
                                 .cuda_current = api_cuda_current};

/* Modules that were compiled for version 1 run with that version only. */
static const mytensor_api api_1 = {.version = 1, VERSION_1};

/* stack: module */
void mtl_open_extension(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&api_1);
  lua_setfield(L, LUA_REGISTRYINDEX, "mytensor.api");
  lua_pushlightuserdata(L, (void *)(uintptr_t)&api);
  lua_setfield(L, LUA_REGISTRYINDEX, "mytensor.api.2");
}
