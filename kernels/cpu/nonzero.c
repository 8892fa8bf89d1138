/* kernels/cpu/nonzero.c -- the positions of the elements that are not 0: parts count
** theirs, then write them. */
#include "kernels/cpu/select.h"

#define BLOCK 512 /* elements */

typedef struct finding {
  const mt_call *call;
  mt_space s;
  int64_t parts;
  int64_t before[MT_SELECT_PARTS + 1]; /* how many a part has; then those before it */
  bool writing;
} finding;

/* 1 where the n elements from p on are not 0. */
static const uint8_t *flags(const finding *f, int64_t n, const char *p, uint8_t *room) {
  const mt_view *x = f->call->in[0];
  if (x->dtype == MT_BOOL && f->s.stride[0][0] == 1) return (const uint8_t *)p;
  mt_cpu_load(x->dtype, n, p, f->s.stride[0][0], MT_BOOL, room);
  return room;
}

static void run_parts(void *context, int64_t lo, int64_t hi) {
  finding *f = context;
  const mt_select_loops *loops = MT_ISA_PICK(mt_select);
  const mt_view *x = f->call->in[0];
  int64_t *const y = (int64_t *)f->call->out[0]->data;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  uint8_t room[BLOCK];
  for (int64_t part = lo; part < hi; part++) {
    const int64_t end = f->s.numel * (part + 1) / f->parts;
    int64_t i = f->s.numel * part / f->parts, found = f->writing ? f->before[part] : 0;
    mt_space_seek(&f->s, i, coord, offset);
    while (i < end) {
      int64_t run = f->s.size[0] - coord[0];
      if (run > BLOCK) run = BLOCK;
      if (run > end - i) run = end - i;
      if (i % (BLOCK << 11) < BLOCK && mt_stopped(f->call)) return;
      const uint8_t *set = flags(f, run, x->data + offset[0], room);
      if (f->writing)
        found +=
            loops->positions(run, set, i + 1, y + found, f->before[part + 1] - found);
      else
        found += loops->count(run, set);
      mt_space_advance(&f->s, run, coord, offset);
      i += run;
    }
    if (!f->writing) f->before[part] = found;
  }
}

/* _nonzero(x, marks, count): positions from 1 in x's row-major order; a new vector. */
static mt_status nonzero_run(const mt_call *call) {
  const mt_view *x = call->in[0];
  finding f = {.call = call};
  mt_space_make(&f.s, 1, &x, true);
  if (f.s.numel == 0 || call->out[0]->shape[0] == 0) return MT_OK;
  f.parts = mt_select_parts(call, f.s.numel);
  if (f.parts > 1) {
    mt_cpu_parallel_for(call, f.parts, 1, run_parts, &f);
    if (mt_stopped(call)) return MT_OK;
    const int64_t found = mt_select_before(f.parts, f.before);
    if (found != call->out[0]->shape[0]) return MT_OK; /* count was not that of x */
  }
  f.before[f.parts] = call->out[0]->shape[0];
  f.writing = true;
  mt_cpu_parallel_for(call, f.parts, 1, run_parts, &f);
  return MT_OK;
}

extern const mt_entry mt_cpu__nonzero;
const mt_entry mt_cpu__nonzero = {nonzero_run, NULL, MT_ALL_MASK, 0};
