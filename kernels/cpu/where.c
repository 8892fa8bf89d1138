/* kernels/cpu/where.c -- y = cond ? a : b, elements moved as they are. */
#include "kernels/cpu/tables.h"

static mt_status where_run(const mt_call *call) {
  const mt_view *cond = call->in[0];
  if (mt_cpu_size(cond->dtype) != 1) return MT_EUNSUPPORTED;
  const int64_t size = mt_cpu_size(call->out[0]->dtype);
  const int log2_size = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
  const mt_row row = (*MT_ISA_PICK(mt_where_rows))[log2_size];
  return mt_cpu_rows(call, &row, 1, call->out, 3, call->in, NULL, false);
}

extern const mt_entry mt_cpu_where;
const mt_entry mt_cpu_where = {where_run, NULL, MT_ALL_MASK, 0};
