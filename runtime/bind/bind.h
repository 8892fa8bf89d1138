/* runtime/bind/bind.h -- shared by the binding's files: checks, results, errors. */
#ifndef MT_BIND_H
#define MT_BIND_H

#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>
#include "runtime/autograd/autograd.h"
#include "runtime/bind/weak.h"

#define MTL_TENSOR "mytensor.Tensor" /* metatable's name in the registry */

/* ---- state (state.c) ---- */

/* The context of this Lua state; it lives in the registry as long as the state. */
mt_context *mtl_context(lua_State *L);
/* First line of every binding that may allocate: steps Lua's collector for what earlier
** calls allocated (DESIGN, section 6), before any argument is read. Returns the
** context. */
mt_context *mtl_enter(lua_State *L);
/* Raise mt_last_error() as a Lua error that names function fname. Its arg, if set,
** gives "bad argument #arg to 'fname' (text)", counted as Lua does for method calls.
** MT_ELUA: rethrow the value that waits. Never returns. */
int mtl_raise(lua_State *L, const char *fname);
/* Was the running C function called as x:f(...)? */
bool mtl_is_method_call(lua_State *L);
/* "bad argument #arg to 'fname' (text)"; arg counts stack positions from 1 and is
** adjusted where the call was a method call. Never returns. */
int mtl_argerror(lua_State *L, int arg, const char *fname, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A Lua function called from below bind (a hook, mt.Function) raised: pop the error
** value, keep it for mtl_raise, return MT_ELUA. */
mt_status mtl_keep_error(lua_State *L);

/* ---- tensors (userdata.c) ---- */

/* A new userdata that holds NULL; fill *result with a reference. */
mt_tensor **mtl_new_tensor(lua_State *L);
/* Push a userdata for t and take over the caller's reference (also on error). */
void mtl_push_tensor(lua_State *L, mt_tensor *t);
/* The tensor at arg, or an error that names fname; an error too if it was freed. */
mt_tensor *mtl_check_tensor(lua_State *L, int arg, const char *fname);
/* Is it a Tensor userdata? True also for a freed one. */
bool mtl_is_tensor(lua_State *L, int arg);
/* NULL if it is no tensor (or a freed one). */
mt_tensor *mtl_to_tensor(lua_State *L, int arg);
/* The tensor at arg; a number or boolean becomes a wrapped 0-dim one, which is left in
** the stack at arg in its place, so that Lua owns it. */
mt_tensor *mtl_check_operand(lua_State *L, int arg, const char *fname);

/* Userdata of ours begin with the address of what their file names their kind: the
** debug library can give any userdata any metatable. The one at arg; NULL: another. */
static inline void *mtl_to_kind(lua_State *L, int arg, const void *kind, size_t size) {
  if (lua_type(L, arg) != LUA_TUSERDATA || lua_rawlen(L, arg) != size) return NULL;
  void *const p = lua_touserdata(L, arg);
  return *(const void **)p == kind ? p : NULL;
}

/* ---- arguments (args.c) ---- */

/* A dim from 1, negative from the end -> from 0. */
int mtl_check_dim(lua_State *L, int arg, const char *fname, int ndim);
/* An integer, or a float with an integer's value. */
int64_t mtl_check_int(lua_State *L, int arg, const char *fname);
/* Integers arg, arg + 1, ... or one table of them; returns how many stack slots it
** took. At most MT_MAX_DIMS. */
int mtl_check_shape(lua_State *L, int arg, const char *fname, int *ndim /* [out] */,
                    int64_t *shape /* [out] */);
mt_dtype mtl_check_dtype(lua_State *L, int arg, const char *fname);
mt_device mtl_check_device(lua_State *L, int arg, const char *fname);
/* What "cuda" without a number means now. */
mt_device mtl_current_gpu(lua_State *L);
/* mt_device_parse, but "cuda" is the current GPU. */
mt_status mtl_parse_device(lua_State *L, const char *name, mt_device *d /* [out] */);

/* What opts = {dtype=, device=, requires_grad=} at arg says (nil: defaults). Unknown
** keys are errors. */
typedef struct mtl_options {
  mt_dtype dtype;
  mt_device device;
  bool requires_grad;
  bool has_dtype;
} mtl_options;
mtl_options mtl_check_options(lua_State *L, int arg, const char *fname);

/* ---- op calls (call.c) ---- */

/* Parse the arguments of an op from stack position first on by its signature, run it,
** push the results; returns their number. fname: for errors. */
int mtl_call_op(lua_State *L, mt_op op, int first, const char *fname);

/* ---- each file's part of the module; stack: module table on top, left there ---- */
void mtl_open_ops(lua_State *L);    /* ops.c: mt.NAME, mt.ops; Tensor:NAME, NAME_ */
void mtl_open_tensor(lua_State *L); /* userdata.c: metatable, metadata methods */
void mtl_open_constructors(lua_State *L); /* constructors.c: zeros, tensor, rand, ... */
void mtl_open_index(lua_State *L);        /* index.c: t[i], t[i] = v; split, chunk */
void mtl_open_arithmetic(lua_State *L);   /* arithmetic.c: metamethods + - * / ... */
void mtl_open_convert(lua_State *L);  /* convert.c: to, float, totable, item, bytes */
void mtl_open_show(lua_State *L);     /* show.c: tostring, show, format, printoptions */
void mtl_open_memory(lua_State *L);   /* memory.c: stats, limits, scope, keep, free */
void mtl_open_autograd(lua_State *L); /* autograd.c: backward, grad, no_grad, hooks */
void mtl_open_function(lua_State *L); /* function.c: mt.Function */
void mtl_open_fuse(lua_State *L);     /* fuse.c: what mt.fuse is made of */
void mtl_open_pairs(lua_State *L);    /* pairs.c: nn.*_forward, nn.*_backward */
void mtl_open_optim(lua_State *L);    /* optim.c: fused optimiser steps */
void mtl_open_system(lua_State *L);   /* system.c: info, seed, threads, device */
void mtl_open_cuda(lua_State *L);     /* cuda.c, stream.c: mt.cuda */
void mtl_open_kernel(lua_State *L);   /* kernel.c: mt.cuda.kernel, after mt.cuda */
void mtl_open_backends(lua_State *L); /* backends.c: mt.backends */
void mtl_open_pinned(lua_State *L);   /* pinned.c: pin_memory, is_pinned */
void mtl_open_profile(lua_State *L);  /* profile.c: starts and stops mt.profile */
void mtl_open_files(lua_State *L);    /* files.c: gunzip, json, isatty, clock */
void mtl_open_build(lua_State *L); /* build.c: what mt.extension needs of the system */

/* Push Tensor's method table (fields are methods); the metatable below it. */
void mtl_push_methods(lua_State *L);
void mtl_push_metatable(lua_State *L);

#endif
