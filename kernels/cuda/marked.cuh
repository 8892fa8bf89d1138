// kernels/cuda/marked.cuh -- how many a contiguous mask marks (masked_select.cu).
#ifndef MT_CUDA_MARKED_CUH
#define MT_CUDA_MARKED_CUH

#include "kernels/cuda/cuda.cuh"

inline bool is_plain_mask(const mt_view *mask) {
  return mask->dtype == MT_BOOL && is_contiguous(mask);
}
// in[0]: a plain mask; out[0]: int64, how many it marks.
mt_status count_marked(const mt_call *call);

#endif
