/* kernels/cpu/positions.h -- reading index tensors: positions from 1 to offsets from
** 0. */
#ifndef MT_POSITIONS_H
#define MT_POSITIONS_H

#include "kernels/cpu/cpu.h"

/* A buffer of so many positions is converted at a time. */
#define MT_POSITIONS 256

/* at[i] = value[i] - 1 for i < n. Negative if one of them is not within 0 .. size - 1. */
typedef int64_t mt_positions_fn(int64_t n, const int64_t *value, int64_t size,
                                int64_t *at /* [out] */);
MT_ISA_DECLARE(mt_positions_fn, mt_positions_row);

/* at[i] = element first + i of the contiguous index, for i < count, as an offset
** within 0 .. size - 1; -1 and the call's fault where it is out of range: then the
** result is false. from_end: negative ones count from the end; else 0 names none: -1
** without a fault. */
static inline bool mt_positions(const mt_call *call, const mt_view *index,
                                int64_t first, int64_t count, int64_t size,
                                bool from_end, int64_t *at /* [out] */) {
  const char *p = index->data + first * mt_cpu_size(index->dtype);
  if (index->dtype == MT_I64 &&
      MT_ISA_PICK(mt_positions_row)(count, (const int64_t *)p, size, at) >= 0)
    return true;
#define MT_POSITIONS_CASE(dtype, T, suffix)                                 \
  case dtype:                                                               \
    for (int64_t i = 0; i < count; i++) at[i] = (int64_t)((const T *)p)[i]; \
    break;
  switch (index->dtype) {
    MT_EACH_INT(MT_POSITIONS_CASE)
  default:
    for (int64_t i = 0; i < count; i++) {
      const double x = mt_cpu_load_f64(index->dtype, p + i * mt_cpu_size(index->dtype));
      at[i] = x == floor(x) && fabs(x) < 0x1p53 ? (int64_t)x : MT_NOT_WHOLE;
    }
  }
#undef MT_POSITIONS_CASE
  bool within = true;
  for (int64_t i = 0; i < count; i++) {
    const int64_t value = at[i];
    at[i] = value > 0 ? value - 1 : from_end && value < 0 ? value + size : -1;
    if ((at[i] < 0 || at[i] >= size) && (from_end || value != 0)) {
      mt_fault_set(call->fault, call->op, first + i, value, 1, size);
      at[i] = -1;
      within = false;
    }
  }
  return within;
}

#endif
