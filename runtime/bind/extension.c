/* runtime/bind/extension.c -- the functions that mytensor.h offers to C code. */
#include "runtime/bind/state.h"
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
  const mt_tensor *t = mtl_check_tensor(L, lua_absindex(L, index), "mytensor.info");
  const mt_device device = mt_device_of(t);
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

static void api_push_contiguous(lua_State *L, int index, mytensor_dtype dtype) {
  mt_context *ctx = mtl_enter(L);
  index = lua_absindex(L, index);
  mt_tensor *t = mtl_check_tensor(L, index, "mytensor.push_contiguous");
  const mt_dtype wanted = check_dtype(L, dtype);
  if (t->v.dtype == wanted && mt_same_device(mt_device_of(t), cpu) &&
      mt_is_contiguous(&t->v)) {
    lua_pushvalue(L, index);
    return;
  }
  luaL_checkstack(L, 3, NULL);
  mt_tensor **out = mtl_new_tensor(L);
  if (mt_convert(ctx, t, wanted, cpu, out) != MT_OK) {
    mtl_raise(L, "mytensor.push_contiguous");
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
  int ndim;
  const int64_t *shape;
  void (*release)(void *user, void *data);
  void *user;
  int taken; /* release is the tensor's matter now */
} blob;

static int push_blob(lua_State *L) {
  blob *b = lua_touserdata(L, 1);
  const mt_dtype dtype = check_dtype(L, b->dtype);
  mt_tensor **out = mtl_new_tensor(L);
  b->taken = 1;
  if (mt_from_blob(mtl_context(L), b->data, dtype, cpu, b->ndim, b->shape, b->release,
                   b->user, out) != MT_OK) {
    mtl_raise(L, "mytensor.push_blob");
  }
  return 1;
}

static void api_push_blob(lua_State *L, void *data, mytensor_dtype dtype, int ndim,
                          const int64_t *shape, void (*release)(void *user, void *data),
                          void *user) {
  blob b = {data, dtype, ndim, shape, release, user, 0};
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

static void api_mark_written(lua_State *L, int index) {
  mt_bump(mtl_check_tensor(L, lua_absindex(L, index), "mytensor.mark_written"));
}

static const mytensor_api api = {.version = MT_API_VERSION,
                                 .is_tensor = api_is_tensor,
                                 .info = api_info,
                                 .push_contiguous = api_push_contiguous,
                                 .push_zeros = api_push_zeros,
                                 .push_blob = api_push_blob,
                                 .mark_written = api_mark_written};

/* stack: module */
void mtl_open_extension(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&api);
  lua_setfield(L, LUA_REGISTRYINDEX, "mytensor.api");
}
