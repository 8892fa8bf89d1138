/* runtime/autograd/build_select.c -- composite ops that select: max, min, masked_fill,
** masked_select, masked_scatter, nonzero. */
#include <string.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* ---- max, min ---- */

/* Over all elements, or along one dim with positions. */
static mt_status extreme(mt_build_call *c, mt_op all, mt_op along) {
  const mt_attr *const dim = &c->attr[0], *const keepdim = &c->attr[1];
  if (dim->n < 0) {
    const mt_attr attr[] = {mt_attr_none(), *keepdim};
    c->out[0] = mt_c1a(c->calc, all, c->in[0], 2, attr);
    c->nout = 1;
  } else {
    c->out[0] = mt_ca(c->calc, along, 1, c->in, 0, 2, c->attr, c->out);
  }
  return MT_OK;
}

mt_status mt_build_max(mt_build_call *c) {
  return extreme(c, MT_OP_amax, MT_OP__max_dim);
}
mt_status mt_build_min(mt_build_call *c) {
  return extreme(c, MT_OP_amin, MT_OP__min_dim);
}

/* ---- masks ---- */

static mt_status check_mask(const mt_tensor *mask) {
  if (mask->v.dtype == MT_BOOL) return MT_OK;
  return mt_fail_arg(MT_EDTYPE, 2, "mask is %s, want bool",
                     mt_dtype_name(mask->v.dtype));
}

mt_status mt_build_masked_fill(mt_build_call *c) {
  mt_tensor *const x = c->in[0], *const mask = c->in[1], *value = c->in[2];
  MT_TRY(check_mask(mask));
  if (value->v.ndim != 0) {
    return mt_fail_arg(MT_ESHAPE, 3,
                       "value has shape %s, want a number or a 0-dim tensor",
                       mt_view_text(&value->v));
  }
  MT_TRY(mt_check_number(value, x->v.dtype, 3));
  value = mt_ccast(c->calc, value, x->v.dtype); /* x keeps its dtype */
  c->out[0] = mt_c3(c->calc, MT_OP_where, mask, value, x);
  return MT_OK;
}

mt_status mt_build_masked_select(mt_build_call *c) {
  mt_tensor *x = c->in[0], *mask = c->in[1];
  MT_TRY(check_mask(mask));
  int ndim = x->v.ndim;
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, x->v.shape, sizeof shape);
  MT_TRY(mt_broadcast(&ndim, shape, &mask->v));
  x = mt_cexpand(c->calc, x, ndim, shape);
  mask = mt_cexpand(c->calc, mask, ndim, shape);
  if (!x) return MT_OK;
  c->out[0] = mt_cmasked_select(c->calc, x, mask, -1);
  return MT_OK;
}

/* The number of each true element picks from src: a running count, 1 where there is
** none yet. */
mt_status mt_build_masked_scatter(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *mask = call->in[1];
  mt_tensor *src = mt_cflat(c, mt_cas(c, call->in[2], x->v.dtype));
  MT_TRY(check_mask(mask));
  int ndim = x->v.ndim;
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, x->v.shape, sizeof shape);
  MT_TRY(mt_broadcast(&ndim, shape, &mask->v));
  mask = mt_cexpand(c, mask, ndim, shape);
  if (!src || !mask) return MT_OK;
  const int64_t given = src->v.shape[0], n = mt_numel(&mask->v);
  if (given < n && (given == 0 || mt_device_of(x).kind == MT_CPU)) {
    const int64_t want = mt_citem(c, mt_c1(c, MT_OP_count_nonzero, mask), NULL);
    if (want > given)
      return mt_fail_arg(MT_ESHAPE, 3, "src has %lld elements, mask is true %lld times",
                         (long long)given, (long long)want);
  }
  if (given == 0 || n == 0) {
    call->out[0] = mt_c1(c, MT_OP_clone, mt_cexpand(c, x, ndim, shape));
    return MT_OK;
  }
  const mt_attr first = mt_attr_i(0);
  mt_tensor *const count = mt_c1a(c, MT_OP_cumsum, mt_cflat(c, mask), 1, &first);
  mt_tensor *const from = mt_c2(c, MT_OP_maximum, count, mt_cint(c, 1));
  /* behind the last true one the count may be all of src, never more */
  mt_tensor *const picked = mt_calong(c, MT_OP_index_select, src, 0, from, NULL);
  call->out[0] = mt_c3(c, MT_OP_where, mask, mt_creshape(c, picked, ndim, shape), x);
  return MT_OK;
}

/* ---- nonzero ---- */

/* The coordinate along a dim of this size and (row-major) stride, from 1. */
static mt_tensor *coordinate(mt_calc *c, mt_tensor *flat, int64_t size,
                             int64_t stride) {
  mt_tensor *const from_zero = mt_c2(c, MT_OP_sub, flat, mt_cint(c, 1));
  mt_tensor *const steps = mt_c2(c, MT_OP_floordiv, from_zero, mt_cint(c, stride));
  mt_tensor *const at = mt_c2(c, MT_OP_remainder, steps, mt_cint(c, size));
  return mt_c2(c, MT_OP_add, at, mt_cint(c, 1));
}

mt_status mt_build_nonzero(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const int ndim = x->v.ndim;
  mt_tensor *const flat = mt_cpositions(c->calc, x);
  if (!flat) return MT_OK;
  const int64_t count = flat->v.shape[0];
  if (ndim == 0 || count == 0) {
    const int64_t shape[] = {count, ndim};
    c->out[0] = mt_czeros(c->calc, MT_I64, mt_device_of(x), 2, shape);
    return MT_OK;
  }
  if (ndim == 1) {
    const int64_t shape[] = {count, 1};
    c->out[0] = mt_creshape(c->calc, flat, 2, shape);
    return MT_OK;
  }
  mt_tensor *column[MT_MAX_DIMS];
  int64_t stride[MT_MAX_DIMS];
  mt_default_strides(ndim, x->v.shape, stride);
  for (int d = 0; d < ndim; d++) {
    column[d] = coordinate(c->calc, flat, x->v.shape[d], stride[d]);
  }
  const mt_attr dim = mt_attr_i(1);
  if (c->calc->status == MT_OK) {
    c->out[0] = mt_ca(c->calc, MT_OP_stack, ndim, column, 0, 1, &dim, NULL);
  }
  return MT_OK;
}
