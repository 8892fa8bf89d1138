/* runtime/core/memory.h -- the allocator's counters, for core's own use. */
#ifndef MT_MEMORY_H
#define MT_MEMORY_H

#include "kernels/kernel.h"
#include "runtime/core/context.h"

/* Scratch for a kernel. It is given back when the call ends, and so is no reason for Lua
** to collect garbage. */
mt_status mt_scratch_alloc(mt_context *ctx, mt_device device, size_t bytes,
                           mt_call *call /* [out] scratch, scratch_bytes */);

void mt_memory_count_tensor(mt_device device, int change);
/* So many bytes of elements are to lie in a small block, and this thread's mark is
** reached: MT_EMEMORY if that is over the limit, also after a collection. */
mt_status mt_memory_admit(mt_context *ctx, size_t bytes);

/* Hold every lock of the CPU's allocator; let them go, in parent and child. */
void mt_memory_before_fork(void);
void mt_memory_after_fork(void);

/* The same services for one GPU (device_memory.c). NULL: exhausted. */
void *mt_gpu_take(int gpu, void *stream, size_t bytes);
void mt_gpu_give(int gpu, void *p, size_t bytes);
void mt_gpu_used_on(int gpu, void *p, void *stream);
void mt_gpu_empty_cache(int gpu);
/* Memory for one graph: segments of the pool `owner` serve none but mt_gpu_take with it,
** until it is closed; what is free then, or will be, belongs to stream. */
void mt_gpu_pool_open(int gpu, void *owner);
/* From now on the owner's work follows the stream's: it may take segments that are wholly
** free there, or each graph would have new ones of the driver. */
void mt_gpu_pool_lend(int gpu, void *owner, void *stream);
void mt_gpu_pool_close(int gpu, void *owner, void *stream);
/* Shall this thread give no segment back to the driver, which would wait for the device,
** because it is capturing a graph? Meanwhile the pool `owner` gives freed blocks to
** nobody, up to a limit, lest calls wait for each other that have nothing in common. */
void mt_gpu_keep_segments(int gpu, void *owner, bool keep);
mt_memory *mt_gpu_stats(int gpu);    /* read and written under mt_gpu_lock */
const int64_t *mt_gpu_live(int gpu); /* live bytes, to be read without the lock */
void mt_gpu_lock(int gpu);
void mt_gpu_unlock(int gpu);

#endif
