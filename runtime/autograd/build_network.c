/* runtime/autograd/build_network.c -- composite ops of networks: mse_loss, dropout;
** bernoulli by tensors. */
#include "runtime/autograd/parts.h"
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

/* Each element of x has a draw of its own, in the wider float of p's. */
mt_status mt_build_bernoulli(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  const int given = call->in[1] != NULL;
  mt_tensor *const p = mt_cwide(c, mt_cfloat(c, call->in[given]));
  mt_tensor *const fits =
      mt_c2(c, MT_OP_logical_and, mt_c2(c, MT_OP_ge, p, mt_cint(c, 0)),
            mt_c2(c, MT_OP_le, p, mt_cint(c, 1)));
  if (!mt_citem(c, mt_c1(c, MT_OP_all, fits), NULL) && c->status == MT_OK) {
    return mt_fail_arg(MT_EARG, 1 + given, "%s has elements that are not in 0 .. 1",
                       given ? "p" : "x");
  }
  if (!p) return MT_OK;
  mt_tensor *const like =
      mt_czeros(c, p->v.dtype, mt_device_of(x), x->v.ndim, x->v.shape);
  mt_tensor *const y = mt_c2(c, MT_OP_lt, mt_c1(c, MT_OP_uniform, like), p);
  if (y && !mt_same_shape(&y->v, &x->v)) {
    return mt_fail_arg(MT_ESHAPE, 2, "p has shape %s, which does not broadcast to %s",
                       mt_view_text(&p->v), mt_view_text(&x->v));
  }
  call->out[0] = mt_ccast(c, y, x->v.dtype);
  return MT_OK;
}
