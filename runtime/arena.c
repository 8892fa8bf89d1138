/* runtime/arena.c -- memory of the host's Lua state: small objects come from one region
** of addresses and go back to lists, since a loop over tensors makes and drops a userdata
** of the same size with each call. The rest is malloc's.
**
** Lua tells the size of what it frees, so blocks need no headers; whose they are, their
** address says. The region is never given back before the state is. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <lua.h>

#include "runtime/host.h"

#define UNIT      16                   /* bytes; classes are its multiples */
#define LARGEST   256                  /* of the small ones */
#define REGION    ((size_t)1 << 30)    /* bytes of addresses; beyond it, malloc */
#define STEP      ((size_t)256 << 10)  /* so much of it is made usable at once */
#define HUGE_PAGE ((uintptr_t)2 << 20) /* bytes */

/* With a sanitizer each object is malloc's, so that it sees their bounds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WANTED 0
#else
#define WANTED 1
#endif

typedef struct arena {
  char *base;
  size_t used, usable;        /* bytes of the region */
  void *list[LARGEST / UNIT]; /* linked by the blocks' first words */
} arena;

static arena own;

static int is_own(const void *p) {
  return (size_t)((const char *)p - own.base) < REGION;
}

static size_t class_of(size_t size) { return (size - 1) / UNIT; }

/* The next piece of the region, or malloc's block once that is used up. */
static void *carve(size_t size) {
  const size_t bytes = (class_of(size) + 1) * UNIT;
  if (own.used + bytes > own.usable) {
    if (own.usable + STEP > REGION ||
        mprotect(own.base + own.usable, STEP, PROT_READ | PROT_WRITE) != 0)
      return malloc(bytes);
    own.usable += STEP;
  }
  void *p = own.base + own.used;
  own.used += bytes;
  return p;
}

/* malloc's block, in huge pages if it is large: a string of 512 MB, which nothing can
** interrupt, is made in a quarter of the time. What grows by realloc is left alone: to
** move huge pages takes longer than small ones. */
static void *take_large(size_t size) {
  void *p = malloc(size);
  if (p == NULL || size < 4 * HUGE_PAGE) return p;
  const uintptr_t from = ((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
  const uintptr_t to = ((uintptr_t)p + size) & ~(HUGE_PAGE - 1);
  madvise((void *)from, to - from, MADV_HUGEPAGE); /* only advice: it may fail */
  return p;
}

static void *take(size_t size) {
  if (size > LARGEST) return take_large(size);
  void **list = &own.list[class_of(size)], *p = *list;
  if (p == NULL) return carve(size);
  *list = *(void **)p;
  return p;
}

static void give(void *p, size_t size) {
  if (!is_own(p)) {
    free(p);
    return;
  }
  if (size == 0) return; /* a C module that does not keep to the rules: lost */
  void **list = &own.list[class_of(size)];
  *(void **)p = *list;
  *list = p;
}

/* lua_Alloc */
static void *allocate(void *user, void *p, size_t old, size_t size) {
  (void)user;
  if (p == NULL) return size > 0 ? take(size) : NULL;
  if (size == 0) {
    give(p, old);
    return NULL;
  }
  if (!is_own(p)) return realloc(p, size);
  if (size <= LARGEST && class_of(size) == class_of(old)) return p;
  void *moved = take(size);
  if (moved == NULL) return size < old ? p : NULL; /* Lua counts on smaller ones */
  memcpy(moved, p, old < size ? old : size);
  give(p, old);
  return moved;
}

void mth_arena_use(lua_State *L) {
  if (!WANTED || own.base != NULL) return;
  void *p =
      mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return;
  own.base = p;
  lua_setallocf(L, allocate, NULL); /* what was made before stays malloc's */
}
