/* kernels/cpu/loop.c -- runs rows over strided, broadcast or half-typed views, on
** threads.
**
** The views become a nest of loops (mt_space), worked on in blocks. A row gets
** pointers to contiguous elements: into the view itself where that is contiguous,
** else to a buffer that is filled before and, for an output, emptied after the row.
** Long inner dims are cut into chunks (row mode); where they are short, a block runs
** across them (linear mode). */
#include "kernels/cpu/tables.h"

#define BLOCK       512   /* elements of a buffer */
#define LONG_BLOCK  16384 /* elements at once where no buffer is needed */
#define LINEAR_SIZE 128   /* inner dims below this take linear mode */
#define ELEMENT_MAX 8     /* bytes */

typedef struct loop {
  mt_space space;
  const mt_row *rows; /* one for each output */
  const mt_attr *attr;
  int nout, nargs, nin;            /* args: outputs, then the inputs that are there */
  int8_t arg_of_in[MT_SPACE_ARGS]; /* -1: this input is not there */
  int8_t size[MT_SPACE_ARGS];      /* bytes of an element as stored */
  int8_t width[MT_SPACE_ARGS];     /* bytes of an element as rows see it */
  mt_dtype dtype[MT_SPACE_ARGS];
  bool half[MT_SPACE_ARGS];  /* converted to and from float */
  bool fixed[MT_SPACE_ARGS]; /* one element for all */
  bool plain[MT_SPACE_ARGS]; /* no buffer: inner (linear mode: all) dims contiguous */
  char *data[MT_SPACE_ARGS];
  bool linear, tiled;
  int64_t chunk, nchunk; /* elements of a block; blocks of an inner dim */
} loop;

typedef struct buffers {
  _Alignas(64) char block[MT_SPACE_ARGS][BLOCK * ELEMENT_MAX];
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

static void empty_buffer(const loop *l, int k, int64_t n, const char *src, char *dst,
                         int64_t stride) {
  if (l->half[k])
    mt_cpu_store_floats(l->dtype[k], n, (const float *)src, dst, stride);
  else
    mt_cpu_unpack(n, l->size[k], src, dst, stride);
}

/* Repeat element 0 from n up to a whole unit: what rows compute there is not kept. */
static void pad(char *buffer, int64_t n, int width) {
  for (int64_t i = n; i % MT_ROW_UNIT != 0; i++)
    memcpy(buffer + i * width, buffer, (size_t)width);
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

/* Items: chunks of inner dims. Tiled: those of neighbouring rows follow each other, for
** the sake of an argument that is contiguous along the rows' dim. */
static void row_mode(void *context, int64_t lo, int64_t hi) {
  const loop *l = context;
  const mt_space *s = &l->space;
  buffers b;
  fill_fixed(l, &b, l->chunk);
  for (int64_t item = lo; item < hi; item++) {
    int64_t chunk, row;
    if (l->tiled) {
      row = item / s->size[1];
      chunk = row % l->nchunk;
      row = row / l->nchunk * s->size[1] + item % s->size[1];
    } else {
      row = item / l->nchunk;
      chunk = item % l->nchunk;
    }
    const int64_t start = chunk * l->chunk, left = s->size[0] - start;
    const int64_t n = left < l->chunk ? left : l->chunk;
    char *at[MT_SPACE_ARGS], *ptr[MT_SPACE_ARGS];
    for (int k = 0; k < l->nargs; k++) at[k] = l->data[k] + start * s->stride[k][0];
    for (int d = 1; d < s->ndim; d++) {
      const int64_t i = row % s->size[d];
      row /= s->size[d];
      for (int k = 0; k < l->nargs; k++) at[k] += i * s->stride[k][d];
    }
    for (int k = 0; k < l->nargs; k++) {
      ptr[k] = l->plain[k] ? at[k] : b.block[k];
      if (l->plain[k] || l->fixed[k] || k < l->nout) continue;
      fill_buffer(l, k, n, at[k], s->stride[k][0], b.block[k]);
      pad(b.block[k], n, l->width[k]);
    }
    run_block(l, &b, n, ptr);
    for (int k = 0; k < l->nout; k++)
      if (!l->plain[k]) empty_buffer(l, k, n, b.block[k], at[k], s->stride[k][0]);
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
      if (l->plain[k] || l->fixed[k]) continue;
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
  mt_space_seek(&l->space, lo * BLOCK, coord, offset);
  bool outputs_plain = true;
  for (int k = 0; k < l->nout; k++) outputs_plain &= l->plain[k];
  for (int64_t item = lo; item < hi; item++) {
    const int64_t start = item * BLOCK, left = l->space.numel - start;
    const int64_t n = left < BLOCK ? left : BLOCK;
    int64_t coord0[MT_MAX_DIMS], offset0[MT_SPACE_ARGS];
    char *ptr[MT_SPACE_ARGS];
    memcpy(coord0, coord, sizeof coord);
    memcpy(offset0, offset, sizeof offset);
    walk(l, &b, n, coord, offset, true);
    for (int k = 0; k < l->nargs; k++) {
      ptr[k] = l->plain[k] ? l->data[k] + start * l->size[k] : b.block[k];
      if (!l->plain[k] && !l->fixed[k] && k >= l->nout) pad(b.block[k], n, l->width[k]);
    }
    run_block(l, &b, n, ptr);
    if (!outputs_plain) walk(l, &b, n, coord0, offset0, false);
  }
}

/* ---- setting up ------------------------------------------------------------------ */
static void classify(loop *l) {
  const mt_space *s = &l->space;
  bool buffered = false;
  l->linear = s->ndim > 1 && s->size[0] < LINEAR_SIZE;
  l->tiled = false;
  for (int k = 0; k < l->nargs; k++) {
    int64_t expected = l->size[k];
    bool plain = !l->half[k], fixed = k >= l->nout;
    for (int d = 0; d < s->ndim; d++) {
      if (d == 0 || l->linear)
        plain = plain && (s->stride[k][d] == expected || s->size[d] == 1);
      fixed = fixed && s->stride[k][d] == 0;
      expected *= s->size[d];
    }
    if (s->numel == 1) fixed = false; /* strides say nothing */
    l->plain[k] = plain;
    l->fixed[k] = fixed && !plain;
    buffered |= !plain;
    if (!plain && s->ndim > 1 && s->stride[k][0] != 0 && s->stride[k][0] != l->size[k])
      l->tiled = true;
  }
  l->chunk = buffered ? BLOCK : l->nout > 1 ? 4 * BLOCK : LONG_BLOCK;
  l->nchunk = (s->size[0] + l->chunk - 1) / l->chunk;
}

mt_status mt_cpu_rows(const mt_call *call, const mt_row *rows, int nout,
                      mt_view *const *out, int nin, const mt_view *const *in,
                      const mt_attr *attr, bool halves) {
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
  if (l.linear) {
    const int64_t blocks = (l.space.numel + BLOCK - 1) / BLOCK;
    mt_cpu_parallel_for(call, blocks, MT_GRAIN / BLOCK, linear_mode, &l);
  } else {
    const int64_t per = l.space.size[0] < l.chunk ? l.space.size[0] : l.chunk;
    const int64_t items = l.space.numel / l.space.size[0] * l.nchunk;
    mt_cpu_parallel_for(call, items, mt_cpu_grain(per), row_mode, &l);
  }
  return MT_OK;
}
