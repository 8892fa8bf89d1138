/* kernels/cpu/masked_select.c -- the elements where a mask is true, in order: parts but
** the last count theirs, then all write them. */
#include "kernels/cpu/select.h"
#include "kernels/cpu/stream.h"

#define PIECE 65536 /* elements between two looks at call->interrupt */
#define BLOCK 1024  /* elements selected to a buffer, of what passes the caches */
#define ROOM  (BLOCK + 64) /* and more, as the loops write several at a time */

typedef struct selection {
  const mt_call *call;
  const mt_select_loops *loops;
  mt_select_fn select;
  const uint8_t *mask;
  int64_t n, parts, size;
  int64_t count[MT_SELECT_PARTS * MT_SELECT_PARTS]; /* of a share of a part */
  int64_t before[MT_SELECT_PARTS + 1];              /* elements of the parts before */
  bool streamed;
} selection;

static int64_t begin_of(const selection *s, int64_t part) {
  return s->n * part / s->parts;
}

/* Each part has as many shares as there are parts. */
static void count_shares(void *context, int64_t lo, int64_t hi) {
  selection *s = context;
  for (int64_t item = lo; item < hi; item++) {
    const int64_t part = item / s->parts, share = item % s->parts;
    const int64_t begin = begin_of(s, part), n = begin_of(s, part + 1) - begin;
    const int64_t from = n * share / s->parts, to = n * (share + 1) / s->parts;
    s->count[item] = s->loops->count(to - from, s->mask + begin + from);
  }
}

/* Elements i .. end - 1 to y, of which there are `most`, by way of a buffer whose whole
** lines pass the caches. */
static void select_past(const selection *s, int64_t i, int64_t end, char *y,
                        int64_t most) {
  const mt_stream_loops *stream = MT_ISA_PICK(mt_stream);
  const char *x = s->call->in[0]->data;
  _Alignas(64) char buffer[ROOM * 8 + MT_LINE];
  int64_t held = 0; /* bytes */
  while (i < end && most > 0) {
    const int64_t n = end - i < BLOCK ? end - i : BLOCK;
    int64_t found = s->select(n, s->mask + i, x + i * s->size, buffer + held, ROOM);
    if (found > most) found = most; /* the mask has more than was counted */
    held += found * s->size, most -= found, i += n;
    const int64_t over = (int64_t)((uintptr_t)(y + held) % MT_LINE);
    if (held <= over) continue;
    mt_cpu_stream(stream, held - over, buffer, y, 0, NULL);
    y += held - over;
    memmove(buffer, buffer + held - over, (size_t)over);
    held = over;
    if (i % PIECE < BLOCK && mt_stopped(s->call)) return;
  }
  memcpy(y, buffer, (size_t)held);
}

static void select_parts(void *context, int64_t lo, int64_t hi) {
  const selection *s = context;
  const char *x = s->call->in[0]->data;
  for (int64_t part = lo; part < hi; part++) {
    const int64_t begin = begin_of(s, part), end = begin_of(s, part + 1);
    int64_t found = s->before[part];
    char *y = s->call->out[0]->data;
    if (s->streamed) {
      select_past(s, begin, end, y + found * s->size, s->before[part + 1] - found);
      continue;
    }
    for (int64_t i = begin; i < end && !mt_stopped(s->call); i += PIECE)
      found +=
          s->select(end - i < PIECE ? end - i : PIECE, s->mask + i, x + i * s->size,
                    y + found * s->size, s->before[part + 1] - found);
  }
  if (s->streamed) mt_cpu_stream_end();
}

/* How many lie before each part. False: the mask has more than count. */
static bool find_begins(selection *s, int64_t count) {
  int64_t sum = 0;
  mt_cpu_parallel_for(s->call, (s->parts - 1) * s->parts, 1, count_shares, s);
  for (int64_t part = 0; part < s->parts; part++) {
    s->before[part] = sum;
    for (int64_t share = 0; share < s->parts && part + 1 < s->parts; share++)
      sum += s->count[part * s->parts + share];
  }
  s->before[s->parts] = count;
  return sum <= count;
}

/* _masked_select(x, mask, marks, count) */
static mt_status masked_select_run(const mt_call *call) {
  const mt_view *x = call->in[0];
  const int64_t count = call->attr[0].i[0];
  selection s; /* large */
  s.call = call;
  s.loops = MT_ISA_PICK(mt_select);
  s.mask = (const uint8_t *)call->in[1]->data;
  s.n = mt_cpu_numel(x), s.size = mt_cpu_size(x->dtype);
  if (s.n == 0 || count == 0) return MT_OK;
  s.select = s.loops->select[__builtin_ctz((unsigned)s.size)];
  s.parts = mt_select_parts(call, s.n);
  s.streamed = mt_cpu_streams(call->out[0]->data, (s.n + count) / 2 * s.size);
  if (!find_begins(&s, count) || mt_stopped(call)) return MT_OK;
  mt_cpu_parallel_for(call, s.parts, 1, select_parts, &s);
  return MT_OK;
}

extern const mt_entry mt_cpu__masked_select;
const mt_entry mt_cpu__masked_select = {masked_select_run, NULL, MT_ALL_MASK, 3};
