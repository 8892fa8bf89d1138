/* kernels/cpu/unrolled.c -- what convolutions by unrolled windows share: offsets, padding,
** the layout of their scratch. */
#include "kernels/cpu/unrolled.h"

mt_unrolled mt_unrolled_make(const mt_call *call, const mt_view *x, const mt_view *w,
                             const mt_view *y, const mt_attr *attr) {
  mt_unrolled v = {.call = call,
                   .isa = mt_gemm_of(x->dtype),
                   .size = mt_cpu_size(x->dtype),
                   .word = x->dtype == MT_F64 ? 8 : 4,
                   .half = mt_cpu_is_half(x->dtype),
                   .n = x->shape[0],
                   .groups = attr[3].i[0],
                   .c = w->shape[1],
                   .k = w->shape[0] / attr[3].i[0],
                   .h = x->shape[2],
                   .w = x->shape[3],
                   .ph = mt_first(&attr[1]),
                   .pw = mt_second(&attr[1]),
                   .sh = mt_first(&attr[0]),
                   .sw = mt_second(&attr[0]),
                   .ow = y->shape[3],
                   .depth = w->shape[1] * w->shape[2] * w->shape[3],
                   .positions = y->shape[2] * y->shape[3],
                   .splits = 1,
                   .parts = 1,
                   .team = 1};
  v.hp = v.h + 2 * v.ph, v.wp = v.w + 2 * v.pw;
  if (mt_unrolled_padded(&v)) v.image_bytes = mt_line(v.c * v.hp * v.wp * v.size);
  return v;
}

int mt_unrolled_team(const mt_unrolled *v, int64_t tasks) {
  const double work = (double)v->n * (double)v->groups * (double)v->k *
                      (double)v->depth * (double)v->positions;
  int64_t team = mt_min(tasks, v->call->num_threads);
  if (work / 131072 < (double)team) team = (int64_t)(work / 131072);
  return team < 1 ? 1 : (int)team;
}

size_t mt_unrolled_lay_out(mt_unrolled *v, int64_t weight_bytes, int64_t sums_bytes,
                           char *base) {
  const int64_t bias_bytes = v->half ? mt_line(v->groups * v->k * 4) : 0;
  v->weight_bytes = mt_line(weight_bytes);
  v->own_bytes = mt_line(v->joff_bytes) + mt_line(v->block_bytes) + v->image_bytes +
                 mt_line(v->product_bytes);
  int64_t at = 0;
  v->koff = (int64_t *)base;
  at += mt_line(v->depth * 8);
  if (v->half) v->bias = base + at;
  at += bias_bytes;
  v->weight = base + at;
  at += v->groups * v->weight_bytes;
  v->sums = base + at;
  at += mt_line(sums_bytes);
  v->own = base + at;
  return (size_t)(at + v->team * v->own_bytes);
}

void mt_unrolled_depth(const mt_unrolled *v, const mt_view *w,
                       const mt_attr *dilation) {
  const int64_t dh = mt_first(dilation), dw = mt_second(dilation);
  int64_t at = 0;
  for (int64_t c = 0; c < w->shape[1]; c++)
    for (int64_t i = 0; i < w->shape[2]; i++)
      for (int64_t j = 0; j < w->shape[3]; j++)
        v->koff[at++] = (c * v->hp + i * dh) * v->wp + j * dw;
}

void mt_unrolled_positions(const mt_unrolled *v, int64_t from, int64_t count,
                           int64_t *joff /* [out] */) {
  int64_t i = from / v->ow, j = from % v->ow;
  while (count > 0) {
    const int64_t run = mt_min(v->ow - j, count), base = i * v->sh * v->wp + j * v->sw;
    for (int64_t k = 0; k < run; k++) joff[k] = base + k * v->sw;
    joff += run, count -= run;
    i++, j = 0;
  }
}

const char *mt_unrolled_image(const mt_unrolled *v, const char *x, int64_t n, int64_t g,
                              char *room) {
  const char *from = x + (n * v->groups + g) * v->c * v->h * v->w * v->size;
  if (!mt_unrolled_padded(v)) return from;
  const int64_t row = v->w * v->size, left = v->pw * v->size, wide = v->wp * v->size;
  char *to = room;
  for (int64_t c = 0; c < v->c; c++) {
    memset(to, 0, (size_t)(v->ph * wide));
    to += v->ph * wide;
    for (int64_t i = 0; i < v->h; i++, from += row, to += wide) {
      memset(to, 0, (size_t)left);
      memcpy(to + left, from, (size_t)row);
      memset(to + left + row, 0, (size_t)left);
    }
    memset(to, 0, (size_t)(v->ph * wide));
    to += v->ph * wide;
  }
  return room;
}

mt_room mt_unrolled_rooms(const mt_unrolled *v, char *own) {
  char *block = own + mt_line(v->joff_bytes), *image = block + mt_line(v->block_bytes);
  return (mt_room){(int64_t *)own, block, image, image + v->image_bytes};
}

void mt_unrolled_run(const mt_unrolled *v, int64_t tasks, mt_unrolled_task fn) {
  if (v->team <= 1) {
    for (int64_t i = 0; i < tasks && !mt_stopped(v->call); i++) fn(v, i, v->own);
    return;
  }
#pragma omp parallel for num_threads(mt_cpu_team(v->team)) schedule(static)
  for (int part = 0; part < v->team; part++) {
    const int64_t end = tasks * (part + 1) / v->team;
    for (int64_t i = tasks * part / v->team; i < end && !mt_stopped(v->call); i++)
      fn(v, i, v->own + part * v->own_bytes);
  }
}

void mt_unrolled_block(const mt_unrolled *v, int64_t m, int64_t n, int64_t k,
                       const void *a, const void *b, void *c, int64_t crs, mt_bias bias,
                       int accumulate, int relu) {
  const int mr = v->isa->mr, nr = v->isa->nr;
  v->isa->block(&(mt_block){.m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .ars = 1,
                            .acs = mr,
                            .anext = mr * k,
                            .b = b,
                            .brs = nr,
                            .bnext = nr * k,
                            .c = c,
                            .crs = crs,
                            .bias = bias,
                            .accumulate = accumulate,
                            .relu = relu});
}
