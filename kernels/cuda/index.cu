// kernels/cuda/index.cu -- elements and slices at positions: gather, scatter_add,
// index_select, index_add, index_copy, embedding. Sums run in the order of the index: the
// writer of an element looks for what belongs to it, so that no atomics are needed, or
// where that is too much work, positions are sorted first.
#include <cub/device/device_radix_sort.cuh>
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/positions.cuh"

namespace {

template <class F> mt_status for_bits(mt_dtype d, F f) {
  switch (dtype_size(d)) {
  case 1: return f(tag<uint8_t>{});
  case 2: return f(tag<uint16_t>{});
  case 4: return f(tag<uint32_t>{});
  default: return f(tag<uint64_t>{});
  }
}

// ---- gather -----------------------------------------------------------------------------

template <class S>
__global__ void __launch_bounds__(256)
    gather_kernel(S *y, const S *x, positions q, int64_t along,
                  const __grid_constant__ space<2> s) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset[2];
    seek(s, i, offset);
    const int64_t at = position_at(q, i);
    y[offset[0]] = at < 0 ? S(0) : x[offset[1] + at * along];
  }
}

// x as the index walks it: the sizes of the index, nothing along dim.
mt_view without(const mt_view *x, const mt_view *index, int dim) {
  mt_view v = *x;
  for (int d = 0; d < v.ndim; d++) v.shape[d] = index->shape[d];
  if (v.ndim > 0) v.stride[dim] = 0;
  v.host = 0;
  return v;
}

mt_status run_gather(const mt_call *call) {
  const mt_view *x = call->in[0], *index = call->in[1];
  const int dim = int(call->attr[0].i[0]);
  const mt_view rest = without(x, index, dim);
  const mt_view *const view[2] = {call->out[0], &rest};
  const space<2> s = make_space(view, true);
  const int64_t along = x->ndim ? x->stride[dim] : 0,
                size = x->ndim ? x->shape[dim] : 1;
  if (s.numel == 0) return MT_OK;
  return for_bits(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    gather_kernel<S>
        <<<blocks_for(s.numel, 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<S *>(call->out[0]->data),
            reinterpret_cast<const S *>(x->data), positions_of(call, index, size, true),
            along, s);
    return launched();
  });
}

// ---- sums at positions: pairs of a target and a source, sorted by target --------------
// Keys: the flat target element or slice; values: the source. Equal keys stay in order.

struct sorted_pairs {
  const int64_t *target, *source;
};

size_t round256(size_t n) { return (n + 255) / 256 * 256; }

size_t sort_bytes(int64_t n) {
  size_t bytes = 0;
  int64_t *none = nullptr;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, none, none, none, none, n);
  return bytes;
}

size_t pairs_scratch(int64_t n) {
  return n == 0 ? 0 : 4 * round256(size_t(n) * 8) + round256(sort_bytes(n));
}

struct pair_room {
  int64_t *key, *value, *key_out, *value_out;
  void *temporary;
};

pair_room lay_out(void *scratch, int64_t n) {
  char *p = static_cast<char *>(scratch);
  const size_t each = round256(size_t(n) * 8);
  return {reinterpret_cast<int64_t *>(p), reinterpret_cast<int64_t *>(p + each),
          reinterpret_cast<int64_t *>(p + 2 * each),
          reinterpret_cast<int64_t *>(p + 3 * each), p + 4 * each};
}

int bits_for(int64_t n) {
  int bits = 1;
  while (bits < 63 && (int64_t(1) << bits) <= n) bits++;
  return bits;
}

// targets: how many there are; a pair that is out of range has the key `targets`.
mt_status sort_pairs(const mt_call *call, const pair_room &r, int64_t n,
                     int64_t targets, sorted_pairs *sorted) {
  size_t bytes = sort_bytes(n);
  CUDA_TRY(cub::DeviceRadixSort::SortPairs(r.temporary, bytes, r.key, r.key_out,
                                           r.value, r.value_out, n, 0,
                                           bits_for(targets), stream_of(call)));
  *sorted = {r.key_out, r.value_out};
  return MT_OK;
}

__global__ void slice_keys_kernel(positions q, int64_t n, pair_room r) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t at = position_at(q, i);
    r.key[i] = at < 0 ? q.size : at;
    r.value[i] = i;
  }
}

template <class T> struct sum_type { using type = T; };
template <> struct sum_type<__half> { using type = float; };
template <> struct sum_type<__nv_bfloat16> { using type = float; };

// y (outer, targets, inner) += src (outer, n, inner) at sorted slices. A thread owns an
// inner element of a run of equal keys: it starts where the run does and adds it up.
// Set: the last of the run replaces instead.
template <class S, bool Set>
__global__ void __launch_bounds__(256)
    add_slices_kernel(S *y, const S *src, sorted_pairs p, int64_t n, int64_t targets,
                      int64_t outer, int64_t inner) {
  using T = typename sum_type<S>::type;
  const int64_t all = outer * n * inner, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t i = e % inner, k = e / inner % n, o = e / inner / n;
    const int64_t key = p.target[k];
    if (key >= targets || (k > 0 && p.target[k - 1] == key)) continue;
    S *to = y + (o * targets + key) * inner + i;
    const S *from = src + o * n * inner + i;
    if (Set) {
      int64_t last = k;
      while (last + 1 < n && p.target[last + 1] == key) last++;
      *to = from[p.source[last] * inner];
    } else {
      T sum = load_as<T>(*to);
      for (int64_t j = k; j < n && p.target[j] == key; j++)
        sum = T(sum + load_as<T>(from[p.source[j] * inner]));
      *to = store_as<S>(sum);
    }
  }
}

template <class S, bool Set>
mt_status add_slices(const mt_call *call, void *y, const void *src, const positions &q,
                     int64_t n, int64_t outer, int64_t inner) {
  const pair_room r = lay_out(call->scratch, n);
  const int64_t all = outer * n * inner;
  sorted_pairs sorted;
  if (all == 0) return MT_OK;
  slice_keys_kernel<<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(q, n,
                                                                                   r);
  if (const mt_status status = launched()) return status;
  if (const mt_status status = sort_pairs(call, r, n, q.size, &sorted)) return status;
  add_slices_kernel<S, Set>
      <<<blocks_for(all, 256, call->device), 256, 0, stream_of(call)>>>(
          static_cast<S *>(y), static_cast<const S *>(src), sorted, n, q.size, outer,
          inner);
  return launched();
}

// ---- scatter_add ------------------------------------------------------------------------

__global__ void scatter_keys_kernel(positions q, int64_t along, int64_t targets,
                                    const __grid_constant__ space<2> s, pair_room r) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < s.numel;
       i += step) {
    int64_t offset[2]; // of y along the other dims, of src
    seek(s, i, offset);
    const int64_t at = position_at(q, i);
    r.key[i] = at < 0 ? targets : offset[0] + at * along;
    r.value[i] = offset[1];
  }
}

size_t scatter_scratch(const mt_call *call) {
  return pairs_scratch(numel(call->in[1]));
}

mt_status run_scatter_add(const mt_call *call) {
  const mt_view *x = call->in[0], *index = call->in[1], *src = call->in[2];
  mt_view *y = call->out[0];
  const int dim = int(call->attr[0].i[0]);
  if (const mt_status status = copy_view(call, x, y)) return status;
  const mt_view rest = without(y, index, dim), from = [&] {
    mt_view v = *src;
    for (int d = 0; d < v.ndim; d++) v.shape[d] = index->shape[d];
    v.host = 0;
    return v;
  }();
  mt_view shape = rest; // only its sizes count, in the order of the index
  const mt_view *const view[2] = {&shape, &from};
  space<2> s = make_space(view, true);
  const int64_t n = s.numel, targets = numel(y);
  if (n == 0) return MT_OK;
  const pair_room r = lay_out(call->scratch, n);
  const positions q = positions_of(call, index, y->ndim ? y->shape[dim] : 1, true);
  scatter_keys_kernel<<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(
      q, y->ndim ? y->stride[dim] : 0, targets, s, r);
  if (const mt_status status = launched()) return status;
  sorted_pairs sorted;
  if (const mt_status status = sort_pairs(call, r, n, targets, &sorted)) return status;
  return with_number(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    add_slices_kernel<S, false>
        <<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<S *>(y->data), reinterpret_cast<const S *>(src->data),
            sorted, n, targets, 1, 1);
    return launched();
  });
}

// ---- slices along a dim: contiguous tensors as (outer, n, inner) ------------------------

struct slices {
  int64_t outer, n, m, inner;
};

slices find_slices(const mt_call *call) {
  const mt_view *x = call->in[0];
  const int dim = int(call->attr[0].i[0]);
  slices s = {1, x->ndim ? x->shape[dim] : 1, numel(call->in[1]), 1};
  for (int d = 0; d < dim && d < x->ndim; d++) s.outer *= x->shape[d];
  for (int d = dim + 1; d < x->ndim; d++) s.inner *= x->shape[d];
  return s;
}

template <class S>
__global__ void __launch_bounds__(256)
    select_kernel(S *y, const S *x, positions q, slices s) {
  const int64_t all = s.outer * s.m * s.inner, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t i = e % s.inner, k = e / s.inner % s.m, o = e / s.inner / s.m;
    const int64_t at = position_at(q, k);
    y[e] = at < 0 ? S{} : x[(o * s.n + at) * s.inner + i];
  }
}

mt_status select(const mt_call *call, const mt_view *x, const positions &q, slices s) {
  const int64_t all = s.outer * s.m * s.inner, size = dtype_size(x->dtype);
  const int64_t row = s.inner * size;
  if (all == 0) return MT_OK;
  // rows of whole 16-byte pieces move as such
  if (row % 16 == 0 && aligned16(x->data) && aligned16(call->out[0]->data)) {
    s.inner = row / 16;
    select_kernel<uint4>
        <<<blocks_for(all * size / 16, 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<uint4 *>(call->out[0]->data),
            reinterpret_cast<const uint4 *>(x->data), q, s);
    return launched();
  }
  return for_bits(x->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    select_kernel<S><<<blocks_for(all, 256, call->device), 256, 0, stream_of(call)>>>(
        reinterpret_cast<S *>(call->out[0]->data), reinterpret_cast<const S *>(x->data),
        q, s);
    return launched();
  });
}

mt_status run_index_select(const mt_call *call) {
  const slices s = find_slices(call);
  return select(call, call->in[0], positions_of(call, call->in[1], s.n, true), s);
}

mt_status run_embedding(const mt_call *call) {
  const mt_view *w = call->in[0];
  const slices s = {1, w->shape[0], numel(call->in[1]), w->shape[1]};
  return select(call, w, positions_of(call, call->in[1], w->shape[0], true), s);
}

size_t index_scratch(const mt_call *call) { return pairs_scratch(numel(call->in[1])); }

mt_status run_index_add(const mt_call *call) {
  const slices s = find_slices(call);
  if (const mt_status status = copy_view(call, call->in[0], call->out[0]))
    return status;
  const positions q = positions_of(call, call->in[1], s.n, true);
  return with_number(call->in[0]->dtype, [&](auto t) {
    return add_slices<typename decltype(t)::type, false>(
        call, call->out[0]->data, call->in[2]->data, q, s.m, s.outer, s.inner);
  });
}

mt_status run_index_copy(const mt_call *call) {
  const slices s = find_slices(call);
  if (const mt_status status = copy_view(call, call->in[0], call->out[0]))
    return status;
  const positions q = positions_of(call, call->in[1], s.n, true);
  return for_bits(call->in[0]->dtype, [&](auto t) {
    return add_slices<typename decltype(t)::type, true>(
        call, call->out[0]->data, call->in[2]->data, q, s.m, s.outer, s.inner);
  });
}

size_t embedding_scratch(const mt_call *call) {
  return pairs_scratch(numel(call->in[0]));
}

mt_status run_embedding_backward(const mt_call *call) {
  const mt_view *index = call->in[0], *dy = call->in[1];
  mt_view *dw = call->out[0];
  if (numel(dw) == 0) return MT_OK;
  CUDA_TRY(cudaMemsetAsync(dw->data, 0, size_t(numel(dw) * dtype_size(dw->dtype)),
                           stream_of(call)));
  const positions q = positions_of(call, index, dw->shape[0], true);
  return with_float(dy->dtype, [&](auto t) {
    return add_slices<typename decltype(t)::type, false>(call, dw->data, dy->data, q,
                                                         numel(index), 1, dw->shape[1]);
  });
}

constexpr uint32_t numbers = MT_FLOAT_MASK | MT_INT_MASK;

} // namespace

CUDA_ENTRY(gather) = {run_gather, nullptr, MT_ALL_MASK, 2};
CUDA_ENTRY(scatter_add) = {run_scatter_add, scatter_scratch, numbers, 2};
CUDA_ENTRY(index_select) = {run_index_select, nullptr, MT_ALL_MASK, 3};
CUDA_ENTRY(index_add) = {run_index_add, index_scratch, numbers, 7};
CUDA_ENTRY(index_copy) = {run_index_copy, index_scratch, MT_ALL_MASK, 7};
CUDA_ENTRY(embedding) = {run_embedding, nullptr, MT_ALL_MASK, 3};
CUDA_ENTRY(embedding_backward) = {run_embedding_backward, embedding_scratch,
                                  MT_FLOAT_MASK, 3};
