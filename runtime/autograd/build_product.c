/* runtime/autograd/build_product.c -- composite ops made of products: outer, inner,
** vecdot, kron, cross, the addmm family, powers and chains of matrices, what elimination gives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"
#include "runtime/core/rules.h"

/* ---- products of all pairs ---- */

static mt_tensor *outer(mt_calc *c, mt_tensor *a, mt_tensor *b) {
  const int64_t column[] = {a->v.shape[0], 1};
  return mt_c2(c, MT_OP_mul, mt_creshape(c, a, 2, column), b);
}

static mt_status check_vectors(const mt_build_call *c, int first) {
  MT_TRY(mt_check_ndim(c->in[first], first + 1, 1, "a vector"));
  return mt_check_ndim(c->in[first + 1], first + 2, 1, "a vector");
}

mt_status mt_build_outer(mt_build_call *c) {
  MT_TRY(check_vectors(c, 0));
  c->out[0] = outer(c->calc, c->in[0], c->in[1]);
  return MT_OK;
}

static mt_tensor *as_rows(mt_calc *c, mt_tensor *x) {
  const int64_t width = x->v.shape[x->v.ndim - 1];
  int64_t rows = 1;
  for (int d = 0; d + 1 < x->v.ndim; d++) rows *= x->v.shape[d];
  const int64_t shape[] = {rows, width};
  return mt_creshape(c, x, 2, shape);
}

mt_status mt_build_inner(mt_build_call *c) {
  mt_tensor *const a = c->in[0], *const b = c->in[1];
  if (a->v.ndim == 0 || b->v.ndim == 0) {
    c->out[0] = mt_c2(c->calc, MT_OP_mul, a, b);
    return MT_OK;
  }
  const int na = a->v.ndim - 1, nb = b->v.ndim - 1;
  if (a->v.shape[na] != b->v.shape[nb]) {
    return mt_fail_arg(MT_ESHAPE, 2, "last dims of shapes %s and %s differ",
                       mt_view_text(&a->v), mt_view_text(&b->v));
  }
  if (na + nb > MT_MAX_DIMS) {
    return mt_fail_arg(MT_ESHAPE, 2, "shapes %s and %s have too many dims",
                       mt_view_text(&a->v), mt_view_text(&b->v));
  }
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, a->v.shape, (size_t)na * sizeof *shape);
  memcpy(shape + na, b->v.shape, (size_t)nb * sizeof *shape);
  mt_tensor *const y = mt_c2(c->calc, MT_OP_matmul, as_rows(c->calc, a),
                             mt_ctranspose(c->calc, as_rows(c->calc, b), 0, 1));
  c->out[0] = mt_creshape(c->calc, y, na + nb, shape);
  return MT_OK;
}

/* dim counts among a's. */
mt_status mt_build_vecdot(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const a = call->in[0];
  int64_t dim;
  MT_TRY(mt_cdim(&call->attr[0], &a->v, 3, &dim));
  mt_tensor *const y = mt_c2(c, MT_OP_mul, mt_cwide(c, a), call->in[1]);
  if (!y) return MT_OK;
  if (y->v.ndim > 0) dim += y->v.ndim - (a->v.ndim > 0 ? a->v.ndim : 1);
  mt_tensor *const sum = mt_creduce(c, MT_OP_sum, y, dim, false);
  const mt_dtype as = mt_dtype_promote(a->v.dtype, call->in[1]->v.dtype);
  call->out[0] = sum && MT_IS_FLOAT(sum->v.dtype) ? mt_ccast(c, sum, as) : sum;
  return MT_OK;
}

/* A dim of size 1 beside each of the last n dims: behind it, or before it. */
static mt_tensor *spread(mt_calc *c, mt_tensor *x, int n, bool behind) {
  int64_t shape[2 * MT_MAX_DIMS];
  for (int d = 0; d < n; d++) {
    const int from = d - (n - x->v.ndim);
    const int64_t size = from < 0 ? 1 : x->v.shape[from];
    shape[2 * d] = behind ? size : 1;
    shape[2 * d + 1] = behind ? 1 : size;
  }
  return mt_creshape(c, x, 2 * n, shape);
}

mt_status mt_build_kron(mt_build_call *c) {
  mt_tensor *const a = c->in[0], *const b = c->in[1];
  const int n = a->v.ndim > b->v.ndim ? a->v.ndim : b->v.ndim;
  if (2 * n > MT_MAX_DIMS) {
    return mt_fail_arg(MT_ESHAPE, 2, "shapes %s and %s have more than %d dims",
                       mt_view_text(&a->v), mt_view_text(&b->v), MT_MAX_DIMS / 2);
  }
  mt_tensor *const y = mt_c2(c->calc, MT_OP_mul, spread(c->calc, a, n, true),
                             spread(c->calc, b, n, false));
  if (!y) return MT_OK;
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < n; d++) shape[d] = y->v.shape[2 * d] * y->v.shape[2 * d + 1];
  c->out[0] = mt_creshape(c->calc, y, n, shape);
  return MT_OK;
}

/* ---- cross ---- */

static mt_tensor *rolled(mt_calc *c, mt_tensor *x, int64_t dim, int64_t shift) {
  const mt_attr attr[] = {mt_attr_i(shift), mt_attr_i(dim)};
  return mt_c1a(c, MT_OP_roll, x, 2, attr);
}

mt_status mt_build_cross(mt_build_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *a = call->in[0], *b = call->in[1];
  int ndim = a->v.ndim;
  int64_t shape[MT_MAX_DIMS], dim = 0;
  memcpy(shape, a->v.shape, sizeof shape);
  MT_TRY(mt_broadcast(&ndim, shape, &b->v));
  if (call->attr[0].n >= 0) { /* of the first operand: the same from the end */
    dim = call->attr[0].i[0] + ndim - a->v.ndim;
  } else {
    while (dim < ndim && shape[dim] != 3) dim++;
  }
  if (dim >= ndim || shape[dim] != 3) {
    return mt_fail_arg(MT_ESHAPE, 1, "no dim of size 3 in shapes %s and %s there",
                       mt_view_text(&a->v), mt_view_text(&b->v));
  }
  a = mt_cexpand(c, a, ndim, shape);
  b = mt_cexpand(c, b, ndim, shape);
  mt_tensor *const first =
      mt_c2(c, MT_OP_mul, rolled(c, a, dim, -1), rolled(c, b, dim, -2));
  mt_tensor *const second =
      mt_c2(c, MT_OP_mul, rolled(c, a, dim, -2), rolled(c, b, dim, -1));
  call->out[0] = mt_c2(c, MT_OP_sub, first, second);
  return MT_OK;
}

/* ---- the addmm family: beta * x + alpha * product ---- */

static mt_tensor *scaled(mt_calc *c, mt_tensor *x, const mt_attr *factor) {
  return factor->f == 1 ? x : mt_c2(c, MT_OP_mul, x, mt_cnumber(c, factor));
}

/* beta of 0: x is not even looked at, so that NaN does not spread. */
static mt_status added(mt_build_call *c, mt_tensor *product) {
  mt_tensor *const y = scaled(c->calc, product, &c->attr[1]);
  if (!y) return MT_OK;
  const mt_view *const x = &c->in[0]->v;
  int ndim = y->v.ndim;
  int64_t shape[MT_MAX_DIMS];
  memcpy(shape, y->v.shape, sizeof shape);
  const mt_status fits = mt_broadcast(&ndim, shape, x);
  if (fits != MT_OK || ndim != y->v.ndim ||
      memcmp(shape, y->v.shape, (size_t)ndim * sizeof *shape) != 0) {
    return mt_fail_arg(MT_ESHAPE, 1, "shape %s does not expand to %s", mt_view_text(x),
                       mt_view_text(&y->v));
  }
  c->out[0] = c->attr[0].f == 0 ? y
                                : mt_c2(c->calc, MT_OP_add,
                                        scaled(c->calc, c->in[0], &c->attr[0]), y);
  return MT_OK;
}

static mt_status add_product(mt_build_call *c, int na, int nb) {
  static const char *const what[] = {"", "a vector", "a matrix", "a batch of matrices"};
  MT_TRY(mt_check_ndim(c->in[1], 2, na, what[na]));
  MT_TRY(mt_check_ndim(c->in[2], 3, nb, what[nb]));
  const mt_view *const a = &c->in[1]->v, *const b = &c->in[2]->v;
  const int64_t rows = b->shape[nb == 1 ? 0 : nb - 2];
  if (a->shape[na - 1] != rows || (na == 3 && a->shape[0] != b->shape[0])) {
    return mt_fail_arg(MT_ESHAPE, 3, "shapes %s and %s do not multiply",
                       mt_view_text(a), mt_view_text(b));
  }
  return added(c, mt_c2(c->calc, MT_OP_matmul, c->in[1], c->in[2]));
}

mt_status mt_build_addmm(mt_build_call *c) { return add_product(c, 2, 2); }
mt_status mt_build_addmv(mt_build_call *c) { return add_product(c, 2, 1); }
mt_status mt_build_baddbmm(mt_build_call *c) { return add_product(c, 3, 3); }

mt_status mt_build_addr(mt_build_call *c) {
  MT_TRY(check_vectors(c, 1));
  return added(c, outer(c->calc, c->in[1], c->in[2]));
}

/* One product over the batch and the inner dim together. */
mt_status mt_build_addbmm(mt_build_call *c) {
  mt_tensor *a = c->in[1], *b = c->in[2];
  MT_TRY(mt_check_ndim(a, 2, 3, "a batch of matrices"));
  MT_TRY(mt_check_ndim(b, 3, 3, "a batch of matrices"));
  if (a->v.shape[0] != b->v.shape[0] || a->v.shape[2] != b->v.shape[1]) {
    return mt_fail_arg(MT_ESHAPE, 3, "shapes %s and %s do not multiply",
                       mt_view_text(&a->v), mt_view_text(&b->v));
  }
  static const int64_t order[] = {1, 0, 2};
  const int64_t depth = a->v.shape[0] * a->v.shape[2];
  const int64_t left[] = {a->v.shape[1], depth}, right[] = {depth, b->v.shape[2]};
  a = mt_creshape(c->calc, mt_cpermute(c->calc, a, 3, order), 2, left);
  b = mt_creshape(c->calc, b, 2, right);
  return added(c, mt_c2(c->calc, MT_OP_matmul, a, b));
}

/* ---- square matrices ---- */

/* The result of _determinant at `from`, and those behind it. */
static mt_status determinant(mt_build_call *c, int from, int n) {
  mt_tensor *out[MT_MAX_OUTPUTS] = {NULL};
  mt_ca(c->calc, MT_OP__determinant, 1, c->in, 0, 0, NULL, out);
  for (int i = 0; i < n; i++) c->out[i] = out[from + i];
  return MT_OK;
}

mt_status mt_build_det(mt_build_call *c) { return determinant(c, 0, 1); }
mt_status mt_build_slogdet(mt_build_call *c) { return determinant(c, 1, 2); }

mt_status mt_build_logdet(mt_build_call *c) {
  mt_tensor *out[MT_MAX_OUTPUTS] = {NULL};
  mt_ca(c->calc, MT_OP__determinant, 1, c->in, 0, 0, NULL, out);
  if (!out[2]) return MT_OK;
  mt_tensor *const negative = mt_c2(c->calc, MT_OP_lt, out[1], mt_cint(c->calc, 0));
  mt_tensor *const nan = mt_cas(c->calc, mt_cnum(c->calc, NAN), out[2]->v.dtype);
  c->out[0] = mt_c3(c->calc, MT_OP_where, negative, nan, out[2]);
  return MT_OK;
}

/* b is a vector for each matrix where its shape is a's without the last dim, as in
** PyTorch; a single vector serves any batch. */
mt_status mt_build_solve(mt_build_call *c) {
  mt_tensor *a = c->in[0], *b = c->in[1];
  MT_TRY(mt_check_square(&a->v));
  int64_t shape[MT_MAX_DIMS];
  const int na = a->v.ndim;
  bool vector = b->v.ndim == 1 || b->v.ndim == na - 1;
  for (int d = 0; b->v.ndim > 1 && d < na - 1; d++)
    vector = vector && a->v.shape[d] == b->v.shape[d];
  if (vector) {
    for (int d = 0; d < b->v.ndim; d++) shape[d] = b->v.shape[d];
    shape[b->v.ndim] = 1;
    b = mt_creshape(c->calc, b, b->v.ndim + 1, shape);
    if (!b) return MT_OK;
  }
  const int64_t n = a->v.shape[na - 1];
  if (b->v.ndim < 2 || b->v.shape[b->v.ndim - 2] != n) {
    return mt_fail_arg(MT_ESHAPE, 2, "shape %s does not fit matrices %s",
                       mt_view_text(&c->in[1]->v), mt_view_text(&a->v));
  }
  mt_view batch = b->v;
  int ndim = na - 2;
  memcpy(shape, a->v.shape, sizeof shape);
  batch.ndim -= 2;
  if (mt_broadcast(&ndim, shape, &batch) != MT_OK || ndim + 2 > MT_MAX_DIMS) {
    return mt_fail_arg(MT_ESHAPE, 2, "batches of shapes %s and %s do not broadcast",
                       mt_view_text(&a->v), mt_view_text(&c->in[1]->v));
  }
  shape[ndim] = shape[ndim + 1] = n;
  a = mt_cexpand(c->calc, a, ndim + 2, shape);
  shape[ndim + 1] = b->v.shape[b->v.ndim - 1];
  b = mt_cexpand(c->calc, b, ndim + 2, shape);
  mt_tensor *const x = mt_c2(c->calc, MT_OP__solve, a, b);
  c->out[0] = vector ? mt_creshape(c->calc, x, ndim + 1, shape) : x;
  return MT_OK;
}

mt_status mt_build_matrix_power(mt_build_call *c) {
  mt_tensor *x = c->in[0], *y = NULL;
  const int ndim = x->v.ndim;
  const int64_t n = c->attr[0].i[0];
  MT_TRY(mt_check_square(&x->v));
  if (n < 0) x = mt_c1(c->calc, MT_OP_inverse, x);
  if (n == 0) {
    mt_tensor *const one =
        mt_czeros(c->calc, x->v.dtype, mt_device_of(x), ndim, x->v.shape);
    const mt_attr attr[] = {mt_attr_i(0), mt_attr_i(ndim - 2), mt_attr_i(ndim - 1)};
    mt_tensor *const main = mt_c1a(c->calc, MT_OP_diagonal, one, 3, attr);
    const mt_attr value = mt_attr_i(1);
    mt_cinplace(c->calc, MT_OP_fill, 1, &main, &value);
    c->out[0] = one;
    return MT_OK;
  }
  for (uint64_t left = n < 0 ? -(uint64_t)n : (uint64_t)n; left > 0; left >>= 1) {
    if (left & 1) y = y ? mt_c2(c->calc, MT_OP_matmul, y, x) : x;
    if (left > 1) x = mt_c2(c->calc, MT_OP_matmul, x, x);
  }
  c->out[0] = y == c->in[0] ? mt_c1(c->calc, MT_OP_clone, y) : y;
  return MT_OK;
}

/* ---- chain_matmul ---- */

typedef struct chain {
  int n;
  double *cost;  /* of the product of i .. j at [i * n + j] */
  int *split;    /* behind which it is cut */
  int64_t *size; /* n + 1: rows of each, and the last one's columns */
} chain;

/* The least number of multiplications for each part, from short to long ones. */
static void find_order(chain *k) {
  const int n = k->n;
  for (int i = 0; i < n; i++) k->cost[i * n + i] = 0;
  for (int length = 2; length <= n; length++) {
    for (int i = 0; i + length <= n; i++) {
      const int j = i + length - 1;
      double *const best = &k->cost[i * n + j];
      *best = -1;
      for (int s = i; s < j; s++) {
        const double cost =
            k->cost[i * n + s] + k->cost[(s + 1) * n + j] +
            (double)k->size[i] * (double)k->size[s + 1] * (double)k->size[j + 1];
        if (*best < 0 || cost < *best) *best = cost, k->split[i * n + j] = s;
      }
    }
  }
}

/* Recursion as deep as there are factors. */
static mt_tensor *multiply(const mt_build_call *c, const chain *k, int i, int j) {
  if (i == j) return c->in[i];
  const int s = k->split[i * k->n + j];
  return mt_c2(c->calc, MT_OP_matmul, multiply(c, k, i, s), multiply(c, k, s + 1, j));
}

static mt_status chain_sizes(const mt_build_call *c, int64_t *size) {
  int64_t inner = -1;
  for (int i = 0; i < c->nin; i++) {
    const mt_view *const v = &c->in[i]->v;
    const bool end = i == 0 || i == c->nin - 1;
    if (v->ndim != 2 && !(v->ndim == 1 && end)) {
      return mt_fail_arg(MT_ESHAPE, 1, "tensor %d has shape %s, want a matrix%s", i + 1,
                         mt_view_text(v), end ? " or a vector" : "");
    }
    const int64_t rows = v->ndim == 1 && i == 0 ? 1 : v->shape[0];
    if (inner >= 0 && rows != inner) {
      return mt_fail_arg(MT_ESHAPE, 1, "tensor %d has shape %s: %lld rows expected",
                         i + 1, mt_view_text(v), (long long)inner);
    }
    size[i] = rows;
    size[i + 1] = inner = v->ndim == 1 ? (i == 0 ? v->shape[0] : 1) : v->shape[1];
  }
  return MT_OK;
}

#define MAX_FACTORS 256 /* more are multiplied from left to right */

mt_status mt_build_chain_matmul(mt_build_call *c) {
  const int n = c->nin;
  const bool ordered = n <= MAX_FACTORS;
  const size_t cells = ordered ? (size_t)n * (size_t)n : 1;
  chain k = {n, malloc(cells * sizeof(double)), malloc(cells * sizeof(int)),
             malloc(((size_t)n + 1) * sizeof(int64_t))};
  mt_status status = MT_OK;
  if (!k.cost || !k.split || !k.size) status = mt_fail(MT_EMEMORY, "out of memory");
  if (status == MT_OK) status = chain_sizes(c, k.size);
  if (status == MT_OK && ordered) {
    find_order(&k);
    c->out[0] = multiply(c, &k, 0, n - 1);
  } else if (status == MT_OK) {
    c->out[0] = c->in[0];
    for (int i = 1; i < n; i++) {
      c->out[0] = mt_c2(c->calc, MT_OP_matmul, c->out[0], c->in[i]);
    }
  }
  free(k.cost), free(k.split), free(k.size);
  return status;
}
