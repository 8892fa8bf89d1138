/* kernels/cpu/fuse.c -- runs fused programs: blocks whose values stay in the first- or
** second-level cache, whatever the number of operations; on threads. */
#include <stdlib.h>
#include "kernels/cpu/fuse.h"
#include "kernels/cpu/fuse_work.h"
#include "kernels/cpu/stream.h"

#define LEAST_BLOCK 256       /* elements */
#define MOST_BLOCK  1024      /* elements */
#define BLOCK_BYTES 32768     /* of all registers together */
#define ROW_BYTES   (1 << 20) /* the same, of rows that are not cut */
#define MOST_ROWS   64        /* at once */
#define AHEAD       2         /* blocks, of what is fetched while another is written */

/* ---- blocks ---- */

/* Call fn for pieces of the block that lie in one innermost loop. */
typedef void (*piece_fn)(const mt_view *v, int64_t n, int64_t offset, int64_t stride,
                         mt_dtype dtype, char *p);

static void load_piece(const mt_view *v, int64_t n, int64_t offset, int64_t stride,
                       mt_dtype dtype, char *p) {
  const int64_t size = mt_cpu_size(v->dtype);
  mt_cpu_load(v->dtype, n, v->data + offset * size, stride * size, dtype, p);
}

static void store_piece(const mt_view *v, int64_t n, int64_t offset, int64_t stride,
                        mt_dtype dtype, char *p) {
  const int64_t size = mt_cpu_size(v->dtype);
  mt_cpu_store(dtype, n, p, v->dtype, v->data + offset * size, stride * size);
}

static void walk(const mt_fuse_worker *w, int arg, int64_t n, mt_dtype dtype, int width,
                 char *p, piece_fn fn) {
  const mt_fuse_job *j = w->j;
  const mt_fuse_loops *l = j->loops;
  const int64_t *stride = l->stride[arg];
  if (j->code->program->reduces) {
    for (int64_t r = 0; r < w->rows; r++)
      fn(mt_fuse_view(j, arg), n, w->offset[arg * j->batch + r] + w->start * stride[0],
         stride[0], dtype, p + r * j->pitch * width);
    return;
  }
  if (j->linear[arg]) {
    fn(mt_fuse_view(j, arg), n, w->start, 1, dtype, p);
    return;
  }
  int64_t coord[MT_MAX_DIMS], offset = 0;
  for (int d = 0; d < l->ndim; d++) {
    coord[d] = w->coord[d];
    offset += coord[d] * stride[d];
  }
  for (;;) {
    const int64_t left = l->size[0] - coord[0], part = left < n ? left : n;
    fn(mt_fuse_view(j, arg), part, offset, stride[0], dtype, p);
    p += part * width;
    n -= part;
    if (n == 0) return;
    offset += part * stride[0];
    coord[0] += part;
    for (int d = 0; d + 1 < l->ndim && coord[d] == l->size[d]; d++) {
      coord[d] = 0;
      coord[d + 1]++;
      offset += stride[d + 1] - l->size[d] * stride[d];
    }
  }
}

/* Where the block's elements are in the view itself, if they lie side by side. */
static char *in_place(const mt_fuse_worker *w, int arg, mt_dtype dtype, int64_t n) {
  const mt_fuse_job *j = w->j;
  const mt_view *v = mt_fuse_view(j, arg);
  const bool bytes = dtype == MT_U8 && v->dtype == MT_BOOL;
  if ((v->dtype != dtype && !bytes) || n % MT_ROW_UNIT != 0) return NULL;
  const int64_t size = mt_cpu_size(v->dtype);
  if (!j->code->program->reduces)
    return j->linear[arg] ? v->data + w->start * size : NULL;
  if (j->loops->stride[arg][0] != 1) return NULL;
  if (w->rows > 1 && (j->loops->ndim > 2 || j->loops->stride[arg][1] != j->pitch))
    return NULL;
  return v->data + (w->offset[arg * j->batch] + w->start) * size;
}

static int64_t repeat_size(const mt_fuse_job *j, int arg) { /* elements */
  return j->period[arg] > 0 ? mt_fuse_round_up(j->block + j->period[arg]) : 0;
}

static char *repeat_of(const mt_fuse_worker *w, int arg) {
  const mt_fuse_job *j = w->j;
  int64_t before = 0;
  for (int k = j->nout; k < arg; k++) before += repeat_size(j, k);
  return w->repeated + before * j->code->width;
}

/* Fill the buffers of inputs that repeat themselves: a block may begin anywhere. */
static void fill_repeats(mt_fuse_worker *w) {
  const mt_fuse_job *j = w->j;
  const int width = j->code->width;
  w->start = 0;
  for (int d = 0; d < j->loops->ndim; d++) w->coord[d] = 0;
  for (int arg = j->nout; arg < j->nout + j->call->nin; arg++) {
    const int64_t all = repeat_size(j, arg);
    if (all == 0) continue;
    char *p = repeat_of(w, arg);
    walk(w, arg, j->period[arg], j->code->compute, width, p, load_piece);
    for (int64_t done = j->period[arg]; done < all;) {
      const int64_t more = done < all - done ? done : all - done;
      memcpy(p + done * width, p, (size_t)(more * width));
      done += more;
    }
  }
}

static void load(mt_fuse_worker *w, const mt_step *s, int64_t n, char *home) {
  const mt_fuse_job *j = w->j;
  const int arg = j->nout + s->index;
  if (j->period[arg] > 0) {
    w->at[s->to] = repeat_of(w, arg) + w->start % j->period[arg] * s->width;
    return;
  }
  char *direct = in_place(w, arg, j->code->compute, n);
  w->at[s->to] = direct ? direct : home;
  if (direct) return;
  walk(w, arg, n, j->code->compute, s->width, home, load_piece);
  for (int64_t r = 0; r < w->rows; r++)
    mt_fuse_pad(home + r * j->pitch * s->width, n, s->width);
}

/* Inputs that lie as they are counted; of rows: whose next one follows. */
static bool goes_on(const mt_fuse_job *j, int arg) {
  const mt_fuse_loops *l = j->loops;
  if (!j->code->program->reduces) return j->linear[arg];
  return l->ndim > 1 && l->stride[arg][0] == 1 && l->stride[arg][1] == j->length;
}

/* A large result passes the caches, while the next blocks of what is read are fetched. */
static void stream_out(const mt_fuse_worker *w, int out, int64_t n, const char *from) {
  const mt_fuse_job *j = w->j;
  const bool rows = j->code->program->reduces;
  const mt_view *v = mt_fuse_view(j, out);
  const int64_t size = mt_cpu_size(v->dtype), step = rows ? j->pitch * size : 0;
  for (int64_t r = 0; r < w->rows; r++) {
    mt_ahead ahead[4];
    int count = 0;
    for (int i = 0; i < j->call->nin && count < 4; i++) {
      const mt_view *in = j->call->in[i];
      const int arg = j->nout + i;
      if (!in || !goes_on(j, arg)) continue;
      const int64_t own = mt_cpu_size(in->dtype);
      const int64_t at = rows ? w->offset[arg * j->batch + r] + w->start + j->batch * n
                              : w->start + AHEAD * j->block;
      ahead[count++] = (mt_ahead){in->data + at * own, MT_LINE / size * own};
    }
    const int64_t at = w->start + (rows ? w->offset[out * j->batch + r] : 0);
    mt_cpu_stream(MT_ISA_PICK(mt_stream), n * size, from + r * step,
                  v->data + at * size, count, ahead);
  }
}

static void store(const mt_fuse_worker *w, const mt_step *s, int64_t n) {
  const mt_fuse_job *j = w->j;
  char *from = w->at[s->arg[0]];
  const mt_dtype dtype = s->width == 1 ? MT_U8 : j->code->compute;
  if (j->streamed[s->index])
    stream_out(w, s->index, n, from);
  else if (from != in_place(w, s->index, dtype, n)) /* else it is there */
    walk(w, s->index, n, dtype, s->width, from, store_piece);
}

static void row(mt_fuse_worker *w, const mt_step *s, int64_t n, char *home) {
  char *p[4] = {home};
  if (s->direct >= 0 && !w->j->streamed[s->direct]) {
    char *direct =
        in_place(w, s->direct, s->width == 1 ? MT_U8 : w->j->code->compute, n);
    if (direct) p[0] = direct;
  }
  for (int a = 0; a < s->nargs; a++) p[a + 1] = w->at[s->arg[a]];
  s->row(w->rows > 1 ? w->rows * w->j->pitch : mt_fuse_round_up(n), p, s->attr);
  w->at[s->to] = p[0];
}

static void fold(mt_fuse_worker *w, const mt_step *s, int64_t n) {
  const mt_fuse_job *j = w->j;
  const mt_fold_row take =
      (*MT_ISA_PICK(mt_folds))[j->code->compute == MT_F64][s->op].row;
  mt_cell *cell = w->cell + s->index * j->batch;
  for (int64_t r = 0; r < w->rows; r++) {
    mt_cell state[2] = {cell[r]};
    take(n, w->at[s->arg[0]] + r * j->pitch * j->code->width, w->start, 0, state);
    cell[r] = state[0];
  }
}

/* ---- steps ---- */

static void run_steps(mt_fuse_worker *w, const mt_steps *list, int64_t n) {
  const int64_t bytes = w->j->block * w->j->code->width;
  for (int i = 0; i < list->n; i++) {
    const mt_step *s = &list->step[i];
    char *home = w->home + s->to * bytes;
    switch (s->kind) {
    case MT_STEP_LOAD: load(w, s, n, home); break;
    case MT_STEP_ROW: row(w, s, n, home); break;
    case MT_STEP_SPREAD: mt_fuse_spread(w, s, n, home); break;
    case MT_STEP_FOLD: fold(w, s, n); break;
    case MT_STEP_STORE: store(w, s, n); break;
    default: mt_fuse_slot_step(w, s);
    }
  }
}

static void begin_folds(mt_fuse_worker *w) {
  const mt_fuse_program *p = w->j->code->program;
  mt_cell *cell = w->cell;
  for (int i = 0; i < p->nnodes; i++) {
    const int kind = p->node[i].kind;
    if (kind < MT_FUSE_SUM) continue;
    const double first = kind == MT_FUSE_SUM    ? 0
                         : kind == MT_FUSE_AMAX ? -(double)INFINITY
                                                : (double)INFINITY;
    for (int64_t r = 0; r < w->j->batch; r++) (cell++)->f = first;
  }
}

/* Offsets of row number `index`, the r-th of the batch; dim 0 is the row itself. */
static void seek_row(mt_fuse_worker *w, int64_t r, int64_t index) {
  const mt_fuse_job *j = w->j;
  const int nargs = j->nout + j->call->nin;
  for (int k = 0; k < nargs; k++) w->offset[k * j->batch + r] = 0;
  for (int d = 1; d < j->loops->ndim; d++) {
    const bool last = d == j->loops->ndim - 1;
    const int64_t i = last ? index : index % j->loops->size[d];
    if (!last) index /= j->loops->size[d];
    for (int k = 0; k < nargs; k++)
      w->offset[k * j->batch + r] += i * j->loops->stride[k][d];
  }
}

static bool open_worker(mt_fuse_worker *w, mt_fuse_job *j) {
  const mt_fuse_code *c = j->code;
  const size_t home = (size_t)c->nregisters * (size_t)(j->block * c->width);
  const size_t slots = (size_t)(c->nslots * j->slot_bytes);
  const size_t cells = (size_t)(c->nfolds * j->batch) * sizeof *w->cell;
  const size_t places = (size_t)c->nregisters * sizeof *w->at;
  const size_t offsets =
      (size_t)((j->nout + j->call->nin) * j->batch) * sizeof *w->offset;
  w->j = j;
  w->rows = 1;
  const size_t repeats = (size_t)(j->repeats * c->width);
  w->memory = malloc(64 + home + slots + cells + places + offsets + repeats);
  if (!w->memory) {
    __atomic_store_n(&j->exhausted, true, __ATOMIC_RELAXED);
    return false;
  }
  w->home = (char *)(((uintptr_t)w->memory + 63) & ~(uintptr_t)63);
  w->repeated = w->home + home;
  w->slot = w->repeated + repeats;
  w->cell = (mt_cell *)(w->slot + slots);
  w->at = (char **)((char *)w->cell + cells);
  w->offset = (int64_t *)((char *)w->at + places);
  for (int i = 0; i < c->nnumbers; i++) {
    char *slot = w->slot + c->number[i].slot * j->slot_bytes;
    for (int64_t r = 0; r < mt_fuse_round_up(j->batch); r++)
      mt_fuse_set_slot(j, slot, r, c->number[i].value);
  }
  for (int i = 0; i < c->nfilled; i++) {
    const int r = c->nregisters - c->nfilled + i;
    w->at[r] = w->home + r * j->block * c->width;
    mt_cpu_pack(j->block, c->width, w->slot + c->filled[i] * j->slot_bytes, 0,
                w->at[r]);
  }
  if (j->repeats > 0) fill_repeats(w);
  return true;
}

static void elementwise_range(void *context, int64_t lo, int64_t hi) {
  mt_fuse_job *j = context;
  mt_fuse_worker w;
  if (!open_worker(&w, j)) return;
  for (int64_t item = lo; item < hi; item++) {
    w.start = item * j->block;
    int64_t rest = w.start;
    for (int d = 0; d < j->loops->ndim; d++) {
      w.coord[d] = rest % j->loops->size[d];
      rest /= j->loops->size[d];
    }
    const int64_t left = j->numel - w.start;
    run_steps(&w, &j->code->whole, left < j->block ? left : j->block);
  }
  mt_cpu_stream_end();
  free(w.memory);
}

static void cut_row(mt_fuse_worker *w) {
  const mt_fuse_job *j = w->j;
  const mt_fuse_code *c = j->code;
  for (int level = 0; level < c->levels; level++) {
    run_steps(w, &c->slots[level], 1);
    if (c->blocks[level].n == 0) continue;
    for (w->start = 0; w->start < j->length; w->start += j->block) {
      const int64_t left = j->length - w->start;
      run_steps(w, &c->blocks[level], left < j->block ? left : j->block);
    }
  }
}

static void rows_range(void *context, int64_t lo, int64_t hi) {
  mt_fuse_job *j = context;
  mt_fuse_worker w;
  if (!open_worker(&w, j)) return;
  for (int64_t item = lo; item < hi; item++) {
    const int64_t first = item * j->batch, left = j->rows - first;
    w.rows = left < j->batch ? left : j->batch;
    for (int64_t r = 0; r < w.rows; r++) seek_row(&w, r, first + r);
    begin_folds(&w);
    w.start = 0;
    if (j->cut)
      cut_row(&w);
    else
      run_steps(&w, &j->code->whole, j->length);
  }
  mt_cpu_stream_end();
  free(w.memory);
}

/* ---- setting up ---- */

static void classify(mt_fuse_job *j) {
  const mt_fuse_loops *l = j->loops;
  const int nargs = j->nout + j->call->nin;
  for (int k = 0; k < nargs; k++) {
    int64_t expected = 1;
    bool linear = mt_fuse_view(j, k) != NULL;
    for (int d = 0; d < l->ndim; d++) {
      linear = linear && (l->stride[k][d] == expected || l->size[d] == 1);
      expected *= l->size[d];
    }
    j->linear[k] = linear;
  }
}

/* Do all rows of a result begin with a line? */
static bool has_lines(const mt_fuse_job *j, int out) {
  const mt_fuse_loops *l = j->loops;
  if (!j->code->program->reduces) return j->linear[out];
  bool lines = l->stride[out][0] == 1;
  for (int d = 1; d < l->ndim; d++)
    lines = lines &&
            l->stride[out][d] * mt_cpu_size(j->call->out[out]->dtype) % MT_LINE == 0;
  return lines;
}

/* Do results pass the caches? Those that are made in their own dtype. */
static void choose_streams(mt_fuse_job *j) {
  const mt_fuse_program *p = j->code->program;
  for (int k = 0; k < j->nout; k++) {
    const mt_view *v = j->call->out[k];
    const mt_dtype made = p->node[p->output[k]].boolean ? MT_BOOL : j->code->compute;
    const bool full = !p->reduces || p->output_space[k] == MT_FUSE_FULL;
    j->streamed[k] = full && v->dtype == made && has_lines(j, k) &&
                     mt_cpu_streams(v->data, j->numel * mt_cpu_size(made));
  }
}

/* Elementwise inputs that only the inner loops move along, and not all of them. */
static void find_periods(mt_fuse_job *j) {
  const mt_fuse_loops *l = j->loops;
  for (int k = j->nout; k < j->nout + j->call->nin; k++) {
    if (j->code->program->reduces || !mt_fuse_view(j, k) || j->linear[k]) continue;
    int inner = l->ndim;
    while (inner > 0 && (l->stride[k][inner - 1] == 0 || l->size[inner - 1] == 1))
      inner--;
    int64_t period = 1;
    for (int d = 0; d < inner && period <= j->block; d++) period *= l->size[d];
    if (period > j->block || period == j->numel) continue;
    j->period[k] = period;
    j->repeats += repeat_size(j, k);
  }
}

static int64_t limit(int64_t x, int64_t lo, int64_t hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

/* Elements of a block; where rows are shorter than that, several of them. */
static void choose_block(mt_fuse_job *j) {
  const mt_fuse_code *c = j->code;
  const int64_t each = (int64_t)(c->nregisters > 0 ? c->nregisters : 1) * c->width;
  j->block = limit(BLOCK_BYTES / each & -64, LEAST_BLOCK, MOST_BLOCK);
  j->batch = 1;
  j->cut = false;
  if (!c->program->reduces) {
    if (j->numel <= j->block) j->block = mt_fuse_round_up(j->numel);
    j->pitch = j->block;
  } else {
    j->pitch = j->length > 0 ? mt_fuse_round_up(j->length) : MT_ROW_UNIT;
    if (j->pitch > j->block && j->pitch * each > ROW_BYTES) {
      j->cut = true;
      j->pitch = j->block;
    } else {
      j->batch = limit(limit(j->block / j->pitch, 1, MOST_ROWS), 1, j->rows);
      j->block = j->batch * j->pitch;
    }
  }
  j->slot_bytes = mt_fuse_round_up(j->batch) * 8;
}

static mt_status fuse_run(const mt_fuse_code *code, const mt_call *call,
                          const mt_fuse_loops *loops) {
  mt_fuse_job j = {.code = code, .call = call, .loops = loops, .nout = call->nout};
  j.numel = 1;
  for (int d = 0; d < loops->ndim; d++) j.numel *= loops->size[d];
  j.length = loops->size[0];
  j.rows = 1;
  for (int d = 1; d < loops->ndim; d++) j.rows *= loops->size[d];
  classify(&j);
  choose_block(&j);
  find_periods(&j);
  choose_streams(&j);
  const int64_t cost = 1 + code->whole.n / 2; /* of an element, in light ones */
  if (code->program->reduces)
    mt_cpu_parallel_for(call, (j.rows + j.batch - 1) / j.batch,
                        mt_cpu_grain((j.length + 16) * j.batch * cost), rows_range, &j);
  else
    mt_cpu_parallel_for(call, (j.numel + j.block - 1) / j.block,
                        mt_cpu_grain(j.block * cost), elementwise_range, &j);
  return j.exhausted ? MT_EMEMORY : MT_OK;
}

const mt_fuse_backend mt_cpu_fuse = {mt_cpu_fuse_prepare, mt_cpu_fuse_release,
                                     fuse_run};
