/* runtime/autograd/apply.c -- mt_apply: runs an op and records it where a gradient may
** be asked for later. */
#include <string.h>
#include "runtime/autograd/graph.h"
#include "runtime/autograd/parts.h"

bool mt_any_requires_grad(int nin, mt_tensor *const *in) {
  for (int i = 0; i < nin; i++) {
    if (in[i] && mt_requires_grad(in[i])) return true;
  }
  return false;
}

/* ---- recording ---- */

/* Which inputs and outputs (bits) the rule needs for the inputs that want a gradient. */
static void saves(const mt_node *n, unsigned *save_in, unsigned *save_out) {
  const mt_grad_rule *const rule = mt_op_rule(n->op->op);
  if (n->op->op == MT_OP_linear) {
    mt_linear_saves(n->attr, save_in, save_out);
    return;
  }
  if (n->op->op == MT_OP_conv2d) {
    mt_conv2d_saves(n->attr, save_in, save_out);
    return;
  }
  if (rule) {
    *save_in = rule->save_in;
    *save_out = rule->save_out;
    return;
  }
  bool needs[3];
  for (int i = 0; i < 3; i++) needs[i] = i < n->nin && n->edge[i].node;
  mt_formula_saves(n->op->op, needs, save_in, save_out);
}

static mt_status save_inputs(mt_node *n, mt_tensor *const *in) {
  unsigned save_in, save_out;
  saves(n, &save_in, &save_out);
  for (int i = 0; i < n->nin && i < 32; i++) {
    if (((save_in >> i) & 1u) && in[i]) MT_TRY(mt_save(&n->in[i], in[i], n, -1));
  }
  return MT_OK;
}

mt_status mt_record_inputs(const mt_opinfo *op, int nin, mt_tensor *const *in, int nout,
                           mt_tensor *const *out, int nattr, const mt_attr *attr,
                           unsigned skip, mt_node **node) {
  MT_TRY(mt_node_new(nin, in, nout, out, nattr, node));
  mt_node *const n = *node;
  n->op = op;
  n->rule = mt_op_rule(op->op);
  n->name = op->name;
  mt_attrs_copy(n->attr, attr, nattr);
  mt_status status = MT_OK;
  for (int i = 0; i < nin && status == MT_OK; i++) {
    const bool skipped = i < 32 && ((skip >> i) & 1u);
    if (in[i] && !skipped) status = mt_edge_of(in[i], &n->edge[i]);
  }
  if (status == MT_OK) status = save_inputs(n, in);
  mt_node_stamp(n);
  if (status != MT_OK) {
    mt_node_release(n);
    *node = NULL;
  }
  return status;
}

mt_status mt_record_outputs(mt_node *n, mt_tensor *const *out) {
  unsigned save_in, save_out;
  saves(n, &save_in, &save_out);
  for (int i = 0; i < n->nout; i++) {
    if (((save_out >> i) & 1u) && out[i]) MT_TRY(mt_save(&n->out[i], out[i], n, i));
  }
  return MT_OK;
}

static mt_status record(mt_context *ctx, const mt_opinfo *op, int nin,
                        mt_tensor *const *in, const mt_attr *attr, uint64_t position,
                        mt_tensor *const *out) {
  mt_node *n;
  MT_TRY(mt_record_inputs(op, nin, in, op->nout, out, op->nattr, attr, 0, &n));
  n->seed = ctx->seed;
  n->position = position;
  n->scope = ctx->scope;
  n->composite = ctx->composite;
  ctx->gc_debt += n->bytes;
  mt_status status = mt_record_outputs(n, out);
  for (int i = 0; i < op->nout && status == MT_OK; i++) {
    if (out[i] && MT_IS_FLOAT(out[i]->v.dtype)) status = mt_set_history(out[i], n, i);
  }
  mt_node_release(n); /* the outputs own it now */
  return status;
}

/* ---- running ---- */

static mt_status build(mt_context *ctx, const mt_opinfo *op, int nin,
                       mt_tensor *const *in, mt_attr *attr, mt_tensor **out,
                       int *nout) {
  mt_calc calc;
  mt_calc_begin(&calc, ctx);
  mt_build_call call = {.calc = &calc,
                        .op = op,
                        .nin = nin,
                        .in = in,
                        .attr = attr,
                        .out = out,
                        .nout = op->nout};
  for (int i = 0; i < MT_MAX_OUTPUTS; i++) out[i] = NULL;
  const char *const outer = ctx->composite;
  if (!outer) ctx->composite = op->name + (op->name[0] == '_');
  const mt_status status = mt_op_build(op->op)(&call);
  ctx->composite = outer;
  if (calc.status == MT_OK) calc.status = status;
  *nout = call.nout;
  return mt_calc_end(&calc, call.nout, out);
}

bool mt_takes_bools(const mt_opinfo *op, int nin, mt_tensor *const *in) {
  if (op->for_bool == MT_BOOL) return false;
  for (int i = 0; i < nin; i++) {
    if (!(op->kept >> i & 1u) && in[i]->v.dtype != MT_BOOL) return false;
  }
  return true;
}

/* No input that counts is anything but bool: compute in the row's integers. */
static mt_status apply_to_bools(mt_context *ctx, const mt_opinfo *op, int nin,
                                mt_tensor *const *in, const mt_attr *attr,
                                mt_tensor **out) {
  mt_calc calc;
  mt_tensor *as[3];
  mt_calc_begin(&calc, ctx);
  for (int i = 0; i < nin; i++) {
    as[i] = op->kept >> i & 1u ? in[i] : mt_cas(&calc, in[i], op->for_bool);
  }
  out[0] = mt_ca(&calc, op->op, nin, as, 0, op->nattr, attr, NULL);
  if (op->truth && out[0]) out[0] = mt_ccast(&calc, out[0], MT_BOOL);
  return mt_calc_end(&calc, 1, out);
}

mt_status mt_apply(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                   const mt_attr *attr, mt_tensor **out, int *nout) {
  const mt_opinfo *const info = mt_op_info(op);
  mt_attr all[MT_MAX_ATTRS];
  if (attr) {
    mt_attrs_copy(all, attr, info->nattr);
  } else {
    mt_op_presets(op, all);
  }
  int n = info->nout;
  if (info->kind == MT_KIND_COMPOSITE) {
    return build(ctx, info, nin, in, all, out, nout ? nout : &n);
  }
  if (nout) *nout = n;
  if (nin > 0 && in[0] && in[0]->v.dtype == MT_BOOL && mt_takes_bools(info, nin, in))
    return apply_to_bools(ctx, info, nin, in, all, out);
  for (int i = 0; i < n; i++) out[i] = NULL;
  const bool recording =
      ctx->grad_enabled && info->differentiable && mt_any_requires_grad(nin, in);
  uint64_t position = 0;
  MT_TRY(mt_dispatch(ctx, op, nin, in, all, out, &position));
  mt_status status = MT_OK;
  if (info->kind == MT_KIND_VIEW) {
    ctx->gc_debt += sizeof(mt_tensor) + sizeof(mt_autograd);
    status = mt_note_view(out[0], in[0], ctx->grad_enabled);
  }
  if (recording && status == MT_OK)
    status = record(ctx, info, nin, in, all, position, out);
  if (status != MT_OK) {
    for (int i = 0; i < n; i++) {
      mt_release(out[i]);
      out[i] = NULL;
    }
  }
  return status;
}
