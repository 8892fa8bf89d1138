/* kernels/toolchain.h -- kernels that are compiled while the program runs: the table
** "toolchain" of a GPU backend. */
#ifndef MT_TOOLCHAIN_H
#define MT_TOOLCHAIN_H

#include "kernels/kernel.h"

/* Compiled code, loaded on one device; and one of its kernels. Both live as long as the
** process: captured graphs may hold kernels, and who compiles the same source again gets
** the same program. */
typedef struct mt_program mt_program;
typedef struct mt_function mt_function;

typedef struct mt_launch {
  uint32_t grid[3], block[3]; /* a grid of 0 blocks: nothing runs, which is no error */
  uint32_t shared_bytes;      /* dynamic shared memory; more than 48 KB is asked for */
} mt_launch;

/* Every function is safe to call from several threads. A status other than MT_OK has
** its text in mt_device_api.error_text(). */
typedef struct mt_toolchain {
  /* NULL, or the reason why nothing can be compiled here. */
  const char *(*unavailable)(void);
  /* Compile CUDA C++ for the device and load it. name: what messages call the source
  ** ("k.cu", in front of a line's number). options: as NVRTC takes them, added to the
  ** architecture (unless they name one), C++17 and the toolkit's include folders.
  ** log: the compiler's messages, from malloc, with line numbers of source, also when
  ** it compiles (warnings; a cache that cannot be written); NULL if there are none.
  ** MT_EARG: it does not compile. Results are kept on disk by content (source, what it
  ** includes from folders named by -I, options, architecture, compiler), so that the
  ** next process compiles nothing: below $MYTENSOR_CACHE ("off": nowhere), else
  ** $XDG_CACHE_HOME/mytensor, else ~/.cache/mytensor. */
  mt_status (*compile)(int device, const char *name, const char *source,
                       const char *const *options, int noptions,
                       mt_program **program /* [out] */,
                       char **log /* [out] [optional] */);
  /* The extern "C" kernel of that name. MT_EARG: there is none. */
  mt_status (*function)(mt_program *program, const char *name,
                        mt_function **function /* [out] */);
  /* The bytes of the kernel's i-th parameter, from 0; 0: it has fewer; -1: a driver
  ** before 12.4 cannot tell. */
  int (*parameter_bytes)(const mt_function *function, int i);
  /* Launch on stream; params[i] points to the i-th argument, as CUDA wants it.
  ** MT_EARG: the shape is beyond a limit of the device or of the kernel. */
  mt_status (*launch)(mt_function *function, int device, void *stream,
                      const mt_launch *shape, void **params);
  /* Somebody else has launched a kernel on stream, and cudaGetLastError() gave error:
  ** its name is told should it have destroyed the device. The status of that error. */
  mt_status (*launched)(int device, void *stream, const char *name, int error);
} mt_toolchain;

#endif
