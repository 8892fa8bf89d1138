/* kernels/cpu/rows_random.c -- blocks of Philox words, and the floats made of them. */
#include "kernels/philox.h"
#include "kernels/cpu/tables.h"
#include "kernels/words.h"

#define LANES 16 /* blocks computed side by side */

/* n blocks from q on: 4 n words. */
static void words_row(uint64_t seed, uint64_t p, uint64_t q, int64_t n,
                      uint32_t *word) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES, q += LANES) {
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int j = 0; j < LANES; j++) {
      c0[j] = (uint32_t)p, c1[j] = (uint32_t)(p >> 32);
      c2[j] = (uint32_t)(q + (uint64_t)j), c3[j] = (uint32_t)((q + (uint64_t)j) >> 32);
    }
    for (int round = 0; round < MT_PHILOX_ROUNDS; round++) {
      for (int j = 0; j < LANES; j++) {
        const uint64_t a = (uint64_t)MT_PHILOX_M0 * c0[j];
        const uint64_t b = (uint64_t)MT_PHILOX_M1 * c2[j];
        c0[j] = (uint32_t)(b >> 32) ^ c1[j] ^ k0;
        c2[j] = (uint32_t)(a >> 32) ^ c3[j] ^ k1;
        c1[j] = (uint32_t)b;
        c3[j] = (uint32_t)a;
      }
      k0 += MT_PHILOX_W0, k1 += MT_PHILOX_W1;
    }
    for (int j = 0; j < LANES; j++) {
      word[4 * (i + j)] = c0[j], word[4 * (i + j) + 1] = c1[j];
      word[4 * (i + j) + 2] = c2[j], word[4 * (i + j) + 3] = c3[j];
    }
  }
  for (; i < n; i++, q++) mt_philox(seed, p, q, word + 4 * i);
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
