/* runtime/core/op.h -- the live op table: rows of ops.def with their parsed signatures,
** shape rules, and dispatch: one call of one op, without recording. */
#ifndef MT_OP_H
#define MT_OP_H

#include "kernels/ops.h"
#include "runtime/core/context.h"
#include "runtime/core/formula.h"

typedef enum mt_op_kind {
  MT_KIND_UNARY,
  MT_KIND_PREDICATE,
  MT_KIND_BINARY,
  MT_KIND_COMPARE,
  MT_KIND_TERNARY,
  MT_KIND_CUSTOM,
  MT_KIND_RANDOM,
  MT_KIND_VIEW,
  MT_KIND_COMPOSITE
} mt_op_kind;

typedef enum mt_param_type {
  MT_PARAM_INPUT,    /* a tensor (a Lua number becomes a wrapped 0-dim one) */
  MT_PARAM_OPTIONAL, /* a tensor or nil */
  MT_PARAM_LIST,     /* a Lua table of tensors; stands alone as input */
  MT_PARAM_INT,
  MT_PARAM_FLOAT,
  MT_PARAM_NUMBER, /* integer or float, kept as given */
  MT_PARAM_BOOL,
  MT_PARAM_DIM,    /* Lua: from 1, negative from the end; below bind: from 0 */
  MT_PARAM_NEWDIM, /* a dim of the result, which has one more than the input */
  MT_PARAM_DIMS,   /* one dim or a list; n = -1: all */
  MT_PARAM_INDEX,  /* a position within the dim attribute before it; as dims */
  MT_PARAM_INTS,   /* one integer or a list */
  MT_PARAM_PAIR,   /* one integer (meaning both) or two: (height, width) */
  MT_PARAM_SHAPE,  /* integers or one list */
  MT_PARAM_DTYPE,  /* "float32" -> i[0] */
  MT_PARAM_CHOICE  /* one of the words of choices -> its position from 0 in i[0] */
} mt_param_type;

typedef struct mt_param {
  char name[20];
  mt_param_type type;
  int slot; /* position among the inputs, or among the attributes */
  bool required;
  mt_attr preset;   /* of an attribute that is not given; n = -1: none */
  char choices[48]; /* "mean|sum|none" */
} mt_param;

#define MT_MAX_PARAMS 12

typedef struct mt_opinfo mt_opinfo;

/* What a shape rule works on. in[i] NULL: left out. The rule checks the inputs' shapes,
** may normalise attr, and fills in out. dtype is what the row's class and PyTorch's
** promotion give; every out[i] starts with it, every input that counts is converted to
** it before the kernel runs unless the rule sets keep_dtype's bit. */
typedef struct mt_plan {
  const mt_opinfo *op;
  mt_context *ctx;
  int nin;
  const mt_view *const *in;
  mt_attr *attr;
  mt_dtype dtype;
  uint32_t
      keep_dtype;    /* bit i: in[i] goes to the kernel as it is; starts with the inputs
                  ** named index, labels, mask, marks and cond, which do not promote */
  uint32_t unwanted; /* [out] bit i: out[i] is not made, the kernel finds NULL there */
  bool broadcast;    /* the kernel wants every input in out[0]'s shape (stride 0) */
  int nout;
  mt_view out[MT_MAX_OUTPUTS]; /* [out] dtype, ndim, shape; VIEW rows: stride too */
  int64_t offset;              /* [out] VIEW rows: elements from x's first one */
} mt_plan;

typedef mt_status (*mt_rule)(mt_plan *p);

typedef struct mt_grad_rule mt_grad_rule;   /* runtime/autograd/rule.h */
typedef struct mt_build_call mt_build_call; /* runtime/autograd/rule.h */

struct mt_opinfo {
  mt_op op;
  mt_op_kind kind;
  mt_dtypes dtypes;
  const char *name, *doc;
  const char *signature;  /* of CUSTOM, RANDOM, VIEW, COMPOSITE; made for the others */
  const char *formula[4]; /* value, then the gradients; elementwise rows */
  mt_rule rule;           /* NULL: COMPOSITE and elementwise rows */
  bool differentiable;    /* some gradient flows */
  bool inplace;      /* has a name_ form ("-> y!"): y has x's shape and dtype; of VIEW
                          ** rows: x itself becomes that view */
  bool internal;     /* its name begins with _ */
  uint32_t kept;     /* bits of inputs that hold positions, labels or masks: they keep
                    ** their dtype and do not count for promotion. By name: index,
                    ** labels, mask, cond. */
  uint32_t required; /* bit k: parameter k must be given */
  mt_dtype for_bool; /* what NUMBER rows compute bool in; MT_BOOL: they refuse it */
  bool truth;        /* and the result is made bool again */
  bool counts_back;  /* a dim has a preset that counts from the end */
  int dim_slot, keepdim_slot; /* of the attributes dim and keepdim; -1: none */
  uint32_t as_they_are;       /* MT_BIT mask of dtypes that the class takes unchanged */
  int nparams;
  mt_param param[MT_MAX_PARAMS];
  int nin, nattr, nout; /* nin: without the elements of a LIST, which counts as one */
  bool list;            /* the first input is a LIST */
  char out_name[MT_MAX_OUTPUTS][16];
};

/* Never NULL for 0 <= op < MT_OP_COUNT. The table is parsed once per process. */
const mt_opinfo *mt_op_table(void);
extern const mt_opinfo *mt_op_rows; /* atomic; NULL: not parsed yet */
static inline const mt_opinfo *mt_op_info(mt_op op) {
  const mt_opinfo *rows = __atomic_load_n(&mt_op_rows, __ATOMIC_ACQUIRE);
  return (rows ? rows : mt_op_table()) + op;
}
/* -1: no such op. */
int mt_op_find(const char *name);
/* MT_EINTERNAL, with the first row's text, if a row of the table did not parse. */
mt_status mt_op_table_check(void);
/* The parsed formula of an elementwise row (0: value, 1..3: gradients); NULL: NONE. */
const mt_expr *mt_op_formula(mt_op op, int which);

/* Run one op without recording. in[nin] (NULL: optional, left out); attr in signature
** order, NULL: all presets (attr may be normalised by the rule: pass a copy).
** out[i] non-NULL on entry: write there (in place; shape and dtype must be the
** result's;
** bumps its version); NULL: a new tensor. The caller owns new ones.
** *position, if not NULL, gets the Philox position that a RANDOM row drew from. */
mt_status mt_dispatch(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                      mt_attr *attr, mt_tensor **out /* [out] */,
                      uint64_t *position /* [out] [optional] */);

/* The fused gradient of an elementwise row: in = {g, y, x | a, b | a, b, c}, see
** mt_backend; needs[i]: is the gradient of input i wanted; dx[i]: new tensors of the
** output's shape (the caller sums over what was broadcast). */
mt_status mt_dispatch_gradient(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                               const mt_attr *attr, const bool *needs,
                               mt_tensor **dx /* [out] */);

/* One of mt_backend's calls over many tensors. Checks that all are on one device. */
mt_status mt_dispatch_many(mt_context *ctx, mt_many which, int nin,
                           mt_tensor *const *in, int nout, mt_tensor *const *out,
                           int nattr, const double *attr);

/* dst = src: broadcast, any dtypes, across devices. Checks; bumps dst's version. */
mt_status mt_copy(mt_context *ctx, mt_tensor *dst, mt_tensor *src);
/* The same; non_blocking: do not wait for a copy between pinned memory and a GPU. */
mt_status mt_copy_from(mt_context *ctx, mt_tensor *dst, mt_tensor *src,
                       bool non_blocking);
/* A new contiguous tensor with t's values: in dtype, on device. */
mt_status mt_convert(mt_context *ctx, mt_tensor *t, mt_dtype dtype, mt_device device,
                     mt_tensor **out /* [out] */);
/* The value of the only element. Waits for the device. MT_ESHAPE: more than one. */
mt_status mt_item(mt_context *ctx, mt_tensor *t, double *f /* [out] */,
                  int64_t *i /* [out] */);

/* Fill attr[nattr] with an op's presets. */
void mt_op_presets(mt_op op, mt_attr *attr /* [out] */);
/* *to = *from, but only the numbers that it has. */
static inline void mt_attr_copy(mt_attr *to, const mt_attr *from) {
  to->n = from->n;
  to->is_int = from->is_int;
  to->f = from->f;
  to->i[0] = from->i[0];
  for (int k = 1; k < from->n; k++) to->i[k] = from->i[k];
}
static inline void mt_attrs_copy(mt_attr *to, const mt_attr *from, int n) {
  for (int k = 0; k < n; k++) mt_attr_copy(&to[k], &from[k]);
}
/* Attribute values for callers in C. */
mt_attr mt_attr_i(int64_t x);
mt_attr mt_attr_f(double x);
mt_attr mt_attr_list(int n, const int64_t *x);
mt_attr mt_attr_none(void);

/* Does a view of this shape exist over v? Fills stride if so. */
bool mt_view_strides(const mt_view *v, int ndim, const int64_t *shape,
                     int64_t *stride /* [out] */);
/* Replace the one -1 of a shape, argument 2 of view and reshape, by what numel leaves.
** MT_ESHAPE with both shapes. */
mt_status mt_infer_shape(int64_t numel, int ndim, int64_t *shape, const mt_view *of);

#endif
