/* runtime/core/watch.h -- the calls of core while mt_context.watch is not 0: a graph is
** captured, which may refuse them, or a profile runs, which notes them. */
#ifndef MT_WATCH_H
#define MT_WATCH_H

#include "runtime/core/fuse.h"

mt_status mt_watched_dispatch(mt_context *ctx, const mt_opinfo *op, int nin,
                              mt_tensor *const *in, mt_attr *attr, mt_tensor **out,
                              uint64_t *position);
mt_status mt_watched_gradient(mt_context *ctx, const mt_opinfo *op, int nin,
                              mt_tensor *const *in, const mt_attr *attr,
                              const bool *needs, mt_tensor **dx);
mt_status mt_watched_copy(mt_context *ctx, mt_tensor *dst, mt_tensor *src,
                          bool non_blocking);
mt_status mt_watched_convert(mt_context *ctx, mt_tensor *t, mt_dtype dtype,
                             mt_device device, mt_tensor **out);
mt_status mt_watched_item(mt_context *ctx, mt_tensor *t, double *f, int64_t *i);
mt_status mt_watched_many(mt_context *ctx, mt_many which, int nin, mt_tensor *const *in,
                          int nout, mt_tensor *const *out, int nattr,
                          const double *attr);
mt_status mt_watched_fused(mt_context *ctx, const char *name, mt_fused *f,
                           const mt_fuse_shape *shape, mt_tensor *const *in,
                           mt_dtype dtype, mt_device device, mt_tensor **out);

#endif
