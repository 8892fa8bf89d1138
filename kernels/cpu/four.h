/* kernels/cpu/four.h -- four float64 of the steps that go along a line, for the rows of
** one level of x86-64. Without AVX they lie in two registers, and are no arguments: they
** go by address. */
#ifndef MT_CPU_FOUR_H
#define MT_CPU_FOUR_H

#include "kernels/cpu/past.h"

#define MT_INLINE static inline __attribute__((always_inline))

typedef double mt_four __attribute__((vector_size(32)));
typedef int64_t mt_four_places __attribute__((vector_size(32)));

MT_INLINE void mt_four_spread(double x, mt_four *v) { *v = (mt_four){x, x, x, x}; }
MT_INLINE double mt_four_first(const mt_four *v) { return (*v)[0]; }

MT_INLINE void mt_four_load_f64(const double *x, mt_four *v) {
  memcpy(v, x, sizeof *v);
}
MT_INLINE void mt_four_load_f32(const float *x, mt_four *v) {
  typedef float floats __attribute__((vector_size(16)));
  floats f;
  memcpy(&f, x, sizeof f);
#ifdef __AVX__
  *v = (mt_four)__builtin_ia32_cvtps2pd256(
      f); /* else it comes in halves, by way of memory */
#else
  *v = __builtin_convertvector(f, mt_four);
#endif
}

/* past: past the caches; y is aligned to what is written then. */
MT_INLINE void mt_four_store_f64(double *y, const mt_four *v, bool past) {
  mt_put(y, v, sizeof *v, past);
}
MT_INLINE void mt_four_store_f32(float *y, const mt_four *v, bool past) {
  typedef float floats __attribute__((vector_size(16)));
  const floats f = __builtin_convertvector(*v, floats);
  mt_put(y, &f, sizeof f, past);
}

#endif
