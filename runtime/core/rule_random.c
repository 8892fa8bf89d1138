/* runtime/core/rule_random.c -- ops that draw: x's shape, and the limits of what they take. */
#include <math.h>
#include "runtime/core/rules.h"

static mt_status same_shape(mt_plan *p) {
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_uniform(mt_plan *p) {
  const double lo = p->attr[0].f, hi = p->attr[1].f;
  if (!isfinite(lo)) return mt_fail_arg(MT_EARG, 2, "lo: %g is not finite", lo);
  if (!isfinite(hi)) return mt_fail_arg(MT_EARG, 3, "hi: %g is not finite", hi);
  if (lo > hi) return mt_fail_arg(MT_EARG, 3, "hi: %g is less than lo, %g", hi, lo);
  return same_shape(p);
}

mt_status mt_rule_normal(mt_plan *p) {
  const double std = p->attr[1].f;
  if (!(std >= 0)) return mt_fail_arg(MT_EARG, 3, "std: %g, want 0 or more", std);
  return same_shape(p);
}

mt_status mt_rule_bernoulli(mt_plan *p) {
  const double chance = p->attr[0].f;
  if (!(chance >= 0 && chance <= 1))
    return mt_fail_arg(MT_EARG, 2, "p: %g is not in 0 .. 1", chance);
  return same_shape(p);
}

/* The smallest and largest value of an integer dtype; false: no limit that matters. */
static bool limits(mt_dtype d, int64_t *lo, int64_t *hi) {
  *lo = 0;
  switch (d) {
  case MT_BOOL: *hi = 1; return true;
  case MT_U8: *hi = 255; return true;
  case MT_I8: *lo = -128, *hi = 127; return true;
  case MT_I16: *lo = INT16_MIN, *hi = INT16_MAX; return true;
  case MT_I32: *lo = INT32_MIN, *hi = INT32_MAX; return true;
  default: return false;
  }
}

mt_status mt_rule_random(mt_plan *p) {
  const long long low = p->attr[0].i[0], high = p->attr[1].i[0];
  int64_t lo, hi;
  if (low > high)
    return mt_fail_arg(MT_EARG, 3, "high: %lld is less than low, %lld", high, low);
  if (limits(p->out[0].dtype, &lo, &hi) && (low < lo || high > hi))
    return mt_fail_arg(MT_EARG, low < lo ? 2 : 3, "%s: %lld does not fit %s",
                       low < lo ? "low" : "high", low < lo ? low : high,
                       mt_dtype_name(p->out[0].dtype));
  return same_shape(p);
}
