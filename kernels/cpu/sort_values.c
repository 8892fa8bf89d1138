/* kernels/cpu/sort_values.c -- lines sorted without their positions: keys alone, half the
** memory or less. */
#include "kernels/cpu/sort.h"

typedef struct values {
  const mt_call *call;
  mt_dtype dtype;
  int64_t length, count,
      step[2];     /* of a line: elements; lines; bytes along dim: y, x */
  mt_space others; /* y, x without dim */
  int64_t slots;   /* buffers: lines are dealt out to so many */
  size_t slot_bytes;
  int chunks; /* of a line */
} values;

static size_t key_bytes(const values *s) { return mt_cpu_size(s->dtype) == 8 ? 8 : 4; }

static values plan(const mt_call *call) {
  const mt_view *x = call->in[0], *y = call->out[0];
  const int dim = (int)call->attr[0].i[0];
  mt_view rest[2];
  const mt_view *const arg[2] = {&rest[0], &rest[1]};
  values s = {.call = call, .dtype = x->dtype, .chunks = 1};
  s.length = x->ndim ? x->shape[dim] : 1;
  s.step[0] = mt_sort_without_dim(y, dim, &rest[0]);
  s.step[1] = mt_sort_without_dim(x, dim, &rest[1]);
  mt_space_make(&s.others, 2, arg, false);
  s.count = s.others.numel;
  const int threads = call->num_threads > 1 ? call->num_threads : 1;
  if (s.count < threads && s.length >= MT_SORT_LONG) s.chunks = threads;
  s.slots = s.chunks > 1 ? 1 : threads < s.count ? threads : s.count > 0 ? s.count : 1;
  s.slot_bytes = (2 * (size_t)s.length * key_bytes(&s) + 63) / 64 * 64 +
                 (size_t)s.chunks * 256 * 8;
  return s;
}

typedef struct line {
  const values *s;
  const char *x;
  char *y, *keys; /* keys: loaded, or sorted */
} line;

static int64_t begin_of(const values *s, int64_t chunk) {
  return s->length * chunk / s->chunks;
}

static void load_chunks(void *context, int64_t lo, int64_t hi) {
  const line *l = context;
  const values *s = l->s;
  for (int64_t c = lo; c < hi; c++) {
    const int64_t from = begin_of(s, c);
    mt_sort_load_keys(s->dtype, begin_of(s, c + 1) - from, l->x + from * s->step[1],
                      s->step[1], l->keys + (size_t)from * key_bytes(s));
  }
}

static void store_chunks(void *context, int64_t lo, int64_t hi) {
  const line *l = context;
  const values *s = l->s;
  for (int64_t c = lo; c < hi; c++) {
    const int64_t from = begin_of(s, c);
    mt_sort_store_keys(s->dtype, begin_of(s, c + 1) - from,
                       l->keys + (size_t)from * key_bytes(s), l->y + from * s->step[0],
                       s->step[0]);
  }
}

static void sort_line(const values *s, int64_t number, int64_t slot) {
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  int64_t *const counts =
      (int64_t *)((char *)s->call->scratch + s->slot_bytes * (size_t)slot);
  char *const a = (char *)(counts + s->chunks * 256);
  char *const b = a + (size_t)s->length * key_bytes(s);
  const int bytes = (int)mt_cpu_size(s->dtype);
  mt_space_seek(&s->others, number, coord, offset);
  line l = {s, s->call->in[0]->data + offset[1], s->call->out[0]->data + offset[0], a};
  mt_cpu_parallel_for(s->call, s->chunks, 1, load_chunks, &l);
  void *const sorted =
      bytes == 8 ? (void *)mt_sort_key64(s->call, s->length, bytes, s->chunks, counts,
                                         (uint64_t *)(void *)a, (uint64_t *)(void *)b)
                 : (void *)mt_sort_key32(s->call, s->length, bytes, s->chunks, counts,
                                         (uint32_t *)(void *)a, (uint32_t *)(void *)b);
  l.keys = sorted;
  mt_cpu_parallel_for(s->call, s->chunks, 1, store_chunks, &l);
}

static void run_slots(void *context, int64_t lo, int64_t hi) {
  const values *s = context;
  for (int64_t slot = lo; slot < hi; slot++) {
    const int64_t end = s->count * (slot + 1) / s->slots;
    for (int64_t i = s->count * slot / s->slots; i < end; i++) {
      if ((i * s->length) % 65536 < s->length && mt_stopped(s->call)) return;
      sort_line(s, i, slot);
    }
  }
}

static size_t sort_values_scratch(const mt_call *call) {
  const values s = plan(call);
  return s.slot_bytes * (size_t)s.slots;
}

static mt_status sort_values_run(const mt_call *call) {
  values s = plan(call);
  if (s.count == 0 || s.length == 0) return MT_OK;
  if (s.chunks > 1 || s.count * s.length < MT_GRAIN / 8)
    run_slots(&s, 0, s.slots);
  else
    mt_cpu_parallel_for(call, s.slots, 1, run_slots, &s);
  return MT_OK;
}

extern const mt_entry mt_cpu__sort_values;
const mt_entry mt_cpu__sort_values = {sort_values_run, sort_values_scratch, MT_ALL_MASK,
                                      0};
