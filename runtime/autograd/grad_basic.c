/* runtime/autograd/grad_basic.c -- gradients of where, copies and ops that forget their
** input. */
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_status where_run(mt_grad_call *c) {
  for (int i = 1; i <= 2; i++) {
    if (!c->needs[i]) continue;
    mt_tensor *const zero = mt_cnum(c->calc, 0), *const g = c->g[0];
    mt_tensor *const dx =
        mt_c3(c->calc, MT_OP_where, c->in[0], i == 1 ? g : zero, i == 1 ? zero : g);
    c->dx[i] = mt_csum_to(c->calc, dx, c->in_meta[i].ndim, c->in_meta[i].shape);
  }
  return c->calc->status;
}

const mt_grad_rule mt_grad_where = {1u << 0, 0, where_run};

/* The engine converts the dtype. */
static mt_status pass_run(mt_grad_call *c) {
  c->dx[0] = c->g[0];
  return MT_OK;
}

const mt_grad_rule mt_grad_pass = {0, 0, pass_run};

static mt_tensor *input_zeros(mt_grad_call *c) {
  return mt_czeros_of(c->calc, &c->in_meta[0]);
}

static mt_status zero_run(mt_grad_call *c) {
  c->dx[0] = input_zeros(c);
  return c->calc->status;
}

const mt_grad_rule mt_grad_zero = {0, 0, zero_run};

static mt_status copy_run(mt_grad_call *c) {
  const mt_meta *const src = &c->in_meta[1];
  if (c->needs[0]) c->dx[0] = input_zeros(c);
  if (c->needs[1]) c->dx[1] = mt_csum_to(c->calc, c->g[0], src->ndim, src->shape);
  return c->calc->status;
}

const mt_grad_rule mt_grad_copy = {0, 0, copy_run};
