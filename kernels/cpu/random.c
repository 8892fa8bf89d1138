/* kernels/cpu/random.c -- random numbers and dropout, as kernels/philox.h defines
** them. */
#include "kernels/cpu/tables.h"

#define BLOCK 512 /* elements that mt_cpu_generate asks for at most */

typedef struct draw {
  const mt_random_rows *rows;
  uint64_t seed, position;
  double a, b; /* lo and hi, mean and std, or p and the factor of what is kept */
  int bits;    /* of a uniform float */
  int64_t low;
  uint64_t range;
  mt_dtype dtype; /* of x, of dropout */
  const char *x;  /* contiguous */
} draw;

static draw draw_make(const mt_call *call) {
  return (draw){.rows = MT_ISA_PICK(mt_random_rows_of),
                .seed = call->seed,
                .position = call->position};
}

/* Words for n elements from start (a multiple of 16) on; 32- or 64-bit ones. */
static void words_32(const draw *d, int64_t start, int64_t n, uint32_t *word) {
  d->rows->words(d->seed, d->position, (uint64_t)start / 4, (n + 3) / 4, word);
}
static void words_64(const draw *d, int64_t start, int64_t n, uint64_t *word) {
  uint32_t half[4 * (BLOCK / 2)];
  d->rows->words(d->seed, d->position, (uint64_t)start / 2, (n + 1) / 2, half);
  for (int64_t i = 0; i < n + (n & 1); i++)
    word[i] = (uint64_t)half[2 * i + 1] << 32 | half[2 * i];
}

/* ---- uniform(x, lo, hi), normal(x, mean, std) ------------------------------------ */
static void make_uniform_f32(const void *context, int64_t start, int64_t n,
                             void *values) {
  const draw *d = context;
  uint32_t word[BLOCK];
  words_32(d, start, n, word);
  d->rows->uniform_f32(n, word, d->bits, (float)d->a, (float)d->b, values);
}

static void make_uniform_f64(const void *context, int64_t start, int64_t n,
                             void *values) {
  const draw *d = context;
  uint64_t word[BLOCK];
  words_64(d, start, n, word);
  d->rows->uniform_f64(n, word, d->a, d->b, values);
}

/* A value that a half type would round up to hi becomes lo. */
static void make_uniform_half(const void *context, int64_t start, int64_t n,
                              void *values) {
  const draw *d = context;
  float *out = values;
  make_uniform_f32(context, start, n, values);
  for (int64_t i = 0; i < n; i++) {
    const float y = d->dtype == MT_F16 ? mt_f16_to_f32(mt_f32_to_f16(out[i]))
                                       : mt_bf16_to_f32(mt_f32_to_bf16(out[i]));
    if (y >= (float)d->b && d->a < d->b) out[i] = (float)d->a;
  }
}

static mt_status uniform_run(const mt_call *call) {
  const mt_view *out = call->out[0];
  draw d = draw_make(call);
  d.a = call->attr[0].f, d.b = call->attr[1].f;
  d.dtype = out->dtype;
  d.bits = d.dtype == MT_F16 ? 11 : d.dtype == MT_BF16 ? 8 : 24;
  if (d.dtype == MT_F64)
    return mt_cpu_generate(call, out, MT_F64, make_uniform_f64, &d, 8);
  return mt_cpu_generate(call, out, MT_F32,
                         d.bits == 24 ? make_uniform_f32 : make_uniform_half, &d, 8);
}

/* Whole vectors are computed: a value does not depend on where its block ends. */
static void make_normal_f32(const void *context, int64_t start, int64_t n,
                            void *values) {
  const draw *d = context;
  uint32_t word[BLOCK];
  float made[BLOCK];
  const int64_t padded = n + (-n & 31);
  words_32(d, start, padded, word);
  d->rows->normal_f32(padded, word, (float)d->a, (float)d->b, made);
  memcpy(values, made, (size_t)n * sizeof made[0]);
}

static void make_normal_f64(const void *context, int64_t start, int64_t n,
                            void *values) {
  const draw *d = context;
  uint64_t word[BLOCK];
  double made[BLOCK];
  const int64_t padded = n + (-n & 31);
  words_64(d, start, padded, word);
  d->rows->normal_f64(padded, word, d->a, d->b, made);
  memcpy(values, made, (size_t)n * sizeof made[0]);
}

static mt_status normal_run(const mt_call *call) {
  const mt_view *out = call->out[0];
  const bool f64 = out->dtype == MT_F64;
  draw d = draw_make(call);
  d.a = call->attr[0].f, d.b = call->attr[1].f;
  return mt_cpu_generate(call, out, f64 ? MT_F64 : MT_F32,
                         f64 ? make_normal_f64 : make_normal_f32, &d, 16);
}

/* ---- random(x, low, high), bernoulli(x, p) --------------------------------------- */
static void make_random_32(const void *context, int64_t start, int64_t n,
                           void *values) {
  const draw *d = context;
  int64_t *out = values;
  uint32_t word[BLOCK];
  words_32(d, start, n, word);
  for (int64_t i = 0; i < n; i++) out[i] = d->low + (int64_t)(word[i] * d->range >> 32);
}

static void make_random_64(const void *context, int64_t start, int64_t n,
                           void *values) {
  const draw *d = context;
  int64_t *out = values;
  uint64_t word[BLOCK];
  words_64(d, start, n, word);
  for (int64_t i = 0; i < n; i++) {
    const uint64_t more = d->range == 0
                              ? word[i]
                              : (uint64_t)((unsigned __int128)word[i] * d->range >> 64);
    out[i] = (int64_t)((uint64_t)d->low + more);
  }
}

static mt_status random_run(const mt_call *call) {
  draw d = draw_make(call);
  if (call->attr[1].i[0] < call->attr[0].i[0]) return MT_EARG;
  d.low = call->attr[0].i[0];
  d.range = (uint64_t)call->attr[1].i[0] - (uint64_t)d.low + 1; /* 0: 2^64 */
  const bool small = d.range != 0 && d.range <= 1 << 16;
  return mt_cpu_generate(call, call->out[0], MT_I64,
                         small ? make_random_32 : make_random_64, &d, 8);
}

static void make_bernoulli(const void *context, int64_t start, int64_t n,
                           void *values) {
  const draw *d = context;
  uint32_t word[BLOCK];
  words_32(d, start, n, word);
  d->rows->bernoulli_f32(n, word, d->a, values);
}

static mt_status bernoulli_run(const mt_call *call) {
  draw d = draw_make(call);
  d.a = call->attr[0].f;
  return mt_cpu_generate(call, call->out[0], MT_F32, make_bernoulli, &d, 8);
}

/* ---- _dropout(x, p), _dropout_backward(dy, p, seed, position) -------------------- */
static void make_dropout(const void *context, int64_t start, int64_t n, void *values) {
  const draw *d = context;
  float drop[BLOCK];
  make_bernoulli(context, start, n, drop);
  const char *x = d->x + start * mt_cpu_size(d->dtype);
  if (d->dtype == MT_F64) {
    double *out = values;
    for (int64_t i = 0; i < n; i++)
      out[i] = drop[i] != 0 ? 0 : ((const double *)x)[i] * d->b;
  } else {
    float *out = values;
    const float factor = (float)d->b;
    mt_cpu_load_floats(d->dtype, n, x, mt_cpu_size(d->dtype), out);
    for (int64_t i = 0; i < n; i++) out[i] = drop[i] != 0 ? 0 : out[i] * factor;
  }
}

static mt_status dropout_make(const mt_call *call, draw *d) {
  d->a = call->attr[0].f;
  d->b = d->a < 1 ? 1 / (1 - d->a) : 0;
  d->dtype = call->in[0]->dtype, d->x = call->in[0]->data;
  return mt_cpu_generate(call, call->out[0], d->dtype == MT_F64 ? MT_F64 : MT_F32,
                         make_dropout, d, 8);
}

static mt_status dropout_run(const mt_call *call) {
  draw d = draw_make(call);
  return dropout_make(call, &d);
}

static mt_status dropout_backward_run(const mt_call *call) {
  draw d = draw_make(call);
  d.seed = (uint64_t)call->attr[1].i[0], d.position = (uint64_t)call->attr[2].i[0];
  return dropout_make(call, &d);
}

/* ---- _permutation(x) ----------------------------------------------------------------
** Keys are random, but for their low bits, the index. Their upper halves, spread evenly,
** say in which of many buckets they go, each of which fits a cache, and where in there:
** by the highest digits of that a bucket is sorted, the lower one first. Hardly two keys are
** alike then; each passes those before it that are larger. The number of buckets is odd, or
** all would begin in the same set of the cache. Parts are shared among threads; the order of
** the keys is the same for any number of them. */
#define BUCKET       1024 /* keys of one, on average */
#define MOST_BUCKETS 4095
#define DIGIT_BITS   8 /* a line for each digit stays in the first-level cache */
#define DIGITS       (1 << DIGIT_BITS)
#define MAX_PARTS    16
#define LEAST_PART   (2 * MT_GRAIN)

typedef struct keys {
  const mt_call *call;
  draw d;
  int64_t n, parts, buckets;
  uint64_t mask;   /* of the index */
  uint64_t *a, *b; /* keys; room */
  int64_t *start;  /* [part][bucket]: how many, then where they go, then their end */
} keys;

static int index_bits(int64_t n) {
  int bits = 0;
  while (bits < 62 && ((int64_t)1 << bits) < n) bits++;
  return bits;
}

static int64_t buckets_of(int64_t n) {
  const int64_t buckets = n / BUCKET | 1;
  return buckets < MOST_BUCKETS ? buckets : MOST_BUCKETS;
}

/* Where part p of the keys begins: a multiple of BLOCK, but for the end. */
static int64_t part_start(const keys *k, int64_t p) {
  const int64_t at = k->n / k->parts * p & -(int64_t)BLOCK;
  return p < k->parts ? at : k->n;
}

static void make_keys(void *context, int64_t lo, int64_t hi) { /* parts */
  const keys *k = context;
  uint64_t word[BLOCK];
  const int64_t end = part_start(k, hi);
  for (int64_t i = part_start(k, lo); i < end; i += BLOCK) {
    const int64_t n = end - i < BLOCK ? end - i : BLOCK;
    words_64(&k->d, i, n, word);
    for (int64_t j = 0; j < n; j++)
      k->a[i + j] = (word[j] & ~k->mask) | (uint64_t)(i + j);
  }
}

/* The bucket of a key, and below it 32 bits of where it lies in there. */
static inline uint64_t place_of(uint64_t key, int64_t buckets) {
  return (key >> 32) * (uint64_t)buckets;
}

static void count_keys(void *context, int64_t lo, int64_t hi) { /* parts */
  const keys *k = context;
  const int64_t buckets = k->buckets;
  for (int64_t p = lo; p < hi; p++) {
    int64_t *const count = k->start + p * buckets, end = part_start(k, p + 1);
    memset(count, 0, (size_t)buckets * sizeof *count);
    for (int64_t i = part_start(k, p); i < end; i++)
      count[place_of(k->a[i], buckets) >> 32]++;
  }
}

static void place_keys(void *context, int64_t lo, int64_t hi) { /* parts */
  const keys *k = context;
  const uint64_t *const a = k->a;
  uint64_t *const b = k->b;
  const int64_t buckets = k->buckets;
  for (int64_t p = lo; p < hi; p++) {
    int64_t *const start = k->start + p * buckets, end = part_start(k, p + 1);
    for (int64_t i = part_start(k, p); i < end && !mt_stopped(k->call);) {
      const int64_t to = end - i > MT_PIECE * MT_GRAIN ? i + MT_PIECE * MT_GRAIN : end;
      for (; i < to; i++) b[start[place_of(a[i], buckets) >> 32]++] = a[i];
    }
  }
}

/* By the digit at bit `shift` of their place. */
static void sort_digit(int64_t n, const uint64_t *from, uint64_t *to, int64_t buckets,
                       int shift) {
  int64_t start[DIGITS] = {0}, sum = 0;
  for (int64_t i = 0; i < n; i++)
    start[place_of(from[i], buckets) >> shift & (DIGITS - 1)]++;
  for (int digit = 0; digit < DIGITS; digit++) {
    const int64_t more = start[digit];
    start[digit] = sum;
    sum += more;
  }
  for (int64_t i = 0; i < n; i++)
    to[start[place_of(from[i], buckets) >> shift & (DIGITS - 1)]++] = from[i];
}

/* In b. The last part's places are the ends of the buckets now. */
static void sort_buckets(void *context, int64_t lo, int64_t hi) {
  const keys *k = context;
  const int64_t buckets = k->buckets, *const ends = k->start + (k->parts - 1) * buckets;
  for (int64_t bucket = lo; bucket < hi && !mt_stopped(k->call); bucket++) {
    const int64_t first = bucket > 0 ? ends[bucket - 1] : 0, n = ends[bucket] - first;
    uint64_t *const a = k->a + first, *const b = k->b + first;
    sort_digit(n, b, a, buckets, 32 - 2 * DIGIT_BITS);
    sort_digit(n, a, b, buckets, 32 - DIGIT_BITS);
    for (int64_t i = 1; i < n; i++) {
      const uint64_t x = b[i];
      int64_t at = i;
      for (; at > 0 && b[at - 1] > x; at--) b[at] = b[at - 1];
      if (at != i) b[at] = x;
    }
  }
}

/* From a to b. */
static void fill_buckets(keys *k) {
  mt_cpu_parallel_for(k->call, k->parts, 1, count_keys, k);
  int64_t sum = 0;
  for (int64_t bucket = 0; bucket < k->buckets; bucket++)
    for (int64_t p = 0; p < k->parts; p++) {
      int64_t *const start = k->start + p * k->buckets + bucket;
      const int64_t more = *start;
      *start = sum;
      sum += more;
    }
  mt_cpu_parallel_for(k->call, k->parts, 1, place_keys, k);
}

static void sort_keys(keys *k) {
  if (k->buckets > 1) {
    fill_buckets(k);
    if (mt_stopped(k->call)) return; /* places are no ends */
  } else {
    uint64_t *const a = k->a;
    k->a = k->b, k->b = a;
    k->start[0] = k->n;
  }
  mt_cpu_parallel_for(k->call, k->buckets, mt_cpu_grain(8 * k->n / k->buckets),
                      sort_buckets, k);
}

typedef struct order {
  const uint64_t *key;
  uint64_t mask; /* of the index */
} order;

static void make_order(const void *context, int64_t start, int64_t n, void *values) {
  const order *o = context;
  int64_t *out = values;
  for (int64_t i = 0; i < n; i++) out[i] = (int64_t)(o->key[start + i] & o->mask) + 1;
}

static mt_status permutation_run(const mt_call *call) {
  const int64_t n = mt_cpu_numel(call->out[0]);
  keys k;
  k.call = call, k.d = draw_make(call), k.n = n;
  k.parts = n / LEAST_PART < call->num_threads ? n / LEAST_PART : call->num_threads;
  k.parts = k.parts < 1 ? 1 : k.parts > MAX_PARTS ? MAX_PARTS : k.parts;
  k.mask = ((uint64_t)1 << index_bits(n)) - 1;
  k.buckets = buckets_of(n);
  k.a = call->scratch, k.b = k.a + n;
  k.start = (int64_t *)(k.b + n);
  mt_cpu_parallel_for(call, k.parts, 1, make_keys, &k);
  sort_keys(&k);
  const order o = {.key = k.b, .mask = k.mask};
  return mt_cpu_generate(call, call->out[0], MT_I64, make_order, &o, 1);
}

static size_t permutation_scratch(const mt_call *call) {
  const int64_t n = mt_cpu_numel(call->out[0]);
  return (size_t)(2 * n + MAX_PARTS * buckets_of(n)) * sizeof(uint64_t);
}

#define NUMBERS (MT_FLOAT_MASK | MT_INT_MASK)
extern const mt_entry mt_cpu_uniform, mt_cpu_normal, mt_cpu_random, mt_cpu_bernoulli,
    mt_cpu__dropout, mt_cpu__dropout_backward, mt_cpu__permutation;
const mt_entry mt_cpu_uniform = {uniform_run, NULL, MT_FLOAT_MASK, 0};
const mt_entry mt_cpu_normal = {normal_run, NULL, MT_FLOAT_MASK, 0};
const mt_entry mt_cpu_random = {random_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu_bernoulli = {bernoulli_run, NULL, MT_ALL_MASK, 0};
const mt_entry mt_cpu__dropout = {dropout_run, NULL, MT_FLOAT_MASK, 1};
const mt_entry mt_cpu__dropout_backward = {dropout_backward_run, NULL, MT_FLOAT_MASK,
                                           1};
const mt_entry mt_cpu__permutation = {permutation_run, permutation_scratch, NUMBERS, 0};
