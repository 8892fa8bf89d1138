/* runtime/autograd/parts.c -- pieces of expressions that rules and builders share. */
#include "runtime/autograd/parts.h"

mt_tensor *mt_cpart(mt_calc *c, mt_tensor *x, int64_t dim, int64_t start, int64_t n) {
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(start), mt_attr_i(n)};
  return mt_c1a(c, MT_OP_narrow, x, 3, attr);
}

mt_tensor *mt_ccat(mt_calc *c, int n, mt_tensor *const *x, int64_t dim) {
  const mt_attr attr = mt_attr_i(dim);
  return mt_ca(c, MT_OP_cat, n, x, 0, 1, &attr, NULL);
}

mt_tensor *mt_cjoin(mt_calc *c, mt_tensor *a, mt_tensor *b, int64_t dim) {
  return mt_ccat(c, 2, (mt_tensor *[]){a, b}, dim);
}

mt_tensor *mt_cpick(mt_calc *c, mt_tensor *x, int64_t dim, int64_t at, bool keepdim) {
  if (!x || x->v.ndim == 0) return x;
  if (keepdim) return mt_cpart(c, x, dim, at, 1);
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(at)};
  return mt_c1a(c, MT_OP_select, x, 2, attr);
}

mt_tensor *mt_cflat(mt_calc *c, mt_tensor *x) {
  const int64_t n = x ? mt_numel(&x->v) : 0;
  return mt_creshape(c, x, 1, &n);
}

mt_tensor *mt_cfill_up(mt_calc *c, mt_tensor *x, const mt_meta *to) {
  for (int d = 0; d < to->ndim && x; d++) {
    int64_t shape[MT_MAX_DIMS];
    if (x->v.shape[d] == to->shape[d]) continue;
    for (int i = 0; i < to->ndim; i++) shape[i] = x->v.shape[i];
    shape[d] = to->shape[d] - x->v.shape[d];
    x = mt_cjoin(c, x, mt_czeros(c, to->dtype, to->device, to->ndim, shape), d);
  }
  return x;
}

static mt_tensor *cast(mt_calc *c, mt_tensor *x, mt_dtype dtype) {
  const mt_attr attr = mt_attr_i(dtype);
  return mt_c1a(c, MT_OP__cast, x, 1, &attr);
}

mt_tensor *mt_ccast(mt_calc *c, mt_tensor *x, mt_dtype dtype) {
  return !x || x->v.dtype == dtype ? x : cast(c, x, dtype);
}

mt_tensor *mt_cas(mt_calc *c, mt_tensor *x, mt_dtype dtype) {
  return x && x->wrapped ? cast(c, x, dtype) : mt_ccast(c, x, dtype);
}

mt_tensor *mt_cas_beside(mt_calc *c, mt_tensor *x, mt_dtype dtype,
                         const mt_tensor *beside) {
  const mt_device device = mt_device_of(beside);
  x = mt_cas(c, x, dtype);
  if (!x || x->v.ndim > 0 || device.kind == MT_CPU || mt_device_of(x).kind != MT_CPU)
    return x;
  const int64_t none = 0; /* no sizes */
  return mt_c3(c, MT_OP_where, mt_cones(c, MT_BOOL, device, 0, &none), x,
               mt_czeros(c, dtype, device, 0, &none));
}

mt_tensor *mt_cfloat(mt_calc *c, mt_tensor *x) {
  return !x || MT_IS_FLOAT(x->v.dtype) ? x : mt_cas(c, x, c->ctx->default_dtype);
}

mt_dtype mt_wide_dtype(mt_dtype dtype) {
  return dtype == MT_F16 || dtype == MT_BF16 ? MT_F32 : dtype;
}

mt_tensor *mt_cwide(mt_calc *c, mt_tensor *x) {
  return x ? mt_ccast(c, x, mt_wide_dtype(x->v.dtype)) : NULL;
}

mt_tensor *mt_cshare(mt_calc *c, mt_tensor *x, mt_tensor *count) {
  mt_tensor *const share = mt_c2(c, MT_OP_div, mt_cwide(c, x), count);
  return share ? mt_ccast(c, share, x->v.dtype) : NULL;
}

mt_tensor *mt_cint(mt_calc *c, int64_t x) {
  mt_tensor *t = NULL;
  if (c->status == MT_OK) c->status = mt_scalar_i64(c->ctx, x, &t);
  return mt_cown(c, t);
}

mt_tensor *mt_cnumber(mt_calc *c, const mt_attr *attr) {
  return attr->is_int ? mt_cint(c, attr->i[0]) : mt_cnum(c, attr->f);
}

mt_tensor *mt_ccount(mt_calc *c, mt_device device, int ndim, const int64_t *shape,
                     int64_t first) {
  const mt_attr attr[] = {mt_attr_i(first), mt_attr_i(1)};
  mt_tensor *const t = mt_czeros(c, MT_I64, device, ndim, shape);
  mt_cinplace(c, MT_OP__arange, 1, &t, attr);
  return t;
}

mt_tensor *mt_czeros_of(mt_calc *c, const mt_meta *of) {
  return mt_czeros(c, of->dtype, of->device, of->ndim, of->shape);
}

mt_tensor *mt_calong(mt_calc *c, mt_op op, mt_tensor *x, int64_t dim, mt_tensor *index,
                     mt_tensor *src) {
  const mt_attr attr = mt_attr_i(dim);
  mt_tensor *const in[] = {x, index, src};
  return mt_ca(c, op, src ? 3 : 2, in, 0, 1, &attr, NULL);
}

mt_tensor *mt_creduce(mt_calc *c, mt_op op, mt_tensor *x, int64_t dim, bool keepdim) {
  const mt_attr attr[] = {mt_attr_list(1, &dim), mt_attr_i(keepdim)};
  return mt_c1a(c, op, x, 2, attr);
}

mt_tensor *mt_ceq_self(mt_calc *c, mt_tensor *x) { return mt_c2(c, MT_OP_eq, x, x); }

mt_tensor *mt_csorted(mt_calc *c, mt_tensor *x, int64_t dim, bool descending,
                      mt_tensor **index) {
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(descending)};
  mt_tensor *out[MT_MAX_OUTPUTS] = {NULL};
  mt_tensor *const y = mt_ca(c, MT_OP_sort, 1, &x, 0, 2, attr, out);
  if (index) *index = out[1];
  return y;
}

mt_tensor *mt_csorted_values(mt_calc *c, mt_tensor *x, int64_t dim, int bits) {
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(bits)};
  if (x && c->ctx->grad_enabled && mt_requires_grad(x))
    return mt_csorted(c, x, dim, false, NULL);
  return mt_c1a(c, MT_OP__sort_values, x, 2, attr);
}

int64_t mt_citem(mt_calc *c, mt_tensor *x, double *f) {
  double value = 0;
  int64_t whole = 0;
  if (x && c->status == MT_OK) c->status = mt_item(c->ctx, x, &value, &whole);
  if (f) *f = value;
  return whole;
}

/* How many a mask marks, where that is below 0, and what a GPU's kernels select by; NULL
** on the CPU. */
static mt_tensor *marks_of(mt_calc *c, mt_tensor *mask,
                           int64_t *count /* [in] [out] */) {
  mt_tensor *const marks =
      mask && mt_device_of(mask).kind != MT_CPU ? mt_c1(c, MT_OP__marks, mask) : NULL;
  if (*count < 0)
    *count = mt_citem(c,
                      marks ? mt_cpick(c, marks, 0, 0, false)
                            : mt_c1(c, MT_OP_count_nonzero, mask),
                      NULL);
  return marks;
}

mt_tensor *mt_cmasked_select(mt_calc *c, mt_tensor *x, mt_tensor *mask, int64_t count) {
  mt_tensor *const in[] = {x, mask, marks_of(c, mask, &count)};
  const mt_attr attr = mt_attr_i(count);
  return mt_ca(c, MT_OP__masked_select, 3, in, 1u << 2, 1, &attr, NULL);
}

mt_tensor *mt_cpositions(mt_calc *c, mt_tensor *x) {
  if (x && x->v.dtype != MT_BOOL && mt_device_of(x).kind != MT_CPU)
    x = mt_c2(c, MT_OP_ne, x, mt_cint(c, 0));
  int64_t count = -1;
  mt_tensor *const in[] = {x, marks_of(c, x, &count)};
  const mt_attr attr = mt_attr_i(count);
  return mt_ca(c, MT_OP__nonzero, 2, in, 1u << 1, 1, &attr, NULL);
}

mt_status mt_cdim_among(const mt_attr *attr, int ndim, const mt_view *of, int arg,
                        int64_t *dim) {
  *dim = attr->i[0] < 0 ? attr->i[0] + ndim : attr->i[0];
  if (*dim >= 0 && *dim < ndim) return MT_OK;
  return mt_fail_arg(MT_EARG, arg, "dim is out of range for shape %s",
                     mt_view_text(of));
}

mt_status mt_cdim(const mt_attr *attr, const mt_view *of, int arg, int64_t *dim) {
  return mt_cdim_among(attr, of->ndim > 0 ? of->ndim : 1, of, arg, dim);
}

mt_status mt_check_ndim(const mt_tensor *x, int arg, int ndim, const char *what) {
  if (x->v.ndim == ndim) return MT_OK;
  return mt_fail_arg(MT_ESHAPE, arg, "%s expected, got shape %s", what,
                     mt_view_text(&x->v));
}
