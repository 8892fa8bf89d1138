/* kernels/cpu/conv.c -- conv2d and its backward ops as products with matrices of
** unrolled windows, which are packed straight from the images. */
#include "kernels/cpu/winograd.h"

/* The batch is cut into so many parts, or fewer, whose weight gradients are summed. */
#define WEIGHT_PARTS 16
/* Bytes of all these parts together, at most. */
#define WEIGHT_PARTS_BYTES ((int64_t)64 << 20)

/* One group of one image is a product: y (k x positions) = w (k x depth) windows
** (depth x positions); c and k count the channels of a group. */
typedef struct conv {
  const mt_call *call;
  const mt_gemm_isa *isa;
  int64_t size; /* bytes of an element */
  int64_t n, groups, c, k;
  int64_t h, w, ph, pw; /* of an image, and of its padding on each side */
  int64_t hp, wp;       /* of the padded image */
  int64_t sh, sw, ow;   /* strides, and windows in a row */
  int64_t depth;        /* c * kh * kw */
  int64_t positions;    /* oh * ow */
  int64_t columns;      /* of a block of windows */
  int64_t splits;       /* parts of positions that threads may take one by one */
  int64_t parts;        /* of the batch: weight gradient */
  int team;
  int64_t *koff;        /* [scratch] elements of a window, in the padded image */
  char *weight;         /* [scratch] packed, all groups */
  int64_t weight_bytes; /* of one group */
  char *sums;           /* [scratch] weight gradients of all parts but the first */
  char *own;            /* [scratch] of each thread */
  int64_t own_bytes, joff_bytes, block_bytes, image_bytes, product_bytes;
} conv;

static inline int64_t line(int64_t bytes) { return mt_round_up(bytes, 64); }
static inline bool is_padded(const conv *v) { return v->ph > 0 || v->pw > 0; }

/* Geometry of x, w and y; attr: stride, padding, dilation, groups. */
static conv make_conv(const mt_call *call, const mt_view *x, const mt_view *w,
                      const mt_view *y, const mt_attr *attr) {
  conv v = {.call = call,
            .isa = mt_gemm_of(x->dtype),
            .size = mt_cpu_size(x->dtype),
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
  if (is_padded(&v)) v.image_bytes = line(v.c * v.hp * v.wp * v.size);
  return v;
}

/* Threads that the whole work, in multiply-adds, is worth. */
static int team_for(const conv *v, int64_t tasks) {
  const double work = (double)v->n * (double)v->groups * (double)v->k *
                      (double)v->depth * (double)v->positions;
  int64_t team = mt_min(tasks, v->call->num_threads);
  if (work / 131072 < (double)team) team = (int64_t)(work / 131072);
  return team < 1 ? 1 : (int)team;
}

/* Lay the scratch out; with a base, set the pointers. Returns the bytes. */
static size_t lay_out(conv *v, int64_t weight_bytes, int64_t sums_bytes, char *base) {
  v->weight_bytes = line(weight_bytes);
  v->own_bytes = line(v->joff_bytes) + line(v->block_bytes) + v->image_bytes +
                 line(v->product_bytes);
  int64_t at = 0;
  v->koff = (int64_t *)base;
  at += line(v->depth * 8);
  v->weight = base + at;
  at += v->groups * v->weight_bytes;
  v->sums = base + at;
  at += line(sums_bytes);
  v->own = base + at;
  return (size_t)(at + v->team * v->own_bytes);
}

/* Where the elements of a window lie, from its first one. */
static void fill_depth(const conv *v, const mt_view *w, const mt_attr *dilation) {
  const int64_t dh = mt_first(dilation), dw = mt_second(dilation);
  int64_t at = 0;
  for (int64_t c = 0; c < w->shape[1]; c++)
    for (int64_t i = 0; i < w->shape[2]; i++)
      for (int64_t j = 0; j < w->shape[3]; j++)
        v->koff[at++] = (c * v->hp + i * dh) * v->wp + j * dw;
}

/* Where the windows of positions from .. from + count - 1 begin. */
static void fill_positions(const conv *v, int64_t from, int64_t count,
                           int64_t *joff /* [out] */) {
  int64_t i = from / v->ow, j = from % v->ow;
  while (count > 0) {
    const int64_t run = mt_min(v->ow - j, count), base = i * v->sh * v->wp + j * v->sw;
    for (int64_t k = 0; k < run; k++) joff[k] = base + k * v->sw;
    joff += run, count -= run;
    i++, j = 0;
  }
}

/* Group g of image n, padded into the room given if need be. */
static const char *padded_image(const conv *v, const char *x, int64_t n, int64_t g,
                                char *room) {
  const char *from = x + (n * v->groups + g) * v->c * v->h * v->w * v->size;
  if (!is_padded(v)) return from;
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

/* The parts of a thread's own scratch. */
typedef struct room {
  int64_t *joff; /* where a block's windows begin */
  char *block, *image, *product;
} room;

static room rooms(const conv *v, char *own) {
  char *block = own + line(v->joff_bytes), *image = block + line(v->block_bytes);
  return (room){(int64_t *)own, block, image, image + v->image_bytes};
}

typedef void (*task_fn)(const conv *v, int64_t task, char *own);

static void run_tasks(const conv *v, int64_t tasks, task_fn fn) {
  if (v->team <= 1) {
    for (int64_t i = 0; i < tasks && !mt_stopped(v->call); i++) fn(v, i, v->own);
    return;
  }
#pragma omp parallel for num_threads(v->team) schedule(static)
  for (int part = 0; part < v->team; part++) {
    const int64_t end = tasks * (part + 1) / v->team;
    for (int64_t i = tasks * part / v->team; i < end && !mt_stopped(v->call); i++)
      fn(v, i, v->own + part * v->own_bytes);
  }
}

/* Pack matrices of all groups, rows x depth, in blocks of MT_GEMM_KC: element (i, p) of
** group g at w[g * step + i * rs + p * cs]. */
static void pack_weights(const conv *v, const char *w, int64_t rows, int64_t depth,
                         int64_t step, int64_t rs, int64_t cs) {
  const int64_t high = mt_round_up(rows, v->isa->mr);
  for (int64_t g = 0; g < v->groups; g++)
    for (int64_t p = 0; p < depth; p += MT_GEMM_KC)
      v->isa->pack_a(rows, mt_min(depth - p, MT_GEMM_KC),
                     w + (g * step + p * cs) * v->size, rs, cs,
                     v->weight + g * v->weight_bytes + p * high * v->size);
}

/* Columns of a block: about `bytes` with `rows` rows, whole panels, no more than
** needed. */
static int64_t block_columns(const conv *v, int64_t rows, int64_t bytes) {
  const int64_t nr = v->isa->nr, fit = bytes / (rows * v->size) / nr * nr;
  return mt_min(fit < nr ? nr : fit, mt_round_up(v->positions, nr));
}

/* A block of packed panels; see mt_block. */
static void run_block(const conv *v, int64_t m, int64_t n, int64_t k, const void *a,
                      const void *b, void *c, int64_t crs, mt_bias bias,
                      int accumulate) {
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
                            .accumulate = accumulate});
}

/* ---- forward ---- */

static conv plan_forward(const mt_call *call, char *base, size_t *bytes) {
  const mt_view *x = call->in[0], *w = call->in[1], *y = call->out[0];
  conv v = make_conv(call, x, w, y, call->attr);
  const int64_t kc = v.depth ? mt_min(v.depth, MT_GEMM_KC) : 1;
  v.columns = block_columns(&v, kc, 128 << 10);
  if (v.n * v.groups < 2 * call->num_threads) { /* few images: threads share each */
    const int64_t wanted = 2 * call->num_threads / (v.n * v.groups) + 1;
    const int64_t share = mt_round_up((v.positions + wanted - 1) / wanted, v.isa->nr);
    v.splits = (v.positions + share - 1) / share;
    v.columns = mt_min(v.columns, share);
  }
  v.team = team_for(&v, v.n * v.groups * v.splits);
  v.block_bytes = kc * v.columns * v.size;
  v.joff_bytes = v.columns * 8;
  *bytes = lay_out(&v, mt_round_up(v.k, v.isa->mr) * v.depth * v.size + MT_GEMM_SLACK,
                   0, base);
  return v;
}

static void forward_task(const conv *v, int64_t task, char *own) {
  const int64_t split = task % v->splits, image = task / v->splits;
  const int64_t g = image % v->groups, n = image / v->groups;
  const int64_t share =
      mt_round_up((v->positions + v->splits - 1) / v->splits, v->isa->nr);
  const int64_t end = mt_min(v->positions, (split + 1) * share);
  const int64_t high = mt_round_up(v->k, v->isa->mr);
  const room r = rooms(v, own);
  const char *x = padded_image(v, v->call->in[0]->data, n, g, r.image);
  char *y = v->call->out[0]->data + image * v->k * v->positions * v->size;
  const mt_view *b = v->call->in[2];
  const mt_bias bias = {b ? b->data + g * v->k * v->size : NULL, 1, 0};
  for (int64_t j = split * share; j < end; j += v->columns) {
    const int64_t columns = mt_min(end - j, v->columns);
    int64_t p = 0;
    fill_positions(v, j, columns, r.joff);
    do { /* once, too, if there are no channels */
      const int64_t kc = mt_min(v->depth - p, MT_GEMM_KC);
      v->isa->pack_windows(kc, columns, x, v->koff + p, r.joff, r.block);
      run_block(v, v->k, columns, kc,
                v->weight + g * v->weight_bytes + p * high * v->size, r.block,
                y + j * v->size, v->positions, p ? (mt_bias){0} : bias, p > 0);
      p += kc;
    } while (p < v->depth);
  }
}

/* How a convolution is computed. */
typedef enum way { BY_PRODUCT, DIRECTLY, BY_WINOGRAD } way;

static way way_of(bool stride_1, const mt_conv *d) {
  if (!stride_1) return BY_PRODUCT;
  if (mt_winograd_takes(d)) return BY_WINOGRAD;
  return mt_conv_direct_takes(d) ? DIRECTLY : BY_PRODUCT;
}

static size_t conv2d_scratch(const mt_call *call) {
  size_t bytes = 0;
  mt_conv d;
  if (mt_cpu_numel(call->out[0]) == 0) return 0;
  switch (way_of(mt_conv_of_forward(call, &d), &d)) {
  case BY_WINOGRAD: return mt_winograd_scratch(&d, call->num_threads);
  case DIRECTLY: return mt_conv_direct_scratch(&d, call->num_threads);
  default: break;
  }
  plan_forward(call, NULL, &bytes);
  return bytes;
}

static mt_status conv2d_kernel(const mt_call *call) {
  if (mt_cpu_numel(call->out[0]) == 0) return MT_OK;
  size_t bytes;
  mt_conv d;
  switch (way_of(mt_conv_of_forward(call, &d), &d)) {
  case BY_WINOGRAD: mt_winograd_run(&d, call->scratch, call->num_threads); return MT_OK;
  case DIRECTLY: mt_conv_direct_run(&d, call->scratch, call->num_threads); return MT_OK;
  default: break;
  }
  const conv v = plan_forward(call, call->scratch, &bytes);
  fill_depth(&v, call->in[1], &call->attr[2]);
  pack_weights(&v, call->in[1]->data, v.k, v.depth, v.k * v.depth, v.depth, 1);
  run_tasks(&v, v.n * v.groups * v.splits, forward_task);
  return MT_OK;
}

const mt_entry mt_cpu_conv2d = {.run = conv2d_kernel,
                                .scratch = conv2d_scratch,
                                .dtypes = MT_FLOAT32_64,
                                .contiguous = 7};

/* ---- gradient to x: w^T dy, added to where the windows came from ---- */

static conv plan_input(const mt_call *call, char *base, size_t *bytes) {
  const mt_view *w = call->in[0], *dy = call->in[1], *dx = call->out[0];
  conv v = make_conv(call, dx, w, dy, call->attr + 1);
  const int64_t kc = mt_min(v.k, MT_GEMM_KC);
  v.columns = block_columns(&v, v.depth, 128 << 10);
  v.team = team_for(&v, v.n * v.groups);
  v.block_bytes = kc * v.columns * v.size;
  v.joff_bytes = v.columns * 8;
  v.product_bytes = v.depth * v.columns * v.size;
  *bytes = lay_out(&v, mt_round_up(v.depth, v.isa->mr) * v.k * v.size + MT_GEMM_SLACK,
                   0, base);
  return v;
}

static void input_task(const conv *v, int64_t task, char *own) {
  const int64_t g = task % v->groups;
  const int64_t high = mt_round_up(v->depth, v->isa->mr);
  const char *dy = v->call->in[1]->data + task * v->k * v->positions * v->size;
  char *dx = v->call->out[0]->data + task * v->c * v->h * v->w * v->size;
  const room r = rooms(v, own);
  char *image = is_padded(v) ? r.image : dx;
  memset(image, 0, (size_t)(v->c * v->hp * v->wp * v->size));
  for (int64_t j = 0; j < v->positions; j += v->columns) {
    const int64_t columns = mt_min(v->positions - j, v->columns);
    for (int64_t p = 0; p < v->k; p += MT_GEMM_KC) {
      const int64_t kc = mt_min(v->k - p, MT_GEMM_KC);
      v->isa->pack_b(kc, columns, dy + (p * v->positions + j) * v->size, v->positions,
                     1, r.block);
      run_block(v, v->depth, columns, kc,
                v->weight + g * v->weight_bytes + p * high * v->size, r.block,
                r.product, v->columns, (mt_bias){0}, p > 0);
    }
    fill_positions(v, j, columns, r.joff);
    v->isa->add_windows(v->depth, columns, r.product, v->columns, image, v->koff,
                        r.joff);
  }
  if (!is_padded(v)) return;
  const int64_t row = v->w * v->size;
  for (int64_t c = 0; c < v->c; c++)
    for (int64_t i = 0; i < v->h; i++, dx += row)
      memcpy(dx, image + (((c * v->hp) + v->ph + i) * v->wp + v->pw) * v->size,
             (size_t)row);
}

static size_t conv2d_backward_input_scratch(const mt_call *call) {
  size_t bytes = 0;
  mt_conv d;
  if (mt_cpu_numel(call->out[0]) == 0 || call->in[0]->shape[0] == 0) return 0;
  switch (way_of(mt_conv_of_input(call, &d), &d)) {
  case BY_WINOGRAD: return mt_winograd_scratch(&d, call->num_threads);
  case DIRECTLY: return mt_conv_direct_scratch(&d, call->num_threads);
  default: break;
  }
  plan_input(call, NULL, &bytes);
  return bytes;
}

static mt_status conv2d_backward_input_kernel(const mt_call *call) {
  const mt_view *w = call->in[0], *dx = call->out[0];
  if (mt_cpu_numel(dx) == 0) return MT_OK;
  if (w->shape[0] == 0) { /* no output channels */
    memset(dx->data, 0, (size_t)(mt_cpu_numel(dx) * mt_cpu_size(dx->dtype)));
    return MT_OK;
  }
  size_t bytes;
  mt_conv d;
  switch (way_of(mt_conv_of_input(call, &d), &d)) {
  case BY_WINOGRAD: mt_winograd_run(&d, call->scratch, call->num_threads); return MT_OK;
  case DIRECTLY: mt_conv_direct_run(&d, call->scratch, call->num_threads); return MT_OK;
  default: break;
  }
  const conv v = plan_input(call, call->scratch, &bytes);
  fill_depth(&v, w, &call->attr[3]);
  pack_weights(&v, w->data, v.depth, v.k, v.k * v.depth, 1, v.depth);
  run_tasks(&v, v.n * v.groups, input_task);
  return MT_OK;
}

const mt_entry mt_cpu_conv2d_backward_input = {.run = conv2d_backward_input_kernel,
                                               .scratch = conv2d_backward_input_scratch,
                                               .dtypes = MT_FLOAT32_64,
                                               .contiguous = 3};

/* ---- gradient to w: the sum over the batch of dy windows^T ---- */

static conv plan_weight(const mt_call *call, char *base, size_t *bytes) {
  const mt_view *x = call->in[0], *dy = call->in[1], *dw = call->out[0];
  conv v = make_conv(call, x, dw, dy, call->attr + 1);
  const int64_t whole = v.groups * v.k * v.depth * v.size;
  const int64_t kc = mt_min(v.positions, MT_GEMM_KC);
  v.parts = mt_min(v.n, WEIGHT_PARTS);
  if (v.parts * whole > WEIGHT_PARTS_BYTES) v.parts = WEIGHT_PARTS_BYTES / whole;
  if (v.parts < 1) v.parts = 1;
  const int64_t fit = mt_round_up((256 << 10) / (kc * v.size), v.isa->nr);
  v.columns = mt_min(mt_round_up(v.depth, v.isa->nr), fit);
  v.splits = (v.depth + v.columns - 1) / v.columns;
  v.team = team_for(&v, v.parts * v.groups * v.splits);
  v.block_bytes = kc * v.columns * v.size;
  v.joff_bytes = kc * 8;
  v.product_bytes = mt_round_up(v.k, v.isa->mr) * kc * v.size + MT_GEMM_SLACK;
  *bytes = lay_out(&v, 0, (v.parts - 1) * whole, base);
  return v;
}

/* A part of the batch, a group, and a block of columns of its weight gradient. */
static void weight_task(const conv *v, int64_t task, char *own) {
  const int64_t split = task % v->splits, g = task / v->splits % v->groups;
  const int64_t part = task / v->splits / v->groups;
  const int64_t j = split * v->columns, columns = mt_min(v->depth - j, v->columns);
  const int64_t whole = v->groups * v->k * v->depth * v->size;
  char *sum = part ? v->sums + (part - 1) * whole : v->call->out[0]->data;
  sum += (g * v->k * v->depth + j) * v->size;
  const room r = rooms(v, own);
  const int64_t begin = v->n * part / v->parts, end = v->n * (part + 1) / v->parts;
  for (int64_t n = begin; n < end; n++) {
    const char *x = padded_image(v, v->call->in[0]->data, n, g, r.image);
    const char *dy =
        v->call->in[1]->data + (n * v->groups + g) * v->k * v->positions * v->size;
    for (int64_t p = 0; p < v->positions; p += MT_GEMM_KC) {
      const int64_t kc = mt_min(v->positions - p, MT_GEMM_KC);
      fill_positions(v, p, kc, r.joff);
      v->isa->pack_windows_t(kc, columns, x, r.joff, v->koff + j, r.block);
      v->isa->pack_a(v->k, kc, dy + p * v->size, v->positions, 1, r.product);
      run_block(v, v->k, columns, kc, r.product, r.block, sum, v->depth, (mt_bias){0},
                n > begin || p > 0);
    }
  }
}

#define ADD_PARTS(dtype, T, sfx)                                        \
  static void add_parts_##sfx(int64_t parts, int64_t n, T *restrict to, \
                              const T *sums) {                          \
    for (int64_t part = 1; part < parts; part++, sums += n)             \
      for (int64_t i = 0; i < n; i++) to[i] += sums[i];                 \
  }
MT_EACH_FLOAT(ADD_PARTS)

/* Its convolution, if Winograd's way serves: with dy for y. */
static bool winograd_weight(const mt_call *call, mt_conv *d /* [out] */) {
  const mt_view *x = call->in[0], *dy = call->in[1], *dw = call->out[0];
  const mt_view *in[] = {x, dw, NULL};
  mt_view y = *dy, *out[] = {&y};
  mt_call forward = *call;
  forward.in = in, forward.out = out, forward.attr = call->attr + 1;
  return mt_conv_of_forward(&forward, d) && mt_winograd_takes_gradient(d);
}

static bool has_no_terms(const mt_call *call) {
  return mt_cpu_numel(call->in[0]) == 0 || mt_cpu_numel(call->in[1]) == 0;
}

static size_t conv2d_backward_weight_scratch(const mt_call *call) {
  size_t bytes = 0;
  mt_conv d;
  if (mt_cpu_numel(call->out[0]) == 0 || has_no_terms(call)) return 0;
  if (winograd_weight(call, &d))
    return mt_winograd_gradient_scratch(&d, call->num_threads);
  plan_weight(call, NULL, &bytes);
  return bytes;
}

static mt_status conv2d_backward_weight_kernel(const mt_call *call) {
  const mt_view *dw = call->out[0];
  const int64_t numel = mt_cpu_numel(dw);
  if (numel == 0) return MT_OK;
  if (has_no_terms(call)) {
    memset(dw->data, 0, (size_t)(numel * mt_cpu_size(dw->dtype)));
    return MT_OK;
  }
  mt_conv d;
  if (winograd_weight(call, &d)) {
    d.call = call;
    mt_winograd_gradient_run(&d, (float *)dw->data, call->scratch, call->num_threads);
    return MT_OK;
  }
  size_t bytes;
  const conv v = plan_weight(call, call->scratch, &bytes);
  fill_depth(&v, dw, &call->attr[3]);
  run_tasks(&v, v.parts * v.groups * v.splits, weight_task);
  if (dw->dtype == MT_F64)
    add_parts_f64(v.parts, numel, (double *)dw->data, (const double *)v.sums);
  else
    add_parts_f32(v.parts, numel, (float *)dw->data, (const float *)v.sums);
  return MT_OK;
}

const mt_entry mt_cpu_conv2d_backward_weight = {.run = conv2d_backward_weight_kernel,
                                                .scratch =
                                                    conv2d_backward_weight_scratch,
                                                .dtypes = MT_FLOAT32_64,
                                                .contiguous = 3};
