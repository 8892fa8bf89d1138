/* runtime/core/dtype.c -- sizes, names, limits, promotion, and single elements of each
** dtype. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "runtime/core/dtype.h"

static const char *const names[MT_NDTYPES] = {
    [MT_F32] = "float32",   [MT_F64] = "float64", [MT_F16] = "float16",
    [MT_BF16] = "bfloat16", [MT_I64] = "int64",   [MT_I32] = "int32",
    [MT_I16] = "int16",     [MT_I8] = "int8",     [MT_U8] = "uint8",
    [MT_BOOL] = "bool",
};

static const struct {
  const char *name;
  mt_dtype dtype;
} aliases[] = {
    {"float", MT_F32}, {"double", MT_F64}, {"half", MT_F16},
    {"long", MT_I64},  {"int", MT_I32},    {"short", MT_I16},
    {"char", MT_I8},   {"byte", MT_U8},    {"boolean", MT_BOOL},
};

const char *mt_dtype_name(mt_dtype d) { return names[d]; }

int mt_dtype_parse(const char *name, mt_dtype *d) {
  for (int i = 0; i < MT_NDTYPES; i++)
    if (!strcmp(name, names[i])) return *d = (mt_dtype)i, 1;
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (!strcmp(name, aliases[i].name)) return *d = aliases[i].dtype, 1;
  return 0;
}

mt_dtype mt_dtype_promote(mt_dtype a, mt_dtype b) {
  if (a == b) return a;
  if (MT_IS_FLOAT(a) && MT_IS_FLOAT(b)) {
    if (a == MT_F64 || b == MT_F64) return MT_F64;
    return MT_F32; /* float32 with a half, or float16 with bfloat16 */
  }
  if (MT_IS_FLOAT(a)) return a;
  if (MT_IS_FLOAT(b)) return b;
  if (a == MT_BOOL) return b;
  if (b == MT_BOOL) return a;
  if (a == MT_U8 || b == MT_U8) { /* uint8 with a signed type: one that holds both */
    const mt_dtype other = a == MT_U8 ? b : a;
    return other == MT_I8 ? MT_I16 : other;
  }
  return mt_dtype_size(a) > mt_dtype_size(b) ? a : b;
}

static float float_of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t bits_of_float(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static float half_to_float(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;
  if (exponent == 31) return float_of_bits(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
    const float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t float_to_half(float f) {
  const uint32_t bits = bits_of_float(f), magnitude = bits & 0x7FFFFFFFu;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);  /* NaN */
  if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* rounds to inf */
  if (magnitude < 0x38800000u) { /* subnormal: the sum rounds at 2^-24 */
    const float sum = fabsf(f) + 0.5f;
    return (uint16_t)(sign | (bits_of_float(sum) - bits_of_float(0.5f)));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xFFFu + odd) >> 13);
}

static float bfloat_to_float(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

static uint16_t float_to_bfloat(float f) {
  const uint32_t bits = bits_of_float(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* One element of type T at p. */
#define AT(T)  (*(const T *)p)
#define PUT(T) (*(T *)p)

/* Rounds what is not exact to the odd neighbour, so that rounding once more, to a half
** type, gives what rounding once would have. */
static float to_odd(double x) {
  const float f = (float)x;
  const double back = (double)f;
  const uint32_t bits = bits_of_float(f) - (uint32_t)(fabs(back) > fabs(x));
  return float_of_bits(back < x || back > x ? bits | 1u : bits);
}

double mt_load_f64(mt_dtype d, const void *p) {
  switch (d) {
  case MT_F32: return (double)AT(float);
  case MT_F64: return AT(double);
  case MT_F16: return (double)half_to_float(AT(uint16_t));
  case MT_BF16: return (double)bfloat_to_float(AT(uint16_t));
  default: return (double)mt_load_i64(d, p);
  }
}

static int64_t saturate(double x, int64_t lo, int64_t hi) {
  if (x != x) return 0;
  if (x <= (double)lo) return lo;
  if (x >= (double)hi) return hi;
  return (int64_t)x;
}

int64_t mt_load_i64(mt_dtype d, const void *p) {
  switch (d) {
  case MT_I64: return AT(int64_t);
  case MT_I32: return AT(int32_t);
  case MT_I16: return AT(int16_t);
  case MT_I8: return AT(int8_t);
  case MT_U8:
  case MT_BOOL: return AT(uint8_t);
  default: return saturate(mt_load_f64(d, p), INT64_MIN, INT64_MAX);
  }
}

void mt_store_f64(mt_dtype d, void *p, double x) {
  switch (d) {
  case MT_F32: PUT(float) = (float)x; break;
  case MT_F64: PUT(double) = x; break;
  case MT_F16: PUT(uint16_t) = float_to_half(to_odd(x)); break;
  case MT_BF16: PUT(uint16_t) = float_to_bfloat(to_odd(x)); break;
  case MT_I64: PUT(int64_t) = saturate(x, INT64_MIN, INT64_MAX); break;
  case MT_I32: PUT(int32_t) = (int32_t)saturate(x, INT32_MIN, INT32_MAX); break;
  case MT_I16: PUT(int16_t) = (int16_t)saturate(x, INT16_MIN, INT16_MAX); break;
  case MT_I8: PUT(int8_t) = (int8_t)saturate(x, INT8_MIN, INT8_MAX); break;
  case MT_U8: PUT(uint8_t) = (uint8_t)saturate(x, 0, UINT8_MAX); break;
  default: PUT(uint8_t) = x != 0; break; /* bool: NaN is true */
  }
}

void mt_store_i64(mt_dtype d, void *p, int64_t x) {
  switch (d) {
  case MT_I64: PUT(int64_t) = x; break;
  case MT_I32: PUT(int32_t) = (int32_t)x; break;
  case MT_I16: PUT(int16_t) = (int16_t)x; break;
  case MT_I8: PUT(int8_t) = (int8_t)x; break;
  case MT_U8: PUT(uint8_t) = (uint8_t)x; break;
  case MT_BOOL: PUT(uint8_t) = x != 0; break;
  default: mt_store_f64(d, p, (double)x); break;
  }
}

/* ---- limits ---- */

void mt_dtype_limits(mt_dtype d, int64_t *lo, int64_t *hi) {
  const int bits = d == MT_BOOL ? 1 : (int)mt_dtype_size(d) * 8;
  const bool is_signed = d != MT_BOOL && d != MT_U8;
  *hi = INT64_MAX >> (is_signed ? 64 - bits : 63 - bits);
  *lo = is_signed ? -*hi - 1 : 0;
}

mt_status mt_check_holds(mt_dtype d, const mt_attr *value, int arg) {
  if (!MT_IS_INT(d)) return MT_OK;
  int64_t lo, hi;
  mt_dtype_limits(d, &lo, &hi);
  /* -lo is a power of two, which hi need not be once it is a double */
  const double x = trunc(value->f), above = d == MT_U8 ? 256.0 : -(double)lo;
  if (value->is_int ? value->i[0] >= lo && value->i[0] <= hi
                    : x >= (double)lo && x < above)
    return MT_OK;
  char text[32];
  if (value->is_int)
    snprintf(text, sizeof text, "%lld", (long long)value->i[0]);
  else
    snprintf(text, sizeof text, "%.14g", isnan(value->f) ? (double)NAN : value->f);
  return mt_fail_arg(MT_EARG, arg, "value is %s: %s holds %lld .. %lld", text,
                     mt_dtype_name(d), (long long)lo, (long long)hi);
}
