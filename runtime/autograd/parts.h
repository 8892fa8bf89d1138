/* runtime/autograd/parts.h -- what rules and builders that take tensors apart write
** often, on top of calc.h. Dims and positions here count from 0. */
#ifndef MT_PARTS_H
#define MT_PARTS_H

#include "runtime/autograd/rule.h"

/* n elements of dim from start. */
mt_tensor *mt_cpart(mt_calc *c, mt_tensor *x, int64_t dim, int64_t start, int64_t n);
/* Tensors joined along dim: n of them, or two. */
mt_tensor *mt_ccat(mt_calc *c, int n, mt_tensor *const *x, int64_t dim);
mt_tensor *mt_cjoin(mt_calc *c, mt_tensor *a, mt_tensor *b, int64_t dim);
/* The slice at `at` of dim, which disappears unless keepdim. x may be 0-dim. */
mt_tensor *mt_cpick(mt_calc *c, mt_tensor *x, int64_t dim, int64_t at, bool keepdim);
/* As a vector; a view where that is possible. */
mt_tensor *mt_cflat(mt_calc *c, mt_tensor *x);
/* x with zeros behind it, up to the larger shape of `to`. */
mt_tensor *mt_cfill_up(mt_calc *c, mt_tensor *x, const mt_meta *to);
/* x converted; x itself if it has the dtype. */
mt_tensor *mt_ccast(mt_calc *c, mt_tensor *x, mt_dtype dtype);
/* The same; a number becomes a 0-dim tensor, whose dtype counts. */
mt_tensor *mt_cas(mt_calc *c, mt_tensor *x, mt_dtype dtype);
/* The same; a 0-dim tensor of the host on the device of `beside`. */
mt_tensor *mt_cas_beside(mt_calc *c, mt_tensor *x, mt_dtype dtype,
                         const mt_tensor *beside);
/* Converted to the default dtype unless it is a float. */
mt_tensor *mt_cfloat(mt_calc *c, mt_tensor *x);
/* The float in which to sum and count such numbers: float32 for 16 bits; and x in it. */
mt_dtype mt_wide_dtype(mt_dtype dtype);
mt_tensor *mt_cwide(mt_calc *c, mt_tensor *x);
/* x / count in x's dtype, which need not hold the count. */
mt_tensor *mt_cshare(mt_calc *c, mt_tensor *x, mt_tensor *count);
/* Numbers that promote nothing: an integer, or whole or not as the attribute is. */
mt_tensor *mt_cint(mt_calc *c, int64_t x);
mt_tensor *mt_cnumber(mt_calc *c, const mt_attr *attr);
/* first, first + 1, ...: int64, of a shape. */
mt_tensor *mt_ccount(mt_calc *c, mt_device device, int ndim, const int64_t *shape,
                     int64_t first);
/* Zeros for an input or output that was recorded. */
mt_tensor *mt_czeros_of(mt_calc *c, const mt_meta *of);
/* op(x, dim, index) or, with src, op(x, dim, index, src). */
mt_tensor *mt_calong(mt_calc *c, mt_op op, mt_tensor *x, int64_t dim, mt_tensor *index,
                     mt_tensor *src /* [optional] */);
/* op(x, dim, keepdim): a reduction. */
mt_tensor *mt_creduce(mt_calc *c, mt_op op, mt_tensor *x, int64_t dim, bool keepdim);
mt_tensor *mt_ceq_self(mt_calc *c, mt_tensor *x); /* what is not NaN */
mt_tensor *mt_csorted(mt_calc *c, mt_tensor *x, int64_t dim, bool descending,
                      mt_tensor **index /* [out] [optional] */);
/* x sorted; where no gradient is asked for, without keeping positions. bits: x holds
** integers 0 .. 2^bits - 1; 0: any. */
mt_tensor *mt_csorted_values(mt_calc *c, mt_tensor *x, int64_t dim, int bits);
/* The elements of x where mask, of its shape, is true: count of them; below 0: to be
** counted, which waits for the device. */
mt_tensor *mt_cmasked_select(mt_calc *c, mt_tensor *x, mt_tensor *mask, int64_t count);
/* Flat positions, from 1, of what is not 0. Waits for the device. */
mt_tensor *mt_cpositions(mt_calc *c, mt_tensor *x);
/* The value of a 0-dim tensor. Waits for the device. */
int64_t mt_citem(mt_calc *c, mt_tensor *x, double *f /* [out] [optional] */);

/* Argument arg, a dim that may be a preset which counts from the end, as one from 0. 0-dim
** tensors have dim 0. */
mt_status mt_cdim(const mt_attr *attr, const mt_view *of, int arg,
                  int64_t *dim /* [out] */);
/* The same among ndim dims, where the result has others than `of`. */
mt_status mt_cdim_among(const mt_attr *attr, int ndim, const mt_view *of, int arg,
                        int64_t *dim /* [out] */);
/* MT_ESHAPE unless x has so many dims; what: "a matrix". */
mt_status mt_check_ndim(const mt_tensor *x, int arg, int ndim, const char *what);

#endif
