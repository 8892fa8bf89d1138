/* kernels/fuse.h -- operators that are made while the program runs, as plain data: the
** nodes of a formula, and the table "fuse" of a backend that runs them. */
#ifndef MT_FUSE_NODES_H
#define MT_FUSE_NODES_H

#include "kernels/kernel.h"

typedef enum mt_fuse_kind {
  MT_FUSE_INPUT,  /* number `index` */
  MT_FUSE_NUMBER, /* number[0] */
  MT_FUSE_LENGTH, /* how many elements a row has */
  MT_FUSE_OP,     /* elementwise row `op` of ops.def, its attributes in number */
  MT_FUSE_WHERE,  /* arg[0] (a condition) ? arg[1] : arg[2] */
  MT_FUSE_SUM,    /* of arg[0] along its row */
  MT_FUSE_AMAX,
  MT_FUSE_AMIN
} mt_fuse_kind;

/* What a value has one of. Order matters: an elementwise op has the largest of its
** arguments'. */
typedef enum mt_fuse_space {
  MT_FUSE_CONSTANT,
  MT_FUSE_ROW, /* the last dim is 1, or gone: one for each row */
  MT_FUSE_FULL
} mt_fuse_space;

typedef struct mt_fuse_node {
  uint8_t kind, space;
  uint8_t boolean; /* a condition: 0 or 1 */
  uint8_t dropped; /* of a ROW: its last dim is gone, not 1 */
  uint8_t nargs;
  int16_t op;
  int16_t level; /* reductions that must have ended before it can be computed */
  int32_t index; /* INPUT; of a reduction: 1 where no gradient flows */
  int32_t arg[3];
  double number[2];
} mt_fuse_node;

/* Arguments of a node come before it. */
typedef struct mt_fuse_program {
  int nnodes, nin, nout;
  const mt_fuse_node *node;
  const int *output;           /* [nout] nodes */
  const uint8_t *output_space; /* [nout] ROW or FULL; the node may have a smaller one */
  int reduces; /* was there a SUM, AMAX or AMIN? Then dim 0 of the loops is the row. */
  int levels;  /* the largest level of a node, plus 1 */
} mt_fuse_program;

#define MT_FUSE_MAX_INPUTS  64
#define MT_FUSE_MAX_OUTPUTS 64
#define MT_FUSE_MAX_ARGS    (MT_FUSE_MAX_INPUTS + MT_FUSE_MAX_OUTPUTS)

/* A nest of loops, innermost first, over outputs and then inputs. Where the program
** reduces, dim 0 is a whole row, and a ROW has stride 0 there. */
typedef struct mt_fuse_loops {
  int ndim; /* at least 1 */
  int64_t size[MT_MAX_DIMS];
  int64_t stride[MT_FUSE_MAX_ARGS][MT_MAX_DIMS]; /* elements; 0: broadcast */
} mt_fuse_loops;

typedef struct mt_fuse_code mt_fuse_code; /* a program made ready by a backend */

typedef struct mt_fuse_backend {
  /* For computing in float32 or float64. NULL: out of memory. */
  mt_fuse_code *(*prepare)(const mt_fuse_program *program, mt_dtype compute);
  void (*release)(mt_fuse_code *code);
  /* call->in and call->out have any dtypes; an input that no node names is NULL. */
  mt_status (*run)(const mt_fuse_code *code, const mt_call *call,
                   const mt_fuse_loops *loops);
} mt_fuse_backend;

#endif
