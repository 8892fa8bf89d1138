/* kernels/cpu/convert.c -- strided elements of one dtype to and from contiguous
** elements of another. */
#include "kernels/cpu/tables.h"

#define BLOCK 512 /* elements */

static bool same_bytes(mt_dtype from, mt_dtype to) {
  return from == to || (from == MT_BOOL && to == MT_U8);
}

void mt_cpu_load(mt_dtype from, int64_t n, const char *src, int64_t stride, mt_dtype to,
                 void *dst) {
  const int size = (int)mt_cpu_size(from), width = (int)mt_cpu_size(to);
  if (same_bytes(from, to)) {
    mt_cpu_pack(n, size, src, stride, dst);
    return;
  }
  const mt_row row = (*MT_ISA_PICK(mt_convert_rows))[from][to];
  _Alignas(64) char raw[BLOCK * 8], made[MT_ROW_UNIT * 8];
  for (int64_t i = 0; i < n; i += BLOCK, src += BLOCK * stride) {
    const int64_t part = n - i < BLOCK ? n - i : BLOCK;
    const int64_t whole = part & -MT_ROW_UNIT, rest = part - whole;
    char *to_here = (char *)dst + i * width, *p[2] = {to_here, raw};
    if (stride == size)
      p[1] = (char *)src;
    else
      mt_cpu_pack(part, size, src, stride, raw);
    if (whole > 0) row(whole, p, NULL);
    if (rest == 0) continue;
    char unit[MT_ROW_UNIT * 8] = {0};
    memcpy(unit, p[1] + whole * size, (size_t)(rest * size));
    char *const q[2] = {made, unit};
    row(MT_ROW_UNIT, q, NULL);
    memcpy(to_here + whole * width, made, (size_t)(rest * width));
  }
}

void mt_cpu_store(mt_dtype from, int64_t n, const void *src, mt_dtype to, char *dst,
                  int64_t stride) {
  const int width = (int)mt_cpu_size(from), size = (int)mt_cpu_size(to);
  if (same_bytes(from, to)) {
    mt_cpu_unpack(n, size, src, dst, stride);
    return;
  }
  _Alignas(64) char made[BLOCK * 8];
  for (int64_t i = 0; i < n; i += BLOCK, dst += BLOCK * stride) {
    const int64_t part = n - i < BLOCK ? n - i : BLOCK;
    const char *here = (const char *)src + i * width;
    if (stride == size) {
      mt_cpu_load(from, part, here, width, to, dst);
    } else {
      mt_cpu_load(from, part, here, width, to, made);
      mt_cpu_unpack(part, size, made, dst, stride);
    }
  }
}
