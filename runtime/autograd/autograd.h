/* runtime/autograd/autograd.h -- mt_apply: runs an op and records it; the graph and the
** backward walk. */
#ifndef MT_AUTOGRAD_H
#define MT_AUTOGRAD_H

#include "runtime/core/op.h"

/* Run one op; record it if grad mode is on and an input requires grad. COMPOSITE rows
** too. attr NULL: presets. On entry out[] is ignored; on success the caller owns
** out[0 .. *nout - 1]. nout may be NULL. */
mt_status mt_apply(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                   const mt_attr *attr, mt_tensor **out /* [out] */,
                   int *nout /* [out] [optional] */);

/* The in-place form: in[0] is overwritten with the result and takes its history.
** MT_EGRAD: in[0] is a leaf that requires grad (and grad mode is on). MT_ESHAPE,
** MT_EDTYPE: the result does not fit into in[0]. Works through views: the base's
** history is rewritten. */
mt_status mt_apply_inplace(mt_context *ctx, mt_op op, int nin, mt_tensor *const *in,
                           const mt_attr *attr);

bool mt_requires_grad(const mt_tensor *t);
bool mt_is_leaf(const mt_tensor *t);
/* MT_EGRAD for integer tensors, and for turning it off on a non-leaf. */
mt_status mt_set_requires_grad(mt_tensor *t, bool on);
mt_status mt_retain_grad(mt_tensor *t);
/* The accumulated gradient, borrowed; NULL: none. */
mt_tensor *mt_grad_of(const mt_tensor *t);
/* Replace it (g NULL: drop). Shape, dtype and device must be t's. */
mt_status mt_set_grad(mt_tensor *t, mt_tensor *g);
/* A view of t's storage without history. */
mt_status mt_detach(mt_tensor *t, mt_tensor **out /* [out] */);
/* Let t itself forget its history. MT_EGRAD: t is a view. */
mt_status mt_detach_inplace(mt_tensor *t);

typedef struct mt_backward_options {
  bool retain_graph, create_graph, allow_unused;
} mt_backward_options;

/* Accumulate d(sum of outputs . g)/d leaves into leaf .grad. g[i] NULL: ones, for one
** element only. */
mt_status mt_backward(mt_context *ctx, int n, mt_tensor *const *outputs,
                      mt_tensor *const *g, mt_backward_options o);
/* The gradients of inputs instead, without touching .grad. dx[i] NULL only with
** allow_unused. The caller owns them. */
mt_status mt_grad(mt_context *ctx, int n, mt_tensor *const *outputs,
                  mt_tensor *const *g, int ninputs, mt_tensor *const *inputs,
                  mt_backward_options o, mt_tensor **dx /* [out] */);

/* A function of the host (mt.Function, hooks): run gets the output gradients (NULL:
** none) and puts new references into dx; release frees user. */
typedef struct mt_custom {
  void *user;
  mt_status (*run)(mt_context *ctx, void *user, int nout, mt_tensor *const *g, int nin,
                   mt_tensor **dx /* [out] */);
  void (*release)(void *user);
  const char *name; /* copied */
} mt_custom;
/* Make outputs (fresh tensors) the results of a custom node over inputs.
** Takes over c.user, also when it fails. needs[i] says whether input i wants one. */
mt_status mt_record_custom(mt_context *ctx, mt_custom c, int nin, mt_tensor *const *in,
                           int nout, mt_tensor *const *out);
/* Record that y, a fresh tensor, holds the values of x in its own dtype and on its own
** device. */
mt_status mt_record_transfer(mt_context *ctx, mt_tensor *x, mt_tensor *y);

/* Call fn with each gradient of t; it may replace it by a new reference in *g. */
typedef mt_status (*mt_hook_fn)(mt_context *ctx, void *user, mt_tensor **g);
mt_status mt_add_hook(mt_tensor *t, mt_hook_fn fn, void *user, void (*release)(void *),
                      int *id /* [out] */);
void mt_remove_hook(mt_tensor *t, int id);

/* Called by code that writes into t's storage by itself. */
static inline void mt_bump(mt_tensor *t) { t->storage->version++; }
/* May it? MT_EGRAD: recording is on, and t or what it is a view of requires grad. */
mt_status mt_check_written(const mt_context *ctx, const mt_tensor *t);
/* The name of the op that made t ("mul"), NULL for a leaf. */
const char *mt_grad_name(const mt_tensor *t);

/* Set mt_autograd_release; called once by bind. */
void mt_autograd_setup(void);

#endif
