/* runtime/bind/function.c -- mt.Function: an op with forward and backward in Lua.
**
** Each call has a ctx, a table: for the user's own fields, and with ctx:save and
** ctx:saved. What is saved lives in C, beside the node, so that saving a result makes
** no cycle that neither Lua's collector nor reference counts could end. */
#include <stdlib.h>
#include <string.h>

#include "runtime/autograd/graph.h"
#include "runtime/bind/autograd.h"
#include "runtime/bind/state.h"

static const char class_key = 0;   /* registry: metatable of what mt.Function makes */
static const char context_key = 0; /* registry: metatable of a ctx */
static const char record_key = 0;  /* field of a ctx: its record */
static const char given_key = 0; /* field of a ctx: what ctx:save got, until recorded */

/* A ctx's hold of its recorded call: a userdata. Its user values are the function
** backward and the ctx, which must not be asked for them: scripts can write to it. */
typedef struct record {
  const void *kind;
  struct function *f; /* NULL: not recorded yet, or the graph was released */
} record;

/* One recorded call. */
typedef struct function {
  lua_State *main;
  int ref; /* the record, in the registry */
  record *record;
  mt_node *node; /* not owned: it owns this */
  int running;   /* calls of backward in progress: then release waits */
  bool released;
  int nresults;
  int *output; /* [nresults] a result's number among the node's outputs; -1: none */
  int nsaved;
  mt_saved *saved; /* [nsaved] */
} function;

/* ---- ctx ---- */

static void function_release(void *user) {
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
  lua_rawgetp(L, 1, &record_key);
  const record *const r = mtl_to_kind(L, -1, &record_key, sizeof *r);
  lua_pop(L, 1);
  if (r && !r->f) {
    luaL_error(L,
               "%s: the graph was released: backward a second time needs retain_graph",
               fname);
  }
  return r ? r->f : NULL;
}

/* ctx:save(...): tensors and nil, for ctx:saved() in backward */
static int context_save(lua_State *L) {
  if (check_context(L, "save")) {
    return luaL_error(L, "save: only forward can save, not backward");
  }
  const int n = lua_gettop(L) - 1;
  for (int i = 2; i <= n + 1; i++) {
    if (!lua_isnil(L, i)) mtl_check_tensor(L, i, "save");
  }
  lua_createtable(L, n, 1);
  for (int i = 1; i <= n; i++) {
    lua_pushvalue(L, i + 1);
    lua_rawseti(L, -2, i);
  }
  lua_pushinteger(L, n);
  lua_setfield(L, -2, "n");
  lua_rawsetp(L, 1, &given_key);
  return 0;
}

/* The length of the list at index that ctx:save made; scripts can reach it. */
static int given_length(lua_State *L, int list) {
  lua_pushliteral(L, "n");
  lua_rawget(L, list);
  const lua_Integer n = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n > 0 && n < INT_MAX / 256 ? (int)n : 0;
}

/* What ctx:save got, while forward runs. */
static int push_given(lua_State *L) {
  if (lua_rawgetp(L, 1, &given_key) != LUA_TTABLE) return 0;
  const int list = lua_gettop(L), n = given_length(L, list);
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
  if (--f->running == 0 && f->released) function_release(f);
  if (status != MT_OK) return luaL_error(L, "%s", mt_last_error()->text);
  for (int i = 0; i < n; i++) {
    if (*slot[i]) continue;
    lua_pushnil(L);
    lua_replace(L, lua_gettop(L) - n + i);
  }
  return n;
}

/* ---- backward ---- */

typedef struct backward_call {
  function *f;
  mt_tensor *const *g;
  int nin;
  mt_tensor **dx;
} backward_call;

/* The gradient of a result; zeros where none came. */
static void push_gradient(lua_State *L, const backward_call *call, int output) {
  if (output < 0) {
    lua_pushnil(L);
  } else if (call->g[output]) {
    mtl_push_tensor(L, mt_retain(call->g[output]));
  } else {
    const mt_meta *const m = &call->f->node->out_meta[output];
    mt_tensor **const zeros = mtl_new_tensor(L);
    mt_calc c;
    mt_calc_begin(&c, mtl_context(L));
    mt_tensor *t = mt_czeros(&c, m->dtype, m->device, m->ndim, m->shape);
    if (mt_calc_end(&c, 1, &t) != MT_OK) luaL_error(L, "%s", mt_last_error()->text);
    *zeros = t;
  }
}

/* stack: light userdata of a backward_call */
static int call_backward(lua_State *L) {
  backward_call *const call = lua_touserdata(L, 1);
  const function *const f = call->f;
  const char *const name = f->node->name;
  luaL_checkstack(L, f->nresults + 4, name);
  lua_rawgeti(L, LUA_REGISTRYINDEX, f->ref);
  lua_getiuservalue(L, 2, 1); /* backward */
  lua_getiuservalue(L, 2, 2); /* ctx */
  for (int i = 0; i < f->nresults; i++) push_gradient(L, call, f->output[i]);
  lua_call(L, 1 + f->nresults, LUA_MULTRET);
  int n = lua_gettop(L) - 2;
  while (n > 0 && lua_isnil(L, 2 + n)) n--;
  if (n > call->nin) {
    return luaL_error(L, "%s: backward gave %d gradients for %d arguments of forward",
                      name, n, call->nin);
  }
  for (int i = 0; i < n; i++) {
    mt_tensor *const dx = mtl_to_tensor(L, 3 + i);
    if (!dx && !lua_isnil(L, 3 + i)) {
      return luaL_error(L, "%s: backward's gradient %d is a %s, want a tensor or nil",
                        name, i + 1, luaL_typename(L, 3 + i));
    }
    if (dx && f->node->in_meta[i].shape == NULL) {
      return luaL_error(
          L, "%s: backward gave a gradient for argument %d, which is no tensor", name,
          i + 1);
    }
    if (dx) call->dx[i] = mt_retain(dx);
  }
  return 0;
}

static mt_status function_run(mt_context *ctx, void *user, int nout,
                              mt_tensor *const *g, int nin, mt_tensor **dx) {
  (void)ctx, (void)nout;
  function *const f = user;
  backward_call call = {f, g, nin, dx};
  f->running++;
  const mt_status status = mtl_protected(call_backward, &call);
  if (--f->running == 0 && f->released) function_release(f);
  return status;
}

/* ---- calling ---- */

/* Push the record of a call, still empty, and make it the ctx's. */
static record *push_record(lua_State *L, int context, int class) {
  record *const r = lua_newuserdatauv(L, sizeof *r, 2);
  *r = (record){&record_key, NULL};
  lua_getfield(L, class, "backward");
  lua_setiuservalue(L, -2, 1);
  lua_pushvalue(L, context);
  lua_setiuservalue(L, -2, 2);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, context, &record_key);
  return r;
}

/* stack: ..., the record at index */
static function *function_new(lua_State *L, int index, int nresults, int nsaved,
                              record *r) {
  lua_pushvalue(L, index);
  const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  function *const f = calloc(1, sizeof *f + (size_t)nresults * sizeof(int) +
                                    ((size_t)nsaved + 1) * sizeof(mt_saved));
  if (!f) {
    luaL_unref(L, LUA_REGISTRYINDEX, ref);
    luaL_error(L, "not enough memory");
    return NULL;
  }
  f->main = mtl_state_of(L)->main;
  f->ref = ref;
  f->record = r;
  f->nresults = nresults;
  f->saved = (mt_saved *)(f + 1);
  f->output = (int *)(f->saved + nsaved + 1);
  r->f = f;
  return f;
}

/* A result that takes part in autograd already, an input or a parameter, becomes an
** alias. */
static void freshen(lua_State *L, int index) {
  mt_tensor **const out = mtl_new_tensor(L);
  mt_tensor *const t = mtl_to_tensor(L, index);
  if (t && t->autograd) {
    if (mt_detach(t, out) != MT_OK) luaL_error(L, "%s", mt_last_error()->text);
    lua_replace(L, index);
  } else {
    lua_pop(L, 1);
  }
}

/* Keep what ctx:save got (the list at given), now that the results' history is there.
** result[k]: what forward returned as output k, before it was freshened. */
static mt_status save_all(lua_State *L, int given, function *f, int nout,
                          mt_tensor *const *result) {
  for (int i = 0; i < f->nsaved; i++) {
    lua_rawgeti(L, given, i + 1);
    mt_tensor *const t = mtl_to_tensor(L, -1);
    lua_pop(L, 1);
    if (!t) continue;
    int own = -1;
    for (int k = 0; k < nout; k++) { /* an input that is returned stays an input */
      const bool other = mt_requires_grad(t) && t->autograd->edge.node != f->node;
      if (t == result[k] && !other) own = k;
    }
    MT_TRY(mt_save(&f->saved[i], t, f->node, own));
  }
  return MT_OK;
}

/* Can a gradient come for what stands at index? */
static bool is_output(lua_State *L, int index) {
  const mt_tensor *const t = mtl_to_tensor(L, index);
  return t && MT_IS_FLOAT(t->v.dtype);
}

/* The name of the class at 1, kept on the stack. */
static const char *push_name(lua_State *L) {
  if (lua_getfield(L, 1, "name") != LUA_TSTRING) lua_pushliteral(L, "Function");
  return lua_tostring(L, -1);
}

/* Record a call of the class at 1 with nargs arguments from 2 on; the ctx, and above it
** the results. */
static void record_call(lua_State *L, mt_context *ctx, int nargs, int context,
                        int nresults) {
  luaL_checkstack(L, 12, NULL);
  const int first = context + 1;
  const size_t room = ((size_t)nargs + 2 * (size_t)nresults + 1) * sizeof(mt_tensor *);
  mt_tensor **const in = memset(lua_newuserdatauv(L, room, 0), 0, room);
  mt_tensor **const out = in + nargs, **const result = out + nresults;
  const char *const name = push_name(L);
  lua_rawgetp(L, context, &given_key);
  const int given = lua_gettop(L);
  int nout = 0;
  const int nsaved = lua_istable(L, given) ? given_length(L, given) : 0;
  record *const r = push_record(L, context, 1);
  const int at = lua_gettop(L);
  for (int i = first; i < first + nresults; i++) {
    if (is_output(L, i)) {
      result[nout++] = mtl_to_tensor(L, i);
      freshen(L, i);
    }
  }
  function *const f = function_new(L, at, nresults, nsaved, r);
  nout = 0; /* nothing is raised from here to mt_record_custom, which takes f over */
  for (int i = 0; i < nresults; i++) {
    f->output[i] = is_output(L, first + i) ? nout : -1;
    if (f->output[i] >= 0) out[nout++] = mtl_to_tensor(L, first + i);
  }
  for (int i = 0; i < nargs; i++) in[i] = mtl_to_tensor(L, 2 + i);
  const mt_custom custom = {f, function_run, function_release, name};
  mt_status status = mt_record_custom(ctx, custom, nargs, in, nout, out);
  if (status == MT_OK && r->f) {
    f->node = out[0]->autograd->edge.node;
    f->nsaved = nsaved;
    status = save_all(L, given, f, nout, result);
  }
  if (status != MT_OK) mtl_raise(L, name);
  lua_pushnil(L);
  lua_rawsetp(L, context, &given_key);
}

/* Push a ctx; returns whether a gradient is wanted. */
static bool push_context(lua_State *L, const mt_context *ctx, int nargs) {
  bool any = false;
  lua_createtable(L, 0, 4);
  lua_createtable(L, nargs, 0);
  for (int i = 0; i < nargs; i++) {
    const mt_tensor *const t = mtl_to_tensor(L, 2 + i);
    const bool needs = t && ctx->grad_enabled && mt_requires_grad(t);
    any = any || needs;
    lua_pushboolean(L, needs);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "needs_input_grad");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &context_key);
  lua_setmetatable(L, -2);
  return any;
}

/* ... = F(...) */
static int function_call(lua_State *L) {
  mt_context *const ctx = mtl_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  const int nargs = lua_gettop(L) - 1, context = nargs + 3;
  luaL_checkstack(L, nargs + 8, NULL);
  mtl_guard *const guard = mtl_guard_push(L, &ctx->grad_enabled, ctx->grad_enabled);
  const bool recording = push_context(L, ctx, nargs);
  lua_getfield(L, 1, "forward");
  lua_pushvalue(L, context);
  for (int i = 0; i < nargs; i++) lua_pushvalue(L, 2 + i);
  ctx->grad_enabled = false;
  lua_call(L, 1 + nargs, LUA_MULTRET);
  mtl_guard_end(guard);
  const int nresults = lua_gettop(L) - context;
  if (recording) record_call(L, ctx, nargs, context, nresults);
  lua_settop(L, context + nresults);
  return nresults;
}

/* tostring(F) */
static int function_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushfstring(L, "mt.Function %s", push_name(L));
  return 1;
}

static void check_method(lua_State *L, int def, const char *name) {
  if (lua_getfield(L, def, name) != LUA_TFUNCTION) {
    mtl_argerror(L, def, "Function", "function '%s' expected, got %s", name,
                 luaL_typename(L, -1));
  }
  lua_setfield(L, -2, name);
}

/* F = mt.Function(name?, {forward = function(ctx, ...) ..., backward = ...}): an op
** with its own gradient. F(...) calls forward(ctx, ...), unrecorded; backward(ctx, ...)
** gets the gradient of each result and gives that of each argument. ctx:save(...) keeps
** tensors for ctx:saved(); ctx.needs_input_grad has a boolean for each argument. */
static int module_function(lua_State *L) {
  const int def = lua_type(L, 1) == LUA_TSTRING ? 2 : 1;
  luaL_checktype(L, def, LUA_TTABLE);
  lua_settop(L, def);
  lua_createtable(L, 0, 3);
  check_method(L, def, "forward");
  check_method(L, def, "backward");
  if (def == 2) {
    lua_pushvalue(L, 1);
  } else if (lua_getfield(L, def, "name") != LUA_TSTRING) {
    lua_pop(L, 1);
    lua_pushliteral(L, "Function");
  }
  lua_setfield(L, -2, "name");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &class_key);
  lua_setmetatable(L, -2);
  return 1;
}

static const luaL_Reg class_methods[] = {
    {"__call", function_call}, {"__tostring", function_tostring}, {NULL, NULL}};

static const luaL_Reg context_methods[] = {
    {"save", context_save}, {"saved", context_saved}, {NULL, NULL}};

/* stack: module */
void mtl_open_function(lua_State *L) {
  lua_pushcfunction(L, module_function);
  lua_setfield(L, -2, "Function");
  luaL_newlib(L, class_methods);
  lua_pushliteral(L, "mytensor.Function");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &class_key);
  lua_createtable(L, 0, 2);
  luaL_newlib(L, context_methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "mytensor.FunctionContext");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &context_key);
}
