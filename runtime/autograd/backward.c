/* runtime/autograd/backward.c -- the walk from outputs back to leaves.
**
** A node's sequence is larger than that of every node before it. So a heap of the nodes
** that have a gradient, largest sequence first, visits each node once, after all that
** follow it, and in the reverse of the order in which the ops ran. */
#include <stdlib.h>
#include "runtime/autograd/walk.h"
#include "runtime/core/profile.h"

static mt_status out_of_memory(void) { return mt_fail(MT_EMEMORY, "out of memory"); }

/* ---- mt_grad: what leads to the captures ---- */

/* A growing list of every task of a walk. */
typedef struct tasks {
  mt_task **task;
  size_t n, capacity;
} tasks;

static mt_status tasks_add(const mt_walk *w, tasks *all, mt_node *node) {
  if (!node || mt_task_of(w, node)) return MT_OK;
  if (all->n == all->capacity) {
    const size_t capacity = all->capacity ? 2 * all->capacity : 64;
    mt_task **const task = realloc(all->task, capacity * sizeof(mt_task *));
    if (!task) return out_of_memory();
    all->task = task;
    all->capacity = capacity;
  }
  MT_TRY(mt_task_new(w, node, &all->task[all->n]));
  all->n++;
  return MT_OK;
}

static int by_sequence(const void *a, const void *b) {
  const uint64_t x = (*(mt_task *const *)a)->node->sequence,
                 y = (*(mt_task *const *)b)->node->sequence;
  return (x > y) - (x < y);
}

/* A released node leads anywhere, for all that is known: visiting it is the error. */
static bool leads_to_capture(const mt_walk *w, const mt_node *n) {
  if (n->released || mt_walk_captures(w, n)) return true;
  for (int i = 0; i < n->nin; i++) {
    if (n->edge[i].node && mt_task_of(w, n->edge[i].node)->needed) return true;
  }
  return false;
}

/* Make tasks for all that the outputs' edges reach, and mark those to be visited. */
static mt_status explore(mt_walk *w, int n, const mt_edge *outputs, tasks *all) {
  for (int i = 0; i < n; i++) MT_TRY(tasks_add(w, all, outputs[i].node));
  for (size_t next = 0; next < all->n; next++) {
    mt_node *const node = all->task[next]->node;
    for (int i = 0; i < node->nin; i++) MT_TRY(tasks_add(w, all, node->edge[i].node));
  }
  if (all->n > 0) qsort(all->task, all->n, sizeof(mt_task *), by_sequence);
  for (size_t i = 0; i < all->n; i++) {
    all->task[i]->needed = leads_to_capture(w, all->task[i]->node);
  }
  return MT_OK;
}

/* ---- the walk ---- */

/* The gradient of output i to start with: a new reference. */
static mt_status first_gradient(mt_walk *w, int i, mt_tensor *y, mt_tensor *g,
                                mt_tensor **out) {
  if (!g && mt_numel(&y->v) != 1) {
    return mt_fail(
        MT_EGRAD,
        "output %d has shape %s: only for an output of one element is there a "
        "gradient to start with, pass one",
        i + 1, mt_view_text(&y->v));
  }
  if (g && !g->wrapped && !mt_same_shape(&g->v, &y->v)) {
    return mt_fail(MT_ESHAPE, "the gradient of output %d has shape %s, the output %s",
                   i + 1, mt_view_text(&g->v), mt_view_text(&y->v));
  }
  if (g && !g->wrapped && !mt_same_device(mt_device_of(g), mt_device_of(y))) {
    return mt_fail(MT_EDEVICE, "the gradient of output %d is on %s, the output on %s",
                   i + 1, mt_device_name(mt_device_of(g)),
                   mt_device_name(mt_device_of(y)));
  }
  mt_calc c;
  mt_calc_begin(&c, w->ctx);
  if (!g || g->wrapped) {
    const mt_attr one = mt_attr_f(1);
    mt_tensor *start = NULL;
    c.status =
        mt_empty(w->ctx, y->v.dtype, mt_device_of(y), y->v.ndim, y->v.shape, &start);
    if (c.status == MT_OK) start = mt_cown(&c, start);
    if (g) {
      mt_cinplace(&c, MT_OP__copy, 2, (mt_tensor *[]){start, g}, NULL);
    } else {
      mt_cinplace(&c, MT_OP_fill, 1, &start, &one);
    }
    g = start;
  } else if (g->v.dtype != y->v.dtype) {
    const mt_attr dtype = mt_attr_i(y->v.dtype);
    g = mt_c1a(&c, MT_OP__cast, g, 1, &dtype);
  }
  *out = g;
  return mt_calc_end(&c, 1, out);
}

static mt_status walk_all(mt_walk *w, int n, mt_tensor *const *outputs,
                          mt_tensor *const *g, const mt_edge *edge) {
  for (int i = 0; i < n; i++) {
    mt_tensor *first;
    MT_TRY(first_gradient(w, i, outputs[i], g ? g[i] : NULL, &first));
    MT_TRY(mt_walk_arrive(w, edge[i], first));
  }
  while (w->n > 0) {
    mt_interrupt *const stop = &w->ctx->interrupt;
    if (stop->pending && stop->pending(stop->arg)) {
      return mt_fail(MT_EINTERRUPT, "interrupted!");
    }
    mt_task *const t = mt_walk_next(w);
    mt_profile *const profile = w->ctx->profile;
    if (profile) mt_profile_node(profile, t->node->scope);
    const mt_status status = mt_walk_visit(w, t);
    if (!w->capturing) mt_task_free(t);
    MT_TRY(status);
  }
  return MT_OK;
}

static mt_status output_edges(int n, mt_tensor *const *outputs, mt_edge *edge) {
  for (int i = 0; i < n; i++) {
    MT_TRY(mt_edge_of(outputs[i], &edge[i]));
    if (!edge[i].node) {
      return mt_fail(MT_EGRAD, "output %d does not require grad and has no history",
                     i + 1);
    }
  }
  return MT_OK;
}

static mt_status walk_run(mt_walk *w, int n, mt_tensor *const *outputs,
                          mt_tensor *const *g) {
  mt_context *const ctx = w->ctx;
  const bool was_enabled = ctx->grad_enabled;
  tasks all = {NULL, 0, 0};
  mt_edge one = {NULL, 0};
  mt_edge *const edge = n == 1 ? &one : calloc((size_t)n + 1, sizeof *edge);
  if (!edge) return out_of_memory();
  w->heap = w->first;
  w->capacity = sizeof w->first / sizeof *w->first;
  mt_status status = output_edges(n, outputs, edge);
  if (status == MT_OK && w->capturing) status = explore(w, n, edge, &all);
  w->outer_enabled = was_enabled;
  ctx->grad_enabled = w->o.create_graph;
  mt_profile *const profile = ctx->profile;
  const int outer = profile ? mt_profile_node(profile, ctx->scope) : -1;
  if (status == MT_OK) status = walk_all(w, n, outputs, g, edge);
  if (profile) mt_profile_node(profile, outer);
  ctx->grad_enabled = was_enabled;
  for (size_t i = 0; i < w->n && !w->capturing; i++) mt_task_free(w->heap[i]);
  for (size_t i = 0; i < all.n; i++) mt_task_free(all.task[i]);
  for (int i = 0; i < n; i++) mt_node_release(edge[i].node);
  free(all.task);
  if (w->heap != w->first) free(w->heap);
  if (edge != &one) free(edge);
  return status;
}

mt_status mt_backward(mt_context *ctx, int n, mt_tensor *const *outputs,
                      mt_tensor *const *g, mt_backward_options o) {
  mt_walk w = {.ctx = ctx, .o = o};
  return walk_run(&w, n, outputs, g);
}

static mt_status captures_begin(mt_walk *w, int n, mt_tensor *const *inputs) {
  w->captures = calloc((size_t)n + 1, sizeof *w->captures);
  if (!w->captures) return out_of_memory();
  w->ncaptures = n;
  for (int i = 0; i < n; i++) {
    MT_TRY(mt_edge_of(inputs[i], &w->captures[i].edge));
    if (!w->captures[i].edge.node) {
      return mt_fail(MT_EGRAD, "input %d does not require grad", i + 1);
    }
  }
  return MT_OK;
}

static mt_status captures_take(mt_walk *w, mt_tensor **dx) {
  const bool was_enabled = w->ctx->grad_enabled;
  w->ctx->grad_enabled = w->o.create_graph;
  mt_status status = MT_OK;
  for (int i = 0; i < w->ncaptures && status == MT_OK; i++) {
    mt_tensor *const g = w->captures[i].g;
    if (g) {
      status = mt_walk_own(w, g, &dx[i]);
    } else if (!w->o.allow_unused) {
      status = mt_fail(MT_EGRAD,
                       "input %d was not used for the outputs (allow_unused "
                       "gives nil instead of this error)",
                       i + 1);
    }
  }
  w->ctx->grad_enabled = was_enabled;
  return status;
}

mt_status mt_grad(mt_context *ctx, int n, mt_tensor *const *outputs,
                  mt_tensor *const *g, int ninputs, mt_tensor *const *inputs,
                  mt_backward_options o, mt_tensor **dx) {
  mt_walk w = {.ctx = ctx, .o = o, .capturing = true};
  for (int i = 0; i < ninputs; i++) dx[i] = NULL;
  mt_status status = captures_begin(&w, ninputs, inputs);
  if (status == MT_OK) status = walk_run(&w, n, outputs, g);
  if (status == MT_OK) status = captures_take(&w, dx);
  for (int i = 0; i < w.ncaptures; i++) {
    mt_release(w.captures[i].g);
    mt_node_release(w.captures[i].edge.node);
  }
  free(w.captures);
  for (int i = 0; status != MT_OK && i < ninputs; i++) {
    mt_release(dx[i]);
    dx[i] = NULL;
  }
  return status;
}
