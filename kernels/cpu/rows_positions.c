/* kernels/cpu/rows_positions.c -- positions of int64, from 1, to offsets. */
#include "kernels/cpu/positions.h"

int64_t MT_ISA_NAME(mt_positions_row)(int64_t n, const int64_t *value, int64_t size,
                                      int64_t *at) {
  int64_t outside = 0;
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
    outside |= (value[i] - 1) | (size - value[i]);
    at[i] = value[i] - 1;
  }
  return outside;
}
