/* runtime/core/rule_matmul.c -- shapes of matmul, linear, and what square matrices give. */
#include <inttypes.h>
#include "runtime/core/rules.h"

mt_status mt_rule_matmul(mt_plan *p) {
  const mt_view *a = p->in[0], *b = p->in[1];
  if (a->ndim == 0 || b->ndim == 0)
    return mt_fail_arg(MT_ESHAPE, a->ndim == 0 ? 1 : 2,
                       "shapes %s and %s do not multiply: 0-dim, use *",
                       mt_view_text(a), mt_view_text(b));
  const int64_t inner_a = a->shape[a->ndim - 1];
  const int64_t inner_b = b->shape[b->ndim == 1 ? 0 : b->ndim - 2];
  if (inner_a != inner_b)
    return mt_fail_arg(MT_ESHAPE, 2,
                       "shapes %s and %s do not multiply: %" PRId64 " ~= %" PRId64,
                       mt_view_text(a), mt_view_text(b), inner_a, inner_b);
  /* batch dims of both, broadcast; then the rows of a and the columns of b */
  int ndim = a->ndim > 2 ? a->ndim - 2 : 0;
  int64_t shape[MT_MAX_DIMS + 2];
  for (int i = 0; i < ndim; i++) shape[i] = a->shape[i];
  mt_view batch = *b;
  batch.ndim = b->ndim > 2 ? b->ndim - 2 : 0;
  if (mt_broadcast(&ndim, shape, &batch) != MT_OK)
    return mt_fail_arg(
        MT_ESHAPE, 2,
        "shapes %s and %s do not multiply: their batches %s and %s do not "
        "broadcast",
        mt_view_text(a), mt_view_text(b), mt_shape_text(ndim, a->shape),
        mt_view_text(&batch));
  if (a->ndim > 1) shape[ndim++] = a->shape[a->ndim - 2];
  if (b->ndim > 1) shape[ndim++] = b->shape[b->ndim - 1];
  mt_plan_shape(p, 0, ndim, shape);
  return MT_OK;
}

mt_status mt_rule_linear(mt_plan *p) {
  const mt_view *x = p->in[0], *w = p->in[1], *b = p->in[2];
  if (x->ndim == 0) return mt_fail_arg(MT_ESHAPE, 1, "input is 0-dim, want (..., in)");
  if (w->ndim != 2)
    return mt_fail_arg(MT_ESHAPE, 2, "weight has shape %s, want (out, in)",
                       mt_view_text(w));
  if (x->shape[x->ndim - 1] != w->shape[1])
    return mt_fail_arg(
        MT_ESHAPE, 2, "input %s has %" PRId64 " features, weight %s wants %" PRId64,
        mt_view_text(x), x->shape[x->ndim - 1], mt_view_text(w), w->shape[1]);
  if (b && (b->ndim != 1 || b->shape[0] != w->shape[0]))
    return mt_fail_arg(MT_ESHAPE, 3,
                       "bias %s does not fit weight %s: want [%" PRId64 "]",
                       mt_view_text(b), mt_view_text(w), w->shape[0]);
  int64_t shape[MT_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  shape[x->ndim - 1] = w->shape[0];
  mt_plan_shape(p, 0, x->ndim, shape);
  return MT_OK;
}

/* attr: bias. */
mt_status mt_rule_linear_backward_weight(mt_plan *p) {
  const mt_view *x = p->in[0], *dy = p->in[1];
  bool fits = x->ndim > 0 && dy->ndim == x->ndim;
  for (int d = 0; fits && d < x->ndim - 1; d++) fits = x->shape[d] == dy->shape[d];
  if (!fits)
    return mt_fail_arg(MT_ESHAPE, 2,
                       "dy %s does not fit input %s: want (..., out) beside (..., in)",
                       mt_view_text(dy), mt_view_text(x));
  const int64_t out = dy->shape[dy->ndim - 1], in = x->shape[x->ndim - 1];
  mt_plan_shape(p, 0, 2, (int64_t[]){out, in});
  mt_plan_shape(p, 1, 1, &out);
  if (!p->attr[0].i[0]) p->unwanted = 2;
  return MT_OK;
}

mt_status mt_check_square(const mt_view *x) {
  const int n = x->ndim;
  if (n >= 2 && x->shape[n - 1] == x->shape[n - 2]) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, 1, "square matrices expected, got shape %s",
                     mt_view_text(x));
}

mt_status mt_rule_square(mt_plan *p) {
  MT_TRY(mt_check_square(p->in[0]));
  mt_plan_shape(p, 0, p->in[0]->ndim, p->in[0]->shape);
  return MT_OK;
}

mt_status mt_rule_solve(mt_plan *p) {
  const mt_view *a = p->in[0], *b = p->in[1];
  MT_TRY(mt_check_square(a));
  bool fits = b->ndim == a->ndim;
  for (int d = 0; fits && d < a->ndim - 1; d++) fits = a->shape[d] == b->shape[d];
  if (!fits)
    return mt_fail_arg(MT_ESHAPE, 2, "shape %s does not fit matrices %s",
                       mt_view_text(b), mt_view_text(a));
  mt_plan_shape(p, 0, b->ndim, b->shape);
  return MT_OK;
}

mt_status mt_rule_determinant(mt_plan *p) {
  MT_TRY(mt_check_square(p->in[0]));
  for (int o = 0; o < 3; o++) mt_plan_shape(p, o, p->in[0]->ndim - 2, p->in[0]->shape);
  return MT_OK;
}
