// kernels/cuda/launch.cu -- kernels and launches by the driver's own functions, which the
// runtime names: nothing is linked.
#include "kernels/cuda/launch.cuh"
#include <cuda.h>

namespace {

using launcher = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, unsigned, CUstream, void **, void **);

launcher find_launcher() {
#if CUDART_VERSION >= 12050
  void *found = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion("cuLaunchKernel", &found, 12000,
                                       cudaEnableDefault, &result) == cudaSuccess &&
      result == cudaDriverEntryPointSuccess)
    return reinterpret_cast<launcher>(found);
  cudaGetLastError();
#endif
  return nullptr;
}

const launcher &driver_launch() {
  static const launcher found = find_launcher();
  return found;
}

} // namespace

void *driver_kernel(const void *kernel) {
#if CUDART_VERSION >= 12050
  cudaKernel_t known = nullptr;
  if (driver_launch() && cudaGetKernel(&known, kernel) == cudaSuccess) return known;
  cudaGetLastError();
#endif
  return nullptr;
}

mt_status launch_driver(void *known, const void *kernel, const launch_shape &s,
                        void **arguments) {
  if (!known) {
    CUDA_TRY(cudaLaunchKernel(kernel, s.grid, s.block, arguments, 0, s.stream));
    return MT_OK;
  }
  const CUresult result =
      driver_launch()(static_cast<CUfunction>(known), s.grid.x, s.grid.y, s.grid.z,
                      s.block.x, s.block.y, s.block.z, 0, s.stream, arguments, nullptr);
  // the runtime's errors have the driver's numbers
  return result == CUDA_SUCCESS ? MT_OK : cuda_fail(cudaError_t(result), "launch");
}
