/* kernels/cpu/winograd.c -- convolutions with 3 x 3 or 5 x 5 windows and stride 1 by
** Winograd's F(4 x 4, 3 x 3) and F(2 x 2, 5 x 5) (Lavin and Gray 2015): tiles of y cost
** a quarter of the products, or 36 of 100. */
#include "kernels/cpu/winograd.h"

/* Fewer channels or filters don't pay for the transforms (of the weight gradient fewer
** pairs), fewer tiles not for that of the filters. */
#define FEWEST_CHANNELS 8
#define FEWEST_PAIRS    144
#define FEWEST_TILES    16
/* Transformed filters of all groups, bytes at most. */
#define MOST_FILTERS ((int64_t)64 << 20)
/* Transformed patches of a chunk of tiles, bytes about, and products of some filters. */
#define CHUNK_BYTES   (512 << 10)
#define PRODUCT_BYTES (96 << 10)
/* Weight gradients: parts of the batch at most, and tiles of a part at least. */
#define PARTS      16
#define PART_TILES 256

typedef struct plan {
  const mt_gemm_isa *isa;
  const mt_winograd_isa *loops;
  const mt_winograd_window *window;
  int64_t tile, area;          /* elements of a side of a tile, of a window */
  int64_t down, across, tiles; /* of an image */
  int64_t chunk;               /* tiles worked on at a time, at most */
  int64_t room;                /* floats of one point of them */
  int64_t panels;              /* of filters of a group */
  int64_t at_once;             /* filters whose products are made at a time */
  int64_t parts, splits;       /* of tiles, and of the filters: weight gradient */
  int64_t team;
  /* floats */
  int64_t filters, point; /* transformed filters of a group, of one point */
  int64_t patch, patches; /* transformed patches of one point, of all */
  int64_t value, values;  /* transformed gradients to y */
  int64_t product, products;
  int64_t plane, split, line, elements, turned, own, sums;
  int64_t floats; /* filters and bias of half types as floats */
} plan;

/* Tiles from .. from + count - 1 of an image, which are tiles at .. of the chunk. */
typedef struct piece {
  int64_t image, from, count, at;
} piece;

/* Floats from one point to the next: an odd number of cache lines, or what belongs
** together would lie in few of a cache's sets. */
static int64_t point_step(int64_t floats) { return mt_round_up(floats + 16, 32) - 16; }

static int64_t parts_of(int64_t n, int64_t of) { return (n + of - 1) / of; }

/* A patch has as many elements for each window. */
static int64_t tile_of(const mt_conv *v) { return MT_PATCH - v->kh + 1; }

static plan make_plan(const mt_conv *v, int threads, int64_t points) {
  plan t = {.isa = mt_gemm_of(MT_F32),
            .loops = MT_ISA_PICK(mt_winograd),
            .tile = tile_of(v),
            .area = v->kh * v->kw};
  t.window = v->kh == 3 ? &t.loops->three : &t.loops->five;
  const int64_t lanes = t.loops->lanes, mr = t.isa->mr;
  t.down = parts_of(v->oh, t.tile), t.across = parts_of(v->ow, t.tile);
  t.tiles = t.down * t.across;
  const int64_t total = t.tiles * v->n;
  const int64_t fit = CHUNK_BYTES / (4 * MT_POINTS * points);
  t.chunk = mt_min(mt_max(fit / (2 * lanes) * (2 * lanes), 2 * lanes), 16 * lanes);
  t.chunk = mt_min(t.chunk, mt_round_up(total, lanes));
  t.room = t.chunk + lanes;
  t.patch = point_step(v->c * t.room);
  t.patches = MT_POINTS * t.patch;
  t.panels = parts_of(v->k, mr);
  if (mt_cpu_is_half(v->dtype))
    t.floats = mt_round_up(v->groups * v->k * (v->c * t.area + 1), lanes);
  const double work = (double)total * (double)v->groups * (double)v->c * (double)v->k;
  t.team = mt_max(1, mt_min(threads, (int64_t)(work * MT_POINTS / MT_GEMM_GRAIN)));
  const int64_t wide = mt_min(t.across, t.chunk);
  const int64_t high = t.across < t.chunk ? mt_min(t.down, t.chunk / t.across + 2) : 1;
  const int64_t more =
      (MT_PATCH - 1) / t.tile; /* rows that the last patches reach over */
  t.plane = mt_round_up((high + more) * wide + 2 * lanes, lanes);
  t.split = t.tile * MT_PATCH * t.plane;
  t.line = mt_round_up(t.tile * (wide + 2 * lanes), lanes);
  return t;
}

/* Where the chunk that begins at tile `at` ends: it does not pass `end`, and leaves a row
** of tiles only where it takes several. */
static int64_t chunk_end(const plan *t, int64_t at, int64_t end) {
  if (t->across < t->chunk) return mt_min(at + t->chunk, end);
  const int64_t column = at % t->across;
  const int64_t size = parts_of(t->across, parts_of(t->across, t->chunk));
  return mt_min(mt_min(at + size, at - column + t->across), end);
}

/* The piece of tiles [at, end) that begins at tile `from`. */
static piece piece_at(const plan *t, int64_t at, int64_t from, int64_t end) {
  const int64_t image = from / t->tiles, first = from % t->tiles;
  return (piece){image, first, mt_min(end - from, t->tiles - first), from - at};
}

/* Cut rows of a plane, h x w and padded with zeros by ph and pw, into the columns of
** tiles: see mt_winograd_isa. `deep` rows and columns a tile. Gives the row of
** tiles' length, and where the piece's first tile lies. */
static int64_t split_piece(const plan *t, const piece *p, mt_dtype dtype, const char *x,
                           int64_t h, int64_t w, int64_t ph, int64_t pw, int deep,
                           float *split, float *line, int64_t *first /* [out] */) {
  const int64_t top = p->from / t->across;
  const int64_t bottom = (p->from + p->count - 1) / t->across;
  const int64_t left = top == bottom ? p->from % t->across : 0;
  const int64_t width = top == bottom ? p->count : t->across;
  const int64_t tile = t->tile;
  const int64_t start = mt_max(0, pw - tile * left), skip = mt_max(0, tile * left - pw);
  const int64_t length = tile * width + deep - tile;
  const int64_t copied = mt_max(0, mt_min(w - skip, length - start));
  memset(line, 0, (size_t)start * sizeof *line);
  memset(line + start + copied, 0,
         (size_t)mt_max(0, length - start - copied) * sizeof *line);
  const int64_t rows = tile * (bottom - top) + deep;
  for (int64_t r = 0; r < rows; r++) {
    float *to = split + r % tile * deep * t->plane + r / tile * width;
    const int64_t from = tile * top + r - ph;
    if (from >= 0 && from < h) {
      t->loops->read_row[dtype](copied, x + (from * w + skip) * mt_cpu_size(dtype),
                                line + start);
      t->window->split_row(width, deep, line, to, t->plane);
    } else {
      for (int j = 0; j < deep; j++)
        memset(to + j * t->plane, 0, (size_t)width * sizeof *to);
    }
  }
  *first = top == bottom ? 0 : p->from - top * t->across;
  return width;
}

/* The transformed patches of tiles [at, end): point e of channel c's tile i at
** to[e * patch + c * room + i]. */
static void transform_patches(const mt_conv *v, const plan *t, int64_t g, int64_t at,
                              int64_t end, float *split, float *line, float *to) {
  for (int64_t c = 0; c < v->c; c++)
    for (int64_t from = at; from < end;) {
      const piece p = piece_at(t, at, from, end);
      const char *x = (const char *)v->x + ((p.image * v->groups + g) * v->c + c) *
                                               v->h * v->w * mt_cpu_size(v->dtype);
      int64_t first;
      const int64_t width = split_piece(t, &p, v->dtype, x, v->h, v->w, v->ph, v->pw,
                                        MT_PATCH, split, line, &first);
      t->window->patches(p.count, split + first, t->plane, width,
                         to + c * t->room + p.at, t->patch);
      from += p.count;
    }
}

/* ---- y ---- */

static plan plan_forward(const mt_conv *v, int threads) {
  plan t = make_plan(v, threads, v->c);
  const int64_t mr = t.isa->mr;
  t.point = point_step(t.panels * mr * v->c);
  t.filters = MT_POINTS * t.point;
  const int64_t fit = PRODUCT_BYTES / (4 * MT_POINTS * t.room) / mr * mr;
  t.at_once = mt_min(mt_max(fit, mr), v->k);
  t.product = point_step(t.at_once * t.room);
  t.products = MT_POINTS * t.product;
  t.elements = t.tile * t.tile * t.room;
  t.own = t.split + t.line + t.patches + t.products + t.elements;
  return t;
}

/* Of its products, those with padding not counted, more than 9 / 4 must be saved for
** one that is left: transforms, and what tiles have beyond y, take their part. */
bool mt_winograd_takes(const mt_conv *v) {
  if (v->dtype == MT_F64 || (v->kh != 3 && v->kh != 5) || v->kw != v->kh ||
      v->dh != 1 || v->dw != 1 || v->ph < 0 || v->pw < 0 || v->c < FEWEST_CHANNELS ||
      v->k < FEWEST_CHANNELS ||
      v->groups * v->c * v->k > MOST_FILTERS / (4 * MT_POINTS))
    return false;
  const int64_t tile = tile_of(v);
  const int64_t tiles = parts_of(v->oh, tile) * parts_of(v->ow, tile);
  const int64_t products = mt_min(v->oh * v->ow, v->h * v->w) * v->kh * v->kw;
  return tiles * v->n >= FEWEST_TILES && 4 * products > 9 * tiles * MT_POINTS;
}

size_t mt_winograd_scratch(const mt_conv *v, int threads) {
  const plan t = plan_forward(v, threads);
  return (size_t)(t.floats + v->groups * t.filters + t.team * t.own) * sizeof(float);
}

/* Products of filters k .. of patches, as elements of y. */
static void make_tiles(const mt_conv *v, const plan *t, int64_t g, int64_t k,
                       int64_t filters, int64_t at, int64_t end, const float *weights,
                       const float *bias, const float *patches, float *products,
                       float *elements) {
  const int64_t mr = t->isa->mr, count = mt_round_up(end - at, t->loops->lanes);
  for (int64_t e = 0; e < MT_POINTS; e++)
    t->isa->block(&(mt_block){.m = filters,
                              .n = count,
                              .k = v->c,
                              .a = weights + e * t->point + k * v->c,
                              .ars = 1,
                              .acs = mr,
                              .anext = mr * v->c,
                              .b = patches + e * t->patch,
                              .brs = t->room,
                              .bnext = t->isa->nr,
                              .c = products + e * t->product,
                              .crs = t->room});
  const int64_t tile = t->tile, row = tile * t->room, plane = v->oh * v->ow;
  const int64_t size = mt_cpu_size(v->dtype);
  for (int64_t i = 0; i < filters; i++) {
    t->window->tiles(count, products + i * t->room, t->product,
                     bias ? bias[g * v->k + k + i] : 0, v->relu, elements, row);
    for (int64_t from = at; from < end;) {
      const piece p = piece_at(t, at, from, end);
      char *y =
          (char *)v->y + ((p.image * v->groups + g) * v->k + k + i) * plane * size;
      for (int64_t done = 0; done < p.count;) {
        const int64_t down = (p.from + done) / t->across;
        const int64_t across = (p.from + done) % t->across;
        const int64_t some = mt_min(t->across - across, p.count - done);
        t->loops->write_rows[v->dtype](
            mt_min(tile, v->oh - tile * down),
            mt_min(tile * some, v->ow - tile * across), elements + tile * (p.at + done),
            row, y + (tile * down * v->ow + tile * across) * size, v->ow);
        done += some;
      }
      from += p.count;
    }
  }
}

static void run_range(const mt_conv *v, const plan *t, int64_t begin, int64_t end,
                      const float *weights, const float *bias, float *own) {
  const int64_t total = t->tiles * v->n;
  float *split = own, *line = split + t->split, *patches = line + t->line;
  float *products = patches + t->patches, *elements = products + t->products;
  memset(own, 0, (size_t)(t->split + t->line) * sizeof *own);
  while (begin < end && !mt_stopped(v->call)) {
    const int64_t g = begin / total, first = g * total;
    const int64_t at = begin - first;
    const int64_t next = chunk_end(t, at, mt_min(end - first, total));
    transform_patches(v, t, g, at, next, split, line, patches);
    for (int64_t k = 0; k < v->k; k += t->at_once)
      make_tiles(v, t, g, k, mt_min(v->k - k, t->at_once), at, next,
                 weights + g * t->filters, bias, patches, products, elements);
    begin = first + next;
  }
}

void mt_winograd_run(const mt_conv *v, void *scratch, int threads) {
  const plan t = plan_forward(v, threads);
  const int64_t mr = t.isa->mr, panels = t.panels * v->groups;
  const int64_t numel = v->groups * v->k * v->c * t.area;
  float *floats = scratch, *weights = floats + t.floats;
  float *own = weights + v->groups * t.filters;
  const float *filters = v->weight, *bias = v->bias;
  if (mt_cpu_is_half(v->dtype)) {
    mt_cpu_load_floats(v->dtype, numel, v->weight, 2, floats);
    filters = floats;
    if (bias)
      mt_cpu_load_floats(v->dtype, v->groups * v->k, v->bias, 2, floats + numel);
    if (bias) bias = floats + numel;
  }
#pragma omp parallel for num_threads(mt_cpu_team(t.team)) schedule(static)
  for (int64_t i = 0; i < panels; i++) {
    const int64_t g = i / t.panels, k = i % t.panels * mr;
    t.window->filters(mt_min(mr, v->k - k), mr, v->c, filters + g * v->wg + k * v->wk,
                      v->wk, v->wc, v->flip, weights + g * t.filters + k * v->c,
                      t.point);
  }
  const int64_t total = t.tiles * v->n * v->groups;
#pragma omp parallel for num_threads(mt_cpu_team(t.team)) schedule(static)
  for (int64_t part = 0; part < t.team; part++)
    run_range(v, &t, total * part / t.team, total * (part + 1) / t.team, weights, bias,
              own + part * t.own);
}

/* ---- gradient to the filters: products are summed over tiles ---- */

static plan plan_gradient(const mt_conv *v, int threads) {
  plan t = make_plan(v, threads, v->c + v->k);
  const int64_t lanes = t.loops->lanes, total = t.tiles * v->n;
  t.parts = mt_max(1, mt_min(PARTS, total / PART_TILES));
  const int64_t tasks = t.parts * v->groups;
  t.splits = mt_min(parts_of(t.team, tasks), t.panels);
  t.team = mt_min(t.team, tasks * t.splits);
  t.at_once = mt_min(parts_of(t.panels, t.splits) * t.isa->mr, v->k);
  t.value = point_step(t.at_once * t.room);
  t.values = MT_POINTS * t.value;
  t.turned = mt_round_up(v->c, lanes) * t.room;
  t.product = point_step(t.at_once * mt_round_up(v->c, lanes));
  t.products = MT_POINTS * t.product;
  t.own = t.split + t.line + t.patches + t.values + t.turned + t.products;
  t.sums = t.parts * mt_round_up(v->groups * v->k * v->c * t.area, lanes);
  return t;
}

bool mt_winograd_takes_gradient(const mt_conv *v) {
  return v->c * v->k >= FEWEST_PAIRS && mt_winograd_takes(v);
}

size_t mt_winograd_gradient_scratch(const mt_conv *v, int threads) {
  const plan t = plan_gradient(v, threads);
  return (size_t)(t.sums + t.team * t.own) * sizeof(float);
}

/* A part of the tiles of a group, and some of its filters. */
static void gradient_task(const mt_conv *v, const plan *t, int64_t task, float *sums,
                          float *own) {
  const int64_t split = task % t->splits, g = task / t->splits % v->groups;
  const int64_t part = task / t->splits / v->groups, total = t->tiles * v->n;
  const int64_t k = split * t->at_once, filters = mt_min(v->k - k, t->at_once);
  if (filters <= 0) return;
  const int64_t ld = mt_round_up(v->c, t->loops->lanes);
  float *cut = own, *line = cut + t->split, *patches = line + t->line;
  float *values = patches + t->patches, *turned = values + t->values;
  float *products = turned + t->turned;
  memset(own, 0, (size_t)(t->split + t->line) * sizeof *own);
  const int64_t begin = total * part / t->parts, end = total * (part + 1) / t->parts;
  for (int64_t at = begin, next; at < end && !mt_stopped(v->call); at = next) {
    next = chunk_end(t, at, end);
    transform_patches(v, t, g, at, next, cut, line, patches);
    for (int64_t i = 0; i < filters; i++)
      for (int64_t from = at; from < next;) {
        const piece p = piece_at(t, at, from, next);
        const char *dy =
            (const char *)v->y + ((p.image * v->groups + g) * v->k + k + i) * v->oh *
                                     v->ow * mt_cpu_size(v->dtype);
        int64_t first;
        split_piece(t, &p, v->dtype, dy, v->oh, v->ow, 0, 0, (int)t->tile, cut, line,
                    &first);
        t->window->gradients(p.count, cut + first, t->plane,
                             values + i * t->room + p.at, t->value);
        from += p.count;
      }
    for (int64_t e = 0; e < MT_POINTS; e++) {
      t->loops->turn(v->c, next - at, patches + e * t->patch, t->room, turned, ld);
      t->isa->block(&(mt_block){.m = filters,
                                .n = v->c,
                                .k = next - at,
                                .a = values + e * t->value,
                                .ars = t->room,
                                .acs = 1,
                                .anext = t->isa->mr * t->room,
                                .b = turned,
                                .brs = ld,
                                .bnext = t->isa->nr,
                                .c = products + e * t->product,
                                .crs = ld,
                                .accumulate = at > begin});
    }
  }
  float *to = sums + part * (t->sums / t->parts);
  for (int64_t i = 0; i < filters; i++)
    t->window->filter_gradients(v->c, products + i * ld, t->product,
                                to + (g * v->k + k + i) * v->c * t->area);
}

void mt_winograd_gradient_run(const mt_conv *v, void *dw, void *scratch, int threads) {
  const plan t = plan_gradient(v, threads);
  float *sums = scratch, *own = sums + t.sums;
  const int64_t tasks = t.parts * v->groups * t.splits;
#pragma omp parallel for num_threads(mt_cpu_team(t.team)) schedule(static)
  for (int64_t part = 0; part < t.team; part++) {
    const int64_t end = tasks * (part + 1) / t.team;
    for (int64_t i = tasks * part / t.team; i < end; i++)
      gradient_task(v, &t, i, sums, own + part * t.own);
  }
  const int64_t numel = v->groups * v->k * v->c * t.area;
  for (int64_t part = 1; part < t.parts; part++)
    for (int64_t i = 0; i < numel; i++) sums[i] += sums[part * (t.sums / t.parts) + i];
  if (v->dtype == MT_F32)
    memcpy(dw, sums, (size_t)numel * sizeof *sums);
  else
    mt_cpu_store_floats(v->dtype, numel, sums, dw, 2);
}
