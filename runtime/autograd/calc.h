/* runtime/autograd/calc.h -- writing tensor expressions in C: a calc owns what it
** makes, and remembers the first failure, so that rules read like formulas.
**
**   mt_calc c; mt_calc_begin(&c, ctx);
**   mt_tensor *y = mt_c2(&c, MT_OP_mul, g, mt_c1(&c, MT_OP_exp, x));
**   status = mt_calc_end(&c, 1, &y);   y is now a reference of the caller
**
** Once an op failed, or an operand is NULL, each further op gives NULL and
** does nothing. */
#ifndef MT_CALC_H
#define MT_CALC_H

#include "runtime/autograd/autograd.h"

typedef struct mt_calc {
  mt_context *ctx;
  mt_status status;
  int n, capacity;
  mt_tensor **made;
  mt_tensor *first[16]; /* room before made grows */
} mt_calc;

void mt_calc_begin(mt_calc *c, mt_context *ctx);
/* Release what was made, but keep[i] become references of the caller (an input gains
** one). Returns the first failure; then every keep[i] is NULL. A NULL keep[i] stays. */
mt_status mt_calc_end(mt_calc *c, int nkeep, mt_tensor **keep);

mt_tensor *mt_c1(mt_calc *c, mt_op op, mt_tensor *x);
mt_tensor *mt_c2(mt_calc *c, mt_op op, mt_tensor *a, mt_tensor *b);
mt_tensor *mt_c3(mt_calc *c, mt_op op, mt_tensor *x, mt_tensor *y, mt_tensor *z);
/* One input and attributes in signature order; the rest are presets. */
mt_tensor *mt_c1a(mt_calc *c, mt_op op, mt_tensor *x, int nattr, const mt_attr *attr);
/* Any op; optional inputs may be NULL here: in[i] with (optional >> i) & 1.
** Outputs beyond the first go to out[1..] if out is not NULL. */
mt_tensor *mt_ca(mt_calc *c, mt_op op, int nin, mt_tensor *const *in, unsigned optional,
                 int nattr, const mt_attr *attr,
                 mt_tensor **out /* [out] [optional] */);
/* The in-place form: in[0] is changed. */
void mt_cinplace(mt_calc *c, mt_op op, int nin, mt_tensor *const *in,
                 const mt_attr *attr);
mt_tensor *mt_cnum(mt_calc *c, double x); /* a wrapped number */
/* Let the calc own t (a reference of the caller). */
mt_tensor *mt_cown(mt_calc *c, mt_tensor *t);
/* t summed to a shape that it was broadcast from. */
mt_tensor *mt_csum_to(mt_calc *c, mt_tensor *t, int ndim, const int64_t *shape);
mt_tensor *mt_creshape(mt_calc *c, mt_tensor *t, int ndim, const int64_t *shape);
mt_tensor *mt_cexpand(mt_calc *c, mt_tensor *t, int ndim, const int64_t *shape);
mt_tensor *mt_cpermute(mt_calc *c, mt_tensor *t, int n, const int64_t *order);
mt_tensor *mt_ctranspose(mt_calc *c, mt_tensor *t, int dim0, int dim1);
/* A contiguous tensor of one value; of zeros; of ones. */
mt_tensor *mt_cfull(mt_calc *c, mt_dtype dtype, mt_device device, int ndim,
                    const int64_t *shape, mt_attr value);
mt_tensor *mt_czeros(mt_calc *c, mt_dtype dtype, mt_device device, int ndim,
                     const int64_t *shape);
mt_tensor *mt_cones(mt_calc *c, mt_dtype dtype, mt_device device, int ndim,
                    const int64_t *shape);

#endif
