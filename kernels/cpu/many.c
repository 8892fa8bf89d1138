/* kernels/cpu/many.c -- the calls over many tensors at once: steps of optimisers,
** the sum of squares, scaling. */
#include "kernels/cpu/many.h"
#include "kernels/cpu/tables.h"

#define BLOCK     512   /* elements of a buffer */
#define MAX_ARGS  4     /* tensors that belong together */
#define MAX_PARTS 64    /* of a sum: fixed, so that threads do not change its order */
#define PART      16384 /* elements of a part at least */

/* One step over tensors of one shape: the first `written` are read and written. */
typedef struct step {
  mt_space space;
  const mt_view *view[MAX_ARGS];
  int nargs, written;
  bool plain; /* all contiguous in the same order, none a half type */
  void (*run)(int64_t n, char *const *p, const void *constants);
  const void *constants;
} step;

static void plain_range(void *context, int64_t lo, int64_t hi) {
  const step *t = context;
  char *p[MAX_ARGS];
  for (int k = 0; k < t->nargs; k++)
    p[k] = t->view[k] ? t->view[k]->data + lo * t->space.stride[k][0] : NULL;
  t->run(hi - lo, p, t->constants);
}

static void load(const mt_view *v, int64_t n, const char *at, int64_t stride,
                 void *to) {
  if (mt_cpu_is_half(v->dtype))
    mt_cpu_load_floats(v->dtype, n, at, stride, to);
  else
    mt_cpu_pack(n, (int)mt_cpu_size(v->dtype), at, stride, to);
}

/* Items: inner rows, by way of buffers. */
static void strided_range(void *context, int64_t lo, int64_t hi) {
  const step *t = context;
  const mt_space *s = &t->space;
  _Alignas(64) char buffer[MAX_ARGS][BLOCK * 8];
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  for (int64_t row = lo; row < hi; row++) {
    mt_space_seek(s, row * s->size[0], coord, offset);
    for (int64_t i = 0; i < s->size[0]; i += BLOCK) {
      const int64_t n = s->size[0] - i < BLOCK ? s->size[0] - i : BLOCK;
      char *p[MAX_ARGS];
      for (int k = 0; k < t->nargs; k++) {
        p[k] = t->view[k] ? buffer[k] : NULL;
        if (t->view[k] == NULL) continue;
        const char *at = t->view[k]->data + offset[k] + i * s->stride[k][0];
        load(t->view[k], n, at, s->stride[k][0], buffer[k]);
      }
      t->run(n, p, t->constants);
      for (int k = 0; k < t->written; k++) {
        const mt_view *v = t->view[k];
        if (v == NULL) continue;
        char *at = v->data + offset[k] + i * s->stride[k][0];
        if (mt_cpu_is_half(v->dtype))
          mt_cpu_store_floats(v->dtype, n, (const float *)buffer[k], at,
                              s->stride[k][0]);
        else
          mt_cpu_unpack(n, (int)mt_cpu_size(v->dtype), buffer[k], at, s->stride[k][0]);
      }
    }
  }
}

static void run_step(const mt_call *call, step *t) {
  mt_space *s = &t->space;
  mt_space_make(s, t->nargs, t->view, false);
  if (s->numel == 0) return;
  const mt_dtype d = t->view[0]->dtype;
  t->plain = s->ndim == 1 && !mt_cpu_is_half(d);
  for (int k = 0; k < t->nargs; k++)
    if (t->view[k] != NULL && s->stride[k][0] != mt_cpu_size(d) && s->numel > 1)
      t->plain = false;
  if (t->plain)
    mt_cpu_parallel_for(call, s->numel, MT_GRAIN / 2, plain_range, t);
  else
    mt_cpu_parallel_for(call, s->numel / s->size[0], mt_cpu_grain(s->size[0]),
                        strided_range, t);
}

static const mt_many_rows *rows_of(mt_dtype d) {
  return &(*MT_ISA_PICK(mt_many_rows_of))[d == MT_F64];
}

static void sgd(const mt_call *call, const mt_view *param, const mt_view *velocity,
                const mt_view *grad, const mt_sgd *c) {
  step t = {.view = {param, velocity, grad}, .nargs = 3, .written = 2, .constants = c};
  t.run = rows_of(param->dtype)->sgd;
  run_step(call, &t);
}

mt_status mt_cpu_many_sgd(const mt_call *call) {
  const mt_attr *a = call->attr;
  const mt_sgd c = {a[0].f, a[1].f, a[2].f, a[3].f, a[4].f != 0, a[5].f != 0};
  const int n = call->nin;
  for (int i = 0; i < n; i++)
    sgd(call, call->out[i], call->nout > n ? call->out[n + i] : NULL, call->in[i], &c);
  return MT_OK;
}

mt_status mt_cpu_many_adam(const mt_call *call) {
  const mt_attr *a = call->attr;
  const mt_adam c = {.step = a[0].f,
                     .lr = a[1].f,
                     .beta1 = a[2].f,
                     .beta2 = a[3].f,
                     .epsilon = a[4].f,
                     .weight_decay = a[5].f,
                     .decoupled = a[6].f != 0};
  const int n = call->nin;
  for (int i = 0; i < n; i++) {
    step t = {
        .view = {call->out[i], call->out[n + i], call->out[2 * n + i], call->in[i]},
        .nargs = 4,
        .written = 3,
        .constants = &c};
    t.run = rows_of(call->out[i]->dtype)->adam;
    run_step(call, &t);
  }
  return MT_OK;
}

/* ---- sum of squares -------------------------------------------------------------- */
typedef struct squares {
  mt_space space;
  const mt_view *view;
  int64_t part; /* elements of each, a multiple of BLOCK */
  double sum[MAX_PARTS];
} squares;

static void square_range(void *context, int64_t lo, int64_t hi) { /* parts */
  squares *q = context;
  const mt_space *s = &q->space;
  const mt_view *v = q->view;
  const int64_t size = mt_cpu_size(v->dtype);
  const mt_many_rows *rows = rows_of(v->dtype);
  const bool direct =
      s->ndim == 1 && s->stride[0][0] == size && !mt_cpu_is_half(v->dtype);
  _Alignas(64) char buffer[BLOCK * 8];
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  for (int64_t part = lo; part < hi; part++) {
    const int64_t first = part * q->part;
    const int64_t left = s->numel - first, n = left < q->part ? left : q->part;
    if (direct) {
      q->sum[part] = rows->square_sum(n, v->data + first * size);
      continue;
    }
    double sum = 0;
    for (int64_t i = 0; i < n;) {
      mt_space_seek(s, first + i, coord, offset);
      int64_t run = s->size[0] - coord[0];
      if (run > n - i) run = n - i;
      if (run > BLOCK) run = BLOCK;
      load(v, run, v->data + offset[0], s->stride[0][0], buffer);
      sum += rows->square_sum(run, buffer);
      i += run;
    }
    q->sum[part] = sum;
  }
}

static double square_sum(const mt_call *call, const mt_view *v) {
  squares q = {.view = v};
  mt_space_make(&q.space, 1, &v, false);
  if (q.space.numel == 0) return 0;
  q.part = (q.space.numel + MAX_PARTS - 1) / MAX_PARTS;
  if (q.part < PART) q.part = PART;
  q.part = (q.part + BLOCK - 1) / BLOCK * BLOCK;
  const int64_t parts = (q.space.numel + q.part - 1) / q.part;
  mt_cpu_parallel_for(call, parts, mt_cpu_grain(q.part), square_range, &q);
  double sum = 0;
  for (int64_t part = 0; part < parts; part++) sum += q.sum[part];
  return sum;
}

mt_status mt_cpu_many_square_sum(const mt_call *call) {
  double sum = 0;
  for (int i = 0; i < call->nin; i++) sum += square_sum(call, call->in[i]);
  mt_cpu_store_f64(call->out[0]->dtype, call->out[0]->data, sum);
  return MT_OK;
}

/* ---- scaling --------------------------------------------------------------------- */
mt_status mt_cpu_many_scale(const mt_call *call) {
  const double factor = mt_cpu_load_f64(call->in[0]->dtype, call->in[0]->data);
  for (int i = 0; i < call->nout; i++) {
    mt_view *const out = call->out[i];
    double value; /* the factor as out's rows see it */
    mt_view scalar = {.data = (char *)&value, .dtype = out->dtype};
    if (mt_cpu_is_half(out->dtype)) scalar.dtype = MT_F32;
    mt_cpu_store_f64(scalar.dtype, &value, factor);
    const mt_view *const in[2] = {out, &scalar};
    const mt_row row = out->dtype == MT_F64 ? (*MT_ISA_PICK(mt_rows_f64))[MT_OP_mul]
                                            : (*MT_ISA_PICK(mt_rows_f32))[MT_OP_mul];
    const mt_status status = mt_cpu_rows(call, &row, 1, &out, 2, in, NULL, true);
    if (status != MT_OK) return status;
  }
  return MT_OK;
}
