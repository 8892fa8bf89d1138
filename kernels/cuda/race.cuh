// kernels/cuda/race.cuh -- which of several ways to the same result is the fastest, by
// running them.
#ifndef MT_CUDA_RACE_CUH
#define MT_CUDA_RACE_CUH

#include <chrono>
#include "kernels/cuda/cuda.cuh"

namespace {

// Keeps the stream busy for a while, so that what is asked for meanwhile runs back to back:
// else the time of a short run is that of the host.
__global__ void hold_kernel(int64_t nanoseconds) {
  int64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}

inline double now() { // seconds
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

constexpr float never = 1e30f; // ms

struct stopwatch {
  cudaStream_t stream;
  cudaEvent_t begin = nullptr, end = nullptr;

  explicit stopwatch(cudaStream_t on) : stream(on) {
    if (cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess)
      cudaGetLastError(); // time() gives never then
  }
  ~stopwatch() {
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
  }
  // ms of one of `repeats` runs: the device's or the host's, whichever takes longer.
  template <class Run> float time(int repeats, Run run) const {
    float ms = never;
    bool ran = begin && end;
    if (repeats > 1) hold_kernel<<<1, 1, 0, stream>>>(20000 + 12000 * int64_t(repeats));
    cudaEventRecord(begin, stream);
    const double start = now();
    for (int i = 0; i < repeats && ran; i++) ran = run();
    const float host = float(1e3 * (now() - start));
    cudaEventRecord(end, stream);
    if (cudaEventSynchronize(end) != cudaSuccess || !ran) return never;
    if (cudaEventElapsedTime(&ms, begin, end) != cudaSuccess) return never;
    return (repeats > 1 ? std::max(ms, host) : ms) / float(repeats);
  }
};

// The fastest of ways 0 .. n - 1, n <= 32; run(i): did it work? -1: none did. One look at
// each finds those that may be the one; these run in turn until chance no longer decides: a
// GPU that was idle speeds up meanwhile, and other work may come between.
template <class Run> int fastest(cudaStream_t stream, int n, Run run) {
  constexpr double patience = 0.25; // seconds, for each of the two parts
  constexpr int rounds = 7, most = 4;
  const stopwatch watch(stream);
  int order[32], ran = 0, repeats = 1;
  float ms[32];
  const auto look = [&](int i) { return watch.time(repeats, [&] { return run(i); }); };
  double start = now();
  for (int i = 0; i < n && now() - start < patience; i++) {
    if (!run(i)) continue; // the first run loads the kernel
    if (ran == 0) {
      const float once = look(i);
      repeats = once > 0.1f ? 1 : std::clamp(int(0.1f / once), 4, 16);
      for (const double warm = now(); now() - warm < 3e-3;) look(i);
    }
    ms[i] = look(i);
    int at = ran++;
    for (; at > 0 && ms[order[at - 1]] > ms[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  int last = std::min(ran, 1); // those that may be the one
  while (last < std::min(ran, most) && ms[order[last]] < 1.15f * ms[order[0]]) last++;
  start = now();
  for (int round = 0; round < rounds && last > 1 && now() - start < patience; round++)
    for (int k = 0; k < last; k++) {
      const float again = look(order[k]);
      ms[order[k]] = round == 0 ? again : std::min(again, ms[order[k]]);
    }
  int best = -1;
  for (int k = 0; k < last; k++)
    if (best < 0 || ms[order[k]] < ms[best]) best = order[k];
  cudaGetLastError(); // of a way that would not run
  return best;
}

} // namespace

#endif
