/* runtime/autograd/build.h -- small steps that builders of composite ops share. */
#ifndef MT_BUILD_H
#define MT_BUILD_H

#include "runtime/autograd/rules.h"

/* A dim, from 0, whose preset may count from the end; argument arg. */
mt_status mt_build_dim(const mt_attr *attr, int ndim, const mt_view *of, int arg,
                       int64_t *dim /* [out] */);
/* x converted; x itself if it has the dtype. */
mt_tensor *mt_ccast(mt_calc *c, mt_tensor *x, mt_dtype dtype);
/* A number that promotes nothing, whole or not as it was given. */
mt_tensor *mt_cnumber(mt_calc *c, const mt_attr *attr);
mt_tensor *mt_cnarrow(mt_calc *c, mt_tensor *x, int64_t dim, int64_t start,
                      int64_t length);
/* (0, 1, .. n - 1) + start, int64, on x's device. */
mt_tensor *mt_crange(mt_calc *c, const mt_tensor *x, int64_t start, int64_t n);
/* Tensors joined along dim. */
mt_tensor *mt_ccat(mt_calc *c, int n, mt_tensor *const *x, int64_t dim);
/* MT_ESHAPE unless x has so many dims; what: "a matrix". */
mt_status mt_check_ndim(const mt_tensor *x, int arg, int ndim, const char *what);

#endif
