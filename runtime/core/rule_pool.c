/* runtime/core/rule_pool.c -- shapes of pooling and of its backward ops. */
#include <inttypes.h>
#include "runtime/core/rules.h"
#include "runtime/core/window.h"

/* Does some window of one dim step over all size elements? Only a dilation above size
** can. */
static bool misses(int64_t size, int64_t out, int64_t kernel, int64_t stride,
                   int64_t padding, int64_t dilation) {
  if (dilation <= size || padding == 0) return false;
  for (int64_t o = 0; o < out && o * stride < padding; o++) { /* beginning before 0 */
    const int64_t start = o * stride - padding;
    const int64_t first = (-start + dilation - 1) / dilation;
    if (first >= kernel || start + first * dilation >= size) return true;
  }
  return false;
}

mt_status mt_check_pool(const mt_view *x, const mt_window *win, bool once,
                        const mt_window_args *arg, int64_t *y) {
  if (x->ndim != 3 && x->ndim != 4)
    return mt_fail_arg(MT_ESHAPE, arg->x,
                       "input has shape %s, want (N, C, H, W) or (C, H, W)",
                       mt_view_text(x));
  const int n = x->ndim;
  for (int i = 0; i < n - 2; i++) y[i] = x->shape[i];
  MT_TRY(mt_window_output(win, arg, x->shape + n - 2, y + n - 2));
  for (int i = 0; i < 2; i++) {
    if (2 * win->padding[i] > win->kernel[i])
      return mt_fail_arg(MT_EARG, arg->padding,
                         "padding %" PRId64 " x %" PRId64
                         " is more than half of kernel %" PRId64 " x %" PRId64,
                         win->padding[0], win->padding[1], win->kernel[0],
                         win->kernel[1]);
    if (once && misses(x->shape[n - 2 + i], y[n - 2 + i], win->kernel[i],
                       win->stride[i], win->padding[i], win->dilation[i]))
      return mt_fail_arg(MT_EARG, arg->dilation,
                         "with dilation %" PRId64 " x %" PRId64
                         " some windows hold no element of input %s",
                         win->dilation[0], win->dilation[1], mt_view_text(x));
  }
  return MT_OK;
}

/* Kernel, stride (like kernel if not given) and padding from attr[0 .. 2], back as
 * pairs. */
static mt_window read_window(mt_attr *attr) {
  mt_window w = {.dilation = {1, 1}};
  mt_pair(&attr[0], NULL, w.kernel);
  mt_pair(&attr[1], w.kernel, w.stride);
  mt_pair(&attr[2], NULL, w.padding);
  attr[0] = mt_attr_list(2, w.kernel);
  attr[1] = mt_attr_list(2, w.stride);
  attr[2] = mt_attr_list(2, w.padding);
  return w;
}

mt_status mt_rule_max_pool2d(mt_plan *p) {
  const mt_window_args arg = {
      .x = 1, .kernel = 2, .stride = 3, .padding = 4, .dilation = 5};
  mt_window w = read_window(p->attr);
  int64_t y[4];
  mt_pair(&p->attr[3], NULL, w.dilation);
  p->attr[3] = mt_attr_list(2, w.dilation);
  MT_TRY(mt_check_pool(p->in[0], &w, true, &arg, y));
  mt_plan_shape(p, 0, p->in[0]->ndim, y);
  mt_plan_shape(p, 1, p->in[0]->ndim, y);
  p->out[1].dtype = MT_I64;
  return MT_OK;
}

/* Put size, attribute slot 0, behind the leading dims of dy. */
static mt_status input_shape(mt_plan *p, const mt_view *dy, int arg,
                             mt_view *x /* [out] */) {
  if (dy->ndim != 3 && dy->ndim != 4)
    return mt_fail_arg(MT_ESHAPE, arg,
                       "dy has shape %s, want (N, C, H, W) or (C, H, W)",
                       mt_view_text(dy));
  *x = *dy;
  int64_t *size = x->shape + dy->ndim - 2;
  mt_pair(&p->attr[0], NULL, size);
  p->attr[0] = mt_attr_list(2, size);
  if (size[0] < 1 || size[1] < 1)
    return mt_fail_arg(MT_ESHAPE, arg + 1,
                       "size %" PRId64 " x %" PRId64 " is not positive", size[0],
                       size[1]);
  return MT_OK;
}

mt_status mt_rule_max_pool2d_backward(mt_plan *p) {
  const mt_view *mask = p->in[0], *dy = p->in[1];
  mt_view x;
  MT_TRY(input_shape(p, dy, 2, &x));
  if (!mt_same_shape(mask, dy))
    return mt_fail_arg(MT_ESHAPE, 2, "dy has shape %s, mask %s", mt_view_text(dy),
                       mt_view_text(mask));
  if (!MT_IS_INT(mask->dtype))
    return mt_fail_arg(MT_EDTYPE, 1, "mask is %s, want the int64 of max_pool2d",
                       mt_dtype_name(mask->dtype));
  p->dtype = MT_IS_FLOAT(dy->dtype) ? dy->dtype : p->ctx->default_dtype;
  p->out[0].dtype = p->dtype;
  p->keep_dtype = 1;
  mt_plan_shape(p, 0, x.ndim, x.shape);
  return MT_OK;
}

mt_status mt_rule_avg_pool2d(mt_plan *p) {
  const mt_window_args arg = {.x = 1, .kernel = 2, .stride = 3, .padding = 4};
  const mt_window w = read_window(p->attr);
  int64_t y[4];
  MT_TRY(mt_check_pool(p->in[0], &w, false, &arg, y));
  mt_plan_shape(p, 0, p->in[0]->ndim, y);
  return MT_OK;
}

mt_status mt_rule_avg_pool2d_backward(mt_plan *p) {
  const mt_window_args arg = {.x = 2, .kernel = 3, .stride = 4, .padding = 5};
  mt_view x;
  int64_t y[4];
  MT_TRY(input_shape(p, p->in[0], 1, &x));
  const mt_window w = read_window(p->attr + 1);
  MT_TRY(mt_check_pool(&x, &w, false, &arg, y));
  MT_TRY(mt_check_dy(p->in[0], x.ndim, y, 1));
  mt_plan_shape(p, 0, x.ndim, x.shape);
  return MT_OK;
}
