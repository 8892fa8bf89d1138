/* kernels/cpu/pool.c -- max_pool2d and avg_pool2d, and their backward ops, plane by
** plane. */
#include "kernels/cpu/pool.h"
#include "kernels/cpu/positions.h"

typedef struct pool {
  const mt_call *call;
  int64_t planes;
  int64_t h, w, oh, ow; /* of x and of y */
  int64_t kh, kw, sh, sw, ph, pw, dh, dw;
  bool relu;
} pool;

static inline int64_t first_of(const mt_attr *a) { return a->i[0]; }
static inline int64_t second_of(const mt_attr *a) {
  return a->n == 1 ? a->i[0] : a->i[1];
}

/* x and y: contiguous tensors whose last two dims are planes. attr: kernel, stride (not
** given: kernel), padding, and dilation where has_dilation. */
static pool make_pool(const mt_call *call, const mt_view *x, const mt_view *y,
                      const mt_attr *attr, bool has_dilation) {
  const mt_attr *stride = attr[1].n > 0 ? &attr[1] : &attr[0];
  pool p = {.call = call,
            .planes = 1,
            .h = x->shape[x->ndim - 2],
            .w = x->shape[x->ndim - 1],
            .oh = y->shape[y->ndim - 2],
            .ow = y->shape[y->ndim - 1],
            .kh = first_of(&attr[0]),
            .kw = second_of(&attr[0]),
            .sh = first_of(stride),
            .sw = second_of(stride),
            .ph = first_of(&attr[2]),
            .pw = second_of(&attr[2]),
            .dh = has_dilation ? first_of(&attr[3]) : 1,
            .dw = has_dilation ? second_of(&attr[3]) : 1};
  for (int d = 0; d < x->ndim - 2; d++) p.planes *= x->shape[d];
  return p;
}

/* Taps first .. last-1 of the window that begins at start lie in 0 .. size-1. */
static inline void taps(int64_t start, int64_t kernel, int64_t dilation, int64_t size,
                        int64_t *first /* [out] */, int64_t *last /* [out] */) {
  *first = start < 0 ? (-start + dilation - 1) / dilation : 0;
  const int64_t room = size - start;
  *last = room <= 0 ? 0 : (room + dilation - 1) / dilation;
  if (*last > kernel) *last = kernel;
}

static void start(const pool *p, mt_range_fn fn, int64_t cost) {
  mt_cpu_parallel_for(p->call, p->planes, mt_cpu_grain(cost), fn, (void *)p);
}

/* ---- max ---- */

#define MAX_PLANES(dtype, T, sfx)                                                     \
  static void rectify_##sfx(int64_t n, T *y, int64_t *mask) {                         \
    for (int64_t j = 0; j < n; j++) {                                                 \
      mask[j] = y[j] <= 0 ? 0 : mask[j];                                              \
      y[j] = y[j] <= 0 ? 0 : y[j];                                                    \
    }                                                                                 \
  }                                                                                   \
  static void max_window_##sfx(const pool *p, const T *x, int64_t i, int64_t j, T *y, \
                               int64_t *mask) {                                       \
    const int64_t top = i * p->sh - p->ph, left = j * p->sw - p->pw;                  \
    int64_t h0, h1, w0, w1;                                                           \
    taps(top, p->kh, p->dh, p->h, &h0, &h1);                                          \
    taps(left, p->kw, p->dw, p->w, &w0, &w1);                                         \
    int64_t best = (top + h0 * p->dh) * p->w + left + w0 * p->dw;                     \
    for (int64_t u = h0; u < h1; u++) {                                               \
      int64_t at = (top + u * p->dh) * p->w + left + w0 * p->dw;                      \
      for (int64_t v = w0; v < w1; v++, at += p->dw)                                  \
        if (x[at] > x[best] || (x[at] != x[at] && x[best] == x[best])) best = at;     \
    }                                                                                 \
    *y = x[best], *mask = best + 1;                                                   \
  }                                                                                   \
  static void max_planes_##sfx(void *context, int64_t lo, int64_t hi) {               \
    const pool *p = context;                                                          \
    const bool simple = p->kh == 2 && p->kw == 2 && p->sw == 2 && p->ph == 0 &&       \
                        p->pw == 0 && p->dh == 1 && p->dw == 1 && p->w < INT32_MAX;   \
    const mt_pool_rows *rows = MT_ISA_PICK(mt_pool);                                  \
    for (int64_t n = lo; n < hi; n++) {                                               \
      const T *x = (const T *)p->call->in[0]->data + n * p->h * p->w;                 \
      T *y = (T *)p->call->out[0]->data + n * p->oh * p->ow;                          \
      int64_t *mask = (int64_t *)p->call->out[1]->data + n * p->oh * p->ow;           \
      for (int64_t i = 0; i < p->oh; i++, y += p->ow, mask += p->ow) {                \
        if (i % 16 == 15 && mt_stopped(p->call)) return;                              \
        if (simple)                                                                   \
          rows->sfx(p->ow, p->w, i * p->sh * p->w + 1, x + i * p->sh * p->w,          \
                    x + (i * p->sh + 1) * p->w, y, mask);                             \
        else                                                                          \
          for (int64_t j = 0; j < p->ow; j++)                                         \
            max_window_##sfx(p, x, i, j, y + j, mask + j);                            \
        if (p->relu) rectify_##sfx(p->ow, y, mask);                                   \
      }                                                                               \
    }                                                                                 \
  }
MT_EACH_FLOAT(MAX_PLANES)

static mt_status max_pool2d_kernel(const mt_call *call) {
  pool p = make_pool(call, call->in[0], call->out[0], call->attr, true);
  p.relu = call->attr[4].i[0] != 0;
  if (p.planes == 0) return MT_OK;
  start(&p, call->in[0]->dtype == MT_F64 ? max_planes_f64 : max_planes_f32,
        p.oh * p.ow * (p.kh * p.kw + 4));
  return MT_OK;
}

const mt_entry mt_cpu_max_pool2d = {
    .run = max_pool2d_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 1};

#define MAX_BACKWARD_PLANES(dtype, T, sfx)                                           \
  static void max_backward_planes_##sfx(void *context, int64_t lo, int64_t hi) {     \
    const pool *p = context;                                                         \
    const int64_t inner = p->oh * p->ow, size = p->h * p->w;                         \
    int64_t at[MT_POSITIONS];                                                        \
    memset((T *)p->call->out[0]->data + lo * size, 0,                                \
           (size_t)((hi - lo) * size) * sizeof(T));                                  \
    for (int64_t n = lo; n < hi; n++) {                                              \
      const T *dy = (const T *)p->call->in[1]->data + n * inner;                     \
      T *dx = (T *)p->call->out[0]->data + n * size;                                 \
      for (int64_t i = 0; i < inner; i += MT_POSITIONS) {                            \
        const int64_t count = inner - i < MT_POSITIONS ? inner - i : MT_POSITIONS;   \
        mt_positions(p->call, p->call->in[0], n *inner + i, count, size, false, at); \
        for (int64_t j = 0; j < count; j++)                                          \
          if (at[j] >= 0) dx[at[j]] += dy[i + j];                                    \
      }                                                                              \
    }                                                                                \
  }
MT_EACH_FLOAT(MAX_BACKWARD_PLANES)

static mt_status max_pool2d_backward_kernel(const mt_call *call) {
  const mt_view *dx = call->out[0], *dy = call->in[1];
  pool p = {.call = call,
            .planes = 1,
            .h = dx->shape[dx->ndim - 2],
            .w = dx->shape[dx->ndim - 1],
            .oh = dy->shape[dy->ndim - 2],
            .ow = dy->shape[dy->ndim - 1]};
  for (int d = 0; d < dy->ndim - 2; d++) p.planes *= dy->shape[d];
  if (p.planes == 0) return MT_OK;
  start(&p, dx->dtype == MT_F64 ? max_backward_planes_f64 : max_backward_planes_f32,
        p.h * p.w + 4 * p.oh * p.ow);
  return MT_OK;
}

const mt_entry mt_cpu_max_pool2d_backward = {
    .run = max_pool2d_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 3};

/* ---- average: the padding counts ---- */

#define AVG_PLANES(dtype, T, sfx)                                                    \
  static void avg_planes_##sfx(void *context, int64_t lo, int64_t hi) {              \
    const pool *p = context;                                                         \
    const T area = (T)(p->kh * p->kw);                                               \
    for (int64_t n = lo; n < hi; n++) {                                              \
      const T *x = (const T *)p->call->in[0]->data + n * p->h * p->w;                \
      T *y = (T *)p->call->out[0]->data + n * p->oh * p->ow;                         \
      for (int64_t i = 0; i < p->oh; i++) {                                          \
        if (i % 16 == 15 && mt_stopped(p->call)) return;                             \
        const int64_t top = i * p->sh - p->ph;                                       \
        int64_t h0, h1, w0, w1;                                                      \
        taps(top, p->kh, 1, p->h, &h0, &h1);                                         \
        for (int64_t j = 0; j < p->ow; j++) {                                        \
          const int64_t left = j * p->sw - p->pw;                                    \
          taps(left, p->kw, 1, p->w, &w0, &w1);                                      \
          T sum = 0;                                                                 \
          for (int64_t u = h0; u < h1; u++)                                          \
            for (int64_t v = w0; v < w1; v++) sum += x[(top + u) * p->w + left + v]; \
          y[i * p->ow + j] = sum / area;                                             \
        }                                                                            \
      }                                                                              \
    }                                                                                \
  }                                                                                  \
  static void avg_backward_planes_##sfx(void *context, int64_t lo, int64_t hi) {     \
    const pool *p = context;                                                         \
    const T area = (T)(p->kh * p->kw);                                               \
    memset((T *)p->call->out[0]->data + lo * p->h * p->w, 0,                         \
           (size_t)((hi - lo) * p->h * p->w) * sizeof(T));                           \
    for (int64_t n = lo; n < hi; n++) {                                              \
      const T *dy = (const T *)p->call->in[0]->data + n * p->oh * p->ow;             \
      T *dx = (T *)p->call->out[0]->data + n * p->h * p->w;                          \
      for (int64_t i = 0; i < p->oh; i++) {                                          \
        if (i % 16 == 15 && mt_stopped(p->call)) return;                             \
        const int64_t top = i * p->sh - p->ph;                                       \
        int64_t h0, h1, w0, w1;                                                      \
        taps(top, p->kh, 1, p->h, &h0, &h1);                                         \
        for (int64_t j = 0; j < p->ow; j++) {                                        \
          const int64_t left = j * p->sw - p->pw;                                    \
          taps(left, p->kw, 1, p->w, &w0, &w1);                                      \
          const T g = dy[i * p->ow + j] / area;                                      \
          for (int64_t u = h0; u < h1; u++)                                          \
            for (int64_t v = w0; v < w1; v++) dx[(top + u) * p->w + left + v] += g;  \
        }                                                                            \
      }                                                                              \
    }                                                                                \
  }
MT_EACH_FLOAT(AVG_PLANES)

static mt_status avg_pool2d_kernel(const mt_call *call) {
  const pool p = make_pool(call, call->in[0], call->out[0], call->attr, false);
  if (p.planes == 0) return MT_OK;
  start(&p, call->in[0]->dtype == MT_F64 ? avg_planes_f64 : avg_planes_f32,
        p.oh * p.ow * (p.kh * p.kw + 4));
  return MT_OK;
}

static mt_status avg_pool2d_backward_kernel(const mt_call *call) {
  const pool p = make_pool(call, call->out[0], call->in[0], call->attr + 1, false);
  if (p.planes == 0) return MT_OK;
  start(&p,
        call->in[0]->dtype == MT_F64 ? avg_backward_planes_f64
                                     : avg_backward_planes_f32,
        p.h * p.w + p.oh * p.ow * (p.kh * p.kw + 4));
  return MT_OK;
}

const mt_entry mt_cpu_avg_pool2d = {
    .run = avg_pool2d_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 1};
const mt_entry mt_cpu_avg_pool2d_backward = {
    .run = avg_pool2d_backward_kernel, .dtypes = MT_FLOAT32_64, .contiguous = 1};
