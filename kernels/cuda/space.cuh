// kernels/cuda/space.cuh -- loops over several strided views: dims dropped, ordered and
// merged on the host; offsets found on the device without slow divisions.
#ifndef MT_CUDA_SPACE_CUH
#define MT_CUDA_SPACE_CUH

#include "kernels/cuda/cuda.cuh"

// n / d by a multiplication, for n < 2^31 (Granlund and Montgomery, PLDI 1994).
struct divider {
  uint32_t d, magic, shift;
};

inline divider make_divider(int64_t d) {
  divider r{uint32_t(d), 0, 0};
  if (d > 1) r.shift = 64 - uint32_t(__builtin_clzll(uint64_t(d) - 1));
  r.magic = uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << r.shift) - uint64_t(d))) /
                         uint64_t(d) +
                     1);
  return r;
}

__device__ inline uint32_t divide(uint32_t n, divider v) {
  return (__umulhi(n, v.magic) + n) >> v.shift;
}

// A nest of loops, innermost first. stride[k] in elements of view k; 0: broadcast.
template <int K> struct space {
  int ndim;   // 0: one element
  bool small; // numel < 2^31: 32-bit indices serve
  int64_t numel;
  int64_t size[MT_MAX_DIMS];
  divider by[MT_MAX_DIMS];
  int64_t stride[K][MT_MAX_DIMS];
};

// Element offsets of all views for the index-th element, counted innermost first.
template <int K>
__device__ inline void seek(const space<K> &s, int64_t index, int64_t *offset) {
#pragma unroll
  for (int k = 0; k < K; k++) offset[k] = 0;
  if (s.small) {
    uint32_t rest = uint32_t(index);
#pragma unroll 1
    for (int d = 0; d < s.ndim; d++) {
      const uint32_t q = divide(rest, s.by[d]), r = rest - q * s.by[d].d;
#pragma unroll
      for (int k = 0; k < K; k++) offset[k] += int64_t(r) * s.stride[k][d];
      rest = q;
    }
  } else {
    for (int d = 0; d < s.ndim; d++) {
      const int64_t q = index / s.size[d], r = index - q * s.size[d];
#pragma unroll
      for (int k = 0; k < K; k++) offset[k] += r * s.stride[k][d];
      index = q;
    }
  }
}

// Do the elements lie side by side, in the order of shape's dims?
inline bool is_packed(const mt_view *shape, const int64_t *stride) {
  int64_t expected = 1;
  for (int d = shape->ndim - 1; d >= 0; d--) {
    if (shape->shape[d] != 1 && stride[d] != expected) return false;
    expected *= shape->shape[d];
  }
  return true;
}

// The space of out's shape; a view NULL, or on the host, has strides 0. Dims are sorted by
// view 0's strides, or kept in order where positions count.
template <int K>
space<K> make_space(const mt_view *const (&view)[K], bool keep_order = false) {
  space<K> s{};
  const mt_view *out = view[0];
  int order[MT_MAX_DIMS], n = 0;
  bool packed = true; // the commonest case: one loop
  for (int k = 0; k < K && packed; k++)
    packed = !view[k] || view[k]->host || is_packed(out, view[k]->stride);
  if (packed) {
    s.numel = numel(out);
    s.ndim = s.numel != 1;
    s.size[0] = s.numel;
    for (int k = 0; k < K; k++) s.stride[k][0] = view[k] && !view[k]->host;
  }
  if (!packed) s.numel = 1;
  for (int d = out->ndim - 1; d >= 0 && !packed; d--) {
    s.numel *= out->shape[d];
    if (out->shape[d] == 1) continue;
    int at = n++;
    if (!keep_order)
      for (; at > 0 && out->stride[order[at - 1]] > out->stride[d]; at--)
        order[at] = order[at - 1];
    order[at] = d;
  }
  for (int i = 0; i < n; i++) {
    const int d = order[i];
    int64_t stride[K];
    bool merges = s.ndim > 0;
    for (int k = 0; k < K; k++) {
      stride[k] = view[k] && !view[k]->host ? view[k]->stride[d] : 0;
      const int last = s.ndim - 1;
      if (merges && stride[k] != s.stride[k][last] * s.size[last]) merges = false;
    }
    if (merges)
      s.size[s.ndim - 1] *= out->shape[d];
    else {
      for (int k = 0; k < K; k++) s.stride[k][s.ndim] = stride[k];
      s.size[s.ndim++] = out->shape[d];
    }
  }
  s.small = s.numel < (int64_t(1) << 31);
  for (int d = 0; d < s.ndim; d++)
    if (s.size[d] > 0 && s.size[d] < (int64_t(1) << 31))
      s.by[d] = make_divider(s.size[d]);
  return s;
}

inline mt_view without_dim(const mt_view *v, int dim) {
  mt_view rest = *v;
  rest.ndim = 0;
  for (int d = 0; d < v->ndim; d++)
    if (d != dim)
      rest.shape[rest.ndim] = v->shape[d], rest.stride[rest.ndim++] = v->stride[d];
  rest.host = 0;
  return rest;
}

// Blocks of `threads` for n items, at most as many as keep the device busy: kernels loop.
inline unsigned blocks_for(int64_t n, int threads, int device) {
  const int64_t wanted = (n + threads - 1) / threads;
  const int64_t most = int64_t(multiprocessors(device)) * 32;
  return unsigned(wanted < most ? wanted : most);
}

#endif
