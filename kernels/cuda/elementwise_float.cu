// kernels/cuda/elementwise_float.cu -- elementwise operators of float types.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/elementwise_tables.cuh"
#include "kernels/cuda/formulas.cuh"

#define FORWARD
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

template <class F32, class F64> mt_status run_float(const mt_call *call) {
  return launch_float<F32, F64>(call, call->out[0], call->in, call->in[0]->dtype);
}
} // namespace

#define ENTRY(name)                     t[MT_OP_##name] = run_float<name##_fn_f32, name##_fn_f64>;
#define MT_UNARY(name, dtypes, ...)     HAS_##dtypes(ENTRY(name))
#define MT_PREDICATE(name, dtypes, ...) HAS_##dtypes(ENTRY(name))
#define MT_BINARY(name, dtypes, ...)    HAS_##dtypes(ENTRY(name))
#define MT_COMPARE(name, dtypes, ...)   HAS_##dtypes(ENTRY(name))
#define MT_TERNARY(name, dtypes, ...)   HAS_##dtypes(ENTRY(name))
void fill_float_table(mt_kernel *t) {
#include "kernels/ops.def"
}
