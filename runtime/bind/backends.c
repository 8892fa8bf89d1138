/* runtime/bind/backends.c -- mt.backends.cudnn: is cuDNN there, and may convolutions use
** it? */
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

/* cuDNN's version, or 0 and the reason why it cannot be used. */
static int cudnn_version_of(const char **reason) {
  const mt_backend *backend = mt_cuda_backend(reason);
  return backend != NULL ? backend->device->cudnn_version(reason) : 0;
}

/* mt.backends.cudnn.is_available() -> boolean: with false comes the reason. Convolutions
** on a GPU use cuDNN where it is found and faster than our own kernels, unless
** mt.backends.cudnn.enabled, a field that can be assigned, is false */
static int cudnn_is_available(lua_State *L) {
  const char *reason = NULL;
  const bool available = cudnn_version_of(&reason) != 0;
  lua_pushboolean(L, available);
  if (available) return 1;
  lua_pushstring(L, reason);
  return 2;
}

/* mt.backends.cudnn.version() -> integer: as cuDNN counts: 91900 is 9.19.0. Without it
** nil and the reason */
static int cudnn_version(lua_State *L) {
  const char *reason = NULL;
  const int version = cudnn_version_of(&reason);
  if (version != 0) {
    lua_pushinteger(L, version);
    return 1;
  }
  luaL_pushfail(L);
  lua_pushstring(L, reason);
  return 2;
}

static bool is_enabled(lua_State *L, int key) {
  return lua_type(L, key) == LUA_TSTRING &&
         strcmp(lua_tostring(L, key), "enabled") == 0;
}

/* __index; upvalue: the functions */
static int cudnn_get(lua_State *L) {
  if (is_enabled(L, 2)) {
    lua_pushboolean(L, mtl_context(L)->cudnn);
  } else {
    lua_settop(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
  }
  return 1;
}

/* __newindex */
static int cudnn_set(lua_State *L) {
  if (!is_enabled(L, 2)) {
    return luaL_error(L,
                      "mt.backends.cudnn has no field '%s' to assign; there is enabled",
                      luaL_tolstring(L, 2, NULL));
  }
  if (!lua_isboolean(L, 3)) {
    return luaL_error(L, "mt.backends.cudnn.enabled: boolean expected, got %s",
                      mtl_typename(L, 3));
  }
  mtl_context(L)->cudnn = lua_toboolean(L, 3);
  return 0;
}

static const luaL_Reg functions[] = {
    {"is_available", cudnn_is_available}, {"version", cudnn_version}, {NULL, NULL}};

/* stack: module. The table itself is empty, so that every assignment is seen; __members
** tells the prompt what there is. */
void mtl_open_backends(lua_State *L) {
  lua_createtable(L, 0, 1);
  lua_newtable(L);
  lua_createtable(L, 0, 3); /* its metatable */
  luaL_newlib(L, functions);
  lua_pushvalue(L, -1);
  lua_pushcclosure(L, cudnn_get, 1);
  lua_setfield(L, -3, "__index");
  lua_pushboolean(L, 1);
  lua_setfield(L, -2, "enabled");
  lua_setfield(L, -2, "__members");
  lua_pushcfunction(L, cudnn_set);
  lua_setfield(L, -2, "__newindex");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "cudnn");
  lua_setfield(L, -2, "backends");
}

void mtl_push_cudnn(lua_State *L) {
  const char *reason = NULL;
  const int version = cudnn_version_of(&reason);
  if (version == 0) {
    lua_pushfstring(L, "none (%s)", reason);
  } else {
    lua_pushfstring(L, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  }
}
