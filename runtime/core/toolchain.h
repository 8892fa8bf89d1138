/* runtime/core/toolchain.h -- kernels that are compiled while the program runs: the table
** of a device, and its errors. */
#ifndef MT_CORE_TOOLCHAIN_H
#define MT_CORE_TOOLCHAIN_H

#include "kernels/toolchain.h"
#include "runtime/core/context.h"

/* The toolchain of a GPU. NULL and an error text (MT_EDEVICE): there is no such device,
** or nothing can be compiled for it. */
const mt_toolchain *mt_toolchain_of(mt_device device);

/* Why nothing can be compiled for GPUs here; NULL: it can. */
const char *mt_toolchain_missing(void);

/* Does a compiled kernel have n parameters, of so many bytes each? MT_EARG: it has not. */
mt_status mt_toolchain_check(const mt_toolchain *t, const mt_function *f,
                             const char *name, int n, const int *bytes);

/* Make this thread's error of a status that a function of the toolchain gave; fname: of
** the message ("k: ..."), or NULL. Returns the status. */
mt_status mt_toolchain_status(mt_device device, const char *fname, mt_status status);

#endif
