// kernels/cuda/elementwise_gradient.cu -- fused gradients of the elementwise operators.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/elementwise_tables.cuh"
#include "kernels/cuda/formulas.cuh"

#define GRADIENT
#define HAS_FLOAT(row)  row
#define HAS_NUMBER(row) row
#define HAS_ANY(row)    row
#define HAS_INT(row)
#define STORE(x) T(x)

namespace {
#define T      float
#define SUFFIX f32
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX
#define T      double
#define SUFFIX f64
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX

template <class F32, class F64> mt_status run_gradient(const mt_call *call, int k) {
  const mt_view *out = call->out[k];
  return launch_float<F32, F64>(call, out, call->in, out->dtype);
}
} // namespace

#define DX(name, k) \
  t[MT_OP_##name][k] = run_gradient<name##_dx##k##_fn_f32, name##_dx##k##_fn_f64>;
#define MT_UNARY(name, dtypes, ...)   HAS_##dtypes(DX(name, 0))
#define MT_BINARY(name, dtypes, ...)  HAS_##dtypes(DX(name, 0) DX(name, 1))
#define MT_TERNARY(name, dtypes, ...) HAS_##dtypes(DX(name, 0) DX(name, 1) DX(name, 2))
void fill_gradient_table(gradient_kernel (*t)[3]) {
#include "kernels/ops.def"
}
