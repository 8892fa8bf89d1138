/* kernels/cpu/pack.c -- strided elements to and from contiguous ones of the same
** size. */
#include "kernels/cpu/pack.h"
#include "kernels/cpu/tables.h"

#define TRANSPOSE_LEAST 8 /* elements along either dim */

static int log2_of(int size) { return __builtin_ctz((unsigned)size); }

/* ---- lines ----------------------------------------------------------------------- */
void mt_cpu_pack(int64_t n, int size, const char *src, int64_t stride, void *dst) {
  if (stride == size && n * size >= 64)
    memcpy(dst, src, (size_t)(n * size));
  else
    MT_ISA_PICK(mt_pack)->elements[log2_of(size)](n, src, stride, dst, size);
}

void mt_cpu_unpack(int64_t n, int size, const void *src, char *dst, int64_t stride) {
  if (stride == size && n * size >= 64)
    memcpy(dst, src, (size_t)(n * size));
  else
    MT_ISA_PICK(mt_pack)->elements[log2_of(size)](n, src, size, dst, stride);
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

/* ---- pieces ---------------------------------------------------------------------- */
void mt_piece_make(mt_piece *p, int ndim, const int64_t *size, const int64_t *stride) {
  p->ndim = 0, p->n = 1;
  for (int d = 0; d < ndim; d++) {
    p->n *= size[d];
    if (size[d] == 1) continue;
    const int last = p->ndim - 1;
    if (last >= 0 && stride[d] == p->stride[last] * p->size[last])
      p->size[last] *= size[d];
    else
      p->size[p->ndim] = size[d], p->stride[p->ndim++] = stride[d];
  }
  if (p->ndim == 0) p->ndim = 1, p->size[0] = 1, p->stride[0] = 0;
}

/* The first `bytes` at dst, `times` times altogether. */
static void repeat(char *dst, int64_t bytes, int64_t times) {
  const int64_t all = bytes * times;
  for (int64_t done = bytes; done < all;) {
    const int64_t more = done < all - done ? done : all - done;
    memcpy(dst + done, dst, (size_t)more);
    done += more;
  }
}

/* Elements along dim 0 at these steps of bytes on either side, then the same along
** dim 1. */
static void move_plane(const mt_pack_loops *loops, int size, int64_t n0, int64_t n1,
                       const char *src, int64_t from0, int64_t from1, char *dst,
                       int64_t to0, int64_t to1) {
  if (from0 == size && to0 == size) {
    loops->rows(n1, n0 * size, src, from1, dst, to1);
  } else if (n0 >= TRANSPOSE_LEAST && n1 >= TRANSPOSE_LEAST && from1 == size &&
             to0 == size) {
    (*MT_ISA_PICK(mt_transpose_tiles))[log2_of(size)](n0, n1, src, from0, dst, to1);
  } else if (n0 >= TRANSPOSE_LEAST && n1 >= TRANSPOSE_LEAST && from0 == size &&
             to1 == size) {
    (*MT_ISA_PICK(mt_transpose_tiles))[log2_of(size)](n1, n0, src, from1, dst, to0);
  } else if (n0 < n1) { /* few long lines are better than many short ones */
    for (int64_t i = 0; i < n0; i++)
      loops->elements[log2_of(size)](n1, src + i * from0, from1, dst + i * to0, to1);
  } else {
    for (int64_t j = 0; j < n1; j++)
      loops->elements[log2_of(size)](n0, src + j * from1, from0, dst + j * to1, to0);
  }
}

static void pack_dims(const mt_piece *p, int ndim, int64_t n, int size, const char *src,
                      char *dst) {
  const mt_pack_loops *loops = MT_ISA_PICK(mt_pack);
  const int last = ndim - 1;
  const int64_t count = p->size[last], inner = n / count;
  if (ndim == 1) {
    mt_cpu_pack(n, size, src, p->stride[0], dst);
  } else if (p->stride[last] == 0) {
    pack_dims(p, last, inner, size, src, dst);
    repeat(dst, inner * size, count);
  } else if (ndim == 2 && p->stride[0] == 0) {
    loops->repeated[log2_of(size)](count, inner, src, p->stride[1], dst);
  } else if (ndim == 2) {
    move_plane(loops, size, inner, count, src, p->stride[0], p->stride[1], dst, size,
               inner * size);
  } else {
    for (int64_t i = 0; i < count; i++)
      pack_dims(p, last, inner, size, src + i * p->stride[last],
                dst + i * inner * size);
  }
}

void mt_piece_pack(const mt_piece *p, int size, const char *src, char *dst) {
  pack_dims(p, p->ndim, p->n, size, src, dst);
}

static void unpack_dims(const mt_piece *p, int ndim, int64_t n, int size,
                        const char *src, char *dst) {
  const int last = ndim - 1;
  const int64_t count = p->size[last], inner = n / count;
  if (ndim == 1) {
    mt_cpu_unpack(n, size, src, dst, p->stride[0]);
  } else if (ndim == 2) {
    move_plane(MT_ISA_PICK(mt_pack), size, inner, count, src, size, inner * size, dst,
               p->stride[0], p->stride[1]);
  } else {
    for (int64_t i = 0; i < count; i++)
      unpack_dims(p, last, inner, size, src + i * inner * size,
                  dst + i * p->stride[last]);
  }
}

void mt_piece_unpack(const mt_piece *p, int size, const char *src, char *dst) {
  unpack_dims(p, p->ndim, p->n, size, src, dst);
}
