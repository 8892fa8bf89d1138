/* kernels/cpu/rows_layer_norm.c -- rows of layer_norm and of its backward, for one
** level of x86-64. A row stays in the first-level cache from pass to pass. */
#include "kernels/cpu/layer_norm.h"

#define NAME(name) MT_CAT(name##_, SUFFIX)
#define LANES      32   /* sums that run side by side, at every level */
#define BLOCK      1024 /* elements whose sums are added in their own type */

#define T      float
#define SUFFIX f32
#include "kernels/cpu/layer_norm_rows.inc"
#undef T
#undef SUFFIX

#define T      double
#define SUFFIX f64
#include "kernels/cpu/layer_norm_rows.inc"

#ifdef __AVX512F__
#include <immintrin.h>

/* The same operations as forward's. */
static void forward_past(int64_t n, double epsilon, const void *x, const void *w,
                         const void *b, void *y) {
  const float *from = x, *factor = w, *bias = b;
  const moments_f32 m = moments_of_f32(n, epsilon, from);
  const __m512 about = _mm512_set1_ps(m.about), rest = _mm512_set1_ps(m.rest);
  const __m512 scale = _mm512_set1_ps(m.scale);
  for (int64_t i = 0; i < n; i += 16) {
    __builtin_prefetch(from + n + i); /* the next row */
    __m512 v = _mm512_sub_ps(_mm512_sub_ps(_mm512_loadu_ps(from + i), about), rest);
    v = _mm512_mul_ps(v, scale);
    if (w) v = _mm512_mul_ps(v, _mm512_loadu_ps(factor + i));
    if (b) v = _mm512_add_ps(v, _mm512_loadu_ps(bias + i));
    _mm512_stream_ps((float *)y + i, v);
  }
}
#else
#define forward_past NULL
#endif

const mt_layer_norm_pair MT_ISA_NAME(mt_layer_norm) = {
    {forward_f32, backward_f32, forward_past}, {forward_f64, backward_f64, NULL}};
