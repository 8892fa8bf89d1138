/* kernels/cpu/elementwise.h -- the entries of the elementwise operators. */
#ifndef MT_CPU_ELEMENTWISE_H
#define MT_CPU_ELEMENTWISE_H

#include "kernels/cpu/cpu.h"

extern const mt_entry mt_cpu_elementwise[MT_OP_COUNT];
extern const mt_entry mt_cpu_gradient; /* of every differentiable row */

/* The rows of fmod and remainder of float32 and float64. NULL: none is better. */
typedef struct mt_fmod_rows {
  mt_row fmod[2], remainder[2];
} mt_fmod_rows;
MT_ISA_DECLARE(const mt_fmod_rows, mt_fmod_rows_of); /* rows_fmod.c */

/* lgamma, and polygamma of order 1: of float32 and float64. */
typedef struct mt_special_rows {
  mt_row lgamma[2], trigamma[2];
} mt_special_rows;
MT_ISA_DECLARE(const mt_special_rows, mt_special_rows_of); /* rows_special.c */

/* x to the power `exponent`, and its gradient with regard to x: of float32 and float64. */
#define MT_POWERS 3
typedef struct mt_power_rows {
  double exponent;
  mt_row value[2], gradient[2];
} mt_power_rows;
typedef const mt_power_rows mt_power_table[MT_POWERS];
MT_ISA_DECLARE(mt_power_table, mt_power_rows_of); /* rows_power.c */

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

/* The row of op for elements of d; half types as float32. first: its first attribute.
** NULL: there is none. */
mt_row mt_cpu_row_of(mt_dtype d, int op, double first);

/* The same as row, past the caches; NULL: there is none. */
static inline mt_row mt_cpu_row_past(mt_row row) {
  const mt_exponential_rows *rows = MT_ISA_PICK(mt_exponential_rows_of);
  for (int i = 0; rows->of[i].row; i++)
    if (rows->of[i].row == row) return rows->of[i].past;
  return NULL;
}

#endif
