/* runtime/bind/function_context.c -- the ctx of a call of an mt.Function: a table for the
** user's own fields, and with what keeps and marks tensors.
**
** What is saved lives in C, beside the node, so that saving a result makes no cycle that
** neither Lua's collector nor reference counts could end. */
#include <stdlib.h>

#include "runtime/bind/function.h"

static const char context_key = 0; /* registry: metatable of a ctx */
const char mtl_record_key = 0, mtl_given_key = 0, mtl_dirty_key = 0, mtl_plain_key = 0;

void mtl_function_release(void *user) {
  function *const f = user;
  f->released = true;
  if (f->running > 0) return; /* a walk within backward has passed this node, too */
  for (int i = 0; i < f->nsaved; i++) mt_saved_drop(&f->saved[i], f->node);
  f->record->f = NULL;
  luaL_unref(f->main, LUA_REGISTRYINDEX, f->ref);
  free(f);
}

/* The record of the ctx at 1; NULL while forward runs. */
static function *check_context(lua_State *L, const char *fname) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &context_key);
  const bool is =
      lua_istable(L, 1) && lua_getmetatable(L, 1) && lua_rawequal(L, -1, -2);
  if (!is) mtl_argerror(L, 1, fname, "the ctx of an mt.Function expected");
  lua_pop(L, 2);
  lua_rawgetp(L, 1, &mtl_record_key);
  const record *const r = mtl_to_kind(L, -1, &mtl_record_key, sizeof *r);
  lua_pop(L, 1);
  if (r && !r->f) {
    luaL_error(L,
               "%s: the graph was released: backward a second time needs retain_graph",
               fname);
  }
  return r ? r->f : NULL;
}

/* Keep the arguments, tensors and maybe nil, in a list of the ctx. */
static int note_tensors(lua_State *L, const char *key, const char *fname, bool nils) {
  if (check_context(L, fname)) {
    return luaL_error(L, "%s: only forward can call it, not backward", fname);
  }
  const int n = lua_gettop(L) - 1;
  for (int i = 2; i <= n + 1; i++) {
    if (!nils || !lua_isnil(L, i)) mtl_check_tensor(L, i, fname);
  }
  lua_createtable(L, n, 1);
  for (int i = 1; i <= n; i++) {
    lua_pushvalue(L, i + 1);
    lua_rawseti(L, -2, i);
  }
  lua_pushinteger(L, n);
  lua_setfield(L, -2, "n");
  lua_rawsetp(L, 1, key);
  return 0;
}

/* ctx:save(...): tensors and nil, for ctx:saved() in backward */
static int context_save(lua_State *L) {
  return note_tensors(L, &mtl_given_key, "save", true);
}

/* ctx:mark_dirty(...): arguments that forward changes in place; it returns them, too */
static int context_mark_dirty(lua_State *L) {
  return note_tensors(L, &mtl_dirty_key, "mark_dirty", false);
}

/* ctx:mark_non_differentiable(...): results for which there is no gradient */
static int context_mark_plain(lua_State *L) {
  return note_tensors(L, &mtl_plain_key, "mark_non_differentiable", false);
}

int mtl_given_length(lua_State *L, int list) {
  lua_pushliteral(L, "n");
  lua_rawget(L, list);
  const lua_Integer n = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n > 0 && n < INT_MAX / 256 ? (int)n : 0;
}

/* What ctx:save got, while forward runs. */
static int push_given(lua_State *L) {
  if (lua_rawgetp(L, 1, &mtl_given_key) != LUA_TTABLE) return 0;
  const int list = lua_gettop(L), n = mtl_given_length(L, list);
  luaL_checkstack(L, n, NULL);
  for (int i = 1; i <= n; i++) lua_rawgeti(L, list, i);
  return n;
}

/* Fill n handles with what f saved; no error is raised and no Lua memory taken. */
static mt_status fill_saved(mt_context *ctx, const function *f, mt_tensor ***slot,
                            int n) {
  for (int i = 0; i < n; i++) {
    if (!f->saved[i].tensor) continue;
    mt_tensor *t = NULL;
    mt_calc c;
    mt_calc_begin(&c, ctx);
    c.status = mt_saved_get(&f->saved[i], &c, f->node->name, &t);
    if (c.status == MT_OK && t == f->saved[i].tensor) { /* a handle apart from ours */
      mt_tensor *alias = NULL;
      c.status = mt_detach(t, &alias);
      t = mt_cown(&c, alias);
    }
    MT_TRY(mt_calc_end(&c, 1, &t));
    *slot[i] = t;
  }
  return MT_OK;
}

/* ... = ctx:saved() */
static int context_saved(lua_State *L) {
  function *f = check_context(L, "saved");
  if (!f) return push_given(L);
  mt_context *const ctx = mtl_context(L);
  const int n = f->nsaved;
  luaL_checkstack(L, n + 4, NULL);
  mt_tensor ***const slot = lua_newuserdatauv(L, (size_t)n * sizeof *slot, 0);
  for (int i = 0; i < n; i++) slot[i] = mtl_new_tensor(L);
  f = check_context(L, "saved"); /* a finalizer may have let the graph go */
  f->running++;
  const mt_status status = fill_saved(ctx, f, slot, n);
  if (--f->running == 0 && f->released) mtl_function_release(f);
  if (status != MT_OK) return luaL_error(L, "%s", mt_last_error()->text);
  for (int i = 0; i < n; i++) {
    if (*slot[i]) continue;
    lua_pushnil(L);
    lua_replace(L, lua_gettop(L) - n + i);
  }
  return n;
}

bool mtl_is_given(lua_State *L, int context, const char *key, const mt_tensor *t) {
  bool found = false;
  if (lua_rawgetp(L, context, key) == LUA_TTABLE) {
    const int list = lua_gettop(L), n = mtl_given_length(L, list);
    for (int i = 1; i <= n && !found; i++) {
      lua_rawgeti(L, list, i);
      found = mtl_to_tensor(L, -1) == t;
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
  return found;
}

static const luaL_Reg context_methods[] = {
    {"save", context_save},
    {"saved", context_saved},
    {"mark_dirty", context_mark_dirty},
    {"mark_non_differentiable", context_mark_plain},
    {NULL, NULL}};

void mtl_set_context(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &context_key);
  lua_setmetatable(L, -2);
}

void mtl_open_function_context(lua_State *L) {
  lua_createtable(L, 0, 2);
  luaL_newlib(L, context_methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "mytensor.FunctionContext");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &context_key);
}
