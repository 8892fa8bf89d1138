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
  bool relu;
  __device__ void put(const gemm &g, const work &w, int m, int n, int at, T sum) const {
    if (partial) {
      partial[((int64_t(w.split) * g.groups + w.group) * g.m + m) * g.n + n] = sum;
      return;
    }
    if (bias) sum += load_as<T>(bias[w.group * g.m + m]);
    if (relu) sum = rectified(sum);
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

// compute(stage) for each BK terms of a tile's sums, while `next` brings those that follow;
// store(stage) lays down what it has brought.
template <int BK, int THREADS, class S, class L, class Store, class Compute>
__device__ inline void each_slab(const gemm &g, const work &w, const S *pa, const S *pb,
                                 L &next, place (*taps)[BK], Store store,
                                 Compute compute) {
  next.begin(g, w);
  __syncthreads(); // the tile before is done with shared memory
  find_taps<BK, THREADS>(g, w, taps[0], w.k0);
  __syncthreads();
  next.load(g, w, pa, pb, taps[0], w.k0);
  store(0);
  find_taps<BK, THREADS>(g, w, taps[1], w.k0 + BK);
  __syncthreads();
  int stage = 0;
  for (int k = w.k0; k < w.k1; k += BK, stage ^= 1) {
    const bool more = k + BK < w.k1;
    if (more) next.load(g, w, pa, pb, taps[stage ^ 1], k + BK);
    compute(stage);
    if (more) store(stage ^ 1);
    find_taps<BK, THREADS>(g, w, taps[stage], k + 2 * BK);
    __syncthreads();
  }
}

template <class T, int V> struct alignas(sizeof(T) * V) lane { T at[V]; };

// out[group][m][n] = the sum of the splits' parts, always in the same order. blockDim =
// (32, 16): elements, and streams of splits.
template <class S, class T>
__global__ void __launch_bounds__(512)
    conv_splits_kernel(S *out, const T *partial, const __grid_constant__ gemm g) {
  constexpr int streams = 16;
  __shared__ T held[streams][32];
  const int64_t all = int64_t(g.groups) * g.m * g.n;
  for (int64_t e0 = int64_t(blockIdx.x) * 32; e0 < all; e0 += int64_t(gridDim.x) * 32) {
    const int64_t e = e0 + threadIdx.x;
    T sum = 0;
    if (e < all) {
#pragma unroll 4
      for (int s = int(threadIdx.y); s < g.splits; s += streams)
        sum += partial[s * all + e];
    }
    held[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && e < all) {
      for (int s = 1; s < streams; s++) sum += held[s][threadIdx.x];
      const int n = int(e % g.n), m = int(e / g.n % g.m), group = int(e / g.n / g.m);
      out[group * g.out_group + m * g.out_m + place_of(g.along_n, n, g.n).other] =
          store_as<S>(sum);
    }
    __syncthreads();
  }
}

template <class S, class T>
void add_splits(const mt_call *call, S *out, const T *partial, const gemm &g) {
  const int64_t all = int64_t(g.groups) * g.m * g.n;
  conv_splits_kernel<S, T><<<unsigned(std::min<int64_t>((all + 31) / 32, 65535)),
                             dim3(32, 16), 0, stream_of(call)>>>(out, partial, g);
}

// ---- host side: the axes of each pass ---------------------------------------------------

inline axis make_axis(int64_t width, int64_t height) {
  axis q{};
  q.width = make_divider(width), q.height = make_divider(height);
  return q;
}

// Offsets of b, from strides (o, y, x), and of the other matrix.
inline void set_axis(axis *q, int64_t so, const int64_t *other) {
  q->so = int(so);
  q->to = int(other[0]), q->ty = int(other[1]), q->tx = int(other[2]);
}

inline gemm forward_axes(const conv &v) {
  gemm g{};
  const int64_t of_w[3] = {v.ws[1], v.ws[2], v.ws[3]},
                of_y[3] = {v.ys[0], v.ys[2], v.ys[3]};
  axis taps = make_axis(v.kw, v.kh), windows = make_axis(v.ow, v.oh);
  taps.my = int(v.dh), taps.mx = int(v.dw);
  windows.my = int(v.sh), windows.ay = -int(v.ph);
  windows.mx = int(v.sw), windows.ax = -int(v.pw);
  set_axis(&taps, v.xs[1], of_w), set_axis(&windows, v.xs[0], of_y);
  g.rows = int(v.h), g.columns = int(v.w), g.row = int(v.xs[2]),
  g.column = int(v.xs[3]), g.b_group = int(v.cg * v.xs[1]);
  g.m = int(v.kg()), g.n = int(v.n * v.windows()), g.k = int(v.depth());
  g.along_n = windows, g.along_k = taps;
  g.a_m = int(v.ws[0]), g.out_m = int(v.ys[1]);
  g.a_group = int(v.kg() * v.ws[0]), g.out_group = int(v.kg() * v.ys[1]);
  if (v.what == pass::weight) { // the sum runs over windows, y is the first matrix
    std::swap(g.n, g.k), std::swap(g.along_n, g.along_k);
    std::swap(g.a_m, g.out_m), std::swap(g.a_group, g.out_group);
  }
  return g;
}

// Along one dim, the input's positions first, first + stride, ... meet the taps tap,
// tap + step, ...: position number i and tap number j lie at output i + shift - j * back.
struct residue {
  int64_t first, positions, tap, step, taps, shift, back;
};

inline residue residue_of(int64_t first, int64_t size, int64_t kernel, int64_t stride,
                          int64_t padding, int64_t dilation) {
  residue r{first, (size - first + stride - 1) / stride, 0, 1, 0, 0, 0};
  int64_t a = dilation, b = stride;
  while (b) std::swap(a %= b, b); // a: their greatest common divisor
  r.step = stride / a, r.back = dilation / a;
  while (r.tap < r.step && (first + padding - r.tap * dilation) % stride) r.tap++;
  if (r.tap < r.step && r.tap < kernel) r.taps = (kernel - r.tap + r.step - 1) / r.step;
  if (r.taps > 0) r.shift = (first + padding - r.tap * dilation) / stride;
  return r;
}

// dx at the pixels of one residue: no tap misses but at the border.
inline gemm input_axes(const conv &v, const residue &y, const residue &x) {
  gemm g{};
  const int64_t of_w[3] = {v.ws[0], y.step * v.ws[2], x.step * v.ws[3]},
                of_x[3] = {v.xs[0], v.sh * v.xs[2], v.sw * v.xs[3]};
  axis taps = make_axis(std::max<int64_t>(x.taps, 1), std::max<int64_t>(y.taps, 1)),
       pixels = make_axis(x.positions, y.positions);
  taps.my = -int(y.back), taps.mx = -int(x.back);
  pixels.my = pixels.mx = 1, pixels.ay = int(y.shift), pixels.ax = int(x.shift);
  set_axis(&taps, v.ys[1], of_w), set_axis(&pixels, v.ys[0], of_x);
  g.rows = int(v.oh), g.columns = int(v.ow), g.row = int(v.ys[2]),
  g.column = int(v.ys[3]), g.b_group = int(v.kg() * v.ys[1]);
  g.m = int(v.cg), g.n = int(v.n * y.positions * x.positions);
  g.k = int(v.kg() * y.taps * x.taps);
  g.along_n = pixels, g.along_k = taps;
  g.a_m = int(v.ws[1]), g.out_m = int(v.xs[1]);
  g.a_group = int(v.kg() * v.ws[0]), g.out_group = int(v.cg * v.xs[1]);
  g.a_first = y.tap * v.ws[2] + x.tap * v.ws[3];
  g.out_first = y.first * v.xs[2] + x.first * v.xs[3];
  if (g.k == 0) g.a_first = 0;
  return g;
}

// f(y, x) for the residues of dx's rows and columns; a launch for each pair.
template <class F> mt_status each_residue(const conv &v, F f) {
  for (int64_t i = 0; i < v.sh && i < v.h; i++) {
    const residue y = residue_of(i, v.h, v.kh, v.sh, v.ph, v.dh);
    for (int64_t j = 0; j < v.sw && j < v.w; j++) {
      const residue x = residue_of(j, v.w, v.kw, v.sw, v.pw, v.dw);
      if (const mt_status s = f(y, x)) return s;
    }
  }
  return MT_OK;
}

} // namespace

#endif
