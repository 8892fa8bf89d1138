// kernels/cuda/conv.cu -- conv2d and its backward ops: windows are unrolled into a matrix
// (im2col) for as many images as the scratch holds, and cuBLASLt multiplies; 1 x 1 windows
// need no unrolling. Convolutions with groups run in kernels of their own, without matrices.
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/elementwise.cuh"

mt_status cuda_copy(const mt_call *call);
const mt_entry *cuda_elementwise(mt_op op);

namespace {

struct conv {
  int64_t n, c, h, w; // of x; c of all groups
  int64_t k, cg;      // output channels; input channels of a group
  int kh, kw, sh, sw, ph, pw, dh, dw, groups;
  int64_t oh, ow, depth, windows; // depth = cg * kh * kw, windows = oh * ow
};

int first_of(const mt_attr *a) { return int(a->i[0]); }
int second_of(const mt_attr *a) { return int(a->n == 1 ? a->i[0] : a->i[1]); }

// attr: stride, padding, dilation, groups.
conv make_conv(const mt_view *x, const mt_view *w, const mt_view *y,
               const mt_attr *attr) {
  conv v{};
  v.n = x->shape[0], v.c = x->shape[1], v.h = x->shape[2], v.w = x->shape[3];
  v.k = w->shape[0], v.cg = w->shape[1], v.kh = int(w->shape[2]),
  v.kw = int(w->shape[3]);
  v.sh = first_of(&attr[0]), v.sw = second_of(&attr[0]);
  v.ph = first_of(&attr[1]), v.pw = second_of(&attr[1]);
  v.dh = first_of(&attr[2]), v.dw = second_of(&attr[2]);
  v.groups = int(attr[3].i[0]);
  v.oh = y->shape[2], v.ow = y->shape[3];
  v.depth = v.cg * v.kh * v.kw, v.windows = v.oh * v.ow;
  return v;
}

bool is_product(const conv &v) { // windows are the elements themselves
  return v.kh == 1 && v.kw == 1 && v.sh == 1 && v.sw == 1 && v.ph == 0 && v.pw == 0;
}

// ---- unrolling --------------------------------------------------------------------------

// column[p][i][j] = element p of window j of image i: row_step = images * windows, or
// with by_image: column[i][p][j].
template <class S>
__global__ void __launch_bounds__(256)
    im2col_kernel(S *column, const S *x, conv v, int64_t images, bool by_image) {
  const int64_t all = v.depth * images * v.windows;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t j = e % v.windows, rest = e / v.windows;
    const int64_t i = by_image ? rest / v.depth : rest % images;
    const int64_t p = by_image ? rest % v.depth : rest / images;
    const int b = int(p % v.kw), a = int(p / v.kw % v.kh);
    const int64_t c = p / v.kw / v.kh;
    const int64_t row = j / v.ow * v.sh - v.ph + int64_t(a) * v.dh;
    const int64_t col = j % v.ow * v.sw - v.pw + int64_t(b) * v.dw;
    const bool inside = row >= 0 && row < v.h && col >= 0 && col < v.w;
    column[e] = inside ? x[((i * v.c + c) * v.h + row) * v.w + col] : S(0);
  }
}

// dx[i][c][row][col] = the sum of column[i][p][j] over the windows j that hold it.
template <class S>
__global__ void __launch_bounds__(256)
    col2im_kernel(S *dx, const S *column, conv v, int64_t images) {
  using T = compute_t<S>;
  const int64_t all = images * v.c * v.h * v.w;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t col = e % v.w, row = e / v.w % v.h, c = e / v.w / v.h % v.c;
    const S *from = column + e / v.w / v.h / v.c * v.depth * v.windows;
    T sum = 0;
    for (int a = 0; a < v.kh; a++) {
      const int64_t top = row + v.ph - int64_t(a) * v.dh;
      if (top < 0 || top % v.sh || top / v.sh >= v.oh) continue;
      for (int b = 0; b < v.kw; b++) {
        const int64_t left = col + v.pw - int64_t(b) * v.dw;
        if (left < 0 || left % v.sw || left / v.sw >= v.ow) continue;
        const int64_t p = (c * v.kh + a) * v.kw + b;
        sum += load_as<T>(from[p * v.windows + top / v.sh * v.ow + left / v.sw]);
      }
    }
    dx[e] = store_as<S>(sum);
  }
}

// ---- groups: direct sums ----------------------------------------------------------------

template <class S>
__global__ void __launch_bounds__(256)
    conv_direct_kernel(S *y, const S *x, const S *w, const S *bias, conv v) {
  using T = compute_t<S>;
  const int64_t all = v.n * v.k * v.windows, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t j = e % v.windows, k = e / v.windows % v.k, i = e / v.windows / v.k;
    const int64_t g = k / (v.k / v.groups);
    const S *filter = w + k * v.depth;
    T sum = bias ? load_as<T>(bias[k]) : T(0);
    for (int64_t c = 0; c < v.cg; c++)
      for (int a = 0; a < v.kh; a++) {
        const int64_t row = j / v.ow * v.sh - v.ph + int64_t(a) * v.dh;
        if (row < 0 || row >= v.h) continue;
        for (int b = 0; b < v.kw; b++) {
          const int64_t col = j % v.ow * v.sw - v.pw + int64_t(b) * v.dw;
          if (col < 0 || col >= v.w) continue;
          sum += load_as<T>(x[((i * v.c + g * v.cg + c) * v.h + row) * v.w + col]) *
                 load_as<T>(filter[(c * v.kh + a) * v.kw + b]);
        }
      }
    y[e] = store_as<S>(sum);
  }
}

template <class S>
__global__ void __launch_bounds__(256)
    conv_direct_input_kernel(S *dx, const S *w, const S *dy, conv v) {
  using T = compute_t<S>;
  const int64_t all = v.n * v.c * v.h * v.w, step = int64_t(gridDim.x) * blockDim.x;
  const int64_t kg = v.k / v.groups;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t col = e % v.w, row = e / v.w % v.h, channel = e / v.w / v.h % v.c;
    const int64_t i = e / v.w / v.h / v.c, g = channel / v.cg, c = channel % v.cg;
    T sum = 0;
    for (int a = 0; a < v.kh; a++) {
      const int64_t top = row + v.ph - int64_t(a) * v.dh;
      if (top < 0 || top % v.sh || top / v.sh >= v.oh) continue;
      for (int b = 0; b < v.kw; b++) {
        const int64_t left = col + v.pw - int64_t(b) * v.dw;
        if (left < 0 || left % v.sw || left / v.sw >= v.ow) continue;
        const int64_t j = top / v.sh * v.ow + left / v.sw;
        for (int64_t k = g * kg; k < (g + 1) * kg; k++)
          sum += load_as<T>(w[k * v.depth + (c * v.kh + a) * v.kw + b]) *
                 load_as<T>(dy[(i * v.k + k) * v.windows + j]);
      }
    }
    dx[e] = store_as<S>(sum);
  }
}

// A block a weight.
template <class S>
__global__ void __launch_bounds__(256)
    conv_direct_weight_kernel(S *dw, const S *x, const S *dy, conv v) {
  using T = compute_t<S>;
  __shared__ T held[256];
  for (int64_t e = blockIdx.x; e < v.k * v.depth; e += gridDim.x) {
    const int64_t p = e % v.depth, k = e / v.depth, g = k / (v.k / v.groups);
    const int b = int(p % v.kw), a = int(p / v.kw % v.kh);
    const int64_t channel = g * v.cg + p / v.kw / v.kh;
    T sum = 0;
    for (int64_t t = threadIdx.x; t < v.n * v.windows; t += blockDim.x) {
      const int64_t i = t / v.windows, j = t % v.windows;
      const int64_t row = j / v.ow * v.sh - v.ph + int64_t(a) * v.dh;
      const int64_t col = j % v.ow * v.sw - v.pw + int64_t(b) * v.dw;
      if (row < 0 || row >= v.h || col < 0 || col >= v.w) continue;
      sum += load_as<T>(x[((i * v.c + channel) * v.h + row) * v.w + col]) *
             load_as<T>(dy[(i * v.k + k) * v.windows + j]);
    }
    held[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (int(threadIdx.x) < half) held[threadIdx.x] += held[threadIdx.x + half];
    }
    if (threadIdx.x == 0) dw[e] = store_as<S>(held[0]);
    __syncthreads();
  }
}

// ---- host side --------------------------------------------------------------------------

constexpr int64_t column_bytes = int64_t(256) << 20; // of unrolled windows, about

int64_t images_at_once(const conv &v, int64_t size) {
  const int64_t each = v.depth * v.windows * size;
  int64_t images = each > 0 ? column_bytes / each : v.n;
  if (images < 1) images = 1;
  return images < v.n ? images : v.n;
}

size_t round256(int64_t n) { return size_t((n + 255) / 256 * 256); }

template <class F> mt_status for_bits(int64_t size, F f) {
  switch (size) {
  case 2: return f(tag<uint16_t>{});
  case 4: return f(tag<uint32_t>{});
  default: return f(tag<uint64_t>{});
  }
}

mt_status unroll(const mt_call *call, const conv &v, int64_t size, const char *x,
                 char *column, int64_t images, bool by_image) {
  const int64_t all = v.depth * images * v.windows;
  return for_bits(size, [&](auto t) {
    using S = typename decltype(t)::type;
    im2col_kernel<S><<<blocks_for(all, 256, call->device), 256, 0, stream_of(call)>>>(
        reinterpret_cast<S *>(column), reinterpret_cast<const S *>(x), v, images,
        by_image);
    return launched();
  });
}

mt_status zero(const mt_call *call, const mt_view *v) {
  CUDA_TRY(cudaMemsetAsync(v->data, 0, size_t(numel(v) * dtype_size(v->dtype)),
                           stream_of(call)));
  return MT_OK;
}

// y (N, K, OH, OW) += bias (K)
mt_status add_bias(const mt_call *call, mt_view *y, const mt_view *b) {
  mt_view channel = *y;
  for (int d = 0; d < 4; d++) channel.stride[d] = d == 1 ? b->stride[0] : 0;
  channel.data = b->data;
  const mt_view *const in[2] = {y, &channel};
  mt_view *const out[1] = {y};
  mt_call add = *call;
  add.op = MT_OP_add, add.nin = 2, add.nout = 1, add.in = in, add.out = out;
  return cuda_elementwise(MT_OP_add)->run(&add);
}

size_t forward_scratch(const mt_call *call) {
  const mt_view *x = call->in[0], *w = call->in[1], *y = call->out[0];
  const conv v = make_conv(x, w, y, call->attr);
  const int64_t size = dtype_size(x->dtype);
  if (numel(y) == 0 || v.groups > 1) return 0;
  if (is_product(v)) return blas_workspace;
  return blas_workspace +
         round256(images_at_once(v, size) * v.depth * v.windows * size);
}

mt_status run_forward(const mt_call *call) {
  const mt_view *x = call->in[0], *w = call->in[1], *b = call->in[2];
  mt_view *y = call->out[0];
  const conv v = make_conv(x, w, y, call->attr);
  const int64_t size = dtype_size(x->dtype);
  if (numel(y) == 0) return MT_OK;
  if (v.groups > 1)
    return with_float(x->dtype, [&](auto t) {
      using S = typename decltype(t)::type;
      conv_direct_kernel<S>
          <<<blocks_for(numel(y), 256, call->device), 256, 0, stream_of(call)>>>(
              reinterpret_cast<S *>(y->data), reinterpret_cast<const S *>(x->data),
              reinterpret_cast<const S *>(w->data),
              b ? reinterpret_cast<const S *>(b->data) : nullptr, v);
      return launched();
    });
  char *column = static_cast<char *>(call->scratch) + blas_workspace;
  const int64_t at_once = is_product(v) ? v.n : images_at_once(v, size);
  for (int64_t i = 0; i < v.n && v.depth > 0; i += at_once) {
    const int64_t images = v.n - i < at_once ? v.n - i : at_once;
    const char *from = x->data + i * v.c * v.h * v.w * size;
    if (!is_product(v)) {
      if (const mt_status s = unroll(call, v, size, from, column, images, true))
        return s;
      from = column;
    }
    product p{};
    p.dtype = x->dtype;
    p.m = v.k, p.n = v.windows, p.k = v.depth, p.count = images;
    p.a = w->data, p.ars = v.depth, p.acs = 1;
    p.b = from, p.brs = v.windows, p.bcs = 1, p.next_b = v.depth * v.windows;
    p.c = y->data + i * v.k * v.windows * size;
    p.crs = v.windows, p.next_c = v.k * v.windows;
    if (const mt_status s = run_product(call, p, call->scratch)) return s;
  }
  if (v.depth == 0)
    if (const mt_status s = zero(call, y)) return s;
  return b ? add_bias(call, y, b) : MT_OK;
}

// in: w, dy; attr: size, stride, padding, dilation, groups.
size_t input_scratch(const mt_call *call) {
  const mt_view *w = call->in[0], *dy = call->in[1], *dx = call->out[0];
  const conv v = make_conv(dx, w, dy, call->attr + 1);
  const int64_t size = dtype_size(dx->dtype);
  if (numel(dx) == 0 || v.groups > 1) return 0;
  if (is_product(v)) return blas_workspace;
  return blas_workspace +
         round256(images_at_once(v, size) * v.depth * v.windows * size);
}

mt_status run_input(const mt_call *call) {
  const mt_view *w = call->in[0], *dy = call->in[1];
  mt_view *dx = call->out[0];
  const conv v = make_conv(dx, w, dy, call->attr + 1);
  const int64_t size = dtype_size(dx->dtype);
  if (numel(dx) == 0) return MT_OK;
  if (v.k == 0 || v.windows == 0 || v.depth == 0) return zero(call, dx);
  if (v.groups > 1)
    return with_float(dx->dtype, [&](auto t) {
      using S = typename decltype(t)::type;
      conv_direct_input_kernel<S>
          <<<blocks_for(numel(dx), 256, call->device), 256, 0, stream_of(call)>>>(
              reinterpret_cast<S *>(dx->data), reinterpret_cast<const S *>(w->data),
              reinterpret_cast<const S *>(dy->data), v);
      return launched();
    });
  char *column = static_cast<char *>(call->scratch) + blas_workspace;
  const int64_t at_once = is_product(v) ? v.n : images_at_once(v, size);
  for (int64_t i = 0; i < v.n; i += at_once) {
    const int64_t images = v.n - i < at_once ? v.n - i : at_once;
    char *to = dx->data + i * v.c * v.h * v.w * size;
    product p{};
    p.dtype = dx->dtype;
    p.m = v.depth, p.n = v.windows, p.k = v.k, p.count = images;
    p.a = w->data, p.ars = 1, p.acs = v.depth;
    p.b = dy->data + i * v.k * v.windows * size;
    p.brs = v.windows, p.bcs = 1, p.next_b = v.k * v.windows;
    p.c = is_product(v) ? to : column, p.crs = v.windows,
    p.next_c = v.depth * v.windows;
    if (v.depth == 1) p.ars = 1, p.acs = 1;
    if (const mt_status s = run_product(call, p, call->scratch)) return s;
    if (is_product(v)) continue;
    const mt_status s = with_float(dx->dtype, [&](auto t) {
      using S = typename decltype(t)::type;
      col2im_kernel<S><<<blocks_for(images * v.c * v.h * v.w, 256, call->device), 256,
                         0, stream_of(call)>>>(
          reinterpret_cast<S *>(to), reinterpret_cast<const S *>(column), v, images);
      return launched();
    });
    if (s != MT_OK) return s;
  }
  return MT_OK;
}

// in: x, dy; attr: kernel, stride, padding, dilation, groups. The images of a chunk lie
// side by side in both matrices: one product over all their windows; chunks add up.
size_t weight_scratch(const mt_call *call) {
  const mt_view *x = call->in[0], *dy = call->in[1], *dw = call->out[0];
  const conv v = make_conv(x, dw, dy, call->attr + 1);
  const int64_t size = dtype_size(x->dtype), images = images_at_once(v, size);
  if (numel(dw) == 0 || v.groups > 1) return 0;
  return blas_workspace + round256(images * v.depth * v.windows * size) +
         round256(images * v.k * v.windows * size);
}

mt_status run_weight(const mt_call *call) {
  const mt_view *x = call->in[0], *dy = call->in[1];
  mt_view *dw = call->out[0];
  const conv v = make_conv(x, dw, dy, call->attr + 1);
  const int64_t size = dtype_size(x->dtype);
  if (numel(dw) == 0) return MT_OK;
  if (v.n == 0 || v.windows == 0 || v.c == 0) return zero(call, dw);
  if (v.groups > 1)
    return with_float(x->dtype, [&](auto t) {
      using S = typename decltype(t)::type;
      const int64_t blocks = numel(dw);
      conv_direct_weight_kernel<S>
          <<<unsigned(blocks < 65535 ? blocks : 65535), 256, 0, stream_of(call)>>>(
              reinterpret_cast<S *>(dw->data), reinterpret_cast<const S *>(x->data),
              reinterpret_cast<const S *>(dy->data), v);
      return launched();
    });
  const int64_t at_once = images_at_once(v, size);
  char *column = static_cast<char *>(call->scratch) + blas_workspace;
  char *turned = column + round256(at_once * v.depth * v.windows * size);
  for (int64_t i = 0; i < v.n; i += at_once) {
    const int64_t images = v.n - i < at_once ? v.n - i : at_once;
    const int64_t all = images * v.windows;
    if (const mt_status s = unroll(call, v, size, x->data + i * v.c * v.h * v.w * size,
                                   column, images, false))
      return s;
    // dy (images, K, windows) -> (K, images, windows)
    mt_view src{}, dst{};
    src.dtype = dst.dtype = dy->dtype;
    src.ndim = dst.ndim = 3;
    src.data = dy->data + i * v.k * v.windows * size, dst.data = turned;
    const int64_t shape[3] = {v.k, images, v.windows};
    const int64_t from[3] = {v.windows, v.k * v.windows, 1},
                  to[3] = {all, v.windows, 1};
    for (int d = 0; d < 3; d++)
      src.shape[d] = dst.shape[d] = shape[d], src.stride[d] = from[d],
      dst.stride[d] = to[d];
    const mt_view *const in[1] = {&src};
    mt_view *const out[1] = {&dst};
    mt_call copy = *call;
    copy.nin = copy.nout = 1, copy.in = in, copy.out = out;
    if (const mt_status s = cuda_copy(&copy)) return s;
    product p{};
    p.dtype = x->dtype;
    p.m = v.k, p.n = v.depth, p.k = all, p.count = 1;
    p.a = turned, p.ars = all, p.acs = 1;
    p.b = column, p.brs = 1, p.bcs = all;
    if (all == 1) p.bcs = 1;
    p.c = dw->data, p.crs = v.depth, p.accumulate = i > 0;
    if (const mt_status s = run_product(call, p, call->scratch)) return s;
  }
  return MT_OK;
}

} // namespace

CUDA_ENTRY(conv2d) = {run_forward, forward_scratch, MT_FLOAT_MASK, 7};
CUDA_ENTRY(conv2d_backward_input) = {run_input, input_scratch, MT_FLOAT_MASK, 3};
CUDA_ENTRY(conv2d_backward_weight) = {run_weight, weight_scratch, MT_FLOAT_MASK, 3};
