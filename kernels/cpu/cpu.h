/* kernels/cpu/cpu.h -- what all CPU kernels share: element types, half conversions,
** loops over strided views, threads, and the choice of the instruction set. */
#ifndef MT_CPU_H
#define MT_CPU_H

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "kernels/kernel.h"
#include "kernels/ops.h"

#define MT_CAT_(a, b) a##b
#define MT_CAT(a, b)  MT_CAT_(a, b)

/* ---- instruction sets ---------------------------------------------------------------
** Files named rows_*.c are compiled three times with MT_ISA = v1, v3, v4 (the levels of
** x86-64). They hold hot loops and name what they export MT_ISA_NAME(symbol). */
#ifdef MT_ISA
#define MT_ISA_NAME(symbol) MT_CAT(symbol##_, MT_ISA)
#endif

/* Declare `type symbol_v1, symbol_v3, symbol_v4`, and pick among them at run time. */
#define MT_ISA_DECLARE(type, symbol) extern type symbol##_v1, symbol##_v3, symbol##_v4
#define MT_ISA_PICK(symbol)             \
  (mt_cpu_level() == 2   ? &symbol##_v4 \
   : mt_cpu_level() == 1 ? &symbol##_v3 \
                         : &symbol##_v1)

extern int mt_cpu_level_cached; /* -1: not looked up yet */
int mt_cpu_level_find(void);
/* 0: x86-64, 1: -v3 (AVX2), 2: -v4 (AVX-512). MYTENSOR_ISA=v1|v3|v4 lowers it; v4 leaves
** out what mt_cpu_has_bf16 tells of. */
static inline int mt_cpu_level(void) {
  const int level = __atomic_load_n(&mt_cpu_level_cached, __ATOMIC_RELAXED);
  return level >= 0 ? level : mt_cpu_level_find();
}

/* Products of pairs of bfloat16, beside level 2. */
bool mt_cpu_has_bf16(void);

/* ---- element types ------------------------------------------------------------------
** MT_EACH_*(X): X(dtype, C type, suffix) for each. bool is a byte of 0 or 1. */
#define MT_EACH_FLOAT(X) X(MT_F32, float, f32) X(MT_F64, double, f64)
#define MT_EACH_INT(X)    \
  X(MT_I64, int64_t, i64) \
  X(MT_I32, int32_t, i32) \
  X(MT_I16, int16_t, i16) X(MT_I8, int8_t, i8) X(MT_U8, uint8_t, u8)

static inline int64_t mt_cpu_size(mt_dtype d) { /* bytes */
  static const uint8_t size[MT_NDTYPES] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
  return size[d];
}
static inline bool mt_cpu_is_half(mt_dtype d) { return d == MT_F16 || d == MT_BF16; }

static inline float mt_bits_f32(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
static inline uint32_t mt_f32_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

/* float16: 5 bits of exponent. A product with 2^112 moves the bias and, exactly, makes
** subnormals normal; an exponent of all ones is restored afterwards. */
static inline float mt_f16_to_f32(uint16_t h) {
  const float f = mt_bits_f32((uint32_t)(h & 0x7fffu) << 13) * 0x1p112f;
  const uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return mt_bits_f32(mt_f32_bits(f) | special | (uint32_t)(h & 0x8000u) << 16);
}
static inline uint16_t mt_f32_to_f16(float f) { /* to nearest, ties to even */
  const uint32_t bits = mt_f32_bits(f), a = bits & 0x7fffffffu;
  /* 0.5 has a last bit worth 2^-24, that of a float16 subnormal: the sum rounds. */
  const uint32_t small = mt_f32_bits(mt_bits_f32(a) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
  const uint32_t large = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t r = a < 0x38800000u ? small : a < 0x47800000u ? normal : large;
  return (uint16_t)(r | (bits >> 16 & 0x8000u));
}
static inline float mt_bf16_to_f32(uint16_t h) {
  return mt_bits_f32((uint32_t)h << 16);
}
static inline uint16_t mt_f32_to_bf16(float f) { /* to nearest, ties to even */
  const uint32_t a = mt_f32_bits(f);
  const uint32_t r = (a & 0x7fffffffu) > 0x7f800000u
                         ? (a >> 16) | 0x40u
                         : (a + 0x7fffu + (a >> 16 & 1u)) >> 16;
  return (uint16_t)r;
}
/* Rounds what is not exact to the odd neighbour, so that rounding once more, to a half
** type, gives what rounding once would have. */
static inline float mt_f64_to_f32_odd(double x) {
  const float f = (float)x;
  const double back = (double)f;
  const uint32_t bits = mt_f32_bits(f) - (uint32_t)(fabs(back) > fabs(x));
  return mt_bits_f32(back < x || back > x ? bits | 1u : bits);
}

/* Truncates, saturates; NaN gives 0. */
static inline int64_t mt_f64_to_i64(double x) {
  if (!(x == x)) return 0;
  if (x >= 0x1p63) return INT64_MAX;
  return x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

/* One element of any dtype. For single values and odd loops, not for hot ones. */
double mt_cpu_load_f64(mt_dtype d, const void *p);
void mt_cpu_store_f64(mt_dtype d, void *p, double x);
void mt_cpu_store_i64(mt_dtype d, void *p, int64_t x); /* integers wrap */

/* n elements of `size` bytes (1, 2, 4 or 8), `stride` bytes apart, to contiguous
** memory, and back. */
void mt_cpu_pack(int64_t n, int size, const char *src, int64_t stride,
                 void *dst /* [out] */);
void mt_cpu_unpack(int64_t n, int size, const void *src, char *dst /* [out] */,
                   int64_t stride);

/* n elements, `stride` bytes apart, of a half dtype (or float32) to contiguous floats,
** and back. Vectorised; the buffers may not overlap. */
void mt_cpu_load_floats(mt_dtype d, int64_t n, const void *src, int64_t stride,
                        float *dst /* [out] */);
void mt_cpu_store_floats(mt_dtype d, int64_t n, const float *src, void *dst /* [out] */,
                         int64_t stride);

/* n elements of dtype `from`, `stride` bytes apart, to contiguous ones of dtype
** `to`, and back. The conversions are those of _cast. */
void mt_cpu_load(mt_dtype from, int64_t n, const char *src, int64_t stride, mt_dtype to,
                 void *dst /* [out] */);
void mt_cpu_store(mt_dtype from, int64_t n, const void *src, mt_dtype to,
                  char *dst /* [out] */, int64_t stride);

/* ---- views ----------------------------------------------------------------------- */
static inline int64_t mt_cpu_numel(const mt_view *v) {
  int64_t n = 1;
  for (int d = 0; d < v->ndim; d++) n *= v->shape[d];
  return n;
}
static inline bool mt_cpu_contiguous(const mt_view *v) {
  int64_t expected = 1;
  for (int d = v->ndim - 1; d >= 0; d--) {
    if (v->shape[d] != 1 && v->stride[d] != expected) return false;
    expected *= v->shape[d];
  }
  return true;
}

/* A nest of loops over several views, innermost first: dims of size 1 dropped, dims
** that continue each other merged, ordered so that arg[0]'s smallest stride is
** innermost. */
#define MT_SPACE_ARGS 8
typedef struct mt_space {
  int ndim; /* at least 1 */
  int nargs;
  int64_t numel;
  int64_t size[MT_MAX_DIMS];
  int64_t stride[MT_SPACE_ARGS][MT_MAX_DIMS]; /* bytes; 0: broadcast */
} mt_space;

/* The shape is arg[0]'s; the others are broadcast to it, aligned at the last dim. A
** NULL arg has strides 0. keep_order: dims stay in arg[0]'s order (the last
** innermost), for what counts positions. */
void mt_space_make(mt_space *s, int nargs, const mt_view *const *arg, bool keep_order);

/* Exchange two dims. */
void mt_space_swap(mt_space *s, int i, int j);

/* Byte offsets of all args at element `index` (counted innermost first); coord is
** set. */
void mt_space_seek(const mt_space *s, int64_t index, int64_t *coord /* [out] */,
                   int64_t *offset /* [out] */);

/* Move n elements on, which must not leave the innermost row but may end it. */
static inline void mt_space_advance(const mt_space *s, int64_t n, int64_t *coord,
                                    int64_t *offset) {
  coord[0] += n;
  for (int k = 0; k < s->nargs; k++) offset[k] += n * s->stride[k][0];
  for (int d = 0; d + 1 < s->ndim && coord[d] == s->size[d]; d++) {
    coord[d] = 0;
    coord[d + 1]++;
    for (int k = 0; k < s->nargs; k++)
      offset[k] += s->stride[k][d + 1] - s->size[d] * s->stride[k][d];
  }
}

/* ---- threads --------------------------------------------------------------------- */
#define MT_GRAIN 32768 /* elements of light work that are worth a thread */

/* Gives `threads`, for the clause num_threads of a parallel region that begins now; sees
** to it that they lie on cores of their own (bind.c). */
int mt_cpu_team(int threads);

#define MT_PIECE 32 /* grains between two looks at call->interrupt */

/* fn(context, lo, hi) over parts of 0 .. n-1, by at most call->num_threads threads,
** each with `grain` items or more. One part: called right here, nothing is woken.
** What fn computes for an item must not depend on where the parts begin. */
typedef void (*mt_range_fn)(void *context, int64_t lo, int64_t hi);
void mt_cpu_parallel_run(const mt_call *call, int64_t n, int64_t grain, mt_range_fn fn,
                         void *context);
static inline void mt_cpu_parallel_for(const mt_call *call, int64_t n, int64_t grain,
                                       mt_range_fn fn, void *context) {
  if (n <= 0) return;
  if ((call->num_threads < 2 && n / MT_PIECE <= grain) || n < 2 * grain || n < 2)
    fn(context, 0, n);
  else
    mt_cpu_parallel_run(call, n, grain, fn, context);
}

/* Items worth a thread when each costs about `cost` light elements. */
static inline int64_t mt_cpu_grain(int64_t cost) {
  const int64_t grain = MT_GRAIN / (cost > 0 ? cost : 1);
  return grain > 0 ? grain : 1;
}

/* ---- rows ---------------------------------------------------------------------------
** A row works on n contiguous elements: p[0] is written, p[1 ..] are read; in place is
** allowed, other overlap is not. n is a multiple of MT_ROW_UNIT: there are no tails, so
** an element's value does not depend on its position. */
#define MT_ROW_UNIT 16
typedef void (*mt_row)(int64_t n, char *const *p, const mt_attr *attr);

/* out[k] = rows[k](in ...) for each element of out[0]'s shape: any strides, broadcast,
** threads. rows NULL: the only output becomes the only input, of as large elements. Half inputs and outputs are converted to and from float if `halves`. A NULL
** in[i] is not used by the rows; a NULL out[k] is skipped. Never allocates. */
mt_status mt_cpu_rows(const mt_call *call, const mt_row *rows, int nout,
                      mt_view *const *out, int nin, const mt_view *const *in,
                      const mt_attr *attr, bool halves);

/* Make the elements of `out` at positions start .. start + n - 1 of its row-major
** order, as contiguous elements of the dtype that was asked for. start is a multiple
** of 16. */
typedef void (*mt_generate_fn)(const void *context, int64_t start, int64_t n,
                               void *values /* [out] */);
/* Fill out, whatever its strides and dtype, with what fn makes, converted from `from`.
** cost: of an element, in light ones. */
mt_status mt_cpu_generate(const mt_call *call, const mt_view *out, mt_dtype from,
                          mt_generate_fn fn, const void *context, int64_t cost);

/* dst = src with conversion; src is broadcast to dst's shape. num_threads at most. */
mt_status mt_cpu_copy_view(const mt_call *call, const mt_view *dst, const mt_view *src);

#endif
