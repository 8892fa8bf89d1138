/* kernels/cpu/loss.c -- nll_loss and cross_entropy, and their backward ops. */
#include "kernels/cpu/positions.h"
#include "kernels/cpu/softmax.h"

typedef enum reduction { MEAN, SUM, NONE } reduction;

/* x (contiguous) seen as (outer, classes, inner); labels as (outer, inner). */
typedef struct loss {
  const mt_call *call;
  const mt_softmax_loops *loops;
  mt_dtype dtype;
  int64_t outer, classes, inner;
  reduction reduction;
  bool entropy; /* x are logits, not log-probabilities */
} loss;

static loss make_loss(const mt_call *call, const mt_attr *attr, bool entropy) {
  const mt_view *x = call->in[0];
  loss s = {.call = call,
            .loops = mt_softmax_of(x->dtype),
            .dtype = x->dtype,
            .outer = x->ndim > 1 ? x->shape[0] : 1,
            .classes = x->shape[x->ndim > 1],
            .inner = 1,
            .reduction = (reduction)attr->i[0],
            .entropy = entropy};
  for (int d = 2; d < x->ndim; d++) s.inner *= x->shape[d];
  return s;
}

static inline double load(mt_dtype d, const char *p, int64_t i) {
  return d == MT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static inline void store(mt_dtype d, char *p, int64_t i, double x) {
  if (d == MT_F64)
    ((double *)p)[i] = x;
  else
    ((float *)p)[i] = (float)x;
}

/* Samples from `first` on, all of one outer index: no more than fit the buffers. */
static int64_t samples(const loss *s, int64_t first, int64_t end) {
  int64_t count = s->inner == 1 ? end - first : s->inner - first % s->inner;
  if (count > end - first) count = end - first;
  return count < MT_SOFTMAX_WIDTH ? count : MT_SOFTMAX_WIDTH;
}

/* Element of x that holds class 0 of sample i. */
static int64_t origin(const loss *s, int64_t i) {
  return i / s->inner * s->classes * s->inner + i % s->inner;
}

/* The loss of each sample: into scratch (doubles), or into the result. */
static void forward(void *context, int64_t lo, int64_t hi) {
  const loss *s = context;
  const mt_call *call = s->call;
  const char *x = call->in[0]->data;
  const int64_t size = mt_cpu_size(s->dtype);
  int64_t label[MT_SOFTMAX_WIDTH];
  double largest[MT_SOFTMAX_WIDTH], log_sum[MT_SOFTMAX_WIDTH];
  for (int64_t i = lo, count; i < hi; i += count) {
    count = samples(s, i, hi);
    mt_positions(call, call->in[1], i, count, s->classes, true, label);
    if (s->entropy && s->inner > 1)
      s->loops->columns_sum(s->classes, s->inner, count, x + origin(s, i) * size,
                            largest, log_sum);
    for (int64_t j = 0; j < count; j++) {
      const int64_t from = origin(s, i + j);
      double value = 0;
      if (s->entropy && s->inner == 1)
        s->loops->row_sum(s->classes, x + from * size, &largest[j], &log_sum[j]);
      if (label[j] >= 0) {
        const double at = load(s->dtype, x, from + label[j] * s->inner);
        value = s->entropy ? log_sum[j] + (largest[j] - at) : -at;
      }
      if (s->reduction == NONE)
        store(s->dtype, call->out[0]->data, i + j, value);
      else
        ((double *)call->scratch)[i + j] = value;
    }
  }
}

static size_t forward_scratch(const mt_call *call) {
  return call->attr[0].i[0] == NONE
             ? 0
             : (size_t)mt_cpu_numel(call->in[1]) * sizeof(double);
}

static mt_status run_forward(const mt_call *call, bool entropy) {
  loss s = make_loss(call, &call->attr[0], entropy);
  const int64_t n = s.outer * s.inner;
  const int64_t cost = entropy ? 8 * s.classes : 4;
  mt_cpu_parallel_for(call, n, mt_cpu_grain(cost), forward, &s);
  if (s.reduction == NONE) return MT_OK;
  double total = 0;
  for (int64_t i = 0; i < n; i++) total += ((const double *)call->scratch)[i];
  store(s.dtype, call->out[0]->data, 0,
        s.reduction == MEAN ? total / (double)n : total);
  return MT_OK;
}

/* dx = dy * softmax(x) for `count` samples from i on, or zeros for nll_loss. */
static void backward_base(const loss *s, int64_t i, int64_t count, const double *dy) {
  const int64_t size = mt_cpu_size(s->dtype), at = origin(s, i) * size;
  const char *x = s->call->in[0]->data + at;
  char *dx = s->call->out[0]->data + at;
  const int64_t row =
      (s->inner == 1 ? s->classes : count) * size; /* bytes side by side */
  const int64_t rows = s->inner == 1 ? count : s->classes;
  const int64_t step = (s->inner == 1 ? s->classes : s->inner) * size;
  if (!s->entropy) {
    for (int64_t r = 0; r < rows; r++) memset(dx + r * step, 0, (size_t)row);
  } else if (s->inner > 1) {
    s->loops->columns(false, s->classes, s->inner, count, x, dx);
    s->loops->columns_scale(s->classes, s->inner, count, dy, dx);
  } else {
    for (int64_t r = 0; r < rows; r++) {
      s->loops->row(false, s->classes, x + r * step, dx + r * step);
      s->loops->row_scale(s->classes, dy[r], dx + r * step);
    }
  }
}

/* dx[c] = dy * (softmax(x)[c] - (c == label)), or without the softmax. */
static void backward(void *context, int64_t lo, int64_t hi) {
  const loss *s = context;
  const mt_call *call = s->call;
  const char *dy = call->in[2]->data;
  char *dx = call->out[0]->data;
  int64_t label[MT_SOFTMAX_WIDTH];
  double g[MT_SOFTMAX_WIDTH];
  for (int64_t i = lo, count; i < hi; i += count) {
    count = samples(s, i, hi);
    mt_positions(call, call->in[1], i, count, s->classes, true, label);
    for (int64_t j = 0; j < count; j++) {
      g[j] = load(s->dtype, dy, s->reduction == NONE ? i + j : 0);
      if (s->reduction == MEAN) g[j] /= (double)(s->outer * s->inner);
      if (label[j] < 0) g[j] = 0;
    }
    backward_base(s, i, count, g);
    for (int64_t j = 0; j < count; j++) {
      if (label[j] < 0) continue;
      const int64_t at = origin(s, i + j) + label[j] * s->inner;
      store(s->dtype, dx, at, load(s->dtype, dx, at) - g[j]);
    }
  }
}

static mt_status run_backward(const mt_call *call, bool entropy) {
  loss s = make_loss(call, &call->attr[0], entropy);
  const int64_t cost = (entropy ? 8 : 2) * s.classes;
  mt_cpu_parallel_for(call, s.outer * s.inner, mt_cpu_grain(cost), backward, &s);
  return MT_OK;
}

static mt_status nll_loss_kernel(const mt_call *call) {
  return run_forward(call, false);
}
static mt_status cross_entropy_kernel(const mt_call *call) {
  return run_forward(call, true);
}
static mt_status nll_loss_backward_kernel(const mt_call *call) {
  return run_backward(call, false);
}
static mt_status cross_entropy_backward_kernel(const mt_call *call) {
  return run_backward(call, true);
}

const mt_entry mt_cpu_nll_loss = {.run = nll_loss_kernel,
                                  .scratch = forward_scratch,
                                  .dtypes = MT_FLOAT32_64,
                                  .contiguous = 3};
const mt_entry mt_cpu_cross_entropy = {.run = cross_entropy_kernel,
                                       .scratch = forward_scratch,
                                       .dtypes = MT_FLOAT32_64,
                                       .contiguous = 3};
const mt_entry mt_cpu_nll_loss_backward = {
    .run = nll_loss_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 7};
const mt_entry mt_cpu_cross_entropy_backward = {
    .run = cross_entropy_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 7};
