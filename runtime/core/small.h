/* runtime/core/small.h -- small blocks of host memory (headers, nodes, the elements of
** small tensors) from lists that belong to the calling thread: no locks, no atomics. */
#ifndef MT_SMALL_H
#define MT_SMALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MT_SMALL_UNIT 64   /* bytes; classes are its multiples, and blocks aligned so */
#define MT_SMALL_MAX  1024 /* bytes; larger blocks are malloc's own */
/* Bytes that the lists of a thread may hold: what Lua's collector frees in one cycle of
** a loop over small tensors. */
#define MT_SMALL_KEPT ((size_t)16 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MT_SMALL_LISTS 0 /* so that a use after the release is seen */
#else
#define MT_SMALL_LISTS 1
#endif

/* What one thread keeps and counts. Others only read the counters, for the statistics;
** a thread that frees what another made counts below 0. */
typedef struct mt_heap {
  void *list[MT_SMALL_MAX / MT_SMALL_UNIT]; /* linked by the blocks' first words */
  size_t cached;                            /* bytes in the lists */
  int64_t live_tensors;                     /* of the CPU */
  int64_t live_bytes; /* elements of tensors that lie in small blocks */
  int64_t mark;       /* of live_bytes: above it the peak or the limit is reached */
  int64_t allocations, frees; /* of such elements */
  bool registered;
  struct mt_heap *next;
} mt_heap;

extern _Thread_local mt_heap mt_heap_mine;

/* Each of these registers the thread at its first use. */
void *mt_small_refill(size_t bytes);
void mt_small_overflow(void *p, size_t bytes);

/* Other threads read it: atomic, as a plain store in machine code. */
static inline void mt_small_cached(mt_heap *h, size_t bytes) {
  __atomic_store_n(&h->cached, bytes, __ATOMIC_RELAXED);
}

/* At least this many bytes, aligned to MT_SMALL_UNIT up to MT_SMALL_MAX. NULL: none. */
static inline void *mt_small_take(size_t bytes) {
  if (MT_SMALL_LISTS && bytes <= MT_SMALL_MAX) {
    mt_heap *h = &mt_heap_mine;
    const size_t class = (bytes - 1) / MT_SMALL_UNIT;
    void *p = h->list[class];
    if (p) {
      h->list[class] = *(void **)p;
      mt_small_cached(h, h->cached - (class + 1) * MT_SMALL_UNIT);
      return p;
    }
  }
  return mt_small_refill(bytes);
}

/* Give back a block with the size that it was asked for with. */
static inline void mt_small_give(void *p, size_t bytes) {
  mt_heap *h = &mt_heap_mine;
  const size_t class = (bytes - 1) / MT_SMALL_UNIT;
  if (!MT_SMALL_LISTS || bytes > MT_SMALL_MAX || !h->registered ||
      h->cached > MT_SMALL_KEPT) {
    mt_small_overflow(p, bytes);
    return;
  }
  *(void **)p = h->list[class];
  h->list[class] = p;
  mt_small_cached(h, h->cached + (class + 1) * MT_SMALL_UNIT);
}

/* Free what the lists of this thread hold. */
void mt_small_trim(void);

/* Add to a counter of this thread. */
static inline void mt_small_count(int64_t *counter, int64_t change) {
  __atomic_store_n(counter, *counter + change, __ATOMIC_RELAXED);
}

/* Hold the lock of the lists of threads while the process forks. */
void mt_small_before_fork(void);
void mt_small_after_fork(void);

/* The counters of all threads, those that have ended included; only they are filled. */
void mt_small_totals(mt_heap *sum /* [out] */);
/* Let every thread look at the limit and the peak anew. */
void mt_small_unmark(void);

#endif
