/* runtime/core/context.c -- defaults of a state, threads of the process, backends. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/context.h"

void mt_context_init(mt_context *ctx) {
  memset(ctx, 0, sizeof *ctx);
  ctx->default_dtype = MT_F32;
  ctx->default_device = (mt_device){MT_CPU, 0};
  ctx->grad_enabled = true;
}

static int threads; /* 0: not asked yet */

/* OMP_NUM_THREADS, else the cores that this process may run on. */
static int default_threads(void) {
  const char *text = getenv("OMP_NUM_THREADS");
  const int asked = text ? atoi(text) : 0;
  if (asked > 0) return asked < 1024 ? asked : 1024;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
    return CPU_COUNT(&set);
  return 1;
}

int mt_get_num_threads(void) {
  int n = __atomic_load_n(&threads, __ATOMIC_RELAXED);
  if (n == 0) __atomic_store_n(&threads, n = default_threads(), __ATOMIC_RELAXED);
  return n;
}

void mt_set_num_threads(int n) { __atomic_store_n(&threads, n, __ATOMIC_RELAXED); }

const mt_backend *mt_backend_of(mt_device device) {
  if (device.kind == MT_CPU) return mt_cpu_backend();
  mt_fail(MT_EDEVICE, "no device %s: this build has no CUDA backend",
          mt_device_name(device));
  return NULL;
}
