/* kernels/cpu/rows_pack.c -- elements and short rows from strides to strides, for one
** level of x86-64. */
#include "kernels/cpu/pack.h"

#define INLINE static inline __attribute__((always_inline))

/* Of any alignment. */
typedef uint16_t u2 __attribute__((aligned(1), may_alias));
typedef uint32_t u4 __attribute__((aligned(1), may_alias));
typedef uint64_t u8 __attribute__((aligned(1), may_alias));
typedef uint64_t u16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t u32 __attribute__((vector_size(32), aligned(1), may_alias));

/* ---- elements -------------------------------------------------------------------- */
#define BACKWARDS_8  7, 6, 5, 4, 3, 2, 1, 0
#define BACKWARDS_16 15, 14, 13, 12, 11, 10, 9, 8, BACKWARDS_8
#define BACKWARDS_32 \
  31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, BACKWARDS_16

/* The vector's elements the other way round. */
#define BACKWARDS(T, order)                                                  \
  static void backwards_##T(int64_t n, const char *src, char *dst) {         \
    typedef T vector __attribute__((vector_size(32)));                       \
    static const vector turn = {order};                                      \
    const int64_t size = sizeof(T), lanes = 32 / size;                       \
    int64_t i = 0;                                                           \
    for (; i + lanes <= n; i += lanes) {                                     \
      vector v;                                                              \
      memcpy(&v, src - (i + lanes - 1) * size, sizeof v);                    \
      v = __builtin_shuffle(v, turn);                                        \
      memcpy(dst + i * size, &v, sizeof v);                                  \
    }                                                                        \
    for (; i < n; i++) memcpy(dst + i * size, src - i * size, (size_t)size); \
  }
BACKWARDS(uint8_t, BACKWARDS_32)
BACKWARDS(uint16_t, BACKWARDS_16)
BACKWARDS(uint32_t, BACKWARDS_8)
#define BACKWARDS_4 3, 2, 1, 0
BACKWARDS(uint64_t, BACKWARDS_4)

#define ELEMENTS(T)                                                              \
  INLINE void steps_##T(int64_t n, const char *src, int64_t from, char *dst,     \
                        int64_t to) {                                            \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) * (T *)(dst + i * to) = \
        *(const T *)(src + i * from);                                            \
  }                                                                              \
  static void elements_##T(int64_t n, const char *src, int64_t from, char *dst,  \
                           int64_t to) {                                         \
    const int64_t size = sizeof(T);                                              \
    if (to != size && from == size) {                                            \
      steps_##T(n, src, size, dst, to);                                          \
    } else if (to != size) {                                                     \
      steps_##T(n, src, from, dst, to);                                          \
    } else if (from == 0) {                                                      \
      const T x = *(const T *)src;                                               \
      for (int64_t i = 0; i < n; i++) ((T *)dst)[i] = x;                         \
    } else if (from == size) {                                                   \
      steps_##T(n, src, size, dst, size);                                        \
    } else if (from == -size) {                                                  \
      backwards_##T(n, src, dst);                                                \
    } else if (from == 2 * size) {                                               \
      steps_##T(n, src, 2 * size, dst, size);                                    \
    } else {                                                                     \
      steps_##T(n, src, from, dst, size);                                        \
    }                                                                            \
  }
ELEMENTS(uint8_t)
ELEMENTS(uint16_t)
ELEMENTS(uint32_t)
ELEMENTS(uint64_t)

/* ---- short rows: two overlapping words of W bytes, or four ----------------------- */
#define AHEAD      12  /* rows fetched ahead */
#define AHEAD_STEP 512 /* where they lie so far apart, bytes */

#define PUT(W, at) *(u##W *)(dst + (at)) = *(const u##W *)(src + (at))
#define ROWS(W)                                                                    \
  INLINE void rows_##W(int64_t rows, int64_t bytes, const char *src, int64_t from, \
                       char *dst, int64_t to, bool ahead) {                        \
    for (; rows > 0; rows--, src += from, dst += to) {                             \
      if (ahead) __builtin_prefetch(src + AHEAD * from);                           \
      PUT(W, 0);                                                                   \
      PUT(W, bytes - W);                                                           \
    }                                                                              \
  }
ROWS(2)
ROWS(4)
ROWS(8)
ROWS(16)
ROWS(32)

static void rows_128(int64_t rows, int64_t bytes, const char *src, int64_t from,
                     char *dst, int64_t to, bool ahead) {
  for (; rows > 0; rows--, src += from, dst += to) {
    if (ahead) {
      __builtin_prefetch(src + AHEAD * from);
      __builtin_prefetch(src + AHEAD * from + bytes - 1);
    }
    PUT(32, 0);
    PUT(32, 32);
    PUT(32, bytes - 64);
    PUT(32, bytes - 32);
  }
}

static void rows(int64_t count, int64_t bytes, const char *src, int64_t from, char *dst,
                 int64_t to) {
  const bool ahead = from >= AHEAD_STEP || from <= -AHEAD_STEP;
  if (bytes > 128)
    for (int64_t i = 0; i < count; i++)
      memcpy(dst + i * to, src + i * from, (size_t)bytes);
  else if (bytes > 64)
    rows_128(count, bytes, src, from, dst, to, ahead);
  else if (bytes > 32 || bytes == 32)
    rows_32(count, bytes, src, from, dst, to, ahead);
  else if (bytes >= 16)
    rows_16(count, bytes, src, from, dst, to, ahead);
  else if (bytes >= 8)
    rows_8(count, bytes, src, from, dst, to, ahead);
  else if (bytes >= 4)
    rows_4(count, bytes, src, from, dst, to, ahead);
  else if (bytes >= 2)
    rows_2(count, bytes, src, from, dst, to, ahead);
  else
    elements_uint8_t(count, src, from, dst, to);
}

/* ---- repeated elements ----------------------------------------------------------- */
#ifdef __AVX512F__
#define WIDE 64 /* bytes */
#else
#define WIDE 32
#endif
#define REPEATED(T)                                                                 \
  static void repeated_##T(int64_t n, int64_t times, const char *src, int64_t from, \
                           char *dst) {                                             \
    typedef T vector __attribute__((vector_size(WIDE)));                            \
    typedef vector open __attribute__((aligned(1), may_alias));                     \
    const int64_t bytes = times * (int64_t)sizeof(T);                               \
    for (; n > 0; n--, src += from, dst += bytes) {                                 \
      const T x = *(const T *)src;                                                  \
      if (bytes < WIDE) {                                                           \
        for (int64_t i = 0; i < times; i++) ((T *)dst)[i] = x;                      \
      } else {                                                                      \
        const vector v = x - (vector){0};                                           \
        for (int64_t i = 0; i < bytes - WIDE; i += WIDE) *(open *)(dst + i) = v;    \
        *(open *)(dst + bytes - WIDE) = v;                                          \
      }                                                                             \
    }                                                                               \
  }
REPEATED(uint8_t)
REPEATED(uint16_t)
REPEATED(uint32_t)
REPEATED(uint64_t)

const mt_pack_loops MT_ISA_NAME(mt_pack) = {
    .elements = {elements_uint8_t, elements_uint16_t, elements_uint32_t,
                 elements_uint64_t},
    .repeated = {repeated_uint8_t, repeated_uint16_t, repeated_uint32_t,
                 repeated_uint64_t},
    .rows = rows};
