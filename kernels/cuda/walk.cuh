// kernels/cuda/walk.cuh -- walks over the elements of src that go to the positions of an
// index, and sums and extremes there.
#ifndef MT_CUDA_WALK_CUH
#define MT_CUDA_WALK_CUH

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/positions.cuh"
#include "kernels/cuda/space.cuh"

struct walk {
  space<3> s; // y without the dim of the positions, src, the index
  positions q;
  int64_t along; // y's stride along that dim
};

// Blocks take so many elements at a time, a thread `batch` of them: neighbours in memory
// are neighbours in a warp, and all loads of a thread are under way together.
constexpr int batch = 4, walk_threads = 256, walk_block = batch * walk_threads;

// A block each, where so many can be launched: fewer that loop were 7% slower.
inline unsigned walk_grid(const walk &w) {
  const int64_t blocks = (w.s.numel + walk_block - 1) / walk_block;
  return unsigned(blocks < INT32_MAX ? blocks : INT32_MAX);
}

__device__ inline int64_t walk_number(int64_t block, int j) {
  return block * walk_block + j * walk_threads + threadIdx.x;
}

// A vector of src goes to a vector y by positions of int64, all without gaps: there is
// nothing to seek, and half the registers leave room for more threads.
inline bool is_line(const walk &w) {
  return w.q.dtype == MT_I64 && w.s.ndim == 1 && w.s.stride[0][0] == 0 &&
         w.s.stride[1][0] == 1 && w.s.stride[2][0] == 1 && w.along == 1;
}

// The elements with those numbers, and the places in y where they go: -1 for none.
template <bool Line, class S>
__device__ inline void walk_read(const walk &w, int64_t block, const S *src,
                                 int64_t (&to /* [out] */)[batch],
                                 S (&v /* [out] */)[batch]) {
  int64_t at[batch], value[batch];
#pragma unroll
  for (int j = 0; j < batch; j++) {
    const int64_t i = walk_number(block, j), here = i < w.s.numel ? i : 0;
    int64_t offset[3] = {0, here, here};
    if (!Line) seek(w.s, here, offset);
    to[j] = offset[0], v[j] = src[offset[1]], at[j] = offset[2];
  }
  if (Line)
#pragma unroll
    for (int j = 0; j < batch; j++)
      value[j] = static_cast<const int64_t *>(w.q.p)[at[j]];
  else
    positions_read(w.q, at, value);
#pragma unroll
  for (int j = 0; j < batch; j++) {
    const bool here = walk_number(block, j) < w.s.numel;
    const int64_t p = here ? position_within(w.q, at[j], value[j]) : -1;
    to[j] = p < 0 ? -1 : to[j] + (Line ? p : p * w.along);
  }
}

enum fold_kind { FOLD_SUM, FOLD_PROD, FOLD_AMAX, FOLD_AMIN };

// Of a call that adds `n` elements of out's dtype, or keeps extremes: shall atomics do it?
// Else positions are to be sorted first.
bool accumulates(const mt_call *call, int64_t n, fold_kind how);
size_t accumulate_scratch(const mt_call *call);
// out[0] = in[0], zeros where `from` is NULL, with src folded in by atomics, in any order:
// half types and small integers in scratch, as float32 and int32.
mt_status accumulate(const mt_call *call, const mt_view *from, const void *src,
                     const walk &w, fold_kind how);

#endif
