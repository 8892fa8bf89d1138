/* runtime/core/cost.c -- what a call should take, by the shapes of its tensors: bytes
** that are read and written once, operations of products. */
#include "runtime/core/profile.h"

/* Bytes of the elements that there are: what is repeated is read once. */
static double bytes_of(const mt_tensor *t) {
  double n = t && !t->v.host ? (double)mt_dtype_size(t->v.dtype) : 0;
  for (int d = 0; n > 0 && d < t->v.ndim; d++)
    if (t->v.stride[d] != 0 || t->v.shape[d] == 0) n *= (double)t->v.shape[d];
  return n;
}

static double numel(const mt_tensor *t) { return t ? (double)mt_numel(&t->v) : 0; }

/* Elements of one of the filters w, or of one row of a matrix. */
static double row_of(const mt_tensor *w) {
  return w && w->v.ndim > 0 && w->v.shape[0] > 0 ? numel(w) / (double)w->v.shape[0] : 0;
}

static double flops(mt_op op, int nin, mt_tensor *const *in, int nout,
                    mt_tensor *const *out) {
  if (nin < 2 || nout < 1) return 0;
  switch (op) {
  case MT_OP_matmul: { /* (.., m, k) by (.., k, n) */
    const mt_view *a = &in[0]->v;
    return a->ndim > 0 ? 2 * numel(out[0]) * (double)a->shape[a->ndim - 1] : 0;
  }
  case MT_OP_linear:                                           /* x (.., k), w (n, k) */
  case MT_OP_conv2d: return 2 * numel(out[0]) * row_of(in[1]); /* x, w */
  case MT_OP_conv2d_backward_input: return 2 * numel(in[1]) * row_of(in[0]); /* w, dy */
  case MT_OP__linear_backward_weight: {                                      /* x, dy */
    const mt_view *x = &in[0]->v;
    return x->ndim > 0 ? 2 * numel(in[1]) * (double)x->shape[x->ndim - 1] : 0;
  }
  case MT_OP_conv2d_backward_weight: return 2 * numel(in[1]) * row_of(out[0]);
  default: return 0;
  }
}

/* Is in[0] only written, or read at a few places that the result tells of? */
static bool skips_first(const mt_opinfo *op) {
  switch (op->op) {
  case MT_OP__copy:
  case MT_OP_fill:
  case MT_OP__arange:
  case MT_OP__linspace:
  case MT_OP_embedding:
  case MT_OP_index_select:
  case MT_OP_gather: return true;
  default: return op->kind == MT_KIND_RANDOM && op->op != MT_OP__dropout;
  }
}

mt_cost mt_cost_of(const mt_opinfo *op, int nin, mt_tensor *const *in, int nout,
                   mt_tensor *const *out) {
  mt_cost c = {0, 0, MT_F32};
  const mt_tensor *first = nin > 0 && in[0] ? in[0] : nout > 0 ? out[0] : NULL;
  if (first) c.dtype = first->v.dtype;
  if (op && op->kind == MT_KIND_VIEW) return c;
  for (int i = op && skips_first(op) ? 1 : 0; i < nin; i++) c.bytes += bytes_of(in[i]);
  for (int i = 0; i < nout; i++) c.bytes += bytes_of(out[i]);
  if (op && (op->op == MT_OP_embedding || op->op == MT_OP_index_select ||
             op->op == MT_OP_gather))
    c.bytes += bytes_of(out[0]);
  if (!op)
    for (int i = 0; i < nout; i++) c.bytes += bytes_of(out[i]); /* read before */
  if (op) c.flops = flops(op->op, nin, in, nout, out);
  return c;
}
