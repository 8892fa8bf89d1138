// kernels/cuda/line_scan.cuh -- scans along lines with any associative operator: a warp a
// short line, a block a line where there are many, else a block a tile: lines are read once.
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
// A thread has `U` pieces of a tile, 1, 2, 4, ...
// What lies behind the end of a line changes nothing before it, so it needs no care.

// What many of S are added up, or multiplied, in.
template <class S>
using wide_t =
    typename std::conditional<std::is_integral<S>::value, int64_t, double>::type;

constexpr int scan_threads = 256, scan_warps = scan_threads / 32;

template <class Op> constexpr int64_t scan_tile = int64_t(scan_threads) * Op::U *Op::V;

template <class Op> using scan_piece = pack<typename Op::raw, Op::V>;

// Where number q of a warp's U x 32 things of `Size` bytes is kept: neighbours side by side,
// and swizzled so that reading U neighbours in each thread meets other banks, too.
template <int U, int Size> __device__ inline int swizzled(int q) {
  constexpr int row = 128 / Size / U > 1 ? 128 / Size / U : 1; // threads
  return q ^ (q / U / row & (U - 1));
}

// A tile on the chip: its pieces, and what comes before each in its warp, or where that took
// much room, before each U neighbours, which one thread joins.
template <class Op> struct held_tile {
  using state = typename Op::state;
  static constexpr bool by_piece = sizeof(scan_piece<Op>) + sizeof(state) <= 16;
  scan_piece<Op> piece[scan_warps][Op::U * 32];
  state before[scan_warps][by_piece ? Op::U * 32 : 32];

  __device__ scan_piece<Op> &piece_at(int q) {
    return piece[threadIdx.x / 32][swizzled<Op::U, int(sizeof(scan_piece<Op>))>(q)];
  }
  __device__ state &before_at(int q) {
    return before[threadIdx.x / 32]
                 [by_piece ? swizzled<Op::U, int(sizeof(state))>(q) : q / Op::U];
  }
};

// Piece u of a thread: the warp's are neighbours.
__device__ inline int piece_of(int u) { return u * 32 + threadIdx.x % 32; }

// The first element of a warp that has a tile.
template <class Op> __device__ inline int64_t first_of_warp(int64_t tile) {
  return tile * scan_tile<Op> + threadIdx.x / 32 * (32 * Op::U * Op::V);
}

// Elements of a line from i on, at most those of a tile; and is a thread's piece u among
// them, where i is the first of its pieces?
template <class Op> __device__ inline int left_of(const Op &op, int64_t i) {
  return int(min(op.length - i, scan_tile<Op>));
}
template <class Op> __device__ inline bool is_inside(int left, int u) {
  return u * 32 * Op::V < left;
}

template <class Op>
__device__ inline void load_tile(scan_piece<Op> (&p)[Op::U], const Op &op,
                                 const typename Op::place &at, int64_t first) {
  const int64_t i = first + threadIdx.x % 32 * Op::V;
  const int left = left_of<Op>(op, i);
#pragma unroll
  for (int u = 0; u < Op::U; u++)
    p[u] = is_inside<Op>(left, u) ? op.load(at, i + u * 32 * Op::V) : scan_piece<Op>{};
}

template <class Op>
__device__ inline void keep_tile(held_tile<Op> &h, const scan_piece<Op> (&p)[Op::U]) {
#pragma unroll
  for (int u = 0; u < Op::U; u++) h.piece_at(piece_of(u)) = p[u];
  __syncwarp();
}

// Of the pieces kept each thread joins U neighbours, and the warp finds what comes before
// each. Returns all that the warp has, right in lane 31.
template <class Op>
__device__ inline typename Op::state join_tile(held_tile<Op> &h, const Op &op,
                                               int64_t first) {
  using state = typename Op::state;
  constexpr int U = Op::U, V = Op::V;
  const int lane = threadIdx.x % 32;
  state part[U];
#pragma unroll
  for (int u = 0; u < U; u++) {
    const int q = lane * U + u;
    const scan_piece<Op> own = h.piece_at(q);
    part[u] = op.of(own.at[0], first + q * V);
#pragma unroll
    for (int j = 1; j < V; j++)
      part[u] = Op::join(part[u], op.of(own.at[j], first + q * V + j));
  }
  state all = part[0];
#pragma unroll
  for (int u = 1; u < U; u++) all = Op::join(all, part[u]);
  all = scan_lanes<Op>(all);
  state before = by_words(all, [](uint32_t w) { return __shfl_up_sync(~0u, w, 1); });
  if (lane == 0) before = Op::none();
#pragma unroll
  for (int u = 0; u < (held_tile<Op>::by_piece ? U : 1); u++) {
    h.before_at(lane * U + u) = before;
    before = Op::join(before, part[u]);
  }
  __syncwarp();
  return all;
}

// base: what comes before the warp.
template <class Op>
__device__ inline void store_tile(held_tile<Op> &h, const Op &op,
                                  const typename Op::place &at, int64_t first,
                                  const typename Op::state &base) {
  using state = typename Op::state;
  constexpr int U = Op::U;
  const auto lane_before = [](const state &x, int step) {
    return by_words(x, [=](uint32_t w) { return __shfl_up_sync(~0u, w, step); });
  };
  const int left = left_of<Op>(op, first + threadIdx.x % 32 * Op::V);
#pragma unroll
  for (int u = 0; u < Op::U; u++) {
    const int q = piece_of(u);
    const int64_t i = first + threadIdx.x % 32 * Op::V + u * 32 * Op::V;
    const scan_piece<Op> p = h.piece_at(q);
    state s[Op::V], before = h.before_at(q);
    s[0] = op.of(p.at[0], i);
#pragma unroll
    for (int j = 1; j < Op::V; j++) s[j] = Op::join(s[j - 1], op.of(p.at[j], i + j));
    if constexpr (U > 1 && !held_tile<Op>::by_piece) { // of U lanes
      state upto = s[Op::V - 1];
#pragma unroll
      for (int step = 1; step < U; step *= 2) {
        const state both = Op::join(lane_before(upto, step), upto);
        if (threadIdx.x % U >= step) upto = both;
      }
      const state more = Op::join(before, lane_before(upto, 1));
      if (threadIdx.x % U > 0) before = more;
    }
    before = Op::join(base, before);
#pragma unroll
    for (int j = 0; j < Op::V; j++) s[j] = Op::join(before, s[j]);
    if (is_inside<Op>(left, u)) op.store(at, i, s);
  }
}

// A warp a line, of at most what it has of a tile.
template <class Op>
__global__ void __launch_bounds__(scan_threads)
    scan_short_lines_kernel(const __grid_constant__ Op op, int64_t lines) {
  __shared__ held_tile<Op> held;
  const int64_t step = int64_t(gridDim.x) * scan_warps;
  int64_t line = int64_t(blockIdx.x) * scan_warps + threadIdx.x / 32;
  for (; line < lines; line += step) {
    const typename Op::place at = op.seek(line);
    scan_piece<Op> p[Op::U];
    load_tile(p, op, at, 0);
    keep_tile(held, p);
    join_tile(held, op, 0);
    store_tile(held, op, at, 0, Op::none());
    __syncwarp();
  }
}

// A block a line, tile after tile.
template <class Op>
__global__ void __launch_bounds__(scan_threads)
    scan_lines_kernel(const __grid_constant__ Op op, int64_t lines) {
  using state = typename Op::state;
  constexpr int64_t tile = scan_tile<Op>;
  __shared__ held_tile<Op> held;
  __shared__ state total[2][scan_warps]; // by turns, so that a tile needs one barrier
  const int warp = threadIdx.x / 32;
  int turn = 0;
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const typename Op::place at = op.seek(line);
    const int64_t first = first_of_warp<Op>(0);
    state carried = Op::none();
    scan_piece<Op> p[Op::U];
    load_tile(p, op, at, first);
    for (int64_t from = 0; from < op.length; from += tile, turn ^= 1) {
      keep_tile(held, p);
      if (from + tile < op.length) load_tile(p, op, at, from + tile + first);
      const state all = join_tile(held, op, from + first);
      if (threadIdx.x % 32 == 31) total[turn][warp] = all;
      __syncthreads();
      state base = carried;
#pragma unroll
      for (int w = 0; w < scan_warps; w++) {
        if (w == warp) base = carried;
        carried = Op::join(carried, total[turn][w]);
      }
      store_tile(held, op, at, from + first, base);
      __syncwarp();
    }
  }
}

// Blocks take one tile after the other, in order. Each is read and given to the others
// `scan_lag` turns before it is written: by then what comes before it is known. Two warps
// deal with the others: the giver with what a tile has, the asker with what comes before.
constexpr int scan_lag = 3, scan_blocks = 3, scan_all_threads = scan_threads + 64;

template <class Op> struct scan_room { // of each tile held
  static constexpr int tiles = scan_lag + 1;
  using state = typename Op::state;
  held_tile<Op> held[tiles];
  state of_warp[tiles]
               [scan_warps];     // at first what it has, then what the tile has before
  state base[tiles][scan_warps]; // what the line has before each warp
  state all[tiles];
  unsigned number[tiles], next[2]; // next: the tile to be read, by turns
};

// The place of the tile after that in slot.
__device__ inline int next_slot(int slot) { return slot == scan_lag ? 0 : slot + 1; }

// Barriers of a block: warps that wait for some that arrive. Each kind has one for each tile
// held.
enum class scan_barrier { turn, joined, given, known };
__device__ inline int barrier_of(scan_barrier kind, int slot) {
  return kind == scan_barrier::turn ? 0 : 1 + (int(kind) - 1) * (scan_lag + 1) + slot;
}
__device__ inline void arrive_at(scan_barrier kind, int slot, int threads) {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier_of(kind, slot)), "r"(threads)
               : "memory");
}
__device__ inline void wait_at(scan_barrier kind, int slot, int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(barrier_of(kind, slot)), "r"(threads)
               : "memory");
}

// A tile's line, and its number there.
struct tile_spot {
  int64_t line, number;
};
__device__ inline tile_spot spot_of_tile(unsigned tile, divider in_line) {
  const unsigned line = divide(tile, in_line);
  return {line, tile - line * in_line.d};
}

// The giver: what the warps have of a tile becomes what each has before it, and the whole is
// given to the others.
template <class Op>
__device__ inline void give_tiles(scan_room<Op> &room, const tile_prefix<Op> &others,
                                  unsigned tiles, divider in_line) {
  using state = typename Op::state;
  const int lane = threadIdx.x % 32;
  for (int slot = 0;; slot = next_slot(slot)) {
    wait_at(scan_barrier::joined, slot, scan_threads + 32);
    const unsigned tile = room.number[slot];
    if (tile < tiles) {
      state *const own = room.of_warp[slot];
      state s = scan_lanes<Op>(lane < scan_warps ? own[lane] : Op::none());
      if (lane == scan_warps - 1) {
        const tile_spot at = spot_of_tile(tile, in_line);
        others.give(at.line, at.number, s);
        room.all[slot] = s;
      }
      s = by_words(s, [](uint32_t w) { return __shfl_up_sync(~0u, w, 1); });
      if (lane < scan_warps) own[lane] = lane == 0 ? Op::none() : s;
    }
    arrive_at(scan_barrier::given, slot, 64);
    if (tile >= tiles) return;
  }
}

// The asker: what comes before a tile in its line, and so before each warp.
template <class Op>
__device__ inline void ask_for_tiles(scan_room<Op> &room, const tile_prefix<Op> &others,
                                     unsigned tiles, divider in_line) {
  using state = typename Op::state;
  const int lane = threadIdx.x % 32;
  for (int slot = 0;; slot = next_slot(slot)) {
    wait_at(scan_barrier::given, slot, 64);
    const unsigned tile = room.number[slot];
    if (tile >= tiles) return;
    const tile_spot at = spot_of_tile(tile, in_line);
    state s = others.before(at.line, at.number, room.all[slot]);
    s = by_words(s, [](uint32_t w) { return __shfl_sync(~0u, w, 0); });
    if (lane < scan_warps)
      room.base[slot][lane] = Op::join(s, room.of_warp[slot][lane]);
    arrive_at(scan_barrier::known, slot, scan_threads + 32);
  }
}

template <class Op>
__global__ void __launch_bounds__(scan_all_threads, scan_blocks)
    scan_tiles_kernel(const __grid_constant__ Op op, const tile_prefix<Op> others,
                      unsigned *begun, unsigned tiles, divider in_line) {
  using state = typename Op::state;
  constexpr int L = scan_lag;
  extern __shared__ __align__(128) char bytes[];
  scan_room<Op> &room = *reinterpret_cast<scan_room<Op> *>(bytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    room.next[0] = atomicAdd(begun, 1u);
    room.next[1] = atomicAdd(begun, 1u);
  }
  __syncthreads();
  if (warp == scan_warps) return give_tiles(room, others, tiles, in_line);
  if (warp > scan_warps) return ask_for_tiles(room, others, tiles, in_line);
  unsigned tile[L + 1], next = room.next[1]; // held now, a turn ago, ...
#pragma unroll
  for (int i = 1; i <= L; i++) tile[i] = ~0u;
  tile[0] = room.next[0];
  wait_at(scan_barrier::turn, 0, scan_threads);
  scan_piece<Op> p[Op::U];
  const auto load = [&](unsigned t) {
    const tile_spot at = spot_of_tile(t, in_line);
    load_tile(p, op, op.seek(at.line), first_of_warp<Op>(at.number));
  };
  if (tile[0] < tiles) load(tile[0]);
  int slot = 0; // of tile[0]
  bool dealing = true;
  for (unsigned turn = 0;; turn ^= 1) {
    if (threadIdx.x == 0) room.number[slot] = tile[0];
    if (tile[0] < tiles) {
      keep_tile(room.held[slot], p);
      if (next < tiles) load(next);
      const int64_t at = spot_of_tile(tile[0], in_line).number;
      const state all = join_tile(room.held[slot], op, first_of_warp<Op>(at));
      if (lane == 31) room.of_warp[slot][warp] = all;
    }
    if (dealing) arrive_at(scan_barrier::joined, slot, scan_threads + 32);
    dealing = tile[0] < tiles;
    unsigned number = 0; // on its way meanwhile
    if (threadIdx.x == 0) number = atomicAdd(begun, 1u);
    if (tile[L] < tiles) {
      const int old = next_slot(slot);
      const tile_spot at = spot_of_tile(tile[L], in_line);
      wait_at(scan_barrier::known, old, scan_threads + 32);
      store_tile(room.held[old], op, op.seek(at.line), first_of_warp<Op>(at.number),
                 room.base[old][warp]);
    }
    if (threadIdx.x == 0) room.next[turn] = number;
    wait_at(scan_barrier::turn, 0, scan_threads);
    bool more = next < tiles;
#pragma unroll
    for (int i = L; i > 0; i--) {
      tile[i] = tile[i - 1];
      more = more || tile[i] < tiles;
    }
    if (!more) return;
    tile[0] = next, next = room.next[turn];
    slot = next_slot(slot);
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
                           int(sizeof(scan_room<Op>))) == cudaSuccess)
    return true;
  cudaGetLastError();
  return false;
}

template <class Op>
mt_status launch_line_scan(const mt_call *call, const Op &op, int64_t lines) {
  const cudaStream_t stream = stream_of(call);
  if (op.length <= scan_tile<Op> / scan_warps) {
    const unsigned grid = blocks_for(lines * 32, scan_threads, call->device);
    scan_short_lines_kernel<Op><<<grid, scan_threads, 0, stream>>>(op, lines);
    return launched();
  }
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
      <<<unsigned(tiles < busy ? tiles : busy), scan_all_threads, sizeof(scan_room<Op>),
         stream>>>(op, r.prefix, r.begun, unsigned(tiles), make_divider(in_line));
  return launched();
}

#endif
