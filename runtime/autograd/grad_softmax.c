/* runtime/autograd/grad_softmax.c -- gradients of softmax and log_softmax, and of
** those. */
#include "runtime/autograd/rules.h"

static mt_tensor *mul(mt_calc *c, mt_tensor *a, mt_tensor *b) {
  return mt_c2(c, MT_OP_mul, a, b);
}

/* The sum along the dim of the op, which stays as 1. */
static mt_tensor *total(const mt_grad_call *call, mt_tensor *t) {
  if (t && t->v.ndim == 0) return t;
  const mt_attr attr[] = {mt_attr_list(1, call->attr[0].i), mt_attr_i(1)};
  return mt_c1a(call->calc, MT_OP_sum, t, 2, attr);
}

static mt_tensor *backward(const mt_grad_call *call, mt_op op, mt_tensor *y,
                           mt_tensor *dy) {
  return mt_ca(call->calc, op, 2, (mt_tensor *[]){y, dy}, 0, 1, call->attr, NULL);
}

static mt_status softmax_run(mt_grad_call *call) {
  call->dx[0] = backward(call, MT_OP_softmax_backward, call->out[0], call->g[0]);
  return call->calc->status;
}

const mt_grad_rule mt_grad_softmax = {0, 1, softmax_run};

/* Of y * (dy - sum(y * dy)). */
static mt_status softmax_backward_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = call->in[0], *const dy = call->in[1], *const g = call->g[0];
  if (call->needs[0]) {
    mt_tensor *const rest = mt_c2(c, MT_OP_sub, dy, total(call, mul(c, y, dy)));
    mt_tensor *const gy = total(call, mul(c, g, y));
    call->dx[0] = mt_c2(c, MT_OP_sub, mul(c, g, rest), mul(c, dy, gy));
  }
  if (call->needs[1]) call->dx[1] = backward(call, MT_OP_softmax_backward, y, g);
  return c->status;
}

const mt_grad_rule mt_grad_softmax_backward = {3, 0, softmax_backward_run};

static mt_status log_softmax_run(mt_grad_call *call) {
  call->dx[0] = backward(call, MT_OP_log_softmax_backward, call->out[0], call->g[0]);
  return call->calc->status;
}

const mt_grad_rule mt_grad_log_softmax = {0, 1, log_softmax_run};

/* Of dy - exp(y) * sum(dy). */
static mt_status log_softmax_backward_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const dy = call->in[1], *const g = call->g[0];
  mt_tensor *const scaled = mul(c, g, mt_c1(c, MT_OP_exp, call->in[0]));
  if (call->needs[0])
    call->dx[0] = mt_c1(c, MT_OP_neg, mul(c, scaled, total(call, dy)));
  if (call->needs[1]) call->dx[1] = mt_c2(c, MT_OP_sub, g, total(call, scaled));
  return c->status;
}

const mt_grad_rule mt_grad_log_softmax_backward = {3, 0, log_softmax_backward_run};
