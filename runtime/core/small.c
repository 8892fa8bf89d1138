/* runtime/core/small.c -- the lists of small blocks: where they come from, and what
** becomes of them when their thread ends. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/small.h"

_Thread_local mt_heap mt_heap_mine;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor runs in each thread that has registered */
static mt_heap *heaps;    /* of threads that are alive */
static mt_heap ended;     /* the counters of the others */

static void add_counters(mt_heap *sum, const mt_heap *h) {
  sum->live_tensors += __atomic_load_n(&h->live_tensors, __ATOMIC_RELAXED);
  sum->live_bytes += __atomic_load_n(&h->live_bytes, __ATOMIC_RELAXED);
  sum->allocations += __atomic_load_n(&h->allocations, __ATOMIC_RELAXED);
  sum->frees += __atomic_load_n(&h->frees, __ATOMIC_RELAXED);
  sum->cached += __atomic_load_n(&h->cached, __ATOMIC_RELAXED);
}

void mt_small_trim(void) {
  mt_heap *h = &mt_heap_mine;
  for (size_t class = 0; class < sizeof h->list / sizeof *h->list; class ++)
    while (h->list[class]) {
      void *p = h->list[class];
      h->list[class] = *(void **)p;
      free(p);
    }
  mt_small_cached(h, 0);
}

static void thread_ends(void *mine) {
  mt_heap *h = mine;
  mt_small_trim();
  pthread_mutex_lock(&lock);
  mt_heap **at = &heaps;
  while (*at != h) at = &(*at)->next;
  *at = h->next;
  add_counters(&ended, h);
  pthread_mutex_unlock(&lock);
  memset(h, 0, sizeof *h); /* what is still to come registers it once more */
}

static void make_key(void) { pthread_key_create(&key, thread_ends); }

static void register_thread(mt_heap *h) {
  pthread_once(&once, make_key);
  pthread_setspecific(key, h);
  pthread_mutex_lock(&lock);
  h->next = heaps;
  heaps = h;
  pthread_mutex_unlock(&lock);
  h->registered = true;
}

void *mt_small_refill(size_t bytes) {
  mt_heap *h = &mt_heap_mine;
  if (!h->registered) register_thread(h);
  if (bytes > MT_SMALL_MAX) return malloc(bytes);
  return aligned_alloc(MT_SMALL_UNIT, (bytes + MT_SMALL_UNIT - 1) & -MT_SMALL_UNIT);
}

void mt_small_overflow(void *p, size_t bytes) {
  mt_heap *h = &mt_heap_mine;
  (void)bytes;
  if (!h->registered) register_thread(h);
  free(p);
}

void mt_small_totals(mt_heap *sum) {
  memset(sum, 0, sizeof *sum);
  pthread_mutex_lock(&lock);
  add_counters(sum, &ended);
  for (const mt_heap *h = heaps; h; h = h->next) add_counters(sum, h);
  pthread_mutex_unlock(&lock);
}

void mt_small_unmark(void) {
  pthread_mutex_lock(&lock);
  for (mt_heap *h = heaps; h; h = h->next)
    __atomic_store_n(&h->mark, INT64_MIN, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
}

void mt_small_before_fork(void) { pthread_mutex_lock(&lock); }

void mt_small_after_fork(void) { pthread_mutex_unlock(&lock); }
