// kernels/cuda/formulas.cuh -- makes the formulas of ops.def compile: include it after
// every other header, since its words are macros.
#pragma nv_diag_suppress 186 // unsigned integers are compared with 0 like others
#include "kernels/words.h"
#define MT_FORMULAS
#include "kernels/words.h"

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
