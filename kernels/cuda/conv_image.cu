// kernels/cuda/conv_image.cu -- y and dx of convolutions over small images: a block has one
// image and the filters of some channels of y in shared memory, and computes those
// channels. Where tiles of a product would be too few for the device, or mostly padding.
#include "kernels/cuda/conv_image.cuh"

namespace {

// A thread has the sums of four filters at two positions, over a part of the channels.
struct image_work {
  image_shape image;
  int filters;      // of a block, a multiple of 4
  int chunks;       // blocks of an image
  int pairs, tasks; // positions / 2; those times quads of filters
  int splits;       // of the channels
  int depth;
  divider by_depth, by_kh, by_pairs, by_ow;
};

template <class S, int KW>
__global__ void __launch_bounds__(image_threads)
    conv_image_kernel(S *y, const S *x, const S *w, const S *bias,
                      const __grid_constant__ conv v,
                      const __grid_constant__ image_work q) {
  extern __shared__ float4 room[];
  const int pitch = pitch_of(q.filters / 4), positions = int(v.oh * v.ow);
  const int kh = int(v.kh);
  float4 *const filters = room; // [depth][quad]
  float *const image = reinterpret_cast<float *>(filters + q.depth * pitch);
  const int n = int(blockIdx.x) / q.chunks, k0 = int(blockIdx.x) % q.chunks * q.filters;
  load_image(image, x + n * v.xs[0], v, q.image, 0);
#pragma unroll 4
  for (int e = int(threadIdx.x); e < q.depth * q.filters; e += image_threads) {
    const int k = int(divide(uint32_t(e), q.by_depth)), d = e - k * q.depth;
    const int line = d / KW, c = int(divide(uint32_t(line), q.by_kh));
    reinterpret_cast<float *>(filters)[d * 4 * pitch + k] =
        k0 + k < v.k
            ? load_as<float>(w[(k0 + k) * v.ws[0] + c * v.ws[1] +
                               (line - c * kh) * v.ws[2] + (d - line * KW) * v.ws[3]])
            : 0.0f;
  }
  __syncthreads();
  const int plane = q.image.height * q.image.width, down = int(v.dh) * q.image.width;
  const int across = int(v.dw);
  for (int t0 = 0; t0 < q.tasks * q.splits; t0 += image_threads) {
    const int t = t0 + int(threadIdx.x);
    const bool busy = t < q.tasks * q.splits;
    const int split = busy ? t / q.tasks : 0, task = busy ? t - split * q.tasks : 0;
    const int quad = int(divide(uint32_t(task), q.by_pairs));
    const int p0 = task - quad * q.pairs, p1 = p0 + q.pairs;
    const auto corner = [&](int p) {
      const int oy = int(divide(uint32_t(p), q.by_ow)), ox = p - oy * int(v.ow);
      return oy * int(v.sh) * q.image.width + ox * int(v.sw);
    };
    const float *from0 = image + corner(p0);
    const float *from1 = image + corner(p1 < positions ? p1 : p0);
    float4 sum0 = {}, sum1 = {};
    const int c1 = busy ? q.image.channels * (split + 1) / q.splits : 0;
    for (int c = q.image.channels * split / q.splits; c < c1; c++)
      for (int i = 0; i < kh; i++) {
        const float *const a0 = from0 + c * plane + i * down;
        const float *const a1 = from1 + c * plane + i * down;
        const float4 *const b = filters + (c * kh + i) * KW * pitch + quad;
#pragma unroll
        for (int j = 0; j < KW; j++) {
          const float x0 = a0[j * across], x1 = a1[j * across];
          const float4 f = b[j * pitch];
          sum0.x += x0 * f.x, sum0.y += x0 * f.y, sum0.z += x0 * f.z,
              sum0.w += x0 * f.w;
          sum1.x += x1 * f.x, sum1.y += x1 * f.y, sum1.z += x1 * f.z,
              sum1.w += x1 * f.w;
        }
      }
    if (q.splits > 1) { // then this is the only round
      __syncthreads();
      float4 *const parts = room;
      if (busy && split > 0) {
        parts[2 * (t - q.tasks)] = sum0;
        parts[2 * (t - q.tasks) + 1] = sum1;
      }
      __syncthreads();
      for (int s = 0; busy && split == 0 && s < q.splits - 1; s++) {
        const float4 a = parts[2 * (s * q.tasks + t)],
                     b = parts[2 * (s * q.tasks + t) + 1];
        sum0.x += a.x, sum0.y += a.y, sum0.z += a.z, sum0.w += a.w;
        sum1.x += b.x, sum1.y += b.y, sum1.z += b.z, sum1.w += b.w;
      }
    }
    if (!busy || split > 0) continue;
    const auto put = [&](int p, const float4 &sum) {
      if (p >= positions) return;
      const int oy = int(divide(uint32_t(p), q.by_ow)), ox = p - oy * int(v.ow);
      S *const to = y + n * v.ys[0] + oy * v.ys[2] + ox * v.ys[3];
      const float value[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int k = k0 + quad * 4 + i;
        if (k >= v.k) return;
        const float total = value[i] + (bias ? load_as<float>(bias[k]) : 0.0f);
        to[k * v.ys[1]] = store_as<S>(v.relu() ? rectified(total) : total);
      }
    };
    put(p0, sum0);
    put(p1, sum1);
  }
}

// ---- host side --------------------------------------------------------------------------

// dx with stride 1 is the convolution of dy with the filters turned by 180 degrees: as
// such, and where its first weight is.
conv turned(const conv &v, int64_t *first /* [out] */) {
  conv u = v;
  u.what = pass::forward;
  u.c = u.cg = v.k, u.h = v.oh, u.w = v.ow, u.k = v.c, u.oh = v.h, u.ow = v.w;
  u.ph = (v.kh - 1) * v.dh - v.ph, u.pw = (v.kw - 1) * v.dw - v.pw;
  std::swap(u.ws[0], u.ws[1]);
  std::copy(v.ys, v.ys + 4, u.xs), std::copy(v.xs, v.xs + 4, u.ys);
  u.ws[2] = -v.ws[2], u.ws[3] = -v.ws[3];
  *first = (v.kh - 1) * v.ws[2] + (v.kw - 1) * v.ws[3];
  return u;
}

int64_t bytes_of(const image_work &q) {
  const int64_t all = 4 * (int64_t(q.depth) * 4 * pitch_of(q.filters / 4) +
                           int64_t(q.image.channels) * q.image.height * q.image.width);
  return std::max<int64_t>(all, int64_t(q.splits - 1) * q.tasks * 32);
}

image_work work_for(const mt_call *call, const conv &v) {
  image_work q{};
  q.image = image_of(v, v.c);
  q.depth = int(v.depth());
  q.filters = 32; // fewer make more blocks
  const int64_t busy = multiprocessors(call->device) * int64_t(3) / 4;
  while (q.filters > 8 && v.n * ((v.k + q.filters - 1) / q.filters) < busy)
    q.filters /= 2;
  q.chunks = int((v.k + q.filters - 1) / q.filters);
  q.pairs = int((v.windows() + 1) / 2);
  q.tasks = q.pairs * (q.filters / 4);
  q.splits = std::clamp(image_threads / q.tasks, 1, q.image.channels);
  q.by_depth = make_divider(q.depth), q.by_kh = make_divider(v.kh);
  q.by_pairs = make_divider(q.pairs), q.by_ow = make_divider(v.ow);
  return q;
}

} // namespace

bool image_serves(const mt_call *call, const conv &v) {
  constexpr double most = 1e9; // multiplications: beyond that tiles are better
  if (v.dtype == MT_F64 || v.groups != 1 || (v.kw != 3 && v.kw != 5) || v.kh > 16 ||
      v.work() > most || v.n * v.k >= INT32_MAX)
    return false;
  if (v.what == pass::weight) return image_weight_serves(call, v);
  conv u = v;
  int64_t first;
  if (v.what == pass::input) {
    if (v.sh != 1 || v.sw != 1) return false;
    u = turned(v, &first);
    if (u.ph < 0 || u.pw < 0) return false;
  }
  const int64_t most_floats = image_bytes / 4; // of the image, and of 8 filters
  const double image = double(u.c) * double(u.h + 2 * u.ph) * double(u.w + 2 * u.pw);
  if (image > most_floats || double(u.depth()) * 8 > most_floats ||
      double(u.windows()) > most_floats)
    return false;
  return bytes_of(work_for(call, u)) <= image_bytes;
}

size_t image_scratch(const mt_call *call, const conv &v) {
  return v.what == pass::weight ? image_weight_scratch(call, v) : 0;
}

mt_status run_image(const mt_call *call, const conv &v, const conv_data &d,
                    void *scratch) {
  if (v.what == pass::weight) return run_image_weight(call, v, d, scratch);
  int64_t first = 0;
  const bool input = v.what == pass::input;
  const conv u = input ? turned(v, &first) : v;
  const image_work q = work_for(call, u);
  return with_window(u, [&](auto s, auto width) {
    using S = typename decltype(s)::type;
    S *const y = static_cast<S *>(const_cast<void *>(input ? d.x : d.y));
    return launch_image(
        call, conv_image_kernel<S, decltype(width)::value>, u.n * q.chunks, bytes_of(q),
        y, static_cast<const S *>(input ? d.y : d.x),
        static_cast<const S *>(d.w) + first, static_cast<const S *>(d.bias), u, q);
  });
}
