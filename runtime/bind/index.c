/* runtime/bind/index.c -- t[key] and t[key] = value: methods, properties, elements. */
#include "runtime/bind/key.h"

#include <string.h>

/* fname: of a method, NULL for t[key]. */
static int raise_last(lua_State *L, const char *fname) {
  if (mt_last_error()->status == MT_ELUA) return mtl_raise(L, "index");
  return luaL_error(L, "%s%s%s", fname ? fname : "", fname ? ": " : "",
                    mt_last_error()->text);
}

static int raise_at(lua_State *L, int arg, const char *fname, const char *text) {
  return fname ? mtl_argerror(L, arg, fname, "%s", text) : luaL_error(L, "%s", text);
}

static mt_tensor *check_live(lua_State *L, int arg) {
  mt_tensor *x = mtl_to_tensor(L, arg);
  if (!x) luaL_error(L, "attempt to index a %s", mtl_typename(L, arg));
  return x;
}

/* y = x[key] */
static int get_elements(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_tensor **result = mtl_new_tensor(L);
  mt_tensor *x = check_live(L, 1);
  mtl_text e;
  mtl_key k;
  mt_calc c;
  if (!mtl_read_key(L, 2, &x->v, &k, &e)) return luaL_error(L, "%s", e.s);
  mt_retain(x);
  mtl_key_retain(&k);
  mt_calc_begin(&c, ctx);
  mt_tensor *y = mtl_read_elements(&c, x, &k);
  const mt_status status = mt_calc_end(&c, 1, &y);
  mt_release(x);
  mtl_key_release(&k);
  if (status != MT_OK) return raise_last(L, NULL);
  *result = y;
  return 1;
}

/* x[key] = value, or with accumulate value added; stack: x, key, value */
static mt_status put_elements(lua_State *L, bool accumulate, const char *fname) {
  mt_context *ctx = mtl_enter(L);
  const int type = lua_type(L, 3);
  mtl_text e;
  if (type != LUA_TNUMBER && type != LUA_TBOOLEAN && !mtl_to_tensor(L, 3)) {
    mtl_say(&e, "number, boolean or tensor expected as the new value, got %s",
            mtl_typename(L, 3));
    raise_at(L, 3, fname, e.s);
  }
  mtl_check_operand(L, 3, "index");
  mt_tensor *x = check_live(L, 1), *value = mtl_to_tensor(L, 3);
  mtl_key k;
  mt_calc c;
  if (!value) raise_at(L, 3, fname, "the new value was freed");
  if (!mtl_read_key(L, 2, &x->v, &k, &e)) raise_at(L, 2, fname, e.s);
  if (!accumulate && mt_check_number(value, x->v.dtype, 2) != MT_OK) {
    raise_at(L, 3, fname, mt_last_error()->text);
  }
  mt_retain(x);
  mt_retain(value);
  mtl_key_retain(&k);
  mt_calc_begin(&c, ctx);
  mtl_write_elements(&c, x, &k, value, accumulate);
  const mt_status status = mt_calc_end(&c, 0, NULL);
  mt_release(x);
  mt_release(value);
  mtl_key_release(&k);
  return status;
}

static int set_elements(lua_State *L) {
  return put_elements(L, false, NULL) == MT_OK ? 0 : raise_last(L, NULL);
}

/* stack: x, key, value, accumulate; leaves x */
static int index_put(lua_State *L, const char *fname) {
  const bool accumulate = lua_toboolean(L, 4);
  if (!lua_isnil(L, 4) && !lua_isboolean(L, 4)) {
    mtl_argerror(L, 4, fname, "accumulate: boolean expected, got %s",
                 mtl_typename(L, 4));
  }
  lua_settop(L, 3);
  if (put_elements(L, accumulate, fname) != MT_OK) return raise_last(L, fname);
  lua_settop(L, 1);
  return 1;
}

/* x = x:index_put_(key, value, accumulate = false): x[key] = value, or value added to it,
** as often as the key names a place */
static int tensor_index_put_inplace(lua_State *L) {
  mtl_check_tensor(L, 1, "index_put_");
  lua_settop(L, 4);
  return index_put(L, "index_put_");
}

/* y = x:index_put(key, value, accumulate = false): a copy of x with that done */
static int tensor_index_put(lua_State *L) {
  mtl_check_tensor(L, 1, "index_put");
  lua_settop(L, 4);
  lua_pushvalue(L, 1);
  mtl_call_op(L, MT_OP_clone, 5, "index_put");
  lua_replace(L, 1);
  lua_settop(L, 4);
  return index_put(L, "index_put");
}

/* x.grad, x.requires_grad; nil for other names, as libraries that look at values of any
** kind expect. */
static int get_property(lua_State *L, const char *name) {
  if (strcmp(name, "requires_grad") == 0) {
    lua_pushboolean(L, mt_requires_grad(check_live(L, 1)));
  } else if (strcmp(name, "grad") == 0) {
    mt_tensor **result = mtl_new_tensor(L);
    mt_tensor *g = mt_grad_of(check_live(L, 1));
    if (g)
      *result = mt_retain(g);
    else
      lua_pushnil(L);
  } else {
    lua_pushnil(L);
  }
  return 1;
}

/* __index; upvalue: the table of methods */
static int tensor_index(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING) return get_elements(L);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  return get_property(L, lua_tostring(L, 2));
}

static int set_property(lua_State *L, const char *name) {
  mt_tensor *x = check_live(L, 1);
  if (strcmp(name, "requires_grad") == 0) {
    if (!lua_isboolean(L, 3)) {
      return luaL_error(L, "requires_grad is a boolean, got %s", mtl_typename(L, 3));
    }
    if (mt_set_requires_grad(x, lua_toboolean(L, 3)) != MT_OK)
      return raise_last(L, NULL);
  } else if (strcmp(name, "grad") == 0) {
    mt_tensor *g = mtl_to_tensor(L, 3);
    if (!g && !lua_isnil(L, 3)) {
      return luaL_error(L, "grad is a tensor or nil, got %s", mtl_typename(L, 3));
    }
    if (mt_set_grad(x, g) != MT_OK) return raise_last(L, NULL);
  } else {
    return luaL_error(
        L, "a tensor has no field '%s': grad and requires_grad can be set", name);
  }
  return 0;
}

/* __newindex */
static int tensor_newindex(lua_State *L) {
  if (lua_type(L, 2) == LUA_TSTRING) return set_property(L, lua_tostring(L, 2));
  return set_elements(L);
}

static const luaL_Reg functions[] = {{"index_put", tensor_index_put},
                                     {"index_put_", tensor_index_put_inplace},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_index(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  mtl_push_metatable(L);
  mtl_push_methods(L);
  luaL_setfuncs(L, functions, 0);
  lua_pushcclosure(L, tensor_index, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, tensor_newindex);
  lua_setfield(L, -2, "__newindex");
  lua_pop(L, 1);
  mtl_open_split(L);
}
