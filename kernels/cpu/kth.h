/* kernels/cpu/kth.h -- loops of selection, over keys (see sort.h) of 32 or 64 bits. */
#ifndef MT_CPU_KTH_H
#define MT_CPU_KTH_H

#include "kernels/cpu/cpu.h"

#define MT_KTH_FEW 16 /* so few are ranked, not parted */

typedef struct mt_kth_loops {
  /* Of a[0 .. end-1], whose first `less` are below the pivot and the next, up to i, not,
  ** bring those of i .. end-1 that are below it, or equal to it, to the first; returns how
  ** many these are then. */
  int64_t (*part)(void *a, int64_t less, int64_t i, int64_t end, uint64_t pivot,
                  bool or_equal);
  /* What a sorted sample of a[0 .. n-1] has where the k-th (from 0) is expected. */
  uint64_t (*pivot)(const void *a, int64_t n, int64_t k);
  /* The k-th of n <= MT_KTH_FEW keys. */
  uint64_t (*ranked)(const void *a, int64_t n, int64_t k);
  /* How many are below the key; how many equal it. */
  int64_t (*below)(const void *a, int64_t n, uint64_t key);
  int64_t (*equal)(const void *a, int64_t n, uint64_t key);
  /* Where the nth one (from 0) that equals the key stands, from 0. */
  int64_t (*find)(const void *a, uint64_t key, int64_t nth);
} mt_kth_loops;

/* Keys of 32 bits, of 64. */
typedef const mt_kth_loops mt_kth_table[2];
MT_ISA_DECLARE(mt_kth_table, mt_kth_rows); /* rows_kth.c */

#endif
