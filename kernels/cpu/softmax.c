/* kernels/cpu/softmax.c -- softmax and log_softmax along any dim, and their backward
** ops. */
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/stream.h"

/* Contiguous tensors seen as (outer, n, inner), n being the dim. */
typedef struct shape3 {
  const mt_call *call;
  const mt_softmax_loops *loops;
  int64_t outer, n, inner;
  int64_t blocks; /* of columns in inner */
  int64_t size;   /* bytes of an element */
  bool logarithm;
  const mt_stream_loops *stream; /* NULL: through the caches */
} shape3;

/* Where part i begins, in bytes, and how many columns it has. */
static int64_t part(const shape3 *s, int64_t i, int64_t *width /* [out] */) {
  const int64_t column = i % s->blocks * MT_SOFTMAX_WIDTH;
  *width = s->inner - column < MT_SOFTMAX_WIDTH ? s->inner - column : MT_SOFTMAX_WIDTH;
  return (i / s->blocks * s->n * s->inner + column) * s->size;
}

static void forward(void *context, int64_t lo, int64_t hi) {
  const shape3 *s = context;
  for (int64_t i = lo; i < hi; i++) {
    int64_t width;
    const int64_t at = part(s, i, &width);
    const char *x = s->call->in[0]->data + at;
    char *y = s->call->out[0]->data + at;
    if (s->inner == 1)
      s->loops->row(s->logarithm, s->n, x, y);
    else
      s->loops->columns(s->logarithm, s->n, s->inner, width, x, y);
  }
}

static void forward_stream(void *context, int64_t lo, int64_t hi) { /* rows */
  const shape3 *s = context;
  const int64_t bytes = s->n * s->size;
  _Alignas(MT_LINE) char buffer[MT_STREAM_ROW];
  for (int64_t i = lo; i < hi; i++) {
    const char *x = s->call->in[0]->data + i * bytes;
    char *y = s->call->out[0]->data + i * bytes;
    if (s->loops->row_past) {
      s->loops->row_past(s->logarithm, s->n, x, buffer, y);
      continue;
    }
    const mt_ahead ahead = {x + bytes, MT_LINE};
    s->loops->row(s->logarithm, s->n, x, buffer);
    mt_cpu_stream(s->stream, bytes, buffer, y, 1, &ahead);
  }
  mt_cpu_stream_end();
}

static void backward(void *context, int64_t lo, int64_t hi) {
  const shape3 *s = context;
  for (int64_t i = lo; i < hi; i++) {
    int64_t width;
    const int64_t at = part(s, i, &width);
    const char *y = s->call->in[0]->data + at, *dy = s->call->in[1]->data + at;
    char *dx = s->call->out[0]->data + at;
    if (s->inner == 1)
      s->loops->row_backward(s->logarithm, s->n, y, dy, dx);
    else
      s->loops->columns_backward(s->logarithm, s->n, s->inner, width, y, dy, dx);
  }
}

static void backward_stream(void *context, int64_t lo, int64_t hi) { /* rows */
  const shape3 *s = context;
  const int64_t bytes = s->n * s->size;
  _Alignas(MT_LINE) char buffer[MT_STREAM_ROW];
  for (int64_t i = lo; i < hi; i++) {
    const char *y = s->call->in[0]->data + i * bytes;
    const char *dy = s->call->in[1]->data + i * bytes;
    const mt_ahead ahead[2] = {{y + bytes, MT_LINE}, {dy + bytes, MT_LINE}};
    s->loops->row_backward(s->logarithm, s->n, y, dy, buffer);
    mt_cpu_stream(s->stream, bytes, buffer, s->call->out[0]->data + i * bytes, 2,
                  ahead);
  }
  mt_cpu_stream_end();
}

static mt_status run(const mt_call *call, bool logarithm, mt_range_fn fn,
                     mt_range_fn stream_fn) {
  const mt_view *x = call->in[0];
  const int dim = (int)call->attr[0].i[0];
  shape3 s = {.call = call,
              .loops = mt_softmax_of(x->dtype),
              .outer = 1,
              .n = x->ndim ? x->shape[dim] : 1,
              .inner = 1,
              .size = mt_cpu_size(x->dtype),
              .logarithm = logarithm};
  for (int d = 0; d < x->ndim; d++) {
    if (d < dim) s.outer *= x->shape[d];
    if (d > dim) s.inner *= x->shape[d];
  }
  if (s.outer * s.n * s.inner == 0) return MT_OK;
  s.blocks = (s.inner + MT_SOFTMAX_WIDTH - 1) / MT_SOFTMAX_WIDTH;
  const int64_t cost = 4 * s.n * (s.inner / s.blocks);
  if (s.inner == 1 && mt_cpu_streams_rows(call->out[0]->data, s.outer, s.n * s.size)) {
    s.stream = MT_ISA_PICK(mt_stream);
    fn = stream_fn;
  }
  mt_cpu_parallel_for(call, s.outer * s.blocks, mt_cpu_grain(cost), fn, &s);
  return MT_OK;
}

static mt_status softmax_kernel(const mt_call *call) {
  return run(call, false, forward, forward_stream);
}
static mt_status log_softmax_kernel(const mt_call *call) {
  return run(call, true, forward, forward_stream);
}
static mt_status softmax_backward_kernel(const mt_call *call) {
  return run(call, false, backward, backward_stream);
}
static mt_status log_softmax_backward_kernel(const mt_call *call) {
  return run(call, true, backward, backward_stream);
}

const mt_entry mt_cpu_softmax = {
    .run = softmax_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 1};
const mt_entry mt_cpu_log_softmax = {
    .run = log_softmax_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 1};
const mt_entry mt_cpu_softmax_backward = {
    .run = softmax_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 3};
const mt_entry mt_cpu_log_softmax_backward = {
    .run = log_softmax_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 3};
