// kernels/cuda/conv_image.cu -- y and dx of convolutions over small images: a block has one
// image and the filters of some channels of y in shared memory, and computes those
// channels. Where tiles of a product would be too few for the device, or mostly padding.
#include "kernels/cuda/conv_image.cuh"

namespace {

// A thread has the sums of four filters at four neighbouring positions, a spot, over a part
// of the channels.
struct image_work {
  image_shape image;
  int filters;      // of a block, a multiple of 4
  int chunks;       // blocks of an image
  int across;       // spots of a row
  int spots, tasks; // of an image; those times quads of filters
  int splits;       // of the channels
  int depth;
  divider by_depth, by_kh, by_spots, by_across;
};

template <class S, int KW>
__global__ void __launch_bounds__(image_threads)
    conv_image_kernel(S *y, const S *x, const S *w, const S *bias,
                      const __grid_constant__ conv v,
                      const __grid_constant__ image_work q) {
  extern __shared__ float4 room[];
  const int pitch = pitch_of(q.filters / 4), kh = int(v.kh);
  float4 *const filters = room; // [depth][quad]
  float *const image = reinterpret_cast<float *>(filters + q.depth * pitch);
  const int n = int(blockIdx.x) / q.chunks, k0 = int(blockIdx.x) % q.chunks * q.filters;
  load_image(image, x + n * v.xs[0], v, q.image, 0);
#pragma unroll 8
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
  for (int t0 = 0; t0 < q.tasks * q.splits; t0 += image_threads) {
    const int t = t0 + int(threadIdx.x);
    const bool busy = t < q.tasks * q.splits;
    const int split = busy ? t / q.tasks : 0, task = busy ? t - split * q.tasks : 0;
    const int quad = int(divide(uint32_t(task), q.by_spots));
    const int spot = task - quad * q.spots;
    const int oy = int(divide(uint32_t(spot), q.by_across));
    const int ox = 4 * (spot - oy * q.across);
    const float *const from = image + oy * int(v.sh) * q.image.width + ox;
    float4 sum[4] = {};
    const int c1 = busy ? q.image.channels * (split + 1) / q.splits : 0;
    for (int c = q.image.channels * split / q.splits; c < c1; c++)
      for (int i = 0; i < kh; i++) {
        const float4 *const a =
            reinterpret_cast<const float4 *>(from + c * plane + i * down);
        const float4 *const b = filters + (c * kh + i) * KW * pitch + quad;
        const float4 left = a[0], right = a[1];
        const float x[8] = {left.x,  left.y,  left.z,  left.w,
                            right.x, right.y, right.z, right.w};
#pragma unroll
        for (int j = 0; j < KW; j++) {
          const float4 f = b[j * pitch];
#pragma unroll
          for (int p = 0; p < 4; p++)
            sum[p].x += x[p + j] * f.x, sum[p].y += x[p + j] * f.y,
                sum[p].z += x[p + j] * f.z, sum[p].w += x[p + j] * f.w;
        }
      }
    if (q.splits > 1) { // then this is the only round
      __syncthreads();
      float4 *const parts = room;
      if (busy && split > 0)
#pragma unroll
        for (int p = 0; p < 4; p++) parts[4 * (t - q.tasks) + p] = sum[p];
      __syncthreads();
      for (int s = 0; busy && split == 0 && s < q.splits - 1; s++)
#pragma unroll
        for (int p = 0; p < 4; p++) {
          const float4 more = parts[4 * (s * q.tasks + t) + p];
          sum[p].x += more.x, sum[p].y += more.y;
          sum[p].z += more.z, sum[p].w += more.w;
        }
    }
    if (!busy || split > 0) continue;
    S *const to = y + n * v.ys[0] + oy * v.ys[2] + ox * v.ys[3];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int k = k0 + quad * 4 + i;
      if (k >= v.k) break;
      const float add = bias ? load_as<float>(bias[k]) : 0.0f;
#pragma unroll
      for (int p = 0; p < 4; p++) {
        const float total = (&sum[p].x)[i] + add;
        if (ox + p < v.ow)
          to[k * v.ys[1] + p * v.ys[3]] =
              store_as<S>(v.relu() ? rectified(total) : total);
      }
    }
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
  const int64_t all =
      4 * (int64_t(q.depth) * 4 * pitch_of(q.filters / 4) +
           int64_t(q.image.channels) * q.image.height * q.image.width + 8);
  return std::max<int64_t>(all, int64_t(q.splits - 1) * q.tasks * 64);
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
  q.across = int((v.ow + 3) / 4);
  q.spots = q.across * int(v.oh);
  q.tasks = q.spots * (q.filters / 4);
  q.splits = std::clamp(image_threads / q.tasks, 1, q.image.channels);
  q.by_depth = make_divider(q.depth), q.by_kh = make_divider(v.kh);
  q.by_spots = make_divider(q.spots), q.by_across = make_divider(q.across);
  return q;
}

} // namespace

bool image_serves(const mt_call *call, const conv &v) {
  constexpr double most = 1e9; // multiplications: beyond that tiles are better
  if (v.dtype == MT_F64 || v.groups != 1 || (v.kw != 3 && v.kw != 5) || v.kh > 16 ||
      v.sw != 1 || v.dw != 1 || v.work() > most || v.n * v.k >= INT32_MAX)
    return false;
  if (v.what == pass::weight) return image_weight_serves(call, v);
  conv u = v;
  int64_t first;
  if (v.what == pass::input) {
    if (v.sh != 1) return false;
    u = turned(v, &first);
    if (u.ph < 0 || u.pw < 0) return false;
  }
  const int64_t most_floats = image_bytes / 4; // of the image, and of 8 filters
  const double image = double(u.c) * double(u.h + 2 * u.ph) * double(u.w + 2 * u.pw);
  if (image > most_floats || double(u.depth()) * 8 > most_floats ||
      double(u.windows()) > most_floats)
    return false;
  return bytes_of(work_for(call, u)) <= shared_bytes(call->device);
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
