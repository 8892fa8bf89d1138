/* kernels/cpu/rows_transpose.c -- tiles of transposed copies: element (i, j) of a
** tile is contiguous along j in src, along i in dst. */
#include "kernels/cpu/tables.h"

/* What blocks leave, and small types: by way of a buffer, so that both sides are
** touched in whole lines. */
#define SIDE 64
#define BUFFERED(T, bits)                                                      \
  static void buffered_##bits(int64_t n0, int64_t n1, const char *src,         \
                              int64_t src_step, char *dst, int64_t dst_step) { \
    T buffer[SIDE][SIDE + 64 / sizeof(T)];                                     \
    for (int64_t i0 = 0; i0 < n0; i0 += SIDE)                                  \
      for (int64_t j0 = 0; j0 < n1; j0 += SIDE) {                              \
        const int64_t ni = n0 - i0 < SIDE ? n0 - i0 : SIDE;                    \
        const int64_t nj = n1 - j0 < SIDE ? n1 - j0 : SIDE;                    \
        const char *from = src + i0 * src_step + j0 * (int64_t)sizeof(T);      \
        char *to = dst + j0 * dst_step + i0 * (int64_t)sizeof(T);              \
        for (int64_t i = 0; i < ni; i++)                                       \
          memcpy(buffer[i], from + i * src_step, (size_t)nj * sizeof(T));      \
        for (int64_t j = 0; j < nj; j++)                                       \
          for (int64_t i = 0; i < ni; i++)                                     \
            ((T *)(to + j * dst_step))[i] = buffer[i][j];                      \
      }                                                                        \
  }
BUFFERED(uint8_t, 8)
BUFFERED(uint16_t, 16)
BUFFERED(uint32_t, 32)
BUFFERED(uint64_t, 64)

/* Blocks of 8 x 8 elements of 4 bytes, or of 4 x 4 of 8, in registers. */
typedef uint32_t w8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint64_t w4 __attribute__((vector_size(32), aligned(8), may_alias));

static inline void block_32(const char *src, int64_t src_step, char *dst,
                            int64_t dst_step) {
  static const w8 lo1 = {0, 8, 1, 9, 4, 12, 5, 13}, hi1 = {2, 10, 3, 11, 6, 14, 7, 15};
  static const w8 lo2 = {0, 1, 8, 9, 4, 5, 12, 13}, hi2 = {2, 3, 10, 11, 6, 7, 14, 15};
  static const w8 lo4 = {0, 1, 2, 3, 8, 9, 10, 11}, hi4 = {4, 5, 6, 7, 12, 13, 14, 15};
  w8 a[8], b[8], c[8];
  for (int i = 0; i < 8; i++) a[i] = *(const w8 *)(src + i * src_step);
  for (int i = 0; i < 8; i += 2) {
    b[i] = __builtin_shuffle(a[i], a[i + 1], lo1);
    b[i + 1] = __builtin_shuffle(a[i], a[i + 1], hi1);
  }
  for (int i = 0; i < 8; i += 4) {
    c[i] = __builtin_shuffle(b[i], b[i + 2], lo2);
    c[i + 1] = __builtin_shuffle(b[i], b[i + 2], hi2);
    c[i + 2] = __builtin_shuffle(b[i + 1], b[i + 3], lo2);
    c[i + 3] = __builtin_shuffle(b[i + 1], b[i + 3], hi2);
  }
  for (int i = 0; i < 4; i++) {
    *(w8 *)(dst + i * dst_step) = __builtin_shuffle(c[i], c[i + 4], lo4);
    *(w8 *)(dst + (i + 4) * dst_step) = __builtin_shuffle(c[i], c[i + 4], hi4);
  }
}

static inline void block_64(const char *src, int64_t src_step, char *dst,
                            int64_t dst_step) {
  static const w4 lo1 = {0, 4, 2, 6}, hi1 = {1, 5, 3, 7};
  static const w4 lo2 = {0, 1, 4, 5}, hi2 = {2, 3, 6, 7};
  w4 a[4], b[4];
  for (int i = 0; i < 4; i++) a[i] = *(const w4 *)(src + i * src_step);
  for (int i = 0; i < 4; i += 2) {
    b[i] = __builtin_shuffle(a[i], a[i + 1], lo1);
    b[i + 1] = __builtin_shuffle(a[i], a[i + 1], hi1);
  }
  for (int i = 0; i < 2; i++) {
    *(w4 *)(dst + i * dst_step) = __builtin_shuffle(b[i], b[i + 2], lo2);
    *(w4 *)(dst + (i + 2) * dst_step) = __builtin_shuffle(b[i], b[i + 2], hi2);
  }
}

#define BLOCKED(bits, side)                                                        \
  static void blocked_##bits(int64_t n0, int64_t n1, const char *src,              \
                             int64_t src_step, char *dst, int64_t dst_step) {      \
    const int64_t size = bits / 8, w0 = n0 & -side, w1 = n1 & -side;               \
    for (int64_t j = 0; j < w1; j += side)                                         \
      for (int64_t i = 0; i < w0; i += side)                                       \
        block_##bits(src + i * src_step + j * size, src_step,                      \
                     dst + j * dst_step + i * size, dst_step);                     \
    if (w1 < n1)                                                                   \
      buffered_##bits(w0, n1 - w1, src + w1 * size, src_step, dst + w1 * dst_step, \
                      dst_step);                                                   \
    if (w0 < n0)                                                                   \
      buffered_##bits(n0 - w0, n1, src + w0 * src_step, src_step, dst + w0 * size, \
                      dst_step);                                                   \
  }
BLOCKED(32, 8)
BLOCKED(64, 4)

const mt_transpose_tile MT_ISA_NAME(mt_transpose_tiles)[4] = {buffered_8, buffered_16,
                                                              blocked_32, blocked_64};
