/* kernels/cpu/rows_gemm.c -- register blocks and packing of products, of one level of
** x86-64 (MT_ISA): as many accumulators as its vector registers hold. */
#include "kernels/cpu/gemm.h"

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

#define T      float
#define WORD   int32_t
#define SUFFIX f32
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_direct.inc"
#include "kernels/cpu/gemm_thin.inc"
#undef T
#undef WORD
#undef SUFFIX

#define T      double
#define WORD   int64_t
#define SUFFIX f64
#include "kernels/cpu/gemm_block.inc"
#include "kernels/cpu/gemm_direct.inc"
#include "kernels/cpu/gemm_thin.inc"

#define ENTRY(sfx)                                                                  \
  {                                                                                 \
    MR, nr_##sfx, pack_a_##sfx, pack_b_##sfx, block_##sfx, dots_##sfx, axpys_##sfx, \
        column_sums_##sfx, pack_windows_##sfx, pack_windows_t_##sfx,                \
        add_windows_##sfx, direct_rows_##sfx                                        \
  }

const mt_gemm_pair MT_ISA_NAME(mt_gemm) = {ENTRY(f32), ENTRY(f64)};
