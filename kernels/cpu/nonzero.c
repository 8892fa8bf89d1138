/* kernels/cpu/nonzero.c -- the positions of the elements that are not 0: parts count
** theirs, then write them. */
#include "kernels/cpu/cpu.h"

#define BLOCK      512 /* elements */
#define MOST_PARTS 64

typedef struct finding {
  const mt_call *call;
  mt_space s;
  int64_t parts;
  int64_t before[MOST_PARTS]; /* how many a part has, then how many lie before it */
  bool writing;
} finding;

/* 1 where the n elements from p on are not 0. */
static const uint8_t *flags(const finding *f, int64_t n, const char *p, uint8_t *room) {
  const mt_view *x = f->call->in[0];
  if (x->dtype == MT_BOOL && f->s.stride[0][0] == 1) return (const uint8_t *)p;
  mt_cpu_load(x->dtype, n, p, f->s.stride[0][0], MT_BOOL, room);
  return room;
}

static int64_t count_flags(int64_t n, const uint8_t *set) { /* n at most BLOCK */
  int64_t sum = 0;
  for (int64_t i = 0; i < n;) {
    const int64_t stop = n - i < 128 ? n : i + 128;
    uint8_t few = 0;
    for (; i < stop; i++) few = (uint8_t)(few + set[i]);
    sum += few;
  }
  return sum;
}

/* Where set: position i, i + 1, ... from 1; returns how many. */
static int64_t write_positions(int64_t n, const uint8_t *set, int64_t i, int64_t most,
                               int64_t *at) {
  int64_t found = 0, room[BLOCK];
  for (int64_t k = 0; k < n; k++) room[found] = i + k + 1, found += set[k];
  if (found > most) found = most;
  memcpy(at, room, (size_t)found * sizeof *at);
  return found;
}

static void run_parts(void *context, int64_t lo, int64_t hi) {
  finding *f = context;
  const mt_view *x = f->call->in[0];
  int64_t *const y = (int64_t *)f->call->out[0]->data;
  const int64_t count = f->call->out[0]->shape[0];
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
        found += write_positions(run, set, i, count - found, y + found);
      else
        found += count_flags(run, set);
      mt_space_advance(&f->s, run, coord, offset);
      i += run;
    }
    if (!f->writing) f->before[part] = found;
  }
}

/* _nonzero(x, count): positions from 1 in x's row-major order; a new vector. */
static mt_status nonzero_run(const mt_call *call) {
  const mt_view *x = call->in[0];
  finding f = {.call = call, .parts = 1};
  mt_space_make(&f.s, 1, &x, true);
  if (f.s.numel == 0 || call->out[0]->shape[0] == 0) return MT_OK;
  if (call->num_threads > 1 && f.s.numel / call->num_threads >= MT_GRAIN)
    f.parts = call->num_threads < MOST_PARTS ? call->num_threads : MOST_PARTS;
  if (f.parts > 1) {
    mt_cpu_parallel_for(call, f.parts, 1, run_parts, &f);
    if (mt_stopped(call)) return MT_OK;
    int64_t sum = 0;
    for (int64_t part = 0; part < f.parts; part++) {
      const int64_t own = f.before[part];
      f.before[part] = sum;
      sum += own;
    }
    if (sum != call->out[0]->shape[0]) return MT_OK; /* count was not that of x */
  }
  f.writing = true;
  mt_cpu_parallel_for(call, f.parts, 1, run_parts, &f);
  return MT_OK;
}

extern const mt_entry mt_cpu__nonzero;
const mt_entry mt_cpu__nonzero = {nonzero_run, NULL, MT_ALL_MASK, 0};
