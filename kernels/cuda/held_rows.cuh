// kernels/cuda/held_rows.cuh -- rows kept on chip while they are walked more than once: in
// registers, or in shared memory, where the next row arrives while this one is worked on.
#ifndef MT_CUDA_HELD_ROWS_CUH
#define MT_CUDA_HELD_ROWS_CUH

#include <cuda_pipeline.h>
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/row_sums.cuh"

// ---- registers --------------------------------------------------------------------------
// Elements of a row that a thread may hold: 128 bytes as computed with; 8 where they are
// read one by one.
template <class T, int V>
constexpr int held_elements = V == 1 ? 8 : 128 / int(sizeof(T));

// A row of n elements of S over blockDim.x threads, V neighbours at a time; n % V == 0.
// Nothing here branches: the loads of a thread are under way at once.
template <class S, int V> struct register_row {
  using T = compute_t<S>;
  static constexpr int pieces = held_elements<T, V> / V;
  T at[pieces][V];

  __device__ static int position(int k) { return (k * blockDim.x + threadIdx.x) * V; }
  // The same, or the last piece's where that lies beyond the row.
  __device__ static int inside(int k, int n) {
    return position(k) < n ? position(k) : n - V;
  }

  // Beyond the row: `otherwise`.
  __device__ void load(const S *x, int n, T otherwise) {
    pack<S, V> p[pieces];
#pragma unroll
    for (int k = 0; k < pieces; k++)
      p[k] = *reinterpret_cast<const pack<S, V> *>(x + inside(k, n));
#pragma unroll
    for (int k = 0; k < pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++)
        at[k][j] = position(k) < n ? load_as<T>(p[k].at[j]) : otherwise;
  }
  // x = f(x) of each element, those beyond the row included
  template <class F> __device__ void each(F f) {
#pragma unroll
    for (int k = 0; k < pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++) at[k][j] = f(at[k][j]);
  }
  // x = f(x, y) with the elements y of a row in memory; one beyond it serves as any other
  template <class F> __device__ void with(const S *y, int n, F f) {
    pack<S, V> p[pieces];
#pragma unroll
    for (int k = 0; k < pieces; k++)
      p[k] = *reinterpret_cast<const pack<S, V> *>(y + inside(k, n));
#pragma unroll
    for (int k = 0; k < pieces; k++)
#pragma unroll
      for (int j = 0; j < V; j++) at[k][j] = f(at[k][j], load_as<T>(p[k].at[j]));
  }
  __device__ void store(S *y, int n) const {
#pragma unroll
    for (int k = 0; k < pieces; k++) {
      pack<S, V> p;
#pragma unroll
      for (int j = 0; j < V; j++) p.at[j] = store_as<S>(at[k][j]);
      if (position(k) < n) *reinterpret_cast<pack<S, V> *>(y + position(k)) = p;
    }
  }
};

// ---- shared memory ----------------------------------------------------------------------
// A row in `stages` parts, each copied asynchronously. A thread reads only what it copied
// itself, so that no barrier is needed and a part may be replaced as soon as it was read.
constexpr int stages = 8;
constexpr int lag = 3; // parts that may be under way while others are worked on

template <class S> struct shared_row {
  static constexpr int V = 16 / int(sizeof(S));
  using piece = pack<S, V>;
  piece *held;
  int pieces, each_stage; // of the row; of a stage, for one thread

  __device__ shared_row(void *room, int64_t n)
      : held(static_cast<piece *>(room)), pieces(int(n / V)),
        each_stage((pieces + stages * blockDim.x - 1) / (stages * blockDim.x)) {}

  template <class F> __device__ void walk(int stage, F f) const {
    const int first = stage * each_stage * blockDim.x + threadIdx.x;
#pragma unroll 2
    for (int k = 0; k < each_stage; k++) {
      const int i = first + k * blockDim.x;
      if (i < pieces) f(i);
    }
  }
  // Begin to copy this stage of the row at x.
  __device__ void fetch(int stage, const S *x) const {
    walk(stage, [&](int i) {
      __pipeline_memcpy_async(held + i, reinterpret_cast<const piece *>(x) + i, 16);
    });
    __pipeline_commit();
  }
  __device__ void fetch_all(const S *x) const {
    for (int g = 0; g < stages; g++) fetch(g, x);
  }
  // f(piece) of each, in the order of arrival.
  template <class F> __device__ void each(F f) const {
#pragma unroll
    for (int g = 0; g < stages; g++) {
      __pipeline_wait_prior(stages - 1 - g);
      asm volatile("" ::: "memory"); // no read before that
      walk(g, [&](int i) { f(held[i]); });
    }
  }
  // The same once more.
  template <class F> __device__ void again(F f) const {
    for (int g = 0; g < stages; g++) walk(g, [&](int i) { f(held[i]); });
  }
  // y = f(piece, position); behind it the row at `next`, if any, begins to arrive.
  template <class F> __device__ void replace(S *y, const S *next, F f) const {
#pragma unroll
    for (int g = 0; g < stages; g++) {
      walk(g, [&](int i) { reinterpret_cast<piece *>(y)[i] = f(held[i], i * V); });
      if (next) fetch(g, next);
    }
  }
  // y = f(piece, position); behind it the row at `next`, if any, begins to arrive, and
  // h(piece) takes each of its pieces, as `each` does: afterwards, or while others are still
  // written (Ahead), so that memory has work all the while. That pays where a thread has
  // many pieces.
  template <bool Ahead, class F, class H>
  __device__ void replace(S *y, const S *next, F f, H h) const {
    if constexpr (Ahead) {
#pragma unroll
      for (int g = 0; next && g < stages; g++) {
        walk(g, [&](int i) { reinterpret_cast<piece *>(y)[i] = f(held[i], i * V); });
        fetch(g, next);
        if (g >= lag) take<lag>(g - lag, h);
      }
      if (next) take<2>(stages - 3, h), take<1>(stages - 2, h), take<0>(stages - 1, h);
    }
    if (Ahead && next) return;
    replace(y, next, f);
    if (next) each(h);
  }

private:
  // h(piece) of a stage, behind which `Pending` others may still be under way.
  template <int Pending, class H> __device__ void take(int stage, H h) const {
    __pipeline_wait_prior(Pending);
    asm volatile("" ::: "memory"); // no read before that
    walk(stage, [&](int i) { h(held[i]); });
  }
};

template <class T, class S, int V>
__device__ inline void feed_piece(maximum_sum<T> &m, const pack<S, V> &p) {
  T v[V];
#pragma unroll
  for (int j = 0; j < V; j++) v[j] = load_as<T>(p.at[j]);
  feed_all(m, v);
}

// ---- neither: rows of any length that are only walked -----------------------------------
// All elements of the row at x, n of them, by the block's threads; four pieces of a thread
// are under way at once.
template <class S>
__device__ inline void feed_row(maximum_sum<compute_t<S>> &m, const S *x, int64_t n) {
  using T = compute_t<S>;
  constexpr int V = 16 / int(sizeof(S)), U = 4;
  const int gap = int(-reinterpret_cast<uintptr_t>(x) & 15) / int(sizeof(S));
  const int64_t head = gap < n ? gap : n, step = int64_t(blockDim.x) * V;
  const int64_t behind = head + (n - head) / V * V;
  if (threadIdx.x < head) feed(m, load_as<T>(x[threadIdx.x]));
  if (behind + threadIdx.x < n) feed(m, load_as<T>(x[behind + threadIdx.x]));
  int64_t i = head + threadIdx.x * V;
  for (; i + (U - 1) * step < behind; i += U * step) {
    pack<S, V> p[U];
    T v[U * V];
#pragma unroll
    for (int u = 0; u < U; u++)
      p[u] = *reinterpret_cast<const pack<S, V> *>(x + i + u * step);
#pragma unroll
    for (int j = 0; j < U * V; j++) v[j] = load_as<T>(p[j / V].at[j % V]);
    feed_all(m, v);
  }
  for (; i < behind; i += step) {
    feed_piece(m, *reinterpret_cast<const pack<S, V> *>(x + i));
  }
}

// ---- host side --------------------------------------------------------------------------

// Rows of whole 16-byte pieces, each beginning at a multiple of 16?
inline bool whole_pieces(int64_t n, mt_dtype d, const void *a, const void *b) {
  return n * dtype_size(d) % 16 == 0 && aligned16(a) && aligned16(b);
}

// Does a register_row<S, V> serve, V > 1? Short rows are better read one by one.
template <class S, int V> bool fits_registers(int64_t n, bool whole) {
  constexpr int per = held_elements<compute_t<S>, V>;
  return V == 1 ? n <= 512 * per : whole && n > 32 * 8 && n <= 512 * per;
}
template <class S, int V> row_shape rows_held(int64_t rows, int64_t n) {
  return rows_of_blocks(rows, n, held_elements<compute_t<S>, V>);
}
// launch(V, shape) of a kernel that holds rows in registers; false: they do not fit.
template <class S, class F>
bool held_in_registers(int64_t rows, int64_t n, bool whole, F launch) {
  constexpr int V = 16 / int(sizeof(S));
  if (fits_registers<S, V>(n, whole))
    launch(std::integral_constant<int, V>{}, rows_held<S, V>(rows, n));
  else if (fits_registers<S, 1>(n, whole))
    launch(std::integral_constant<int, 1>{}, rows_held<S, 1>(rows, n));
  else
    return false;
  return true;
}
inline unsigned blocks_of(int64_t rows) { // a row each
  return unsigned(rows < INT32_MAX ? rows : INT32_MAX);
}
// Rows that a shared_row holds better.
template <class S> bool is_long(int64_t n) {
  return n > 128 * held_elements<compute_t<S>, 2>;
}

// Blocks of a row each; threads = 0: a row does not fit.
struct held_shape {
  unsigned threads, grid;
  size_t bytes; // of shared memory
  bool ahead;   // as shared_row::replace wants it
};

// For a kernel that holds a row of n elements of `size` bytes in a shared_row: `ahead`, or
// the plain one.
template <class K>
mt_status shared_rows(K plain, K ahead, int device, int64_t rows, int64_t n,
                      int64_t size, held_shape *h /* [out] */) {
  int most = 0;
  h->threads = 0;
  CUDA_TRY(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const int64_t bytes = n * size, reserved = 2048; // for sums over the block
  if (bytes + reserved > most) return MT_OK;
  h->bytes = size_t(bytes);
  const int64_t fit = most / (bytes + reserved);
  h->threads = fit >= 4 ? 256 : fit >= 2 ? 512 : 1024;
  h->ahead = bytes > int64_t(h->threads) * 16 * stages;
  CUDA_TRY(cudaFuncSetAttribute(h->ahead ? ahead : plain,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                most - int(reserved)));
  const int64_t by_threads = 1024 / h->threads; // of 64 registers
  const int64_t blocks =
      int64_t(multiprocessors(device)) * (fit < by_threads ? fit : by_threads);
  h->grid = unsigned(rows < blocks ? rows : blocks);
  return MT_OK;
}

#endif
