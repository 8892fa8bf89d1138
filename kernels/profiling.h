/* kernels/profiling.h -- what a profile needs of a GPU beyond events: the table
** "profiling" of a GPU backend. */
#ifndef MT_PROFILING_H
#define MT_PROFILING_H

#include "kernels/kernel.h"

typedef struct mt_profiling {
  /* The stream goes on when *flag, in pinned host memory, is `until` or later (it counts
  ** up and wraps), or after 3 ms: so that what it is given meanwhile runs back to back. */
  mt_status (*hold)(int device, void *stream, const uint32_t *flag, uint32_t until);
  /* A named range of this thread, for tools that are attached (NVTX); without one they
  ** do nothing. */
  void (*range_push)(const char *name);
  void (*range_pop)(void);
} mt_profiling;

#endif
