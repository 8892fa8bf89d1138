/* kernels/cpu/search.h -- loops of searchsorted. */
#ifndef MT_CPU_SEARCH_H
#define MT_CPU_SEARCH_H

#include "kernels/cpu/cpu.h"

/* y[i] = the position from 1 before which x[i] goes in a sorted line of n elements;
** right: behind equal ones. */
typedef void (*mt_search_fn)(int64_t count, const void *x, int64_t n, const void *line,
                             bool right, int64_t *y);
typedef const mt_search_fn mt_search_table[MT_NDTYPES];
MT_ISA_DECLARE(mt_search_table, mt_searches); /* rows_search.c */

#endif
