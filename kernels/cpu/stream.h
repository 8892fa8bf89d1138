/* kernels/cpu/stream.h -- writing results that are larger than the caches.
**
** An ordinary store reads its line first, and puts out of the cache what may still be
** wanted. Large results are made in a small buffer instead, and leave it by stores that
** pass the caches; meanwhile what the next block reads is fetched. */
#ifndef MT_STREAM_H
#define MT_STREAM_H

#include "kernels/cpu/cpu.h"

#define MT_LINE 64 /* bytes of a line of the cache */

/* What to fetch meanwhile: `step` bytes at `at` for each line that is written. It need
** not exist: fetching never faults. */
typedef struct mt_ahead {
  const char *at;
  int64_t step;
} mt_ahead;

typedef struct mt_stream_loops {
  /* `lines` whole lines from src to dst, which begins with a line; src as it is. */
  void (*lines)(int64_t lines, const void *src, char *dst, int n,
                const mt_ahead *ahead);
  /* `rows` times `lines` lines from contiguous ones to where they lie `step` bytes
  ** apart. */
  void (*apart)(int64_t rows, int64_t lines, const void *src, char *dst, int64_t step);
  /* `lines` times the line at src, through the caches; dst begins with a line. */
  void (*repeat)(int64_t lines, const void *src, char *dst);
} mt_stream_loops;
MT_ISA_DECLARE(const mt_stream_loops, mt_stream); /* rows_stream.c */

/* Results from here on pass the caches, bytes: half of the last one, but 8 to 32 MiB. */
int64_t mt_cpu_stream_least(void);

/* Do `bytes` of result at dst pass the caches? Not if dst is read as well. */
static inline bool mt_cpu_streams(const void *dst, int64_t bytes) {
  return (uintptr_t)dst % MT_LINE == 0 && bytes >= mt_cpu_stream_least();
}

/* n bytes from src, which does not overlap dst; what is not a whole line of dst goes
** through the caches. */
static inline void mt_cpu_stream(const mt_stream_loops *loops, int64_t n,
                                 const void *src, char *dst, int nahead,
                                 const mt_ahead *ahead) {
  const char *from = src;
  int64_t first = -(int64_t)(uintptr_t)dst & (MT_LINE - 1);
  if (first > n) first = n;
  if (first > 0) memcpy(dst, from, (size_t)first);
  dst += first, from += first, n -= first;
  const int64_t whole = n & -MT_LINE;
  loops->lines(whole / MT_LINE, from, dst, nahead, ahead);
  if (n > whole) memcpy(dst + whole, from + whole, (size_t)(n - whole));
}

/* The same for `rows` rows, each made in a buffer of MT_STREAM_ROW bytes. */
#define MT_STREAM_ROW 16384
static inline bool mt_cpu_streams_rows(const void *dst, int64_t rows, int64_t bytes) {
  return bytes % MT_LINE == 0 && bytes <= MT_STREAM_ROW &&
         mt_cpu_streams(dst, rows * bytes);
}

/* After the last one, before other threads may look. */
static inline void mt_cpu_stream_end(void) {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#endif
}

#endif
