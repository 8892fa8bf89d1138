/* runtime/bind/autograd.h -- what autograd.c and function.c share: modes that end with
** their scope, and calls from the backward walk into Lua. */
#ifndef MT_BIND_AUTOGRAD_H
#define MT_BIND_AUTOGRAD_H

#include "runtime/bind/bind.h"

/* A flag of the context (grad_enabled, anomaly) that has another value for a while. */
typedef struct mtl_guard {
  const void *kind;
  bool *flag;
  bool outer;    /* its value outside */
  bool inside;   /* does the flag have the inner value now? */
  lua_State *co; /* suspended in the middle, to be closed; NULL: none */
} mtl_guard;

/* Set the flag, and push a to-be-closed value that sets it back, also after an error. */
mtl_guard *mtl_guard_push(lua_State *L, bool *flag, bool value);
/* lua_call with all results, and set it back. An error that ends a coroutine closes
** nothing: there the call is protected, and the error goes on from here. */
void mtl_guard_call(lua_State *L, mtl_guard *g, int nargs);

/* Call fn with argument p, from below bind. Its error waits for mtl_raise: MT_ELUA. */
mt_status mtl_protected(lua_CFunction fn, void *p);

/* Parts of mtl_open_autograd; stack: module */
void mtl_open_hooks(lua_State *L); /* hooks.c: register_hook, remove_hook */
void mtl_open_modes(lua_State *L); /* modes.c: no_grad, enable_grad, detect_anomaly */

#endif
