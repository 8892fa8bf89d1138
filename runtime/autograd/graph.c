/* runtime/autograd/graph.c -- nodes, edges, saved values, and autograd's part of a
** tensor: making them, and letting them go without recursion. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/graph.h"
#include "runtime/core/small.h"

static mt_status out_of_memory(void) { return mt_fail(MT_EMEMORY, "out of memory"); }

/* ---- letting go ---- */

/* What died and is not yet freed. Whoever frees the first one frees all: what that lets
** go is put here by the calls further down. */
static _Thread_local mt_node *dead_nodes;
static _Thread_local mt_autograd *dead_parts;
static _Thread_local bool burying;

static void edge_release(mt_edge *e) {
  mt_node *const n = e->node;
  e->node = NULL;
  mt_node_release(n);
}

void mt_saved_drop(mt_saved *s, const mt_node *node) {
  if (!s->tensor) return;
  mt_release(s->tensor);
  s->tensor = NULL;
  if (s->edge.node != node) edge_release(&s->edge);
  s->edge.node = NULL;
}

void mt_node_drop(mt_node *n) {
  n->released = true;
  for (int i = 0; i < n->nin; i++) {
    edge_release(&n->edge[i]);
    mt_saved_drop(&n->in[i], n);
  }
  for (int i = 0; i < n->nout; i++) mt_saved_drop(&n->out[i], n);
  mt_hook *const hooks = n->hooks;
  n->hooks = NULL;
  mt_hooks_free(hooks);
  if (n->custom && n->custom->release) {
    void (*const release)(void *) = n->custom->release;
    n->custom->release = NULL;
    release(n->custom->user);
  }
}

static void node_free(mt_node *n) {
  if (n->leaf) n->leaf->accumulate = NULL;
  mt_node_drop(n);
  free(n->custom);
  free(n->watch);
  mt_small_give(n, n->bytes);
}

static void part_free(mt_autograd *p) {
  if (p->accumulate) { /* the graph outlives its leaf: hooks still run */
    p->accumulate->leaf = NULL;
    p->accumulate->hooks = p->hooks;
    p->hooks = NULL;
  }
  if (p->edge.node && p->edge.node->watch && p->edge.node->watch[p->edge.output] == p) {
    p->edge.node->watch[p->edge.output] = NULL;
  }
  mt_hooks_free(p->hooks);
  edge_release(&p->edge);
  mt_release(p->grad);
  mt_release(p->base);
  mt_small_give(p, sizeof *p);
}

static void bury(void) {
  if (burying) return;
  burying = true;
  while (dead_nodes || dead_parts) {
    if (dead_nodes) {
      mt_node *const n = dead_nodes;
      dead_nodes = n->next_dead;
      node_free(n);
    } else {
      mt_autograd *const p = dead_parts;
      dead_parts = p->next_dead;
      part_free(p);
    }
  }
  burying = false;
}

mt_node *mt_node_retain(mt_node *n) {
  if (n) n->refs++;
  return n;
}

void mt_node_release(mt_node *n) {
  if (!n || --n->refs > 0) return;
  n->next_dead = dead_nodes;
  dead_nodes = n;
  bury();
}

static void part_release(mt_autograd *p) {
  p->next_dead = dead_parts;
  dead_parts = p;
  bury();
}

void mt_autograd_setup(void) { mt_autograd_release = part_release; }

/* ---- making nodes ---- */

static _Atomic uint64_t last_sequence;

void mt_node_stamp(mt_node *n) {
  n->sequence = atomic_fetch_add_explicit(&last_sequence, 1, memory_order_relaxed) + 1;
}

uint64_t mt_node_last(void) {
  return atomic_load_explicit(&last_sequence, memory_order_relaxed);
}

static size_t dims_of(int n, mt_tensor *const *t) {
  size_t dims = 0;
  for (int i = 0; i < n; i++) dims += t[i] ? (size_t)t[i]->v.ndim : 0;
  return dims;
}

/* Fill in metas; their shapes and strides go to room, which is moved on. */
static void metas_set(int n, mt_tensor *const *t, mt_meta *meta, int64_t **room) {
  for (int i = 0; i < n; i++) {
    if (!t[i]) continue;
    const mt_view *const v = &t[i]->v;
    meta[i] = (mt_meta){.dtype = v->dtype,
                        .device = mt_device_of(t[i]),
                        .ndim = v->ndim,
                        .shape = *room,
                        .stride = *room + v->ndim,
                        .offset = t[i]->offset};
    for (int d = 0; d < v->ndim; d++) {
      (*room)[d] = v->shape[d];
      (*room)[v->ndim + d] = v->stride[d];
    }
    *room += 2 * v->ndim;
  }
}

mt_status mt_node_new(int nin, mt_tensor *const *in, int nout, mt_tensor *const *out,
                      int nattr, mt_node **node) {
  const size_t ni = (size_t)nin, no = (size_t)nout, na = (size_t)nattr;
  const size_t values = ni + no, dims = dims_of(nin, in) + dims_of(nout, out);
  const size_t cleared = sizeof(mt_node) + ni * sizeof(mt_edge) +
                         values * (sizeof(mt_saved) + sizeof(mt_meta));
  const size_t bytes = cleared + na * sizeof(mt_attr) + 2 * dims * sizeof(int64_t);
  mt_node *const n = mt_small_take(bytes);
  *node = n;
  if (!n) return out_of_memory();
  memset(n, 0, cleared);
  n->refs = 1;
  n->bytes = (unsigned)bytes;
  n->nin = nin;
  n->nout = nout;
  n->nattr = nattr;
  n->in_meta = (mt_meta *)(n + 1);
  n->out_meta = n->in_meta + nin;
  n->in = (mt_saved *)(n->out_meta + nout);
  n->out = n->in + nin;
  n->edge = (mt_edge *)(n->out + nout);
  n->attr = (mt_attr *)(n->edge + nin);
  int64_t *room = (int64_t *)(n->attr + nattr);
  metas_set(nin, in, n->in_meta, &room);
  metas_set(nout, out, n->out_meta, &room);
  return MT_OK;
}

/* ---- tensors' parts ---- */

mt_autograd *mt_part(mt_tensor *t) {
  if (!t->autograd) {
    t->autograd = mt_small_take(sizeof *t->autograd);
    if (t->autograd)
      memset(t->autograd, 0, sizeof *t->autograd);
    else
      out_of_memory();
  }
  return t->autograd;
}

bool mt_requires_grad(const mt_tensor *t) {
  const mt_autograd *p = t->autograd;
  if (!p) return false;
  if (mt_view_stale(p)) p = p->base->autograd;
  return p->requires_grad || p->edge.node;
}

bool mt_is_leaf(const mt_tensor *t) {
  const mt_autograd *p = t->autograd;
  if (!p) return true;
  if (mt_view_stale(p)) return !mt_requires_grad(p->base);
  return !p->edge.node;
}

static mt_status accumulate_node(mt_tensor *t, mt_node **node) {
  mt_autograd *const p = t->autograd;
  if (p->accumulate) {
    *node = mt_node_retain(p->accumulate);
    return MT_OK;
  }
  MT_TRY(mt_node_new(0, NULL, 1, &t, 0, node));
  (*node)->name = "leaf";
  (*node)->leaf = p;
  p->accumulate = *node;
  return MT_OK;
}

mt_status mt_edge_of(mt_tensor *t, mt_edge *edge) {
  *edge = (mt_edge){NULL, 0};
  mt_autograd *const p = t->autograd;
  if (!p) return MT_OK;
  if (mt_view_stale(p)) MT_TRY(mt_view_refresh(t));
  if (p->edge.node) {
    *edge = (mt_edge){mt_node_retain(p->edge.node), p->edge.output};
  } else if (p->requires_grad) {
    return accumulate_node(t, &edge->node);
  }
  return MT_OK;
}

mt_status mt_watch(mt_tensor *t) {
  mt_autograd *const p = t->autograd;
  mt_node *const n = p->edge.node;
  if (!n) return MT_OK;
  if (!n->watch) {
    n->watch = calloc((size_t)n->nout, sizeof *n->watch);
    if (!n->watch) return out_of_memory();
  }
  n->watch[p->edge.output] = p;
  return MT_OK;
}

mt_status mt_set_history(mt_tensor *t, mt_node *node, int output) {
  mt_autograd *const p = mt_part(t);
  if (!p) return MT_EMEMORY;
  mt_edge old = p->edge;
  if (old.node && old.node->watch && old.node->watch[old.output] == p) {
    old.node->watch[old.output] = NULL;
  }
  if (p->accumulate) { /* it was a leaf: earlier uses have nowhere to go any more */
    p->accumulate->leaf = NULL;
    p->accumulate = NULL;
  }
  p->edge = (mt_edge){mt_node_retain(node), output};
  p->requires_grad = false;
  edge_release(&old);
  return p->retain ? mt_watch(t) : MT_OK;
}

mt_status mt_set_requires_grad(mt_tensor *t, bool on) {
  if (on == mt_requires_grad(t)) return MT_OK;
  if (on && !MT_IS_FLOAT(t->v.dtype)) {
    return mt_fail(MT_EGRAD, "only floating-point tensors can require grad, not %s",
                   mt_dtype_name(t->v.dtype));
  }
  if (!mt_is_leaf(t)) {
    return mt_fail(MT_EGRAD, "requires_grad can be turned off on leaves only; "
                             "detach() gives a tensor without history");
  }
  mt_autograd *const p = mt_part(t);
  if (!p) return MT_EMEMORY;
  p->requires_grad = on;
  return MT_OK;
}

mt_tensor *mt_grad_of(const mt_tensor *t) {
  return t->autograd ? t->autograd->grad : NULL;
}

mt_status mt_set_grad(mt_tensor *t, mt_tensor *g) {
  if (!g && !t->autograd) return MT_OK;
  if (g == t) return mt_fail(MT_EGRAD, "a tensor cannot be its own gradient");
  if (g && (!mt_same_shape(&g->v, &t->v) || g->v.dtype != t->v.dtype)) {
    return mt_fail(MT_ESHAPE, "a gradient of shape %s, %s for a tensor of shape %s, %s",
                   mt_view_text(&g->v), mt_dtype_name(g->v.dtype), mt_view_text(&t->v),
                   mt_dtype_name(t->v.dtype));
  }
  if (g && !mt_same_device(mt_device_of(g), mt_device_of(t))) {
    return mt_fail(MT_EDEVICE, "a gradient on %s for a tensor on %s",
                   mt_device_name(mt_device_of(g)), mt_device_name(mt_device_of(t)));
  }
  mt_autograd *const p = mt_part(t);
  if (!p) return MT_EMEMORY;
  mt_tensor *const old = p->grad;
  p->grad = g ? mt_retain(g) : NULL;
  if (g) g->gradient = true;
  mt_release(old);
  return MT_OK;
}

mt_status mt_detach(mt_tensor *t, mt_tensor **out) { return mt_alias_same(t, out); }

mt_status mt_detach_inplace(mt_tensor *t) {
  if (!t->autograd) return MT_OK;
  if (t->autograd->base) {
    return mt_fail(MT_EGRAD,
                   "a view cannot forget its history: detach() gives a tensor "
                   "without one");
  }
  t->autograd->retain = false;
  MT_TRY(mt_set_history(t, NULL, 0));
  t->autograd->rewrites++;
  return MT_OK;
}

const char *mt_grad_name(const mt_tensor *t) {
  if (!t->autograd || mt_is_leaf(t)) return NULL;
  if (mt_view_stale(t->autograd)) return mt_op_info(MT_OP__as_strided)->name;
  return t->autograd->edge.node->name;
}

/* ---- saved values ---- */

mt_status mt_save(mt_saved *s, mt_tensor *t, mt_node *node, int own) {
  MT_TRY(mt_detach(t, &s->tensor));
  s->tensor->wrapped = t->wrapped;
  s->version = t->storage->version;
  if (own >= 0) {
    s->edge = (mt_edge){node, own};
    return MT_OK;
  }
  return mt_edge_of(t, &s->edge);
}

mt_status mt_saved_get(const mt_saved *s, mt_calc *calc, const char *name,
                       mt_tensor **t) {
  *t = NULL;
  if (!s->tensor) return MT_OK;
  if (s->tensor->storage->version != s->version) {
    return mt_fail(MT_EGRAD,
                   "%s: a tensor that its gradient needs was changed in place "
                   "(version %u, expected %u)",
                   name, s->tensor->storage->version, s->version);
  }
  *t = s->tensor;
  if (!calc->ctx->grad_enabled || !s->edge.node) return MT_OK;
  MT_TRY(mt_detach(s->tensor, t));
  *t = mt_cown(calc, *t);
  return *t ? mt_set_history(*t, s->edge.node, s->edge.output) : calc->status;
}
