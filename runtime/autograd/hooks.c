/* runtime/autograd/hooks.c -- what the host hangs into the graph: hooks on gradients,
** retained gradients, and nodes of its own. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/graph.h"

static mt_status no_history(void) {
  return mt_fail(MT_EGRAD, "the tensor does not require grad");
}

/* ---- retain_grad ---- */

mt_status mt_retain_grad(mt_tensor *t) {
  if (!mt_requires_grad(t)) return no_history();
  if (mt_view_stale(t->autograd)) MT_TRY(mt_view_refresh(t));
  t->autograd->retain = true;
  return mt_watch(t);
}

/* ---- hooks ---- */

mt_status mt_add_hook(mt_tensor *t, mt_hook_fn fn, void *user, void (*release)(void *),
                      int *id) {
  static _Atomic int last_id;
  mt_status status = mt_requires_grad(t) ? MT_OK : no_history();
  if (status == MT_OK && mt_view_stale(t->autograd)) status = mt_view_refresh(t);
  mt_hook *const h = status == MT_OK ? calloc(1, sizeof *h) : NULL;
  if (!h) {
    if (release) release(user);
    return status == MT_OK ? mt_fail(MT_EMEMORY, "out of memory") : status;
  }
  mt_autograd *const p = t->autograd;
  const int number = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
  *h = (mt_hook){NULL, number, p->edge.output, fn, user, release};
  mt_hook **list = p->edge.node ? &p->edge.node->hooks : &p->hooks;
  while (*list) list = &(*list)->next; /* they run in the order they came */
  *list = h;
  *id = h->id;
  return MT_OK;
}

static void hook_free(mt_hook *h) {
  if (h->release) h->release(h->user);
  free(h);
}

void mt_hooks_free(mt_hook *list) {
  while (list) {
    mt_hook *const next = list->next;
    hook_free(list);
    list = next;
  }
}

static bool hook_remove(mt_hook **list, int id) {
  for (; *list; list = &(*list)->next) {
    if ((*list)->id == id) {
      mt_hook *const h = *list;
      *list = h->next;
      hook_free(h);
      return true;
    }
  }
  return false;
}

void mt_remove_hook(mt_tensor *t, int id) {
  mt_autograd *const p = t->autograd;
  if (!p || hook_remove(&p->hooks, id) || !p->edge.node) return;
  hook_remove(&p->edge.node->hooks, id);
}

/* The first hook of output with an id above `after`: hooks may come and go while one
** runs, and ids only grow. */
static const mt_hook *hook_after(const mt_hook *list, int output, int after) {
  for (; list; list = list->next) {
    if (list->output == output && list->id > after) return list;
  }
  return NULL;
}

mt_status mt_hooks_run(mt_context *ctx, const mt_node *n, int output, mt_tensor **g) {
  int id = 0;
  for (const mt_hook *h; (h = hook_after(mt_hooks_of(n), output, id));) {
    id = h->id;
    mt_tensor *given = *g, *replaced = *g;
    MT_TRY(h->fn(ctx, h->user, &replaced));
    if (replaced == given) continue;
    *g = replaced;
    const bool fits = mt_same_shape(&replaced->v, &given->v) &&
                      replaced->v.dtype == given->v.dtype &&
                      mt_same_device(mt_device_of(replaced), mt_device_of(given));
    const mt_status status =
        fits ? MT_OK
             : mt_fail(
                   MT_EGRAD,
                   "a hook replaced a gradient of shape %s, %s by one of shape %s, %s",
                   mt_view_text(&given->v), mt_dtype_name(given->v.dtype),
                   mt_view_text(&replaced->v), mt_dtype_name(replaced->v.dtype));
    mt_release(given);
    MT_TRY(status);
  }
  return MT_OK;
}

/* ---- nodes of the host ---- */

static mt_status custom_fail(mt_custom c, mt_node *node, mt_status status) {
  if (node && node->custom) {
    mt_node_release(node); /* releases c.user */
    return status;
  }
  mt_node_release(node);
  if (c.release) c.release(c.user);
  return status;
}

mt_status mt_record_custom(mt_context *ctx, mt_custom c, int nin, mt_tensor *const *in,
                           int nout, mt_tensor *const *out) {
  mt_node *node = NULL;
  if (!ctx->grad_enabled || !mt_any_requires_grad(nin, in)) {
    return custom_fail(c, NULL, MT_OK);
  }
  const size_t length = strlen(c.name) + 1;
  mt_status status = mt_node_new(nin, in, nout, out, 0, &node);
  mt_custom *const copy = status == MT_OK ? malloc(sizeof *copy + length) : NULL;
  if (status == MT_OK && !copy) status = mt_fail(MT_EMEMORY, "out of memory");
  if (status != MT_OK) return custom_fail(c, node, status);
  *copy = c;
  copy->name = memcpy(copy + 1, c.name, length);
  node->custom = copy;
  node->name = copy->name;
  for (int i = 0; i < nin && status == MT_OK; i++) {
    if (in[i]) status = mt_edge_of(in[i], &node->edge[i]);
  }
  mt_node_stamp(node);
  for (int i = 0; i < nout && status == MT_OK; i++) {
    if (out[i] && MT_IS_FLOAT(out[i]->v.dtype))
      status = mt_set_history(out[i], node, i);
  }
  mt_node_release(
      node); /* the outputs own it now; without them it dies, and c.user too */
  return status;
}
