/* kernels/cpu/along.h -- operators that go along a dim with a state: block by block of a
** line, or, where lines lie side by side, step by step of many of them. */
#ifndef MT_CPU_ALONG_H
#define MT_CPU_ALONG_H

#include "kernels/cpu/cpu.h"

#define MT_SCAN_BLOCK  4096 /* elements of a line that a step function takes at most */
#define MT_ALONG_BLOCK 512  /* elements of a line, or lines, that are copied at once */

typedef union mt_along_number {
  double f;
  int64_t i;
} mt_along_number;

/* What the lines of a block have come to; a single line uses the first element. */
typedef struct mt_along_state {
  mt_along_number value[MT_ALONG_BLOCK], more[MT_ALONG_BLOCK];
  int64_t at[MT_ALONG_BLOCK];
} mt_along_state;

/* How a step function goes: 0: a step of each of n lines; else n steps of one line, and of
** what the function is able to: from higher addresses to lower ones, p being the first
** elements; with stores that pass the caches, y and positions beginning with a line. */
enum { MT_ALONG_LINE = 1, MT_ALONG_BACK = 2, MT_ALONG_PAST = 4 };

/* From position `first` (from 0) on; at 0 the state is set first. p: y, positions (from
** 1), x, a, contiguous. */
typedef void (*mt_along_fn)(int64_t n, int how, int64_t first, char *const *p,
                            mt_along_state *s);

/* The arguments, in this order: y; positions, or NULL; x; a, or NULL. */
enum { MT_ALONG_Y, MT_ALONG_AT, MT_ALONG_X, MT_ALONG_A, MT_ALONG_ARGS };

typedef struct mt_along {
  const mt_call *call;
  mt_along_fn step;
  int how;                       /* of the steps of one line */
  bool direct;                   /* a line needs no room: all is done where it lies */
  int64_t length, blocks;        /* of the dim; of neighbours in the innermost other */
  bool across;                   /* many lines at once: they hold the neighbours */
  mt_space others;               /* the arguments without the dim */
  char *data[MT_ALONG_ARGS];     /* where a line begins, NULL: none */
  int64_t stride[MT_ALONG_ARGS]; /* along the dim; bytes, negative in reverse */
  mt_dtype dtype[MT_ALONG_ARGS], work[MT_ALONG_ARGS]; /* as stored, as in the steps */
  bool streamed[MT_ALONG_ARGS];                       /* passes the caches */
} mt_along;

/* work: of y, x and a in the steps; able: what else than MT_ALONG_LINE they can do. */
void mt_along_make(mt_along *j, const mt_call *call, const mt_view *const *view,
                   int dim, bool reverse, mt_dtype work, mt_along_fn step, int able);
void mt_along_run(mt_along *j);

/* Steps lo .. hi - 1 of one line, which has these offsets; lo begins a block. quiet: y is
** not wanted, and NULL for the step function, which has to allow it. */
void mt_along_part(const mt_along *j, const int64_t *offset, int64_t lo, int64_t hi,
                   bool quiet, mt_along_state *s);

/* ---- steps of rows_scan.c, rows_product.c, rows_extremes.c -------------------------------------- */
/* For float32, float64, int64. */
typedef const mt_along_fn mt_along_table[3];
MT_ISA_DECLARE(mt_along_table, mt_scan_steps);
MT_ISA_DECLARE(mt_along_table, mt_product_steps);
MT_ISA_DECLARE(mt_along_table, mt_largest_steps);
MT_ISA_DECLARE(mt_along_table, mt_smallest_steps);

/* In what dtype elements are compared and added; its place in the tables. */
static inline mt_dtype mt_along_work(mt_dtype d) {
  return d == MT_F32 ? MT_F32 : MT_IS_FLOAT(d) ? MT_F64 : MT_I64;
}
static inline int mt_along_place(mt_dtype work) {
  return work == MT_F32 ? 0 : work == MT_F64 ? 1 : 2;
}

#endif
