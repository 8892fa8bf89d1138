// kernels/cuda/masked_select.cu -- the elements where a mask is true, or their positions, in
// order. The mask is read once, to bits and counts of its tiles (_marks); tiles then write
// theirs behind those of the tiles before.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/marked.cuh"
#include "kernels/marks.h"

namespace {

constexpr int threads = 256, warps = threads / 32;

// Where the parts of marks lie.
struct marks_view {
  int64_t *total, *before_group;
  uint32_t *before_tile; // in its group
  uint32_t *bits;
};
marks_view view_marks(const mt_view *marks, int64_t n) {
  const int64_t tiles = mt_marks_parts(n, MT_MARKS_TILE);
  marks_view v;
  v.total = reinterpret_cast<int64_t *>(marks->data);
  v.before_group = v.total + 1;
  int64_t *const counts = v.before_group + mt_marks_parts(n, MT_MARKS_GROUP);
  v.before_tile = reinterpret_cast<uint32_t *>(counts);
  v.bits = reinterpret_cast<uint32_t *>(counts + (tiles + 1) / 2);
  return v;
}

struct selecting {
  const void *x;
  marks_view marks;
  int64_t n, most; // elements; room in y
  bool pieces;     // x takes 16 bytes at once
  bool dense;      // most of x is read in any case, so the bits aren't waited for
};

// What a thread takes of a tile of `tile` elements: the marks of E neighbours, the elements
// of U pieces of V, which lie side by side in a warp.
struct positions {}; // are held as places in the tile
template <class S> struct share {
  using held = S;
  using out = S;
  static constexpr int E = sizeof(S) == 8 ? 8 : 16, V = 16 / int(sizeof(S)), U = E / V;
  static constexpr int64_t tile = int64_t(threads) * E;
};
template <> struct share<positions> {
  using held = uint16_t;
  using out = int64_t;
  static constexpr int E = 32;
  static constexpr int64_t tile = int64_t(threads) * E;
};

template <class S> struct elements_of { pack<S, share<S>::V> piece[share<S>::U]; };
template <> struct elements_of<positions> {};

template <class S> __device__ inline int64_t first_of_warp(unsigned tile) {
  return int64_t(tile) * share<S>::tile + threadIdx.x / 32 * (32 * share<S>::E);
}

// Of the elements that the thread has of a tile.
template <class S>
__device__ inline unsigned load_bits(const selecting &q, unsigned tile) {
  constexpr int E = share<S>::E;
  using narrow = std::conditional_t<E == 8, uint8_t, uint16_t>;
  using word = std::conditional_t<E == 32, uint32_t, narrow>;
  const int64_t at = int64_t(tile) * threads + threadIdx.x;
  return at * E < q.n ? reinterpret_cast<const word *>(q.marks.bits)[at] : 0;
}

// A bit for each of 16 bytes of 0 or 1: four come to lie side by side at the top of a word.
__device__ inline unsigned bits_of(uint4 m) {
  const auto four = [](uint32_t w) { return w * 0x01020408u >> 24; };
  return four(m.x) | four(m.y) << 4 | four(m.z) << 8 | four(m.w) << 12;
}

// Piece u of the thread; wanted: bits.
template <class S>
__device__ inline pack<S, share<S>::V> load_elements(const selecting &q, unsigned tile,
                                                     int u, unsigned wanted) {
  constexpr int V = share<S>::V;
  const int64_t i = first_of_warp<S>(tile) + (u * 32 + threadIdx.x % 32) * V;
  const S *const x = static_cast<const S *>(q.x);
  pack<S, V> v{};
  if (q.pieces && i + V <= q.n) {
    if (wanted) v = *reinterpret_cast<const pack<S, V> *>(x + i);
  } else
#pragma unroll
    for (int j = 0; j < V; j++)
      if (wanted >> j & 1u && i + j < q.n) v.at[j] = x[i + j];
  return v;
}

// The marked elements among the warp's go to `to` and on. bits: of the lane's marks; before:
// marks of the lanes before it. v: where they have been read already.
template <class S>
__device__ inline void hold_marked(S *to, const selecting &q, unsigned tile,
                                   const pack<S, share<S>::V> (&v)[share<S>::U],
                                   unsigned bits, unsigned before) {
  constexpr int E = share<S>::E, V = share<S>::V;
  const unsigned both = before << 16 | bits; // a warp has at most 512
#pragma unroll
  for (int u = 0; u < share<S>::U; u++) {
    const int at = (u * 32 + threadIdx.x % 32) * V;
    const unsigned theirs = __shfl_sync(~0u, both, at / E);
    const unsigned marks = theirs & 0xffffu;
    const unsigned own = marks >> at % E & ((1u << V) - 1);
    const pack<S, V> p = q.dense ? v[u] : load_elements<S>(q, tile, u, own);
    unsigned k = (theirs >> 16) + __popc(marks & ((1u << at % E) - 1));
#pragma unroll
    for (int j = 0; j < V; j++)
      if (own >> j & 1u) to[k++] = p.at[j];
  }
}

__device__ inline void hold_places(uint16_t *to, unsigned bits) {
  for (; bits; bits &= bits - 1)
    *to++ = uint16_t(threadIdx.x * share<positions>::E + __ffs(int(bits)) - 1);
}

// The marks in bytes begin .. begin + Bytes - 1 of the mask, in each lane of a warp.
template <int Bytes>
__device__ inline unsigned count_marks(const uint8_t *mask, int64_t begin, int64_t n) {
  const int lane = threadIdx.x % 32;
  unsigned own = 0;
  if (begin + Bytes <= n && reinterpret_cast<uintptr_t>(mask) % 16 == 0) {
    const uint4 *const from = reinterpret_cast<const uint4 *>(mask + begin);
#pragma unroll
    for (int i = 0; i < Bytes / 512; i++) {
      const uint4 m = from[i * 32 + lane];
      own += __popc(m.x) + __popc(m.y) + __popc(m.z) + __popc(m.w); // bytes of 0 or 1
    }
  } else {
    for (int64_t i = begin + lane; i < begin + Bytes && i < n; i += 32) own += mask[i];
  }
  return lane_sum(own);
}

// A block a group. Where there is one group, what it counts is all.
__global__ void __launch_bounds__(threads)
    mark_kernel(const marks_view v, const uint8_t *mask, int64_t n, bool pieces) {
  constexpr int tiles = MT_MARKS_GROUP / MT_MARKS_TILE, own_tiles = tiles / warps;
  constexpr int steps = MT_MARKS_TILE / 512;
  __shared__ unsigned of_tile[tiles];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = int64_t(blockIdx.x) * tiles; // tile
  uint4 m[own_tiles][steps];
#pragma unroll
  for (int t = 0; t < own_tiles; t++)
#pragma unroll
    for (int k = 0; k < steps; k++) {
      const int64_t i =
          (first + warp * own_tiles + t) * MT_MARKS_TILE + k * 512 + lane * 16;
      m[t][k] = uint4{0, 0, 0, 0};
      if (pieces && i + 16 <= n)
        m[t][k] = *reinterpret_cast<const uint4 *>(mask + i);
      else if (i < n) {
        uint8_t byte[16];
#pragma unroll
        for (int j = 0; j < 16; j++) byte[j] = i + j < n ? mask[i + j] : 0;
        memcpy(&m[t][k], byte, 16);
      }
    }
#pragma unroll
  for (int t = 0; t < own_tiles; t++) {
    const int64_t tile = first + warp * own_tiles + t;
    uint16_t *const to =
        reinterpret_cast<uint16_t *>(v.bits) + tile * (MT_MARKS_TILE / 16);
    unsigned own = 0;
#pragma unroll
    for (int k = 0; k < steps; k++) {
      const unsigned bits = bits_of(m[t][k]);
      if (tile * MT_MARKS_TILE < n) to[k * 32 + lane] = uint16_t(bits);
      own += __popc(bits);
    }
    own = lane_sum(own);
    if (lane == 0) of_tile[warp * own_tiles + t] = own;
  }
  __syncthreads();
  if (threadIdx.x >= tiles) return;
  unsigned before = 0, all = 0;
#pragma unroll
  for (int t = 0; t < tiles; t++) {
    if (t == int(threadIdx.x)) before = all;
    all += of_tile[t];
  }
  if ((first + threadIdx.x) * MT_MARKS_TILE < n)
    v.before_tile[first + threadIdx.x] = before;
  if (threadIdx.x > 0) return;
  v.before_group[blockIdx.x] = gridDim.x == 1 ? 0 : all;
  if (gridDim.x == 1) *v.total = all;
}

// *count += all marks.
__global__ void __launch_bounds__(threads)
    count_all_kernel(unsigned long long *count, const uint8_t *mask, int64_t n) {
  constexpr int bytes = 4096;
  const int64_t step = int64_t(gridDim.x) * warps * bytes;
  int64_t i = (int64_t(blockIdx.x) * warps + threadIdx.x / 32) * bytes;
  unsigned long long own = 0;
  for (; i < n; i += step) own += count_marks<bytes>(mask, i, n);
  if (threadIdx.x % 32 == 0 && own) atomicAdd(count, own);
}

// counts[i] = the sum of those before, *total of all: one block. A warp takes 32 neighbours
// at a time, whose counts and their sums fit in 32 bits.
__global__ void __launch_bounds__(1024)
    sum_groups_kernel(int64_t *counts, int64_t n, int64_t *total) {
  constexpr int items = 8;
  __shared__ unsigned of_warp[2][32]; // by turns, so that a round needs one barrier
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t carried = 0;
  int turn = 0;
  for (int64_t from = 0; from < n; from += 1024 * items, turn ^= 1) {
    const int64_t first = from + warp * (32 * items) + lane;
    unsigned own[items], before[items], sum = 0; // before: of the warp's
#pragma unroll
    for (int j = 0; j < items; j++)
      own[j] = first + j * 32 < n ? unsigned(counts[first + j * 32]) : 0;
#pragma unroll
    for (int j = 0; j < items; j++) {
      unsigned upto = own[j];
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const unsigned other = __shfl_up_sync(~0u, upto, step);
        if (lane >= step) upto += other;
      }
      before[j] = sum + upto - own[j];
      sum += __shfl_sync(~0u, upto, 31);
    }
    if (lane == 0) of_warp[turn][warp] = sum;
    __syncthreads();
    unsigned warps_before = lane < warp ? of_warp[turn][lane] : 0;
    unsigned all = of_warp[turn][lane];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      warps_before += __shfl_xor_sync(~0u, warps_before, step);
      all += __shfl_xor_sync(~0u, all, step);
    }
#pragma unroll
    for (int j = 0; j < items; j++)
      if (first + j * 32 < n)
        counts[first + j * 32] = carried + warps_before + before[j];
    carried += all;
  }
  if (threadIdx.x == 0) *total = carried;
}

// A block a tile: what is marked is put side by side on the chip first.
template <class S>
__global__ void __launch_bounds__(threads)
    write_marked_kernel(typename share<S>::out *y, const selecting q) {
  constexpr bool places = std::is_same<S, positions>::value;
  constexpr int parts = share<S>::tile / MT_MARKS_TILE;
  constexpr int in_group = MT_MARKS_GROUP / share<S>::tile;
  __shared__ typename share<S>::held held[share<S>::tile];
  __shared__ unsigned of_warp[warps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned tile = blockIdx.x;
  elements_of<S> v;
  if constexpr (!places) {
    if (q.dense)
#pragma unroll
      for (int u = 0; u < share<S>::U; u++)
        v.piece[u] = load_elements<S>(q, tile, u, ~0u);
  }
  const int64_t start = q.marks.before_group[tile / in_group] +
                        q.marks.before_tile[int64_t(tile) * parts];
  const unsigned bits = load_bits<S>(q, tile);
  unsigned before = __popc(bits); // of the lanes before
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const unsigned other = __shfl_up_sync(~0u, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) of_warp[warp] = before;
  before -= __popc(bits);
  __syncthreads();
  unsigned count = 0, to = 0;
#pragma unroll
  for (int w = 0; w < warps; w++) {
    if (w == warp) to = count;
    count += of_warp[w];
  }
  if constexpr (places)
    hold_places(held + to + before, bits);
  else
    hold_marked<S>(held + to, q, tile, v.piece, bits, before);
  __syncthreads();
  for (unsigned i = threadIdx.x; i < count && start + i < q.most; i += threads) {
    if constexpr (places)
      y[start + i] = int64_t(tile) * share<S>::tile + held[i] + 1;
    else
      y[start + i] = held[i];
  }
}

// x: NULL for positions.
template <class S>
mt_status select_marked(const mt_call *call, const mt_view *mask, const mt_view *marks,
                        const void *x) {
  const int64_t n = numel(mask), most = numel(call->out[0]);
  if (n == 0 || most == 0) return MT_OK;
  if (!marks) return cuda_fail_text(MT_EINTERNAL, "no marks to select by");
  const int64_t tiles = mt_marks_parts(n, share<S>::tile);
  if (tiles > INT32_MAX)
    return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^42 elements");
  const selecting q = {x, view_marks(marks, n), n, most, aligned16(x), most >= n / 8};
  write_marked_kernel<S><<<unsigned(tiles), threads, 0, stream_of(call)>>>(
      reinterpret_cast<typename share<S>::out *>(call->out[0]->data), q);
  return launched();
}

// _masked_select(x, mask, marks, count): x is contiguous.
mt_status run_masked_select(const mt_call *call) {
  const mt_view *mask = call->in[1], *marks = call->in[2];
  const void *x = call->in[0]->data;
  switch (dtype_size(call->in[0]->dtype)) {
  case 1: return select_marked<uint8_t>(call, mask, marks, x);
  case 2: return select_marked<uint16_t>(call, mask, marks, x);
  case 4: return select_marked<uint32_t>(call, mask, marks, x);
  default: return select_marked<uint64_t>(call, mask, marks, x);
  }
}

// _nonzero(mask, marks, count)
mt_status run_nonzero(const mt_call *call) {
  return select_marked<positions>(call, call->in[0], call->in[1], nullptr);
}

// _marks(mask): contiguous.
mt_status run_marks(const mt_call *call) {
  const int64_t n = numel(call->in[0]), groups = mt_marks_parts(n, MT_MARKS_GROUP);
  const uint8_t *const mask = reinterpret_cast<const uint8_t *>(call->in[0]->data);
  const marks_view v = view_marks(call->out[0], n);
  const cudaStream_t stream = stream_of(call);
  if (groups > INT32_MAX)
    return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^46 elements");
  if (groups == 0) {
    CUDA_TRY(cudaMemsetAsync(v.total, 0, sizeof *v.total, stream));
    return MT_OK;
  }
  mark_kernel<<<unsigned(groups), threads, 0, stream>>>(v, mask, n, aligned16(mask));
  if (const mt_status status = launched()) return status;
  if (groups == 1) return MT_OK;
  sum_groups_kernel<<<1, 1024, 0, stream>>>(v.before_group, groups, v.total);
  return launched();
}

} // namespace

mt_status count_marked(const mt_call *call) {
  const mt_view *mask = call->in[0];
  const int64_t n = numel(mask);
  const cudaStream_t stream = stream_of(call);
  CUDA_TRY(cudaMemsetAsync(call->out[0]->data, 0, 8, stream));
  if (n == 0) return MT_OK;
  const int64_t wanted = (n + warps * 4096 - 1) / (warps * 4096);
  const int64_t most = int64_t(multiprocessors(call->device)) * 8;
  count_all_kernel<<<unsigned(wanted < most ? wanted : most), threads, 0, stream>>>(
      reinterpret_cast<unsigned long long *>(call->out[0]->data),
      reinterpret_cast<const uint8_t *>(mask->data), n);
  return launched();
}

CUDA_ENTRY(_marks) = {run_marks, nullptr, MT_BIT(MT_BOOL), 1};
CUDA_ENTRY(_nonzero) = {run_nonzero, nullptr, MT_BIT(MT_BOOL), 0};
CUDA_ENTRY(_masked_select) = {run_masked_select, nullptr, MT_ALL_MASK, 1};
