/* runtime/autograd/calc.c -- writing tensor expressions in C: a list of what was made,
** and the first failure. */
#include <stdlib.h>
#include <string.h>
#include "runtime/autograd/calc.h"

void mt_calc_begin(mt_calc *c, mt_context *ctx) {
  c->ctx = ctx;
  c->status = MT_OK;
  c->n = 0;
  c->capacity = (int)(sizeof c->first / sizeof *c->first);
  c->made = c->first;
}

mt_status mt_calc_end(mt_calc *c, int nkeep, mt_tensor **keep) {
  for (int i = 0; i < nkeep; i++) {
    if (c->status != MT_OK) {
      keep[i] = NULL;
    } else if (keep[i]) {
      mt_retain(keep[i]);
    }
  }
  for (int i = c->n - 1; i >= 0; i--) mt_release(c->made[i]);
  if (c->made != c->first) free(c->made);
  return c->status;
}

mt_tensor *mt_cown(mt_calc *c, mt_tensor *t) {
  if (!t) return NULL;
  if (c->n == c->capacity) {
    const size_t bytes = (size_t)c->capacity * 2 * sizeof *c->made;
    mt_tensor **const made = realloc(c->made == c->first ? NULL : c->made, bytes);
    if (!made) {
      mt_release(t);
      c->status = mt_fail(MT_EMEMORY, "out of memory");
      return NULL;
    }
    if (c->made == c->first) memcpy(made, c->first, sizeof c->first);
    c->made = made;
    c->capacity *= 2;
  }
  c->made[c->n++] = t;
  return t;
}

/* Note a failure of the calc's own; the first one stays. */
static mt_tensor *calc_failed(mt_calc *c, mt_status status) {
  if (c->status == MT_OK) c->status = status;
  return NULL;
}

mt_tensor *mt_ca(mt_calc *c, mt_op op, int nin, mt_tensor *const *in, unsigned optional,
                 int nattr, const mt_attr *attr, mt_tensor **out) {
  if (c->status != MT_OK) return NULL;
  for (int i = 0; i < nin; i++) {
    if (!in[i] && !(i < 32 && ((optional >> i) & 1u))) {
      return calc_failed(c, mt_fail(MT_EINTERNAL, "%s: operand %d is missing",
                                    mt_op_info(op)->name, i + 1));
    }
  }
  mt_attr all[MT_MAX_ATTRS];
  mt_op_presets(op, all);
  mt_attrs_copy(all, attr, nattr);
  mt_tensor *result[MT_MAX_OUTPUTS] = {NULL};
  int n = 0;
  const mt_status status = mt_apply(c->ctx, op, nin, in, all, result, &n);
  if (status != MT_OK) return calc_failed(c, status);
  for (int i = 0; i < n; i++) {
    result[i] = mt_cown(c, result[i]);
    if (out) out[i] = result[i];
  }
  return c->status == MT_OK ? result[0] : NULL;
}

mt_tensor *mt_c1(mt_calc *c, mt_op op, mt_tensor *x) {
  return mt_ca(c, op, 1, &x, 0, 0, NULL, NULL);
}

mt_tensor *mt_c2(mt_calc *c, mt_op op, mt_tensor *a, mt_tensor *b) {
  return mt_ca(c, op, 2, (mt_tensor *[]){a, b}, 0, 0, NULL, NULL);
}

mt_tensor *mt_c3(mt_calc *c, mt_op op, mt_tensor *x, mt_tensor *y, mt_tensor *z) {
  return mt_ca(c, op, 3, (mt_tensor *[]){x, y, z}, 0, 0, NULL, NULL);
}

mt_tensor *mt_c1a(mt_calc *c, mt_op op, mt_tensor *x, int nattr, const mt_attr *attr) {
  return mt_ca(c, op, 1, &x, 0, nattr, attr, NULL);
}

void mt_cinplace(mt_calc *c, mt_op op, int nin, mt_tensor *const *in,
                 const mt_attr *attr) {
  for (int i = 0; i < nin && c->status == MT_OK; i++) {
    if (!in[i])
      calc_failed(c, mt_fail(MT_EINTERNAL, "%s: operand %d is missing",
                             mt_op_info(op)->name, i + 1));
  }
  if (c->status == MT_OK) c->status = mt_apply_inplace(c->ctx, op, nin, in, attr);
}

mt_tensor *mt_cnum(mt_calc *c, double x) {
  if (c->status != MT_OK) return NULL;
  mt_tensor *t = NULL;
  const mt_status status = mt_scalar_f64(c->ctx, x, &t);
  return status == MT_OK ? mt_cown(c, t) : calc_failed(c, status);
}

mt_tensor *mt_csum_to(mt_calc *c, mt_tensor *t, int ndim, const int64_t *shape) {
  if (!t || c->status != MT_OK) return NULL;
  const int extra = t->v.ndim - ndim;
  int64_t dims[MT_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < t->v.ndim; d++) {
    if (d < extra || (shape[d - extra] == 1 && t->v.shape[d] != 1)) dims[n++] = d;
  }
  if (n > 0) {
    const mt_attr attr[] = {mt_attr_list(n, dims), mt_attr_i(1)};
    t = mt_c1a(c, MT_OP_sum, t, 2, attr);
  }
  return extra > 0 ? mt_creshape(c, t, ndim, shape) : t;
}

mt_tensor *mt_creshape(mt_calc *c, mt_tensor *t, int ndim, const int64_t *shape) {
  if (!t || c->status != MT_OK) return NULL;
  if (t->v.ndim == ndim &&
      memcmp(t->v.shape, shape, (size_t)ndim * sizeof *shape) == 0) {
    return t;
  }
  int64_t stride[MT_MAX_DIMS];
  if (!mt_view_strides(&t->v, ndim, shape, stride)) t = mt_c1(c, MT_OP_clone, t);
  const mt_attr attr = mt_attr_list(ndim, shape);
  return mt_c1a(c, MT_OP_view, t, 1, &attr);
}

mt_tensor *mt_cexpand(mt_calc *c, mt_tensor *t, int ndim, const int64_t *shape) {
  if (!t || c->status != MT_OK) return NULL;
  if (t->v.ndim == ndim &&
      memcmp(t->v.shape, shape, (size_t)ndim * sizeof *shape) == 0) {
    return t;
  }
  const mt_attr attr = mt_attr_list(ndim, shape);
  return mt_c1a(c, MT_OP_expand, t, 1, &attr);
}

mt_tensor *mt_cpermute(mt_calc *c, mt_tensor *t, int n, const int64_t *order) {
  const mt_attr attr = mt_attr_list(n, order);
  return mt_c1a(c, MT_OP_permute, t, 1, &attr);
}

mt_tensor *mt_ctranspose(mt_calc *c, mt_tensor *t, int dim0, int dim1) {
  const mt_attr attr[] = {mt_attr_i(dim0), mt_attr_i(dim1)};
  return mt_c1a(c, MT_OP_transpose, t, 2, attr);
}

mt_tensor *mt_cfull(mt_calc *c, mt_dtype dtype, mt_device device, int ndim,
                    const int64_t *shape, mt_attr value) {
  if (c->status != MT_OK) return NULL;
  mt_tensor *t = NULL;
  mt_status status = mt_empty(c->ctx, dtype, device, ndim, shape, &t);
  if (status != MT_OK) return calc_failed(c, status);
  status = mt_dispatch(c->ctx, MT_OP_fill, 1, &t, &value, &t, NULL);
  if (status == MT_OK) return mt_cown(c, t);
  mt_release(t);
  return calc_failed(c, status);
}

mt_tensor *mt_czeros(mt_calc *c, mt_dtype dtype, mt_device device, int ndim,
                     const int64_t *shape) {
  return mt_cfull(c, dtype, device, ndim, shape, mt_attr_f(0));
}

mt_tensor *mt_cones(mt_calc *c, mt_dtype dtype, mt_device device, int ndim,
                    const int64_t *shape) {
  return mt_cfull(c, dtype, device, ndim, shape, mt_attr_f(1));
}
