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
#define T      int16_t
#define SUFFIX i16
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX
#define T      int8_t
#define SUFFIX i8
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX
#define T      uint8_t
#define SUFFIX u8
#include "kernels/cuda/functors.inc"
#undef SUFFIX
#undef HAS_NUMBER
#define HAS_NUMBER(row)
#undef STORE
#define STORE(x) T((x) != 0)
#define SUFFIX   b8
#include "kernels/cuda/functors.inc"
#undef T
#undef SUFFIX

template <class I64, class I32, class I16, class I8, class U8>
mt_status run_int(const mt_call *call) {
  const mt_view *out = call->out[0];
  switch (call->in[0]->dtype) {
  case MT_I64: return launch_elementwise<I64, int64_t>(call, out, call->in);
  case MT_I32: return launch_elementwise<I32, int32_t>(call, out, call->in);
  case MT_I16: return launch_elementwise<I16, int16_t>(call, out, call->in);
  case MT_I8: return launch_elementwise<I8, int8_t>(call, out, call->in);
  case MT_U8: return launch_elementwise<U8, uint8_t>(call, out, call->in);
  default: return cuda_fail_text(MT_EUNSUPPORTED, "no kernel for this dtype");
  }
}
template <class B8> mt_status run_bool(const mt_call *call) {
  return launch_elementwise<B8, uint8_t>(call, call->out[0], call->in);
}
} // namespace

#undef HAS_NUMBER
#define HAS_NUMBER(row) row
#define ENTRY(name)                                                                    \
  t[MT_OP_##name] = run_int<name##_fn_i64, name##_fn_i32, name##_fn_i16, name##_fn_i8, \
                            name##_fn_u8>;
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
