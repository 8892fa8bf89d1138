/* runtime/core/fuse_derive.c -- the gradient of a graph, as another one: the nodes from
** the last to the first, by the formulas of ops.def.
**
** A gradient has the space of its node or a smaller one. What flows from a full node to
** one that has a value for each row is summed along the row. */
#include <stdlib.h>
#include <string.h>
#include "runtime/core/fuse.h"

typedef struct derivation {
  const mt_fused *f;
  mt_fuse_graph *g;
  int *value;    /* of f's nodes, in g */
  int *gradient; /* of f's nodes, in g; -1: none has come yet */
  bool *wanted;  /* does it lead to a wanted input? */
} derivation;

/* Let x, a part of node v's gradient, flow to its argument u. */
static void flow(derivation *d, int v, int u, int x) {
  mt_fuse_graph *const g = d->g;
  if (x < 0 || !d->wanted[u]) return;
  const mt_fuse_node *const from = &d->f->graph.node[v], *to = &d->f->graph.node[u];
  if (from->space == MT_FUSE_FULL && to->space != MT_FUSE_FULL) {
    x = g->node[x].space == MT_FUSE_FULL
            ? mt_fuse_reduce(g, MT_FUSE_SUM, x, false, false)
            : mt_fuse_op2(g, MT_OP_mul, x, mt_fuse_length(g, d->value[v]));
  }
  int *const sum = &d->gradient[u];
  *sum = *sum < 0 ? x : mt_fuse_op2(g, MT_OP_add, *sum, x);
}

static void flow_op(derivation *d, int v, int dy) {
  const mt_fuse_node *const n = &d->f->graph.node[v];
  const mt_opinfo *const op = mt_op_info((mt_op)n->op);
  const char *name[10];
  int value[10], count = 0;
  name[count] = "g", value[count++] = dy;
  name[count] = "y", value[count++] = d->value[v];
  for (int a = 0; a < n->nargs; a++) {
    static const char *const names[] = {"a", "b", "c"};
    name[count] = n->nargs == 1 ? "x" : names[a];
    value[count++] = d->value[n->arg[a]];
  }
  for (int k = 0; k < op->nparams; k++) {
    const mt_param *const p = &op->param[k];
    if (p->type <= MT_PARAM_LIST) continue;
    name[count] = p->name;
    value[count++] = mt_fuse_number(d->g, n->number[p->slot]);
  }
  name[count] = NULL;
  for (int a = 0; a < n->nargs; a++) {
    const mt_expr *const e = mt_op_formula((mt_op)n->op, 1 + a);
    if (!e || !d->wanted[n->arg[a]]) continue;
    flow(d, v, n->arg[a], mt_fuse_expression(d->g, e, name, value));
  }
}

/* Shared among those that are the largest, as amax does. */
static void flow_extreme(derivation *d, int v, int dy) {
  const int x = d->f->graph.node[v].arg[0];
  const int is = mt_fuse_op2(d->g, MT_OP_eq, d->value[x], d->value[v]);
  const int ties = mt_fuse_reduce(d->g, MT_FUSE_SUM, is, false, false);
  const int share = mt_fuse_op2(d->g, MT_OP_div, dy, ties);
  flow(d, v, x, mt_fuse_where(d->g, is, share, mt_fuse_number(d->g, 0)));
}

static void flow_from(derivation *d, int v) {
  const mt_fuse_node *const n = &d->f->graph.node[v];
  const int dy = d->gradient[v];
  if (dy < 0) return;
  switch (n->kind) {
  case MT_FUSE_OP: flow_op(d, v, dy); break;
  case MT_FUSE_WHERE: {
    const int cond = d->value[n->arg[0]], zero = mt_fuse_number(d->g, 0);
    flow(d, v, n->arg[1], mt_fuse_where(d->g, cond, dy, zero));
    flow(d, v, n->arg[2], mt_fuse_where(d->g, cond, zero, dy));
    break;
  }
  case MT_FUSE_SUM: flow(d, v, n->arg[0], dy); break;
  case MT_FUSE_AMAX:
  case MT_FUSE_AMIN:
    if (!n->index) flow_extreme(d, v, dy);
    break;
  default: break;
  }
}

/* f's nodes, in the new graph. */
static void copy_values(derivation *d) {
  const mt_fuse_graph *const from = &d->f->graph;
  for (int i = 0; i < from->n; i++) {
    const mt_fuse_node *const v = &from->node[i];
    int arg[3] = {-1, -1, -1};
    for (int a = 0; a < v->nargs; a++) arg[a] = d->value[v->arg[a]];
    int *const to = &d->value[i];
    switch (v->kind) {
    case MT_FUSE_INPUT:
      *to = mt_fuse_input(d->g, v->index, (mt_fuse_space)v->space, v->dropped);
      break;
    case MT_FUSE_NUMBER: *to = mt_fuse_number(d->g, v->number[0]); break;
    case MT_FUSE_LENGTH: *to = mt_fuse_row_length(d->g); break;
    case MT_FUSE_OP: *to = mt_fuse_op(d->g, (mt_op)v->op, arg, v->number); break;
    case MT_FUSE_WHERE: *to = mt_fuse_where(d->g, arg[0], arg[1], arg[2]); break;
    default: *to = mt_fuse_reduce(d->g, (mt_fuse_kind)v->kind, arg[0], false, v->index);
    }
  }
}

static void mark_wanted(derivation *d, uint64_t wanted) {
  const mt_fuse_graph *const g = &d->f->graph;
  for (int i = 0; i < g->n; i++) {
    const mt_fuse_node *const v = &g->node[i];
    d->wanted[i] = v->kind == MT_FUSE_INPUT && (wanted >> v->index & 1u);
    for (int a = 0; a < v->nargs; a++) d->wanted[i] |= d->wanted[v->arg[a]];
    if (v->boolean) d->wanted[i] = false;
  }
}

/* The gradients that come in: inputs of the new graph behind f's. */
static void begin(derivation *d, mt_fused *s, uint64_t given) {
  const mt_fused *const f = d->f;
  for (int k = 0; k < f->nout; k++) {
    if (!(given >> k & 1u) || s->nin == MT_FUSE_MAX_INPUTS) continue;
    const int i = s->nin++, node = f->output[k];
    s->in[i].space = f->out[k].space;
    s->in[i].dropped = f->out[k].dropped;
    const int dy = mt_fuse_input(d->g, i, f->out[k].space, false);
    if (node < 0 || !d->wanted[node]) continue;
    int *const sum = &d->gradient[node];
    int x = dy;
    if (f->out[k].space == MT_FUSE_FULL && f->graph.node[node].space != MT_FUSE_FULL)
      x = mt_fuse_reduce(d->g, MT_FUSE_SUM, dy, false, false);
    *sum = *sum < 0 ? x : mt_fuse_op2(d->g, MT_OP_add, *sum, x);
  }
}

static void derive(derivation *d, mt_fused *s, uint64_t wanted, uint64_t given) {
  const mt_fused *const f = d->f;
  copy_values(d);
  mark_wanted(d, wanted);
  for (int i = 0; i < f->graph.n; i++) d->gradient[i] = -1;
  begin(d, s, given);
  for (int i = f->graph.n - 1; i >= 0; i--) {
    if (d->wanted[i]) flow_from(d, i);
  }
  for (int i = 0; i < f->nin; i++) {
    if (!(wanted >> i & 1u)) continue;
    s->out[s->nout] = f->in[i];
    s->out[s->nout].used = s->out[s->nout].boolean = false;
    int node = -1;
    for (int v = 0; v < f->graph.n; v++) {
      if (f->graph.node[v].kind == MT_FUSE_INPUT && f->graph.node[v].index == i)
        node = v;
    }
    s->output[s->nout++] = node < 0 ? -1 : d->gradient[node];
  }
}

mt_status mt_fused_gradient(const mt_fused *f, uint64_t wanted, uint64_t given,
                            mt_fused **out) {
  if (f->nin + f->nout > MT_FUSE_MAX_INPUTS) {
    return mt_fail(MT_EARG, "fuse: no gradients of so high an order of so many values");
  }
  mt_fused *const s = calloc(1, sizeof *s);
  const size_t n = (size_t)f->graph.n;
  derivation d = {.f = f, .value = malloc((n + 1) * sizeof *d.value)};
  d.gradient = malloc((n + 1) * sizeof *d.gradient);
  d.wanted = malloc((n + 1) * sizeof *d.wanted);
  mt_status status = MT_OK;
  if (!s || !d.value || !d.gradient || !d.wanted) {
    free(s);
    status = mt_fail(MT_EMEMORY, "fuse: out of memory");
  } else {
    d.g = &s->graph;
    s->refs = 1;
    s->nin = f->nin;
    s->program.reduces = f->program.reduces;
    memcpy(s->in, f->in, sizeof s->in);
    for (int i = 0; i < s->nin; i++) s->in[i].used = false;
    derive(&d, s, wanted, given);
  }
  free(d.value);
  free(d.gradient);
  free(d.wanted);
  return status == MT_OK ? mt_fused_finish(s, out) : status;
}
