// kernels/cuda/cudnn.cuh -- convolutions by cuDNN, where it is found at run time.
#ifndef MT_CUDA_CUDNN_CUH
#define MT_CUDA_CUDNN_CUH

#include "kernels/cuda/conv.cuh"

// Its version (91900), or 0 and the reason why it cannot be used.
int cudnn_version(const char **reason /* [out] */);

struct cudnn_plan {
  void *plan; // cuDNN's
  void *pack; // cuDNN's, of the pointers of the call before
  const void *at[5];
  bool fused;       // adds the bias, and takes the relu of it where v says so
  size_t workspace; // bytes
};

// At most `most` plans for v, the heuristic's favourites first; 0 where cuDNN has none.
// Slow: up to a second. precision, deterministic: as in mt_call.
int cudnn_plans(const mt_call *call, const conv &v, bool fused, cudnn_plan *plan,
                int most);

// Runs on call's stream; not from two threads at once for one device.
mt_status cudnn_run(const mt_call *call, cudnn_plan *plan, const conv_data &d,
                    void *workspace);
void cudnn_free(cudnn_plan *plan);

#endif
