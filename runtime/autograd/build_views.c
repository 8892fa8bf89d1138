/* runtime/autograd/build_views.c -- composite ops that look at a tensor in another way:
** movedim, unflatten, as_strided, bits, diagonals, turns, dims added in front or behind. */
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* ---- the shape of another tensor ---- */

static mt_tensor *shaped(mt_build_call *c, mt_op op) {
  const mt_view *const like = &c->in[1]->v;
  const mt_attr attr = mt_attr_list(like->ndim, like->shape);
  return mt_c1a(c->calc, op, c->in[0], 1, &attr);
}

mt_status mt_build_view_as(mt_build_call *c) {
  c->out[0] = shaped(c, MT_OP_view);
  return MT_OK;
}
mt_status mt_build_reshape_as(mt_build_call *c) {
  c->out[0] = shaped(c, MT_OP_reshape);
  return MT_OK;
}
mt_status mt_build_expand_as(mt_build_call *c) {
  c->out[0] = shaped(c, MT_OP_expand);
  return MT_OK;
}

/* The bytes of x as another dtype; x itself, with its history, in its own. */
mt_status mt_build_view_bits(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const mt_dtype dtype = (mt_dtype)c->attr[0].i[0];
  if (dtype == x->v.dtype) {
    c->out[0] = mt_c1(c->calc, MT_OP__alias, x);
    return MT_OK;
  }
  MT_TRY(mt_alias_bits(x, dtype, &c->out[0]));
  mt_cown(c->calc, c->out[0]);
  return MT_OK;
}

/* ---- movedim ---- */

/* Dims source[i] go to destination[i], the others stay in order. */
static mt_tensor *moved(mt_calc *c, mt_tensor *x, int n, const int64_t *source,
                        const int64_t *destination) {
  if (!x) return NULL;
  int64_t order[MT_MAX_DIMS];
  uint32_t taken = 0, filled = 0;
  for (int i = 0; i < n; i++) {
    order[destination[i]] = source[i];
    taken |= 1u << source[i];
    filled |= 1u << destination[i];
  }
  for (int from = 0, to = 0; from < x->v.ndim; from++) {
    if (taken >> from & 1u) continue;
    while (filled >> to & 1u) to++;
    order[to++] = from;
  }
  return mt_cpermute(c, x, x->v.ndim, order);
}

mt_status mt_build_movedim(mt_build_call *c) {
  const mt_attr *const from = &c->attr[0], *const to = &c->attr[1];
  if (from->n != to->n) {
    return mt_fail_arg(MT_EARG, 3, "%d dims to move, %d destinations", from->n, to->n);
  }
  const int n = c->in[0]->v.ndim ? from->n : 0;
  c->out[0] = moved(c->calc, c->in[0], n, from->i, to->i);
  return MT_OK;
}

/* ---- unflatten ---- */

mt_status mt_build_unflatten(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const int64_t dim = c->attr[0].i[0];
  mt_attr sizes = c->attr[1];
  if (x->v.ndim == 0) {
    return mt_fail_arg(MT_ESHAPE, 1, "a tensor with dims expected, got shape []");
  }
  const int64_t size = x->v.shape[dim];
  int64_t product = 1, open = -1;
  bool fits = true;
  for (int i = 0; i < sizes.n; i++) {
    if (sizes.i[i] == -1 && open < 0) {
      open = i;
    } else if (sizes.i[i] < 0 ||
               __builtin_mul_overflow(product, sizes.i[i], &product)) {
      fits = false;
    }
  }
  if (fits && open >= 0) {
    fits = product > 0 && size % product == 0;
    if (fits) sizes.i[open] = size / product;
  } else if (fits) {
    fits = product == size;
  }
  if (!fits) {
    return mt_fail_arg(MT_ESHAPE, 3, "dim %d of shape %s does not make %s",
                       (int)dim + 1, mt_view_text(&x->v),
                       mt_shape_text(sizes.n, c->attr[1].i));
  }
  if (x->v.ndim - 1 + sizes.n > MT_MAX_DIMS) {
    return mt_fail_arg(MT_ESHAPE, 3, "more than %d dims", MT_MAX_DIMS);
  }
  int64_t shape[MT_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < x->v.ndim; d++) {
    if (d != dim) {
      shape[n++] = x->v.shape[d];
    } else {
      for (int i = 0; i < sizes.n; i++) shape[n++] = sizes.i[i];
    }
  }
  const mt_attr attr = mt_attr_list(n, shape);
  c->out[0] = mt_c1a(c->calc, MT_OP_reshape, x, 1, &attr);
  return MT_OK;
}

/* ---- as_strided ---- */

mt_status mt_build_as_strided(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const mt_attr *const stride = &c->attr[1];
  for (int d = 0; d < stride->n; d++) {
    if (stride->i[d] < 0) {
      return mt_fail_arg(MT_EARG, 3, "stride[%d] is negative", d + 1);
    }
  }
  if (c->attr[2].n < 0) c->attr[2] = mt_attr_i(x->offset);
  if (c->attr[2].i[0] < 0) return mt_fail_arg(MT_EARG, 4, "offset is negative");
  c->out[0] = mt_c1a(c->calc, MT_OP__as_strided, x, 3, c->attr);
  return MT_OK;
}

/* ---- diagonals ---- */

static mt_tensor *diagonal(mt_calc *c, mt_tensor *x, int64_t offset, int64_t dim1,
                           int64_t dim2) {
  const mt_attr attr[] = {mt_attr_i(offset), mt_attr_i(dim1), mt_attr_i(dim2)};
  return mt_c1a(c, MT_OP_diagonal, x, 3, attr);
}

/* x's last dim on a diagonal of the last two of zeros. */
static mt_tensor *embedded(mt_calc *c, mt_tensor *x, int64_t offset) {
  const int ndim = x->v.ndim + 1;
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, x->v.shape, sizeof shape);
  shape[ndim - 2] = shape[ndim - 1] =
      x->v.shape[ndim - 2] + (offset < 0 ? -offset : offset);
  mt_tensor *const zeros = mt_czeros(c, x->v.dtype, mt_device_of(x), ndim, shape);
  mt_tensor *const place = diagonal(c, zeros, offset, ndim - 2, ndim - 1);
  mt_cinplace(c, MT_OP__copy, 2, (mt_tensor *[]){place, x}, NULL);
  return zeros;
}

static mt_status check_offset(const mt_view *x, int64_t offset, int arg) {
  if (offset > -((int64_t)1 << 31) && offset < (int64_t)1 << 31) return MT_OK;
  return mt_fail_arg(MT_EARG, arg, "offset %lld of a diagonal of shape %s is too large",
                     (long long)offset, mt_view_text(x));
}

mt_status mt_build_diag_embed(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const int64_t offset = c->attr[0].i[0];
  const int ndim = x->v.ndim + 1;
  int64_t to[2];
  if (x->v.ndim == 0 || x->v.ndim == MT_MAX_DIMS) {
    return mt_fail_arg(MT_ESHAPE, 1, "a tensor of 1 to %d dims expected, got shape %s",
                       MT_MAX_DIMS - 1, mt_view_text(&x->v));
  }
  MT_TRY(check_offset(&x->v, offset, 2));
  MT_TRY(mt_cdim_among(&c->attr[1], ndim, &x->v, 3, &to[0]));
  MT_TRY(mt_cdim_among(&c->attr[2], ndim, &x->v, 4, &to[1]));
  if (to[0] == to[1]) {
    return mt_fail_arg(MT_EARG, 4, "dim %d is given twice", (int)to[0] + 1);
  }
  const int64_t from[] = {ndim - 2, ndim - 1};
  c->out[0] = moved(c->calc, embedded(c->calc, x, offset), 2, from, to);
  return MT_OK;
}

mt_status mt_build_diag(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const int64_t offset = c->attr[0].i[0];
  MT_TRY(check_offset(&x->v, offset, 2));
  if (x->v.ndim == 1) {
    c->out[0] = embedded(c->calc, x, offset);
    return MT_OK;
  }
  MT_TRY(mt_check_ndim(x, 1, 2, "a vector or a matrix"));
  c->out[0] = mt_c1(c->calc, MT_OP_clone, diagonal(c->calc, x, offset, 0, 1));
  return MT_OK;
}

mt_status mt_build_diagflat(mt_build_call *c) {
  MT_TRY(check_offset(&c->in[0]->v, c->attr[0].i[0], 2));
  mt_tensor *const x = mt_cflat(c->calc, c->in[0]);
  c->out[0] = x ? embedded(c->calc, x, c->attr[0].i[0]) : NULL;
  return MT_OK;
}

mt_status mt_build_trace(mt_build_call *c) {
  MT_TRY(mt_check_ndim(c->in[0], 1, 2, "a matrix"));
  c->out[0] = mt_c1(c->calc, MT_OP_sum, diagonal(c->calc, c->in[0], 0, 0, 1));
  return MT_OK;
}

/* ---- turns ---- */

static mt_tensor *flipped(mt_calc *c, mt_tensor *x, int n, const int64_t *dim) {
  const mt_attr attr = mt_attr_list(n, dim);
  return mt_c1a(c, MT_OP_flip, x, 1, &attr);
}

mt_status mt_build_rot90(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  if (x->v.ndim < 2) {
    return mt_fail_arg(MT_ESHAPE, 1, "2 dims or more expected, got shape %s",
                       mt_view_text(&x->v));
  }
  const int64_t turns = (c->attr[0].i[0] % 4 + 4) % 4;
  const mt_attr *const given = &c->attr[1];
  if (given->n >= 0 && given->n != 2) {
    return mt_fail_arg(MT_EARG, 3, "2 dims expected, got %d", given->n);
  }
  const int64_t first[] = {0, 1}, *const dim = given->n < 0 ? first : given->i;
  mt_tensor *y = x;
  if (turns == 0) {
    y = mt_c1(c->calc, MT_OP_clone, x);
  } else if (turns == 2) {
    y = flipped(c->calc, x, 2, dim);
  } else {
    y = flipped(c->calc, x, 1, turns == 1 ? &dim[1] : &dim[0]);
    y = mt_ctranspose(c->calc, y, (int)dim[0], (int)dim[1]);
  }
  c->out[0] = y;
  return MT_OK;
}

static mt_status flip_dim(mt_build_call *c, int64_t dim) {
  if (c->in[0]->v.ndim <= dim) {
    return mt_fail_arg(MT_ESHAPE, 1, "%d dims or more expected, got shape %s",
                       (int)dim + 1, mt_view_text(&c->in[0]->v));
  }
  c->out[0] = flipped(c->calc, c->in[0], 1, &dim);
  return MT_OK;
}

mt_status mt_build_flipud(mt_build_call *c) { return flip_dim(c, 0); }
mt_status mt_build_fliplr(mt_build_call *c) { return flip_dim(c, 1); }

/* ---- a least number of dims, and joins that need it ---- */

static mt_tensor *at_least(mt_calc *c, mt_tensor *x, int ndim) {
  if (!x || x->v.ndim >= ndim) return x;
  const int64_t n = x->v.ndim > 0 ? x->v.shape[0] : 1;
  int64_t shape[] = {n, 1, 1};
  if (x->v.ndim == 2) {
    shape[1] = x->v.shape[1];
  } else if (ndim > 1) { /* a vector is a row */
    shape[0] = 1;
    shape[1] = n;
  }
  const mt_attr attr = mt_attr_list(ndim, shape);
  return mt_c1a(c, MT_OP_reshape, x, 1, &attr);
}

mt_status mt_build_atleast_1d(mt_build_call *c) {
  c->out[0] = at_least(c->calc, c->in[0], 1);
  return MT_OK;
}
mt_status mt_build_atleast_2d(mt_build_call *c) {
  c->out[0] = at_least(c->calc, c->in[0], 2);
  return MT_OK;
}
mt_status mt_build_atleast_3d(mt_build_call *c) {
  c->out[0] = at_least(c->calc, c->in[0], 3);
  return MT_OK;
}

/* A vector as a column. */
static mt_tensor *column(mt_calc *c, mt_tensor *x) {
  if (!x || x->v.ndim > 1) return x;
  const int64_t shape[] = {mt_numel(&x->v), 1};
  return mt_creshape(c, x, 2, shape);
}

static mt_status join(mt_build_call *c, int ndim, int64_t dim) {
  mt_tensor **const x = malloc((size_t)c->nin * sizeof *x);
  if (!x) return mt_fail(MT_EMEMORY, "out of memory");
  for (int i = 0; i < c->nin; i++) {
    x[i] = ndim > 0 ? at_least(c->calc, c->in[i], ndim) : column(c->calc, c->in[i]);
  }
  if (c->calc->status == MT_OK) c->out[0] = mt_ccat(c->calc, c->nin, x, dim);
  free(x);
  return MT_OK;
}

mt_status mt_build_hstack(mt_build_call *c) {
  return join(c, 1, c->in[0]->v.ndim < 2 ? 0 : 1);
}
mt_status mt_build_vstack(mt_build_call *c) { return join(c, 2, 0); }
mt_status mt_build_dstack(mt_build_call *c) { return join(c, 3, 2); }
mt_status mt_build_column_stack(mt_build_call *c) { return join(c, 0, 1); }
