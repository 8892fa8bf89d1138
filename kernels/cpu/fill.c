/* kernels/cpu/fill.c -- constants and sequences: fill, _arange, _linspace. */
#include "kernels/cpu/stream.h"

#define PATTERN 1024 /* bytes of repeated elements */

typedef struct constant {
  char *dst;
  int64_t bytes, size; /* of an element */
  const char *element;
  bool one_byte;                 /* the element's bytes are all the same */
  const mt_stream_loops *stream; /* of large results; NULL */
  bool through;                  /* the caches, nevertheless */
} constant;

static void constant_range(void *context, int64_t lo, int64_t hi) { /* lines */
  const constant *c = context;
  _Alignas(MT_LINE) char pattern[PATTERN];
  int64_t at = lo * MT_LINE;
  const int64_t end = hi * MT_LINE < c->bytes ? hi * MT_LINE : c->bytes;
  if (c->one_byte && !c->stream) {
    memset(c->dst + at, c->element[0], (size_t)(end - at));
    return;
  }
  const int64_t most = end - at < PATTERN ? end - at : PATTERN;
  memcpy(pattern, c->element, (size_t)c->size);
  for (int64_t done = c->size; done < most; done *= 2)
    memcpy(pattern + done, pattern, (size_t)done);
  for (; at < end; at += PATTERN) {
    const int64_t n = end - at < PATTERN ? end - at : PATTERN;
    if (c->through && n == PATTERN)
      c->stream->repeat(PATTERN / MT_LINE, pattern, c->dst + at);
    else if (c->stream)
      mt_cpu_stream(c->stream, n, pattern, c->dst + at, 0, NULL);
    else
      memcpy(c->dst + at, pattern, (size_t)n);
  }
  if (c->stream) mt_cpu_stream_end();
}

static void fill_plain(const mt_call *call, const char *element) {
  const mt_view *out = call->out[0];
  constant c = {.dst = out->data, .size = mt_cpu_size(out->dtype), .element = element};
  c.bytes = mt_cpu_numel(out) * c.size;
  c.one_byte = true;
  for (int64_t i = 1; i < c.size; i++) c.one_byte &= element[i] == element[0];
  /* AMD's processors with AVX-512 fill whole lines without reading them first, and faster
  ** than one core's non-temporal stores leave it (Zen 4: 33 GB/s, not 27). Intel's read
  ** them (Sapphire Rapids: a third of the speed). */
  if (mt_cpu_streams(c.dst, c.bytes)) c.stream = MT_ISA_PICK(mt_stream);
  c.through = c.stream && mt_cpu_level() == 2 && __builtin_cpu_is("amd");
  const int64_t lines = (c.bytes + MT_LINE - 1) / MT_LINE;
  mt_cpu_parallel_for(call, lines, 4 * MT_GRAIN / MT_LINE, constant_range, &c);
}

/* fill(x, value): the value is converted once; strided views get it as copies of a
** 0-dim view. */
static mt_status fill_run(const mt_call *call) {
  const mt_attr *value = &call->attr[0];
  const mt_dtype d = call->out[0]->dtype;
  _Alignas(8) char element[8];
  if (value->is_int)
    mt_cpu_store_i64(d, element, value->i[0]);
  else
    mt_cpu_store_f64(d, element, value->f);
  if (mt_cpu_contiguous(call->out[0])) return fill_plain(call, element), MT_OK;
  const mt_view src = {.data = element, .dtype = d};
  return mt_cpu_copy_view(call, call->out[0], &src);
}

typedef struct sequence {
  int64_t start_i, step_i;
  double start, step, stop;
  int64_t last; /* position of stop */
} sequence;

static void arange_i64(const void *context, int64_t start, int64_t n, void *values) {
  const sequence *s = context;
  int64_t *out = values;
  for (int64_t i = 0; i < n; i++) out[i] = s->start_i + (start + i) * s->step_i;
}

static void arange_f64(const void *context, int64_t start, int64_t n, void *values) {
  const sequence *s = context;
  double *out = values;
  for (int64_t i = 0; i < n; i++) out[i] = s->start + (double)(start + i) * s->step;
}

/* _arange(x, start, step): integers exactly, floats in float64, each from its
** position. */
static mt_status arange_run(const mt_call *call) {
  const mt_attr *start = &call->attr[0], *step = &call->attr[1];
  const mt_view *out = call->out[0];
  const sequence s = {.start_i = start->i[0],
                      .step_i = step->i[0],
                      .start = start->is_int ? (double)start->i[0] : start->f,
                      .step = step->is_int ? (double)step->i[0] : step->f};
  const bool whole = start->is_int && step->is_int;
  return mt_cpu_generate(call, out, whole ? MT_I64 : MT_F64,
                         whole ? arange_i64 : arange_f64, &s, 1);
}

/* The first half counts from start, the second back from stop: both ends are exact, and
** the sequence backwards is that from stop to start. */
static void linspace_f64(const void *context, int64_t start, int64_t n, void *values) {
  const sequence *s = context;
  double *out = values;
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = start + i;
    out[i] = at <= s->last / 2 ? s->start + (double)at * s->step
                               : s->stop - (double)(s->last - at) * s->step;
  }
}

/* _linspace(x, start, stop) */
static mt_status linspace_run(const mt_call *call) {
  const int64_t n = mt_cpu_numel(call->out[0]);
  sequence s = {.start = call->attr[0].f, .stop = call->attr[1].f, .last = n - 1};
  if (n == 1) s.last = 1; /* one element is start */
  s.step = (s.stop - s.start) / (double)(s.last > 0 ? s.last : 1);
  return mt_cpu_generate(call, call->out[0], MT_F64, linspace_f64, &s, 1);
}

extern const mt_entry mt_cpu_fill, mt_cpu__arange, mt_cpu__linspace;
const mt_entry mt_cpu_fill = {fill_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu__arange = {arange_run, NULL, MT_FLOAT_MASK | MT_INT_MASK, 0};
const mt_entry mt_cpu__linspace = {linspace_run, NULL, MT_FLOAT_MASK, 0};
