/* runtime/autograd/rule.h -- what a gradient rule and a composite builder see. */
#ifndef MT_RULE_H
#define MT_RULE_H

#include "runtime/autograd/calc.h"

/* Geometry of a recorded input or output, kept when its elements are not. */
typedef struct mt_meta {
  mt_dtype dtype;
  mt_device device;
  int ndim;
  const int64_t *shape, *stride;
  int64_t offset; /* elements from the start of its storage */
} mt_meta;

/* A rule computes dx[i] with the calc (recorded under create_graph). Results are
** borrowed from the calc; NULL: no gradient flows to input i. Gradients have the
** input's shape and dtype (the engine checks both and converts the dtype). */
typedef struct mt_grad_call {
  mt_calc *calc;
  const mt_opinfo *op;
  const mt_attr *attr; /* as dispatch normalised them */
  int nin, nout;
  mt_tensor *const *in;  /* saved inputs; NULL: not saved, or left out */
  mt_tensor *const *out; /* saved outputs; NULL: not saved */
  mt_tensor *const *g;   /* gradient of each output; NULL: none came */
  const mt_meta *in_meta, *out_meta;
  const bool *needs;       /* per input: compute dx[i] only where set */
  mt_tensor **dx;          /* [out] */
  uint64_t seed, position; /* RANDOM rows: what the forward call drew from */
} mt_grad_call;

struct mt_grad_rule {
  unsigned save_in, save_out; /* bit i: input / output i is kept for run */
  mt_status (*run)(mt_grad_call *c);
};

/* What the rules of linear and conv2d keep depends on their activation: see
** grad_matmul.c and grad_conv.c. */
void mt_linear_saves(const mt_attr *attr, unsigned *save_in /* [out] */,
                     unsigned *save_out /* [out] */);
void mt_conv2d_saves(const mt_attr *attr, unsigned *save_in /* [out] */,
                     unsigned *save_out /* [out] */);

/* The gradient of a unary row without attributes: g its output's gradient; x and y as
** its formula needs them, else NULL. */
mt_tensor *mt_cgradient(mt_calc *c, mt_op op, mt_tensor *g, mt_tensor *x, mt_tensor *y);

/* A composite op: made with calc from the inputs; out[i] borrowed from it. */
struct mt_build_call {
  mt_calc *calc;
  const mt_opinfo *op;
  int nin;
  mt_tensor *const *in;
  mt_attr *attr;
  mt_tensor **out; /* [out] */
  int nout;        /* [out] how many; starts as the signature says */
};
typedef mt_status (*mt_build)(mt_build_call *c);

/* By op: NULL for NONE, elementwise and composite rows / for rows that are not
 * composite. */
const mt_grad_rule *mt_op_rule(mt_op op);
mt_build mt_op_build(mt_op op);

#endif
