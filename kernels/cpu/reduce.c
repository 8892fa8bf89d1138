/* kernels/cpu/reduce.c -- the loops of the reductions: which elements go to which
** state.
**
** Two ways: where the folded dims hold the contiguous elements, one result after
** another takes up its row; where the kept dims hold them, many results at once take
** up columns. Short rows are summed one behind the other, or become columns, by way of a
** transposed tile; of narrow ones that follow each other, some are taken for one. Long
** reductions are cut into chunks whose states are merged in order. The cut depends on
** shapes and strides only: threads do not change a result. */
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/tables.h"

#define CHUNK          65536 /* elements that one state takes up, of long rows */
#define BUFFER         1024  /* elements collected before they are folded */
#define DIRECT_RUN     64 /* contiguous runs from here on are folded where they lie */
#define TILE_ROWS      64 /* rows of columns folded at once */
#define TILE_BYTES     32768 /* of a tile that is collected first */
#define TURNED_COLUMNS 128   /* of a tile that is transposed */
#define TURN_LEAST     8     /* elements of a row that is worth it */
#define MANY_ITEMS     64    /* enough to share among threads */
#define FEW_FOLDED     32    /* so few elements to a result go by columns */
#define SHORT_ROW      128   /* and so few, if they are contiguous */
#define NARROW         64    /* elements of narrow rows that are taken together */
#define ROWS_LEAST     32    /* elements of rows that are folded one after another */
#define ROWS_MOST      4096
#define ROWS_ELEMENTS  16384 /* of those that are finished together */

/* ---- collecting elements --------------------------------------------------------- */
/* n elements to `to`, as they are folded. to has room for a whole unit more. */
static void collect(const mt_reduction *r, int64_t n, const char *x, int64_t stride,
                    char *to) {
  if (r->widens) {
    mt_cpu_load_floats(r->from, n, x, stride, (float *)to);
  } else if (r->convert == NULL) {
    mt_cpu_pack(n, r->size, x, stride, to);
  } else { /* a row may write whole units only */
    _Alignas(16) char raw[BUFFER * 2];
    for (int64_t i = 0; i < n; i += BUFFER) {
      const int64_t part = n - i < BUFFER ? n - i : BUFFER;
      const int64_t padded = part + (-part & (MT_ROW_UNIT - 1));
      char *const p[] = {to + i * r->width, raw};
      mt_cpu_pack(part, r->size, x + i * stride, stride, raw);
      memset(raw + part * r->size, 0, (size_t)((padded - part) * r->size));
      r->convert(padded, p, NULL);
    }
  }
}

/* ---- rows ------------------------------------------------------------------------ */
static void fold_row(const mt_reduction *r, const char *x, int64_t lo, int64_t hi,
                     mt_cell *state) {
  const mt_space *s = &r->folded;
  _Alignas(64) char buffer[(BUFFER + MT_ROW_UNIT) * 8];
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS], seen = 0, held = 0;
  const bool bytes = r->kind == MT_FOLD_COUNT && r->size == 1 && s->stride[0][0] == 1;
  const mt_count_fn count = MT_ISA_PICK(mt_select)->count;
  if (lo >= hi) return;
  mt_space_seek(s, lo, coord, offset);
  while (lo < hi) {
    int64_t run = s->size[0] - coord[0];
    if (run > hi - lo) run = hi - lo;
    if (bytes) { /* are counted as they are */
      state->i += count(run, (const uint8_t *)x + *offset);
      mt_space_advance(s, run, coord, offset);
      lo += run;
      continue;
    }
    const bool direct = r->direct && run >= DIRECT_RUN;
    if (!direct && run > BUFFER - held) run = BUFFER - held;
    if (direct || run == 0) { /* first what was collected before */
      r->fold->row(held, buffer, seen, r->p, state);
      seen += held, held = 0;
    }
    if (direct) {
      r->fold->row(run, x + *offset, seen, r->p, state);
      seen += run;
    } else if (run == s->size[0] && s->ndim > 1) { /* and lines that follow */
      int64_t lines = (BUFFER - held) / run;
      if (lines > s->size[1] - coord[1]) lines = s->size[1] - coord[1];
      if (lines > (hi - lo) / run) lines = (hi - lo) / run;
      for (int64_t i = 0; i < lines; i++, held += run)
        collect(r, run, x + *offset + i * s->stride[0][1], s->stride[0][0],
                buffer + held * r->width);
      lo += lines * run;
      mt_space_seek(s, lo, coord, offset);
      continue;
    } else {
      collect(r, run, x + *offset, s->stride[0][0], buffer + held * r->width);
      held += run;
    }
    mt_space_advance(s, run, coord, offset);
    lo += run;
  }
  if (held > 0) r->fold->row(held, buffer, seen, r->p, state);
}

/* How finish makes the results of an output: positions are int64 in any case. */
static mt_dtype made(const mt_reduction *r, int k) {
  return r->whole || r->counts || k == 1 ? MT_I64 : MT_F64;
}

static void finish(const mt_reduction *r, const mt_cell *state, const int64_t *offset) {
  mt_cell y[2] = {state[0]};
  if (r->finish) r->finish(r, state, y);
  for (int k = 0; k < 2; k++) {
    if (!r->out[k]) continue;
    char *const out = r->out[k] + offset[k + 1];
    const float f = (float)y[k].f;
    if (made(r, k) == MT_I64)
      mt_cpu_store_i64(r->dtype[k], out, y[k].i);
    else if (r->dtype[k] == MT_F32)
      memcpy(out, &f, sizeof f);
    else
      mt_cpu_store_f64(r->dtype[k], out, y[k].f);
  }
}

/* The same for n results side by side, whose states give way. */
static void finish_columns(const mt_reduction *r, int64_t n, mt_cell *a, mt_cell *b,
                           const int64_t *offset) {
  for (int64_t j = 0; j < n && r->finish; j++) {
    const mt_cell state[2] = {a[j], b[j]};
    mt_cell y[2] = {{0}};
    r->finish(r, state, y);
    a[j] = y[0], b[j] = y[1];
  }
  for (int k = 0; k < 2; k++)
    if (r->out[k])
      mt_cpu_store(made(r, k), n, k ? b : a, r->dtype[k], r->out[k] + offset[k + 1],
                   r->kept.stride[k + 1][0]);
}

static int64_t chunk_end(const mt_reduction *r, int64_t chunk) {
  const int64_t end = (chunk + 1) * r->chunk;
  return end < r->folded.numel ? end : r->folded.numel;
}

/* The state of a chunk of result i; side by side where states are written one after the
** other. */
static mt_cell *partial_of(const mt_reduction *r, int64_t i, int64_t chunk) {
  return r->partial +
         2 * (r->columns ? chunk * r->kept.numel + i : i * r->nchunks + chunk);
}

static void row_range(void *context, int64_t lo, int64_t hi) { /* kept x chunks */
  const mt_reduction *r = context;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  for (int64_t item = lo; item < hi; item++) {
    const int64_t chunk = item % r->nchunks;
    mt_cell state[2];
    mt_space_seek(&r->kept, item / r->nchunks, coord, offset);
    mt_state_init(r, &state[0], &state[1]);
    fold_row(r, r->x + offset[0], chunk * r->chunk, chunk_end(r, chunk), state);
    if (r->nchunks == 1)
      finish(r, state, offset);
    else
      memcpy(partial_of(r, item / r->nchunks, chunk), state, sizeof state);
  }
}

/* ---- columns --------------------------------------------------------------------- */
/* Rows of `rows` contiguous elements, `across` bytes apart, as columns of a tile. */
static void collect_turned(const mt_reduction *r, int64_t rows, int64_t cols,
                           const char *x, int64_t across, char *tile) {
  _Alignas(64) char raw[TILE_BYTES];
  const bool as_is = r->width == r->size;
  const int64_t raw_bytes = cols * r->size, row_bytes = cols * r->width;
  r->turn(cols, rows, x, across, as_is ? tile : raw, raw_bytes);
  for (int64_t i = 0; i < rows && !as_is; i++)
    collect(r, cols, raw + i * raw_bytes, r->size, tile + i * row_bytes);
}

/* Contiguous rows, one after the other. */
static void fold_rows(const mt_reduction *r, int64_t rows, const char *x, char *tile,
                      mt_cell *a) {
  const int64_t n = r->folded.numel, across = r->kept.stride[0][0];
  const int64_t most = r->direct ? rows : TILE_BYTES / (n * r->width);
  for (int64_t i = 0; i < rows; i += most) {
    const int64_t m = rows - i < most ? rows - i : most;
    const char *from = x + i * across;
    if (r->direct) {
      r->fold->rows(m, n, from, across, r->p, a);
      return;
    }
    if (across == n * r->size)
      collect(r, m * n, from, r->size, tile);
    else
      for (int64_t j = 0; j < m; j++)
        collect(r, n, from + j * across, r->size, tile + j * n * r->width);
    r->fold->rows(m, n, tile, n * r->width, r->p, a + i);
  }
}

/* Narrow rows one behind the other: some are taken for one, and what became of its parts
** is merged. */
static void fold_narrow(const mt_reduction *r, int64_t cols, int64_t rows,
                        const char *x, char *tile, mt_cell *a, mt_cell *b) {
  const int64_t parts = NARROW / cols, wide = parts * cols, many = rows / parts;
  mt_cell part_a[NARROW], part_b[NARROW];
  for (int64_t j = 0; j < wide; j++) part_a[j] = a[0], part_b[j] = b[0];
  int64_t seen = 0;
  for (int64_t left = rows; left > 0;) {
    int64_t n = left / parts, width = wide;
    if (n > TILE_ROWS) n = TILE_ROWS;
    if (n == 0) n = left, width = cols;
    const char *from = x;
    if (!r->direct) collect(r, n * width, x, r->size, tile), from = tile;
    r->fold->columns(n, width, from, width * r->width, seen, r->p, part_a, part_b);
    x += n * width * r->size;
    seen += n;
    left -= n * (width / cols);
  }
  for (int64_t j = 0; j < cols; j++) {
    mt_cell state[2] = {part_a[j], part_b[j]};
    int64_t before = seen; /* of the first part, which has the rest, too */
    for (int64_t k = 1; k < parts && many > 0; k++, before += many) {
      const mt_cell other[2] = {part_a[k * cols + j], part_b[k * cols + j]};
      mt_state_merge(r, state, before, other, many);
    }
    a[j] = state[0], b[j] = state[1];
  }
}

static void fold_columns(const mt_reduction *r, const char *x, int64_t cols, int64_t lo,
                         int64_t hi, mt_cell *a, mt_cell *b) {
  const mt_space *s = &r->folded;
  const int64_t across = r->kept.stride[0][0], row_bytes = cols * r->width;
  _Alignas(64) char tile[TILE_BYTES + MT_ROW_UNIT * 8];
  int64_t rows_max = r->direct ? TILE_ROWS : TILE_BYTES / row_bytes;
  if (rows_max > TILE_ROWS) rows_max = TILE_ROWS;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS], seen = 0;
  if (lo >= hi) return;
  if (r->rows) {
    fold_rows(r, cols, x, tile, a);
    return;
  }
  if (r->narrow) {
    fold_narrow(r, cols, hi - lo, x + lo * s->stride[0][0], tile, a, b);
    return;
  }
  mt_space_seek(s, lo, coord, offset);
  while (lo < hi) {
    int64_t rows = 0, run = s->size[0] - coord[0];
    if (run > hi - lo) run = hi - lo;
    if (run > rows_max) run = rows_max;
    if (r->direct) {
      r->fold->columns(run, cols, x + *offset, s->stride[0][0], seen, r->p, a, b);
      rows = run;
      mt_space_advance(s, run, coord, offset);
    } else if (r->turn) {
      collect_turned(r, run, cols, x + *offset, across, tile);
      r->fold->columns(run, cols, tile, row_bytes, seen, r->p, a, b);
      rows = run;
      mt_space_advance(s, run, coord, offset);
    } else {
      const int64_t want = hi - lo < rows_max ? hi - lo : rows_max;
      for (; rows < want; rows++) {
        collect(r, cols, x + *offset, across, tile + rows * row_bytes);
        mt_space_advance(s, 1, coord, offset);
      }
      r->fold->columns(rows, cols, tile, row_bytes, seen, r->p, a, b);
    }
    seen += rows;
    lo += rows;
  }
}

static void column_range(void *context, int64_t lo, int64_t hi) { /* blocks x chunks */
  const mt_reduction *r = context;
  const mt_space *kept = &r->kept;
  mt_cell a[MT_FOLD_COLUMNS], b[MT_FOLD_COLUMNS], first_a, first_b;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  mt_state_init(r, &first_a, &first_b);
  for (int64_t item = lo; item < hi; item++) {
    const int64_t chunk = item % r->nchunks, block = item / r->nchunks;
    const int64_t first = block % r->blocks * r->wide;
    const int64_t left = kept->size[0] - first;
    const int64_t cols = left < r->wide ? left : r->wide;
    const int64_t index = block / r->blocks * kept->size[0] + first;
    mt_space_seek(kept, index, coord, offset);
    for (int64_t j = 0; j < cols; j++) a[j].i = first_a.i;
    for (int64_t j = 0; j < cols; j++) b[j].i = first_b.i;
    fold_columns(r, r->x + offset[0], cols, chunk * r->chunk, chunk_end(r, chunk), a,
                 b);
    if (r->nchunks == 1) {
      finish_columns(r, cols, a, b, offset);
      continue;
    }
    for (int64_t j = 0; j < cols; j++) {
      mt_cell *to = partial_of(r, index + j, chunk);
      to[0] = a[j], to[1] = b[j];
    }
  }
}

/* ---- all of it ------------------------------------------------------------------- */
static void merge_range(void *context, int64_t lo, int64_t hi) { /* kept */
  const mt_reduction *r = context;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  for (int64_t i = lo; i < hi; i++) {
    mt_cell state[2];
    mt_state_init(r, &state[0], &state[1]);
    for (int64_t c = 0; c < r->nchunks; c++) {
      const mt_cell *t = partial_of(r, i, c);
      mt_state_merge(r, state, c * r->chunk, t, chunk_end(r, c) - c * r->chunk);
    }
    mt_space_seek(&r->kept, i, coord, offset);
    finish(r, state, offset);
  }
}

/* Only these care in which order the elements come. */
static bool counts_positions(int op) {
  return op == MT_OP_argmax || op == MT_OP_argmin || op == MT_OP__max_dim ||
         op == MT_OP__min_dim;
}

/* Part x and the outputs into kept and folded dims. */
static void split_dims(const mt_call *call, const mt_attr *dims, mt_space *kept,
                       mt_space *folded) {
  const mt_view *x = call->in[0];
  mt_view view[3], f = {.data = x->data, .dtype = x->dtype};
  const mt_view *arg[3] = {NULL, NULL, NULL};
  uint32_t bits = dims->n < 0 ? ~0u : 0;
  for (int k = 0; k < dims->n; k++) bits |= 1u << dims->i[k];
  for (int k = 0; k < 3; k++) {
    const mt_view *v = k == 0 ? x : k <= call->nout ? call->out[k - 1] : NULL;
    if (v == NULL) continue;
    view[k].dtype = v->dtype;
    view[k].ndim = 0;
    const bool same = v->ndim == x->ndim; /* x itself, or the dims were kept */
    int e = 0;
    for (int d = 0; d < x->ndim; d++) {
      if (bits >> d & 1u) continue;
      view[k].shape[view[k].ndim] = x->shape[d];
      view[k].stride[view[k].ndim++] = v->stride[same ? d : e];
      e++;
    }
    arg[k] = &view[k];
  }
  for (int d = 0; d < x->ndim; d++)
    if (bits >> d & 1u) {
      f.shape[f.ndim] = x->shape[d];
      f.stride[f.ndim++] = x->stride[d];
    }
  const mt_view *const fold_arg = &f;
  mt_space_make(kept, 3, arg, false);
  mt_space_make(folded, 1, &fold_arg, counts_positions(call->op));
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int log2_of(int size) {
  return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
}

static void choose_way(mt_reduction *r, bool ordered) {
  const mt_space *kept = &r->kept, *folded = &r->folded;
  const bool plain = r->convert == NULL && !r->widens;
  const bool kept_inner = kept->stride[0][0] == r->size && kept->size[0] >= 8;
  const bool folded_inner = folded->stride[0][0] == r->size || folded->numel == 1;
  const bool turns = !kept_inner && folded->stride[0][0] == r->size;
  r->narrow = !ordered && kept->stride[0][0] == r->size && kept->size[0] > 1 &&
              kept->size[0] <= NARROW / 2 && folded->ndim == 1 &&
              folded->numel >= NARROW &&
              folded->stride[0][0] == kept->size[0] * r->size;
  r->columns =
      kept->numel > 1 &&
      ((kept_inner && !folded_inner) || r->narrow ||
       (kept->size[0] >= 16 && folded->numel <= (turns ? SHORT_ROW : FEW_FOLDED)));
  r->direct = plain && (r->columns ? kept->stride[0][0] == r->size
                                   : folded->stride[0][0] == r->size);
  r->turn = NULL;
  r->wide = MT_FOLD_COLUMNS;
  if (r->columns && turns && folded->numel < TURN_LEAST) { /* a tile of all rows */
    r->wide = TILE_BYTES / (TURN_LEAST * r->width);
  } else if (r->columns && turns) {
    r->turn = (*MT_ISA_PICK(mt_transpose_tiles))[log2_of(r->size)];
    r->wide = TURNED_COLUMNS;
  }
  r->blocks = ceil_div(kept->size[0], r->wide);
  r->nchunks = 1;
  if (kept->numel * folded->numel >= 2 * CHUNK && r->columns) {
    const int64_t items = kept->numel / kept->size[0] * r->blocks;
    r->nchunks = MANY_ITEMS / items;
    if (r->nchunks > folded->numel / (4 * TILE_ROWS))
      r->nchunks = folded->numel / (4 * TILE_ROWS);
    if (r->nchunks < 1) r->nchunks = 1;
    r->chunk = ceil_div(ceil_div(folded->numel, r->nchunks), TILE_ROWS) * TILE_ROWS;
  } else if (folded->numel >= 2 * CHUNK && !r->columns) {
    r->chunk = CHUNK;
  } else {
    r->chunk = folded->numel > 0 ? folded->numel : 1;
  }
  r->nchunks = folded->numel > 0 ? ceil_div(folded->numel, r->chunk) : 1;
  r->rows = r->fold->rows && r->nchunks == 1 && folded->ndim == 1 &&
            folded->stride[0][0] == r->size && folded->numel >= ROWS_LEAST &&
            folded->numel <= ROWS_MOST;
  if (r->rows) {
    r->columns = true, r->direct = plain;
    r->wide = ROWS_ELEMENTS / folded->numel;
    r->blocks = ceil_div(kept->size[0], r->wide);
  }
}

static void prepare_types(const mt_call *call, mt_reduction *r) {
  const mt_dtype d = r->from = call->in[0]->dtype;
  r->size = (int)mt_cpu_size(d);
  const mt_fold_table *const folds = MT_ISA_PICK(mt_folds);
  r->type = d == MT_F64 ? 1 : MT_IS_FLOAT(d) ? 0 : d == MT_I64 ? 2 : 3;
  r->whole = !MT_IS_FLOAT(d);
  r->width = r->type == 1 || r->type == 2 ? 8 : 4;
  r->widens = mt_cpu_is_half(d);
  if (d == MT_BF16 && (*folds)[4][r->kind].row)
    r->type = 4, r->width = 2, r->widens = false;
  r->convert =
      r->type == 3 && d != MT_I32 ? (*MT_ISA_PICK(mt_convert_rows))[d][MT_I32] : NULL;
  r->fold = &(*folds)[r->type][r->kind];
  r->x = call->in[0]->data;
  for (int k = 0; k < 2; k++) {
    const mt_view *out = k < call->nout ? call->out[k] : NULL;
    r->out[k] = out != NULL ? out->data : NULL;
    r->dtype[k] = out != NULL ? out->dtype : MT_NDTYPES;
  }
}

static void prepare(const mt_call *call, const mt_attr *dims, mt_reduction *r) {
  split_dims(call, dims, &r->kept, &r->folded);
  if (r->kept.numel > 0) choose_way(r, counts_positions(call->op));
}

size_t mt_cpu_reduce_scratch(const mt_call *call, const mt_attr *dims) {
  mt_reduction r;
  if (mt_cpu_numel(call->in[0]) < 2 * CHUNK) return 0;
  r.kind = MT_FOLD_SUM; /* whatever: it is the shapes that count */
  prepare_types(call, &r);
  prepare(call, dims, &r);
  if (r.nchunks == 1) return 0;
  return (size_t)r.kept.numel * (size_t)r.nchunks * 2 * sizeof(mt_cell);
}

/* Few contiguous elements, all folded to one result: one row, and no plan. */
static bool reduce_small(const mt_call *call, const mt_attr *dims, mt_reduction *r) {
  const mt_view *x = call->in[0];
  const int64_t n = mt_cpu_numel(x);
  const bool all = dims->n < 0 || (x->ndim == 1 && dims->n == 1);
  if (!all || n == 0 || n > BUFFER || r->convert != NULL || r->widens ||
      !mt_cpu_contiguous(x))
    return false;
  mt_cell state[2];
  const int64_t offset[MT_SPACE_ARGS] = {0};
  r->folded.numel = n;
  mt_state_init(r, &state[0], &state[1]);
  r->fold->row(n, r->x, 0, r->p, state);
  finish(r, state, offset);
  return true;
}

mt_status mt_cpu_reduce(const mt_call *call, const mt_attr *dims, mt_reduction *r) {
  prepare_types(call, r);
  if (reduce_small(call, dims, r)) return MT_OK;
  prepare(call, dims, r);
  if (r->kept.numel == 0) return MT_OK;
  r->partial = call->scratch;
  const int64_t results =
      r->columns ? r->kept.numel / r->kept.size[0] * r->blocks : r->kept.numel;
  const int64_t width = !r->columns                 ? 1
                        : r->kept.size[0] < r->wide ? r->kept.size[0]
                                                    : r->wide;
  mt_cpu_parallel_for(call, results * r->nchunks, mt_cpu_grain(width * r->chunk),
                      r->columns ? column_range : row_range, r);
  if (r->nchunks > 1)
    mt_cpu_parallel_for(call, r->kept.numel, mt_cpu_grain(4 * r->nchunks), merge_range,
                        r);
  return MT_OK;
}
