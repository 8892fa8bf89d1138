/* runtime/autograd/grad_conv.c -- gradients of conv2d and of its backward ops: each
** is made of the other two. */
#include "runtime/autograd/rules.h"

/* The last two sizes. */
static mt_attr plane(const mt_meta *m) {
  return mt_attr_list(2, m->shape + m->ndim - 2);
}

/* geometry: stride, padding, dilation, groups. */
static mt_tensor *forward(mt_calc *c, mt_tensor *x, mt_tensor *w,
                          const mt_attr *geometry) {
  return mt_ca(c, MT_OP_conv2d, 3, (mt_tensor *[]){x, w, NULL}, 4, 4, geometry, NULL);
}

static mt_tensor *backward(mt_calc *c, mt_op op, mt_tensor *a, mt_tensor *dy,
                           mt_attr size, const mt_attr *geometry) {
  const mt_attr attr[] = {size, geometry[0], geometry[1], geometry[2], geometry[3]};
  return mt_ca(c, op, 2, (mt_tensor *[]){a, dy}, 0, 5, attr, NULL);
}

/* relu's gradient follows from y alone. */
void mt_conv2d_saves(const mt_attr *attr, unsigned *save_in, unsigned *save_out) {
  *save_in = 3;
  *save_out = attr[4].i[0] ? 1 : 0;
}

static mt_status conv2d_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const w = call->in[1];
  mt_tensor *const g = call->attr[4].i[0]
                           ? mt_cgradient(c, MT_OP_relu, call->g[0], NULL, call->out[0])
                           : call->g[0];
  if (call->needs[0])
    call->dx[0] = backward(c, MT_OP_conv2d_backward_input, w, g,
                           plane(&call->in_meta[0]), call->attr);
  if (call->needs[1])
    call->dx[1] = backward(c, MT_OP_conv2d_backward_weight, x, g,
                           plane(&call->in_meta[1]), call->attr);
  if (call->nin > 2 && call->needs[2]) {
    const mt_attr dims = mt_attr_list(3, (int64_t[]){0, 2, 3});
    call->dx[2] = mt_c1a(c, MT_OP_sum, g, 1, &dims);
  }
  return c->status;
}

const mt_grad_rule mt_grad_conv2d = {3, 0, conv2d_run};

static mt_status conv2d_backward_input_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const w = call->in[0], *const dy = call->in[1], *const g = call->g[0];
  if (call->needs[0])
    call->dx[0] = backward(c, MT_OP_conv2d_backward_weight, g, dy,
                           plane(&call->in_meta[0]), call->attr + 1);
  if (call->needs[1]) call->dx[1] = forward(c, g, w, call->attr + 1);
  return c->status;
}

const mt_grad_rule mt_grad_conv2d_backward_input = {3, 0, conv2d_backward_input_run};

static mt_status conv2d_backward_weight_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const dy = call->in[1], *const g = call->g[0];
  if (call->needs[0])
    call->dx[0] = backward(c, MT_OP_conv2d_backward_input, g, dy,
                           plane(&call->in_meta[0]), call->attr + 1);
  if (call->needs[1]) call->dx[1] = forward(c, x, g, call->attr + 1);
  return c->status;
}

const mt_grad_rule mt_grad_conv2d_backward_weight = {3, 0, conv2d_backward_weight_run};
