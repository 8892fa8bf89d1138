/* runtime/bind/graph.h -- what the parts of mt.cuda.graph share: graph.c makes, frees and
** tells of graphs, graph_call.c calls them. */
#ifndef MT_BIND_GRAPH_H
#define MT_BIND_GRAPH_H

#include "runtime/bind/state.h"
#include "runtime/core/cuda_graph.h"

/* User values of the userdata: fn; the arguments that are no tensors, by number; the
** results that are none; a list of functions to call before each replay. */
enum { GRAPH_FN = 1, GRAPH_CONSTANTS, GRAPH_RESULTS, GRAPH_FOLLOWERS };

typedef struct mtl_tensors {
  mt_tensor **t; /* [n] NULL: no tensor */
  int n;
} mtl_tensors;

typedef struct mtl_graph {
  const void *kind;
  mt_graph *graph; /* NULL: freed */
  int gpu;
  lua_Integer warmup, calls, replays;
  bool busy; /* it is being called */
  mtl_tensors in, out;
} mtl_graph;

/* The one at arg; an error if it is another value, or was freed. */
mtl_graph *mtl_check_graph(lua_State *L, int arg);
/* Forget what was captured. */
void mtl_forget_graph(mtl_graph *g);
/* __call */
int mtl_call_graph(lua_State *L);
/* mt._on_replay(fn): call fn(graph) before each replay of the graph that is captured */
int mtl_on_replay(lua_State *L);

#endif
