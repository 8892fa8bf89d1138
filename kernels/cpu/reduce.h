/* kernels/cpu/reduce.h -- folds: how the reductions take up elements. */
#ifndef MT_CPU_REDUCE_H
#define MT_CPU_REDUCE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tables.h"

/* What has been folded so far, two cells for each result. Floats accumulate in float64,
** integers in int64. */
typedef union mt_cell {
  double f;
  int64_t i;
} mt_cell;

typedef enum mt_fold_kind {
  MT_FOLD_SUM,
  MT_FOLD_PROD,
  MT_FOLD_MAX,
  MT_FOLD_MIN,
  MT_FOLD_ARGMAX, /* cells: value, position from the first element folded */
  MT_FOLD_ARGMIN,
  MT_FOLD_COUNT,    /* of those that are not 0 (cell.i) */
  MT_FOLD_MOMENTS,  /* cells: mean, sum of squared distances from it */
  MT_FOLD_EXP,      /* cells: largest, sum of exp(x - largest); see fold_shift */
  MT_FOLD_NANSUM,   /* sum of what is not NaN */
  MT_FOLD_ABS,      /* sum of |x| */
  MT_FOLD_SQUARE,   /* sum of x * x */
  MT_FOLD_POWER,    /* sum of |x|^p */
  MT_FOLD_LARGEST,  /* largest |x| */
  MT_FOLD_SMALLEST, /* smallest |x| */
  MT_FOLD_KINDS
} mt_fold_kind;

#define MT_FOLD_FIRST_FLOAT MT_FOLD_MOMENTS /* kinds from here on take floats only */
#define MT_FOLD_COLUMNS     2048            /* at most so many at once */

/* Take up n contiguous elements, `seen` having been taken up before. */
typedef void (*mt_fold_row)(int64_t n, const void *x, int64_t seen, double p,
                            mt_cell *state /* [2] */);
/* The same for `cols` states at once: x is rows of cols contiguous elements, `step`
** bytes apart; each column goes to its own state (a[j], b[j]). */
typedef void (*mt_fold_columns)(int64_t rows, int64_t cols, const char *x, int64_t step,
                                int64_t seen, double p, mt_cell *a, mt_cell *b);
/* Rows of n contiguous elements, `step` bytes apart, each to a cell of its own, which
** needs no value before. */
typedef void (*mt_fold_rows)(int64_t rows, int64_t n, const char *x, int64_t step,
                             double p, mt_cell *y /* [out] */);
typedef struct mt_fold {
  mt_fold_row row;
  mt_fold_columns columns;
  mt_fold_rows rows; /* NULL: by row */
} mt_fold;

/* By type: float32, float64, int64, int32; and bfloat16, of which there are sums only.
** Others are converted first. */
#define MT_FOLD_TYPES 5
typedef const mt_fold mt_fold_table[MT_FOLD_TYPES][MT_FOLD_KINDS];
MT_ISA_DECLARE(mt_fold_table, mt_folds);

/* exp's argument is measured from the largest, unless that is infinite. */
static inline double fold_shift(double largest) {
  return largest - largest == 0 ? largest : largest == largest ? 0 : largest;
}

/* Combine the moments of n elements with those of more: Chan, Golub and LeVeque,
** 1983. */
static inline void fold_moments(mt_cell *mean, mt_cell *squares, int64_t n,
                                double other_mean, double other_squares, int64_t more) {
  const double share = (double)more / (double)(n + more);
  const double distance = other_mean - mean->f;
  if (n == 0) {
    mean->f = other_mean, squares->f = other_squares;
    return;
  }
  mean->f += distance * share;
  squares->f += other_squares + distance * distance * share * (double)n;
}

static inline void fold_exp(mt_cell *largest, mt_cell *sum, double other,
                            double other_sum) {
  const double a = largest->f;
  const double top = a != a || a >= other ? a : other; /* other NaN: NaN */
  double s = 0;
  if (sum->f != 0) s += sum->f * exp(fold_shift(a) - fold_shift(top));
  if (other_sum != 0) s += other_sum * exp(fold_shift(other) - fold_shift(top));
  largest->f = top, sum->f = s;
}

/* One reduction of x over some of its dims. */
typedef struct mt_reduction mt_reduction;
struct mt_reduction {
  mt_fold_kind kind;
  double p;           /* of MT_FOLD_POWER */
  int64_t correction; /* of var and std */
  /* A result of each output from the cells of a state: of float64, or of int64. NULL:
  ** the first cell is the only result. */
  void (*finish)(const mt_reduction *r, const mt_cell *state, mt_cell *y /* [2] */);
  bool counts;       /* results are int64, whatever x is */
  mt_dtype dtype[2]; /* of the outputs */
  /* The rest is set by mt_cpu_reduce. */
  mt_dtype from;   /* x's dtype */
  int type;        /* row of mt_folds */
  int size, width; /* bytes of an element, as stored and as folded */
  bool whole;      /* cells hold integers */
  bool widens;     /* half types become float32 */
  mt_row convert;  /* small integers to int32; NULL */
  const mt_fold *fold;
  const char *x;
  char *out[2];
  mt_space kept;   /* x, out[0], out[1] */
  mt_space folded; /* x */
  bool columns, direct;
  bool rows;            /* by fold->rows, as many at once as columns are */
  bool narrow;          /* a few columns whose rows are one behind the other */
  int64_t blocks, wide; /* of columns in kept's innermost dim, and how many have one */
  mt_transpose_tile turn; /* short rows to columns; NULL: no need */
  int64_t chunk, nchunks; /* folded elements of one state; states of one result */
  mt_cell *partial;       /* [kept][nchunks][2] */
};

/* What has taken up nothing. */
void mt_state_init(const mt_reduction *r, mt_cell *a /* [out] */,
                   mt_cell *b /* [out] */);
/* Add to s, which has taken up `seen` elements, what t did with the `more` after them. */
void mt_state_merge(const mt_reduction *r, mt_cell *s /* [2] */, int64_t seen,
                    const mt_cell *t /* [2] */, int64_t more);

/* Bytes of scratch that mt_cpu_reduce needs for this call. dims: the attribute. */
size_t mt_cpu_reduce_scratch(const mt_call *call, const mt_attr *dims);
/* Reduce in[0] over dims to out[0] and, if there is one, out[1]. */
mt_status mt_cpu_reduce(const mt_call *call, const mt_attr *dims, mt_reduction *r);

#endif
