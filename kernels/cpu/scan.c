/* kernels/cpu/scan.c -- running sums along a dim. */
#include "kernels/cpu/along.h"
#include "kernels/cpu/stream.h"

/* A line that threads share: the first one goes ahead and finishes its blocks, while the
** others sum theirs; with what lies before a block known, all finish those. */
typedef struct shared_line {
  const mt_along *along;
  const int64_t *offset;
  int64_t blocks, ahead, parts; /* all, the first part's, parts */
  mt_along_number *before;      /* of each block; its own sum first */
} shared_line;

#define SUM_COST     0.55 /* of a block that is only summed; 1: it is finished */
#define LEAST_BLOCKS 8    /* that are worth a thread */

static int64_t begin_of(const shared_line *l, int64_t block) { /* elements */
  const int64_t begin = block * MT_SCAN_BLOCK;
  return begin < l->along->length ? begin : l->along->length;
}

static void add_to(const mt_along *j, mt_along_number *sum, mt_along_number x) {
  if (j->work[MT_ALONG_Y] == MT_I64)
    sum->i += x.i;
  else
    sum->f += x.f;
}

/* Finish blocks lo .. hi - 1 whose predecessors' sum is in s. */
static void finish(const shared_line *l, int64_t lo, int64_t hi, mt_along_state *s) {
  mt_along_part(l->along, l->offset, begin_of(l, lo), begin_of(l, hi), false, s);
  mt_cpu_stream_end();
}

static void sum_parts(void *context, int64_t lo, int64_t hi) {
  shared_line *l = context;
  const int64_t others = l->blocks - l->ahead;
  mt_along_state s;
  for (int64_t part = lo; part < hi; part++) {
    if (part == 0) {
      finish(l, 0, l->ahead, &s);
      add_to(l->along, &s.more[0], s.value[0]);
      l->before[l->ahead] = s.more[0];
      continue;
    }
    const int64_t end = l->ahead + others * part / (l->parts - 1);
    for (int64_t b = l->ahead + others * (part - 1) / (l->parts - 1); b < end; b++) {
      if (b % 64 == 0 && mt_stopped(l->along->call)) return;
      s.value[0].i = s.more[0].i = 0; /* the bits of 0.0, too */
      mt_along_part(l->along, l->offset, begin_of(l, b), begin_of(l, b + 1), true, &s);
      l->before[b + 1] = s.value[0];
    }
  }
}

static void finish_range(void *context, int64_t lo, int64_t hi) { /* behind `ahead` */
  const shared_line *l = context;
  mt_along_state s;
  s.value[0].i = 0;
  s.more[0] = l->before[l->ahead + lo];
  finish(l, l->ahead + lo, l->ahead + hi, &s);
}

static void run_shared(shared_line *l) {
  const mt_call *call = l->along->call;
  mt_cpu_parallel_for(call, l->parts, 1, sum_parts, l);
  if (mt_stopped(call)) return;
  for (int64_t b = l->ahead + 1; b <= l->blocks; b++)
    add_to(l->along, &l->before[b], l->before[b - 1]);
  mt_cpu_parallel_for(call, l->blocks - l->ahead, LEAST_BLOCKS, finish_range, l);
}

static int64_t blocks_of(const mt_view *x, int dim) {
  const int64_t length = x->ndim ? x->shape[dim] : 1;
  return (length + MT_SCAN_BLOCK - 1) / MT_SCAN_BLOCK;
}

/* cumsum(x, dim, reverse) */
static mt_status cumsum_run(const mt_call *call) {
  const mt_view *const view[MT_ALONG_ARGS] = {call->out[0], NULL, call->in[0], NULL};
  const mt_dtype work = mt_along_work(call->out[0]->dtype);
  const int dim = (int)call->attr[0].i[0];
  mt_along j;
  mt_along_make(&j, call, view, dim, call->attr[1].i[0] != 0, work,
                (*MT_ISA_PICK(mt_scan_steps))[mt_along_place(work)],
                MT_ALONG_BACK | MT_ALONG_PAST);
  shared_line l = {.along = &j, .blocks = blocks_of(call->in[0], dim)};
  l.parts = call->num_threads < l.blocks / LEAST_BLOCKS ? call->num_threads
                                                        : l.blocks / LEAST_BLOCKS;
  if (l.parts < 2 || j.others.numel >= l.parts || j.across) {
    mt_along_run(&j);
    return MT_OK;
  }
  l.before = call->scratch;
  l.ahead = (int64_t)(SUM_COST / (SUM_COST + (double)(l.parts - 1)) * (double)l.blocks);
  for (int64_t line = 0; line < j.others.numel && !mt_stopped(call); line++) {
    int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
    mt_space_seek(&j.others, line, coord, offset);
    l.offset = offset;
    run_shared(&l);
  }
  return MT_OK;
}

static size_t cumsum_scratch(const mt_call *call) {
  const int64_t blocks = blocks_of(call->in[0], (int)call->attr[0].i[0]);
  return call->num_threads < 2 ? 0 : (size_t)(blocks + 1) * sizeof(mt_along_number);
}

extern const mt_entry mt_cpu_cumsum;
const mt_entry mt_cpu_cumsum = {cumsum_run, cumsum_scratch, MT_ALL_MASK, 0};
