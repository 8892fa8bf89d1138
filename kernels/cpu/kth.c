/* kernels/cpu/kth.c -- the k-th smallest of each line along a dim, or the middle one, by
** selection among keys. */
#include "kernels/cpu/kth.h"
#include "kernels/cpu/sort.h"

#define PIECE ((int64_t)1 << 18) /* keys between two looks at the interrupt */
#define TRIES 64                 /* with pivots that part badly */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct lines {
  const mt_call *call;
  const mt_kth_loops *loops;
  mt_dtype dtype;
  int64_t length, count, k; /* of a line; lines; from 1, 0: the middle one */
  bool skip_nan;
  int64_t x_step;  /* bytes along dim */
  mt_space others; /* y, x, index without dim */
  const char *x;
  char *y, *index;
  int64_t slots;    /* lines are dealt out to so many */
  size_t key_bytes; /* of a key */
} lines;

static lines plan(const mt_call *call) {
  const mt_view *x = call->in[0];
  const int dim = (int)call->attr[1].i[0];
  mt_view rest[3];
  const mt_view *arg[3] = {&rest[0], &rest[1], &rest[2]};
  lines s = {.call = call, .dtype = x->dtype, .k = call->attr[0].i[0], .x = x->data};
  s.skip_nan = call->attr[2].i[0] != 0;
  s.length = x->ndim ? x->shape[dim] : 1;
  s.key_bytes = mt_cpu_size(x->dtype) <= 4 ? 4 : 8;
  s.loops = &(*MT_ISA_PICK(mt_kth_rows))[s.key_bytes == 8];
  mt_sort_without_dim(call->out[0], dim, &rest[0]);
  s.x_step = mt_sort_without_dim(x, dim, &rest[1]);
  mt_sort_without_dim(call->out[1], dim, &rest[2]);
  s.y = call->out[0]->data, s.index = call->out[1]->data;
  mt_space_make(&s.others, 3, arg, false);
  s.count = s.others.numel;
  const int threads = call->num_threads > 1 ? call->num_threads : 1;
  s.slots = threads < s.count ? threads : s.count > 0 ? s.count : 1;
  return s;
}

/* The keys as they stand, and as selection leaves them. */
static size_t slot_bytes(const lines *s) {
  return (2 * (size_t)s->length * s->key_bytes + 63) / 64 * 64;
}

/* The key of which as many bits as possible are set, but below which fewer than k + 1
** lie: the k-th, at a cost that does not depend on luck. */
static uint64_t kth_by_bits(const lines *s, const char *a, int64_t n, int64_t k) {
  uint64_t key = 0;
  for (int bit = (int)s->key_bytes * 8 - 1; bit >= 0; bit--) {
    const uint64_t larger = key | (uint64_t)1 << bit;
    if (s->loops->below(a, n, larger) <= k) key = larger;
    if (mt_stopped(s->call)) return 0;
  }
  return key;
}

/* The k-th (from 0) of n keys, by quickselect, which mixes them. */
static uint64_t kth_key(const lines *s, char *a, int64_t n, int64_t k) {
  for (int tries = 0; n > MT_KTH_FEW; tries++) {
    if (tries == TRIES) return kth_by_bits(s, a, n, k);
    const uint64_t pivot = s->loops->pivot(a, n, k);
    int64_t below = 0, upto;
    for (int64_t i = 0; i < n; i += PIECE) {
      if (i > 0 && mt_stopped(s->call)) return 0;
      below = s->loops->part(a, below, i, least(i + PIECE, n), pivot, false);
    }
    if (k < below) {
      n = below;
      continue;
    }
    a += (size_t)below * s->key_bytes, n -= below, k -= below;
    if (below > n / 8) continue;
    /* Few were below the pivot: many may be equal to it. */
    upto = s->loops->part(a, 0, 0, n, pivot, true);
    if (k < upto) return pivot;
    a += (size_t)upto * s->key_bytes, n -= upto, k -= upto;
  }
  return s->loops->ranked(a, n, k);
}

static uint64_t nan_key(const lines *s) { /* above those of all numbers */
  return mt_cpu_is_half(s->dtype) ? 0xffff
         : s->key_bytes == 4      ? 0xffffffff
                                  : UINT64_MAX;
}

/* Which one is wanted, from 0. */
static int64_t wanted(const lines *s, const char *keys) {
  const int64_t n = s->length;
  if (s->k > 0) return s->k - 1;
  if (!MT_IS_FLOAT(s->dtype)) return (n - 1) / 2;
  const int64_t numbers = n - s->loops->equal(keys, n, nan_key(s));
  if (s->skip_nan) return numbers > 0 ? (numbers - 1) / 2 : 0;
  return numbers < n ? numbers : (n - 1) / 2; /* the first NaN */
}

static void select_of_line(const lines *s, int64_t line, char *keys) {
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  char *const mixed = keys + (size_t)s->length * s->key_bytes;
  mt_space_seek(&s->others, line, coord, offset);
  const char *x = s->x + offset[1];
  for (int64_t i = 0; i < s->length; i += PIECE) {
    if (i > 0 && mt_stopped(s->call)) return;
    mt_sort_load_keys(s->dtype, least(PIECE, s->length - i), x + i * s->x_step,
                      s->x_step, keys + (size_t)i * s->key_bytes);
  }
  const int64_t k = wanted(s, keys);
  memcpy(mixed, keys, (size_t)s->length * s->key_bytes);
  const uint64_t key = kth_key(s, mixed, s->length, k);
  if (s->length > PIECE && mt_stopped(s->call)) return;
  const int64_t before = s->loops->below(keys, s->length, key);
  const int64_t at = s->loops->find(keys, key, k - before);
  memcpy(s->y + offset[0], x + at * s->x_step, (size_t)mt_cpu_size(s->dtype));
  const int64_t position = at + 1;
  memcpy(s->index + offset[2], &position, sizeof position);
}

static void run_slots(void *context, int64_t lo, int64_t hi) {
  const lines *s = context;
  for (int64_t slot = lo; slot < hi; slot++) {
    char *const keys = (char *)s->call->scratch + (size_t)slot * slot_bytes(s);
    const int64_t end = s->count * (slot + 1) / s->slots;
    for (int64_t line = s->count * slot / s->slots; line < end; line++) {
      if ((line * s->length) % 65536 < s->length && mt_stopped(s->call)) return;
      select_of_line(s, line, keys);
    }
  }
}

/* _kth(x, k, dim, skip_nan) -> y, index */
static mt_status kth_run(const mt_call *call) {
  lines s = plan(call);
  if (s.count == 0) return MT_OK;
  if (s.count * s.length < MT_GRAIN / 8)
    run_slots(&s, 0, s.slots);
  else
    mt_cpu_parallel_for(call, s.slots, 1, run_slots, &s);
  return MT_OK;
}

static size_t kth_scratch(const mt_call *call) {
  const lines s = plan(call);
  return (size_t)s.slots * slot_bytes(&s);
}

extern const mt_entry mt_cpu__kth;
const mt_entry mt_cpu__kth = {kth_run, kth_scratch, MT_ALL_MASK, 0};
