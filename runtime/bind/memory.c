/* runtime/bind/memory.c -- memory as Lua sees it: counters, limits, and mt.scope, which
** gives back what a function does not return. */
#include <limits.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/cgroup.h"

static const char scopes_key = 0; /* registry: list of the scopes that are open */

/* ---- counters and limits ---- */

/* The device that the string at arg names; none: the default one. It must be there. */
static mt_device check_device(lua_State *L, int arg, const char *fname) {
  const mt_device d = lua_isnoneornil(L, arg) ? mtl_context(L)->default_device
                                              : mtl_check_device(L, arg, fname);
  if (mt_backend_of(d) == NULL) mtl_raise(L, fname);
  return d;
}

static void set_integer(lua_State *L, const char *key, int64_t value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, key);
}

void mtl_push_memory_stats(lua_State *L, mt_device device) {
  const mt_memory m = mt_memory_stats(device);
  lua_createtable(L, 0, 8);
  set_integer(L, "live_tensors", m.live_tensors);
  set_integer(L, "live_bytes", m.live_bytes);
  set_integer(L, "cached_bytes", m.cached_bytes);
  set_integer(L, "peak_bytes", m.peak_bytes);
  set_integer(L, "allocations", m.allocations);
  set_integer(L, "frees", m.frees);
  set_integer(L, "limit_bytes", m.limit_bytes);
  set_integer(L, "overruns", m.overruns);
}

/* mt.memory_stats([device]) -> table: live_tensors, live_bytes, cached_bytes (freed,
** kept for reuse), peak_bytes, allocations, frees, limit_bytes, overruns (freed blocks
** around which something was overwritten; counted where MYTENSOR_GUARD=1) */
static int mt_memory_stats_table(lua_State *L) {
  mtl_push_memory_stats(L, check_device(L, 1, "memory_stats"));
  return 1;
}

/* mt.reset_peak_memory([device]): peak_bytes starts again from what is live now */
static int mt_reset_peak_memory(lua_State *L) {
  mt_memory_reset_peak(check_device(L, 1, "reset_peak_memory"));
  return 0;
}

/* mt.set_memory_limit([bytes[, device]]): without bytes 90% of what the machine has */
static int mt_set_memory_limit(lua_State *L) {
  static const char fname[] = "set_memory_limit";
  const int64_t bytes = lua_isnoneornil(L, 1) ? 0 : mtl_check_int(L, 1, fname);
  if (bytes < 0 || (bytes == 0 && lua_isnumber(L, 1))) {
    return mtl_argerror(L, 1, fname, "a number of bytes above 0 expected");
  }
  mt_memory_set_limit(check_device(L, 2, fname), bytes);
  return 0;
}

/* mt.empty_cache([device]): give freed memory that is kept for reuse back to the
** system */
static int mt_empty_cache(lua_State *L) {
  mt_memory_empty_cache(check_device(L, 1, "empty_cache"));
  return 0;
}

/* ---- tensors found in values ---- */

typedef void (*tensor_visitor)(lua_State *L, int index);

/* Call visit for each tensor among the values first .. last and what the tables
** among them hold, at any depth. Tables waiting stand in a list, so that depth costs
** no C stack. */
static void visit_tensors(lua_State *L, int first, int last, tensor_visitor visit) {
  luaL_checkstack(L, 8, NULL);
  const int seen = lua_gettop(L) + 1, waiting = seen + 1;
  lua_newtable(L); /* seen[table] = true */
  lua_createtable(L, last - first + 1, 0);
  lua_Integer count = 0;
  for (int i = first; i <= last; i++) {
    lua_pushvalue(L, i);
    lua_rawseti(L, waiting, ++count);
  }
  while (count > 0) {
    lua_rawgeti(L, waiting, count);
    lua_pushnil(L);
    lua_rawseti(L, waiting, count--);
    if (mtl_to_tensor(L, -1) != NULL) {
      visit(L, lua_gettop(L));
    } else if (lua_istable(L, -1)) {
      lua_pushvalue(L, -1);
      const bool fresh = lua_rawget(L, seen) == LUA_TNIL;
      lua_pop(L, 1);
      if (fresh) {
        lua_pushvalue(L, -1);
        lua_pushboolean(L, 1);
        lua_rawset(L, seen);
        lua_pushnil(L);
        while (lua_next(L, -2)) {
          if (lua_istable(L, -1) || lua_isuserdata(L, -1)) {
            lua_rawseti(L, waiting, ++count);
          } else {
            lua_pop(L, 1);
          }
        }
      }
    }
    lua_pop(L, 1);
  }
  lua_settop(L, seen - 1);
}

/* ---- scopes ---- */

/* Push the table of handles made in the scope of this depth, from 1. */
static void push_scope(lua_State *L, int depth) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &scopes_key);
  lua_rawgeti(L, -1, depth);
  lua_remove(L, -2);
}

/* Set scope[value at index] = member, nil for false. */
static void set_member(lua_State *L, int depth, int index, bool member) {
  push_scope(L, depth);
  lua_pushvalue(L, index);
  if (member) {
    lua_pushboolean(L, 1);
  } else {
    lua_pushnil(L);
  }
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void mtl_scope_add(lua_State *L) {
  luaL_checkstack(L, 4, NULL);
  set_member(L, mtl_state_of(L)->nscopes, lua_gettop(L), true);
}

/* A tensor leaves all scopes. */
static void keep_tensor(lua_State *L, int index) {
  for (int depth = mtl_state_of(L)->nscopes; depth > 0; depth--) {
    set_member(L, depth, index, false);
  }
}

/* A tensor of the innermost scope moves to the one around it. */
static void return_tensor(lua_State *L, int index) {
  const int depth = mtl_state_of(L)->nscopes;
  push_scope(L, depth);
  lua_pushvalue(L, index);
  const bool inside = lua_rawget(L, -2) != LUA_TNIL;
  lua_pop(L, 2);
  if (!inside) return;
  set_member(L, depth, index, false);
  if (depth > 1) set_member(L, depth - 1, index, true);
}

/* Is the scope of this depth that of a coroutine which an error has ended? Then nothing
** closes it. */
static bool is_abandoned(lua_State *L, int depth) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &scopes_key);
  lua_rawgeti(L, -1, -depth);
  lua_State *thread = lua_tothread(L, -1);
  lua_pop(L, 2);
  return thread != NULL && lua_status(thread) > LUA_YIELD;
}

static void open_scope(lua_State *L, int table) {
  mtl_state *s = mtl_state_of(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &scopes_key);
  for (; s->nscopes > 0 && is_abandoned(L, s->nscopes); s->nscopes--) {
    lua_pushboolean(L, 0);
    lua_rawseti(L, -2, s->nscopes);
    lua_pushboolean(L, 0);
    lua_rawseti(L, -2, -s->nscopes);
  }
  lua_pushvalue(L, table);
  lua_rawseti(L, -2, s->nscopes + 1);
  lua_pushthread(L);
  lua_rawseti(L, -2, -(s->nscopes + 1));
  lua_pop(L, 1);
  s->nscopes++;
}

/* The depth of the scope whose table stands at 1; 0: it is closed. */
static int depth_of_scope(lua_State *L) {
  int depth = mtl_state_of(L)->nscopes;
  for (bool found = false; depth > 0; depth--) {
    push_scope(L, depth);
    found = lua_rawequal(L, -1, 1);
    lua_pop(L, 1);
    if (found) break;
  }
  return depth;
}

/* __close of a scope's table: free what is left in it, also after an error. */
static int scope_close(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  mtl_state *s = mtl_state_of(L);
  const int depth = depth_of_scope(L);
  if (depth == 0) return 0;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &scopes_key);
  while (s->nscopes >= depth) {
    lua_pushnil(L);
    lua_rawseti(L, -2, s->nscopes);
    lua_pushnil(L);
    lua_rawseti(L, -2, -s->nscopes);
    s->nscopes--;
  }
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    lua_pop(L, 1);
    mtl_free_tensor(L, lua_gettop(L));
  }
  return 0;
}

/* mt.scope(fn, ...) -> results of fn(...): every other tensor that Lua received
** meanwhile is freed, but those given to mt.keep; fn may not yield */
static int mt_scope(lua_State *L) {
  if (!lua_isfunction(L, 1) && luaL_getmetafield(L, 1, "__call") == LUA_TNIL) {
    return mtl_argerror(L, 1, "scope", "function expected, got %s", mtl_typename(L, 1));
  }
  if (!lua_isfunction(L, 1)) lua_pop(L, 1); /* __call */
  lua_newtable(L);
  luaL_setmetatable(L, "mytensor.scope");
  lua_insert(L, 1);
  lua_toclose(L, 1);
  open_scope(L, 1);
  lua_call(L, lua_gettop(L) - 2, LUA_MULTRET);
  const int last = lua_gettop(L);
  visit_tensors(L, 2, last, return_tensor);
  return last - 1; /* which closes the scope */
}

/* mt.keep(...) -> its arguments: tensors among them, and in tables among them, outlive
** every mt.scope that is running */
static int mt_keep(lua_State *L) {
  const int n = lua_gettop(L);
  if (mtl_state_of(L)->nscopes > 0) visit_tensors(L, 1, n, keep_tensor);
  return n;
}

/* bytes, processors = mt._default_limits(root): the memory limit and the most threads
** that /proc and /sys under root lead to; processors nil: no limit */
static int default_limits(lua_State *L) {
  const char *root = luaL_checkstring(L, 1);
  const int processors = mt_cgroup_processors(root);
  lua_pushinteger(L, mt_default_memory_limit(root));
  if (processors == INT_MAX) return 1;
  lua_pushinteger(L, processors);
  return 2;
}

static const luaL_Reg functions[] = {{"memory_stats", mt_memory_stats_table},
                                     {"reset_peak_memory", mt_reset_peak_memory},
                                     {"set_memory_limit", mt_set_memory_limit},
                                     {"empty_cache", mt_empty_cache},
                                     {"scope", mt_scope},
                                     {"keep", mt_keep},
                                     {"_collecting", mtl_collecting},
                                     {"_default_limits", default_limits},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_memory(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  lua_newtable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &scopes_key);
  luaL_newmetatable(L, "mytensor.scope");
  lua_pushliteral(L, "k"); /* a handle that nobody else has may be collected */
  lua_setfield(L, -2, "__mode");
  lua_pushcfunction(L, scope_close);
  lua_setfield(L, -2, "__close");
  lua_pop(L, 1);
}
