// kernels/cuda/select.cu -- the first k keys of long lines: the k-th key is found digit by
// digit, from histograms; then what lies before it is collected in the order of its places.
#include <cub/block/block_scan.cuh>
#include "kernels/cuda/sort_keys.cuh"

namespace {

constexpr int threads = 256, digit_bits = 11, digits = 1 << digit_bits;

// What is known of a line's k-th key: its bits above `shift`, and how many of the keys
// with those bits come up to it.
template <class K> struct search {
  K prefix;
  uint32_t left;
};

struct parts {
  unsigned count; // blocks that share a line
  int64_t each;   // elements of one
};

parts share_lines(const mt_call *call, const sort_lines &l) {
  const int64_t busy = int64_t(multiprocessors(call->device)) * 8;
  int64_t count = (busy + l.s.numel - 1) / l.s.numel;
  const int64_t most = (l.n + 4 * threads - 1) / (4 * threads);
  count = count > most ? most : count;
  count = count > 1024 ? 1024 : count < 1 ? 1 : count;
  const int64_t each = ((l.n + count - 1) / count + threads - 1) / threads * threads;
  return {unsigned((l.n + each - 1) / each), each};
}

// f(key) for elements begin .. end-1 of a line, each by one thread of the block; pieces
// of 16 bytes where they lie side by side.
template <class K, class F>
__device__ inline void each_key(const sort_lines &l, int64_t offset, int64_t begin,
                                int64_t end, F f) {
  constexpr int V = 16 / int(sizeof(K));
  const char *first = static_cast<const char *>(l.x) + (offset + begin) * l.size;
  if (l.x_step == 1 && l.size == sizeof(K) &&
      reinterpret_cast<uintptr_t>(first) % 16 == 0) {
    const int64_t pieces = (end - begin) / V;
#pragma unroll 2
    for (int64_t p = threadIdx.x; p < pieces; p += threads) {
      const uint4 piece = reinterpret_cast<const uint4 *>(first)[p];
#pragma unroll
      for (int j = 0; j < V; j++) f(key_at<K>(&piece, j, l.dtype, l.descending));
    }
    begin += pieces * V;
  }
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += threads)
    f(key_at<K>(l.x, offset + i * l.x_step, l.dtype, l.descending));
}

// How many keys with the prefix have each digit. blockIdx = (part, line).
template <class K>
__global__ void __launch_bounds__(threads)
    histogram_kernel(uint32_t *histogram, const search<K> *state,
                     const __grid_constant__ sort_lines l, parts p, int shift, int bits,
                     bool first) {
  __shared__ uint32_t count[digits];
  for (int64_t line = blockIdx.y; line < l.s.numel; line += gridDim.y) {
    for (int i = threadIdx.x; i < digits; i += threads) count[i] = 0;
    __syncthreads();
    int64_t offset[3];
    seek(l.s, line, offset);
    const K prefix = first ? 0 : state[line].prefix;
    const int64_t begin = blockIdx.x * p.each;
    const int64_t end = begin + p.each < l.n ? begin + p.each : l.n;
    each_key<K>(l, offset[1], begin, end, [&](K k) {
      const K digit = k >> shift;
      if (first || (digit ^ prefix) >> bits == 0)
        atomicAdd(&count[int(digit & ((K(1) << bits) - 1))], 1u);
    });
    __syncthreads();
    for (int i = threadIdx.x; i < digits; i += threads)
      if (count[i]) atomicAdd(&histogram[line * digits + i], count[i]);
    __syncthreads();
  }
}

// Which digit has the k-th key; the histogram is cleared for the next one. After a pass
// the prefix holds the bits from `shift` on, moved up by the bits of the next digit.
template <class K>
__global__ void __launch_bounds__(threads)
    pick_digit_kernel(uint32_t *histogram, search<K> *state, int64_t lines, uint32_t k,
                      bool first, int next_bits) {
  using scan = cub::BlockScan<uint32_t, threads>;
  __shared__ typename scan::TempStorage room;
  constexpr int each = digits / threads;
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    uint32_t *h = histogram + line * digits + threadIdx.x * each;
    const uint32_t left = first ? k : state[line].left;
    const K prefix = first ? 0 : state[line].prefix;
    uint32_t count[each], sum = 0, before;
#pragma unroll
    for (int i = 0; i < each; i++) count[i] = h[i], sum += count[i], h[i] = 0;
    scan(room).ExclusiveSum(sum, before);
    __syncthreads(); // all have read the state
#pragma unroll
    for (int i = 0; i < each; i++) {
      if (before < left && left <= before + count[i]) {
        const K digit = K(threadIdx.x * each + i);
        state[line] = {K((prefix | digit) << next_bits), left - before};
      }
      before += count[i];
    }
    __syncthreads();
  }
}

// Keys below the k-th one, and equal to it, in each part of each line.
template <class K>
__global__ void __launch_bounds__(threads)
    count_kernel(uint2 *counts, const search<K> *state,
                 const __grid_constant__ sort_lines l, parts p) {
  __shared__ uint32_t sums[2];
  for (int64_t line = blockIdx.y; line < l.s.numel; line += gridDim.y) {
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    int64_t offset[3];
    seek(l.s, line, offset);
    const K bound = state[line].prefix;
    const int64_t begin = blockIdx.x * p.each;
    const int64_t end = begin + p.each < l.n ? begin + p.each : l.n;
    uint32_t below = 0, equal = 0;
    each_key<K>(l, offset[1], begin, end,
                [&](K k) { below += k < bound, equal += k == bound; });
    if (below) atomicAdd(&sums[0], below);
    if (equal) atomicAdd(&sums[1], equal);
    __syncthreads();
    if (threadIdx.x == 0) counts[line * p.count + blockIdx.x] = {sums[0], sums[1]};
    __syncthreads();
  }
}

// counts[i] = the sum of those before; at most 1,024 parts a line.
__global__ void __launch_bounds__(threads)
    sum_counts_kernel(uint2 *counts, int64_t lines, unsigned n) {
  using scan = cub::BlockScan<uint32_t, threads>;
  __shared__ typename scan::TempStorage room[2];
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    uint2 at[4], sum = {0, 0}, before;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const unsigned part = threadIdx.x * 4 + i;
      at[i] = part < n ? counts[line * n + part] : uint2{0, 0};
      sum.x += at[i].x, sum.y += at[i].y;
    }
    scan(room[0]).ExclusiveSum(sum.x, before.x);
    scan(room[1]).ExclusiveSum(sum.y, before.y);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const unsigned part = threadIdx.x * 4 + i;
      if (part < n) counts[line * n + part] = before;
      before.x += at[i].x, before.y += at[i].y;
    }
    __syncthreads();
  }
}

// Keys below the bound go to the front, those equal to it behind them, in order, until
// there are k.
template <class K>
__global__ void __launch_bounds__(threads)
    collect_kernel(K *key, uint32_t *place, const uint2 *counts, const search<K> *state,
                   const __grid_constant__ sort_lines l, parts p) {
  using scan = cub::BlockScan<uint32_t, threads>;
  __shared__ typename scan::TempStorage room;
  for (int64_t line = blockIdx.y; line < l.s.numel; line += gridDim.y) {
    int64_t offset[3];
    seek(l.s, line, offset);
    const K bound = state[line].prefix;
    const uint32_t equals = state[line].left, belows = uint32_t(l.k) - equals;
    uint2 before = {0, 0};
    if (p.count > 1) before = counts[line * p.count + blockIdx.x];
    const int64_t begin = blockIdx.x * p.each;
    const int64_t end = begin + p.each < l.n ? begin + p.each : l.n;
    for (int64_t from = begin; from < end; from += threads) {
      const int64_t i = from + threadIdx.x;
      K k = 0;
      bool below = false, equal = false;
      if (i < end) {
        k = key_at<K>(l.x, offset[1] + i * l.x_step, l.dtype, l.descending);
        below = k < bound, equal = k == bound;
      }
      if (!__syncthreads_or(below || equal)) continue;
      // both numbers at once: a part has fewer than 2^16 in a round
      uint32_t rank, all;
      scan(room).ExclusiveSum(uint32_t(below) | uint32_t(equal) << 16, rank, all);
      const uint32_t at =
          below ? before.x + (rank & 0xffffu) : belows + before.y + (rank >> 16);
      if (below || (equal && before.y + (rank >> 16) < equals)) {
        key[line * l.k + at] = k;
        place[line * l.k + at] = uint32_t(i);
      }
      before.x += all & 0xffffu, before.y += all >> 16;
    }
  }
}

template <class K> struct layout {
  K *key;
  uint32_t *place, *histogram;
  search<K> *state;
  uint2 *counts;
  size_t bytes;
};

template <class K>
layout<K> lay_out(const mt_call *call, const sort_lines &l, void *scratch) {
  const size_t lines = size_t(l.s.numel), k = size_t(l.k);
  const parts p = share_lines(call, l);
  char *at = static_cast<char *>(scratch);
  const auto take = [&](size_t bytes) {
    char *here = at;
    at += round256(bytes);
    return here;
  };
  layout<K> r;
  r.key = reinterpret_cast<K *>(take(lines * k * sizeof(K)));
  r.place = reinterpret_cast<uint32_t *>(take(lines * k * 4));
  r.histogram = reinterpret_cast<uint32_t *>(take(lines * digits * 4));
  r.state = reinterpret_cast<search<K> *>(take(lines * sizeof(search<K>)));
  r.counts = reinterpret_cast<uint2 *>(take(lines * p.count * sizeof(uint2)));
  r.bytes = size_t(at - static_cast<char *>(scratch));
  return r;
}

} // namespace

template <class K> size_t first_keys_bytes(const mt_call *call, const sort_lines &l) {
  return lay_out<K>(call, l, nullptr).bytes;
}

template <class K>
mt_status first_keys(const mt_call *call, const sort_lines &l, void *scratch,
                     const K **key, const uint32_t **place) {
  const layout<K> r = lay_out<K>(call, l, scratch);
  const parts p = share_lines(call, l);
  const int64_t lines = l.s.numel;
  const cudaStream_t stream = stream_of(call);
  const dim3 grid(p.count, unsigned(lines < 65535 ? lines : 65535));
  const unsigned line_grid = unsigned(lines < INT32_MAX ? lines : INT32_MAX);
  CUDA_TRY(cudaMemsetAsync(r.histogram, 0, size_t(lines) * digits * 4, stream));
  int shift = l.size * 8;
  for (bool first = true; shift > 0; first = false) {
    const int bits = shift < digit_bits ? shift : digit_bits;
    shift -= bits;
    const int next = shift < digit_bits ? shift : digit_bits;
    histogram_kernel<K>
        <<<grid, threads, 0, stream>>>(r.histogram, r.state, l, p, shift, bits, first);
    if (const mt_status status = launched()) return status;
    pick_digit_kernel<K><<<line_grid, threads, 0, stream>>>(r.histogram, r.state, lines,
                                                            uint32_t(l.k), first, next);
    if (const mt_status status = launched()) return status;
  }
  if (p.count > 1) { // where each part's go
    count_kernel<K><<<grid, threads, 0, stream>>>(r.counts, r.state, l, p);
    if (const mt_status status = launched()) return status;
    sum_counts_kernel<<<line_grid, threads, 0, stream>>>(r.counts, lines, p.count);
    if (const mt_status status = launched()) return status;
  }
  collect_kernel<K>
      <<<grid, threads, 0, stream>>>(r.key, r.place, r.counts, r.state, l, p);
  *key = r.key, *place = r.place;
  return launched();
}

template size_t first_keys_bytes<uint32_t>(const mt_call *, const sort_lines &);
template size_t first_keys_bytes<uint64_t>(const mt_call *, const sort_lines &);
template mt_status first_keys<uint32_t>(const mt_call *, const sort_lines &, void *,
                                        const uint32_t **, const uint32_t **);
template mt_status first_keys<uint64_t>(const mt_call *, const sort_lines &, void *,
                                        const uint64_t **, const uint32_t **);
