/* runtime/autograd/build_arrange.c -- composite ops that arrange elements anew: tril and
** triu, padding, windows as columns and back, pixel_shuffle, block_diag, cartesian_prod. */
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

static mt_status too_many_dims(int arg, const mt_tensor *x) {
  return mt_fail_arg(MT_ESHAPE, arg, "shape %s has too many dims", mt_view_text(&x->v));
}

/* start, start + 1, ...: n of them, on x's device. */
static mt_tensor *range(mt_calc *c, const mt_tensor *x, int64_t start, int64_t n) {
  return mt_ccount(c, mt_device_of(x), 1, &n, start);
}

/* ---- triangles ---- */

/* x where test(column, row + diagonal), else 0. */
static mt_status triangle(mt_build_call *call, mt_op test) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  const int64_t diagonal = call->attr[0].i[0];
  if (x->v.ndim < 2) {
    return mt_fail_arg(MT_ESHAPE, 1, "2 dims or more expected, got shape %s",
                       mt_view_text(&x->v));
  }
  if (diagonal <= -((int64_t)1 << 62) || diagonal >= (int64_t)1 << 62) {
    return mt_fail_arg(MT_EARG, 2, "diagonal %lld is too large", (long long)diagonal);
  }
  const int64_t rows = x->v.shape[x->v.ndim - 2], column[] = {rows, 1};
  mt_tensor *const row = mt_creshape(c, range(c, x, diagonal, rows), 2, column);
  mt_tensor *const across = range(c, x, 0, x->v.shape[x->v.ndim - 1]);
  mt_tensor *const zero = mt_ccast(c, mt_cnum(c, 0), x->v.dtype);
  call->out[0] = mt_c3(c, MT_OP_where, mt_c2(c, test, across, row), x, zero);
  return MT_OK;
}

mt_status mt_build_tril(mt_build_call *c) { return triangle(c, MT_OP_le); }
mt_status mt_build_triu(mt_build_call *c) { return triangle(c, MT_OP_ge); }

/* ---- pad ---- */

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* How far x grows before and behind along d, from a list that begins with the last dim. */
static int64_t before(const mt_attr *sizes, int ndim, int d) {
  const int at = 2 * (ndim - 1 - d);
  return at < sizes->n ? sizes->i[at] : 0;
}
static int64_t behind(const mt_attr *sizes, int ndim, int d) {
  const int at = 2 * (ndim - 1 - d) + 1;
  return at < sizes->n ? sizes->i[at] : 0;
}

static mt_status check_pad(const mt_view *x, const mt_attr *sizes, int64_t mode) {
  if (sizes->n % 2 != 0 || sizes->n > 2 * x->ndim) {
    return mt_fail_arg(MT_EARG, 2,
                       "%d sizes for shape %s: two for each dim from the last",
                       sizes->n, mt_view_text(x));
  }
  for (int d = 0; d < x->ndim; d++) {
    const int64_t n = x->shape[d], lo = before(sizes, x->ndim, d),
                  hi = behind(sizes, x->ndim, d);
    const int64_t least = mode == CONSTANT ? -n : 0;
    const int64_t most = mode == REFLECT             ? n - 1
                         : mode == CIRCULAR          ? n
                         : n > 0 || mode == CONSTANT ? (int64_t)1 << 40
                                                     : 0;
    if ((lo == 0 && hi == 0) ||
        (lo >= least && hi >= least && lo <= most && hi <= most && n + lo + hi >= 0)) {
      continue;
    }
    return mt_fail_arg(MT_EARG, 2,
                       "dim %d of shape %s cannot be padded by %lld and %lld", d + 1,
                       mt_view_text(x), (long long)lo, (long long)hi);
  }
  return MT_OK;
}

/* A frame of value around x; where sizes are negative, x is cut. */
static mt_tensor *framed(mt_calc *c, mt_tensor *x, const mt_attr *sizes,
                         const mt_attr *value) {
  const int ndim = x->v.ndim;
  int64_t shape[MT_MAX_DIMS] = {0};
  mt_tensor *inner = x;
  for (int d = 0; d < ndim; d++) {
    const int64_t lo = before(sizes, ndim, d), hi = behind(sizes, ndim, d);
    const int64_t cut = lo < 0 ? -lo : 0, end = hi < 0 ? -hi : 0;
    shape[d] = x->v.shape[d] + lo + hi;
    if (cut + end > 0 && cut + end <= x->v.shape[d]) {
      inner = mt_cpart(c, inner, d, cut, x->v.shape[d] - cut - end);
    }
  }
  mt_tensor *const y = mt_cfull(c, x->v.dtype, mt_device_of(x), ndim, shape, *value);
  mt_tensor *place = y;
  for (int d = 0; d < ndim && inner; d++) {
    const int64_t lo = before(sizes, ndim, d), from = lo > 0 ? lo : 0;
    place = mt_cpart(c, place, d, from, inner->v.shape[d]);
  }
  mt_cinplace(c, MT_OP__copy, 2, (mt_tensor *[]){place, inner}, NULL);
  return y;
}

/* Elements of x itself, lo before and hi behind, along d. */
static mt_tensor *continued(mt_calc *c, mt_tensor *x, int d, int64_t lo, int64_t hi,
                            int64_t mode) {
  if (!x || (lo == 0 && hi == 0)) return x;
  const int64_t n = x->v.shape[d];
  mt_tensor *at = range(c, x, -lo, n + lo + hi);
  if (mode == REFLECT) { /* at 0, then at n - 1 */
    mt_tensor *const last = mt_cint(c, n - 1);
    at = mt_c2(c, MT_OP_sub, last, mt_c1(c, MT_OP_abs, at));
    at = mt_c2(c, MT_OP_sub, last, mt_c1(c, MT_OP_abs, at));
  } else if (mode == REPLICATE) {
    const mt_attr bounds[] = {mt_attr_i(0), mt_attr_i(n - 1)};
    at = mt_c1a(c, MT_OP_clamp, at, 2, bounds);
  } else {
    at = mt_c2(c, MT_OP_remainder, at, mt_cint(c, n));
  }
  at = mt_c2(c, MT_OP_add, at, mt_cint(c, 1));
  return mt_calong(c, MT_OP_index_select, x, d, at, NULL);
}

mt_status mt_build_pad(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  const mt_attr *const sizes = &c->attr[0];
  const int64_t mode = c->attr[1].i[0];
  MT_TRY(check_pad(&x->v, sizes, mode));
  if (mode == CONSTANT) {
    MT_TRY(mt_check_holds(x->v.dtype, &c->attr[2], 4));
    c->out[0] = framed(c->calc, x, sizes, &c->attr[2]);
    return MT_OK;
  }
  mt_tensor *y = x;
  for (int d = 0; d < x->v.ndim; d++) {
    y = continued(c->calc, y, d, before(sizes, x->v.ndim, d),
                  behind(sizes, x->v.ndim, d), mode);
  }
  c->out[0] = y == x ? mt_c1(c->calc, MT_OP_clone, x) : y;
  return MT_OK;
}

/* ---- windows as columns ---- */

typedef struct windows {
  int64_t kernel[2], dilation[2], padding[2], stride[2];
} windows;

static mt_status read_windows(const mt_attr *attr, int arg, windows *w) {
  int64_t *const field[] = {w->kernel, w->dilation, w->padding, w->stride};
  static const char *const name[] = {"kernel", "dilation", "padding", "stride"};
  for (int k = 0; k < 4; k++) {
    for (int i = 0; i < 2; i++) {
      field[k][i] = attr[k].i[i];
      const int64_t least = k == 2 ? 0 : 1;
      if (field[k][i] < least || field[k][i] > (int64_t)1 << 30) {
        return mt_fail_arg(MT_EARG, arg + k, "%s %lld: %d or more", name[k],
                           (long long)field[k][i], (int)least);
      }
    }
  }
  return MT_OK;
}

/* How many windows fit a side; less than 1: none. */
static int64_t places(const windows *w, int i, int64_t size) {
  const int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1;
  const int64_t room = size + 2 * w->padding[i] - reach;
  return room < 0 ? 0 : room / w->stride[i] + 1;
}

/* (N, C, H, W), already padded, to (N, C kh kw, OH OW). */
static mt_tensor *columns(mt_calc *c, mt_tensor *x, const windows *w) {
  if (!x) return NULL;
  const int64_t n = x->v.shape[0], channels = x->v.shape[1];
  for (int i = 0; i < 2; i++) {
    const int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1;
    const mt_attr attr[] = {mt_attr_i(2 + i), mt_attr_i(reach),
                            mt_attr_i(w->stride[i])};
    x = mt_c1a(c, MT_OP_unfold, x, 3, attr);
    const mt_attr part[] = {mt_attr_i(4 + i), mt_attr_i(0), mt_attr_i(w->kernel[i]),
                            mt_attr_i(w->dilation[i])};
    if (w->dilation[i] > 1) x = mt_c1a(c, MT_OP__slice, x, 4, part);
  }
  static const int64_t order[] = {0, 1, 4, 5, 2, 3};
  x = mt_cpermute(c, x, 6, order);
  if (!x) return NULL;
  const int64_t shape[] = {n, channels * x->v.shape[2] * x->v.shape[3],
                           x->v.shape[4] * x->v.shape[5]};
  return mt_creshape(c, x, 3, shape);
}

mt_status mt_build_im2col(mt_build_call *c) {
  mt_tensor *x = c->in[0];
  windows w;
  MT_TRY(read_windows(c->attr, 2, &w));
  const bool batch = x->v.ndim == 4;
  if (!batch) MT_TRY(mt_check_ndim(x, 1, 3, "(N, C, H, W) or (C, H, W)"));
  const int64_t *const size = x->v.shape + x->v.ndim - 2;
  if (places(&w, 0, size[0]) < 1 || places(&w, 1, size[1]) < 1) {
    return mt_fail_arg(MT_EARG, 2, "no window of %lld x %lld fits shape %s",
                       (long long)w.kernel[0], (long long)w.kernel[1],
                       mt_view_text(&x->v));
  }
  const int64_t shape[] = {1, x->v.shape[0], size[0], size[1]};
  if (!batch) x = mt_creshape(c->calc, x, 4, shape);
  if (w.padding[0] + w.padding[1] > 0 && x) {
    const int64_t p[] = {w.padding[1], w.padding[1], w.padding[0], w.padding[0]};
    const mt_attr sizes = mt_attr_list(4, p), zero = mt_attr_f(0);
    x = framed(c->calc, x, &sizes, &zero);
  }
  mt_tensor *y = columns(c->calc, x, &w);
  if (!batch && y) y = mt_creshape(c->calc, y, 2, y->v.shape + 1);
  c->out[0] = y;
  return MT_OK;
}

/* Each column's elements are added where im2col took them from. */
mt_status mt_build_fold(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0];
  const int64_t *const size = call->attr[0].i;
  windows w;
  MT_TRY(read_windows(call->attr + 1, 3, &w));
  const bool batch = x->v.ndim == 3;
  if (!batch) MT_TRY(mt_check_ndim(x, 1, 2, "(N, C kh kw, L) or (C kh kw, L)"));
  for (int i = 0; i < 2; i++) {
    if (size[i] < 1 || size[i] > (int64_t)1 << 30) {
      return mt_fail_arg(MT_EARG, 2, "size %lld: 1 or more", (long long)size[i]);
    }
  }
  const int64_t rows = x->v.shape[x->v.ndim - 2], count = x->v.shape[x->v.ndim - 1];
  const int64_t area = w.kernel[0] * w.kernel[1];
  const int64_t want = places(&w, 0, size[0]) * places(&w, 1, size[1]);
  if (rows % area != 0 || count != want || want == 0) {
    return mt_fail_arg(MT_ESHAPE, 1,
                       "shape %s: a multiple of %lld rows and %lld columns expected",
                       mt_view_text(&x->v), (long long)area, (long long)want);
  }
  const int64_t n = batch ? x->v.shape[0] : 1, channels = rows / area;
  const int64_t high = size[0] + 2 * w.padding[0], wide = size[1] + 2 * w.padding[1];
  const int64_t plane[] = {1, 1, high, wide}, all = area * count;
  const int64_t flat[] = {n * channels, high * wide}, source[] = {n * channels, all};
  mt_tensor *at = mt_creshape(c, range(c, x, 1, high * wide), 4, plane);
  at = mt_creshape(c, columns(c, at, &w), 1, &all);
  mt_tensor *const zeros = mt_czeros(c, x->v.dtype, mt_device_of(x), 2, flat);
  mt_tensor *const columns_of = mt_creshape(c, x, 2, source);
  const int64_t shape[] = {n, channels, high, wide};
  mt_tensor *y = mt_calong(c, MT_OP_index_add, zeros, 1, at, columns_of);
  y = mt_creshape(c, y, 4, shape);
  for (int i = 0; i < 2; i++) {
    if (w.padding[i] > 0) y = mt_cpart(c, y, 2 + i, w.padding[i], size[i]);
  }
  if (!batch && y) y = mt_creshape(c, y, 3, y->v.shape + 1);
  call->out[0] = y;
  return MT_OK;
}

/* ---- pixel_shuffle ---- */

/* shape: the dims before the last three, then tail. */
static mt_tensor *with_tail(mt_calc *c, mt_tensor *x, int lead, int n,
                            const int64_t *tail) {
  if (!x) return NULL;
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, x->v.shape, (size_t)lead * sizeof *shape);
  memcpy(shape + lead, tail, (size_t)n * sizeof *shape);
  return mt_creshape(c, x, lead + n, shape);
}

static mt_tensor *reordered(mt_calc *c, mt_tensor *x, int lead, const int64_t *order) {
  int64_t all[MT_MAX_DIMS];
  for (int d = 0; d < lead; d++) all[d] = d;
  for (int d = 0; d < 5; d++) all[lead + d] = lead + order[d];
  return mt_cpermute(c, x, lead + 5, all);
}

static mt_status check_pixels(const mt_build_call *c, int64_t *factor) {
  const mt_tensor *const x = c->in[0];
  *factor = c->attr[0].i[0];
  if (*factor < 1 || *factor > 1 << 15) {
    return mt_fail_arg(MT_EARG, 2, "factor %lld: 1 or more", (long long)*factor);
  }
  if (x->v.ndim + 2 > MT_MAX_DIMS) return too_many_dims(1, x);
  if (x->v.ndim >= 3) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, 1, "(..., C, H, W) expected, got shape %s",
                     mt_view_text(&x->v));
}

mt_status mt_build_pixel_shuffle(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  int64_t r;
  MT_TRY(check_pixels(c, &r));
  const int lead = x->v.ndim - 3;
  const int64_t *const s = x->v.shape + lead;
  if (s[0] % (r * r) != 0) {
    return mt_fail_arg(MT_ESHAPE, 1,
                       "%lld channels of shape %s are no multiple of %lld",
                       (long long)s[0], mt_view_text(&x->v), (long long)(r * r));
  }
  const int64_t channels = s[0] / (r * r), apart[] = {channels, r, r, s[1], s[2]};
  const int64_t whole[] = {channels, s[1] * r, s[2] * r};
  static const int64_t order[] = {0, 3, 1, 4, 2};
  mt_tensor *const y =
      reordered(c->calc, with_tail(c->calc, x, lead, 5, apart), lead, order);
  c->out[0] = with_tail(c->calc, y, lead, 3, whole);
  return MT_OK;
}

mt_status mt_build_pixel_unshuffle(mt_build_call *c) {
  mt_tensor *const x = c->in[0];
  int64_t r;
  MT_TRY(check_pixels(c, &r));
  const int lead = x->v.ndim - 3;
  const int64_t *const s = x->v.shape + lead;
  if (s[1] % r != 0 || s[2] % r != 0) {
    return mt_fail_arg(MT_ESHAPE, 1, "height and width of shape %s: multiples of %lld",
                       mt_view_text(&x->v), (long long)r);
  }
  const int64_t apart[] = {s[0], s[1] / r, r, s[2] / r, r};
  const int64_t whole[] = {s[0] * r * r, s[1] / r, s[2] / r};
  static const int64_t order[] = {0, 2, 4, 1, 3};
  mt_tensor *const y =
      reordered(c->calc, with_tail(c->calc, x, lead, 5, apart), lead, order);
  c->out[0] = with_tail(c->calc, y, lead, 3, whole);
  return MT_OK;
}

/* ---- block_diag ---- */

/* x as a matrix with zeros before and behind its columns. */
static mt_tensor *block(mt_calc *c, mt_tensor *x, int64_t lo, int64_t hi) {
  const int64_t rows = x->v.shape[0];
  const int64_t left[] = {rows, lo}, right[] = {rows, hi};
  mt_tensor *const parts[] = {mt_czeros(c, x->v.dtype, mt_device_of(x), 2, left), x,
                              mt_czeros(c, x->v.dtype, mt_device_of(x), 2, right)};
  return c->status == MT_OK ? mt_ccat(c, 3, parts, 1) : NULL;
}

mt_status mt_build_block_diag(mt_build_call *c) {
  mt_tensor **const x = calloc((size_t)c->nin, sizeof *x);
  if (!x) return mt_fail(MT_EMEMORY, "out of memory");
  int64_t width = 0, at = 0;
  mt_status status = MT_OK;
  for (int i = 0; i < c->nin && status == MT_OK; i++) {
    const mt_view *const v = &c->in[i]->v;
    const int64_t shape[] = {1, mt_numel(v)};
    x[i] = v->ndim < 2 ? mt_creshape(c->calc, c->in[i], 2, shape) : c->in[i];
    if (v->ndim > 2) {
      status = mt_fail_arg(MT_ESHAPE, 1, "tensor %d has shape %s, want at most 2 dims",
                           i + 1, mt_view_text(v));
    } else if (x[i] && __builtin_add_overflow(width, x[i]->v.shape[1], &width)) {
      status = mt_fail_arg(MT_ESHAPE, 1, "the result is too large");
    }
  }
  for (int i = 0; i < c->nin && status == MT_OK && c->calc->status == MT_OK; i++) {
    const int64_t columns = x[i]->v.shape[1];
    x[i] = block(c->calc, x[i], at, width - at - columns);
    at += columns;
  }
  if (status == MT_OK && c->calc->status == MT_OK) {
    c->out[0] = mt_ccat(c->calc, c->nin, x, 0);
  }
  free(x);
  return status;
}

/* ---- cartesian_prod ---- */

/* MT_EMEMORY if the result, and its columns, which are made before it, would not fit:
** to find that out by making them may take minutes. */
static mt_status check_product(const mt_build_call *c, int64_t rows) {
  const mt_memory m = mt_memory_stats(mt_device_of(c->in[0]));
  size_t width = 1;
  for (int i = 0; i < c->nin; i++) {
    const size_t size = mt_dtype_size(c->in[i]->v.dtype);
    if (size > width) width = size;
  }
  const double bytes = 2 * (double)rows * c->nin * (double)width;
  if (bytes <= (double)m.limit_bytes) return MT_OK;
  return mt_fail(MT_EMEMORY,
                 "the result of shape [%lld, %d] takes %.3g GiB with its columns, the "
                 "limit is %.3g",
                 (long long)rows, c->nin, bytes * 0x1p-30,
                 (double)m.limit_bytes * 0x1p-30);
}

mt_status mt_build_cartesian_prod(mt_build_call *c) {
  int64_t total = 1, left = 1;
  for (int i = 0; i < c->nin; i++) {
    const mt_view *const v = &c->in[i]->v;
    if (v->ndim != 1) {
      return mt_fail_arg(MT_ESHAPE, 1, "tensor %d has shape %s, want a vector", i + 1,
                         mt_view_text(v));
    }
    if (__builtin_mul_overflow(total, v->shape[0], &total)) {
      return mt_fail_arg(MT_ESHAPE, 1, "the result is too large");
    }
  }
  if (c->nin == 1) {
    c->out[0] = c->in[0];
    return MT_OK;
  }
  MT_TRY(check_product(c, total));
  mt_tensor **const x = malloc((size_t)c->nin * sizeof *x);
  if (!x) return mt_fail(MT_EMEMORY, "out of memory");
  for (int i = 0; i < c->nin; i++) { /* the last changes fastest */
    const int64_t n = c->in[i]->v.shape[0];
    const int64_t right = total == 0 ? 0 : total / left / n;
    const int64_t middle[] = {1, n, 1}, wide[] = {total == 0 ? 0 : left, n, right};
    x[i] = mt_cexpand(c->calc, mt_creshape(c->calc, c->in[i], 3, middle), 3, wide);
    x[i] = mt_creshape(c->calc, x[i], 1, &total);
    left *= n;
  }
  const mt_attr dim = mt_attr_i(1);
  if (c->calc->status == MT_OK) {
    c->out[0] = mt_ca(c->calc, MT_OP_stack, c->nin, x, 0, 1, &dim, NULL);
  }
  free(x);
  return MT_OK;
}
