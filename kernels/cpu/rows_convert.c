/* kernels/cpu/rows_convert.c -- conversions between dtypes as rows: floats to integers
** truncate, saturate and give 0 for NaN; integers wrap; bool is x ~= 0. */
#include "kernels/cpu/tables.h"

/* What one stored element is worth: half types as floats. */
#define AS_f32(x)  (x)
#define AS_f64(x)  (x)
#define AS_f16(x)  mt_f16_to_f32(x)
#define AS_bf16(x) mt_bf16_to_f32(x)
#define AS_i64(x)  (x)
#define AS_i32(x)  (x)
#define AS_i16(x)  (x)
#define AS_i8(x)   (x)
#define AS_u8(x)   (x)

/* Values of the C type F to each dtype. `above` is exact in F where the largest T
** isn't. */
#define SATURATE(F, from, T, to, lo, above)   \
  static inline T from##_to_##to(F x) {       \
    return x != x            ? 0              \
           : x < (F)(lo)     ? (T)(lo)        \
           : x >= (F)(above) ? (T)((above)-1) \
                             : (T)x;          \
  }
#define FROM_FLOAT(F, from)                                                            \
  static inline int64_t from##_to_i64(F x) {                                           \
    if (x != x) return 0;                                                              \
    if (x >= (F)0x1p63) return INT64_MAX;                                              \
    return x < (F)-0x1p63 ? INT64_MIN : (int64_t)x;                                    \
  }                                                                                    \
  SATURATE(F, from, int32_t, i32, INT32_MIN, 2147483648)                               \
  SATURATE(F, from, int16_t, i16, INT16_MIN, 32768)                                    \
  SATURATE(F, from, int8_t, i8, INT8_MIN, 128)                                         \
  SATURATE(F, from, uint8_t, u8, 0, 256)                                               \
  static inline float from##_to_f32(F x) { return (float)x; }                          \
  static inline double from##_to_f64(F x) { return (double)x; }                        \
  static inline uint16_t from##_to_f16(F x) { return mt_f32_to_f16(odd_##from(x)); }   \
  static inline uint16_t from##_to_bf16(F x) { return mt_f32_to_bf16(odd_##from(x)); } \
  static inline uint8_t from##_to_b8(F x) { return x != 0; }
#define odd_float(x)  (x)
#define odd_double(x) mt_f64_to_f32_odd(x)
FROM_FLOAT(float, float)
FROM_FLOAT(double, double)

#define FROM_INT(F, from)                                                         \
  static inline int64_t from##_to_i64(F x) { return (int64_t)x; }                 \
  static inline int32_t from##_to_i32(F x) { return (int32_t)x; }                 \
  static inline int16_t from##_to_i16(F x) { return (int16_t)x; }                 \
  static inline int8_t from##_to_i8(F x) { return (int8_t)x; }                    \
  static inline uint8_t from##_to_u8(F x) { return (uint8_t)x; }                  \
  static inline float from##_to_f32(F x) { return (float)x; }                     \
  static inline double from##_to_f64(F x) { return (double)x; }                   \
  static inline uint16_t from##_to_f16(F x) { return mt_f32_to_f16((float)x); }   \
  static inline uint16_t from##_to_bf16(F x) { return mt_f32_to_bf16((float)x); } \
  static inline uint8_t from##_to_b8(F x) { return x != 0; }
FROM_INT(int64_t, long)
FROM_INT(int32_t, int)

#define ROW(S, src, from, D, dst)                                                    \
  static void src##_to_##dst##_row(int64_t n, char *const *p, const mt_attr *attr) { \
    D *out = (D *)p[0];                                                              \
    const S *x = (const S *)p[1];                                                    \
    (void)attr;                                                                      \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < (n & -MT_ROW_UNIT); i++) out[i] =   \
        from##_to_##dst(AS_##src(x[i]));                                             \
  }
#define ROWS(S, src, from)          \
  ROW(S, src, from, float, f32)     \
  ROW(S, src, from, double, f64)    \
  ROW(S, src, from, uint16_t, f16)  \
  ROW(S, src, from, uint16_t, bf16) \
  ROW(S, src, from, int64_t, i64)   \
  ROW(S, src, from, int32_t, i32)   \
  ROW(S, src, from, int16_t, i16)   \
  ROW(S, src, from, int8_t, i8)     \
  ROW(S, src, from, uint8_t, u8)    \
  ROW(S, src, from, uint8_t, b8)
ROWS(float, f32, float)
ROWS(double, f64, double)
ROWS(uint16_t, f16, float)
ROWS(uint16_t, bf16, float)
ROWS(int64_t, i64, long)
ROWS(int32_t, i32, int)
ROWS(int16_t, i16, int)
ROWS(int8_t, i8, int)
ROWS(uint8_t, u8, int)

#define TABLE(src)                                                             \
  {                                                                            \
    src##_to_f32_row, src##_to_f64_row, src##_to_f16_row, src##_to_bf16_row,   \
        src##_to_i64_row, src##_to_i32_row, src##_to_i16_row, src##_to_i8_row, \
        src##_to_u8_row, src##_to_b8_row                                       \
  }
/* [from][to], in the order of mt_dtype */
const mt_row MT_ISA_NAME(mt_convert_rows)[MT_NDTYPES][MT_NDTYPES] = {
    TABLE(f32), TABLE(f64), TABLE(f16), TABLE(bf16), TABLE(i64),
    TABLE(i32), TABLE(i16), TABLE(i8),  TABLE(u8),   TABLE(u8)};

/* Half types to floats and back, any n. */
#define HALVES(name)                                                        \
  static void name##_load(int64_t n, const uint16_t *x, float *y) {         \
    for (int64_t i = 0; i < n; i++) y[i] = mt_##name##_to_f32(x[i]);        \
  }                                                                         \
  static void name##_store(int64_t n, const float *x, uint16_t *y) {        \
    for (int64_t i = 0; i < n; i++) y[i] = mt_f32_to_##name(x[i]);          \
  }                                                                         \
  static void name##_load_strided(int64_t n, const char *x, int64_t stride, \
                                  float *y) {                               \
    for (int64_t i = 0; i < n; i++, x += stride)                            \
      y[i] = mt_##name##_to_f32(*(const uint16_t *)x);                      \
  }                                                                         \
  static void name##_store_strided(int64_t n, const float *x, char *y,      \
                                   int64_t stride) {                        \
    for (int64_t i = 0; i < n; i++, y += stride)                            \
      *(uint16_t *)y = mt_f32_to_##name(x[i]);                              \
  }
HALVES(f16)
HALVES(bf16)

static void load_halves(mt_dtype d, int64_t n, const void *x, int64_t stride,
                        float *y) {
  if (d == MT_F16 && stride == 2)
    f16_load(n, x, y);
  else if (d == MT_F16)
    f16_load_strided(n, x, stride, y);
  else if (stride == 2)
    bf16_load(n, x, y);
  else
    bf16_load_strided(n, x, stride, y);
}

static void store_halves(mt_dtype d, int64_t n, const float *x, void *y,
                         int64_t stride) {
  if (d == MT_F16 && stride == 2)
    f16_store(n, x, y);
  else if (d == MT_F16)
    f16_store_strided(n, x, y, stride);
  else if (stride == 2)
    bf16_store(n, x, y);
  else
    bf16_store_strided(n, x, y, stride);
}

const mt_halves MT_ISA_NAME(mt_halves_rows) = {load_halves, store_halves};
