/* kernels/cpu/gemm.c -- products of float matrices of any size: cut into tiles for
** threads and into blocks for caches; small and thin ones without packing. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tables.h"

const mt_gemm_isa *mt_gemm_of(mt_dtype dtype) {
  if (dtype == MT_BF16 && mt_cpu_has_bf16()) return &mt_gemm_pairs;
  return mt_gemm_floats_of(dtype);
}

const mt_gemm_isa *mt_gemm_floats_of(mt_dtype dtype) {
  const mt_gemm_set *set = MT_ISA_PICK(mt_gemm);
  switch (dtype) {
  case MT_F64: return &set->f64;
  case MT_F16: return &set->f16;
  case MT_BF16: return &set->bf16;
  default: return &set->f32;
  }
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

#define THIN_PIECE (1 << 22) /* multiply-adds between two looks at call->interrupt */

/* Rows, or the columns of a single row. */
static void thin_range(const mt_gemm *g, const mt_gemm_isa *isa, int64_t from,
                       int64_t to) {
  const int64_t each = g->m > 1 ? g->n * g->k : g->k;
  const int64_t piece = (THIN_PIECE / (each + 1) + 64) & -INT64_C(64);
  for (; from < to && !(g->call && mt_stopped(g->call)); from += piece) {
    const int64_t end = mt_min(to, from + piece);
    if (g->m > 1)
      thin_part(g, isa, from, end, 0, g->n);
    else
      thin_part(g, isa, 0, 1, from, end);
  }
}

/* Threads share rows, or the columns of a single row. */
static void thin(const mt_gemm *g, const mt_gemm_isa *isa, int threads) {
  const int64_t count = g->m > 1 ? g->m : g->n;
  const int64_t team =
      mt_min(mt_min(threads, count), (int64_t)(mt_gemm_work(g) / MT_GEMM_GRAIN_THIN));
  if (team <= 1) {
    thin_range(g, isa, 0, count);
    return;
  }
#pragma omp parallel for num_threads(mt_cpu_team(team)) schedule(static)
  for (int64_t part = 0; part < team; part++) {
    thin_range(g, isa, count * part / team, count * (part + 1) / team);
  }
}

/* ---- blocked products ---- */

/* How a product is cut. A tile is computed by one thread; its sums run over blocks of
** kc terms, in one order whatever the tiles are. */
typedef struct plan {
  const mt_gemm_isa *isa;
  int64_t size;          /* bytes of an element */
  int64_t rows, columns; /* of a tile */
  int64_t down, across;  /* tiles */
  int64_t kc, mc, nc;    /* of a block */
  bool pack_a, pack_b;
  int64_t bytes_a, bytes_b; /* packed, of each thread */
} plan;

bool mt_gemm_is_thin(const mt_gemm *g) {
  return g->m == 1 || g->n == 1 || g->k <= 2 || mt_gemm_work(g) <= 2048 ||
         (g->m <= 3 && g->bcs != 1 && g->brs == 1);
}

/* As many tiles as threads, or fewer: those that the slowest thread is done with first.
** Beside a tile's area, its edges count: they are what is packed. */
void mt_gemm_cut(const mt_gemm *g, const mt_gemm_isa *isa, int threads,
                 int64_t *rows /* [out] */, int64_t *columns /* [out] */) {
  const int64_t team = mt_min(threads, (int64_t)(mt_gemm_work(g) / MT_GEMM_GRAIN));
  double least = 0;
  for (int64_t down = 1; down == 1 || down <= team; down++) {
    const int64_t across = team > down ? team / down : 1;
    const int64_t high = mt_round_up((g->m + down - 1) / down, isa->mr);
    const int64_t wide = mt_round_up((g->n + across - 1) / across, isa->nr);
    const double cost = (double)high * (double)wide + 8 * ((double)high + (double)wide);
    if (down > 1 && cost >= least) continue;
    least = cost;
    *rows = high, *columns = wide;
  }
}

/* Do the lines of kc rows, `stride` elements apart, stay in the first-level cache while
** a panel is used? Where the distance is a multiple of a large power of two, they share
** few of its 64 sets. */
static bool spreads(int64_t stride, int64_t kc, int64_t size) {
  const int64_t bytes = (stride < 0 ? -stride : stride) * size;
  int64_t common = 64 * 64; /* of all lines of a set */
  while (common > 64 && bytes % common) common /= 2;
  return kc * common <= 4 * 64 * 64; /* 4 lines of each set */
}

/* What a panel of B, a block of A and a block of B may take of the three caches, bytes. */
#define PANEL_B (48 << 10)
#define BLOCK_A (192 << 10)
#define BLOCK_B (2 << 20)
/* The other matrix' size from which packing pays: a packed panel is used that often. */
#define PACKING_PAYS 128

static plan make_plan(const mt_gemm *g, int threads) {
  plan t = {.isa = mt_gemm_of(g->dtype), .size = mt_cpu_size(g->dtype)};
  const int64_t mr = t.isa->mr, nr = t.isa->nr;
  mt_gemm_cut(g, t.isa, threads, &t.rows, &t.columns);
  t.down = (g->m + t.rows - 1) / t.rows;
  t.across = (g->n + t.columns - 1) / t.columns;
  const int64_t deepest = mt_max(PANEL_B / (nr * t.size), 256);
  t.kc = mt_equal_parts(g->k, mt_min(deepest, 384), 8);
  t.mc = mt_equal_parts(t.rows, mt_round_up(BLOCK_A / (t.kc * t.size), mr), mr);
  t.pack_a = g->n > PACKING_PAYS ||
             (g->acs != 1 && (g->ars != 1 || !spreads(g->acs, t.kc, t.size)));
  t.pack_b = g->m > PACKING_PAYS || g->bcs != 1 || !spreads(g->brs, t.kc, t.size);
  /* where one block has all rows, panels of B are packed right before their only use */
  const int64_t widest = t.rows <= t.mc && t.pack_b ? nr : BLOCK_B / (t.kc * t.size);
  t.nc = mt_equal_parts(t.columns, mt_round_up(widest, nr), nr);
  if (t.pack_a) t.bytes_a = mt_round_up(t.mc * t.kc * t.size + MT_GEMM_SLACK, 64);
  /* the last columns, if they don't fill a panel, are packed in any case */
  t.bytes_b = mt_round_up((t.pack_b ? t.nc : nr) * t.kc * t.size, 64);
  return t;
}

size_t mt_gemm_scratch(const mt_gemm *g, int threads) {
  if (g->m == 0 || g->n == 0) return 0;
  if (mt_cpu_is_half(g->dtype)) return mt_gemm_half_scratch(g, threads);
  if (mt_gemm_is_thin(g)) return 0;
  const plan t = make_plan(g, threads);
  return (size_t)(t.down * t.across * (t.bytes_a + t.bytes_b));
}

/* n columns of c from column j on, by a block of A and what b says of B. */
static void run_columns(const mt_gemm *g, const plan *t, mt_block *block, int64_t i,
                        int64_t j, int64_t n, int64_t brs, const char *b) {
  block->n = n;
  block->b = b, block->brs = brs;
  block->bnext = brs == g->brs && !t->pack_b ? t->isa->nr : t->isa->nr * block->k;
  block->c = (char *)g->c + (i * g->crs + j) * t->size;
  block->bias = (mt_bias){0};
  if (g->bias.data && !block->accumulate) {
    block->bias = g->bias;
    block->bias.data =
        (const char *)g->bias.data + (i * g->bias.rs + j * g->bias.cs) * t->size;
  }
  t->isa->block(block);
}

/* kc terms from p on, of rows i0 .. and nc columns from j on. packed: A is. */
static void run_depth(const mt_gemm *g, const plan *t, int64_t p, int64_t i0, int64_t m,
                      int64_t j, int64_t nc, char *pa, bool packed) {
  const int64_t kc = mt_min(g->k - p, t->kc);
  char *pb = pa + t->bytes_a;
  const mt_gemm_isa *isa = t->isa;
  const bool last = p + kc == g->k;
  const int64_t whole = t->pack_b ? nc : nc / isa->nr * isa->nr;
  const char *b = (const char *)g->b + (p * g->brs + j * g->bcs) * t->size;
  if (t->pack_b)
    isa->pack_b(kc, nc, b, g->brs, g->bcs, pb);
  else if (whole < nc)
    isa->pack_b(kc, nc - whole, b + whole * t->size, g->brs, 1, pb);
  for (int64_t i = i0; i < i0 + m; i += t->mc) {
    if (g->call && mt_stopped(g->call)) return;
    const char *a = (const char *)g->a + (i * g->ars + p * g->acs) * t->size;
    mt_block block = {.m = mt_min(i0 + m - i, t->mc),
                      .k = kc,
                      .a = a,
                      .ars = g->ars,
                      .acs = g->acs,
                      .anext = isa->mr * g->ars,
                      .crs = g->crs,
                      .accumulate = p > 0 || g->accumulate,
                      .fetch = nc * kc * t->size > MT_GEMM_L2,
                      .relu = last && g->activation == MT_RELU};
    if (t->pack_a) {
      if (!packed) isa->pack_a(block.m, kc, a, g->ars, g->acs, pa);
      block.a = pa, block.ars = 1, block.acs = isa->mr, block.anext = isa->mr * kc;
    }
    if (whole > 0)
      run_columns(g, t, &block, i, j, whole, t->pack_b ? isa->nr : g->brs,
                  t->pack_b ? pb : b);
    if (whole < nc) run_columns(g, t, &block, i, j + whole, nc - whole, isa->nr, pb);
    if (last && g->activation == MT_GELU)
      activate(g, block.m, nc, (char *)g->c + (i * g->crs + j) * t->size);
  }
}

static void run_tile(const mt_gemm *g, const plan *t, int64_t tile, char *pa) {
  const int64_t i = tile % t->down * t->rows, j0 = tile / t->down * t->columns;
  const int64_t m = mt_min(g->m - i, t->rows);
  const int64_t end = mt_min(g->n, j0 + t->columns);
  if (m <= t->mc) {
    for (int64_t p = 0; p < g->k; p += t->kc)
      for (int64_t j = j0; j < end; j += t->nc)
        run_depth(g, t, p, i, m, j, mt_min(end - j, t->nc), pa, j > j0);
  } else {
    for (int64_t j = j0; j < end; j += t->nc)
      for (int64_t p = 0; p < g->k; p += t->kc)
        run_depth(g, t, p, i, m, j, mt_min(end - j, t->nc), pa, false);
  }
}

void mt_gemm_run(const mt_gemm *g, void *scratch, int threads) {
  if (g->m == 0 || g->n == 0) return;
  if (mt_cpu_is_half(g->dtype)) {
    mt_gemm_half_run(g, scratch, threads);
    return;
  }
  if (mt_gemm_is_thin(g)) {
    thin(g, mt_gemm_of(g->dtype), threads);
    return;
  }
  const plan t = make_plan(g, threads);
  const int64_t count = t.down * t.across;
#pragma omp parallel for num_threads(mt_cpu_team(count)) schedule(static)
  for (int64_t tile = 0; tile < count; tile++)
    run_tile(g, &t, tile, (char *)scratch + tile * (t.bytes_a + t.bytes_b));
}
