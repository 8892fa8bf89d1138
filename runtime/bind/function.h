/* runtime/bind/function.h -- what the parts of mt.Function share: function.c calls it,
** function_context.c is what forward and backward see as ctx. */
#ifndef MT_BIND_FUNCTION_H
#define MT_BIND_FUNCTION_H

#include "runtime/autograd/graph.h"
#include "runtime/bind/autograd.h"
#include "runtime/bind/state.h"

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
  bool once; /* backward is no differentiable code */
  int nresults;
  int *output; /* [nresults] a result's number among the node's outputs; -1: none */
  int nsaved;
  mt_saved *saved; /* [nsaved] */
} function;

/* Fields of a ctx: its record; and, until the call is recorded, lists of what ctx:save,
** ctx:mark_dirty, ctx:mark_non_differentiable got. */
extern const char mtl_record_key, mtl_given_key, mtl_dirty_key, mtl_plain_key;

/* The length of such a list at index; scripts can reach it. */
int mtl_given_length(lua_State *L, int list);
/* Does the ctx's list under key hold t? */
bool mtl_is_given(lua_State *L, int context, const char *key, const mt_tensor *t);
/* Let the table on top be a ctx. */
void mtl_set_context(lua_State *L);
/* Let go of f, a function; within its own backward, when that ends. */
void mtl_function_release(void *f);
void mtl_open_function_context(lua_State *L);

#endif
