// kernels/cuda/tile_prefix.cuh -- what the tiles of a line before each one join to, while
// the kernel that walks them runs: one pass, and the same bits each time.
#ifndef MT_CUDA_TILE_PREFIX_CUH
#define MT_CUDA_TILE_PREFIX_CUH

#include "kernels/cuda/cuda.cuh"

// An operator Op has a `state` (of 8 or 16 bytes), none(), which changes nothing, and
// join(a, b), associative, a before b.

// A state as others wait for it: each half word beside a flag, in one word, so that none is
// read before it is written and no fence is needed. Zeros: not there yet.
struct alignas(16) slot_words {
  uint64_t low, high;
};

template <class T> struct slot {
  static_assert(sizeof(T) % 8 == 0, "whole words");
  static constexpr int words = int(sizeof(T)) / 8;
  slot_words at[words];
};

template <class T> __device__ inline void slot_put(slot<T> *s, const T &x) {
  uint32_t part[2 * slot<T>::words];
  memcpy(part, &x, sizeof x);
#pragma unroll
  for (int w = 0; w < slot<T>::words; w++)
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(s->at + w),
                 "l"(uint64_t(part[2 * w]) << 32 | 1u),
                 "l"(uint64_t(part[2 * w + 1]) << 32 | 1u)
                 : "memory");
}

// True, and x, where all of it is there.
template <class T> __device__ inline bool slot_get(T &x, const slot<T> *s) {
  uint32_t part[2 * slot<T>::words];
  bool all = true;
#pragma unroll
  for (int w = 0; w < slot<T>::words; w++) {
    uint64_t low, high;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(s->at + w)
                 : "memory");
    part[2 * w] = uint32_t(low >> 32), part[2 * w + 1] = uint32_t(high >> 32);
    all = all && (low & high & 1u);
  }
  memcpy(&x, part, sizeof x);
  return all;
}

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

// s of this lane and of those before it joined.
template <class Op>
__device__ inline typename Op::state scan_lanes(typename Op::state s) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const typename Op::state other =
        by_words(s, [=](uint32_t w) { return __shfl_up_sync(~0u, w, step); });
    const typename Op::state both = Op::join(other, s);
    if (threadIdx.x % 32 >= step) s = both;
  }
  return s;
}

constexpr int64_t group_tiles = 32, super_tiles = 32 * 32;

// A tree of fixed shape: tiles, groups of 32, supergroups of 32 groups, and all up to each
// supergroup. The warp that asks for what comes before the last tile of a node joins the
// node's parts, in their order: so the bits are the same each time.
template <class Op> struct tile_prefix {
  using state = typename Op::state;
  slot<state> *tile, *group, *upto; // of each line
  int64_t tiles, groups, supers;    // in a line

  // Tile k of a line has joined to own: one thread.
  __device__ void give(int64_t line, int64_t k, const state &own) const {
    slot_put(tile + line * tiles + k, own);
  }

  // One warp: the tiles of the line before tile k joined, right in lane 0. own: of tile k,
  // in each lane.
  __device__ state before(int64_t line, int64_t k, const state &own) const {
    const int lane = threadIdx.x % 32;
    const int64_t g = k / group_tiles, u = k / super_tiles;
    const int at = int(k % group_tiles), at_group = int(g % 32);
    const slot<state> *const peer = tile + line * tiles + g * group_tiles + lane;
    const slot<state> *const relative = group + line * groups + u * 32 + lane;
    const slot<state> *const ahead = upto + line * supers + u - 1;
    state a = lane == at ? own : Op::none(), b = Op::none(), c = Op::none(), whole;
    bool need_a = lane < at, need_b = lane < at_group, need_c = lane == 0 && u > 0;
    bool last = at == 31; // of the group, which nobody has joined yet
    while (true) {        // all at once: each is a way to memory
      if (need_a) need_a = !slot_get(a, peer);
      if (need_b) need_b = !slot_get(b, relative);
      if (need_c) need_c = !slot_get(c, ahead);
      if (last && !__any_sync(~0u, need_a)) {
        last = false;
        whole = join_lanes<Op>(a);
        if (lane == 0) slot_put(group + line * groups + g, whole);
      }
      if (!__any_sync(~0u, need_a || need_b || need_c)) break;
    }
    if (at == 31 && at_group == 31) {
      whole = by_words(whole, [](uint32_t w) { return __shfl_sync(~0u, w, 0); });
      const state all = join_lanes<Op>(lane == 31 ? whole : b);
      if (lane == 0) slot_put(upto + line * supers + u, Op::join(c, all));
    }
    a = join_lanes<Op>(lane == at ? Op::none() : a), b = join_lanes<Op>(b);
    return Op::join(c, Op::join(b, a));
  }
};

// Where a tile_prefix and the number of tiles begun lie: they have to be zeros.
template <class Op> struct tile_scratch {
  tile_prefix<Op> prefix;
  unsigned *begun;
  size_t bytes;
};

template <class Op>
tile_scratch<Op> lay_out_tiles(void *scratch, int64_t lines, int64_t tiles) {
  using room = slot<typename Op::state>;
  tile_scratch<Op> r;
  tile_prefix<Op> &p = r.prefix;
  p.tiles = tiles;
  p.groups = (tiles + group_tiles - 1) / group_tiles;
  p.supers = (tiles + super_tiles - 1) / super_tiles;
  p.tile = static_cast<room *>(scratch);
  p.group = p.tile + lines * p.tiles;
  p.upto = p.group + lines * p.groups;
  r.begun = reinterpret_cast<unsigned *>(p.upto + lines * p.supers);
  r.bytes =
      size_t(reinterpret_cast<char *>(r.begun + 1) - static_cast<char *>(scratch));
  return r;
}

#endif
