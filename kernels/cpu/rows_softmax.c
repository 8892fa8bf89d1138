/* kernels/cpu/rows_softmax.c -- loops of softmax and of the losses, for one level of
** x86-64. exp comes in vectors by words.h. A NaN makes its whole row NaN. */
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/exponential_lanes.h"
#include "kernels/words.h"

#define SUFFIXED(name) MT_CAT(name, SUFFIX)

#ifdef __AVX512F__
#define OWN_ROWS
#define PART 1024 /* elements whose sum is made of floats */

/* Four at once: each waits for the one before. */
static float largest_f32(int64_t n, const float *x) {
  const __m512 first = _mm512_set1_ps(x[0]);
  __m512 m[4] = {first, first, first, first};
  int64_t i = 0;
  for (; i + 4 * MT_LANES <= n; i += 4 * MT_LANES)
    for (int k = 0; k < 4; k++)
      m[k] = _mm512_max_ps(_mm512_loadu_ps(x + i + k * MT_LANES), m[k]);
  for (; i < n; i += MT_LANES) {
    const __mmask16 some =
        (__mmask16)(n - i < MT_LANES ? (1u << (n - i)) - 1 : 0xffffu);
    m[0] = _mm512_max_ps(_mm512_mask_loadu_ps(first, some, x + i), m[0]);
  }
  return _mm512_reduce_max_ps(
      _mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3])));
}

/* y = exp(x - m), and their sum. */
static double exps_f32(int64_t n, const float *x, float m, float *y) {
  const __m512 less = _mm512_set1_ps(m);
  double total = 0;
  for (int64_t from = 0; from < n; from += PART) {
    const int64_t end = n - from < PART ? n : from + PART;
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    int64_t i = from;
    for (; i + 2 * MT_LANES <= end; i += 2 * MT_LANES) {
      const __m512 d0 = _mm512_sub_ps(_mm512_loadu_ps(x + i), less);
      const __m512 d1 = _mm512_sub_ps(_mm512_loadu_ps(x + i + MT_LANES), less);
      const __m512 e0 = mt_lanes_exp(d0), e1 = mt_lanes_exp(d1);
      _mm512_storeu_ps(y + i, e0);
      _mm512_storeu_ps(y + i + MT_LANES, e1);
      sum[0] = _mm512_add_ps(sum[0], e0);
      sum[1] = _mm512_add_ps(sum[1], e1);
    }
    for (; i < end; i += MT_LANES) {
      const __mmask16 some =
          (__mmask16)(end - i < MT_LANES ? (1u << (end - i)) - 1 : 0xffffu);
      const __m512 d = _mm512_sub_ps(_mm512_maskz_loadu_ps(some, x + i), less);
      const __m512 e = _mm512_maskz_mov_ps(some, mt_lanes_exp(d));
      _mm512_mask_storeu_ps(y + i, some, e);
      sum[0] = _mm512_add_ps(sum[0], e);
    }
    total += (double)_mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]));
  }
  return total;
}
#endif

#define T      float
#define SUFFIX f32
#include "kernels/cpu/softmax_rows.inc"
#undef T
#undef SUFFIX
#undef OWN_ROWS

#ifdef __AVX512F__
static void row_past(bool logarithm, int64_t n, const void *x, void *buffer, void *y) {
  const float *from = x, *made = buffer;
  float *to = y;
  if (logarithm) {
    double m, log_sum;
    row_sum_f32(n, x, &m, &log_sum);
    const __m512 largest = _mm512_set1_ps((float)m);
    const __m512 less = _mm512_set1_ps((float)log_sum);
    for (int64_t i = 0; i < n; i += MT_LANES) {
      __builtin_prefetch(from + n + i); /* the next row */
      const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(from + i), largest);
      _mm512_stream_ps(to + i, _mm512_sub_ps(d, less));
    }
    return;
  }
  const float m = largest_f32(n, from);
  const __m512 factor = _mm512_set1_ps((float)(1 / exps_f32(n, from, m, buffer)));
  for (int64_t i = 0; i < n; i += MT_LANES) {
    __builtin_prefetch(from + n + i);
    _mm512_stream_ps(to + i, _mm512_mul_ps(_mm512_loadu_ps(made + i), factor));
  }
}
#else
#define row_past NULL
#endif

#define T      double
#define SUFFIX f64
#include "kernels/cpu/softmax_rows.inc"

#define ENTRY(sfx, past)                                                             \
  {                                                                                  \
    row_##sfx, columns_##sfx, row_backward_##sfx, columns_backward_##sfx,            \
        row_sum_##sfx, columns_sum_##sfx, row_scale_##sfx, columns_scale_##sfx, past \
  }

const mt_softmax_pair MT_ISA_NAME(mt_softmax) = {ENTRY(f32, row_past),
                                                 ENTRY(f64, NULL)};
