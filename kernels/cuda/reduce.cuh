// kernels/cuda/reduce.cuh -- reductions over any set of dims: a reducer R says how values
// are gathered; three kernels walk memory: along rows, down columns, or by any strides.
// Several blocks may share a row; then partial results are joined by a second launch, in a
// fixed order: no atomics, the same result each time.
#ifndef MT_CUDA_REDUCE_CUH
#define MT_CUDA_REDUCE_CUH

#include "kernels/cuda/space.cuh"

// A reducer R<S> for elements stored as S:
//   struct part                     what is gathered; trivially copyable
//   static part none()              of no elements
//   void feed(part &, S, int64_t i) i: position within what is reduced, from 0
//   static void join(part &, const part &)  the second one's elements come later
//   void finish(const part &, int64_t n, int64_t at, void *const *out)

struct reduce_space {
  int64_t kept, reduced;        // numbers of elements
  space<1> kept_at, reduced_at; // offsets into x
};

template <class R> __device__ inline void join_warp(typename R::part &p) {
  constexpr int words = int(sizeof(typename R::part) / 4);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    typename R::part other;
    const int *from = reinterpret_cast<const int *>(&p);
    int *to = reinterpret_cast<int *>(&other);
#pragma unroll
    for (int w = 0; w < words; w++) to[w] = __shfl_down_sync(~0u, from[w], step);
    R::join(p, other);
  }
}

// Joins what the threads of one row (blockDim.x of them, a multiple of 32) hold, in the
// order of their numbers; thread 0 of the row has the result.
template <class R> __device__ inline void join_row(typename R::part &p) {
  __shared__ typename R::part held[32];
  join_warp<R>(p);
  const int warps = blockDim.x / 32;
  if (warps == 1) return;
  const int warp = threadIdx.x / 32, base = threadIdx.y * warps;
  __syncthreads();
  if (threadIdx.x % 32 == 0) held[base + warp] = p;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < warps; w++) R::join(p, held[base + w]);
}

struct outputs {
  void *at[2];
};

// Row r, split k: what is reduced lies side by side. A thread takes neighbouring pieces of
// V elements so that positions grow with the thread's number within a step.
template <class R, class S, int V>
__global__ void __launch_bounds__(512)
    reduce_rows_kernel(R r, const S *x, const __grid_constant__ reduce_space s,
                       typename R::part *partial, outputs out, int64_t per_split) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < s.kept; row += int64_t(gridDim.x) * blockDim.y) {
    typename R::part p = R::none();
    if (row < s.kept) {
      int64_t base;
      seek(s.kept_at, row, &base);
      const S *from = x + base;
      r.begin(from[0]);
      const int64_t first = blockIdx.y * per_split;
      const int64_t last =
          first + per_split < s.reduced ? first + per_split : s.reduced;
      int64_t i = first + int64_t(threadIdx.x) * V;
      if constexpr (V > 1) {
        const int64_t step = int64_t(blockDim.x) * V;
        for (; i + step + V <= last; i += 2 * step) {
          struct alignas(sizeof(S) * V) pack {
            S at[V];
          };
          const pack a = *reinterpret_cast<const pack *>(from + i);
          const pack b = *reinterpret_cast<const pack *>(from + i + step);
#pragma unroll
          for (int j = 0; j < V; j++) r.feed(p, a.at[j], i + j);
#pragma unroll
          for (int j = 0; j < V; j++) r.feed(p, b.at[j], i + step + j);
        }
        for (; i < last; i += step)
          for (int j = 0; j < V && i + j < last; j++) r.feed(p, from[i + j], i + j);
      } else {
        for (; i < last; i += blockDim.x) r.feed(p, from[i], i);
      }
    }
    join_row<R>(p);
    if (threadIdx.x == 0 && row < s.kept) {
      if (partial)
        partial[row * gridDim.y + blockIdx.y] = p;
      else
        r.finish(p, s.reduced, row, out.at);
    }
  }
}

// Thread x: a column; threads of one x share its rows. blockDim = (32, 16).
template <class R, class S>
__global__ void __launch_bounds__(512)
    reduce_columns_kernel(R r, const S *x, const __grid_constant__ reduce_space s,
                          typename R::part *partial, outputs out, int64_t per_split) {
  __shared__ typename R::part held[16][33];
  for (int64_t first = int64_t(blockIdx.x) * 32; first < s.kept;
       first += int64_t(gridDim.x) * 32) {
    const int64_t column = first + threadIdx.x;
    typename R::part p = R::none();
    if (column < s.kept) {
      int64_t base;
      seek(s.kept_at, column, &base);
      const S *from = x + base;
      r.begin(from[0]);
      const int64_t begin = blockIdx.y * per_split;
      const int64_t end = begin + per_split < s.reduced ? begin + per_split : s.reduced;
      // neighbouring rows per thread row, so that threads' parts join in order
      const int64_t each = (end - begin + blockDim.y - 1) / blockDim.y;
      int64_t i = begin + threadIdx.y * each;
      const int64_t stop = i + each < end ? i + each : end;
      if (s.reduced_at.ndim == 1) {
        const int64_t step = s.reduced_at.stride[0][0];
        for (; i + 4 <= stop; i += 4) {
          S v[4];
#pragma unroll
          for (int j = 0; j < 4; j++) v[j] = from[(i + j) * step];
#pragma unroll
          for (int j = 0; j < 4; j++) r.feed(p, v[j], i + j);
        }
        for (; i < stop; i++) r.feed(p, from[i * step], i);
      } else {
        for (; i < stop; i++) {
          int64_t offset;
          seek(s.reduced_at, i, &offset);
          r.feed(p, from[offset], i);
        }
      }
    }
    held[threadIdx.y][threadIdx.x] = p;
    __syncthreads();
    if (threadIdx.y == 0 && column < s.kept) {
      for (int y = 1; y < int(blockDim.y); y++) R::join(p, held[y][threadIdx.x]);
      if (partial)
        partial[column * gridDim.y + blockIdx.y] = p;
      else
        r.finish(p, s.reduced, column, out.at);
    }
    __syncthreads();
  }
}

// Rows whose elements lie anywhere.
template <class R, class S>
__global__ void __launch_bounds__(512)
    reduce_strided_kernel(R r, const S *x, const __grid_constant__ reduce_space s,
                          typename R::part *partial, outputs out, int64_t per_split) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
       row - threadIdx.y < s.kept; row += int64_t(gridDim.x) * blockDim.y) {
    typename R::part p = R::none();
    if (row < s.kept) {
      int64_t base;
      seek(s.kept_at, row, &base);
      const S *from = x + base;
      r.begin(from[0]);
      const int64_t first = blockIdx.y * per_split;
      const int64_t last =
          first + per_split < s.reduced ? first + per_split : s.reduced;
      for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) {
        int64_t offset;
        seek(s.reduced_at, i, &offset);
        r.feed(p, from[offset], i);
      }
    }
    join_row<R>(p);
    if (threadIdx.x == 0 && row < s.kept) {
      if (partial)
        partial[row * gridDim.y + blockIdx.y] = p;
      else
        r.finish(p, s.reduced, row, out.at);
    }
  }
}

// Joins the splits of each row, a warp a row.
template <class R, class S>
__global__ void __launch_bounds__(256)
    reduce_join_kernel(R r, const S *x, const __grid_constant__ reduce_space s,
                       const typename R::part *partial, int splits, outputs out) {
  for (int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; row < s.kept;
       row += int64_t(gridDim.x) * blockDim.y) {
    int64_t base;
    seek(s.kept_at, row, &base);
    r.begin(x[base]);
    const int each = (splits + 31) / 32;
    typename R::part p = R::none();
    for (int i = threadIdx.x * each; i < (int(threadIdx.x) + 1) * each && i < splits;
         i++)
      R::join(p, partial[row * splits + i]);
    join_warp<R>(p);
    if (threadIdx.x == 0) r.finish(p, s.reduced, row, out.at);
  }
}

// Results of nothing: what finish makes of no elements.
template <class R> __global__ void reduce_empty_kernel(R r, int64_t kept, outputs out) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < kept) r.finish(R::none(), 0, i, out.at);
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
  int splits;
  int64_t per_split;
};

// Threads a row, rows a block, blocks a row: enough blocks to fill the device.
inline reduce_shape choose_shape(const reduce_space &s, int device) {
  reduce_shape c;
  const int64_t busy = int64_t(multiprocessors(device)) * 8; // blocks
  const int64_t stride = s.reduced_at.ndim > 0 ? s.reduced_at.stride[0][0] : 1;
  if (s.reduced_at.ndim <= 1 && (stride == 1 || s.reduced == 1))
    c.walk = reduce_shape::rows;
  else if (s.kept_at.ndim > 0 && s.kept_at.stride[0][0] == 1 && s.kept_at.size[0] >= 16)
    c.walk = reduce_shape::columns;
  else
    c.walk = reduce_shape::strided;
  int64_t least; // elements that a block should have
  int64_t blocks;
  if (c.walk == reduce_shape::columns) {
    c.block = dim3(32, 16);
    blocks = (s.kept + 31) / 32;
    least = 64;
  } else {
    unsigned threads = 512;
    while (threads > 32 && int64_t(threads) * 8 > s.reduced) threads /= 2;
    c.block = dim3(threads, 512 / threads);
    if (s.kept < c.block.y) c.block.y = unsigned(s.kept < 1 ? 1 : s.kept);
    blocks = (s.kept + c.block.y - 1) / c.block.y;
    least = int64_t(threads) * 16;
  }
  int64_t splits = blocks < busy ? busy / (blocks > 0 ? blocks : 1) : 1;
  if (splits > s.reduced / least) splits = s.reduced / least;
  if (splits < 1) splits = 1;
  if (splits > 1024) splits = 1024;
  c.per_split = (s.reduced + splits - 1) / splits;
  c.per_split = (c.per_split + 15) / 16 * 16; // pieces stay aligned
  c.splits = int((s.reduced + c.per_split - 1) / c.per_split);
  if (c.splits < 1) c.splits = 1;
  c.grid = unsigned(blocks < INT32_MAX ? (blocks > 0 ? blocks : 1) : INT32_MAX);
  return c;
}

template <class R> size_t reduce_scratch(const mt_view *x, uint32_t dims, int device) {
  const reduce_space s = make_reduce_space(x, dims);
  if (s.kept == 0 || s.reduced == 0) return 0;
  const reduce_shape c = choose_shape(s, device);
  return c.splits > 1 ? size_t(s.kept) * size_t(c.splits) * sizeof(typename R::part)
                      : 0;
}

// Every row begins at a multiple of V elements.
inline bool rows_aligned(const mt_view *x, const reduce_space &s, int V) {
  if (reinterpret_cast<uintptr_t>(x->data) % 16) return false;
  for (int d = 0; d < s.kept_at.ndim; d++)
    if (s.kept_at.stride[0][d] % V) return false;
  return true;
}

template <class R, class S>
mt_status launch_reduce(const mt_call *call, const R &r, const mt_view *x,
                        uint32_t dims, void *first, void *second = nullptr) {
  constexpr int V = 16 / int(sizeof(S));
  const reduce_space s = make_reduce_space(x, dims);
  const cudaStream_t stream = stream_of(call);
  const outputs out = {{first, second}};
  if (s.kept == 0) return MT_OK;
  if (s.reduced == 0) {
    reduce_empty_kernel<<<unsigned((s.kept + 255) / 256), 256, 0, stream>>>(r, s.kept,
                                                                            out);
    return launched();
  }
  const reduce_shape c = choose_shape(s, call->device);
  const S *from = reinterpret_cast<const S *>(x->data);
  const dim3 grid(c.grid, unsigned(c.splits));
  auto *partial =
      c.splits > 1 ? static_cast<typename R::part *>(call->scratch) : nullptr;
  switch (c.walk) {
  case reduce_shape::rows:
    if (V > 1 && rows_aligned(x, s, V))
      reduce_rows_kernel<R, S, V>
          <<<grid, c.block, 0, stream>>>(r, from, s, partial, out, c.per_split);
    else
      reduce_rows_kernel<R, S, 1>
          <<<grid, c.block, 0, stream>>>(r, from, s, partial, out, c.per_split);
    break;
  case reduce_shape::columns:
    reduce_columns_kernel<R, S>
        <<<grid, c.block, 0, stream>>>(r, from, s, partial, out, c.per_split);
    break;
  default:
    reduce_strided_kernel<R, S>
        <<<grid, c.block, 0, stream>>>(r, from, s, partial, out, c.per_split);
  }
  if (!partial) return launched();
  if (const mt_status status = launched()) return status;
  const int64_t blocks = (s.kept + 7) / 8;
  reduce_join_kernel<R, S>
      <<<unsigned(blocks < 65535 ? blocks : 65535), dim3(32, 8), 0, stream>>>(
          r, from, s, partial, c.splits, out);
  return launched();
}

#endif
