/* kernels/cpu/pack.h -- blocks of strided views to contiguous memory, and back. */
#ifndef MT_CPU_PACK_H
#define MT_CPU_PACK_H

#include "kernels/cpu/cpu.h"

/* Loops of one level of x86-64. Steps are bytes, from one element or row to the next,
** of any sign, or 0 in what is read. */
typedef struct mt_pack_loops {
  /* n elements; by log2 of their bytes. */
  void (*elements[4])(int64_t n, const char *src, int64_t from, char *dst, int64_t to);
  /* Each of n elements `times` times, contiguous. */
  void (*repeated[4])(int64_t n, int64_t times, const char *src, int64_t from,
                      char *dst);
  /* Rows of contiguous bytes, one byte or more. */
  void (*rows)(int64_t rows, int64_t bytes, const char *src, int64_t from, char *dst,
               int64_t to);
} mt_pack_loops;
MT_ISA_DECLARE(const mt_pack_loops, mt_pack); /* rows_pack.c */

/* A part of a view: dims innermost first, those that continue each other merged. */
typedef struct mt_piece {
  int ndim;                                       /* at least 1 */
  int64_t n;                                      /* elements, not 0 */
  int64_t size[MT_MAX_DIMS], stride[MT_MAX_DIMS]; /* bytes */
} mt_piece;

void mt_piece_make(mt_piece *p /* [out] */, int ndim, const int64_t *size,
                   const int64_t *stride);

static inline bool mt_piece_contiguous(const mt_piece *p, int size) {
  return p->ndim == 1 && (p->stride[0] == size || p->n == 1);
}

/* All elements, of `size` bytes (1, 2, 4 or 8), to contiguous memory, and back. */
void mt_piece_pack(const mt_piece *p, int size, const char *src, char *dst /* [out] */);
void mt_piece_unpack(const mt_piece *p, int size, const char *src,
                     char *dst /* [out] */);

#endif
