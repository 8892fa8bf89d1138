/* runtime/core/fuse_run.c -- runs a fused operator: shapes, new tensors, loops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/fuse.h"
#include "runtime/core/guard.h"
#include "runtime/core/memory.h"
#include "runtime/core/plan.h"
#include "runtime/core/watch.h"

/* ---- planning a call ---- */

static mt_status plan_device(const mt_fuse *f, mt_tensor *const *in, mt_device *d) {
  int first = -1;
  for (int i = 0; i < f->nin; i++) {
    const mt_device own = mt_device_of(in[i]);
    if (own.kind == MT_CPU && in[i]->v.ndim == 0) continue; /* goes along with any */
    if (first < 0) {
      first = i, *d = own;
    } else if (!mt_same_device(own, *d)) {
      char one[16];
      snprintf(one, sizeof one, "%s", mt_device_name(*d));
      return mt_fail(MT_EDEVICE, "%s: '%s' is on %s, '%s' on %s; move one with :to",
                     f->name, f->in_name[first], one, f->in_name[i],
                     mt_device_name(own));
    }
  }
  if (first < 0) *d = (mt_device){MT_CPU, 0};
  return MT_OK;
}

static int64_t last_size(const mt_view *v) {
  return v->ndim > 0 ? v->shape[v->ndim - 1] : 1;
}

static mt_status group_of(const mt_fuse *f, int k, mt_tensor *const *in,
                          mt_fuse_group *g) {
  g->shape.ndim = 0;
  g->outputs = UINT64_C(1) << k;
  g->rows = 0;
  for (int i = 0; i < f->nin; i++) {
    if (!(f->depends[k] >> i & 1u)) continue;
    const mt_status status = mt_broadcast(&g->shape.ndim, g->shape.size, &in[i]->v);
    if (status == MT_OK) continue;
    char text[sizeof mt_last_error()->text];
    snprintf(text, sizeof text, "%s", mt_last_error()->text);
    return mt_fail(status, "%s: argument '%s': %s", f->name, f->in_name[i], text);
  }
  const int64_t n = g->shape.ndim > 0 ? g->shape.size[g->shape.ndim - 1] : 1;
  for (int i = 0; i < f->nin && f->reduces && n != 1; i++) {
    if ((f->depends[k] >> i & 1u) && last_size(&in[i]->v) == 1)
      g->rows |= UINT64_C(1) << i;
  }
  return MT_OK;
}

static bool same_shape(const mt_fuse_shape *a, const mt_fuse_shape *b) {
  return a->ndim == b->ndim &&
         (a->ndim == 0 ||
          memcmp(a->size, b->size, (size_t)a->ndim * sizeof *a->size) == 0);
}

mt_status mt_fuse_plan_call(mt_context *ctx, const mt_fuse *f, mt_tensor *const *in,
                            mt_fuse_plan *plan) {
  MT_TRY(mt_plan_dtype(ctx, mt_op_info(MT_OP_exp), f->nin, in, &plan->dtype));
  MT_TRY(plan_device(f, in, &plan->device));
  plan->ngroups = 0;
  for (int k = 0; k < f->nout; k++) {
    mt_fuse_group *const g = &plan->group[plan->ngroups];
    MT_TRY(group_of(f, k, in, g));
    int same = 0;
    while (!same_shape(&plan->group[same].shape, &g->shape)) same++;
    if (same == plan->ngroups) {
      plan->ngroups++;
    } else {
      plan->group[same].outputs |= g->outputs;
      plan->group[same].rows |= g->rows;
    }
  }
  return MT_OK;
}

/* ---- geometry ---- */

/* v as an argument of a value: a last dim that is gone comes back as 1. */
static void with_last_dim(const mt_view *v, bool dropped, int ndim, mt_view *to) {
  mt_view_copy(to, v);
  if (!dropped || ndim == 0) return;
  to->shape[to->ndim] = 1;
  to->stride[to->ndim++] = 0;
}

static void result_shape(const mt_fuse_shape *s, const mt_fused_input *out,
                         mt_view *v) {
  v->ndim = s->ndim;
  if (s->ndim == 0) return;
  memcpy(v->shape, s->size, (size_t)s->ndim * sizeof *s->size);
  if (out->space != MT_FUSE_ROW) return;
  if (out->dropped)
    v->ndim--;
  else
    v->shape[s->ndim - 1] = 1;
}

typedef struct geometry {
  int nargs, ndim;
  int64_t size[MT_MAX_DIMS];
  int64_t stride[MT_FUSE_MAX_ARGS][MT_MAX_DIMS]; /* as in the shape */
} geometry;

static void add_argument(geometry *g, const mt_view *v, bool dropped) {
  int64_t *const stride = g->stride[g->nargs++];
  if (!v) {
    for (int d = 0; d < g->ndim; d++) stride[d] = 0;
    return;
  }
  mt_view whole;
  with_last_dim(v, dropped, g->ndim, &whole);
  for (int d = 0; d < g->ndim; d++) {
    const int own = d - (g->ndim - whole.ndim);
    stride[d] = own < 0 || whole.shape[own] == 1 ? 0 : whole.stride[own];
  }
}

/* The order of dims, innermost first: elementwise, as the first output lies. */
static int order_dims(const geometry *g, bool rows, int *order) {
  int n = 0;
  const int last = g->ndim - 1 - rows;
  for (int d = last; d >= 0; d--) {
    if (g->size[d] == 1) continue;
    int at = n++;
    for (; !rows && at > 0 && g->stride[0][order[at - 1]] > g->stride[0][d]; at--)
      order[at] = order[at - 1];
    order[at] = d;
  }
  return n;
}

static void append_dim(const geometry *g, int d, bool merge, mt_fuse_loops *l) {
  bool joins = merge && l->ndim > 0;
  const int last = l->ndim - 1;
  for (int k = 0; k < g->nargs && joins; k++)
    joins = g->stride[k][d] == l->stride[k][last] * l->size[last];
  if (joins) {
    l->size[last] *= g->size[d];
    return;
  }
  for (int k = 0; k < g->nargs; k++) l->stride[k][l->ndim] = g->stride[k][d];
  l->size[l->ndim++] = g->size[d];
}

static void append_one(const geometry *g, mt_fuse_loops *l) {
  for (int k = 0; k < g->nargs; k++) l->stride[k][l->ndim] = 0;
  l->size[l->ndim++] = 1;
}

static void make_loops(const geometry *g, bool rows, mt_fuse_loops *l) {
  int order[MT_MAX_DIMS];
  l->ndim = 0;
  if (rows && g->ndim > 0) append_dim(g, g->ndim - 1, false, l);
  if (rows && g->ndim == 0) append_one(g, l);
  const int first = l->ndim, n = order_dims(g, rows && g->ndim > 0, order);
  for (int i = 0; i < n; i++) append_dim(g, order[i], l->ndim > first, l);
  if (l->ndim == 0) append_one(g, l);
}

/* ---- running ---- */

typedef struct run {
  mt_context *ctx;
  mt_fused *f;
  const char *name;
  mt_device device;
  mt_tensor *const *in;
  const mt_view *in_view[MT_FUSE_MAX_INPUTS];
  mt_view *out_view[MT_FUSE_MAX_OUTPUTS];
  geometry geometry;
  mt_fuse_loops loops;
} run;

/* On a GPU: do the arguments lie as (N, H, W, C)? The first of the result's shape
** decides, as elsewhere. */
static bool channels_last(const run *r, const mt_fuse_shape *shape) {
  if (shape->ndim != 4 || r->device.kind == MT_CPU || r->f->program.reduces)
    return false;
  for (int i = 0; i < r->f->nin; i++) {
    const mt_view *v = r->in_view[i];
    if (v && v->ndim == 4 && !memcmp(v->shape, shape->size, 4 * sizeof *v->shape))
      return mt_is_channels_last(v);
  }
  return false;
}

static mt_status make_outputs(run *r, const mt_fuse_shape *shape, mt_dtype dtype,
                              mt_tensor **out) {
  const mt_fused *const f = r->f;
  const bool last = channels_last(r, shape);
  int computed = 0;
  for (int k = 0; k < f->nout; k++) {
    if (f->output[k] < 0) continue;
    mt_view v;
    result_shape(shape, &f->out[k], &v);
    MT_TRY(mt_plan_result(r->ctx, f->out[k].boolean ? MT_BOOL : dtype, r->device, &v,
                          last, &out[k]));
    r->out_view[computed++] = &out[k]->v;
    add_argument(&r->geometry, &out[k]->v, f->out[k].dropped);
  }
  return MT_OK;
}

/* An amax or amin of the user's: that of a logsumexp may be of nothing. */
static bool has_extreme(const mt_fused *f) {
  for (int i = 0; i < f->graph.n; i++) {
    const mt_fuse_node *const v = &f->graph.node[i];
    if (v->kind >= MT_FUSE_AMAX && !v->index) return true;
  }
  return false;
}

/* Is there anything to be computed? */
static mt_status check_size(const run *r, const mt_fuse_shape *shape, bool *any) {
  const bool rows = r->f->program.reduces && shape->ndim > 0;
  bool outer = true, row = false;
  for (int d = 0; d < shape->ndim - rows; d++) outer = outer && shape->size[d] > 0;
  for (int k = 0; k < r->f->nout; k++)
    row = row || (r->f->output[k] >= 0 && r->f->out[k].space == MT_FUSE_ROW);
  const bool full = !rows || shape->size[shape->ndim - 1] > 0;
  *any = r->f->program.nout > 0 && outer && (full || row);
  if (*any && !full && has_extreme(r->f)) {
    return mt_fail(MT_ESHAPE, "%s: amax and amin of rows without elements: shape %s",
                   r->name, mt_shape_text(shape->ndim, shape->size));
  }
  return MT_OK;
}

static mt_status run_cpu(run *r, mt_dtype compute, const mt_call *call) {
  mt_fused *const f = r->f;
  const mt_backend *const cpu = mt_backend_of(r->device);
  if (!f->backend) f->backend = cpu && cpu->table ? cpu->table("fuse") : NULL;
  if (!f->backend) return mt_fail(MT_EUNSUPPORTED, "%s: not on %s", r->name, "cpu");
  mt_fuse_code **const code = &f->code[compute == MT_F64];
  if (!*code) *code = f->backend->prepare(&f->program, compute);
  if (!*code) return mt_fail(MT_EMEMORY, "%s: out of memory", r->name);
  return f->backend->run(*code, call, &r->loops);
}

static mt_status launch(run *r, mt_dtype dtype) {
  const mt_dtype compute = dtype == MT_F64 ? MT_F64 : MT_F32;
  const bool cpu = r->device.kind == MT_CPU;
  mt_call call = {.op = MT_OP_COUNT,
                  .nin = r->f->nin,
                  .nout = r->f->program.nout,
                  .in = r->in_view,
                  .out = r->out_view,
                  .stream = cpu ? NULL : r->ctx->stream[r->device.index],
                  .device = r->device.index,
                  .num_threads = mt_get_num_threads(),
                  .interrupt = &r->ctx->interrupt};
  mt_guard_name(r->name);
  const mt_status status =
      cpu ? run_cpu(r, compute, &call)
          : mt_fused_run_gpu(r->f, r->name, compute, &call, &r->loops);
  if (status != MT_OK && !(cpu && status == MT_EINTERRUPT)) return status;
  return mt_kernel_status(r->ctx, r->device, r->name, status);
}

mt_status mt_fused_run(mt_context *ctx, const char *name, mt_fused *f,
                       const mt_fuse_shape *shape, mt_tensor *const *in, mt_dtype dtype,
                       mt_device device, mt_tensor **out) {
  if (__builtin_expect(ctx->watch != 0, 0))
    return mt_watched_fused(ctx, name, f, shape, in, dtype, device, out);
  run *const r = malloc(sizeof *r);
  if (!r) return mt_fail(MT_EMEMORY, "%s: out of memory", name);
  r->ctx = ctx, r->f = f, r->name = name, r->device = device, r->in = in;
  for (int k = 0; k < f->nout; k++) out[k] = NULL;
  for (int i = 0; i < f->nin; i++)
    r->in_view[i] = f->in[i].used && in[i] ? &in[i]->v : NULL;
  r->geometry.nargs = 0;
  r->geometry.ndim = shape->ndim;
  for (int d = 0; d < shape->ndim; d++) r->geometry.size[d] = shape->size[d];
  bool any = false;
  mt_status status = make_outputs(r, shape, dtype, out);
  for (int i = 0; i < f->nin; i++)
    add_argument(&r->geometry, r->in_view[i], f->in[i].dropped);
  if (status == MT_OK) status = check_size(r, shape, &any);
  if (status == MT_OK && any) {
    make_loops(&r->geometry, f->program.reduces, &r->loops);
    if (device.kind != MT_CPU) mt_note_streams(ctx, f->nin, in, f->nout, out);
    status = launch(r, dtype);
  }
  for (int k = 0; k < f->nout && status != MT_OK; k++) {
    mt_release(out[k]);
    out[k] = NULL;
  }
  free(r);
  return status;
}
