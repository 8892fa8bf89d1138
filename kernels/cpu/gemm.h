/* kernels/cpu/gemm.h -- products of float matrices: packed panels and register blocks.
 */
#ifndef MT_GEMM_H
#define MT_GEMM_H

#include "kernels/cpu/cpu.h"

/* Depth of a block in convolutions. */
#define MT_GEMM_KC 256

/* Bytes of a second-level cache that may be counted on. */
#define MT_GEMM_L2 (256 << 10)

/* Products of elements that are worth a thread: some 10 microseconds, since to wake one
** takes that long; in thin products memory is what takes the time. */
#define MT_GEMM_GRAIN      524288
#define MT_GEMM_GRAIN_THIN 65536

/* What is added to c[i][j]: data[i * rs + j * cs]; data NULL: nothing. */
typedef struct mt_bias {
  const void *data;
  int64_t rs, cs; /* elements */
} mt_bias;

/* A packed A may be written over its end by so many bytes. */
#define MT_GEMM_SLACK 64

/* One block of a product: c[i][j] (rows crs apart) = A B, plus bias, or plus c itself
** with accumulate; what is below 0 becomes 0 with relu. Strides in elements. */
typedef struct mt_block {
  int64_t m, n, k;
  const void *a;           /* element (i, p) of a panel of mr rows: i * ars + p * acs */
  int64_t ars, acs, anext; /* anext: to the next panel */
  const void *b;           /* element (p, j) of a panel of nr columns: p * brs + j */
  int64_t brs, bnext;
  void *c;
  int64_t crs;
  mt_bias bias;
  int accumulate, relu;
  int fetch; /* B is larger than the second-level cache */
} mt_block;

/* Rows of images of y from images of x that have room for windows at every position:
** y[k][r][j] = bias[k] + sum over p of a[k][p] * x[r * xrow + j + koff[p]]. Strides in
** elements. */
typedef struct mt_direct {
  int64_t filters, depth, rows;
  int64_t width; /* of y: at least nr / 2 */
  const void
      *a; /* ceil(filters / mr) panels of filters in equal parts, each depth x mr */
  int64_t anext;
  const int64_t *koff;
  const void *x;
  int64_t xrow;
  void *y;
  int64_t plane;    /* from an image of y to the next */
  const void *bias; /* NULL: none */
  int accumulate;   /* y too */
  int relu;         /* what is below 0 becomes 0 */
} mt_direct;

/* The loops of one dtype for one level of x86-64. Packed A: panels of mr rows, each
** k x mr; packed B: panels of nr columns, each k x nr, on 64 bytes; what fills the last
** panel has no meaning. Panels of half types are of float32, as are c, y and bias;
** with depth 2 they are of pairs of bfloat16, adjacent in k, and for blocks k counts
** pairs. */
typedef struct mt_gemm_isa {
  int mr, nr, depth;
  /* pack an m x k block, element (i, p) at a[i * rs + p * cs] */
  void (*pack_a)(int64_t m, int64_t k, const void *a, int64_t rs, int64_t cs,
                 void *dst);
  /* pack a k x n block, element (p, j) at b[p * rs + j * cs] */
  void (*pack_b)(int64_t k, int64_t n, const void *b, int64_t rs, int64_t cs,
                 void *dst);
  void (*block)(const mt_block *g);
  /* y[i * ys] = sum over p of a[i * rs + p] * x[p * xs] */
  void (*dots)(int64_t m, int64_t k, const void *a, int64_t rs, const void *x,
               int64_t xs, void *y, int64_t ys);
  /* y[j] = sum over p of x[p * xs] * b[p * rs + j] */
  void (*axpys)(int64_t k, int64_t n, const void *b, int64_t rs, const void *x,
                int64_t xs, void *y);
  /* y[j] = sum over m rows of x[i * rs + j], added in float64 in that order */
  void (*column_sums)(int64_t m, int64_t n, const void *x, int64_t rs, void *y);
  /* Images: element (p, j) of the unrolled windows lies at x[koff[p] + joff[j]], where
  ** joff increases. pack_b of that k x n matrix; of its transpose (k counts joff then);
  ** and the adding of a k x n matrix, rows ld apart, to the places it came from. */
  void (*pack_windows)(int64_t k, int64_t n, const void *x, const int64_t *koff,
                       const int64_t *joff, void *dst);
  void (*pack_windows_t)(int64_t k, int64_t n, const void *x, const int64_t *joff,
                         const int64_t *koff, void *dst);
  void (*add_windows)(int64_t k, int64_t n, const void *m, int64_t ld, void *x,
                      const int64_t *koff, const int64_t *joff);
  void (*direct_rows)(const mt_direct *g);
} mt_gemm_isa;

typedef struct mt_gemm_set {
  mt_gemm_isa f32, f64, f16, bf16;
} mt_gemm_set;
MT_ISA_DECLARE(const mt_gemm_set, mt_gemm); /* rows_gemm.c */

/* Those that this processor runs best; of bfloat16 they may have depth 2, and then only
** mr, nr, pack_a, pack_b, pack_windows, add_windows and block. */
const mt_gemm_isa *mt_gemm_of(mt_dtype dtype);
/* The same with depth 1. */
const mt_gemm_isa *mt_gemm_floats_of(mt_dtype dtype);
extern const mt_gemm_isa mt_gemm_pairs; /* needs mt_cpu_has_bf16 */

/* What is made of each element of c in the end; in the order of linear's attribute. */
typedef enum mt_activation { MT_LINEAR, MT_RELU, MT_GELU } mt_activation;

/* c (m x n) = f(a (m x k) b (k x n) + bias). Any strides of a and b, in elements; the
** elements of a row of c are adjacent. */
typedef struct mt_gemm {
  mt_dtype dtype;
  int64_t m, n, k;
  const void *a, *b;
  int64_t ars, acs, brs, bcs;
  void *c;
  int64_t crs;
  mt_bias bias;
  mt_activation activation; /* f */
  bool accumulate;          /* c += a b; floats, not where mt_gemm_is_thin */
  const mt_call *call;      /* which may be ended; or NULL */
} mt_gemm;

/* So thin or small that plain loops do it. */
bool mt_gemm_is_thin(const mt_gemm *g);

/* Bytes that mt_gemm_run needs; a multiple of 64. */
size_t mt_gemm_scratch(const mt_gemm *g, int threads);
/* The result does not depend on threads. scratch is 64-byte aligned. */
void mt_gemm_run(const mt_gemm *g, void *scratch, int threads);

/* How many rows and columns a thread's tile of c has, whole panels. */
void mt_gemm_cut(const mt_gemm *g, const mt_gemm_isa *isa, int threads,
                 int64_t *rows /* [out] */, int64_t *columns /* [out] */);
/* The same of half types. */
size_t mt_gemm_half_scratch(const mt_gemm *g, int threads);
void mt_gemm_half_run(const mt_gemm *g, void *scratch, int threads);

/* `n` in equal parts of at most `most`, which are multiples of `unit`. */
static inline int64_t mt_equal_parts(int64_t n, int64_t most, int64_t unit) {
  const int64_t parts = (n + most - 1) / most, part = (n + parts - 1) / parts;
  return (part + unit - 1) / unit * unit;
}

/* A convolution with stride 1; weights may lie in any order. Element (k, c, i, j) of group g's is at w[g * wg + k * wk + c * wc + i * wi + j]
** or, with flip, at the same place of the window turned by 180 degrees. */
typedef struct mt_conv {
  const mt_call *call; /* whose interrupt ends it */
  mt_dtype dtype;
  int64_t n, groups, c, k; /* channels and filters of a group */
  int64_t h, w, ph, pw, kh, kw, dh, dw, oh, ow;
  const void *x, *weight, *bias;
  void *y;
  int64_t wg, wk, wc;
  bool flip;
  bool relu; /* of y */
} mt_conv;

/* conv2d and conv2d_backward_input as such; false: their stride is another. */
bool mt_conv_of_forward(const mt_call *call, mt_conv *d /* [out] */);
bool mt_conv_of_input(const mt_call *call, mt_conv *d /* [out] */);

/* Straight from the images: is it fast for this one? The answer does not depend on
** threads. */
bool mt_conv_direct_takes(const mt_conv *v);
size_t mt_conv_direct_scratch(const mt_conv *v, int threads);
void mt_conv_direct_run(const mt_conv *v, void *scratch, int threads);

/* Of a pair attribute. */
static inline int64_t mt_first(const mt_attr *a) { return a->i[0]; }
static inline int64_t mt_second(const mt_attr *a) {
  return a->n == 1 ? a->i[0] : a->i[1];
}

static inline int64_t mt_round_up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}
static inline int64_t mt_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t mt_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Products of two elements. */
static inline double mt_gemm_work(const mt_gemm *g) {
  return (double)g->m * (double)g->n * (double)g->k;
}

#endif
