/* runtime/threads.c -- how the host's OpenMP threads wait for their next work. */
#include <stdlib.h>

/* GNU's OpenMP lets an idle thread spin for milliseconds before it sleeps. Where other
** processes need the cores too, the spinning takes away the very time that is waited for:
** a training step of a small network took 333 ms instead of 23. 1000 rounds, some tens of
** microseconds, still bridge the gap between two ops.
** libgomp reads its settings in a constructor without priority: this runs before it. */
__attribute__((constructor(101))) static void limit_spinning(void) {
  if (getenv("OMP_WAIT_POLICY") == NULL) setenv("GOMP_SPINCOUNT", "1000", 0);
}
