/* runtime/autograd/build_scatter.c -- composite ops that read and write at positions:
** scatter, scatter_reduce, take, take_along_dim, put, index_fill,
** index_add of scaled slices. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* src of x's dtype; a number, or a 0-dim tensor, in index's shape. */
static mt_tensor *source(mt_calc *c, mt_tensor *src, const mt_tensor *x,
                         const mt_tensor *index) {
  src = mt_cas_beside(c, src, x->v.dtype, x);
  if (!src || src->v.ndim > 0 || index->v.ndim == 0) return src;
  return mt_cexpand(c, src, index->v.ndim, index->v.shape);
}

/* Where it matters who was last: the gradient goes to that one, and results may not
** depend on the order in which a GPU works. */
static bool last_counts(const mt_calc *c, const mt_tensor *src) {
  return c->ctx->deterministic || (c->ctx->grad_enabled && mt_requires_grad(src));
}

mt_status mt_build_scatter(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const index = call->in[1];
  MT_TRY(mt_check_number(call->in[2], x->v.dtype, 4));
  mt_tensor *const src = source(c, call->in[2], x, index);
  if (!src) return MT_OK;
  const mt_attr attr[] = {call->attr[0], mt_attr_i(last_counts(c, src))};
  mt_tensor *const in[] = {x, index, src};
  call->out[0] = mt_ca(c, MT_OP__scatter, 3, in, 0, 2, attr, NULL);
  return MT_OK;
}

/* ---- scatter_reduce ---- */

enum { SUM, PROD, MEAN, AMAX, AMIN };

/* What changes nothing when it is combined. */
static mt_tensor *neutral(mt_calc *c, mt_dtype d, int64_t how) {
  static const int64_t lowest[MT_NDTYPES] = {[MT_I64] = INT64_MIN,
                                             [MT_I32] = INT32_MIN,
                                             [MT_I16] = INT16_MIN,
                                             [MT_I8] = INT8_MIN};
  static const int64_t highest[MT_NDTYPES] = {
      [MT_I64] = INT64_MAX, [MT_I32] = INT32_MAX, [MT_I16] = INT16_MAX,
      [MT_I8] = INT8_MAX,   [MT_U8] = UINT8_MAX,  [MT_BOOL] = 1};
  if (how == PROD) return mt_cint(c, 1);
  if (how < AMAX) return mt_cint(c, 0);
  if (MT_IS_FLOAT(d))
    return mt_cnum(c, how == AMAX ? -(double)INFINITY : (double)INFINITY);
  return mt_cint(c, how == AMAX ? lowest[d] : highest[d]);
}

/* In which sums and counts of numbers of x's dtype fit. */
static mt_dtype dtype_of_sums(const mt_tensor *x) {
  return MT_IS_INT(x->v.dtype) ? MT_I64 : mt_wide_dtype(x->v.dtype);
}

/* own: x itself counts. */
static mt_tensor *means(mt_calc *c, mt_tensor *x, int64_t dim, mt_tensor *index,
                        mt_tensor *src, bool own) {
  const mt_dtype dtype = x->v.dtype, wide = dtype_of_sums(x);
  const mt_device device = mt_device_of(x);
  mt_tensor *const sum = mt_calong(c, MT_OP_scatter_add, mt_ccast(c, x, wide), dim,
                                   index, mt_ccast(c, src, wide));
  mt_tensor *const zero = mt_czeros(c, MT_I64, device, index->v.ndim, index->v.shape);
  mt_tensor *const one = mt_cones(c, MT_I64, device, index->v.ndim, index->v.shape);
  mt_tensor *count = mt_cones(c, MT_I64, device, x->v.ndim, x->v.shape);
  if (!own) count = mt_calong(c, MT_OP__scatter, count, dim, index, zero);
  count = mt_calong(c, MT_OP_scatter_add, count, dim, index, one);
  const mt_op divide = MT_IS_FLOAT(dtype) ? MT_OP_div : MT_OP_floordiv;
  return mt_cas(c, mt_c2(c, divide, sum, mt_cas(c, count, wide)), dtype);
}

mt_status mt_build_scatter_reduce(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0], *const index = call->in[1];
  mt_tensor *const src = source(c, call->in[2], x, index);
  const int64_t dim = call->attr[0].i[0], how = call->attr[1].i[0];
  const bool own = call->attr[2].i[0] != 0;
  const mt_dtype dtype = x->v.dtype;
  if (!own)
    x = mt_calong(c, MT_OP__scatter, x, dim, index,
                  source(c, neutral(c, dtype, how), x, index));
  if (!src || !x) return MT_OK;
  if (how != SUM && how != MEAN) {
    const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(how == PROD   ? 0
                                                      : how == AMAX ? 1
                                                                    : 2)};
    mt_tensor *const in[] = {x, index, src};
    call->out[0] = mt_ca(c, MT_OP__scatter_fold, 3, in, 0, 2, attr, NULL);
    return MT_OK;
  }
  if (how == SUM) {
    call->out[0] = mt_calong(c, MT_OP_scatter_add, x, dim, index, src);
    return MT_OK;
  }
  call->out[0] = means(c, x, dim, index, src, own);
  return MT_OK;
}

/* ---- positions in the flattened x ---- */

/* mt_calong for a call without a dim in front of index: an error counts the arguments of
** that call. */
static mt_tensor *along_index(mt_calc *c, mt_op op, mt_tensor *x, int64_t dim,
                              mt_tensor *index, mt_tensor *src /* [optional] */) {
  if (c->status != MT_OK) return NULL;
  mt_tensor *const y = mt_calong(c, op, x, dim, index, src);
  if (!y && mt_last_error()->arg > 2) mt_last_error()->arg--;
  return y;
}

mt_status mt_build_take(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const index = call->in[1];
  mt_tensor *const y = along_index(c, MT_OP_index_select, mt_cflat(c, call->in[0]), 0,
                                   mt_cflat(c, index), NULL);
  call->out[0] = mt_creshape(c, y, index->v.ndim, index->v.shape);
  return MT_OK;
}

mt_status mt_build_put(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const index = mt_cflat(c, call->in[1]);
  if (!index) return MT_OK;
  const int64_t n = index->v.shape[0];
  if (!call->attr[0].i[0]) MT_TRY(mt_check_number(call->in[2], x->v.dtype, 3));
  mt_tensor *src = mt_cas_beside(c, call->in[2], x->v.dtype, x);
  if (!src) return MT_OK;
  if (src->v.ndim > 0 && mt_numel(&src->v) != n)
    return mt_fail_arg(MT_ESHAPE, 3, "src has shape %s, index %s",
                       mt_view_text(&call->in[2]->v), mt_view_text(&call->in[1]->v));
  src = src->v.ndim ? mt_cflat(c, src) : mt_cexpand(c, src, 1, &n);
  const mt_op op = call->attr[0].i[0] ? MT_OP_index_add : MT_OP_index_copy;
  mt_tensor *const y = along_index(c, op, mt_cflat(c, x), 0, index, src);
  call->out[0] = mt_creshape(c, y, x->v.ndim, x->v.shape);
  return MT_OK;
}

/* sizes of a and b, which may be 1 in either, but along dim. */
static mt_status common_shape(const mt_view *a, const mt_view *b, int64_t dim,
                              int64_t *shape) {
  for (int d = 0; d < a->ndim; d++) {
    if (d == dim) continue;
    shape[d] = a->shape[d] == 1 ? b->shape[d] : a->shape[d];
    if (b->shape[d] != 1 && b->shape[d] != shape[d])
      return mt_fail_arg(MT_ESHAPE, 2,
                         "index has shape %s, x %s: they do not broadcast in dim %d",
                         mt_view_text(b), mt_view_text(a), d + 1);
  }
  return MT_OK;
}

mt_status mt_build_take_along_dim(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0], *index = call->in[1];
  int64_t dim = 0, shape[MT_MAX_DIMS];
  if (call->attr[0].n < 0) {
    call->out[0] =
        along_index(c, MT_OP_gather, mt_cflat(c, x), 0, mt_cflat(c, index), NULL);
    return MT_OK;
  }
  MT_TRY(mt_cdim(&call->attr[0], &x->v, 3, &dim));
  if (x->v.ndim != index->v.ndim)
    return mt_fail_arg(MT_ESHAPE, 2, "index has shape %s, x %s: %d dims ~= %d",
                       mt_view_text(&index->v), mt_view_text(&x->v), index->v.ndim,
                       x->v.ndim);
  MT_TRY(common_shape(&x->v, &index->v, dim, shape));
  const int ndim = x->v.ndim;
  if (ndim > 0) {
    shape[dim] = x->v.shape[dim];
    const int64_t along = index->v.shape[dim];
    x = mt_cexpand(c, x, ndim, shape);
    shape[dim] = along;
    index = mt_cexpand(c, index, ndim, shape);
  }
  if (x && index) call->out[0] = along_index(c, MT_OP_gather, x, dim, index, NULL);
  return MT_OK;
}

mt_status mt_build_index_fill(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const index = call->in[1];
  const int64_t dim = call->attr[0].i[0];
  MT_TRY(mt_check_number(call->in[2], x->v.dtype, 4));
  mt_tensor *value = mt_cas_beside(c, call->in[2], x->v.dtype, x);
  if (!value) return MT_OK;
  if (value->v.ndim != 0)
    return mt_fail_arg(MT_ESHAPE, 4,
                       "value has shape %s, want a number or a 0-dim tensor",
                       mt_view_text(&value->v));
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, x->v.shape, sizeof shape);
  if (x->v.ndim > 0) shape[dim] = mt_numel(&index->v);
  value = mt_cexpand(c, value, x->v.ndim, shape);
  call->out[0] = mt_calong(c, MT_OP_index_copy, x, dim, index, value);
  return MT_OK;
}

mt_status mt_build_index_add(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const src = call->in[2];
  const mt_attr *const alpha = &call->attr[1];
  if (!MT_IS_FLOAT(src->v.dtype) && !alpha->is_int && alpha->f != trunc(alpha->f))
    return mt_fail_arg(MT_EARG, 5, "alpha is %g, want a whole number beside integers",
                       isnan(alpha->f) ? (double)NAN : alpha->f);
  mt_tensor *const scaled =
      mt_ccast(c, mt_c2(c, MT_OP_mul, src, mt_cnumber(c, alpha)), src->v.dtype);
  call->out[0] =
      mt_calong(c, MT_OP_index_add, x, call->attr[0].i[0], call->in[1], scaled);
  return MT_OK;
}
