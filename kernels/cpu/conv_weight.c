/* kernels/cpu/conv_weight.c -- conv2d's gradient to w: the sum over the batch of dy times
** the transposed unrolled windows. */
#include "kernels/cpu/unrolled.h"

/* The batch is cut into so many parts, or fewer, whose weight gradients are summed. */
#define WEIGHT_PARTS 16
/* Bytes of all these parts together, at most. */
#define WEIGHT_PARTS_BYTES ((int64_t)64 << 20)

static mt_unrolled plan_weight(const mt_call *call, char *base, size_t *bytes) {
  const mt_view *x = call->in[0], *dy = call->in[1], *dw = call->out[0];
  mt_unrolled v = mt_unrolled_make(call, x, dw, dy, call->attr + 1);
  v.isa = mt_gemm_floats_of(x->dtype);
  const int64_t whole = v.groups * v.k * v.depth * v.word;
  const int64_t kc = mt_min(v.positions, MT_GEMM_KC);
  v.parts = mt_min(v.n, WEIGHT_PARTS);
  if (v.parts * whole > WEIGHT_PARTS_BYTES) v.parts = WEIGHT_PARTS_BYTES / whole;
  if (v.parts < 1) v.parts = 1;
  const int64_t fit = mt_round_up((256 << 10) / (kc * v.word), v.isa->nr);
  v.columns = mt_min(mt_round_up(v.depth, v.isa->nr), fit);
  v.splits = (v.depth + v.columns - 1) / v.columns;
  v.team = mt_unrolled_team(&v, v.parts * v.groups * v.splits);
  v.block_bytes = kc * v.columns * v.word;
  v.joff_bytes = kc * 8;
  v.product_bytes = mt_round_up(v.k, v.isa->mr) * kc * v.word + MT_GEMM_SLACK;
  *bytes = mt_unrolled_lay_out(&v, 0, (v.half ? v.parts : v.parts - 1) * whole, base);
  return v;
}

/* A part of the batch, a group, and a block of columns of its weight gradient. */
static void weight_task(const mt_unrolled *v, int64_t task, char *own) {
  const int64_t split = task % v->splits, g = task / v->splits % v->groups;
  const int64_t part = task / v->splits / v->groups;
  const int64_t j = split * v->columns, columns = mt_min(v->depth - j, v->columns);
  const int64_t whole = v->groups * v->k * v->depth * v->word;
  char *sum = v->half ? v->sums + part * whole
              : part  ? v->sums + (part - 1) * whole
                      : v->call->out[0]->data;
  sum += (g * v->k * v->depth + j) * v->word;
  const mt_room r = mt_unrolled_rooms(v, own);
  const int64_t begin = v->n * part / v->parts, end = v->n * (part + 1) / v->parts;
  for (int64_t n = begin; n < end; n++) {
    const char *x = mt_unrolled_image(v, v->call->in[0]->data, n, g, r.image);
    const char *dy =
        v->call->in[1]->data + (n * v->groups + g) * v->k * v->positions * v->size;
    for (int64_t p = 0; p < v->positions && !mt_stopped(v->call); p += MT_GEMM_KC) {
      const int64_t kc = mt_min(v->positions - p, MT_GEMM_KC);
      mt_unrolled_positions(v, p, kc, r.joff);
      v->isa->pack_windows_t(kc, columns, x, r.joff, v->koff + j, r.block);
      v->isa->pack_a(v->k, kc, dy + p * v->size, v->positions, 1, r.product);
      mt_unrolled_block(v, v->k, columns, kc, r.product, r.block, sum, v->depth,
                        (mt_bias){0}, n > begin || p > 0, 0);
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
    mt_winograd_gradient_run(&d, dw->data, call->scratch, call->num_threads);
    return MT_OK;
  }
  size_t bytes;
  const mt_unrolled v = plan_weight(call, call->scratch, &bytes);
  mt_unrolled_depth(&v, dw, &call->attr[3]);
  mt_unrolled_run(&v, v.parts * v.groups * v.splits, weight_task);
  if (v.half) {
    float *sums = (float *)v.sums;
    add_parts_f32(v.parts, numel, sums, sums + numel);
    mt_cpu_store_floats(dw->dtype, numel, sums, dw->data, v.size);
  } else if (dw->dtype == MT_F64)
    add_parts_f64(v.parts, numel, (double *)dw->data, (const double *)v.sums);
  else
    add_parts_f32(v.parts, numel, (float *)dw->data, (const float *)v.sums);
  return MT_OK;
}

const mt_entry mt_cpu_conv2d_backward_weight = {.run = conv2d_backward_weight_kernel,
                                                .scratch =
                                                    conv2d_backward_weight_scratch,
                                                .dtypes = MT_FLOAT_MASK,
                                                .contiguous = 3};
