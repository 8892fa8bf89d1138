/* runtime/core/fuse_special.c -- a graph for arguments of certain spaces: what is one
** value for each row is known, and only nodes that are needed are left. */
#include <stdlib.h>
#include <string.h>
#include "runtime/core/fuse.h"

mt_fused *mt_fused_retain(mt_fused *f) {
  if (f) f->refs++;
  return f;
}

void mt_fused_release(mt_fused *f) {
  if (!f || --f->refs > 0) return;
  for (int i = 0; i < f->nderivatives; i++) mt_fused_release(f->derivative[i]);
  free(f->derivative);
  for (int i = 0; i < 2; i++) {
    if (f->code[i]) f->backend->release(f->code[i]);
  }
  mt_fused_free_gpu(f);
  mt_fuse_graph_free(&f->graph);
  free(f);
}

static void note_outputs(mt_fused *f) {
  for (int k = 0; k < f->nout; k++) {
    if (f->output[k] < 0) continue;
    f->out[k].used = true;
    f->out[k].boolean = f->graph.node[f->output[k]].boolean;
  }
}

mt_status mt_fused_finish(mt_fused *f, mt_fused **out) {
  mt_fuse_graph *const g = &f->graph;
  *out = NULL;
  if (g->status != MT_OK) {
    const mt_status status = g->status;
    mt_fused_release(f);
    return status;
  }
  mt_fuse_compact(g, f->nout, f->output);
  note_outputs(f);
  mt_fuse_program *const p = &f->program;
  p->nin = f->nin;
  p->nout = 0;
  for (int k = 0; k < f->nout; k++) {
    if (f->output[k] < 0) continue;
    f->computed_space[p->nout] = (uint8_t)f->out[k].space;
    f->computed[p->nout++] = f->output[k];
  }
  p->output = f->computed;
  p->output_space = f->computed_space;
  p->node = g->node;
  p->nnodes = g->n;
  p->levels = 1;
  for (int i = 0; i < g->n; i++) {
    const mt_fuse_node *const v = &g->node[i];
    if (v->kind == MT_FUSE_INPUT) f->in[v->index].used = true;
    if (v->level + 1 > p->levels) p->levels = v->level + 1;
  }
  *out = f;
  return MT_OK;
}

/* ---- of a user's graph ---- */

static int translate(mt_fuse_graph *g, const mt_fuse_node *v, const int *to,
                     const mt_fused *f) {
  int arg[3] = {-1, -1, -1};
  for (int a = 0; a < v->nargs; a++) arg[a] = to[v->arg[a]];
  switch (v->kind) {
  case MT_FUSE_INPUT: return mt_fuse_input(g, v->index, f->in[v->index].space, false);
  case MT_FUSE_NUMBER: return mt_fuse_number(g, v->number[0]);
  case MT_FUSE_OP: return mt_fuse_op(g, (mt_op)v->op, arg, v->number);
  case MT_FUSE_WHERE: return mt_fuse_where(g, arg[0], arg[1], arg[2]);
  case MT_FUSE_LENGTH: return mt_fuse_length(g, arg[0]);
  default: return mt_fuse_reduce(g, (mt_fuse_kind)v->kind, arg[0], false, v->index);
  }
}

static mt_status specialise(const mt_fuse *f, uint64_t outputs, uint64_t rows,
                            mt_fused **out) {
  mt_fused *const s = calloc(1, sizeof *s);
  int *const to = malloc((size_t)f->graph.n * sizeof *to);
  if (!s || !to) {
    free(s);
    free(to);
    return mt_fail(MT_EMEMORY, "fuse: out of memory");
  }
  s->refs = 1;
  s->key[0] = outputs;
  s->key[1] = rows;
  s->nin = f->nin;
  s->program.reduces = f->reduces;
  for (int i = 0; i < f->nin; i++) {
    s->in[i].space = rows >> i & 1u ? MT_FUSE_ROW : MT_FUSE_FULL;
  }
  for (int i = 0; i < f->graph.n; i++) {
    to[i] = translate(&s->graph, &f->graph.node[i], to, s);
  }
  for (int k = 0; k < f->nout; k++) {
    if (!(outputs >> k & 1u)) continue;
    const mt_fuse_node *const v = &f->graph.node[f->output[k]];
    const int node = to[f->output[k]];
    const bool row = node >= 0 && s->graph.node[node].space != MT_FUSE_FULL;
    s->out[s->nout].space = row && f->reduces ? MT_FUSE_ROW : (mt_fuse_space)v->space;
    s->out[s->nout].dropped = v->dropped;
    s->output[s->nout++] = node;
  }
  free(to);
  return mt_fused_finish(s, out);
}

static mt_status append(mt_fused ***list, int *n, mt_fused *f) {
  mt_fused **const more = realloc(*list, ((size_t)*n + 1) * sizeof *more);
  if (!more) {
    mt_fused_release(f);
    return mt_fail(MT_EMEMORY, "fuse: out of memory");
  }
  *list = more;
  more[(*n)++] = f;
  return MT_OK;
}

static mt_fused *find(mt_fused *const *list, int n, uint64_t a, uint64_t b) {
  for (int i = 0; i < n; i++) {
    if (list[i]->key[0] == a && list[i]->key[1] == b) return list[i];
  }
  return NULL;
}

mt_status mt_fused_get(mt_fuse *f, uint64_t outputs, uint64_t rows, mt_fused **out) {
  *out = find(f->fused, f->nfused, outputs, rows);
  if (*out) return MT_OK;
  MT_TRY(specialise(f, outputs, rows, out));
  return append(&f->fused, &f->nfused, *out);
}

mt_status mt_fused_derive(mt_fused *f, uint64_t wanted, uint64_t given,
                          mt_fused **out) {
  *out = find(f->derivative, f->nderivatives, wanted, given);
  if (*out) return MT_OK;
  MT_TRY(mt_fused_gradient(f, wanted, given, out));
  (*out)->key[0] = wanted;
  (*out)->key[1] = given;
  return append(&f->derivative, &f->nderivatives, *out);
}
