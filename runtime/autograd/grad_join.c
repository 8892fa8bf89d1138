/* runtime/autograd/grad_join.c -- gradients of cat and flip. */
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_status cat_run(mt_grad_call *c) {
  const int64_t dim = c->attr[0].i[0];
  int64_t start = 0;
  for (int i = 0; i < c->nin; i++) {
    const mt_meta *const x = &c->in_meta[i];
    if (x->ndim != c->g[0]->v.ndim) { /* an empty vector, which joins anything */
      if (c->needs[i]) c->dx[i] = mt_czeros_of(c->calc, x);
      continue;
    }
    const int64_t length = x->shape[dim];
    if (c->needs[i]) c->dx[i] = mt_cpart(c->calc, c->g[0], dim, start, length);
    start += length;
  }
  return c->calc->status;
}

const mt_grad_rule mt_grad_cat = {0, 0, cat_run};

static mt_status flip_run(mt_grad_call *c) {
  c->dx[0] = mt_c1a(c->calc, MT_OP_flip, c->g[0], 1, c->attr);
  return c->calc->status;
}

const mt_grad_rule mt_grad_flip = {0, 0, flip_run};
