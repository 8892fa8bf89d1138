// kernels/cuda/masked_select.cu -- the elements where a mask is true, or their positions, in
// order: tiles count theirs, then write them behind those of the tiles before.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/marked.cuh"

namespace {

constexpr int threads = 256, warps = threads / 32;

struct selecting {
  const void *x;
  const uint8_t *mask; // bytes of 0 or 1
  int64_t n, most;     // elements; room in y
  bool pieces;         // x and mask take 16 bytes at once
  bool dense;          // most of x is read in any case, so the mask isn't waited for
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

template <class S>
__device__ inline pack<uint8_t, share<S>::E> load_marks(const selecting &q,
                                                        unsigned tile) {
  constexpr int E = share<S>::E;
  const int64_t i = first_of_warp<S>(tile) + threadIdx.x % 32 * E;
  pack<uint8_t, E> m{};
  if (q.pieces && i + E <= q.n) {
    constexpr int P = E < 16 ? E : 16;
#pragma unroll
    for (int j = 0; j < E; j += P)
      *reinterpret_cast<pack<uint8_t, P> *>(m.at + j) =
          *reinterpret_cast<const pack<uint8_t, P> *>(q.mask + i + j);
  } else
#pragma unroll
    for (int j = 0; j < E; j++)
      if (i + j < q.n) m.at[j] = q.mask[i + j];
  return m;
}

// A bit for each.
template <int E> __device__ inline unsigned mark_bits(const pack<uint8_t, E> &m) {
  uint32_t word[E / 4];
  unsigned bits = 0;
  memcpy(word, m.at, E);
#pragma unroll
  for (int k = 0; k < E / 4; k++) // four bits come to lie side by side at the top
    bits |= (word[k] * 0x01020408u >> 24 & 15u) << (4 * k);
  return bits;
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

// The marks in bytes begin .. begin + Bytes - 1 of the mask, in lane 0 of a warp.
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
#pragma unroll
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  return own;
}

// A warp a tile.
template <class S>
__global__ void __launch_bounds__(threads)
    count_tiles_kernel(int64_t *counts, const uint8_t *mask, int64_t n) {
  const int64_t tile = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (tile * share<S>::tile >= n) return;
  const unsigned own = count_marks<share<S>::tile>(mask, tile * share<S>::tile, n);
  if (threadIdx.x % 32 == 0) counts[tile] = own;
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

// counts[i] = the sum of those before: one block. A warp takes 32 neighbours at a time, whose
// counts and their sums fit in 32 bits.
__global__ void __launch_bounds__(1024) sum_tiles_kernel(int64_t *counts, int64_t n) {
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
}

// A block a tile: what is marked is put side by side on the chip first.
template <class S>
__global__ void __launch_bounds__(threads)
    write_marked_kernel(typename share<S>::out *y, const selecting q,
                        const int64_t *before_tile) {
  constexpr bool places = std::is_same<S, positions>::value;
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
  const int64_t start = before_tile[tile];
  const unsigned bits = mark_bits(load_marks<S>(q, tile));
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

int64_t tiles_of(const mt_view *mask, int64_t tile) {
  return (numel(mask) + tile - 1) / tile;
}

template <class S>
mt_status select_marked(const mt_call *call, const mt_view *mask, const void *x) {
  const int64_t n = numel(mask), most = numel(call->out[0]);
  if (n == 0 || most == 0) return MT_OK;
  const int64_t tiles = tiles_of(mask, share<S>::tile);
  if (tiles > INT32_MAX)
    return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^42 elements");
  const cudaStream_t stream = stream_of(call);
  const selecting q = {
      x,    reinterpret_cast<const uint8_t *>(mask->data), n,
      most, aligned16(mask->data) && aligned16(x),         most >= n / 8};
  int64_t *before = static_cast<int64_t *>(call->scratch);
  count_tiles_kernel<S><<<unsigned((tiles + warps - 1) / warps), threads, 0, stream>>>(
      before, q.mask, n);
  if (const mt_status status = launched()) return status;
  sum_tiles_kernel<<<1, 1024, 0, stream>>>(before, tiles);
  if (const mt_status status = launched()) return status;
  write_marked_kernel<S><<<unsigned(tiles), threads, 0, stream>>>(
      reinterpret_cast<typename share<S>::out *>(call->out[0]->data), q, before);
  return launched();
}

size_t masked_select_scratch(const mt_call *call) {
  return marked_scratch(call->in[1]);
}

// _masked_select(x, mask, count): contiguous.
mt_status run_masked_select(const mt_call *call) {
  const mt_view *mask = call->in[1];
  const void *x = call->in[0]->data;
  switch (dtype_size(call->in[0]->dtype)) {
  case 1: return select_marked<uint8_t>(call, mask, x);
  case 2: return select_marked<uint16_t>(call, mask, x);
  case 4: return select_marked<uint32_t>(call, mask, x);
  default: return select_marked<uint64_t>(call, mask, x);
  }
}

} // namespace

size_t marked_scratch(const mt_view *mask) {
  return size_t(tiles_of(mask, share<uint64_t>::tile)) * 8; // the smallest tiles
}

mt_status marked_positions(const mt_call *call) {
  return select_marked<positions>(call, call->in[0], nullptr);
}

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

CUDA_ENTRY(_masked_select) = {run_masked_select, masked_select_scratch, MT_ALL_MASK, 3};
