// kernels/cuda/line_scan.cuh -- scans along lines with any associative operator: a block a
// line where there are many, else a block a part of one, once the parts' totals are known.
#ifndef MT_CUDA_LINE_SCAN_CUH
#define MT_CUDA_LINE_SCAN_CUH

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/space.cuh"

// An operator Op has a `state` (of 8 or 16 bytes), none(), which changes nothing, and
// join(a, b), associative, a before b. It knows its tensors:
//   raw              an element of them as it is held, of `V` neighbours a piece
//   place, seek(l)   where line l lies
//   length           of a line
//   load(at, i)      the piece from element i on; what is behind the end is anything
//   of(raw, i)       the state of element i
//   store(at, i, s)  what the joined states of all up to i, i + 1, ... give there
// A thread has `U` pieces of a tile; more than one: join has to be commutative, too.
// What lies behind the end of a line changes nothing before it, so it needs no care.

constexpr int scan_threads = 256, scan_warps = scan_threads / 32;

// f(word) for each 32-bit word of x.
template <class T, class F> __device__ inline T by_words(const T &x, F f) {
  uint32_t part[sizeof(T) / 4];
  T y;
  memcpy(part, &x, sizeof x);
#pragma unroll
  for (int w = 0; w < int(sizeof(T) / 4); w++) part[w] = f(part[w]);
  memcpy(&y, part, sizeof y);
  return y;
}

// The lanes' states joined in their order: right in lane 0.
template <class Op>
__device__ inline typename Op::state join_lanes(typename Op::state s) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    s = Op::join(
        s, by_words(s, [=](uint32_t w) { return __shfl_down_sync(~0u, w, step); }));
  return s;
}

template <class Op> constexpr int64_t scan_tile = int64_t(scan_threads) * Op::U *Op::V;

template <class Op> using scan_piece = pack<typename Op::raw, Op::V>;

// A warp has neighbouring pieces: where the first of a thread is in its tile.
template <class Op> __device__ inline int64_t first_of_thread() {
  return (int64_t(threadIdx.x / 32) * Op::U * 32 + threadIdx.x % 32) * Op::V;
}

template <class Op>
__device__ inline void load_tile(scan_piece<Op> (&p)[Op::U], const Op &op,
                                 const typename Op::place &at, int64_t first) {
#pragma unroll
  for (int u = 0; u < Op::U; u++) {
    const int64_t i = first + u * 32 * Op::V;
    p[u] = i < op.length ? op.load(at, i) : scan_piece<Op>{};
  }
}

// All that the warp has, right in lane 0.
template <class Op>
__device__ inline typename Op::state join_warp(const scan_piece<Op> (&p)[Op::U],
                                               const Op &op, int64_t first) {
  typename Op::state s = op.of(p[0].at[0], first);
#pragma unroll
  for (int u = 0; u < Op::U; u++)
#pragma unroll
    for (int j = u == 0; j < Op::V; j++)
      s = Op::join(s, op.of(p[u].at[j], first + u * 32 * Op::V + j));
  return join_lanes<Op>(s);
}

// before[u]: what comes before piece u in the warp. Returns all that it has.
template <class Op>
__device__ inline typename Op::state scan_warp(typename Op::state (&before)[Op::U],
                                               const scan_piece<Op> (&p)[Op::U],
                                               const Op &op, int64_t first) {
  using state = typename Op::state;
  constexpr int U = Op::U;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int u = 0; u < U; u++) {
    before[u] = op.of(p[u].at[0], first + u * 32 * Op::V);
#pragma unroll
    for (int j = 1; j < Op::V; j++)
      before[u] = Op::join(before[u], op.of(p[u].at[j], first + u * 32 * Op::V + j));
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
#pragma unroll
    for (int u = 0; u < U; u++) {
      const state other =
          by_words(before[u], [=](uint32_t w) { return __shfl_up_sync(~0u, w, step); });
      const state both = Op::join(other, before[u]);
      if (lane >= step) before[u] = both;
    }
  state total = Op::none();
#pragma unroll
  for (int u = 0; u < U; u++) {
    const state all =
        by_words(before[u], [](uint32_t w) { return __shfl_sync(~0u, w, 31); });
    const state lanes =
        by_words(before[u], [](uint32_t w) { return __shfl_up_sync(~0u, w, 1); });
    before[u] = lane > 0 ? Op::join(total, lanes) : total;
    total = Op::join(total, all);
  }
  return total;
}

template <class Op>
__device__ inline void store_tile(const Op &op, const typename Op::place &at,
                                  int64_t first, const scan_piece<Op> (&p)[Op::U],
                                  const typename Op::state &base,
                                  const typename Op::state (&before)[Op::U]) {
#pragma unroll
  for (int u = 0; u < Op::U; u++) {
    const int64_t i = first + u * 32 * Op::V;
    typename Op::state s[Op::V], running = Op::join(base, before[u]);
#pragma unroll
    for (int j = 0; j < Op::V; j++)
      s[j] = running = Op::join(running, op.of(p[u].at[j], i + j));
    if (i < op.length) op.store(at, i, s);
  }
}

// A block a line, tile after tile.
template <class Op>
__global__ void __launch_bounds__(scan_threads)
    scan_lines_kernel(const __grid_constant__ Op op, int64_t lines) {
  using state = typename Op::state;
  __shared__ state total[2][scan_warps]; // by turns, so that a tile needs one barrier
  const int warp = threadIdx.x / 32;
  int turn = 0;
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const typename Op::place at = op.seek(line);
    state carried = Op::none();
    for (int64_t from = 0; from < op.length; from += scan_tile<Op>, turn ^= 1) {
      const int64_t first = from + first_of_thread<Op>();
      scan_piece<Op> p[Op::U];
      state before[Op::U];
      load_tile(p, op, at, first);
      const state all = scan_warp(before, p, op, first);
      if (threadIdx.x % 32 == 0) total[turn][warp] = all;
      __syncthreads();
      state base = carried;
#pragma unroll
      for (int w = 0; w < scan_warps; w++) {
        if (w == warp) base = carried;
        carried = Op::join(carried, total[turn][w]);
      }
      store_tile(op, at, first, p, base, before);
    }
  }
}

struct scan_parts {
  int64_t lines, each; // elements of a part: whole tiles
};

// What the parts before this block's join to, in all threads.
template <class Op>
__device__ inline typename Op::state join_before(const typename Op::state *totals) {
  using state = typename Op::state;
  __shared__ state of_warp[scan_warps];
  const int n = int(blockIdx.y), each = (n + scan_threads - 1) / scan_threads;
  const int first = int(threadIdx.x) * each;
  state s = Op::none();
  for (int k = first; k < first + each && k < n; k++) s = Op::join(s, totals[k]);
  s = join_lanes<Op>(s);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
  __syncthreads();
  s = of_warp[0];
#pragma unroll
  for (int w = 1; w < scan_warps; w++) s = Op::join(s, of_warp[w]);
  return s;
}

// The same for parts of lines; blockIdx = (line, part). Fill: the line is written, else the
// part's total is.
template <class Op, bool Fill>
__global__ void __launch_bounds__(scan_threads)
    scan_parts_kernel(typename Op::state *totals, const __grid_constant__ Op op,
                      scan_parts q) {
  using state = typename Op::state;
  __shared__ state total[2][scan_warps]; // by turns, so that a tile needs one barrier
  const int warp = threadIdx.x / 32;
  int turn = 0;
  for (int64_t line = blockIdx.x; line < q.lines; line += gridDim.x) {
    const typename Op::place at = op.seek(line);
    const int64_t begin = blockIdx.y * q.each;
    const int64_t end = begin + q.each < op.length ? begin + q.each : op.length;
    state carried = Op::none();
    if (Fill) carried = join_before<Op>(totals + line * gridDim.y);
    for (int64_t from = begin; from < end; from += scan_tile<Op>, turn ^= 1) {
      const int64_t first = from + first_of_thread<Op>();
      scan_piece<Op> p[Op::U];
      state before[Op::U];
      load_tile(p, op, at, first);
      const state all =
          Fill ? scan_warp(before, p, op, first) : join_warp(p, op, first);
      if (threadIdx.x % 32 == 0) total[turn][warp] = all;
      __syncthreads();
      state base = carried;
#pragma unroll
      for (int w = 0; w < scan_warps; w++) {
        if (w == warp) base = carried;
        carried = Op::join(carried, total[turn][w]);
      }
      if (Fill) store_tile(op, at, first, p, base, before);
    }
    if (!Fill && threadIdx.x == 0) totals[line * gridDim.y + blockIdx.y] = carried;
  }
}

// ---- host side ------------------------------------------------------------------------

inline mt_view without_dim(const mt_view *v, int dim) {
  mt_view rest = *v;
  rest.ndim = 0;
  for (int d = 0; d < v->ndim; d++)
    if (d != dim)
      rest.shape[rest.ndim] = v->shape[d], rest.stride[rest.ndim++] = v->stride[d];
  rest.host = 0;
  return rest;
}

// Elements of a part: all of a line, or less where lines are few and long. Twelve parts a
// multiprocessor: whole rounds, if 2, 3, 4 or 6 blocks run at once.
template <class Op> int64_t part_of_line(int64_t lines, int64_t length, int device) {
  const int64_t busy = int64_t(multiprocessors(device)) * 12, tile = scan_tile<Op>;
  const int64_t tiles = (length + tile - 1) / tile;
  int64_t parts = std::min(busy / std::max<int64_t>(lines, 1), tiles / 4);
  parts = std::max<int64_t>(parts, 1);
  return parts == 1 ? length : (tiles + parts - 1) / parts * tile;
}
template <class Op> int64_t parts_of_line(int64_t lines, int64_t length, int device) {
  const int64_t each = part_of_line<Op>(lines, length, device);
  return length > 0 ? (length + each - 1) / each : 1;
}

template <class Op>
size_t line_scan_scratch(int64_t lines, int64_t length, int device) {
  const int64_t parts = parts_of_line<Op>(lines, length, device);
  return parts > 1 ? size_t(lines * parts) * sizeof(typename Op::state) : 0;
}

template <class Op>
mt_status launch_line_scan(const mt_call *call, const Op &op, int64_t lines) {
  using state = typename Op::state;
  const cudaStream_t stream = stream_of(call);
  const scan_parts q = {lines, part_of_line<Op>(lines, op.length, call->device)};
  const int64_t parts = parts_of_line<Op>(lines, op.length, call->device);
  const dim3 grid(unsigned(lines < INT32_MAX ? lines : INT32_MAX), unsigned(parts));
  if (parts == 1) {
    scan_lines_kernel<Op><<<grid.x, scan_threads, 0, stream>>>(op, lines);
    return launched();
  }
  state *totals = static_cast<state *>(call->scratch);
  scan_parts_kernel<Op, false><<<grid, scan_threads, 0, stream>>>(totals, op, q);
  if (const mt_status status = launched()) return status;
  scan_parts_kernel<Op, true><<<grid, scan_threads, 0, stream>>>(totals, op, q);
  return launched();
}

#endif
