/* runtime/autograd/build_network.c -- composite ops of networks: mse_loss, dropout. */
#include "runtime/autograd/rules.h"

mt_status mt_build_mse_loss(mt_build_call *c) {
  mt_tensor *const x = c->in[0], *const target = c->in[1];
  if (!mt_same_shape(&x->v, &target->v)) {
    return mt_fail_arg(MT_ESHAPE, 2, "target has shape %s, x %s",
                       mt_view_text(&target->v), mt_view_text(&x->v));
  }
  enum { MEAN, SUM, NONE };
  mt_tensor *const squares =
      mt_c1(c->calc, MT_OP_square, mt_c2(c->calc, MT_OP_sub, x, target));
  switch (c->attr[0].i[0]) {
  case MEAN: c->out[0] = mt_c1(c->calc, MT_OP_mean, squares); break;
  case SUM: c->out[0] = mt_c1(c->calc, MT_OP_sum, squares); break;
  default: c->out[0] = squares;
  }
  return MT_OK;
}

mt_status mt_build_dropout(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const double p = c->attr[0].f;
  if (!(p >= 0 && p <= 1)) {
    return mt_fail_arg(MT_EARG, 2, "p is %g, want 0 .. 1", p);
  }
  if (!c->attr[1].i[0] || p == 0) {
    c->out[0] = x;
  } else if (p == 1) { /* 1 / (1 - p) is not there */
    const mt_attr zero = mt_attr_f(0);
    mt_tensor *const like =
        MT_IS_FLOAT(x->v.dtype) ? x : mt_c2(c->calc, MT_OP_mul, x, mt_cnum(c->calc, 0));
    c->out[0] = mt_c1a(c->calc, MT_OP_fill, like, 1, &zero);
  } else {
    c->out[0] = mt_c1a(c->calc, MT_OP__dropout, x, 1, &c->attr[0]);
  }
  return MT_OK;
}
