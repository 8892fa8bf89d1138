// kernels/cuda/small_product.cu -- products of matrices so small that a call of cuBLASLt
// takes longer than they do: one launch, any strides, bias and activation included.
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace {

constexpr int tile = 16;        // rows and columns of c that a block computes
constexpr int chunk = 16;       // terms of each sum that a warp reads at a time
constexpr int pitch = tile + 4; // elements; keeps 16-byte alignment, spreads the banks
constexpr int reads = tile * chunk / 32; // of each matrix by a thread

template <class T> struct alignas(2 * sizeof(T)) pair_of { T v[2]; };
template <class T> struct alignas(16) four_of { T v[4]; };

// One matrix as a warp reads it: thread and step give a position across (a row of a, a
// column of b) and one along the sum. Whichever lies side by side in memory runs with the
// threads.
struct reader {
  int across, along;           // this thread's first position in the tile
  int more_across, more_along; // to its next
  int64_t step;                // the same in elements
};

__device__ inline reader reader_of(int lane, int64_t across_stride,
                                   int64_t along_stride) {
  reader r;
  if (along_stride == 1)
    r = {lane / chunk, lane % chunk, 32 / chunk, 0, 32 / chunk * across_stride};
  else
    r = {lane % tile, lane / tile, 0, 32 / tile, 32 / tile * along_stride};
  return r;
}

template <class T, class S>
__device__ inline void read_chunk(T *held, const S *from, const reader &r, int across,
                                  int along) {
  int i = r.across, t = r.along;
#pragma unroll
  for (int s = 0; s < reads; s++) {
    held[s] = i < across && t < along ? load_as<T>(*from) : T(0);
    from += r.step, i += r.more_across, t += r.more_along;
  }
}

template <class T>
__device__ inline void store_chunk(T (*to)[pitch], const T *held, const reader &r) {
#pragma unroll
  for (int s = 0; s < reads; s++)
    to[r.along + s * r.more_along][r.across + s * r.more_across] = held[s];
}

template <class T> struct alignas(16) warp_room { T a[chunk][pitch], b[chunk][pitch]; };

template <class T> __device__ inline T activated(T x, activation f) {
  if (f == activation::relu) return x > T(0) || x != x ? x : T(0);
  if (f == activation::gelu)
    return T(0.5) * x * (T(1) + erf(T(0.7071067811865476) * x));
  return x;
}

// A block computes a tile of c. Its warps share the sums: warp w takes chunks w, w + warps,
// ..., and in the end the warps' parts are added in order. A thread keeps 2 x 4 elements.
template <class S, int most>
__global__ void __launch_bounds__(32 * most, 2)
    small_product_kernel(const __grid_constant__ product p, unsigned tiles_m,
                         unsigned tiles_n) {
  using T = compute_t<S>;
  __shared__ warp_room<T> rooms[most];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int64_t j0 = int64_t(blockIdx.x % tiles_n) * tile,
                i0 = int64_t(blockIdx.x / tiles_n % tiles_m) * tile,
                batch = blockIdx.x / tiles_n / tiles_m;
  const int rows = int(min(int64_t(tile), p.m - i0)),
            columns = int(min(int64_t(tile), p.n - j0)), k = int(p.k);
  const reader ra = reader_of(lane, p.ars, p.acs), rb = reader_of(lane, p.bcs, p.brs);
  const S *a = static_cast<const S *>(p.a) + batch * p.next_a +
               (i0 + ra.across) * p.ars + (warp * chunk + ra.along) * p.acs;
  const S *b = static_cast<const S *>(p.b) + batch * p.next_b +
               (j0 + rb.across) * p.bcs + (warp * chunk + rb.along) * p.brs;
  const int64_t next_a = warps * chunk * p.acs, next_b = warps * chunk * p.brs;
  warp_room<T> &room = rooms[warp];
  const int row = lane / 4 * 2, column = lane % 4 * 4; // of this thread's elements
  const bool sums_rows = p.row_sums && j0 == 0;
  T sum[2][4] = {}, row_sum = 0, held_a[reads], held_b[reads];
  int left = k - warp * chunk; // terms from this warp's chunk on
  read_chunk(held_a, a, ra, rows, left);
  read_chunk(held_b, b, rb, columns, left);
  while (left > 0) {
    store_chunk(room.a, held_a, ra);
    store_chunk(room.b, held_b, rb);
    __syncwarp();
    a += next_a, b += next_b, left -= warps * chunk;
    read_chunk(held_a, a, ra, rows, left);
    read_chunk(held_b, b, rb, columns, left);
    for (int t = 0; sums_rows && t < chunk; t++) row_sum += room.a[t][lane % tile];
#pragma unroll 4
    for (int t = 0; t < chunk; t++) {
      const auto x = *reinterpret_cast<const pair_of<T> *>(&room.a[t][row]);
      const auto y = *reinterpret_cast<const four_of<T> *>(&room.b[t][column]);
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] += x.v[i] * y.v[j];
    }
    __syncwarp();
  }
  T *part = &room.a[0][0]; // tile x tile, in the warp's own room
  if (lane < tile) room.b[0][lane] = row_sum;
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) part[(row + i) * tile + column + j] = sum[i][j];
  __syncthreads();
  if (sums_rows && int(threadIdx.x) < rows) {
    T total = 0;
    for (int w = 0; w < warps; w++) total += rooms[w].b[0][threadIdx.x];
    static_cast<S *>(p.row_sums)[i0 + threadIdx.x] = store_as<S>(total);
  }
  for (int e = threadIdx.x; e < tile * tile; e += blockDim.x) {
    const int i = e / tile, j = e % tile;
    if (i >= rows || j >= columns) continue;
    T total = 0;
    for (int w = 0; w < warps; w++) total += (&rooms[w].a[0][0])[e];
    S *c = static_cast<S *>(p.c) + batch * p.next_c + (i0 + i) * p.crs + j0 + j;
    if (p.bias) total += load_as<T>(static_cast<const S *>(p.bias)[j0 + j]);
    if (p.accumulate) total += load_as<T>(*c);
    *c = store_as<S>(activated(total, p.after));
  }
}

int64_t tiles(int64_t n) { return (n + tile - 1) / tile; }

} // namespace

bool is_small_product(const product &p) {
  constexpr int64_t most = int64_t(1) << 24, longest = 2048;
  if (p.m > most || p.n > most || p.count > most || p.k > longest) return false;
  const int64_t blocks = tiles(p.m) * tiles(p.n); // at most 2^40
  return blocks <= most && blocks * p.count <= most / (tile * tile) &&
         blocks * p.count * (tile * tile) * p.k <= most;
}

mt_status run_small_product(const mt_call *call, const product &p) {
  const int64_t tiles_m = tiles(p.m), tiles_n = tiles(p.n);
  const int64_t blocks = tiles_m * tiles_n * p.count;
  if (blocks == 0) return MT_OK;
  return with_float(p.dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    constexpr int most = sizeof(S) == 8 ? 8 : 16; // warps: 40 KiB of shared memory
    const int chunks = int((p.k + chunk - 1) / chunk);
    const int warps = std::clamp(chunks, 1, most);
    return kernel_of<small_product_kernel<S, most>>::launch(
        {unsigned(blocks), unsigned(32 * warps), stream_of(call)}, p, unsigned(tiles_m),
        unsigned(tiles_n));
  });
}
