/* runtime/bind/cuda.c -- mt.cuda: which GPUs there are, the current one, their memory. */
#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

/* ---- which GPU ---- */

static int raise_named(lua_State *L, const char *name) {
  return luaL_error(L, "mt.cuda.%s: %s", name, mt_last_error()->text);
}

mt_device mtl_check_gpu(lua_State *L, int arg, const char *name) {
  mt_device d = mtl_current_gpu(L);
  if (lua_type(L, arg) == LUA_TNUMBER) {
    const int64_t i = mtl_check_int(L, arg, name);
    if (i < 0 || i >= MT_MAX_GPUS) {
      mtl_argerror(L, arg, name, "GPU %lld: they are numbered from 0 to %d",
                   (long long)i, MT_MAX_GPUS - 1);
    }
    d.index = (int8_t)i;
  } else if (!lua_isnoneornil(L, arg)) {
    d = mtl_check_device(L, arg, name);
  }
  if (d.kind != MT_CUDA) mtl_argerror(L, arg, name, "GPU expected, got cpu");
  if (mt_backend_of(d) == NULL) raise_named(L, name);
  return d;
}

static mt_device_info describe(lua_State *L, mt_device d, const char *name) {
  mt_device_info info;
  const mt_device_api *api = mt_backend_of(d)->device;
  if (api->describe(d.index, &info) != MT_OK) {
    luaL_error(L, "mt.cuda.%s: %s", name, api->error_text());
  }
  return info;
}

/* mt.cuda.is_available() -> boolean: with false comes the reason */
static int cuda_is_available(lua_State *L) {
  const mt_backend *backend = mt_backend_of((mt_device){MT_CUDA, 0});
  lua_pushboolean(L, backend != NULL);
  if (backend != NULL) return 1;
  lua_pushstring(L, mt_last_error()->text);
  return 2;
}

/* mt.cuda.device_count() -> integer: GPUs that can be used */
static int cuda_device_count(lua_State *L) {
  const char *reason;
  const mt_backend *backend = mt_cuda_backend(&reason);
  const int n = backend != NULL ? backend->device->device_count() : 0;
  lua_pushinteger(L, n < MT_MAX_GPUS ? n : MT_MAX_GPUS);
  return 1;
}

/* mt.cuda.current_device() -> integer: the number of the GPU that "cuda" means, from 0 */
static int cuda_current_device(lua_State *L) {
  lua_pushinteger(L, mtl_check_gpu(L, 2, "current_device").index);
  return 1;
}

int mtl_call_on(lua_State *L, int fn, int gpu, void *stream) {
  mt_context *ctx = mtl_context(L);
  const int outer_gpu = ctx->gpu;
  void *const outer_stream = ctx->stream[gpu];
  const mt_device outer_default = ctx->default_device;
  ctx->gpu = gpu;
  ctx->stream[gpu] = stream;
  if (outer_default.kind == MT_CUDA) ctx->default_device.index = (int8_t)gpu;
  const int status = lua_pcall(L, lua_gettop(L) - fn, LUA_MULTRET, 0);
  ctx->gpu = outer_gpu;
  ctx->stream[gpu] = outer_stream;
  ctx->default_device = outer_default;
  if (status != LUA_OK) return lua_error(L);
  return lua_gettop(L) - fn + 1;
}

/* mt.cuda.with_device(i, fn, ...) -> results of fn(...): meanwhile "cuda" means GPU i,
** and so does the default device if it is a GPU; fn may not yield */
static int cuda_with_device(lua_State *L) {
  luaL_checkany(L, 1);
  const int gpu = mtl_check_gpu(L, 1, "with_device").index;
  luaL_checktype(L, 2, LUA_TFUNCTION);
  return mtl_call_on(L, 2, gpu, mtl_context(L)->stream[gpu]);
}

/* mt.cuda.get_device_properties([device]) -> table: name, capability ("9.0"),
** multiprocessors, total_bytes, free_bytes */
static int cuda_get_device_properties(lua_State *L) {
  static const char name[] = "get_device_properties";
  const mt_device_info info = describe(L, mtl_check_gpu(L, 1, name), name);
  lua_createtable(L, 0, 5);
  lua_pushstring(L, info.name);
  lua_setfield(L, -2, "name");
  lua_pushfstring(L, "%d.%d", info.major, info.minor);
  lua_setfield(L, -2, "capability");
  lua_pushinteger(L, info.multiprocessors);
  lua_setfield(L, -2, "multiprocessors");
  lua_pushinteger(L, (lua_Integer)info.total_bytes);
  lua_setfield(L, -2, "total_bytes");
  lua_pushinteger(L, (lua_Integer)info.free_bytes);
  lua_setfield(L, -2, "free_bytes");
  return 1;
}

/* mt.cuda.synchronize([device]): wait until a GPU has done all that was asked of it;
** bad data that a kernel met there is an error here */
static int cuda_synchronize(lua_State *L) {
  const mt_device d = mtl_check_gpu(L, 1, "synchronize");
  mtl_refuse_capture(L, "synchronize");
  const mt_device_api *api = mt_backend_of(d)->device;
  if (mt_wait(mtl_enter(L), d) != MT_OK) return mtl_raise(L, "synchronize");
  if (api->device_synchronize(d.index) != MT_OK) {
    return luaL_error(L, "mt.cuda.synchronize: %s", api->error_text());
  }
  if (mt_synchronize(mtl_context(L), d) != MT_OK) return mtl_raise(L, "synchronize");
  return 0;
}

/* ---- memory ---- */

/* mt.cuda.memory_stats([device]) -> table: as mt.memory_stats, of a GPU */
static int cuda_memory_stats(lua_State *L) {
  mtl_push_memory_stats(L, mtl_check_gpu(L, 1, "memory_stats"));
  return 1;
}

/* mt.cuda.empty_cache([device]): give freed memory that is kept for reuse back to the
** driver */
static int cuda_empty_cache(lua_State *L) {
  mt_memory_empty_cache(mtl_check_gpu(L, 1, "empty_cache"));
  return 0;
}

/* mt.cuda.reset_peak([device]): peak_bytes starts again from what is live now */
static int cuda_reset_peak(lua_State *L) {
  mt_memory_reset_peak(mtl_check_gpu(L, 1, "reset_peak"));
  return 0;
}

/* mt.cuda.set_memory_limit([limit[, device]]): bytes, or a fraction of the GPU's memory
** above 0, up to 1; without a limit all of it */
static int cuda_set_memory_limit(lua_State *L) {
  static const char name[] = "set_memory_limit";
  lua_Number limit = 0;
  if (!lua_isnoneornil(L, 1)) {
    if (lua_type(L, 1) != LUA_TNUMBER) {
      return mtl_argerror(L, 1, name, "number expected, got %s", mtl_typename(L, 1));
    }
    limit = lua_tonumber(L, 1);
    if (!(limit > 0 && limit < 0x1p62)) {
      return mtl_argerror(L, 1, name,
                          "bytes, or a fraction above 0, up to 1, expected");
    }
  }
  const mt_device d = mtl_check_gpu(L, 2, name);
  if (limit > 0 && limit <= 1) limit *= (lua_Number)describe(L, d, name).total_bytes;
  mt_memory_set_limit(d, (int64_t)limit);
  return 0;
}

static const luaL_Reg functions[] = {
    {"is_available", cuda_is_available},
    {"device_count", cuda_device_count},
    {"current_device", cuda_current_device},
    {"with_device", cuda_with_device},
    {"get_device_properties", cuda_get_device_properties},
    {"synchronize", cuda_synchronize},
    {"memory_stats", cuda_memory_stats},
    {"empty_cache", cuda_empty_cache},
    {"reset_peak", cuda_reset_peak},
    {"set_memory_limit", cuda_set_memory_limit},
    {NULL, NULL}};

/* stack: module */
void mtl_open_cuda(lua_State *L) {
  luaL_newlib(L, functions);
  mtl_open_streams(L);
  mtl_open_graph(L);
  lua_setfield(L, -2, "cuda");
}
