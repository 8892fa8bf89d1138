/* kernels/cpu/layer_norm.c -- layer_norm and its backward. Rows are shared among
** threads; the sums over rows have parts that depend on shapes only, and are added in
** order. */
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/stream.h"

#define PARTS        32                 /* of the rows, at most */
#define SCRATCH_MOST ((int64_t)1 << 25) /* bytes, unless one part has more */

typedef struct norm {
  const mt_call *call;
  const mt_layer_norm_loops *loops;
  int64_t rows, n;
  int64_t size; /* bytes of an element */
  double epsilon;
  int64_t parts;
  double *sums;                  /* [parts][2][n]: of dw, of db; NULL */
  const mt_stream_loops *stream; /* of y, of dx; NULL: through the caches */
} norm;

/* in[0] is x; attr: dims, epsilon */
static norm norm_of(const mt_call *call) {
  const mt_view *x = call->in[0];
  const mt_layer_norm_pair *pair = MT_ISA_PICK(mt_layer_norm);
  norm s = {.call = call,
            .loops = x->dtype == MT_F64 ? &pair->f64 : &pair->f32,
            .rows = 1,
            .n = 1,
            .size = mt_cpu_size(x->dtype),
            .epsilon = call->attr[1].f};
  const int first = x->ndim - (int)call->attr[0].i[0];
  for (int d = 0; d < first; d++) s.rows *= x->shape[d];
  for (int d = first; d < x->ndim; d++) s.n *= x->shape[d];
  s.parts = s.rows < PARTS ? s.rows : PARTS;
  if (s.parts == 0) s.parts = 1; /* whose sums are zeros */
  const int64_t each = 2 * s.n * (int64_t)sizeof(double);
  while (s.parts > 1 && s.parts * each > SCRATCH_MOST) s.parts /= 2;
  return s;
}

static const char *data_of(const mt_view *v) { return v ? v->data : NULL; }

static void forward(void *context, int64_t lo, int64_t hi) {
  const norm *s = context;
  const mt_view *const *in = s->call->in;
  const int64_t bytes = s->n * s->size;
  _Alignas(MT_LINE) char buffer[MT_STREAM_ROW];
  for (int64_t i = lo; i < hi; i++) {
    const char *x = in[0]->data + i * bytes;
    char *y = s->call->out[0]->data + i * bytes;
    if (s->stream && s->loops->forward_past) {
      s->loops->forward_past(s->n, s->epsilon, x, data_of(in[1]), data_of(in[2]), y);
      continue;
    }
    s->loops->forward(s->n, s->epsilon, x, data_of(in[1]), data_of(in[2]),
                      s->stream ? buffer : y);
    const mt_ahead ahead = {x + bytes, MT_LINE};
    if (s->stream) mt_cpu_stream(s->stream, bytes, buffer, y, 1, &ahead);
  }
  if (s->stream) mt_cpu_stream_end();
}

/* Past the caches, if out is that large and its rows are whole lines. */
static void choose_stream(norm *s, const mt_view *out) {
  if (out && mt_cpu_streams_rows(out->data, s->rows, s->n * s->size))
    s->stream = MT_ISA_PICK(mt_stream);
}

static mt_status layer_norm_kernel(const mt_call *call) {
  norm s = norm_of(call);
  choose_stream(&s, call->out[0]);
  if (s.n > 0) mt_cpu_parallel_for(call, s.rows, mt_cpu_grain(4 * s.n), forward, &s);
  return MT_OK;
}

static void backward_row(const norm *s, int64_t i, char *buffer, double *dw,
                         double *db) {
  const mt_view *const *in = s->call->in, *dx = s->call->out[0];
  const int64_t bytes = s->n * s->size, at = i * bytes;
  const char *x = in[0]->data + at, *dy = in[1]->data + at;
  char *to = dx ? dx->data + at : NULL;
  s->loops->backward(s->n, s->epsilon, x, dy, data_of(in[2]), s->stream ? buffer : to,
                     dw, db);
  const mt_ahead ahead[2] = {{x + bytes, MT_LINE}, {dy + bytes, MT_LINE}};
  if (s->stream) mt_cpu_stream(s->stream, bytes, buffer, to, 2, ahead);
}

static void backward(void *context, int64_t lo, int64_t hi) {
  const norm *s = context;
  _Alignas(MT_LINE) char buffer[MT_STREAM_ROW];
  for (int64_t part = lo; part < hi; part++) {
    double *dw = s->sums ? s->sums + 2 * part * s->n : NULL;
    double *db = dw ? dw + s->n : NULL;
    if (dw) memset(dw, 0, (size_t)(2 * s->n) * sizeof *dw);
    const int64_t end = (part + 1) * s->rows / s->parts;
    for (int64_t i = part * s->rows / s->parts; i < end; i++)
      backward_row(s, i, buffer, dw, db);
  }
  if (s->stream) mt_cpu_stream_end();
}

static void add_parts(void *context, int64_t lo, int64_t hi) {
  const norm *s = context;
  for (int which = 0; which < 2; which++) {
    const mt_view *out = s->call->out[1 + which];
    if (!out) continue;
    for (int64_t i = lo; i < hi; i++) {
      double sum = 0;
      for (int64_t part = 0; part < s->parts; part++)
        sum += s->sums[(2 * part + which) * s->n + i];
      mt_cpu_store_f64(out->dtype, out->data + i * s->size, sum);
    }
  }
}

static size_t backward_scratch(const mt_call *call) {
  if (!call->out[1] && !call->out[2]) return 0;
  const norm s = norm_of(call);
  return (size_t)(s.parts * 2 * s.n) * sizeof(double);
}

static mt_status layer_norm_backward_kernel(const mt_call *call) {
  norm s = norm_of(call);
  if (s.n == 0) return MT_OK;
  choose_stream(&s, call->out[0]);
  if (call->out[1] || call->out[2]) s.sums = call->scratch;
  const int64_t rows = s.rows / s.parts;
  mt_cpu_parallel_for(call, s.parts, mt_cpu_grain(8 * s.n * rows), backward, &s);
  if (s.sums) mt_cpu_parallel_for(call, s.n, mt_cpu_grain(s.parts), add_parts, &s);
  return MT_OK;
}

const mt_entry mt_cpu_layer_norm = {
    .run = layer_norm_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 7};
const mt_entry mt_cpu_layer_norm_backward = {.run = layer_norm_backward_kernel,
                                             .scratch = backward_scratch,
                                             .dtypes = MT_FLOAT32_64,
                                             .contiguous = 7};
