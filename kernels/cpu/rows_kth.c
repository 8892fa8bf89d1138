/* kernels/cpu/rows_kth.c -- loops of selection, for one level of x86-64. */
#include "kernels/cpu/kth.h"

#define T      uint32_t
#define SUFFIX 32
#include "kernels/cpu/rows_kth.inc"
#undef T
#undef SUFFIX

#define T      uint64_t
#define SUFFIX 64
#include "kernels/cpu/rows_kth.inc"

#define LOOPS(s) \
  { part_##s, pivot_##s, ranked_##s, below_##s, equal_##s, find_##s }
const mt_kth_loops MT_ISA_NAME(mt_kth_rows)[2] = {LOOPS(32), LOOPS(64)};
