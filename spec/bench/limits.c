/* spec/bench/limits.c -- what the processor can do at most: `fma GFLOP/s`, `copy GB/s`
** and `add GB/s`, by as many threads as OMP_NUM_THREADS says. Built and run by run.py.
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LENGTH (INT64_C(1) << 24) /* floats of an array */
#define STEPS  400000             /* of the multiply-add loop */
#define CHAINS 10 /* sums that wait for one another only within a chain */
#define ROUNDS 7

/* As wide as the processor's registers: -march=native. */
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns what keeps the sums from being left out. */
static double multiply_add(int64_t *flops) {
  double kept = 0;
  int64_t threads = 0;
#pragma omp parallel reduction(+ : kept, threads)
  {
    lanes a, b;
    for (int j = 0; j < LANES; j++) {
      a[j] = 0.5f;
      b[j] = 1.0f + (float)j;
    }
    /* Variables, not an array: they must stay in registers. */
    lanes s0 = b, s1 = b, s2 = b, s3 = b, s4 = b, s5 = b, s6 = b, s7 = b, s8 = b,
          s9 = b;
    for (int64_t i = 0; i < STEPS; i++) {
      s0 = s0 * a + b;
      s1 = s1 * a + b;
      s2 = s2 * a + b;
      s3 = s3 * a + b;
      s4 = s4 * a + b;
      s5 = s5 * a + b;
      s6 = s6 * a + b;
      s7 = s7 * a + b;
      s8 = s8 * a + b;
      s9 = s9 * a + b;
      __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4));
      __asm__ volatile("" : "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9));
    }
    s0 += s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9;
    kept += (double)s0[0];
    threads++;
  }
  *flops = threads * STEPS * CHAINS * LANES * 2;
  return kept;
}

static void copy(float *restrict y, const float *restrict x) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < LENGTH; i++) y[i] = x[i];
}

static void add(float *restrict z, const float *restrict x, const float *restrict y) {
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < LENGTH; i++) z[i] = x[i] + y[i];
}

int main(void) {
  float *x = aligned_alloc(64, LENGTH * sizeof(float));
  float *y = aligned_alloc(64, LENGTH * sizeof(float));
  float *z = aligned_alloc(64, LENGTH * sizeof(float));
  if (x == NULL || y == NULL || z == NULL) return 1;
  for (int64_t i = 0; i < LENGTH; i++) x[i] = y[i] = z[i] = 1.0f;
  double best_fma = 0, best_copy = 0, best_add = 0, kept = 0;
  for (int round = 0; round < ROUNDS; round++) {
    int64_t flops;
    double start = now();
    kept += multiply_add(&flops);
    double rate = 1e-9 * (double)flops / (now() - start);
    if (rate > best_fma) best_fma = rate;
    start = now();
    copy(y, x);
    rate = 1e-9 * 8 * LENGTH / (now() - start);
    if (rate > best_copy) best_copy = rate;
    start = now();
    add(z, x, y);
    rate = 1e-9 * 12 * LENGTH / (now() - start);
    if (rate > best_add) best_add = rate;
  }
  printf("fma %.1f\ncopy %.2f\nadd %.2f\n", best_fma, best_copy, best_add);
  return kept == 0 || z[LENGTH - 1] == 0;
}
