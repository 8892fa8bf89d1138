/* kernels/cpu/elementwise.h -- the entries of the elementwise operators. */
#ifndef MT_CPU_ELEMENTWISE_H
#define MT_CPU_ELEMENTWISE_H

#include "kernels/kernel.h"
#include "kernels/ops.h"

extern const mt_entry mt_cpu_elementwise[MT_OP_COUNT];
extern const mt_entry mt_cpu_gradient; /* of every differentiable row */

#endif
