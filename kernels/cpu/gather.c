/* kernels/cpu/gather.c -- elements along one dim at the positions of an index tensor
** of as many dims: gather, scatter_add, _scatter and
** _scatter_fold. */
#include "kernels/cpu/positions.h"

/* Moves n elements between `other`, at positions at[i], and `same`. at[n ..
** n + AHEAD - 1] may be read, too: the targets of elements to come are fetched, and, 8
** bytes with each element, what is at `next`: all at once would hold up the others. */
#define AHEAD       16
#define INDEX_AHEAD 1024 /* elements */
typedef void (*row_fn)(int64_t n, char *other, int64_t other_step, int64_t along,
                       char *same, int64_t same_step, const int64_t *at,
                       const char *next);

/* A walk over the index (contiguous): `other` is x for gather, y for scatter_add;
** `same` is indexed like the index itself: y, or src. Strides in bytes, 0 along dim
** in other. */
typedef struct walk {
  const mt_call *call;
  const mt_view *index;
  int ndim, shared; /* threads share this dim, which is not dim, unless ndim is 1 */
  int64_t shape[MT_MAX_DIMS], other[MT_MAX_DIMS], same[MT_MAX_DIMS];
  int64_t linear[MT_MAX_DIMS]; /* strides of the index, elements */
  int64_t along, limit;        /* other's stride (bytes) and size along dim */
  char *other_data, *same_data;
  row_fn row;
  bool writes; /* rows get positions within alone: after a fault nobody sees y */
} walk;

static walk make_walk(const mt_call *call, const mt_view *other, const mt_view *same) {
  const mt_view *index = call->in[1];
  const int64_t size = mt_cpu_size(other->dtype);
  walk w = {.call = call,
            .index = index,
            .ndim = index->ndim,
            .other_data = other->data,
            .same_data = same->data};
  if (w.ndim == 0) { /* a single element */
    w.ndim = 1, w.shape[0] = 1, w.limit = 1;
    return w;
  }
  const int dim = (int)call->attr[0].i[0];
  int64_t step = 1;
  for (int d = w.ndim - 1; d >= 0; d--) {
    w.shape[d] = index->shape[d];
    w.linear[d] = step;
    step *= index->shape[d];
    w.other[d] = d == dim ? 0 : other->stride[d] * size;
    w.same[d] = same->stride[d] * size;
  }
  w.along = other->stride[dim] * size, w.limit = other->shape[dim];
  w.shared = dim == 0 && w.ndim > 1;
  for (int d = 0; d < w.ndim; d++)
    if (d != dim && w.shape[d] > w.shape[w.shared]) w.shared = d;
  return w;
}

/* What of the index is fetched while the elements from i on are moved. */
static const char *next_of(const walk *w, int64_t i) {
  return w->index->data + (i + INDEX_AHEAD) * mt_cpu_size(w->index->dtype);
}

/* All of the index whose coordinate in dim shared is in lo .. hi-1, in order. Positions
** of several short lines are read at once. */
static void run_walk(void *context, int64_t lo, int64_t hi) {
  const walk *w = context;
  const int last = w->ndim - 1, before = last > 0 ? last - 1 : 0;
  int64_t begin[MT_MAX_DIMS], end[MT_MAX_DIMS], at[MT_MAX_DIMS];
  int64_t position[MT_POSITIONS + AHEAD] = {0};
  for (int d = 0; d < w->ndim; d++)
    begin[d] = d == w->shared ? lo : 0, end[d] = d == w->shared ? hi : w->shape[d],
    at[d] = begin[d];
  const int64_t length = end[last] - begin[last];
  const bool whole = last > 0 && length == w->shape[last];
  const int64_t most = whole && length < MT_POSITIONS ? MT_POSITIONS / length : 1;
  for (int64_t pieces = 0;;) {
    const int64_t left = end[before] - at[before], lines = left < most ? left : most;
    for (int64_t j = begin[last]; j < end[last]; j += MT_POSITIONS) {
      if (++pieces % 4096 == 0 && mt_stopped(w->call)) return;
      const int64_t count = end[last] - j < MT_POSITIONS ? end[last] - j : MT_POSITIONS;
      int64_t linear = j * w->linear[last];
      char *other = w->other_data + j * w->other[last];
      char *same = w->same_data + j * w->same[last];
      for (int d = 0; d < last; d++) {
        linear += at[d] * w->linear[d];
        other += at[d] * w->other[d];
        same += at[d] * w->same[d];
      }
      const bool within = mt_positions(w->call, w->index, linear, lines * count,
                                       w->limit, true, position);
      for (int64_t i = 0; i < lines && (within || !w->writes); i++)
        w->row(count, other + i * w->other[before], w->other[last], w->along,
               same + i * w->same[before], w->same[last], position + i * count,
               next_of(w, linear + i * count));
    }
    if (last > 0) at[before] += lines - 1;
    int d = last - 1;
    while (d >= 0 && ++at[d] == end[d]) at[d] = begin[d], d--;
    if (d < 0) return;
  }
}

static mt_status start(walk *w, bool share) {
  const int64_t numel = mt_cpu_numel(w->index);
  if (numel == 0) return MT_OK;
  const int64_t n = w->shape[w->shared];
  if (share)
    mt_cpu_parallel_for(w->call, n, mt_cpu_grain(4 * (numel / n)), run_walk, w);
  else
    run_walk(w, 0, n);
  return MT_OK;
}

#define INLINE static inline __attribute__((always_inline))

#define GATHER_ROW(T, sfx)                                                          \
  INLINE void gather_steps_##sfx(int64_t n, char *x, int64_t x_step, int64_t along, \
                                 char *y, int64_t y_step, const int64_t *at,        \
                                 const char *next) {                                \
    for (int64_t i = 0; i < n; i++, x += x_step, y += y_step) {                     \
      __builtin_prefetch(next + i * 8);                                             \
      *(T *)y = at[i] < 0 ? (T)0 : *(const T *)(x + at[i] * along);                 \
    }                                                                               \
  }                                                                                 \
  static void gather_row_##sfx(int64_t n, char *x, int64_t x_step, int64_t along,   \
                               char *y, int64_t y_step, const int64_t *at,          \
                               const char *next) {                                  \
    const int64_t size = sizeof(T);                                                 \
    if (x_step == 0 && along == size && y_step == size)                             \
      gather_steps_##sfx(n, x, 0, size, y, size, at, next);                         \
    else                                                                            \
      gather_steps_##sfx(n, x, x_step, along, y, y_step, at, next);                 \
  }
GATHER_ROW(uint8_t, 1)
GATHER_ROW(uint16_t, 2)
GATHER_ROW(uint32_t, 4)
GATHER_ROW(uint64_t, 8)

static mt_status gather_kernel(const mt_call *call) {
  walk w = make_walk(call, call->in[0], call->out[0]);
  switch (mt_cpu_size(call->in[0]->dtype)) {
  case 1: w.row = gather_row_1; break;
  case 2: w.row = gather_row_2; break;
  case 4: w.row = gather_row_4; break;
  default: w.row = gather_row_8; break;
  }
  return start(&w, true);
}

const mt_entry mt_cpu_gather = {
    .run = gather_kernel, .dtypes = MT_ALL_MASK, .contiguous = 2};

/* ---- writing: y is a copy of x, and elements of src go to it in order ---- */

/* One line of elements, whose order matters: threads share it where parts of it go to
** ranges of targets that follow each other, as those of a sorted index do. A few
** elements tell whether it may be so; each is looked at before it goes anywhere. */
#define SPLIT_LEAST (4 * MT_GRAIN) /* elements worth it */
#define SPLIT_MOST  16             /* threads */
#define SAMPLES     64             /* elements of a part that must lie in its range */

typedef struct split {
  const walk *w;
  int64_t parts;
  int64_t first[SPLIT_MOST + 1]; /* of a range of targets */
  int64_t begin[SPLIT_MOST + 1]; /* where a part of the line begins */
  bool astray;                   /* an element of a part was none of its range's */
} split;

/* Element i of the index as an offset; -1: out of range, and no fault is set. */
static int64_t offset_of(const walk *w, int64_t i) {
  const mt_view *index = w->index;
  const char *p = index->data + i * mt_cpu_size(index->dtype);
  int64_t value;
  mt_cpu_load(index->dtype, 1, p, 0, MT_I64, &value);
  const int64_t at = value > 0 ? value - 1 : value + w->limit;
  return value != 0 && at >= 0 && at < w->limit ? at : -1;
}

/* Parts of the line whose targets seem to lie in ranges one behind the other. */
static bool find_parts(split *s, int64_t n) {
  s->begin[0] = s->first[0] = 0;
  s->begin[s->parts] = n, s->first[s->parts] = s->w->limit;
  for (int64_t t = 1; t < s->parts; t++) {
    int64_t begin = n * t / s->parts;
    s->first[t] = offset_of(s->w, begin);
    while (begin > s->begin[t - 1] && offset_of(s->w, begin - 1) == s->first[t])
      begin--;
    s->begin[t] = begin;
    if (s->first[t] <= s->first[t - 1] || begin == s->begin[t - 1]) return false;
  }
  for (int64_t t = 0; t < s->parts; t++)
    for (int64_t k = 0; k < SAMPLES; k++) {
      const int64_t length = s->begin[t + 1] - s->begin[t];
      const int64_t at = offset_of(s->w, s->begin[t] + length * k / SAMPLES);
      if (at < s->first[t] || at >= s->first[t + 1]) return false;
    }
  return true;
}

/* Are all n offsets within first .. last - 1? */
static bool all_within(int64_t n, const int64_t *at, int64_t first, int64_t last) {
  int64_t outside = 0;
  for (int64_t i = 0; i < n; i++) outside |= (at[i] - first) | (last - 1 - at[i]);
  return outside >= 0;
}

static void run_parts(void *context, int64_t lo, int64_t hi) {
  split *s = context;
  const walk *w = s->w;
  int64_t at[MT_POSITIONS + AHEAD] = {0};
  for (int64_t t = lo; t < hi; t++)
    for (int64_t j = s->begin[t], pieces = 0; j < s->begin[t + 1]; j += MT_POSITIONS) {
      if (++pieces % 4096 == 0 && mt_stopped(w->call)) return;
      const int64_t left = s->begin[t + 1] - j;
      const int64_t count = left < MT_POSITIONS ? left : MT_POSITIONS;
      if (!mt_positions(w->call, w->index, j, count, w->limit, true, at)) continue;
      if (!all_within(count, at, s->first[t], s->first[t + 1])) {
        __atomic_store_n(&s->astray, true, __ATOMIC_RELAXED);
        return;
      }
      w->row(count, w->other_data, 0, w->along, w->same_data + j * w->same[0],
             w->same[0], at, next_of(w, j));
    }
}

/* False: one thread does it. Starts from a fresh copy of x where it must. */
static bool scatter_split(walk *w) {
  const mt_call *call = w->call;
  const int64_t n = w->shape[0];
  split s = {.w = w, .parts = call->num_threads};
  if (s.parts > SPLIT_MOST) s.parts = SPLIT_MOST;
  if (w->ndim > 1 || s.parts < 2 || n < SPLIT_LEAST || !find_parts(&s, n)) return false;
  mt_cpu_parallel_for(call, s.parts, 1, run_parts, &s);
  if (!s.astray || mt_stopped(call)) return true;
  mt_cpu_copy_view(call, call->out[0], call->in[0]);
  return false;
}

static mt_status scatter_with(const mt_call *call, row_fn row) {
  walk w = make_walk(call, call->out[0], call->in[2]);
  const mt_status status = mt_cpu_copy_view(call, call->out[0], call->in[0]);
  if (status != MT_OK) return status;
  w.row = row, w.writes = true;
  if (scatter_split(&w)) return MT_OK;
  return start(&w, w.ndim > 1); /* one line of elements: their order matters */
}

/* Do the targets lie together? Then the processor fetches them by itself. */
static bool is_near(int64_t n, const int64_t *at) {
  return n == 0 || (uint64_t)(at[n - 1] - at[0] + 4096) <= 8192;
}

/* A row for elements that lie side by side, with targets fetched ahead or not, and for
** any steps. */
#define ROW_OF_STEPS(name, T)                                                          \
  static void name##_row(int64_t n, char *y, int64_t y_step, int64_t along, char *src, \
                         int64_t src_step, const int64_t *at, const char *next) {      \
    const int64_t size = sizeof(T);                                                    \
    if (y_step != 0 || along != size || src_step != size)                              \
      name##_steps(n, y, y_step, along, src, src_step, at, next, 0);                   \
    else if (is_near(n, at))                                                           \
      name##_steps(n, y, 0, size, src, size, at, next, 0);                             \
    else                                                                               \
      name##_steps(n, y, 0, size, src, size, at, next, AHEAD);                         \
  }

#define ADD_ROW(dtype, T, sfx)                                                     \
  INLINE void add_##sfx##_steps(int64_t n, char *y, int64_t y_step, int64_t along, \
                                char *src, int64_t src_step, const int64_t *at,    \
                                const char *next, int ahead) {                     \
    _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) {                      \
      __builtin_prefetch(next + i * 8);                                            \
      if (ahead) __builtin_prefetch(y + at[i + ahead] * along, 1);                 \
      T *to = (T *)(y + i * y_step + at[i] * along);                               \
      *to = (T)(*to + *(const T *)(src + i * src_step));                           \
    }                                                                              \
  }                                                                                \
  ROW_OF_STEPS(add_##sfx, T)
MT_EACH_FLOAT(ADD_ROW)
MT_EACH_INT(ADD_ROW)

static mt_status scatter_add_kernel(const mt_call *call) {
#define ADD_CASE(dtype, T, sfx) \
  case dtype: return scatter_with(call, add_##sfx##_row);
  switch (call->in[0]->dtype) {
    MT_EACH_FLOAT(ADD_CASE)
    MT_EACH_INT(ADD_CASE)
  default: return MT_EUNSUPPORTED;
  }
}

const mt_entry mt_cpu_scatter_add = {
    .run = scatter_add_kernel, .dtypes = MT_FLOAT32_64 | MT_INT_MASK, .contiguous = 2};

/* ---- _scatter, _scatter_fold: replaced, multiplied, the larger, the smaller ---- */

#define SET_ROW(T, sfx)                                                            \
  INLINE void set_##sfx##_steps(int64_t n, char *y, int64_t y_step, int64_t along, \
                                char *src, int64_t src_step, const int64_t *at,    \
                                const char *next, int ahead) {                     \
    _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) {                      \
      __builtin_prefetch(next + i * 8);                                            \
      if (ahead) __builtin_prefetch(y + at[i + ahead] * along, 1);                 \
      *(T *)(y + i * y_step + at[i] * along) = *(const T *)(src + i * src_step);   \
    }                                                                              \
  }                                                                                \
  ROW_OF_STEPS(set_##sfx, T)
SET_ROW(uint8_t, 1)
SET_ROW(uint16_t, 2)
SET_ROW(uint32_t, 4)
SET_ROW(uint64_t, 8)

/* V: the type that a comparison or product runs in. NaN is larger and smaller. */
#define FOLD_ROWS(T, sfx, V, LOAD, STORE)                                       \
  static void prod_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                             char *src, int64_t src_step, const int64_t *at,    \
                             const char *next) {                                \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {             \
      __builtin_prefetch(next + i * 8);                                         \
      T *to = (T *)(y + at[i] * along);                                         \
      *to = (T)STORE((V)(LOAD(*to) * LOAD(*(const T *)src)));                   \
    }                                                                           \
  }                                                                             \
  static void amax_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                             char *src, int64_t src_step, const int64_t *at,    \
                             const char *next) {                                \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {             \
      __builtin_prefetch(next + i * 8);                                         \
      T *to = (T *)(y + at[i] * along);                                         \
      const V v = LOAD(*(const T *)src), old = LOAD(*to);                       \
      if (v > old || v != v) *to = *(const T *)src;                             \
    }                                                                           \
  }                                                                             \
  static void amin_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                             char *src, int64_t src_step, const int64_t *at,    \
                             const char *next) {                                \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {             \
      __builtin_prefetch(next + i * 8);                                         \
      T *to = (T *)(y + at[i] * along);                                         \
      const V v = LOAD(*(const T *)src), old = LOAD(*to);                       \
      if (v < old || v != v) *to = *(const T *)src;                             \
    }                                                                           \
  }
#define SAME(x) (x)
FOLD_ROWS(float, f32, float, SAME, SAME)
FOLD_ROWS(double, f64, double, SAME, SAME)
FOLD_ROWS(uint16_t, f16, float, mt_f16_to_f32, mt_f32_to_f16)
FOLD_ROWS(uint16_t, bf16, float, mt_bf16_to_f32, mt_f32_to_bf16)
#define FOLD_INT(dtype, T, sfx) FOLD_ROWS(T, sfx, T, SAME, SAME)
MT_EACH_INT(FOLD_INT)

static mt_status scatter_kernel(const mt_call *call) {
  static const row_fn by_size[] = {
      [1] = set_1_row, [2] = set_2_row, [4] = set_4_row, [8] = set_8_row};
  return scatter_with(call, by_size[mt_cpu_size(call->in[0]->dtype)]);
}

static mt_status scatter_fold_kernel(const mt_call *call) {
#define FOLD_ENTRY(d, T, sfx) [d] = {prod_row_##sfx, amax_row_##sfx, amin_row_##sfx},
  static const row_fn rows[MT_NDTYPES][3] = {MT_EACH_FLOAT(FOLD_ENTRY) MT_EACH_INT(
      FOLD_ENTRY) FOLD_ENTRY(MT_F16, uint16_t, f16) FOLD_ENTRY(MT_BF16, uint16_t, bf16)
                                                 FOLD_ENTRY(MT_BOOL, uint8_t, u8)};
  return scatter_with(call, rows[call->in[0]->dtype][call->attr[1].i[0]]);
}

const mt_entry mt_cpu__scatter = {
    .run = scatter_kernel, .dtypes = MT_ALL_MASK, .contiguous = 2};
const mt_entry mt_cpu__scatter_fold = {
    .run = scatter_fold_kernel, .dtypes = MT_ALL_MASK, .contiguous = 2};
