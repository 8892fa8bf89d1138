// kernels/cuda/conv_image_weight.cu -- dw of convolutions over small images: a block adds up
// those of a few images for some filters and channels, in shared memory; the blocks' parts
// are added in order.
#include "kernels/cuda/conv_image.cuh"

namespace {

// A thread has the sums of four filters for a row of taps of one channel, over some rows of
// windows.
struct weight_work {
  image_shape image; // channels: of a block
  int filters;       // of a block, a multiple of 4
  int filter_chunks, channel_chunks;
  int images; // of a block
  int tasks, streams;
  divider by_positions, by_ow, by_quads, by_kh;
};

template <class S, int KW>
__global__ void __launch_bounds__(image_threads)
    conv_image_weight_kernel(float *partial, const S *x, const S *dy,
                             const __grid_constant__ conv v,
                             const __grid_constant__ weight_work q) {
  extern __shared__ float4 room[];
  const int quads = q.filters / 4, pitch = pitch_of(quads), kh = int(v.kh);
  const int positions = int(v.oh * v.ow);
  float4 *const gradients = room; // [position][quad]
  float *const image = reinterpret_cast<float *>(gradients + positions * pitch);
  int b = int(blockIdx.x);
  const int k0 = b % q.filter_chunks * q.filters;
  b /= q.filter_chunks;
  const int c0 = b % q.channel_chunks * q.image.channels;
  const int part = b / q.channel_chunks;
  // task: the quad, then the row of taps, then the channel
  const int t = int(threadIdx.x), stream = t / q.tasks, task = t - stream * q.tasks;
  const int line = int(divide(uint32_t(task), q.by_quads)), quad = task - line * quads;
  const int c = int(divide(uint32_t(line), q.by_kh)), i = line - c * kh;
  const int width = q.image.width, ow = int(v.ow);
  const float *const from = image + (c * q.image.height + i * int(v.dh)) * width;
  float4 sum[KW] = {};
  const int last = min(int(v.n), (part + 1) * q.images);
  for (int n = part * q.images; n < last; n++) {
    load_image(image, x + n * v.xs[0], v, q.image, c0);
#pragma unroll 8
    for (int e = t; e < positions * q.filters; e += image_threads) {
      const int k = int(divide(uint32_t(e), q.by_positions)), p = e - k * positions;
      const int oy = int(divide(uint32_t(p), q.by_ow));
      reinterpret_cast<float *>(gradients)[p * 4 * pitch + k] =
          k0 + k < v.k ? load_as<float>(dy[n * v.ys[0] + (k0 + k) * v.ys[1] +
                                           oy * v.ys[2] + (p - oy * ow) * v.ys[3]])
                       : 0.0f;
    }
    __syncthreads();
    if (stream < q.streams)
      for (int oy = stream; oy < int(v.oh); oy += q.streams) {
        const float *const row = from + oy * int(v.sh) * width;
        const float4 *const g = gradients + oy * ow * pitch + quad;
        float near[KW];
#pragma unroll
        for (int j = 1; j < KW; j++) near[j] = row[j - 1];
#pragma unroll KW
        for (int ox = 0; ox < ow; ox++) {
#pragma unroll
          for (int j = 1; j < KW; j++) near[j - 1] = near[j];
          near[KW - 1] = row[ox + KW - 1];
          const float4 d = g[ox * pitch];
#pragma unroll
          for (int j = 0; j < KW; j++)
            sum[j].x += near[j] * d.x, sum[j].y += near[j] * d.y,
                sum[j].z += near[j] * d.z, sum[j].w += near[j] * d.w;
        }
      }
    __syncthreads();
  }
  // the streams' sums side by side, then each element's in order
  float4 *const held = room; // [stream][task][KW]
  if (stream < q.streams)
#pragma unroll
    for (int j = 0; j < KW; j++) held[(stream * q.tasks + task) * KW + j] = sum[j];
  __syncthreads();
  const int elements = q.tasks * KW * 4, depth = int(v.depth());
  for (int e = t; e < elements; e += image_threads) {
    float total = 0;
    for (int s = 0; s < q.streams; s++)
      total += reinterpret_cast<const float *>(held)[s * elements + e];
    const int in_quad = e % 4, j = e / 4 % KW, of = e / 4 / KW;
    const int at = int(divide(uint32_t(of), q.by_quads));
    const int k = k0 + (of - at * quads) * 4 + in_quad, channel = c0 + at / kh;
    if (k < v.k && channel < v.c)
      partial[(int64_t(part) * v.k + k) * depth + (channel * kh + at % kh) * KW + j] =
          total;
  }
}

// ---- host side --------------------------------------------------------------------------

int64_t bytes_of(const weight_work &q, const conv &v) {
  const int64_t data = 4 * (v.windows() * 4 * pitch_of(q.filters / 4) +
                            int64_t(q.image.channels) * q.image.height * q.image.width);
  return std::max<int64_t>(data, int64_t(q.streams) * q.tasks * v.kw * 16);
}

// Whole channels and filters that make at most as many tasks as there are threads.
weight_work work_for(const mt_call *call, const conv &v) {
  weight_work q{};
  q.filters = v.k > 16 ? 32 : v.k > 8 ? 16 : 8;
  const int lines = int(v.kh) * (q.filters / 4);
  const int64_t channels = std::clamp<int64_t>(image_threads / lines, 1, v.c);
  q.channel_chunks = int((v.c + channels - 1) / channels);
  q.image = image_of(v, (v.c + q.channel_chunks - 1) / q.channel_chunks);
  q.filter_chunks = int((v.k + q.filters - 1) / q.filters);
  q.tasks = lines * q.image.channels;
  q.streams = std::clamp(image_threads / q.tasks, 1, int(v.oh));
  const int64_t busy = 2 * int64_t(multiprocessors(call->device));
  const int64_t parts =
      std::clamp<int64_t>(busy / (q.filter_chunks * q.channel_chunks), 1, v.n);
  q.images = int((v.n + parts - 1) / parts);
  q.by_positions = make_divider(v.windows()), q.by_ow = make_divider(v.ow);
  q.by_quads = make_divider(q.filters / 4), q.by_kh = make_divider(v.kh);
  return q;
}

int parts_of(const weight_work &q, const conv &v) {
  return int((v.n + q.images - 1) / q.images);
}

} // namespace

bool image_weight_serves(const mt_call *call, const conv &v) {
  const double floats = double(image_bytes / 4);
  if (double(v.windows()) * 8 > floats || double(v.h + 2 * v.ph) > floats ||
      double(v.w + 2 * v.pw) > floats)
    return false;
  const weight_work q = work_for(call, v);
  return q.tasks <= image_threads && bytes_of(q, v) <= shared_bytes(call->device);
}

size_t image_weight_scratch(const mt_call *call, const conv &v) {
  const weight_work q = work_for(call, v);
  return size_t(parts_of(q, v)) * size_t(v.k * v.depth()) * sizeof(float);
}

mt_status run_image_weight(const mt_call *call, const conv &v, const conv_data &d,
                           void *scratch) {
  const weight_work q = work_for(call, v);
  gemm g = forward_axes(v);
  g.groups = 1, g.splits = parts_of(q, v);
  float *const partial = static_cast<float *>(scratch);
  return with_window(v, [&](auto s, auto width) {
    using S = typename decltype(s)::type;
    const mt_status status = launch_image(
        call, conv_image_weight_kernel<S, decltype(width)::value>,
        int64_t(g.splits) * q.filter_chunks * q.channel_chunks, bytes_of(q, v), partial,
        static_cast<const S *>(d.x), static_cast<const S *>(d.y), v, q);
    if (status != MT_OK) return status;
    add_splits<S, float>(call, static_cast<S *>(const_cast<void *>(d.w)), partial, g);
    return launched();
  });
}
