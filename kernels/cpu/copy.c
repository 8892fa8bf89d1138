/* kernels/cpu/copy.c -- copies between any strides and dtypes: clone, _cast, _copy, and
** the backend's own copy. */
#include "kernels/cpu/stream.h"
#include "kernels/cpu/tables.h"

/* ---- the same bytes on both sides ------------------------------------------------ */
#define AHEAD 4096 /* bytes, of what is fetched while other lines are written */

typedef struct plain_copy {
  char *dst;
  const char *src;
  const mt_stream_loops *stream; /* NULL: through the caches */
} plain_copy;

static void plain_range(void *context, int64_t lo, int64_t hi) { /* bytes */
  const plain_copy *c = context;
  if (c->stream) {
    int64_t first = (lo + MT_LINE - 1) & -MT_LINE;
    if (first > hi) first = hi;
    memcpy(c->dst + lo, c->src + lo, (size_t)(first - lo));
    const mt_ahead ahead = {c->src + first + AHEAD, MT_LINE};
    mt_cpu_stream(c->stream, hi - first, c->src + first, c->dst + first, 1, &ahead);
    mt_cpu_stream_end();
  } else {
    memmove(c->dst + lo, c->src + lo, (size_t)(hi - lo));
  }
}

static void copy_plain(const mt_call *call, int64_t bytes, char *dst, const char *src) {
  const bool apart = dst + bytes <= src || src + bytes <= dst;
  plain_copy c = {dst, src, NULL};
  if (apart && mt_cpu_streams(dst, bytes)) c.stream = MT_ISA_PICK(mt_stream);
  mt_cpu_parallel_for(call, bytes, 4 * MT_GRAIN, plain_range, &c);
}

/* ---- transposes ---------------------------------------------------------------------
** dst is contiguous along dim 0, src along dim 1. A tile is a line of dst wide, and
** long in src: pages are what costs most. Where dst is written past the caches, several
** lines of it that follow each other cost less. */
#define TILE_0       64   /* bytes of dim 0 */
#define TILE_1       1024 /* bytes of dim 1 */
#define WIDE_0       512  /* the same past the caches */
#define WIDE_1       256
#define TILE_0_SMALL 256 /* of elements of 1 and 2 bytes, which go through a buffer */

typedef struct transpose {
  mt_space s; /* dst, src */
  char *dst;
  const char *src;
  int64_t size_0, size_1; /* elements of a tile */
  int64_t tiles_0, tiles_1;
  mt_transpose_tile tile;
  const mt_stream_loops *stream; /* NULL: through the caches */
  int64_t width;                 /* if not NULL: bytes of dim 0 of a tile */
} transpose;

/* A tile of whole lines, past the caches: 32 bytes wide strips at a time to a buffer,
** each while the next is fetched. */
static void stream_tile(const transpose *t, int64_t n1, const char *src, char *dst) {
  _Alignas(MT_LINE) char buffer[WIDE_1 / 4 * WIDE_0]; /* [n1][width] */
  const int64_t step = t->s.stride[1][0], size = t->width / t->size_0, side = 32 / size;
  for (int64_t i = 0; i < t->size_0; i += side) {
    const bool last = i + side == t->size_0;
    const char *next = last ? src + n1 * size : src + (i + side) * step;
    for (int64_t r = 0; r < side; r++)
      for (int64_t k = 0; k < n1 * size; k += MT_LINE)
        __builtin_prefetch(next + r * step + k, 0, 2);
    t->tile(side, n1, src + i * step, step, buffer + i * size, t->width);
  }
  t->stream->apart(n1, t->width / MT_LINE, buffer, dst, t->s.stride[0][1]);
}

/* Items: tiles. Those along dim 0 follow each other; along dim 1 if src is fetched
** ahead. */
static void transpose_range(void *context, int64_t lo, int64_t hi) {
  const transpose *t = context;
  const mt_space *s = &t->s;
  for (int64_t item = lo; item < hi; item++) {
    const int64_t tile_0 =
        t->stream ? item / t->tiles_1 % t->tiles_0 : item % t->tiles_0;
    const int64_t tile_1 =
        t->stream ? item % t->tiles_1 : item / t->tiles_0 % t->tiles_1;
    const int64_t i0 = tile_0 * t->size_0, i1 = tile_1 * t->size_1;
    int64_t rest = item / t->tiles_0 / t->tiles_1;
    char *dst = t->dst + i0 * s->stride[0][0] + i1 * s->stride[0][1];
    const char *src = t->src + i0 * s->stride[1][0] + i1 * s->stride[1][1];
    for (int d = 2; d < s->ndim; d++) {
      dst += rest % s->size[d] * s->stride[0][d];
      src += rest % s->size[d] * s->stride[1][d];
      rest /= s->size[d];
    }
    const int64_t left_0 = s->size[0] - i0, left_1 = s->size[1] - i1;
    const int64_t n1 = left_1 < t->size_1 ? left_1 : t->size_1;
    if (t->stream && left_0 >= t->size_0)
      stream_tile(t, n1, src, dst);
    else
      t->tile(left_0 < t->size_0 ? left_0 : t->size_0, n1, src, s->stride[1][0], dst,
              s->stride[0][1]);
  }
  if (t->stream) mt_cpu_stream_end();
}

/* How wide tiles are if dst passes the caches: each of its rows must begin with a line.
** 0: it does not. */
static int64_t stream_width(const mt_space *s, const char *dst, int64_t size) {
  if (size < 4 || !mt_cpu_streams(dst, s->numel * size)) return 0;
  for (int d = 1; d < s->ndim; d++)
    if (s->stride[0][d] % MT_LINE != 0) return 0;
  int64_t width = WIDE_0;
  while (width > s->size[0] * size) width /= 2;
  return width >= 2 * MT_LINE ? width : 0;
}

/* Is this a transpose? Then make src's contiguous dim dim 1. */
static bool transpose_make(transpose *t, const mt_space *space, const char *dst,
                           int64_t size) {
  if (space->ndim < 2 || space->stride[0][0] != size || space->stride[1][0] == size ||
      space->stride[1][0] == 0)
    return false;
  for (int d = 1; d < space->ndim; d++) {
    if (space->stride[1][d] != size || space->size[d] < 4) continue;
    t->s = *space;
    t->s.size[1] = space->size[d], t->s.size[d] = space->size[1];
    for (int k = 0; k < 2; k++) {
      t->s.stride[k][1] = space->stride[k][d];
      t->s.stride[k][d] = space->stride[k][1];
    }
    t->width = stream_width(&t->s, dst, size);
    t->stream = t->width > 0 ? MT_ISA_PICK(mt_stream) : NULL;
    t->size_0 = (t->stream ? t->width : size <= 2 ? TILE_0_SMALL : TILE_0) / size;
    t->size_1 = (t->stream ? WIDE_1 : TILE_1) / size;
    t->tiles_0 = (t->s.size[0] + t->size_0 - 1) / t->size_0;
    t->tiles_1 = (t->s.size[1] + t->size_1 - 1) / t->size_1;
    t->tile = (*MT_ISA_PICK(mt_transpose_tiles))[size == 1   ? 0
                                                 : size == 2 ? 1
                                                 : size == 4 ? 2
                                                             : 3];
    return true;
  }
  return false;
}

/* ---- all of it ------------------------------------------------------------------- */
static mt_dtype bytes_dtype(int64_t size) {
  return size == 1 ? MT_U8 : size == 2 ? MT_I16 : size == 4 ? MT_I32 : MT_I64;
}

static mt_status copy_same(const mt_call *call, const mt_view *dst,
                           const mt_view *src) {
  const mt_view *const arg[2] = {dst, src};
  const int64_t size = mt_cpu_size(dst->dtype);
  mt_space s;
  mt_space_make(&s, 2, arg, false);
  if (s.numel == 0) return MT_OK;
  if (s.ndim == 1 &&
      (s.numel == 1 || (s.stride[0][0] == size && s.stride[1][0] == size))) {
    copy_plain(call, s.numel * size, dst->data, src->data);
    return MT_OK;
  }
  transpose t;
  if (transpose_make(&t, &s, dst->data, size)) {
    t.dst = dst->data, t.src = src->data;
    const int64_t tiles = s.numel / s.size[0] / t.s.size[1] * t.tiles_0 * t.tiles_1;
    mt_cpu_parallel_for(call, tiles, mt_cpu_grain(t.size_0 * t.size_1), transpose_range,
                        &t);
    return MT_OK;
  }
  mt_view to = *dst, from = *src; /* half types are moved, not converted */
  to.dtype = from.dtype = bytes_dtype(size);
  mt_view *const out = &to;
  const mt_view *const in = &from;
  return mt_cpu_rows(call, NULL, 1, &out, 1, &in, NULL, false);
}

mt_status mt_cpu_copy_view(const mt_call *call, const mt_view *dst,
                           const mt_view *src) {
  if (dst->dtype == src->dtype || (dst->dtype == MT_U8 && src->dtype == MT_BOOL))
    return copy_same(call, dst, src);
  mt_view to = *dst;
  mt_view *const out = &to;
  const mt_row row = (*MT_ISA_PICK(mt_convert_rows))[src->dtype][dst->dtype];
  return mt_cpu_rows(call, &row, 1, &out, 1, &src, NULL, false);
}

static mt_status clone_run(const mt_call *call) {
  return mt_cpu_copy_view(call, call->out[0], call->in[0]);
}

static mt_status copy_over_run(const mt_call *call) {
  return mt_cpu_copy_view(call, call->out[0], call->in[1]);
}

extern const mt_entry mt_cpu_clone, mt_cpu__cast, mt_cpu__copy;
const mt_entry mt_cpu_clone = {clone_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu__cast = {clone_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu__copy = {copy_over_run, NULL, MT_ALL_MASK, 0};
