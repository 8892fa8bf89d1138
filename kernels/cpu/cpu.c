/* kernels/cpu/cpu.c -- the shared parts of cpu.h: loops over views, threads, single
** elements, and the choice of the instruction set. */
#include "kernels/cpu/cpu.h"
#include "kernels/exponential.h"
#include <omp.h>
#include <stdlib.h>

/* exp(-104) is 0, exp(89) infinite, tanh(10) is 1, 2^-151 is 0, in float32. See exponential.h. */
const float mt_exp_bounds[5] = {-104, 89, 2 * 10, -151, 128};

int mt_cpu_level_cached = -1;

int mt_cpu_level_find(void) {
  __builtin_cpu_init();
  int level = 0;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    level = 1;
  if (level == 1 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 2;
  const char *wanted = getenv("MYTENSOR_ISA");
  if (wanted != NULL && strcmp(wanted, "v1") == 0) level = 0;
  if (wanted != NULL && strcmp(wanted, "v3") == 0 && level > 1) level = 1;
  __atomic_store_n(&mt_cpu_level_cached, level, __ATOMIC_RELAXED);
  return level;
}

bool mt_cpu_has_bf16(void) {
  static int known = -1; /* the same whoever finds it out */
  int has = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (has >= 0) return has;
  const char *wanted = getenv("MYTENSOR_ISA");
  has = mt_cpu_level() == 2 && __builtin_cpu_supports("avx512bf16") &&
        !(wanted != NULL && strcmp(wanted, "v4") == 0);
  __atomic_store_n(&known, has, __ATOMIC_RELAXED);
  return has;
}

/* ---- single elements ------------------------------------------------------------- */
#define LOAD_CASE(dtype, T, suffix) \
  case dtype: {                     \
    T x;                            \
    memcpy(&x, p, sizeof x);        \
    return (double)x;               \
  }

double mt_cpu_load_f64(mt_dtype d, const void *p) {
  uint16_t h;
  switch (d) {
    MT_EACH_FLOAT(LOAD_CASE)
    MT_EACH_INT(LOAD_CASE)
    LOAD_CASE(MT_BOOL, uint8_t, bool)
  case MT_F16: return memcpy(&h, p, sizeof h), (double)mt_f16_to_f32(h);
  case MT_BF16: return memcpy(&h, p, sizeof h), (double)mt_bf16_to_f32(h);
  default: return 0;
  }
}

void mt_cpu_store_i64(mt_dtype d, void *p, int64_t x) {
#define STORE_CASE(dtype, T, suffix) \
  case dtype: {                      \
    const T y = (T)x;                \
    memcpy(p, &y, sizeof y);         \
    return;                          \
  }
  switch (d) {
    MT_EACH_FLOAT(STORE_CASE)
    MT_EACH_INT(STORE_CASE)
  case MT_BOOL: *(uint8_t *)p = x != 0; return;
  default: mt_cpu_store_f64(d, p, (double)x);
  }
}

void mt_cpu_store_f64(mt_dtype d, void *p, double x) {
  uint16_t h;
  int64_t i;
  switch (d) {
    MT_EACH_FLOAT(STORE_CASE)
  case MT_F16: h = mt_f32_to_f16(mt_f64_to_f32_odd(x)), memcpy(p, &h, sizeof h); return;
  case MT_BF16:
    h = mt_f32_to_bf16(mt_f64_to_f32_odd(x)), memcpy(p, &h, sizeof h);
    return;
  case MT_BOOL: *(uint8_t *)p = x != 0; return;
  case MT_I64: break;
#define CLAMP_CASE(dtype, lo, hi) \
  case dtype: x = x < (lo) ? (lo) : x > (hi) ? (hi) : x; break
    CLAMP_CASE(MT_I32, INT32_MIN, INT32_MAX);
    CLAMP_CASE(MT_I16, INT16_MIN, INT16_MAX);
    CLAMP_CASE(MT_I8, INT8_MIN, INT8_MAX);
    CLAMP_CASE(MT_U8, 0, UINT8_MAX);
  default: return;
  }
  i = mt_f64_to_i64(x);
  mt_cpu_store_i64(d, p, i);
}

/* ---- loops over views ------------------------------------------------------------ */
static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Should dim j be inside dim i? By the first arg that tells. */
static bool goes_inside(const mt_space *s, int j, int i) {
  for (int k = 0; k < s->nargs; k++) {
    const int64_t a = magnitude(s->stride[k][j]), b = magnitude(s->stride[k][i]);
    if (a != b && a != 0 && b != 0) return a < b;
  }
  return false;
}

void mt_space_swap(mt_space *s, int i, int j) {
  const int64_t n = s->size[i];
  s->size[i] = s->size[j], s->size[j] = n;
  for (int k = 0; k < s->nargs; k++) {
    const int64_t t = s->stride[k][i];
    s->stride[k][i] = s->stride[k][j], s->stride[k][j] = t;
  }
}

static bool continues(const mt_space *s, int inner, int outer) {
  for (int k = 0; k < s->nargs; k++)
    if (s->stride[k][outer] != s->stride[k][inner] * s->size[inner]) return false;
  return true;
}

void mt_space_make(mt_space *s, int nargs, const mt_view *const *arg, bool keep_order) {
  const mt_view *first = arg[0];
  s->nargs = nargs;
  s->numel = 1;
  int n = 0;
  for (int d = first->ndim - 1; d >= 0; d--) { /* innermost first */
    s->numel *= first->shape[d];
    if (first->shape[d] == 1) continue;
    s->size[n] = first->shape[d];
    for (int k = 0; k < nargs; k++) {
      const int e = arg[k] ? d - first->ndim + arg[k]->ndim : -1;
      const bool fixed = e < 0 || arg[k]->shape[e] != first->shape[d];
      s->stride[k][n] = fixed ? 0 : arg[k]->stride[e] * mt_cpu_size(arg[k]->dtype);
    }
    n++;
  }
  if (n == 0 || s->numel == 0) { /* one element or none */
    s->size[0] = s->numel;
    for (int k = 0; k < nargs; k++) s->stride[k][0] = 0;
    s->ndim = 1;
    return;
  }
  if (!keep_order)
    for (int i = 1; i < n; i++)
      for (int j = i; j > 0 && goes_inside(s, j, j - 1); j--)
        mt_space_swap(s, j, j - 1);
  int last = 0;
  for (int i = 1; i < n; i++) {
    if (continues(s, last, i)) {
      s->size[last] *= s->size[i];
    } else if (++last != i) {
      s->size[last] = s->size[i];
      for (int k = 0; k < nargs; k++) s->stride[k][last] = s->stride[k][i];
    }
  }
  s->ndim = last + 1;
}

void mt_space_seek(const mt_space *s, int64_t index, int64_t *coord, int64_t *offset) {
  for (int k = 0; k < s->nargs; k++) offset[k] = 0;
  for (int d = 0; d < s->ndim; d++) {
    coord[d] = index % s->size[d];
    index /= s->size[d];
    for (int k = 0; k < s->nargs; k++) offset[k] += coord[d] * s->stride[k][d];
  }
}

/* ---- threads --------------------------------------------------------------------- */
/* Piece by piece, so that it can be ended. Single items may be long themselves. */
static void run_range(const mt_call *call, int64_t lo, int64_t hi, int64_t grain,
                      mt_range_fn fn, void *context) {
  const int64_t piece = grain > 1 ? grain * MT_PIECE : 1;
  while (lo < hi && !mt_stopped(call)) {
    const int64_t to = hi - lo > piece ? lo + piece : hi;
    fn(context, lo, to);
    lo = to;
  }
}

void mt_cpu_parallel_run(const mt_call *call, int64_t n, int64_t grain, mt_range_fn fn,
                         void *context) {
  int threads = call->num_threads;
  if (threads > n / grain) threads = (int)(n / grain);
  if (threads < 2) {
    run_range(call, 0, n, grain, fn, context);
    return;
  }
#pragma omp parallel num_threads(mt_cpu_team(threads))
  {
    const int64_t team = omp_get_num_threads(), t = omp_get_thread_num();
    const int64_t share = n / team, more = n % team;
    const int64_t lo = share * t + (t < more ? t : more);
    run_range(call, lo, lo + share + (t < more ? 1 : 0), grain, fn, context);
  }
}
