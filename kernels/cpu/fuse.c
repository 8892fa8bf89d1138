/* kernels/cpu/fuse.c -- runs fused programs: blocks whose values stay in the first- or
** second-level cache, whatever the number of operations; on threads. */
#include <stdlib.h>
#include "kernels/cpu/fuse.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/stream.h"

#define LEAST_BLOCK 256    /* elements */
#define MOST_BLOCK  1024   /* elements */
#define BLOCK_BYTES 32768  /* of all registers together */
#define ROW_BYTES   524288 /* the same, of rows that are not cut */
#define AHEAD       2      /* blocks, of what is fetched while another is written */

typedef struct job {
  const mt_fuse_code *code;
  const mt_call *call;
  const mt_fuse_loops *loops;
  int nout;
  int64_t numel, length;         /* elements; of a row */
  int64_t block;                 /* elements of a register */
  bool cut;                      /* rows are longer than a block */
  bool linear[MT_FUSE_MAX_ARGS]; /* elements lie as they are counted */
  bool streamed[MT_FUSE_MAX_OUTPUTS];
  bool exhausted; /* a thread had no memory */
} job;

typedef struct worker {
  const job *j;
  char *memory;
  char **at;     /* [nregisters] where values are: in `home`, or in a tensor */
  char *home;    /* nregisters blocks */
  char *slot;    /* nslots of MT_SLOT_BYTES */
  mt_cell *cell; /* [nfolds] */
  int64_t seen;  /* elements that were taken up before this block */
  /* Where a block lies: an index, and where that is in the loops; of rows, offsets. */
  int64_t start;
  int64_t coord[MT_MAX_DIMS];
  int64_t offset[MT_FUSE_MAX_ARGS]; /* elements */
} worker;

static const mt_view *view_of(const job *j, int arg) {
  return arg < j->nout ? j->call->out[arg] : j->call->in[arg - j->nout];
}

static int64_t round_up(int64_t n) { return (n + MT_ROW_UNIT - 1) & -MT_ROW_UNIT; }

/* ---- blocks ---- */

/* Repeat the first element up to a whole unit: what rows make of that is not kept. */
static void pad(char *p, int64_t n, int width) {
  for (; n % MT_ROW_UNIT != 0; n++) memcpy(p + n * width, p, (size_t)width);
}

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

static void walk(const worker *w, int arg, int64_t n, mt_dtype dtype, int width,
                 char *p, piece_fn fn) {
  const job *j = w->j;
  const mt_fuse_loops *l = j->loops;
  const int64_t *stride = l->stride[arg];
  if (j->code->program->reduces) {
    fn(view_of(j, arg), n, w->offset[arg] + w->start * stride[0], stride[0], dtype, p);
    return;
  }
  if (j->linear[arg]) {
    fn(view_of(j, arg), n, w->start, 1, dtype, p);
    return;
  }
  int64_t coord[MT_MAX_DIMS], offset = 0;
  for (int d = 0; d < l->ndim; d++) {
    coord[d] = w->coord[d];
    offset += coord[d] * stride[d];
  }
  for (;;) {
    const int64_t left = l->size[0] - coord[0], part = left < n ? left : n;
    fn(view_of(j, arg), part, offset, stride[0], dtype, p);
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
static char *in_place(const worker *w, int arg, mt_dtype dtype, int64_t n) {
  const job *j = w->j;
  const mt_view *v = view_of(j, arg);
  const bool bytes = dtype == MT_U8 && v->dtype == MT_BOOL;
  if ((v->dtype != dtype && !bytes) || n % MT_ROW_UNIT != 0) return NULL;
  const int64_t size = mt_cpu_size(v->dtype);
  if (!j->code->program->reduces)
    return j->linear[arg] ? v->data + w->start * size : NULL;
  if (j->loops->stride[arg][0] != 1) return NULL;
  return v->data + (w->offset[arg] + w->start) * size;
}

static void load(worker *w, const mt_step *s, int64_t n, char *home) {
  const job *j = w->j;
  const int arg = j->nout + s->index;
  char *direct = in_place(w, arg, j->code->compute, n);
  w->at[s->to] = direct ? direct : home;
  if (direct) return;
  walk(w, arg, n, j->code->compute, s->width, home, load_piece);
  pad(home, n, s->width);
}

/* A large result passes the caches, while the next blocks of what is read are fetched. */
static void stream_out(const worker *w, const mt_view *v, int64_t n, const char *from) {
  const job *j = w->j;
  const int64_t size = mt_cpu_size(v->dtype);
  mt_ahead ahead[4];
  int count = 0;
  for (int i = 0; i < j->call->nin && count < 4; i++) {
    const mt_view *in = j->call->in[i];
    if (!in || !j->linear[j->nout + i]) continue;
    const int64_t own = mt_cpu_size(in->dtype);
    ahead[count++] = (mt_ahead){in->data + (w->start + AHEAD * j->block) * own,
                                MT_LINE / size * own};
  }
  mt_cpu_stream(MT_ISA_PICK(mt_stream), n * size, from, v->data + w->start * size,
                count, ahead);
}

static void store(const worker *w, const mt_step *s, int64_t n) {
  const job *j = w->j;
  char *from = w->at[s->arg[0]];
  const mt_view *v = view_of(j, s->index);
  const mt_dtype dtype = s->width == 1 ? MT_U8 : j->code->compute;
  if (j->streamed[s->index])
    stream_out(w, v, n, from);
  else if (from != in_place(w, s->index, dtype, n)) /* else it is there */
    walk(w, s->index, n, dtype, s->width, from, store_piece);
}

static void row(worker *w, const mt_step *s, int64_t n, char *home) {
  char *p[4] = {home};
  if (s->direct >= 0 && !w->j->streamed[s->direct]) {
    char *direct =
        in_place(w, s->direct, s->width == 1 ? MT_U8 : w->j->code->compute, n);
    if (direct) p[0] = direct;
  }
  for (int a = 0; a < s->nargs; a++) p[a + 1] = w->at[s->arg[a]];
  s->row(round_up(n), p, s->attr);
  w->at[s->to] = p[0];
}

static void fold(worker *w, const mt_step *s, int64_t n) {
  const mt_fold_kind kind = s->op == MT_FUSE_SUM    ? MT_FOLD_SUM
                            : s->op == MT_FUSE_AMAX ? MT_FOLD_MAX
                                                    : MT_FOLD_MIN;
  const int type = w->j->code->compute == MT_F64;
  mt_cell state[2] = {w->cell[s->index]};
  (*MT_ISA_PICK(mt_folds))[type][kind].row(n, w->at[s->arg[0]], w->start, 0, state);
  w->cell[s->index] = state[0];
}

/* ---- slots ---- */

static void set_slot(const job *j, char *slot, double x) {
  float one = (float)x;
  if (j->code->compute == MT_F64)
    mt_cpu_pack(MT_ROW_UNIT, 8, (const char *)&x, 0, slot);
  else
    mt_cpu_pack(MT_ROW_UNIT, 4, (const char *)&one, 0, slot);
}

static void slot_step(worker *w, const mt_step *s) {
  const job *j = w->j;
  char *to = w->slot + s->to * MT_SLOT_BYTES;
  switch (s->kind) {
  case MT_SLOT_LOAD: {
    const mt_view *v = j->call->in[s->index];
    const int64_t at = w->offset[j->nout + s->index] * mt_cpu_size(v->dtype);
    mt_cpu_load(v->dtype, MT_ROW_UNIT, v->data + at, 0, j->code->compute, to);
    break;
  }
  case MT_SLOT_LENGTH: set_slot(j, to, (double)j->length); break;
  case MT_SLOT_FOLDED: set_slot(j, to, w->cell[s->index].f); break;
  case MT_SLOT_ROW: {
    char *p[4] = {to};
    for (int a = 0; a < s->nargs; a++) p[a + 1] = w->slot + s->arg[a] * MT_SLOT_BYTES;
    s->row(MT_ROW_UNIT, p, s->attr);
    break;
  }
  default: {
    const mt_view *v = view_of(j, s->index);
    const int64_t at = w->offset[s->index] * mt_cpu_size(v->dtype);
    mt_cpu_store(s->width == 1 ? MT_U8 : j->code->compute, 1,
                 w->slot + s->arg[0] * MT_SLOT_BYTES, v->dtype, v->data + at, 0);
  }
  }
}

/* ---- steps ---- */

static void run_steps(worker *w, const mt_steps *list, int64_t n) {
  const int64_t bytes = w->j->block * w->j->code->width;
  for (int i = 0; i < list->n; i++) {
    const mt_step *s = &list->step[i];
    char *home = w->home + s->to * bytes;
    switch (s->kind) {
    case MT_STEP_LOAD: load(w, s, n, home); break;
    case MT_STEP_ROW: row(w, s, n, home); break;
    case MT_STEP_SPREAD:
      mt_cpu_pack(round_up(n), s->width, w->slot + s->arg[0] * MT_SLOT_BYTES, 0, home);
      w->at[s->to] = home;
      break;
    case MT_STEP_FOLD: fold(w, s, n); break;
    case MT_STEP_STORE: store(w, s, n); break;
    default: slot_step(w, s);
    }
  }
}

static void begin_folds(worker *w) {
  const mt_fuse_program *p = w->j->code->program;
  for (int i = 0, k = 0; i < p->nnodes; i++) {
    const int kind = p->node[i].kind;
    if (kind < MT_FUSE_SUM) continue;
    w->cell[k++].f = kind == MT_FUSE_SUM    ? 0
                     : kind == MT_FUSE_AMAX ? -(double)INFINITY
                                            : (double)INFINITY;
  }
}

/* Offsets of row number `index`, whose dim 0 is the row itself. */
static void seek_row(worker *w, int64_t index) {
  const job *j = w->j;
  const int nargs = j->nout + j->call->nin;
  for (int k = 0; k < nargs; k++) w->offset[k] = 0;
  for (int d = 1; d < j->loops->ndim; d++) {
    const int64_t i = index % j->loops->size[d];
    index /= j->loops->size[d];
    for (int k = 0; k < nargs; k++) w->offset[k] += i * j->loops->stride[k][d];
  }
}

static bool open_worker(worker *w, job *j) {
  const mt_fuse_code *c = j->code;
  const size_t home = (size_t)c->nregisters * (size_t)(j->block * c->width);
  const size_t slots = (size_t)c->nslots * MT_SLOT_BYTES;
  const size_t cells = (size_t)c->nfolds * sizeof *w->cell;
  const size_t places = (size_t)c->nregisters * sizeof *w->at;
  w->j = j;
  w->memory = malloc(64 + home + slots + cells + places);
  if (!w->memory) {
    __atomic_store_n(&j->exhausted, true, __ATOMIC_RELAXED);
    return false;
  }
  w->home = (char *)(((uintptr_t)w->memory + 63) & ~(uintptr_t)63);
  w->slot = w->home + home;
  w->cell = (mt_cell *)(w->slot + slots);
  w->at = (char **)((char *)w->cell + cells);
  for (int i = 0; i < c->nnumbers; i++)
    set_slot(j, w->slot + c->number[i].slot * MT_SLOT_BYTES, c->number[i].value);
  for (int i = 0; i < c->nfilled; i++) {
    const int r = c->nregisters - c->nfilled + i;
    w->at[r] = w->home + r * j->block * c->width;
    mt_cpu_pack(j->block, c->width, w->slot + c->filled[i] * MT_SLOT_BYTES, 0,
                w->at[r]);
  }
  return true;
}

static void elementwise_range(void *context, int64_t lo, int64_t hi) {
  job *j = context;
  worker w;
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

static void cut_row(worker *w) {
  const job *j = w->j;
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
  job *j = context;
  worker w;
  if (!open_worker(&w, j)) return;
  for (int64_t item = lo; item < hi; item++) {
    seek_row(&w, item);
    begin_folds(&w);
    w.start = 0;
    if (j->cut)
      cut_row(&w);
    else
      run_steps(&w, &j->code->whole, j->length);
  }
  free(w.memory);
}

/* ---- setting up ---- */

static void classify(job *j) {
  const mt_fuse_loops *l = j->loops;
  const int nargs = j->nout + j->call->nin;
  for (int k = 0; k < nargs; k++) {
    int64_t expected = 1;
    bool linear = view_of(j, k) != NULL;
    for (int d = 0; d < l->ndim; d++) {
      linear = linear && (l->stride[k][d] == expected || l->size[d] == 1);
      expected *= l->size[d];
    }
    j->linear[k] = linear;
  }
}

/* Do results pass the caches? Those that are made in their own dtype. */
static void choose_streams(job *j) {
  const mt_fuse_program *p = j->code->program;
  for (int k = 0; k < j->nout; k++) {
    const mt_view *v = j->call->out[k];
    const mt_dtype made = p->node[p->output[k]].boolean ? MT_BOOL : j->code->compute;
    j->streamed[k] = !p->reduces && j->linear[k] && v->dtype == made &&
                     mt_cpu_streams(v->data, j->numel * mt_cpu_size(made));
  }
}

static int64_t limit(int64_t x, int64_t lo, int64_t hi) {
  return x < lo ? lo : x > hi ? hi : x;
}

static void choose_block(job *j) {
  const mt_fuse_code *c = j->code;
  const int64_t each = (int64_t)(c->nregisters > 0 ? c->nregisters : 1) * c->width;
  j->block = limit(BLOCK_BYTES / each & -64, LEAST_BLOCK, MOST_BLOCK);
  const int64_t all = round_up(c->program->reduces ? j->length : j->numel);
  j->cut = false;
  if (all <= j->block || (c->program->reduces && all * each <= ROW_BYTES))
    j->block = all > 0 ? all : MT_ROW_UNIT;
  else
    j->cut = c->program->reduces != 0;
}

static mt_status fuse_run(const mt_fuse_code *code, const mt_call *call,
                          const mt_fuse_loops *loops) {
  job j = {.code = code, .call = call, .loops = loops, .nout = call->nout};
  j.numel = 1;
  for (int d = 0; d < loops->ndim; d++) j.numel *= loops->size[d];
  j.length = loops->size[0];
  classify(&j);
  choose_block(&j);
  choose_streams(&j);
  const int64_t cost = 1 + code->whole.n / 2; /* of an element, in light ones */
  if (code->program->reduces) {
    int64_t rows = 1;
    for (int d = 1; d < loops->ndim; d++) rows *= loops->size[d];
    mt_cpu_parallel_for(call, rows, mt_cpu_grain((j.length + 64) * cost), rows_range,
                        &j);
  } else {
    mt_cpu_parallel_for(call, (j.numel + j.block - 1) / j.block,
                        mt_cpu_grain(j.block * cost), elementwise_range, &j);
  }
  return j.exhausted ? MT_EMEMORY : MT_OK;
}

const mt_fuse_backend mt_cpu_fuse = {mt_cpu_fuse_prepare, mt_cpu_fuse_release,
                                     fuse_run};
