/* runtime/core/dispatch.c -- one call of one op: decide, convert, allocate, run, check.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/cuda_graph.h"
#include "runtime/core/guard.h"
#include "runtime/core/memory.h"
#include "runtime/core/plan.h"
#include "runtime/core/watch.h"

#define INLINE_INPUTS 8

/* Everything that one call holds; released by run_end. Views are large: those of the
** inputs are used where they are, and copied only to be changed (own_view). */
typedef struct run {
  mt_context *ctx;
  const mt_opinfo *op;
  const mt_backend *backend;
  mt_device device;
  int nin;
  const mt_view **in;    /* what the kernel sees; NULL: left out */
  mt_view *copy;         /* room for a changed view of each input */
  mt_tensor **temporary; /* one for each input that was converted or copied */
  int64_t *number;       /* room for a converted 0-dim value of each input */
  mt_tensor *target[MT_MAX_OUTPUTS]; /* the kernel writes here */
  mt_tensor *widened[MT_MAX_OUTPUTS];
  mt_view *out[MT_MAX_OUTPUTS]; /* of the targets, or of the widened ones */
  int nout;
  const mt_view *in_room[INLINE_INPUTS];
  mt_view copy_room[INLINE_INPUTS];
  mt_tensor *temporary_room[INLINE_INPUTS];
  int64_t number_room[INLINE_INPUTS];
  void *heap;
} run;

static mt_status run_begin(run *r, mt_context *ctx, const mt_opinfo *op, int nin,
                           mt_tensor *const *in) {
  r->ctx = ctx, r->op = op, r->nin = nin, r->nout = 0, r->heap = NULL;
  mt_guard_name(op->name);
  if (nin <= INLINE_INPUTS) {
    r->in = r->in_room, r->copy = r->copy_room;
    r->temporary = r->temporary_room, r->number = r->number_room;
  } else {
    const size_t each =
        sizeof *r->in + sizeof *r->copy + sizeof *r->temporary + sizeof *r->number;
    r->heap = malloc(each * (size_t)nin);
    if (!r->heap)
      return r->nin = 0, mt_fail(MT_EMEMORY, "out of memory for %d inputs", nin);
    r->copy = r->heap;
    r->in = (const mt_view **)(r->copy + nin);
    r->temporary = (mt_tensor **)(r->in + nin);
    r->number = (int64_t *)(r->temporary + nin);
  }
  for (int i = 0; i < nin; i++) {
    r->temporary[i] = NULL;
    r->in[i] = in[i] ? &in[i]->v : NULL;
  }
  for (int i = 0; i < MT_MAX_OUTPUTS; i++)
    r->target[i] = r->widened[i] = NULL, r->out[i] = NULL;
  return MT_OK;
}

static void run_end(run *r) {
  for (int i = 0; i < r->nin; i++) mt_release(r->temporary[i]);
  for (int i = 0; i < r->nout; i++) mt_release(r->target[i]), mt_release(r->widened[i]);
  free(r->heap);
}

/* The view of input i, to be changed. */
static mt_view *own_view(run *r, int i) {
  mt_view *v = &r->copy[i];
  if (r->in[i] != v) mt_view_copy(v, r->in[i]), r->in[i] = v;
  return v;
}

/* Let the kernel see t, a new tensor with the values of input i, instead. */
static void replace_input(run *r, int i, mt_tensor *t) {
  mt_release(r->temporary[i]);
  r->temporary[i] = t;
  r->in[i] = &t->v;
}

/* Give input i another dtype. A number or other 0-dim host value is converted in place,
** without a tensor. */
static mt_status convert_input(run *r, int i, mt_dtype dtype) {
  const mt_view *from = r->in[i];
  if (from->dtype == dtype) return MT_OK;
  if (from->host) {
    mt_view *v = own_view(r, i);
    if (MT_IS_FLOAT(v->dtype))
      mt_store_f64(dtype, &r->number[i], mt_load_f64(v->dtype, v->data));
    else
      mt_store_i64(dtype, &r->number[i], mt_load_i64(v->dtype, v->data));
    v->data = (char *)&r->number[i];
    v->dtype = dtype;
    return MT_OK;
  }
  mt_tensor *t;
  MT_TRY(mt_empty(r->ctx, dtype, r->device, from->ndim, from->shape, &t));
  const mt_status status = mt_copy_view(r->ctx, r->device, from, &t->v);
  replace_input(r, i, t);
  return status;
}

static mt_status contiguous_input(run *r, int i) {
  const mt_view *v = r->in[i];
  if (mt_is_contiguous(v)) return MT_OK;
  mt_tensor *t;
  MT_TRY(mt_empty(r->ctx, v->dtype, r->device, v->ndim, v->shape, &t));
  const mt_status status = mt_copy_view(r->ctx, r->device, v, &t->v);
  replace_input(r, i, t);
  return status;
}

static void expand_input(run *r, int i, int ndim, const int64_t *shape) {
  const mt_view *v = r->in[i];
  if (v->ndim == ndim &&
      (ndim == 0 || !memcmp(v->shape, shape, (size_t)ndim * sizeof *shape)))
    return;
  mt_view expanded;
  mt_view_expand(v, ndim, shape, &expanded);
  mt_view_copy(own_view(r, i), &expanded);
}

static bool is_elementwise(const mt_opinfo *op) { return op->kind <= MT_KIND_TERNARY; }

static mt_status result_shape(run *r, int *ndim, int64_t *shape) {
  *ndim = 0;
  for (int i = 0; i < r->nin; i++) {
    const mt_status status = mt_broadcast(ndim, shape, r->in[i]);
    if (status != MT_OK) return mt_fail_arg(status, i + 1, "%s", mt_last_error()->text);
  }
  return MT_OK;
}

/* Presets count negative dims from the end, as Lua does. */
static void normalise_dims(const mt_opinfo *op, const mt_view *x, mt_attr *attr) {
  for (int k = 0; k < op->nparams; k++) {
    const mt_param *param = &op->param[k];
    mt_attr *a = &attr[param->slot];
    if (param->type == MT_PARAM_DIM && a->n > 0 && a->i[0] < 0)
      a->i[0] += x->ndim > 0 ? x->ndim : 1;
  }
}

mt_fault *mt_fault_word(mt_context *ctx, mt_device device, mt_fault *local) {
  local->set = 0;
  if (device.kind == MT_CPU) return local;
  const mt_device_api *api = mt_backend_of(device)->device;
  if (api->open(device.index) != MT_OK) return NULL;
  mt_fault **word = &ctx->fault[device.index];
  if (!*word) {
    *word = api->host_alloc(sizeof **word);
    if (*word) memset(*word, 0, sizeof **word);
  }
  return *word;
}

/* A kernel that does not take half types works in float32. */
static mt_status widen(run *r, const mt_entry *entry, mt_dtype dtype) {
  if (!(MT_HALF_MASK >> dtype & 1u) || !(entry->dtypes & MT_BIT(MT_F32)))
    return mt_fail(MT_EUNSUPPORTED, "%s: no kernel on %s for %s", r->op->name,
                   r->backend->name, mt_dtype_name(dtype));
  for (int i = 0; i < r->nin; i++)
    if (r->in[i] && (MT_HALF_MASK >> r->in[i]->dtype & 1u))
      MT_TRY(convert_input(r, i, MT_F32));
  for (int i = 0; i < r->nout; i++)
    if (r->out[i] && (MT_HALF_MASK >> r->out[i]->dtype & 1u)) {
      MT_TRY(mt_empty(r->ctx, MT_F32, r->device, r->out[i]->ndim, r->out[i]->shape,
                      &r->widened[i]));
      r->out[i] = &r->widened[i]->v;
    }
  return MT_OK;
}

/* What a captured call adds to the position that it draws from. */
static const mt_replay *replay_of(const run *r, const mt_attr *attr) {
  if (r->op->kind == MT_KIND_RANDOM) return mt_graph_replay_values(r->ctx);
  if (r->op->op != MT_OP__dropout_backward) return NULL;
  return mt_graph_replay_of(r->ctx, (uint64_t)attr[1].i[0], (uint64_t)attr[2].i[0]);
}

/* Run entry over r's views: contiguity, half types by way of float32, scratch, faults.
 */
static mt_status execute(run *r, const mt_entry *entry, const mt_attr *attr,
                         uint64_t position) {
  const mt_dtype first = r->nin > 0 && r->in[0] ? r->in[0]->dtype : r->out[0]->dtype;
  mt_dtype main_dtype = first;
  if (r->op->kept & 1u) { /* where(cond, ...): dtypes of the rest */
    for (int i = r->nin - 1; i > 0; i--)
      if (r->in[i]) main_dtype = r->in[i]->dtype;
  }
  if (!(entry->dtypes >> main_dtype & 1u)) MT_TRY(widen(r, entry, main_dtype));
  if (entry->contiguous)
    for (int i = 0; i < r->nin && i < 31; i++)
      if (r->in[i] && (entry->contiguous >> i & 1u)) MT_TRY(contiguous_input(r, i));
  const bool host = r->device.kind == MT_CPU;
  mt_fault local, *fault = &local;
  local.set = 0;
  if (!host && !(fault = mt_fault_word(r->ctx, r->device, &local)))
    return mt_fail(MT_EDEVICE, "%s", r->backend->device->error_text());
  void *stream = host ? NULL : r->ctx->stream[r->device.index];
  mt_call call = {.op = (int)r->op->op,
                  .nin = r->nin,
                  .nout = r->nout,
                  .in = r->in,
                  .out = r->out,
                  .attr = attr,
                  .stream = stream,
                  .device = r->device.index,
                  .seed = r->ctx->seed,
                  .position = position,
                  .fault = fault,
                  .num_threads = mt_get_num_threads(),
                  .interrupt = &r->ctx->interrupt,
                  .precision = r->ctx->precision,
                  .deterministic = r->ctx->deterministic,
                  .cudnn = r->ctx->cudnn,
                  .replay = r->ctx->graph ? replay_of(r, attr) : NULL};
  const size_t scratch = entry->scratch ? entry->scratch(&call) : 0;
  if (scratch > 0) MT_TRY(mt_scratch_alloc(r->ctx, r->device, scratch, &call));
  mt_status status = entry->run(&call);
  if (!host || status != MT_OK ||
      __atomic_load_n(&r->ctx->interrupt.stop, __ATOMIC_RELAXED))
    status = mt_kernel_status(r->ctx, r->device, r->op->name, status);
  if (call.scratch) mt_block_free(r->device, call.scratch, call.scratch_bytes);
  if (status == MT_OK && local.set) status = mt_fault_error(&local, r->in);
  for (int i = 0; i < r->nout && status == MT_OK; i++)
    if (r->widened[i])
      status = mt_copy_view(r->ctx, r->device, &r->widened[i]->v, &r->target[i]->v);
  return status;
}

/* May the kernel write straight into x's memory while it reads its inputs? */
static bool writes_safely(const run *r, const mt_tensor *x, mt_tensor *const *in) {
  const mt_op op = r->op->op;
  if (!is_elementwise(r->op) && r->op->kind != MT_KIND_RANDOM && op != MT_OP_fill &&
      op != MT_OP__arange && op != MT_OP__linspace)
    return false;
  for (int i = 0; i < r->nin; i++)
    if (in[i] && mt_may_overlap(in[i], x) && !r->temporary[i] &&
        !(in[i]->offset == x->offset && in[i]->v.dtype == x->v.dtype &&
          mt_same_shape(&in[i]->v, &x->v) &&
          !memcmp(in[i]->v.stride, x->v.stride,
                  (size_t)x->v.ndim * sizeof *x->v.stride)))
      return false;
  return true;
}

static mt_status check_target(const mt_tensor *x, const mt_view *result,
                              mt_dtype dtype) {
  if (!mt_same_shape(&x->v, result))
    return mt_fail_arg(MT_ESHAPE, 1,
                       "in place: shape %s cannot hold a result of shape %s",
                       mt_view_text(&x->v), mt_view_text(result));
  if (!mt_plan_may_store(dtype, x->v.dtype))
    return mt_fail_arg(MT_EDTYPE, 1,
                       "in place: a tensor of %s cannot hold a result of %s",
                       mt_dtype_name(x->v.dtype), mt_dtype_name(dtype));
  if (mt_overlaps_itself(&x->v))
    return mt_fail_arg(MT_EARG, 1,
                       "in place: elements of shape %s share memory, as those of an "
                       "expanded tensor do; clone it first",
                       mt_view_text(&x->v));
  return MT_OK;
}

/* Give the kernel something to write to for result i, of result's shape and of dtype: x
** itself, or a new tensor. */
static mt_status prepare_output(run *r, int i, const mt_view *result, mt_dtype dtype,
                                bool channels_last, mt_tensor *x,
                                mt_tensor *const *in) {
  r->nout = i + 1;
  if (x) {
    MT_TRY(check_target(x, result, dtype));
    if (x->v.dtype == dtype && writes_safely(r, x, in)) r->target[i] = mt_retain(x);
  }
  if (!r->target[i])
    MT_TRY(
        mt_plan_result(r->ctx, dtype, r->device, result, channels_last, &r->target[i]));
  r->out[i] = &r->target[i]->v;
  return MT_OK;
}

/* Hand the results over: new ones to the caller, others into the tensors given. */
static mt_status deliver(run *r, mt_tensor **out) {
  for (int i = 0; i < r->nout; i++) {
    if (!out[i]) {
      out[i] = r->target[i];
      r->target[i] = NULL;
    } else {
      if (out[i] != r->target[i])
        MT_TRY(mt_copy_view(r->ctx, r->device, &r->target[i]->v, &out[i]->v));
      out[i]->storage->version++;
    }
  }
  return MT_OK;
}

/* The first input of the result's shape decides (plan.h). */
static bool follows_channels_last(const run *r, int ndim, const int64_t *shape) {
  if (ndim != 4 || r->device.kind == MT_CPU) return false;
  for (int i = 0; i < r->nin; i++) {
    const mt_view *v = r->in[i];
    if (v && v->ndim == 4 && !memcmp(v->shape, shape, 4 * sizeof *shape))
      return mt_is_channels_last(v);
  }
  return false;
}

static bool any_channels_last(const run *r) {
  for (int i = 0; i < r->nin; i++)
    if (r->in[i] && mt_is_channels_last(r->in[i])) return true;
  return false;
}

static mt_status elementwise(run *r, mt_tensor *const *in, const mt_attr *attr,
                             mt_tensor **out) {
  mt_view result;
  mt_dtype dtype;
  MT_TRY(mt_plan_dtype(r->ctx, r->op, r->nin, in, &dtype));
  for (int i = 0; i < r->nin; i++) MT_TRY(convert_input(r, i, dtype));
  MT_TRY(result_shape(r, &result.ndim, result.shape));
  const bool channels_last = follows_channels_last(r, result.ndim, result.shape);
  for (int i = 0; i < r->nin; i++) expand_input(r, i, result.ndim, result.shape);
  const bool boolean =
      r->op->kind == MT_KIND_PREDICATE || r->op->kind == MT_KIND_COMPARE;
  MT_TRY(prepare_output(r, 0, &result, boolean ? MT_BOOL : dtype, channels_last, out[0],
                        in));
  const mt_entry *entry = r->backend->forward[r->op->op];
  if (!entry)
    return mt_fail(MT_EUNSUPPORTED, "%s: no kernel on %s", r->op->name,
                   r->backend->name);
  MT_TRY(execute(r, entry, attr, 0));
  return deliver(r, out);
}

/* A plan is large: only what rules read is set. */
static mt_status make_plan(mt_plan *plan, mt_context *ctx, const mt_opinfo *op, int nin,
                           const mt_view *const *in, mt_attr *attr, mt_dtype dtype) {
  plan->op = op;
  plan->ctx = ctx;
  plan->nin = nin;
  plan->in = in;
  plan->attr = attr;
  plan->dtype = dtype;
  plan->keep_dtype = op->kept;
  plan->unwanted = 0;
  plan->broadcast = false;
  plan->nout = op->nout;
  plan->offset = 0;
  for (int i = 0; i < plan->nout; i++) {
    plan->out[i].dtype = dtype;
    plan->out[i].ndim = 0;
  }
  if (op->counts_back && in[0]) normalise_dims(op, in[0], attr);
  return op->rule(plan);
}

/* A view needs neither a device nor a kernel. */
static mt_status view(mt_context *ctx, const mt_opinfo *op, mt_tensor *x, mt_attr *attr,
                      mt_tensor **out) {
  mt_plan plan;
  const mt_view *const in = &x->v;
  MT_TRY(make_plan(&plan, ctx, op, 1, &in, attr, x->v.dtype));
  const int64_t from = op->op == MT_OP__as_strided ? 0 : x->offset;
  return mt_alias(x, plan.out[0].ndim, plan.out[0].shape, plan.out[0].stride,
                  from + plan.offset, out);
}

/* Numbers that stand in the result: an integer dtype has to hold them. */
static mt_status check_numbers(int nin, mt_tensor *const *in, mt_dtype dtype) {
  for (int i = 0; i < nin; i++) MT_TRY(mt_check_number(in[i], dtype, i + 1));
  return MT_OK;
}

static mt_status by_rule(run *r, mt_tensor *const *in, mt_attr *attr, mt_tensor **out,
                         uint64_t *position) {
  mt_plan plan;
  mt_dtype dtype;
  MT_TRY(mt_plan_dtype(r->ctx, r->op, r->nin, in, &dtype));
  MT_TRY(make_plan(&plan, r->ctx, r->op, r->nin, r->in, attr, dtype));
  if (r->op->op == MT_OP_where) MT_TRY(check_numbers(r->nin, in, dtype));
  const mt_entry *entry = r->backend->forward[r->op->op];
  if (!entry)
    return mt_fail(MT_EUNSUPPORTED, "%s: no kernel on %s", r->op->name,
                   r->backend->name);
  for (int i = 0; i < r->nin; i++)
    if (r->in[i] && !(i < 32 && (plan.keep_dtype >> i & 1u)))
      MT_TRY(convert_input(r, i, plan.dtype));
  const bool channels_last =
      entry->contiguous & MT_KEEPS_CHANNELS_LAST && any_channels_last(r);
  for (int i = 0; i < plan.nout; i++) {
    if (plan.unwanted >> i & 1u) continue;
    MT_TRY(prepare_output(r, i, &plan.out[i], plan.out[i].dtype, channels_last, out[i],
                          in));
  }
  for (int i = 0; plan.broadcast && i < r->nin; i++)
    expand_input(r, i, plan.out[0].ndim, plan.out[0].shape);
  uint64_t drawn = 0;
  if (r->op->kind == MT_KIND_RANDOM) drawn = r->ctx->position++;
  if (position) *position = drawn;
  MT_TRY(execute(r, entry, attr, drawn));
  return deliver(r, out);
}

mt_status mt_dispatch(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                      mt_attr *attr, mt_tensor **out, uint64_t *position) {
  const mt_opinfo *info = mt_op_info(op);
  if (__builtin_expect(ctx->watch != 0, 0))
    return mt_watched_dispatch(ctx, info, nin, in, attr, out, position);
  mt_attr preset[MT_MAX_ATTRS];
  run r;
  if (!attr && info->nattr > 0) mt_op_presets(op, attr = preset);
  if (op == MT_OP__copy && nin == 2 && out[0]) return mt_copy(ctx, out[0], in[1]);
  if (info->kind == MT_KIND_COMPOSITE)
    return mt_fail(MT_EINTERNAL, "%s: a composite op was dispatched", info->name);
  mt_status status;
  if (is_elementwise(info) && mt_uniform_run(ctx, info, nin, in, attr, out, &status))
    return status;
  if (info->kind == MT_KIND_VIEW) return view(ctx, info, in[0], attr, out);
  MT_TRY(run_begin(&r, ctx, info, nin, in));
  status = mt_plan_device(info, nin, in, &r.device);
  if (status == MT_OK && !(r.backend = mt_backend_of(r.device))) status = MT_EDEVICE;
  if (r.device.kind != MT_CPU) mt_note_streams(ctx, nin, in, info->nout, out);
  if (status == MT_OK)
    status = is_elementwise(info) ? elementwise(&r, in, attr, out)
                                  : by_rule(&r, in, attr, out, position);
  run_end(&r);
  return status;
}

mt_status mt_dispatch_gradient(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                               const mt_attr *attr, const bool *needs, mt_tensor **dx) {
  const mt_opinfo *info = mt_op_info(op);
  mt_attr preset[MT_MAX_ATTRS];
  run r;
  if (!attr && info->nattr > 0) {
    mt_op_presets(op, preset);
    attr = preset;
  }
  const mt_view *g = &in[0]->v;
  for (int i = 0; i < info->nin; i++) dx[i] = NULL;
  if (__builtin_expect(ctx->watch != 0, 0))
    return mt_watched_gradient(ctx, info, nin, in, attr, needs, dx);
  MT_TRY(run_begin(&r, ctx, info, nin, in));
  r.device = mt_device_of(in[0]);
  r.backend = mt_backend_of(r.device);
  mt_status status = r.backend ? MT_OK : MT_EDEVICE;
  if (r.device.kind != MT_CPU) mt_note_streams(ctx, nin, in, 0, NULL);
  const bool channels_last = r.device.kind != MT_CPU && mt_is_channels_last(g);
  for (int i = 1; i < nin && status == MT_OK; i++) {
    if (!in[i]) continue;
    status = convert_input(&r, i, g->dtype);
    if (status == MT_OK) expand_input(&r, i, g->ndim, g->shape);
  }
  for (int i = 0; i < info->nin && status == MT_OK; i++) {
    r.nout = i + 1;
    if (!needs[i]) continue;
    status = mt_plan_result(ctx, g->dtype, r.device, g, channels_last, &r.target[i]);
    if (status != MT_OK) break;
    r.out[i] = &r.target[i]->v;
  }
  const mt_entry *entry = r.backend ? r.backend->gradient[op] : NULL;
  if (status == MT_OK && !entry)
    status = mt_fail(MT_EUNSUPPORTED, "%s: no gradient kernel", info->name);
  if (status == MT_OK) status = execute(&r, entry, attr, 0);
  for (int i = 0; i < info->nin && status == MT_OK; i++)
    if (needs[i]) dx[i] = r.target[i], r.target[i] = NULL;
  run_end(&r);
  return status;
}
