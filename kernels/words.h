/* kernels/words.h -- the words of ops.def's formulas, for every element type, as plain
** functions mt_<word>_<suffix>: C now, CUDA C++ too.
**
** Conditions are ints, 0 or 1. Arguments are converted to the element type, so that
** whole numbers in a formula never widen it. NaN passes through; comparisons with it
** are false (ne: true). Integers wrap. An integer divided by 0 gives 0 (the caller
** reports it), and a negative power of an integer is what its real value truncates
** to: 0, or +-1 for +-1 (0 for 0). */
#ifndef MT_WORDS_H
#define MT_WORDS_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define MT_WORD_FN   static __device__ __forceinline__
#define MT_WORD_CALL static inline __device__ __noinline__ /* long, and rarely used */
#else
#define MT_WORD_FN   static inline __attribute__((always_inline, unused))
#define MT_WORD_CALL static __attribute__((noinline, unused))
#endif

/* glibc serves these in vectors, at most 4 units in the last place off, but its own
** header says so only under -ffast-math, which spoils NaN and infinities. */
#if defined __GNUC__ && !defined __clang__ && !defined __cplusplus && \
    defined __x86_64__ && defined __GLIBC__
#define MT_VECTOR_1(name)                                          \
  __attribute__((simd("notinbranch"), const)) double name(double); \
  __attribute__((simd("notinbranch"), const)) float name##f(float)
#define MT_VECTOR_2(name)                                                  \
  __attribute__((simd("notinbranch"), const)) double name(double, double); \
  __attribute__((simd("notinbranch"), const)) float name##f(float, float)
MT_VECTOR_1(exp);
MT_VECTOR_1(exp2);
MT_VECTOR_1(expm1);
MT_VECTOR_1(log);
MT_VECTOR_1(log1p);
MT_VECTOR_1(log2);
MT_VECTOR_1(log10);
MT_VECTOR_1(sin);
MT_VECTOR_1(cos);
MT_VECTOR_1(tan);
MT_VECTOR_1(asin);
MT_VECTOR_1(acos);
MT_VECTOR_1(atan);
MT_VECTOR_1(sinh);
MT_VECTOR_1(cosh);
MT_VECTOR_1(tanh);
MT_VECTOR_1(asinh);
MT_VECTOR_1(acosh);
MT_VECTOR_1(atanh);
MT_VECTOR_1(erf);
MT_VECTOR_1(erfc);
MT_VECTOR_2(pow);
MT_VECTOR_2(atan2);
MT_VECTOR_2(hypot);
#endif

/* exp and tanh of float32 are our own on the CPU: glibc's vectors cost twice as much. So is
** erf with AVX-512. */
#ifdef __CUDACC__
#define MT_FLOAT_EXP  expf
#define MT_FLOAT_EXP2 exp2f
#define MT_FLOAT_TANH tanhf
#define MT_FLOAT_ERF  erff
#else
#include "kernels/exponential.h"
#define MT_FLOAT_EXP  mt_float_exp
#define MT_FLOAT_EXP2 mt_float_exp2
#define MT_FLOAT_TANH mt_float_tanh
#ifdef __AVX512F__
#define MT_FLOAT_ERF mt_float_erf
#else
#define MT_FLOAT_ERF erff
#endif
#endif

#ifdef __CUDACC__
MT_WORD_FN unsigned mt_word_bits(float x) { return __float_as_uint(x); }
MT_WORD_FN float mt_word_float(unsigned u) { return __uint_as_float(u); }
MT_WORD_FN int mt_signbit_f64(double x) { return __double2hiint(x) < 0; }
#else
MT_WORD_FN unsigned mt_word_bits(float x) { return mt_bits_of_float(x); }
MT_WORD_FN float mt_word_float(unsigned u) { return mt_float_of_bits(u); }
MT_WORD_FN int mt_signbit_f64(double x) {
  int64_t i;
  memcpy(&i, &x, sizeof i);
  return i < 0;
}
#endif
MT_WORD_FN int mt_signbit_f32(float x) { return (int)(mt_word_bits(x) >> 31); }

/* ---- all types ------------------------------------------------------------------- */
#define MT_WORDS_ALL(T, s)                                     \
  MT_WORD_FN int mt_eq_##s(T a, T b) { return a == b; }        \
  MT_WORD_FN int mt_ne_##s(T a, T b) { return a != b; }        \
  MT_WORD_FN int mt_lt_##s(T a, T b) { return a < b; }         \
  MT_WORD_FN int mt_le_##s(T a, T b) { return a <= b; }        \
  MT_WORD_FN int mt_gt_##s(T a, T b) { return a > b; }         \
  MT_WORD_FN int mt_ge_##s(T a, T b) { return a >= b; }        \
  MT_WORD_FN int mt_both_##s(int a, int b) { return a & b; }   \
  MT_WORD_FN int mt_either_##s(int a, int b) { return a | b; } \
  MT_WORD_FN T mt_where_##s(int c, T a, T b) { return c ? a : b; }

/* ---- floats ---------------------------------------------------------------------- */
#define MT_WORD_LIBM(T, s, word, function) \
  MT_WORD_FN T mt_##word##_##s(T x) { return function(x); }

/* 1 / x; within 1 ulp on a GPU, where exact rounding costs ten instructions. */
#ifdef __CUDACC__
MT_WORD_FN float mt_inv_f32(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
MT_WORD_FN float mt_inv_f32(float x) { return 1 / x; }
#endif
MT_WORD_FN double mt_inv_f64(double x) { return 1 / x; }

#define MT_WORDS_FLOAT(T, s, f, own_exp, own_exp2, own_tanh, own_erf)                  \
  MT_WORDS_ALL(T, s)                                                                   \
  MT_WORD_LIBM(T, s, abs, fabs##f)                                                     \
  MT_WORD_LIBM(T, s, exp, own_exp)                                                     \
  MT_WORD_LIBM(T, s, exp2, own_exp2)                                                   \
  MT_WORD_LIBM(T, s, expm1, expm1##f)                                                  \
  MT_WORD_LIBM(T, s, log, log##f)                                                      \
  MT_WORD_LIBM(T, s, log1p, log1p##f)                                                  \
  MT_WORD_LIBM(T, s, log2, log2##f)                                                    \
  MT_WORD_LIBM(T, s, log10, log10##f)                                                  \
  MT_WORD_LIBM(T, s, sqrt, sqrt##f)                                                    \
  MT_WORD_LIBM(T, s, sin, sin##f)                                                      \
  MT_WORD_LIBM(T, s, cos, cos##f)                                                      \
  MT_WORD_LIBM(T, s, tan, tan##f)                                                      \
  MT_WORD_LIBM(T, s, asin, asin##f)                                                    \
  MT_WORD_LIBM(T, s, acos, acos##f)                                                    \
  MT_WORD_LIBM(T, s, atan, atan##f)                                                    \
  MT_WORD_LIBM(T, s, sinh, sinh##f)                                                    \
  MT_WORD_LIBM(T, s, cosh, cosh##f)                                                    \
  MT_WORD_LIBM(T, s, tanh, own_tanh)                                                   \
  MT_WORD_LIBM(T, s, asinh, asinh##f)                                                  \
  MT_WORD_LIBM(T, s, acosh, acosh##f)                                                  \
  MT_WORD_LIBM(T, s, atanh, atanh##f)                                                  \
  MT_WORD_LIBM(T, s, erf, own_erf)                                                     \
  MT_WORD_LIBM(T, s, erfc, erfc##f)                                                    \
  MT_WORD_LIBM(T, s, floor, floor##f)                                                  \
  MT_WORD_LIBM(T, s, ceil, ceil##f)                                                    \
  MT_WORD_LIBM(T, s, trunc, trunc##f)                                                  \
  MT_WORD_LIBM(T, s, round, rint##f)                                                   \
  MT_WORD_FN T mt_sign_##s(T x) { return x != x ? x : (T)((x > 0) - (x < 0)); }        \
  MT_WORD_FN T mt_pow_##s(T a, T b) { return pow##f(a, b); }                           \
  MT_WORD_FN T mt_atan2_##s(T a, T b) { return atan2##f(a, b); }                       \
  MT_WORD_FN T mt_hypot_##s(T a, T b) { return hypot##f(a, b); }                       \
  MT_WORD_FN T mt_fmod_##s(T a, T b) { return fmod##f(a, b); }                         \
  MT_WORD_FN T mt_remainder_##s(T a, T b) {                                            \
    const T m = fmod##f(a, b);                                                         \
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;                                   \
  }                                                                                    \
  MT_WORD_FN T mt_floordiv_##s(T a, T b) { return floor##f(a / b); }                   \
  MT_WORD_FN int mt_isinf_##s(T x) { return fabs##f(x) == (T)INFINITY; }               \
  MT_WORD_FN int mt_isfinite_##s(T x) { return fabs##f(x) < (T)INFINITY; }             \
  MT_WORD_FN T mt_sigmoid_##s(T x) { return mt_inv_##s(1 + own_exp(-x)); }             \
  MT_WORD_FN T mt_softplus_##s(T x, T beta, T threshold) {                             \
    const T t = beta * x;                                                              \
    return t > threshold ? x : log1p##f(own_exp(t > threshold ? 0 : t)) / beta;        \
  }                                                                                    \
  MT_WORD_FN T mt_copysign_##s(T a, T b) { return copysign##f(a, b); }                 \
  MT_WORD_FN T mt_sinpi_##s(T x) {                                                     \
    const T n = rint##f(x), y = sin##f((T)3.14159265358979323846 * (x - n));           \
    return floor##f(n * (T)0.5) * 2 != n ? -y : y;                                     \
  }                                                                                    \
  MT_WORD_FN T mt_logit_##s(T x) {                                                     \
    const int low = x < (T)0.25; /* else 2 x - 1 and 1 - x round little */             \
    const T t = low ? x / (1 - x) : (2 * x - 1) / (1 - x);                             \
    return low ? log##f(t) : log1p##f(t);                                              \
  }                                                                                    \
  MT_WORD_FN T mt_xlogy_##s(T a, T b) { return a == 0 && b == b ? 0 : a * log##f(b); } \
  MT_WORD_FN T mt_xlog1py_##s(T a, T b) {                                              \
    return a == 0 && b == b ? 0 : a * log1p##f(b);                                     \
  }                                                                                    \
  MT_WORD_CALL T mt_exponent_##s(T x) {                                                \
    int e = 0;                                                                         \
    if (x - x == 0) frexp##f(x, &e);                                                   \
    return (T)e;                                                                       \
  }

/* clang-format off */
MT_WORDS_FLOAT(float, f32, f, MT_FLOAT_EXP, MT_FLOAT_EXP2, MT_FLOAT_TANH, MT_FLOAT_ERF)
MT_WORDS_FLOAT(double, f64, , exp, exp2, tanh, erf)
/* clang-format on */

#include "kernels/special.h"

/* ---- integers, and bool as bytes of 0 and 1 -----------------------------------------
** U: the unsigned type; bits: how many b of shl and shr may count; below(x): is x less
** than 0, which for unsigned types is not even asked. */
#define MT_WORD_BELOW(x) ((x) < 0)
#define MT_WORD_NEVER(x) 0
#define MT_WORDS_INT(T, s, U, bits, below)                                            \
  MT_WORDS_ALL(T, s)                                                                  \
  MT_WORD_FN T mt_abs_##s(T x) { return (T)(below(x) ? -x : x); }                     \
  MT_WORD_FN T mt_sign_##s(T x) { return (T)((x > 0) - below(x)); }                   \
  MT_WORD_FN T mt_floor_##s(T x) { return x; }                                        \
  MT_WORD_FN T mt_ceil_##s(T x) { return x; }                                         \
  MT_WORD_FN T mt_round_##s(T x) { return x; }                                        \
  MT_WORD_FN T mt_trunc_##s(T x) { return x; }                                        \
  MT_WORD_FN int mt_signbit_##s(T x) { return (void)x, below(x); }                    \
  MT_WORD_FN T mt_popcount_##s(T x) { /* sums of 2, 4, 8 bits, then of bytes */       \
    uint64_t v = (uint64_t)(U)x & (~(uint64_t)0 >> (64 - bits));                      \
    v -= v >> 1 & 0x5555555555555555u;                                                \
    v = (v & 0x3333333333333333u) + (v >> 2 & 0x3333333333333333u);                   \
    v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0fu;                                         \
    return (T)(v * 0x0101010101010101u >> 56);                                        \
  }                                                                                   \
  MT_WORD_FN T mt_gcd_##s(T a, T b) { /* Euclid's algorithm */                        \
    U x = (U)(below(a) ? 0 - (U)a : (U)a), y = (U)(below(b) ? 0 - (U)b : (U)b);       \
    while (y != 0) {                                                                  \
      const U rest = (U)(x % y);                                                      \
      x = y;                                                                          \
      y = rest;                                                                       \
    }                                                                                 \
    return (T)x;                                                                      \
  }                                                                                   \
  MT_WORD_FN T mt_lcm_##s(T a, T b) {                                                 \
    const U x = (U)(below(a) ? 0 - (U)a : (U)a), y = (U)(below(b) ? 0 - (U)b : (U)b); \
    const U divisor = (U)mt_gcd_##s(a, b);                                            \
    return (T)(divisor == 0 ? 0 : x / divisor * y);                                   \
  }                                                                                   \
  MT_WORD_FN int mt_isinf_##s(T x) { return (void)x, 0; }                             \
  MT_WORD_FN int mt_isfinite_##s(T x) { return (void)x, 1; }                          \
  MT_WORD_FN T mt_fmod_##s(T a, T b) {                                                \
    return (T)(b == 0 || (below(b) && b == (T)-1) ? 0 : a % b);                       \
  }                                                                                   \
  MT_WORD_FN T mt_remainder_##s(T a, T b) {                                           \
    const T m = mt_fmod_##s(a, b);                                                    \
    return (T)(m != 0 && below(m) != below(b) ? m + b : m);                           \
  }                                                                                   \
  MT_WORD_FN T mt_floordiv_##s(T a, T b) {                                            \
    if (b == 0) return 0;                                                             \
    if (below(b) && b == (T)-1) return (T)-a;                                         \
    const T q = (T)(a / b);                                                           \
    return (T)(q * b != a && below(a) != below(b) ? q - 1 : q);                       \
  }                                                                                   \
  MT_WORD_FN T mt_pow_##s(T a, T b) {                                                 \
    if (below(b)) return (T)(a == 1 ? 1 : a == (T)-1 ? (b & 1 ? -1 : 1) : 0);         \
    U base = (U)a, y = 1;                                                             \
    for (U e = (U)b; e != 0; e = (U)(e >> 1)) {                                       \
      if (e & 1) y = (U)(y * base);                                                   \
      base = (U)(base * base);                                                        \
    }                                                                                 \
    return (T)y;                                                                      \
  }                                                                                   \
  MT_WORD_FN T mt_band_##s(T a, T b) { return (T)(a & b); }                           \
  MT_WORD_FN T mt_bor_##s(T a, T b) { return (T)(a | b); }                            \
  MT_WORD_FN T mt_bxor_##s(T a, T b) { return (T)(a ^ b); }                           \
  MT_WORD_FN T mt_bnot_##s(T x) { return (T)(bits == 1 ? x == 0 : ~x); }              \
  MT_WORD_FN T mt_shl_##s(T a, T b) {                                                 \
    return (T)(!below(b) && b < bits ? (U)((U)a << (b & (bits - 1))) : 0);            \
  }                                                                                   \
  MT_WORD_FN T mt_shr_##s(T a, T b) {                                                 \
    return (T)(!below(b) && b < bits ? a >> (b & (bits - 1)) : below(a) ? -1 : 0);    \
  }

/* clang-format off */
MT_WORDS_INT(int64_t, i64, uint64_t, 64, MT_WORD_BELOW)
MT_WORDS_INT(int32_t, i32, uint32_t, 32, MT_WORD_BELOW)
MT_WORDS_INT(int16_t, i16, uint32_t, 16, MT_WORD_BELOW)
MT_WORDS_INT(int8_t, i8, uint32_t, 8, MT_WORD_BELOW)
MT_WORDS_INT(uint8_t, u8, uint32_t, 8, MT_WORD_NEVER)
MT_WORDS_INT(uint8_t, b8, uint32_t, 1, MT_WORD_NEVER)
/* clang-format on */

#endif

/* ---- the words as formulas write them -----------------------------------------------
** With MT_FORMULAS defined before this header is included (again): each word is that of
** SUFFIX, a macro, as is T, that may change from one use to the next. */
#if defined MT_FORMULAS && !defined MT_FORMULA_WORDS
#define MT_FORMULA_WORDS
#define MT_WORD__(word, s) mt_##word##_##s
#define MT_WORD_(word, s)  MT_WORD__(word, s)
#define MT_WORD(word)      MT_WORD_(word, SUFFIX)
#define num(x)             ((T)(x))
#define eq(a, b)           MT_WORD(eq)(a, b)
#define ne(a, b)           MT_WORD(ne)(a, b)
#define lt(a, b)           MT_WORD(lt)(a, b)
#define le(a, b)           MT_WORD(le)(a, b)
#define gt(a, b)           MT_WORD(gt)(a, b)
#define ge(a, b)           MT_WORD(ge)(a, b)
#define both(a, b)         MT_WORD(both)(a, b)
#define either(a, b)       MT_WORD(either)(a, b)
#define where(c, a, b)     MT_WORD(where)(c, a, b)
#define abs(x)             MT_WORD(abs)(x)
#define sign(x)            MT_WORD(sign)(x)
#define exp(x)             MT_WORD(exp)(x)
#define exp2(x)            MT_WORD(exp2)(x)
#define expm1(x)           MT_WORD(expm1)(x)
#define log(x)             MT_WORD(log)(x)
#define log1p(x)           MT_WORD(log1p)(x)
#define log2(x)            MT_WORD(log2)(x)
#define log10(x)           MT_WORD(log10)(x)
#define sqrt(x)            MT_WORD(sqrt)(x)
#define sin(x)             MT_WORD(sin)(x)
#define cos(x)             MT_WORD(cos)(x)
#define tan(x)             MT_WORD(tan)(x)
#define asin(x)            MT_WORD(asin)(x)
#define acos(x)            MT_WORD(acos)(x)
#define atan(x)            MT_WORD(atan)(x)
#define sinh(x)            MT_WORD(sinh)(x)
#define cosh(x)            MT_WORD(cosh)(x)
#define tanh(x)            MT_WORD(tanh)(x)
#define asinh(x)           MT_WORD(asinh)(x)
#define acosh(x)           MT_WORD(acosh)(x)
#define atanh(x)           MT_WORD(atanh)(x)
#define sinpi(x)           MT_WORD(sinpi)(x)
#define logit(x)           MT_WORD(logit)(x)
#define xlogy(a, b)        MT_WORD(xlogy)(a, b)
#define xlog1py(a, b)      MT_WORD(xlog1py)(a, b)
#define exponent(x)        MT_WORD(exponent)(x)
#define lgamma(x)          MT_WORD(lgamma)(x)
#define digamma(x)         MT_WORD(digamma)(x)
#define polygamma(x, n)    MT_WORD(polygamma)(x, n)
#define i0(x)              MT_WORD(i0)(x)
#define i0e(x)             MT_WORD(i0e)(x)
#define i1(x)              MT_WORD(i1)(x)
#define i1e(x)             MT_WORD(i1e)(x)
#define erfinv(x)          MT_WORD(erfinv)(x)
#define copysign(a, b)     MT_WORD(copysign)(a, b)
#define nextafter(a, b, n) MT_WORD(nextafter)(a, b, n)
#define erf(x)             MT_WORD(erf)(x)
#define erfc(x)            MT_WORD(erfc)(x)
#define floor(x)           MT_WORD(floor)(x)
#define ceil(x)            MT_WORD(ceil)(x)
#define trunc(x)           MT_WORD(trunc)(x)
#define round(x)           MT_WORD(round)(x)
#define pow(a, b)          MT_WORD(pow)(a, b)
#define atan2(a, b)        MT_WORD(atan2)(a, b)
#define hypot(a, b)        MT_WORD(hypot)(a, b)
#define fmod(a, b)         MT_WORD(fmod)(a, b)
#define remainder(a, b)    MT_WORD(remainder)(a, b)
#define floordiv(a, b)     MT_WORD(floordiv)(a, b)
#undef isinf
#undef isfinite
#undef signbit
#define signbit(x)           MT_WORD(signbit)(x)
#define isinf(x)             MT_WORD(isinf)(x)
#define isfinite(x)          MT_WORD(isfinite)(x)
#define sigmoid(x)           MT_WORD(sigmoid)(x)
#define softplus(x, beta, t) MT_WORD(softplus)(x, beta, t)
#define band(a, b)           MT_WORD(band)(a, b)
#define bor(a, b)            MT_WORD(bor)(a, b)
#define bxor(a, b)           MT_WORD(bxor)(a, b)
#define bnot(x)              MT_WORD(bnot)(x)
#define popcount(x)          MT_WORD(popcount)(x)
#define gcd(a, b)            MT_WORD(gcd)(a, b)
#define lcm(a, b)            MT_WORD(lcm)(a, b)
#define shl(a, b)            MT_WORD(shl)(a, b)
#define shr(a, b)            MT_WORD(shr)(a, b)
#endif
