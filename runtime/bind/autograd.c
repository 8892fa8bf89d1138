/* runtime/bind/autograd.c -- Tensor:backward, mt.grad, no_grad, detach. */
#include <string.h>

#include "runtime/bind/autograd.h"
#include "runtime/bind/state.h"

/* ---- options ---- */

/* {retain_graph=, create_graph=, ...} at arg, or nil. Leaves grad_outputs on the stack;
** where that is not allowed, it is an unknown option. */
static mt_backward_options check_options(lua_State *L, int arg, const char *fname,
                                         bool grad) {
  mt_backward_options o = {false, false, false};
  bool retain_given = false;
  if (lua_isnoneornil(L, arg)) return o;
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, fname, "options table expected, got %s",
                 luaL_typename(L, arg));
  }
  for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
    const char *const key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    bool *to = NULL;
    if (grad && strcmp(key, "grad_outputs") == 0) continue;
    if (strcmp(key, "retain_graph") == 0) to = &o.retain_graph;
    if (strcmp(key, "create_graph") == 0) to = &o.create_graph;
    if (grad && strcmp(key, "allow_unused") == 0) to = &o.allow_unused;
    if (!to) {
      mtl_argerror(L, arg, fname, "unknown option '%.40s'; there are %s", key,
                   grad ? "grad_outputs, retain_graph, create_graph, allow_unused"
                        : "retain_graph, create_graph");
    }
    if (!lua_isboolean(L, -1)) {
      mtl_argerror(L, arg, fname, "option '%s': boolean expected, got %s", key,
                   luaL_typename(L, -1));
    }
    *to = lua_toboolean(L, -1);
    retain_given = retain_given || to == &o.retain_graph;
  }
  if (!retain_given) o.retain_graph = o.create_graph;
  return o;
}

/* ---- calls into Lua ---- */

/* The thread that runs the backward walk which calls into Lua. */
static _Thread_local lua_State *walking;

mt_status mtl_protected(lua_CFunction fn, void *p) {
  lua_State *const L = walking;
  if (!L) return mt_fail(MT_EINTERNAL, "no Lua thread runs this backward");
  if (!lua_checkstack(L, 8)) return mt_fail(MT_EMEMORY, "Lua's stack is full");
  lua_pushcfunction(L, fn);
  lua_pushlightuserdata(L, p);
  const int status = lua_pcall(L, 1, 0, 0);
  mtl_expect_hook(L);
  return status == LUA_OK ? MT_OK : mtl_keep_error(L);
}

static void hold(int n, mt_tensor *const *t) {
  for (int i = 0; i < n; i++) {
    if (t[i]) mt_retain(t[i]);
  }
}

static void let_go(int n, mt_tensor *const *t) {
  for (int i = 0; i < n; i++) mt_release(t[i]);
}

/* ---- backward ---- */

/* y:backward(dy?, {retain_graph=, create_graph=}?): adds the gradient to the grad of
** each leaf that y was made of. dy is that of y, 1 if y has one element. The graph
** serves once, unless retain_graph; with create_graph the gradients can be
** differentiated. */
static int tensor_backward(lua_State *L) {
  mt_context *const ctx = mtl_enter(L);
  mtl_check_tensor(L, 1, "backward");
  int options = 3;
  lua_settop(L, 3);
  if (lua_istable(L, 2) && lua_isnil(L, 3)) options = 2;
  const mt_backward_options o = check_options(L, options, "backward", false);
  if (options == 3 && !lua_isnil(L, 2)) mtl_check_operand(L, 2, "backward");
  mt_tensor *const held[] = {mtl_check_tensor(L, 1, "backward"), mtl_to_tensor(L, 2)};
  lua_State *const outer = walking;
  hold(2, held);
  walking = L;
  const mt_status status = mt_backward(ctx, 1, &held[0], &held[1], o);
  walking = outer;
  let_go(2, held);
  return status == MT_OK ? 0 : mtl_raise(L, "backward");
}

/* ---- grad ---- */

/* Make what stands at arg, a tensor or a list, a list; returns its length. */
static int check_list(lua_State *L, int arg, const char *what) {
  if (mtl_to_tensor(L, arg)) {
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, arg);
    lua_rawseti(L, -2, 1);
    lua_replace(L, arg);
    return 1;
  }
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, "grad", "%s: tensor or list of tensors expected, got %s", what,
                 luaL_typename(L, arg));
  }
  const lua_Unsigned n = lua_rawlen(L, arg);
  if (n == 0) mtl_argerror(L, arg, "grad", "%s: the list is empty", what);
  if (n > 1000000) mtl_argerror(L, arg, "grad", "%s: the list is too long", what);
  return (int)n;
}

/* The tensors of the list at index; arg and what are for errors. */
static void read_list(lua_State *L, int index, int n, bool holes, int arg,
                      const char *what, mt_tensor **t) {
  for (int i = 0; i < n; i++) {
    const int type = lua_rawgeti(L, index, i + 1);
    t[i] = mtl_to_tensor(L, -1);
    if (!t[i] && !(holes && type == LUA_TNIL)) {
      mtl_argerror(L, arg, "grad", "%s: tensor expected at [%d], got %s", what, i + 1,
                   luaL_typename(L, -1));
    }
    lua_pop(L, 1);
  }
}

/* Push opts.grad_outputs as a list of n, in which numbers have become tensors. */
static void push_grad_outputs(lua_State *L, int options, int n) {
  lua_createtable(L, n, 0);
  const int list = lua_gettop(L);
  if (lua_isnil(L, options)) return;
  const int type = lua_getfield(L, options, "grad_outputs");
  const bool single = mtl_to_tensor(L, -1) || type == LUA_TNUMBER;
  if (!single && type != LUA_TTABLE && type != LUA_TNIL) {
    mtl_argerror(L, 3, "grad",
                 "grad_outputs: tensor or list of tensors expected, got %s",
                 luaL_typename(L, -1));
  }
  const int64_t given = single ? 1 : type == LUA_TNIL ? 0 : (int64_t)lua_rawlen(L, -1);
  if (given > n || (single && n != 1)) {
    mtl_argerror(L, 3, "grad", "grad_outputs: %d gradients for %d outputs", (int)given,
                 n);
  }
  for (int i = 1; i <= n && type != LUA_TNIL; i++) {
    if (single) {
      lua_pushvalue(L, -1);
    } else {
      lua_rawgeti(L, -1, i);
    }
    if (lua_type(L, -1) == LUA_TNUMBER) mtl_check_operand(L, lua_gettop(L), "grad");
    lua_rawseti(L, list, i);
  }
  lua_pop(L, 1);
}

static mt_tensor **room(lua_State *L, int n) {
  mt_tensor **const t = lua_newuserdatauv(L, (size_t)n * sizeof *t, 0);
  memset(t, 0, (size_t)n * sizeof *t);
  return t;
}

/* Push a list of n userdata that are filled later, and the array of what to fill. */
static mt_tensor ***push_results(lua_State *L, int n) {
  lua_createtable(L, n, 0);
  mt_tensor ***const slot = lua_newuserdatauv(L, (size_t)n * sizeof *slot, 0);
  for (int i = 0; i < n; i++) {
    slot[i] = mtl_new_tensor(L);
    lua_rawseti(L, -3, i + 1);
  }
  return slot;
}

/* dx = mt.grad(outputs, inputs, {grad_outputs=, retain_graph=, create_graph=,
** allow_unused=}?): the gradients of tensors or lists of them, as a list; no
** grad is changed. An input that has no part in outputs is an error, or nil with
** allow_unused. */
static int module_grad(lua_State *L) {
  mt_context *const ctx = mtl_enter(L);
  lua_settop(L, 3);
  const int n = check_list(L, 1, "outputs"), ninputs = check_list(L, 2, "inputs");
  const mt_backward_options o = check_options(L, 3, "grad", true);
  push_grad_outputs(L, 3, n);
  mt_tensor **const outputs = room(L, n), **const g = room(L, n),
                    **const inputs = room(L, ninputs), **const dx = room(L, ninputs);
  mt_tensor ***const slot = push_results(L, ninputs); /* below it: the list */
  read_list(L, 1, n, false, 1, "outputs", outputs);
  read_list(L, 2, ninputs, false, 2, "inputs", inputs);
  read_list(L, 4, n, true, 3, "grad_outputs", g);
  lua_State *const outer = walking;
  hold(n, outputs), hold(n, g), hold(ninputs, inputs);
  walking = L;
  const mt_status status = mt_grad(ctx, n, outputs, g, ninputs, inputs, o, dx);
  walking = outer;
  let_go(n, outputs), let_go(n, g), let_go(ninputs, inputs);
  if (status != MT_OK) return mtl_raise(L, "grad");
  lua_pop(L, 1);
  for (int i = 0; i < ninputs; i++) *slot[i] = dx[i];
  for (int i = 0; i < ninputs; i++) {
    if (dx[i]) continue;
    lua_pushnil(L);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* ---- what a tensor is to autograd ---- */

/* x:requires_grad_(on?) -> x; whether what is made of it shall be recorded */
static int tensor_requires_grad(lua_State *L) {
  mt_tensor *const t = mtl_check_tensor(L, 1, "requires_grad_");
  if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TBOOLEAN);
  const bool on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
  if (mt_set_requires_grad(t, on) != MT_OK) return mtl_raise(L, "requires_grad_");
  lua_settop(L, 1);
  return 1;
}

/* x:detach() -> a view of x's memory, without history */
static int tensor_detach(lua_State *L) {
  mtl_enter(L);
  mt_tensor **const out = mtl_new_tensor(L);
  mt_tensor *const t = mtl_check_tensor(L, 1, "detach");
  return mt_detach(t, out) == MT_OK ? 1 : mtl_raise(L, "detach");
}

/* x:detach_() -> x, which forgets its history and becomes a leaf */
static int tensor_detach_inplace(lua_State *L) {
  mt_tensor *const t = mtl_check_tensor(L, 1, "detach_");
  if (mt_detach_inplace(t) != MT_OK) return mtl_raise(L, "detach_");
  lua_settop(L, 1);
  return 1;
}

/* x:retain_grad() -> x; backward will fill x.grad, also where x is no leaf */
static int tensor_retain_grad(lua_State *L) {
  mt_tensor *const t = mtl_check_tensor(L, 1, "retain_grad");
  if (mt_retain_grad(t) != MT_OK) return mtl_raise(L, "retain_grad");
  lua_settop(L, 1);
  return 1;
}

/* x:is_leaf(): true unless a recorded op made x */
static int tensor_is_leaf(lua_State *L) {
  lua_pushboolean(L, mt_is_leaf(mtl_check_tensor(L, 1, "is_leaf")));
  return 1;
}

/* x:grad_name() -> name of the op that made x; nil for a leaf */
static int tensor_grad_name(lua_State *L) {
  lua_pushstring(L, mt_grad_name(mtl_check_tensor(L, 1, "grad_name")));
  return 1;
}

static const luaL_Reg methods[] = {
    {"backward", tensor_backward},       {"requires_grad_", tensor_requires_grad},
    {"detach", tensor_detach},           {"detach_", tensor_detach_inplace},
    {"retain_grad", tensor_retain_grad}, {"is_leaf", tensor_is_leaf},
    {"grad_name", tensor_grad_name},     {NULL, NULL}};

/* stack: module */
void mtl_open_autograd(lua_State *L) {
  mtl_set_methods(L, methods);
  lua_pushcfunction(L, module_grad);
  lua_setfield(L, -2, "grad");
  mtl_open_hooks(L);
  mtl_open_modes(L);
}
