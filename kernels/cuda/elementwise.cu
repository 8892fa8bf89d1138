// kernels/cuda/elementwise.cu -- the elementwise operators and their fused gradients: picks
// the kernel of the dtype.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/elementwise_tables.cuh"

// The attributes column begins with P0, P1 or P2.
static constexpr attribute_counts count_attributes() {
  attribute_counts c{};
#define COUNT(name, attrs)                     c.of[MT_OP_##name] = uint8_t((#attrs)[1] - '0');
#define MT_UNARY(name, dtypes, attrs, ...)     COUNT(name, attrs)
#define MT_PREDICATE(name, dtypes, attrs, ...) COUNT(name, attrs)
#define MT_BINARY(name, dtypes, attrs, ...)    COUNT(name, attrs)
#define MT_COMPARE(name, dtypes, attrs, ...)   COUNT(name, attrs)
#define MT_TERNARY(name, dtypes, attrs, ...)   COUNT(name, attrs)
#include "kernels/ops.def"
  return c;
}
extern const attribute_counts elementwise_attributes = count_attributes();

namespace {

mt_kernel float_table[MT_OP_COUNT], int_table[MT_OP_COUNT], bool_table[MT_OP_COUNT];
gradient_kernel gradient_table[MT_OP_COUNT][3];

const bool filled = [] {
  fill_float_table(float_table);
  fill_int_table(int_table);
  fill_bool_table(bool_table);
  fill_gradient_table(gradient_table);
  return true;
}();

mt_status elementwise_run(const mt_call *call) {
  const mt_dtype d = call->in[0]->dtype;
  const mt_kernel *table = MT_IS_FLOAT(d) ? float_table
                           : d == MT_BOOL ? bool_table
                                          : int_table;
  if (!table[call->op])
    return cuda_fail_text(MT_EUNSUPPORTED, "no kernel for this dtype");
  return table[call->op](call);
}

mt_status gradient_run(const mt_call *call) {
  for (int k = 0; k < call->nout; k++) {
    if (!call->out[k]) continue;
    const gradient_kernel kernel = gradient_table[call->op][k];
    if (!kernel) return cuda_fail_text(MT_EUNSUPPORTED, "no gradient for this dtype");
    if (const mt_status status = kernel(call, k)) return status;
  }
  return MT_OK;
}

const mt_entry forward_entry = {elementwise_run, nullptr, MT_ALL_MASK, 0};
const mt_entry gradient_entry = {gradient_run, nullptr, MT_ALL_MASK, 0};

} // namespace

const mt_entry *cuda_elementwise(mt_op op) {
  (void)filled;
  return float_table[op] || int_table[op] || bool_table[op] ? &forward_entry : nullptr;
}

const mt_entry *cuda_gradient(mt_op op) {
  return gradient_table[op][0] ? &gradient_entry : nullptr;
}
