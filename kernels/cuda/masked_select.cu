// kernels/cuda/masked_select.cu -- the elements where a mask is true, or their positions, in
// order: tiles count theirs, then write them behind those of the tiles before.
#include <cub/block/block_scan.cuh>
#include "kernels/cuda/marked.cuh"

namespace {

constexpr int threads = 256, warps = threads / 32, rounds = 16;
constexpr int64_t warp_elements = 32 * rounds, tile = warps * warp_elements;

// A bit for each lane's element in each round of its warp.
__device__ inline unsigned marks(const uint8_t *mask, int64_t n, int64_t first,
                                 int round) {
  const int64_t i = first + round * 32 + threadIdx.x % 32;
  return __ballot_sync(~0u, i < n && mask[i] != 0);
}

__global__ void __launch_bounds__(threads)
    count_marked_kernel(int64_t *counts, const uint8_t *mask, int64_t n) {
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  const int64_t begin = int64_t(blockIdx.x) * tile;
  unsigned own = 0;
  if (begin + tile <= n && reinterpret_cast<uintptr_t>(mask) % 16 == 0) {
    const uint4 m = reinterpret_cast<const uint4 *>(mask + begin)[threadIdx.x];
    own = __popc(m.x) + __popc(m.y) + __popc(m.z) + __popc(m.w); // bytes of 0 or 1
  } else {
    for (int64_t i = begin + threadIdx.x; i < begin + tile && i < n; i += threads)
      own += mask[i] != 0;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&sum, own);
  __syncthreads();
  if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}
static_assert(tile == threads * 16, "16 bytes of the mask a thread");

// counts[i] = the sum of those before: one block.
__global__ void __launch_bounds__(1024) sum_tiles_kernel(int64_t *counts, int64_t n) {
  constexpr int items = 8;
  using scan = cub::BlockScan<int64_t, 1024>;
  __shared__ typename scan::TempStorage room;
  int64_t carried = 0;
  for (int64_t from = 0; from < n; from += 1024 * items) {
    const int64_t first = from + int64_t(threadIdx.x) * items;
    int64_t own[items], all;
#pragma unroll
    for (int j = 0; j < items; j++) own[j] = first + j < n ? counts[first + j] : 0;
    scan(room).ExclusiveSum(own, own, all);
#pragma unroll
    for (int j = 0; j < items; j++)
      if (first + j < n) counts[first + j] = carried + own[j];
    carried += all;
    __syncthreads();
  }
}

// A tile's elements are put side by side on the chip first. Positions: y is int64, and x
// is not read.
template <class S, bool Positions>
__global__ void __launch_bounds__(threads)
    write_marked_kernel(S *y, const S *x, const uint8_t *mask, const int64_t *before,
                        int64_t n, int64_t most) {
  __shared__ unsigned of_warp[warps];
  __shared__ S held[tile];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = int64_t(blockIdx.x) * tile + warp * warp_elements;
  unsigned bits[rounds], count = 0;
  S v[rounds];
#pragma unroll
  for (int r = 0; r < rounds; r++) bits[r] = marks(mask, n, first, r);
#pragma unroll
  for (int r = 0; r < rounds; r++) {
    const int64_t i = first + r * 32 + lane;
    if constexpr (Positions)
      v[r] = i + 1;
    else if (bits[r] >> lane & 1u)
      v[r] = x[i];
    count += __popc(bits[r]);
  }
  if (lane == 0) of_warp[warp] = count;
  __syncthreads();
  unsigned to = 0, all = 0;
#pragma unroll
  for (int w = 0; w < warps; w++) {
    if (w < warp) to += of_warp[w];
    all += of_warp[w];
  }
#pragma unroll
  for (int r = 0; r < rounds; r++) {
    if (bits[r] >> lane & 1u) held[to + __popc(bits[r] & ((1u << lane) - 1))] = v[r];
    to += __popc(bits[r]);
  }
  __syncthreads();
  const int64_t start = before[blockIdx.x];
  for (unsigned i = threadIdx.x; i < all && start + i < most; i += threads)
    y[start + i] = held[i];
}

int64_t tiles_of(const mt_view *mask) { return (numel(mask) + tile - 1) / tile; }

// before[tile] = marked elements of the tiles before.
mt_status count_tiles(const mt_call *call, const mt_view *mask, int64_t *before) {
  const int64_t n = numel(mask), tiles = tiles_of(mask);
  if (tiles > INT32_MAX)
    return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^43 elements");
  count_marked_kernel<<<unsigned(tiles), threads, 0, stream_of(call)>>>(
      before, reinterpret_cast<const uint8_t *>(mask->data), n);
  if (const mt_status status = launched()) return status;
  sum_tiles_kernel<<<1, 1024, 0, stream_of(call)>>>(before, tiles);
  return launched();
}

template <class S, bool Positions>
mt_status write_marked(const mt_call *call, const mt_view *mask, const void *x) {
  const int64_t *before = static_cast<const int64_t *>(call->scratch);
  write_marked_kernel<S, Positions>
      <<<unsigned(tiles_of(mask)), threads, 0, stream_of(call)>>>(
          reinterpret_cast<S *>(call->out[0]->data), static_cast<const S *>(x),
          reinterpret_cast<const uint8_t *>(mask->data), before, numel(mask),
          numel(call->out[0]));
  return launched();
}

size_t masked_select_scratch(const mt_call *call) {
  return marked_scratch(call->in[1]);
}

// _masked_select(x, mask, count): contiguous.
mt_status run_masked_select(const mt_call *call) {
  const mt_view *mask = call->in[1];
  const void *x = call->in[0]->data;
  if (numel(mask) == 0 || numel(call->out[0]) == 0) return MT_OK;
  if (const mt_status status =
          count_tiles(call, mask, static_cast<int64_t *>(call->scratch)))
    return status;
  switch (dtype_size(call->in[0]->dtype)) {
  case 1: return write_marked<uint8_t, false>(call, mask, x);
  case 2: return write_marked<uint16_t, false>(call, mask, x);
  case 4: return write_marked<uint32_t, false>(call, mask, x);
  default: return write_marked<uint64_t, false>(call, mask, x);
  }
}

} // namespace

size_t marked_scratch(const mt_view *mask) { return size_t(tiles_of(mask)) * 8; }

mt_status marked_positions(const mt_call *call) {
  const mt_view *mask = call->in[0];
  if (numel(mask) == 0 || numel(call->out[0]) == 0) return MT_OK;
  if (const mt_status status =
          count_tiles(call, mask, static_cast<int64_t *>(call->scratch)))
    return status;
  return write_marked<int64_t, true>(call, mask, nullptr);
}

CUDA_ENTRY(_masked_select) = {run_masked_select, masked_select_scratch, MT_ALL_MASK, 3};
