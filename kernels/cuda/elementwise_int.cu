// kernels/cuda/elementwise_int.cu -- elementwise operators of integers and of bool, which
// is stored as 0 or 1: its sum is or, its product and.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/elementwise_tables.cuh"
#include "kernels/cuda/formulas.cuh"

#define FORWARD
#define HAS_FLOAT(row)
#define HAS_NUMBER(row) row
#define HAS_ANY(row)    row
#define HAS_INT(row)    row
#define STORE(x)        T(x)

namespace {
#define T      int64_t
#define SUFFIX i64
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX
#define T      int32_t
#define SUFFIX i32
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX
#undef HAS_NUMBER
#define HAS_NUMBER(row)
#undef STORE
#define STORE(x) T((x) != 0)
#define T        uint8_t
#define SUFFIX   b8
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX

template <class I64, class I32> mt_status run_int(const mt_call *call) {
  return launch_int<I64, I32>(call, call->out[0], call->in, call->in[0]->dtype);
}
template <class B8> mt_status run_bool(const mt_call *call) {
  return launch_elementwise<B8, uint8_t>(call, call->out[0], call->in, MT_BOOL);
}
} // namespace

#undef HAS_NUMBER
#define HAS_NUMBER(row)                 row
#define ENTRY(name)                     t[MT_OP_##name] = run_int<name##_fn_i64, name##_fn_i32>;
#define MT_UNARY(name, dtypes, ...)     HAS_##dtypes(ENTRY(name))
#define MT_PREDICATE(name, dtypes, ...) HAS_##dtypes(ENTRY(name))
#define MT_BINARY(name, dtypes, ...)    HAS_##dtypes(ENTRY(name))
#define MT_COMPARE(name, dtypes, ...)   HAS_##dtypes(ENTRY(name))
#define MT_TERNARY(name, dtypes, ...)   HAS_##dtypes(ENTRY(name))
void fill_int_table(mt_kernel *t) {
#include "kernels/ops.def"
}

#undef ENTRY
#undef HAS_NUMBER
#define HAS_NUMBER(row)
#define ENTRY(name)                     t[MT_OP_##name] = run_bool<name##_fn_b8>;
#define MT_UNARY(name, dtypes, ...)     HAS_##dtypes(ENTRY(name))
#define MT_PREDICATE(name, dtypes, ...) HAS_##dtypes(ENTRY(name))
#define MT_BINARY(name, dtypes, ...)    HAS_##dtypes(ENTRY(name))
#define MT_COMPARE(name, dtypes, ...)   HAS_##dtypes(ENTRY(name))
#define MT_TERNARY(name, dtypes, ...)   HAS_##dtypes(ENTRY(name))
void fill_bool_table(mt_kernel *t) {
#include "kernels/ops.def"
}
