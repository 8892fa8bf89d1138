// kernels/cuda/conv_gemm.cu -- convolution as a product of matrices, the unrolled windows
// of which exist only as tiles in shared memory (implicit GEMM). All three passes are one
// kernel: out[m][n] = sum over k of a(m, k) b(k, n), where a's offsets are a sum of one of
// m and one of k, and b's a position in the image that is again such a sum.
#include <mma.h>
#include "kernels/cuda/conv_tiles.cuh"

namespace {

// ---- by fused multiply-adds: each thread holds TM x TN sums ------------------------------

template <class S, int BM, int BN, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 2)
    conv_fma_kernel(const __grid_constant__ gemm g, const S *pa, const S *pb,
                    sink<S, S> to) {
  constexpr int BK = 16, THREADS = (BM / TM) * (BN / TN);
  constexpr int VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4; // neighbours of one load
  constexpr int across = BN / TN, pad = 4;
  __shared__ alignas(32) S a[2][BK][BM + pad], b[2][BK][BN];
  __shared__ alignas(16) place taps[2][BK];
  const int tx = int(threadIdx.x) % across, ty = int(threadIdx.x) / across;
  loader<S, BM, BN, BK, THREADS> next;
  const auto store = [&](int stage) {
#pragma unroll
    for (int j = 0; j < next.a_count; j++)
      a[stage][threadIdx.x % BK][threadIdx.x / BK + j * next.a_step] = next.a[j];
#pragma unroll
    for (int j = 0; j < next.b_count; j++)
      b[stage][threadIdx.x / BN + j * next.b_step][threadIdx.x % BN] = next.b[j];
  };
  for (int64_t t = blockIdx.x; t < g.tiles; t += gridDim.x) {
    const work w = work_of<BM, BN>(g, t);
    S sum[TM][TN] = {};
    each_slab<BK, THREADS>(g, w, pa, pb, next, taps, store, [&](int stage) {
#pragma unroll
      for (int p = 0; p < BK; p++) {
        alignas(32) S left[TM], right[TN];
#pragma unroll
        for (int i = 0; i < TM; i += VM)
          *reinterpret_cast<lane<S, VM> *>(left + i) =
              *reinterpret_cast<const lane<S, VM> *>(
                  &a[stage][p][i / VM * (BM / (TM / VM)) + ty * VM]);
#pragma unroll
        for (int j = 0; j < TN; j += VN)
          *reinterpret_cast<lane<S, VN> *>(right + j) =
              *reinterpret_cast<const lane<S, VN> *>(
                  &b[stage][p][j / VN * (BN / (TN / VN)) + tx * VN]);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) sum[i][j] += left[i] * right[j];
      }
    });
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int n = w.n0 + j / VN * (BN / (TN / VN)) + tx * VN + j % VN;
      if (n >= g.n) continue;
      const int at = place_of(g.along_n, n, g.n).other;
#pragma unroll
      for (int i = 0; i < TM; i++) {
        const int m = w.m0 + i / VM * (BM / (TM / VM)) + ty * VM + i % VM;
        if (m < g.m) to.put(g, w, m, n, at, sum[i][j]);
      }
    }
  }
}

// ---- by tensor cores: a warp holds WM x WN sums ------------------------------------------
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Without bfloat16 and TF32 there: the host takes other ways (has_tensor_cores).
template <class S, int BM, int BN, int WM, int WN>
__global__ void conv_tensor_kernel(const __grid_constant__ gemm, const S *, const S *,
                                   sink<S, float>) {}
#else
using namespace nvcuda;

template <class S> struct fragments;
template <> struct fragments<__half> {
  using type = __half;
  static constexpr int depth = 16;
  static __device__ __half stored(__half x) { return x; }
};
template <> struct fragments<__nv_bfloat16> {
  using type = __nv_bfloat16;
  static constexpr int depth = 16;
  static __device__ __nv_bfloat16 stored(__nv_bfloat16 x) { return x; }
};
template <> struct fragments<float> { // as TF32
  using type = wmma::precision::tf32;
  static constexpr int depth = 8;
  static __device__ float stored(float x) { return wmma::__float_to_tf32(x); }
};

template <class S, int BM, int BN, int WM, int WN>
__global__ void __launch_bounds__((BM / WM) * (BN / WN) * 32, 2)
    conv_tensor_kernel(const __grid_constant__ gemm g, const S *pa, const S *pb,
                       sink<S, float> to) {
  using F = fragments<S>;
  constexpr int THREADS = (BM / WM) * (BN / WN) * 32, BK = 2 * F::depth;
  constexpr int pad = 16 / int(sizeof(S)), stage_pad = 20; // shifts the banks of rows
  constexpr int MF = WM / 16, NF = WN / 16;
  __shared__ alignas(32) S a[2][BM][BK + pad], b[2][BK][BN + pad];
  __shared__ alignas(16) place taps[2][BK];
  __shared__ alignas(32) float staged[THREADS / 32][16 * stage_pad];
  const int warp = int(threadIdx.x) / 32, lane_id = int(threadIdx.x) % 32;
  const int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
  loader<S, BM, BN, BK, THREADS> next;
  const auto store = [&](int stage) {
#pragma unroll
    for (int j = 0; j < next.a_count; j++)
      a[stage][threadIdx.x / BK + j * next.a_step][threadIdx.x % BK] =
          F::stored(next.a[j]);
#pragma unroll
    for (int j = 0; j < next.b_count; j++)
      b[stage][threadIdx.x / BN + j * next.b_step][threadIdx.x % BN] =
          F::stored(next.b[j]);
  };
  for (int64_t t = blockIdx.x; t < g.tiles; t += gridDim.x) {
    const work w = work_of<BM, BN>(g, t);
    wmma::fragment<wmma::accumulator, 16, 16, F::depth, float> sum[MF][NF];
#pragma unroll
    for (int i = 0; i < MF; i++)
#pragma unroll
      for (int j = 0; j < NF; j++) wmma::fill_fragment(sum[i][j], 0.0f);
    each_slab<BK, THREADS>(g, w, pa, pb, next, taps, store, [&](int stage) {
#pragma unroll
      for (int p = 0; p < BK; p += F::depth) {
        wmma::fragment<wmma::matrix_a, 16, 16, F::depth, typename F::type,
                       wmma::row_major>
            left[MF];
        wmma::fragment<wmma::matrix_b, 16, 16, F::depth, typename F::type,
                       wmma::row_major>
            right[NF];
#pragma unroll
        for (int i = 0; i < MF; i++)
          wmma::load_matrix_sync(left[i], &a[stage][wm + i * 16][p], BK + pad);
#pragma unroll
        for (int j = 0; j < NF; j++)
          wmma::load_matrix_sync(right[j], &b[stage][p][wn + j * 16], BN + pad);
#pragma unroll
        for (int i = 0; i < MF; i++)
#pragma unroll
          for (int j = 0; j < NF; j++)
            wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
      }
    });
    // Each fragment by way of the warp's own 16 x 16 floats: its lanes then know m and n.
#pragma unroll
    for (int j = 0; j < NF; j++) {
      const int n = w.n0 + wn + j * 16 + lane_id % 16;
      const int at = place_of(g.along_n, n, g.n).other;
#pragma unroll
      for (int i = 0; i < MF; i++) {
        wmma::store_matrix_sync(staged[warp], sum[i][j], stage_pad,
                                wmma::mem_row_major);
        __syncwarp();
        for (int r = lane_id / 16; r < 16; r += 2) {
          const int m = w.m0 + wm + i * 16 + r;
          if (m < g.m && n < g.n)
            to.put(g, w, m, n, at, staged[warp][r * stage_pad + lane_id % 16]);
        }
        __syncwarp();
      }
    }
  }
}

#endif

// ---- host side --------------------------------------------------------------------------

// Elements from the first to the last one of a tensor.
double reach(const int64_t *shape, const int64_t *stride) {
  double last = 1;
  for (int d = 0; d < 4; d++) last += double(shape[d] - 1) * double(stride[d]);
  return last;
}

struct tile_size {
  int m, n, threads;
};

bool has_tensor_cores(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
             cudaSuccess &&
         major >= 8;
}

bool uses_tensor_cores(const mt_call *call, const conv &v) {
  return MT_HALF_MASK >> v.dtype & 1u ||
         (v.dtype == MT_F32 && call->precision > 0 && has_tensor_cores(call->device));
}

// The tiles that waste least; each has its kernel in run_fma or run_tensor.
tile_size tile_of(const mt_call *call, const conv &v, int m, int n) {
  if (v.dtype == MT_F64) return {64, 64, 256};
  if (uses_tensor_cores(call, v))
    return m > 32 ? tile_size{128, 128, 256} : tile_size{32, 128, 128};
  if (n <= 32) return m > 16 ? tile_size{32, 32, 128} : tile_size{16, 32, 64};
  if (m <= 8) return {8, 128, 128};
  if (m <= 16) return {16, 128, 128};
  if (m <= 32) return {32, 128, 128};
  const int64_t large = int64_t((m + 127) / 128) * ((n + 127) / 128) * v.groups;
  return m <= 64 || large < multiprocessors(call->device) * int64_t(4)
             ? tile_size{64, 128, 256}
             : tile_size{128, 128, 256};
}

void set_tiles(const mt_call *call, const conv &v, gemm *g) {
  const tile_size size = tile_of(call, v, g->m, g->n);
  g->groups = int(v.groups), g->splits = 1;
  g->m_tiles = (g->m + size.m - 1) / size.m, g->n_tiles = (g->n + size.n - 1) / size.n;
  const int64_t tiles = int64_t(g->m_tiles) * g->n_tiles * g->groups;
  if (v.what == pass::weight) { // few tiles, long sums: they are cut
    constexpr int least = 512;
    const int64_t busy = multiprocessors(call->device) * int64_t(1024 / size.threads);
    const int64_t most = (g->k + least - 1) / least;
    g->splits = int(std::max<int64_t>(1, std::min(busy / tiles, most)));
  }
  g->split_k = (g->k + g->splits - 1) / g->splits;
  g->split_k = std::max(32, (g->split_k + 31) / 32 * 32);
  g->splits = std::max(1, (g->k + g->split_k - 1) / g->split_k);
  g->tiles = tiles * g->splits;
}

gemm forward_gemm(const mt_call *call, const conv &v) {
  gemm g = forward_axes(v);
  set_tiles(call, v, &g);
  return g;
}

template <class S, class T, class Kernel>
mt_status launch_gemm(const mt_call *call, const conv &v, const gemm &g,
                      const conv_data &d, void *scratch, int threads, Kernel kernel) {
  const void *a = v.what == pass::weight ? d.y : d.w;
  const void *b = v.what == pass::input ? d.y : d.x;
  const void *out = v.what == pass::forward ? d.y : v.what == pass::input ? d.x : d.w;
  sink<S, T> to{};
  to.out = static_cast<S *>(const_cast<void *>(out)) + g.out_first;
  to.partial = g.splits > 1 ? static_cast<T *>(scratch) : nullptr;
  to.bias = static_cast<const S *>(d.bias), to.relu = v.relu();
  constexpr int64_t most = (int64_t(1) << 31) - 1;
  kernel<<<unsigned(std::min(g.tiles, most)), threads, 0, stream_of(call)>>>(
      g, static_cast<const S *>(a) + g.a_first, static_cast<const S *>(b), to);
  if (g.splits > 1) add_splits<S, T>(call, to.out, to.partial, g);
  return launched();
}

mt_status run_fma(const mt_call *call, const conv &v, const gemm &g, const conv_data &d,
                  void *scratch) {
  const tile_size size = tile_of(call, v, g.m, g.n);
  const auto launch = [&](auto kernel) {
    return launch_gemm<float, float>(call, v, g, d, scratch, size.threads, kernel);
  };
  if (size.n == 32)
    return size.m == 16 ? launch(conv_fma_kernel<float, 16, 32, 4, 2>)
                        : launch(conv_fma_kernel<float, 32, 32, 4, 2>);
  switch (size.m) {
  case 8: return launch(conv_fma_kernel<float, 8, 128, 8, 1>);
  case 16: return launch(conv_fma_kernel<float, 16, 128, 8, 2>);
  case 32: return launch(conv_fma_kernel<float, 32, 128, 4, 8>);
  case 64: return launch(conv_fma_kernel<float, 64, 128, 8, 4>);
  default: return launch(conv_fma_kernel<float, 128, 128, 8, 8>);
  }
}

template <class S>
mt_status run_tensor(const mt_call *call, const conv &v, const gemm &g,
                     const conv_data &d, void *scratch) {
  const tile_size size = tile_of(call, v, g.m, g.n);
  const auto launch = [&](auto kernel) {
    return launch_gemm<S, float>(call, v, g, d, scratch, size.threads, kernel);
  };
  return size.m == 128 ? launch(conv_tensor_kernel<S, 128, 128, 64, 32>)
                       : launch(conv_tensor_kernel<S, 32, 128, 32, 32>);
}

mt_status run_one(const mt_call *call, const conv &v, const gemm &g, const conv_data &d,
                  void *scratch) {
  switch (v.dtype) {
  case MT_F64:
    return launch_gemm<double, double>(call, v, g, d, scratch, 256,
                                       conv_fma_kernel<double, 64, 64, 4, 4>);
  case MT_F16: return run_tensor<__half>(call, v, g, d, scratch);
  case MT_BF16: return run_tensor<__nv_bfloat16>(call, v, g, d, scratch);
  default:
    return uses_tensor_cores(call, v) ? run_tensor<float>(call, v, g, d, scratch)
                                      : run_fma(call, v, g, d, scratch);
  }
}

} // namespace

bool gemm_serves(const mt_call *call, const conv &v) {
  constexpr double most = double(1 << 30);
  int64_t x[4], w[4], y[4];
  v.shape_x(x), v.shape_w(w), v.shape_y(y);
  if (MT_HALF_MASK >> v.dtype & 1u && !has_tensor_cores(call->device)) return false;
  if (v.what == pass::input && v.sh * v.sw > 16) return false; // a launch each
  if (v.groups > 1 && (v.what == pass::input ? v.cg : v.kg()) < 8) return false;
  const double sizes[] = {reach(x, v.xs),
                          reach(w, v.ws),
                          reach(y, v.ys),
                          double(v.n) * double(v.windows()),
                          double(v.n) * double(v.h) * double(v.w),
                          double(v.kg()) * double(v.kh * v.kw),
                          double(v.depth()),
                          4 * (double(v.h) + 2 * double(v.ph)),
                          4 * (double(v.w) + 2 * double(v.pw)),
                          4 * double(v.dh),
                          4 * double(v.dw)};
  for (double size : sizes)
    if (size >= most) return false;
  return true;
}

size_t gemm_scratch(const mt_call *call, const conv &v) {
  if (v.what != pass::weight) return 0;
  const gemm g = forward_gemm(call, v);
  const size_t size = v.dtype == MT_F64 ? 8 : 4;
  if (g.splits == 1) return 0;
  return size_t(g.splits) * size_t(g.groups) * size_t(g.m) * size_t(g.n) * size;
}

mt_status run_gemm(const mt_call *call, const conv &v, const conv_data &d,
                   void *scratch) {
  if (v.what != pass::input) return run_one(call, v, forward_gemm(call, v), d, scratch);
  return each_residue(v, [&](const residue &y, const residue &x) {
    gemm g = input_axes(v, y, x);
    set_tiles(call, v, &g);
    return run_one(call, v, g, d, scratch);
  });
}
