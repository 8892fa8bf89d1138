/* runtime/core/rule_conv.c -- shapes of conv2d and of its two backward ops. */
#include <inttypes.h>
#include <stdio.h>
#include "runtime/core/rules.h"
#include "runtime/core/window.h"

/* Above this, sizes and steps of windows are refused: sums of their products fit. */
#define WINDOW_LIMIT (INT64_C(1) << 31)
/* Elements of one padded image, at most: kernels may count its bytes for all threads. */
#define PADDED_LIMIT 0x1p46

void mt_pair(const mt_attr *a, const int64_t *preset, int64_t *pair) {
  if (a->n < 1 && preset) {
    pair[0] = preset[0], pair[1] = preset[1];
  } else {
    pair[0] = a->i[0], pair[1] = a->n == 1 ? a->i[0] : a->i[1];
  }
}

static mt_status check_range(const char *what, const int64_t *pair, int64_t lo,
                             int arg) {
  if (pair[0] >= lo && pair[0] < WINDOW_LIMIT && pair[1] >= lo &&
      pair[1] < WINDOW_LIMIT)
    return MT_OK;
  return mt_fail_arg(MT_EARG, arg,
                     "%s %" PRId64 " x %" PRId64 " is not in %" PRId64 " .. %" PRId64,
                     what, pair[0], pair[1], lo, WINDOW_LIMIT - 1);
}

mt_status mt_window_output(const mt_window *w, const mt_window_args *arg,
                           const int64_t *size, int64_t *out) {
  MT_TRY(check_range("kernel", w->kernel, 1, arg->kernel ? arg->kernel : arg->w));
  MT_TRY(check_range("stride", w->stride, 1, arg->stride));
  MT_TRY(check_range("padding", w->padding, 0, arg->padding));
  MT_TRY(check_range("dilation", w->dilation, 1, arg->dilation));
  for (int i = 0; i < 2; i++) {
    if (size[i] < 0 || size[i] >= WINDOW_LIMIT)
      return mt_fail_arg(MT_ESHAPE, arg->x,
                         "size %" PRId64 " x %" PRId64 " is not in 0 .. %" PRId64,
                         size[0], size[1], WINDOW_LIMIT - 1);
    const int64_t room =
        size[i] + 2 * w->padding[i] - w->dilation[i] * (w->kernel[i] - 1) - 1;
    out[i] = room < 0 ? 0 : room / w->stride[i] + 1;
  }
  if (out[0] > 0 && out[1] > 0) return MT_OK;
  const bool dilated = w->dilation[0] != 1 || w->dilation[1] != 1;
  char dilation[64] = "";
  if (dilated)
    snprintf(dilation, sizeof dilation, " with dilation %" PRId64 " x %" PRId64,
             w->dilation[0], w->dilation[1]);
  return mt_fail_arg(MT_ESHAPE, arg->x,
                     "output would be %" PRId64 " x %" PRId64 ": kernel %" PRId64
                     " x %" PRId64 "%s does not fit input %" PRId64 " x %" PRId64
                     " with padding %" PRId64 " x %" PRId64,
                     out[0], out[1], w->kernel[0], w->kernel[1], dilation, size[0],
                     size[1], w->padding[0], w->padding[1]);
}

static mt_status check_4d(const mt_view *v, const char *name, const char *dims,
                          int arg) {
  if (v->ndim == 4) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "%s has shape %s, want 4 dims %s", name,
                     mt_view_text(v), dims);
}

static mt_status check_groups(int64_t groups, int64_t c, int64_t k, int arg) {
  if (groups < 1)
    return mt_fail_arg(MT_EARG, arg, "groups %" PRId64 " is not positive", groups);
  if (c % groups || k % groups)
    return mt_fail_arg(MT_ESHAPE, arg,
                       "%" PRId64 " groups do not divide %" PRId64 " input and %" PRId64
                       " output channels",
                       groups, c, k);
  return MT_OK;
}

mt_status mt_check_conv(const mt_view *x, const mt_view *w, const mt_view *b,
                        mt_window *win, int64_t groups, const mt_window_args *arg,
                        int64_t *y) {
  MT_TRY(check_4d(x, "input", "(N, C, H, W)", arg->x));
  MT_TRY(check_4d(w, "weight", "(K, C, KH, KW)", arg->w));
  if (groups < 1) return check_groups(groups, 0, 0, arg->groups);
  if (w->shape[1] * groups != x->shape[1])
    return mt_fail_arg(MT_ESHAPE, arg->w,
                       "input %s has %" PRId64 " channels, weight %s with %" PRId64
                       " groups wants %" PRId64,
                       mt_view_text(x), x->shape[1], mt_view_text(w), groups,
                       w->shape[1] * groups);
  MT_TRY(check_groups(groups, x->shape[1], w->shape[0], arg->groups));
  if (b && (b->ndim != 1 || b->shape[0] != w->shape[0]))
    return mt_fail_arg(MT_ESHAPE, arg->b,
                       "bias %s does not fit weight %s: want [%" PRId64 "]",
                       mt_view_text(b), mt_view_text(w), w->shape[0]);
  win->kernel[0] = w->shape[2], win->kernel[1] = w->shape[3];
  y[0] = x->shape[0], y[1] = w->shape[0];
  MT_TRY(mt_window_output(win, arg, x->shape + 2, y + 2));
  const int64_t high = x->shape[2] + 2 * win->padding[0];
  const int64_t wide = x->shape[3] + 2 * win->padding[1];
  if ((double)x->shape[1] * (double)high * (double)wide > PADDED_LIMIT)
    return mt_fail_arg(MT_ESHAPE, arg->padding,
                       "input %s would be %" PRId64 " x %" PRId64 " with padding",
                       mt_view_text(x), high, wide);
  return MT_OK;
}

mt_status mt_check_dy(const mt_view *dy, int ndim, const int64_t *shape, int arg) {
  bool same = dy->ndim == ndim;
  for (int i = 0; same && i < ndim; i++) same = dy->shape[i] == shape[i];
  if (same) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "dy has shape %s, the forward's result %s",
                     mt_view_text(dy), mt_shape_text(ndim, shape));
}

/* Read stride, padding and dilation from attr[0 .. 2] and write them back as pairs. */
static void read_window(mt_attr *attr, mt_window *w) {
  mt_pair(&attr[0], NULL, w->stride);
  mt_pair(&attr[1], NULL, w->padding);
  mt_pair(&attr[2], NULL, w->dilation);
  attr[0] = mt_attr_list(2, w->stride);
  attr[1] = mt_attr_list(2, w->padding);
  attr[2] = mt_attr_list(2, w->dilation);
}

mt_status mt_rule_conv2d(mt_plan *p) {
  const mt_window_args arg = {
      .x = 1, .w = 2, .b = 3, .stride = 4, .padding = 5, .dilation = 6, .groups = 7};
  mt_window win = {0};
  int64_t y[4];
  read_window(p->attr, &win);
  MT_TRY(mt_check_conv(p->in[0], p->in[1], p->in[2], &win, p->attr[3].i[0], &arg, y));
  mt_plan_shape(p, 0, 4, y);
  return MT_OK;
}

mt_status mt_rule_conv2d_backward_input(mt_plan *p) {
  const mt_window_args arg = {
      .x = 3, .w = 1, .stride = 4, .padding = 5, .dilation = 6, .groups = 7};
  const mt_view *w = p->in[0], *dy = p->in[1];
  const int64_t groups = p->attr[4].i[0];
  MT_TRY(check_4d(w, "weight", "(K, C, KH, KW)", 1));
  MT_TRY(check_4d(dy, "dy", "(N, K, OH, OW)", 2));
  MT_TRY(check_groups(groups, 0, 0, 7));
  mt_view x = {.ndim = 4, .shape = {dy->shape[0], w->shape[1] * groups}};
  mt_pair(&p->attr[0], NULL, x.shape + 2);
  p->attr[0] = mt_attr_list(2, x.shape + 2);
  mt_window win = {0};
  int64_t y[4];
  read_window(p->attr + 1, &win);
  MT_TRY(mt_check_conv(&x, w, NULL, &win, groups, &arg, y));
  MT_TRY(mt_check_dy(dy, 4, y, 2));
  mt_plan_shape(p, 0, 4, x.shape);
  return MT_OK;
}

mt_status mt_rule_conv2d_backward_weight(mt_plan *p) {
  const mt_window_args arg = {.x = 1,
                              .w = 3,
                              .kernel = 3,
                              .stride = 4,
                              .padding = 5,
                              .dilation = 6,
                              .groups = 7};
  const mt_view *x = p->in[0], *dy = p->in[1];
  const int64_t groups = p->attr[4].i[0];
  MT_TRY(check_4d(x, "input", "(N, C, H, W)", 1));
  MT_TRY(check_4d(dy, "dy", "(N, K, OH, OW)", 2));
  MT_TRY(check_groups(groups, x->shape[1], dy->shape[1], 7));
  mt_view w = {.ndim = 4, .shape = {dy->shape[1], x->shape[1] / groups}};
  mt_pair(&p->attr[0], NULL, w.shape + 2);
  p->attr[0] = mt_attr_list(2, w.shape + 2);
  mt_window win = {0};
  int64_t y[4];
  read_window(p->attr + 1, &win);
  MT_TRY(mt_check_conv(x, &w, NULL, &win, groups, &arg, y));
  MT_TRY(mt_check_dy(dy, 4, y, 2));
  mt_plan_shape(p, 0, 4, w.shape);
  return MT_OK;
}
