/* kernels/cpu/generate.c -- fills a view with what a function makes of the
** positions. */
#include "kernels/cpu/tables.h"

#define BLOCK 512 /* elements */

typedef struct job {
  mt_space space; /* out, in its own order */
  char *data;
  mt_dtype from;
  int size; /* bytes of an element of out */
  bool plain;
  mt_row convert; /* NULL: `from` is out's dtype */
  mt_generate_fn fn;
  const void *context;
} job;

static void scatter_block(const job *j, int64_t n, const char *values, int64_t *coord,
                          int64_t *offset) {
  const mt_space *s = &j->space;
  while (n > 0) {
    const int64_t left = s->size[0] - coord[0], run = left < n ? left : n;
    mt_cpu_unpack(run, j->size, values, j->data + *offset, s->stride[0][0]);
    values += run * j->size;
    n -= run;
    mt_space_advance(s, run, coord, offset);
  }
}

static void generate_range(void *context, int64_t lo, int64_t hi) { /* blocks */
  const job *j = context;
  _Alignas(64) char made[BLOCK * 8], converted[BLOCK * 8];
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  mt_space_seek(&j->space, lo * BLOCK, coord, offset);
  for (int64_t block = lo; block < hi; block++) {
    const int64_t start = block * BLOCK, left = j->space.numel - start;
    const int64_t n = left < BLOCK ? left : BLOCK;
    char *direct = j->data + start * j->size;
    if (j->plain && j->convert == NULL) {
      j->fn(j->context, start, n, direct);
      continue;
    }
    j->fn(j->context, start, n, made);
    const char *values = made;
    if (j->convert != NULL) {
      const int64_t whole = n & -MT_ROW_UNIT, padded = n + (-n & (MT_ROW_UNIT - 1));
      const int64_t width = mt_cpu_size(j->from);
      memset(made + n * width, 0, (size_t)((padded - n) * width));
      char *const p[] = {j->plain && whole == n ? direct : converted, made};
      j->convert(padded, p, NULL);
      values = converted;
      if (p[0] == direct) continue;
    }
    if (j->plain) {
      memcpy(direct, values, (size_t)(n * j->size));
      continue;
    }
    scatter_block(j, n, values, coord, offset);
  }
}

mt_status mt_cpu_generate(const mt_call *call, const mt_view *out, mt_dtype from,
                          mt_generate_fn fn, const void *context, int64_t cost) {
  job j = {.data = out->data, .from = from, .fn = fn, .context = context};
  mt_space_make(&j.space, 1, &out, true);
  if (j.space.numel == 0) return MT_OK;
  j.size = (int)mt_cpu_size(out->dtype);
  j.plain = mt_cpu_contiguous(out);
  if (from != out->dtype) j.convert = (*MT_ISA_PICK(mt_convert_rows))[from][out->dtype];
  const int64_t blocks = (j.space.numel + BLOCK - 1) / BLOCK;
  mt_cpu_parallel_for(call, blocks, mt_cpu_grain(cost * BLOCK), generate_range, &j);
  return MT_OK;
}
