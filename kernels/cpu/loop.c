/* kernels/cpu/loop.c -- runs rows over strided, broadcast or half-typed views, on
** threads.
**
** A row gets pointers to contiguous elements of a block: into the view itself where
** that is contiguous, else to a buffer that is filled before and, for an output, emptied
** after the row. Long inner dims are cut into chunks (row mode), of several rows at once
** if an input is transposed (tile mode); short ones are run across (linear mode). */
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu/tables.h"

#define BLOCK       512   /* elements of a buffer */
#define SMALL       256   /* elements that need no plan */
#define LONG_BLOCK  16384 /* elements at once where no buffer is needed */
#define LINEAR_SIZE 128   /* inner dims below this take linear mode */
#define TILE_ROWS   8     /* of tile mode */
#define ELEMENT_MAX 8     /* bytes */
#define AHEAD       2 /* blocks fetched while one is written; half for each of two */

typedef struct loop {
  mt_space space;
  mt_row *rows; /* one for each output */
  const mt_attr *attr;
  int nout, nargs, nin;            /* args: outputs, then the inputs that are there */
  int8_t arg_of_in[MT_SPACE_ARGS]; /* -1: this input is not there */
  int8_t size[MT_SPACE_ARGS];      /* bytes of an element as stored */
  int8_t width[MT_SPACE_ARGS];     /* bytes of an element as rows see it */
  mt_dtype dtype[MT_SPACE_ARGS];
  bool half[MT_SPACE_ARGS];  /* converted to and from float */
  bool fixed[MT_SPACE_ARGS]; /* one element for all */
  bool plain[MT_SPACE_ARGS]; /* no buffer: inner (linear mode: all) dims contiguous */
  bool streamed[MT_SPACE_ARGS];   /* an output that passes the caches, by its buffer */
  bool periodic[MT_SPACE_ARGS];   /* linear mode: the same for each inner dim */
  bool transposed[MT_SPACE_ARGS]; /* tile mode: contiguous along dim 1 */
  char *data[MT_SPACE_ARGS];
  bool linear, tiled, streams;
  const mt_stream_loops *stream;
  mt_transpose_tile transpose[MT_SPACE_ARGS];
  int64_t chunk, nchunk; /* elements of a block; blocks of an inner dim */
} loop;

typedef struct buffers {
  _Alignas(64) char block[MT_SPACE_ARGS][(BLOCK + LINEAR_SIZE) * ELEMENT_MAX];
  _Alignas(64) char tail[MT_SPACE_ARGS][MT_ROW_UNIT * ELEMENT_MAX];
} buffers;

/* ---- moving elements between views and buffers ----------------------------------- */
#define MOVERS(T, bits)                                                            \
  static void gather_##bits(int64_t n, const char *src, int64_t stride, T *dst) {  \
    if (stride == 0) {                                                             \
      const T x = *(const T *)src;                                                 \
      for (int64_t i = 0; i < n; i++) dst[i] = x;                                  \
    } else {                                                                       \
      for (int64_t i = 0; i < n; i++, src += stride) dst[i] = *(const T *)src;     \
    }                                                                              \
  }                                                                                \
  static void scatter_##bits(int64_t n, const T *src, char *dst, int64_t stride) { \
    for (int64_t i = 0; i < n; i++, dst += stride) *(T *)dst = src[i];             \
  }
MOVERS(uint8_t, 8)
MOVERS(uint16_t, 16)
MOVERS(uint32_t, 32)
MOVERS(uint64_t, 64)

void mt_cpu_pack(int64_t n, int size, const char *src, int64_t stride, void *dst) {
  if (stride == size && n * size >= 64) {
    memcpy(dst, src, (size_t)(n * size));
    return;
  }
  switch (size) {
  case 1: gather_8(n, src, stride, dst); break;
  case 2: gather_16(n, src, stride, dst); break;
  case 4: gather_32(n, src, stride, dst); break;
  default: gather_64(n, src, stride, dst);
  }
}

void mt_cpu_unpack(int64_t n, int size, const void *src, char *dst, int64_t stride) {
  if (stride == size && n * size >= 64) {
    memcpy(dst, src, (size_t)(n * size));
    return;
  }
  switch (size) {
  case 1: scatter_8(n, src, dst, stride); break;
  case 2: scatter_16(n, src, dst, stride); break;
  case 4: scatter_32(n, src, dst, stride); break;
  default: scatter_64(n, src, dst, stride);
  }
}

void mt_cpu_load_floats(mt_dtype d, int64_t n, const void *src, int64_t stride,
                        float *dst) {
  if (d == MT_F32)
    mt_cpu_pack(n, 4, src, stride, dst);
  else
    MT_ISA_PICK(mt_halves_rows)->load(d, n, src, stride, dst);
}

void mt_cpu_store_floats(mt_dtype d, int64_t n, const float *src, void *dst,
                         int64_t stride) {
  if (d == MT_F32)
    mt_cpu_unpack(n, 4, src, dst, stride);
  else
    MT_ISA_PICK(mt_halves_rows)->store(d, n, src, dst, stride);
}

static void fill_buffer(const loop *l, int k, int64_t n, const char *src,
                        int64_t stride, char *dst) {
  if (l->half[k])
    mt_cpu_load_floats(l->dtype[k], n, src, stride, (float *)dst);
  else
    mt_cpu_pack(n, l->size[k], src, stride, dst);
}

/* Output k of a block; inputs follow at ptr. */
static void stream_out(const loop *l, const buffers *b, int k, int64_t n, char *dst,
                       char *const *ptr) {
  mt_ahead ahead[MT_SPACE_ARGS];
  int count = 0, blocks = l->nargs - l->nout > 1 ? 1 : AHEAD;
  for (int i = l->nout; i < l->nargs; i++)
    if (l->plain[i])
      ahead[count++] = (mt_ahead){ptr[i] + blocks * l->chunk * l->size[i],
                                  MT_LINE / l->size[k] * l->size[i]};
  mt_cpu_stream(l->stream, n * l->size[k], b->block[k], dst, count, ahead);
}

static void empty_buffer(const loop *l, int k, int64_t n, const char *src, char *dst,
                         int64_t stride) {
  if (l->half[k])
    mt_cpu_store_floats(l->dtype[k], n, (const float *)src, dst, stride);
  else
    mt_cpu_unpack(n, l->size[k], src, dst, stride);
}

/* Repeat element 0 from n up to a whole unit: what rows compute there is not kept. */
static void pad(char *buffer, int64_t n, int width) {
  for (; n % MT_ROW_UNIT != 0; n++) memcpy(buffer + n * width, buffer, (size_t)width);
}

/* ---- blocks ---------------------------------------------------------------------- */
static void call_rows(const loop *l, int64_t n, char *const *ptr) {
  char *p[MT_SPACE_ARGS + 1];
  for (int k = 0; k < l->nout; k++) {
    p[0] = ptr[k];
    for (int i = 0; i < l->nin; i++)
      p[i + 1] = l->arg_of_in[i] < 0 ? ptr[k] : ptr[l->arg_of_in[i]];
    l->rows[k](n, p, l->attr);
  }
}

/* n elements at ptr: whole units, then the rest by way of the tail buffers. Arguments
** that lie in buffers are padded already. */
static void run_block(const loop *l, buffers *b, int64_t n, char *const *ptr) {
  const int64_t whole = n & -MT_ROW_UNIT, rest = n - whole;
  if (whole > 0) call_rows(l, whole, ptr);
  if (rest == 0) return;
  char *p[MT_SPACE_ARGS];
  for (int k = 0; k < l->nargs; k++) {
    p[k] = ptr[k] + whole * l->width[k];
    if (!l->plain[k]) continue;
    if (k >= l->nout) {
      memcpy(b->tail[k], p[k], (size_t)(rest * l->width[k]));
      pad(b->tail[k], rest, l->width[k]);
    }
    p[k] = b->tail[k];
  }
  call_rows(l, MT_ROW_UNIT, p);
  for (int k = 0; k < l->nout; k++)
    if (l->plain[k])
      memcpy(ptr[k] + whole * l->width[k], b->tail[k], (size_t)(rest * l->width[k]));
}

static void fill_fixed(const loop *l, buffers *b, int64_t n) {
  n = n < BLOCK ? (n + MT_ROW_UNIT - 1) & -MT_ROW_UNIT : BLOCK;
  for (int k = l->nout; k < l->nargs; k++)
    if (l->fixed[k]) fill_buffer(l, k, n, l->data[k], 0, b->block[k]);
}

/* Where the args are at element `start` of inner dim number `row`. */
static void seek_row(const loop *l, int64_t row, int64_t start, char **at) {
  const mt_space *s = &l->space;
  for (int k = 0; k < l->nargs; k++) at[k] = l->data[k] + start * s->stride[k][0];
  for (int d = 1; d < s->ndim; d++) {
    const int64_t i = row % s->size[d];
    row /= s->size[d];
    for (int k = 0; k < l->nargs; k++) at[k] += i * s->stride[k][d];
  }
}

/* One block of a row, from where the args are. Those in ptr that are not NULL are there
** already. */
static void row_block(const loop *l, buffers *b, int64_t n, char *const *at,
                      char **ptr) {
  for (int k = 0; k < l->nargs; k++) {
    if (ptr[k] != NULL) continue;
    ptr[k] = l->plain[k] ? at[k] : b->block[k];
    if (l->plain[k] || l->fixed[k] || k < l->nout) continue;
    fill_buffer(l, k, n, at[k], l->space.stride[k][0], b->block[k]);
    pad(b->block[k], n, l->width[k]);
  }
  run_block(l, b, n, ptr);
  for (int k = 0; k < l->nout; k++)
    if (l->streamed[k])
      stream_out(l, b, k, n, at[k], ptr);
    else if (!l->plain[k])
      empty_buffer(l, k, n, b->block[k], at[k], l->space.stride[k][0]);
}

static int64_t chunk_size(const loop *l, int64_t chunk) {
  const int64_t left = l->space.size[0] - chunk * l->chunk;
  return left < l->chunk ? left : l->chunk;
}

static void row_mode(void *context, int64_t lo, int64_t hi) { /* chunks of inner dims */
  const loop *l = context;
  buffers b;
  fill_fixed(l, &b, l->chunk);
  int64_t row = lo / l->nchunk, chunk = lo % l->nchunk;
  char *at[MT_SPACE_ARGS];
  seek_row(l, row, chunk * l->chunk, at);
  for (int64_t item = lo; item < hi; item++) {
    char *ptr[MT_SPACE_ARGS] = {NULL};
    const int64_t n = chunk_size(l, chunk);
    row_block(l, &b, n, at, ptr);
    if (++chunk < l->nchunk) {
      for (int k = 0; k < l->nargs; k++) at[k] += n * l->space.stride[k][0];
    } else if (item + 1 < hi) {
      chunk = 0;
      seek_row(l, ++row, 0, at);
    }
  }
  if (l->streams) mt_cpu_stream_end();
}

/* Items: chunks of TILE_ROWS rows; those along dim 1 follow each other. */
static void tile_mode(void *context, int64_t lo, int64_t hi) {
  const loop *l = context;
  const mt_space *s = &l->space;
  const int64_t groups = (s->size[1] + TILE_ROWS - 1) / TILE_ROWS;
  buffers b;
  fill_fixed(l, &b, l->chunk);
  for (int64_t item = lo; item < hi; item++) {
    const int64_t chunk = item / groups % l->nchunk, n = chunk_size(l, chunk);
    const int64_t first = item % groups * TILE_ROWS, left = s->size[1] - first;
    const int64_t rows = left < TILE_ROWS ? left : TILE_ROWS;
    char *at[MT_SPACE_ARGS];
    seek_row(l, item / groups / l->nchunk * s->size[1] + first, chunk * l->chunk, at);
    for (int k = l->nout; k < l->nargs; k++)
      if (l->transposed[k])
        l->transpose[k](n, rows, at[k], s->stride[k][0], b.block[k],
                        l->chunk * l->size[k]);
    for (int64_t r = 0; r < rows; r++) {
      char *ptr[MT_SPACE_ARGS] = {NULL};
      for (int k = l->nout; k < l->nargs; k++) {
        if (!l->transposed[k]) continue;
        ptr[k] = b.block[k] + r * l->chunk * l->size[k];
        pad(ptr[k], n, l->width[k]);
      }
      row_block(l, &b, n, at, ptr);
      for (int k = 0; k < l->nargs; k++) at[k] += s->stride[k][1];
    }
  }
  if (l->streams) mt_cpu_stream_end();
}

/* The elements of an inner dim, over and over: a block may begin anywhere among
** them. */
static void fill_periodic(const loop *l, buffers *b) {
  const int64_t period = l->space.size[0], all = l->space.numel + MT_ROW_UNIT;
  const int64_t n = period + (all < BLOCK ? all : BLOCK);
  for (int k = l->nout; k < l->nargs; k++) {
    if (!l->periodic[k]) continue;
    const int64_t width = l->width[k];
    char *buffer = b->block[k];
    fill_buffer(l, k, period, l->data[k], l->space.stride[k][0], buffer);
    for (int64_t done = period; done < n;) {
      const int64_t more = done < n - done ? done : n - done;
      memcpy(buffer + done * width, buffer, (size_t)(more * width));
      done += more;
    }
  }
}

/* Fill the inputs' buffers (or empty the outputs') for n elements from coord on, which
** moves past them. */
static void walk(const loop *l, buffers *b, int64_t n, int64_t *coord, int64_t *offset,
                 bool inputs) {
  const mt_space *s = &l->space;
  const int from = inputs ? l->nout : 0, to = inputs ? l->nargs : l->nout;
  for (int64_t done = 0; done < n;) {
    const int64_t left = s->size[0] - coord[0];
    const int64_t run = left < n - done ? left : n - done;
    for (int k = from; k < to; k++) {
      if (l->plain[k] || l->fixed[k] || l->periodic[k] || l->streamed[k]) continue;
      char *buffer = b->block[k] + done * l->width[k], *at = l->data[k] + offset[k];
      if (inputs)
        fill_buffer(l, k, run, at, s->stride[k][0], buffer);
      else
        empty_buffer(l, k, run, buffer, at, s->stride[k][0]);
    }
    done += run;
    mt_space_advance(s, run, coord, offset);
  }
}

static void linear_mode(void *context, int64_t lo, int64_t hi) {
  const loop *l = context;
  buffers b;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  fill_fixed(l, &b, l->space.numel);
  fill_periodic(l, &b);
  mt_space_seek(&l->space, lo * BLOCK, coord, offset);
  bool walk_inputs = false, walk_outputs = false;
  for (int k = 0; k < l->nout; k++) walk_outputs |= !l->plain[k] && !l->streamed[k];
  for (int k = l->nout; k < l->nargs; k++)
    walk_inputs |= !l->plain[k] && !l->fixed[k] && !l->periodic[k];
  for (int64_t item = lo; item < hi; item++) {
    const int64_t start = item * BLOCK, left = l->space.numel - start;
    const int64_t n = left < BLOCK ? left : BLOCK;
    int64_t coord0[MT_MAX_DIMS], offset0[MT_SPACE_ARGS];
    char *ptr[MT_SPACE_ARGS];
    memcpy(coord0, coord, sizeof coord);
    memcpy(offset0, offset, sizeof offset);
    if (walk_inputs) walk(l, &b, n, coord0, offset0, true);
    for (int k = 0; k < l->nargs; k++) {
      ptr[k] = l->plain[k] ? l->data[k] + start * l->size[k] : b.block[k];
      if (l->periodic[k])
        ptr[k] += start % l->space.size[0] * l->width[k];
      else if (!l->plain[k] && !l->fixed[k] && k >= l->nout)
        pad(b.block[k], n, l->width[k]);
    }
    run_block(l, &b, n, ptr);
    for (int k = 0; k < l->nout; k++)
      if (l->streamed[k]) stream_out(l, &b, k, n, l->data[k] + start * l->size[k], ptr);
    if (walk_outputs) {
      walk(l, &b, n, coord, offset, false);
    } else {
      memcpy(coord, coord0, sizeof coord);
      memcpy(offset, offset0, sizeof offset);
    }
  }
  if (l->streams) mt_cpu_stream_end();
}

/* ---- setting up ------------------------------------------------------------------ */
/* Does output k, which is plain, pass the caches? Blocks of it begin with a line. */
static bool passes_caches(const loop *l, int k) {
  const mt_space *s = &l->space;
  if (!mt_cpu_streams(l->data[k], s->numel * l->size[k])) return false;
  for (int d = 1; d < s->ndim && !l->linear; d++)
    if (s->stride[k][d] % MT_LINE != 0) return false;
  for (int i = l->nout; i < l->nargs; i++)
    if (l->data[i] == l->data[k]) return false;
  return true;
}

static void classify(loop *l) {
  const mt_space *s = &l->space;
  bool buffered = false;
  l->linear = s->ndim > 1 && s->size[0] < LINEAR_SIZE;
  l->tiled = l->streams = false;
  l->stream = MT_ISA_PICK(mt_stream);
  for (int k = 0; k < l->nargs; k++) {
    const bool input = k >= l->nout;
    const int64_t size = l->size[k], inner = s->stride[k][0];
    int64_t expected = size;
    bool plain = !l->half[k], fixed = input, periodic = input && l->linear;
    for (int d = 0; d < s->ndim; d++) {
      if (d == 0 || l->linear)
        plain = plain && (s->stride[k][d] == expected || s->size[d] == 1);
      fixed = fixed && s->stride[k][d] == 0;
      periodic = periodic && (d == 0 || s->stride[k][d] == 0);
      expected *= s->size[d];
    }
    if (s->numel == 1) fixed = false; /* strides say nothing */
    l->streamed[k] = !input && plain && passes_caches(l, k);
    l->streams |= l->streamed[k];
    const mt_row past = l->streamed[k] ? mt_cpu_row_past(l->rows[k]) : NULL;
    if (past) l->rows[k] = past, l->streamed[k] = false; /* the row itself does so */
    l->plain[k] = plain = plain && !l->streamed[k];
    l->fixed[k] = fixed && !plain;
    l->periodic[k] = periodic && !fixed && !plain;
    l->transposed[k] = input && !l->linear && !plain && !l->half[k] && s->ndim > 1 &&
                       inner != 0 && s->stride[k][1] == size && s->size[1] > 1;
    if (l->transposed[k]) {
      const int log2_size = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
      l->transpose[k] = (*MT_ISA_PICK(mt_transpose_tiles))[log2_size];
      l->tiled = true;
    }
    buffered |= !plain;
  }
  l->chunk = l->tiled      ? BLOCK / TILE_ROWS
             : buffered    ? BLOCK
             : l->nout > 1 ? 4 * BLOCK
                           : LONG_BLOCK;
  l->nchunk = (s->size[0] + l->chunk - 1) / l->chunk;
}

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

mt_status mt_cpu_rows(const mt_call *call, const mt_row *rows, int nout,
                      mt_view *const *out, int nin, const mt_view *const *in,
                      const mt_attr *attr, bool halves) {
  if (nin < MT_SPACE_ARGS && run_small(rows, nout, out, nin, in, attr)) return MT_OK;
  loop l;
  const mt_view *arg[MT_SPACE_ARGS];
  mt_row wanted[MT_MAX_OUTPUTS];
  l.nout = l.nargs = 0;
  for (int k = 0; k < nout; k++)
    if (out[k] != NULL) wanted[l.nout++] = rows[k], arg[l.nargs++] = out[k];
  for (int i = 0; i < nin; i++) {
    l.arg_of_in[i] = in[i] != NULL ? (int8_t)l.nargs : -1;
    if (in[i] != NULL) arg[l.nargs++] = in[i];
  }
  if (l.nout == 0) return MT_OK;
  l.rows = wanted;
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
  classify(&l);
  const int64_t lines = l.space.numel / l.space.size[0];
  if (l.linear) {
    const int64_t blocks = (l.space.numel + BLOCK - 1) / BLOCK;
    mt_cpu_parallel_for(call, blocks, MT_GRAIN / BLOCK, linear_mode, &l);
  } else if (l.tiled) {
    const int64_t groups = (l.space.size[1] + TILE_ROWS - 1) / TILE_ROWS;
    mt_cpu_parallel_for(call, lines / l.space.size[1] * groups * l.nchunk,
                        mt_cpu_grain(BLOCK), tile_mode, &l);
  } else {
    const int64_t per = l.space.size[0] < l.chunk ? l.space.size[0] : l.chunk;
    mt_cpu_parallel_for(call, lines * l.nchunk, mt_cpu_grain(per), row_mode, &l);
  }
  return MT_OK;
}
