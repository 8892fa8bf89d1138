/* runtime/core/status.h -- how functions below bind report errors: a status and a text.
 */
#ifndef MT_STATUS_H
#define MT_STATUS_H

#include "kernels/kernel.h"

typedef struct mt_error {
  mt_status status;
  int arg; /* position from 1 among the op's inputs and attributes; 0: none in
              particular */
  char text[512];
} mt_error;

/* Note an error of this thread and return its status: return mt_fail(MT_ESHAPE, ...).
 */
mt_status mt_fail(mt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, about argument arg (from 1, in signature order). */
mt_status mt_fail_arg(mt_status status, int arg, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The last error of this thread: valid after a function returned other than MT_OK. */
mt_error *mt_last_error(void);

/* Return early with a failing status. */
#define MT_TRY(call)                                  \
  do {                                                \
    const mt_status mt_try_status = (call);           \
    if (mt_try_status != MT_OK) return mt_try_status; \
  } while (0)

#endif
