// kernels/cuda/reduce.cuh -- reductions over any set of dims: a reducer R says how values
// are gathered; three kernels walk memory: along rows, down columns, or by any strides.
// Several blocks may share a row; then partial results are joined by a second launch, in a
// fixed order: no atomics, the same result each time.
#ifndef MT_CUDA_REDUCE_CUH
#define MT_CUDA_REDUCE_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/space.cuh"

// A reducer R<S> for elements stored as S:
//   struct part                  what is gathered; whole words, no padding
//   struct local                 the same as one thread holds it, positions in 32 bits
//   static local none()          of no elements
//   void begin(S)                the row's first element, before any is fed
//   void feed(local &, S, int i) i: position from where the split begins
//   static part close(const local &, int64_t base)  base: where the split begins
//   static void join(part &, const part &)
//   void finish(const part &, int64_t n, int64_t at, void *const *out)

// For reducers that know no positions.
template <class P> struct without_positions {
  using part = P;
  using local = P;
  static __device__ P close(const P &p, int64_t) { return p; }
};

struct reduce_space {
  int64_t kept, reduced;        // numbers of elements
  space<1> kept_at, reduced_at; // offsets into x
};

template <class R>
__device__ inline void join_warp(typename R::part &p, int lanes = 32) {
  constexpr int words = int(sizeof(typename R::part) / 4);
  for (int step = lanes / 2; step > 0; step /= 2) {
    typename R::part other;
    const int *from = reinterpret_cast<const int *>(&p);
    int *to = reinterpret_cast<int *>(&other);
#pragma unroll
    for (int w = 0; w < words; w++) to[w] = __shfl_down_sync(~0u, from[w], step);
    R::join(p, other);
  }
}

// Joins what the threads of one row (blockDim.x of them, 32 to 512) hold, in an order of
// their numbers alone; thread 0 of the row has the result.
template <class R> __device__ inline void join_row(typename R::part &p) {
  __shared__ typename R::part held[16];
  join_warp<R>(p);
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (warps == 1) return;
  const int base = threadIdx.y * warps;
  __syncthreads();
  if (lane == 0) held[base + threadIdx.x / 32] = p;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  p = lane < warps ? held[base + lane] : R::close(R::none(), 0);
  join_warp<R>(p, 16);
}

struct outputs {
  void *at[2];
};

// What a block does for a row: its split of what is reduced, and where the result goes.
template <class R> struct reduce_job {
  R r;
  typename R::part *partial; // [kept][splits]; NULL: one split, whose result is final
  outputs out;
  int64_t per_split;

  __device__ int64_t begin() const { return blockIdx.y * per_split; }
  __device__ int length(const reduce_space &s) const {
    const int64_t rest = s.reduced - begin();
    return int(rest < per_split ? rest : per_split);
  }
  __device__ void deliver(R &with, const typename R::part &p, int64_t row,
                          const reduce_space &s) const {
    if (partial)
      partial[row * gridDim.y + blockIdx.y] = p;
    else
      with.finish(p, s.reduced, row, out.at);
  }
};

// What is reduced lies side by side: pieces of 16 bytes, and what lies before and behind
// them.
template <class R, class S>
__global__ void __launch_bounds__(512)
    reduce_rows_kernel(const __grid_constant__ reduce_job<R> job, const S *x,
                       const __grid_constant__ reduce_space s) {
  constexpr int V = 16 / int(sizeof(S));
  struct alignas(16) piece {
    S at[V];
  };
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < s.kept; row += int64_t(gridDim.x) * blockDim.y) {
    R r = job.r;
    typename R::local p = R::none();
    if (row < s.kept) {
      int64_t base;
      seek(s.kept_at, row, &base);
      r.begin(x[base]);
      const S *from = x + base + job.begin();
      const int length = job.length(s), step = blockDim.x * V;
      const int gap = int(-reinterpret_cast<uintptr_t>(from) & 15) / int(sizeof(S));
      const int head = gap < length ? gap : length;
      const int behind = head + (length - head) / V * V;
      if (int(threadIdx.x) < head) r.feed(p, from[threadIdx.x], threadIdx.x);
      int i = head + threadIdx.x * V;
      for (; i + step < behind; i += 2 * step) {
        const piece a = *reinterpret_cast<const piece *>(from + i);
        const piece b = *reinterpret_cast<const piece *>(from + i + step);
#pragma unroll
        for (int j = 0; j < V; j++) r.feed(p, a.at[j], i + j);
#pragma unroll
        for (int j = 0; j < V; j++) r.feed(p, b.at[j], i + step + j);
      }
      if (i < behind) {
        const piece a = *reinterpret_cast<const piece *>(from + i);
#pragma unroll
        for (int j = 0; j < V; j++) r.feed(p, a.at[j], i + j);
      }
      if (behind + int(threadIdx.x) < length)
        r.feed(p, from[behind + threadIdx.x], behind + threadIdx.x);
    }
    typename R::part whole = R::close(p, job.begin());
    join_row<R>(whole);
    if (threadIdx.x == 0 && row < s.kept) job.deliver(r, whole, row, s);
  }
}

// A thread has V neighbouring columns; those of one x share their rows. blockDim = (32, 16).
template <class R, class S, int V>
__global__ void __launch_bounds__(512)
    reduce_columns_kernel(const __grid_constant__ reduce_job<R> job, const S *x,
                          const __grid_constant__ reduce_space s) {
  struct alignas(sizeof(S) * V) piece {
    S at[V];
  };
  __shared__ typename R::part held[16][V][32];
  for (int64_t first = int64_t(blockIdx.x) * 32 * V; first < s.kept;
       first += int64_t(gridDim.x) * 32 * V) {
    const int64_t column = first + threadIdx.x * V;
    R r[V];
    typename R::local p[V];
#pragma unroll
    for (int k = 0; k < V; k++) r[k] = job.r, p[k] = R::none();
    if (column < s.kept) {
      int64_t base;
      seek(s.kept_at, column, &base);
      const S *from = x + base;
#pragma unroll
      for (int k = 0; k < V; k++) r[k].begin(from[k]);
      const int64_t begin = job.begin();
      const int length = job.length(s);
      int i = threadIdx.y;
      if (s.reduced_at.ndim <= 1) {
        const int64_t step = s.reduced_at.ndim ? s.reduced_at.stride[0][0] : 0;
        from += begin * step;
        for (; i + 48 < length; i += 64) {
          piece v[4];
#pragma unroll
          for (int j = 0; j < 4; j++)
            v[j] = *reinterpret_cast<const piece *>(from + (i + 16 * j) * step);
#pragma unroll
          for (int j = 0; j < 4; j++)
#pragma unroll
            for (int k = 0; k < V; k++) r[k].feed(p[k], v[j].at[k], i + 16 * j);
        }
        for (; i < length; i += 16) {
          const piece v = *reinterpret_cast<const piece *>(from + i * step);
#pragma unroll
          for (int k = 0; k < V; k++) r[k].feed(p[k], v.at[k], i);
        }
      } else {
        for (; i < length; i += 16) {
          int64_t offset;
          seek(s.reduced_at, begin + i, &offset);
          const piece v = *reinterpret_cast<const piece *>(from + offset);
#pragma unroll
          for (int k = 0; k < V; k++) r[k].feed(p[k], v.at[k], i);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < V; k++)
      held[threadIdx.y][k][threadIdx.x] = R::close(p[k], job.begin());
    __syncthreads();
    // thread rows 0 .. V - 1 have a column of each x
    if (threadIdx.y < V && column < s.kept) {
      typename R::part whole = held[0][threadIdx.y][threadIdx.x];
      for (int y = 1; y < 16; y++) R::join(whole, held[y][threadIdx.y][threadIdx.x]);
#pragma unroll
      for (int k = 0; k < V; k++)
        if (int(threadIdx.y) == k) job.deliver(r[k], whole, column + k, s);
    }
    __syncthreads();
  }
}

// Rows whose elements lie anywhere.
template <class R, class S>
__global__ void __launch_bounds__(512)
    reduce_strided_kernel(const __grid_constant__ reduce_job<R> job, const S *x,
                          const __grid_constant__ reduce_space s) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < s.kept; row += int64_t(gridDim.x) * blockDim.y) {
    R r = job.r;
    typename R::local p = R::none();
    if (row < s.kept) {
      int64_t base;
      seek(s.kept_at, row, &base);
      const S *from = x + base;
      r.begin(from[0]);
      for (int i = threadIdx.x; i < job.length(s); i += blockDim.x) {
        int64_t offset;
        seek(s.reduced_at, job.begin() + i, &offset);
        r.feed(p, from[offset], i);
      }
    }
    typename R::part whole = R::close(p, job.begin());
    join_row<R>(whole);
    if (threadIdx.x == 0 && row < s.kept) job.deliver(r, whole, row, s);
  }
}

// Joins the splits of each row, a warp a row.
template <class R, class S>
__global__ void __launch_bounds__(256)
    reduce_join_kernel(const __grid_constant__ reduce_job<R> job, const S *x,
                       const __grid_constant__ reduce_space s, int splits) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < s.kept;
       row += int64_t(gridDim.x) * blockDim.y) {
    R r = job.r;
    int64_t base;
    seek(s.kept_at, row, &base);
    r.begin(x[base]);
    const int each = (splits + 31) / 32, first = threadIdx.x * each;
    typename R::part p = R::close(R::none(), 0);
    for (int i = first; i < first + each && i < splits; i++)
      R::join(p, job.partial[row * splits + i]);
    join_warp<R>(p);
    if (threadIdx.x == 0) r.finish(p, s.reduced, row, job.out.at);
  }
}

// Results of nothing: what finish makes of no elements.
template <class R> __global__ void reduce_empty_kernel(R r, int64_t kept, outputs out) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < kept) r.finish(R::close(R::none(), 0), 0, i, out.at);
}

// ---- host side ------------------------------------------------------------------------

// Which dims of x the attribute names: n = -1: all. Bit d: dim d.
inline uint32_t reduced_dims(const mt_view *x, const mt_attr *dim) {
  if (dim->n < 0) return (1u << x->ndim) - 1u;
  uint32_t bits = 0;
  for (int k = 0; k < dim->n; k++)
    if (x->ndim > 0) bits |= 1u << dim->i[k];
  return bits;
}

inline reduce_space make_reduce_space(const mt_view *x, uint32_t dims) {
  mt_view kept = *x, reduced = *x;
  kept.ndim = reduced.ndim = 0;
  for (int d = 0; d < x->ndim; d++) {
    mt_view *v = dims >> d & 1u ? &reduced : &kept;
    v->shape[v->ndim] = x->shape[d], v->stride[v->ndim++] = x->stride[d];
  }
  reduce_space s;
  const mt_view *const kept_view[1] = {&kept}, *const reduced_view[1] = {&reduced};
  kept.host = reduced.host = 0;
  s.kept_at = make_space(kept_view, true);
  s.reduced_at = make_space(reduced_view, true);
  s.kept = s.kept_at.numel, s.reduced = s.reduced_at.numel;
  return s;
}

struct reduce_shape {
  enum { rows, columns, strided } walk;
  dim3 block;
  unsigned grid;
  int splits, width; // columns a thread
  int64_t per_split;
};

// May a thread read `width` neighbouring columns at once?
inline bool columns_aligned(const mt_view *x, const reduce_space &s, int width) {
  if (reinterpret_cast<uintptr_t>(x->data) % size_t(width * dtype_size(x->dtype)))
    return false;
  if (s.kept_at.size[0] % width) return false;
  for (int d = 1; d < s.kept_at.ndim; d++)
    if (s.kept_at.stride[0][d] % width) return false;
  for (int d = 0; d < s.reduced_at.ndim; d++)
    if (s.reduced_at.stride[0][d] % width) return false;
  return true;
}

constexpr int columns_width(int64_t size) { return size > 4 ? 2 : 4; }

// Threads a row, rows a block, blocks a row: enough blocks to fill the device.
inline reduce_shape choose_shape(const mt_view *x, const reduce_space &s, int device,
                                 bool rare) {
  reduce_shape c;
  const int64_t busy = int64_t(multiprocessors(device)) * 8; // blocks
  const int64_t stride = s.reduced_at.ndim > 0 ? s.reduced_at.stride[0][0] : 1;
  if (rare)
    c.walk = reduce_shape::strided;
  else if (s.reduced_at.ndim <= 1 && (stride == 1 || s.reduced == 1))
    c.walk = reduce_shape::rows;
  else if (s.kept_at.ndim > 0 && s.kept_at.stride[0][0] == 1 && s.kept_at.size[0] >= 16)
    c.walk = reduce_shape::columns;
  else
    c.walk = reduce_shape::strided;
  int64_t least; // elements that a block should have
  int64_t blocks;
  c.width = 1;
  if (c.walk == reduce_shape::columns) {
    const int width = columns_width(dtype_size(x->dtype));
    if (s.kept >= 32 * width && columns_aligned(x, s, width)) c.width = width;
    c.block = dim3(32, 16);
    blocks = (s.kept + 32 * c.width - 1) / (32 * c.width);
    least = 64;
  } else {
    unsigned threads = 512;
    while (threads > 32 && int64_t(threads) * 8 > s.reduced) threads /= 2;
    c.block = dim3(threads, 512 / threads);
    blocks = 1;
    if (s.kept <= c.block.y)
      c.block.y = unsigned(s.kept < 1 ? 1 : s.kept);
    else
      blocks = (s.kept + c.block.y - 1) / c.block.y;
    least = int64_t(threads) * 16;
  }
  c.splits = 1, c.per_split = s.reduced;
  if (s.reduced >= 2 * least) { // a division is what a small op has no time for
    int64_t splits = blocks < busy ? busy / (blocks > 0 ? blocks : 1) : 1;
    splits = std::clamp<int64_t>(std::min(splits, s.reduced / least), 1, 1024);
    c.per_split = (s.reduced + splits - 1) / splits;
  }
  c.per_split = (c.per_split + 15) / 16 * 16;       // pieces stay aligned
  if (c.per_split > 1 << 30) c.per_split = 1 << 30; // positions in one fit 32 bits
  if (c.per_split < s.reduced)
    c.splits = int((s.reduced + c.per_split - 1) / c.per_split);
  c.grid = unsigned(blocks < INT32_MAX ? (blocks > 0 ? blocks : 1) : INT32_MAX);
  return c;
}

// may_be_rare: launch_reduce may be told so.
template <class R>
size_t reduce_scratch(const mt_view *x, uint32_t dims, int device, bool may_be_rare) {
  if (numel(x) < 128) return 0; // fewer than two splits of 64
  const reduce_space s = make_reduce_space(x, dims);
  if (s.kept == 0 || s.reduced == 0) return 0;
  int splits = choose_shape(x, s, device, false).splits;
  if (may_be_rare) splits = std::max(splits, choose_shape(x, s, device, true).splits);
  return splits > 1 ? size_t(s.kept) * size_t(splits) * sizeof(typename R::part) : 0;
}

// Rare: kernels for any strides do, which saves compiling the others.
template <class R, class S, bool Rare = false>
mt_status launch_reduce(const mt_call *call, const R &r, const mt_view *x,
                        uint32_t dims, void *first, void *second = nullptr) {
  [[maybe_unused]] constexpr int width = columns_width(sizeof(S));
  const reduce_space s = make_reduce_space(x, dims);
  const cudaStream_t stream = stream_of(call);
  reduce_job<R> job = {r, nullptr, {{first, second}}, 0};
  if (s.kept == 0) return MT_OK;
  if (s.reduced == 0) {
    reduce_empty_kernel<<<unsigned((s.kept + 255) / 256), 256, 0, stream>>>(r, s.kept,
                                                                            job.out);
    return launched();
  }
  const reduce_shape c = choose_shape(x, s, call->device, Rare);
  const S *from = reinterpret_cast<const S *>(x->data);
  const launch_shape shape = {dim3(c.grid, unsigned(c.splits)), c.block, stream};
  job.per_split = c.per_split;
  if (c.splits > 1) job.partial = static_cast<typename R::part *>(call->scratch);
  mt_status status = MT_OK;
  if (c.walk == reduce_shape::strided)
    status = kernel_of<reduce_strided_kernel<R, S>>::launch(shape, job, from, s);
  if constexpr (!Rare) {
    if (c.walk == reduce_shape::rows)
      status = kernel_of<reduce_rows_kernel<R, S>>::launch(shape, job, from, s);
    else if (c.walk == reduce_shape::columns && c.width == width)
      status =
          kernel_of<reduce_columns_kernel<R, S, width>>::launch(shape, job, from, s);
    else if (c.walk == reduce_shape::columns)
      status = kernel_of<reduce_columns_kernel<R, S, 1>>::launch(shape, job, from, s);
  }
  if (status != MT_OK || !job.partial) return status;
  const int64_t blocks = (s.kept + 7) / 8;
  reduce_join_kernel<R, S>
      <<<unsigned(blocks < 65535 ? blocks : 65535), dim3(32, 8), 0, stream>>>(
          job, from, s, c.splits);
  return launched();
}

#endif
