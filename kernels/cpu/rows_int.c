/* kernels/cpu/rows_int.c -- elementwise rows of the integers and of bool, which is
** stored as 0 or 1: its sum is or, its product and. */
#include "kernels/cpu/rows.h"

#define HAS_FLOAT(row)
#define HAS_NUMBER(row) row
#define HAS_ANY(row)    row
#define HAS_INT(row)    row
#define STORE(x)        (T)(x)

#define T      int64_t
#define SUFFIX i64
#include "kernels/cpu/rows.inc"
#undef T
#undef SUFFIX

#define T      int32_t
#define SUFFIX i32
#include "kernels/cpu/rows.inc"
#undef T
#undef SUFFIX

#define T      int16_t
#define SUFFIX i16
#include "kernels/cpu/rows.inc"
#undef T
#undef SUFFIX

#define T      int8_t
#define SUFFIX i8
#include "kernels/cpu/rows.inc"
#undef T
#undef SUFFIX

#define T      uint8_t
#define SUFFIX u8
#include "kernels/cpu/rows.inc"
#undef SUFFIX

#undef HAS_NUMBER
#define HAS_NUMBER(row)
#undef STORE
#define STORE(x) (T)((x) != 0)
#define SUFFIX   b8
#include "kernels/cpu/rows.inc"
