/* kernels/cpu/elementwise.h -- the entries of the elementwise operators. */
#ifndef MT_CPU_ELEMENTWISE_H
#define MT_CPU_ELEMENTWISE_H

#include "kernels/cpu/cpu.h"

extern const mt_entry mt_cpu_elementwise[MT_OP_COUNT];
extern const mt_entry mt_cpu_gradient; /* of every differentiable row */

/* The rows of float32's fmod and remainder. */
typedef struct mt_fmod_rows {
  mt_row fmod, remainder;
} mt_fmod_rows;
MT_ISA_DECLARE(const mt_fmod_rows, mt_fmod_rows_of); /* rows_fmod.c */

#endif
