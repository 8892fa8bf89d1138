/* kernels/cpu/lu.c -- square matrices by Gaussian elimination with partial pivoting, in
** panels of columns: inverses, solutions, determinants. */
#include "kernels/cpu/gemm.h"

#define PANEL 64 /* columns that are eliminated before the rest of the matrix is */

/* a x = b for each of a batch of matrices: b of m columns; none: only U is wanted. */
typedef struct system {
  const mt_call *call;
  int64_t count, n, m;
} system;

/* What a thread works in. */
typedef struct room {
  void *matrix; /* n x n */
  void *rows;   /* PANEL x m */
  void *product;
  int threads; /* of a product */
} room;

/* What the thread's matrices came to; before its room. */
typedef struct found {
  int64_t matrix, column; /* the first singular one, or -1; where it has no pivot */
} found;

/* c (rows x n) += a b, where a lies in the matrix. */
static mt_gemm product(const system *s, int64_t rows, int64_t n, int64_t depth,
                       const void *a, const void *b, int64_t brs, void *c,
                       int64_t crs) {
  return (mt_gemm){.dtype = s->call->in[0]->dtype,
                   .m = rows,
                   .n = n,
                   .k = depth,
                   .a = a,
                   .ars = s->n,
                   .acs = 1,
                   .b = b,
                   .brs = brs,
                   .bcs = 1,
                   .c = c,
                   .crs = crs,
                   .accumulate = true,
                   .call = s->call};
}

#define T       float
#define NAME(f) f##_f32
#include "kernels/cpu/lu.inc"
#undef T
#undef NAME
#define T       double
#define NAME(f) f##_f64
#include "kernels/cpu/lu.inc"
#undef T
#undef NAME

static system system_of(const mt_call *call) {
  const mt_view *const a = call->in[0];
  system s = {call, 1, a->shape[a->ndim - 1], 0};
  for (int d = 0; d < a->ndim - 2; d++) s.count *= a->shape[d];
  if (call->op == MT_OP__determinant) return s;
  s.m = call->out[0]->shape[a->ndim - 1];
  if (s.n == 0 || s.m == 0) s.count = 0;
  return s;
}

/* Threads take whole matrices, or share each one's products. */
static int64_t team_of(const system *s) {
  const double work = (double)s->n * (double)s->n * ((double)s->n / 3 + (double)s->m);
  const int threads = s->call->num_threads;
  if (s->count < threads && s->n > 2 * PANEL) return 1;
  return mt_max(1, mt_min(mt_min(s->count, threads),
                          (int64_t)((double)s->count * work / MT_GEMM_GRAIN_THIN)));
}

static int threads_of_product(const system *s) {
  return team_of(s) > 1 ? 1 : s->call->num_threads;
}

static size_t bytes_of(const system *s, int64_t elements) {
  return (size_t)mt_round_up(elements * mt_cpu_size(s->call->in[0]->dtype), 64);
}

/* The most that one of the products needs. */
static size_t product_bytes(const system *s) {
  const int threads = threads_of_product(s);
  size_t most = 0;
  for (int64_t k = 0; k < s->n; k += PANEL) {
    const int64_t w = mt_min(PANEL, s->n - k), right = s->n - k - w;
    const mt_gemm g[] = {product(s, right, right, w, NULL, NULL, s->n, NULL, s->n),
                         product(s, right, s->m, w, NULL, NULL, s->m, NULL, s->m),
                         product(s, k, s->m, w, NULL, NULL, s->m, NULL, s->m)};
    for (int i = 0; i < 3; i++) {
      const size_t bytes = mt_gemm_scratch(&g[i], threads);
      if (bytes > most) most = bytes;
    }
  }
  return (size_t)mt_round_up((int64_t)most, 64);
}

static size_t room_bytes(const system *s) {
  return 64 + bytes_of(s, s->n * s->n) + bytes_of(s, PANEL * s->m) + product_bytes(s);
}

static size_t scratch(const mt_call *call) {
  const system s = system_of(call);
  return s.count > 0 ? (size_t)team_of(&s) * room_bytes(&s) : 0;
}

static void run_part(const system *s, int64_t from, int64_t to, char *p) {
  found *const f = (found *)p;
  const room r = {p + 64, p + 64 + bytes_of(s, s->n * s->n),
                  p + 64 + bytes_of(s, s->n * s->n) + bytes_of(s, PANEL * s->m),
                  threads_of_product(s)};
  f->matrix = -1;
  for (int64_t i = from; i < to && f->matrix < 0 && !mt_stopped(s->call); i++) {
    f->column =
        s->call->in[0]->dtype == MT_F64 ? matrix_f64(s, i, &r) : matrix_f32(s, i, &r);
    if (f->column >= 0) f->matrix = i;
  }
}

static mt_status run(const mt_call *call) {
  const system s = system_of(call);
  if (s.count == 0) return MT_OK;
  const int64_t team = team_of(&s);
  const size_t bytes = room_bytes(&s);
#pragma omp parallel for num_threads(mt_cpu_team((int)team)) schedule(static)
  for (int64_t part = 0; part < team; part++)
    run_part(&s, s.count * part / team, s.count * (part + 1) / team,
             (char *)call->scratch + (size_t)part * bytes);
  for (int64_t part = 0; part < team; part++) {
    const found *f =
        (const found *)((const char *)call->scratch + (size_t)part * bytes);
    if (f->matrix >= 0)
      mt_fault_set(call->fault, call->op, f->matrix, f->column + 1, 1, s.count);
  }
  return MT_OK;
}

#define ENTRY(name)                    \
  extern const mt_entry mt_cpu_##name; \
  const mt_entry mt_cpu_##name = {run, scratch, MT_FLOAT32_64, 3}
ENTRY(inverse);
ENTRY(_solve);
ENTRY(_determinant);
