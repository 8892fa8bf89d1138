// kernels/cuda/pool.cu -- 2-d pooling of contiguous (..., H, W): a thread an output
// element. Backward of the mean: a thread an input element, which looks for the windows it
// lies in; of the maximum: planes in shared memory, to which windows are added in order.
#include "kernels/cuda/positions.cuh"

namespace {

struct pool {
  int64_t planes, h, w, oh, ow;
  int kh, kw, sh, sw, ph, pw, dh, dw;
  bool small; // indices of all elements fit 31 bits
  bool relu;
  divider by_h, by_w, by_oh, by_ow;
};

// e as (plane, row, column).
struct spot {
  int64_t plane, row, column;
};

__device__ inline spot spot_of(int64_t e, int64_t height, int64_t width, bool small,
                               divider by_height, divider by_width) {
  if (!small) return {e / width / height, e / width % height, e % width};
  const uint32_t rest = divide(uint32_t(e), by_width);
  const uint32_t plane = divide(rest, by_height);
  return {plane, rest - plane * by_height.d, uint32_t(e) - rest * by_width.d};
}

int64_t first_of(const mt_attr *a) { return a->i[0]; }
int64_t second_of(const mt_attr *a) { return a->n == 1 ? a->i[0] : a->i[1]; }

// attr: kernel, stride, padding and, of max pooling, dilation.
pool make_pool(const mt_view *x, const mt_view *y, const mt_attr *attr, bool dilated) {
  const mt_attr *stride = attr[1].n < 0 ? &attr[0] : &attr[1];
  pool p{};
  p.planes = 1;
  for (int d = 0; d < x->ndim - 2; d++) p.planes *= x->shape[d];
  p.h = x->shape[x->ndim - 2], p.w = x->shape[x->ndim - 1];
  p.oh = y->shape[y->ndim - 2], p.ow = y->shape[y->ndim - 1];
  p.kh = int(first_of(&attr[0])), p.kw = int(second_of(&attr[0]));
  p.sh = int(first_of(stride)), p.sw = int(second_of(stride));
  p.ph = int(first_of(&attr[2])), p.pw = int(second_of(&attr[2]));
  p.dh = p.dw = 1;
  if (dilated) p.dh = int(first_of(&attr[3])), p.dw = int(second_of(&attr[3]));
  p.small = numel(x) < INT32_MAX && numel(y) < INT32_MAX;
  if (p.small && numel(x) > 0 && numel(y) > 0) {
    p.by_h = make_divider(p.h), p.by_w = make_divider(p.w);
    p.by_oh = make_divider(p.oh), p.by_ow = make_divider(p.ow);
  }
  return p;
}

template <class S>
__global__ void __launch_bounds__(256)
    max_pool2d_kernel(S *y, int64_t *mask, const S *x, pool p) {
  using T = compute_t<S>;
  const int64_t all = p.planes * p.oh * p.ow, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const auto [n, i, j] = spot_of(e, p.oh, p.ow, p.small, p.by_oh, p.by_ow);
    const S *plane = x + n * p.h * p.w;
    int64_t at = -1;
    T best = T(0);
    for (int u = 0; u < p.kh; u++) {
      const int64_t r = i * p.sh - p.ph + int64_t(u) * p.dh;
      if (r < 0 || r >= p.h) continue;
      for (int v = 0; v < p.kw; v++) {
        const int64_t c = j * p.sw - p.pw + int64_t(v) * p.dw;
        if (c < 0 || c >= p.w) continue;
        const T value = load_as<T>(plane[r * p.w + c]);
        if (at < 0 || value > best || (value != value && best == best))
          best = value, at = r * p.w + c;
      }
    }
    if (p.relu && best <= T(0)) best = T(0), at = -1; // no gradient flows
    y[e] = store_as<S>(best);
    if (mask) mask[e] = at + 1;
  }
}

mt_status run_max(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  pool p = make_pool(x, y, call->attr, true);
  p.relu = call->attr[4].i[0] != 0;
  const int64_t all = p.planes * p.oh * p.ow;
  if (all == 0) return MT_OK;
  int64_t *mask =
      call->out[1] ? reinterpret_cast<int64_t *>(call->out[1]->data) : nullptr;
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    max_pool2d_kernel<S>
        <<<blocks_for(all, 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<S *>(y->data), mask, reinterpret_cast<const S *>(x->data),
            p);
    return launched();
  });
}

// Masks of any kind are allowed: several windows may name one element. A block takes a few
// planes, sums them in shared memory (if one plane fits), and the windows in batches of
// its threads. In a round, of the windows whose targets share a slot the first one adds;
// where windows do not overlap one round serves, and the order is always the same.
constexpr int slots = 1024, planes_bytes = 24 << 10;

template <class S, bool held>
__global__ void __launch_bounds__(256)
    max_pool2d_backward_kernel(S *dx, const S *dy, positions q, int64_t planes,
                               int64_t size, int64_t windows, int at_once) {
  using T = compute_t<S>;
  __shared__ T sum[held ? planes_bytes / sizeof(T) : 1];
  __shared__ int first[slots];
  const int thread = int(threadIdx.x);
  for (int i = thread; i < slots; i += int(blockDim.x)) first[i] = INT_MAX;
  for (int64_t n = int64_t(blockIdx.x) * at_once; n < planes;
       n += int64_t(gridDim.x) * at_once) {
    const int64_t here = n + at_once < planes ? at_once : planes - n;
    S *out = dx + n * size;
    for (int64_t i = thread; i < here * size; i += blockDim.x)
      if constexpr (held)
        sum[i] = T(0);
      else
        out[i] = store_as<S>(T(0));
    for (int64_t from = 0; from < here * windows; from += blockDim.x) {
      const int64_t i = from + thread;
      int64_t at = i < here * windows ? position_at(q, n * windows + i) : -1;
      const T g = at >= 0 ? load_as<T>(dy[n * windows + i]) : T(0);
      if (at >= 0 && here > 1) at += i / windows * size;
      int *slot = &first[at >= 0 ? at % slots : 0];
      while (__syncthreads_or(at >= 0)) {
        if (at >= 0) atomicMin(slot, thread);
        __syncthreads();
        const bool mine = at >= 0 && *slot == thread;
        if (mine) {
          if constexpr (held)
            sum[at] += g;
          else
            out[at] = store_as<S>(load_as<T>(out[at]) + g);
        }
        __syncthreads();
        if (mine) *slot = INT_MAX, at = -1;
      }
    }
    if constexpr (held) {
      for (int64_t i = thread; i < here * size; i += blockDim.x)
        out[i] = store_as<S>(sum[i]);
      __syncthreads();
    }
  }
}

mt_status run_max_backward(const mt_call *call) {
  const mt_view *mask = call->in[0], *dy = call->in[1], *dx = call->out[0];
  const int64_t size = dx->shape[dx->ndim - 2] * dx->shape[dx->ndim - 1];
  const int64_t windows = dy->shape[dy->ndim - 2] * dy->shape[dy->ndim - 1];
  if (numel(dx) == 0) return MT_OK;
  const int64_t planes = numel(dx) / size;
  return with_float(dy->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    // enough windows for the threads, planes that fit, and blocks for the device
    const int64_t fit = planes_bytes / int64_t(sizeof(compute_t<S>)) / size;
    int64_t at_once = std::min((1023 + windows) / std::max<int64_t>(windows, 1), fit);
    const int64_t blocks = multiprocessors(call->device) * int64_t(8);
    at_once = std::max<int64_t>(1, std::min(at_once, (planes + blocks - 1) / blocks));
    const int64_t grid = std::min(blocks, (planes + at_once - 1) / at_once);
    const auto kernel = fit > 0 ? max_pool2d_backward_kernel<S, true>
                                : max_pool2d_backward_kernel<S, false>;
    kernel<<<unsigned(grid), 256, 0, stream_of(call)>>>(
        reinterpret_cast<S *>(dx->data), reinterpret_cast<const S *>(dy->data),
        positions_of(call, mask, size, false), planes, size, windows, int(at_once));
    return launched();
  });
}

template <class S>
__global__ void __launch_bounds__(256) avg_pool2d_kernel(S *y, const S *x, pool p) {
  using T = compute_t<S>;
  const int64_t all = p.planes * p.oh * p.ow, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const auto [n, i, j] = spot_of(e, p.oh, p.ow, p.small, p.by_oh, p.by_ow);
    const S *plane = x + n * p.h * p.w;
    T sum = 0;
    for (int u = 0; u < p.kh; u++) {
      const int64_t r = i * p.sh - p.ph + u;
      if (r < 0 || r >= p.h) continue;
      for (int v = 0; v < p.kw; v++) {
        const int64_t c = j * p.sw - p.pw + v;
        if (c >= 0 && c < p.w) sum += load_as<T>(plane[r * p.w + c]);
      }
    }
    y[e] = store_as<S>(sum / T(p.kh * p.kw));
  }
}

template <class S>
__global__ void __launch_bounds__(256)
    avg_pool2d_backward_kernel(S *dx, const S *dy, pool p) {
  using T = compute_t<S>;
  const int64_t all = p.planes * p.h * p.w, step = int64_t(gridDim.x) * blockDim.x;
  const T area = T(p.kh * p.kw);
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const auto [n, r, c] = spot_of(e, p.h, p.w, p.small, p.by_h, p.by_w);
    const S *plane = dy + n * p.oh * p.ow;
    // windows i with i * sh <= r + ph < i * sh + kh
    const int64_t rp = r + p.ph, cp = c + p.pw;
    const int64_t i0 = rp < p.kh ? 0 : (rp - p.kh) / p.sh + 1;
    const int64_t j0 = cp < p.kw ? 0 : (cp - p.kw) / p.sw + 1;
    T sum = 0;
    for (int64_t i = i0; i < p.oh && i * p.sh <= rp; i++)
      for (int64_t j = j0; j < p.ow && j * p.sw <= cp; j++)
        sum += load_as<T>(plane[i * p.ow + j]) / area;
    dx[e] = store_as<S>(sum);
  }
}

mt_status run_avg(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  const pool p = make_pool(x, y, call->attr, false);
  if (numel(y) == 0) return MT_OK;
  return with_float(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    avg_pool2d_kernel<S>
        <<<blocks_for(numel(y), 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<S *>(y->data), reinterpret_cast<const S *>(x->data), p);
    return launched();
  });
}

mt_status run_avg_backward(const mt_call *call) {
  const mt_view *dy = call->in[0], *dx = call->out[0];
  const pool p = make_pool(dx, dy, call->attr + 1, false);
  if (numel(dx) == 0) return MT_OK;
  return with_float(dy->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    avg_pool2d_backward_kernel<S>
        <<<blocks_for(numel(dx), 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<S *>(dx->data), reinterpret_cast<const S *>(dy->data), p);
    return launched();
  });
}

} // namespace

CUDA_ENTRY(max_pool2d) = {run_max, nullptr, MT_FLOAT_MASK, 1};
CUDA_ENTRY(max_pool2d_backward) = {run_max_backward, nullptr, MT_FLOAT_MASK, 3};
CUDA_ENTRY(avg_pool2d) = {run_avg, nullptr, MT_FLOAT_MASK, 1};
CUDA_ENTRY(avg_pool2d_backward) = {run_avg_backward, nullptr, MT_FLOAT_MASK, 1};
