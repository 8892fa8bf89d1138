// spec/bench/limits.cu: what the GPU and its host can do at most: `launch us` of an
// empty kernel, `fma TFLOP/s` in float32. Built and run by run.py where nvcc is.
#include <chrono>
#include <cstdio>

namespace {

constexpr int LAUNCHES = 300;
constexpr int CHAINS = 8;
constexpr int STEPS = 20000;
constexpr int ROUNDS = 7;

__global__ void empty_kernel(float *) {}

__global__ void multiply_add_kernel(float *out, float a, float b) {
  float sum[CHAINS] = {};
  for (int i = 0; i < STEPS; i++)
#pragma unroll
    for (int c = 0; c < CHAINS; c++) sum[c] = fmaf(sum[c], a, b + float(c));
  float total = 0;
  for (int c = 0; c < CHAINS; c++) total += sum[c];
  if (total == 12345.0f) *out = total; // never: but nothing may be left out
}

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

} // namespace

int main() {
  float *out;
  cudaDeviceProp device;
  if (cudaMalloc(&out, 4) != cudaSuccess) return 1;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return 1;
  const int blocks = device.multiProcessorCount * 8, threads = 256;
  double best_launch = 1e9, best_fma = 0;
  for (int round = 0; round < ROUNDS; round++) {
    cudaDeviceSynchronize();
    double start = now();
    for (int i = 0; i < LAUNCHES; i++) empty_kernel<<<1, 32>>>(out);
    const double launch = 1e6 * (now() - start) / LAUNCHES;
    if (round > 0 && launch < best_launch) best_launch = launch;
    cudaDeviceSynchronize();
    start = now();
    multiply_add_kernel<<<blocks, threads>>>(out, 0.5f, 1.0f);
    cudaDeviceSynchronize();
    const double flops = 2.0 * blocks * threads * CHAINS * double(STEPS);
    const double rate = 1e-12 * flops / (now() - start);
    if (rate > best_fma) best_fma = rate;
  }
  if (cudaGetLastError() != cudaSuccess) return 1;
  printf("launch %.3f\nfma %.2f\n", best_launch, best_fma);
  return 0;
}
