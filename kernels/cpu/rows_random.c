/* kernels/cpu/rows_random.c -- blocks of Philox words, and the floats made of them. */
#include "kernels/philox.h"
#include "kernels/cpu/tables.h"
#include "kernels/words.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Four blocks side by side, one in each 64-bit lane; only the low halves count. */
typedef uint64_t lanes __attribute__((vector_size(32)));
typedef uint32_t halves __attribute__((vector_size(32)));
#define EACH(x) ((lanes){} + (uint64_t)(x))
#ifdef __AVX2__
#define LOW_PRODUCT(a, b) (lanes) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#else
#define LOW_PRODUCT(a, b) ((a)&0xffffffffu) * ((b)&0xffffffffu)
#endif
#define GROUPS 2 /* of lanes: their multiplications overlap */
#define BLOCKS (4 * GROUPS)

/* n blocks from q on: 4 n words. */
static void words_row(uint64_t seed, uint64_t p, uint64_t q, int64_t n,
                      uint32_t *word) {
  static const halves low = {0, 8, 2, 10, 4, 12, 6, 14};
  static const lanes first = {0, 4, 1, 5}, last = {2, 6, 3, 7};
  const lanes m0 = EACH(MT_PHILOX_M0), m1 = EACH(MT_PHILOX_M1);
  int64_t i = 0;
  for (; i + BLOCKS <= n; i += BLOCKS, q += BLOCKS, word += 4 * BLOCKS) {
    lanes c0[GROUPS], c1[GROUPS], c2[GROUPS], c3[GROUPS];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int g = 0; g < GROUPS; g++) {
      const uint64_t at = q + 4 * (uint64_t)g;
      c0[g] = EACH((uint32_t)p), c1[g] = EACH(p >> 32);
      c2[g] = (lanes){at, at + 1, at + 2, at + 3}, c3[g] = c2[g] >> 32;
    }
    for (int round = 0; round < MT_PHILOX_ROUNDS; round++) {
      for (int g = 0; g < GROUPS; g++) {
        const lanes a = LOW_PRODUCT(c0[g], m0), b = LOW_PRODUCT(c2[g], m1);
        c0[g] = (b >> 32) ^ c1[g] ^ EACH(k0);
        c2[g] = (a >> 32) ^ c3[g] ^ EACH(k1);
        c1[g] = b, c3[g] = a;
      }
      k0 += MT_PHILOX_W0, k1 += MT_PHILOX_W1;
    }
    for (int g = 0; g < GROUPS; g++) { /* words 0 and 1, words 2 and 3 of each block */
      const lanes x = (lanes)__builtin_shuffle((halves)c0[g], (halves)c1[g], low);
      const lanes y = (lanes)__builtin_shuffle((halves)c2[g], (halves)c3[g], low);
      const lanes s = __builtin_shuffle(x, y, first), t = __builtin_shuffle(x, y, last);
      memcpy(word + 16 * g, &s, sizeof s);
      memcpy(word + 16 * g + 8, &t, sizeof t);
    }
  }
  for (; i < n; i++, q++, word += 4) mt_philox(seed, p, q, word);
}

static void uniform_f32(int64_t n, const uint32_t *word, int bits, float lo, float hi,
                        float *out) {
  const int drop = 32 - bits;
  const float unit = mt_bits_f32((uint32_t)(127 - bits) << 23), width = hi - lo;
  for (int64_t i = 0; i < n; i++) {
    const float y = lo + (float)(int32_t)(word[i] >> drop) * unit * width;
    out[i] = y < hi || !(lo < hi) ? y : lo;
  }
}

static void uniform_f64(int64_t n, const uint64_t *word, double lo, double hi,
                        double *out) {
  const double width = hi - lo;
  for (int64_t i = 0; i < n; i++) {
    const double y = lo + (double)(int64_t)(word[i] >> 11) * 0x1p-53 * width;
    out[i] = y < hi || !(lo < hi) ? y : lo;
  }
}

/* Pairs. n is a multiple of 2 UNIT, so that vectors compute all of them. Sines and
** cosines in loops of their own: together they become calls of sincos, one by one. */
#define UNIT 16
#define NORMAL_ROW(T, s, W, pair_u, pair_t, LOG, SQRT, COS, SIN)                   \
  static void normal_##s(int64_t n, const W *word, T mean, T std, T *out) {        \
    for (int64_t i = 0; i < n; i += 2 * UNIT, word += 2 * UNIT, out += 2 * UNIT) { \
      T r[UNIT], t[UNIT], x[UNIT], y[UNIT];                                        \
      for (int j = 0; j < UNIT; j++) {                                             \
        r[j] = SQRT(-2 * LOG(pair_u(word[2 * j])));                                \
        t[j] = pair_t(word[2 * j + 1]);                                            \
      }                                                                            \
      for (int j = 0; j < UNIT; j++) x[j] = COS(t[j]);                             \
      for (int j = 0; j < UNIT; j++) y[j] = SIN(t[j]);                             \
      for (int j = 0; j < UNIT; j++) {                                             \
        out[2 * j] = mean + std * (r[j] * x[j]);                                   \
        out[2 * j + 1] = mean + std * (r[j] * y[j]);                               \
      }                                                                            \
    }                                                                              \
  }
#define U_F32(w) ((float)(w)*0x1p-32f + 0x1p-33f)
#define T_F32(w) ((float)(int32_t)((w) >> 8) * (6.2831853f * 0x1p-24f))
#define U_F64(w) ((double)(int64_t)((w) >> 11) * 0x1p-53 + 0x1p-54)
#define T_F64(w) ((double)(int64_t)((w) >> 11) * (6.283185307179586 * 0x1p-53))
NORMAL_ROW(float, f32, uint32_t, U_F32, T_F32, logf, sqrtf, cosf, sinf)
NORMAL_ROW(double, f64, uint64_t, U_F64, T_F64, log, sqrt, cos, sin)

/* 1 with probability p, else 0. */
static void bernoulli_f32(int64_t n, const uint32_t *word, double p, float *out) {
  /* u < p for u = k 2^-24 is k < ceil(p 2^24) */
  const int32_t limit = (int32_t)ceil((p > 0 ? p < 1 ? p : 1 : 0) * 0x1p24);
  for (int64_t i = 0; i < n; i++) out[i] = (int32_t)(word[i] >> 8) < limit ? 1 : 0;
}

const mt_random_rows MT_ISA_NAME(mt_random_rows_of) = {
    words_row, uniform_f32, uniform_f64, normal_f32, normal_f64, bernoulli_f32};
