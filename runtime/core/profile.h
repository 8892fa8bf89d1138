/* runtime/core/profile.h -- what mt.profile notes of each call: its time on the host and
** on the GPU, the bytes and operations that it should take. */
#ifndef MT_PROFILE_H
#define MT_PROFILE_H

#include "runtime/core/op.h"

/* What ops cost by their shapes: bytes that must be read and written once, operations
** of products (0: not a product). */
typedef struct mt_cost {
  double bytes, flops;
  mt_dtype dtype; /* that it computes in: the first input's */
} mt_cost;
/* op NULL: no op of the table; all is read and written. */
mt_cost mt_cost_of(const mt_opinfo *op, int nin, mt_tensor *const *in, int nout,
                   mt_tensor *const *out);

typedef struct mt_record {
  const char *name;
  bool gradient; /* of an elementwise op, or within a backward walk */
  int scope;     /* number of a scope */
  mt_device device;
  double start, host; /* seconds: since the profile's start; that it took */
  double device_start, device_time; /* the same on a GPU; -1: not known */
  double allocated;                 /* bytes */
  mt_cost cost;
  int ndim; /* and shape, of the first result */
  int64_t shape[MT_MAX_DIMS];
} mt_record;

/* A profile belongs to a state; ctx->profile while it runs. */
typedef struct mt_profile mt_profile;

/* back_to_back: hold GPUs back until some calls are queued, so that a short one's time is
** not that of the host. ranges: name calls and scopes for attached tools. */
mt_status mt_profile_start(mt_context *ctx, bool back_to_back, bool ranges,
                           mt_profile **out /* [out] */);
/* Wait for the GPUs and end it. */
mt_status mt_profile_stop(mt_profile *p);
void mt_profile_free(mt_profile *p);
int64_t mt_profile_count(const mt_profile *p);
const mt_record *mt_profile_record(const mt_profile *p, int64_t i);
/* Calls that were not noted: there were too many, or no memory. */
int64_t mt_profile_dropped(const mt_profile *p);

/* Scopes are named parts of the program, one within the other; 0: none. Both give the
** number of the scope before: enter one within it; leave all up to the scope `to`. */
int mt_profile_enter(mt_profile *p, const char *name);
int mt_profile_leave(mt_profile *p, int to);
/* A node of a backward walk is visited that was recorded in this scope; -1: the walk has
** ended. Gives what was before. */
int mt_profile_node(mt_profile *p, int scope);
/* Its name, and in *parent the one around it. */
const char *mt_profile_scope_name(const mt_profile *p, int scope, int *parent);
/* For the trace: when scopes were entered and left. */
typedef struct mt_stretch {
  int scope;
  double start, end;
} mt_stretch;
int64_t mt_profile_stretches(const mt_profile *p, const mt_stretch **list /* [out] */);

/* ---- what dispatch calls, while ctx->profile ---- */

typedef struct mt_mark {
  mt_profile *p; /* NULL: within another call, or no memory */
  int64_t record;
  int event; /* of the beginning; -1: none */
  double start, allocated;
} mt_mark;

/* A name that lives as long as the profile. NULL: none runs. */
const char *mt_profile_name(mt_context *ctx, const char *name);
/* name: a constant, or from mt_profile_name. The device is that of the first tensor on a
** GPU, else the CPU. */
void mt_profile_begin(mt_context *ctx, const char *name, bool gradient, int nin,
                      mt_tensor *const *in, int nout, mt_tensor *const *out,
                      mt_mark *mark /* [out] */);
/* timed: the call has work on the device, if that is a GPU. */
void mt_profile_begin_on(mt_context *ctx, const char *name, bool gradient,
                         mt_device device, bool timed, mt_mark *mark /* [out] */);
mt_device mt_profile_device(int nin, mt_tensor *const *in, int nout,
                            mt_tensor *const *out);
/* op: as for mt_cost_of. What is no op and moves each of its tensors once costs what a
** clone does. */
void mt_profile_end(mt_mark *mark, const mt_opinfo *op, mt_status status, int nin,
                    mt_tensor *const *in, int nout, mt_tensor *const *out);
/* The host is about to wait for a GPU: let it run. */
void mt_profile_release(mt_profile *p);
void mt_profile_allocated(mt_profile *p, size_t bytes);

#endif
