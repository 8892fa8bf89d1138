/* runtime/autograd/grad_inverse.c -- gradients of inverses, solutions, determinants. */
#include "runtime/autograd/rules.h"

static mt_tensor *turned(mt_calc *c, mt_tensor *t) {
  return t ? mt_ctranspose(c, t, t->v.ndim - 2, t->v.ndim - 1) : NULL;
}

/* y = x^-1: dx = -y^T g y^T. */
static mt_status inverse_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = turned(c, call->out[0]);
  mt_tensor *const left = mt_c2(c, MT_OP_matmul, y, call->g[0]);
  call->dx[0] = mt_c1(c, MT_OP_neg, mt_c2(c, MT_OP_matmul, left, y));
  return c->status;
}

const mt_grad_rule mt_grad_inverse = {0, 1u << 0, inverse_run};

/* a x = b: db solves a^T db = g, and da = -db x^T. */
static mt_status solve_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const db = mt_c2(c, MT_OP__solve, turned(c, call->in[0]), call->g[0]);
  if (call->needs[1]) call->dx[1] = db;
  if (call->needs[0])
    call->dx[0] =
        mt_c1(c, MT_OP_neg, mt_c2(c, MT_OP_matmul, db, turned(c, call->out[0])));
  return c->status;
}

const mt_grad_rule mt_grad_solve = {1u << 0, 1u << 0, solve_run};

/* With y = det(x): dy/dx = y x^-T, and of log |y| x^-T. The sign stays as it is. */
static mt_status determinant_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *g = call->g[2];
  if (call->g[0]) {
    mt_tensor *const own = mt_c2(c, MT_OP_mul, call->g[0], call->out[0]);
    g = g ? mt_c2(c, MT_OP_add, g, own) : own;
  }
  if (!g) return c->status;
  int64_t shape[MT_MAX_DIMS];
  const int n = call->out_meta[0].ndim;
  for (int d = 0; d < n; d++) shape[d] = call->out_meta[0].shape[d];
  shape[n] = shape[n + 1] = 1;
  mt_tensor *const x = turned(c, mt_c1(c, MT_OP_inverse, call->in[0]));
  call->dx[0] = mt_c2(c, MT_OP_mul, x, mt_creshape(c, g, n + 2, shape));
  return c->status;
}

const mt_grad_rule mt_grad_determinant = {1u << 0, 1u << 0, determinant_run};
