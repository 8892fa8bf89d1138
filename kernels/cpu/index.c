/* kernels/cpu/index.c -- slices along one dim at the positions of a vector. */
#include "kernels/cpu/positions.h"
#include "kernels/cpu/stream.h"

#define HELD 4096 /* positions */

/* Contiguous tensors seen as (outer, n, inner); the other one as (outer, m, inner). */
typedef struct slices {
  const mt_call *call;
  const mt_view *index;
  int64_t outer, n, m, inner;
  int64_t size;                  /* bytes of an element */
  const mt_stream_loops *stream; /* of large results of index_select; or NULL */
} slices;

/* x is in[0], the index in[1] of a call with attribute dim. */
static slices find_slices(const mt_call *call) {
  const mt_view *x = call->in[0];
  const int dim = (int)call->attr[0].i[0];
  slices s = {.call = call,
              .index = call->in[1],
              .outer = 1,
              .n = x->shape[dim],
              .m = mt_cpu_numel(call->in[1]),
              .inner = 1,
              .size = mt_cpu_size(x->dtype)};
  for (int d = 0; d < dim; d++) s.outer *= x->shape[d];
  for (int d = dim + 1; d < x->ndim; d++) s.inner *= x->shape[d];
  return s;
}

/* Slices of few bytes: to[i] = from[at[i]], or 0 where at[i] is negative. */
#define PICK(T, sfx)                                                               \
  static void pick_##sfx(int64_t n, char *to, const char *from, const int64_t *at, \
                         bool within) {                                            \
    typedef T part __attribute__((aligned(1), may_alias)); /* of some elements */  \
    part *y = (part *)to;                                                          \
    const part *x = (const part *)from;                                            \
    if (within)                                                                    \
      _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) y[i] = x[at[i]];     \
    else                                                                           \
      for (int64_t i = 0; i < n; i++) y[i] = at[i] < 0 ? (T)0 : x[at[i]];          \
  }
PICK(uint8_t, 1)
PICK(uint16_t, 2)
PICK(uint32_t, 4)
PICK(uint64_t, 8)

static void pick_slices(int64_t n, int64_t bytes, char *to, const char *from,
                        const int64_t *at, bool within) {
  switch (bytes) {
  case 1: pick_1(n, to, from, at, within); return;
  case 2: pick_2(n, to, from, at, within); return;
  case 4: pick_4(n, to, from, at, within); return;
  case 8: pick_8(n, to, from, at, within); return;
  default:
    for (int64_t i = 0; i < n; i++, to += bytes)
      if (at[i] < 0)
        memset(to, 0, (size_t)bytes);
      else
        memcpy(to, from + at[i] * bytes, (size_t)bytes);
  }
}

/* Slices of whole lines, past the caches, while the next one is fetched. */
static void stream_slices(const mt_stream_loops *loops, int64_t n, int64_t bytes,
                          char *to, const char *from, const int64_t *at) {
  for (int64_t i = 0; i < n; i++, to += bytes) {
    const int64_t next = i + 1 < n ? at[i + 1] : at[i];
    const mt_ahead ahead = {from + next * bytes, MT_LINE};
    if (at[i] < 0)
      memset(to, 0, (size_t)bytes);
    else
      loops->lines(bytes / MT_LINE, from + at[i] * bytes, to, 1, &ahead);
  }
}

/* Slices lo .. hi-1 of outer * m. The positions are held if they serve several times. */
static void select_slices(void *context, int64_t lo, int64_t hi) {
  const slices *s = context;
  const int64_t bytes = s->inner * s->size;
  const bool holds = s->m <= HELD && hi - lo >= 2 * s->m;
  int64_t at[HELD];
  bool within = true;
  if (holds) within = mt_positions(s->call, s->index, 0, s->m, s->n, true, at);
  while (lo < hi) {
    const int64_t outer = lo / s->m, first = lo % s->m;
    int64_t count = s->m - first < hi - lo ? s->m - first : hi - lo;
    if (!holds) {
      if (count > MT_POSITIONS) count = MT_POSITIONS;
      within = mt_positions(s->call, s->index, first, count, s->n, true, at);
    }
    const char *x = s->call->in[0]->data + outer * s->n * bytes;
    char *y = s->call->out[0]->data + lo * bytes;
    const int64_t *places = holds ? at + first : at;
    if (s->stream)
      stream_slices(s->stream, count, bytes, y, x, places);
    else
      pick_slices(count, bytes, y, x, places, within);
    lo += count;
  }
  if (s->stream) mt_cpu_stream_end();
}

static mt_status index_select_kernel(const mt_call *call) {
  slices s = find_slices(call);
  if (mt_cpu_numel(call->out[0]) == 0) return MT_OK;
  const int64_t bytes = s.inner * s.size;
  if (bytes % MT_LINE == 0 && mt_cpu_streams(call->out[0]->data, s.outer * s.m * bytes))
    s.stream = MT_ISA_PICK(mt_stream);
  mt_cpu_parallel_for(call, s.outer * s.m, mt_cpu_grain(s.inner), select_slices, &s);
  return MT_OK;
}

const mt_entry mt_cpu_index_select = {
    .run = index_select_kernel, .dtypes = MT_ALL_MASK, .contiguous = 3};

/* ---- writing: y is a copy of x; in[2] holds the slices ---- */

typedef void (*slice_fn)(int64_t n, char *to, const char *from);

#define ADD_SLICE(dtype, T, sfx)                                       \
  static void add_slice_##sfx(int64_t n, char *to, const char *from) { \
    for (int64_t i = 0; i < n; i++)                                    \
      ((T *)to)[i] = (T)(((T *)to)[i] + ((const T *)from)[i]);         \
  }
MT_EACH_FLOAT(ADD_SLICE)
MT_EACH_INT(ADD_SLICE)

/* Slices of one element: n of them, none where at[i] is negative. */
typedef void (*elements_fn)(int64_t n, char *to, const char *from, const int64_t *at);

#define ADD_ELEMENTS(dtype, T, sfx)                                                    \
  static void add_elements_##sfx(int64_t n, char *to, const char *from,                \
                                 const int64_t *at) {                                  \
    for (int64_t i = 0; i < n; i++)                                                    \
      if (at[i] >= 0) ((T *)to)[at[i]] = (T)(((T *)to)[at[i]] + ((const T *)from)[i]); \
  }
MT_EACH_FLOAT(ADD_ELEMENTS)
MT_EACH_INT(ADD_ELEMENTS)

#define COPY_ELEMENTS(T, sfx)                                            \
  static void copy_elements_##sfx(int64_t n, char *to, const char *from, \
                                  const int64_t *at) {                   \
    for (int64_t i = 0; i < n; i++)                                      \
      if (at[i] >= 0) ((T *)to)[at[i]] = ((const T *)from)[i];           \
  }
COPY_ELEMENTS(uint8_t, 1)
COPY_ELEMENTS(uint16_t, 2)
COPY_ELEMENTS(uint32_t, 4)
COPY_ELEMENTS(uint64_t, 8)

typedef struct writing {
  slices s;
  slice_fn add; /* NULL: copy */
  elements_fn elements;
  bool by_inner; /* threads share inner elements, not outer ones */
} writing;

/* In the order of the index, for each element: the result is the same with any
** threads. */
static void write_slices(void *context, int64_t lo, int64_t hi) {
  const writing *w = context;
  const slices *s = &w->s;
  const int64_t from = w->by_inner ? lo : 0, length = w->by_inner ? hi - lo : s->inner;
  const int64_t first = w->by_inner ? 0 : lo, last = w->by_inner ? s->outer : hi;
  int64_t at[MT_POSITIONS];
  for (int64_t i = 0; i < s->m; i += MT_POSITIONS) {
    const int64_t count = s->m - i < MT_POSITIONS ? s->m - i : MT_POSITIONS;
    mt_positions(s->call, s->index, i, count, s->n, true, at);
    for (int64_t o = first; o < last; o++) {
      if (s->inner == 1)
        w->elements(count, s->call->out[0]->data + o * s->n * s->size,
                    s->call->in[2]->data + (o * s->m + i) * s->size, at);
      for (int64_t j = 0; j < count && s->inner > 1; j++) {
        if (at[j] < 0) continue;
        char *to =
            s->call->out[0]->data + ((o * s->n + at[j]) * s->inner + from) * s->size;
        const char *src =
            s->call->in[2]->data + ((o * s->m + i + j) * s->inner + from) * s->size;
        if (w->add)
          w->add(length, to, src);
        else
          memcpy(to, src, (size_t)(length * s->size));
      }
    }
  }
}

static mt_status write_kernel(const mt_call *call, slice_fn add, elements_fn elements) {
  writing w = {.s = find_slices(call), .add = add, .elements = elements};
  const mt_status status = mt_cpu_copy_view(call, call->out[0], call->in[0]);
  if (status != MT_OK || w.s.outer * w.s.m * w.s.inner == 0) return status;
  w.by_inner = w.s.inner > w.s.outer;
  const int64_t n = w.by_inner ? w.s.inner : w.s.outer;
  const int64_t cost = w.s.m * (w.by_inner ? w.s.outer : w.s.inner);
  const int64_t grain = mt_cpu_grain(cost);
  mt_cpu_parallel_for(call, n, w.by_inner && grain < 64 ? 64 : grain, write_slices, &w);
  return MT_OK;
}

static mt_status index_copy_kernel(const mt_call *call) {
  static const elements_fn copy[] = {[1] = copy_elements_1,
                                     [2] = copy_elements_2,
                                     [4] = copy_elements_4,
                                     [8] = copy_elements_8};
  return write_kernel(call, NULL, copy[mt_cpu_size(call->in[0]->dtype)]);
}

static mt_status index_add_kernel(const mt_call *call) {
#define ADD_CASE(dtype, T, sfx) \
  case dtype: return write_kernel(call, add_slice_##sfx, add_elements_##sfx);
  switch (call->in[0]->dtype) {
    MT_EACH_FLOAT(ADD_CASE)
    MT_EACH_INT(ADD_CASE)
  default: return MT_EUNSUPPORTED;
  }
}

const mt_entry mt_cpu_index_copy = {
    .run = index_copy_kernel, .dtypes = MT_ALL_MASK, .contiguous = 6};
const mt_entry mt_cpu_index_add = {
    .run = index_add_kernel, .dtypes = MT_FLOAT32_64 | MT_INT_MASK, .contiguous = 6};
