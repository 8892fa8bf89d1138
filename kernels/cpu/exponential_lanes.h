/* kernels/cpu/exponential_lanes.h -- exp and tanh of 16 floats at once, with AVX-512: the
** steps of kernels/exponential.h and so its values to the last bit, but that vscalefps
** takes the place of two products and what makes their factors. */
#ifndef MT_EXPONENTIAL_LANES_H
#define MT_EXPONENTIAL_LANES_H

#ifdef __AVX512F__
#include <immintrin.h>
#include "kernels/exponential.h"

#define MT_LANES   16
#define MT_EACH(x) _mm512_set1_ps(x)

/* x - n log(2) */
static inline __m512 mt_lanes_rest(__m512 x, __m512 n) {
  const __m512 r = _mm512_fmadd_ps(n, MT_EACH(-0x1.63p-1f), x);
  return _mm512_fmadd_ps(n, MT_EACH(0x1.bd0106p-13f), r);
}

static inline __m512 mt_lanes_polynomial(__m512 r) {
  __m512 p = MT_EACH(0.0013882514f);
  p = _mm512_fmadd_ps(p, r, MT_EACH(0.008366558f));
  p = _mm512_fmadd_ps(p, r, MT_EACH(0.0416672f));
  p = _mm512_fmadd_ps(p, r, MT_EACH(0.16666543f));
  p = _mm512_fmadd_ps(p, r, MT_EACH(0.49999997f));
  return _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
}

/* The second operand of min and max passes if one is NaN. */
static inline __m512 mt_lanes_exp(__m512 x) {
  const __m512 rounder = MT_EACH(MT_EXP_ROUNDER);
  x = _mm512_min_ps(MT_EACH(89), _mm512_max_ps(MT_EACH(-104), x));
  const __m512 t = _mm512_fmadd_ps(x, MT_EACH(1.44269504f), rounder);
  const __m512 n = _mm512_sub_ps(t, rounder);
  const __m512 y = mt_lanes_polynomial(mt_lanes_rest(x, n));
  return _mm512_scalef_ps(_mm512_add_ps(y, MT_EACH(1)), n);
}

static inline __m512 mt_lanes_sigmoid(__m512 x) {
  const __m512 minus = _mm512_xor_ps(x, MT_EACH(-0.0f));
  const __m512 e = mt_lanes_exp(minus);
  return _mm512_div_ps(MT_EACH(1), _mm512_add_ps(MT_EACH(1), e));
}

static inline __m512 mt_lanes_tanh(__m512 x) {
  const __m512 rounder = MT_EACH(MT_EXP_ROUNDER + 127), sign = MT_EACH(-0.0f);
  const __m512 size = _mm512_andnot_ps(sign, x);
  const __m512 z = _mm512_min_ps(MT_EACH(20), _mm512_add_ps(size, size));
  const __m512 t = _mm512_fmadd_ps(z, MT_EACH(1.44269504f), rounder);
  const __m512 q = mt_lanes_polynomial(mt_lanes_rest(z, _mm512_sub_ps(t, rounder)));
  const __m512 power =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23));
  const __m512 e = _mm512_fmadd_ps(q, power, _mm512_sub_ps(power, MT_EACH(1)));
  const __m512 y = _mm512_div_ps(e, _mm512_add_ps(e, MT_EACH(2)));
  return _mm512_or_ps(_mm512_andnot_ps(sign, y), _mm512_and_ps(sign, x));
}
#endif

#endif
