// kernels/cuda/profiling.cu -- for mt.profile: a kernel that holds a stream until the host
// has queued some work, and NVTX ranges.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/profiling.cuh"
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h> // headers alone: a tool that is attached brings the code
#define HAVE_NVTX 1
#endif

namespace {

constexpr int64_t patience = 3000000; // ns

__global__ void hold_until_kernel(const volatile uint32_t *flag, uint32_t until) {
  int64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (int32_t(*flag - until) < 0 && now - begin < patience);
}

mt_status hold(int device, void *stream, const uint32_t *flag, uint32_t until) {
  if (const mt_status status = cuda_device_api.open(device)) return status;
  hold_until_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(flag, until);
  return launched();
}

void range_push(const char *name) {
#ifdef HAVE_NVTX
  nvtxRangePushA(name);
#else
  (void)name;
#endif
}

void range_pop() {
#ifdef HAVE_NVTX
  nvtxRangePop();
#endif
}

} // namespace

const mt_profiling cuda_profiling = {hold, range_push, range_pop};
