/* runtime/autograd/grad_pool.c -- gradients of pooling, and of its backward ops. */
#include "runtime/autograd/rules.h"

static mt_attr plane(const mt_meta *m) {
  return mt_attr_list(2, m->shape + m->ndim - 2);
}

static mt_status max_pool2d_run(mt_grad_call *call) {
  if (!call->g[0]) return MT_OK;
  const mt_attr size = plane(&call->in_meta[0]);
  mt_tensor *const in[] = {call->out[1], call->g[0]};
  call->dx[0] = mt_ca(call->calc, MT_OP_max_pool2d_backward, 2, in, 0, 1, &size, NULL);
  return call->calc->status;
}

const mt_grad_rule mt_grad_max_pool2d = {0, 2, max_pool2d_run};

/* t with its last two dims made one. */
static mt_tensor *flat_planes(mt_calc *c, mt_tensor *t) {
  if (!t) return NULL;
  int64_t shape[MT_MAX_DIMS];
  const int last = t->v.ndim - 2;
  for (int d = 0; d < last; d++) shape[d] = t->v.shape[d];
  shape[last] = t->v.shape[last] * t->v.shape[last + 1];
  return mt_creshape(c, t, last + 1, shape);
}

/* Each dy went to the position that mask names: its gradient is read there; 0 names
** none. */
static mt_status max_pool2d_backward_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const dy = &call->in_meta[1];
  if (!call->needs[1]) return MT_OK;
  const mt_attr dim = mt_attr_i(dy->ndim - 2), first = mt_attr_i(1);
  mt_tensor *const mask = flat_planes(c, call->in[0]);
  mt_tensor *const at = mt_c1a(c, MT_OP_clamp, mask, 1, &first);
  mt_tensor *const in[] = {flat_planes(c, call->g[0]), at};
  mt_tensor *const read = mt_ca(c, MT_OP_gather, 2, in, 0, 1, &dim, NULL);
  mt_tensor *const dx =
      mt_c3(c, MT_OP_where, mt_c2(c, MT_OP_eq, mask, at), read, mt_cnum(c, 0));
  call->dx[1] = mt_creshape(c, dx, dy->ndim, dy->shape);
  return c->status;
}

const mt_grad_rule mt_grad_max_pool2d_backward = {1, 0, max_pool2d_backward_run};

static mt_status avg_pool2d_run(mt_grad_call *call) {
  const mt_attr attr[] = {plane(&call->in_meta[0]), call->attr[0], call->attr[1],
                          call->attr[2]};
  call->dx[0] = mt_c1a(call->calc, MT_OP_avg_pool2d_backward, call->g[0], 4, attr);
  return call->calc->status;
}

const mt_grad_rule mt_grad_avg_pool2d = {0, 0, avg_pool2d_run};

static mt_status avg_pool2d_backward_run(mt_grad_call *call) {
  call->dx[0] = mt_c1a(call->calc, MT_OP_avg_pool2d, call->g[0], 3, call->attr + 1);
  return call->calc->status;
}

const mt_grad_rule mt_grad_avg_pool2d_backward = {0, 0, avg_pool2d_backward_run};
