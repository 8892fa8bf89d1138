/* runtime/bind/graph_call.c -- calls of what mt.cuda.graph made: eager ones, the one that
** captures, replays. */
#include <stdlib.h>

#include "runtime/bind/args.h"
#include "runtime/bind/graph.h"
#include "runtime/core/guard.h"
#include "runtime/core/plan.h"

static const char follow_key = 0; /* registry: the list that mt._on_replay adds to */

static void drop_tensors(mtl_tensors *list) {
  for (int i = 0; i < list->n; i++) mt_release(list->t[i]);
  free(list->t);
  *list = (mtl_tensors){NULL, 0};
}

static bool make_tensors(mtl_tensors *list, int n) {
  list->t = calloc((size_t)n + 1, sizeof *list->t);
  if (list->t) list->n = n;
  return list->t != NULL;
}

static mt_device gpu_of(const mtl_graph *g) {
  return (mt_device){MT_CUDA, (int8_t)g->gpu};
}

/* ---- calling fn ---- */

typedef struct surroundings {
  int gpu;
  mt_device device;
} surroundings;

/* Meanwhile "cuda" means this GPU, and so does the default device if it is a GPU. */
static surroundings enter_gpu(mt_context *ctx, int gpu) {
  const surroundings outer = {ctx->gpu, ctx->default_device};
  ctx->gpu = gpu;
  if (outer.device.kind == MT_CUDA) ctx->default_device.index = (int8_t)gpu;
  return outer;
}

static void leave_gpu(mt_context *ctx, surroundings outer) {
  ctx->gpu = outer.gpu;
  ctx->default_device = outer.device;
}

/* The tensor at index becomes a handle of its own, without a history. */
static void detach_at(lua_State *L, int index) {
  mt_tensor **out = mtl_new_tensor(L);
  mt_tensor *t = mtl_to_tensor(L, index);
  if (t && mt_detach(t, out) != MT_OK) mtl_raise(L, "graph");
  lua_replace(L, index);
}

/* stack: graph, arguments -> results. As the captured fn would: with the arguments on
** the GPU. */
static int call_eagerly(lua_State *L) {
  mtl_graph *g = mtl_check_graph(L, 1);
  const int n = lua_gettop(L);
  lua_getiuservalue(L, 1, GRAPH_FN);
  for (int i = 2; i <= n; i++) {
    mt_tensor *t = mtl_to_tensor(L, i);
    if (t && !mt_same_device(mt_device_of(t), gpu_of(g))) {
      lua_getfield(L, i, "to");
      lua_pushvalue(L, i);
      lua_pushstring(L, mt_device_name(gpu_of(g)));
      lua_call(L, 2, 1);
    } else {
      lua_pushvalue(L, i);
    }
  }
  lua_call(L, n - 1, LUA_MULTRET);
  const int last = lua_gettop(L);
  luaL_checkstack(L, 4, "graph");
  for (int i = n + 1; i <= last; i++) {
    if (mtl_to_tensor(L, i)) detach_at(L, i);
  }
  return last - n;
}

/* A tensor of the graph's own for argument i, at stack position i + 2; pushed. */
static void push_input(lua_State *L, mtl_graph *g, int i) {
  mt_context *ctx = mtl_context(L);
  mt_tensor **handle = mtl_new_tensor(L);
  mt_tensor *t = mtl_check_tensor(L, i + 2, "graph"), *own = NULL;
  mt_status status = mt_plan_result(ctx, t->v.dtype, gpu_of(g), &t->v,
                                    mt_is_channels_last(&t->v), &own);
  g->in.t[i] = own;
  if (status == MT_OK) status = mt_detach(own, handle);
  if (status == MT_OK && mt_requires_grad(t))
    status = mt_set_requires_grad(*handle, true);
  if (status != MT_OK) mtl_raise(L, "graph");
}

static void keep_results(lua_State *L, mtl_graph *g, int first, int last) {
  const int n = last - first + 1;
  luaL_checkstack(L, 4, "graph");
  lua_createtable(L, n, 0);
  if (!make_tensors(&g->out, n)) luaL_error(L, "graph: out of memory");
  for (int i = 0; i < n; i++) {
    mt_tensor *t = mtl_to_tensor(L, first + i);
    if (!t) {
      lua_pushvalue(L, first + i);
      lua_rawseti(L, -2, i + 1);
    } else if (mt_device_of(t).kind == MT_CPU) {
      luaL_error(L, "graph: result %d is on the CPU, where replays do not reach it",
                 i + 1);
    } else if (mt_detach(t, &g->out.t[i]) != MT_OK) {
      mtl_raise(L, "graph");
    }
  }
  lua_setiuservalue(L, 1, GRAPH_RESULTS);
}

/* stack: graph, arguments. While the GPU's work is recorded. */
static int call_captured(lua_State *L) {
  mtl_graph *g = mtl_check_graph(L, 1);
  const int n = lua_gettop(L);
  luaL_checkstack(L, n + 8, "graph");
  lua_createtable(L, n, 0);
  lua_getiuservalue(L, 1, GRAPH_FN);
  if (!make_tensors(&g->in, n - 1)) return luaL_error(L, "graph: out of memory");
  for (int i = 0; i < n - 1; i++) {
    if (mtl_to_tensor(L, i + 2)) {
      push_input(L, g, i);
    } else {
      lua_pushvalue(L, i + 2);
      lua_rawseti(L, n + 1, i + 1);
      lua_pushvalue(L, i + 2);
    }
  }
  lua_pushvalue(L, n + 1);
  lua_setiuservalue(L, 1, GRAPH_CONSTANTS);
  lua_call(L, n - 1, LUA_MULTRET);
  keep_results(L, g, n + 2, lua_gettop(L));
  return 0;
}

/* ---- capture ---- */

/* Bytes that a graph's pool has at least: Lua's collector is told of them. */
#define POOL_BYTES ((size_t)2 << 20)

static void set_followers(lua_State *L, int index) {
  lua_pushvalue(L, index);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &follow_key);
}

void mtl_forget_graph(mtl_graph *g) {
  if (g->graph) mt_graph_drop(g->graph);
  drop_tensors(&g->in);
  drop_tensors(&g->out);
}

/* stack: graph, arguments; left there */
static void capture(lua_State *L, mtl_graph *g) {
  mt_context *ctx = mtl_context(L);
  const int n = lua_gettop(L);
  luaL_checkstack(L, n + 8, "graph");
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setiuservalue(L, 1, GRAPH_FOLLOWERS);
  lua_pushcfunction(L, call_captured);
  for (int i = 1; i <= n; i++) lua_pushvalue(L, i);
  mtl_forget_graph(g);
  set_followers(L, n + 1);
  if (mt_graph_begin(g->graph) != MT_OK) mtl_raise(L, "graph");
  ctx->gpu_debt += POOL_BYTES;
  const surroundings outer = enter_gpu(ctx, g->gpu);
  const bool grad = ctx->grad_enabled;
  g->busy = true;
  const int status = lua_pcall(L, n, 0, 0);
  g->busy = false;
  mtl_expect_hook(L);
  leave_gpu(ctx, outer);
  ctx->grad_enabled = grad;
  const mt_status ended = mt_graph_end(g->graph, status == LUA_OK);
  if (status != LUA_OK || ended != MT_OK) mtl_forget_graph(g);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &follow_key);
  if (status != LUA_OK) lua_error(L);
  if (ended != MT_OK) mtl_raise(L, "graph");
  for (int i = 0; i < g->out.n; i++) {
    if (g->out.t[i]) mt_graph_writes(g->graph, g->out.t[i]);
  }
  lua_settop(L, n);
}

/* ---- replay ---- */

/* Is argument i, at stack position i + 2, what the graph was captured with? */
static void check_input(lua_State *L, const mtl_graph *g, int i, int constants) {
  const mt_tensor *own = g->in.t[i], *t = mtl_to_tensor(L, i + 2);
  if (own && !t) {
    mtl_argerror(L, i + 1, "graph", "tensor expected, got %s", mtl_typename(L, i + 2));
  }
  if (!own) {
    lua_rawgeti(L, constants, i + 1);
    const bool same = !t && lua_rawequal(L, -1, i + 2);
    lua_pop(L, 1);
    if (same) return;
    mtl_argerror(L, i + 1, "graph",
                 "what is no tensor is a constant of the graph: it was captured with "
                 "another value");
  }
  if (!mt_same_shape(&own->v, &t->v) || own->v.dtype != t->v.dtype) {
    mtl_argerror(L, i + 1, "graph", "shape %s, %s: the graph was captured with %s, %s",
                 mt_view_text(&t->v), mt_dtype_name(t->v.dtype), mt_view_text(&own->v),
                 mt_dtype_name(own->v.dtype));
  }
}

static mt_status copy_input(lua_State *L, const mtl_graph *g, int i) {
  mt_tensor *own = g->in.t[i], *t = mtl_to_tensor(L, i + 2);
  if (!own) return MT_OK;
  if (!t) return mt_fail(MT_EARG, "argument %d was freed", i + 1);
  if (t->v.data == own->v.data) return MT_OK; /* one of step:inputs() */
  mt_retain(t);
  const mt_status status = mt_copy_from(mtl_context(L), own, t, false);
  mt_release(t);
  return status;
}

/* What optimisers have to say before a step of theirs is replayed. Leaves an error. */
static int call_followers(lua_State *L) {
  lua_getiuservalue(L, 1, GRAPH_FOLLOWERS);
  const int list = lua_gettop(L);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, list);
  int status = LUA_OK;
  for (lua_Integer i = 1; i <= n && status == LUA_OK; i++) {
    lua_rawgeti(L, list, i);
    lua_pushvalue(L, 1);
    status = lua_pcall(L, 1, 0, 0);
  }
  lua_remove(L, list);
  return status;
}

static int push_results(lua_State *L, const mtl_graph *g) {
  luaL_checkstack(L, g->out.n + 4, "graph");
  lua_getiuservalue(L, 1, GRAPH_RESULTS);
  const int constants = lua_gettop(L), n = g->out.n;
  for (int i = 0; i < n; i++) {
    if (!g->out.t[i]) {
      lua_rawgeti(L, constants, i + 1);
      continue;
    }
    mt_tensor **out = mtl_new_tensor(L);
    if (mt_detach(g->out.t[i], out) != MT_OK) mtl_raise(L, "graph");
  }
  return n;
}

static void check_inputs(lua_State *L, const mtl_graph *g) {
  const int n = lua_gettop(L) - 1;
  if (n != g->in.n) {
    luaL_error(L, "graph: %d arguments, the graph was captured with %d", n, g->in.n);
  }
  lua_getiuservalue(L, 1, GRAPH_CONSTANTS);
  for (int i = 0; i < n; i++) check_input(L, g, i, n + 2);
  lua_pop(L, 1);
}

/* stack: graph, arguments. fresh: the graph has just been captured with them. */
static int replay(lua_State *L, mtl_graph *g, bool fresh) {
  const int n = g->in.n;
  g->busy = true; /* not to be freed by what is called here */
  if (!fresh && call_followers(L) != LUA_OK) {
    g->busy = false;
    return lua_error(L);
  }
  mt_status status = mt_graph_prepare(g->graph);
  for (int i = 0; i < n && status == MT_OK; i++) status = copy_input(L, g, i);
  if (status == MT_OK) status = mt_graph_replay(g->graph);
  g->busy = false;
  if (status != MT_OK) return mtl_raise(L, "graph");
  g->replays++;
  return push_results(L, g);
}

/* ... = step(...) */
int mtl_call_graph(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mtl_graph *g = mtl_check_graph(L, 1);
  if (ctx->graph) {
    return luaL_error(L, "graph: a graph cannot be captured within another");
  }
  if (g->busy) return luaL_error(L, "graph: the graph is being called already");
  if (g->calls < g->warmup || mt_guard_on()) {
    const int n = lua_gettop(L);
    luaL_checkstack(L, n + 8, "graph");
    lua_pushcfunction(L, call_eagerly);
    lua_insert(L, 1);
    lua_pushvalue(L, 2);
    lua_insert(L, 1); /* the graph stays at 1 */
    const surroundings outer = enter_gpu(ctx, g->gpu);
    g->busy = true;
    const int status = lua_pcall(L, n, LUA_MULTRET, 0);
    g->busy = false;
    leave_gpu(ctx, outer);
    if (status != LUA_OK) return lua_error(L);
    g->calls++;
    return lua_gettop(L) - 1;
  }
  if (g->in.t) check_inputs(L, g);
  const bool fresh = !mt_graph_is_ready(g->graph);
  if (fresh) capture(L, g);
  return replay(L, g, fresh);
}

int mtl_on_replay(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &follow_key) != LUA_TTABLE) return 0;
  lua_pushvalue(L, 1);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  return 0;
}
