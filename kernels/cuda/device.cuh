// kernels/cuda/device.cuh -- what backend.cu takes from device.cu.
#ifndef MT_CUDA_DEVICE_CUH
#define MT_CUDA_DEVICE_CUH

#include "kernels/kernel.h"

extern const mt_device_api cuda_device_api;
void *cuda_raw_alloc(int device, size_t bytes);
void cuda_raw_free(int device, void *p, size_t bytes);

#endif
