/* kernels/cpu/stream.c -- from which size on results pass the caches. */
#include "kernels/cpu/stream.h"
#include <unistd.h>

#define LEAST ((int64_t)8 << 20)
#define MOST  ((int64_t)32 << 20)

int64_t mt_cpu_stream_least(void) {
  static int64_t found; /* 0: not yet */
  const int64_t known = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (known > 0) return known;
  int64_t bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  bytes = sysconf(_SC_LEVEL3_CACHE_SIZE) / 2;
#endif
  bytes = bytes < LEAST ? LEAST : bytes > MOST ? MOST : bytes;
  __atomic_store_n(&found, bytes, __ATOMIC_RELAXED);
  return bytes;
}
