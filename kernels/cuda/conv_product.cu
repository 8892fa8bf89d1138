// kernels/cuda/conv_product.cu -- convolutions with windows of 1 x 1 as products of
// matrices, by cuBLASLt.
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/conv_layout.cuh"

// Windows are the elements themselves, and each operand is a matrix as it lies. Where an
// image is (C, H W), dw is a sum over images and no single product.
bool is_product(const conv &v) {
  const bool elements = v.kh == 1 && v.kw == 1 && v.sh == 1 && v.sw == 1 && v.ph == 0 &&
                        v.pw == 0 && v.groups == 1;
  if (!elements || (v.ws[1] != 1 && v.cg > 1) || (v.ws[0] != v.cg && v.k > 1))
    return false;
  return is_channels_last(v) || (v.what != pass::weight && is_contiguous(v));
}

bool adds_bias(const conv &v) {
  return v.after & has_bias && v.dtype != MT_F64 && is_channels_last(v);
}

mt_status run_products(const mt_call *call, const conv &v, const conv_data &d,
                       void *scratch) {
  product p{};
  const int64_t pixels = v.windows(), all = v.n * pixels;
  const bool rows = !is_channels_last(v);
  p.dtype = mt_dtype(v.dtype), p.count = rows ? v.n : 1;
  if (v.what == pass::forward && rows) { // y (K, HW) = w (K, C) x (C, HW)
    p.m = v.k, p.n = pixels, p.k = v.c;
    p.a = d.w, p.ars = v.c, p.acs = 1;
    p.b = d.x, p.brs = pixels, p.bcs = 1, p.next_b = v.c * pixels;
    p.c = const_cast<void *>(d.y), p.crs = pixels, p.next_c = v.k * pixels;
  } else if (v.what == pass::input && rows) { // dx (C, HW) = w^T dy
    p.m = v.c, p.n = pixels, p.k = v.k;
    p.a = d.w, p.ars = 1, p.acs = v.c;
    p.b = d.y, p.brs = pixels, p.bcs = 1, p.next_b = v.k * pixels;
    p.c = const_cast<void *>(d.x), p.crs = pixels, p.next_c = v.c * pixels;
  } else if (v.what == pass::forward) { // y (NHW, K) = x (NHW, C) w^T
    p.m = all, p.n = v.k, p.k = v.c;
    p.a = d.x, p.ars = v.c, p.acs = 1;
    p.b = d.w, p.brs = 1, p.bcs = v.c;
    p.c = const_cast<void *>(d.y), p.crs = v.k;
    p.bias = adds_bias(v) ? d.bias : nullptr;
    p.after = p.bias && v.relu() ? activation::relu : activation::none;
  } else if (v.what == pass::input) { // dx (NHW, C) = dy (NHW, K) w
    p.m = all, p.n = v.c, p.k = v.k;
    p.a = d.y, p.ars = v.k, p.acs = 1;
    p.b = d.w, p.brs = v.c, p.bcs = 1;
    p.c = const_cast<void *>(d.x), p.crs = v.c;
  } else { // dw (K, C) = dy^T x
    p.m = v.k, p.n = v.c, p.k = all;
    p.a = d.y, p.ars = 1, p.acs = v.k;
    p.b = d.x, p.brs = v.c, p.bcs = 1;
    p.c = const_cast<void *>(d.w), p.crs = v.c;
  }
  // the stride of a dim of size 1 says nothing: read it as a row
  if (p.m == 1 && p.ars == 1) p.ars = p.k, p.acs = 1;
  if (p.k == 1 && p.acs != 1) p.acs = 1, p.ars = 1;
  if (p.n == 1 && p.bcs != 1) p.bcs = 1, p.brs = 1;
  if (p.k == 1 && p.brs == 1 && p.bcs != 1) p.brs = p.n, p.bcs = 1;
  return run_product(call, p, scratch);
}
