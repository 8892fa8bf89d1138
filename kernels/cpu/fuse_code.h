/* kernels/cpu/fuse_code.h -- a fused program as the CPU runs it: lists of row calls over
** blocks that stay in the caches. */
#ifndef MT_CPU_FUSE_CODE_H
#define MT_CPU_FUSE_CODE_H

#include "kernels/cpu/tables.h"
#include "kernels/fuse.h"

typedef enum mt_step_kind {
  MT_STEP_LOAD,   /* register = elements of input `index` */
  MT_STEP_ROW,    /* register = row(arguments) */
  MT_STEP_SPREAD, /* register = the value of a slot, everywhere */
  MT_STEP_FOLD,   /* take a register up into reduction `index` */
  MT_STEP_STORE,  /* elements of output `index` = register */
  /* of slots: a value for each row of those that are worked on at once */
  MT_SLOT_LOAD,
  MT_SLOT_LENGTH,
  MT_SLOT_ROW,
  MT_SLOT_FOLDED, /* slot = the finished reduction `index` */
  MT_SLOT_STORE
} mt_step_kind;

typedef struct mt_step {
  uint8_t kind, nargs;
  uint8_t width; /* bytes of an element of the result */
  int8_t direct; /* ROW: the output that it may write to at once; -1: none */
  int op;        /* of a fold: its kind, as reduce.h has them */
  int to, arg[3], index;
  mt_row row;
  mt_attr attr[2];
} mt_step;

typedef struct mt_steps {
  int n, capacity;
  mt_step *step;
} mt_steps;

typedef struct mt_number_slot {
  int slot;
  double value;
} mt_number_slot;

struct mt_fuse_code {
  const mt_fuse_program *program;
  mt_dtype compute;
  int width;
  int nregisters, nslots, nfolds;
  int nnumbers;
  mt_number_slot *number; /* slots that never change */
  int nfilled;
  int *filled;    /* their slots: the last registers, which hold numbers */
  mt_steps whole; /* a block that is all there is of a row, or no rows */
  /* Long rows, by levels: slots, then blocks of the row. */
  int levels;
  mt_steps *slots, *blocks;
};

#endif
