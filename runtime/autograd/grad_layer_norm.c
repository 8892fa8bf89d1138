/* runtime/autograd/grad_layer_norm.c -- gradients of layer_norm and of its backward op.
 */
#include "runtime/autograd/rules.h"

/* layer_norm_backward with the dims and epsilon of the call; out: dx, dw, db. */
static void backward(const mt_grad_call *call, mt_tensor *x, mt_tensor *dy,
                     mt_tensor *w, mt_tensor **out) {
  out[0] = out[1] = out[2] = NULL;
  mt_ca(call->calc, MT_OP_layer_norm_backward, 3, (mt_tensor *[]){x, dy, w}, 4, 2,
        call->attr, out);
}

static mt_status layer_norm_run(mt_grad_call *call) {
  mt_tensor *d[3];
  backward(call, call->in[0], call->g[0], call->in[1], d);
  for (int i = 0; i < 3; i++)
    if (i < call->nin && call->needs[i]) call->dx[i] = d[i];
  return call->calc->status;
}

const mt_grad_rule mt_grad_layer_norm = {3, 0, layer_norm_run};

/* ---- the gradient of the gradient ----
**
** Row by row, with m the mean over the dims, h the normalised x, r = 1 / sqrt(variance
** + epsilon) and v = w dy, the backward op gives dx = P v = r (v - m(v) - h m(v h)),
** dw = sum of dy h, db = sum of dy over rows. P is symmetric, it also takes a gradient
** of h to one of x, and r's own gradient is -r^2 h / n. */

typedef struct row_calc {
  const mt_grad_call *call;
  mt_calc *c;
  mt_tensor *x;
  mt_attr dims;
} row_calc;

static mt_tensor *mul(mt_calc *c, mt_tensor *a, mt_tensor *b) {
  return mt_c2(c, MT_OP_mul, a, b);
}

/* NULL: nothing to add */
static mt_tensor *plus(mt_calc *c, mt_tensor *a, mt_tensor *b) {
  return !a ? b : !b ? a : mt_c2(c, MT_OP_add, a, b);
}

static mt_tensor *mean(const row_calc *k, mt_tensor *t) {
  const mt_attr attr[] = {k->dims, mt_attr_i(1)};
  return mt_c1a(k->c, MT_OP_mean, t, 2, attr);
}

static mt_tensor *mean_of_product(const row_calc *k, mt_tensor *a, mt_tensor *b) {
  return mean(k, mul(k->c, a, b));
}

/* P v, or with w: P (w v) */
static mt_tensor *project(const row_calc *k, mt_tensor *v, mt_tensor *w) {
  mt_tensor *d[3];
  backward(k->call, k->x, v, w, d);
  return d[0];
}

/* To x, of g P v summed over the dims. */
static mt_tensor *through_dx(const row_calc *k, mt_tensor *h, mt_tensor *g,
                             mt_tensor *v) {
  mt_calc *const c = k->c;
  const mt_attr attr[] = {k->dims, mt_attr_i(0), mt_attr_i(1)};
  mt_tensor *const variance = mt_c1a(c, MT_OP_var, k->x, 3, attr);
  mt_tensor *const r = mt_c1(
      c, MT_OP_rsqrt, mt_c2(c, MT_OP_add, variance, mt_cnum(c, k->call->attr[1].f)));
  mt_tensor *const gh = mean_of_product(k, g, h), *const vh = mean_of_product(k, v, h);
  mt_tensor *const u = mt_c2(c, MT_OP_add, mul(c, g, vh), mul(c, v, gh));
  mt_tensor *const both =
      mt_c2(c, MT_OP_add, mul(c, mean(k, g), mean(k, v)), mul(c, gh, vh));
  mt_tensor *const size =
      mt_c2(c, MT_OP_sub, mean_of_product(k, g, v), both); /* m(g P v) / r */
  mt_tensor *const by_r = mul(c, mul(c, r, size), h);
  return mt_c1(c, MT_OP_neg, mul(c, r, mt_c2(c, MT_OP_add, project(k, u, NULL), by_r)));
}

static mt_status layer_norm_backward_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  mt_tensor *const dy = call->in[1], *const w = call->nin > 2 ? call->in[2] : NULL;
  mt_tensor *const gx = call->g[0], *const gw = call->g[1], *const gb = call->g[2];
  row_calc k = {.call = call, .c = c, .x = call->in[0]};
  const int n = (int)call->attr[0].i[0], first = x->ndim - n;
  k.dims.n = n;
  for (int d = 0; d < n; d++) k.dims.i[d] = first + d;
  mt_tensor *const h = mt_ca(c, MT_OP_layer_norm, 3, (mt_tensor *[]){k.x, NULL, NULL},
                             6, 2, call->attr, NULL);
  if (call->needs[0]) {
    mt_tensor *const v = w ? mul(c, dy, w) : dy;
    call->dx[0] =
        plus(c, gx ? through_dx(&k, h, gx, v) : NULL, gw ? project(&k, dy, gw) : NULL);
  }
  mt_tensor *const pg =
      gx && (call->needs[1] || (w && call->needs[2])) ? project(&k, gx, NULL) : NULL;
  if (call->needs[1]) {
    mt_tensor *sum = pg && w ? mul(c, pg, w) : pg;
    if (gw) sum = plus(c, sum, mul(c, h, gw));
    if (gb) sum = plus(c, sum, mt_cexpand(c, gb, x->ndim, x->shape));
    call->dx[1] = sum;
  }
  if (w && call->needs[2] && pg)
    call->dx[2] = mt_csum_to(c, mul(c, dy, pg), n, x->shape + first);
  return c->status;
}

const mt_grad_rule mt_grad_layer_norm_backward = {7, 0, layer_norm_backward_run};
