/* runtime/autograd/visit.c -- one node of a backward walk: its gradients come together,
** are observed, and its rule sends others on. */
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/walk.h"
#include "runtime/core/small.h"

static mt_status out_of_memory(void) { return mt_fail(MT_EMEMORY, "out of memory"); }

/* ---- tasks ---- */

mt_status mt_task_new(const mt_walk *w, mt_node *node, mt_task **task) {
  const size_t bytes = sizeof(mt_task) + (size_t)node->nout * sizeof(mt_tensor *);
  mt_task *const t = mt_small_take(bytes);
  *task = t;
  if (!t) return out_of_memory();
  memset(t, 0, bytes);
  t->of = w;
  t->node = mt_node_retain(node);
  t->previous = node->task;
  node->task = t;
  return MT_OK;
}

void mt_task_free(mt_task *t) {
  for (int i = 0; i < t->node->nout; i++) mt_release(t->g[i]);
  t->node->task = t->previous;
  const size_t bytes = sizeof(mt_task) + (size_t)t->node->nout * sizeof(mt_tensor *);
  mt_node_release(t->node);
  mt_small_give(t, bytes);
}

static bool comes_first(const mt_task *a, const mt_task *b) {
  return a->node->sequence > b->node->sequence;
}

static mt_status heap_push(mt_walk *w, mt_task *t) {
  if (w->n == w->capacity) {
    const size_t capacity = 2 * w->capacity;
    mt_task **const old = w->heap == w->first ? NULL : w->heap;
    mt_task **const heap = realloc(old, capacity * sizeof(mt_task *));
    if (!heap) return out_of_memory();
    if (!old) memcpy(heap, w->first, sizeof w->first);
    w->heap = heap;
    w->capacity = capacity;
  }
  size_t i = w->n++;
  for (; i > 0 && comes_first(t, w->heap[(i - 1) / 2]); i = (i - 1) / 2) {
    w->heap[i] = w->heap[(i - 1) / 2];
  }
  w->heap[i] = t;
  t->queued = true;
  return MT_OK;
}

mt_task *mt_walk_next(mt_walk *w) {
  mt_task *const top = w->heap[0], *const t = w->heap[--w->n];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < w->n; i = child) {
    if (child + 1 < w->n && comes_first(w->heap[child + 1], w->heap[child])) child++;
    if (!comes_first(w->heap[child], t)) break;
    w->heap[i] = w->heap[child];
  }
  w->heap[i] = t;
  return top;
}

/* ---- gradients meet ---- */

/* Nobody else can see t's elements: they may be overwritten. */
static bool is_private(const mt_tensor *t) {
  return t->refs == 1 && t->storage->refs == 1 && !t->storage->release &&
         !t->autograd && mt_is_contiguous(&t->v);
}

/* *sum, owned, becomes *sum + g; takes over g. */
static mt_status add_to(mt_context *ctx, mt_tensor **sum, mt_tensor *g) {
  mt_tensor *result = NULL, *const in[] = {*sum, g};
  mt_status status;
  if (!ctx->grad_enabled && is_private(*sum)) {
    status = mt_dispatch(ctx, MT_OP_add, 2, in, NULL, sum, NULL);
  } else if (!ctx->grad_enabled && is_private(g)) {
    result = mt_retain(g);
    status = mt_dispatch(ctx, MT_OP_add, 2, in, NULL, &result, NULL);
  } else {
    status = mt_apply(ctx, MT_OP_add, 2, in, NULL, &result, NULL);
  }
  mt_release(g);
  if (status == MT_OK && result) {
    mt_release(*sum);
    *sum = result;
  } else {
    mt_release(result);
  }
  return status;
}

mt_status mt_walk_arrive(mt_walk *w, mt_edge e, mt_tensor *g) {
  mt_task *t = mt_task_of(w, e.node);
  const bool found = t != NULL;
  mt_status status = found ? MT_OK : mt_task_new(w, e.node, &t);
  if (status == MT_OK && !t->queued) {
    status = heap_push(w, t);
    if (status != MT_OK && !found) mt_task_free(t); /* only the heap would know it */
  }
  if (status != MT_OK) {
    mt_release(g);
    return status;
  }
  if (t->g[e.output]) return add_to(w->ctx, &t->g[e.output], g);
  t->g[e.output] = g;
  return MT_OK;
}

/* ---- one node ---- */

mt_status mt_walk_own(mt_walk *w, mt_tensor *g, mt_tensor **copy) {
  const int64_t bytes = mt_numel(&g->v) * (int64_t)mt_dtype_size(g->v.dtype);
  const bool fills = (int64_t)g->storage->bytes <= 2 * bytes + 4096;
  if (is_private(g) && fills) {
    *copy = mt_retain(g);
    return MT_OK;
  }
  *copy = NULL;
  if (w->o.create_graph && !mt_overlaps_itself(&g->v)) {
    return mt_apply(w->ctx, MT_OP__alias, 1, &g, NULL, copy, NULL);
  }
  return mt_apply(w->ctx, MT_OP_clone, 1, &g, NULL, copy, NULL);
}

/* Add *g to the gradient that a leaf, or a tensor with retain_grad, has. */
static mt_status accumulate(mt_walk *w, mt_autograd *p, mt_tensor *g) {
  mt_tensor *sum = NULL;
  if (!p->grad) {
    MT_TRY(mt_walk_own(w, g, &sum));
  } else if (!w->o.create_graph && !mt_requires_grad(p->grad) &&
             !mt_overlaps_itself(&p->grad->v)) {
    mt_tensor *const in[] = {p->grad, g};
    return mt_dispatch(w->ctx, MT_OP_add, 2, in, NULL, &p->grad, NULL);
  } else {
    mt_tensor *const in[] = {p->grad, g};
    MT_TRY(mt_apply(w->ctx, MT_OP_add, 2, in, NULL, &sum, NULL));
  }
  mt_tensor *const old = p->grad;
  sum->gradient = true;
  p->grad = sum;
  mt_release(old);
  return MT_OK;
}

/* Hooks are the user's code: they run in the mode that the walk was started in. What
** they record is no part of the gradient, unless create_graph. */
static mt_status run_hooks(mt_walk *w, const mt_node *n, int output, mt_tensor **g) {
  mt_context *const ctx = w->ctx;
  ctx->grad_enabled = w->outer_enabled || w->o.create_graph;
  const mt_status status = mt_hooks_run(ctx, n, output, g);
  ctx->grad_enabled = w->o.create_graph;
  if (status != MT_OK || w->o.create_graph || !mt_requires_grad(*g)) return status;
  mt_tensor *detached;
  MT_TRY(mt_detach(*g, &detached));
  mt_release(*g);
  *g = detached;
  return MT_OK;
}

/* Hooks, retained gradients and captures of a node whose gradients are complete. */
static mt_status observe(mt_walk *w, mt_task *t) {
  mt_node *const n = t->node;
  for (int i = 0; i < n->nout; i++) {
    if (!t->g[i]) continue;
    if (mt_hooks_of(n)) MT_TRY(run_hooks(w, n, i, &t->g[i]));
    mt_autograd *const watching = n->watch ? n->watch[i] : NULL;
    if (watching && !w->capturing) MT_TRY(accumulate(w, watching, t->g[i]));
  }
  for (int i = 0; i < w->ncaptures; i++) {
    mt_capture *const c = &w->captures[i];
    if (c->edge.node == n && t->g[c->edge.output]) {
      c->g = mt_retain(t->g[c->edge.output]);
    }
  }
  return MT_OK;
}

/* An op may take an input of another device, as copy_ does, or a number on the CPU: its
** gradient is made where the op ran. */
static mt_status move_back(mt_walk *w, const mt_meta *to, mt_tensor **g) {
  mt_tensor *moved = NULL;
  MT_TRY(mt_convert(w->ctx, *g, to->dtype, to->device, &moved));
  const mt_status status = mt_record_transfer(w->ctx, *g, moved);
  mt_release(*g);
  *g = moved;
  return status;
}

/* The gradient of input i as the rule made it, to what the input needs. Takes over *g.
 */
static mt_status fit(mt_walk *w, const mt_node *n, int i, mt_tensor **g) {
  const mt_meta *const m = &n->in_meta[i];
  const mt_view *const v = &(*g)->v;
  if (v->ndim != m->ndim ||
      memcmp(v->shape, m->shape, (size_t)m->ndim * sizeof *m->shape) != 0) {
    return mt_fail(n->custom ? MT_ESHAPE : MT_EINTERNAL,
                   "%s: the gradient of input %d has shape %s, the input %s", n->name,
                   i + 1, mt_view_text(v), mt_shape_text(m->ndim, m->shape));
  }
  if (!mt_same_device(mt_device_of(*g), m->device)) {
    if (!n->custom) return move_back(w, m, g);
    return mt_fail(MT_EDEVICE, "%s: the gradient of input %d is on %s, the input on %s",
                   n->name, i + 1, mt_device_name(mt_device_of(*g)),
                   mt_device_name(m->device));
  }
  if (v->dtype == m->dtype) return MT_OK;
  const mt_attr dtype = mt_attr_i(m->dtype);
  mt_tensor *cast = NULL;
  MT_TRY(mt_apply(w->ctx, MT_OP__cast, 1, g, &dtype, &cast, NULL));
  mt_release(*g);
  *g = cast;
  return MT_OK;
}

static mt_status check_nan(mt_walk *w, const mt_node *n, int i, mt_tensor *g) {
  if (!MT_IS_FLOAT(g->v.dtype)) return MT_OK;
  mt_tensor *nan = NULL, *any = NULL;
  double found = 0;
  int64_t whole;
  mt_status status = mt_dispatch(w->ctx, MT_OP_isnan, 1, &g, NULL, &nan, NULL);
  if (status == MT_OK)
    status = mt_dispatch(w->ctx, MT_OP_any, 1, &nan, NULL, &any, NULL);
  if (status == MT_OK) status = mt_item(w->ctx, any, &found, &whole);
  mt_release(nan);
  mt_release(any);
  if (status != MT_OK || found == 0) return status;
  return mt_fail(MT_EGRAD, "%s: the gradient of input %d has NaN in it", n->name,
                 i + 1);
}

/* Run a recorded op's rule with what it saved. */
static mt_status run_rule(mt_node *n, mt_calc *calc, mt_tensor *const *g,
                          const bool *needs, mt_tensor **dx) {
  mt_tensor *few[8], *out[MT_MAX_OUTPUTS];
  mt_tensor **const in = n->nin <= 8 ? few : malloc((size_t)n->nin * sizeof *in);
  const char *const called = n->composite ? n->composite : n->name;
  if (!in) return out_of_memory();
  mt_status status = MT_OK;
  for (int i = 0; i < n->nin && status == MT_OK; i++) {
    status = mt_saved_get(&n->in[i], calc, called, &in[i]);
  }
  for (int i = 0; i < n->nout && status == MT_OK; i++) {
    status = mt_saved_get(&n->out[i], calc, called, &out[i]);
  }
  mt_grad_call call = {.calc = calc,
                       .op = n->op,
                       .attr = n->attr,
                       .nin = n->nin,
                       .nout = n->nout,
                       .in = in,
                       .out = out,
                       .g = g,
                       .in_meta = n->in_meta,
                       .out_meta = n->out_meta,
                       .needs = needs,
                       .dx = dx,
                       .seed = n->seed,
                       .position = n->position};
  if (status == MT_OK)
    status = n->rule ? n->rule->run(&call) : mt_formula_gradient(&call);
  if (in != few) free(in);
  return status;
}

/* dx[i]: new references. */
static mt_status run_node(mt_walk *w, mt_task *t, const bool *needs, mt_tensor **dx) {
  mt_node *const n = t->node;
  if (n->custom) {
    return n->custom->run(w->ctx, n->custom->user, n->nout, t->g, n->nin, dx);
  }
  mt_calc calc;
  mt_calc_begin(&calc, w->ctx);
  const mt_status status = run_rule(n, &calc, t->g, needs, dx);
  if (calc.status == MT_OK) calc.status = status;
  for (int i = 0; i < n->nin; i++) {
    if (!needs[i]) dx[i] = NULL;
  }
  return mt_calc_end(&calc, n->nin, dx);
}

/* Takes over dx[i]; nothing is sent after a failure. */
static mt_status send(mt_walk *w, mt_node *n, const bool *needs, mt_tensor **dx,
                      mt_status status) {
  for (int i = 0; i < n->nin; i++) {
    if (!dx[i]) continue;
    if (status == MT_OK && needs[i]) status = fit(w, n, i, &dx[i]);
    if (status == MT_OK && needs[i] && w->ctx->anomaly)
      status = check_nan(w, n, i, dx[i]);
    if (status == MT_OK && needs[i]) {
      status = mt_walk_arrive(w, n->edge[i], dx[i]);
    } else {
      mt_release(dx[i]);
    }
    dx[i] = NULL;
  }
  return status;
}

static bool find_needs(const mt_walk *w, const mt_node *n, bool *needs) {
  bool any = false;
  for (int i = 0; i < n->nin; i++) {
    const mt_node *const to = n->edge[i].node;
    needs[i] = to && (!w->capturing || mt_task_of(w, to)->needed);
    any = any || needs[i];
  }
  return any;
}

bool mt_walk_captures(const mt_walk *w, const mt_node *n) {
  for (int i = 0; i < w->ncaptures; i++) {
    if (w->captures[i].edge.node == n) return true;
  }
  return false;
}

static mt_status fail_released(const mt_node *n) {
  return mt_fail(
      MT_EGRAD, "%s: the graph was released: backward a second time needs retain_graph",
      n->name);
}

mt_status mt_walk_visit(mt_walk *w, mt_task *t) {
  mt_node *const n = t->node;
  MT_TRY(observe(w, t));
  if (n->nin == 0 && !n->op && !n->custom) {
    const bool wanted = !w->capturing && n->leaf && n->leaf->requires_grad;
    return wanted ? accumulate(w, n->leaf, t->g[0]) : MT_OK;
  }
  if (n->released && !mt_walk_captures(w, n)) return fail_released(n);
  const size_t ni = (size_t)n->nin;
  mt_tensor *few_dx[8];
  bool few_needs[8];
  char *const room =
      ni > 8 ? malloc(ni * (sizeof(mt_tensor *) + sizeof(bool))) : (char *)few_dx;
  if (!room) return out_of_memory();
  mt_tensor **const dx = (mt_tensor **)room;
  bool *const needs = ni > 8 ? (bool *)(dx + ni) : few_needs;
  for (size_t i = 0; i < ni; i++) dx[i] = NULL;
  mt_status status = MT_OK;
  if (find_needs(w, n, needs)) {
    status = run_node(w, t, needs, dx);
    if (status == MT_OK && n->released)
      status = fail_released(n);        /* a walk within it */
    for (int i = 0; i < n->nout; i++) { /* let go before what follows allocates */
      mt_release(t->g[i]);
      t->g[i] = NULL;
    }
    status = send(w, n, needs, dx, status);
    if (status == MT_OK && !w->o.retain_graph) mt_node_drop(n);
  }
  if (ni > 8) free(room);
  return status;
}
