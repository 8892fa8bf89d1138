// kernels/cuda/profiling.cuh -- the table "profiling" (kernels/profiling.h).
#ifndef MT_CUDA_PROFILING_CUH
#define MT_CUDA_PROFILING_CUH

#include "kernels/profiling.h"

extern const mt_profiling cuda_profiling;

#endif
