// kernels/cuda/line_scan.cuh -- scans along lines with any associative operator: a block a
// line where there are many, else a block a tile: lines are read once.
#ifndef MT_CUDA_LINE_SCAN_CUH
#define MT_CUDA_LINE_SCAN_CUH

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/space.cuh"
#include "kernels/cuda/tile_prefix.cuh"

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

// Blocks take one tile after the other, in order. Each is read and given to the others
// `scan_lag` turns before it is written: by then what comes before it is known.
constexpr int scan_lag = 3, scan_blocks = 3;

template <class Op>
constexpr int scan_room = // bytes: a tile as it is held, for each turn
    (scan_lag + 1) * Op::U *scan_threads *int(sizeof(scan_piece<Op>));

template <class Op>
__global__ void __launch_bounds__(scan_threads, scan_blocks)
    scan_tiles_kernel(const __grid_constant__ Op op, const tile_prefix<Op> others,
                      unsigned *begun, unsigned tiles) {
  using state = typename Op::state;
  constexpr int U = Op::U, L = scan_lag;
  using held_tile = scan_piece<Op>[U][scan_threads];
  extern __shared__ __align__(128) char room[];
  held_tile *const held = reinterpret_cast<held_tile *>(room);
  __shared__ state total[L + 1][scan_warps], prefix;
  __shared__ unsigned taken;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned in_line = unsigned(others.tiles);
  const auto first_of = [&](unsigned tile) {
    return int64_t(tile % in_line) * scan_tile<Op> + first_of_thread<Op>();
  };
  const auto take = [&] {
    if (threadIdx.x == 0) taken = atomicAdd(begun, 1u);
    __syncthreads();
    const unsigned tile = taken;
    __syncthreads();
    return tile;
  };
  scan_piece<Op> p[U];
  unsigned here = take(), last[L]; // tiles given: a turn ago, two, ...
#pragma unroll
  for (int i = 0; i < L; i++) last[i] = ~0u;
  if (here < tiles) load_tile(p, op, op.seek(here / in_line), first_of(here));
  unsigned next = take();
  for (int turn = 0;; turn = turn == L ? 0 : turn + 1) {
    const int old = turn == L ? 0 : turn + 1;
    const unsigned due = last[L - 1];
    if (here < tiles) {
      const state all = join_warp(p, op, first_of(here));
      if (lane == 0) total[turn][warp] = all;
#pragma unroll
      for (int u = 0; u < U; u++) held[turn][u][threadIdx.x] = p[u];
      if (next < tiles) load_tile(p, op, op.seek(next / in_line), first_of(next));
    }
    __syncthreads();
    if (warp == 0) {
      unsigned number = 0; // on its way meanwhile
      if (lane == 0) number = atomicAdd(begun, 1u);
      if (due < tiles) {
        const state s = others.before(due / in_line, due % in_line);
        if (lane == 0) prefix = s;
      }
      if (lane == 0) taken = number;
    }
    if (warp == 1 && here < tiles) {
      const state own =
          join_lanes<Op>(lane < scan_warps ? total[turn][lane] : Op::none());
      others.give(here / in_line, here % in_line, own);
    }
    const auto held_pieces = [&](scan_piece<Op>(&q)[U]) {
#pragma unroll
      for (int u = 0; u < U; u++) q[u] = held[old][u][threadIdx.x];
    };
    state before[U], base = Op::none();
    if (due < tiles) {
      scan_piece<Op> q[U];
      held_pieces(q);
      for (int w = 0; w < warp; w++) base = Op::join(base, total[old][w]);
      scan_warp(before, q, op, first_of(due));
    }
    __syncthreads();
    if (due < tiles) {
      scan_piece<Op> q[U];
      held_pieces(q); // once more: registers are few
      base = Op::join(prefix, base);
      store_tile(op, op.seek(due / in_line), first_of(due), q, base, before);
    }
    bool more = here < tiles;
#pragma unroll
    for (int i = L - 1; i > 0; i--) {
      last[i] = last[i - 1];
      more = more || last[i] < tiles;
    }
    last[0] = here;
    if (!more) return;
    here = next, next = taken;
  }
}

// ---- host side ------------------------------------------------------------------------

// Do several blocks share a line? Where there are few, and long ones.
template <class Op> bool shares_lines(int64_t lines, int64_t length, int device) {
  return lines <= int64_t(multiprocessors(device)) * 4 && length > 4 * scan_tile<Op>;
}

template <class Op> int64_t tiles_of_line(int64_t length) {
  return (length + scan_tile<Op> - 1) / scan_tile<Op>;
}

template <class Op>
size_t line_scan_scratch(int64_t lines, int64_t length, int device) {
  if (!shares_lines<Op>(lines, length, device)) return 0;
  return lay_out_tiles<Op>(nullptr, lines, tiles_of_line<Op>(length)).bytes;
}

// Some devices have too little shared memory for it.
template <class Op> bool has_scan_room() {
  if (cudaFuncSetAttribute(scan_tiles_kernel<Op>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                           scan_room<Op>) == cudaSuccess)
    return true;
  cudaGetLastError();
  return false;
}

template <class Op>
mt_status launch_line_scan(const mt_call *call, const Op &op, int64_t lines) {
  const cudaStream_t stream = stream_of(call);
  if (!shares_lines<Op>(lines, op.length, call->device) || !has_scan_room<Op>()) {
    const unsigned grid = unsigned(lines < INT32_MAX ? lines : INT32_MAX);
    scan_lines_kernel<Op><<<grid, scan_threads, 0, stream>>>(op, lines);
    return launched();
  }
  const int64_t in_line = tiles_of_line<Op>(op.length), tiles = lines * in_line;
  if (tiles > INT32_MAX)
    return cuda_fail_text(MT_EUNSUPPORTED, "a scan of more than 2^31 tiles");
  const tile_scratch<Op> r = lay_out_tiles<Op>(call->scratch, lines, in_line);
  CUDA_TRY(cudaMemsetAsync(call->scratch, 0, r.bytes, stream));
  const int64_t busy = int64_t(multiprocessors(call->device)) * scan_blocks;
  scan_tiles_kernel<Op>
      <<<unsigned(tiles < busy ? tiles : busy), scan_threads, scan_room<Op>, stream>>>(
          op, r.prefix, r.begun, unsigned(tiles));
  return launched();
}

#endif
