/* runtime/bind/function.c -- mt.Function: an op with forward and backward in Lua. */
#include <stdlib.h>
#include <string.h>

#include "runtime/autograd/parts.h"
#include "runtime/bind/args.h"
#include "runtime/bind/function.h"

static const char class_key = 0; /* registry: metatable of what mt.Function makes */

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
    mt_tensor *t = mt_czeros_of(&c, m);
    if (mt_calc_end(&c, 1, &t) != MT_OK) luaL_error(L, "%s", mt_last_error()->text);
    *zeros = t;
  }
}

/* Has the ctx at index said that gradients that did not come are nil, not zeros? */
static bool wants_nil(lua_State *L, int index) {
  lua_pushliteral(L, "materialize_grads");
  const bool no = lua_rawget(L, index) == LUA_TBOOLEAN && !lua_toboolean(L, -1);
  lua_pop(L, 1);
  return no;
}

/* stack: light userdata of a backward_call */
static int call_backward(lua_State *L) {
  backward_call *const call = lua_touserdata(L, 1);
  const function *const f = call->f;
  const char *const name = f->node->name;
  luaL_checkstack(L, f->nresults + 6, name);
  lua_rawgeti(L, LUA_REGISTRYINDEX, f->ref);
  lua_getiuservalue(L, 2, 1); /* backward */
  lua_getiuservalue(L, 2, 2); /* ctx */
  const bool nils = wants_nil(L, 4);
  for (int i = 0; i < f->nresults; i++) {
    const int k = f->output[i];
    push_gradient(L, call, nils && k >= 0 && !call->g[k] ? -1 : k);
  }
  lua_call(L, 1 + f->nresults, LUA_MULTRET);
  int n = lua_gettop(L) - 2, needed = call->nin;
  while (needed > 0 && !f->node->edge[needed - 1].node) needed--;
  if (n < needed) {
    return luaL_error(L,
                      "%s: backward gave %d gradients, argument %d of forward wants "
                      "one, or nil",
                      name, n, needed);
  }
  while (n > 0 && lua_isnil(L, 2 + n)) n--;
  if (n > call->nin) {
    return luaL_error(L, "%s: backward gave %d gradients for %d arguments of forward",
                      name, n, call->nin);
  }
  for (int i = 0; i < n; i++) {
    mt_tensor *const dx = mtl_to_tensor(L, 3 + i);
    if (!dx && !lua_isnil(L, 3 + i)) {
      return luaL_error(L, "%s: backward's gradient %d is a %s, want a tensor or nil",
                        name, i + 1, mtl_typename(L, 3 + i));
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

static mt_status differentiated_twice(mt_context *ctx, void *user, int nout,
                                      mt_tensor *const *g, int nin, mt_tensor **dx) {
  (void)ctx, (void)nout, (void)g, (void)nin, (void)dx;
  return mt_fail(MT_EGRAD,
                 "%s: its gradient is not differentiable (it is declared "
                 "once_differentiable)",
                 (const char *)user);
}

/* Give the gradients dx, which have no history, one that ends in an error. */
static mt_status end_history(mt_context *ctx, const function *f, int nin,
                             mt_tensor **dx) {
  const mt_node *const n = f->node;
  mt_tensor **const in = calloc(2 * (size_t)nin + 1, sizeof *in),
                    **const out = in + nin;
  char *const name = strdup(n->name);
  mt_status status = in && name ? MT_OK : mt_fail(MT_EMEMORY, "out of memory");
  for (int i = 0; i < nin && status == MT_OK; i++) {
    if (!dx[i] || !n->edge[i].node) continue;
    status = mt_detach(dx[i], &in[i]);
    if (status == MT_OK) status = mt_detach(dx[i], &out[i]);
    if (status == MT_OK)
      status = mt_set_history(in[i], n->edge[i].node, n->edge[i].output);
  }
  if (status == MT_OK) {
    const mt_custom custom = {name, differentiated_twice, free, n->name};
    status = mt_record_custom(ctx, custom, nin, in, nin, out);
  } else {
    free(name);
  }
  for (int i = 0; i < nin && in; i++) {
    mt_release(in[i]);
    if (status != MT_OK || !out[i]) {
      mt_release(out[i]);
      continue;
    }
    mt_release(dx[i]);
    dx[i] = out[i];
  }
  free(in);
  return status;
}

static mt_status function_run(mt_context *ctx, void *user, int nout,
                              mt_tensor *const *g, int nin, mt_tensor **dx) {
  (void)nout;
  function *const f = user;
  backward_call call = {f, g, nin, dx};
  const bool recording = ctx->grad_enabled;
  f->running++;
  ctx->grad_enabled = recording && !f->once;
  mt_status status = mtl_protected(call_backward, &call);
  ctx->grad_enabled = recording;
  if (status == MT_OK && recording && f->once) status = end_history(ctx, f, nin, dx);
  if (--f->running == 0 && f->released) mtl_function_release(f);
  return status;
}

/* ---- calling ---- */

/* Push the record of a call, still empty, and make it the ctx's. */
static record *push_record(lua_State *L, int context, int class) {
  record *const r = lua_newuserdatauv(L, sizeof *r, 2);
  *r = (record){&mtl_record_key, NULL};
  lua_getfield(L, class, "backward");
  lua_setiuservalue(L, -2, 1);
  lua_pushvalue(L, context);
  lua_setiuservalue(L, -2, 2);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, context, &mtl_record_key);
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

/* What the result at index is: */
enum {
  PLAIN,   /* no gradient comes for it */
  OUTPUT,  /* a new tensor, or one that becomes it */
  CHANGED, /* an argument that forward has changed in place */
};

static unsigned char role_of(lua_State *L, int context, int index) {
  const mt_tensor *const t = mtl_to_tensor(L, index);
  if (!t || !MT_IS_FLOAT(t->v.dtype) || mtl_is_given(L, context, &mtl_plain_key, t))
    return PLAIN;
  return mtl_is_given(L, context, &mtl_dirty_key, t) ? CHANGED : OUTPUT;
}

/* What forward has changed in place must be marked, and returned. */
static void check_changes(lua_State *L, int context, const uint32_t *version, int nargs,
                          int first, int nresults, const char *name) {
  for (int i = 0; i < nargs; i++) {
    mt_tensor *const t = mtl_to_tensor(L, 2 + i);
    if (!t && mtl_is_tensor(L, 2 + i))
      luaL_error(L, "%s: argument %d was freed", name, i + 1);
    if (!t) continue;
    const bool marked = mtl_is_given(L, context, &mtl_dirty_key, t);
    if (!marked && t->storage->version != version[i] && mt_requires_grad(t)) {
      luaL_error(L, "%s: forward changed argument %d in place, without ctx:mark_dirty",
                 name, i + 1);
    }
    if (!marked) continue;
    bool returned = false;
    for (int k = 0; k < nresults; k++)
      returned = returned || mtl_to_tensor(L, first + k) == t;
    if (!returned) {
      luaL_error(L, "%s: argument %d is marked dirty, and forward did not return it",
                 name, i + 1);
    }
    if (mt_check_inplace(t) != MT_OK)
      luaL_error(L, "%s: argument %d: %s", name, i + 1, mt_last_error()->text);
  }
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
    const char *const wrong = t || lua_isnil(L, -1) ? NULL : mtl_typename(L, -1);
    lua_pop(L, 1);
    if (wrong) return mt_fail(MT_EARG, "what ctx:save got as %d is a %s", i + 1, wrong);
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

/* The name of the class at 1, kept on the stack. */
static const char *push_name(lua_State *L) {
  if (lua_getfield(L, 1, "name") != LUA_TSTRING) lua_pushliteral(L, "Function");
  return lua_tostring(L, -1);
}

/* Record a call of the class at 1 with nargs arguments from 2 on; the ctx, the versions
** that the arguments had, and above them the results. */
static void record_call(lua_State *L, mt_context *ctx, int nargs, int context,
                        int nresults) {
  luaL_checkstack(L, 16, NULL);
  const int first = context + 2;
  const size_t pointers = (size_t)nargs + 2 * (size_t)nresults,
               room = pointers * sizeof(mt_tensor *) + (size_t)nresults + 1;
  mt_tensor **const in = memset(lua_newuserdatauv(L, room, 0), 0, room);
  mt_tensor **const out = in + nargs, **const result = out + nresults;
  unsigned char *const role = (unsigned char *)(in + pointers);
  const char *const name = push_name(L);
  check_changes(L, context, lua_touserdata(L, context + 1), nargs, first, nresults,
                name);
  lua_rawgetp(L, context, &mtl_given_key);
  const int given = lua_gettop(L);
  int nout = 0;
  const int nsaved = lua_istable(L, given) ? mtl_given_length(L, given) : 0;
  record *const r = push_record(L, context, 1);
  const int at = lua_gettop(L);
  for (int i = 0; i < nresults; i++) {
    role[i] = role_of(L, context, first + i);
    if (role[i] != PLAIN) result[nout++] = mtl_to_tensor(L, first + i);
    if (role[i] != CHANGED) freshen(L, first + i);
  }
  lua_getfield(L, 1, "once_differentiable");
  function *const f = function_new(L, at, nresults, nsaved, r);
  f->once = lua_toboolean(L, -1);
  nout = 0; /* nothing is raised from here to mt_record_custom, which takes f over */
  for (int i = 0; i < nresults; i++) {
    f->output[i] = role[i] != PLAIN ? nout : -1;
    if (f->output[i] >= 0) out[nout++] = mtl_to_tensor(L, first + i);
  }
  for (int i = 0; i < nargs; i++) in[i] = mtl_to_tensor(L, 2 + i);
  const mt_custom custom = {f, function_run, mtl_function_release, name};
  mt_status status = mt_record_custom(ctx, custom, nargs, in, nout, out);
  if (status == MT_OK && r->f) {
    f->node = out[0]->autograd->edge.node;
    f->nsaved = nsaved;
    for (int i = 0; i < nresults && status == MT_OK; i++) {
      if (role[i] == CHANGED) status = mt_history_rewritten(out[f->output[i]]);
    }
    if (status == MT_OK) status = save_all(L, given, f, nout, result);
  }
  const char *const keys[] = {&mtl_given_key, &mtl_dirty_key, &mtl_plain_key};
  for (int i = 0; i < 3; i++) { /* kept, a result in them would keep its own node */
    lua_pushnil(L);
    lua_rawsetp(L, context, keys[i]);
  }
  if (status != MT_OK) mtl_raise(L, name);
}

/* Push the versions of the arguments' storages. */
static void push_versions(lua_State *L, int nargs) {
  uint32_t *const version =
      lua_newuserdatauv(L, ((size_t)nargs + 1) * sizeof *version, 0);
  for (int i = 0; i < nargs; i++) {
    const mt_tensor *const t = mtl_to_tensor(L, 2 + i);
    version[i] = t ? t->storage->version : 0;
  }
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
  mtl_set_context(L);
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
  if (recording) push_versions(L, nargs);
  const int below = context + (recording ? 1 : 0); /* the results */
  lua_getfield(L, 1, "forward");
  lua_pushvalue(L, context);
  for (int i = 0; i < nargs; i++) lua_pushvalue(L, 2 + i);
  ctx->grad_enabled = false;
  mtl_guard_call(L, guard, 1 + nargs);
  const int nresults = lua_gettop(L) - below;
  if (recording) record_call(L, ctx, nargs, context, nresults);
  lua_settop(L, below + nresults);
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

static void check_fields(lua_State *L, int def) {
  static const char *const known[] = {"forward", "backward", "once_differentiable",
                                      "name"};
  for (lua_pushnil(L); lua_next(L, def); lua_pop(L, 1)) {
    bool found = false;
    for (size_t i = 0; lua_type(L, -2) == LUA_TSTRING && i < 4; i++)
      found = found || strcmp(lua_tostring(L, -2), known[i]) == 0;
    if (found) continue;
    mtl_argerror(L, def, "Function",
                 "unknown field '%.100s' (known: forward, backward, "
                 "once_differentiable, name)",
                 luaL_tolstring(L, -2, NULL));
  }
}

/* F = mt.Function(name?, {forward = function(ctx, ...) ..., backward = ...}): an op
** with its own gradient. F(...) calls forward(ctx, ...), unrecorded; backward(ctx, ...)
** gets the gradient of each result and gives that of each argument, nil where there is
** none. ctx:save(...) keeps tensors for ctx:saved(); ctx.needs_input_grad has a boolean
** for each argument; other fields of ctx are free (a result in one of them is kept for
** ever: ctx:save takes results, too). In forward,
** ctx:mark_non_differentiable(...) names results without a gradient, ctx:mark_dirty(...)
** arguments that it changes in place and returns; ctx.materialize_grads = false lets
** backward see nil instead of zeros where no gradient came. With once_differentiable =
** true in the definition, a gradient of the gradient is an error instead of wrong. */
static int module_function(lua_State *L) {
  const int def = lua_type(L, 1) == LUA_TSTRING ? 2 : 1;
  luaL_checktype(L, def, LUA_TTABLE);
  lua_settop(L, def);
  check_fields(L, def);
  lua_createtable(L, 0, 4);
  lua_getfield(L, def, "once_differentiable");
  lua_setfield(L, -2, "once_differentiable");
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

/* stack: module */
void mtl_open_function(lua_State *L) {
  lua_pushcfunction(L, module_function);
  lua_setfield(L, -2, "Function");
  luaL_newlib(L, class_methods);
  lua_pushliteral(L, "mytensor.Function");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &class_key);
  mtl_open_function_context(L);
}
