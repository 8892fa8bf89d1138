/* kernels/cpu/reduce_state.c -- how the states of the reductions begin, and how two of them
** become one. */
#include "kernels/cpu/reduce.h"

void mt_state_init(const mt_reduction *r, mt_cell *a, mt_cell *b) {
  b->i = 0;
  switch (r->kind) {
  case MT_FOLD_PROD:
    if (r->whole)
      a->i = 1;
    else
      a->f = 1;
    break;
  case MT_FOLD_MAX:
  case MT_FOLD_ARGMAX:
    if (r->whole)
      a->i = INT64_MIN;
    else
      a->f = -(double)INFINITY;
    break;
  case MT_FOLD_MIN:
  case MT_FOLD_ARGMIN:
    if (r->whole)
      a->i = INT64_MAX;
    else
      a->f = (double)INFINITY;
    break;
  case MT_FOLD_EXP: a->f = -(double)INFINITY; break;
  case MT_FOLD_SMALLEST: a->f = (double)INFINITY; break;
  default: a->i = 0; /* also 0.0 */
  }
}

/* Is other better than a? NaN is better than any number; equals are not. */
static bool better(const mt_reduction *r, const mt_cell *a, const mt_cell *other,
                   bool larger) {
  if (r->whole) return larger ? other->i > a->i : other->i < a->i;
  if (a->f != a->f) return false;
  return other->f != other->f || (larger ? other->f > a->f : other->f < a->f);
}

void mt_state_merge(const mt_reduction *r, mt_cell *s, int64_t seen, const mt_cell *t,
                    int64_t more) {
  switch (r->kind) {
  case MT_FOLD_SUM:
    if (r->whole)
      s->i += t->i;
    else
      s->f += t->f;
    break;
  case MT_FOLD_PROD:
    if (r->whole)
      s->i *= t->i;
    else
      s->f *= t->f;
    break;
  case MT_FOLD_COUNT: s->i += t->i; break;
  case MT_FOLD_MAX:
  case MT_FOLD_LARGEST:
    if (better(r, s, t, true)) s[0] = t[0];
    break;
  case MT_FOLD_MIN:
  case MT_FOLD_SMALLEST:
    if (better(r, s, t, false)) s[0] = t[0];
    break;
  case MT_FOLD_ARGMAX:
  case MT_FOLD_ARGMIN:
    if (better(r, s, t, r->kind == MT_FOLD_ARGMAX)) s[0] = t[0], s[1].i = seen + t[1].i;
    break;
  case MT_FOLD_MOMENTS: fold_moments(&s[0], &s[1], seen, t[0].f, t[1].f, more); break;
  case MT_FOLD_EXP: fold_exp(&s[0], &s[1], t[0].f, t[1].f); break;
  default: s->f += t->f;
  }
}
