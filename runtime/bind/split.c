/* runtime/bind/split.c -- a tensor cut into a table of views: split, chunk, unbind. */
#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

#include <inttypes.h>
#include <string.h>

/* The dim at arg, or in a table {dim = } or {axis = }; from 0. Preset: the first. */
static int check_dim(lua_State *L, int arg, const char *fname, const mt_view *x) {
  mtl_text e;
  int64_t dim = 1;
  if (x->ndim == 0) mtl_argerror(L, 1, fname, "a 0-dim tensor has no dims to cut");
  if (mtl_is_options(L, arg)) {
    lua_pushnil(L);
    while (lua_next(L, arg)) {
      const char *const key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
      if (strcmp(key, "dim") != 0 && strcmp(key, "axis") != 0) {
        mtl_argerror(L, arg, fname, "unknown option; '%s' takes dim", fname);
      }
      lua_pop(L, 1);
    }
    if (lua_getfield(L, arg, "dim") == LUA_TNIL) lua_getfield(L, arg, "axis");
    lua_replace(L, arg);
    lua_settop(L, arg);
  }
  if (!lua_isnoneornil(L, arg) && !mtl_get_int(L, arg, &dim, &e)) {
    mtl_argerror(L, arg, fname, "%s", e.s);
  }
  if (!mtl_dim_from_one(&dim, x->ndim, x, &e)) mtl_argerror(L, arg, fname, "%s", e.s);
  return (int)dim;
}

/* stack: the table on top. table[i] = op(x, attributes of the tensor at 1) */
static void add_view(lua_State *L, mt_op op, lua_Integer i, const char *fname,
                     int nattr, const int64_t *attr) {
  const int table = lua_gettop(L);
  mtl_check_interrupt(L); /* a dim of size 2^40 costs nothing beside one of size 0 */
  lua_pushvalue(L, 1);
  for (int k = 0; k < nattr; k++) lua_pushinteger(L, attr[k] + (k < 2)); /* from 1 */
  mtl_call_op(L, op, table + 1, fname);
  lua_rawseti(L, table, i);
  lua_settop(L, table);
}

static int push_pieces(lua_State *L, const char *fname, int dim, int64_t size,
                       int64_t piece) {
  lua_newtable(L);
  int64_t start = 0;
  lua_Integer i = 1;
  do { /* an empty dim gives one empty piece */
    const int64_t rest = size - start;
    const int64_t attr[] = {dim, start, piece < rest ? piece : rest};
    add_view(L, MT_OP_narrow, i++, fname, 3, attr);
    start += attr[2];
  } while (start < size);
  return 1;
}

/* The size of piece i of the list at 2. */
static int64_t piece_size(lua_State *L, lua_Integer i, int64_t rest, const mt_view *x) {
  mtl_text e;
  int64_t size;
  lua_rawgeti(L, 2, i);
  if (!mtl_get_int(L, -1, &size, &e)) {
    mtl_argerror(L, 2, "split", "size[%d]: %s", (int)i, e.s);
  }
  lua_pop(L, 1);
  if (size < 0 || size > rest) {
    mtl_argerror(L, 2, "split", "size[%d] is %lld, but %lld of shape %s are left",
                 (int)i, (long long)size, (long long)rest, mt_view_text(x));
  }
  return size;
}

/* {y...} = x:split(size or {sizes...}, dim = 1) */
static int tensor_split(lua_State *L) {
  mtl_enter(L);
  const mt_view x = mtl_check_tensor(L, 1, "split")->v;
  lua_settop(L, 3);
  const int dim = check_dim(L, 3, "split", &x);
  const int64_t size = x.shape[dim];
  if (!lua_istable(L, 2)) {
    const int64_t piece = mtl_check_int(L, 2, "split");
    if (piece < 1) mtl_argerror(L, 2, "split", "a size of 1 or more expected");
    return push_pieces(L, "split", dim, size, piece);
  }
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
  int64_t sum = 0;
  for (lua_Integer i = 1; i <= n; i++) sum += piece_size(L, i, size - sum, &x);
  if (sum != size) {
    mtl_argerror(L, 2, "split", "the sizes add up to %lld, dim %d of shape %s has %lld",
                 (long long)sum, dim + 1, mt_view_text(&x), (long long)size);
  }
  lua_newtable(L);
  int64_t start = 0;
  for (lua_Integer i = 1; i <= n; i++) {
    const int64_t attr[] = {dim, start, piece_size(L, i, size - start, &x)};
    add_view(L, MT_OP_narrow, i, "split", 3, attr);
    start += attr[2];
  }
  return 1;
}

/* {y...} = x:chunk(n, dim = 1): n pieces at most, all of one size but the last */
static int tensor_chunk(lua_State *L) {
  mtl_enter(L);
  const mt_view x = mtl_check_tensor(L, 1, "chunk")->v;
  lua_settop(L, 3);
  const int dim = check_dim(L, 3, "chunk", &x);
  const int64_t n = mtl_check_int(L, 2, "chunk"), size = x.shape[dim];
  if (n < 1) mtl_argerror(L, 2, "chunk", "1 piece or more expected");
  const int64_t piece = size / n + (size % n != 0);
  return push_pieces(L, "chunk", dim, size, piece > 0 ? piece : 1);
}

static int push_slices(lua_State *L, const char *fname, int dim, int64_t n) {
  lua_newtable(L);
  for (int64_t i = 0; i < n; i++) {
    const int64_t attr[] = {dim, i};
    add_view(L, MT_OP_select, i + 1, fname, 2, attr);
  }
  return 1;
}

/* {y...} = x:unbind(dim = 1): the slices along dim, which disappears */
static int tensor_unbind(lua_State *L) {
  mtl_enter(L);
  const mt_view x = mtl_check_tensor(L, 1, "unbind")->v;
  lua_settop(L, 2);
  const int dim = check_dim(L, 2, "unbind", &x);
  return push_slices(L, "unbind", dim, x.shape[dim]);
}

/* The vectors of where x at 1 is not 0. */
int mtl_where_true(lua_State *L) {
  const int ndim = mtl_check_tensor(L, 1, "where")->v.ndim;
  if (ndim == 0) mtl_argerror(L, 1, "where", "a tensor with dims expected");
  mtl_call_op(L, MT_OP_nonzero, 1, "where");
  lua_replace(L, 1); /* (count, ndim) */
  return push_slices(L, "where", 1, ndim);
}

static const luaL_Reg functions[] = {{"split", tensor_split},
                                     {"chunk", tensor_chunk},
                                     {"unbind", tensor_unbind},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_split(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  mtl_push_methods(L);
  luaL_setfuncs(L, functions, 0);
  lua_pop(L, 1);
}
