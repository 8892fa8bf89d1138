/* spec/support/api.c -- a C module that calls what version 2 added to mytensor.h. */
#include "mytensor.h"

/* api.empty_like(t) */
static int empty_like(lua_State *L) {
  mytensor_get_api(L)->push_empty_like(L, 1);
  return 1;
}

/* api.empty(n, cuda): float32 */
static int empty(lua_State *L) {
  const int64_t shape[1] = {luaL_checkinteger(L, 1)};
  const int cuda = (int)luaL_checkinteger(L, 2);
  mytensor_get_api(L)->push_empty(L, MYTENSOR_FLOAT32, cuda, 1, shape);
  return 1;
}

/* api.no_dims(): a tensor of -1 dims */
static int no_dims(lua_State *L) {
  const int64_t shape[1] = {1};
  mytensor_get_api(L)->push_empty(L, MYTENSOR_FLOAT32, MYTENSOR_CPU, -1, shape);
  return 1;
}

/* api.contiguous(t) */
static int contiguous(lua_State *L) {
  mytensor_get_api(L)->push_contiguous_here(L, 1);
  return 1;
}

/* api.info(t): contiguous, elements, shape and stride behind the last dim */
static int info(lua_State *L) {
  mytensor_info x;
  mytensor_get_api(L)->info(L, 1, &x);
  lua_pushboolean(L, x.contiguous);
  lua_pushinteger(L, (lua_Integer)x.numel);
  lua_pushinteger(L, (lua_Integer)x.shape[x.ndim]);
  lua_pushinteger(L, (lua_Integer)x.stride[x.ndim]);
  return 4;
}

/* api.constant(nowhere): over memory that nobody frees, or over none */
static int constant(lua_State *L) {
  static double data[] = {3, 4};
  const int64_t shape[1] = {2};
  mytensor_get_api(L)->push_blob(L, lua_toboolean(L, 1) ? NULL : data, MYTENSOR_FLOAT64,
                                 1, shape, NULL, NULL);
  return 1;
}

/* api.converted(t, cuda): float64 */
static int converted(lua_State *L) {
  const int cuda = (int)luaL_checkinteger(L, 2);
  mytensor_get_api(L)->push_converted(L, 1, MYTENSOR_FLOAT64, cuda);
  return 1;
}

/* api.text(x) */
static int text(lua_State *L) {
  mytensor_get_api(L)->push_text(L, 1);
  return 1;
}

/* name, bytes = api.dtype(number) */
static int dtype(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  const mytensor_dtype d = (mytensor_dtype)luaL_checkinteger(L, 1);
  lua_pushstring(L, mt->dtype_name(d));
  lua_pushinteger(L, (lua_Integer)mt->dtype_size(d));
  return 2;
}

/* api.matrix(t) */
static int matrix(lua_State *L) {
  mytensor_info x;
  mytensor_get_api(L)->info(L, 1, &x);
  MT_CHECK(L, 1, x.ndim == 2, "%d dims expected, got %d", 2, x.ndim);
  return 0;
}

/* api.set(t, value): float32, contiguous, on the CPU */
static int set(lua_State *L) {
  const mytensor_api *mt = mytensor_get_api(L);
  mytensor_info x;
  mt->info(L, 1, &x);
  mt->check_writable(L, 1, 1);
  for (int64_t i = 0; i < x.numel; i++) {
    ((float *)x.data)[i] = (float)luaL_checknumber(L, 2);
  }
  mt->mark_written(L, 1);
  return 0;
}

/* api.version_1(): the version that a module of that time finds */
static int version_1(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "mytensor.api");
  lua_pushinteger(L, ((const mytensor_api *)lua_touserdata(L, -1))->version);
  return 1;
}

/* api.stream(cuda) */
static int stream(lua_State *L) {
  const int cuda = (int)luaL_checkinteger(L, 1);
  lua_pushlightuserdata(L, mytensor_get_api(L)->cuda_stream(L, cuda));
  return 1;
}

/* api.current() */
static int current(lua_State *L) {
  lua_pushinteger(L, mytensor_get_api(L)->cuda_current(L));
  return 1;
}

MT_EXTENSION_OPEN(L) {
  static const luaL_Reg functions[] = {
      {"empty_like", empty_like}, {"empty", empty},     {"no_dims", no_dims},
      {"contiguous", contiguous}, {"info", info},       {"constant", constant},
      {"converted", converted},   {"text", text},       {"dtype", dtype},
      {"matrix", matrix},         {"set", set},         {"version_1", version_1},
      {"stream", stream},         {"current", current}, {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
