/* runtime/autograd/fuse.h -- fused operators, recorded where a gradient may be asked for. */
#ifndef MT_AUTOGRAD_FUSE_H
#define MT_AUTOGRAD_FUSE_H

#include "runtime/autograd/autograd.h"
#include "runtime/core/fuse.h"

/* out[f->nout] = f(in[f->nin]). The gradient is a fused operator, too, and so is its
** gradient. The caller owns out. */
mt_status mt_fuse_apply(mt_context *ctx, mt_fuse *f, mt_tensor *const *in,
                        mt_tensor **out /* [out] */);

#endif
