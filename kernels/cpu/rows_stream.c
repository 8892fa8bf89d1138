/* kernels/cpu/rows_stream.c -- stores that pass the caches, for one level of x86-64. */
#include "kernels/cpu/stream.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

/* One line: src anywhere, dst at its begin. */
static inline void put_line(const char *src, char *dst) {
#if defined __AVX512F__
  _mm512_stream_si512((__m512i *)dst, _mm512_loadu_si512(src));
#elif defined __AVX__
  const __m256i a = _mm256_loadu_si256((const __m256i *)src);
  const __m256i b = _mm256_loadu_si256((const __m256i *)(src + 32));
  _mm256_stream_si256((__m256i *)dst, a);
  _mm256_stream_si256((__m256i *)(dst + 32), b);
#elif defined __SSE2__
  for (int i = 0; i < MT_LINE; i += 16)
    _mm_stream_si128((__m128i *)(dst + i), _mm_loadu_si128((const __m128i *)(src + i)));
#else
  memcpy(dst, src, MT_LINE);
#endif
}

static inline void fetch(const mt_ahead *a, int64_t line) {
  for (int64_t i = 0; i < a->step; i += MT_LINE)
    __builtin_prefetch(a->at + line * a->step + i);
}

static void lines(int64_t count, const void *src, char *dst, int n,
                  const mt_ahead *ahead) {
  const char *from = src;
  if (n == 1 && ahead[0].step == MT_LINE) { /* as one loop, without the counting */
    const char *next = ahead[0].at;
    for (int64_t i = 0; i < count; i++) {
      __builtin_prefetch(next + i * MT_LINE);
      put_line(from + i * MT_LINE, dst + i * MT_LINE);
    }
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    for (int k = 0; k < n; k++) fetch(&ahead[k], i);
    put_line(from + i * MT_LINE, dst + i * MT_LINE);
  }
}

static void apart(int64_t rows, int64_t count, const void *src, char *dst,
                  int64_t step) {
  const char *from = src;
  for (int64_t r = 0; r < rows; r++, dst += step)
    for (int64_t i = 0; i < count; i++, from += MT_LINE)
      put_line(from, dst + i * MT_LINE);
}

static void repeat(int64_t count, const void *src, char *dst) {
  typedef uint64_t vector __attribute__((vector_size(MT_LINE / 2)));
  vector a, b;
  memcpy(&a, src, sizeof a);
  memcpy(&b, (const char *)src + sizeof a, sizeof b);
  vector *to = (vector *)dst;
  for (int64_t i = 0; i < count; i++) to[2 * i] = a, to[2 * i + 1] = b;
}

const mt_stream_loops MT_ISA_NAME(mt_stream) = {lines, apart, repeat};
