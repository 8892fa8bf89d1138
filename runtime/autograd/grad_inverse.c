/* runtime/autograd/grad_inverse.c -- gradients of inverses, solutions, determinants. */
#include <float.h>

#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_tensor *turned(mt_calc *c, mt_tensor *t) {
  return t ? mt_ctranspose(c, t, t->v.ndim - 2, t->v.ndim - 1) : NULL;
}

/* y = x^-1: dx = -y^T g y^T. */
static mt_status inverse_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = turned(c, call->out[0]);
  mt_tensor *const left = mt_c2(c, MT_OP_matmul, y, call->g[0]);
  call->dx[0] = mt_c1(c, MT_OP_neg, mt_c2(c, MT_OP_matmul, left, y));
  return c->status;
}

const mt_grad_rule mt_grad_inverse = {0, 1u << 0, inverse_run};

/* a x = b: db solves a^T db = g, and da = -db x^T. */
static mt_status solve_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const db = mt_c2(c, MT_OP__solve, turned(c, call->in[0]), call->g[0]);
  if (call->needs[1]) call->dx[1] = db;
  if (call->needs[0])
    call->dx[0] =
        mt_c1(c, MT_OP_neg, mt_c2(c, MT_OP_matmul, db, turned(c, call->out[0])));
  return c->status;
}

const mt_grad_rule mt_grad_solve = {1u << 0, 1u << 0, solve_run};

/* ---- determinants ---- */

/* Where a determinant is 0 there is no inverse, but its gradient is still the matrix of
** cofactors, whose determinants are taken one by one: n^2 of n - 1 rows. That is a
** polynomial, so gradients of any order come with it, at any rank. More elements than
** this are not made of it: of larger matrices there is the first gradient. */
#define MOST_MINOR_ELEMENTS (INT64_C(1) << 24)

/* (n, n - 1): row i holds 1 .. n but i. */
static mt_tensor *all_but_one(mt_calc *c, mt_device device, int64_t n) {
  mt_tensor *const i = mt_ccount(c, device, 2, (int64_t[]){n, 1}, 1);
  mt_tensor *const k = mt_ccount(c, device, 2, (int64_t[]){1, n - 1}, 1);
  mt_tensor *const behind = mt_c2(c, MT_OP_ge, k, i);
  return mt_c2(c, MT_OP_add, k, behind ? mt_ccast(c, behind, MT_I64) : NULL);
}

/* (n, n): 1 and -1 like a chessboard. */
static mt_tensor *signs(mt_calc *c, mt_device device, int64_t n, mt_dtype dtype) {
  mt_tensor *const i = mt_ccount(c, device, 2, (int64_t[]){n, 1}, 0);
  mt_tensor *const j = mt_ccount(c, device, 2, (int64_t[]){1, n}, 0);
  mt_tensor *const odd =
      mt_c2(c, MT_OP_remainder, mt_c2(c, MT_OP_add, i, j), mt_cint(c, 2));
  mt_tensor *const sign =
      mt_c2(c, MT_OP_sub, mt_cint(c, 1), mt_c2(c, MT_OP_mul, odd, mt_cint(c, 2)));
  return sign ? mt_ccast(c, sign, dtype) : NULL;
}

/* The cofactors of x (k, n, n). */
static mt_tensor *cofactors(mt_calc *c, mt_tensor *x, int64_t k, int64_t n) {
  const mt_device device = mt_device_of(x);
  const mt_dtype dtype = x->v.dtype;
  mt_tensor *const but = mt_cflat(c, all_but_one(c, device, n));
  x = mt_calong(c, MT_OP_index_select, x, 1, but, NULL);
  x = mt_calong(c, MT_OP_index_select, x, 2, but, NULL);
  x = mt_creshape(c, x, 5, (int64_t[]){k, n, n - 1, n, n - 1});
  x = mt_cpermute(c, x, 5, (int64_t[]){0, 1, 3, 2, 4});
  mt_tensor *const minors = mt_c1(c, MT_OP__determinant, x);
  return mt_c2(c, MT_OP_mul, minors, signs(c, device, n, dtype));
}

/* (n, n), for x (..., n, n). */
static mt_tensor *identity(mt_calc *c, const mt_tensor *x) {
  const mt_device device = mt_device_of(x);
  const int64_t n = x->v.shape[x->v.ndim - 1];
  mt_tensor *const eye =
      mt_c2(c, MT_OP_eq, mt_ccount(c, device, 2, (int64_t[]){n, 1}, 0),
            mt_ccount(c, device, 2, (int64_t[]){1, n}, 0));
  return eye ? mt_ccast(c, eye, x->v.dtype) : NULL;
}

/* dx of y = det(x) with g, whose trailing dims are of size 1, where some y are 0. */
static mt_tensor *with_singular(mt_calc *c, mt_tensor *x, mt_tensor *y, mt_tensor *g,
                                mt_tensor *none, int64_t count) {
  const int ndim = x->v.ndim;
  const int64_t n = x->v.shape[ndim - 1], batch = mt_numel(&y->v);
  const mt_device device = mt_device_of(x);
  if (!g || !none) return NULL;
  mt_tensor *const at = mt_cpositions(c, mt_cflat(c, none));
  none = mt_creshape(c, none, ndim, g->v.shape);
  mt_tensor *const regular = mt_c3(c, MT_OP_where, none, identity(c, x), x);
  mt_tensor *const inverse = turned(c, mt_c1(c, MT_OP_inverse, regular));
  mt_tensor *const own = mt_c2(c, MT_OP_mul, g, mt_creshape(c, y, ndim, g->v.shape));
  mt_tensor *const zero = mt_czeros(c, x->v.dtype, device, 0, NULL);
  mt_tensor *dx = mt_c3(c, MT_OP_where, none, zero, mt_c2(c, MT_OP_mul, own, inverse));
  const int64_t matrices[] = {batch, n, n}, ones[] = {batch, 1, 1};
  mt_tensor *const some =
      mt_calong(c, MT_OP_index_select, mt_creshape(c, x, 3, matrices), 0, at, NULL);
  mt_tensor *const of =
      mt_calong(c, MT_OP_index_select, mt_creshape(c, g, 3, ones), 0, at, NULL);
  mt_tensor *const theirs =
      some ? mt_c2(c, MT_OP_mul, cofactors(c, some, count, n), of) : NULL;
  dx = mt_creshape(c, dx, 3, matrices);
  dx = mt_calong(c, MT_OP_index_add, dx, 0, at, theirs);
  return mt_creshape(c, dx, ndim, x->v.shape);
}

static int64_t how_many(mt_calc *c, mt_tensor *of) {
  return mt_citem(c, mt_c1(c, MT_OP_count_nonzero, of), NULL);
}

/* Whether the cofactors of count x may be made. */
static bool affordable(const mt_tensor *x, int64_t count) {
  const double n = (double)x->v.shape[x->v.ndim - 1];
  return (double)count * n * n * (n - 1) * (n - 1) <= (double)MOST_MINOR_ELEMENTS;
}

/* Where y = det(x) is 0 up to rounding, given x^-T: y x^-T is right there, as the errors
** of y and of the inverse belong together, but its derivative is a difference of products
** of inverses that cancels all digits. When the elements of x change by eps of
** themselves, y does by up to y eps sum |x_ij (x^-1)_ji|, however rows and columns are
** scaled. Of random singular matrices eps times that sum is above 1 / 4, of others of up
** to 100 rows, even in float32, hardly ever above 1 / 256. */
static mt_tensor *rounded_to_zero(mt_calc *c, mt_tensor *x, mt_tensor *inverse) {
  const int last = x->v.ndim - 1;
  const double epsilon = x->v.dtype == MT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  const int64_t both[] = {last - 1, last};
  const mt_attr over = mt_attr_list(2, both);
  mt_tensor *const size = mt_c1(c, MT_OP_abs, mt_c2(c, MT_OP_mul, x, inverse));
  mt_tensor *const sum = mt_c1a(c, MT_OP_sum, size, 1, &over);
  return mt_c2(c, MT_OP_gt, sum, mt_cnum(c, 1 / (256 * epsilon)));
}

/* Where y = det(x) is 0, at `zero`, or is so up to rounding. */
static mt_tensor *nearly_zero(mt_calc *c, mt_tensor *x, mt_tensor *zero, int64_t count,
                              mt_tensor **inverse /* [out] recorded, or NULL */) {
  mt_context *const ctx = c->ctx;
  if (count == 0) *inverse = turned(c, mt_c1(c, MT_OP_inverse, x));
  ctx->grad_enabled = false;
  mt_tensor *inverted = *inverse;
  if (!inverted) {
    int64_t shape[MT_MAX_DIMS];
    const int ndim = x->v.ndim;
    for (int d = 0; d < ndim; d++) shape[d] = d < ndim - 2 ? x->v.shape[d] : 1;
    mt_tensor *const at = mt_creshape(c, zero, ndim, shape);
    mt_tensor *const regular = mt_c3(c, MT_OP_where, at, identity(c, x), x);
    inverted = turned(c, mt_c1(c, MT_OP_inverse, regular));
  }
  mt_tensor *const rounded = inverted ? rounded_to_zero(c, x, inverted) : NULL;
  mt_tensor *const some = mt_c2(c, MT_OP_logical_or, zero, rounded);
  ctx->grad_enabled = true;
  return some;
}

/* MT_EFAULT if some x are singular, not only of a determinant that is too small for its
** dtype, so that there is an inverse of each. */
static mt_status check_regular(mt_calc *c, mt_tensor *x) {
  mt_tensor *in[] = {x}, *out[3];
  mt_ca(c, MT_OP__determinant, 1, in, 0, 0, NULL, out);
  if (c->status != MT_OK) return c->status;
  mt_tensor *const singular = mt_c2(c, MT_OP_eq, out[1], mt_cint(c, 0));
  const int64_t count = how_many(c, singular);
  if (c->status != MT_OK || count == 0) return c->status;
  return c->status = mt_fail(
             MT_EFAULT,
             "the gradient of det of shape %s, %lld of it 0, with create_graph takes "
             "(n (n - 1))^2 elements for each, more than %lld in all",
             mt_view_text(&x->v), (long long)count, (long long)MOST_MINOR_ELEMENTS);
}

/* (n, n) numbers of -1 .. 1 without order, the same ones each time: of i = 1, 2, ...
** (48271 i)^4 modulo 2^31 - 1. */
static mt_tensor *jumble(mt_calc *c, mt_device device, mt_dtype dtype, int64_t n) {
  mt_tensor *const prime = mt_cint(c, INT32_MAX);
  mt_tensor *t = mt_ccount(c, device, 2, (int64_t[]){n, n}, 1);
  t = mt_c2(c, MT_OP_remainder, mt_c2(c, MT_OP_mul, t, mt_cint(c, 48271)), prime);
  for (int i = 0; i < 2; i++)
    t = mt_c2(c, MT_OP_remainder, mt_c2(c, MT_OP_mul, t, t), prime);
  t = t ? mt_c2(c, MT_OP_mul, mt_ccast(c, t, dtype), mt_cnum(c, 2.0 / INT32_MAX))
        : NULL;
  return mt_c2(c, MT_OP_sub, t, mt_cint(c, 1));
}

/* dx of det(x) with g, whose trailing dims are of size 1, when no gradient of it is asked
** for: where the determinant is 0, that of regular matrices so near that the elements
** differ by a few eps of the largest one of their row, as they may from rounding. That
** takes n^3 where all cofactors take n^5. */
static mt_tensor *by_neighbours(mt_calc *c, mt_tensor *x, mt_tensor *g,
                                mt_tensor *zero) {
  const int ndim = x->v.ndim;
  const mt_dtype dtype = x->v.dtype;
  const double epsilon = dtype == MT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  const double least = dtype == MT_F64 ? DBL_MIN : (double)FLT_MIN;
  mt_tensor *const row =
      mt_creduce(c, MT_OP_amax, mt_c1(c, MT_OP_abs, x), ndim - 1, true);
  mt_tensor *const all = mt_creduce(c, MT_OP_amax, row, ndim - 2, true);
  /* a row of zeros takes the size of the matrix; eps of any size must stay above 0 */
  mt_tensor *scale =
      mt_c3(c, MT_OP_where, mt_c2(c, MT_OP_eq, row, mt_cint(c, 0)), all, row);
  scale = mt_c2(c, MT_OP_maximum, scale, mt_cnum(c, least / epsilon / epsilon));
  scale = mt_c2(c, MT_OP_mul, scale, mt_cnum(c, 4 * epsilon));
  mt_tensor *const by = mt_c2(c, MT_OP_mul, scale,
                              jumble(c, mt_device_of(x), dtype, x->v.shape[ndim - 1]));
  mt_tensor *const at = mt_creshape(c, zero, ndim, g->v.shape);
  x = mt_c3(c, MT_OP_where, at, mt_c2(c, MT_OP_add, x, by), x);
  mt_tensor *const y =
      mt_creshape(c, mt_c1(c, MT_OP__determinant, x), ndim, g->v.shape);
  mt_tensor *const inverse = turned(c, mt_c1(c, MT_OP_inverse, x));
  return mt_c2(c, MT_OP_mul, mt_c2(c, MT_OP_mul, g, y), inverse);
}

/* dx of y = det(x) with g, whose trailing dims are of size 1, some other way where y is 0,
** or NULL if it is nowhere or, of matrices that have inverses, too often. */
static mt_tensor *not_by_inverse(mt_calc *c, mt_tensor *x, mt_tensor *y, mt_tensor *g,
                                 mt_tensor **inverse /* [out] x^-T if it was made */) {
  mt_tensor *const zero = mt_c2(c, MT_OP_eq, y, mt_cint(c, 0));
  const int64_t zeros = how_many(c, zero);
  if (c->status == MT_OK && c->ctx->grad_enabled) {
    mt_tensor *const some = nearly_zero(c, x, zero, zeros, inverse);
    const int64_t count = how_many(c, some);
    if (count > 0 && affordable(x, count))
      return with_singular(c, x, y, g, some, count);
  }
  if (zeros == 0 || c->status != MT_OK) return NULL;
  if (affordable(x, zeros)) return with_singular(c, x, y, g, zero, zeros);
  if (!c->ctx->grad_enabled) return by_neighbours(c, x, g, zero);
  check_regular(c, x);
  return NULL;
}

/* With y = det(x): dy/dx = y x^-T, and of log |y| x^-T. The sign stays as it is. Looking
** for zeros waits for the device, which a capture cannot. A determinant that was rounded
** to 16 bits does not belong to the inverse, which may overflow there: both are made
** anew, in float32. */
static mt_status determinant_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0], *y = call->out[0], *by = call->g[0], *g = call->g[2];
  mt_tensor *dx = NULL, *inverse = NULL;
  if (!g && !by) return c->status;
  const mt_dtype dtype = x->v.dtype;
  int64_t shape[MT_MAX_DIMS];
  const int n = call->out_meta[0].ndim;
  for (int d = 0; d < n; d++) shape[d] = call->out_meta[0].shape[d];
  shape[n] = shape[n + 1] = 1;
  if (by && mt_wide_dtype(dtype) != dtype) {
    x = mt_cwide(c, x), by = mt_cwide(c, by), g = mt_cwide(c, g);
    y = mt_c1(c, MT_OP__determinant, x);
    if (c->status != MT_OK) return c->status;
  }
  if (!g && !c->ctx->graph)
    dx = not_by_inverse(c, x, y, mt_creshape(c, by, n + 2, shape), &inverse);
  if (c->status != MT_OK) return c->status;
  if (!dx) {
    mt_tensor *const own = by ? mt_c2(c, MT_OP_mul, by, y) : NULL;
    if (own) g = g ? mt_c2(c, MT_OP_add, g, own) : own;
    if (!inverse) inverse = turned(c, mt_c1(c, MT_OP_inverse, x));
    dx = mt_c2(c, MT_OP_mul, inverse, mt_creshape(c, g, n + 2, shape));
  }
  call->dx[0] = mt_ccast(c, dx, dtype);
  return c->status;
}

const mt_grad_rule mt_grad_determinant = {1u << 0, 1u << 0, determinant_run};
