/* runtime/bind/modes.c -- mt.no_grad and its kin: functions that run with a flag of the
** context set, whatever way they end.
**
** The flag belongs to the state, so what is set within a coroutine must not be seen
** outside while that coroutine is suspended. A function that may yield therefore runs
** in a coroutine of its own: each yield of it passes here on its way out, and each
** resume on its way in. */
#include "runtime/bind/autograd.h"
#include "runtime/bind/state.h"

static const char guard_key = 0; /* the registry's key of the guards' metatable */

/* ---- guards ---- */

static void end_guard(mtl_guard *g) {
  if (g->inside) *g->flag = g->outer;
  g->inside = false;
}

/* __close */
static int guard_close(lua_State *L) {
  mtl_guard *const g = mtl_to_kind(L, 1, &guard_key, sizeof *g);
  if (!g) return 0;                               /* called by hand */
  lua_State *const co = g->inside ? NULL : g->co; /* one that runs cannot be reset */
  end_guard(g);
  if (!co) return 0;
  g->co = NULL;
  lua_resetthread(co); /* runs its own to-be-closed variables */
  return 0;
}

mtl_guard *mtl_guard_push(lua_State *L, bool *flag, bool value) {
  mtl_guard *const g = lua_newuserdatauv(L, sizeof *g, 1);
  *g = (mtl_guard){&guard_key, flag, *flag, false, NULL};
  lua_rawgetp(L, LUA_REGISTRYINDEX, &guard_key);
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  g->inside = true;
  *flag = value;
  return g;
}

void mtl_guard_call(lua_State *L, mtl_guard *g, int nargs) {
  if (mtl_state_of(L)->main == L) {
    lua_call(L, nargs, LUA_MULTRET);
    end_guard(g);
    return;
  }
  const int status = lua_pcall(L, nargs, LUA_MULTRET, 0);
  end_guard(g);
  if (status != LUA_OK) lua_error(L);
}

/* ---- running a function ---- */

/* The guard's place and the flag's inner value, for a continuation. */
static lua_KContext pack(int guard, bool value) {
  return (lua_KContext)guard * 2 + value;
}

static int resume(lua_State *L, int guard, bool value);

static int resumed(lua_State *L, int status, lua_KContext context) {
  (void)status;
  const int guard = (int)(context / 2);
  mtl_guard *const g = lua_touserdata(L, guard);
  g->outer = *g->flag;
  return resume(L, guard, (bool)(context % 2));
}

/* Go on in the guard's coroutine with the values above the guard. */
static int resume(lua_State *L, int guard, bool value) {
  mtl_guard *const g = lua_touserdata(L, guard);
  lua_State *const co = g->co;
  if (!co) return luaL_error(L, "the function was closed meanwhile");
  const bool start = lua_status(co) == LUA_OK;
  int n = lua_gettop(L) - guard, results = 0;
  if (!lua_checkstack(co, n + 1)) return luaL_error(L, "too many values to resume");
  lua_xmove(L, co, n);
  g->inside = true;
  *g->flag = value;
  const int status = lua_resume(co, L, start ? n - 1 : n, &results);
  const bool inner = *g->flag;
  end_guard(g);
  if (status != LUA_OK && status != LUA_YIELD) {
    g->co = NULL;
    lua_resetthread(co); /* closes its variables; the error stays on top */
    lua_xmove(co, L, 1);
    return lua_error(L);
  }
  if (!lua_checkstack(L, results + 1)) return luaL_error(L, "too many results");
  lua_xmove(co, L, results);
  if (status == LUA_YIELD) return lua_yieldk(L, results, pack(guard, inner), resumed);
  g->co = NULL;
  return results;
}

/* Call the function at 1 with what follows it while the flag has this value. */
static int run_with(lua_State *L, bool *flag, bool value) {
  if (!lua_isfunction(L, 1) && luaL_getmetafield(L, 1, "__call") == LUA_TNIL) {
    return luaL_typeerror(L, 1, "function");
  }
  if (!lua_isfunction(L, 1)) lua_pop(L, 1);
  const int n = lua_gettop(L), guard = n + 1;
  luaL_checkstack(L, n + 4, NULL);
  mtl_guard *const g = mtl_guard_push(L, flag, value);
  const bool yieldable = lua_isyieldable(L);
  if (yieldable) {
    lua_State *const co = lua_newthread(L);
    lua_setiuservalue(L, guard, 1);
    g->co = co;
  }
  for (int i = 1; i <= n; i++) lua_pushvalue(L, i);
  if (yieldable) {
    end_guard(g);
    return resume(L, guard, value);
  }
  mtl_guard_call(L, g, n - 1);
  return lua_gettop(L) - guard;
}

/* ... = mt.no_grad(fn, ...): nothing that fn does is recorded */
static int module_no_grad(lua_State *L) {
  return run_with(L, &mtl_enter(L)->grad_enabled, false);
}

/* ... = mt.enable_grad(fn, ...): recording, also within no_grad */
static int module_enable_grad(lua_State *L) {
  return run_with(L, &mtl_enter(L)->grad_enabled, true);
}

/* ... = mt.detect_anomaly(fn, ...): backward names the op whose gradient has NaN */
static int module_detect_anomaly(lua_State *L) {
  return run_with(L, &mtl_enter(L)->anomaly, true);
}

/* mt.is_grad_enabled(): are ops recorded? */
static int module_is_grad_enabled(lua_State *L) {
  lua_pushboolean(L, mtl_context(L)->grad_enabled);
  return 1;
}

/* mt.set_grad_enabled(on) -> what it was */
static int module_set_grad_enabled(lua_State *L) {
  luaL_checktype(L, 1, LUA_TBOOLEAN);
  mt_context *const ctx = mtl_context(L);
  lua_pushboolean(L, ctx->grad_enabled);
  ctx->grad_enabled = lua_toboolean(L, 1);
  return 1;
}

static const luaL_Reg functions[] = {{"no_grad", module_no_grad},
                                     {"enable_grad", module_enable_grad},
                                     {"detect_anomaly", module_detect_anomaly},
                                     {"is_grad_enabled", module_is_grad_enabled},
                                     {"set_grad_enabled", module_set_grad_enabled},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_modes(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, guard_close);
  lua_setfield(L, -2, "__close");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &guard_key);
}
