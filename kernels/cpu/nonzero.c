/* kernels/cpu/nonzero.c -- the positions of the elements that are not 0. */
#include "kernels/cpu/cpu.h"

#define BLOCK 512 /* elements */

/* _nonzero(x, count): positions from 1 in x's row-major order. */
static mt_status nonzero_run(const mt_call *call) {
  const mt_view *x = call->in[0];
  mt_view *y = call->out[0];
  const int64_t count = y->shape[0], step = y->stride[0];
  int64_t *at = (int64_t *)y->data, found = 0;
  int64_t coord[MT_MAX_DIMS], offset[MT_SPACE_ARGS];
  uint8_t set[BLOCK];
  mt_space s;
  mt_space_make(&s, 1, &x, true);
  if (s.numel == 0) return MT_OK;
  mt_space_seek(&s, 0, coord, offset);
  for (int64_t i = 0; i < s.numel && found < count;) {
    int64_t run = s.size[0] - coord[0];
    if (mt_stopped(call)) break;
    if (run > BLOCK) run = BLOCK;
    mt_cpu_load(x->dtype, run, x->data + offset[0], s.stride[0][0], MT_BOOL, set);
    for (int64_t k = 0; k < run && found < count; k++)
      if (set[k]) *at = i + k + 1, at += step, found++;
    mt_space_advance(&s, run, coord, offset);
    i += run;
  }
  return MT_OK;
}

extern const mt_entry mt_cpu__nonzero;
const mt_entry mt_cpu__nonzero = {nonzero_run, NULL, MT_ALL_MASK, 0};
