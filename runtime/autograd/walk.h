/* runtime/autograd/walk.h -- one backward walk in progress. Private to backward.c and
** visit.c. */
#ifndef MT_WALK_H
#define MT_WALK_H

#include "runtime/autograd/graph.h"

typedef struct mt_walk mt_walk;

/* What one walk knows of one node. */
struct mt_task {
  const mt_walk *of;
  mt_node *node;     /* owned */
  mt_task *previous; /* the same node's task in the walk outside this one */
  bool queued, needed;
  mt_tensor *g[]; /* [nout] owned; NULL: none came yet */
};

/* An input of mt_grad: the gradient that arrives at edge is wanted. */
typedef struct mt_capture {
  mt_edge edge; /* owned */
  mt_tensor *g; /* owned */
} mt_capture;

struct mt_walk {
  mt_context *ctx;
  mt_backward_options o;
  bool outer_enabled; /* grad mode outside of the walk */
  bool capturing; /* mt_grad: only what leads to captures runs, leaves are left alone */
  int ncaptures;
  mt_capture *captures;
  mt_task **heap; /* those queued: children of i at 2 i + 1, 2 i + 2 */
  size_t n, capacity;
  mt_task *first[32]; /* room before the heap grows */
};

/* This walk's task of a node; walks may be nested, by hooks. NULL: none. */
static inline mt_task *mt_task_of(const mt_walk *w, const mt_node *node) {
  return node->task && node->task->of == w ? node->task : NULL;
}
mt_status mt_task_new(const mt_walk *w, mt_node *node, mt_task **task /* [out] */);
void mt_task_free(mt_task *t);

/* Let g (taken over) arrive at an edge. */
mt_status mt_walk_arrive(mt_walk *w, mt_edge e, mt_tensor *g);
/* The task to visit next, which leaves the heap; there must be one. */
mt_task *mt_walk_next(mt_walk *w);
/* Run the node of a task whose gradients are complete, and send on what it gives. */
mt_status mt_walk_visit(mt_walk *w, mt_task *t);
/* Is a gradient of n's wanted by mt_grad? */
bool mt_walk_captures(const mt_walk *w, const mt_node *n);
/* A gradient for the user to keep: elements of its own, unless it has a history. */
mt_status mt_walk_own(mt_walk *w, mt_tensor *g, mt_tensor **copy /* [out] */);

#endif
