/* kernels/cpu/rows_winograd.c -- the transforms of Winograd's convolution, for one level
** of x86-64. */
#include "kernels/cpu/winograd.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

/* Sums of products may be rounded once. */
#pragma GCC optimize("fp-contract=fast")

#if defined(__AVX512F__)
#define LANES     16
#define EVEN(at)  at, at + 2, at + 4, at + 6, at + 8, at + 10, at + 12, at + 14
#define LOW(at)   at, at + 16, at + 1, at + 17, at + 2, at + 18, at + 3, at + 19
#define MASK_EVEN EVEN(0), EVEN(16)
#define MASK_ODD  EVEN(1), EVEN(17)
#define MASK_LOW  LOW(0), LOW(4)
#define MASK_HIGH LOW(8), LOW(12)
#elif defined(__AVX2__)
#define LANES     8
#define MASK_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define MASK_ODD  1, 3, 5, 7, 9, 11, 13, 15
#define MASK_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define MASK_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LANES     4
#define MASK_EVEN 0, 2, 4, 6
#define MASK_ODD  1, 3, 5, 7
#define MASK_LOW  0, 4, 1, 5
#define MASK_HIGH 2, 6, 3, 7
#endif

typedef float V __attribute__((vector_size(4 * LANES), may_alias));
typedef float VU __attribute__((vector_size(4 * LANES), may_alias, aligned(4)));
typedef int32_t VI __attribute__((vector_size(4 * LANES)));
typedef uint32_t VW __attribute__((vector_size(4 * LANES)));
typedef uint16_t VS __attribute__((vector_size(2 * LANES), may_alias, aligned(2)));
#define INLINE static inline __attribute__((always_inline))

/* ---- elements of half types ---- */

INLINE V load_f32(const float *p) { return *(const VU *)p; }
INLINE float one_f32(float x) { return x; }
INLINE void store_f32(V v, float *p) { *(VU *)p = v; }
INLINE float back_f32(float x) { return x; }

INLINE V load_bf16(const uint16_t *p) {
  return (V)(__builtin_convertvector(*(const VS *)p, VW) << 16);
}
INLINE float one_bf16(uint16_t x) { return mt_bf16_to_f32(x); }
INLINE void store_bf16(V v, uint16_t *p) { /* as mt_f32_to_bf16 */
  const VW a = (VW)v, nan = (VW)(v != v);
  const VW r = (nan & (a >> 16 | 0x40)) | (~nan & ((a + 0x7fff + (a >> 16 & 1)) >> 16));
  *(VS *)p = __builtin_convertvector(r, VS);
}
INLINE uint16_t back_bf16(float x) { return mt_f32_to_bf16(x); }

INLINE float one_f16(uint16_t x) { return mt_f16_to_f32(x); }
INLINE uint16_t back_f16(float x) { return mt_f32_to_f16(x); }
#if defined(__AVX512F__)
INLINE V load_f16(const uint16_t *p) {
  return (V)_mm512_cvtph_ps((__m256i) * (const VS *)p);
}
INLINE void store_f16(V v, uint16_t *p) {
  *(VS *)p = (VS)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__F16C__)
INLINE V load_f16(const uint16_t *p) {
  return (V)_mm256_cvtph_ps((__m128i) * (const VS *)p);
}
INLINE void store_f16(V v, uint16_t *p) {
  *(VS *)p = (VS)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
}
#else
INLINE V load_f16(const uint16_t *p) {
  V v = {0};
  for (int i = 0; i < LANES; i++) v[i] = mt_f16_to_f32(p[i]);
  return v;
}
INLINE void store_f16(V v, uint16_t *p) {
  for (int i = 0; i < LANES; i++) p[i] = mt_f32_to_f16(v[i]);
}
#endif

/* Rows shorter than a vector go element by element; else the last vector overlaps. */
#define ROWS(S, sfx)                                                        \
  static void read_row_##sfx(int64_t n, const void *x, float *to) {         \
    const S *from = x;                                                      \
    if (n < LANES) {                                                        \
      for (int64_t j = 0; j < n; j++) to[j] = one_##sfx(from[j]);           \
      return;                                                               \
    }                                                                       \
    for (int64_t j = 0; j < n - LANES; j += LANES)                          \
      *(VU *)(to + j) = load_##sfx(from + j);                               \
    *(VU *)(to + n - LANES) = load_##sfx(from + n - LANES);                 \
  }                                                                         \
  static void write_rows_##sfx(int64_t rows, int64_t n, const float *from,  \
                               int64_t from_row, void *y, int64_t to_row) { \
    S *to = y;                                                              \
    for (int64_t i = 0; i < rows; i++, from += from_row, to += to_row) {    \
      if (n < LANES) {                                                      \
        for (int64_t j = 0; j < n; j++) to[j] = back_##sfx(from[j]);        \
        continue;                                                           \
      }                                                                     \
      for (int64_t j = 0; j < n - LANES; j += LANES)                        \
        store_##sfx(*(const VU *)(from + j), to + j);                       \
      store_##sfx(*(const VU *)(from + n - LANES), to + n - LANES);         \
    }                                                                       \
  }
ROWS(float, f32)
ROWS(uint16_t, f16)
ROWS(uint16_t, bf16)

/* ---- transforms ---- */

/* The points, their squares, and what the polynomials of the others are there. */
#define A      0.625f
#define B      1.5f
#define A2     (A * A)
#define B2     (B * B)
#define NORM_0 (A2 * B2)
#define NORM_A (2 * A2 * (A2 - B2))
#define NORM_B (2 * B2 * (B2 - A2))

/* One dim of a patch of x. */
INLINE void patch_points(const V *d, V *to) {
  const V even_a = d[4] - B2 * d[2], odd_a = d[3] - B2 * d[1];
  const V even_b = d[4] - A2 * d[2], odd_b = d[3] - A2 * d[1];
  to[0] = NORM_0 * d[0] + (d[4] - (A2 + B2) * d[2]);
  to[1] = even_a + A * odd_a;
  to[2] = even_a - A * odd_a;
  to[3] = even_b + B * odd_b;
  to[4] = even_b - B * odd_b;
  to[5] = NORM_0 * d[1] + (d[5] - (A2 + B2) * d[3]);
}

/* One dim of four gradients: a polynomial's values. */
INLINE void gradient_points(const V *d, V *to) {
  const V even_a = d[0] + A2 * d[2], odd_a = d[1] + A2 * d[3];
  const V even_b = d[0] + B2 * d[2], odd_b = d[1] + B2 * d[3];
  to[0] = d[0];
  to[1] = even_a + A * odd_a;
  to[2] = even_a - A * odd_a;
  to[3] = even_b + B * odd_b;
  to[4] = even_b - B * odd_b;
  to[5] = d[3];
}

/* The same of two. */
INLINE void gradient_points_2(const V *d, V *to) {
  to[0] = d[0];
  to[1] = d[0] + A * d[1];
  to[2] = d[0] - A * d[1];
  to[3] = d[0] + B * d[1];
  to[4] = d[0] - B * d[1];
  to[5] = d[1];
}

/* One dim of a tile of y, of four elements or two. */
INLINE void tile_elements(const V *m, V *to) {
  const V even_a = m[1] + m[2], odd_a = m[1] - m[2];
  const V even_b = m[3] + m[4], odd_b = m[3] - m[4];
  to[0] = m[0] + (even_a + even_b);
  to[1] = A * odd_a + B * odd_b;
  to[2] = A2 * even_a + B2 * even_b;
  to[3] = m[5] + (A2 * A * odd_a + B2 * B * odd_b);
}

INLINE void tile_elements_2(const V *m, V *to) {
  to[0] = m[0] + ((m[1] + m[2]) + (m[3] + m[4]));
  to[1] = m[5] + (A * (m[1] - m[2]) + B * (m[3] - m[4]));
}

/* One dim of a filter, of three elements or five. */
INLINE void filter_points(const V *w, V *to) {
  const V even_a = (1 / NORM_A) * w[0] + (A2 / NORM_A) * w[2];
  const V even_b = (1 / NORM_B) * w[0] + (B2 / NORM_B) * w[2];
  to[0] = (1 / NORM_0) * w[0];
  to[1] = even_a + (A / NORM_A) * w[1];
  to[2] = even_a - (A / NORM_A) * w[1];
  to[3] = even_b + (B / NORM_B) * w[1];
  to[4] = even_b - (B / NORM_B) * w[1];
  to[5] = w[2];
}

INLINE void filter_points_5(const V *w, V *to) {
  const V even_a =
      (1 / NORM_A) * w[0] + (A2 / NORM_A) * w[2] + (A2 * A2 / NORM_A) * w[4];
  const V even_b =
      (1 / NORM_B) * w[0] + (B2 / NORM_B) * w[2] + (B2 * B2 / NORM_B) * w[4];
  const V odd_a = (A / NORM_A) * w[1] + (A * A2 / NORM_A) * w[3];
  const V odd_b = (B / NORM_B) * w[1] + (B * B2 / NORM_B) * w[3];
  to[0] = (1 / NORM_0) * w[0];
  to[1] = even_a + odd_a, to[2] = even_a - odd_a;
  to[3] = even_b + odd_b, to[4] = even_b - odd_b;
  to[5] = w[4];
}

/* One dim of a filter's gradient. */
INLINE void filter_elements(const V *m, V *to) {
  const V even_a = m[1] + m[2], even_b = m[3] + m[4];
  to[0] = (1 / NORM_0) * m[0] + (1 / NORM_A) * even_a + (1 / NORM_B) * even_b;
  to[1] = (A / NORM_A) * (m[1] - m[2]) + (B / NORM_B) * (m[3] - m[4]);
  to[2] = m[5] + ((A2 / NORM_A) * even_a + (B2 / NORM_B) * even_b);
}

INLINE void filter_elements_5(const V *m, V *to) {
  const V even_a = m[1] + m[2], even_b = m[3] + m[4];
  const V odd_a = m[1] - m[2], odd_b = m[3] - m[4];
  to[0] = (1 / NORM_0) * m[0] + (1 / NORM_A) * even_a + (1 / NORM_B) * even_b;
  to[1] = (A / NORM_A) * odd_a + (B / NORM_B) * odd_b;
  to[2] = (A2 / NORM_A) * even_a + (B2 / NORM_B) * even_b;
  to[3] = (A * A2 / NORM_A) * odd_a + (B * B2 / NORM_B) * odd_b;
  to[4] = m[5] + ((A2 * A2 / NORM_A) * even_a + (B2 * B2 / NORM_B) * even_b);
}

/* Both dims of `size` x `size` elements, (i, j) at from[row[i] + j * column], to `made` x
** `made`, which lie step apart. */
#define BOTH_DIMS(name, one_dim, size, made)                                         \
  INLINE void name(const float *from, const int64_t *row, int64_t column, float *to, \
                   int64_t step) {                                                   \
    V half[size][made];                                                              \
    _Pragma("GCC unroll 6") for (int j = 0; j < size; j++) {                         \
      V d[size];                                                                     \
      _Pragma("GCC unroll 6") for (int i = 0; i < size; i++) d[i] =                  \
          *(const VU *)(from + row[i] + j * column);                                 \
      one_dim(d, half[j]);                                                           \
    }                                                                                \
    _Pragma("GCC unroll 6") for (int i = 0; i < made; i++) {                         \
      V d[size], value[made];                                                        \
      _Pragma("GCC unroll 6") for (int j = 0; j < size; j++) d[j] = half[j][i];      \
      one_dim(d, value);                                                             \
      _Pragma("GCC unroll 6") for (int j = 0; j < made; j++) *                       \
          (VU *)(to + (i * made + j) * step) = value[j];                             \
    }                                                                                \
  }
BOTH_DIMS(patch, patch_points, 6, 6)
BOTH_DIMS(gradient_4, gradient_points, 4, 6)
BOTH_DIMS(gradient_2, gradient_points_2, 2, 6)
BOTH_DIMS(tile_4, tile_elements, 6, 4)
BOTH_DIMS(tile_2, tile_elements_2, 6, 2)
BOTH_DIMS(filter_3, filter_points, 3, 6)
BOTH_DIMS(filter_5, filter_points_5, 5, 6)
BOTH_DIMS(filter_gradient_3, filter_elements, 6, 3)
BOTH_DIMS(filter_gradient_5, filter_elements_5, 6, 5)

/* Every second of 2 * LANES elements: the even and the odd ones. */
INLINE void unzip_2(const float *from, V *to) {
  const VI even = {MASK_EVEN}, odd = {MASK_ODD};
  const V a = *(const VU *)from, b = *(const VU *)(from + LANES);
  to[0] = __builtin_shuffle(a, b, even), to[1] = __builtin_shuffle(a, b, odd);
}

/* Every fourth of 4 * LANES elements, from the first, second, third, and fourth on. */
INLINE void unzip_4(const float *from, V *to) {
  const VI even = {MASK_EVEN}, odd = {MASK_ODD};
  V low[2], high[2];
  unzip_2(from, low);
  unzip_2(from + 2 * LANES, high);
  to[0] = __builtin_shuffle(low[0], high[0], even);
  to[1] = __builtin_shuffle(low[1], high[1], even);
  to[2] = __builtin_shuffle(low[0], high[0], odd);
  to[3] = __builtin_shuffle(low[1], high[1], odd);
}

static void split_row_4(int64_t tiles, int columns, const float *row, float *to,
                        int64_t step) {
  float *next[2] = {to + 4 * step - 1, to + 5 * step - 1}; /* columns 4 and 5 */
  float before[2] = {0};
  if (columns == 6) before[0] = *next[0], before[1] = *next[1];
  const float *from = row;
  for (int64_t t = 0; t < tiles; t += LANES, from += 4 * LANES) {
    V v[4];
    unzip_4(from, v);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) *(VU *)(to + j * step + t) = v[j];
    if (columns == 6) *(VU *)(next[0] + t) = v[0], *(VU *)(next[1] + t) = v[1];
  }
  if (columns != 6) return;
  for (int j = 0; j < 2; j++) *next[j] = before[j], next[j][tiles] = row[4 * tiles + j];
}

static void split_row_2(int64_t tiles, int columns, const float *row, float *to,
                        int64_t step) {
  for (int64_t t = 0; t < tiles; t += LANES, row += 2 * LANES)
    for (int j = 0; j < columns; j += 2) {
      V v[2];
      unzip_2(row + j, v);
      *(VU *)(to + j * step + t) = v[0], *(VU *)(to + (j + 1) * step + t) = v[1];
    }
}

/* Elements of groups of two, or of four, side by side, and bias added. */
INLINE void zip_2(const V *from, V bias, float *to) {
  const VI low = {MASK_LOW}, high = {MASK_HIGH};
  *(VU *)to = __builtin_shuffle(from[0], from[1], low) + bias;
  *(VU *)(to + LANES) = __builtin_shuffle(from[0], from[1], high) + bias;
}

INLINE void zip_4(const V *from, V bias, float *to) {
  const VI low = {MASK_LOW}, high = {MASK_HIGH};
  const V even[2] = {__builtin_shuffle(from[0], from[2], low),
                     __builtin_shuffle(from[1], from[3], low)};
  const V odd[2] = {__builtin_shuffle(from[0], from[2], high),
                    __builtin_shuffle(from[1], from[3], high)};
  zip_2(even, bias, to);
  zip_2(odd, bias, to + 2 * LANES);
}

/* max(x, 0) of n vectors; a NaN stays. */
INLINE void rectify(int n, float *x) {
  for (VU *v = (VU *)x; n > 0; n--, v++) *v = (V)(~(*v <= (V){0}) & (VI)*v);
}

/* The loops of a window of r x r and tiles of m x m. */
#define WINDOW(m, r)                                                                  \
  static void patches_##m(int64_t count, const float *from, int64_t plane,            \
                          int64_t width, float *to, int64_t step) {                   \
    int64_t row[6];                                                                   \
    for (int i = 0; i < 6; i++) row[i] = i % m * 6 * plane + i / m * width;           \
    for (int64_t t = 0; t < count; t += LANES)                                        \
      patch(from + t, row, plane, to + t, step);                                      \
  }                                                                                   \
  static void gradients_##m(int64_t count, const float *from, int64_t plane,          \
                            float *to, int64_t step) {                                \
    int64_t row[m];                                                                   \
    for (int i = 0; i < m; i++) row[i] = i * m * plane;                               \
    for (int64_t t = 0; t < count; t += LANES)                                        \
      gradient_##m(from + t, row, plane, to + t, step);                               \
  }                                                                                   \
  static void tiles_##m(int64_t count, const float *from, int64_t step, float bias,   \
                        bool relu, float *to, int64_t out_row) {                      \
    int64_t row[6];                                                                   \
    for (int i = 0; i < 6; i++) row[i] = i * 6 * step;                                \
    for (int64_t t = 0; t < count; t += LANES) {                                      \
      V made[m][m];                                                                   \
      tile_##m(from + t, row, step, (float *)made, LANES);                            \
      _Pragma("GCC unroll 4") for (int i = 0; i < m; i++)                             \
          zip_##m(made[i], bias - (V){0}, to + i * out_row + m * t);                  \
      for (int i = 0; relu && i < m; i++) rectify(m, to + i * out_row + m * t);       \
    }                                                                                 \
  }                                                                                   \
  static void filters_##r(int64_t count, int64_t rows, int64_t depth, const float *w, \
                          int64_t wk, int64_t wp, bool flip, float *to,               \
                          int64_t step) {                                             \
    int64_t row[r];                                                                   \
    for (int i = 0; i < r; i++) row[i] = i * r * LANES;                               \
    for (int64_t p = 0; p < depth; p++, w += wp, to += rows) {                        \
      V element[r * r] = {0}, made[MT_POINTS];                                        \
      for (int64_t k = 0; k < count; k++)                                             \
        for (int i = 0; i < r * r; i++)                                               \
          ((float *)element)[i * LANES + k] = w[k * wk + (flip ? r * r - 1 - i : i)]; \
      filter_##r((const float *)element, row, LANES, (float *)made, LANES);           \
      for (int e = 0; e < MT_POINTS; e++)                                             \
        memcpy(to + e * step, &made[e], (size_t)rows * sizeof(float));                \
    }                                                                                 \
  }                                                                                   \
  static void filter_gradients_##r(int64_t depth, const float *from, int64_t step,    \
                                   float *dw) {                                       \
    int64_t row[6];                                                                   \
    for (int i = 0; i < 6; i++) row[i] = i * 6 * step;                                \
    for (int64_t p = 0; p < depth; p += LANES) {                                      \
      V made[r * r];                                                                  \
      filter_gradient_##r(from + p, row, step, (float *)made, LANES);                 \
      const int64_t count = mt_min(depth - p, LANES);                                 \
      for (int64_t i = 0; i < count; i++, dw += r * r)                                \
        for (int j = 0; j < r * r; j++) dw[j] = ((const float *)made)[j * LANES + i]; \
    }                                                                                 \
  }
WINDOW(4, 3)
WINDOW(2, 5)

/* r[i][j] = r[j][i]: a vector's halves are interleaved with those half the rows on, as
** often as there are bits in LANES. */
INLINE void transpose(V *r) {
  const VI low = {MASK_LOW}, high = {MASK_HIGH};
#pragma GCC unroll 4
  for (int bit = 1; bit < LANES; bit *= 2) {
    V s[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
      s[2 * i] = __builtin_shuffle(r[i], r[i + LANES / 2], low);
      s[2 * i + 1] = __builtin_shuffle(r[i], r[i + LANES / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) r[i] = s[i];
  }
}

static void turn(int64_t channels, int64_t tiles, const float *from, int64_t row,
                 float *to, int64_t to_row) {
  for (int64_t c = 0; c < channels; c += LANES)
    for (int64_t t = 0; t < tiles; t += LANES) {
      V r[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++)
        r[i] = *(const VU *)(from + mt_min(c + i, channels - 1) * row + t);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) *(VU *)(to + (t + i) * to_row + c) = r[i];
    }
}

#define BY_DTYPE(name) \
  { [MT_F32] = name##_f32, [MT_F16] = name##_f16, [MT_BF16] = name##_bf16 }
#define LOOPS(m, r)                                                    \
  {                                                                    \
    split_row_##m, patches_##m, gradients_##m, tiles_##m, filters_##r, \
        filter_gradients_##r                                           \
  }
const mt_winograd_isa MT_ISA_NAME(mt_winograd) = {.lanes = LANES,
                                                  .read_row = BY_DTYPE(read_row),
                                                  .write_rows = BY_DTYPE(write_rows),
                                                  .turn = turn,
                                                  .three = LOOPS(4, 3),
                                                  .five = LOOPS(2, 5)};
