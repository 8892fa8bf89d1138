/* runtime/autograd/grad_dropout.c -- gradients of dropout: the same mask, drawn
** again from the forward call's place in the random sequence. */
#include "runtime/autograd/rules.h"

static mt_status dropout_run(mt_grad_call *call) {
  const mt_attr attr[] = {call->attr[0], mt_attr_i((int64_t)call->seed),
                          mt_attr_i((int64_t)call->position)};
  call->dx[0] = mt_c1a(call->calc, MT_OP__dropout_backward, call->g[0], 3, attr);
  return call->calc->status;
}

const mt_grad_rule mt_grad_dropout = {0, 0, dropout_run};

static mt_status dropout_backward_run(mt_grad_call *call) {
  call->dx[0] = mt_c1a(call->calc, MT_OP__dropout_backward, call->g[0], 3, call->attr);
  return call->calc->status;
}

const mt_grad_rule mt_grad_dropout_backward = {0, 0, dropout_backward_run};
