/* runtime/core/fuse.h -- operators made of formulas: mt.fuse below bind.
**
** mt_formula (text) -> mt_fuse (a graph of nodes) -> mt_fused (the graph for arguments
** of certain spaces, with its derivatives, and what devices need to run it). */
#ifndef MT_FUSE_H
#define MT_FUSE_H

#include "kernels/fuse.h"
#include "runtime/core/op.h"

/* ---- graphs (fuse_graph.c) ---- */

/* Nodes of equal content are one. Once something fails, status stays, and every further
** node is -1, as is each made of such. */
typedef struct mt_fuse_graph {
  mt_status status;
  bool open; /* a user's: of which spaces its arguments will be is not known yet, and a
             ** length says of what */
  int n, capacity;
  mt_fuse_node *node;
  int *bucket, *next; /* of the hash table; chains of nodes */
  int nbuckets;
} mt_fuse_graph;

void mt_fuse_graph_free(mt_fuse_graph *g);
int mt_fuse_number(mt_fuse_graph *g, double x);
int mt_fuse_input(mt_fuse_graph *g, int index, mt_fuse_space space, bool dropped);
/* An elementwise op; number: its attributes. Simplifies. */
int mt_fuse_op(mt_fuse_graph *g, mt_op op, const int *arg, const double *number);
int mt_fuse_op1(mt_fuse_graph *g, mt_op op, int x);
int mt_fuse_op2(mt_fuse_graph *g, mt_op op, int a, int b);
int mt_fuse_where(mt_fuse_graph *g, int cond, int a, int b);
/* SUM, AMAX or AMIN of x; of a ROW it is x itself. detached: no gradient flows. */
int mt_fuse_reduce(mt_fuse_graph *g, mt_fuse_kind kind, int x, bool dropped,
                   bool detached);
/* The number of elements that a reduction of x would take. */
int mt_fuse_length(mt_fuse_graph *g, int x);
int mt_fuse_row_length(mt_fuse_graph *g);
/* A formula of ops.def, with the values of its names. name[i] NULL: the end. */
int mt_fuse_expression(mt_fuse_graph *g, const mt_expr *e, const char *const *name,
                       const int *value);
/* The op that a word of the formulas is; -1: none. */
int mt_fuse_word(const char *word);
/* Drop what output[0 .. n-1] do not need, and renumber them. */
void mt_fuse_compact(mt_fuse_graph *g, int n, int *output);

/* ---- operators (fuse_build.c) ---- */

typedef struct mt_fused mt_fused;

#define MT_FUSE_USER_INPUTS 16 /* gradients have more */

typedef struct mt_fuse {
  int nin, nout;
  char *name;    /* what errors call it */
  char *text;    /* the formula */
  char *in_text; /* "a, b" */
  char in_name[MT_FUSE_USER_INPUTS][24];
  mt_fuse_graph graph;
  int output[MT_FORMULA_MAX_OUTPUTS];
  uint64_t depends[MT_FORMULA_MAX_OUTPUTS]; /* bits of inputs */
  bool reduces;
  int nfused;
  mt_fused **fused; /* for what it has been called with */
} mt_fuse;

/* inputs: "a, b"; text: a formula of these. MT_EARG, MT_EDTYPE with the position. */
mt_status mt_fuse_new(const char *name, const char *inputs, const char *text,
                      mt_fuse **out /* [out] */);
void mt_fuse_free(mt_fuse *f);

/* ---- for arguments of certain spaces (fuse_special.c, fuse_derive.c) ---- */

typedef struct mt_fused_input {
  mt_fuse_space space; /* ROW or FULL */
  bool dropped, used, boolean;
} mt_fused_input; /* or output */

struct mt_fused {
  int refs;
  uint64_t
      key[2]; /* outputs and rows, of mt_fuse.fused; wanted and given, of derivative */
  int nin, nout;
  mt_fused_input in[MT_FUSE_MAX_INPUTS];
  int output[MT_FUSE_MAX_OUTPUTS]; /* nodes; -1: no gradient flows */
  mt_fused_input out[MT_FUSE_MAX_OUTPUTS];
  mt_fuse_graph graph;
  int computed[MT_FUSE_MAX_OUTPUTS]; /* nodes of those that are not -1, in order */
  uint8_t computed_space[MT_FUSE_MAX_OUTPUTS];
  mt_fuse_program program; /* its outputs are these */
  int nderivatives;
  mt_fused **derivative;
  const mt_fuse_backend *backend;
  mt_fuse_code *code[2];         /* of the CPU: float32, float64 */
  struct mt_fuse_kernel *kernel; /* of GPUs: a list (fuse_gpu.c) */
  int reread;                    /* mt_fuse_count_reread and 1; 0: not counted yet */
};

mt_fused *mt_fused_retain(mt_fused *f);
void mt_fused_release(mt_fused *f);
/* f's outputs whose bits are set, for arguments of which `rows` have a last dim of 1
** where that of all is longer. Belongs to f. */
mt_status mt_fused_get(mt_fuse *f, uint64_t outputs, uint64_t rows,
                       mt_fused **out /* [out] */);
/* The gradients of the inputs `wanted`, in their order, from f's inputs and those
** gradients of its outputs that are given, behind them. Belongs to f. */
mt_status mt_fused_derive(mt_fused *f, uint64_t wanted, uint64_t given,
                          mt_fused **out /* [out] */);

/* The same, made anew; a reference of the caller. */
mt_status mt_fused_gradient(const mt_fused *f, uint64_t wanted, uint64_t given,
                            mt_fused **out /* [out] */);
/* Finish f, whose graph, in, nin, out, output, nout are set: drop what is not needed,
** set the program. Takes f over where it fails. */
mt_status mt_fused_finish(mt_fused *f, mt_fused **out /* [out] */);

/* ---- running (fuse_run.c) ---- */

typedef struct mt_fuse_shape {
  int ndim;
  int64_t size[MT_MAX_DIMS];
} mt_fuse_shape;

/* Outputs whose arguments broadcast to one shape: they are one kernel. */
typedef struct mt_fuse_group {
  mt_fuse_shape shape;
  uint64_t outputs; /* bits */
  uint64_t rows;    /* bits of inputs with a last dim of 1, where shape's is longer */
} mt_fuse_group;

/* What a call of f with these arguments is: the dtype of its results, the device, and the
** groups. Errors name f and its arguments. */
typedef struct mt_fuse_plan {
  mt_dtype dtype;
  mt_device device;
  int ngroups;
  mt_fuse_group group[MT_FORMULA_MAX_OUTPUTS];
} mt_fuse_plan;
mt_status mt_fuse_plan_call(mt_context *ctx, const mt_fuse *f, mt_tensor *const *in,
                            mt_fuse_plan *plan /* [out] */);

/* Run f over arguments that broadcast to shape, on device. New tensors; NULL for outputs
** without a node. dtype: of the results, but for conditions, which are bool. name: what
** errors call it. in[i] may be NULL where no node uses it. */
mt_status mt_fused_run(mt_context *ctx, const char *name, mt_fused *f,
                       const mt_fuse_shape *shape, mt_tensor *const *in, mt_dtype dtype,
                       mt_device device, mt_tensor **out /* [out] */);

/* What a GPU runs (fuse_gpu.c): f over loops on call's device and stream. */
mt_status mt_fused_run_gpu(mt_fused *f, const char *name, mt_dtype compute,
                           const mt_call *call, const mt_fuse_loops *loops);
void mt_fused_free_gpu(mt_fused *f);

/* The kernel of f's first results for contiguous float32 arguments, as text from malloc. */
#define MT_FUSE_SOURCE_MAX 262144
mt_status mt_fuse_source(mt_fuse *f, char **text /* [out] */);

#endif
