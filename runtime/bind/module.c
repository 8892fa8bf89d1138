/* runtime/bind/module.c -- luaopen_mytensor: builds the module once for each Lua
** state. */
#include <string.h>

#include "runtime/bind/embedded.h"
#include "runtime/bind/state.h"
#include "runtime/mytensor.h"

/* A name, not an address: another copy of this code in the same state must find it. */
#define MODULE_KEY "mytensor.module"

/* ---- the Lua files ---- */

/* Push the name of the file that holds module name below dir: a.b -> dir/a/b.lua, or
** dir/a/b/init.lua. */
static const char *push_path(lua_State *L, const char *dir, const char *name,
                             const char *ending) {
  const char *tail = luaL_gsub(L, name, ".", "/");
  const char *path = lua_pushfstring(L, "%s/%s%s", dir, tail, ending);
  lua_remove(L, -2);
  return path;
}

static const mt_embedded *find_file(const char *name) {
  const mt_embedded *f = mt_embedded_files;
  while (f->name != NULL && strcmp(f->name, name) != 0) f++;
  return f->name != NULL ? f : NULL;
}

/* Push the chunk of a module, from $MYTENSOR_LUA if that is set, and nothing else. */
static void load_chunk(lua_State *L, const mt_embedded *f) {
  const int top = lua_gettop(L);
  const char *dir = mtl_getenv(L, "MYTENSOR_LUA");
  int status;
  if (dir != NULL && dir[0] != '\0') {
    status = luaL_loadfile(L, push_path(L, dir, f->name, ".lua"));
    if (status == LUA_ERRFILE) {
      status = luaL_loadfile(L, push_path(L, dir, f->name, "/init.lua"));
    }
  } else {
    status = luaL_loadbuffer(L, f->data, f->size, lua_pushfstring(L, "=%s", f->name));
  }
  if (status != LUA_OK) lua_error(L);
  lua_replace(L, top + 1); /* over the names that were pushed for it */
  lua_settop(L, top + 1);
}

/* package.preload's loader: name, extra -> what the file returns */
static int load_embedded(lua_State *L) {
  load_chunk(L, lua_touserdata(L, lua_upvalueindex(1)));
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

static void add_preloads(lua_State *L) {
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  for (const mt_embedded *f = mt_embedded_files; f->name != NULL; f++) {
    if (strcmp(f->name, "mytensor") == 0) continue;
    lua_pushlightuserdata(L, (void *)(uintptr_t)f);
    lua_pushcclosure(L, load_embedded, 1);
    lua_setfield(L, -2, f->name);
  }
  lua_pop(L, 1);
}

/* ---- the module ---- */

static void build_module(lua_State *L) {
  static void (*const parts[])(lua_State *) = {
      mtl_open_tensor,       mtl_open_ops,      mtl_open_index,  mtl_open_arithmetic,
      mtl_open_constructors, mtl_open_convert,  mtl_open_show,   mtl_open_memory,
      mtl_open_autograd,     mtl_open_function, mtl_open_pairs,  mtl_open_optim,
      mtl_open_system,       mtl_open_cuda,     mtl_open_kernel, mtl_open_backends,
      mtl_open_pinned,       mtl_open_files,    mtl_open_fuse,   mtl_open_extension,
      mtl_open_build,        mtl_open_profile};
  mtl_open_state(L);
  mtl_preset_device(L);
  mtl_check_isa(L);
  lua_createtable(L, 0, 400);
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    parts[i](L);
  }
  lua_pushliteral(L, "mytensor " MT_VERSION);
  lua_setfield(L, -2, "_VERSION");
}

/* stack: module. Run init.lua with it; package.loaded has it meanwhile, for what
** init.lua and the files that it loads require. */
static void run_init(lua_State *L) {
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_pushvalue(L, -2);
  lua_setfield(L, -2, "mytensor");
  const mt_embedded *f = find_file("mytensor");
  if (f != NULL) {
    load_chunk(L, f);
    lua_pushvalue(L, -3);
    const int status = lua_pcall(L, 1, 0, 0);
    if (status != LUA_OK) { /* a later require starts over */
      lua_pushnil(L);
      lua_setfield(L, -3, "mytensor");
      lua_error(L);
    }
  }
  lua_pop(L, 1);
}

/* require "mytensor" */
MT_API int luaopen_mytensor(lua_State *L) {
  /* Until the version is known, only what every Lua has may be called. The linker
  ** leaves NULL in place of what is missing. */
  lua_Number (*const version)(lua_State *) = lua_version;
  void *(*const newuserdata)(lua_State *, size_t, int) = lua_newuserdatauv;
  if (version == NULL || newuserdata == NULL) {
    return luaL_error(L, "mytensor needs Lua 5.4; an older version is running");
  }
  if (version(L) != LUA_VERSION_NUM) {
    return luaL_error(L, "mytensor needs Lua 5.4; Lua %d.%d is running",
                      (int)version(L) / 100, (int)version(L) % 100);
  }
  if (lua_getfield(L, LUA_REGISTRYINDEX, MODULE_KEY) == LUA_TTABLE) return 1;
  lua_pop(L, 1);
  luaL_checkstack(L, LUA_MINSTACK, NULL);
  build_module(L);
  add_preloads(L);
  run_init(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, MODULE_KEY);
  return 1;
}
