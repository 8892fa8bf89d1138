// kernels/cuda/formulas.cuh -- makes the formulas of ops.def compile: include it after
// every other header, since its words are macros.
#pragma nv_diag_suppress 186 // unsigned integers are compared with 0 like others
#include "kernels/words.h"

// 1 + erf(x), as gelu's formulas say, by one exponential for all x: half of what erf
// takes, and nothing cancels below 0. Within 2e-7.
__device__ inline float one_plus_erf(float x) {
  const float t = fabsf(x);
  float p = 9.64790729e-07f, e; // -log2(erfc(t)) / t
  p = fmaf(p, t, -2.05305350e-05f), p = fmaf(p, t, 0.000185036435f);
  p = fmaf(p, t, -0.000903994835f), p = fmaf(p, t, 0.00231983396f);
  p = fmaf(p, t, -9.17366269e-05f), p = fmaf(p, t, -0.0277377479f);
  p = fmaf(p, t, 0.148316398f), p = fmaf(p, t, 0.918441117f);
  p = fmaf(p, t, 1.6279074f);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-t * p));
  return x < 0 ? e : 2 - e;
}
struct erf_value { // of x, not computed yet
  float x;
  __device__ operator float() const { return mt_erf_f32(x); }
};
__device__ inline float operator+(int n, erf_value y) {
  return n == 1 ? one_plus_erf(y.x) : n + float(y);
}
__device__ inline erf_value erf_of(float x) { return {x}; }
__device__ inline double erf_of(double x) { return mt_erf_f64(x); }

#define MT_FORMULAS
#include "kernels/words.h"
#undef erf
#define erf(x) erf_of(x)

#define FN_CAT_(a, b) a##b
#define FN_CAT(a, b)  FN_CAT_(a, b)

// An attributes column becomes the declaration of its constants.
#define P0 (void)at
#define P1(n0, d0)    \
  const T n0 = at[0]; \
  (void)n0
#define P2(n0, d0, n1, d1) \
  const T n0 = at[0];      \
  const T n1 = at[1];      \
  (void)n0;                \
  (void)n1
