/* runtime/core/memory.c -- the caching allocator: blocks in size classes, kept for
** reuse when freed, since fresh pages cost far more than the op that fills them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/cgroup.h"
#include "runtime/core/context.h"
#include "runtime/core/cuda_graph.h"
#include "runtime/core/guard.h"
#include "runtime/core/memory.h"
#include "runtime/core/profile.h"
#include "runtime/core/small.h"

/* Classes: 64 bytes, then four steps to each power of two: at most 25% is wasted. */
#define SMALLEST_LOG2 6
#define STEPS_LOG2    2
#define CLASSES       ((64 - SMALLEST_LOG2) << STEPS_LOG2)
/* Freed blocks are kept up to this, or the peak of live bytes if that is more. */
#define CACHE_FLOOR (INT64_C(256) << 20)

typedef struct block {
  struct block *next;
} block;

/* Elements that lie in small blocks are counted by their threads (small.h); the stats
** here are those of the other blocks, but peak and limit are of all. */
static struct {
  pthread_mutex_t lock;
  block *cached[CLASSES]; /* the list runs through the blocks themselves */
  mt_memory stats;
} cpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int class_of(size_t bytes) {
  if (bytes <= (1u << SMALLEST_LOG2)) return 0;
  const int log2 = 63 - __builtin_clzll(bytes - 1); /* 2^log2 < bytes <= 2^(log2+1) */
  const size_t step = (bytes - 1) >> (log2 - STEPS_LOG2) & ((1u << STEPS_LOG2) - 1);
  return ((log2 - SMALLEST_LOG2) << STEPS_LOG2) + (int)step + 1;
}

static size_t class_bytes(int class) {
  if (class == 0) return 1u << SMALLEST_LOG2;
  const int log2 = ((class - 1) >> STEPS_LOG2) + SMALLEST_LOG2;
  const size_t step = (size_t)(class - 1) & ((1u << STEPS_LOG2) - 1);
  return ((size_t)1 << log2) + ((step + 1) << (log2 - STEPS_LOG2));
}

/* The lock is held. */
static int64_t limit(void) {
  if (cpu.stats.limit_bytes == 0) cpu.stats.limit_bytes = mt_default_memory_limit("");
  return cpu.stats.limit_bytes;
}

/* The lock is held. */
static int64_t live_bytes(void) {
  mt_heap small;
  mt_small_totals(&small);
  return cpu.stats.live_bytes + small.live_bytes;
}

/* Note that so many bytes are live now. Small blocks of this thread need not look again
** before the peak or the limit is reached. The lock is held. */
static void note_live(int64_t live) {
  mt_heap *mine = &mt_heap_mine;
  if (live > cpu.stats.peak_bytes) cpu.stats.peak_bytes = live;
  const int64_t most = cpu.stats.peak_bytes < limit() ? cpu.stats.peak_bytes : limit();
  __atomic_store_n(&mine->mark, mine->live_bytes + (most - live), __ATOMIC_RELAXED);
}

/* The lock is held. */
static void empty_cache(void) {
  const mt_backend *backend = mt_cpu_backend();
  for (int c = 0; c < CLASSES; c++)
    while (cpu.cached[c]) {
      block *b = cpu.cached[c];
      cpu.cached[c] = b->next;
      backend->raw_free(0, b, class_bytes(c));
    }
  cpu.stats.cached_bytes = 0;
}

/* One try; NULL: over the limit, or the system has no more. */
static void *take(size_t bytes) {
  const int class = class_of(bytes);
  const size_t size = class_bytes(class);
  pthread_mutex_lock(&cpu.lock);
  void *p = cpu.cached[class];
  const int64_t live = live_bytes();
  if ((int64_t)bytes > limit() - live)
    p = NULL;
  else if (p) {
    cpu.cached[class] = ((block *)p)->next;
    cpu.stats.cached_bytes -= (int64_t)size;
  } else {
    if ((int64_t)size > limit() - live - cpu.stats.cached_bytes) empty_cache();
    p = mt_cpu_backend()->raw_alloc(0, size);
    if (!p) {
      empty_cache();
      p = mt_cpu_backend()->raw_alloc(0, size);
    }
  }
  if (p) {
    cpu.stats.allocations++;
    cpu.stats.live_bytes += (int64_t)bytes;
    note_live(live + (int64_t)bytes);
  }
  pthread_mutex_unlock(&cpu.lock);
  return p;
}

static const char *size_text(char *text, size_t room, int64_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB",
                                      "TiB",   "PiB", "EiB"};
  double x = (double)bytes;
  int unit = 0;
  while (x >= 1024 && unit < 6) x /= 1024, unit++;
  snprintf(text, room, unit ? "%.1f %s" : "%.0f %s", x,
           bytes == 1 ? "byte" : units[unit]);
  return text;
}

static mt_status exhausted(mt_device device, size_t bytes) {
  char requested[32], live[32], cached[32], room[32], most[32];
  const mt_memory m = mt_memory_stats(device);
  const int64_t left = m.limit_bytes - m.live_bytes; /* the limit may be a later one */
  return mt_fail(
      MT_EMEMORY,
      "out of memory on %s: %s requested, %s allocated, %s cached, %s free of a limit "
      "of %s",
      mt_device_name(device), size_text(requested, sizeof requested, (int64_t)bytes),
      size_text(live, sizeof live, m.live_bytes),
      size_text(cached, sizeof cached, m.cached_bytes),
      size_text(room, sizeof room, left > 0 ? left : 0),
      size_text(most, sizeof most, m.limit_bytes));
}

/* One try on any device. */
static void *take_on(mt_context *ctx, mt_device device, size_t bytes) {
  const bool guarded = mt_guard_on();
  const size_t room = guarded ? bytes + 2 * MT_GUARD_BYTES : bytes;
  void *stream = device.kind == MT_CPU ? NULL : mt_graph_pool(ctx, device.index);
  void *p =
      device.kind == MT_CPU ? take(room) : mt_gpu_take(device.index, stream, room);
  return p && guarded ? mt_guard_arm(device, stream, p, bytes) : p;
}

/* Note what will be garbage one day. What lives on a GPU is read without its lock: a
** guess is enough. */
static void owe(mt_context *ctx, mt_device device, size_t bytes) {
  if (device.kind == MT_CPU) {
    ctx->gc_debt += bytes;
    return;
  }
  const int64_t live = __atomic_load_n(mt_gpu_live(device.index), __ATOMIC_RELAXED);
  const double share = (double)live / 8, cycle = (double)MT_GC_CYCLE;
  ctx->gpu_debt += share > cycle ? (size_t)((double)bytes * (cycle / share)) : bytes;
}

mt_status mt_block_alloc(mt_context *ctx, mt_device device, size_t bytes, void **p) {
  *p = NULL;
  if (!mt_backend_of(device)) return MT_EDEVICE;
  if (bytes == 0) return MT_OK;
  if (bytes > (size_t)1 << 62) return exhausted(device, bytes);
  *p = take_on(ctx, device, bytes);
  if (!*p && ctx && ctx->collect) {
    ctx->collect(ctx);
    *p = take_on(ctx, device, bytes);
  }
  if (!*p) return exhausted(device, bytes);
  if (ctx) owe(ctx, device, bytes);
  if (ctx && ctx->graph && device.kind != MT_CPU) mt_graph_takes(ctx->graph, *p, bytes);
  if (ctx && ctx->profile && device.kind != MT_CPU)
    mt_profile_allocated(ctx->profile, bytes);
  return MT_OK;
}

/* May so many bytes more lie in small blocks? Notes them among the live ones if so. */
static bool admit(int64_t bytes) {
  pthread_mutex_lock(&cpu.lock);
  const int64_t live = live_bytes();
  const bool fits = bytes <= limit() - live;
  if (fits) note_live(live + bytes);
  if (fits) /* the caller counts them */
    __atomic_store_n(&mt_heap_mine.mark, mt_heap_mine.mark + bytes, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&cpu.lock);
  return fits;
}

mt_status mt_memory_admit(mt_context *ctx, size_t bytes) {
  if (admit((int64_t)bytes)) return MT_OK;
  if (ctx && ctx->collect) {
    ctx->collect(ctx);
    if (admit((int64_t)bytes)) return MT_OK;
  }
  return exhausted((mt_device){MT_CPU, 0}, bytes);
}

mt_status mt_scratch_alloc(mt_context *ctx, mt_device device, size_t bytes,
                           mt_call *call) {
  const size_t debt = ctx->gc_debt, gpu_debt = ctx->gpu_debt;
  MT_TRY(mt_block_alloc(ctx, device, bytes, &call->scratch));
  call->scratch_bytes = bytes;
  if (ctx->gc_debt > debt) ctx->gc_debt = debt;
  if (ctx->gpu_debt > gpu_debt) ctx->gpu_debt = gpu_debt;
  return MT_OK;
}

static void give(void *p, size_t bytes) {
  const int class = class_of(bytes);
  const size_t size = class_bytes(class);
  pthread_mutex_lock(&cpu.lock);
  cpu.stats.frees++;
  cpu.stats.live_bytes -= (int64_t)bytes;
  const int64_t live = live_bytes();
  int64_t most =
      cpu.stats.peak_bytes > CACHE_FLOOR ? cpu.stats.peak_bytes : CACHE_FLOOR;
  if (most > limit() - live) most = limit() - live;
  note_live(live);
  if (cpu.stats.cached_bytes + (int64_t)size > most) {
    mt_cpu_backend()->raw_free(0, p, size);
  } else {
    ((block *)p)->next = cpu.cached[class];
    cpu.cached[class] = p;
    cpu.stats.cached_bytes += (int64_t)size;
  }
  pthread_mutex_unlock(&cpu.lock);
}

void mt_block_free(mt_device device, void *p, size_t bytes) {
  if (!p) return;
  if (mt_guard_on()) {
    p = mt_guard_disarm(device, p, bytes);
    bytes += 2 * MT_GUARD_BYTES;
  }
  if (device.kind == MT_CPU)
    give(p, bytes);
  else
    mt_gpu_give(device.index, p, bytes);
}

void mt_block_used_on(mt_device device, void *p, void *stream) {
  if (device.kind == MT_CPU || !p) return;
  mt_gpu_used_on(device.index, mt_guard_on() ? (char *)p - MT_GUARD_BYTES : p, stream);
}

/* The counters of a device, its lock held; unlocked by unlock. NULL: it is not there. */
static mt_memory *lock(mt_device device) {
  if (device.kind == MT_CPU) {
    pthread_mutex_lock(&cpu.lock);
    limit();
    return &cpu.stats;
  }
  if (!mt_backend_of(device)) return NULL;
  mt_gpu_lock(device.index);
  return mt_gpu_stats(device.index);
}

static void unlock(mt_device device) {
  if (device.kind == MT_CPU)
    pthread_mutex_unlock(&cpu.lock);
  else
    mt_gpu_unlock(device.index);
}

static int64_t gpu_tensors[MT_MAX_GPUS];

void mt_memory_count_tensor(mt_device device, int change) {
  if (device.kind == MT_CPU)
    mt_small_count(&mt_heap_mine.live_tensors, change);
  else
    __atomic_fetch_add(&gpu_tensors[device.index], change, __ATOMIC_RELAXED);
}

mt_memory mt_memory_stats(mt_device device) {
  mt_memory *stats = lock(device);
  if (!stats) return (mt_memory){0};
  mt_memory copy = *stats;
  if (device.kind == MT_CPU) {
    mt_heap small;
    mt_small_totals(&small);
    copy.live_tensors = small.live_tensors;
    copy.live_bytes += small.live_bytes;
    copy.cached_bytes += (int64_t)small.cached;
    copy.allocations += small.allocations;
    copy.frees += small.frees;
  } else {
    copy.live_tensors = __atomic_load_n(&gpu_tensors[device.index], __ATOMIC_RELAXED);
  }
  unlock(device);
  copy.overruns = mt_guard_overruns(device);
  return copy;
}

void mt_memory_reset_peak(mt_device device) {
  mt_memory *stats = lock(device);
  if (!stats) return;
  stats->peak_bytes = device.kind == MT_CPU ? live_bytes() : stats->live_bytes;
  if (device.kind == MT_CPU) mt_small_unmark();
  unlock(device);
}

void mt_memory_set_limit(mt_device device, int64_t bytes) {
  mt_memory *stats = lock(device);
  if (!stats) return;
  stats->limit_bytes = bytes;
  const bool over = bytes > 0 && bytes < stats->live_bytes + stats->cached_bytes;
  if (device.kind == MT_CPU) mt_small_unmark();
  unlock(device);
  if (over) mt_memory_empty_cache(device);
}

void mt_memory_empty_cache(mt_device device) {
  if (device.kind == MT_CPU) {
    pthread_mutex_lock(&cpu.lock);
    empty_cache();
    pthread_mutex_unlock(&cpu.lock);
    mt_small_trim();
  } else if (mt_backend_of(device))
    mt_gpu_empty_cache(device.index);
}

void mt_memory_before_fork(void) {
  pthread_mutex_lock(&cpu.lock);
  mt_small_before_fork();
}

void mt_memory_after_fork(void) {
  mt_small_after_fork();
  pthread_mutex_unlock(&cpu.lock);
}
