/* runtime/core/device_memory.c -- the caching allocator of GPUs. Segments come from the
** driver and belong to one stream; blocks are cut from them and joined again. Since work
** on a stream runs in order, a freed block can be reused there at once. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/memory.h"

#define ALIGN         512               /* bytes; every block's size is a multiple */
#define SMALL         ((size_t)1 << 20) /* up to this: size classes, never joined at once */
#define SMALL_SEGMENT ((size_t)2 << 20)
#define LARGE_SEGMENT \
  ((size_t)20 << 20) /* cut up among blocks of less than half of it */
#define SEGMENT_STEP ((size_t)2 << 20)
#define CLASSES      64
#define MOST_RESTING ((size_t)128 << 20)
#define BUCKETS      48 /* free blocks by the power of two of their size */
#define OTHERS       4  /* streams besides its own that a block remembers */

typedef enum { USED, BINNED, FREE, PENDING, RESTING } block_state;

typedef struct block {
  char *p;
  size_t size;                  /* bytes */
  struct block *before, *after; /* neighbours in the segment */
  struct block *prev, *next;    /* in a bin, a bucket or the pending list */
  struct block *same_hash;
  struct pool *pool;
  block_state state;
  bool small; /* lives in a small segment */
  int nothers;
  void *other[OTHERS], *event[OTHERS];
} block;

/* What is free for one stream, or one graph. */
typedef struct pool {
  struct pool *next;
  void *stream;        /* or the graph */
  bool closed;         /* a graph's: it stays with the graph */
  struct pool *lender; /* of a graph: what is wholly free there may become its own */
  block *resting; /* of a graph that is captured: freed, not to be used again yet */
  size_t resting_bytes;
  block *bin[CLASSES];
  block *bucket[2][BUCKETS]; /* [small] */
} pool;

static struct gpu {
  pthread_mutex_t lock;
  mt_memory stats;
  size_t reserved; /* bytes of all segments */
  pool *pools;
  block **hash;
  size_t hash_size, blocks;
  block *spare;   /* unused headers */
  block *pending; /* freed, but another stream may still use them */
} gpus[MT_MAX_GPUS];

static _Thread_local void *captured; /* this thread's graph that is; else NULL */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void) {
  for (int i = 0; i < MT_MAX_GPUS; i++) pthread_mutex_init(&gpus[i].lock, NULL);
}

void mt_gpu_lock(int gpu) {
  pthread_once(&once, init);
  pthread_mutex_lock(&gpus[gpu].lock);
}

void mt_gpu_unlock(int gpu) { pthread_mutex_unlock(&gpus[gpu].lock); }

static const mt_backend *backend(void) {
  const char *reason;
  return mt_cuda_backend(&reason);
}

static const mt_device_api *api(void) { return backend()->device; }

/* ---- size classes of small blocks: 512 bytes, then four steps to each power of two ---- */

static int class_of(size_t bytes) {
  if (bytes <= ALIGN) return 0;
  const int log2 = 63 - __builtin_clzll(bytes - 1);
  return ((log2 - 9) << 2) + (int)((bytes - 1) >> (log2 - 2) & 3) + 1;
}

/* Multiples of 512 except for the first steps, which are rounded up. */
static size_t class_bytes(int class) {
  if (class == 0) return ALIGN;
  const int log2 = ((class - 1) >> 2) + 9;
  const size_t size =
      ((size_t)1 << log2) + (((size_t)(class - 1) & 3) + 1) * ((size_t)1 << (log2 - 2));
  return (size + ALIGN - 1) / ALIGN * ALIGN;
}

static int bucket_of(size_t size) {
  const int log2 = 63 - __builtin_clzll(size);
  return log2 < BUCKETS ? log2 : BUCKETS - 1;
}

/* ---- headers, found by address ---- */

static size_t slot_of(const struct gpu *g, const void *p) {
  return ((uintptr_t)p >> 9) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (g->hash_size - 1);
}

static bool grow_hash(struct gpu *g) {
  const size_t size = g->hash_size ? g->hash_size * 2 : 1024;
  block **table = calloc(size, sizeof *table);
  if (!table) return g->hash_size > 0; /* longer chains then */
  block **old = g->hash;
  const size_t old_size = g->hash_size;
  g->hash = table, g->hash_size = size;
  for (size_t i = 0; i < old_size; i++)
    for (block *b = old[i], *next; b; b = next) {
      next = b->same_hash;
      const size_t slot = slot_of(g, b->p);
      b->same_hash = table[slot], table[slot] = b;
    }
  free(old);
  return true;
}

static block *new_block(struct gpu *g, pool *q, char *p, size_t size, bool small) {
  if (g->blocks >= g->hash_size && !grow_hash(g)) return NULL;
  block *b = g->spare;
  if (b)
    g->spare = b->next;
  else if (!(b = malloc(sizeof *b)))
    return NULL;
  memset(b, 0, sizeof *b);
  b->p = p, b->size = size, b->pool = q, b->small = small;
  const size_t slot = slot_of(g, p);
  b->same_hash = g->hash[slot], g->hash[slot] = b;
  g->blocks++;
  return b;
}

static void drop_block(struct gpu *g, block *b) {
  block **at = &g->hash[slot_of(g, b->p)];
  while (*at != b) at = &(*at)->same_hash;
  *at = b->same_hash;
  b->next = g->spare, g->spare = b;
  g->blocks--;
}

static block *find_block(struct gpu *g, const void *p) {
  block *b = g->hash_size ? g->hash[slot_of(g, p)] : NULL;
  while (b && b->p != (const char *)p) b = b->same_hash;
  return b;
}

/* ---- lists ---- */

static void link_into(block **list, block *b) {
  b->prev = NULL, b->next = *list;
  if (*list) (*list)->prev = b;
  *list = b;
}

static void unlink_from(block **list, block *b) {
  if (b->prev)
    b->prev->next = b->next;
  else
    *list = b->next;
  if (b->next) b->next->prev = b->prev;
}

static block **bucket_for(block *b) {
  return &b->pool->bucket[b->small][bucket_of(b->size)];
}

/* Put b among the free blocks of its pool, joined with free neighbours. */
static void make_free(struct gpu *g, block *b) {
  block *side = b->before;
  if (side && side->state == FREE) {
    unlink_from(bucket_for(side), side);
    side->size += b->size;
    side->after = b->after;
    if (b->after) b->after->before = side;
    drop_block(g, b);
    b = side;
  }
  side = b->after;
  if (side && side->state == FREE) {
    unlink_from(bucket_for(side), side);
    b->size += side->size;
    b->after = side->after;
    if (side->after) side->after->before = b;
    drop_block(g, side);
  }
  b->state = FREE;
  link_into(bucket_for(b), b);
}

/* Cut b to size if what remains is of use. */
static void cut(struct gpu *g, block *b, size_t size) {
  const size_t rest = b->size - size;
  if (rest < (b->small ? ALIGN : SMALL)) return;
  block *r = new_block(g, b->pool, b->p + size, rest, b->small);
  if (!r) return;
  b->size = size;
  r->before = b, r->after = b->after;
  if (b->after) b->after->before = r;
  b->after = r;
  r->state = FREE;
  link_into(bucket_for(r), r);
}

/* The smallest fitting block of size's own bucket, else any of the next larger ones. */
static block *best_fit(pool *q, bool small, size_t size) {
  block *best = NULL;
  for (int k = bucket_of(size); k < BUCKETS && !best; k++)
    for (block *b = q->bucket[small][k]; b; b = b->next)
      if (b->size >= size && (!best || b->size < best->size)) best = b;
  return best;
}

/* ---- what another stream may still use ---- */

static void recycle(struct gpu *g, block *b) {
  if (b->size <= SMALL && b->small) {
    b->state = BINNED;
    link_into(&b->pool->bin[class_of(b->size)], b);
  } else
    make_free(g, b);
}

static void check_pending(struct gpu *g, int gpu, bool wait) {
  for (block *b = g->pending, *next; b; b = next) {
    next = b->next;
    bool done = true;
    for (int i = 0; i < b->nothers && done; i++) {
      if (wait)
        api()->event_synchronize(gpu, b->event[i]);
      else
        done = api()->event_done(gpu, b->event[i]);
    }
    if (!done) continue;
    for (int i = 0; i < b->nothers; i++) api()->event_destroy(gpu, b->event[i]);
    b->nothers = 0;
    unlink_from(&g->pending, b);
    recycle(g, b);
  }
}

/* ---- segments ---- */

static void join_bins(struct gpu *g) {
  for (pool *q = g->pools; q; q = q->next)
    for (int c = 0; c < CLASSES; c++)
      while (q->bin[c]) {
        block *b = q->bin[c];
        unlink_from(&q->bin[c], b);
        make_free(g, b);
      }
}

/* Give segments that are wholly free back to the driver. */
static void release_segments(struct gpu *g, int gpu) {
  if (captured) return;
  check_pending(g, gpu, true);
  join_bins(g);
  for (pool *q = g->pools; q; q = q->next)
    for (int k = 0; k < 2 * BUCKETS && !q->closed; k++)
      for (block *b = q->bucket[k / BUCKETS][k % BUCKETS], *next; b; b = next) {
        next = b->next;
        if (b->before || b->after) continue;
        unlink_from(bucket_for(b), b);
        backend()->raw_free(gpu, b->p, b->size);
        g->reserved -= b->size;
        drop_block(g, b);
      }
}

static size_t segment_bytes(bool small, size_t size) {
  if (small) return SMALL_SEGMENT;
  if (size < LARGE_SEGMENT / 2) return LARGE_SEGMENT;
  return (size + SEGMENT_STEP - 1) / SEGMENT_STEP * SEGMENT_STEP;
}

static size_t limit(struct gpu *g, int gpu) {
  if (g->stats.limit_bytes == 0) {
    mt_device_info info;
    if (api()->describe(gpu, &info) != MT_OK) return SIZE_MAX;
    g->stats.limit_bytes = (int64_t)info.total_bytes;
  }
  return (size_t)g->stats.limit_bytes;
}

static block *new_segment(struct gpu *g, int gpu, pool *q, bool small, size_t size) {
  size_t bytes = segment_bytes(small, size);
  if (g->reserved + bytes > limit(g, gpu)) release_segments(g, gpu);
  if (g->reserved + bytes > limit(g, gpu)) bytes = (size + ALIGN - 1) / ALIGN * ALIGN;
  if (g->reserved + bytes > limit(g, gpu)) return NULL;
  char *p = backend()->raw_alloc(gpu, bytes);
  if (!p) {
    release_segments(g, gpu);
    p = backend()->raw_alloc(gpu, bytes);
  }
  if (!p) return NULL;
  block *b = new_block(g, q, p, bytes, small);
  if (!b) {
    backend()->raw_free(gpu, p, bytes);
    return NULL;
  }
  g->reserved += bytes;
  b->state = FREE;
  link_into(bucket_for(b), b);
  return b;
}

static pool *pool_of(struct gpu *g, void *stream) {
  pool *q = g->pools;
  while (q && q->stream != stream) q = q->next;
  if (!q && (q = calloc(1, sizeof *q))) {
    q->stream = stream;
    q->next = g->pools, g->pools = q;
  }
  return q;
}

/* A segment of the lender's that is wholly free, and not much larger than needed. */
static block *adopt_segment(struct gpu *g, pool *q, bool small, size_t size) {
  join_bins(g);
  for (int k = bucket_of(size); k < BUCKETS; k++)
    for (block *b = q->lender->bucket[small][k]; b; b = b->next) {
      if (b->before || b->after || b->size < size ||
          b->size > 2 * segment_bytes(small, size))
        continue;
      unlink_from(bucket_for(b), b);
      b->pool = q;
      link_into(bucket_for(b), b);
      return b;
    }
  return NULL;
}

static void *take_locked(struct gpu *g, int gpu, void *stream, size_t bytes) {
  const bool small = bytes <= SMALL;
  const int class = small ? class_of(bytes) : 0;
  const size_t size = small ? class_bytes(class) : (bytes + ALIGN - 1) / ALIGN * ALIGN;
  pool *q = pool_of(g, stream);
  if (!q) return NULL;
  block *b = small ? q->bin[class] : NULL;
  if (b)
    unlink_from(&q->bin[class], b);
  else {
    if (g->pending) check_pending(g, gpu, false);
    b = best_fit(q, small, size);
    if (!b && small) { /* what lies in other bins may join to something of use */
      join_bins(g);
      b = best_fit(q, small, size);
    }
    if (!b && q->lender) b = adopt_segment(g, q, small, size);
    if (!b) b = new_segment(g, gpu, q, small, size);
    if (!b) return NULL;
    unlink_from(bucket_for(b), b);
    cut(g, b, size);
  }
  b->state = USED;
  g->stats.allocations++;
  g->stats.live_bytes += (int64_t)bytes;
  if (g->stats.live_bytes > g->stats.peak_bytes)
    g->stats.peak_bytes = g->stats.live_bytes;
  return b->p;
}

void *mt_gpu_take(int gpu, void *stream, size_t bytes) {
  mt_gpu_lock(gpu);
  void *p = take_locked(&gpus[gpu], gpu, stream, bytes);
  mt_gpu_unlock(gpu);
  return p;
}

void mt_gpu_give(int gpu, void *p, size_t bytes) {
  struct gpu *g = &gpus[gpu];
  mt_gpu_lock(gpu);
  block *b = find_block(g, p);
  if (b && b->state == USED) {
    g->stats.frees++;
    g->stats.live_bytes -= (int64_t)bytes;
    int recorded = 0;
    for (; recorded < b->nothers; recorded++) {
      void **event = &b->event[recorded];
      if (api()->event_create(gpu, 0, event) != MT_OK ||
          api()->event_record(gpu, *event, b->other[recorded]) != MT_OK)
        break;
    }
    if (recorded < b->nothers) { /* no events to be had: wait for the device instead */
      api()->device_synchronize(gpu);
      b->nothers = 0;
    }
    if (b->nothers) {
      b->state = PENDING;
      link_into(&g->pending, b);
    } else if (captured && b->pool->stream == captured &&
               b->pool->resting_bytes + b->size <= MOST_RESTING) {
      b->state = RESTING;
      b->pool->resting_bytes += b->size;
      link_into(&b->pool->resting, b);
    } else
      recycle(g, b);
  }
  mt_gpu_unlock(gpu);
}

void mt_gpu_used_on(int gpu, void *p, void *stream) {
  struct gpu *g = &gpus[gpu];
  mt_gpu_lock(gpu);
  block *b = find_block(g, p);
  if (b && b->pool->stream != stream) {
    int i = 0;
    while (i < b->nothers && b->other[i] != stream) i++;
    if (i < OTHERS) {
      b->other[i] = stream;
      if (i == b->nothers) b->nothers++;
    } else
      api()->stream_synchronize(gpu, stream); /* more streams than we remember */
  }
  mt_gpu_unlock(gpu);
}

void mt_gpu_keep_segments(int gpu, void *owner, bool keep) {
  struct gpu *g = &gpus[gpu];
  captured = keep ? owner : NULL;
  mt_gpu_lock(gpu);
  pool *q = pool_of(g, owner);
  while (q && !keep && q->resting) {
    block *b = q->resting;
    unlink_from(&q->resting, b);
    recycle(g, b);
  }
  if (q) q->resting_bytes = 0;
  mt_gpu_unlock(gpu);
}

void mt_gpu_pool_open(int gpu, void *owner) {
  mt_gpu_lock(gpu);
  pool *q = pool_of(&gpus[gpu], owner);
  if (q) q->closed = true;
  mt_gpu_unlock(gpu);
}

void mt_gpu_pool_lend(int gpu, void *owner, void *stream) {
  mt_gpu_lock(gpu);
  pool *q = pool_of(&gpus[gpu], owner);
  if (q) q->lender = pool_of(&gpus[gpu], stream);
  mt_gpu_unlock(gpu);
}

/* Move a list of free blocks. */
static void move_list(block **from, block **to) {
  while (*from) {
    block *b = *from;
    unlink_from(from, b);
    link_into(to, b);
  }
}

void mt_gpu_pool_close(int gpu, void *owner, void *stream) {
  struct gpu *g = &gpus[gpu];
  mt_gpu_lock(gpu);
  pool **at = &g->pools;
  while (*at && (*at)->stream != owner) at = &(*at)->next;
  pool *q = *at, *target = q ? pool_of(g, stream) : NULL;
  if (q && target) {
    for (size_t i = 0; i < g->hash_size; i++)
      for (block *b = g->hash[i]; b; b = b->same_hash)
        if (b->pool == q) b->pool = target;
    for (int c = 0; c < CLASSES; c++) move_list(&q->bin[c], &target->bin[c]);
    for (int k = 0; k < 2 * BUCKETS; k++)
      move_list(&q->bucket[k / BUCKETS][k % BUCKETS],
                &target->bucket[k / BUCKETS][k % BUCKETS]);
    for (at = &g->pools; *at != q;) at = &(*at)->next;
    *at = q->next;
    free(q);
  } else if (q) { /* no memory for the stream's: what was the graph's becomes it */
    q->stream = stream;
    q->closed = false;
  }
  mt_gpu_unlock(gpu);
}

void mt_gpu_empty_cache(int gpu) {
  mt_gpu_lock(gpu);
  release_segments(&gpus[gpu], gpu);
  mt_gpu_unlock(gpu);
}

mt_memory *mt_gpu_stats(int gpu) {
  struct gpu *g = &gpus[gpu];
  limit(g, gpu);
  g->stats.cached_bytes = (int64_t)g->reserved - g->stats.live_bytes;
  return &g->stats;
}

const int64_t *mt_gpu_live(int gpu) { return &gpus[gpu].stats.live_bytes; }
