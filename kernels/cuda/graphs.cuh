// kernels/cuda/graphs.cuh -- the table "graphs" (kernels/graphs.h).
#ifndef MT_CUDA_GRAPHS_CUH
#define MT_CUDA_GRAPHS_CUH

#include "kernels/graphs.h"

extern const mt_graphs cuda_graphs;

#endif
