/* kernels/cpu/embedding.c -- rows of a table at the positions of an index tensor. */
#include "kernels/cpu/positions.h"

static void embedding_rows(void *context, int64_t lo, int64_t hi) {
  const mt_call *call = context;
  const mt_view *weight = call->in[0], *index = call->in[1];
  const int64_t row = weight->shape[1] * mt_cpu_size(weight->dtype); /* bytes */
  int64_t at[MT_POSITIONS];
  for (int64_t i = lo; i < hi; i += MT_POSITIONS) {
    const int64_t count = hi - i < MT_POSITIONS ? hi - i : MT_POSITIONS;
    mt_positions(call, index, i, count, weight->shape[0], true, at);
    char *y = call->out[0]->data + i * row;
    for (int64_t j = 0; j < count; j++, y += row) {
      if (at[j] < 0)
        memset(y, 0, (size_t)row);
      else
        memcpy(y, weight->data + at[j] * row, (size_t)row);
    }
  }
}

static mt_status embedding_kernel(const mt_call *call) {
  const int64_t n = mt_cpu_numel(call->in[1]);
  if (mt_cpu_numel(call->out[0]) == 0) return MT_OK;
  mt_cpu_parallel_for(call, n, mt_cpu_grain(call->in[0]->shape[1]), embedding_rows,
                      (void *)call);
  return MT_OK;
}

const mt_entry mt_cpu_embedding = {
    .run = embedding_kernel, .dtypes = MT_FLOAT_MASK, .contiguous = 3};

/* Columns lo .. hi-1 of the result: threads share columns, so that each sum is made
** in the order of the index. */
#define BACKWARD_COLUMNS(dtype, T, sfx)                                           \
  static void embedding_backward_columns_##sfx(void *context, int64_t lo,         \
                                               int64_t hi) {                      \
    const mt_call *call = context;                                                \
    const mt_view *index = call->in[0], *dw = call->out[0];                       \
    const int64_t n = mt_cpu_numel(index), rows = dw->shape[0], d = dw->shape[1]; \
    const T *dy = (const T *)call->in[1]->data;                                   \
    T *to = (T *)dw->data;                                                        \
    int64_t at[MT_POSITIONS];                                                     \
    for (int64_t r = 0; r < rows; r++)                                            \
      memset(to + r * d + lo, 0, (size_t)(hi - lo) * sizeof(T));                  \
    for (int64_t i = 0; i < n; i += MT_POSITIONS) {                               \
      const int64_t count = n - i < MT_POSITIONS ? n - i : MT_POSITIONS;          \
      mt_positions(call, index, i, count, rows, true, at);                        \
      for (int64_t j = 0; j < count; j++) {                                       \
        if (at[j] < 0) continue;                                                  \
        T *row = to + at[j] * d;                                                  \
        const T *from = dy + (i + j) * d;                                         \
        for (int64_t k = lo; k < hi; k++) row[k] += from[k];                      \
      }                                                                           \
    }                                                                             \
  }
MT_EACH_FLOAT(BACKWARD_COLUMNS)

static mt_status embedding_backward_kernel(const mt_call *call) {
  const mt_view *dw = call->out[0];
  const int64_t work = mt_cpu_numel(call->in[0]) + dw->shape[0];
  const int64_t grain = mt_cpu_grain(work);
  mt_cpu_parallel_for(call, dw->shape[1], grain < 16 ? 16 : grain,
                      dw->dtype == MT_F64 ? embedding_backward_columns_f64
                                          : embedding_backward_columns_f32,
                      (void *)call);
  return MT_OK;
}

const mt_entry mt_cpu_embedding_backward = {
    .run = embedding_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 3};
