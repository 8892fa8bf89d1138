/* runtime/bind/call.h -- one call of an op from Lua, while its arguments are read. */
#ifndef MT_BIND_CALL_H
#define MT_BIND_CALL_H

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

typedef struct mtl_call {
  lua_State *L;
  const mt_opinfo *op;
  const char *fname;
  int first;             /* stack position of the first argument */
  int options;           /* stack position of the options table; 0: none */
  int at[MT_MAX_PARAMS]; /* stack position of each parameter's value; 0: not given */
  int more;       /* further values behind the last parameter's that belong to it */
  uint32_t given; /* bit k: there is a value for parameter k */
  uint32_t named; /* bit k: it stood in the options table */
  mt_attr attr[MT_MAX_ATTRS];
  int nin;
  mt_tensor **in;
  mt_tensor *few[MT_MAX_PARAMS]; /* in, but for a list */
  mtl_box *box[MT_MAX_PARAMS];   /* where few is read from; NULL: not given */
} mtl_call;

/* Errors that name parameter k: "bad argument #2 to 'sum' (text)". None returns. */
int mtl_raise_param(const mtl_call *c, int k, const char *text);
int mtl_raise_type(const mtl_call *c, int k, const char *got);

/* Read the attributes that are given, after the inputs; presets for the others. */
void mtl_read_attributes(mtl_call *c);

#endif
