// kernels/cuda/copy.cuh -- copies between views, as part of other kernels.
#ifndef MT_CUDA_COPY_CUH
#define MT_CUDA_COPY_CUH

#include "kernels/kernel.h"

// in[0] to out[0], of any strides and dtypes.
mt_status cuda_copy(const mt_call *call);

// The same within another call.
inline mt_status copy_view(const mt_call *call, const mt_view *src, mt_view *dst) {
  const mt_view *const in[1] = {src};
  mt_view *const out[1] = {dst};
  mt_call copy = *call;
  copy.nin = copy.nout = 1, copy.in = in, copy.out = out;
  return cuda_copy(&copy);
}

#endif
