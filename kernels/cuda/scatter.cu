// kernels/cuda/scatter.cu -- elements replaced at positions, added, multiplied, or the
// larger or smaller kept. Who was last is found with integers; products, and sums that
// are to be the same each time, are made of runs that are sorted by target first.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/sort_pairs.cuh"
#include "kernels/cuda/walk.cuh"

namespace {

walk make_walk(const mt_call *call) {
  const mt_view *index = call->in[1], *out = call->out[0];
  const int dim = int(call->attr[0].i[0]);
  mt_view y = *out, src = *call->in[2];
  for (int d = 0; d < index->ndim; d++) y.shape[d] = src.shape[d] = index->shape[d];
  if (y.ndim > 0) y.stride[dim] = 0;
  y.host = src.host = 0;
  const mt_view *const view[3] = {&y, &src, index};
  return {make_space(view, true),
          positions_of(call, index, out->ndim ? out->shape[dim] : 1, true),
          out->ndim ? out->stride[dim] : 0};
}

// ---- _scatter ---------------------------------------------------------------------------

// last[target] = the number, from 1, of the last element that goes there.
template <class N>
__global__ void __launch_bounds__(256)
    find_last_kernel(N *last, const __grid_constant__ walk w) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < w.s.numel;
       i += step) {
    int64_t offset[3];
    seek(w.s, i, offset);
    const int64_t at = position_at(w.q, i);
    if (at >= 0) atomicMax(&last[offset[0] + at * w.along], N(i + 1));
  }
}

// last NULL: one of several at a place wins, whichever it is.
template <bool Line, class N, class S>
__global__ void __launch_bounds__(walk_threads)
    scatter_kernel(S *y, const S *src, const N *last, const __grid_constant__ walk w) {
  for (int64_t b = blockIdx.x; b * walk_block < w.s.numel; b += gridDim.x) {
    int64_t to[batch];
    S v[batch];
    walk_read<Line>(w, b, src, to, v);
#pragma unroll
    for (int j = 0; j < batch; j++)
      if (to[j] >= 0 && (!last || last[to[j]] == N(walk_number(b, j) + 1)))
        y[to[j]] = v[j];
  }
}

bool few(const mt_call *call) { return numel(call->in[1]) < UINT32_MAX; }

size_t scatter_scratch(const mt_call *call) {
  if (numel(call->in[1]) == 0 || !call->attr[1].i[0]) return 0;
  return size_t(numel(call->out[0])) * (few(call) ? 4 : 8);
}

template <class N> mt_status scatter(const mt_call *call) {
  const walk w = make_walk(call);
  N *last = static_cast<N *>(call->scratch);
  const cudaStream_t stream = stream_of(call);
  if (!call->attr[1].i[0]) {
    last = nullptr;
  } else {
    CUDA_TRY(cudaMemsetAsync(last, 0, size_t(numel(call->out[0])) * sizeof(N), stream));
    find_last_kernel<N>
        <<<blocks_for(w.s.numel, 256, call->device), 256, 0, stream>>>(last, w);
    if (const mt_status status = launched()) return status;
  }
  const auto launch = [&](auto t) {
    using S = typename decltype(t)::type;
    const auto kernel =
        is_line(w) ? scatter_kernel<true, N, S> : scatter_kernel<false, N, S>;
    kernel<<<walk_grid(w), walk_threads, 0, stream>>>(
        reinterpret_cast<S *>(call->out[0]->data),
        reinterpret_cast<const S *>(call->in[2]->data), last, w);
    return launched();
  };
  switch (dtype_size(call->in[0]->dtype)) {
  case 1: return launch(tag<uint8_t>{});
  case 2: return launch(tag<uint16_t>{});
  case 4: return launch(tag<uint32_t>{});
  default: return launch(tag<uint64_t>{});
  }
}

mt_status run_scatter(const mt_call *call) {
  if (const mt_status status = copy_view(call, call->in[0], call->out[0]))
    return status;
  if (numel(call->in[1]) == 0) return MT_OK;
  return few(call) ? scatter<unsigned>(call) : scatter<unsigned long long>(call);
}

// ---- scatter_add, _scatter_fold ----------------------------------------------------------

// What travels with a key: the element of src itself where it has four bytes at most
// (size > 0), else its number.
template <class K>
__global__ void __launch_bounds__(256)
    fold_keys_kernel(K *key, uint32_t *value, const void *src, int size,
                     int64_t targets, const __grid_constant__ walk w) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < w.s.numel;
       i += step) {
    int64_t offset[3];
    seek(w.s, i, offset);
    const int64_t at = position_at(w.q, i);
    key[i] = K(at < 0 ? targets : offset[0] + at * w.along);
    switch (size) {
    case 1: value[i] = static_cast<const uint8_t *>(src)[offset[1]]; break;
    case 2: value[i] = static_cast<const uint16_t *>(src)[offset[1]]; break;
    case 4: value[i] = static_cast<const uint32_t *>(src)[offset[1]]; break;
    default: value[i] = uint32_t(i);
    }
  }
}

// The element that travelled as `bits`, or lies in src.
template <class S>
__device__ inline compute_t<S> travelled(uint32_t bits, const S *src, const walk &w) {
  if constexpr (sizeof(S) <= 4) {
    S x;
    memcpy(&x, &bits, sizeof x);
    return load_as<compute_t<S>>(x);
  } else {
    int64_t offset[3];
    seek(w.s, bits, offset);
    return src[offset[1]];
  }
}

// A thread folds a run of equal targets, from its first element on.
template <class K, class S>
__global__ void __launch_bounds__(256)
    fold_runs_kernel(S *y, const S *src, const K *key, const uint32_t *value,
                     int64_t targets, bool sums, const __grid_constant__ walk w) {
  using T = compute_t<S>;
  const int64_t n = w.s.numel, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const K k = key[i];
    if (int64_t(k) >= targets || (i > 0 && key[i - 1] == k)) continue;
    T result = load_as<T>(y[k]);
    for (int64_t j = i; j < n && key[j] == k; j++) {
      const T x = travelled<S>(value[j], src, w);
      result = sums ? T(result + x) : T(result * x);
    }
    y[k] = store_as<S>(result);
  }
}

bool narrow(const mt_call *call) { return numel(call->out[0]) < UINT32_MAX; }

template <class K> struct layout {
  pair_buffers<K> b;
  void *room;
  size_t bytes;
};

template <class K> layout<K> lay_out(void *scratch, int64_t n) {
  char *p = static_cast<char *>(scratch);
  layout<K> r{};
  for (int i = 0; i < 2; i++) {
    r.b.key[i] = reinterpret_cast<K *>(p);
    p += round256(size_t(n) * sizeof(K));
    r.b.value[i] = reinterpret_cast<uint32_t *>(p);
    p += round256(size_t(n) * 4);
  }
  r.room = p;
  r.bytes = size_t(p - static_cast<char *>(scratch)) + sort_pairs_bytes<K>(uint32_t(n));
  return r;
}

fold_kind fold_of(const mt_call *call) {
  static const fold_kind kind[] = {FOLD_PROD, FOLD_AMAX, FOLD_AMIN};
  return call->op == MT_OP_scatter_add ? FOLD_SUM : kind[call->attr[1].i[0]];
}

size_t fold_scratch(const mt_call *call) {
  const int64_t n = numel(call->in[1]);
  if (n == 0) return 0;
  if (accumulates(call, n, fold_of(call))) return accumulate_scratch(call);
  if (n >= int64_t(UINT32_MAX)) return 0;
  return narrow(call) ? lay_out<uint32_t>(nullptr, n).bytes
                      : lay_out<uint64_t>(nullptr, n).bytes;
}

template <class K> mt_status fold_runs(const mt_call *call, bool sums) {
  const walk w = make_walk(call);
  const int64_t n = w.s.numel, targets = numel(call->out[0]);
  layout<K> r = lay_out<K>(call->scratch, n);
  const unsigned grid = blocks_for(n, 256, call->device);
  const cudaStream_t stream = stream_of(call);
  const int size = int(dtype_size(call->in[2]->dtype));
  fold_keys_kernel<K><<<grid, 256, 0, stream>>>(
      r.b.key[0], r.b.value[0], call->in[2]->data, size <= 4 ? size : 0, targets, w);
  if (const mt_status status = launched()) return status;
  if (const mt_status status =
          sort_pairs<K>(call, &r.b, uint32_t(n), bits_for(targets), r.room))
    return status;
  const auto launch = [&](auto t) {
    using S = typename decltype(t)::type;
    fold_runs_kernel<K, S><<<grid, 256, 0, stream>>>(
        reinterpret_cast<S *>(call->out[0]->data),
        reinterpret_cast<const S *>(call->in[2]->data), r.b.key[r.b.at],
        r.b.value[r.b.at], targets, sums, w);
    return launched();
  };
  if (call->in[0]->dtype == MT_BOOL) return launch(tag<uint8_t>{});
  return with_number(call->in[0]->dtype, launch);
}

mt_status run_fold(const mt_call *call) {
  const int64_t n = numel(call->in[1]);
  const fold_kind how = fold_of(call);
  if (n > 0 && accumulates(call, n, how))
    return accumulate(call, call->in[0], call->in[2]->data, make_walk(call), how);
  if (const mt_status status = copy_view(call, call->in[0], call->out[0]))
    return status;
  if (n == 0) return MT_OK;
  if (n >= int64_t(UINT32_MAX))
    return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^32 - 2 elements in index");
  return narrow(call) ? fold_runs<uint32_t>(call, how == FOLD_SUM)
                      : fold_runs<uint64_t>(call, how == FOLD_SUM);
}

} // namespace

CUDA_ENTRY(_scatter) = {run_scatter, scatter_scratch, MT_ALL_MASK, 2};
CUDA_ENTRY(_scatter_fold) = {run_fold, fold_scratch, MT_ALL_MASK, 2};
CUDA_ENTRY(scatter_add) = {run_fold, fold_scratch, MT_FLOAT_MASK | MT_INT_MASK, 2};
