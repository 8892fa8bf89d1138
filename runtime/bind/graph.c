/* runtime/bind/graph.c -- mt.cuda.graph: a Lua function whose work on a GPU is captured
** once and replayed without Lua; making and freeing it. */
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/graph.h"
#include "runtime/core/profile.h"

#define GRAPH "mytensor.cuda.Graph"

static const char graph_kind = 0;

mtl_graph *mtl_check_graph(lua_State *L, int arg) {
  mtl_graph *g = mtl_to_kind(L, arg, &graph_kind, sizeof *g);
  if (!g) luaL_typeerror(L, arg, GRAPH);
  if (!g->graph) luaL_argerror(L, arg, "the graph was freed");
  return g;
}

/* ---- making and freeing ---- */

/* The options of the table at arg; returns warmup. */
static lua_Integer check_options(lua_State *L, int arg, mt_device *gpu /* [out] */,
                                 bool *parallel /* [out] */) {
  lua_Integer warmup = 1;
  *gpu = mtl_current_gpu(L);
  *parallel = true;
  if (lua_isnoneornil(L, arg)) return warmup;
  luaL_checktype(L, arg, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (strcmp(key, "device") == 0) {
      *gpu = mtl_check_gpu(L, lua_gettop(L), "graph");
    } else if (strcmp(key, "parallel") == 0) {
      *parallel = lua_toboolean(L, -1);
    } else if (strcmp(key, "warmup") == 0) {
      int whole;
      warmup = lua_tointegerx(L, -1, &whole);
      if (!whole || warmup < 0) {
        mtl_argerror(L, arg, "graph", "warmup: a number of calls from 0 expected");
      }
    } else {
      mtl_argerror(L, arg, "graph",
                   "unknown option '%.40s'; there are warmup, device, parallel", key);
    }
  }
  return warmup;
}

/* mt.cuda.graph(fn[, {warmup=1, device=, parallel=true}]) -> step: step(...) does what
** fn(...) does on the GPU, the current one unless device names another. The first calls,
** as many as warmup says, call fn; the next one calls it once more and captures its work
** instead of doing it; from then on that work is replayed in one launch, without Lua.
** Tensors among the arguments are copied into the graph's own, so shape and dtype must
** stay; other arguments, and all that Lua computes in fn, are constants: another value
** or shape is an error, and reset() lets the next call capture anew. Results are tensors
** without history in the graph's memory: the next call overwrites them, clone() keeps
** them. Random numbers, an optimiser's learning rate and its count of steps go on as
** without a graph. With parallel, work that shares no memory may run side by side. What
** needs to wait for the GPU, or runs elsewhere, is an error that names it */
static int cuda_graph(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_device gpu;
  if (!lua_isfunction(L, 1)) {
    mtl_argerror(L, 1, "graph", "function expected, got %s", mtl_typename(L, 1));
  }
  bool parallel;
  const lua_Integer warmup = check_options(L, 2, &gpu, &parallel);
  if (!mt_backend_of(gpu)) {
    return luaL_error(L, "mt.cuda.graph: %s", mt_last_error()->text);
  }
  mtl_graph *g = lua_newuserdatauv(L, sizeof *g, 4);
  *g = (mtl_graph){.kind = &graph_kind, .gpu = gpu.index, .warmup = warmup};
  luaL_setmetatable(L, GRAPH);
  mtl_note_new(L, mtl_state_of(L));
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, GRAPH_FN);
  if (mt_graph_new(ctx, gpu, parallel, &g->graph) != MT_OK)
    return mtl_raise(L, "graph");
  return 1;
}

/* __gc, __close */
static int graph_finalize(lua_State *L) {
  mtl_graph *g = mtl_to_kind(L, 1, &graph_kind, sizeof *g);
  if (g && g->graph && !g->busy) {
    mtl_forget_graph(g);
    mt_graph_free(g->graph);
    g->graph = NULL;
  }
  return 0;
}

/* mt.cuda.Graph:free(): give the graph's memory back now, after the replays under way */
static int graph_free(lua_State *L) {
  const mtl_graph *g = mtl_to_kind(L, 1, &graph_kind, sizeof *g);
  if (!g) luaL_typeerror(L, 1, GRAPH);
  if (g->busy) return luaL_error(L, "free: the graph is being called");
  return graph_finalize(L);
}

/* mt.cuda.Graph:reset(): forget what was captured; the next call captures anew */
static int graph_reset(lua_State *L) {
  mtl_graph *g = mtl_check_graph(L, 1);
  if (g->busy) return luaL_error(L, "reset: the graph is being called");
  mtl_forget_graph(g);
  return 0;
}

/* mt.cuda.Graph:inputs() -> tensors: the graph's own ones for the arguments, nil for what
** is no tensor; what is written there and passed as argument needs no copy */
static int graph_inputs(lua_State *L) {
  const mtl_graph *g = mtl_check_graph(L, 1);
  luaL_checkstack(L, g->in.n + 4, "inputs");
  for (int i = 0; i < g->in.n; i++) {
    if (!g->in.t[i]) {
      lua_pushnil(L);
      continue;
    }
    mt_tensor **out = mtl_new_tensor(L);
    if (mt_detach(g->in.t[i], out) != MT_OK) mtl_raise(L, "inputs");
  }
  return g->in.n;
}

/* mt.cuda.Graph:nodes() -> integer: pieces of work that were captured; 0: none yet */
static int graph_nodes(lua_State *L) {
  lua_pushinteger(L, mt_graph_nodes(mtl_check_graph(L, 1)->graph));
  return 1;
}

static int graph_tostring(lua_State *L) {
  const mtl_graph *g = mtl_to_kind(L, 1, &graph_kind, sizeof *g);
  if (!g) luaL_typeerror(L, 1, GRAPH);
  if (!g->graph) {
    lua_pushliteral(L, "<Graph, freed>");
  } else if (mt_graph_nodes(g->graph) == 0) {
    lua_pushfstring(L, "<Graph on cuda:%d, not captured>", g->gpu);
  } else {
    lua_pushfstring(L, "<Graph on cuda:%d: %d nodes, %I replays>", g->gpu,
                    mt_graph_nodes(g->graph), (LUAI_UACINT)g->replays);
  }
  return 1;
}

/* ---- for optimisers ---- */

/* graph:_set(first, count, ...): the numbers of count slots from first on, in turn */
static int graph_set(lua_State *L) {
  mtl_graph *g = mtl_check_graph(L, 1);
  const int first = (int)luaL_checkinteger(L, 2), count = (int)luaL_checkinteger(L, 3);
  const int n = lua_gettop(L) - 3;
  for (int i = 0; i < count && n > 0; i++) {
    mt_graph_set_slot(g->graph, first + i, luaL_checknumber(L, 4 + i % n));
  }
  return 0;
}

int mtl_refuse_capture(lua_State *L, const char *name) {
  const mt_context *ctx = mtl_context(L);
  if (ctx->profile) mt_profile_release(ctx->profile);
  if (!ctx->graph) return 0;
  return luaL_error(L, "%s cannot be captured in a graph", name);
}

static const luaL_Reg graph_meta[] = {{"__call", mtl_call_graph},
                                      {"__gc", graph_finalize},
                                      {"__close", graph_finalize},
                                      {"__tostring", graph_tostring},
                                      {NULL, NULL}};
static const luaL_Reg graph_methods[] = {
    {"free", graph_free},   {"reset", graph_reset}, {"inputs", graph_inputs},
    {"nodes", graph_nodes}, {"_set", graph_set},    {NULL, NULL}};

/* stack: module, mt.cuda */
void mtl_open_graph(lua_State *L) {
  luaL_newmetatable(L, GRAPH);
  luaL_setfuncs(L, graph_meta, 0);
  lua_pushliteral(L, GRAPH);
  lua_setfield(L, -2, "__metatable");
  luaL_newlib(L, graph_methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_pushcfunction(L, cuda_graph);
  lua_setfield(L, -2, "graph");
  lua_pushcfunction(L, mtl_on_replay);
  lua_setfield(L, -3, "_on_replay");
}
