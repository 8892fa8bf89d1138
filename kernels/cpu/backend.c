/* kernels/cpu/backend.c -- the CPU's table of kernels, and its raw memory. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "contract.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/fuse.h"
#include "kernels/cpu/many.h"

/* ---- kernels ------------------------------------------------------------------------
** Each kernel file defines its mt_cpu_<op>. One that is not linked is NULL here, and
** dispatch says that there is no kernel. */
#define MT_CUSTOM(name, ...) extern const mt_entry mt_cpu_##name __attribute__((weak));
#define MT_RANDOM(name, ...) extern const mt_entry mt_cpu_##name __attribute__((weak));
#include "kernels/ops.def"

#define ENTRY(name)             [MT_OP_##name] = &mt_cpu_elementwise[MT_OP_##name],
#define MT_UNARY(name, ...)     ENTRY(name)
#define MT_PREDICATE(name, ...) ENTRY(name)
#define MT_BINARY(name, ...)    ENTRY(name)
#define MT_COMPARE(name, ...)   ENTRY(name)
#define MT_TERNARY(name, ...)   ENTRY(name)
#define MT_CUSTOM(name, ...)    [MT_OP_##name] = &mt_cpu_##name,
#define MT_RANDOM(name, ...)    [MT_OP_##name] = &mt_cpu_##name,
static const mt_entry *const forward[MT_OP_COUNT] = {
#include "kernels/ops.def"
};

#define GRADIENT(name) [MT_OP_##name] = &mt_cpu_gradient,
#define NO_GRADIENT(name)
#define GRADIENT_FLOAT                GRADIENT
#define GRADIENT_NUMBER               GRADIENT
#define GRADIENT_ANY                  GRADIENT
#define GRADIENT_INT                  NO_GRADIENT
#define MT_UNARY(name, dtypes, ...)   GRADIENT_##dtypes(name)
#define MT_BINARY(name, dtypes, ...)  GRADIENT_##dtypes(name)
#define MT_TERNARY(name, dtypes, ...) GRADIENT_##dtypes(name)
static const mt_entry *const gradient[MT_OP_COUNT] = {
#include "kernels/ops.def"
};

static mt_status copy_run(const mt_call *call) {
  return mt_cpu_copy_view(call, call->out[0], call->in[0]);
}

/* ---- memory -------------------------------------------------------------------------
** Blocks of 2 MiB and more lie in huge pages where the system has them: the first touch
** of 64 MiB takes 4 ms instead of 180. */
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE      ((size_t)4096)

static size_t mapped_bytes(size_t bytes) { return (bytes + PAGE - 1) & -PAGE; }

static void *raw_alloc(int device, size_t bytes) {
  (void)device;
  if (bytes > SIZE_MAX / 2) return NULL;
  if (bytes < HUGE_PAGE) {
    void *p = NULL;
    return posix_memalign(&p, 64, bytes > 0 ? bytes : 64) == 0 ? p : NULL;
  }
  const size_t want = mapped_bytes(bytes), room = want + HUGE_PAGE;
  char *p =
      mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  const size_t head = -(uintptr_t)p & (HUGE_PAGE - 1), tail = room - head - want;
  if (head > 0) munmap(p, head);
  if (tail > 0) munmap(p + head + want, tail);
  madvise(p + head, want, MADV_HUGEPAGE); /* only advice: it may fail */
  return p + head;
}

static void raw_free(int device, void *p, size_t bytes) {
  (void)device;
  if (bytes < HUGE_PAGE)
    free(p);
  else
    munmap(p, mapped_bytes(bytes));
}

/* ---- tables beyond ops ----------------------------------------------------------- */
static const void *table(const char *name) {
  return strcmp(name, "fuse") == 0 ? &mt_cpu_fuse : NULL;
}

/* ---- the backend ----------------------------------------------------------------- */
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const mt_backend *mt_cpu_backend(void) {
  static const mt_backend cpu = {
      .name = "cpu",
      .contract = TEXT(MT_CONTRACT_CHECKSUM),
      .forward = forward,
      .gradient = gradient,
      .copy = copy_run,
      .many = {[MT_MANY_SGD] = mt_cpu_many_sgd,
               [MT_MANY_ADAM] = mt_cpu_many_adam,
               [MT_MANY_SQUARE_SUM] = mt_cpu_many_square_sum,
               [MT_MANY_SCALE] = mt_cpu_many_scale},
      .raw_alloc = raw_alloc,
      .raw_free = raw_free,
      .table = table,
  };
  return &cpu;
}
