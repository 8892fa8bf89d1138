/* runtime/autograd/build_unique.c -- composite ops that count: unique,
** unique_consecutive, bincount, histc. */
#include <inttypes.h>
#include <math.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* How often each of 1 .. n occurs, or the sums of the weights. */
static mt_tensor *counted(mt_calc *c, mt_tensor *index, int64_t n, mt_tensor *weights) {
  if (!index) return NULL;
  const mt_dtype dtype = weights ? weights->v.dtype : MT_I64;
  mt_tensor *const one =
      weights ? weights
              : mt_cexpand(c, mt_cones(c, MT_I64, mt_device_of(index), 0, NULL), 1,
                           index->v.shape);
  return mt_calong(c, MT_OP_scatter_add,
                   mt_czeros(c, dtype, mt_device_of(index), 1, &n), 0, index, one);
}

/* ---- unique ---- */

/* Does an element (or row) differ from the one before? true for the first. like_nan: NaN
** does not differ from NaN. */
static mt_tensor *changes(mt_calc *c, mt_tensor *x, bool like_nan) {
  if (!x) return NULL;
  const int64_t n = x->v.shape[0], one = 1;
  mt_tensor *const a = mt_cpart(c, x, 0, 1, n - 1), *const b =
                                                        mt_cpart(c, x, 0, 0, n - 1);
  mt_tensor *differ = mt_c2(c, MT_OP_ne, a, b);
  if (like_nan && MT_IS_FLOAT(x->v.dtype))
    differ = mt_c2(c, MT_OP_logical_and, differ,
                   mt_c2(c, MT_OP_logical_or, mt_ceq_self(c, a), mt_ceq_self(c, b)));
  if (x->v.ndim > 1) differ = mt_creduce(c, MT_OP_any, differ, 1, false);
  return mt_cjoin(c, mt_cones(c, MT_BOOL, mt_device_of(x), 1, &one), differ, 0);
}

/* The order of rows by group, if given, those alike by their first elements, then by their
** second, ...: sorted by each in turn, the first one last. */
static mt_tensor *order_by_columns(mt_calc *c, mt_tensor *rows, mt_tensor *group) {
  if (!rows) return NULL;
  mt_tensor *order = mt_ccount(c, mt_device_of(rows), 1, rows->v.shape, 1);
  for (int64_t j = rows->v.shape[1] - 1; j >= (group ? -1 : 0); j--) {
    mt_tensor *const key = j < 0 ? group : mt_cpick(c, rows, 1, j, false);
    mt_tensor *by;
    mt_csorted(c, mt_calong(c, MT_OP_index_select, key, 0, order, NULL), 0, false, &by);
    order = mt_calong(c, MT_OP_index_select, order, 0, by, NULL);
  }
  return order;
}

/* Positions of the rows, in order and of groups that count from 1, whose group holds rows
** that differ; NULL: there are none. */
static mt_tensor *in_mixed_groups(mt_calc *c, mt_tensor *rows, mt_tensor *group,
                                  int64_t groups) {
  mt_tensor *const same_group = mt_c1(c, MT_OP_logical_not, changes(c, group, false));
  mt_tensor *const at =
      mt_cpositions(c, mt_c2(c, MT_OP_logical_and, same_group, changes(c, rows, true)));
  if (!at || at->v.shape[0] == 0) return NULL;
  const mt_device device = mt_device_of(group);
  mt_tensor *const mixed =
      mt_calong(c, MT_OP_index_copy, mt_czeros(c, MT_BOOL, device, 1, &groups), 0,
                mt_calong(c, MT_OP_index_select, group, 0, at, NULL),
                mt_cones(c, MT_BOOL, device, 1, at->v.shape));
  return mt_cpositions(c, mt_calong(c, MT_OP_index_select, mixed, 0, group, NULL));
}

#define FIRST_COLUMNS 8

/* The order of rows (n, m) by their elements from the first on. Some columns at a time, each
** time twice as many, and only the rows that are alike so far but not altogether. */
static mt_tensor *row_order(mt_calc *c, mt_tensor *rows) {
  const int64_t n = rows->v.shape[0], m = rows->v.shape[1], one = 1;
  int64_t k = m < FIRST_COLUMNS ? m : FIRST_COLUMNS;
  mt_tensor *part = mt_cpart(c, rows, 1, 0, k);
  mt_tensor *order = order_by_columns(c, part, NULL), *begin = NULL;
  if (k < m)
    begin = changes(c, mt_calong(c, MT_OP_index_select, part, 0, order, NULL), true);
  while (k < m && c->status == MT_OK) {
    mt_tensor *const next =
        mt_cjoin(c, mt_cpart(c, begin, 0, 1, n - 1),
                 mt_cones(c, MT_BOOL, mt_device_of(rows), 1, &one), 0);
    mt_tensor *const alone = mt_c2(c, MT_OP_logical_and, begin, next);
    mt_tensor *at = mt_cpositions(c, mt_c1(c, MT_OP_logical_not, alone));
    if (!at || at->v.shape[0] == 0) break;
    const mt_attr first = mt_attr_i(0);
    const int64_t w = m - k < k ? m - k : k;
    mt_tensor *group = mt_calong(
        c, MT_OP_index_select, mt_c1a(c, MT_OP_cumsum, begin, 1, &first), 0, at, NULL);
    mt_tensor *row = mt_calong(c, MT_OP_index_select, order, 0, at, NULL);
    if (k > FIRST_COLUMNS) { /* before that, more columns cost less than the look */
      mt_tensor *const rest = mt_calong(c, MT_OP_index_select,
                                        mt_cpart(c, rows, 1, k, m - k), 0, row, NULL);
      mt_tensor *const mixed = in_mixed_groups(c, rest, group, n);
      if (!mixed) break;
      at = mt_calong(c, MT_OP_index_select, at, 0, mixed, NULL);
      group = mt_calong(c, MT_OP_index_select, group, 0, mixed, NULL);
      row = mt_calong(c, MT_OP_index_select, row, 0, mixed, NULL);
    }
    part = mt_calong(c, MT_OP_index_select, mt_cpart(c, rows, 1, k, w), 0, row, NULL);
    mt_tensor *const by = order_by_columns(c, part, group);
    part = mt_calong(c, MT_OP_index_select, part, 0, by, NULL);
    order = mt_calong(c, MT_OP_index_copy, order, 0, at,
                      mt_calong(c, MT_OP_index_select, row, 0, by, NULL));
    begin = mt_calong(
        c, MT_OP_index_copy, begin, 0, at,
        mt_c2(c, MT_OP_logical_or, changes(c, part, true), changes(c, group, false)));
    k += w;
  }
  return order;
}

/* The distances of the beginnings `at`, the last one's to n. */
static mt_tensor *lengths(mt_calc *c, mt_tensor *at, int64_t n) {
  if (!at) return NULL;
  const int64_t count = at->v.shape[0], one = 1;
  mt_tensor *const end = mt_ccount(c, mt_device_of(at), 1, &one, n + 1);
  mt_tensor *const next = mt_cjoin(c, mt_cpart(c, at, 0, 1, count - 1), end, 0);
  return mt_c2(c, MT_OP_sub, next, at);
}

/* What the call works on: (n) or, with a dim, (n, elements of a slice). */
typedef struct slices {
  mt_tensor *x;
  int64_t dim, n;
  bool whole; /* slices, not elements */
} slices;

static mt_status slices_of(mt_build_call *call, slices *s) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0];
  s->dim = 0;
  s->whole = call->attr[2].n >= 0 && x->v.ndim > 0;
  if (!s->whole) {
    s->x = mt_cflat(c, x);
  } else {
    MT_TRY(mt_cdim(&call->attr[2], &x->v, 4, &s->dim));
    const int64_t n = x->v.shape[s->dim];
    x = mt_ctranspose(c, x, 0, (int)s->dim);
    const int64_t shape[] = {n, n > 0 ? mt_numel(&call->in[0]->v) / n : 1};
    if (n == 0 && mt_numel(&call->in[0]->v) == 0) { /* nothing to compare */
      s->x = x, s->n = 0;
      return MT_OK;
    }
    s->x = mt_creshape(c, x, 2, shape);
  }
  s->n = s->x ? s->x->v.shape[0] : 0;
  return MT_OK;
}

/* Slices (count, ...) back to the shape of x but for its dim. */
static mt_tensor *restored(mt_build_call *call, const slices *s, mt_tensor *y) {
  if (!s->whole || !y) return y;
  const mt_view *x = &call->in[0]->v;
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = x->shape[d];
  shape[s->dim] = x->shape[0];
  shape[0] = y->v.shape[0];
  return mt_ctranspose(call->calc, mt_creshape(call->calc, y, x->ndim, shape), 0,
                       (int)s->dim);
}

#define MANY 16384 /* elements that are worth a look at their range */

/* *lo: the smallest of x, *range: how far the largest lies from it. False: not worth a
** look; *range is the largest number. */
static bool find_range(mt_calc *c, mt_tensor *x, int64_t *lo, uint64_t *range) {
  *lo = 0, *range = UINT64_MAX;
  if (x->v.shape[0] < MANY || !MT_IS_INT(x->v.dtype)) return false;
  *lo = mt_citem(c, mt_c1(c, MT_OP_amin, x), NULL);
  *range = (uint64_t)mt_citem(c, mt_c1(c, MT_OP_amax, x), NULL) - (uint64_t)*lo;
  return true;
}

/* x - lo and x + lo, in int64. */
static mt_tensor *less(mt_calc *c, mt_tensor *x, int64_t lo) {
  x = mt_cas(c, x, MT_I64);
  return lo == 0 ? x : mt_c2(c, MT_OP_sub, x, mt_cint(c, lo));
}
static mt_tensor *plus(mt_calc *c, mt_tensor *x, int64_t lo) {
  x = mt_cas(c, x, MT_I64);
  return lo == 0 ? x : mt_c2(c, MT_OP_add, x, mt_cint(c, lo));
}

/* Integers less their smallest, in the narrowest dtype: their keys take fewer passes.
** *bits: that they need, 0: all. */
static mt_tensor *narrowed(mt_calc *c, mt_tensor *x, int64_t lo, uint64_t range,
                           int *bits) {
  static const mt_dtype narrow[] = {MT_U8, MT_I16, MT_I32, MT_I64};
  *bits = 1;
  while (range >> *bits) ++*bits;
  const int i = *bits <= 8 ? 0 : *bits <= 15 ? 1 : *bits <= 31 ? 2 : 3;
  return mt_cas(c, less(c, x, lo), narrow[i]);
}

/* Which of the `size` values from lo on occur in x, by a table of them; the outputs that
** are not NULL. */
static mt_tensor *by_table(mt_calc *c, mt_tensor *x, int64_t lo, int64_t size,
                           mt_tensor **inverse, mt_tensor **count) {
  mt_tensor *const at = less(c, x, lo - 1); /* from 1 */
  if (!at) return NULL;
  const mt_device device = mt_device_of(at);
  mt_tensor *const table =
      count ? counted(c, at, size, NULL)
            : mt_calong(
                  c, MT_OP__scatter, mt_czeros(c, MT_BOOL, device, 1, &size), 0, at,
                  mt_cexpand(c, mt_cones(c, MT_BOOL, device, 0, NULL), 1, at->v.shape));
  mt_tensor *const found = mt_cpositions(c, table);
  if (count) *count = mt_calong(c, MT_OP_index_select, table, 0, found, NULL);
  if (inverse) {
    const mt_attr first = mt_attr_i(0);
    mt_tensor *const rank =
        mt_c1a(c, MT_OP_cumsum, mt_cas(c, table, MT_BOOL), 1, &first);
    *inverse = mt_calong(c, MT_OP_index_select, rank, 0, at, NULL);
  }
  return plus(c, found, lo - 1);
}

static mt_status unique(mt_build_call *call, bool sorting) {
  mt_calc *const c = call->calc;
  const bool inverse = call->attr[0].i[0] != 0, counts = call->attr[1].i[0] != 0;
  slices s;
  int64_t lo = 0;
  uint64_t range = 0;
  MT_TRY(slices_of(call, &s));
  if (!s.x) return MT_OK;
  const mt_device device = mt_device_of(s.x);
  mt_tensor *y = s.x, *to = NULL, *count = NULL, *order = NULL;
  if (s.n == 0) {
    y = s.whole ? call->in[0] : s.x;
    to = count = mt_czeros(c, MT_I64, device, 1, &s.n);
  } else if (sorting && !s.whole && find_range(c, s.x, &lo, &range) &&
             range < (uint64_t)s.n) {
    y = by_table(c, s.x, lo, (int64_t)range + 1, inverse ? &to : NULL,
                 counts ? &count : NULL);
    y = mt_cas(c, y, s.x->v.dtype);
  } else {
    if (sorting && s.whole) {
      order = row_order(c, s.x);
      y = mt_calong(c, MT_OP_index_select, s.x, 0, order, NULL);
    } else if (sorting) {
      int bits = 0;
      mt_tensor *x = s.x;
      if (range >> 48 || mt_dtype_size(x->v.dtype) < 4)
        lo = 0;
      else
        x = narrowed(c, x, lo, range, &bits);
      y = inverse ? mt_csorted(c, x, 0, false, &order)
                  : mt_csorted_values(c, x, 0, bits);
    }
    mt_tensor *const begin = changes(c, y, false), *const at = mt_cpositions(c, begin);
    y = mt_calong(c, MT_OP_index_select, y, 0, at, NULL);
    if (lo != 0) y = plus(c, y, lo);
    y = restored(call, &s, mt_cas(c, y, s.x->v.dtype));
    if (counts) count = lengths(c, at, s.n);
    if (inverse) {
      const mt_attr first = mt_attr_i(0);
      to = mt_c1a(c, MT_OP_cumsum, begin, 1, &first);
      if (sorting)
        to = mt_calong(c, MT_OP__scatter, mt_czeros(c, MT_I64, device, 1, &s.n), 0,
                       order, to);
    }
  }
  int n = 0;
  call->out[n++] = y == call->in[0] ? mt_c1(c, MT_OP_clone, y) : y;
  if (inverse)
    call->out[n++] =
        s.whole ? to : mt_creshape(c, to, call->in[0]->v.ndim, call->in[0]->v.shape);
  if (counts) call->out[n++] = count;
  call->nout = n;
  return MT_OK;
}

mt_status mt_build_unique(mt_build_call *c) { return unique(c, true); }
mt_status mt_build_unique_consecutive(mt_build_call *c) { return unique(c, false); }

/* ---- bincount, histc ---- */

/* Floats that are whole count as integers, as they do for indices. */
static mt_status whole(mt_calc *c, mt_tensor **x /* [in, out] */) {
  if (!MT_IS_FLOAT((*x)->v.dtype)) return MT_OK;
  mt_tensor *const given = *x;
  *x = mt_cas(c, given, MT_I64);
  if (mt_citem(c, mt_c1(c, MT_OP_any, mt_c2(c, MT_OP_ne, *x, given)), NULL))
    return mt_fail_arg(MT_EARG, 1, "x has elements that are no whole numbers");
  return c->status;
}

mt_status mt_build_bincount(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *x = call->in[0], *weights = call->in[1];
  const int64_t least = call->attr[0].i[0];
  int64_t lo = 1, n = 0;
  if (x->v.ndim != 1 || x->v.dtype == MT_BOOL)
    return mt_fail_arg(MT_ESHAPE, 1, "x is %s of shape %s, want a vector of integers",
                       mt_dtype_name(x->v.dtype), mt_view_text(&x->v));
  MT_TRY(whole(c, &x));
  if (weights && !mt_same_shape(&weights->v, &x->v))
    return mt_fail_arg(MT_ESHAPE, 2, "weights has shape %s, x %s",
                       mt_view_text(&weights->v), mt_view_text(&x->v));
  if (least < 0)
    return mt_fail_arg(MT_EARG, 3, "minlength %" PRId64 " is negative", least);
  if (x->v.shape[0] > 0) {
    lo = mt_citem(c, mt_c1(c, MT_OP_amin, x), NULL);
    n = mt_citem(c, mt_c1(c, MT_OP_amax, x), NULL);
  }
  if (lo < 1)
    return mt_fail_arg(MT_EFAULT, 1, "x has the element %" PRId64 ", want 1 and above",
                       lo);
  if (weights && !MT_IS_FLOAT(weights->v.dtype)) weights = mt_cas(c, weights, MT_F64);
  call->out[0] = counted(c, x, n > least ? n : least, weights);
  return MT_OK;
}

/* What lies outside, or is NaN, goes to one more part. */
mt_status mt_build_histc(mt_build_call *call) {
  mt_calc *const c = call->calc;
  const int64_t bins = call->attr[0].i[0];
  double lo = call->attr[1].f, hi = call->attr[2].f;
  mt_tensor *x = mt_cflat(c, mt_cfloat(c, call->in[0]));
  if (bins < 1)
    return mt_fail_arg(MT_EARG, 2, "%" PRId64 " bins, want 1 or more", bins);
  if (!x) return MT_OK;
  const mt_dtype dtype = x->v.dtype;
  if (MT_HALF_MASK >> dtype & 1u) x = mt_cas(c, x, MT_F32);
  if (!x) return MT_OK;
  if (lo == hi && lo == 0 && x->v.shape[0] > 0) {
    mt_citem(c, mt_c1(c, MT_OP_amin, x), &lo);
    mt_citem(c, mt_c1(c, MT_OP_amax, x), &hi);
  }
  if (!isfinite(lo) || !isfinite(hi) || lo > hi)
    return mt_fail_arg(MT_EARG, 3, "the range %g .. %g is empty or not finite", lo, hi);
  if (lo == hi) lo -= 1, hi += 1;
  mt_tensor *const share =
      mt_c2(c, MT_OP_div, mt_c2(c, MT_OP_sub, x, mt_cnum(c, lo)), mt_cnum(c, hi - lo));
  mt_tensor *const part =
      mt_c1(c, MT_OP_floor, mt_c2(c, MT_OP_mul, share, mt_cnum(c, (double)bins)));
  mt_tensor *const inside =
      mt_c2(c, MT_OP_logical_and, mt_c2(c, MT_OP_ge, x, mt_cnum(c, lo)),
            mt_c2(c, MT_OP_le, x, mt_cnum(c, hi)));
  mt_tensor *const at =
      mt_c2(c, MT_OP_minimum, mt_cas(c, part, MT_I64), mt_cint(c, bins - 1));
  mt_tensor *const index =
      mt_c3(c, MT_OP_where, inside, mt_c2(c, MT_OP_add, at, mt_cint(c, 1)),
            mt_cint(c, bins + 1));
  mt_tensor *const all = counted(c, index, bins + 1, NULL);
  call->out[0] = mt_cas(c, mt_cpart(c, all, 0, 0, bins), dtype);
  return MT_OK;
}
