// kernels/cuda/index.cu -- elements and slices at positions: gather, index_select,
// index_add, index_copy, embedding. Slices are summed in the order of the index, whose
// positions are sorted first; few or short ones by atomics.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/positions.cuh"
#include "kernels/cuda/sort_pairs.cuh"
#include "kernels/cuda/walk.cuh"

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

// ---- writing slices: all of y in one pass, from x and what comes to each ---------------

// head[t] = the number, from 1, of the last slice that goes to t.
__global__ void last_heads_kernel(positions q, int64_t n, uint32_t *head) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t at = position_at(q, i);
    if (at >= 0) atomicMax(&head[at], uint32_t(i + 1));
  }
}

// A slice whose position is out of range has the key `size`.
__global__ void slice_keys_kernel(positions q, int64_t n, uint32_t *key,
                                  uint32_t *value) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t at = position_at(q, i);
    key[i] = uint32_t(at < 0 ? q.size : at);
    value[i] = uint32_t(i);
  }
}

// head[t] = where, from 1, the run of the key t begins.
__global__ void run_heads_kernel(const uint32_t *key, int64_t n, int64_t targets,
                                 uint32_t *head) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    if (key[i] < targets && (i == 0 || key[i - 1] != key[i]))
      head[key[i]] = uint32_t(i + 1);
}

// Offsets in pieces of V elements: y and x, src without its dim, the target.
struct writing {
  space<3> s;
  int64_t n, along;     // slices of src; pieces of one
  const uint32_t *head; // of a target; 0: nothing comes there
};

// The slice `head - 1` of src in the place of x's.
template <class S>
__global__ void __launch_bounds__(256)
    replace_slices_kernel(S *y, const S *x, const S *src,
                          const __grid_constant__ writing w) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < w.s.numel;
       e += step) {
    int64_t offset[3];
    seek(w.s, e, offset);
    const int64_t k = int64_t(w.head[offset[2]]) - 1;
    y[e] = k < 0 ? x[e] : src[offset[1] + k * w.along];
  }
}

// x (NULL: zeros) and the slices of a run of equal keys, in order.
template <class S, int V>
__global__ void __launch_bounds__(256)
    add_slices_kernel(pack<S, V> *y, const pack<S, V> *x, const pack<S, V> *src,
                      const uint32_t *key, const uint32_t *source,
                      const __grid_constant__ writing w) {
  using T = compute_t<S>;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < w.s.numel;
       e += step) {
    int64_t offset[3];
    seek(w.s, e, offset);
    const int64_t t = offset[2], head = w.head[t];
    pack<S, V> p{};
    if (x) p = x[e];
    if (head > 0) {
      T sum[V];
#pragma unroll
      for (int i = 0; i < V; i++) sum[i] = load_as<T>(p.at[i]);
      for (int64_t k = head - 1; k < w.n && key[k] == t; k++) {
        const pack<S, V> more = src[offset[1] + int64_t(source[k]) * w.along];
#pragma unroll
        for (int i = 0; i < V; i++) sum[i] = T(sum[i] + load_as<T>(more.at[i]));
      }
#pragma unroll
      for (int i = 0; i < V; i++) p.at[i] = store_as<S>(sum[i]);
    }
    y[e] = p;
  }
}

// Numbers of slices have 32 bits.
mt_status check_count(int64_t n, int64_t targets) {
  if (n < int64_t(UINT32_MAX) && targets < int64_t(UINT32_MAX)) return MT_OK;
  return cuda_fail_text(MT_EUNSUPPORTED, "more than 2^32 - 2 slices");
}

size_t heads_bytes(int64_t targets) { return round256(size_t(targets) * 4); }

// Heads, two buffers of pairs and the sort's own room.
size_t pairs_scratch(int64_t n, int64_t targets) {
  if (n == 0 || n >= int64_t(UINT32_MAX)) return 0;
  return heads_bytes(targets) + 4 * round256(size_t(n) * 4) +
         sort_pairs_bytes<uint32_t>(uint32_t(n));
}

// Loops over (outer, along, inner) with the strides of three views.
space<3> slices_space(const int64_t (&shape)[3], const int64_t (&stride)[3][3]) {
  mt_view v[3] = {};
  for (int k = 0; k < 3; k++) {
    v[k].ndim = 3;
    for (int d = 0; d < 3; d++) v[k].shape[d] = shape[d], v[k].stride[d] = stride[k][d];
  }
  const mt_view *const view[3] = {&v[0], &v[1], &v[2]};
  return make_space(view, true);
}

writing make_writing(const slices &s, const uint32_t *head) {
  return {slices_space({s.outer, s.n, s.inner},
                       {{s.n * s.inner, s.inner, 1}, {s.m * s.inner, 0, 1}, {0, 1, 0}}),
          s.m, s.inner, head};
}

// ---- index_copy -------------------------------------------------------------------------

size_t index_copy_scratch(const mt_call *call) {
  return numel(call->in[2]) == 0 ? 0 : heads_bytes(find_slices(call).n);
}

mt_status run_index_copy(const mt_call *call) {
  slices s = find_slices(call);
  const mt_view *x = call->in[0], *src = call->in[2], *out = call->out[0];
  if (numel(src) == 0) return copy_view(call, x, call->out[0]);
  if (const mt_status status = check_count(s.m, s.n)) return status;
  uint32_t *const head = static_cast<uint32_t *>(call->scratch);
  CUDA_TRY(cudaMemsetAsync(head, 0, size_t(s.n) * 4, stream_of(call)));
  last_heads_kernel<<<blocks_for(s.m, 256, call->device), 256, 0, stream_of(call)>>>(
      positions_of(call, call->in[1], s.n, true), s.m, head);
  if (const mt_status status = launched()) return status;
  const auto launch = [&](auto t) {
    using S = typename decltype(t)::type;
    const writing w = make_writing(s, head);
    replace_slices_kernel<S>
        <<<blocks_for(w.s.numel, 256, call->device), 256, 0, stream_of(call)>>>(
            reinterpret_cast<S *>(out->data), reinterpret_cast<const S *>(x->data),
            reinterpret_cast<const S *>(src->data), w);
    return launched();
  };
  const int64_t row = s.inner * dtype_size(x->dtype);
  if (row % 16 == 0 && aligned16(x->data) && aligned16(src->data) &&
      aligned16(out->data)) {
    s.inner = row / 16;
    return launch(tag<uint4>{});
  }
  return for_bits(x->dtype, launch);
}

// ---- index_add, embedding_backward ------------------------------------------------------

// Are the positions to be sorted first? Then y is written once, but sorting takes as long
// as some 200 bytes for each, and long runs would be added by few threads.
bool sorts(const mt_call *call, const slices &s) {
  const int64_t each = s.outer * s.inner;
  if (!accumulates(call, s.m * each, FOLD_SUM)) return true;
  return each >= 32 && s.m * each >= 1 << 20 && s.m <= 4 * s.n;
}

size_t add_scratch(const mt_call *call, const slices &s) {
  if (s.outer * s.m * s.inner == 0) return 0;
  return sorts(call, s) ? pairs_scratch(s.m, s.n) : accumulate_scratch(call);
}

template <class S, int V>
mt_status add_sorted(const mt_call *call, const mt_view *x, const mt_view *src,
                     const uint32_t *key, const uint32_t *source, slices s,
                     const uint32_t *head) {
  s.inner /= V;
  const writing w = make_writing(s, head);
  add_slices_kernel<S, V>
      <<<blocks_for(w.s.numel, 256, call->device), 256, 0, stream_of(call)>>>(
          reinterpret_cast<pack<S, V> *>(call->out[0]->data),
          x ? reinterpret_cast<const pack<S, V> *>(x->data) : nullptr,
          reinterpret_cast<const pack<S, V> *>(src->data), key, source, w);
  return launched();
}

mt_status sort_and_add(const mt_call *call, const mt_view *x, const positions &q,
                       const mt_view *src, const slices &s) {
  if (const mt_status status = check_count(s.m, s.n)) return status;
  char *p = static_cast<char *>(call->scratch);
  uint32_t *const head = reinterpret_cast<uint32_t *>(p);
  p += heads_bytes(s.n);
  const size_t size = round256(size_t(s.m) * 4);
  const auto part = [&](int i) { return reinterpret_cast<uint32_t *>(p + i * size); };
  pair_buffers<uint32_t> b = {{part(0), part(1)}, {part(2), part(3)}, 0};
  const unsigned grid = blocks_for(s.m, 256, call->device);
  const cudaStream_t stream = stream_of(call);
  slice_keys_kernel<<<grid, 256, 0, stream>>>(q, s.m, b.key[0], b.value[0]);
  if (const mt_status status = launched()) return status;
  if (const mt_status status =
          sort_pairs(call, &b, uint32_t(s.m), bits_for(s.n), part(4)))
    return status;
  CUDA_TRY(cudaMemsetAsync(head, 0, size_t(s.n) * 4, stream));
  run_heads_kernel<<<grid, 256, 0, stream>>>(b.key[b.at], s.m, s.n, head);
  if (const mt_status status = launched()) return status;
  const bool aligned = aligned16(src->data) && aligned16(call->out[0]->data) &&
                       (!x || aligned16(x->data));
  return with_number(call->out[0]->dtype, [&](auto t) {
    using S = typename decltype(t)::type;
    constexpr int V = 16 / int(sizeof(S));
    const bool pieces = aligned && s.inner % V == 0;
    return pieces ? add_sorted<S, V>(call, x, src, b.key[b.at], b.value[b.at], s, head)
                  : add_sorted<S, 1>(call, x, src, b.key[b.at], b.value[b.at], s, head);
  });
}

// out[0] = x, or zeros where x is NULL, with slices of src added at the index.
mt_status add_at(const mt_call *call, const mt_view *x, const mt_view *index,
                 const mt_view *src, const slices &s) {
  mt_view *out = call->out[0];
  const positions q = positions_of(call, index, s.n, true);
  if (s.outer * s.m * s.inner == 0) {
    if (x) return copy_view(call, x, out);
    if (numel(out) == 0) return MT_OK;
    CUDA_TRY(cudaMemsetAsync(out->data, 0, size_t(numel(out) * dtype_size(out->dtype)),
                             stream_of(call)));
    return MT_OK;
  }
  if (sorts(call, s)) return sort_and_add(call, x, q, src, s);
  const walk w = {
      slices_space({s.outer, s.m, s.inner},
                   {{s.n * s.inner, 0, 1}, {s.m * s.inner, s.inner, 1}, {0, 1, 0}}),
      q, s.inner};
  return accumulate(call, x, src->data, w, FOLD_SUM);
}

size_t index_add_scratch(const mt_call *call) {
  return add_scratch(call, find_slices(call));
}

mt_status run_index_add(const mt_call *call) {
  return add_at(call, call->in[0], call->in[1], call->in[2], find_slices(call));
}

slices embedding_slices(const mt_call *call) {
  const mt_view *dw = call->out[0];
  return {1, dw->shape[0], numel(call->in[0]), dw->shape[1]};
}

size_t embedding_scratch(const mt_call *call) {
  return add_scratch(call, embedding_slices(call));
}

mt_status run_embedding_backward(const mt_call *call) {
  return add_at(call, nullptr, call->in[0], call->in[1], embedding_slices(call));
}

constexpr uint32_t numbers = MT_FLOAT_MASK | MT_INT_MASK;

} // namespace

CUDA_ENTRY(gather) = {run_gather, nullptr, MT_ALL_MASK, 2};
CUDA_ENTRY(index_select) = {run_index_select, nullptr, MT_ALL_MASK, 3};
CUDA_ENTRY(index_add) = {run_index_add, index_add_scratch, numbers, 7};
CUDA_ENTRY(index_copy) = {run_index_copy, index_copy_scratch, MT_ALL_MASK, 7};
CUDA_ENTRY(embedding) = {run_embedding, nullptr, MT_ALL_MASK, 3};
CUDA_ENTRY(embedding_backward) = {run_embedding_backward, embedding_scratch,
                                  MT_FLOAT_MASK, 3};
