/* kernels/cpu/conv.c -- conv2d and its gradient to x: the ways to compute them, and that
** by unrolled windows. */
#include "kernels/cpu/unrolled.h"

/* Pack matrices of all groups, rows x depth, in blocks of MT_GEMM_KC: element (i, p) of
** group g at w[g * step + i * rs + p * cs]. */
static void pack_weights(const mt_unrolled *v, const char *w, int64_t rows,
                         int64_t depth, int64_t step, int64_t rs, int64_t cs) {
  const int64_t high = mt_round_up(rows, v->isa->mr);
  for (int64_t g = 0; g < v->groups; g++)
    for (int64_t p = 0; p < depth; p += MT_GEMM_KC)
      v->isa->pack_a(rows, mt_min(depth - p, MT_GEMM_KC),
                     w + (g * step + p * cs) * v->size, rs, cs,
                     v->weight + g * v->weight_bytes +
                         mt_unrolled_words(v, p) * high * v->word);
}

/* Columns of a block: about `bytes` with `rows` rows, whole panels, no more than
** needed. */
static int64_t block_columns(const mt_unrolled *v, int64_t rows, int64_t bytes) {
  const int64_t nr = v->isa->nr, fit = bytes / (rows * v->word) / nr * nr;
  return mt_min(fit < nr ? nr : fit, mt_round_up(v->positions, nr));
}

/* ---- forward ---- */

static mt_unrolled plan_forward(const mt_call *call, char *base, size_t *bytes) {
  const mt_view *x = call->in[0], *w = call->in[1], *y = call->out[0];
  mt_unrolled v = mt_unrolled_make(call, x, w, y, call->attr);
  const int64_t kc = v.depth ? mt_min(v.depth, MT_GEMM_KC) : 1;
  v.columns = block_columns(&v, kc, 128 << 10);
  if (v.n * v.groups < 2 * call->num_threads) { /* few images: threads share each */
    const int64_t wanted = 2 * call->num_threads / (v.n * v.groups) + 1;
    const int64_t share = mt_round_up((v.positions + wanted - 1) / wanted, v.isa->nr);
    v.splits = (v.positions + share - 1) / share;
    v.columns = mt_min(v.columns, share);
  }
  v.team = mt_unrolled_team(&v, v.n * v.groups * v.splits);
  v.block_bytes = kc * v.columns * v.word;
  v.joff_bytes = v.columns * 8;
  if (v.half) v.product_bytes = v.k * v.columns * v.word;
  *bytes = mt_unrolled_lay_out(&v,
                               mt_round_up(v.k, v.isa->mr) *
                                       mt_unrolled_words(&v, v.depth) * v.word +
                                   MT_GEMM_SLACK,
                               0, base);
  const mt_view *b = call->in[2];
  if (!b)
    v.bias = NULL;
  else if (!v.half)
    v.bias = b->data;
  else if (base)
    mt_cpu_load_floats(b->dtype, b->shape[0], b->data, 2, (float *)v.bias);
  return v;
}

static void forward_task(const mt_unrolled *v, int64_t task, char *own) {
  const int64_t split = task % v->splits, image = task / v->splits;
  const int64_t g = image % v->groups, n = image / v->groups;
  const int64_t share =
      mt_round_up((v->positions + v->splits - 1) / v->splits, v->isa->nr);
  const int64_t end = mt_min(v->positions, (split + 1) * share);
  const int64_t high = mt_round_up(v->k, v->isa->mr);
  const mt_room r = mt_unrolled_rooms(v, own);
  const char *x = mt_unrolled_image(v, v->call->in[0]->data, n, g, r.image);
  char *y = v->call->out[0]->data + image * v->k * v->positions * v->size;
  const mt_bias bias = {v->bias ? (const char *)v->bias + g * v->k * v->word : NULL, 1,
                        0};
  const bool relu = v->call->attr[4].i[0] == MT_RELU;
  for (int64_t j = split * share; j < end && !mt_stopped(v->call); j += v->columns) {
    const int64_t columns = mt_min(end - j, v->columns);
    int64_t p = 0;
    mt_unrolled_positions(v, j, columns, r.joff);
    do { /* once, too, if there are no channels */
      const int64_t kc = mt_min(v->depth - p, MT_GEMM_KC);
      v->isa->pack_windows(kc, columns, x, v->koff + p, r.joff, r.block);
      mt_unrolled_block(v, v->k, columns, mt_unrolled_words(v, kc),
                        v->weight + g * v->weight_bytes +
                            mt_unrolled_words(v, p) * high * v->word,
                        r.block, v->half ? r.product : y + j * v->size,
                        v->half ? v->columns : v->positions, p ? (mt_bias){0} : bias,
                        p > 0, relu && p + kc >= v->depth);
      p += kc;
    } while (p < v->depth);
    for (int64_t k = 0; v->half && k < v->k; k++)
      mt_cpu_store_floats(v->call->out[0]->dtype, columns,
                          (const float *)r.product + k * v->columns,
                          y + (k * v->positions + j) * v->size, v->size);
  }
}

/* How a convolution is computed. */
typedef enum way { BY_PRODUCT, DIRECTLY, BY_WINOGRAD } way;

static way way_of(bool stride_1, const mt_conv *d) {
  if (!stride_1) return BY_PRODUCT;
  if (mt_winograd_takes(d)) return BY_WINOGRAD;
  return !mt_cpu_is_half(d->dtype) && mt_conv_direct_takes(d) ? DIRECTLY : BY_PRODUCT;
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
  const mt_unrolled v = plan_forward(call, call->scratch, &bytes);
  mt_unrolled_depth(&v, call->in[1], &call->attr[2]);
  pack_weights(&v, call->in[1]->data, v.k, v.depth, v.k * v.depth, v.depth, 1);
  mt_unrolled_run(&v, v.n * v.groups * v.splits, forward_task);
  return MT_OK;
}

const mt_entry mt_cpu_conv2d = {.run = conv2d_kernel,
                                .scratch = conv2d_scratch,
                                .dtypes = MT_FLOAT_MASK,
                                .contiguous = 7};

/* ---- gradient to x: w^T dy, added to where the windows came from ---- */

static mt_unrolled plan_input(const mt_call *call, char *base, size_t *bytes) {
  const mt_view *w = call->in[0], *dy = call->in[1], *dx = call->out[0];
  mt_unrolled v = mt_unrolled_make(call, dx, w, dy, call->attr + 1);
  const int64_t kc = mt_min(v.k, MT_GEMM_KC);
  v.columns = block_columns(&v, v.depth, 128 << 10);
  v.team = mt_unrolled_team(&v, v.n * v.groups);
  v.block_bytes = kc * v.columns * v.word;
  v.joff_bytes = v.columns * 8;
  v.product_bytes = v.depth * v.columns * v.word;
  if (v.half) v.image_bytes = mt_line(v.c * v.hp * v.wp * v.word);
  *bytes = mt_unrolled_lay_out(&v,
                               mt_round_up(v.depth, v.isa->mr) *
                                       mt_unrolled_words(&v, v.k) * v.word +
                                   MT_GEMM_SLACK,
                               0, base);
  return v;
}

static void input_task(const mt_unrolled *v, int64_t task, char *own) {
  const int64_t g = task % v->groups;
  const int64_t high = mt_round_up(v->depth, v->isa->mr);
  const char *dy = v->call->in[1]->data + task * v->k * v->positions * v->size;
  char *dx = v->call->out[0]->data + task * v->c * v->h * v->w * v->size;
  const mt_room r = mt_unrolled_rooms(v, own);
  char *image = mt_unrolled_padded(v) || v->half ? r.image : dx;
  memset(image, 0, (size_t)(v->c * v->hp * v->wp * v->word));
  for (int64_t j = 0; j < v->positions && !mt_stopped(v->call); j += v->columns) {
    const int64_t columns = mt_min(v->positions - j, v->columns);
    for (int64_t p = 0; p < v->k; p += MT_GEMM_KC) {
      const int64_t kc = mt_min(v->k - p, MT_GEMM_KC);
      v->isa->pack_b(kc, columns, dy + (p * v->positions + j) * v->size, v->positions,
                     1, r.block);
      mt_unrolled_block(v, v->depth, columns, mt_unrolled_words(v, kc),
                        v->weight + g * v->weight_bytes +
                            mt_unrolled_words(v, p) * high * v->word,
                        r.block, r.product, v->columns, (mt_bias){0}, p > 0, 0);
    }
    mt_unrolled_positions(v, j, columns, r.joff);
    v->isa->add_windows(v->depth, columns, r.product, v->columns, image, v->koff,
                        r.joff);
  }
  if (image == dx) return;
  const int64_t row = v->w * v->size;
  for (int64_t c = 0; c < v->c; c++)
    for (int64_t i = 0; i < v->h; i++, dx += row) {
      const char *from = image + ((c * v->hp + v->ph + i) * v->wp + v->pw) * v->word;
      if (v->half)
        mt_cpu_store_floats(v->call->out[0]->dtype, v->w, (const float *)from, dx,
                            v->size);
      else
        memcpy(dx, from, (size_t)row);
    }
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
  const mt_unrolled v = plan_input(call, call->scratch, &bytes);
  mt_unrolled_depth(&v, w, &call->attr[3]);
  pack_weights(&v, w->data, v.depth, v.k, v.k * v.depth, 1, v.depth);
  mt_unrolled_run(&v, v.n * v.groups, input_task);
  return MT_OK;
}

const mt_entry mt_cpu_conv2d_backward_input = {.run = conv2d_backward_input_kernel,
                                               .scratch = conv2d_backward_input_scratch,
                                               .dtypes = MT_FLOAT_MASK,
                                               .contiguous = 3};
