/* runtime/autograd/transfer.c -- copies to another device as a recorded step: the
** gradient goes back to where its tensor came from. */
#include "runtime/autograd/autograd.h"

#include <stdlib.h>

/* Where gradients go, and in which dtype. */
typedef struct origin {
  mt_dtype dtype;
  mt_device device;
} origin;

static mt_status transfer_back(mt_context *ctx, void *user, int nout,
                               mt_tensor *const *g, int nin, mt_tensor **dx) {
  (void)nout, (void)nin; /* one of each */
  const origin *const to = user;
  if (!g[0]) return MT_OK;
  MT_TRY(mt_convert(ctx, g[0], to->dtype, to->device, &dx[0]));
  const mt_status status = mt_record_transfer(ctx, g[0], dx[0]);
  if (status != MT_OK) {
    mt_release(dx[0]);
    dx[0] = NULL;
  }
  return status;
}

mt_status mt_record_transfer(mt_context *ctx, mt_tensor *x, mt_tensor *y) {
  if (!ctx->grad_enabled || !mt_requires_grad(x)) return MT_OK;
  origin *const from = malloc(sizeof *from);
  if (!from) return mt_fail(MT_EMEMORY, "out of memory");
  *from = (origin){mt_dtype_of(x), mt_device_of(x)};
  const mt_custom step = {from, transfer_back, free, "to"};
  return mt_record_custom(ctx, step, 1, &x, 1, &y);
}
