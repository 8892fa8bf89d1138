/* runtime/autograd/build.c -- small steps that builders of composite ops share. */
#include "runtime/autograd/build.h"

mt_status mt_build_dim(const mt_attr *attr, int ndim, const mt_view *of, int arg,
                       int64_t *dim) {
  *dim = attr->i[0] < 0 ? attr->i[0] + ndim : attr->i[0];
  if (*dim >= 0 && *dim < ndim) return MT_OK;
  return mt_fail_arg(MT_EARG, arg, "dim is out of range for shape %s",
                     mt_view_text(of));
}

mt_tensor *mt_ccast(mt_calc *c, mt_tensor *x, mt_dtype dtype) {
  if (!x || x->v.dtype == dtype) return x;
  const mt_attr attr = mt_attr_i(dtype);
  return mt_c1a(c, MT_OP__cast, x, 1, &attr);
}

mt_tensor *mt_cnumber(mt_calc *c, const mt_attr *attr) {
  if (!attr->is_int) return mt_cnum(c, attr->f);
  mt_tensor *t = NULL;
  if (c->status == MT_OK) c->status = mt_scalar_i64(c->ctx, attr->i[0], &t);
  return mt_cown(c, t);
}

mt_tensor *mt_cnarrow(mt_calc *c, mt_tensor *x, int64_t dim, int64_t start,
                      int64_t length) {
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(start), mt_attr_i(length)};
  return mt_c1a(c, MT_OP_narrow, x, 3, attr);
}

mt_tensor *mt_crange(mt_calc *c, const mt_tensor *x, int64_t start, int64_t n) {
  mt_tensor *t = mt_czeros(c, MT_I64, mt_device_of(x), 1, &n);
  const mt_attr attr[] = {mt_attr_i(start), mt_attr_i(1)};
  mt_cinplace(c, MT_OP__arange, 1, &t, attr);
  return t;
}

mt_tensor *mt_ccat(mt_calc *c, int n, mt_tensor *const *x, int64_t dim) {
  const mt_attr attr = mt_attr_i(dim);
  return mt_ca(c, MT_OP_cat, n, x, 0, 1, &attr, NULL);
}

mt_status mt_check_ndim(const mt_tensor *x, int arg, int ndim, const char *what) {
  if (x->v.ndim == ndim) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "%s expected, got shape %s", what,
                     mt_view_text(&x->v));
}
