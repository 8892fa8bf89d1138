/* runtime/core/guard.h -- MYTENSOR_GUARD=1: known bytes before and behind every block of
** memory, looked at when the block is freed. */
#ifndef MT_GUARD_H
#define MT_GUARD_H

#include <stdbool.h>
#include "runtime/core/context.h"

#define MT_GUARD_BYTES 512 /* on each side: what a GPU's blocks are aligned to */

bool mt_guard_on(void);

/* Blocks that this thread asks for from now on are made for this op. */
void mt_guard_name(const char *op);

/* Make a block for `bytes` of one of bytes + 2 * MT_GUARD_BYTES; gives its new start. */
void *mt_guard_arm(mt_device device, void *stream, void *p, size_t bytes);

/* The start of the whole block again. What was overwritten is told on stderr and counted;
** the work of a GPU is waited for. */
void *mt_guard_disarm(mt_device device, void *p, size_t bytes);

/* How many blocks had guard bytes overwritten. */
int64_t mt_guard_overruns(mt_device device);

#endif
