/* kernels/cpu/many.h -- the calls over many tensors at once: see mt_many in
** kernel.h. */
#ifndef MT_CPU_MANY_H
#define MT_CPU_MANY_H

#include "kernels/kernel.h"

mt_status mt_cpu_many_sgd(const mt_call *call);
mt_status mt_cpu_many_adam(const mt_call *call);
mt_status mt_cpu_many_square_sum(const mt_call *call);
mt_status mt_cpu_many_scale(const mt_call *call);

#endif
