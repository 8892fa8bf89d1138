/* runtime/core/cgroup.h -- what the control groups of this process allow. */
#ifndef MT_CGROUP_H
#define MT_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* 90% of the bytes that the machine has, or that the groups allow if that is less. root:
** "", or where specs keep another /proc and /sys. */
int64_t mt_default_memory_limit(const char *root);
/* Processors' worth of time, rounded up; INT_MAX: no limit. */
int mt_cgroup_processors(const char *root);

#endif
