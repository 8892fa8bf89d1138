/* runtime/bind/args.h -- reading Lua values as attributes; errors come back as text. */
#ifndef MT_ARGS_H
#define MT_ARGS_H

#include "runtime/bind/bind.h"

typedef struct mtl_text {
  char s[400];
} mtl_text;

/* Write an error and return false: return mtl_say(e, "dim %d ...", d). */
bool mtl_say(mtl_text *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What stands at index, for messages: "string", "tensor", "no value". */
const char *mtl_typename(lua_State *L, int index);

/* Each converts the value at index, or says what is wrong with it. None raises. */
bool mtl_get_int(lua_State *L, int index, int64_t *x, mtl_text *e);
/* One integer or a list of at most MT_MAX_DIMS. */
bool mtl_get_ints(lua_State *L, int index, int *n, int64_t *x, mtl_text *e);
bool mtl_get_dtype(lua_State *L, int index, mt_dtype *d, mtl_text *e);

/* A dim from 1, negative from the end -> from 0. of: the tensor that it belongs to, for
** the message; NULL: none. A 0-dim tensor has dims 1 and -1, as in PyTorch. */
bool mtl_dim_from_one(int64_t *dim, int ndim, const mt_view *of, mtl_text *e);
/* A position from 1, negative from the end, in dim (from 0) of x; end: one behind the
** last is allowed, too. */
bool mtl_position_from_one(int64_t *position, const mt_view *x, int dim, bool end,
                           mtl_text *e);

/* split, chunk, unbind (split.c); stack: module */
void mtl_open_split(lua_State *L);
/* stack: cond. Pushes where it is not 0 (split.c). */
int mtl_where_true(lua_State *L);

/* Is the value at index a table with a string key? */
bool mtl_is_options(lua_State *L, int index);

#endif
