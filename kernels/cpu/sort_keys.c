/* kernels/cpu/sort_keys.c -- keys for sorting, and their radix sort (least significant
** byte first). */
#include "kernels/cpu/sort.h"

/* ---- elements to keys ---- */

/* Floats: sign and magnitude become one ascending number; -0 becomes 0, NaN all ones. */
#define FLOAT_KEY(U, bits, sfx, inf)                                  \
  static inline U key_##sfx(U b) {                                    \
    const U top = (U)((U)1 << (bits - 1)), magnitude = (U)(b & ~top); \
    if (magnitude == 0) b = 0;                                        \
    if (magnitude > (inf)) b = (U)~top;                               \
    return (U)(b & top ? ~b : b | top);                               \
  }                                                                   \
  static inline U back_##sfx(U k) {                                   \
    const U top = (U)((U)1 << (bits - 1));                            \
    return (U)(k & top ? k & ~top : ~k);                              \
  }
FLOAT_KEY(uint32_t, 32, f32, 0x7f800000u)
FLOAT_KEY(uint64_t, 64, f64, (uint64_t)0x7ff << 52)
FLOAT_KEY(uint16_t, 16, f16, 0x7c00u)
FLOAT_KEY(uint16_t, 16, bf16, 0x7f80u)

#define INT_KEY(U, sfx, top)                                   \
  static inline U key_##sfx(U b) { return (U)(b ^ (U)(top)); } \
  static inline U back_##sfx(U k) { return (U)(k ^ (U)(top)); }
INT_KEY(uint64_t, i64, (uint64_t)1 << 63)
INT_KEY(uint32_t, i32, (uint32_t)1 << 31)
INT_KEY(uint16_t, i16, 0x8000u)
INT_KEY(uint8_t, i8, 0x80u)
INT_KEY(uint8_t, u8, 0)

/* X(dtype, storage as unsigned, suffix, is it a float?) */
#define EACH_NARROW(X)          \
  X(MT_F32, uint32_t, f32, 1)   \
  X(MT_F16, uint16_t, f16, 1)   \
  X(MT_BF16, uint16_t, bf16, 1) \
  X(MT_I32, uint32_t, i32, 0)   \
  X(MT_I16, uint16_t, i16, 0) X(MT_I8, uint8_t, i8, 0) X(MT_U8, uint8_t, u8, 0)
#define EACH_KEY(X) \
  EACH_NARROW(X) X(MT_F64, uint64_t, f64, 1) X(MT_I64, uint64_t, i64, 0)

#define LOAD_CASE(dtype, U, sfx, is_float)                 \
  case dtype:                                              \
    for (int64_t i = 0; i < n; i++) {                      \
      const U k = key_##sfx(*(const U *)(x + i * stride)); \
      PUT(i, (U)(descending ? ~k : k), first + i);         \
    }                                                      \
    break;

void mt_sort_load_packed(mt_dtype d, int64_t n, const char *x, int64_t stride,
                         int64_t first, bool descending, mt_packed *a) {
#define PUT(i, k, at) a[i] = (uint64_t)(k) << 32 | (uint64_t)(at)
  switch (d == MT_BOOL ? MT_U8 : d) {
    EACH_NARROW(LOAD_CASE)
  default: break;
  }
#undef PUT
}

void mt_sort_load_wide(mt_dtype d, int64_t n, const char *x, int64_t stride,
                       int64_t first, bool descending, mt_wide *a) {
#define PUT(i, k, from) \
  a[i] = (mt_wide) { k, from }
  switch (d == MT_BOOL ? MT_U8 : d) {
    EACH_KEY(LOAD_CASE)
  default: break;
  }
#undef PUT
}

/* ---- keys to elements ---- */

/* A zero's sign and what a NaN is are looked up. */
#define STORE_CASE(dtype, U, sfx, is_float)                 \
  case dtype:                                               \
    for (int64_t i = 0; i < n; i++) {                       \
      const U k = (U)(descending ? ~KEY(a[i]) : KEY(a[i])); \
      U b = back_##sfx(k);                                  \
      if (is_float && (b == 0 || k == (U) ~(U)0))           \
        b = *(const U *)(x + AT_OF(a[i]) * x_stride);       \
      *(U *)(y + i * y_stride) = b;                         \
    }                                                       \
    break;
#define STORE_INDEX                 \
  if (index)                        \
    for (int64_t i = 0; i < n; i++) \
      *(int64_t *)(index + i * index_stride) = AT_OF(a[i]) + 1;

void mt_sort_store_packed(mt_dtype d, int64_t n, const mt_packed *a, bool descending,
                          const char *x, int64_t x_stride, char *y, int64_t y_stride,
                          char *index, int64_t index_stride) {
#define KEY(k)   ((k) >> 32)
#define AT_OF(k) ((int64_t)((k)&0xffffffffu))
  STORE_INDEX
  if (!y) return;
  switch (d == MT_BOOL ? MT_U8 : d) {
    EACH_NARROW(STORE_CASE)
  default: break;
  }
#undef KEY
#undef AT_OF
}

void mt_sort_store_wide(mt_dtype d, int64_t n, const mt_wide *a, bool descending,
                        const char *x, int64_t x_stride, char *y, int64_t y_stride,
                        char *index, int64_t index_stride) {
#define KEY(k)   ((k).key)
#define AT_OF(k) ((k).at)
  STORE_INDEX
  if (!y) return;
  switch (d == MT_BOOL ? MT_U8 : d) {
    EACH_KEY(STORE_CASE)
  default: break;
  }
#undef KEY
#undef AT_OF
}

/* ---- keys alone ---- */

#define LOAD_KEY(dtype, U, sfx, is_float)                           \
  case dtype:                                                       \
    if (stride == sizeof(U)) { /* in vectors */                     \
      for (int64_t i = 0; i < n; i++)                               \
        ((KEY_TYPE *)a)[i] = key_##sfx(((const U *)x)[i]);          \
      break;                                                        \
    }                                                               \
    for (int64_t i = 0; i < n; i++)                                 \
      ((KEY_TYPE *)a)[i] = key_##sfx(*(const U *)(x + i * stride)); \
    break;
#define STORE_KEY(dtype, U, sfx, is_float)                              \
  case dtype:                                                           \
    for (int64_t i = 0; i < n; i++)                                     \
      *(U *)(y + i * stride) = back_##sfx((U)((const KEY_TYPE *)a)[i]); \
    break;
#define EACH_WIDE(X) X(MT_F64, uint64_t, f64, 1) X(MT_I64, uint64_t, i64, 0)

void mt_sort_load_keys(mt_dtype d, int64_t n, const char *x, int64_t stride, void *a) {
  switch (d == MT_BOOL ? MT_U8 : d) {
#define KEY_TYPE uint32_t
    EACH_NARROW(LOAD_KEY)
#undef KEY_TYPE
#define KEY_TYPE uint64_t
    EACH_WIDE(LOAD_KEY)
#undef KEY_TYPE
  default: break;
  }
}

void mt_sort_store_keys(mt_dtype d, int64_t n, const void *a, char *y, int64_t stride) {
  switch (d == MT_BOOL ? MT_U8 : d) {
#define KEY_TYPE uint32_t
    EACH_NARROW(STORE_KEY)
#undef KEY_TYPE
#define KEY_TYPE uint64_t
    EACH_WIDE(STORE_KEY)
#undef KEY_TYPE
  default: break;
  }
}

/* ---- sorting ---- */

#define T         mt_packed
#define SUFFIX    packed
#define KEY_OF(k) (k)
#define SHIFT     32
#include "kernels/cpu/sort_radix.inc"
#undef T
#undef SUFFIX
#undef KEY_OF
#undef SHIFT

#define T         mt_wide
#define SUFFIX    wide
#define KEY_OF(k) ((k).key)
#define SHIFT     0
#include "kernels/cpu/sort_radix.inc"
#undef T
#undef SUFFIX
#undef KEY_OF
#undef SHIFT

#define T         uint32_t
#define SUFFIX    key32
#define KEY_OF(k) (k)
#define SHIFT     0
#include "kernels/cpu/sort_radix.inc"
#undef T
#undef SUFFIX

#define T      uint64_t
#define SUFFIX key64
#include "kernels/cpu/sort_radix.inc"
