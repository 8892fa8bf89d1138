/* runtime/core/rule_sort.c -- shapes of sorting, of the largest ones, of searching what
** is sorted, and of selecting by a mask. */
#include <inttypes.h>
#include <string.h>
#include "runtime/core/rules.h"

mt_status mt_rule_sort(mt_plan *p) {
  p->out[1].dtype = MT_I64;
  for (int o = 0; o < 2; o++) mt_plan_shape(p, o, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_topk(mt_plan *p) {
  const mt_view *x = p->in[0];
  const int64_t k = p->attr[0].i[0], dim = p->attr[1].i[0];
  const int64_t size = x->ndim ? x->shape[dim] : 1;
  if (k < 0 || k > size)
    return mt_fail_arg(MT_EARG, 2,
                       "k is %" PRId64 ", shape %s has 0 .. %" PRId64
                       " elements along dim %" PRId64,
                       k, mt_view_text(x), size, dim + 1);
  MT_TRY(mt_rule_sort(p));
  for (int o = 0; o < 2 && x->ndim; o++) p->out[o].shape[dim] = k;
  if (x->ndim == 0 && k == 0)
    return mt_fail_arg(MT_EARG, 2, "k is 0, x is 0-dim: k is 1 there");
  return MT_OK;
}

mt_status mt_rule_kth(mt_plan *p) {
  const mt_view *x = p->in[0];
  const int64_t k = p->attr[0].i[0], dim = p->attr[1].i[0];
  const int64_t size = x->ndim ? x->shape[dim] : 1;
  if (k < 0 || k > size || size == 0)
    return mt_fail_arg(MT_EARG, 2,
                       "k is %" PRId64 ", shape %s has %" PRId64
                       " elements along dim %" PRId64,
                       k, mt_view_text(x), size, dim + 1);
  MT_TRY(mt_rule_sort(p));
  for (int o = 0; o < 2 && x->ndim; o++) p->out[o].shape[dim] = 1;
  return MT_OK;
}

mt_status mt_rule_searchsorted(mt_plan *p) {
  const mt_view *sorted = p->in[0], *x = p->in[1];
  bool fits = sorted->ndim == 1 || (sorted->ndim == x->ndim && x->ndim > 0);
  for (int d = 0; fits && sorted->ndim > 1 && d < x->ndim - 1; d++)
    fits = sorted->shape[d] == x->shape[d];
  if (!fits)
    return mt_fail_arg(MT_ESHAPE, 1,
                       "sorted has shape %s, want a vector, or all but the last size "
                       "of x %s",
                       mt_view_text(sorted), mt_view_text(x));
  p->out[0].dtype = MT_I64;
  mt_plan_shape(p, 0, x->ndim, x->shape);
  return MT_OK;
}

mt_status mt_rule_masked_select(mt_plan *p) {
  const int64_t count = p->attr[0].i[0], n = mt_numel(p->in[0]);
  if (!mt_same_shape(p->in[0], p->in[1]) || p->in[1]->dtype != MT_BOOL)
    return mt_fail_arg(MT_ESHAPE, 2, "mask has shape %s, x %s", mt_view_text(p->in[1]),
                       mt_view_text(p->in[0]));
  if (count < 0 || count > n)
    return mt_fail_arg(MT_EARG, 4, "count %" PRId64 " for %" PRId64 " elements", count,
                       n);
  mt_plan_shape(p, 0, 1, &count);
  return MT_OK;
}
