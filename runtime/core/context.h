/* runtime/core/context.h -- what belongs to one Lua state: defaults, random state, grad
** mode, fault word; and the process-wide memory counters. */
#ifndef MT_CONTEXT_H
#define MT_CONTEXT_H

#include "runtime/core/tensor.h"

#define MT_MAX_GPUS 16

struct mt_graph;   /* cuda_graph.h */
struct mt_profile; /* profile.h */

/* In mt_context.watch: who wants to know of each call. */
#define MT_WATCH_GRAPH   1u
#define MT_WATCH_PROFILE 2u

/* The garbage collector makes a round for so many bytes of new tensors on a GPU, or an
** eighth of what lives there if that is more. */
#define MT_GC_CYCLE ((size_t)32 << 20)

struct mt_context {
  mt_dtype default_dtype; /* float32 or float64 (half types allowed) */
  mt_device default_device;
  bool grad_enabled;
  bool anomaly;       /* mt.detect_anomaly: name the op whose gradient is NaN */
  bool deterministic; /* mt.set_deterministic */
  bool cudnn;         /* mt.backends.cudnn.enabled */
  int precision;      /* of float32 products: 0 float32, 1 TF32, 2 bfloat16 */
  uint64_t seed;
  uint64_t position;         /* Philox position of the next call that draws */
  int gpu;                   /* what "cuda" without a number means */
  void *stream[MT_MAX_GPUS]; /* the current stream of each GPU; NULL: the default one */
  mt_fault *fault[MT_MAX_GPUS]; /* in mapped host memory; NULL: nothing ran there yet */
  void *mark[MT_MAX_GPUS];      /* an event for mt_wait; NULL: none yet */
  /* Bytes allocated since bind last stepped the collector: on the host; and on GPUs,
  ** where MT_GC_CYCLE is a round's worth. */
  size_t gc_debt, gpu_debt;
  /* Set by bind: a full Lua collection, when memory is exhausted. */
  void (*collect)(mt_context *ctx);
  unsigned watch;             /* 0: nobody wants to know of calls */
  struct mt_graph *graph;     /* that is being captured; NULL: none */
  struct mt_profile *profile; /* that is running; NULL: none */
  int scope;                  /* of the profile, that nodes are recorded in; 0: none */
  const char *composite;      /* whose parts are running, the outermost; NULL: none */
  mt_interrupt interrupt;     /* set by bind */
  void *lua;                  /* bind's own */
};

void mt_context_init(mt_context *ctx);
/* Free the fault words. The text of an unread fault, or NULL, in this thread's error. */
const char *mt_context_close(mt_context *ctx);

/* Counters of one device kind; the keys of mt.memory_stats(). */
typedef struct mt_memory {
  int64_t live_tensors, live_bytes, cached_bytes, peak_bytes, allocations, frees,
      limit_bytes, overruns; /* see guard.h */
} mt_memory;
mt_memory mt_memory_stats(mt_device device);
void mt_memory_reset_peak(mt_device device);
/* 0: back to the default, 90% of what the machine or its cgroup has. */
void mt_memory_set_limit(mt_device device, int64_t bytes);
void mt_memory_empty_cache(mt_device device);

/* Threads of all kernels of the process; n >= 1. */
void mt_set_num_threads(int n);
int mt_get_num_threads(void);
/* Is this a child of fork() of a process that had used us? It works on one thread. */
bool mt_is_forked(void);

/* The backend of a device; NULL and an error text if it is not there. A GPU's plugin is
** opened at its first use: $MYTENSOR_CUDA, beside the host or module, the libdir. */
const mt_backend *mt_backend_of(mt_device device);
/* The CUDA backend, or NULL and in *reason why there is none. */
const mt_backend *mt_cuda_backend(const char **reason /* [out] */);

/* Wait until a GPU's current stream, or an event there, has been reached. MT_EINTERRUPT:
** the host wants the script to end; the GPU goes on. What else may be wrong, the call
** that follows tells. */
mt_status mt_wait(mt_context *ctx, mt_device device);
mt_status mt_wait_event(mt_context *ctx, mt_device device, void *event);
/* Wait for what the state has queued on a device's current stream, then raise the first
** fault that a kernel left there (MT_EFAULT), once. The CPU has nothing to wait for. */
mt_status mt_synchronize(mt_context *ctx, mt_device device);
/* The same where mt_wait or a copy to the host has waited for a GPU already. */
mt_status mt_settle(mt_context *ctx, mt_device device);

/* Raw blocks from the caching allocator (64-byte aligned). On exhaustion: release the
** cache, ctx->collect, once more, then MT_EMEMORY with requested / allocated / cached /
** free bytes and the device. ctx may be NULL (no collection). */
mt_status mt_block_alloc(mt_context *ctx, mt_device device, size_t bytes,
                         void **p /* [out] */);
void mt_block_free(mt_device device, void *p, size_t bytes);
/* On a GPU: p, allocated for one stream, is used by work on another; when freed, it is not
** given away before that work is done. */
void mt_block_used_on(mt_device device, void *p, void *stream);

#endif
