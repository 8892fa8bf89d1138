// kernels/cuda/index.cu -- elements and slices at positions: gather, index_select,
// index_add, index_copy, embedding. Sums run in the order of the index, without atomics:
// positions are sorted first.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/positions.cuh"
#include "kernels/cuda/sort_pairs.cuh"

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
// Keys: the target slice, values: the source. Equal keys stay in order.

// Numbers of slices have 32 bits.
mt_status check_count(int64_t n, int64_t targets) {
  if (n < int64_t(UINT32_MAX) && targets < int64_t(UINT32_MAX)) return MT_OK;
  return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^32 - 2 slices");
}

size_t pairs_scratch(int64_t n) {
  if (n == 0 || n >= int64_t(UINT32_MAX)) return 0;
  return 4 * round256(size_t(n) * 4) + sort_pairs_bytes<uint32_t>(uint32_t(n));
}

// The two buffers and, behind them, the sort's own room.
pair_buffers<uint32_t> lay_out(void *scratch, int64_t n, void **room) {
  char *p = static_cast<char *>(scratch);
  const size_t each = round256(size_t(n) * 4);
  const auto part = [&](int i) { return reinterpret_cast<uint32_t *>(p + i * each); };
  *room = p + 4 * each;
  return {{part(0), part(1)}, {part(2), part(3)}, 0};
}

// A pair that is out of range has the key `size`.
__global__ void slice_keys_kernel(positions q, int64_t n, uint32_t *key,
                                  uint32_t *value) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t at = position_at(q, i);
    key[i] = uint32_t(at < 0 ? q.size : at);
    value[i] = uint32_t(i);
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
    add_slices_kernel(S *y, const S *src, const uint32_t *target,
                      const uint32_t *source, int64_t n, int64_t targets, int64_t outer,
                      int64_t inner) {
  using T = typename sum_type<S>::type;
  const int64_t all = outer * n * inner, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t i = e % inner, k = e / inner % n, o = e / inner / n;
    const int64_t key = target[k];
    if (key >= targets || (k > 0 && target[k - 1] == key)) continue;
    S *to = y + (o * targets + key) * inner + i;
    const S *from = src + o * n * inner + i;
    if (Set) {
      int64_t last = k;
      while (last + 1 < n && target[last + 1] == key) last++;
      *to = from[source[last] * inner];
    } else {
      T sum = load_as<T>(*to);
      for (int64_t j = k; j < n && target[j] == key; j++)
        sum = T(sum + load_as<T>(from[source[j] * inner]));
      *to = store_as<S>(sum);
    }
  }
}

template <class S, bool Set>
mt_status add_slices(const mt_call *call, void *y, const void *src, const positions &q,
                     int64_t n, int64_t outer, int64_t inner) {
  void *room;
  const int64_t all = outer * n * inner;
  if (all == 0) return MT_OK;
  if (const mt_status status = check_count(n, q.size)) return status;
  pair_buffers<uint32_t> b = lay_out(call->scratch, n, &room);
  slice_keys_kernel<<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(
      q, n, b.key[0], b.value[0]);
  if (const mt_status status = launched()) return status;
  if (const mt_status status =
          sort_pairs(call, &b, uint32_t(n), bits_for(q.size), room))
    return status;
  add_slices_kernel<S, Set>
      <<<blocks_for(all, 256, call->device), 256, 0, stream_of(call)>>>(
          static_cast<S *>(y), static_cast<const S *>(src), b.key[b.at], b.value[b.at],
          n, q.size, outer, inner);
  return launched();
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
CUDA_ENTRY(index_select) = {run_index_select, nullptr, MT_ALL_MASK, 3};
CUDA_ENTRY(index_add) = {run_index_add, index_scratch, numbers, 7};
CUDA_ENTRY(index_copy) = {run_index_copy, index_scratch, MT_ALL_MASK, 7};
CUDA_ENTRY(embedding) = {run_embedding, nullptr, MT_ALL_MASK, 3};
CUDA_ENTRY(embedding_backward) = {run_embedding_backward, embedding_scratch,
                                  MT_FLOAT_MASK, 3};
