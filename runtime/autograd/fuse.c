/* runtime/autograd/fuse.c -- runs and records fused operators. The gradient of one is
** another, of the same arguments and the gradients of its results: so it can be
** differentiated as often as one likes, and each time is one kernel. */
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/fuse.h"
#include "runtime/autograd/graph.h"
#include "runtime/autograd/parts.h"

/* One recorded call. */
typedef struct record {
  mt_fused *f;
  mt_node *node; /* not owned: it owns this */
  int running;   /* calls of backward in progress: then the release waits */
  bool released;
  mt_fuse_shape shape;
  mt_dtype dtype;
  mt_device device;
  mt_saved saved[]; /* [f->nin] */
} record;

static mt_status apply(mt_context *ctx, const char *name, mt_fused *f,
                       const mt_fuse_shape *shape, mt_tensor *const *in, mt_dtype dtype,
                       mt_device device, mt_tensor **out);

/* ---- backward ---- */

static void record_release(void *user) {
  record *const r = user;
  r->released = true;
  if (r->running > 0) return; /* a finalizer's walk has passed this node, too */
  for (int i = 0; i < r->f->nin; i++) mt_saved_drop(&r->saved[i], r->node);
  mt_fused_release(r->f);
  free(r);
}

/* Inputs that a gradient is wanted of. */
static uint64_t wanted_inputs(const mt_node *node) {
  uint64_t bits = 0;
  for (int i = 0; i < node->nin; i++) {
    if (node->edge[i].node) bits |= UINT64_C(1) << i;
  }
  return bits;
}

/* The results' gradients that came, behind the inputs; returns their bits. */
static uint64_t append_gradients(int nin, int nout, mt_tensor *const *g,
                                 mt_tensor **in) {
  uint64_t given = 0;
  for (int k = 0; k < nout; k++) {
    if (!g[k]) continue;
    given |= UINT64_C(1) << k;
    in[nin++] = g[k];
  }
  return given;
}

/* A number in a CPU's tensor went along with those of a GPU: so does its gradient. */
static mt_tensor *to_device(mt_calc *c, mt_tensor *x, mt_device device) {
  if (!x || c->status != MT_OK || mt_same_device(mt_device_of(x), device)) return x;
  mt_tensor *y = NULL;
  c->status = mt_convert(c->ctx, x, x->v.dtype, device, &y);
  y = mt_cown(c, y);
  if (y && c->ctx->grad_enabled) c->status = mt_record_transfer(c->ctx, x, y);
  return y;
}

static mt_status gradients(mt_calc *c, record *r, int nout, mt_tensor *const *g,
                           mt_tensor **dx) {
  mt_tensor *in[MT_FUSE_MAX_INPUTS + MT_FUSE_MAX_OUTPUTS] = {NULL};
  mt_tensor *out[MT_FUSE_MAX_OUTPUTS];
  const mt_node *const node = r->node;
  const int nin = r->f->nin;
  const uint64_t wanted = wanted_inputs(node);
  const uint64_t given = append_gradients(nin, nout, g, in);
  mt_fused *d;
  MT_TRY(mt_fused_derive(r->f, wanted, given, &d));
  for (int i = 0; i < nin; i++) {
    if (d->in[i].used) MT_TRY(mt_saved_get(&r->saved[i], c, node->name, &in[i]));
  }
  MT_TRY(apply(c->ctx, node->name, d, &r->shape, in, r->dtype, r->device, out));
  for (int i = 0, k = 0; i < nin; i++) {
    if (!(wanted >> i & 1u)) continue;
    mt_tensor *x = mt_cown(c, out[k++]);
    const mt_meta *const m = &node->in_meta[i];
    dx[i] = x ? to_device(c, mt_csum_to(c, x, m->ndim, m->shape), m->device) : NULL;
    if (!x && c->status == MT_OK && m->shape) dx[i] = mt_czeros_of(c, m);
  }
  return c->status;
}

static mt_status record_run(mt_context *ctx, void *user, int nout, mt_tensor *const *g,
                            int nin, mt_tensor **dx) {
  record *const r = user;
  mt_calc c;
  mt_calc_begin(&c, ctx);
  r->running++;
  const mt_status status = gradients(&c, r, nout, g, dx);
  if (c.status == MT_OK) c.status = status;
  if (--r->running == 0 && r->released) record_release(r);
  return mt_calc_end(&c, nin, dx);
}

/* ---- recording ---- */

static uint64_t all_outputs(const mt_fused *f) {
  uint64_t bits = 0;
  for (int k = 0; k < f->nout; k++) {
    if (f->output[k] >= 0 && !f->out[k].boolean) bits |= UINT64_C(1) << k;
  }
  return bits;
}

/* Does a gradient come for one of the results? */
static bool any_output(const mt_fused *f, mt_tensor *const *out) {
  for (int k = 0; k < f->nout; k++) {
    if (out[k] && MT_IS_FLOAT(out[k]->v.dtype)) return true;
  }
  return false;
}

static mt_status save_inputs(record *r, mt_tensor *const *in) {
  mt_fused *d;
  MT_TRY(mt_fused_derive(r->f, wanted_inputs(r->node), all_outputs(r->f), &d));
  for (int i = 0; i < r->f->nin; i++) {
    if (d->in[i].used && in[i]) MT_TRY(mt_save(&r->saved[i], in[i], r->node, -1));
  }
  return MT_OK;
}

static mt_status record_call(mt_context *ctx, const char *name, mt_fused *f,
                             const mt_fuse_shape *shape, mt_tensor *const *in,
                             mt_dtype dtype, mt_device device, mt_tensor *const *out) {
  const size_t bytes = sizeof(record) + (size_t)f->nin * sizeof(mt_saved);
  record *const r = calloc(1, bytes);
  if (!r) return mt_fail(MT_EMEMORY, "%s: out of memory", name);
  r->f = mt_fused_retain(f);
  r->shape = *shape;
  r->dtype = dtype;
  r->device = device;
  int first = 0; /* that has a gradient: no condition */
  while (!out[first] || !MT_IS_FLOAT(out[first]->v.dtype)) first++;
  const mt_custom custom = {r, record_run, record_release, name};
  MT_TRY(mt_record_custom(ctx, custom, f->nin, in, f->nout, out));
  r->node = out[first]->autograd->edge.node;
  ctx->gc_debt += bytes + r->node->bytes;
  return save_inputs(r, in);
}

static mt_status apply(mt_context *ctx, const char *name, mt_fused *f,
                       const mt_fuse_shape *shape, mt_tensor *const *in, mt_dtype dtype,
                       mt_device device, mt_tensor **out) {
  mt_tensor *used[MT_FUSE_MAX_INPUTS];
  for (int i = 0; i < f->nin; i++) used[i] = f->in[i].used ? in[i] : NULL;
  MT_TRY(mt_fused_run(ctx, name, f, shape, used, dtype, device, out));
  const bool recording = ctx->grad_enabled && mt_any_requires_grad(f->nin, used);
  if (!recording || !any_output(f, out)) return MT_OK;
  const mt_status status = record_call(ctx, name, f, shape, used, dtype, device, out);
  for (int k = 0; k < f->nout && status != MT_OK; k++) {
    mt_release(out[k]);
    out[k] = NULL;
  }
  return status;
}

/* ---- calls ---- */

static mt_status run_groups(mt_context *ctx, mt_fuse *f, const mt_fuse_plan *plan,
                            mt_tensor *const *in, mt_tensor **out) {
  for (int i = 0; i < plan->ngroups; i++) {
    const mt_fuse_group *const g = &plan->group[i];
    mt_tensor *made[MT_FUSE_MAX_OUTPUTS];
    mt_fused *fused;
    MT_TRY(mt_fused_get(f, g->outputs, g->rows, &fused));
    MT_TRY(apply(ctx, f->name, fused, &g->shape, in, plan->dtype, plan->device, made));
    for (int k = 0, n = 0; k < f->nout; k++) {
      if (g->outputs >> k & 1u) out[k] = made[n++];
    }
  }
  return MT_OK;
}

mt_status mt_fuse_apply(mt_context *ctx, mt_fuse *f, mt_tensor *const *in,
                        mt_tensor **out) {
  mt_fuse_plan plan;
  for (int k = 0; k < f->nout; k++) out[k] = NULL;
  MT_TRY(mt_fuse_plan_call(ctx, f, in, &plan));
  const mt_status status = run_groups(ctx, f, &plan, in, out);
  for (int k = 0; k < f->nout && status != MT_OK; k++) {
    mt_release(out[k]);
    out[k] = NULL;
  }
  return status;
}
