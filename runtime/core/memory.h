/* runtime/core/memory.h -- the allocator's counters, for core's own use. */
#ifndef MT_MEMORY_H
#define MT_MEMORY_H

#include "runtime/core/tensor.h"

void mt_memory_count_tensor(mt_device device, int change);

#endif
