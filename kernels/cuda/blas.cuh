// kernels/cuda/blas.cuh -- products of matrices by cuBLASLt, with plans that are kept.
#ifndef MT_CUDA_BLAS_CUH
#define MT_CUDA_BLAS_CUH

#include "kernels/cuda/cuda.cuh"

enum class epilogue { none, bias, relu, relu_bias, gelu, gelu_bias };

// c[i][j] = sum over p of a[i][p] b[p][j], for `count` products; c's rows lie side by side.
// Of a's strides one is 1, of b's too. Strides in elements.
struct product {
  mt_dtype dtype;
  int64_t m, n, k, count;
  const void *a, *b;
  void *c;
  int64_t ars, acs, brs, bcs, crs;
  int64_t next_a, next_b, next_c; // from one product to the next
  epilogue after;
  const void *bias; // n elements, or NULL
  bool accumulate;  // c += the product; a plan for it must exist already
};

constexpr size_t blas_workspace = size_t(32)
                                  << 20; // bytes, what NVIDIA advises for Hopper

// Runs on call's stream; workspace: blas_workspace bytes. k = 0 gives zeros.
mt_status run_product(const mt_call *call, const product &p, void *workspace);

#endif
