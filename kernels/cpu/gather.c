/* kernels/cpu/gather.c -- elements along one dim at the positions of an index tensor
** of as many dims: gather, scatter_add, _scatter and
** _scatter_fold. */
#include "kernels/cpu/positions.h"

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
  void (*row)(int64_t n, char *other, int64_t other_step, int64_t along, char *same,
              int64_t same_step, const int64_t *at);
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

/* All of the index whose coordinate in dim shared is in lo .. hi-1, in order. */
static void run_walk(void *context, int64_t lo, int64_t hi) {
  const walk *w = context;
  const int last = w->ndim - 1;
  int64_t begin[MT_MAX_DIMS], end[MT_MAX_DIMS], at[MT_MAX_DIMS], position[MT_POSITIONS];
  for (int d = 0; d < w->ndim; d++)
    begin[d] = d == w->shared ? lo : 0, end[d] = d == w->shared ? hi : w->shape[d],
    at[d] = begin[d];
  for (int64_t pieces = 0;;) {
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
      mt_positions(w->call, w->index, linear, count, w->limit, true, position);
      w->row(count, other, w->other[last], w->along, same, w->same[last], position);
    }
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

#define GATHER_ROW(T, sfx)                                                        \
  static void gather_row_##sfx(int64_t n, char *x, int64_t x_step, int64_t along, \
                               char *y, int64_t y_step, const int64_t *at) {      \
    for (int64_t i = 0; i < n; i++, x += x_step, y += y_step)                     \
      *(T *)y = at[i] < 0 ? (T)0 : *(const T *)(x + at[i] * along);               \
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

#define SCATTER_ROW(dtype, T, sfx)                                                 \
  static void scatter_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                                char *src, int64_t src_step, const int64_t *at) {  \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {                \
      if (at[i] < 0) continue;                                                     \
      T *to = (T *)(y + at[i] * along);                                            \
      *to = (T)(*to + *(const T *)src);                                            \
    }                                                                              \
  }
MT_EACH_FLOAT(SCATTER_ROW)
MT_EACH_INT(SCATTER_ROW)

static mt_status scatter_add_kernel(const mt_call *call) {
  walk w = make_walk(call, call->out[0], call->in[2]);
  const mt_status status = mt_cpu_copy_view(call, call->out[0], call->in[0]);
  if (status != MT_OK) return status;
#define SCATTER_CASE(dtype, T, sfx) \
  case dtype: w.row = scatter_row_##sfx; break;
  switch (call->in[0]->dtype) {
    MT_EACH_FLOAT(SCATTER_CASE)
    MT_EACH_INT(SCATTER_CASE)
  default: return MT_EUNSUPPORTED;
  }
  return start(&w, w.ndim > 1); /* one line of elements: their order matters */
}

const mt_entry mt_cpu_scatter_add = {
    .run = scatter_add_kernel, .dtypes = MT_FLOAT32_64 | MT_INT_MASK, .contiguous = 2};

/* ---- _scatter, _scatter_fold: replaced, multiplied, the larger, the smaller ---- */

#define SET_ROW(T, sfx)                                                        \
  static void set_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                            char *src, int64_t src_step, const int64_t *at) {  \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step)              \
      if (at[i] >= 0) *(T *)(y + at[i] * along) = *(const T *)src;             \
  }
SET_ROW(uint8_t, 1)
SET_ROW(uint16_t, 2)
SET_ROW(uint32_t, 4)
SET_ROW(uint64_t, 8)

/* V: the type that a comparison or product runs in. NaN is larger and smaller. */
#define FOLD_ROWS(T, sfx, V, LOAD, STORE)                                       \
  static void prod_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                             char *src, int64_t src_step, const int64_t *at) {  \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {             \
      if (at[i] < 0) continue;                                                  \
      T *to = (T *)(y + at[i] * along);                                         \
      *to = (T)STORE((V)(LOAD(*to) * LOAD(*(const T *)src)));                   \
    }                                                                           \
  }                                                                             \
  static void amax_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                             char *src, int64_t src_step, const int64_t *at) {  \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {             \
      if (at[i] < 0) continue;                                                  \
      T *to = (T *)(y + at[i] * along);                                         \
      const V v = LOAD(*(const T *)src), old = LOAD(*to);                       \
      if (v > old || v != v) *to = *(const T *)src;                             \
    }                                                                           \
  }                                                                             \
  static void amin_row_##sfx(int64_t n, char *y, int64_t y_step, int64_t along, \
                             char *src, int64_t src_step, const int64_t *at) {  \
    for (int64_t i = 0; i < n; i++, y += y_step, src += src_step) {             \
      if (at[i] < 0) continue;                                                  \
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

typedef void (*row_fn)(int64_t, char *, int64_t, int64_t, char *, int64_t,
                       const int64_t *);

static mt_status scatter_with(const mt_call *call, row_fn row) {
  walk w = make_walk(call, call->out[0], call->in[2]);
  const mt_status status = mt_cpu_copy_view(call, call->out[0], call->in[0]);
  if (status != MT_OK) return status;
  w.row = row;
  return start(&w, w.ndim > 1);
}

static mt_status scatter_kernel(const mt_call *call) {
  static const row_fn by_size[] = {
      [1] = set_row_1, [2] = set_row_2, [4] = set_row_4, [8] = set_row_8};
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
