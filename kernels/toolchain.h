/* kernels/toolchain.h -- kernels that are compiled while the program runs: the table
** "toolchain" of a GPU backend. */
#ifndef MT_TOOLCHAIN_H
#define MT_TOOLCHAIN_H

#include "kernels/kernel.h"

/* Compiled code, loaded on one device; and one of its kernels. */
typedef struct mt_program mt_program;
typedef struct mt_function mt_function;

typedef struct mt_launch {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic shared memory; more than 48 KB is asked for */
} mt_launch;

/* Every function is safe to call from several threads. A status other than MT_OK has
** its text in mt_device_api.error_text(). */
typedef struct mt_toolchain {
  /* NULL, or the reason why nothing can be compiled here. */
  const char *(*unavailable)(void);
  /* Compile CUDA C++ for the device and load it. name: what messages call the source.
  ** options: as NVRTC takes them, added to the architecture and include folders.
  ** log: the compiler's messages, from malloc; NULL if there are none. Results are kept
  ** on disk by content, so that the next process compiles nothing. */
  mt_status (*compile)(int device, const char *name, const char *source,
                       const char *const *options, int noptions,
                       mt_program **program /* [out] */, char **log /* [out] */);
  void (*release)(mt_program *program);
  /* The extern "C" kernel of that name; belongs to the program. */
  mt_status (*function)(mt_program *program, const char *name,
                        mt_function **function /* [out] */);
  /* Launch on stream; params[i] points to the i-th argument, as CUDA wants it. */
  mt_status (*launch)(mt_function *function, int device, void *stream,
                      const mt_launch *shape, void **params);
} mt_toolchain;

#endif
