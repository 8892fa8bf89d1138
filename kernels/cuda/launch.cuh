// kernels/cuda/launch.cuh -- launches of small ops, straight to the driver: a quarter of a
// microsecond less than <<< >>>, which looks the kernel up and keeps its shape on a stack.
#ifndef MT_CUDA_LAUNCH_CUH
#define MT_CUDA_LAUNCH_CUH

#include "kernels/cuda/cuda.cuh"

struct launch_shape {
  dim3 grid, block;
  cudaStream_t stream;
};

// A kernel as the driver knows it, in all contexts; NULL: the runtime launches it.
void *driver_kernel(const void *kernel);
mt_status launch_driver(void *known, const void *kernel, const launch_shape &s,
                        void **arguments);

// kernel_of<k>::launch(shape, arguments ...): k<<<grid, block, 0, stream>>>(arguments ...)
// and the status of that.
template <auto kernel> struct kernel_of;
template <class... A, void (*kernel)(A...)> struct kernel_of<kernel> {
  static mt_status launch(const launch_shape &s, const A &...a) {
    static void *const known = driver_kernel(reinterpret_cast<const void *>(kernel));
    void *arguments[] = {const_cast<void *>(static_cast<const void *>(&a))...};
    return launch_driver(known, reinterpret_cast<const void *>(kernel), s, arguments);
  }
};

#endif
