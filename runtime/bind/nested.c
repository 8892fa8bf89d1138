/* runtime/bind/nested.c -- nested Lua tables to tensors, with errors that name the
** element. */
#include <math.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/guard.h"

typedef struct reader {
  lua_State *L;
  int arg; /* where the table stands, and for which function: for errors */
  const char *fname;
  int leaf; /* Lua type of the elements; LUA_TNONE: there are none */
  mt_dtype dtype;
  int ndim;
  int64_t shape[MT_MAX_DIMS];
  int64_t at[MT_MAX_DIMS]; /* position of what is being read, from 1 */
  char *next;              /* where the next element goes */
} reader;

/* ---- errors ---- */

/* Push the position of the element being read, down to dim d: "[2][3]". */
static const char *push_position(reader *r, int d) {
  luaL_Buffer b;
  luaL_buffinit(r->L, &b);
  for (int i = 0; i <= d; i++) {
    lua_pushfstring(r->L, "[%I]", (LUAI_UACINT)r->at[i]);
    luaL_addvalue(&b);
  }
  luaL_pushresult(&b);
  return lua_tostring(r->L, -1);
}

/* stack: the offending value on top */
static void wrong_type(reader *r, int d) {
  lua_State *L = r->L;
  const int type = lua_type(L, -1);
  const char *got = mtl_typename(L, -1);
  const char *hint = mtl_to_tensor(L, -1) != NULL ? "; mt.stack joins tensors" : "";
  const char *position = d >= 0 ? push_position(r, d) : "";
  if (d < r->ndim - 1 && type != LUA_TNIL) {
    mtl_argerror(L, r->arg, r->fname, "element %s is a %s, not a list of %lld%s",
                 position, got, (long long)r->shape[d + 1], hint);
  } else if (type == LUA_TNIL) {
    mtl_argerror(L, r->arg, r->fname, "element %s is nil", position);
  } else if (type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TTABLE) {
    mtl_argerror(L, r->arg, r->fname, "element %s is a %s, but the first is a %s",
                 position, got, lua_typename(L, r->leaf));
  } else {
    mtl_argerror(L, r->arg, r->fname, "element %s is a %s%s", position, got, hint);
  }
}

static void wrong_length(reader *r, int d, int64_t n) {
  if (d == 0) luaL_error(r->L, "%s: the table changed while it was read", r->fname);
  mtl_argerror(r->L, r->arg, r->fname,
               "ragged: element %s has length %lld, the first has %lld",
               push_position(r, d - 1), (long long)n, (long long)r->shape[d]);
}

static void wrong_range(reader *r, int d) {
  int64_t lo, hi;
  mt_dtype_limits(r->dtype, &lo, &hi);
  const char *position = d >= 0 ? push_position(r, d) : "";
  lua_pushvalue(r->L, d >= 0 ? -2 : -1);
  mtl_argerror(r->L, r->arg, r->fname, "%s%s is %s: %s holds %lld .. %lld",
               d >= 0 ? "element " : "value", position, luaL_tolstring(r->L, -1, NULL),
               mt_dtype_name(r->dtype), (long long)lo, (long long)hi);
}

/* ---- reading ---- */

/* stack: a number on top. Store it as an integer of r->dtype, if that holds it. */
static void store_integer(reader *r, int d) {
  int64_t lo, hi;
  mt_dtype_limits(r->dtype, &lo, &hi);
  if (lua_isinteger(r->L, -1)) {
    const int64_t x = lua_tointeger(r->L, -1);
    if (x < lo || x > hi) wrong_range(r, d);
    mt_store_i64(r->dtype, r->next, x);
  } else {
    const double x = trunc(lua_tonumber(r->L, -1));
    /* -lo is a power of two or 0, which hi need not be once it is a double */
    const double above = r->dtype == MT_U8 ? 256.0 : -(double)lo;
    if (!(x >= (double)lo && x < above)) wrong_range(r, d);
    mt_store_f64(r->dtype, r->next, x);
  }
}

/* stack: a value of type r->leaf on top; it stands at r->at[0 .. d] */
static void store(reader *r, int d) {
  lua_State *L = r->L;
  if (r->leaf == LUA_TBOOLEAN) {
    mt_store_i64(r->dtype, r->next, lua_toboolean(L, -1));
  } else if (r->dtype == MT_F32) {
    *(float *)r->next = (float)lua_tonumber(L, -1);
  } else if (r->dtype == MT_F64) {
    *(double *)r->next = lua_tonumber(L, -1);
  } else if (MT_IS_INT(r->dtype)) {
    store_integer(r, d);
  } else if (r->dtype == MT_BOOL) {
    mt_store_i64(MT_BOOL, r->next, lua_tonumber(L, -1) != 0);
  } else {
    mt_store_f64(r->dtype, r->next, lua_tonumber(L, -1));
  }
  r->next += mt_dtype_size(r->dtype);
  if (((uintptr_t)r->next & 0xffff) == 0) mtl_check_interrupt(L); /* each 64 KiB */
}

/* stack: a list of n elements on top. Whatever follows element n in a traversal is an
** error unless it is one of the elements, which may lie there in any order. */
static void check_other_keys(reader *r, int d, int64_t n) {
  lua_State *L = r->L;
  if (n > 0) {
    lua_pushinteger(L, n);
  } else {
    lua_pushnil(L);
  }
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    int is_int;
    const lua_Integer key = lua_tointegerx(L, -1, &is_int);
    if (lua_type(L, -1) == LUA_TNUMBER && is_int && key >= 1 && key <= n) continue;
    const char *position = d > 0 ? push_position(r, d - 1) : "";
    lua_pushvalue(L, d > 0 ? -2 : -1);
    mtl_argerror(L, r->arg, r->fname, "the list %s%shas %lld elements and the key %s",
                 position, d > 0 ? " " : "", (long long)n, luaL_tolstring(L, -1, NULL));
  }
}

/* stack: on top the list at r->at[0 .. d - 1], which is to have shape[d ..] */
static void read_list(reader *r, int d) {
  lua_State *L = r->L;
  const int64_t n = r->shape[d];
  const bool last = d == r->ndim - 1;
  const int64_t length = (int64_t)lua_rawlen(L, -1);
  if (length != n) wrong_length(r, d, length);
  for (r->at[d] = 1; r->at[d] <= n; r->at[d]++) {
    if (lua_rawgeti(L, -1, r->at[d]) != (last ? r->leaf : LUA_TTABLE)) wrong_type(r, d);
    if (last) {
      store(r, d);
    } else {
      read_list(r, d + 1);
    }
    lua_pop(L, 1);
  }
  check_other_keys(r, d, n);
}

/* The shape, and the type of the elements, as the first of each list tells them. */
static void measure(reader *r) {
  lua_State *L = r->L;
  const int top = lua_gettop(L);
  lua_pushvalue(L, r->arg);
  while (lua_type(L, -1) == LUA_TTABLE) {
    if (r->ndim == MT_MAX_DIMS) {
      mtl_argerror(L, r->arg, r->fname, "nested deeper than %d levels", MT_MAX_DIMS);
    }
    r->at[r->ndim] = 1;
    const int64_t n = (int64_t)lua_rawlen(L, -1);
    r->shape[r->ndim++] = n;
    if (n == 0) {
      lua_settop(L, top);
      return;
    }
    lua_rawgeti(L, -1, 1);
  }
  r->leaf = lua_type(L, -1);
  if (r->leaf != LUA_TNUMBER && r->leaf != LUA_TBOOLEAN) wrong_type(r, r->ndim - 1);
  lua_settop(L, top);
}

void mtl_read_nested(lua_State *L, int arg, const char *fname, mtl_options *o) {
  const int type = lua_type(L, arg);
  if (type != LUA_TTABLE && type != LUA_TNUMBER && type != LUA_TBOOLEAN) {
    const char *got = luaL_typename(L, arg), *hint = "";
    if (mtl_to_tensor(L, arg) != NULL)
      got = "tensor", hint = "; clone it, or use :to()";
    mtl_argerror(L, arg, fname, "table, number or boolean expected, got %s%s", got,
                 hint);
  }
  mt_context *ctx = mtl_context(L);
  reader r = {.L = L, .arg = arg, .fname = fname, .leaf = LUA_TNONE};
  luaL_checkstack(L, 2 * MT_MAX_DIMS + 10, NULL);
  measure(&r);
  if (!o->has_dtype && r.leaf == LUA_TBOOLEAN) o->dtype = MT_BOOL;
  r.dtype = o->dtype;
  const mt_device cpu = {MT_CPU, 0};
  mt_tensor **t = mtl_new_tensor(L);
  mt_guard_name(fname);
  if (mt_empty(ctx, r.dtype, cpu, r.ndim, r.shape, t) != MT_OK) mtl_raise(L, fname);
  r.next = (*t)->v.data;
  lua_pushvalue(L, arg);
  if (r.ndim > 0) {
    read_list(&r, 0);
  } else {
    store(&r, -1);
  }
  lua_pop(L, 1);
  if (!mt_same_device(o->device, cpu)) {
    mt_tensor *host = *t;
    t = mtl_new_tensor(L);
    if (mt_convert(ctx, host, r.dtype, o->device, t) != MT_OK) mtl_raise(L, fname);
    lua_replace(L, -2);
  }
}
