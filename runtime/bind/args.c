/* runtime/bind/args.c -- reads dims, positions, shapes, dtypes, devices and options. */
#include "runtime/bind/args.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool mtl_say(mtl_text *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(e->s, sizeof e->s, format, args);
  va_end(args);
  return false;
}

const char *mtl_typename(lua_State *L, int index) {
  if (mtl_to_tensor(L, index)) return "tensor";
  if (mtl_is_tensor(L, index)) return "freed tensor";
  const char *name = luaL_typename(L, index);
  const int type = luaL_getmetafield(L, index, "__name"); /* which then owns the text */
  if (type == LUA_TSTRING) name = lua_tostring(L, -1);
  if (type != LUA_TNIL) lua_pop(L, 1);
  return name;
}

/* ---- values ---- */

bool mtl_get_int(lua_State *L, int index, int64_t *x, mtl_text *e) {
  if (lua_type(L, index) != LUA_TNUMBER) { /* strings are not converted */
    return mtl_say(e, "integer expected, got %s", mtl_typename(L, index));
  }
  int ok;
  *x = lua_tointegerx(L, index, &ok);
  if (ok) return true;
  return mtl_say(e, "integer expected, got %.14g", lua_tonumber(L, index));
}

/* How many keys a table has; counts up to most. */
static int count_keys(lua_State *L, int index, int most) {
  int n = 0;
  index = lua_absindex(L, index);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    lua_pop(L, 1);
    if (++n == most) {
      lua_pop(L, 1);
      break;
    }
  }
  return n;
}

bool mtl_get_ints(lua_State *L, int index, int *n, int64_t *x, mtl_text *e) {
  if (lua_type(L, index) == LUA_TNUMBER) {
    *n = 1;
    return mtl_get_int(L, index, x, e);
  }
  if (!lua_istable(L, index)) {
    return mtl_say(e, "integer or list of integers expected, got %s",
                   mtl_typename(L, index));
  }
  const lua_Unsigned length = lua_rawlen(L, index);
  if (length > MT_MAX_DIMS) {
    return mtl_say(e, "%llu numbers, at most %d are possible",
                   (unsigned long long)length, MT_MAX_DIMS);
  }
  *n = (int)length;
  for (int i = 0; i < *n; i++) {
    mtl_text why;
    lua_rawgeti(L, index, i + 1);
    const bool ok = mtl_get_int(L, -1, &x[i], &why);
    lua_pop(L, 1);
    if (!ok) return mtl_say(e, "[%d]: %.300s", i + 1, why.s);
  }
  if (count_keys(L, index, *n + 1) == *n) return true;
  return mtl_say(e, "a list of integers has keys that are no positions, or holes");
}

bool mtl_get_dtype(lua_State *L, int index, mt_dtype *d, mtl_text *e) {
  if (lua_type(L, index) != LUA_TSTRING) {
    return mtl_say(e, "dtype name expected, got %s", mtl_typename(L, index));
  }
  const char *name = lua_tostring(L, index);
  if (mt_dtype_parse(name, d)) return true;
  return mtl_say(e, "unknown dtype '%.40s'", name);
}

bool mtl_dim_from_one(int64_t *dim, int ndim, const mt_view *of, mtl_text *e) {
  const int64_t d = *dim;
  const int limit = ndim ? ndim : 1;
  if (d >= 1 && d <= limit) {
    *dim = d - 1;
    return true;
  }
  if (d < 0 && d >= -limit) {
    *dim = d + limit;
    return true;
  }
  return mtl_say(e, "dim %" PRId64 " is out of range%s%s: 1 .. %d or -%d .. -1", d,
                 of ? " for shape " : "", of ? mt_view_text(of) : "", limit, limit);
}

bool mtl_position_from_one(int64_t *position, const mt_view *x, int dim, bool end,
                           mtl_text *e) {
  const int64_t p = *position, size = x->ndim ? x->shape[dim] : 0;
  if (p >= 1 && p <= size + (end ? 1 : 0)) {
    *position = p - 1;
    return true;
  }
  if (p < 0 && p >= -size) {
    *position = p + size;
    return true;
  }
  if (size == 0) {
    return mtl_say(e,
                   "index %" PRId64 " is out of range for dim %d of shape %s, which is"
                   " empty",
                   p, dim + 1, mt_view_text(x));
  }
  return mtl_say(e,
                 "index %" PRId64
                 " is out of range for dim %d of shape %s: 1 .. %" PRId64
                 " or -%" PRId64 " .. -1",
                 p, dim + 1, mt_view_text(x), size, size);
}

bool mtl_is_options(lua_State *L, int index) {
  if (!lua_istable(L, index)) return false;
  index = lua_absindex(L, index);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) == LUA_TSTRING) {
      lua_pop(L, 1);
      return true;
    }
  }
  return false;
}

/* ---- checks that raise ---- */

int mtl_check_dim(lua_State *L, int arg, const char *fname, int ndim) {
  mtl_text e;
  int64_t dim;
  if (!mtl_get_int(L, arg, &dim, &e) || !mtl_dim_from_one(&dim, ndim, NULL, &e)) {
    mtl_argerror(L, arg, fname, "%s", e.s);
  }
  return (int)dim;
}

int64_t mtl_check_int(lua_State *L, int arg, const char *fname) {
  mtl_text e;
  int64_t x;
  if (!mtl_get_int(L, arg, &x, &e)) mtl_argerror(L, arg, fname, "%s", e.s);
  return x;
}

int mtl_check_shape(lua_State *L, int arg, const char *fname, int *ndim,
                    int64_t *shape) {
  mtl_text e;
  if (lua_istable(L, arg)) {
    if (mtl_is_options(L, arg)) {
      mtl_argerror(L, arg, fname, "sizes expected, got a table with named fields");
    }
    if (!mtl_get_ints(L, arg, ndim, shape, &e)) {
      mtl_argerror(L, arg, fname, "shape%s%s", e.s[0] == '[' ? "" : ": ", e.s);
    }
    return 1;
  }
  const int top = lua_gettop(L);
  int n = 0;
  while (arg + n <= top && lua_type(L, arg + n) == LUA_TNUMBER) {
    if (n == MT_MAX_DIMS) {
      mtl_argerror(L, arg + n, fname, "more than %d sizes", MT_MAX_DIMS);
    }
    if (!mtl_get_int(L, arg + n, &shape[n], &e)) {
      mtl_argerror(L, arg + n, fname, "%s", e.s);
    }
    n++;
  }
  if (n == 0) {
    mtl_argerror(L, arg, fname, "sizes (numbers or a list) expected, got %s",
                 mtl_typename(L, arg));
  }
  *ndim = n;
  return n;
}

mt_dtype mtl_check_dtype(lua_State *L, int arg, const char *fname) {
  mtl_text e;
  mt_dtype d;
  if (!mtl_get_dtype(L, arg, &d, &e)) mtl_argerror(L, arg, fname, "%s", e.s);
  return d;
}

mt_device mtl_current_gpu(lua_State *L) {
  return (mt_device){MT_CUDA, (int8_t)mtl_context(L)->gpu};
}

mt_status mtl_parse_device(lua_State *L, const char *name, mt_device *d) {
  MT_TRY(mt_device_parse(name, d));
  if (strcmp(name, "cuda") == 0) *d = mtl_current_gpu(L);
  return MT_OK;
}

static bool get_device(lua_State *L, int index, mt_device *d, mtl_text *e) {
  if (lua_type(L, index) != LUA_TSTRING) {
    return mtl_say(e, "device name expected, got %s", mtl_typename(L, index));
  }
  if (mtl_parse_device(L, lua_tostring(L, index), d) == MT_OK) return true;
  return mtl_say(e, "%.300s", mt_last_error()->text);
}

mt_device mtl_check_device(lua_State *L, int arg, const char *fname) {
  mtl_text e;
  mt_device d;
  if (!get_device(L, arg, &d, &e)) mtl_argerror(L, arg, fname, "%s", e.s);
  return d;
}

/* stack: an options table at arg, a key and its value on top */
static bool read_option(lua_State *L, mtl_options *o, mtl_text *e) {
  mtl_text why;
  if (lua_type(L, -2) != LUA_TSTRING) {
    return mtl_say(e, "an option has a key that is a %s", luaL_typename(L, -2));
  }
  const char *key = lua_tostring(L, -2);
  bool ok = true;
  if (strcmp(key, "dtype") == 0) {
    ok = mtl_get_dtype(L, -1, &o->dtype, &why);
    o->has_dtype = true;
  } else if (strcmp(key, "device") == 0) {
    ok = get_device(L, -1, &o->device, &why);
  } else if (strcmp(key, "requires_grad") == 0) {
    if (!lua_isboolean(L, -1)) {
      ok = mtl_say(&why, "boolean expected, got %s", mtl_typename(L, -1));
    }
    o->requires_grad = lua_toboolean(L, -1);
  } else {
    return mtl_say(e, "unknown option '%.60s'; there are dtype, device, requires_grad",
                   key);
  }
  return ok || mtl_say(e, "option '%s': %.300s", key, why.s);
}

mtl_options mtl_check_options(lua_State *L, int arg, const char *fname) {
  const mt_context *ctx = mtl_context(L);
  mtl_options o = {.dtype = ctx->default_dtype, .device = ctx->default_device};
  mtl_text e;
  if (lua_isnoneornil(L, arg)) return o;
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, fname, "table of options expected, got %s",
                 mtl_typename(L, arg));
  }
  lua_pushnil(L);
  while (lua_next(L, arg)) {
    if (!read_option(L, &o, &e)) mtl_argerror(L, arg, fname, "%s", e.s);
    lua_pop(L, 1);
  }
  return o;
}
