/* runtime/core/window.h -- geometry of sliding windows, and the checks of convolution
** and pooling that shape rules and the forward/backward pairs share. */
#ifndef MT_WINDOW_H
#define MT_WINDOW_H

#include "runtime/core/op.h"

/* Kernel, stride, padding and dilation of both spatial dims: (height, width). */
typedef struct mt_window {
  int64_t kernel[2], stride[2], padding[2], dilation[2];
} mt_window;

/* Argument numbers, from 1, that errors name; 0: none in particular. */
typedef struct mt_window_args {
  int x, w, b, dy, kernel, stride, padding, dilation, groups;
} mt_window_args;

/* A pair attribute: one number means both; not given: like preset. */
void mt_pair(const mt_attr *a, const int64_t *preset /* [optional] */,
             int64_t *pair /* [out] */);

/* The output size of windows over size (height, width): every field in its range, and
** at least one window that fits. */
mt_status mt_window_output(const mt_window *w, const mt_window_args *arg,
                           const int64_t *size, int64_t *out /* [out] */);

/* What conv2d checks about x, w and b (may be NULL); y gets the result's shape (4).
*Sets
** the kernel of win from w. */
mt_status mt_check_conv(const mt_view *x, const mt_view *w, const mt_view *b,
                        mt_window *win, int64_t groups, const mt_window_args *arg,
                        int64_t *y /* [out] */);

/* What pooling checks about x, (N, C, H, W) or (C, H, W); y gets the result's shape.
*With
** once: every window must hold an element of x (max pooling). */
mt_status mt_check_pool(const mt_view *x, const mt_window *win, bool once,
                        const mt_window_args *arg, int64_t *y /* [out] */);

/* dy must have the forward's shape. */
mt_status mt_check_dy(const mt_view *dy, int ndim, const int64_t *shape, int arg);

#endif
