/* runtime/autograd/grad_norm.c -- gradients of norm and prod. */
#include <math.h>
#include "runtime/autograd/reduced.h"
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_tensor *is_zero(mt_calc *c, mt_tensor *t) {
  return mt_c2(c, MT_OP_eq, t, mt_cnum(c, 0));
}

/* t, and x where mask */
static mt_tensor *masked(mt_calc *c, mt_tensor *mask, double x, mt_tensor *t) {
  return mt_c3(c, MT_OP_where, mask, mt_cnum(c, x), t);
}

/* ---- norm ---- */

/* p = inf, -inf: shared among the elements that have the norm. */
static mt_tensor *norm_extreme(mt_grad_call *call, const mt_reduced *r, mt_tensor *y,
                               mt_tensor *g) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  mt_tensor *const ties = mt_c2(c, MT_OP_eq, mt_c1(c, MT_OP_abs, x), y);
  mt_tensor *const share = mt_cshare(c, g, mt_reduced_sum(c, r, ties));
  mt_tensor *const dx = mt_c2(c, MT_OP_mul, share, mt_c1(c, MT_OP_sign, x));
  return mt_c3(c, MT_OP_where, ties, dx, mt_cnum(c, 0));
}

/* g x / y; 0 where y is 0 */
static mt_tensor *norm_euclidean(mt_grad_call *call, mt_tensor *y, mt_tensor *g) {
  mt_calc *const c = call->calc;
  mt_tensor *const none = is_zero(c, y);
  mt_tensor *const scale = mt_c2(c, MT_OP_div, g, masked(c, none, 1, y));
  return mt_c2(c, MT_OP_mul, masked(c, none, 0, scale), call->in[0]);
}

/* g sign(x) |x|^(p - 1) / y^(p - 1); 0 where x or y is 0 */
static mt_tensor *norm_power(mt_grad_call *call, double p, mt_tensor *y, mt_tensor *g) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const none = is_zero(c, y);
  mt_tensor *const exponent = mt_cnum(c, p - 1);
  mt_tensor *const size = masked(c, is_zero(c, x), 1, mt_c1(c, MT_OP_abs, x));
  mt_tensor *const power =
      mt_c2(c, MT_OP_mul, mt_c1(c, MT_OP_sign, x), mt_c2(c, MT_OP_pow, size, exponent));
  mt_tensor *const below = mt_c2(c, MT_OP_pow, masked(c, none, 1, y), exponent);
  mt_tensor *const scale = masked(c, none, 0, mt_c2(c, MT_OP_div, g, below));
  return mt_c2(c, MT_OP_mul, scale, power);
}

static mt_status norm_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  const mt_reduced r = mt_reduced_of(x, &call->attr[1]);
  mt_tensor *const y = mt_reduced_keep(c, &r, call->out[0]);
  mt_tensor *const g = mt_reduced_keep(c, &r, call->g[0]);
  const double p = call->attr[0].f;
  if (p == 0) {
    call->dx[0] = mt_czeros_of(c, x);
  } else if (p == 1) {
    call->dx[0] = mt_c2(c, MT_OP_mul, g, mt_c1(c, MT_OP_sign, call->in[0]));
  } else if (p == 2) {
    call->dx[0] = norm_euclidean(call, y, g);
  } else if (isinf(p)) {
    call->dx[0] = norm_extreme(call, &r, y, g);
  } else {
    call->dx[0] = norm_power(call, p, y, g);
  }
  return c->status;
}

const mt_grad_rule mt_grad_norm = {1u << 0, 1u << 0, norm_run};

/* ---- prod: each element gets the product of the others ----
**
** Without a division, so that zeros are no special case and every derivative is right:
** a tree of products over each row. Going up, a level holds the products of pairs of
** the level below; going down, what lies outside of an element is what lies outside of
** its pair, times its partner. */

enum { MAX_LEVELS = 64 };

/* Every second column of t (rows, n), from start on. */
static mt_tensor *every_second(mt_calc *c, mt_tensor *t, int64_t start) {
  if (!t) return NULL;
  const mt_attr attr[] = {mt_attr_i(1), mt_attr_i(start), mt_attr_i(t->v.shape[1] / 2),
                          mt_attr_i(2)};
  return mt_c1a(c, MT_OP__slice, t, 4, attr);
}

/* t (rows, n) with a column of ones behind it if n is odd. */
static mt_tensor *made_even(mt_calc *c, mt_tensor *t) {
  if (!t || t->v.shape[1] % 2 == 0) return t;
  const int64_t shape[] = {t->v.shape[0], 1};
  return mt_cjoin(c, t, mt_cones(c, t->v.dtype, mt_device_of(t), 2, shape), 1);
}

/* Columns a[0] b[0] a[1] b[1] ..., n of them. */
static mt_tensor *interleave(mt_calc *c, mt_tensor *a, mt_tensor *b, int64_t n) {
  if (!a || !b) return NULL;
  const mt_attr dim = mt_attr_i(2);
  const int64_t shape[] = {a->v.shape[0], 2 * a->v.shape[1]};
  mt_tensor *const both =
      mt_ca(c, MT_OP_stack, 2, (mt_tensor *[]){a, b}, 0, 1, &dim, NULL);
  mt_tensor *const row = mt_creshape(c, both, 2, shape);
  return n == shape[1] ? row : mt_cpart(c, row, 1, 0, n);
}

/* g (rows, 1) times the products of the others of x (rows, n) */
static mt_tensor *products_of_others(mt_calc *c, mt_tensor *x, mt_tensor *g) {
  mt_tensor *left[MAX_LEVELS], *right[MAX_LEVELS], *level = x;
  int64_t width[MAX_LEVELS];
  int n = 0;
  for (; level && level->v.shape[1] > 1; n++) {
    width[n] = level->v.shape[1];
    mt_tensor *const even = made_even(c, level);
    left[n] = every_second(c, even, 0);
    right[n] = every_second(c, even, 1);
    level = mt_c2(c, MT_OP_mul, left[n], right[n]);
  }
  mt_tensor *outside = g;
  while (n-- > 0) {
    outside = interleave(c, mt_c2(c, MT_OP_mul, outside, right[n]),
                         mt_c2(c, MT_OP_mul, outside, left[n]), width[n]);
  }
  return outside;
}

/* The reduced dims behind the others. */
static void reduced_last(const mt_reduced *r, int64_t *order) {
  int n = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int d = 0; d < r->ndim; d++) {
      if (r->gone[d] == (pass == 1)) order[n++] = d;
    }
  }
}

static mt_status prod_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  const mt_reduced r = mt_reduced_of(x, &call->attr[0]);
  int64_t order[MT_MAX_DIMS], inverse[MT_MAX_DIMS] = {0}, permuted[MT_MAX_DIMS],
                              rows = 1;
  reduced_last(&r, order);
  for (int d = 0; d < x->ndim; d++) {
    inverse[order[d]] = d;
    permuted[d] = x->shape[order[d]];
    rows *= r.kept[d];
  }
  if (r.count == 0 || rows == 0) {
    call->dx[0] = mt_czeros_of(c, x);
    return c->status;
  }
  const int64_t flat[] = {rows, r.count}, column[] = {rows, 1};
  mt_tensor *const table =
      mt_creshape(c, mt_cpermute(c, call->in[0], x->ndim, order), 2, flat);
  mt_tensor *const g = mt_creshape(c, call->g[0], 2, column);
  mt_tensor *const dx = products_of_others(c, table, g);
  call->dx[0] = mt_cpermute(c, mt_creshape(c, dx, x->ndim, permuted), x->ndim, inverse);
  return c->status;
}

const mt_grad_rule mt_grad_prod = {1u << 0, 0, prod_run};
