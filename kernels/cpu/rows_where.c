/* kernels/cpu/rows_where.c -- rows of where: a choice between elements of 1 to 8
** bytes. */
#include "kernels/cpu/tables.h"

#define WHERE_ROW(T, bits)                                                       \
  static void where_row_##bits(int64_t n, char *const *p, const mt_attr *attr) { \
    T *out = (T *)p[0];                                                          \
    const uint8_t *cond = (const uint8_t *)p[1];                                 \
    const T *a = (const T *)p[2], *b = (const T *)p[3];                          \
    (void)attr;                                                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < (n & -MT_ROW_UNIT); i++) {      \
      const T x = a[i], y = b[i];                                                \
      out[i] = cond[i] ? x : y;                                                  \
    }                                                                            \
  }
WHERE_ROW(uint8_t, 8)
WHERE_ROW(uint16_t, 16)
WHERE_ROW(uint32_t, 32)
WHERE_ROW(uint64_t, 64)

/* [log2 of the bytes of an element] */
const mt_row MT_ISA_NAME(mt_where_rows)[4] = {where_row_8, where_row_16, where_row_32,
                                              where_row_64};
