/* runtime/autograd/build_shape.c -- composite ops that arrange elements anew: reshape,
** contiguous, flatten, stack, tile, repeat_interleave, roll. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* A view where that is possible, also of the same shape: never x itself. */
static mt_tensor *reshaped(mt_calc *c, mt_tensor *x, int ndim, const int64_t *shape) {
  if (!x) return NULL;
  const mt_attr attr = mt_attr_list(ndim, shape);
  int64_t stride[MT_MAX_DIMS];
  if (!mt_view_strides(&x->v, ndim, shape, stride)) x = mt_c1(c, MT_OP_clone, x);
  return mt_c1a(c, MT_OP_view, x, 1, &attr);
}

static mt_tensor *flattened(mt_calc *c, mt_tensor *x) {
  const int64_t n = x ? mt_numel(&x->v) : 0;
  return reshaped(c, x, 1, &n);
}

mt_status mt_build_reshape(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  mt_attr *const shape = &c->attr[0];
  MT_TRY(mt_infer_shape(mt_numel(&x->v), shape->n, shape->i, &x->v));
  c->out[0] = reshaped(c->calc, x, shape->n, shape->i);
  return MT_OK;
}

mt_status mt_build_contiguous(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  c->out[0] = mt_is_contiguous(&x->v) ? x : mt_c1(c->calc, MT_OP_clone, x);
  return MT_OK;
}

mt_status mt_build_flatten(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  if (x->v.ndim == 0) {
    c->out[0] = flattened(c->calc, x);
    return MT_OK;
  }
  int64_t first, last, shape[MT_MAX_DIMS];
  MT_TRY(mt_cdim_among(&c->attr[0], x->v.ndim, &x->v, 2, &first));
  MT_TRY(mt_cdim_among(&c->attr[1], x->v.ndim, &x->v, 3, &last));
  if (first > last) {
    return mt_fail_arg(MT_EARG, 2,
                       "first dim %" PRId64 " lies behind last dim %" PRId64, first + 1,
                       last + 1);
  }
  int n = 0;
  for (int d = 0; d < x->v.ndim; d++) {
    if (d > first && d <= last) {
      shape[n - 1] *= x->v.shape[d];
    } else {
      shape[n++] = x->v.shape[d];
    }
  }
  c->out[0] = reshaped(c->calc, x, n, shape);
  return MT_OK;
}

/* ---- stack ---- */

static mt_status check_same_shapes(const mt_build_call *c) {
  for (int i = 1; i < c->nin; i++) {
    if (!mt_same_shape(&c->in[i]->v, &c->in[0]->v)) {
      return mt_fail_arg(MT_ESHAPE, 1, "tensor %d has shape %s, tensor 1 shape %s",
                         i + 1, mt_view_text(&c->in[i]->v), mt_view_text(&c->in[0]->v));
    }
  }
  return MT_OK;
}

mt_status mt_build_stack(mt_build_call *c) {
  int64_t dim;
  if (c->nin == 0) return mt_fail_arg(MT_EARG, 1, "no tensors");
  if (c->attr[0].n != 1) return mt_fail_arg(MT_EARG, 2, "one dim expected");
  MT_TRY(check_same_shapes(c));
  MT_TRY(mt_cdim_among(&c->attr[0], c->in[0]->v.ndim + 1, &c->in[0]->v, 2, &dim));
  const mt_attr attr = mt_attr_i(dim);
  mt_tensor **const slices = malloc((size_t)c->nin * sizeof(mt_tensor *));
  if (!slices) return mt_fail(MT_EMEMORY, "out of memory");
  for (int i = 0; i < c->nin; i++) {
    slices[i] = mt_c1a(c->calc, MT_OP_unsqueeze, c->in[i], 1, &attr);
  }
  if (c->calc->status == MT_OK) {
    c->out[0] = mt_ccat(c->calc, c->nin, slices, dim);
  }
  free(slices);
  return MT_OK;
}

/* ---- repetition ---- */

/* Repeat along dim: each element n times (each), or the whole n times. */
static mt_tensor *repeated(mt_calc *c, mt_tensor *x, int64_t dim, int64_t n,
                           bool each) {
  if (!x) return NULL;
  const mt_attr at = mt_attr_i(each ? dim + 1 : dim);
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, x->v.shape, sizeof shape);
  shape[dim] *= n;
  if (n == 0) return mt_czeros(c, x->v.dtype, mt_device_of(x), x->v.ndim, shape);
  const int ndim = x->v.ndim;
  x = mt_c1a(c, MT_OP_unsqueeze, x, 1, &at);
  if (!x) return NULL;
  int64_t wide[MT_MAX_DIMS];
  memcpy(wide, x->v.shape, sizeof wide);
  wide[at.i[0]] = n;
  x = mt_c1(c, MT_OP_clone, mt_cexpand(c, x, ndim + 1, wide));
  return mt_creshape(c, x, ndim, shape);
}

static mt_status check_repeats(const mt_attr *repeats, int arg) {
  for (int i = 0; i < repeats->n; i++) {
    if (repeats->i[i] < 0) {
      return mt_fail_arg(MT_EARG, arg, "repeats: %" PRId64 " is negative",
                         repeats->i[i]);
    }
  }
  return MT_OK;
}

mt_status mt_build_tile(mt_build_call *c) {
  mt_tensor *x = c->in[0];
  const mt_attr *const repeats = &c->attr[0];
  MT_TRY(check_repeats(repeats, 2));
  const int more = repeats->n - x->v.ndim; /* dims that repeats has more than x */
  int64_t shape[MT_MAX_DIMS], sizes[MT_MAX_DIMS], numel;
  const int ndim = more > 0 ? repeats->n : x->v.ndim;
  const int lead = more > 0 ? more : 0;
  for (int d = 0; d < ndim; d++) {
    const int at = more < 0 ? d + more : d;
    const int64_t n = at >= 0 ? repeats->i[at] : 1;
    shape[d] = d < lead ? 1 : x->v.shape[d - lead];
    if (n > 0 && shape[d] > INT64_MAX / n) {
      return mt_fail_arg(MT_ESHAPE, 2, "the result of shape %s is too large",
                         mt_view_text(&x->v));
    }
    sizes[d] = shape[d] * n;
  }
  MT_TRY(mt_shape_numel(ndim, sizes, mt_dtype_size(x->v.dtype), &numel));
  mt_tensor *y = reshaped(c->calc, x, ndim, shape);
  bool copied = false;
  for (int d = ndim - 1; d >= 0; d--) {
    if (sizes[d] == shape[d] || !y) continue;
    y = repeated(c->calc, y, d, shape[d] ? sizes[d] / shape[d] : 1, false);
    copied = true;
  }
  c->out[0] = copied ? y : mt_c1(c->calc, MT_OP_clone, y);
  return MT_OK;
}

mt_status mt_build_repeat_interleave(mt_build_call *c) {
  mt_tensor *x = c->in[0];
  const int64_t repeats = c->attr[0].i[0];
  int64_t dim = 0, numel;
  MT_TRY(check_repeats(&c->attr[0], 2));
  if (c->attr[1].n < 0 || x->v.ndim == 0) {
    x = flattened(c->calc, x);
  } else {
    MT_TRY(mt_cdim_among(&c->attr[1], x->v.ndim, &x->v, 3, &dim));
  }
  if (!x) return MT_OK;
  const int64_t sizes[] = {mt_numel(&x->v), repeats};
  MT_TRY(mt_shape_numel(2, sizes, mt_dtype_size(x->v.dtype), &numel));
  c->out[0] = repeated(c->calc, x, dim, repeats, true);
  return MT_OK;
}

static mt_tensor *found(mt_calc *c, mt_tensor *sorted, mt_tensor *x) {
  mt_tensor *const in[] = {sorted, x};
  const mt_attr right = mt_attr_i(1);
  return mt_ca(c, MT_OP_searchsorted, 2, in, 0, 1, &right, NULL);
}

/* How often each of the n slices stands in the result, int64, and the sum. */
static mt_status read_repeats(mt_calc *c, mt_tensor *given, int64_t n,
                              mt_tensor **repeats /* [out] */,
                              int64_t *total /* [out] */) {
  if (given->v.ndim > 1 || (mt_numel(&given->v) != 1 && mt_numel(&given->v) != n)) {
    return mt_fail_arg(MT_ESHAPE, 2, "repeats has shape %s, want [%" PRId64 "] or [1]",
                       mt_view_text(&given->v), n);
  }
  *repeats = mt_cexpand(c, mt_cas(c, given, MT_I64), 1, &n);
  mt_tensor *const bad = mt_c2(c, MT_OP_logical_or, mt_c2(c, MT_OP_ne, *repeats, given),
                               mt_c2(c, MT_OP_lt, *repeats, mt_cint(c, 0)));
  if (mt_citem(c, mt_c1(c, MT_OP_any, bad), NULL)) {
    return mt_fail_arg(MT_EARG, 2,
                       "repeats has elements that are negative or no whole "
                       "numbers");
  }
  double sum = 0;
  mt_citem(c, mt_c1(c, MT_OP_sum, mt_ccast(c, *repeats, MT_F64)), &sum);
  if (sum > 0x1p62) return mt_fail_arg(MT_ESHAPE, 2, "repeats sums up to %g", sum);
  *total = mt_citem(c, mt_c1(c, MT_OP_sum, *repeats), NULL);
  return c->status;
}

mt_status mt_build_repeat_each(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0], *repeats = NULL;
  int64_t dim = 0, total, numel;
  if (call->attr[0].n < 0 || x->v.ndim == 0) {
    x = flattened(c, x);
  } else {
    MT_TRY(mt_cdim_among(&call->attr[0], x->v.ndim, &x->v, 3, &dim));
  }
  if (!x) return MT_OK;
  const int64_t n = x->v.shape[dim];
  MT_TRY(read_repeats(c, call->in[1], n, &repeats, &total));
  const int64_t sizes[] = {n ? mt_numel(&x->v) / n : 0, total};
  MT_TRY(mt_shape_numel(2, sizes, mt_dtype_size(x->v.dtype), &numel));
  const mt_attr first = mt_attr_i(0);
  mt_tensor *const ends = mt_c1a(c, MT_OP_cumsum, repeats, 1, &first);
  mt_tensor *const place = mt_ccount(c, mt_device_of(x), 1, &total, 0);
  call->out[0] = mt_calong(c, MT_OP_index_select, x, dim, found(c, ends, place), NULL);
  return MT_OK;
}

/* ---- roll ---- */

static mt_tensor *rolled(mt_calc *c, mt_tensor *x, int64_t dim, int64_t shift) {
  const int64_t size = x ? x->v.shape[dim] : 0;
  if (size == 0) return x;
  shift = (shift % size + size) % size;
  if (shift == 0) return x;
  return mt_cjoin(c, mt_cpart(c, x, dim, size - shift, shift),
                  mt_cpart(c, x, dim, 0, size - shift), dim);
}

mt_status mt_build_roll(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const mt_attr *const shifts = &c->attr[0], *const dims = &c->attr[1];
  const bool flat = dims->n < 0;
  if (shifts->n != (flat ? 1 : dims->n)) {
    return mt_fail_arg(MT_EARG, 2, "%d shifts for %d dims", shifts->n,
                       flat ? 1 : dims->n);
  }
  mt_tensor *y = flat ? flattened(c->calc, x) : x;
  for (int i = 0; i < shifts->n && x->v.ndim > 0; i++) {
    y = rolled(c->calc, y, flat ? 0 : dims->i[i], shifts->i[i]);
  }
  if (flat) y = mt_creshape(c->calc, y, x->v.ndim, x->v.shape);
  const bool moved = y && y->storage != x->storage;
  c->out[0] = moved ? y : mt_c1(c->calc, MT_OP_clone, y);
  return MT_OK;
}

/* ---- vander ---- */

mt_status mt_build_vander(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  MT_TRY(mt_check_ndim(x, 1, 1, "a vector"));
  const int64_t n = call->attr[0].n < 0 ? x->v.shape[0] : call->attr[0].i[0];
  if (n < 0) return mt_fail_arg(MT_EARG, 2, "n is %lld, want 0 or more", (long long)n);
  int64_t numel, shape[] = {x->v.shape[0], n};
  MT_TRY(mt_shape_numel(2, shape, sizeof(int64_t), &numel));
  mt_tensor *powers = mt_ccount(c, mt_device_of(x), 1, &n, 0);
  if (!call->attr[1].i[0]) powers = mt_c2(c, MT_OP_sub, mt_cint(c, n - 1), powers);
  shape[1] = 1;
  call->out[0] = mt_c2(c, MT_OP_pow, mt_creshape(c, x, 2, shape), powers);
  return MT_OK;
}
