/* runtime/bind/hooks.c -- Tensor:register_hook: Lua functions that see gradients. */
#include <stdlib.h>

#include "runtime/bind/autograd.h"
#include "runtime/bind/state.h"

static const char handle_key = 0; /* the registry's key of a handle's metatable */

/* What register_hook gives; its user value is the tensor. */
typedef struct handle {
  const void *kind;
  int id;
} handle;

typedef struct hook {
  lua_State *main;
  int ref; /* the function, in the registry */
} hook;

typedef struct hook_call {
  int ref;
  mt_tensor *given, *replaced; /* replaced: a new reference, or NULL */
} hook_call;

/* stack: light userdata of a hook_call */
static int call_hook(lua_State *L) {
  hook_call *const call = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, call->ref);
  mtl_push_tensor(L, mt_retain(call->given));
  lua_call(L, 1, 1);
  mt_tensor *const replaced = mtl_to_tensor(L, -1);
  if (!replaced && !lua_isnil(L, -1)) {
    return luaL_error(L, "a hook gives a tensor or nil, got %s", luaL_typename(L, -1));
  }
  if (replaced && replaced != call->given) call->replaced = mt_retain(replaced);
  return 0;
}

static mt_status hook_run(mt_context *ctx, void *user, mt_tensor **g) {
  (void)ctx;
  hook_call call = {((hook *)user)->ref, *g, NULL};
  MT_TRY(mtl_protected(call_hook, &call));
  if (call.replaced) *g = call.replaced;
  return MT_OK;
}

static void hook_release(void *user) {
  hook *const h = user;
  luaL_unref(h->main, LUA_REGISTRYINDEX, h->ref);
  free(h);
}

/* handle = x:register_hook(function(g) return another_g end): called by backward with
** x's whole gradient, which it may replace */
static int tensor_register_hook(lua_State *L) {
  mtl_enter(L);
  mtl_check_tensor(L, 1, "register_hook");
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  handle *const made = lua_newuserdatauv(L, sizeof *made, 1);
  *made = (handle){&handle_key, 0};
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, 3, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &handle_key);
  lua_setmetatable(L, 3);
  lua_pushvalue(L, 2);
  const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  hook *const h = malloc(sizeof *h);
  if (!h) {
    luaL_unref(L, LUA_REGISTRYINDEX, ref);
    return luaL_error(L, "not enough memory");
  }
  *h = (hook){mtl_state_of(L)->main, ref};
  mt_tensor *const t = mtl_check_tensor(L, 1, "register_hook");
  if (mt_add_hook(t, hook_run, h, hook_release, &made->id) != MT_OK) {
    return mtl_raise(L, "register_hook");
  }
  return 1;
}

static void remove_hook(lua_State *L, int arg, const char *fname) {
  const handle *const given = mtl_to_kind(L, arg, &handle_key, sizeof *given);
  if (!given) {
    mtl_argerror(L, arg, fname, "hook expected, got %s", luaL_typename(L, arg));
    return;
  }
  lua_getiuservalue(L, arg, 1);
  mt_tensor *const t = mtl_to_tensor(L, -1);
  if (t) mt_remove_hook(t, given->id); /* a freed tensor's hooks went with it */
  lua_pop(L, 1);
}

/* handle:remove(): the same as x:remove_hook(handle) */
static int handle_remove(lua_State *L) {
  remove_hook(L, 1, "remove");
  return 0;
}

/* x:remove_hook(handle): the hook is called no more */
static int tensor_remove_hook(lua_State *L) {
  mtl_check_tensor(L, 1, "remove_hook");
  remove_hook(L, 2, "remove_hook");
  return 0;
}

static const luaL_Reg methods[] = {{"register_hook", tensor_register_hook},
                                   {"remove_hook", tensor_remove_hook},
                                   {NULL, NULL}};

static const luaL_Reg handle_methods[] = {{"remove", handle_remove}, {NULL, NULL}};

/* stack: module */
void mtl_open_hooks(lua_State *L) {
  mtl_set_methods(L, methods);
  lua_createtable(L, 0, 3);
  luaL_newlib(L, handle_methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "mytensor.Hook");
  lua_setfield(L, -2, "__name");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &handle_key);
}
