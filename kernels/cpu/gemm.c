/* kernels/cpu/gemm.c -- products of float matrices of any size: cut into tiles for
*threads
** and into blocks for caches; small and thin ones without packing. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tables.h"

const mt_gemm_isa *mt_gemm_of(mt_dtype dtype) {
  const mt_gemm_pair *pair = MT_ISA_PICK(mt_gemm);
  return dtype == MT_F64 ? &pair->f64 : &pair->f32;
}

/* The activation over m x n of c, which is in a cache still, by the op's own row. */
static void activate(const mt_gemm *g, int64_t m, int64_t n, char *c) {
  const int op = g->activation == MT_GELU ? MT_OP_gelu : MT_OP_relu;
  const mt_row row = g->dtype == MT_F64 ? (*MT_ISA_PICK(mt_rows_f64))[op]
                                        : (*MT_ISA_PICK(mt_rows_f32))[op];
  const int64_t size = mt_cpu_size(g->dtype), whole = n / MT_ROW_UNIT * MT_ROW_UNIT;
  for (int64_t i = 0; i < m; i++, c += g->crs * size) {
    row(whole, (char *const[]){c, c}, NULL);
    if (whole == n) continue;
    double rest[MT_ROW_UNIT] = {0}; /* rows have no tails */
    const size_t bytes = (size_t)((n - whole) * size);
    memcpy(rest, c + whole * size, bytes);
    row(MT_ROW_UNIT, (char *const[]){(char *)rest, (char *)rest}, NULL);
    memcpy(c + whole * size, rest, bytes);
  }
}

/* ---- thin and small products ---- */

static inline double load(mt_dtype d, const void *p, int64_t i) {
  return d == MT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static inline void store(mt_dtype d, void *p, int64_t i, double x) {
  if (d == MT_F64)
    ((double *)p)[i] = x;
  else
    ((float *)p)[i] = (float)x;
}

/* Rows [i0, i1) of columns [j0, j1) of c, without packing. */
static void thin_part(const mt_gemm *g, const mt_gemm_isa *isa, int64_t i0, int64_t i1,
                      int64_t j0, int64_t j1) {
  const int64_t size = g->dtype == MT_F64 ? 8 : 4;
  const char *a = (const char *)g->a + i0 * g->ars * size;
  const char *b = (const char *)g->b + j0 * g->bcs * size;
  char *c = (char *)g->c + (i0 * g->crs + j0) * size;
  const int64_t m = i1 - i0, n = j1 - j0;
  if (n == 1 && g->acs == 1) {
    isa->dots(m, g->k, a, g->ars, b, g->brs, c, g->crs);
  } else if (n == 1 && g->ars == 1 && g->crs == 1) {
    isa->axpys(g->k, m, a, g->acs, b, g->brs, c);
  } else {
    for (int64_t i = 0; i < m; i++) {
      const char *row = a + i * g->ars * size;
      char *to = c + i * g->crs * size;
      if (g->bcs == 1) {
        isa->axpys(g->k, n, b, g->brs, row, g->acs, to);
      } else if (g->brs == 1) {
        isa->dots(n, g->k, b, g->bcs, row, g->acs, to, 1);
      } else {
        for (int64_t j = 0; j < n; j++) {
          double sum = 0;
          for (int64_t p = 0; p < g->k; p++)
            sum += load(g->dtype, row, p * g->acs) *
                   load(g->dtype, b, p * g->brs + j * g->bcs);
          store(g->dtype, to, j, sum);
        }
      }
    }
  }
  for (int64_t i = 0; g->bias.data && i < m; i++)
    for (int64_t j = 0; j < n; j++)
      store(g->dtype, c, i * g->crs + j,
            load(g->dtype, c, i * g->crs + j) +
                load(g->dtype, g->bias.data,
                     (i0 + i) * g->bias.rs + (j0 + j) * g->bias.cs));
  if (g->activation != MT_LINEAR) activate(g, m, n, c);
}

/* Threads share rows, or the columns of a single row. */
static void thin(const mt_gemm *g, const mt_gemm_isa *isa, int threads) {
  const int64_t count = g->m > 1 ? g->m : g->n;
  const double work = (double)g->m * (double)g->n * (double)g->k / 65536;
  if (work < threads) threads = work < 1 ? 1 : (int)work;
  const int64_t team = mt_min(threads, count);
  if (team <= 1) {
    thin_part(g, isa, 0, g->m, 0, g->n);
    return;
  }
#pragma omp parallel for num_threads(team) schedule(static)
  for (int64_t part = 0; part < team; part++) {
    const int64_t from = count * part / team, to = count * (part + 1) / team;
    if (g->m > 1)
      thin_part(g, isa, from, to, 0, g->n);
    else
      thin_part(g, isa, 0, 1, from, to);
  }
}

/* ---- blocked products ---- */

/* How a product is cut: each tile is computed by one thread, its sums in one order. */
typedef struct tiles {
  int64_t rows, columns; /* of one tile */
  int64_t down, across;  /* how many */
} tiles;

static bool is_thin(const mt_gemm *g) {
  return g->m == 1 || g->n == 1 || g->k <= 2 ||
         (double)g->m * (double)g->n * (double)g->k <= 2048;
}

static tiles cut(const mt_gemm *g, const mt_gemm_isa *isa, int threads) {
  tiles t = {g->m, g->n, 1, 1};
  if ((double)g->m * (double)g->n * (double)g->k < 65536) threads = 1;
  while (t.down * t.across < threads) {
    /* halve the longer side, as long as both parts hold a few register blocks */
    const bool wide = t.columns >= t.rows;
    if (wide ? t.columns < 4 * isa->nr : t.rows < 4 * isa->mr) break;
    if (wide) {
      t.across *= 2;
      t.columns = mt_round_up((g->n + t.across - 1) / t.across, isa->nr);
    } else {
      t.down *= 2;
      t.rows = mt_round_up((g->m + t.down - 1) / t.down, isa->mr);
    }
  }
  t.across = (g->n + t.columns - 1) / t.columns;
  t.down = (g->m + t.rows - 1) / t.rows;
  return t;
}

static size_t packed_a(const mt_gemm *g, const mt_gemm_isa *isa, const tiles *t) {
  const int64_t rows = mt_min(mt_round_up(t->rows, isa->mr), MT_GEMM_MC);
  const int64_t bytes = rows * mt_min(g->k, MT_GEMM_KC) * (g->dtype == MT_F64 ? 8 : 4);
  return (size_t)mt_round_up(bytes + MT_GEMM_SLACK, 64);
}

static size_t packed_b(const mt_gemm *g, const mt_gemm_isa *isa, const tiles *t) {
  const int64_t columns = mt_min(mt_round_up(t->columns, isa->nr), MT_GEMM_NC);
  const int64_t bytes =
      columns * mt_min(g->k, MT_GEMM_KC) * (g->dtype == MT_F64 ? 8 : 4);
  return (size_t)mt_round_up(bytes, 64);
}

size_t mt_gemm_scratch(const mt_gemm *g, int threads) {
  if (is_thin(g)) return 0;
  const mt_gemm_isa *isa = mt_gemm_of(g->dtype);
  const tiles t = cut(g, isa, threads);
  const size_t parts = (size_t)mt_min(t.down * t.across, threads);
  return parts * (packed_a(g, isa, &t) + packed_b(g, isa, &t));
}

/* Rows i0 .. and columns j0 .. of c, as many as the tile holds. */
static void run_tile(const mt_gemm *g, const mt_gemm_isa *isa, int64_t i0, int64_t m,
                     int64_t j0, int64_t n, char *pa, char *pb) {
  const int64_t size = g->dtype == MT_F64 ? 8 : 4;
  for (int64_t j = j0; j < j0 + n; j += MT_GEMM_NC) {
    const int64_t nc = mt_min(j0 + n - j, MT_GEMM_NC);
    for (int64_t p = 0; p < g->k; p += MT_GEMM_KC) {
      const int64_t kc = mt_min(g->k - p, MT_GEMM_KC);
      const bool last = p + kc == g->k;
      isa->pack_b(kc, nc, (const char *)g->b + (p * g->brs + j * g->bcs) * size, g->brs,
                  g->bcs, pb);
      for (int64_t i = i0; i < i0 + m; i += MT_GEMM_MC) {
        const int64_t mc = mt_min(i0 + m - i, MT_GEMM_MC);
        isa->pack_a(mc, kc, (const char *)g->a + (i * g->ars + p * g->acs) * size,
                    g->ars, g->acs, pa);
        mt_bias bias = {0};
        if (g->bias.data && p == 0) {
          bias = g->bias;
          bias.data = (const char *)bias.data + (i * bias.rs + j * bias.cs) * size;
        }
        char *c = (char *)g->c + (i * g->crs + j) * size;
        isa->block(mc, nc, kc, pa, pb, c, g->crs, bias, p > 0,
                   last && g->activation == MT_RELU);
        if (last && g->activation == MT_GELU) activate(g, mc, nc, c);
      }
    }
  }
}

/* Every step-th tile from part on. */
static void run_part(const mt_gemm *g, const mt_gemm_isa *isa, const tiles *t,
                     int64_t part, int64_t step, char *scratch) {
  for (int64_t tile = part; tile < t->down * t->across; tile += step) {
    const int64_t i = tile % t->down * t->rows, j = tile / t->down * t->columns;
    run_tile(g, isa, i, mt_min(g->m - i, t->rows), j, mt_min(g->n - j, t->columns),
             scratch, scratch + packed_a(g, isa, t));
  }
}

void mt_gemm_run(const mt_gemm *g, void *scratch, int threads) {
  if (g->m == 0 || g->n == 0) return;
  const mt_gemm_isa *isa = mt_gemm_of(g->dtype);
  if (is_thin(g)) {
    thin(g, isa, threads);
    return;
  }
  const tiles t = cut(g, isa, threads);
  const int64_t team = mt_min(t.down * t.across, threads);
  if (team <= 1) {
    run_part(g, isa, &t, 0, 1, scratch);
    return;
  }
  const size_t bytes = packed_a(g, isa, &t) + packed_b(g, isa, &t);
#pragma omp parallel for num_threads(team) schedule(static)
  for (int64_t part = 0; part < team; part++)
    run_part(g, isa, &t, part, team, (char *)scratch + (size_t)part * bytes);
}
