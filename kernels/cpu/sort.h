/* kernels/cpu/sort.h -- sorting by keys: every dtype becomes unsigned numbers whose
** order is the one that is wanted, kept beside the position that they came from. */
#ifndef MT_CPU_SORT_H
#define MT_CPU_SORT_H

#include "kernels/cpu/cpu.h"

/* Two forms of a key and its position (from 0): packed, where both have 32 bits, and
** wide. Sorting is stable, so positions take no part in it. */
typedef uint64_t mt_packed; /* key in the upper half, position in the lower */
typedef struct mt_wide {
  uint64_t key;
  int64_t at;
} mt_wide;

/* Does a line of n elements of dtype d go into packed keys? */
static inline bool mt_sort_packs(mt_dtype d, int64_t n) {
  return mt_cpu_size(d) <= 4 && n < (int64_t)1 << 32;
}

/* Keys of n elements, `stride` bytes apart, whose first has position `first`.
** descending: the largest first. NaN counts as larger than all, -0 as equal to 0. */
void mt_sort_load_packed(mt_dtype d, int64_t n, const char *x, int64_t stride,
                         int64_t first, bool descending, mt_packed *a /* [out] */);
void mt_sort_load_wide(mt_dtype d, int64_t n, const char *x, int64_t stride,
                       int64_t first, bool descending, mt_wide *a /* [out] */);

/* Sort a, of n keys of `bytes` significant bytes; b has the same room. Returns the one
** of the two that holds the result. counts: room for 256 numbers for each of `chunks`
** parts, which threads share. */
mt_packed *mt_sort_packed(const mt_call *call, int64_t n, int bytes, int chunks,
                          int64_t *counts /* [scratch] */, mt_packed *a, mt_packed *b);
mt_wide *mt_sort_wide(const mt_call *call, int64_t n, int bytes, int chunks,
                      int64_t *counts /* [scratch] */, mt_wide *a, mt_wide *b);

/* The elements that n sorted keys stand for, and their positions from 1; y or index may
** be NULL. x: the line that they came from, for what keys do not tell apart. */
void mt_sort_store_packed(mt_dtype d, int64_t n, const mt_packed *a, bool descending,
                          const char *x, int64_t x_stride, char *y /* [out] */,
                          int64_t y_stride, char *index /* [out] */,
                          int64_t index_stride);
void mt_sort_store_wide(mt_dtype d, int64_t n, const mt_wide *a, bool descending,
                        const char *x, int64_t x_stride, char *y /* [out] */,
                        int64_t y_stride, char *index /* [out] */,
                        int64_t index_stride);

/* Keys alone, of 32 bits (dtypes of at most four bytes) or 64, of x's n elements; and
** back. All zeros come back as 0. */
void mt_sort_load_keys(mt_dtype d, int64_t n, const char *x, int64_t stride,
                       void *a /* [out] */);
void mt_sort_store_keys(mt_dtype d, int64_t n, const void *a, char *y /* [out] */,
                        int64_t stride);
uint32_t *mt_sort_key32(const mt_call *call, int64_t n, int bytes, int chunks,
                        int64_t *counts /* [scratch] */, uint32_t *a, uint32_t *b);
uint64_t *mt_sort_key64(const mt_call *call, int64_t n, int bytes, int chunks,
                        int64_t *counts /* [scratch] */, uint64_t *a, uint64_t *b);

/* Take dim d out of v; returns its stride in bytes. */
static inline int64_t mt_sort_without_dim(const mt_view *v, int d,
                                          mt_view *rest /* [out] */) {
  *rest = *v;
  rest->ndim = 0;
  for (int e = 0; e < v->ndim; e++)
    if (e != d) {
      rest->shape[rest->ndim] = v->shape[e];
      rest->stride[rest->ndim++] = v->stride[e];
    }
  return v->ndim ? v->stride[d] * mt_cpu_size(v->dtype) : 0;
}

#define MT_SORT_LONG 65536 /* elements of a line that threads share */

#endif
