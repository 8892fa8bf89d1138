/* runtime/autograd/grad_loss.c -- gradients of nll_loss and cross_entropy, and of
** those. */
#include "runtime/autograd/rules.h"

enum { MEAN, SUM, NONE }; /* reduction: mean|sum|none */

static mt_tensor *backward(mt_grad_call *call, mt_op op) {
  mt_tensor *const in[] = {call->in[0], call->in[1], call->g[0]};
  return mt_ca(call->calc, op, 3, in, 0, 1, call->attr, NULL);
}

static mt_status nll_loss_run(mt_grad_call *call) {
  call->dx[0] = backward(call, MT_OP_nll_loss_backward);
  return call->calc->status;
}

const mt_grad_rule mt_grad_nll_loss = {3, 0, nll_loss_run};

/* Linear in dy, and independent of the values of logp. */
static mt_status nll_loss_backward_run(mt_grad_call *call) {
  if (call->needs[2]) {
    mt_tensor *const in[] = {call->g[0], call->in[1]};
    call->dx[2] = mt_ca(call->calc, MT_OP_nll_loss, 2, in, 0, 1, call->attr, NULL);
  }
  return call->calc->status;
}

const mt_grad_rule mt_grad_nll_loss_backward = {2, 0, nll_loss_backward_run};

static mt_status cross_entropy_run(mt_grad_call *call) {
  call->dx[0] = backward(call, MT_OP_cross_entropy_backward);
  return call->calc->status;
}

const mt_grad_rule mt_grad_cross_entropy = {3, 0, cross_entropy_run};

/* Of (p - onehot) * dy / count, p = softmax(logits) along dim 0 or 1. */
static mt_status cross_entropy_backward_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  const int reduction = (int)call->attr[0].i[0];
  const mt_attr dim = mt_attr_i(x->ndim > 1);
  mt_tensor *const p = mt_c1a(c, MT_OP_softmax, call->in[0], 1, &dim);
  mt_tensor *const g = call->g[0];
  if (call->needs[0]) {
    mt_tensor *dy = call->in[2];
    if (reduction == NONE && x->ndim > 1) {
      int64_t shape[MT_MAX_DIMS]; /* with 1 for the classes */
      for (int d = 0; d < x->ndim; d++) shape[d] = d == 1 ? 1 : x->shape[d];
      dy = mt_creshape(c, dy, x->ndim, shape);
    } else if (reduction == MEAN) {
      double count = 1;
      for (int d = 0; d < x->ndim; d++)
        if (x->ndim > 1 && d != 1) count *= (double)x->shape[d];
      dy = mt_c2(c, MT_OP_div, dy, mt_cnum(c, count));
    }
    mt_tensor *const in[] = {p, mt_c2(c, MT_OP_mul, g, dy)};
    call->dx[0] = mt_ca(c, MT_OP_softmax_backward, 2, in, 0, 1, &dim, NULL);
  }
  if (call->needs[2]) {
    const mt_attr none = mt_attr_i(NONE);
    const mt_attr sum = mt_attr_list(1, dim.i);
    mt_tensor *const in[] = {g, call->in[1]};
    mt_tensor *const picked = mt_ca(c, MT_OP_nll_loss, 2, in, 0, 1, &none, NULL);
    mt_tensor *const each = mt_c2(
        c, MT_OP_add, mt_c1a(c, MT_OP_sum, mt_c2(c, MT_OP_mul, p, g), 1, &sum), picked);
    call->dx[2] = reduction == NONE   ? each
                  : reduction == MEAN ? mt_c1(c, MT_OP_mean, each)
                                      : mt_c1(c, MT_OP_sum, each);
  }
  return c->status;
}

const mt_grad_rule mt_grad_cross_entropy_backward = {7, 0, cross_entropy_backward_run};
