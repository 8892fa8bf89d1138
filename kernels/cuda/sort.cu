// kernels/cuda/sort.cu -- sort and topk along a dim: a block sorts a short line; long
// lines are sorted all at once, by their number and their keys.
#include <cub/block/block_radix_sort.cuh>
#include "kernels/cuda/sort_keys.cuh"

sort_lines make_sort_lines(const mt_call *call, int dim, bool descending, int64_t k) {
  const mt_view *x = call->in[0], *y = call->out[0];
  const mt_view *index = call->nout > 1 ? call->out[1] : nullptr;
  const mt_view rest_x = without_dim(x, dim), rest_y = without_dim(y ? y : index, dim);
  const mt_view rest_index = without_dim(index ? index : y, dim);
  const mt_view *const view[3] = {&rest_y, &rest_x, &rest_index};
  sort_lines l{};
  l.x = x->data, l.y = y ? y->data : nullptr;
  l.index = index ? reinterpret_cast<int64_t *>(index->data) : nullptr;
  l.dtype = x->dtype, l.size = int(dtype_size(x->dtype)), l.descending = descending;
  l.n = x->ndim ? x->shape[dim] : 1, l.k = k < 0 ? l.n : k;
  if (x->ndim) {
    l.x_step = x->stride[dim];
    l.y_step = y ? y->stride[dim] : 0, l.index_step = index ? index->stride[dim] : 0;
  }
  l.s = make_space(view);
  return l;
}

namespace {

// ---- a block a line ---------------------------------------------------------------------

// key: made before, with the places that they came from; else from x.
template <class K, int Threads, int Items>
__global__ void __launch_bounds__(Threads)
    sort_line_kernel(const __grid_constant__ sort_lines l, const K *key,
                     const uint32_t *place, int n) {
  using sorter = cub::BlockRadixSort<K, Threads, Items, uint16_t>;
  __shared__ typename sorter::TempStorage room;
  for (int64_t line = blockIdx.x; line < l.s.numel; line += gridDim.x) {
    int64_t offset[3];
    seek(l.s, line, offset);
    K k[Items];
    uint16_t at[Items];
#pragma unroll
    for (int j = 0; j < Items; j++) {
      const int i = int(threadIdx.x) * Items + j;
      at[j] = uint16_t(i);
      k[j] = ~K(0); // behind all, since equal ones stay in order
      if (i < n)
        k[j] = key ? key[line * n + i]
                   : key_at<K>(l.x, offset[1] + i * l.x_step, l.dtype, l.descending);
    }
    sorter(room).SortBlockedToStriped(k, at, 0, l.size * 8);
#pragma unroll
    for (int j = 0; j < Items; j++) {
      const int i = j * Threads + int(threadIdx.x);
      if (i < l.k)
        store_sorted(l, offset, i, place ? int64_t(place[line * n + at[j]]) : at[j]);
    }
    __syncthreads();
  }
}

template <class K, int Threads, int Items>
mt_status launch_sort_line(const mt_call *call, const sort_lines &l, const K *key,
                           const uint32_t *place, int n) {
  const unsigned grid = unsigned(l.s.numel < INT32_MAX ? l.s.numel : INT32_MAX);
  sort_line_kernel<K, Threads, Items>
      <<<grid, Threads, 0, stream_of(call)>>>(l, key, place, n);
  return launched();
}

// n keys a line, at most block_sort_most.
template <class K>
mt_status sort_short(const mt_call *call, const sort_lines &l, const K *key,
                     const uint32_t *place, int n) {
  if (n <= 256) return launch_sort_line<K, 64, 4>(call, l, key, place, n);
  if (n <= 1024) return launch_sort_line<K, 128, 8>(call, l, key, place, n);
  return launch_sort_line<K, 256, 16>(call, l, key, place, n);
}

// ---- all at once ------------------------------------------------------------------------

// So many lines together: their elements are counted in 32 bits.
int64_t lines_at_once(const sort_lines &l) {
  const int64_t most = (int64_t(1) << 30) / l.n;
  return most < 1 ? 1 : most < l.s.numel ? most : l.s.numel;
}

// Keys of lines first .. first + count - 1; above bit `shift` their line's number.
template <class W, class K>
__global__ void __launch_bounds__(256)
    load_keys_kernel(W *key, uint32_t *value, const __grid_constant__ sort_lines l,
                     int64_t first, int64_t count, int shift, bool flat) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, all = count * l.n;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t line = count > 1 ? e / l.n : 0, i = e - line * l.n;
    int64_t offset[3];
    seek(l.s, first + line, offset);
    W k = key_at<K>(l.x, offset[1] + i * l.x_step, l.dtype, l.descending);
    if (shift > 0) k |= W(line) << shift;
    key[e] = k;
    if (value) value[e] = uint32_t(flat ? e : i);
  }
}

// The line of each element, after its keys have been sorted.
__global__ void __launch_bounds__(256)
    line_keys_kernel(uint32_t *key, const uint32_t *value, int64_t n, int64_t all) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step)
    key[e] = uint32_t(value[e] / uint32_t(n));
}

// Keys that are sorted come back as elements; only a zero's sign and what a NaN is are
// looked up. W: with a line's number above the key. key NULL: the values are places in
// all lines, and the elements are looked up.
template <class W, class K>
__global__ void __launch_bounds__(256)
    store_lines_kernel(const W *key, const uint32_t *value,
                       const __grid_constant__ sort_lines l, int64_t first,
                       int64_t count) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, all = count * l.k;
  const bool is_float = MT_IS_FLOAT(l.dtype);
  const K top = K(1) << (l.size * 8 - 1), mask = top | (top - 1);
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t line = count > 1 ? e / l.k : 0, i = e - line * l.k;
    int64_t offset[3];
    seek(l.s, first + line, offset);
    int64_t from = value[line * l.n + i];
    if (!key) {
      store_sorted(l, offset, i, from - line * l.n);
      continue;
    }
    if (l.index) l.index[offset[2] + i * l.index_step] = from + 1;
    if (!l.y) continue;
    K k = K(key[line * l.n + i]) & mask;
    if (l.descending) k ^= mask;
    const int64_t to = offset[0] + i * l.y_step;
    if (is_float && (k == top || k == mask))
      copy_element(l.y, to, l.x, offset[1] + from * l.x_step, l.size);
    else
      store_key<K>(l.y, to, k, l.dtype);
  }
}

// What is laid out in scratch: two buffers of keys, two of values, the sort's room.
template <class W> struct layout {
  pair_buffers<W> b;
  void *room;
  size_t bytes;
};

template <class W> layout<W> lay_out(void *scratch, int64_t all) {
  char *p = static_cast<char *>(scratch);
  layout<W> r{};
  for (int i = 0; i < 2; i++) {
    r.b.key[i] = reinterpret_cast<W *>(p);
    p += round256(size_t(all) * sizeof(W));
    r.b.value[i] = reinterpret_cast<uint32_t *>(p);
    p += round256(size_t(all) * 4);
  }
  r.room = p;
  size_t bytes = sort_pairs_bytes<W>(uint32_t(all));
  const size_t narrow = sort_pairs_bytes<uint32_t>(uint32_t(all));
  if (sizeof(W) == 8 && narrow > bytes) bytes = narrow;
  r.bytes = size_t(p - static_cast<char *>(scratch)) + bytes;
  return r;
}

template <class W, class K>
mt_status sort_long(const mt_call *call, const sort_lines &l) {
  const int64_t together = lines_at_once(l), all = together * l.n;
  const int bits = l.size * 8;
  const bool wide =
      sizeof(K) == 8 && together > 1; // the line does not fit beside the key
  for (int64_t first = 0; first < l.s.numel; first += together) {
    const int64_t count = together < l.s.numel - first ? together : l.s.numel - first;
    const int64_t n = count * l.n;
    layout<W> r = lay_out<W>(call->scratch, all);
    const int shift = sizeof(K) == 4 && together > 1 ? bits : 0;
    load_keys_kernel<W, K>
        <<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(
            r.b.key[0], r.b.value[0], l, first, count, shift, wide);
    if (const mt_status status = launched()) return status;
    const int more = shift && count > 1 ? bits_for(count - 1) : 0;
    if (const mt_status status =
            sort_pairs<W>(call, &r.b, uint32_t(n), bits + more, r.room))
      return status;
    const uint32_t *sorted = r.b.value[r.b.at];
    if (wide && count > 1) { // then by line, which keeps the order of the keys
      pair_buffers<uint32_t> b{{reinterpret_cast<uint32_t *>(r.b.key[0]),
                                reinterpret_cast<uint32_t *>(r.b.key[1])},
                               {r.b.value[r.b.at], r.b.value[1 - r.b.at]},
                               0};
      line_keys_kernel<<<blocks_for(n, 256, call->device), 256, 0, stream_of(call)>>>(
          b.key[0], b.value[0], l.n, n);
      if (const mt_status status = launched()) return status;
      if (const mt_status status =
              sort_pairs<uint32_t>(call, &b, uint32_t(n), bits_for(count - 1), r.room))
        return status;
      sorted = b.value[b.at];
    }
    const W *keys = wide && count > 1 ? nullptr : r.b.key[r.b.at];
    store_lines_kernel<W, K>
        <<<blocks_for(count * l.k, 256, call->device), 256, 0, stream_of(call)>>>(
            keys, sorted, l, first, count);
    if (const mt_status status = launched()) return status;
  }
  return MT_OK;
}

// ---- without positions ------------------------------------------------------------------

template <class W, class K>
__global__ void __launch_bounds__(256)
    store_keys_kernel(const W *key, const __grid_constant__ sort_lines l, int64_t first,
                      int64_t count) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, all = count * l.n;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < all; e += step) {
    const int64_t line = count > 1 ? e / l.n : 0, i = e - line * l.n;
    int64_t offset[3];
    seek(l.s, first + line, offset);
    store_key<K>(l.y, offset[0] + i * l.y_step, K(key[e]), l.dtype);
  }
}

template <class W> size_t values_bytes(int64_t all) {
  return 2 * round256(size_t(all) * sizeof(W)) + sort_keys_bytes<W>(uint32_t(all));
}

template <class W, class K>
mt_status sort_values(const mt_call *call, const sort_lines &l) {
  const int64_t together = lines_at_once(l), all = together * l.n;
  const int given = int(call->attr[1].i[0]), every = l.size * 8;
  const int bits = together == 1 && given > 0 && given < every ? given : every;
  const size_t each = round256(size_t(all) * sizeof(W));
  char *p = static_cast<char *>(call->scratch);
  W *const key[2] = {reinterpret_cast<W *>(p), reinterpret_cast<W *>(p + each)};
  for (int64_t first = 0; first < l.s.numel; first += together) {
    const int64_t count = together < l.s.numel - first ? together : l.s.numel - first;
    const int64_t n = count * l.n;
    const unsigned grid = blocks_for(n, 256, call->device);
    int at;
    load_keys_kernel<W, K><<<grid, 256, 0, stream_of(call)>>>(
        key[0], nullptr, l, first, count, count > 1 ? bits : 0, false);
    if (const mt_status status = launched()) return status;
    if (const mt_status status =
            sort_keys<W>(call, key, &at, uint32_t(n),
                         bits + (count > 1 ? bits_for(count - 1) : 0), p + 2 * each))
      return status;
    store_keys_kernel<W, K>
        <<<grid, 256, 0, stream_of(call)>>>(key[at], l, first, count);
    if (const mt_status status = launched()) return status;
  }
  return MT_OK;
}

// ---- the calls --------------------------------------------------------------------------

enum class way { none, short_lines, select, long_lines };

way way_of(const sort_lines &l) {
  if (l.s.numel == 0 || l.n == 0 || l.k == 0) return way::none;
  if (l.n <= block_sort_most) return way::short_lines;
  return l.k <= block_sort_most && l.k < l.n ? way::select : way::long_lines;
}

size_t scratch_of(const mt_call *call, const sort_lines &l) {
  switch (way_of(l)) {
  case way::select:
    return l.size == 8 ? first_keys_bytes<uint64_t>(call, l)
                       : first_keys_bytes<uint32_t>(call, l);
  case way::long_lines: {
    const int64_t all = lines_at_once(l) * l.n;
    if (all >= int64_t(UINT32_MAX)) return 0;
    return l.size <= 4 && lines_at_once(l) == 1 ? lay_out<uint32_t>(nullptr, all).bytes
                                                : lay_out<uint64_t>(nullptr, all).bytes;
  }
  default: return 0;
  }
}

template <class K> mt_status select_first(const mt_call *call, const sort_lines &l) {
  const K *key;
  const uint32_t *place;
  if (const mt_status status = first_keys<K>(call, l, call->scratch, &key, &place))
    return status;
  return sort_short<K>(call, l, key, place, int(l.k));
}

mt_status run_lines(const mt_call *call, const sort_lines &l) {
  const way w = way_of(l);
  if (w == way::none) return MT_OK;
  if (l.n >= int64_t(UINT32_MAX))
    return cuda_fail_text(MT_EUNSUPPORTED, "lines of more than 2^32 - 2 elements");
  if (l.size == 8)
    return w == way::short_lines
               ? sort_short<uint64_t>(call, l, nullptr, nullptr, int(l.n))
           : w == way::select ? select_first<uint64_t>(call, l)
                              : sort_long<uint64_t, uint64_t>(call, l);
  if (w == way::short_lines)
    return sort_short<uint32_t>(call, l, nullptr, nullptr, int(l.n));
  if (w == way::select) return select_first<uint32_t>(call, l);
  return lines_at_once(l) == 1 ? sort_long<uint32_t, uint32_t>(call, l)
                               : sort_long<uint64_t, uint32_t>(call, l);
}

sort_lines lines_of_sort(const mt_call *call) {
  return make_sort_lines(call, int(call->attr[0].i[0]), call->attr[1].i[0] != 0, -1);
}
sort_lines lines_of_topk(const mt_call *call) {
  return make_sort_lines(call, int(call->attr[1].i[0]), call->attr[2].i[0] != 0,
                         call->attr[0].i[0]);
}
size_t sort_scratch(const mt_call *call) {
  return scratch_of(call, lines_of_sort(call));
}
size_t topk_scratch(const mt_call *call) {
  return scratch_of(call, lines_of_topk(call));
}
mt_status run_sort(const mt_call *call) { return run_lines(call, lines_of_sort(call)); }
mt_status run_topk(const mt_call *call) { return run_lines(call, lines_of_topk(call)); }

sort_lines lines_of_values(const mt_call *call) {
  return make_sort_lines(call, int(call->attr[0].i[0]), false, -1);
}

// Eight bytes and the number of a line are no key: such lines are sorted with positions.
bool with_positions(const sort_lines &l) {
  return way_of(l) != way::long_lines || (l.size == 8 && lines_at_once(l) > 1);
}

size_t values_scratch(const mt_call *call) {
  const sort_lines l = lines_of_values(call);
  if (way_of(l) == way::none || with_positions(l)) return scratch_of(call, l);
  const int64_t all = lines_at_once(l) * l.n;
  if (all >= int64_t(UINT32_MAX)) return 0;
  return l.size == 8 || lines_at_once(l) > 1 ? values_bytes<uint64_t>(all)
                                             : values_bytes<uint32_t>(all);
}

mt_status run_sort_values(const mt_call *call) {
  const sort_lines l = lines_of_values(call);
  if (way_of(l) == way::none || with_positions(l) || l.n >= int64_t(UINT32_MAX))
    return run_lines(call, l);
  if (l.size == 8) return sort_values<uint64_t, uint64_t>(call, l);
  return lines_at_once(l) > 1 ? sort_values<uint64_t, uint32_t>(call, l)
                              : sort_values<uint32_t, uint32_t>(call, l);
}

} // namespace

CUDA_ENTRY(_sort_values) = {run_sort_values, values_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(sort) = {run_sort, sort_scratch, MT_ALL_MASK, 0};
CUDA_ENTRY(topk) = {run_topk, topk_scratch, MT_ALL_MASK, 0};
