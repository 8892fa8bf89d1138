// kernels/cuda/conv_layout.cuh -- the two orders in which a convolution's tensors may lie.
#ifndef MT_CUDA_CONV_LAYOUT_CUH
#define MT_CUDA_CONV_LAYOUT_CUH

#include "kernels/cuda/conv.cuh"

namespace {

inline void contiguous_strides(const int64_t *shape, int64_t *stride) {
  stride[3] = 1, stride[2] = shape[3], stride[1] = stride[2] * shape[2],
  stride[0] = stride[1] * shape[1];
}
inline void channels_last_strides(const int64_t *shape, int64_t *stride) {
  stride[1] = 1, stride[3] = shape[1], stride[2] = stride[3] * shape[3],
  stride[0] = stride[2] * shape[2];
}

// The same convolution of tensors that lie in one of the two orders.
inline conv laid_out(conv v, bool channels_last) {
  int64_t shape[4];
  const auto strides = channels_last ? channels_last_strides : contiguous_strides;
  v.shape_x(shape), strides(shape, v.xs);
  v.shape_w(shape), strides(shape, v.ws);
  v.shape_y(shape), strides(shape, v.ys);
  v.aligned |= 7;
  return v;
}

inline bool same_strides(const int64_t *shape, const int64_t *a, const int64_t *b) {
  for (int d = 0; d < 4; d++)
    if (shape[d] > 1 && a[d] != b[d]) return false;
  return true;
}

inline bool is_channels_last(const conv &v) {
  int64_t x[4], y[4];
  const conv last = laid_out(v, true);
  v.shape_x(x), v.shape_y(y);
  return same_strides(x, v.xs, last.xs) && same_strides(y, v.ys, last.ys);
}
inline bool is_contiguous(const conv &v) {
  int64_t x[4], y[4];
  const conv rows = laid_out(v, false);
  v.shape_x(x), v.shape_y(y);
  return same_strides(x, v.xs, rows.xs) && same_strides(y, v.ys, rows.ys);
}

} // namespace

// ---- conv_product.cu: windows of 1 x 1 as products of matrices
bool is_product(const conv &v);
// Bias and relu are part of that product.
bool adds_bias(const conv &v);
mt_status run_products(const mt_call *call, const conv &v, const conv_data &d,
                       void *scratch); // blas_workspace

#endif
