/* runtime/core/watch.c -- calls while a graph is captured or a profile runs. What they
** call in turn is a part of them, and not watched: so each calls itself again. */
#include "runtime/core/watch.h"
#include "runtime/core/cuda_graph.h"
#include "runtime/core/profile.h"

mt_status mt_watched_dispatch(mt_context *ctx, const mt_opinfo *op, int nin,
                              mt_tensor *const *in, mt_attr *attr, mt_tensor **out,
                              uint64_t *position) {
  const unsigned watch = ctx->watch;
  mt_mark mark;
  if (ctx->graph && op->kind != MT_KIND_VIEW)
    MT_TRY(mt_graph_admit(ctx, op->name, nin, in, op->nout, out));
  const mt_device device = mt_profile_device(nin, in, op->nout, out);
  mt_profile_begin_on(ctx, op->name, false, device, op->kind != MT_KIND_VIEW, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, nin, in, op->nout, out);
  ctx->watch = 0;
  const mt_status status = mt_dispatch(ctx, op->op, nin, in, attr, out, position);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  ctx->watch = watch;
  mt_profile_end(&mark, op, status, nin, in, op->nout, out);
  return status;
}

mt_status mt_watched_gradient(mt_context *ctx, const mt_opinfo *op, int nin,
                              mt_tensor *const *in, const mt_attr *attr,
                              const bool *needs, mt_tensor **dx) {
  const unsigned watch = ctx->watch;
  mt_mark mark;
  if (ctx->graph) MT_TRY(mt_graph_admit(ctx, op->name, nin, in, 0, NULL));
  mt_profile_begin(ctx, op->name, true, nin, in, 0, NULL, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, nin, in, 0, NULL);
  ctx->watch = 0;
  const mt_status status = mt_dispatch_gradient(ctx, op->op, nin, in, attr, needs, dx);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  ctx->watch = watch;
  mt_profile_end(&mark, op, status, nin, in, op->nin, dx);
  return status;
}

mt_status mt_watched_copy(mt_context *ctx, mt_tensor *dst, mt_tensor *src,
                          bool non_blocking) {
  const unsigned watch = ctx->watch;
  mt_mark mark;
  mt_profile_begin(ctx, "copy_", false, 1, &src, 1, &dst, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, 1, &src, 1, &dst);
  ctx->watch = 0;
  const mt_status status = mt_copy_from(ctx, dst, src, non_blocking);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  ctx->watch = watch;
  mt_profile_end(&mark, mt_op_info(MT_OP_clone), status, 1, &src, 1, &dst);
  return status;
}

mt_status mt_watched_convert(mt_context *ctx, mt_tensor *t, mt_dtype dtype,
                             mt_device device, mt_tensor **out) {
  const unsigned watch = ctx->watch;
  mt_mark mark;
  mt_profile_begin_on(ctx, "to", false,
                      device.kind != MT_CPU ? device : mt_device_of(t), true, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, 1, &t, 0, NULL);
  ctx->watch = 0;
  const mt_status status = mt_convert(ctx, t, dtype, device, out);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  ctx->watch = watch;
  mt_profile_end(&mark, mt_op_info(MT_OP_clone), status, 1, &t, 1, out);
  return status;
}

mt_status mt_watched_item(mt_context *ctx, mt_tensor *t, double *f, int64_t *i) {
  const unsigned watch = ctx->watch;
  mt_mark mark;
  mt_profile_begin(ctx, "item", false, 1, &t, 0, NULL, &mark);
  ctx->watch = 0;
  const mt_status status = mt_item(ctx, t, f, i);
  ctx->watch = watch;
  mt_profile_end(&mark, mt_op_info(MT_OP_clone), status, 1, &t, 0, NULL);
  return status;
}

mt_status mt_watched_many(mt_context *ctx, mt_many which, int nin, mt_tensor *const *in,
                          int nout, mt_tensor *const *out, int nattr,
                          const double *attr) {
  static const char *const name[MT_MANY_COUNT] = {"sgd step", "adam step",
                                                  "sum of squares", "scale_"};
  const unsigned watch = ctx->watch;
  mt_mark mark;
  if (ctx->graph) MT_TRY(mt_graph_admit(ctx, name[which], nin, in, nout, out));
  mt_profile_begin(ctx, name[which], false, nin, in, nout, out, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, nin, in, nout, out);
  ctx->watch = 0;
  const mt_status status =
      mt_dispatch_many(ctx, which, nin, in, nout, out, nattr, attr);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  ctx->watch = watch;
  mt_profile_end(&mark, NULL, status, nin, in, nout, out);
  return status;
}

mt_status mt_watched_fused(mt_context *ctx, const char *name, mt_fused *f,
                           const mt_fuse_shape *shape, mt_tensor *const *in,
                           mt_dtype dtype, mt_device device, mt_tensor **out) {
  const unsigned watch = ctx->watch;
  mt_mark mark;
  if (ctx->graph) MT_TRY(mt_graph_admit(ctx, name, f->nin, in, 0, NULL));
  const char *known = mt_profile_name(ctx, name);
  mt_profile_begin(ctx, known, false, f->nin, in, 0, NULL, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, f->nin, in, 0, NULL);
  ctx->watch = 0;
  const mt_status status = mt_fused_run(ctx, name, f, shape, in, dtype, device, out);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  ctx->watch = watch;
  mt_profile_end(&mark, mt_op_info(MT_OP_clone), status, f->nin, in, f->nout, out);
  return status;
}
