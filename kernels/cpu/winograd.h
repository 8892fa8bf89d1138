/* kernels/cpu/winograd.h -- 3 x 3 and 5 x 5 windows with stride 1 by Winograd's F(4 x 4,
** 3 x 3) and F(2 x 2, 5 x 5). */
#ifndef MT_WINOGRAD_H
#define MT_WINOGRAD_H

#include "kernels/cpu/gemm.h"

/* A tile is 4 x 4, or 2 x 2, elements of y, made of a patch of 6 x 6 of x; in between
** there are as many products, MT_POINTS of them. The polynomials are evaluated at 0, 5/8,
** -5/8, 3/2, -3/2 and infinity: products of these are exact, and of rounding errors they
** make a third of what the usual 0, 1, -1, 2, -2 do. */
#define MT_POINTS 36
#define MT_PATCH  6

/* Tiles lie side by side: a vector is one element of `lanes` tiles. Counts are rounded up
** to whole vectors, which must have room. m is a tile's side, r a window's. */
typedef struct mt_winograd_window {
  /* to[j * step + t] = row[m * t + j] for t < tiles and j < columns (6 or m). Rows go
  ** from the first one on: what lies before `to` is kept, also of columns' last tiles. */
  void (*split_row)(int64_t tiles, int columns, const float *row, float *to,
                    int64_t step);
  /* to[e * step + t]: patches of x. Element (i, j) of tile t's patch lies at
  ** from[((i % m) * 6 + j) * plane + i / m * width + t]. */
  void (*patches)(int64_t tiles, const float *from, int64_t plane, int64_t width,
                  float *to, int64_t step);
  /* the same of gradients: element (i, j) of a tile at from[(i * m + j) * plane + t] */
  void (*gradients)(int64_t tiles, const float *from, int64_t plane, float *to,
                    int64_t step);
  /* to[i * row + m * t + j] = element (i, j) of tile t of y, from its products
  ** from[e * step + t], plus bias; with relu what is below 0 becomes 0 */
  void (*tiles)(int64_t tiles, const float *from, int64_t step, float bias, bool relu,
                float *to, int64_t row);
  /* to[e * step + p * rows + k]: filters k < count <= rows, a panel of a packed matrix,
  ** from w[k * wk + p * wp + (0 .. r * r - 1)], turned by 180 degrees with flip; p <
  ** depth */
  void (*filters)(int64_t count, int64_t rows, int64_t depth, const float *w,
                  int64_t wk, int64_t wp, bool flip, float *to, int64_t step);
  /* dw[p * r * r + (0 .. r * r - 1)]: a filter's gradient, from its products' from[e *
  ** step + p] */
  void (*filter_gradients)(int64_t depth, const float *from, int64_t step, float *dw);
} mt_winograd_window;

/* The loops for one level of x86-64. */
typedef struct mt_winograd_isa {
  int lanes;
  /* n elements of a dtype (float32 or a half type) to floats, and rows of floats to it */
  void (*read_row[MT_BF16 + 1])(int64_t n, const void *from, float *to);
  void (*write_rows[MT_BF16 + 1])(int64_t rows, int64_t n, const float *from,
                                  int64_t from_row, void *to, int64_t to_row);
  /* to[t * to_row + c] = from[c * row + t]; whole vectors of both */
  void (*turn)(int64_t channels, int64_t tiles, const float *from, int64_t row,
               float *to, int64_t to_row);
  mt_winograd_window three, five;
} mt_winograd_isa;
MT_ISA_DECLARE(const mt_winograd_isa, mt_winograd); /* rows_winograd.c */

/* Is it fast for this one, and accurate enough? The answer does not depend on threads. */
bool mt_winograd_takes(const mt_conv *v);
size_t mt_winograd_scratch(const mt_conv *v, int threads);
void mt_winograd_run(const mt_conv *v, void *scratch, int threads);

/* The gradient to the weights, which are written: v->y is that to y. */
bool mt_winograd_takes_gradient(const mt_conv *v);
size_t mt_winograd_gradient_scratch(const mt_conv *v, int threads);
void mt_winograd_gradient_run(const mt_conv *v, void *dw, void *scratch, int threads);

#endif
