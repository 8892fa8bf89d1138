/* runtime/core/context.c -- defaults of a state, threads of the process, backends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "runtime/core/cgroup.h"
#include "runtime/core/cuda_graph.h"
#include "runtime/core/memory.h"
#include "runtime/core/plan.h"
#include "runtime/core/profile.h"

void mt_context_init(mt_context *ctx) {
  memset(ctx, 0, sizeof *ctx);
  ctx->default_dtype = MT_F32;
  ctx->default_device = (mt_device){MT_CPU, 0};
  ctx->grad_enabled = true;
  ctx->cudnn = true;
}

static int threads; /* 0: not asked yet */

/* OMP_NUM_THREADS, else the cores that this process may run on, or as many as its
** control groups give it the time of. */
static int default_threads(void) {
  const char *text = getenv("OMP_NUM_THREADS");
  const int asked = text ? atoi(text) : 0;
  if (asked > 0) return asked < 1024 ? asked : 1024;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1) return 1;
  const int cores = CPU_COUNT(&set), paid = mt_cgroup_processors("");
  return paid < cores ? paid : cores;
}

/* After fork() the child has one thread: those of OpenMP are gone, and to ask for them
** would be to wait for ever. The allocator's locks go along unlocked. */
static int is_child;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void begin_child(void) {
  mt_memory_after_fork();
  __atomic_store_n(&is_child, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&threads, 1, __ATOMIC_RELAXED);
}

static void watch_forks(void) {
  pthread_atfork(mt_memory_before_fork, mt_memory_after_fork, begin_child);
}

bool mt_is_forked(void) { return __atomic_load_n(&is_child, __ATOMIC_RELAXED) != 0; }

int mt_get_num_threads(void) {
  int n = __atomic_load_n(&threads, __ATOMIC_RELAXED);
  if (n == 0) {
    pthread_once(&fork_once, watch_forks);
    __atomic_store_n(&threads, n = default_threads(), __ATOMIC_RELAXED);
  }
  return n;
}

void mt_set_num_threads(int n) {
  mt_get_num_threads(); /* which sees to forks */
  __atomic_store_n(&threads, n, __ATOMIC_RELAXED);
}

/* The text of the fault in f, for the op that it names; clears f. */
static mt_status raise_fault(mt_fault *f) {
  const mt_fault seen = *f;
  memset(f, 0, sizeof *f);
  const mt_status status = mt_fault_error(&seen, NULL);
  mt_error *e = mt_last_error();
  char text[sizeof e->text];
  memcpy(text, e->text, sizeof text);
  snprintf(e->text, sizeof e->text, "%s: %.*s", mt_op_info((mt_op)seen.op)->name,
           (int)sizeof text - 32, text);
  e->arg = 0; /* of an earlier call */
  return status;
}

#define SPINS 2000        /* looks at an event before a thread sleeps in between */
#define NAP   (50 * 1000) /* nanoseconds */

mt_status mt_wait_event(mt_context *ctx, mt_device device, void *event) {
  const mt_device_api *api = mt_backend_of(device)->device;
  const mt_interrupt *i = &ctx->interrupt;
  for (int round = 0; !api->event_done(device.index, event); round++) {
    if (i->pending && i->pending(i->arg)) return mt_fail(MT_EINTERRUPT, "interrupted!");
    const struct timespec nap = {0, NAP};
    if (round >= SPINS) nanosleep(&nap, NULL);
  }
  return MT_OK;
}

mt_status mt_wait(mt_context *ctx, mt_device device) {
  const mt_device_api *api = mt_backend_of(device)->device;
  void **mark = &ctx->mark[device.index];
  if (!*mark && api->event_create(device.index, 0, mark) != MT_OK)
    return *mark = NULL, MT_OK;
  if (api->event_record(device.index, *mark, ctx->stream[device.index]) != MT_OK)
    return MT_OK;
  return mt_wait_event(ctx, device, *mark);
}

mt_status mt_settle(mt_context *ctx, mt_device device) {
  const mt_device_api *api = mt_backend_of(device)->device;
  const mt_status status =
      api->stream_synchronize(device.index, ctx->stream[device.index]);
  if (status != MT_OK) return mt_fail(status, "%s", api->error_text());
  mt_fault *f = ctx->fault[device.index];
  return f && f->set ? raise_fault(f) : MT_OK;
}

mt_status mt_synchronize(mt_context *ctx, mt_device device) {
  if (device.kind == MT_CPU) return MT_OK;
  if (!mt_backend_of(device)) return MT_EDEVICE;
  MT_TRY(mt_graph_refuse(ctx, "waiting for the GPU"));
  if (ctx->profile) mt_profile_release(ctx->profile);
  MT_TRY(mt_wait(ctx, device));
  return mt_settle(ctx, device);
}

const char *mt_context_close(mt_context *ctx) {
  const char *text = NULL;
  for (int gpu = 0; gpu < MT_MAX_GPUS; gpu++) {
    if (!ctx->fault[gpu] && !ctx->mark[gpu]) continue;
    const mt_backend *backend = mt_backend_of((mt_device){MT_CUDA, (int8_t)gpu});
    if (!backend) continue;
    if (ctx->mark[gpu]) backend->device->event_destroy(gpu, ctx->mark[gpu]);
    ctx->mark[gpu] = NULL;
    if (!ctx->fault[gpu]) continue;
    backend->device->device_synchronize(gpu); /* work of any stream may write to it */
    if (ctx->fault[gpu]->set && !text) {
      raise_fault(ctx->fault[gpu]);
      text = mt_last_error()->text;
    }
    backend->device->host_free(ctx->fault[gpu]);
    ctx->fault[gpu] = NULL;
  }
  return text;
}
