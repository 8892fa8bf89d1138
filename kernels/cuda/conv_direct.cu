// kernels/cuda/conv_direct.cu -- convolution element by element: for groups of few
// channels, where a product of matrices has nothing to share, and for any size.
#include "kernels/cuda/conv.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

template <class S>
__global__ void __launch_bounds__(256)
    conv_direct_kernel(S *y, const S *x, const S *w, const S *bias,
                       const __grid_constant__ conv v) {
  using T = compute_t<S>;
  const int64_t all = v.n * v.k * v.oh * v.ow, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t ox = e % v.ow, oy = e / v.ow % v.oh;
    const int64_t k = e / v.ow / v.oh % v.k, i = e / v.ow / v.oh / v.k;
    const int64_t first = k / (v.k / v.groups) * v.cg; // channel of the group
    T sum = bias ? load_as<T>(bias[k]) : T(0);
    for (int64_t c = 0; c < v.cg; c++) {
      const S *image = x + i * v.xs[0] + (first + c) * v.xs[1];
      const S *filter = w + k * v.ws[0] + c * v.ws[1];
      for (int64_t a = 0; a < v.kh; a++) {
        const int64_t row = oy * v.sh - v.ph + a * v.dh;
        if (row < 0 || row >= v.h) continue;
        for (int64_t b = 0; b < v.kw; b++) {
          const int64_t col = ox * v.sw - v.pw + b * v.dw;
          if (col < 0 || col >= v.w) continue;
          sum += load_as<T>(image[row * v.xs[2] + col * v.xs[3]]) *
                 load_as<T>(filter[a * v.ws[2] + b * v.ws[3]]);
        }
      }
    }
    if (v.relu()) sum = rectified(sum);
    y[i * v.ys[0] + k * v.ys[1] + oy * v.ys[2] + ox * v.ys[3]] = store_as<S>(sum);
  }
}

template <class S>
__global__ void __launch_bounds__(256)
    conv_direct_input_kernel(S *dx, const S *w, const S *dy,
                             const __grid_constant__ conv v) {
  using T = compute_t<S>;
  const int64_t all = v.n * v.c * v.h * v.w, step = int64_t(gridDim.x) * blockDim.x;
  const int64_t kg = v.k / v.groups;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t col = e % v.w, row = e / v.w % v.h, channel = e / v.w / v.h % v.c;
    const int64_t i = e / v.w / v.h / v.c, g = channel / v.cg, c = channel % v.cg;
    T sum = 0;
    for (int64_t a = 0; a < v.kh; a++) {
      const int64_t top = row + v.ph - a * v.dh;
      if (top < 0 || top % v.sh || top / v.sh >= v.oh) continue;
      for (int64_t b = 0; b < v.kw; b++) {
        const int64_t left = col + v.pw - b * v.dw;
        if (left < 0 || left % v.sw || left / v.sw >= v.ow) continue;
        const S *window =
            dy + i * v.ys[0] + top / v.sh * v.ys[2] + left / v.sw * v.ys[3];
        const S *tap = w + c * v.ws[1] + a * v.ws[2] + b * v.ws[3];
        for (int64_t k = g * kg; k < (g + 1) * kg; k++)
          sum += load_as<T>(tap[k * v.ws[0]]) * load_as<T>(window[k * v.ys[1]]);
      }
    }
    dx[i * v.xs[0] + channel * v.xs[1] + row * v.xs[2] + col * v.xs[3]] =
        store_as<S>(sum);
  }
}

// A block a weight.
template <class S>
__global__ void __launch_bounds__(256)
    conv_direct_weight_kernel(S *dw, const S *x, const S *dy,
                              const __grid_constant__ conv v) {
  using T = compute_t<S>;
  __shared__ T held[256];
  const int64_t windows = v.oh * v.ow, depth = v.cg * v.kh * v.kw;
  for (int64_t e = blockIdx.x; e < v.k * depth; e += gridDim.x) {
    const int64_t b = e % v.kw, a = e / v.kw % v.kh, c = e / v.kw / v.kh % v.cg;
    const int64_t k = e / depth, channel = k / (v.k / v.groups) * v.cg + c;
    T sum = 0;
    for (int64_t t = threadIdx.x; t < v.n * windows; t += blockDim.x) {
      const int64_t i = t / windows, oy = t % windows / v.ow, ox = t % v.ow;
      const int64_t row = oy * v.sh - v.ph + a * v.dh;
      const int64_t col = ox * v.sw - v.pw + b * v.dw;
      if (row < 0 || row >= v.h || col < 0 || col >= v.w) continue;
      sum += load_as<T>(
                 x[i * v.xs[0] + channel * v.xs[1] + row * v.xs[2] + col * v.xs[3]]) *
             load_as<T>(dy[i * v.ys[0] + k * v.ys[1] + oy * v.ys[2] + ox * v.ys[3]]);
    }
    held[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (int(threadIdx.x) < half) held[threadIdx.x] += held[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
      dw[k * v.ws[0] + c * v.ws[1] + a * v.ws[2] + b * v.ws[3]] = store_as<S>(held[0]);
    __syncthreads();
  }
}

} // namespace

mt_status run_direct(const mt_call *call, const conv &v, const conv_data &d) {
  return with_float(mt_dtype(v.dtype), [&](auto t) {
    using S = typename decltype(t)::type;
    const auto *x = static_cast<const S *>(d.x), *w = static_cast<const S *>(d.w),
               *y = static_cast<const S *>(d.y);
    const auto grid = [&](int64_t n) { return blocks_for(n, 256, call->device); };
    const cudaStream_t stream = stream_of(call);
    if (v.what == pass::forward)
      conv_direct_kernel<S><<<grid(v.n * v.k * v.windows()), 256, 0, stream>>>(
          const_cast<S *>(y), x, w, static_cast<const S *>(d.bias), v);
    else if (v.what == pass::input)
      conv_direct_input_kernel<S><<<grid(v.n * v.c * v.h * v.w), 256, 0, stream>>>(
          const_cast<S *>(x), w, y, v);
    else
      conv_direct_weight_kernel<S>
          <<<unsigned(std::min<int64_t>(v.k * v.depth(), 65535)), 256, 0, stream>>>(
              const_cast<S *>(w), x, y, v);
    return launched();
  });
}
