/* kernels/cpu/rows_exponential.c -- the rows of exp, sigmoid and tanh of float32 where
** there is AVX-512, and the same with stores that pass the caches: those do not wait for
** the arithmetic then, nor it for them, as blocks on their way through the first-level
** cache do. */
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/exponential_lanes.h"

#ifdef __AVX512F__

#define ROW(name, suffix, STORE)                                                \
  static void name##_##suffix(int64_t n, char *const *p, const mt_attr *attr) { \
    float *out = (float *)p[0];                                                 \
    const float *x = (const float *)p[1];                                       \
    (void)attr;                                                                 \
    for (int64_t i = 0; i < n; i += MT_LANES)                                   \
      STORE(out + i, mt_lanes_##name(_mm512_loadu_ps(x + i)));                  \
  }
#define ROWS(name)                 \
  ROW(name, row, _mm512_storeu_ps) \
  ROW(name, past, _mm512_stream_ps)
ROWS(exp)
ROWS(sigmoid)
ROWS(tanh)

const mt_exponential_rows MT_ISA_NAME(mt_exponential_rows_of) = {
    {{MT_OP_exp, exp_row, exp_past},
     {MT_OP_sigmoid, sigmoid_row, sigmoid_past},
     {MT_OP_tanh, tanh_row, tanh_past}}};

#else
const mt_exponential_rows MT_ISA_NAME(mt_exponential_rows_of) = {0};
#endif
