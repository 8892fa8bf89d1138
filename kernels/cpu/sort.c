/* kernels/cpu/sort.c -- sort and topk along a dim: keys of a line are sorted where they
** fit the caches, threads share lines, or a long line. */
#include "kernels/cpu/sort.h"

typedef struct lines {
  const mt_call *call;
  const mt_view *x;
  mt_dtype dtype;
  int64_t length, count;   /* of a line; lines */
  int64_t x_step, step[2]; /* bytes along dim: x, y, index */
  mt_space others;         /* y, x, index without dim */
  char *y, *index;         /* NULL: not wanted */
  int64_t k;               /* elements of a line that are wanted */
  bool descending, packed;
  int64_t slots;           /* buffers: lines are dealt out to so many */
  size_t slot_bytes, room; /* of a slot; keys that one of its two buffers holds */
  int chunks;              /* of a line */
} lines;

static size_t key_bytes(const lines *s) {
  return s->packed ? sizeof(mt_packed) : sizeof(mt_wide);
}

/* How many of a line's elements are kept while the largest are looked for. */
static int64_t kept(const lines *s) { return s->k > 512 ? 2 * s->k : s->k + 1024; }

/* Is looking for the first k cheaper than sorting all? */
static bool few_wanted(const lines *s) { return kept(s) <= s->length / 2; }

static lines plan(const mt_call *call, int dim_slot, bool descending, int64_t k) {
  const mt_view *x = call->in[0];
  const int dim = (int)call->attr[dim_slot].i[0];
  const mt_view *shape = call->out[0] ? call->out[0] : call->out[1];
  mt_view rest[3];
  lines s = {.call = call, .x = x, .dtype = x->dtype, .descending = descending};
  const mt_view *arg[3] = {NULL, &rest[1], NULL};
  s.length = x->ndim ? x->shape[dim] : 1;
  s.k = k < 0 ? s.length : k;
  s.x_step = mt_sort_without_dim(x, dim, &rest[1]);
  for (int o = 0; o < 2; o++) {
    const mt_view *out = call->out[o];
    if (!out) continue;
    s.step[o] = mt_sort_without_dim(out, dim, &rest[2 * o]);
    arg[2 * o] = &rest[2 * o];
    *(o ? &s.index : &s.y) = out->data;
  }
  if (!arg[0]) { /* the first one gives the shape */
    mt_sort_without_dim(shape, dim, &rest[0]);
    arg[0] = &rest[0];
  }
  mt_space_make(&s.others, 3, arg, false);
  s.count = s.others.numel;
  s.packed = mt_sort_packs(s.dtype, s.length);
  const int threads = call->num_threads > 1 ? call->num_threads : 1;
  const bool share = s.count < threads && s.length >= MT_SORT_LONG;
  s.chunks = share ? threads : 1;
  if (few_wanted(&s) && s.chunks > s.length / kept(&s)) /* each has k and more */
    s.chunks = (int)(s.length / kept(&s));
  if (s.chunks > 1)
    s.slots = few_wanted(&s) ? s.chunks : 1;
  else
    s.slots = threads < s.count ? threads : s.count > 0 ? s.count : 1;
  s.room = (size_t)(few_wanted(&s) ? kept(&s) : s.length);
  s.slot_bytes = (2 * s.room * key_bytes(&s) + 63) / 64 * 64 +
                 (size_t)(few_wanted(&s) ? 1 : s.chunks) * 256 * 8;
  return s;
}

static size_t whole_bytes(const lines *s) {
  size_t bytes = s->slot_bytes * (size_t)s->slots;
  if (s->chunks > 1 && few_wanted(s)) /* what the chunks found, merged */
    bytes += 2 * (size_t)s->chunks * (size_t)s->k * key_bytes(s) + 64;
  return bytes;
}

/* A slot: counts, then two buffers. */
static int64_t *slot_of(const lines *s, int64_t slot) {
  return (int64_t *)((char *)s->call->scratch + s->slot_bytes * (size_t)slot);
}
static char *buffer_of(const lines *s, int64_t *counts) {
  return (char *)(counts + (few_wanted(s) ? 1 : s->chunks) * 256);
}

static void load(const lines *s, int64_t from, int64_t n, const char *x, void *a) {
  const char *p = x + from * s->x_step;
  if (s->packed)
    mt_sort_load_packed(s->dtype, n, p, s->x_step, from, s->descending, a);
  else
    mt_sort_load_wide(s->dtype, n, p, s->x_step, from, s->descending, a);
}

static void *sort(const lines *s, int64_t n, int chunks, int64_t *counts, void *a,
                  void *b) {
  const int bytes = (int)mt_cpu_size(s->dtype);
  return s->packed ? (void *)mt_sort_packed(s->call, n, bytes, chunks, counts, a, b)
                   : (void *)mt_sort_wide(s->call, n, bytes, chunks, counts, a, b);
}

static void store(const lines *s, const void *a, const int64_t *offset) {
  char *const y = s->y ? s->y + offset[0] : NULL;
  char *const index = s->index ? s->index + offset[2] : NULL;
  const char *x = s->x->data + offset[1];
  if (s->packed)
    mt_sort_store_packed(s->dtype, s->k, a, s->descending, x, s->x_step, y, s->step[0],
                         index, s->step[1]);
  else
    mt_sort_store_wide(s->dtype, s->k, a, s->descending, x, s->x_step, y, s->step[0],
                       index, s->step[1]);
}

/* ---- all of a line ---- */

typedef struct loading {
  const lines *s;
  const char *x;
  void *a;
} loading;

static void load_chunks(void *context, int64_t lo, int64_t hi) {
  const loading *l = context;
  const lines *s = l->s;
  for (int64_t c = lo; c < hi; c++) {
    const int64_t from = s->length * c / s->chunks;
    load(s, from, s->length * (c + 1) / s->chunks - from, l->x,
         (char *)l->a + (size_t)from * key_bytes(s));
  }
}

static void sort_line(const lines *s, int64_t line, int64_t *counts) {
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  mt_space_seek(&s->others, line, coord, offset);
  char *const a = buffer_of(s, counts);
  char *const b = a + s->room * key_bytes(s);
  const loading l = {s, s->x->data + offset[1], a};
  if (s->chunks > 1)
    mt_cpu_parallel_for(s->call, s->chunks, 1, load_chunks, (void *)&l);
  else
    load_chunks((void *)&l, 0, 1);
  const void *sorted = sort(s, s->length, s->chunks, counts, a, b);
  if (s->length >= MT_SORT_LONG && mt_stopped(s->call))
    return; /* positions may be missing */
  store(s, sorted, offset);
}

/* ---- the first k ---- */

#define PIECE 256 /* keys made at a time */

/* The k-th smallest of n different keys, by quickselect, which mixes them; UINT64_MAX:
** bad luck with the pivots. */
static mt_packed kth_smallest(mt_packed *a, int64_t n, int64_t k) {
  for (int tries = 0; tries < 40; tries++) {
    const mt_packed first = a[0], middle = a[n / 2], last = a[n - 1];
    const mt_packed low = first < middle ? first : middle;
    const mt_packed high = first < middle ? middle : first;
    const mt_packed pivot = last < low ? low : last < high ? last : high;
    int64_t less = 0;
    for (int64_t i = 0; i < n; i++) { /* no branch, so none is foretold wrongly */
      const mt_packed x = a[i];
      a[i] = a[less];
      a[less] = x;
      less += x < pivot;
    }
    if (less == k - 1) return pivot;
    if (less >= k) {
      n = less;
    } else {
      int64_t at = less; /* the pivot goes before those that are larger */
      while (a[at] != pivot) at++;
      a[at] = a[less];
      a += less + 1;
      n -= less + 1;
      k -= less + 1;
    }
  }
  return UINT64_MAX;
}

/* Of n keys those up to the k-th smallest, in the order in which they stand; returns
** that key. b: room for n. */
static mt_packed keep_smallest(mt_packed *a, mt_packed *b, int64_t n, int64_t k) {
  memcpy(b, a, (size_t)n * sizeof *a);
  const mt_packed bound = kth_smallest(b, n, k);
  int64_t m = 0;
  for (int64_t i = 0; i < n && bound != UINT64_MAX; i++) {
    const mt_packed x = a[i];
    a[m] = x;
    m += x <= bound;
  }
  return bound;
}

/* The first k of elements lo .. hi-1 of a line, in order, at the beginning of the
** result; *found: how many. Keys beyond the k-th so far are not kept. */
static void *first_of(const lines *s, int64_t lo, int64_t hi, const char *x,
                      int64_t *counts, int64_t *found) {
  char *a = buffer_of(s, counts), *b = a + s->room * key_bytes(s);
  int64_t n = 0;
  uint64_t bound = UINT64_MAX;
  for (int64_t i = lo; i < hi; i += PIECE) {
    _Alignas(64) mt_wide wide[PIECE];
    mt_packed *const packed = (mt_packed *)wide;
    const int64_t count = hi - i < PIECE ? hi - i : PIECE;
    if (i % ((int64_t)PIECE << 14) == 0 && mt_stopped(s->call)) break;
    if ((size_t)(n + count) > s->room) {
      bound = s->packed ? keep_smallest((mt_packed *)a, (mt_packed *)b, n, s->k)
                        : UINT64_MAX;
      if (bound == UINT64_MAX) {
        char *const sorted = sort(s, n, 1, counts, a, b);
        if (sorted == b) b = a, a = sorted;
        bound = s->packed ? ((mt_packed *)a)[s->k - 1] : ((mt_wide *)a)[s->k - 1].key;
      }
      n = s->k;
    }
    load(s, i, count, x, wide);
    if (s->packed) { /* equal keys with later positions are larger here */
      mt_packed *const to = (mt_packed *)a + n;
      int64_t m = 0;
      for (int64_t j = 0; j < count; j++) {
        to[m] = packed[j];
        m += packed[j] < bound;
      }
      n += m;
    } else {
      mt_wide *const to = (mt_wide *)a + n;
      int64_t m = 0;
      for (int64_t j = 0; j < count; j++) {
        to[m] = wide[j];
        m += wide[j].key < bound || bound == UINT64_MAX;
      }
      n += m;
    }
  }
  void *const sorted = sort(s, n, 1, counts, a, b);
  *found = n < s->k ? n : s->k;
  return sorted;
}

static void first_of_line(const lines *s, int64_t line, int64_t *counts) {
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS], found;
  mt_space_seek(&s->others, line, coord, offset);
  const void *sorted =
      first_of(s, 0, s->length, s->x->data + offset[1], counts, &found);
  if (found == s->k) store(s, sorted, offset);
}

typedef struct merging {
  const lines *s;
  const char *x;
  char *all;       /* k keys of each chunk */
  int64_t *counts; /* of the merged */
} merging;

static void first_of_chunks(void *context, int64_t lo, int64_t hi) {
  const merging *m = context;
  const lines *s = m->s;
  const size_t bytes = (size_t)s->k * key_bytes(s);
  for (int64_t c = lo; c < hi; c++) {
    int64_t found;
    const void *sorted =
        first_of(s, s->length * c / s->chunks, s->length * (c + 1) / s->chunks, m->x,
                 slot_of(s, c), &found);
    if (found == s->k) memcpy(m->all + (size_t)c * bytes, sorted, bytes);
  }
}

/* Each chunk is longer than k. */
static void first_of_long_line(const lines *s, int64_t line) {
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  mt_space_seek(&s->others, line, coord, offset);
  char *const all = (char *)slot_of(s, s->slots);
  const int64_t n = s->chunks * s->k;
  const merging m = {.s = s, .x = s->x->data + offset[1], .all = all};
  mt_cpu_parallel_for(s->call, s->chunks, 1, first_of_chunks, (void *)&m);
  if (mt_stopped(s->call)) return;
  store(s, sort(s, n, 1, slot_of(s, 0), all, all + (size_t)n * key_bytes(s)), offset);
}

/* ---- the calls ---- */

static void run_slots(void *context, int64_t lo, int64_t hi) {
  const lines *s = context;
  for (int64_t slot = lo; slot < hi; slot++) {
    const int64_t end = s->count * (slot + 1) / s->slots;
    for (int64_t line = s->count * slot / s->slots; line < end; line++) {
      if ((line * s->length) % 65536 < s->length && mt_stopped(s->call)) return;
      if (few_wanted(s))
        first_of_line(s, line, slot_of(s, slot));
      else
        sort_line(s, line, slot_of(s, slot));
    }
  }
}

static mt_status run_lines(lines *s) {
  if (s->count == 0 || s->k == 0) return MT_OK;
  if (s->chunks > 1) {
    for (int64_t line = 0; line < s->count; line++)
      if (few_wanted(s))
        first_of_long_line(s, line);
      else
        sort_line(s, line, slot_of(s, 0));
    return MT_OK;
  }
  if (s->count * s->length < MT_GRAIN / 8)
    run_slots(s, 0, s->slots);
  else
    mt_cpu_parallel_for(s->call, s->slots, 1, run_slots, s);
  return MT_OK;
}

static lines plan_sort(const mt_call *call) {
  return plan(call, 0, call->attr[1].i[0] != 0, -1);
}
static size_t sort_scratch(const mt_call *call) {
  const lines s = plan_sort(call);
  return whole_bytes(&s);
}
static mt_status sort_run(const mt_call *call) {
  lines s = plan_sort(call);
  return run_lines(&s);
}

static lines plan_topk(const mt_call *call) {
  return plan(call, 1, call->attr[2].i[0] != 0, call->attr[0].i[0]);
}
static size_t topk_scratch(const mt_call *call) {
  const lines s = plan_topk(call);
  return whole_bytes(&s);
}
static mt_status topk_run(const mt_call *call) {
  lines s = plan_topk(call);
  return run_lines(&s);
}

extern const mt_entry mt_cpu_sort, mt_cpu_topk;
const mt_entry mt_cpu_sort = {sort_run, sort_scratch, MT_ALL_MASK, 0};
const mt_entry mt_cpu_topk = {topk_run, topk_scratch, MT_ALL_MASK, 0};
