/* kernels/cpu/elementwise.h -- the entries of the elementwise operators. */
#ifndef MT_CPU_ELEMENTWISE_H
#define MT_CPU_ELEMENTWISE_H

#include "kernels/cpu/cpu.h"

extern const mt_entry mt_cpu_elementwise[MT_OP_COUNT];
extern const mt_entry mt_cpu_gradient; /* of every differentiable row */

/* The rows of float32's fmod and remainder. */
typedef struct mt_fmod_rows {
  mt_row fmod, remainder;
} mt_fmod_rows;
MT_ISA_DECLARE(const mt_fmod_rows, mt_fmod_rows_of); /* rows_fmod.c */

/* Better rows than those of the table, and the same for an output that passes the caches
** and begins with a line. A row of NULL ends the list. */
typedef struct mt_exponential_rows {
  struct {
    int op;
    mt_row row, past;
  } of[4];
} mt_exponential_rows;
MT_ISA_DECLARE(const mt_exponential_rows,
               mt_exponential_rows_of); /* rows_exponential.c */

/* The row to use for op, which the table has as `row`. */
static inline mt_row mt_cpu_better_row(int op, mt_row row) {
  const mt_exponential_rows *rows = MT_ISA_PICK(mt_exponential_rows_of);
  for (int i = 0; rows->of[i].row; i++)
    if (rows->of[i].op == op) return rows->of[i].row;
  return row;
}

/* The same as row, past the caches; NULL: there is none. */
static inline mt_row mt_cpu_row_past(mt_row row) {
  const mt_exponential_rows *rows = MT_ISA_PICK(mt_exponential_rows_of);
  for (int i = 0; rows->of[i].row; i++)
    if (rows->of[i].row == row) return rows->of[i].past;
  return NULL;
}

#endif
