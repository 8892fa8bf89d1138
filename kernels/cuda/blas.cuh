// kernels/cuda/blas.cuh -- products of matrices by cuBLASLt, with plans that are kept.
#ifndef MT_CUDA_BLAS_CUH
#define MT_CUDA_BLAS_CUH

#include "kernels/cuda/cuda.cuh"

enum class activation { none, relu, gelu };

// c[i][j] = sum over p of a[i][p] b[p][j], for `count` products; c's rows lie side by side.
// Of a's strides one is 1, of b's too. Strides in elements.
struct product {
  mt_dtype dtype;
  int64_t m, n, k, count;
  const void *a, *b;
  void *c;
  int64_t ars, acs, brs, bcs, crs;
  int64_t next_a, next_b, next_c; // from one product to the next
  const void *bias;               // n elements, or NULL
  bool accumulate;  // c += the product; if that makes the plan, nothing is timed
  activation after; // of the sum; gelu in small products, relu where takes_relu
  void *row_sums;   // [out] in small products: the sums of a's rows (m), or NULL
};

// Bytes, what NVIDIA advises for Hopper. A plan may need less once it is chosen.
constexpr size_t blas_workspace = size_t(32) << 20;

// Bytes that run_product needs for p: blas_workspace before the first time.
size_t product_workspace(const mt_call *call, const product &p);

// Runs on call's stream; workspace: product_workspace or more. k = 0 gives zeros.
mt_status run_product(const mt_call *call, const product &p, void *workspace);

// Is a call of cuBLASLt longer than the product? Then run_small_product does it, in one
// launch and exactly in the dtype (float32 for halves); of a and b it takes any strides.
bool is_small_product(const product &p);
inline bool takes_relu(const product &p) {
  return is_small_product(p) ||
         (p.bias && p.dtype != MT_F64 && p.count == 1 && p.crs == p.n);
}
mt_status run_small_product(const mt_call *call, const product &p);

#endif
