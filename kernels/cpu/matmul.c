/* kernels/cpu/matmul.c -- matmul and linear: which products of matrices they are. */
#include "kernels/cpu/gemm.h"

/* A batch of products of one size; strides in elements. */
typedef struct batch {
  mt_gemm one;
  int ndim;
  int64_t count;
  int64_t shape[MT_MAX_DIMS], a[MT_MAX_DIMS], b[MT_MAX_DIMS], c[MT_MAX_DIMS];
} batch;

/* v as (..., rows, columns): a vector is a row on the left, a column on the right. */
static mt_view as_matrices(const mt_view *v, bool left) {
  mt_view m = *v;
  if (v->ndim > 1) return m;
  m.ndim = 2;
  m.shape[left] = v->shape[0], m.stride[left] = v->stride[0];
  m.shape[!left] = 1, m.stride[!left] = 0;
  return m;
}

/* The rows of all matrices of v as those of one: how many, and their stride. False: they
** are not evenly spaced. What the stride of a dim of size 1 is says nothing. */
static bool rows_of_all(const mt_view *v, int64_t *rows /* [out] */,
                        int64_t *stride /* [out] */) {
  *rows = 1, *stride = v->stride[v->ndim - 2];
  for (int d = v->ndim - 2; d >= 0; d--) {
    if (v->shape[d] == 1) continue;
    if (*rows == 1)
      *stride = v->stride[d];
    else if (v->stride[d] != *stride * *rows)
      return false;
    *rows *= v->shape[d];
  }
  return true;
}

/* a and b are matrices, or batches of them; c is contiguous. */
static batch plan(const mt_view *a, const mt_view *b, const mt_view *c) {
  batch t = {.one = {.dtype = a->dtype,
                     .m = a->shape[a->ndim - 2],
                     .k = a->shape[a->ndim - 1],
                     .n = b->shape[b->ndim - 1],
                     .a = a->data,
                     .b = b->data,
                     .c = c->data,
                     .ars = a->stride[a->ndim - 2],
                     .acs = a->stride[a->ndim - 1],
                     .brs = b->stride[b->ndim - 2],
                     .bcs = b->stride[b->ndim - 1]},
             .count = 1};
  t.one.crs = t.one.n;
  int64_t rows, stride;
  if (b->ndim == 2 && rows_of_all(a, &rows, &stride)) { /* in one product */
    t.one.m = rows, t.one.ars = stride;
    return t;
  }
  t.ndim = (a->ndim > b->ndim ? a->ndim : b->ndim) - 2;
  int64_t step = t.one.m * t.one.n;
  for (int d = t.ndim - 1; d >= 0; d--) {
    const int da = d + a->ndim - 2 - t.ndim, db = d + b->ndim - 2 - t.ndim;
    const int64_t na = da < 0 ? 1 : a->shape[da], nb = db < 0 ? 1 : b->shape[db];
    t.shape[d] = na == 1 ? nb : na;
    t.a[d] = na == 1 ? 0 : a->stride[da];
    t.b[d] = nb == 1 ? 0 : b->stride[db];
    t.c[d] = step;
    step *= t.shape[d];
    t.count *= t.shape[d];
  }
  return t;
}

/* The product at position i of the batch. */
static mt_gemm product_at(const batch *t, int64_t i) {
  mt_gemm g = t->one;
  int64_t a = 0, b = 0, c = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    const int64_t at = i % t->shape[d];
    i /= t->shape[d];
    a += at * t->a[d], b += at * t->b[d], c += at * t->c[d];
  }
  const int64_t size = mt_cpu_size(g.dtype);
  g.a = (const char *)g.a + a * size;
  g.b = (const char *)g.b + b * size;
  g.c = (char *)g.c + c * size;
  return g;
}

/* ---- integers: sums wrap ---- */

#define PRODUCT(T, U, sfx)                                                             \
  static void product_##sfx(const mt_gemm *g, int64_t i) {                             \
    T *c = (T *)g->c + i * g->crs;                                                     \
    for (int64_t j = 0; j < g->n; j++) c[j] = 0;                                       \
    for (int64_t p = 0; p < g->k; p++) {                                               \
      const U x = (U)((const T *)g->a)[i * g->ars + p * g->acs];                       \
      const T *row = (const T *)g->b + p * g->brs;                                     \
      for (int64_t j = 0; j < g->n; j++) c[j] = (T)((U)c[j] + x * (U)row[j * g->bcs]); \
    }                                                                                  \
  }

PRODUCT(int64_t, uint64_t, i64)
PRODUCT(int32_t, uint32_t, i32)
PRODUCT(int16_t, uint32_t, i16)
PRODUCT(int8_t, uint32_t, i8)
PRODUCT(uint8_t, uint32_t, u8)

static void product_row(const mt_gemm *g, int64_t i) {
  switch (g->dtype) {
  case MT_I64: product_i64(g, i); break;
  case MT_I32: product_i32(g, i); break;
  case MT_I16: product_i16(g, i); break;
  case MT_I8: product_i8(g, i); break;
  default: product_u8(g, i); break;
  }
}

static void run_integers(const batch *t, int threads) {
  const mt_gemm *g = &t->one;
  const int64_t rows = t->count * g->m;
  if ((double)rows * (double)g->n * (double)g->k < 65536) threads = 1;
#pragma omp parallel for num_threads(mt_cpu_team(threads)) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const mt_gemm one = product_at(t, r / g->m);
    if (g->call && mt_stopped(g->call)) continue;
    product_row(&one, r % g->m);
  }
}

/* ---- floats ---- */

/* Threads take whole products of the batch, or share each. */
static bool by_product(const batch *t, int threads) {
  const double work = (double)t->one.m * (double)t->one.n * (double)t->one.k;
  return t->count >= 2 * threads || (t->count > 1 && work < 65536);
}

static int64_t team_of(const batch *t, int threads) {
  const double work =
      (double)t->count * (double)t->one.m * (double)t->one.n * (double)t->one.k;
  if (work < 65536) return 1;
  return mt_min(t->count, threads);
}

static size_t scratch_of(const batch *t, int threads) {
  if (!MT_IS_FLOAT(t->one.dtype)) return 0;
  if (!by_product(t, threads)) return mt_gemm_scratch(&t->one, threads);
  return (size_t)team_of(t, threads) * mt_gemm_scratch(&t->one, 1);
}

static mt_status run(const batch *planned, const mt_call *call) {
  batch own = *planned;
  const batch *const t = &own;
  own.one.call = call;
  if (t->count == 0 || t->one.m == 0 || t->one.n == 0) return MT_OK;
  if (!MT_IS_FLOAT(t->one.dtype)) {
    run_integers(t, call->num_threads);
    return MT_OK;
  }
  if (!by_product(t, call->num_threads)) {
    for (int64_t i = 0; i < t->count; i++) {
      const mt_gemm g = product_at(t, i);
      mt_gemm_run(&g, call->scratch, call->num_threads);
    }
    return MT_OK;
  }
  const int64_t team = team_of(t, call->num_threads);
  const size_t bytes = mt_gemm_scratch(&t->one, 1);
#pragma omp parallel for num_threads(mt_cpu_team(team)) schedule(static)
  for (int64_t part = 0; part < team; part++) {
    const int64_t end = t->count * (part + 1) / team;
    for (int64_t i = t->count * part / team; i < end; i++) {
      const mt_gemm g = product_at(t, i);
      mt_gemm_run(&g, (char *)call->scratch + (size_t)part * bytes, 1);
    }
  }
  return MT_OK;
}

static batch plan_matmul(const mt_call *call) {
  const mt_view a = as_matrices(call->in[0], true), b = as_matrices(call->in[1], false);
  return plan(&a, &b, call->out[0]);
}

#define FEW_TERMS 512 /* of which plain loops cost less than any plan */

static bool is_small(const mt_call *call) {
  const mt_view *a = call->in[0], *b = call->in[1];
  return a->ndim == 2 && b->ndim == 2 && MT_IS_FLOAT(a->dtype) &&
         a->shape[0] * a->shape[1] * b->shape[1] <= FEW_TERMS &&
         a->shape[0] <= FEW_TERMS && b->shape[1] <= FEW_TERMS;
}

typedef double doubles __attribute__((vector_size(32)));

/* Two rows and four columns at a time. */
#define SMALL_PRODUCT(T, suffix)                                          \
  typedef T four_##suffix __attribute__((vector_size(4 * sizeof(T))));    \
  static inline void put_##suffix(T *z, int64_t n, const doubles *sum) {  \
    const four_##suffix v = __builtin_convertvector(*sum, four_##suffix); \
    if (n == 4)                                                           \
      memcpy(z, &v, sizeof v);                                            \
    else                                                                  \
      for (int64_t q = 0; q < n; q++) z[q] = v[q];                        \
  }                                                                       \
  static void small_product_##suffix(const mt_view *a, const mt_view *b,  \
                                     const mt_view *c) {                  \
    const int64_t m = a->shape[0], n = b->shape[1], inner = a->shape[1];  \
    const int64_t ars = a->stride[0], acs = a->stride[1];                 \
    const int64_t brs = b->stride[0], bcs = b->stride[1];                 \
    for (int64_t i = 0; i < m; i += 2)                                    \
      for (int64_t j = 0; j < n; j += 4) {                                \
        const int64_t left = n - j < 4 ? n - j : 4, last = left - 1;      \
        const int64_t b1 = (last < 1 ? last : 1) * bcs;                   \
        const int64_t b2 = (last < 2 ? last : 2) * bcs, b3 = last * bcs;  \
        const bool pair = i + 1 < m; /* an odd last row: twice */         \
        const int64_t next = pair ? ars : 0;                              \
        const bool whole = left == 4 && bcs == 1;                         \
        const T *x = (const T *)a->data + i * ars;                        \
        const T *y = (const T *)b->data + j * bcs;                        \
        doubles sum = {0}, sum1 = {0};                                    \
        for (int64_t k = 0; k < inner; k++, x += acs, y += brs) {         \
          four_##suffix v;                                                \
          if (whole)                                                      \
            memcpy(&v, y, sizeof v);                                      \
          else                                                            \
            v = (four_##suffix){y[0], y[b1], y[b2], y[b3]};               \
          const doubles w = __builtin_convertvector(v, doubles);          \
          sum += (double)*x * w;                                          \
          sum1 += (double)x[next] * w;                                    \
        }                                                                 \
        T *z = (T *)c->data + i * n + j;                                  \
        put_##suffix(z, left, &sum);                                      \
        if (pair) put_##suffix(z + n, left, &sum1);                       \
      }                                                                   \
  }
SMALL_PRODUCT(float, f32)
SMALL_PRODUCT(double, f64)

static void small_product_half(const mt_view *a, const mt_view *b, const mt_view *c) {
  const uint16_t *x = (const uint16_t *)a->data, *y = (const uint16_t *)b->data;
  const bool brain = c->dtype == MT_BF16;
  for (int64_t i = 0; i < c->shape[0]; i++)
    for (int64_t j = 0; j < c->shape[1]; j++) {
      float sum = 0;
      for (int64_t k = 0; k < a->shape[1]; k++) {
        const uint16_t u = x[i * a->stride[0] + k * a->stride[1]];
        const uint16_t v = y[k * b->stride[0] + j * b->stride[1]];
        sum += brain ? mt_bf16_to_f32(u) * mt_bf16_to_f32(v)
                     : mt_f16_to_f32(u) * mt_f16_to_f32(v);
      }
      ((uint16_t *)c->data)[i * c->shape[1] + j] =
          brain ? mt_f32_to_bf16(sum) : mt_f32_to_f16(sum);
    }
}

static size_t matmul_scratch(const mt_call *call) {
  if (is_small(call)) return 0;
  const batch t = plan_matmul(call);
  return scratch_of(&t, call->num_threads);
}

static mt_status matmul_kernel(const mt_call *call) {
  if (is_small(call)) {
    const mt_dtype d = call->in[0]->dtype;
    (d == MT_F64   ? small_product_f64
     : d == MT_F32 ? small_product_f32
                   : small_product_half)(call->in[0], call->in[1], call->out[0]);
    return MT_OK;
  }
  const batch t = plan_matmul(call);
  return run(&t, call);
}

const mt_entry mt_cpu_matmul = {.run = matmul_kernel,
                                .scratch = matmul_scratch,
                                .dtypes = MT_FLOAT_MASK | MT_INT_MASK};

/* f(x w^T + b) */
static batch plan_linear(const mt_call *call) {
  const mt_view x = as_matrices(call->in[0], true), *w = call->in[1], *b = call->in[2];
  mt_view turned = *w;
  turned.shape[0] = w->shape[1], turned.shape[1] = w->shape[0];
  turned.stride[0] = w->stride[1], turned.stride[1] = w->stride[0];
  batch t = plan(&x, &turned, call->out[0]);
  if (b) t.one.bias = (mt_bias){b->data, 0, 1};
  t.one.activation = (mt_activation)call->attr[0].i[0];
  return t;
}

static size_t linear_scratch(const mt_call *call) {
  const batch t = plan_linear(call);
  return scratch_of(&t, call->num_threads);
}

static mt_status linear_kernel(const mt_call *call) {
  const batch t = plan_linear(call);
  return run(&t, call);
}

const mt_entry mt_cpu_linear = {.run = linear_kernel,
                                .scratch = linear_scratch,
                                .dtypes = MT_FLOAT_MASK,
                                .contiguous = 1u << 2};

/* ---- gradients of linear to its parameters ---- */

/* dw = dy^T x, over all rows of both. */
static batch plan_backward_weight(const mt_call *call) {
  const mt_view *x = call->in[0], *dy = call->in[1];
  const int64_t in = x->shape[x->ndim - 1], out = dy->shape[dy->ndim - 1];
  batch t = {.one = {.dtype = x->dtype,
                     .m = out,
                     .n = in,
                     .k = 1,
                     .a = dy->data,
                     .ars = 1,
                     .acs = out,
                     .b = x->data,
                     .brs = in,
                     .bcs = 1,
                     .c = call->out[0]->data,
                     .crs = in},
             .count = 1};
  for (int d = 0; d < x->ndim - 1; d++) t.one.k *= x->shape[d];
  return t;
}

static size_t backward_weight_scratch(const mt_call *call) {
  const batch t = plan_backward_weight(call);
  return scratch_of(&t, call->num_threads);
}

typedef struct sums {
  const mt_gemm *g;
  char *db;
} sums;

/* Columns are taken by 32: no sum's order depends on the number of threads. */
#define SUM_COLUMNS 32

static void sum_range(void *context, int64_t lo, int64_t hi) {
  const sums *s = context;
  const mt_gemm *g = s->g;
  const int64_t size = mt_cpu_size(g->dtype);
  const mt_gemm_isa *isa = mt_gemm_floats_of(g->dtype);
  if (!mt_cpu_is_half(g->dtype)) {
    const int64_t from = lo * SUM_COLUMNS;
    isa->column_sums(g->k, mt_min(hi * SUM_COLUMNS, g->m) - from,
                     (const char *)g->a + from * size, g->acs, s->db + from * size);
    return;
  }
  for (; lo < hi; lo++) {
    const int64_t from = lo * SUM_COLUMNS, n = mt_min(SUM_COLUMNS, g->m - from);
    float sum[SUM_COLUMNS];
    isa->column_sums(g->k, n, (const char *)g->a + from * size, g->acs, sum);
    mt_cpu_store_floats(g->dtype, n, sum, s->db + from * size, size);
  }
}

static mt_status backward_weight_kernel(const mt_call *call) {
  const batch t = plan_backward_weight(call);
  const mt_status status = run(&t, call);
  if (status != MT_OK || !call->out[1]) return status;
  sums s = {&t.one, call->out[1]->data};
  mt_cpu_parallel_for(call, (t.one.m + SUM_COLUMNS - 1) / SUM_COLUMNS,
                      mt_cpu_grain(t.one.k * SUM_COLUMNS), sum_range, &s);
  return MT_OK;
}

const mt_entry mt_cpu__linear_backward_weight = {.run = backward_weight_kernel,
                                                 .scratch = backward_weight_scratch,
                                                 .dtypes = MT_FLOAT_MASK,
                                                 .contiguous = 3};
