/* kernels/cpu/loop.c -- runs rows over strided, broadcast or half-typed views, on
** threads.
**
** A row gets pointers to contiguous elements of a block: into the view itself where
** that is contiguous, else to a buffer that is filled before and, for an output,
** emptied after the row. A block is part of a long inner dim, or some whole short
** ones; or, if an argument is transposed, a row of a tile of two dims. */
#include "kernels/cpu/loop.h"
#include "kernels/cpu/tables.h"

#define SMALL       256 /* elements that need no plan */
#define ELEMENT_MAX 8   /* bytes */
#define AHEAD       2   /* blocks fetched while one is written; half for each of two */

typedef struct buffers {
  _Alignas(64) char block[MT_SPACE_ARGS][MT_BLOCK_BYTES];
  _Alignas(64) char tail[MT_SPACE_ARGS][MT_ROW_UNIT * ELEMENT_MAX];
  const char *from[MT_SPACE_ARGS]; /* where the input lies that a block holds */
  int64_t held[MT_SPACE_ARGS];     /* how much of it */
} buffers;

typedef struct tiles {
  _Alignas(64) char of[MT_SPACE_ARGS][MT_TILE_BYTES * MT_TILE_SIDE];
} tiles;

/* ---- moving elements between views and buffers ----------------------------------- */
static void fill_buffer(const mt_loop *l, int k, const mt_piece *p, const char *src,
                        char *dst) {
  if (!l->half[k]) {
    mt_piece_pack(p, l->size[k], src, dst);
  } else if (mt_piece_contiguous(p, 2)) {
    mt_cpu_load_floats(l->dtype[k], p->n, src, 2, (float *)dst);
  } else {
    char raw[MT_BLOCK_BYTES / 2];
    mt_piece_pack(p, 2, src, raw);
    mt_cpu_load_floats(l->dtype[k], p->n, raw, 2, (float *)dst);
  }
}

static void empty_buffer(const mt_loop *l, int k, const mt_piece *p, const char *src,
                         char *dst) {
  if (!l->half[k]) {
    mt_piece_unpack(p, l->size[k], src, dst);
  } else if (mt_piece_contiguous(p, 2)) {
    mt_cpu_store_floats(l->dtype[k], p->n, (const float *)src, dst, 2);
  } else {
    char raw[MT_BLOCK_BYTES / 2];
    mt_cpu_store_floats(l->dtype[k], p->n, (const float *)src, raw, 2);
    mt_piece_unpack(p, 2, raw, dst);
  }
}

/* Output k of a block, which lies at src; inputs follow at ptr. */
static void stream_out(const mt_loop *l, int k, int64_t n, const char *src, char *dst,
                       char *const *ptr) {
  mt_ahead ahead[MT_SPACE_ARGS];
  int count = 0, blocks = l->nargs - l->nout > 1 ? 1 : AHEAD;
  for (int i = l->nout; i < l->nargs; i++)
    if (l->plain[0][i])
      ahead[count++] = (mt_ahead){ptr[i] + blocks * l->piece[0][i].n * l->size[i],
                                  MT_LINE / l->size[k] * l->size[i]};
  mt_cpu_stream(l->stream, n * l->size[k], src, dst, count, ahead);
}

/* Repeat element 0 from n up to a whole unit: what rows compute there is not kept. */
static void pad(char *buffer, int64_t n, int width) {
  for (; n % MT_ROW_UNIT != 0; n++) memcpy(buffer + n * width, buffer, (size_t)width);
}

/* ---- blocks ---------------------------------------------------------------------- */
static void call_rows(const mt_loop *l, int64_t n, char *const *ptr) {
  char *p[MT_SPACE_ARGS + 1];
  for (int k = 0; k < l->nout; k++) {
    p[0] = ptr[k];
    for (int i = 0; i < l->nin; i++)
      p[i + 1] = l->arg_of_in[i] < 0 ? ptr[k] : ptr[l->arg_of_in[i]];
    l->rows[k](n, p, l->attr);
  }
}

/* n elements at ptr: whole units, then the rest, as the end of a unit or by way of the
** tail buffers. Arguments that lie in buffers are padded already. */
static void run_block(const mt_loop *l, buffers *b, int64_t n, const bool *plain,
                      char *const *ptr) {
  const int64_t whole = n & -MT_ROW_UNIT, rest = n - whole;
  char *p[MT_SPACE_ARGS];
  if (whole > 0) call_rows(l, whole, ptr);
  if (rest == 0) return;
  if (l->overlaps && whole > 0) {
    for (int k = 0; k < l->nargs; k++) p[k] = ptr[k] + (n - MT_ROW_UNIT) * l->width[k];
    call_rows(l, MT_ROW_UNIT, p);
    return;
  }
  for (int k = 0; k < l->nargs; k++) {
    p[k] = ptr[k] + whole * l->width[k];
    if (!plain[k]) continue;
    if (k >= l->nout) {
      memcpy(b->tail[k], p[k], (size_t)(rest * l->width[k]));
      pad(b->tail[k], rest, l->width[k]);
    }
    p[k] = b->tail[k];
  }
  call_rows(l, MT_ROW_UNIT, p);
  for (int k = 0; k < l->nout; k++)
    if (plain[k])
      memcpy(ptr[k] + whole * l->width[k], b->tail[k], (size_t)(rest * l->width[k]));
}

/* Where a block of input k can be read: in its buffer, which is filled unless it holds
** that already, or at `at`. */
static char *input_at(const mt_loop *l, buffers *b, int k, int last, char *at) {
  const mt_piece *p = &l->piece[last][k];
  if (l->plain[last][k]) return at;
  if (b->from[k] != at || b->held[k] < p->n) {
    fill_buffer(l, k, p, at, b->block[k]);
    pad(b->block[k], p->n, l->width[k]);
    b->from[k] = at, b->held[k] = p->n;
  }
  return b->block[k];
}

/* A block whose args are at `at`; those in ptr that are not NULL are there already. */
static void compute(const mt_loop *l, buffers *b, int last, char *const *at,
                    char **ptr) {
  const int64_t n = l->piece[last][0].n;
  for (int k = 0; k < l->nargs; k++)
    if (ptr[k] == NULL)
      ptr[k] = k >= l->nout        ? input_at(l, b, k, last, at[k])
               : l->plain[last][k] ? at[k]
                                   : b->block[k];
  run_block(l, b, n, l->plain[last], ptr);
  for (int k = 0; k < l->nout; k++)
    if (l->streamed[k])
      stream_out(l, k, n, ptr[k], at[k], ptr);
    else if (!l->plain[last][k] && !l->transposed[k])
      empty_buffer(l, k, &l->piece[last][k], b->block[k], at[k]);
}

/* The same where nothing is computed: one output, one input. */
static void move(const mt_loop *l, buffers *b, int last, char *const *at) {
  const mt_piece *to = &l->piece[last][0], *from = &l->piece[last][1];
  const int size = l->size[0];
  if (!l->streamed[0] && !l->still[1] && l->plain[last][0]) {
    mt_piece_pack(from, size, at[1], at[0]);
    return;
  }
  char *ptr[2] = {NULL, input_at(l, b, 1, last, at[1])};
  if (l->streamed[0])
    stream_out(l, 0, to->n, ptr[1], at[0], ptr);
  else
    mt_piece_unpack(to, size, ptr[1], at[0]);
}

/* Where the args are at this place, which is counted from dim `from` on. */
static void seek(const mt_loop *l, int64_t place, int from, int64_t *coord, char **at) {
  const mt_space *s = &l->space;
  for (int d = from; d < s->ndim; d++) {
    coord[d] = place % s->size[d];
    place /= s->size[d];
    for (int k = 0; k < l->nargs; k++) at[k] += coord[d] * l->stride[d][k];
  }
}

static void block_range(void *context, int64_t lo, int64_t hi) {
  const mt_loop *l = context;
  const mt_space *s = &l->space;
  buffers b;
  memset(b.from, 0, sizeof b.from);
  int64_t coord[MT_MAX_DIMS], cut = lo % l->ncut;
  char *at[MT_SPACE_ARGS];
  for (int k = 0; k < l->nargs; k++)
    at[k] = l->data[k] + cut * l->step * l->stride[l->cut][k];
  seek(l, lo / l->ncut, l->cut + 1, coord, at);
  for (int64_t item = lo; item < hi; item++) {
    const int last = cut + 1 == l->ncut;
    char *ptr[MT_SPACE_ARGS] = {NULL};
    if (l->rows)
      compute(l, &b, last, at, ptr);
    else
      move(l, &b, last, at);
    if (!last) {
      cut++;
      for (int k = 0; k < l->nargs; k++) at[k] += l->step * l->stride[l->cut][k];
      continue;
    }
    for (int k = 0; k < l->nargs; k++) at[k] -= cut * l->step * l->stride[l->cut][k];
    cut = 0;
    for (int d = l->cut + 1; d < s->ndim; d++) {
      const bool ends = ++coord[d] == s->size[d];
      if (ends) coord[d] = 0;
      for (int k = 0; k < l->nargs; k++)
        at[k] += l->stride[d][k] * (ends ? 1 - s->size[d] : 1);
      if (!ends) break;
    }
  }
  if (l->streams) mt_cpu_stream_end();
}

/* ---- tiles ----------------------------------------------------------------------- */
static mt_transpose_tile transpose_of(const mt_loop *l, int k) {
  return (*MT_ISA_PICK(mt_transpose_tiles))[__builtin_ctz((unsigned)l->size[k])];
}

/* Row r of a tile: n elements, the args at `at`. */
static void tile_row(const mt_loop *l, buffers *b, tiles *t, int last, int64_t r,
                     char *const *at) {
  const int64_t n = l->piece[last][0].n;
  char *ptr[MT_SPACE_ARGS] = {NULL};
  for (int k = 0; k < l->nargs; k++) {
    if (!l->transposed[k]) continue;
    char *row = t->of[k] + r * MT_TILE_SIDE * l->size[k];
    ptr[k] = l->half[k] ? b->block[k] : row;
    if (k < l->nout) continue;
    if (l->half[k]) mt_cpu_load_floats(l->dtype[k], n, row, 2, (float *)ptr[k]);
    pad(ptr[k], n, l->width[k]);
  }
  compute(l, b, last, at, ptr);
  for (int k = 0; k < l->nout; k++)
    if (l->transposed[k] && l->half[k])
      mt_cpu_store_floats(l->dtype[k], n, (const float *)ptr[k],
                          t->of[k] + r * MT_TILE_SIDE * l->size[k], 2);
}

/* Items: tiles; those along dim 1 follow each other. */
static void tile_range(void *context, int64_t lo, int64_t hi) {
  const mt_loop *l = context;
  const mt_space *s = &l->space;
  const int64_t groups = (s->size[1] + l->height - 1) / l->height;
  buffers b;
  tiles t;
  memset(b.from, 0, sizeof b.from);
  for (int64_t item = lo; item < hi; item++) {
    const int64_t cut = item / groups % l->ncut, first = item % groups * l->height;
    const int64_t left = s->size[1] - first, rows = left < l->height ? left : l->height;
    const int last = cut + 1 == l->ncut;
    const int64_t n = l->piece[last][0].n;
    int64_t coord[MT_MAX_DIMS];
    char *at[MT_SPACE_ARGS], *begin[MT_SPACE_ARGS];
    for (int k = 0; k < l->nargs; k++)
      at[k] = l->data[k] + cut * l->step * l->stride[0][k] + first * l->stride[1][k];
    seek(l, item / groups / l->ncut, 2, coord, at);
    memcpy(begin, at, sizeof at);
    for (int k = l->nout; k < l->nargs; k++) {
      if (!l->transposed[k]) continue;
      const char *next =
          at[k] + l->height * l->size[k]; /* of the tile after this one */
      for (int64_t i = 0; i < n; i++) __builtin_prefetch(next + i * l->stride[0][k]);
      transpose_of(l, k)(n, rows, at[k], l->stride[0][k], t.of[k],
                         MT_TILE_SIDE * l->size[k]);
    }
    for (int64_t r = 0; r < rows; r++) {
      tile_row(l, &b, &t, last, r, at);
      for (int k = 0; k < l->nargs; k++) at[k] += l->stride[1][k];
    }
    for (int k = 0; k < l->nout; k++)
      if (l->transposed[k])
        transpose_of(l, k)(rows, n, t.of[k], MT_TILE_SIDE * l->size[k], begin[k],
                           l->stride[0][k]);
  }
  if (l->streams) mt_cpu_stream_end();
}

/* ---- all of it ------------------------------------------------------------------- */
/* Few contiguous elements need no plan: n of them, as every output is laid out. 0: there
** are none, too many, or others. */
static int64_t small_size(int nout, mt_view *const *out, const mt_view **first) {
  int64_t n = 0;
  *first = NULL;
  for (int k = 0; k < nout; k++) {
    const mt_view *v = out[k];
    if (v == NULL) continue;
    int64_t expected = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
      if (v->stride[d] != expected && v->shape[d] != 1) return 0;
      expected *= v->shape[d];
    }
    if (expected > SMALL || mt_cpu_is_half(v->dtype)) return 0;
    n = expected, *first = v;
  }
  return n;
}

/* The same where each input is laid out as the outputs are, or is one element for all.
** False: it is not so, and nothing was done. */
static bool run_small(const mt_row *rows, int nout, mt_view *const *out, int nin,
                      const mt_view *const *in, const mt_attr *attr) {
  _Alignas(64) char block[MT_SPACE_ARGS][SMALL * ELEMENT_MAX];
  char *p[MT_SPACE_ARGS + 1];
  const mt_view *first;
  const int64_t n = small_size(nout, out, &first);
  if (n == 0) return false;
  const int64_t padded = (n + MT_ROW_UNIT - 1) & -MT_ROW_UNIT;
  for (int i = 0; i < nin; i++) {
    const mt_view *v = in[i];
    p[i + 1] = first->data; /* of an input that no row reads */
    if (v == NULL) continue;
    bool like = v->ndim == first->ndim, fixed = like;
    if (!like || mt_cpu_is_half(v->dtype)) return false;
    for (int d = 0; d < v->ndim; d++) {
      like = like && (v->stride[d] == first->stride[d] || v->shape[d] == 1);
      fixed = fixed && v->stride[d] == 0;
    }
    if (!like && !fixed) return false;
    const int size = (int)mt_cpu_size(v->dtype);
    p[i + 1] = like && n == padded ? v->data : block[i];
    if (!like) {
      mt_cpu_pack(padded, size, v->data, 0, block[i]);
    } else if (n != padded) {
      memcpy(block[i], v->data, (size_t)(n * size));
      pad(block[i], n, size);
    }
  }
  char *last = block[MT_SPACE_ARGS - 1]; /* what rows compute beyond n is not kept */
  for (int k = 0; k < nout; k++) {
    if (out[k] == NULL) continue;
    p[0] = n == padded ? out[k]->data : last;
    rows[k](padded, p, attr);
    if (n != padded)
      memcpy(out[k]->data, last, (size_t)(n * mt_cpu_size(out[k]->dtype)));
  }
  return true;
}

/* Are these the same elements? */
static bool is_same(const mt_view *a, const mt_view *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != b->shape[d] || a->stride[d] != b->stride[d]) return false;
  return true;
}

/* Input v as an argument; one that is there already is not loaded twice. */
static int8_t add_input(mt_loop *l, const mt_view **arg, const mt_view *v) {
  if (v == NULL) return -1;
  for (int k = l->nout; k < l->nargs; k++)
    if (is_same(arg[k], v)) return (int8_t)k;
  arg[l->nargs] = v;
  return (int8_t)l->nargs++;
}

mt_status mt_cpu_rows(const mt_call *call, const mt_row *rows, int nout,
                      mt_view *const *out, int nin, const mt_view *const *in,
                      const mt_attr *attr, bool halves) {
  if (rows != NULL && nin < MT_SPACE_ARGS && run_small(rows, nout, out, nin, in, attr))
    return MT_OK;
  mt_loop l;
  const mt_view *arg[MT_SPACE_ARGS];
  mt_row wanted[MT_MAX_OUTPUTS];
  l.nout = l.nargs = 0;
  for (int k = 0; k < nout; k++) {
    if (out[k] == NULL) continue;
    if (rows) wanted[l.nout] = rows[k];
    l.nout++, arg[l.nargs++] = out[k];
  }
  if (l.nout == 0) return MT_OK;
  for (int i = 0; i < nin; i++) l.arg_of_in[i] = add_input(&l, arg, in[i]);
  l.rows = rows ? wanted : NULL;
  l.attr = attr;
  l.nin = nin;
  mt_space_make(&l.space, l.nargs, arg, false);
  if (l.space.numel == 0) return MT_OK;
  for (int k = 0; k < l.nargs; k++) {
    l.dtype[k] = arg[k]->dtype;
    l.half[k] = halves && mt_cpu_is_half(l.dtype[k]);
    l.size[k] = (int8_t)mt_cpu_size(l.dtype[k]);
    l.width[k] = l.half[k] ? 4 : l.size[k];
    l.data[k] = arg[k]->data;
  }
  mt_loop_plan(&l);
  const mt_space *s = &l.space;
  const int64_t n = l.piece[0][0].n, rest = l.ncut * s->numel;
  if (l.tiled) {
    const int64_t groups = (s->size[1] + l.height - 1) / l.height;
    mt_cpu_parallel_for(call, rest / s->size[0] / s->size[1] * groups,
                        mt_cpu_grain(n * l.height), tile_range, &l);
  } else {
    int64_t inner = 1;
    for (int d = 0; d <= l.cut; d++) inner *= s->size[d];
    mt_cpu_parallel_for(call, rest / inner, mt_cpu_grain(n), block_range, &l);
  }
  return MT_OK;
}
