/* runtime/autograd/build_elementwise.c -- composite ops on elements: nan_to_num, isclose,
** clamp_min, clamp_max, clamp to tensors, rounded quotients and decimals, ndtr, entr,
** nextafter, frexp, glu, prelu. */
#include <float.h>
#include <math.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* ---- nan_to_num ---- */

static double largest(mt_dtype dtype) {
  switch (dtype) {
  case MT_F64: return DBL_MAX;
  case MT_F16: return 65504;
  case MT_BF16: return 0x1.fep127;
  default: return (double)FLT_MAX;
  }
}

static double given_or(const mt_attr *attr, double preset) {
  return attr->n < 0 ? preset : attr->f;
}

/* value, of x's dtype, where test(x), else y. */
static mt_tensor *replace(mt_calc *c, mt_tensor *x, mt_op test, double value,
                          mt_tensor *y) {
  mt_tensor *const number = x ? mt_ccast(c, mt_cnum(c, value), x->v.dtype) : NULL;
  return mt_c3(c, MT_OP_where, mt_c1(c, test, x), number, y);
}

mt_status mt_build_nan_to_num(mt_build_call *c) {
  mt_tensor *const x = c->in[0], *y;
  const mt_attr *const attr = c->attr; /* nan, posinf, neginf */
  if (!MT_IS_FLOAT(x->v.dtype)) {
    c->out[0] = mt_c1(c->calc, MT_OP_clone, x);
    return MT_OK;
  }
  const double most = largest(x->v.dtype);
  if (attr[1].n < 0 && attr[2].n < 0) {
    const mt_attr bounds[] = {mt_attr_f(-most), mt_attr_f(most)};
    y = mt_c1a(c->calc, MT_OP_clamp, x, 2, bounds);
  } else {
    y = replace(c->calc, x, MT_OP_isneginf, given_or(&attr[2], -most), x);
    y = replace(c->calc, x, MT_OP_isposinf, given_or(&attr[1], most), y);
  }
  c->out[0] = replace(c->calc, x, MT_OP_isnan, attr[0].f, y);
  return MT_OK;
}

/* ---- isclose ---- */

/* Wide enough for differences and for the tolerances. */
static mt_tensor *widened(mt_calc *c, mt_tensor *x, bool integers) {
  if (integers) return mt_ccast(c, x, MT_F64);
  return (MT_HALF_MASK >> x->v.dtype) & 1u ? mt_ccast(c, x, MT_F32) : x;
}

mt_status mt_build_isclose(mt_build_call *call) {
  mt_calc *const c = call->calc;
  const mt_attr *const attr = call->attr; /* rtol, atol, equal_nan */
  if (!(attr[0].f >= 0) || !(attr[1].f >= 0)) {
    return mt_fail_arg(MT_EARG, attr[0].f >= 0 ? 4 : 3, "a tolerance of 0 or more");
  }
  mt_tensor *const equal = mt_c2(c, MT_OP_eq, call->in[0], call->in[1]);
  const bool integers =
      !MT_IS_FLOAT(call->in[0]->v.dtype) && !MT_IS_FLOAT(call->in[1]->v.dtype);
  mt_tensor *const a = widened(c, call->in[0], integers);
  mt_tensor *const b = widened(c, call->in[1], integers);
  mt_tensor *const apart = mt_c1(c, MT_OP_abs, mt_c2(c, MT_OP_sub, a, b));
  mt_tensor *const relative =
      mt_c2(c, MT_OP_mul, mt_c1(c, MT_OP_abs, b), mt_cnum(c, attr[0].f));
  mt_tensor *const allowed = mt_c2(c, MT_OP_add, relative, mt_cnum(c, attr[1].f));
  mt_tensor *const near = mt_c2(c, MT_OP_logical_and, mt_c1(c, MT_OP_isfinite, apart),
                                mt_c2(c, MT_OP_le, apart, allowed));
  mt_tensor *y = mt_c2(c, MT_OP_logical_or, equal, near);
  if (attr[2].i[0]) {
    mt_tensor *const both =
        mt_c2(c, MT_OP_logical_and, mt_c1(c, MT_OP_isnan, a), mt_c1(c, MT_OP_isnan, b));
    y = mt_c2(c, MT_OP_logical_or, y, both);
  }
  call->out[0] = y;
  return MT_OK;
}

/* ---- clamp_min, clamp_max ---- */

/* A number is one of clamp's bounds; a tensor counts for the dtype, and gets a gradient
** where it is the result. */
static mt_status limit(mt_build_call *call, mt_op beyond, int which) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const bound = call->in[1];
  double value = 0;
  const int64_t whole = bound->wrapped ? mt_citem(c, bound, &value) : 0;
  if (bound->wrapped && value == value) {
    mt_attr attr[2];
    mt_op_presets(MT_OP_clamp, attr);
    attr[which] = MT_IS_FLOAT(bound->v.dtype) ? mt_attr_f(value) : mt_attr_i(whole);
    call->out[0] = mt_c1a(c, MT_OP_clamp, x, 2, attr);
    return MT_OK;
  }
  mt_tensor *const nan = mt_c2(c, MT_OP_ne, bound, bound);
  mt_tensor *const takes = mt_c2(c, MT_OP_logical_or, mt_c2(c, beyond, x, bound), nan);
  call->out[0] = mt_c3(c, MT_OP_where, takes, bound, x);
  return MT_OK;
}

mt_status mt_build_clamp_min(mt_build_call *call) { return limit(call, MT_OP_lt, 0); }

mt_status mt_build_clamp_max(mt_build_call *call) { return limit(call, MT_OP_gt, 1); }

mt_status mt_build_clamp(mt_build_call *call) {
  static const mt_op limits[] = {MT_OP_clamp_min, MT_OP_clamp_max};
  mt_tensor *y = call->in[0];
  int ndim = 0;
  int64_t shape[MT_MAX_DIMS];
  for (int i = 0; i < 3; i++) {
    if (!call->in[i]) continue;
    const mt_status status = mt_broadcast(&ndim, shape, &call->in[i]->v);
    if (status != MT_OK) return mt_fail_arg(status, i + 1, "%s", mt_last_error()->text);
    if (i > 0) y = mt_c2(call->calc, limits[i - 1], y, call->in[i]);
  }
  call->out[0] = y;
  return MT_OK;
}

/* ---- rounding ---- */

static mt_tensor *detached(mt_calc *c, mt_tensor *x) {
  mt_tensor *y = NULL;
  if (x && c->status == MT_OK) c->status = mt_detach(x, &y);
  return mt_cown(c, y);
}

enum { TRUNC, FLOOR };

/* A quotient of 16-bit floats is not rounded to a whole number before it is cut. */
mt_status mt_build_div(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const a = call->in[0], *const b = call->in[1];
  if (call->attr[0].i[0] == FLOOR) {
    call->out[0] = mt_c2(c, MT_OP_floordiv, a, b);
  } else if (MT_IS_FLOAT(a->v.dtype) || MT_IS_FLOAT(b->v.dtype)) {
    mt_tensor *const y = mt_c2(c, MT_OP_div, a, b);
    if (!y) return MT_OK;
    mt_tensor *const wide = (MT_HALF_MASK >> y->v.dtype) & 1u
                                ? mt_c2(c, MT_OP_div, mt_ccast(c, a, MT_F32), b)
                                : y;
    call->out[0] = mt_ccast(c, mt_c1(c, MT_OP_trunc, wide), y->v.dtype);
  } else {
    mt_tensor *const rest = mt_c2(c, MT_OP_fmod, a, b);
    call->out[0] = mt_c2(c, MT_OP_floordiv, mt_c2(c, MT_OP_sub, a, rest), b);
  }
  return MT_OK;
}

/* x * scale rounded, over scale; x where that is beyond the dtype. */
mt_status mt_build_round(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  const int64_t decimals = call->attr[0].i[0];
  if (!MT_IS_FLOAT(x->v.dtype)) {
    if (decimals < 0 || x->v.dtype == MT_BOOL)
      return mt_fail_arg(MT_EDTYPE, 1, "a float dtype expected, got %s",
                         mt_dtype_name(x->v.dtype));
    call->out[0] = mt_c1(c, MT_OP_clone, x);
    return MT_OK;
  }
  mt_tensor *const wide = mt_cwide(c, x);
  const int64_t most = x->v.dtype == MT_F64 ? DBL_MAX_10_EXP : FLT_MAX_10_EXP;
  const bool beyond = decimals > most || decimals < -most;
  const double power = beyond ? (double)INFINITY : pow(10, fabs((double)decimals));
  mt_tensor *const scale = mt_cnum(c, power);
  const mt_op to = decimals < 0 ? MT_OP_div : MT_OP_mul;
  const mt_op from = decimals < 0 ? MT_OP_mul : MT_OP_div;
  mt_tensor *const scaled = mt_c2(c, to, wide, scale);
  mt_tensor *y = mt_c1(c, MT_OP_round, scaled);
  if (!beyond) y = mt_c2(c, from, y, scale);
  mt_tensor *const fits = mt_c1(c, MT_OP_isfinite, scaled);
  mt_tensor *const all = mt_c3(c, MT_OP_where, fits, y, detached(c, wide));
  call->out[0] = mt_ccast(c, all, x->v.dtype);
  return MT_OK;
}

/* ---- normal distributions and entropies ---- */

/* t + x / sqrt(2), t being -x / sqrt(2) rounded. Of float64: both factors are halved so
** that all products but small ones are exact. */
static mt_tensor *rounding(mt_calc *c, mt_tensor *x, mt_tensor *t) {
  static const double part[] = {0x1.6a09e6p-1, 0x1.9fcef32p-27, 0x1.08b2fb1366ea9p-57};
  mt_tensor *const upper = mt_ccast(c, mt_ccast(c, x, MT_F32), MT_F64);
  mt_tensor *const lower = mt_c2(c, MT_OP_sub, x, upper);
  mt_tensor *y = mt_c3(c, MT_OP_addcmul, t, upper, mt_cnum(c, part[0]));
  y = mt_c3(c, MT_OP_addcmul, y, upper, mt_cnum(c, part[1]));
  y = mt_c3(c, MT_OP_addcmul, y, lower, mt_cnum(c, part[0]));
  y = mt_c3(c, MT_OP_addcmul, y, lower, mt_cnum(c, part[1]));
  return mt_c3(c, MT_OP_addcmul, y, upper, mt_cnum(c, part[2]));
}

static mt_tensor *scaled(mt_calc *c, mt_tensor *x) {
  return mt_c2(c, MT_OP_mul, x, mt_cnum(c, -0.70710678118654752));
}

/* erfc(-x / sqrt(2)) of float64: at the rounded argument, and its slope from there on.
** Beyond 40 it is 0 or 2, and there is nothing to correct. */
static mt_tensor *erfc_corrected(mt_calc *c, mt_tensor *x) {
  const mt_attr bounds[] = {mt_attr_f(-40), mt_attr_f(40)}, minus = mt_attr_f(-1);
  const mt_attr slope = mt_attr_f(1.1283791670955126); /* 2 / sqrt(pi) */
  mt_tensor *const inside = mt_c1a(c, MT_OP_clamp, x, 2, bounds);
  mt_tensor *const t = scaled(c, inside);
  mt_tensor *const rest = rounding(c, detached(c, inside), detached(c, t));
  mt_tensor *const square[] = {mt_cnum(c, 0), t, t};
  mt_tensor *const bell =
      mt_c1(c, MT_OP_exp, mt_ca(c, MT_OP_addcmul, 3, square, 0, 1, &minus, NULL));
  mt_tensor *const terms[] = {mt_c1(c, MT_OP_erfc, scaled(c, x)), rest, bell};
  return mt_ca(c, MT_OP_addcmul, 3, terms, 0, 1, &slope, NULL);
}

/* erfc keeps the digits of what is far below 0, but multiplies its argument's error by
** the square of it: the argument has to have more digits than the result. */
mt_status mt_build_ndtr(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = mt_cfloat(c, call->in[0]);
  if (!x) return MT_OK;
  const bool half = (MT_HALF_MASK >> x->v.dtype) & 1u;
  mt_tensor *y;
  if (x->v.dtype == MT_F64) {
    y = erfc_corrected(c, x);
  } else {
    mt_tensor *const wide = mt_ccast(c, x, half ? MT_F32 : MT_F64);
    y = mt_c1(c, MT_OP_erfc, scaled(c, wide));
  }
  y = mt_c2(c, MT_OP_mul, y, mt_cnum(c, 0.5));
  call->out[0] = mt_ccast(c, y, x->v.dtype);
  return MT_OK;
}

mt_status mt_build_entr(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = mt_cfloat(c, call->in[0]);
  mt_tensor *const below = mt_c2(c, MT_OP_lt, x, mt_cint(c, 0));
  mt_tensor *const inside = mt_c3(c, MT_OP_where, below, mt_cint(c, 1), x);
  mt_tensor *const y = mt_c1(c, MT_OP_neg, mt_c2(c, MT_OP_xlogy, inside, inside));
  call->out[0] = mt_c3(c, MT_OP_where, below, mt_cnum(c, -(double)INFINITY), y);
  return MT_OK;
}

/* ---- parts of floats ---- */

/* The row computes half types as float32, and has to be told how many digits they have. */
mt_status mt_build_nextafter(mt_build_call *c) {
  mt_tensor *a = c->in[0], *b = c->in[1];
  mt_attr bits = mt_attr_f(0);
  mt_tensor *const zero = mt_c2(c->calc, MT_OP_sub, a, b); /* promotes as a and b do */
  if (!zero) return MT_OK;
  if (zero->v.dtype == MT_F16) bits.f = 10;
  if (zero->v.dtype == MT_BF16) bits.f = 7;
  if (!MT_IS_FLOAT(zero->v.dtype)) {
    return mt_fail_arg(MT_EDTYPE, 1, "a float dtype expected, got %s",
                       mt_dtype_name(zero->v.dtype));
  }
  c->out[0] = mt_ca(c->calc, MT_OP__nextafter, 2, c->in, 0, 1, &bits, NULL);
  return MT_OK;
}

mt_status mt_build_frexp(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  mt_tensor *const e = mt_c1(c->calc, MT_OP__exponent, x);
  c->out[0] = mt_c2(c->calc, MT_OP_ldexp, x, mt_c1(c->calc, MT_OP_neg, e));
  c->out[1] = mt_ccast(c->calc, e, MT_I32);
  return MT_OK;
}

/* ---- activations of two operands ---- */

mt_status mt_build_glu(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  if (x->v.ndim == 0) {
    return mt_fail_arg(MT_ESHAPE, 1, "a tensor with dims expected, got shape []");
  }
  int64_t dim;
  MT_TRY(mt_cdim(&c->attr[0], &x->v, 2, &dim));
  const int64_t half = x->v.shape[dim] / 2;
  if (x->v.shape[dim] != 2 * half) {
    return mt_fail_arg(MT_ESHAPE, 1, "dim %d of shape %s is odd, halves are wanted",
                       (int)dim + 1, mt_view_text(&x->v));
  }
  mt_tensor *const value = mt_cpart(c->calc, x, dim, 0, half);
  mt_tensor *const gate = mt_cpart(c->calc, x, dim, half, half);
  c->out[0] = mt_c2(c->calc, MT_OP_mul, value, mt_c1(c->calc, MT_OP_sigmoid, gate));
  return MT_OK;
}

mt_status mt_build_prelu(mt_build_call *c) {
  mt_tensor *const x = c->in[0], *w = c->in[1];
  const int64_t n = mt_numel(&w->v), channels = x->v.ndim > 1 ? x->v.shape[1] : 1;
  if (w->v.ndim > 1 || (n != 1 && n != channels)) {
    return mt_fail_arg(MT_ESHAPE, 2, "weight has shape %s, want [1] or [%lld]",
                       mt_view_text(&w->v), (long long)channels);
  }
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < x->v.ndim; d++) shape[d] = d == 1 ? n : 1;
  if (n == 1) {
    w = mt_creshape(c->calc, w, 0, shape);
  } else {
    w = mt_creshape(c->calc, w, x->v.ndim, shape);
  }
  mt_tensor *const zero = mt_ccast(c->calc, mt_cnum(c->calc, 0), x->v.dtype);
  c->out[0] = mt_c3(c->calc, MT_OP_where, mt_c2(c->calc, MT_OP_gt, x, zero), x,
                    mt_c2(c->calc, MT_OP_mul, w, x));
  return MT_OK;
}
