// kernels/cuda/conv_tiles.cuh -- how conv_gemm.cu's kernels find and bring their tiles.
#ifndef MT_CUDA_CONV_TILES_CUH
#define MT_CUDA_CONV_TILES_CUH

#include "kernels/cuda/conv.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

// An axis counts (o, y, x), x fastest: windows of images, or taps of filters.
struct axis {
  divider width, height;
  int so, my, ay, mx, ax; // of b: offset o * so, row y * my + ay, column x * mx + ax
  int to, ty, tx;         // of a (along k) or out (along n): o * to + y * ty + x * tx
};

struct gemm {
  int m, n, k;
  int splits, split_k;  // k is cut into so many parts of split_k
  int m_tiles, n_tiles; // per group
  int64_t tiles;        // of all groups and splits
  int groups;
  int a_group, b_group, out_group;
  int64_t a_first, out_first; // where a and out begin
  int a_m, out_m;             // strides along m
  axis along_n, along_k;
  int rows, columns; // of b's image
  int row, column;   // its strides
};

struct place { // of b; along k also of a
  int offset, y, x, other;
};

constexpr int nowhere = -(1 << 29); // a row that no other half makes a row of the image

__device__ inline place place_of(const axis &q, int index, int size) {
  if (index >= size) return {0, nowhere, nowhere, 0};
  const uint32_t rest = divide(uint32_t(index), q.width);
  const int x = int(uint32_t(index) - rest * q.width.d);
  const int o = int(divide(rest, q.height)), y = int(rest - uint32_t(o) * q.height.d);
  return {o * q.so, y * q.my + q.ay, x * q.mx + q.ax, o * q.to + y * q.ty + x * q.tx};
}

template <class S>
__device__ inline S gather(const S *b, const gemm &g, const place &n, const place &k) {
  const int y = n.y + k.y, x = n.x + k.x;
  if (uint32_t(y) >= uint32_t(g.rows) || uint32_t(x) >= uint32_t(g.columns))
    return S(0.0f);
  return b[n.offset + k.offset + y * g.row + x * g.column];
}

// Which tile, of which group, over which part of k.
struct work {
  int m0, n0, group, split, k0, k1;
};

template <int BM, int BN> __device__ inline work work_of(const gemm &g, int64_t t) {
  work w;
  w.m0 = int(t % g.m_tiles) * BM;
  t /= g.m_tiles;
  w.n0 = int(t % g.n_tiles) * BN;
  t /= g.n_tiles;
  w.group = int(t % g.groups), w.split = int(t / g.groups);
  w.k0 = w.split * g.split_k;
  w.k1 = min(g.k, w.k0 + g.split_k);
  return w;
}

// out, or the split's partial sums, at (m, n).
template <class S, class T> struct sink {
  S *out;
  T *partial; // NULL: out
  const S *bias;
  __device__ void put(const gemm &g, const work &w, int m, int n, int at, T sum) const {
    if (partial) {
      partial[((int64_t(w.split) * g.groups + w.group) * g.m + m) * g.n + n] = sum;
      return;
    }
    if (bias) sum += load_as<T>(bias[w.group * g.m + m]);
    out[w.group * g.out_group + m * g.out_m + at] = store_as<S>(sum);
  }
};

// What a thread brings from memory for the next tile: elements of one column of b, and of
// one column of a (along m), converted to H when they are stored.
template <class S, int BM, int BN, int BK, int THREADS> struct loader {
  static constexpr int b_step = THREADS / BN, b_count = BK / b_step;
  static constexpr int a_step = THREADS / BK, a_count = BM / a_step;
  static_assert(THREADS % BN == 0 && BK % b_step == 0 && THREADS % BK == 0 &&
                    BM % a_step == 0,
                "a thread stays in its columns");
  S a[a_count], b[b_count];
  place n;

  __device__ void begin(const gemm &g, const work &w) {
    n = place_of(g.along_n, w.n0 + int(threadIdx.x) % BN, g.n);
  }
  // taps: along_k's places of this tile
  __device__ void load(const gemm &g, const work &w, const S *pa, const S *pb,
                       const place *taps, int k) {
    const int ka = int(threadIdx.x) % BK, ma = w.m0 + int(threadIdx.x) / BK;
    const S *from = pa + w.group * g.a_group + taps[ka].other;
    const bool inside = k + ka < w.k1;
#pragma unroll
    for (int j = 0; j < a_count; j++) {
      const int m = ma + j * a_step;
      a[j] = inside && m < g.m ? from[m * g.a_m] : S(0.0f);
    }
    const S *image = pb + w.group * g.b_group;
#pragma unroll
    for (int j = 0; j < b_count; j++)
      b[j] = gather(image, g, n, taps[int(threadIdx.x) / BN + j * b_step]);
  }
};

template <int BK, int THREADS>
__device__ inline void find_taps(const gemm &g, const work &w, place *taps, int k) {
  for (int i = int(threadIdx.x); i < BK; i += THREADS)
    taps[i] = place_of(g.along_k, k + i, w.k1);
}

template <class T, int V> struct alignas(sizeof(T) * V) lane { T at[V]; };

} // namespace

#endif
