/* kernels/cpu/select.h -- loops of masked_select and nonzero. */
#ifndef MT_CPU_SELECT_H
#define MT_CPU_SELECT_H

#include "kernels/cpu/cpu.h"

/* How many are not 0. */
typedef int64_t (*mt_count_fn)(int64_t n, const uint8_t *set);

/* The elements of x where `set` is not 0, in order, to y, but `most` at most; nothing
** is written behind those. Returns how many. */
typedef int64_t (*mt_select_fn)(int64_t n, const uint8_t *set, const void *x, void *y,
                                int64_t most);

typedef struct mt_select_loops {
  mt_count_fn count;
  mt_select_fn select[4]; /* by log2 of an element's bytes */
  /* The positions of these instead, the first one being `first`. */
  int64_t (*positions)(int64_t n, const uint8_t *set, int64_t first, int64_t *at,
                       int64_t most);
} mt_select_loops;
MT_ISA_DECLARE(const mt_select_loops, mt_select); /* rows_select.c */

#define MT_SELECT_PARTS 64 /* at most; each thread has one */

/* How many parts n elements are worth. */
static inline int64_t mt_select_parts(const mt_call *call, int64_t n) {
  const int64_t threads = call->num_threads;
  if (threads < 2 || n / threads < MT_GRAIN) return 1;
  return threads < MT_SELECT_PARTS ? threads : MT_SELECT_PARTS;
}

/* From how many each part has to how many lie before it; returns how many there are. */
static inline int64_t mt_select_before(int64_t parts, int64_t *count) {
  int64_t sum = 0;
  for (int64_t part = 0; part < parts; part++) {
    const int64_t own = count[part];
    count[part] = sum;
    sum += own;
  }
  return sum;
}

#endif
