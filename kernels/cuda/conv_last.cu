// kernels/cuda/conv_last.cu -- y and dx of channels-last convolutions as an implicit GEMM:
// channels lie side by side, so tiles come by asynchronous copies of 16 bytes, several tiles
// ahead of the arithmetic, which is by tensor cores (mma.sync) or by fused multiply-adds.
// Rows are pixels, columns are channels, the sum runs over taps and channels.
#include "kernels/cuda/conv_last.cuh"

namespace {

#if HAS_ASYNC
// Byte offset of a chunk in a tile of rows of 128 bytes; eight rows spread over all banks.
__device__ inline uint32_t chunk_at(int row, int chunk) {
  return uint32_t(row * row_bytes + ((chunk ^ (row & 7)) << 4));
}

// Where a thread's chunks of the next tile come from: a column of chunks in every 32nd row.
// Little is left to do for each chunk, since all that must fit between two products.
template <class S, int BM, int BN> struct last_loader {
  static constexpr int V = 16 / int(sizeof(S)), step = threads / chunks;
  const S *image, *filters;                         // of the group
  int pixel[BM / step], y[BM / step], x[BM / step]; // offset and place in the image
  int filter[BN / step];                            // offset; -1: none
  int channel, channels, tap_x, tap_y;              // of the next chunk
  int dy, dx, in_image, in_filter;                  // what that adds
  uint32_t at;                                      // its place in a tile

  __device__ last_loader(const gemm &g, const work &w, const S *pa, const S *pb)
      : image(pb + w.group * g.b_group), filters(pa + w.group * g.a_group), channel(0),
        tap_x(0), tap_y(0) {
    const int row = int(threadIdx.x) / chunks;
    channels = g.k / int(g.along_k.width.d * g.along_k.height.d);
    at = chunk_at(row, int(threadIdx.x) % chunks);
#pragma unroll
    for (int i = 0; i < BM / step; i++) {
      const place p = place_of(g.along_n, w.n0 + row + i * step, g.n);
      y[i] = p.y, x[i] = p.x;
      pixel[i] = p.y == nowhere ? 0 : p.offset + p.y * g.row + p.x * g.column;
    }
#pragma unroll
    for (int i = 0; i < BN / step; i++) {
      const int m = w.m0 + row + i * step;
      filter[i] = m < g.m ? m * g.a_m : -1;
    }
    advance(g, int(threadIdx.x) % chunks);
  }
  __device__ void advance(const gemm &g, int by) { // chunks
    const int width = int(g.along_k.width.d), height = int(g.along_k.height.d);
    channel += by * V;
    while (channel >= channels && tap_y < height) {
      channel -= channels;
      if (++tap_x == width) tap_x = 0, tap_y++;
    }
    dy = tap_y * g.along_k.my, dx = tap_x * g.along_k.mx;
    in_image = channel + dy * g.row + dx * g.column;
    in_filter = channel + tap_y * g.along_k.ty + tap_x * g.along_k.tx;
    if (tap_y >= height) dy = nowhere; // the sum ends: zeros
  }
  __device__ void fetch(const gemm &g, uint32_t a, uint32_t b) {
#pragma unroll
    for (int i = 0; i < BM / step; i++) // outside nothing is read, wherever that is
      copy_chunk(a + at + i * step * row_bytes, image + uint32_t(pixel[i] + in_image),
                 uint32_t(y[i] + dy) < uint32_t(g.rows) &&
                     uint32_t(x[i] + dx) < uint32_t(g.columns));
#pragma unroll
    for (int i = 0; i < BN / step; i++)
      copy_chunk(b + at + i * step * row_bytes,
                 filters + uint32_t(filter[i] + in_filter),
                 filter[i] >= 0 && dy != nowhere);
    advance(g, chunks);
  }
};

// Two neighbouring channels of a pixel; or the first, where there are no two.
template <class S>
__device__ inline void put_pair(S *out, int m, const gemm &g, const S *bias, bool relu,
                                float x, float y) {
  if (m >= g.m) return;
  const bool both = m + 1 < g.m;
  if (bias) x += load_as<float>(bias[m]), y += both ? load_as<float>(bias[m + 1]) : 0;
  if (relu) x = rectified(x), y = rectified(y);
  pack<S, 2> v = {{store_as<S>(x), store_as<S>(y)}};
  if (both && reinterpret_cast<uintptr_t>(out + m) % sizeof v == 0)
    *reinterpret_cast<pack<S, 2> *>(out + m) = v;
  else {
    out[m] = v.at[0];
    if (both) out[m + 1] = v.at[1];
  }
}
#endif

// M: how products are formed, S itself or no_tensor_cores. WM, WN: of a warp.
template <class S, class M, int BM, int BN, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(threads, blocks_of<M>(BN))
    conv_last_kernel(const __grid_constant__ gemm g, const S *pa, const S *pb, S *out,
                     const S *bias, bool relu) {
#if HAS_ASYNC
  constexpr int stage_bytes = (BM + BN) * row_bytes;
  constexpr int MF = WM / 16, NF = WN / 8;  // tensor cores: tiles of a warp
  constexpr int TM = BM / 16, TN = BN / 16; // else: sums of a thread
  constexpr bool tensor = !std::is_same<M, no_tensor_cores>::value;
  static_assert(BM / WM * (BN / WN) == warps, "a part of the tile for each warp");
  extern __shared__ uint4 room[];
  const uint32_t base = shared_address(room);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
  const int tx = int(threadIdx.x) % 16, ty = int(threadIdx.x) / 16;
  const work w = work_of<BN, BM>(g, blockIdx.x);
  last_loader<S, BM, BN> next(g, w, pa, pb);
  const int steps =
      (g.k + row_bytes / int(sizeof(S)) - 1) / (row_bytes / int(sizeof(S)));
  float sum[tensor ? MF : TM][tensor ? NF : TN][tensor ? 4 : 1] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps)
      next.fetch(g, base + s * stage_bytes, base + s * stage_bytes + BM * row_bytes);
    __pipeline_commit();
  }
  int stage = 0, ahead = STAGES - 1;
  for (int k = 0; k < steps; k++) {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    const uint32_t a = base + stage * stage_bytes, b = a + BM * row_bytes;
    if (k + STAGES - 1 < steps)
      next.fetch(g, base + ahead * stage_bytes,
                 base + ahead * stage_bytes + BM * row_bytes);
    __pipeline_commit();
    if constexpr (tensor) {
#pragma unroll
      for (int c = 0; c < chunks; c += 2) {
        uint32_t left[MF][4], right[NF / 2][4];
#pragma unroll
        for (int i = 0; i < MF; i++) {
          load_matrices(left[i], a + chunk_at(wm + i * 16 + lane % 16, c + lane / 16));
          rounded<S>(left[i]);
        }
#pragma unroll
        for (int j = 0; j < NF / 2; j++) {
          const int row = wn + j * 16 + lane / 16 * 8 + lane % 8;
          load_matrices(right[j], b + chunk_at(row, c + lane / 8 % 2));
          rounded<S>(right[j]);
        }
#pragma unroll
        for (int i = 0; i < MF; i++)
#pragma unroll
          for (int j = 0; j < NF; j++)
            multiply<S>(sum[i][j], left[i], right[j / 2] + j % 2 * 2);
      }
    } else {
#pragma unroll
      for (int c = 0; c < chunks; c++) {
        float4 right[TN];
#pragma unroll
        for (int j = 0; j < TN; j++) right[j] = load_four(b + chunk_at(tx + j * 16, c));
#pragma unroll
        for (int i = 0; i < TM; i++) {
          const float4 left = load_four(a + chunk_at(ty + i * 16, c));
#pragma unroll
          for (int j = 0; j < TN; j++) {
            float &s = sum[i][j][0];
            s = fmaf(left.x, right[j].x, s), s = fmaf(left.y, right[j].y, s);
            s = fmaf(left.z, right[j].z, s), s = fmaf(left.w, right[j].w, s);
          }
        }
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
  }
  out += w.group * g.out_group;
  if (bias) bias += w.group * g.m;
  if constexpr (tensor) {
#pragma unroll
    for (int i = 0; i < 2 * MF; i++) {
      const int n = w.n0 + wm + i * 8 + lane / 4;
      if (n >= g.n) continue;
      S *to = out + place_of(g.along_n, n, g.n).other;
#pragma unroll
      for (int j = 0; j < NF; j++)
        put_pair(to, w.m0 + wn + j * 8 + lane % 4 * 2, g, bias, relu,
                 sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < TM; i++) {
      const int n = w.n0 + ty + i * 16;
      if (n >= g.n) continue;
      S *to = out + place_of(g.along_n, n, g.n).other;
#pragma unroll
      for (int j = 0; j < TN; j++) {
        const int m = w.m0 + tx + j * 16;
        if (m >= g.m) continue;
        const float total = sum[i][j][0] + (bias ? bias[m] : 0);
        to[m] = relu ? rectified(total) : total;
      }
    }
  }
#endif
}

// ---- host side --------------------------------------------------------------------------

// Channels of a tile: 128 reuse more of what they read, unless that leaves multiprocessors
// without work in the last round.
int columns_of(const mt_call *call, const gemm &g, int rows) {
  const int64_t busy = multiprocessors(call->device);
  const int64_t down = int64_t((g.n + rows - 1) / rows) * std::max(g.groups, 1);
  const auto rounds = [&](int columns) {
    return (down * ((g.m + columns - 1) / columns) + busy - 1) / busy;
  };
  return g.m > 64 && 2 * rounds(128) <= rounds(64) ? 128 : 64;
}

template <class S, class M>
mt_status run_axes(const mt_call *call, gemm g, const conv_data &d, const conv &v) {
  constexpr int BM = 128;
  const int BN = columns_of(call, g, BM);
  const bool input = v.what == pass::input;
  const void *b = input ? d.y : d.x;
  S *out = static_cast<S *>(const_cast<void *>(input ? d.x : d.y));
  g.groups = std::max(g.groups, 1), g.splits = 1, g.split_k = g.k;
  g.m_tiles = (g.m + BN - 1) / BN, g.n_tiles = (g.n + BM - 1) / BM;
  g.tiles = int64_t(g.m_tiles) * g.n_tiles * g.groups;
  const auto launch = [&](auto kernel, int stages) {
    return launch_last(call, kernel, unsigned(g.tiles), stages * (BM + BN) * row_bytes,
                       g, static_cast<const S *>(d.w) + g.a_first,
                       static_cast<const S *>(b), out + g.out_first,
                       static_cast<const S *>(d.bias), v.relu());
  };
  return BN == 128 ? launch(conv_last_kernel<S, M, BM, 128, 64, 32, 3>, 3)
                   : launch(conv_last_kernel<S, M, BM, 64, 32, 32, 4>, 4);
}

template <class S, class M>
mt_status run_pass(const mt_call *call, const conv &v, const conv_data &d) {
  if (v.what == pass::forward) {
    gemm g = forward_axes(v);
    g.groups = int(v.groups);
    return run_axes<S, M>(call, g, d, v);
  }
  return each_residue(v, [&](const residue &y, const residue &x) {
    gemm g = input_axes(v, y, x);
    g.groups = int(v.groups);
    return run_axes<S, M>(call, g, d, v);
  });
}

} // namespace

bool last_serves(const mt_call *call, const conv &v) {
  int major = 0;
  const int V = elements_of_chunk(v);
  if (v.dtype == MT_F64 || !gemm_serves(call, v)) return false;
  if (v.cg % V || v.kg() % V) return false;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                call->device) == cudaSuccess &&
         major >= 8;
}

conv last_layout(conv v) {
  if (v.what != pass::input) return v;
  v.ws[0] = 1, v.ws[3] = v.k, v.ws[2] = v.kw * v.k, v.ws[1] = v.kh * v.kw * v.k;
  return v;
}

size_t last_scratch(const mt_call *call, const conv &v) {
  return v.what == pass::weight ? last_weight_scratch(call, v) : 0;
}

mt_status run_last(const mt_call *call, const conv &v, const conv_data &d,
                   void *scratch) {
  if (v.what == pass::weight) return run_last_weight(call, v, d, scratch);
  return with_products(call, v, [&](auto s, auto m) {
    return run_pass<typename decltype(s)::type, typename decltype(m)::type>(call, v, d);
  });
}
