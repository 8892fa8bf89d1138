/* kernels/cpu/scan.c -- running sums along a dim: floats in float64, integers in
** int64. */
#include "kernels/cpu/cpu.h"

#define BLOCK    256 /* elements of a buffer */
#define TOGETHER 4   /* lines: an addition takes as many cycles */

typedef struct scan {
  const mt_call *call;
  mt_space others;         /* y, x without the scanned dim */
  int64_t length, step[2]; /* of the scanned dim; bytes, negative in reverse */
  char *y;
  const char *x;
  mt_dtype from, to, sum; /* of x, of y, of the sums */
  bool across;    /* many lines at once, since they hold the contiguous elements */
  int64_t blocks; /* of the innermost other dim, if across */
} scan;

static void sum_block(const scan *s, int64_t n, void *values, void *sums, bool across) {
  if (s->sum == MT_F64) {
    double *x = values, *y = sums;
    if (across)
      for (int64_t i = 0; i < n; i++) x[i] = y[i] += x[i];
    else
      for (int64_t i = 0; i < n; i++) x[i] = y[0] += x[i];
  } else {
    int64_t *x = values, *y = sums;
    if (across)
      for (int64_t i = 0; i < n; i++) x[i] = y[i] += x[i];
    else
      for (int64_t i = 0; i < n; i++) x[i] = y[0] += x[i];
  }
}

/* n elements of TOGETHER lines, side by side. */
static void sum_lines(const scan *s, int64_t n, int64_t (*values)[BLOCK],
                      int64_t *sums) {
  if (s->sum == MT_F64) {
    double *a = (double *)values[0], *b = (double *)values[1];
    double *c = (double *)values[2], *d = (double *)values[3], y[TOGETHER];
    memcpy(y, sums, sizeof y);
    for (int64_t i = 0; i < n; i++) {
      a[i] = y[0] += a[i];
      b[i] = y[1] += b[i];
      c[i] = y[2] += c[i];
      d[i] = y[3] += d[i];
    }
    memcpy(sums, y, sizeof y);
  } else {
    for (int k = 0; k < TOGETHER; k++) sum_block(s, n, values[k], &sums[k], false);
  }
}

static void line_range(void *context, int64_t lo, int64_t hi) { /* lines */
  const scan *s = context;
  _Alignas(64) int64_t values[TOGETHER][BLOCK];
  int64_t coord[MT_MAX_DIMS], offset[TOGETHER][MT_SPACE_ARGS];
  for (int64_t line = lo; line < hi; line += TOGETHER) {
    int64_t sums[TOGETHER] = {0}; /* the bits of 0.0, too */
    const int64_t lines = hi - line < TOGETHER ? hi - line : TOGETHER;
    for (int64_t k = 0; k < lines; k++)
      mt_space_seek(&s->others, line + k, coord, offset[k]);
    for (int64_t i = 0; i < s->length; i += BLOCK) {
      const int64_t n = s->length - i < BLOCK ? s->length - i : BLOCK;
      if (i % (BLOCK << 12) == 0 && mt_stopped(s->call)) return; /* a million each */
      for (int64_t k = 0; k < lines; k++)
        mt_cpu_load(s->from, n, s->x + offset[k][1] + i * s->step[1], s->step[1],
                    s->sum, values[k]);
      if (lines == TOGETHER)
        sum_lines(s, n, values, sums);
      else
        for (int64_t k = 0; k < lines; k++) sum_block(s, n, values[k], &sums[k], false);
      for (int64_t k = 0; k < lines; k++)
        mt_cpu_store(s->sum, n, values[k], s->to, s->y + offset[k][0] + i * s->step[0],
                     s->step[0]);
    }
  }
}

static void across_range(void *context, int64_t lo, int64_t hi) { /* blocks of lines */
  const scan *s = context;
  const mt_space *o = &s->others;
  _Alignas(64) int64_t values[BLOCK], sums[BLOCK];
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  for (int64_t item = lo; item < hi; item++) {
    const int64_t first = item % s->blocks * BLOCK, left = o->size[0] - first;
    const int64_t n = left < BLOCK ? left : BLOCK;
    mt_space_seek(o, item / s->blocks * o->size[0] + first, coord, offset);
    memset(sums, 0, sizeof sums);
    for (int64_t i = 0; i < s->length; i++) {
      if (i % 4096 == 0 && mt_stopped(s->call)) return;
      mt_cpu_load(s->from, n, s->x + offset[1] + i * s->step[1], o->stride[1][0],
                  s->sum, values);
      sum_block(s, n, values, sums, true);
      mt_cpu_store(s->sum, n, values, s->to, s->y + offset[0] + i * s->step[0],
                   o->stride[0][0]);
    }
  }
}

/* Take dim d out of v; returns its stride in bytes. */
static int64_t without_dim(const mt_view *v, int d, mt_view *rest) {
  *rest = *v;
  rest->ndim = 0;
  for (int e = 0; e < v->ndim; e++)
    if (e != d) {
      rest->shape[rest->ndim] = v->shape[e];
      rest->stride[rest->ndim++] = v->stride[e];
    }
  return v->stride[d] * mt_cpu_size(v->dtype);
}

/* cumsum(x, dim, reverse) */
static mt_status cumsum_run(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  if (x->ndim == 0) return mt_cpu_copy_view(call, y, x);
  const int d = (int)call->attr[0].i[0];
  mt_view rest[2];
  scan s = {.call = call, .length = x->shape[d], .y = y->data, .x = x->data};
  s.step[0] = without_dim(y, d, &rest[0]);
  s.step[1] = without_dim(x, d, &rest[1]);
  s.from = x->dtype, s.to = y->dtype;
  s.sum = MT_IS_FLOAT(y->dtype) ? MT_F64 : MT_I64;
  const mt_view *const arg[2] = {&rest[0], &rest[1]};
  mt_space_make(&s.others, 2, arg, false);
  if (s.others.numel == 0 || s.length == 0) return MT_OK;
  const int64_t size = mt_cpu_size(s.from);
  s.across =
      s.step[1] != size && s.others.stride[1][0] == size && s.others.size[0] >= 8;
  s.blocks = (s.others.size[0] + BLOCK - 1) / BLOCK;
  if (call->attr[1].i[0]) { /* reverse: from the end, backwards */
    s.y += (s.length - 1) * s.step[0];
    s.x += (s.length - 1) * s.step[1];
    s.step[0] = -s.step[0], s.step[1] = -s.step[1];
  }
  if (s.across)
    mt_cpu_parallel_for(call, s.others.numel / s.others.size[0] * s.blocks,
                        mt_cpu_grain(s.length * BLOCK), across_range, &s);
  else
    mt_cpu_parallel_for(call, s.others.numel, mt_cpu_grain(2 * s.length), line_range,
                        &s);
  return MT_OK;
}

extern const mt_entry mt_cpu_cumsum;
const mt_entry mt_cpu_cumsum = {cumsum_run, NULL, MT_ALL_MASK, 0};
