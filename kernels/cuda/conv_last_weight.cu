// kernels/cuda/conv_last_weight.cu -- dw of channels-last convolutions: rows are output
// channels, columns are channels at one tap, and the sum runs over pixels, which are the
// rows of the tiles in shared memory. It is cut into splits that are added in order.
#include "kernels/cuda/conv_last.cuh"

namespace {

constexpr int depth = threads / chunks; // pixels of a tile

// Byte offset of a chunk in panels of `depth` rows of 128 bytes.
template <class S> __device__ inline uint32_t panel_at(int row, int chunk) {
  const int spread = sizeof(S) == 4 ? (row & 3) << 1 : row & 7;
  return uint32_t((chunk / chunks * depth + row) * row_bytes +
                  ((chunk % chunks ^ spread) << 4));
}

struct weight_tiles {
  int m_tiles, c_tiles, channels, taps;
};

template <class S, class M, int BM, int BN, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(threads, blocks_of<M>(BN))
    conv_last_weight_kernel(const __grid_constant__ gemm g, weight_tiles q, const S *dy,
                            const S *x, S *out, float *partial) {
#if HAS_ASYNC
  constexpr int V = 16 / int(sizeof(S)), PM = BM / V / chunks, PN = BN / V / chunks;
  constexpr int stage_bytes = (PM + PN) * depth * row_bytes;
  constexpr int MF = WM / 16, NF = WN / 8, KF = depth * int(sizeof(S)) / 32;
  constexpr int TM = BM / 16, TN = BN / 16;
  constexpr bool tensor = !std::is_same<M, no_tensor_cores>::value;
  static_assert(BM / WM * (BN / WN) == warps, "a part of the tile for each warp");
  extern __shared__ uint4 room[];
  const uint32_t base = shared_address(room);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
  const int tx = int(threadIdx.x) % 16, ty = int(threadIdx.x) / 16;
  const int row = int(threadIdx.x) / chunks, column = int(threadIdx.x) % chunks;
  // float32: row lane % 4 and element lane / 4 of a panel, as panel_at spreads them
  const uint32_t spot = uint32_t(lane % 4 * row_bytes + (lane % 4 << 5) + lane / 4 * 4);
  int t = int(blockIdx.x);
  const int m0 = t % q.m_tiles * BM;
  t /= q.m_tiles;
  const int c0 = t % q.c_tiles * BN;
  t /= q.c_tiles;
  const int tap = t % q.taps;
  t /= q.taps;
  const int group = t % g.groups, split = t / g.groups;
  const int tap_x = tap % int(g.along_n.width.d), tap_y = tap / int(g.along_n.width.d);
  const int ky = tap_y * g.along_n.my, kx = tap_x * g.along_n.mx;
  const int k0 = split * g.split_k, k1 = min(g.k, k0 + g.split_k);
  const int steps = (k1 - k0 + depth - 1) / depth;
  dy += group * g.a_group + m0 + column * V;
  x += group * g.b_group + c0 + column * V;
  const auto fetch = [&](int s, int k) {
    const uint32_t a = base + s * stage_bytes, b = a + PM * depth * row_bytes;
    const place p = place_of(g.along_k, k0 + k * depth + row, k1);
    const bool inside = uint32_t(p.y + ky) < uint32_t(g.rows) &&
                        uint32_t(p.x + kx) < uint32_t(g.columns);
    const uint32_t in_dy = uint32_t(p.other);
    const uint32_t in_x =
        uint32_t(p.offset + (p.y + ky) * g.row + (p.x + kx) * g.column);
#pragma unroll
    for (int i = 0; i < PM; i++) { // where x has nothing, dy does not matter
      const bool there = inside && m0 + (column + i * chunks) * V < g.m;
      copy_chunk(a + panel_at<S>(row, column + i * chunks), dy + in_dy + i * chunks * V,
                 there);
    }
#pragma unroll
    for (int i = 0; i < PN; i++) {
      const bool there = inside && c0 + (column + i * chunks) * V < q.channels;
      copy_chunk(b + panel_at<S>(row, column + i * chunks), x + in_x + i * chunks * V,
                 there);
    }
  };
  float sum[tensor ? MF : TM][tensor ? NF : TN][tensor ? 4 : 1] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) fetch(s, s);
    __pipeline_commit();
  }
  int stage = 0, ahead = STAGES - 1;
  for (int k = 0; k < steps; k++) {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    const uint32_t a = base + stage * stage_bytes, b = a + PM * depth * row_bytes;
    if (k + STAGES - 1 < steps) fetch(ahead, k + STAGES - 1);
    __pipeline_commit();
    if constexpr (tensor) {
#pragma unroll
      for (int p = 0; p < KF; p++) {
        uint32_t left[MF][4], right[NF / 2][4];
        if constexpr (sizeof(S) == 2) {
#pragma unroll
          for (int i = 0; i < MF; i++)
            load_transposed(left[i], a + panel_at<S>(p * 16 + lane / 16 * 8 + lane % 8,
                                                     (wm + i * 16) / V + lane / 8 % 2));
#pragma unroll
          for (int j = 0; j < NF / 2; j++)
            load_transposed(right[j], b + panel_at<S>(p * 16 + lane % 16,
                                                      (wn + j * 16) / V + lane / 16));
        } else {
          const char *const from = reinterpret_cast<const char *>(room) + (a - base);
          const auto word = [&](const char *panel, int k, uint32_t in_row, int eights) {
            return *reinterpret_cast<const uint32_t *>(
                panel + (eights / 4 * depth + p * 8 + k) * row_bytes +
                (in_row ^ (eights % 4 << 5)));
          };
#pragma unroll
          for (int i = 0; i < MF; i++) {
#pragma unroll
            for (int r = 0; r < 4; r++)
              left[i][r] = word(from + wm / 32 * depth * row_bytes, r / 2 * 4, spot,
                                i * 2 + r % 2);
            rounded<S>(left[i]);
          }
#pragma unroll
          for (int j = 0; j < NF / 2; j++) {
#pragma unroll
            for (int r = 0; r < 4; r++)
              right[j][r] = word(from + (PM + wn / 32) * depth * row_bytes, r % 2 * 4,
                                 spot ^ (wn / 16 % 2 << 6), j * 2 + r / 2);
            rounded<S>(right[j]);
          }
        }
#pragma unroll
        for (int i = 0; i < MF; i++)
#pragma unroll
          for (int j = 0; j < NF; j++)
            multiply<S>(sum[i][j], left[i], right[j / 2] + j % 2 * 2);
      }
    } else {
#pragma unroll 4
      for (int p = 0; p < depth; p++) {
        float4 left[TM / 4], right[TN / 4];
#pragma unroll
        for (int i = 0; i < TM / 4; i++)
          left[i] = load_four(a + panel_at<S>(p, ty + i * 16));
#pragma unroll
        for (int j = 0; j < TN / 4; j++)
          right[j] = load_four(b + panel_at<S>(p, tx + j * 16));
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++)
            sum[i][j][0] =
                fmaf((&left[i / 4].x)[i % 4], (&right[j / 4].x)[j % 4], sum[i][j][0]);
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
  }
  // dw lies as (K, KH, KW, C), and so do the splits' parts
  const auto put = [&](int m, int c, float value) {
    if (m >= g.m || c >= q.channels) return;
    const int64_t at = (int64_t(group * g.m + m) * q.taps + tap) * q.channels + c;
    if (partial)
      partial[int64_t(split) * g.groups * g.m * g.n + at] = value;
    else
      out[at] = store_as<S>(value);
  };
  if constexpr (tensor) {
#pragma unroll
    for (int i = 0; i < MF; i++)
#pragma unroll
      for (int j = 0; j < NF; j++)
#pragma unroll
        for (int r = 0; r < 4; r++)
          put(m0 + wm + i * 16 + r / 2 * 8 + lane / 4,
              c0 + wn + j * 8 + lane % 4 * 2 + r % 2, sum[i][j][r]);
  } else {
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++)
        put(m0 + (ty + i / 4 * 16) * 4 + i % 4, c0 + (tx + j / 4 * 16) * 4 + j % 4,
            sum[i][j][0]);
  }
#endif
}

// out[e] = the sum of the splits' parts, in their order.
template <class S>
__global__ void __launch_bounds__(256)
    conv_last_splits_kernel(S *out, const float *partial, int64_t n, int splits) {
  const int64_t e = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (e >= n) return;
  float sum = 0;
#pragma unroll 8
  for (int s = 0; s < splits; s++) sum += partial[s * n + e];
  out[e] = store_as<S>(sum);
}

// ---- host side --------------------------------------------------------------------------

struct weight_shape {
  gemm g;
  weight_tiles q;
  int size;    // of a tile: size x size
  int64_t all; // elements of dw
};

weight_shape weight_shape_of(const mt_call *call, const conv &v) {
  weight_shape s;
  s.g = forward_axes(v);
  gemm &g = s.g;
  g.groups = int(v.groups);
  s.size = g.m > 64 && v.cg > 64 ? 128 : 64;
  s.q = {(g.m + s.size - 1) / s.size, int((v.cg + s.size - 1) / s.size), int(v.cg),
         int(v.kh * v.kw)};
  s.all = int64_t(g.groups) * g.m * g.n;
  const int64_t tiles = int64_t(s.q.m_tiles) * s.q.c_tiles * s.q.taps * g.groups;
  const int64_t busy = multiprocessors(call->device) * int64_t(4);
  const int64_t most = std::max<int64_t>(1, g.k / (8 * depth)); // long enough sums
  g.splits = int(std::clamp<int64_t>(busy / tiles, 1, std::min<int64_t>(most, 256)));
  g.split_k = (g.k + g.splits - 1) / g.splits;
  g.split_k = (g.split_k + depth - 1) / depth * depth;
  g.splits = (g.k + g.split_k - 1) / g.split_k;
  g.tiles = tiles * g.splits;
  return s;
}

template <class S, class M>
mt_status run_weight(const mt_call *call, const conv &v, const conv_data &d,
                     void *scratch) {
  const weight_shape s = weight_shape_of(call, v);
  S *out = static_cast<S *>(const_cast<void *>(d.w));
  float *partial = s.g.splits > 1 ? static_cast<float *>(scratch) : nullptr;
  const auto launch = [&](auto kernel, int stages) {
    const int bytes = stages * 2 * s.size * depth * int(sizeof(S));
    return launch_last(call, kernel, unsigned(s.g.tiles), bytes, s.g, s.q,
                       static_cast<const S *>(d.y), static_cast<const S *>(d.x), out,
                       partial);
  };
  const mt_status status =
      s.size == 128 ? launch(conv_last_weight_kernel<S, M, 128, 128, 64, 32, 3>, 3)
                    : launch(conv_last_weight_kernel<S, M, 64, 64, 32, 16, 4>, 4);
  if (status != MT_OK || !partial) return status;
  conv_last_splits_kernel<S>
      <<<unsigned((s.all + 255) / 256), 256, 0, stream_of(call)>>>(out, partial, s.all,
                                                                   s.g.splits);
  return launched();
}

} // namespace

size_t last_weight_scratch(const mt_call *call, const conv &v) {
  const weight_shape s = weight_shape_of(call, v);
  return s.g.splits > 1 ? size_t(s.all) * size_t(s.g.splits) * sizeof(float) : 0;
}

mt_status run_last_weight(const mt_call *call, const conv &v, const conv_data &d,
                          void *scratch) {
  return with_products(call, v, [&](auto s, auto m) {
    return run_weight<typename decltype(s)::type, typename decltype(m)::type>(
        call, v, d, scratch);
  });
}
