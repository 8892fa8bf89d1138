/* kernels/cpu/rows_gemm.c -- register blocks and packing of products, of one level of
** x86-64 (MT_ISA): as many accumulators as its vector registers hold. */
#include "kernels/cpu/gemm.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

/* A product and its sum may be rounded once: that is what the block is for. */
#pragma GCC optimize("fp-contract=fast")

#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)

#if defined(__AVX512F__)
#define VECTOR 64 /* bytes */
#define MR     12
#elif defined(__AVX2__)
#define VECTOR 32
#define MR     6
#else
#define VECTOR 16
#define MR     4
#endif

#define NAME(x) JOIN(x, SUFFIX) /* of T */
#define V       NAME(vec)
#define VU      NAME(vec_unaligned)
#define VI      NAME(vec_word)
#define LANES   ((int)(VECTOR / sizeof(T)))
#define VH      NAME(half)
#define VIH     NAME(half_word)
#define HALF    (LANES / 2)
#define NR      (2 * LANES)

#define ADD_PRODUCT(sum, a, b) ((sum) + (a) * (b))

/* ---- float64 ---- */

#define T      double
#define WORD   int64_t
#define SUFFIX f64
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_direct.inc"
#define OF(x) JOIN(x, f64)
#define S     double
static inline V load_f64(const double *p) { return *(const VU *)p; }
static inline VH load_half_f64(const double *p) { return *(const VH *)p; }
static inline double one_f64(double x) { return x; }
#include "kernels/cpu/gemm_pack.inc"
#include "kernels/cpu/gemm_thin.inc"
#undef T
#undef WORD
#undef SUFFIX
#undef S
#undef OF

/* ---- float32, and half types whose panels are of float32 ---- */

#define T      float
#define WORD   int32_t
#define SUFFIX f32
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_direct.inc"
#define OF(x) JOIN(x, f32)
#define S     float
static inline V load_f32(const float *p) { return *(const VU *)p; }
static inline VH load_half_f32(const float *p) { return *(const VH *)p; }
static inline float one_f32(float x) { return x; }
#include "kernels/cpu/gemm_pack.inc"
#include "kernels/cpu/gemm_thin.inc"
#undef S
#undef OF

#define OF(x) JOIN(x, bf16)
#define S     uint16_t
typedef uint16_t halves __attribute__((vector_size(VECTOR / 2), aligned(2), may_alias));
typedef uint16_t few __attribute__((vector_size(VECTOR / 4), aligned(2), may_alias));
static inline V load_bf16(const uint16_t *p) {
  return (V)(__builtin_convertvector(*(const halves *)p, VI) << 16);
}
static inline VH load_half_bf16(const uint16_t *p) {
  return (VH)(__builtin_convertvector(*(const few *)p, VIH) << 16);
}
static inline float one_bf16(uint16_t x) { return mt_bf16_to_f32(x); }
#include "kernels/cpu/gemm_pack.inc"
#include "kernels/cpu/gemm_thin.inc"
#undef OF

#define OF(x) JOIN(x, f16)
static inline float one_f16(uint16_t x) { return mt_f16_to_f32(x); }
static inline V load_f16(const uint16_t *p) {
#if defined(__AVX512F__)
  return (V)_mm512_cvtph_ps((__m256i) * (const halves *)p);
#elif defined(__F16C__)
  return (V)_mm256_cvtph_ps((__m128i) * (const halves *)p);
#else
  V v = {0};
  for (int i = 0; i < LANES; i++) v[i] = one_f16(p[i]);
  return v;
#endif
}
static inline VH load_half_f16(const uint16_t *p) {
#if defined(__AVX512F__)
  return (VH)_mm256_cvtph_ps((__m128i) * (const few *)p);
#else
  VH v = {0};
  for (int i = 0; i < HALF; i++) v[i] = one_f16(p[i]);
  return v;
#endif
}
#include "kernels/cpu/gemm_pack.inc"
#include "kernels/cpu/gemm_thin.inc"
#undef OF

/* s: of the elements, t: of the panels. */
#define ENTRY(s, t)                                                             \
  {                                                                             \
    MR, nr_##t, 1, pack_a_##s, pack_b_##s, block_##t, dots_##s, axpys_##s,      \
        column_sums_##s, pack_windows_##s, pack_windows_t_##s, add_windows_##t, \
        direct_rows_##t                                                         \
  }

const mt_gemm_set MT_ISA_NAME(mt_gemm) = {ENTRY(f32, f32), ENTRY(f64, f64),
                                          ENTRY(f16, f32), ENTRY(bf16, f32)};
