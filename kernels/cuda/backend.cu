// kernels/cuda/backend.cu -- the CUDA backend's tables: what the core finds here.
#include "contract.h"
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/tables.cuh"

// Elementwise rows come from tables of their own (elementwise.cu); of the others each
// kernel file defines mt_cuda_<op>, and one that is missing is NULL here.
extern const mt_entry *cuda_elementwise(mt_op op);
extern const mt_entry *cuda_gradient(mt_op op);
extern mt_status cuda_many_sgd(const mt_call *call);
extern mt_status cuda_many_adam(const mt_call *call);
extern mt_status cuda_many_square_sum(const mt_call *call);
extern mt_status cuda_many_scale(const mt_call *call);

#define MT_CUSTOM(name, ...) extern const mt_entry mt_cuda_##name __attribute__((weak));
#define MT_RANDOM(name, ...) extern const mt_entry mt_cuda_##name __attribute__((weak));
#include "kernels/ops.def"

namespace {

const mt_entry *forward[MT_OP_COUNT], *gradient[MT_OP_COUNT];

mt_backend backend = {
    "cuda",
    MT_CONTRACT,
    forward,
    gradient,
    cuda_copy,
    {cuda_many_sgd, cuda_many_adam, cuda_many_square_sum, cuda_many_scale},
    cuda_raw_alloc,
    cuda_raw_free,
    &cuda_device_api,
    cuda_table,
};

} // namespace

extern "C" __attribute__((visibility("default"))) const mt_backend *
mytensor_cuda_backend(void) {
  for (int op = 0; op < MT_OP_COUNT; op++) {
    forward[op] = cuda_elementwise(mt_op(op));
    gradient[op] = cuda_gradient(mt_op(op));
  }
#define MT_CUSTOM(name, ...) forward[MT_OP_##name] = &mt_cuda_##name;
#define MT_RANDOM(name, ...) forward[MT_OP_##name] = &mt_cuda_##name;
#include "kernels/ops.def"
  return &backend;
}
