/* kernels/cpu/past.h -- stores that pass the caches, one by one, for the rows of one level
** of x86-64: for loops that compute between them; what is only copied, stream.h copies. */
#ifndef MT_CPU_PAST_H
#define MT_CPU_PAST_H

#include "kernels/cpu/cpu.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#define MT_FETCH 4096 /* bytes from what is read to what is fetched */

/* Fetch what lies so far behind x, or before it. */
static inline __attribute__((always_inline)) void mt_fetch_ahead(const void *x,
                                                                 bool back) {
  __builtin_prefetch((const char *)x + (back ? -MT_FETCH : MT_FETCH));
}

/* `bytes`, 16 or 32, from v to y; past: past the caches, y being aligned to so many. All
** of a line should be written, one store after another. */
static inline __attribute__((always_inline)) void mt_put(void *y, const void *v,
                                                         int bytes, bool past) {
#ifdef __AVX__
  if (past && bytes == 32) {
    _mm256_stream_si256((__m256i *)y, _mm256_loadu_si256((const __m256i *)v));
    return;
  }
#endif
#ifdef __SSE2__
  if (past) {
    for (int i = 0; i < bytes; i += 16)
      _mm_stream_si128((__m128i *)((char *)y + i),
                       _mm_loadu_si128((const __m128i *)((const char *)v + i)));
    return;
  }
#endif
  (void)past;
  memcpy(y, v, (size_t)bytes);
}

static inline __attribute__((always_inline)) void mt_put_word(int64_t *y, int64_t x,
                                                              bool past) {
#ifdef __x86_64__
  if (past) {
    _mm_stream_si64((long long *)y, x);
    return;
  }
#endif
  (void)past;
  *y = x;
}

#endif
