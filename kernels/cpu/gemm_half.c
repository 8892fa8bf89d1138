/* kernels/cpu/gemm_half.c -- products of float16 and bfloat16 matrices: packing widens
** them, sums are in float32, and a block of c is rounded once when it is complete. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tables.h"

/* What a block of A, and B for all k, may take of the caches, bytes; columns of a block
** of c. */
#define BLOCK_A (192 << 10)
#define BLOCK_B (2 << 20)
#define WIDEST  512

/* A thread has a tile of c. Of B some columns are packed, for all k; of A some rows, and
** all at once if these are all rows of the tile. */
typedef struct plan {
  const mt_gemm_isa *isa;
  int64_t rows, columns, down, across; /* of a tile; tiles */
  int64_t kc, depth;                   /* of a block; words of a column for all k */
  int64_t mc, nc;
  bool keep_a;
  int64_t words_a, words_b, words_c, bias; /* of a thread; of all */
} plan;

static plan make_plan(const mt_gemm *g, int threads) {
  plan t = {.isa = mt_gemm_of(g->dtype)};
  const int64_t mr = t.isa->mr, nr = t.isa->nr, deep = t.isa->depth;
  mt_gemm_cut(g, t.isa, threads, &t.rows, &t.columns);
  t.down = (g->m + t.rows - 1) / t.rows;
  t.across = (g->n + t.columns - 1) / t.columns;
  t.kc = mt_equal_parts(mt_max(g->k, 1), MT_GEMM_KC * deep, 8);
  t.depth = (g->k + deep - 1) / deep;
  t.mc = mt_equal_parts(t.rows, mt_round_up(BLOCK_A * deep / (t.kc * 4), mr), mr);
  t.keep_a = t.rows <= t.mc;
  const int64_t fit = mt_min(BLOCK_B / (4 * mt_max(t.depth, 1)), WIDEST);
  /* where one block has all rows, a panel is packed right before its only use */
  t.nc = mt_equal_parts(t.columns, t.keep_a ? nr : mt_max(fit, nr), nr);
  t.words_a = mt_round_up(t.mc * (t.keep_a ? t.depth : t.kc / deep), 16) + 16;
  t.words_b = t.nc * t.depth;
  t.words_c = t.mc * mt_round_up(t.nc, MT_ROW_UNIT);
  t.bias = g->bias.data ? mt_round_up(mt_max(g->m, g->n), 16) : 0;
  return t;
}

/* A product with a vector: `count` sums of k terms, element (i, p) at rows[i * rs + p *
** cs]. */
typedef struct thin {
  int64_t count, rs, cs, vector_step, out_step, bias_step;
  const void *matrix, *vector;
} thin;

static bool is_thin(const mt_gemm *g, thin *t /* [out] */) {
  if (g->n == 1)
    *t = (thin){g->m, g->ars, g->acs, g->brs, g->crs, g->bias.rs, g->a, g->b};
  else if (g->m == 1)
    *t = (thin){g->n, g->bcs, g->brs, g->acs, 1, g->bias.cs, g->b, g->a};
  else
    return false;
  return t->cs == 1 || t->rs == 1;
}

#define THIN_UNIT 64 /* sums that a thread takes, at least */

size_t mt_gemm_half_scratch(const mt_gemm *g, int threads) {
  thin v;
  if (is_thin(g, &v))
    return (size_t)(mt_round_up(g->k, 16) + 2 * mt_round_up(v.count, 16)) * 4;
  const plan t = make_plan(g, threads);
  const int64_t own = t.words_a + t.words_b + t.words_c;
  return (size_t)(t.bias + t.down * t.across * own) * 4;
}

/* f of n sums in float32, rounded to c. n is rounded up: there is room. */
static void finish(const mt_gemm *g, int64_t n, float *sums, char *c, int64_t step) {
  if (g->activation != MT_LINEAR) {
    const int op = g->activation == MT_GELU ? MT_OP_gelu : MT_OP_relu;
    (*MT_ISA_PICK(mt_rows_f32))[op](mt_round_up(n, MT_ROW_UNIT),
                                    (char *const[]){(char *)sums, (char *)sums}, NULL);
  }
  mt_cpu_store_floats(g->dtype, n, sums, c, step * 2);
}

static void run_thin(const mt_gemm *g, const thin *t, float *scratch, int threads) {
  const mt_gemm_isa *isa = mt_gemm_floats_of(g->dtype);
  float *vector = scratch, *sums = vector + mt_round_up(g->k, 16);
  float *bias = sums + mt_round_up(t->count, 16);
  mt_cpu_load_floats(g->dtype, g->k, t->vector, t->vector_step * 2, vector);
  const int64_t parts = (t->count + THIN_UNIT - 1) / THIN_UNIT;
  const int64_t team =
      mt_max(1, mt_min(mt_min(threads, parts),
                       (int64_t)(mt_gemm_work(g) / MT_GEMM_GRAIN_THIN)));
#pragma omp parallel for num_threads(mt_cpu_team(team)) schedule(static)
  for (int64_t part = 0; part < team; part++) {
    const int64_t from = parts * part / team * THIN_UNIT;
    const int64_t n = mt_min(parts * (part + 1) / team * THIN_UNIT, t->count) - from;
    const char *matrix = (const char *)t->matrix + from * t->rs * 2;
    if (t->cs == 1)
      isa->dots(n, g->k, matrix, t->rs, vector, 1, sums + from, 1);
    else
      isa->axpys(g->k, n, matrix, t->cs, vector, 1, sums + from);
    if (g->bias.data) {
      mt_cpu_load_floats(g->dtype, n,
                         (const char *)g->bias.data + from * t->bias_step * 2,
                         t->bias_step * 2, bias + from);
      for (int64_t i = from; i < from + n; i++) sums[i] += bias[i];
    }
    finish(g, n, sums + from, (char *)g->c + from * t->out_step * 2, t->out_step);
  }
}

/* Rows i .. of columns j .. of c. */
static void run_block(const mt_gemm *g, const plan *t, int64_t i, int64_t m, int64_t j,
                      int64_t n, const float *bias, bool packed, float *pa,
                      const float *pb, float *pc) {
  const int64_t deep = t->isa->depth, mr = t->isa->mr, nr = t->isa->nr;
  const int64_t high = mt_round_up(m, mr), wide = mt_round_up(n, nr);
  const int64_t ld = mt_round_up(t->nc, MT_ROW_UNIT);
  int64_t p = 0;
  do { /* once, too, without terms */
    const int64_t kc = mt_min(g->k - p, t->kc), words = (kc + deep - 1) / deep;
    float *a = t->keep_a ? pa + p / deep * high : pa;
    if (!packed)
      t->isa->pack_a(m, kc, (const char *)g->a + (i * g->ars + p * g->acs) * 2, g->ars,
                     g->acs, a);
    mt_block block = {.m = m,
                      .n = n,
                      .k = words,
                      .a = a,
                      .ars = 1,
                      .acs = mr,
                      .anext = mr * words,
                      .b = pb + p / deep * wide,
                      .brs = nr,
                      .bnext = nr * words,
                      .c = pc,
                      .crs = ld,
                      .accumulate = p > 0};
    if (bias && p == 0)
      block.bias =
          (mt_bias){bias + (g->bias.rs ? i : j), g->bias.rs != 0, g->bias.cs != 0};
    t->isa->block(&block);
    p += t->kc;
  } while (p < g->k);
  for (int64_t r = 0; r < m; r++)
    finish(g, n, pc + r * ld, (char *)g->c + ((i + r) * g->crs + j) * 2, 1);
}

static void run_tile(const mt_gemm *g, const plan *t, int64_t tile, const float *bias,
                     float *pa) {
  float *pb = pa + t->words_a, *pc = pb + t->words_b;
  const int64_t i0 = tile % t->down * t->rows, j0 = tile / t->down * t->columns;
  const int64_t bottom = mt_min(g->m, i0 + t->rows),
                end = mt_min(g->n, j0 + t->columns);
  for (int64_t j = j0; j < end; j += t->nc) {
    const int64_t n = mt_min(end - j, t->nc), wide = mt_round_up(n, t->isa->nr);
    for (int64_t p = 0; p < g->k; p += t->kc)
      t->isa->pack_b(mt_min(g->k - p, t->kc), n,
                     (const char *)g->b + (p * g->brs + j * g->bcs) * 2, g->brs, g->bcs,
                     pb + p / t->isa->depth * wide);
    for (int64_t i = i0; i < bottom; i += t->mc) {
      if (g->call && mt_stopped(g->call)) return;
      run_block(g, t, i, mt_min(bottom - i, t->mc), j, n, bias, t->keep_a && j > j0, pa,
                pb, pc);
    }
  }
}

void mt_gemm_half_run(const mt_gemm *g, void *scratch, int threads) {
  thin v;
  if (is_thin(g, &v)) {
    run_thin(g, &v, scratch, threads);
    return;
  }
  const plan t = make_plan(g, threads);
  float *bias = g->bias.data ? scratch : NULL, *own = (float *)scratch + t.bias;
  if (bias && g->bias.rs)
    mt_cpu_load_floats(g->dtype, g->m, g->bias.data, g->bias.rs * 2, bias);
  else if (bias)
    mt_cpu_load_floats(g->dtype, g->n, g->bias.data, g->bias.cs * 2, bias);
  const int64_t count = t.down * t.across;
#pragma omp parallel for num_threads(mt_cpu_team(count)) schedule(static)
  for (int64_t tile = 0; tile < count; tile++)
    run_tile(g, &t, tile, bias, own + tile * (t.words_a + t.words_b + t.words_c));
}
