// kernels/cuda/conv.cuh -- what the ways to compute a convolution share: its geometry.
#ifndef MT_CUDA_CONV_CUH
#define MT_CUDA_CONV_CUH

#include "kernels/cuda/cuda.cuh"

enum class pass : int32_t { forward, input, weight }; // y, dx or dw is wanted
enum { has_bias = 1, has_relu = 2 };                  // what follows in forward

template <class T> __device__ inline T rectified(T x) { return x <= T(0) ? T(0) : x; }

// x (N, C, H, W), w (K, C / groups, KH, KW), y (N, K, OH, OW); strides in elements. Plain
// numbers without gaps: compared and hashed as bytes.
struct conv {
  int64_t n, c, h, w, k, cg, oh, ow; // c of all groups, cg of one
  int64_t kh, kw, sh, sw, ph, pw, dh, dw, groups;
  int64_t xs[4], ws[4], ys[4];
  pass what;
  int32_t dtype;
  int32_t aligned; // bits 0, 1, 2, 3: x, w, y, bias begin at a multiple of 16 bytes
  int32_t after;   // bits of the sums: has_bias, has_relu

  int64_t kg() const { return k / groups; }
  __host__ __device__ int64_t depth() const { return cg * kh * kw; }
  int64_t windows() const { return oh * ow; }
  __host__ __device__ bool relu() const { return after & has_relu; }
  double work() const { return double(n) * double(k * windows()) * double(depth()); }
  void shape_x(int64_t *s) const { s[0] = n, s[1] = c, s[2] = h, s[3] = w; }
  void shape_w(int64_t *s) const { s[0] = k, s[1] = cg, s[2] = kh, s[3] = kw; }
  void shape_y(int64_t *s) const { s[0] = n, s[1] = k, s[2] = oh, s[3] = ow; }
};

// The one that `what` names is written, the others are read. bias: of forward, or NULL.
struct conv_data {
  const void *x, *w, *y, *bias;
};

// ---- conv_after.cu: y (N, K, OH, OW) = f(y + bias), in place; f: relu or nothing
mt_status run_after(const mt_call *call, const mt_view *y, const void *bias, bool relu);

// ---- conv_direct.cu: each element a loop of its own; any size, any strides
mt_status run_direct(const mt_call *call, const conv &v, const conv_data &d);

// ---- conv_gemm.cu: tiles of a product whose second matrix, the unrolled windows, is
// gathered piece by piece into shared memory
bool gemm_serves(const mt_call *call, const conv &v);
size_t gemm_scratch(const mt_call *call, const conv &v); // bytes
mt_status run_gemm(const mt_call *call, const conv &v, const conv_data &d,
                   void *scratch);

// ---- conv_image.cu: small images, each with some filters in shared memory
bool image_serves(const mt_call *call, const conv &v);
size_t image_scratch(const mt_call *call, const conv &v); // bytes
mt_status run_image(const mt_call *call, const conv &v, const conv_data &d,
                    void *scratch);

// ---- conv_last.cu: as conv_gemm.cu, for channels-last tensors, by tiles that are copied
// ahead; whole pieces of 16 bytes of channels, sm_80 or later
bool last_serves(const mt_call *call, const conv &v);
// v of channels-last tensors, with w as it has to lie: in pass::input its output channels
// come last.
conv last_layout(conv v);
size_t last_scratch(const mt_call *call, const conv &v); // bytes
mt_status run_last(const mt_call *call, const conv &v, const conv_data &d,
                   void *scratch);

#endif
