// kernels/cuda/elementwise_tables.cuh -- what the files of the elementwise family give to
// elementwise.cu: kernels by op, for one class of dtypes.
#ifndef MT_CUDA_ELEMENTWISE_TABLES_CUH
#define MT_CUDA_ELEMENTWISE_TABLES_CUH

#include "kernels/kernel.h"
#include "kernels/ops.h"

typedef mt_status (*gradient_kernel)(const mt_call *call, int k);

// How many attributes each elementwise row has.
struct attribute_counts {
  uint8_t of[MT_OP_COUNT];
};
extern const attribute_counts elementwise_attributes;

void fill_float_table(mt_kernel *t);
void fill_int_table(mt_kernel *t);
void fill_bool_table(mt_kernel *t);
void fill_gradient_table(gradient_kernel (*t)[3]);

#endif
