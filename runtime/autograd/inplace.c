/* runtime/autograd/inplace.c -- ops that overwrite their first input, and views: a
** change through one name of some elements must reach the history of all the others.
**
** A view knows its base, the tensor at the root of its chain of views. An op in place
** on a view makes two nodes: the op's own, whose output is the view's new value, and a
** scatter node that becomes the base's history: the base before, but the view's region.
** Each replacement of a base's history counts in `rewrites`; a view that has seen fewer
** is stale, and takes its history from the base anew when it is next asked for. */
#include <string.h>
#include "runtime/autograd/geometry.h"
#include "runtime/autograd/graph.h"
#include "runtime/core/plan.h"

/* ---- views ---- */

mt_status mt_note_view(mt_tensor *y, mt_tensor *x, bool recording) {
  mt_autograd *const p = mt_part(y);
  if (!p) return MT_EMEMORY;
  const mt_autograd *const of = x->autograd;
  mt_tensor *const base = of && of->base ? of->base : x;
  p->base = mt_retain(base);
  p->seen = base->autograd ? base->autograd->rewrites : 0;
  p->unrecorded = !recording || (of && of->unrecorded);
  return MT_OK;
}

/* A node that takes t, by its strides, out of its base. */
static mt_status take_node(mt_tensor *t, mt_edge base, mt_node **node) {
  mt_tensor *const in = t->autograd->base;
  MT_TRY(mt_node_new(1, &in, 1, &t, 3, node));
  mt_node *const n = *node;
  n->op = mt_op_info(MT_OP__as_strided);
  n->rule = mt_op_rule(MT_OP__as_strided);
  n->name = n->op->name;
  n->attr[0] = mt_attr_list(t->v.ndim, t->v.shape);
  n->attr[1] = mt_attr_list(t->v.ndim, t->v.stride);
  n->attr[2] = mt_attr_i(t->offset);
  n->edge[0] = (mt_edge){mt_node_retain(base.node), base.output};
  mt_node_stamp(n);
  return MT_OK;
}

mt_status mt_view_refresh(mt_tensor *t) {
  mt_autograd *const p = t->autograd;
  mt_edge base;
  mt_node *n = NULL;
  MT_TRY(mt_edge_of(p->base, &base));
  mt_status status = base.node ? take_node(t, base, &n) : MT_OK;
  if (status == MT_OK) status = mt_set_history(t, n, 0);
  if (status == MT_OK) p->seen = p->base->autograd->rewrites;
  mt_node_release(n);
  mt_node_release(base.node);
  return status;
}

/* ---- the scatter node ---- */

static mt_status scatter_run(mt_grad_call *c) {
  const mt_meta *const base = &c->in_meta[0], *const view = &c->in_meta[1];
  if (c->needs[0]) {
    const mt_attr zero = mt_attr_f(0);
    mt_placed p = mt_place(c->calc, c->g[0], base, view, true);
    mt_tensor *const region = mt_region(c->calc, &p, view);
    mt_cinplace(c->calc, MT_OP_fill, 1, &region, &zero);
    c->dx[0] = p.whole;
  }
  if (c->needs[1]) {
    mt_placed p = mt_place(c->calc, c->g[0], base, view, false);
    c->dx[1] = mt_region(c->calc, &p, view);
  }
  return c->calc->status;
}

static const mt_grad_rule scatter_rule = {0, 0, scatter_run};

/* x, a view, has become an output of n: rewrite its base's history. */
static mt_status record_scatter(mt_tensor *x, mt_node *n) {
  mt_tensor *const base = x->autograd->base;
  mt_node *s;
  MT_TRY(mt_node_new(2, (mt_tensor *[]){base, x}, 1, &base, 0, &s));
  s->op = n->op;
  s->rule = &scatter_rule;
  s->name = n->name;
  mt_status status = mt_edge_of(base, &s->edge[0]);
  s->edge[1] = (mt_edge){mt_node_retain(n), x->autograd->edge.output};
  mt_node_stamp(s);
  if (status == MT_OK) status = mt_set_history(base, s, 0);
  if (status == MT_OK) x->autograd->seen = ++base->autograd->rewrites;
  mt_node_release(s);
  return status;
}

/* ---- running in place ---- */

/* Ops whose result says nothing of what their first input held. */
static bool overwrites(const mt_opinfo *op) {
  switch (op->op) {
  case MT_OP__copy:
  case MT_OP_fill:
  case MT_OP__arange:
  case MT_OP__linspace: return true;
  default: return op->kind == MT_KIND_RANDOM && op->op != MT_OP__dropout;
  }
}

mt_status mt_check_inplace(mt_tensor *x) {
  const mt_autograd *const p = x->autograd;
  if (!p) return MT_OK;
  if (mt_requires_grad(x) && mt_is_leaf(x)) {
    return mt_fail_arg(MT_EGRAD, 1,
                       "a leaf that requires grad cannot be changed in place "
                       "while recording is on");
  }
  if (!p->base) return MT_OK;
  if (mt_requires_grad(p->base) && mt_is_leaf(p->base)) {
    return mt_fail_arg(MT_EGRAD, 1,
                       "a view of a leaf that requires grad cannot be changed "
                       "in place while recording is on");
  }
  if (p->unrecorded) {
    return mt_fail_arg(MT_EGRAD, 1,
                       "a view made while recording was off cannot be changed "
                       "in place while it is on; make the view again");
  }
  return MT_OK;
}

/* Saved inputs whose memory the op is about to overwrite are kept as copies. */
static mt_status rescue_saved(mt_context *ctx, mt_node *n, const mt_tensor *x) {
  for (int i = 0; i < n->nin; i++) {
    mt_saved *const s = &n->in[i];
    if (!s->tensor || s->tensor->storage != x->storage) continue;
    mt_tensor *copy = NULL;
    MT_TRY(mt_dispatch(ctx, MT_OP_clone, 1, &s->tensor, NULL, &copy, NULL));
    mt_release(s->tensor);
    s->tensor = copy;
    s->version = copy->storage->version;
  }
  return MT_OK;
}

mt_status mt_history_rewritten(mt_tensor *x) {
  if (x->autograd->base) return record_scatter(x, x->autograd->edge.node);
  x->autograd->rewrites++;
  return MT_OK;
}

static mt_status set_new_history(mt_tensor *x, mt_node *n) {
  MT_TRY(mt_record_outputs(n, &x));
  MT_TRY(mt_set_history(x, n, 0));
  return mt_history_rewritten(x);
}

static mt_status run_direct(mt_context *ctx, const mt_opinfo *op, int nin,
                            mt_tensor *const *in, mt_attr *attr, bool recording) {
  mt_tensor *x = in[0];
  if (!recording) return mt_dispatch(ctx, op->op, nin, in, attr, &x, NULL);
  const bool view = x->autograd && x->autograd->base;
  const unsigned skip = view && overwrites(op) ? 1u : 0u;
  mt_node *n;
  MT_TRY(mt_record_inputs(op, nin, in, 1, &x, op->nattr, attr, skip, &n));
  n->seed = ctx->seed;
  n->composite = ctx->composite;
  mt_status status = rescue_saved(ctx, n, x);
  if (status == MT_OK)
    status = mt_dispatch(ctx, op->op, nin, in, attr, &x, &n->position);
  mt_attrs_copy(n->attr, attr, op->nattr);
  if (status == MT_OK) status = set_new_history(x, n);
  mt_node_release(n);
  return status;
}

static bool is_running(const mt_opinfo *op) {
  return op->op == MT_OP_cumsum || op->op == MT_OP_cumprod;
}

/* Do results take x's dtype, whatever theirs is? Truth values do, 0 and 1, and running
** sums and products of integers, which are int64. Others do within their kind. */
static bool converts(const mt_opinfo *op, const mt_tensor *x) {
  if (op->kind == MT_KIND_COMPARE || op->kind == MT_KIND_PREDICATE) return true;
  return is_running(op) && MT_IS_INT(x->v.dtype);
}

/* Has the op's kernel to read x and write elsewhere? A GPU's running sums and products,
** whose blocks run in any order. */
static bool needs_room(const mt_opinfo *op, const mt_tensor *x) {
  return is_running(op) && mt_device_of(x).kind != MT_CPU;
}

static mt_status check_result(const mt_opinfo *op, const mt_tensor *x,
                              const mt_tensor *y) {
  const bool fits = mt_plan_may_store(y->v.dtype, x->v.dtype) || converts(op, x);
  if (mt_same_shape(&x->v, &y->v) && fits) return MT_OK;
  return mt_fail_arg(MT_EGRAD, 1,
                     "the result of shape %s, %s does not fit in place into "
                     "shape %s, %s",
                     mt_view_text(&y->v), mt_dtype_name(y->v.dtype),
                     mt_view_text(&x->v), mt_dtype_name(x->v.dtype));
}

/* The same for n and the nodes before it down to `since`, which the parts of an op have
** made: few. */
static mt_status rescue_of_parts(mt_context *ctx, mt_node *n, uint64_t since,
                                 const mt_tensor *x) {
  if (!n || n->sequence <= since) return MT_OK;
  MT_TRY(rescue_saved(ctx, n, x));
  for (int i = 0; i < n->nin; i++)
    MT_TRY(rescue_of_parts(ctx, n->edge[i].node, since, x));
  return MT_OK;
}

/* Any other op: compute, then copy, which converts. */
static mt_status run_and_copy(mt_context *ctx, const mt_opinfo *op, int nin,
                              mt_tensor *const *in, const mt_attr *attr,
                              bool recording) {
  mt_tensor *out[MT_MAX_OUTPUTS] = {NULL};
  int n = 0;
  const uint64_t since = mt_node_last();
  MT_TRY(mt_apply(ctx, op->op, nin, in, attr, out, &n));
  mt_status status = check_result(op, in[0], out[0]);
  if (status == MT_OK && recording && out[0] != in[0] && out[0]->autograd)
    status = rescue_of_parts(ctx, out[0]->autograd->edge.node, since, in[0]);
  if (status == MT_OK && out[0] != in[0]) {
    status =
        mt_apply_inplace(ctx, MT_OP__copy, 2, (mt_tensor *[]){in[0], out[0]}, NULL);
  }
  for (int i = 0; i < n; i++) mt_release(out[i]);
  return status;
}

/* May x stand for another view of its elements from now on? What leads gradients to it
** knows its shape. */
static mt_status check_reshaped(const mt_context *ctx, const mt_tensor *x) {
  const mt_autograd *const p = x->autograd;
  if (x->gradient) {
    return mt_fail_arg(MT_EGRAD, 1, "a gradient keeps its tensor's shape");
  }
  if (!p) return MT_OK;
  if (p->accumulate || (mt_requires_grad(x) && mt_is_leaf(x))) {
    return mt_fail_arg(MT_EGRAD, 1, "a leaf that requires grad keeps its shape");
  }
  if (p->grad) {
    return mt_fail_arg(MT_EGRAD, 1, "a tensor that has a gradient keeps its shape");
  }
  if (mt_requires_grad(x) && !ctx->grad_enabled) {
    return mt_fail_arg(
        MT_EGRAD, 1, "a tensor with a history keeps its shape while recording is off");
  }
  return MT_OK;
}

/* x itself becomes the view of it that op makes; its elements stay where they are. */
static mt_status run_view(mt_context *ctx, mt_op op, mt_tensor *x,
                          const mt_attr *attr) {
  mt_tensor *y = NULL;
  MT_TRY(check_reshaped(ctx, x));
  MT_TRY(mt_apply(ctx, op, 1, &x, attr, &y, NULL));
  const mt_edge made = y->autograd->edge;
  mt_status status = made.node ? mt_set_history(x, made.node, made.output) : MT_OK;
  if (status == MT_OK) {
    mt_view_copy(&x->v, &y->v);
    x->offset = y->offset;
  }
  mt_release(y);
  return status;
}

mt_status mt_apply_inplace(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                           const mt_attr *attr) {
  const mt_opinfo *const info = mt_op_info(op);
  mt_tensor *const x = in[0];
  if (info->kind == MT_KIND_VIEW) return run_view(ctx, op, x, attr);
  const mt_autograd *const p = x->autograd;
  const bool recording =
      ctx->grad_enabled && MT_IS_FLOAT(x->v.dtype) &&
      (mt_any_requires_grad(nin, in) || (p && p->base && mt_requires_grad(p->base)));
  if (recording) MT_TRY(mt_check_inplace(x));
  mt_attr all[MT_MAX_ATTRS];
  if (attr) {
    mt_attrs_copy(all, attr, info->nattr);
  } else {
    mt_op_presets(op, all);
  }
  if (info->kind == MT_KIND_COMPOSITE || info->nout > 1 || converts(info, x) ||
      needs_room(info, x) || mt_takes_bools(info, nin, in)) {
    return run_and_copy(ctx, info, nin, in, all, recording);
  }
  return run_direct(ctx, info, nin, in, all, recording);
}

mt_status mt_check_written(const mt_context *ctx, const mt_tensor *t) {
  const mt_autograd *const p = t->autograd;
  if (!ctx->grad_enabled || !p) return MT_OK;
  if (!mt_requires_grad(t) && !(p->base && mt_requires_grad(p->base))) return MT_OK;
  return mt_fail(MT_EGRAD,
                 "it requires grad, and autograd cannot record what is written there: "
                 "write under mt.no_grad, or in the forward of an mt.Function");
}
