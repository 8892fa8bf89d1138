/* runtime/autograd/grad_matmul.c -- gradients of matmul and linear. */
#include "runtime/autograd/rules.h"

static mt_tensor *matmul(mt_calc *c, mt_tensor *a, mt_tensor *b) {
  return mt_c2(c, MT_OP_matmul, a, b);
}

/* The last two dims exchanged. */
static mt_tensor *turned(mt_calc *c, mt_tensor *t) {
  return t ? mt_ctranspose(c, t, t->v.ndim - 2, t->v.ndim - 1) : NULL;
}

/* All dims but the last made one. */
static mt_tensor *rows(mt_calc *c, mt_tensor *t) {
  if (!t || t->v.ndim == 2) return t;
  const int64_t last = t->v.ndim ? t->v.shape[t->v.ndim - 1] : 1;
  int64_t count = 1;
  for (int d = 0; d < t->v.ndim - 1; d++) count *= t->v.shape[d];
  return mt_creshape(c, t, 2, (int64_t[]){count, last});
}

/* A vector as a row (left) or a column of one matrix. */
static mt_tensor *as_matrix(mt_calc *c, mt_tensor *t, const mt_meta *m, bool left) {
  if (m->ndim > 1) return t;
  const int64_t n = m->shape[0];
  return mt_creshape(c, t, 2, left ? (int64_t[]){1, n} : (int64_t[]){n, 1});
}

/* da = g b^T and db = a^T g, summed over batches that were broadcast. */
static mt_status matmul_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const ma = &call->in_meta[0], *const mb = &call->in_meta[1];
  mt_tensor *g = call->g[0];
  if (ma->ndim == 1 || mb->ndim == 1) { /* give g the dims that the result lost */
    int64_t shape[MT_MAX_DIMS];
    const mt_meta *const y = &call->out_meta[0];
    int ndim = 0;
    const int batch = y->ndim - (ma->ndim > 1) - (mb->ndim > 1);
    for (; ndim < batch; ndim++) shape[ndim] = y->shape[ndim];
    shape[ndim++] = ma->ndim > 1 ? ma->shape[ma->ndim - 2] : 1;
    shape[ndim++] = mb->ndim > 1 ? mb->shape[mb->ndim - 1] : 1;
    g = mt_creshape(c, g, ndim, shape);
  }
  if (call->needs[0]) {
    mt_tensor *const b = as_matrix(c, call->in[1], mb, false);
    mt_tensor *da = matmul(c, g, turned(c, b));
    if (ma->ndim == 1 && da) /* as a row: (..., 1, k) to (k) */
      da = mt_csum_to(c, da, 2, (int64_t[]){1, ma->shape[0]});
    else
      da = mt_csum_to(c, da, ma->ndim, ma->shape);
    call->dx[0] = mt_creshape(c, da, ma->ndim, ma->shape);
  }
  if (call->needs[1]) {
    mt_tensor *const a = as_matrix(c, call->in[0], ma, true);
    mt_tensor *db;
    if (mb->ndim <= 2) { /* one product over the whole batch */
      db = matmul(c, turned(c, rows(c, a)), rows(c, g));
    } else {
      db = mt_csum_to(c, matmul(c, turned(c, a), g), mb->ndim, mb->shape);
    }
    call->dx[1] = mt_creshape(c, db, mb->ndim, mb->shape);
  }
  return c->status;
}

const mt_grad_rule mt_grad_matmul = {3, 0, matmul_run};

/* ---- linear ---- */

enum { NONE, RELU, GELU }; /* the activations of its row */

/* relu's gradient follows from y alone. gelu's needs x w^T + b, which is computed anew:
** kept, it would double the memory of the layer, and be written by a pass of its own. */
void mt_linear_saves(const mt_attr *attr, unsigned *save_in, unsigned *save_out) {
  *save_in = attr[0].i[0] == GELU ? 7 : 3;
  *save_out = attr[0].i[0] == RELU ? 1 : 0;
}

/* The gradient of x w^T + b from that of its activation. */
static mt_tensor *before_activation(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  switch (call->attr[0].i[0]) {
  case RELU: return mt_cgradient(c, MT_OP_relu, call->g[0], NULL, call->out[0]);
  case GELU: {
    mt_tensor *const z = mt_ca(c, MT_OP_linear, call->nin, call->in, 4, 0, NULL, NULL);
    return mt_cgradient(c, MT_OP_gelu, call->g[0], z, NULL);
  }
  default: return call->g[0];
  }
}

static mt_status linear_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const g = before_activation(call);
  const bool bias = call->nin > 2 && call->needs[2];
  if (!g) return c->status;
  if (call->needs[0]) call->dx[0] = matmul(c, g, call->in[1]);
  if (call->needs[1]) {
    const mt_attr attr = mt_attr_i(bias);
    mt_tensor *out[MT_MAX_OUTPUTS] = {NULL};
    mt_ca(c, MT_OP__linear_backward_weight, 2, (mt_tensor *[]){call->in[0], g}, 0, 1,
          &attr, out);
    call->dx[1] = out[0];
    if (bias) call->dx[2] = out[1];
  } else if (bias) {
    const mt_attr attr = mt_attr_i(0);
    call->dx[2] = mt_c1a(c, MT_OP_sum, rows(c, g), 1, &attr);
  }
  return c->status;
}

const mt_grad_rule mt_grad_linear = {3, 0, linear_run};

/* dw = dy^T x and db = sum of dy: dx = dy gw, and ddy = x gw^T + gb. */
static mt_status linear_backward_weight_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const gw = call->g[0], *const gb = call->g[1];
  if (call->needs[0] && gw) call->dx[0] = matmul(c, call->in[1], gw);
  if (call->needs[1] && gw)
    call->dx[1] = mt_ca(c, MT_OP_linear, 3, (mt_tensor *[]){call->in[0], gw, gb}, 4, 0,
                        NULL, NULL);
  else if (call->needs[1] && gb)
    call->dx[1] = mt_cexpand(c, gb, call->in_meta[1].ndim, call->in_meta[1].shape);
  return c->status;
}

const mt_grad_rule mt_grad_linear_backward_weight = {3, 0, linear_backward_weight_run};
