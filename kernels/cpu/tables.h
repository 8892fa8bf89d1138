/* kernels/cpu/tables.h -- the tables that rows_*.c export, once for each instruction
** set: (*MT_ISA_PICK(mt_rows_f32))[op] is a row. */
#ifndef MT_TABLES_H
#define MT_TABLES_H

#include "kernels/cpu/cpu.h"

typedef const mt_row mt_row_table[MT_OP_COUNT];
typedef const mt_row mt_gradient_table[MT_OP_COUNT][3];
typedef const mt_row mt_convert_table[MT_NDTYPES][MT_NDTYPES];

MT_ISA_DECLARE(mt_row_table, mt_rows_f32);
MT_ISA_DECLARE(mt_row_table, mt_rows_f64);
MT_ISA_DECLARE(mt_row_table, mt_rows_i64);
MT_ISA_DECLARE(mt_row_table, mt_rows_i32);
MT_ISA_DECLARE(mt_row_table, mt_rows_i16);
MT_ISA_DECLARE(mt_row_table, mt_rows_i8);
MT_ISA_DECLARE(mt_row_table, mt_rows_u8);
MT_ISA_DECLARE(mt_row_table, mt_rows_b8);
MT_ISA_DECLARE(mt_gradient_table, mt_gradients_f32);
MT_ISA_DECLARE(mt_gradient_table, mt_gradients_f64);
MT_ISA_DECLARE(mt_convert_table, mt_convert_rows); /* [from][to] */

typedef const mt_row mt_where_table[4]; /* by log2 of an element's bytes */
MT_ISA_DECLARE(mt_where_table, mt_where_rows);

/* dst[j][i] = src[i][j], i < n0, j < n1; steps in bytes */
typedef void (*mt_transpose_tile)(int64_t n0, int64_t n1, const char *src,
                                  int64_t src_step, char *dst, int64_t dst_step);
typedef const mt_transpose_tile mt_transpose_table[4]; /* by log2 of the bytes */
MT_ISA_DECLARE(mt_transpose_table, mt_transpose_tiles);

typedef struct mt_halves {
  void (*load)(mt_dtype d, int64_t n, const void *x, int64_t stride, float *y);
  void (*store)(mt_dtype d, int64_t n, const float *x, void *y, int64_t stride);
} mt_halves;
MT_ISA_DECLARE(const mt_halves, mt_halves_rows);

/* ---- optimisers ------------------------------------------------------------------ */
typedef struct mt_sgd {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, first;
} mt_sgd;
typedef struct mt_adam {
  double step, lr, beta1, beta2, epsilon, weight_decay;
  bool decoupled;
} mt_adam;
typedef struct mt_many_rows { /* constants: mt_sgd, mt_adam */
  void (*sgd)(int64_t n, char *const *p, const void *constants);
  void (*adam)(int64_t n, char *const *p, const void *constants);
  double (*square_sum)(int64_t n, const void *x);
} mt_many_rows;
typedef const mt_many_rows mt_many_table[2]; /* float32, float64 */
MT_ISA_DECLARE(mt_many_table, mt_many_rows_of);

/* ---- random numbers: see kernels/philox.h ---------------------------------------- */
typedef struct mt_random_rows {
  void (*words)(uint64_t seed, uint64_t p, uint64_t q, int64_t n, uint32_t *word);
  void (*uniform_f32)(int64_t n, const uint32_t *word, int bits, float lo, float hi,
                      float *out);
  void (*uniform_f64)(int64_t n, const uint64_t *word, double lo, double hi,
                      double *out);
  void (*normal_f32)(int64_t n, const uint32_t *word, float mean, float std,
                     float *out);
  void (*normal_f64)(int64_t n, const uint64_t *word, double mean, double std,
                     double *out);
  void (*bernoulli_f32)(int64_t n, const uint32_t *word, double p, float *out);
} mt_random_rows;
MT_ISA_DECLARE(const mt_random_rows, mt_random_rows_of);

#endif
