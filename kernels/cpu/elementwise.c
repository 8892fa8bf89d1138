/* kernels/cpu/elementwise.c -- the elementwise operators and their fused gradients:
** picks the rows of the dtype and the processor. */
#include "kernels/cpu/tables.h"
#include "kernels/cpu/elementwise.h"

static const mt_row *rows_of(mt_dtype d) {
  switch (d) {
  case MT_F64: return *MT_ISA_PICK(mt_rows_f64);
  case MT_I64: return *MT_ISA_PICK(mt_rows_i64);
  case MT_I32: return *MT_ISA_PICK(mt_rows_i32);
  case MT_I16: return *MT_ISA_PICK(mt_rows_i16);
  case MT_I8: return *MT_ISA_PICK(mt_rows_i8);
  case MT_U8: return *MT_ISA_PICK(mt_rows_u8);
  case MT_BOOL: return *MT_ISA_PICK(mt_rows_b8);
  default: return *MT_ISA_PICK(mt_rows_f32);
  }
}

mt_row mt_cpu_row_of(mt_dtype d, int op, double first) {
  const mt_exponential_rows *rows = MT_ISA_PICK(mt_exponential_rows_of);
  const int wide = d == MT_F64;
  mt_row better = NULL;
  if (!MT_IS_FLOAT(d)) return rows_of(d)[op];
  for (int i = 0; !wide && rows->of[i].row; i++)
    if (rows->of[i].op == op) return rows->of[i].row;
  switch (op) {
  case MT_OP_fmod: better = MT_ISA_PICK(mt_fmod_rows_of)->fmod[wide]; break;
  case MT_OP_remainder: better = MT_ISA_PICK(mt_fmod_rows_of)->remainder[wide]; break;
  case MT_OP_lgamma: better = MT_ISA_PICK(mt_special_rows_of)->lgamma[wide]; break;
  case MT_OP_polygamma:
    if (first == 0) return rows_of(d)[MT_OP_digamma];
    if (first == 1) better = MT_ISA_PICK(mt_special_rows_of)->trigamma[wide];
    break;
  default: break;
  }
  return better ? better : rows_of(d)[op];
}

/* Report the first 0 among the divisors of integers; the rows give 0 there. */
static void check_divisors(const mt_call *call) {
  static const char zero[8];
  const mt_view *b = call->in[1];
  const size_t size = (size_t)mt_cpu_size(b->dtype);
  if (!MT_IS_INT(b->dtype) || mt_cpu_numel(call->out[0]) == 0) return;
  mt_space s;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  mt_view distinct = *b; /* what is repeated need not be looked at twice */
  for (int d = 0; d < b->ndim; d++)
    if (b->stride[d] == 0) distinct.shape[d] = 1;
  const mt_view *arg = &distinct;
  mt_space_make(&s, 1, &arg, true);
  for (int64_t row = 0; row < s.numel; row += s.size[0]) {
    mt_space_seek(&s, row, coord, offset);
    const char *p = b->data + offset[0];
    for (int64_t i = 0; i < s.size[0]; i++, p += s.stride[0][0])
      if (memcmp(p, zero, size) == 0) {
        mt_fault_set(call->fault, call->op, row + i, 0, 1, 0);
        return;
      }
  }
}

/* The exponent that all elements have in common; NaN: they have none. */
static double fixed_exponent(const mt_view *b) {
  if (!MT_IS_FLOAT(b->dtype)) return (double)NAN;
  for (int d = 0; d < b->ndim; d++)
    if (b->stride[d] != 0 && b->shape[d] != 1) return (double)NAN;
  return mt_cpu_numel(b) == 0 ? (double)NAN : mt_cpu_load_f64(b->dtype, b->data);
}

/* The powers that people write, ten times as fast; NULL: not this one. */
static const mt_power_rows *power_rows(double exponent) {
  for (int i = 0; i < MT_POWERS; i++) {
    const mt_power_rows *rows = *MT_ISA_PICK(mt_power_rows_of) + i;
    if (rows->exponent == exponent) return rows;
  }
  return NULL;
}

static mt_row power_row(mt_dtype d, double exponent) {
  const mt_power_rows *rows = power_rows(exponent);
  if (rows != NULL) return rows->value[d == MT_F64];
  return exponent == 2    ? rows_of(d)[MT_OP_square]
         : exponent == -1 ? rows_of(d)[MT_OP_reciprocal]
                          : NULL;
}

static mt_status elementwise_run(const mt_call *call) {
  const int op = call->op;
  const mt_dtype d = call->in[0]->dtype;
  const double first = op == MT_OP_polygamma ? call->attr->f : 0;
  const mt_row power =
      op == MT_OP_pow ? power_row(d, fixed_exponent(call->in[1])) : NULL;
  const mt_row row = power != NULL ? power : mt_cpu_row_of(d, op, first);
  const int nin = power != NULL ? 1 : call->nin;
  if (row == NULL) return MT_EUNSUPPORTED;
  switch (op) {
  case MT_OP_fmod:
  case MT_OP_remainder:
  case MT_OP_floordiv: check_divisors(call); break;
  default: break;
  }
  return mt_cpu_rows(call, &row, 1, call->out, nin, call->in, call->attr, true);
}

static mt_status gradient_run(const mt_call *call) {
  const mt_view *first = NULL;
  for (int k = 0; k < call->nout && first == NULL; k++) first = call->out[k];
  if (first == NULL) return MT_OK;
  int op = call->op, nout = call->nout, nin = call->nin;
  if (op == MT_OP_pow && call->out[1] == NULL) {
    const double exponent = fixed_exponent(call->in[3]);
    const mt_power_rows *power = power_rows(exponent);
    if (power != NULL)
      return mt_cpu_rows(call, &power->gradient[first->dtype == MT_F64], 1, call->out,
                         3, call->in, call->attr, true);
    if (exponent == 2) op = MT_OP_square, nout = 1, nin = 3;
  }
  const mt_row *rows = first->dtype == MT_F64 ? (*MT_ISA_PICK(mt_gradients_f64))[op]
                                              : (*MT_ISA_PICK(mt_gradients_f32))[op];
  for (int k = 0; k < nout; k++)
    if (call->out[k] != NULL && rows[k] == NULL) return MT_EUNSUPPORTED;
  return mt_cpu_rows(call, rows, nout, call->out, nin, call->in, call->attr, true);
}

#define DTYPES_FLOAT  MT_FLOAT_MASK
#define DTYPES_NUMBER (MT_FLOAT_MASK | MT_INT_MASK)
#define DTYPES_ANY    MT_ALL_MASK
#define DTYPES_INT    (MT_INT_MASK | MT_BIT(MT_BOOL))

#define ELEMENTWISE(mask) \
  { elementwise_run, NULL, mask, 0 }
#define MT_UNARY(name, dtypes, ...)     [MT_OP_##name] = ELEMENTWISE(DTYPES_##dtypes),
#define MT_PREDICATE(name, dtypes, ...) [MT_OP_##name] = ELEMENTWISE(DTYPES_##dtypes),
#define MT_COMPARE(name, dtypes, ...)   [MT_OP_##name] = ELEMENTWISE(DTYPES_##dtypes),
#define MT_TERNARY(name, dtypes, ...)   [MT_OP_##name] = ELEMENTWISE(DTYPES_##dtypes),
#define MT_BINARY(name, dtypes, ...)    [MT_OP_##name] = ELEMENTWISE(DTYPES_##dtypes),
const mt_entry mt_cpu_elementwise[MT_OP_COUNT] = {
#include "kernels/ops.def"
};

const mt_entry mt_cpu_gradient = {gradient_run, NULL, MT_ALL_MASK, 0};
