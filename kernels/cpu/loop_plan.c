/* kernels/cpu/loop_plan.c -- the blocks and tiles in which mt_cpu_rows goes over its
** arguments. */
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/loop.h"

#define LONG_BLOCK  16384 /* elements at once where no buffer is needed */
#define ROW_LEAST   128   /* elements of inner dims that blocks do not go beyond */
#define FEW         8     /* elements that make no transpose */
#define STREAM_PART 512   /* bytes of a block that may pass the caches */

static bool is_transposed(const mt_loop *l, int k, int along, int across) {
  const int64_t size = l->size[k];
  return l->space.stride[k][along] != 0 && l->space.stride[k][along] != size &&
         l->space.stride[k][across] == size;
}

static int count_transposed(const mt_loop *l, int along, int across) {
  int count = 0;
  for (int k = 0; k < l->nargs; k++) count += is_transposed(l, k, along, across);
  return count;
}

/* Where an argument is contiguous along another dim than the first, that is made dim
** 1, or, if most are so, dim 0. */
static void find_tiles(mt_loop *l) {
  mt_space *s = &l->space;
  for (int k = 0; k < l->nargs; k++) l->transposed[k] = false;
  l->tiled = false;
  if (s->ndim < 2 || s->size[0] < FEW) return;
  for (int d = 2; d < s->ndim && count_transposed(l, 0, 1) == 0; d++)
    if (s->size[d] >= FEW && count_transposed(l, 0, d) > 0) mt_space_swap(s, 1, d);
  if (s->size[0] < ROW_LEAST || l->rows == NULL) return; /* blocks are small tiles */
  if (s->size[1] >= ROW_LEAST && count_transposed(l, 1, 0) < count_transposed(l, 0, 1))
    mt_space_swap(s, 0, 1);
  int64_t most = 1;
  for (int k = 0; k < l->nargs; k++) {
    l->transposed[k] = is_transposed(l, k, 0, 1);
    l->tiled |= l->transposed[k];
    if (l->transposed[k] && l->size[k] > most) most = l->size[k];
  }
  l->height = MT_TILE_BYTES / most;
}

/* May a block hold several inner dims? Not where they are long, and some argument would
** need a buffer for that alone. */
static bool holds_many(const mt_loop *l, int64_t limit) {
  const mt_space *s = &l->space;
  if (l->rows == NULL || s->size[0] < ROW_LEAST) return true;
  if (s->ndim < 2 || 2 * s->size[0] > limit) return false;
  for (int k = 0; k < l->nargs; k++)
    if (!l->half[k] && s->stride[k][0] == l->size[k] &&
        s->stride[k][1] != s->size[0] * l->size[k])
      return false;
  return true;
}

/* Blocks of up to `limit` elements. */
static void cut_blocks(mt_loop *l, int64_t limit) {
  const mt_space *s = &l->space;
  int64_t inner = 1;
  l->cut = 0;
  if (l->tiled) {
    l->step = MT_TILE_SIDE;
  } else {
    if (holds_many(l, limit))
      while (l->cut + 1 < s->ndim && inner * s->size[l->cut] <= limit)
        inner *= s->size[l->cut++];
    const int64_t even = (inner & -inner) < MT_ROW_UNIT ? inner & -inner : MT_ROW_UNIT;
    l->step = limit / inner;
    if (l->step > MT_ROW_UNIT / even) l->step -= l->step % (MT_ROW_UNIT / even);
  }
  if (l->step > s->size[l->cut]) l->step = s->size[l->cut];
  l->ncut = (s->size[l->cut] + l->step - 1) / l->step;
  int64_t size[MT_MAX_DIMS];
  for (int d = 0; d < l->cut; d++) size[d] = s->size[d];
  for (int last = l->ncut == 1; last < 2; last++) {
    size[l->cut] = last ? s->size[l->cut] - (l->ncut - 1) * l->step : l->step;
    for (int k = 0; k < l->nargs; k++) {
      mt_piece *p = &l->piece[last][k];
      mt_piece_make(p, l->cut + 1, size, s->stride[k]);
      l->plain[last][k] =
          !l->half[k] && !l->transposed[k] && mt_piece_contiguous(p, l->size[k]);
    }
  }
  for (int k = 0; k < l->nargs && l->ncut == 1; k++) { /* the last is the first */
    l->piece[0][k].n = l->piece[1][k].n;
    l->plain[0][k] = l->plain[1][k];
  }
  for (int k = 0; k < l->nargs; k++) {
    l->still[k] = k >= l->nout;
    for (int d = l->cut; d < s->ndim; d++) l->still[k] &= s->stride[k][d] == 0;
  }
}

/* Does output k pass the caches? */
static bool passes_caches(const mt_loop *l, int k) {
  if (!l->plain[0][k] || !l->plain[1][k] ||
      l->piece[0][k].n * l->size[k] < STREAM_PART ||
      !mt_cpu_streams(l->data[k], l->space.numel * l->size[k]))
    return false;
  for (int i = l->nout; i < l->nargs; i++)
    if (l->data[i] == l->data[k]) return false;
  return true;
}

/* The row that does so itself, if each block begins with a line; NULL. */
static mt_row row_past(const mt_loop *l, int k) {
  const int64_t *stride = l->space.stride[k];
  if (l->rows == NULL || (l->ncut > 1 && l->step * stride[l->cut] % MT_LINE != 0))
    return NULL;
  for (int d = l->cut + 1; d < l->space.ndim; d++)
    if (stride[d] % MT_LINE != 0) return NULL;
  return mt_cpu_row_past(l->rows[k]);
}

/* Are buffers needed? Sets which outputs pass the caches by way of one. */
static bool is_buffered(mt_loop *l) {
  bool buffered = false;
  l->streams = false;
  for (int k = 0; k < l->nargs; k++) {
    const bool passes = k < l->nout && passes_caches(l, k);
    l->streams |= passes;
    l->streamed[k] = passes && row_past(l, k) == NULL;
    buffered |=
        l->streamed[k] ||
        (l->rows == NULL && k == 1 ? l->still[k] : !l->plain[0][k] || !l->plain[1][k]);
  }
  return buffered;
}

void mt_loop_plan(mt_loop *l) {
  int widest = 1;
  for (int k = 0; k < l->nargs; k++)
    widest = l->width[k] > widest ? l->width[k] : widest;
  find_tiles(l);
  for (int d = 0; d < l->space.ndim; d++)
    for (int k = 0; k < l->nargs; k++) l->stride[d][k] = l->space.stride[k][d];
  cut_blocks(l, l->nout > 1 ? LONG_BLOCK / 8 : LONG_BLOCK);
  if (is_buffered(l)) {
    cut_blocks(l, MT_BLOCK_BYTES / widest);
    is_buffered(l);
  }
  l->stream = MT_ISA_PICK(mt_stream);
  l->overlaps = true;
  for (int k = 0; k < l->nout; k++) {
    if (l->streamed[k])
      l->plain[0][k] = l->plain[1][k] = false;
    else if (passes_caches(l, k) && row_past(l, k))
      l->rows[k] = row_past(l, k), l->overlaps = false;
    for (int i = l->nout; i < l->nargs; i++) l->overlaps &= l->data[i] != l->data[k];
  }
}
