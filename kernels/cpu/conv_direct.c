/* kernels/cpu/conv_direct.c -- convolutions with stride 1 straight from the images: the
** windows of neighbouring positions lie side by side, so nothing is unrolled. */
#include "kernels/cpu/gemm.h"

/* Deeper windows do not stay in the first-level cache: they are cut into blocks. */
#define DEEPEST 512
/* What the rows of all channels that a task works on may take, bytes. */
#define PIECE (256 << 10)
/* Multiply-adds of a task at most, so that an interrupt is seen soon. */
#define MOST_WORK (1 << 28)

/* How the work is cut: a task is some rows of one group of one image. */
typedef struct plan {
  const mt_gemm_isa *isa;
  int64_t size, depth, panels;
  int64_t channels;     /* of a block of windows */
  int64_t rows, splits; /* rows of y in a task, tasks of an image */
  bool padded;
  int64_t xrow, xplane; /* of the image that windows are read from, elements */
  int64_t koff_bytes, weight_bytes, piece_bytes;
  int64_t tasks, team;
} plan;

/* Channels of a block: all, if their windows are not too deep. */
static int64_t channels_of(const mt_conv *v) {
  const int64_t parts = (v->c * v->kh * v->kw + DEEPEST - 1) / DEEPEST;
  return (v->c + parts - 1) / parts;
}

bool mt_conv_direct_takes(const mt_conv *v) {
  const int64_t lanes = mt_gemm_of(v->dtype)->nr / 2, depth = v->c * v->kh * v->kw;
  const int64_t vectors = (v->ow + lanes - 1) / lanes;
  /* Where the last vector of a row begins earlier, what it adds must not be added twice;
  ** and less than an eighth of the work may be in vain. */
  return v->ph >= 0 && v->pw >= 0 && depth > 0 &&
         (channels_of(v) == v->c || v->ow % lanes == 0) && v->ow >= lanes &&
         8 * v->ow > 7 * vectors * lanes;
}

bool mt_conv_of_forward(const mt_call *call, mt_conv *d /* [out] */) {
  const mt_view *x = call->in[0], *w = call->in[1], *y = call->out[0];
  const mt_attr *attr = call->attr;
  const int64_t area = w->shape[2] * w->shape[3];
  *d = (mt_conv){.call = call,
                 .dtype = x->dtype,
                 .n = x->shape[0],
                 .groups = attr[3].i[0],
                 .c = w->shape[1],
                 .k = w->shape[0] / attr[3].i[0],
                 .h = x->shape[2],
                 .w = x->shape[3],
                 .ph = mt_first(&attr[1]),
                 .pw = mt_second(&attr[1]),
                 .kh = w->shape[2],
                 .kw = w->shape[3],
                 .dh = mt_first(&attr[2]),
                 .dw = mt_second(&attr[2]),
                 .oh = y->shape[2],
                 .ow = y->shape[3],
                 .x = x->data,
                 .weight = w->data,
                 .bias = call->in[2] ? call->in[2]->data : NULL,
                 .y = y->data,
                 .wk = w->shape[1] * area,
                 .wc = area,
                 .relu = attr[4].i[0] == MT_RELU};
  d->wg = d->k * d->wk;
  return mt_first(&attr[0]) == 1 && mt_second(&attr[0]) == 1;
}

/* With stride 1 it is the convolution of dy with the windows turned by 180 degrees. */
bool mt_conv_of_input(const mt_call *call, mt_conv *d /* [out] */) {
  const mt_view *w = call->in[0], *dy = call->in[1], *dx = call->out[0];
  const mt_attr *attr = call->attr + 1;
  const int64_t area = w->shape[2] * w->shape[3];
  *d = (mt_conv){.call = call,
                 .dtype = dx->dtype,
                 .n = dy->shape[0],
                 .groups = attr[3].i[0],
                 .c = w->shape[0] / attr[3].i[0],
                 .k = w->shape[1],
                 .h = dy->shape[2],
                 .w = dy->shape[3],
                 .kh = w->shape[2],
                 .kw = w->shape[3],
                 .dh = mt_first(&attr[2]),
                 .dw = mt_second(&attr[2]),
                 .oh = dx->shape[2],
                 .ow = dx->shape[3],
                 .x = dy->data,
                 .weight = w->data,
                 .y = dx->data,
                 .wk = area,
                 .wc = w->shape[1] * area,
                 .flip = true};
  d->wg = d->c * d->wc;
  d->ph = (d->kh - 1) * d->dh - mt_first(&attr[1]);
  d->pw = (d->kw - 1) * d->dw - mt_second(&attr[1]);
  return mt_first(&attr[0]) == 1 && mt_second(&attr[0]) == 1;
}

static plan make_plan(const mt_conv *v, int threads) {
  plan t = {.isa = mt_gemm_of(v->dtype),
            .size = mt_cpu_size(v->dtype),
            .depth = v->c * v->kh * v->kw,
            .rows = v->oh,
            .padded = v->ph > 0 || v->pw > 0};
  const int64_t beyond = (v->kh - 1) * v->dh; /* rows of x more than of y */
  t.channels = channels_of(v);
  t.panels = (v->k + t.isa->mr - 1) / t.isa->mr;
  t.xrow = t.padded ? v->w + 2 * v->pw : v->w;
  if (t.padded) {
    const int64_t fit = PIECE / (v->c * t.xrow * t.size) - beyond;
    t.rows = mt_min(v->oh, mt_max(fit, beyond > 8 ? beyond : 8));
  }
  t.rows = mt_min(t.rows, 1 + MOST_WORK / (v->k * t.depth * v->ow));
  const int64_t images = v->n * v->groups;
  const double work =
      (double)images * (double)v->k * (double)t.depth * (double)v->oh * (double)v->ow;
  t.team = mt_max(1, mt_min(threads, (int64_t)(work / MT_GEMM_GRAIN)));
  if (images < 2 * t.team) /* few images: threads share each */
    t.rows = mt_min(t.rows, v->oh * images / (2 * t.team) + 1);
  t.splits = (v->oh + t.rows - 1) / t.rows;
  t.rows = (v->oh + t.splits - 1) / t.splits;
  t.splits = (v->oh + t.rows - 1) / t.rows;
  t.xplane = (t.padded ? t.rows + beyond : v->h) * t.xrow;
  t.tasks = images * t.splits;
  t.team = mt_min(t.team, t.tasks);
  t.koff_bytes = mt_round_up(t.depth * 8, 64);
  t.weight_bytes = t.panels * t.isa->mr * t.depth * t.size;
  if (t.padded) t.piece_bytes = mt_round_up(v->c * t.xplane * t.size, 64);
  return t;
}

size_t mt_conv_direct_scratch(const mt_conv *v, int threads) {
  const plan t = make_plan(v, threads);
  return (size_t)(t.koff_bytes + mt_round_up(v->groups * t.weight_bytes, 64) +
                  t.team * t.piece_bytes);
}

static void fill_offsets(const mt_conv *v, const plan *t, int64_t *koff) {
  for (int64_t c = 0; c < v->c; c++)
    for (int64_t i = 0; i < v->kh; i++)
      for (int64_t j = 0; j < v->kw; j++)
        *koff++ = c * t->xplane + i * v->dh * t->xrow + j * v->dw;
}

/* Panels of the filters of each group, in equal parts. */
#define PACK(dtype, T, sfx)                                                        \
  static void pack_##sfx(const mt_conv *v, const plan *t, T *to) {                 \
    const int64_t mr = t->isa->mr, area = v->kh * v->kw;                           \
    for (int64_t panel = 0; panel < v->groups * t->panels; panel++) {              \
      const int64_t g = panel / t->panels, i = panel % t->panels;                  \
      const int64_t from = v->k * i / t->panels, end = v->k * (i + 1) / t->panels; \
      const T *w = (const T *)v->weight + g * v->wg + from * v->wk;                \
      for (int64_t c = 0; c < v->c; c++)                                           \
        for (int64_t p = 0; p < area; p++, to += mr)                               \
          for (int64_t k = 0; k < mr; k++)                                         \
            to[k] = k < end - from                                                 \
                        ? w[k * v->wk + c * v->wc + (v->flip ? area - 1 - p : p)]  \
                        : 0;                                                       \
    }                                                                              \
  }
MT_EACH_FLOAT(PACK)

/* The rows of the padded image that rows first .. of y are made of. */
static void pad_piece(const mt_conv *v, const plan *t, const char *x, int64_t first,
                      int64_t rows, char *piece) {
  const size_t wide = (size_t)(t->xrow * t->size), row = (size_t)(v->w * t->size);
  const size_t left = (size_t)(v->pw * t->size);
  for (int64_t c = 0; c < v->c; c++) {
    const char *from = x + c * v->h * v->w * t->size;
    char *to = piece + c * t->xplane * t->size;
    for (int64_t i = first - v->ph; i < first - v->ph + rows; i++, to += wide) {
      if (i < 0 || i >= v->h) {
        memset(to, 0, wide);
        continue;
      }
      memset(to, 0, left);
      memcpy(to + left, from + i * v->w * t->size, row);
      memset(to + left + row, 0, left);
    }
  }
}

static void run_task(const mt_conv *v, const plan *t, int64_t task, const char *scratch,
                     char *piece) {
  const int64_t split = task % t->splits, image = task / t->splits;
  const int64_t g = image % v->groups, first = split * t->rows;
  const int64_t rows = mt_min(v->oh - first, t->rows), plane = v->oh * v->ow;
  const char *x = (const char *)v->x + image * v->c * v->h * v->w * t->size;
  mt_direct d = {.filters = v->k,
                 .anext = t->depth * t->isa->mr,
                 .rows = rows,
                 .width = v->ow,
                 .a = scratch + t->koff_bytes + g * t->weight_bytes,
                 .koff = (const int64_t *)scratch,
                 .x = x + first * t->xrow * t->size,
                 .xrow = t->xrow,
                 .y = (char *)v->y + (image * v->k * plane + first * v->ow) * t->size,
                 .plane = plane};
  if (v->bias) d.bias = (const char *)v->bias + g * v->k * t->size;
  if (t->padded) {
    pad_piece(v, t, x, first, rows + (v->kh - 1) * v->dh, piece);
    d.x = piece;
  }
  const char *at = d.x, *a = d.a;
  for (int64_t c = 0; c < v->c; c += t->channels) {
    d.depth = mt_min(v->c - c, t->channels) * v->kh * v->kw;
    d.x = at + c * t->xplane * t->size;
    d.a = a + c * v->kh * v->kw * t->isa->mr * t->size;
    d.accumulate = c > 0;
    d.relu = v->relu && c + t->channels >= v->c;
    t->isa->direct_rows(&d);
  }
}

void mt_conv_direct_run(const mt_conv *v, void *scratch, int threads) {
  const plan t = make_plan(v, threads);
  char *weight = (char *)scratch + t.koff_bytes;
  char *pieces = weight + mt_round_up(v->groups * t.weight_bytes, 64);
  fill_offsets(v, &t, scratch);
  if (v->dtype == MT_F64)
    pack_f64(v, &t, (double *)weight);
  else
    pack_f32(v, &t, (float *)weight);
#pragma omp parallel for num_threads(mt_cpu_team(t.team)) schedule(static)
  for (int64_t part = 0; part < t.team; part++) {
    const int64_t end = t.tasks * (part + 1) / t.team;
    for (int64_t i = t.tasks * part / t.team; i < end && !mt_stopped(v->call); i++)
      run_task(v, &t, i, scratch, pieces + part * t.piece_bytes);
  }
}
