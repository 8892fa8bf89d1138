/* runtime/bind/convert.c -- tensors to other dtypes and devices, to Lua values and
** bytes, and whole tensors compared. */
#include <math.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/guard.h"

static const mt_device cpu = {MT_CPU, 0};

static void raise_if(lua_State *L, const char *fname, mt_status status) {
  if (status != MT_OK) mtl_raise(L, fname);
}

/* mt_convert, while nothing that a finalizer does can free t. */
static mt_status convert_held(mt_context *ctx, mt_tensor *t, mt_dtype dtype,
                              mt_device device, mt_tensor **out /* [out] */) {
  mt_retain(t);
  const mt_status status = mt_convert(ctx, t, dtype, device, out);
  mt_release(t);
  return status;
}

mt_tensor *mtl_push_on_cpu(lua_State *L, int arg, int dtype, const char *fname) {
  mt_context *ctx = mtl_context(L);
  mt_tensor **out = mtl_new_tensor(L);
  mt_tensor *t = mtl_check_tensor(L, arg, fname);
  const mt_dtype wanted = dtype < 0 ? t->v.dtype : (mt_dtype)dtype;
  if (t->v.dtype == wanted && mt_same_device(mt_device_of(t), cpu) &&
      mt_is_contiguous(&t->v)) {
    *out = mt_retain(t);
  } else {
    raise_if(L, fname, convert_held(ctx, t, wanted, cpu, out));
  }
  return *out;
}

/* ---- dtypes and devices ---- */

static mt_status apply_held(mt_context *ctx, mt_op op, mt_tensor *x,
                            const mt_attr *attr, mt_tensor **out /* [out] */) {
  mt_tensor *result[MT_MAX_OUTPUTS] = {NULL};
  mt_retain(x);
  const mt_status status = mt_apply(ctx, op, 1, &x, attr, result, NULL);
  mt_release(x);
  if (status == MT_OK) *out = result[0];
  return status;
}

/* What x:to(...) asks for. */
typedef struct target {
  mt_dtype dtype;
  mt_device device;
  bool copy;
  bool non_blocking;
} target;

/* A copy of t that needs not be there yet: it is filled when the current stream has
** come so far. On the CPU it is pinned, since only pinned memory is filled so. */
static mt_status start_copy(mt_context *ctx, mt_tensor *t, const target *to,
                            mt_tensor **out /* [out] */) {
  const mt_device from = mt_device_of(t);
  const bool down = from.kind != MT_CPU && to->device.kind == MT_CPU;
  if (down) {
    MT_TRY(mtl_empty_pinned(ctx, to->dtype, t->v.ndim, t->v.shape, out));
  } else {
    MT_TRY(mt_empty(ctx, to->dtype, to->device, t->v.ndim, t->v.shape, out));
  }
  if (down) mtl_note_pinned(*out, from);
  if (from.kind == MT_CPU && to->device.kind != MT_CPU) mtl_note_pinned(t, to->device);
  return mt_copy_from(ctx, *out, t, true);
}

/* A copy of t elsewhere, recorded, while nothing that a finalizer does can free t.
** *out: also after an error the caller's. */
static mt_status transfer(mt_context *ctx, mt_tensor *t, const target *to,
                          mt_tensor **out /* [out] */) {
  mt_retain(t);
  mt_status status = to->non_blocking ? start_copy(ctx, t, to, out)
                                      : mt_convert(ctx, t, to->dtype, to->device, out);
  if (status == MT_OK) status = mt_record_transfer(ctx, t, *out);
  mt_release(t);
  return status;
}

/* Push what the tensor at arg is turned into: the value at arg itself if it is that
** already and no copy is asked for. Recorded. */
static int convert_to(lua_State *L, mt_context *ctx, int arg, const target *to,
                      const char *fname) {
  mt_tensor **out = mtl_new_tensor(L);
  mt_tensor *t = mtl_check_tensor(L, arg, fname);
  const bool same = mt_same_device(mt_device_of(t), to->device);
  mt_status status = MT_OK;
  if (same && t->v.dtype == to->dtype && !to->copy) {
    lua_pushvalue(L, arg);
  } else if (!same || to->non_blocking) {
    status = transfer(ctx, t, to, out);
  } else if (t->v.dtype != to->dtype) {
    const mt_attr attr = mt_attr_i(to->dtype);
    status = apply_held(ctx, MT_OP__cast, t, &attr, out);
  } else {
    status = apply_held(ctx, MT_OP_clone, t, NULL, out);
  }
  raise_if(L, fname, status);
  return 1;
}

static int convert(lua_State *L, mt_context *ctx, int arg, mt_dtype dtype,
                   mt_device device, const char *fname) {
  const target to = {dtype, device, false, false};
  return convert_to(L, ctx, arg, &to, fname);
}

/* A string at index names a dtype or a device. */
static bool read_name(lua_State *L, int index, target *to, mtl_text *e) {
  const char *name = lua_tostring(L, index);
  if (mt_dtype_parse(name, &to->dtype)) return true;
  if (mtl_parse_device(L, name, &to->device) == MT_OK) return true;
  return mtl_say(e, "'%.60s' is neither a dtype nor a device", name);
}

static bool read_to_options(lua_State *L, int index, target *to, mtl_text *e) {
  mtl_text why;
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (strcmp(key, "dtype") == 0) {
      if (!mtl_get_dtype(L, -1, &to->dtype, &why)) {
        return mtl_say(e, "option 'dtype': %.300s", why.s);
      }
    } else if (strcmp(key, "device") == 0) {
      if (lua_type(L, -1) != LUA_TSTRING) {
        return mtl_say(e, "option 'device': device name expected, got %s",
                       mtl_typename(L, -1));
      }
      if (mtl_parse_device(L, lua_tostring(L, -1), &to->device) != MT_OK) {
        return mtl_say(e, "option 'device': %.300s", mt_last_error()->text);
      }
    } else if (strcmp(key, "copy") == 0) {
      to->copy = lua_toboolean(L, -1);
    } else if (strcmp(key, "non_blocking") == 0) {
      to->non_blocking = lua_toboolean(L, -1);
    } else {
      return mtl_say(
          e, "unknown option '%.60s'; there are dtype, device, copy, non_blocking",
          key);
    }
    lua_pop(L, 1);
  }
  return true;
}

/* x:to(dtype | device | tensor | {dtype=, device=, copy=, non_blocking=}, ...): x
** itself if nothing changes; non_blocking: do not wait for a copy between pinned memory
** and a GPU. The gradient comes back to x's device. Floats lose their fraction on the
** way to integers; beyond the dtype's range they become its nearest number, NaN 0.
** Integers keep their lowest bits: -1 is 255 in uint8 */
static int tensor_to(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const mt_tensor *x = mtl_check_tensor(L, 1, "to");
  const int n = lua_gettop(L);
  target to = {mt_dtype_of(x), mt_device_of(x), false, false};
  mtl_text e;
  if (n == 1) mtl_argerror(L, 2, "to", "dtype or device expected, got no value");
  for (int i = 2; i <= n; i++) {
    const mt_tensor *like = mtl_to_tensor(L, i);
    bool ok = true;
    if (like != NULL) {
      to.dtype = mt_dtype_of(like);
      to.device = mt_device_of(like);
    } else if (lua_type(L, i) == LUA_TSTRING) {
      ok = read_name(L, i, &to, &e);
    } else if (lua_istable(L, i)) {
      ok = read_to_options(L, i, &to, &e);
    } else {
      ok = mtl_say(&e, "dtype, device, tensor or options expected, got %s",
                   mtl_typename(L, i));
    }
    if (!ok) return mtl_argerror(L, i, "to", "%s", e.s);
  }
  return convert_to(L, ctx, 1, &to, "to");
}

/* x:float(), x:double(), x:half(), x:bfloat16(), x:long(), x:int(), x:short(),
** x:char(), x:byte(), x:bool(): x as float32, float64, float16, bfloat16, int64,
** int32, int16, int8, uint8, bool; upvalues hold the dtype and the name */
static int tensor_cast(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const mt_dtype dtype = (mt_dtype)lua_tointeger(L, lua_upvalueindex(1));
  const char *fname = lua_tostring(L, lua_upvalueindex(2));
  const mt_tensor *x = mtl_check_tensor(L, 1, fname);
  return convert(L, ctx, 1, dtype, mt_device_of(x), fname);
}

/* x:cpu(): x in main memory */
static int tensor_cpu(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const mt_tensor *x = mtl_check_tensor(L, 1, "cpu");
  return convert(L, ctx, 1, mt_dtype_of(x), cpu, "cpu");
}

/* x:cuda(): x on the current GPU; an error where there is none */
static int tensor_cuda(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const mt_tensor *x = mtl_check_tensor(L, 1, "cuda");
  return convert(L, ctx, 1, mt_dtype_of(x), mtl_current_gpu(L), "cuda");
}

/* x:gpu(): x on the current GPU; nil and the reason where there is none */
static int tensor_gpu(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const mt_tensor *x = mtl_check_tensor(L, 1, "gpu");
  if (mt_backend_of(mtl_current_gpu(L)) == NULL) {
    lua_pushnil(L);
    lua_pushstring(L, mt_last_error()->text);
    return 2;
  }
  return convert(L, ctx, 1, mt_dtype_of(x), mtl_current_gpu(L), "gpu");
}

/* ---- values ---- */

static void push_element(lua_State *L, mt_dtype dtype, const char *p) {
  if (dtype == MT_BOOL) {
    lua_pushboolean(L, *p != 0);
  } else if (MT_IS_FLOAT(dtype)) {
    lua_pushnumber(L, mt_load_f64(dtype, p));
  } else {
    lua_pushinteger(L, mt_load_i64(dtype, p));
  }
}

/* t:item() -> boolean, integer or float: the only element, as its dtype says */
static int tensor_item(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_tensor *t = mtl_check_tensor(L, 1, "item");
  double f;
  int64_t i;
  raise_if(L, "item", mt_item(ctx, t, &f, &i));
  if (t->v.dtype == MT_BOOL) {
    lua_pushboolean(L, i != 0);
  } else if (MT_IS_FLOAT(t->v.dtype)) {
    lua_pushnumber(L, f);
  } else {
    lua_pushinteger(L, i);
  }
  return 1;
}

/* Push dims d, d + 1, ... of the contiguous v as nested tables; its elements start
** at p. */
static const char *push_nested(lua_State *L, const mt_view *v, int d, const char *p) {
  if (d == v->ndim) {
    if (((uintptr_t)p & 0xffff) == 0) mtl_check_interrupt(L); /* each 64 KiB */
    push_element(L, v->dtype, p);
    return p + mt_dtype_size(v->dtype);
  }
  const int64_t n = v->shape[d];
  lua_createtable(L, n < INT_MAX ? (int)n : INT_MAX, 0);
  for (int64_t i = 1; i <= n; i++) {
    p = push_nested(L, v, d + 1, p);
    lua_rawseti(L, -2, i);
  }
  return p;
}

/* t:totable() -> nested tables: the elements; of a 0-dim t its value */
static int tensor_totable(lua_State *L) {
  mtl_enter(L);
  lua_settop(L, 1);
  const mt_tensor *t = mtl_push_on_cpu(L, 1, -1, "totable");
  luaL_checkstack(L, MT_MAX_DIMS + 4, "totable");
  push_nested(L, &t->v, 0, t->v.data);
  mtl_free_tensor(L, 2);
  return 1;
}

/* x:copy_(src): x overwritten by src, a tensor or number, which is broadcast and
** converted; returns x */
static int tensor_copy_into(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mtl_check_operand(L, 2, "copy_");
  mt_tensor *const in[2] = {mtl_check_tensor(L, 1, "copy_"),
                            mtl_check_tensor(L, 2, "copy_")};
  mt_retain(in[0]), mt_retain(in[1]);
  mt_status status = mt_check_number(in[1], in[0]->v.dtype, 2);
  if (status == MT_OK) status = mt_apply_inplace(ctx, MT_OP__copy, 2, in, NULL);
  mt_release(in[0]), mt_release(in[1]);
  raise_if(L, "copy_", status);
  lua_settop(L, 1);
  return 1;
}

/* x:zero_(): x filled with 0; returns x */
static int tensor_zero(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_tensor *x = mtl_check_tensor(L, 1, "zero_");
  const mt_attr attr = mt_attr_i(0);
  mt_retain(x);
  const mt_status status = mt_apply_inplace(ctx, MT_OP_fill, 1, &x, &attr);
  mt_release(x);
  raise_if(L, "zero_", status);
  lua_settop(L, 1);
  return 1;
}

/* ---- comparing ---- */

static mt_status compare(mt_context *ctx, mt_tensor *const *in, bool *same) {
  mt_tensor *differ = NULL, *any = NULL;
  double f;
  int64_t i = 1;
  mt_status status = mt_dispatch(ctx, MT_OP_ne, 2, in, NULL, &differ, NULL);
  if (status == MT_OK) {
    status = mt_dispatch(ctx, MT_OP_any, 1, &differ, NULL, &any, NULL);
  }
  if (status == MT_OK) status = mt_item(ctx, any, &f, &i);
  mt_release(differ);
  mt_release(any);
  *same = i == 0;
  return status;
}

/* t:equal(u): same shape and no element differs; dtypes may */
static int tensor_equal(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_tensor *const in[2] = {mtl_check_tensor(L, 1, "equal"),
                            mtl_check_tensor(L, 2, "equal")};
  bool same = mt_same_shape(&in[0]->v, &in[1]->v);
  if (same) {
    mt_retain(in[0]), mt_retain(in[1]);
    const mt_status status = compare(ctx, in, &same);
    mt_release(in[0]), mt_release(in[1]);
    raise_if(L, "equal", status);
  }
  lua_pushboolean(L, same);
  return 1;
}

static double check_tolerance(lua_State *L, int arg, double preset) {
  if (lua_isnoneornil(L, arg)) return preset;
  if (lua_type(L, arg) != LUA_TNUMBER || !(lua_tonumber(L, arg) >= 0))
    mtl_argerror(L, arg, "allclose", "a number not below 0 expected");
  return lua_tonumber(L, arg);
}

/* {rtol =, atol =, equal_nan =} at 3 -> their values at 3 .. 5 */
static void unpack_tolerances(lua_State *L) {
  static const char *const names[] = {"rtol", "atol", "equal_nan"};
  if (!lua_istable(L, 3)) return;
  lua_settop(L, 3);
  lua_pushnil(L);
  while (lua_next(L, 3)) {
    const char *const key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    int i = 0;
    while (i < 3 && strcmp(key, names[i]) != 0) i++;
    if (i == 3)
      mtl_argerror(L, 3, "allclose",
                   "unknown option '%.40s'; 'allclose' takes rtol, atol, equal_nan",
                   key);
    lua_pop(L, 1);
  }
  for (int i = 0; i < 3; i++) lua_getfield(L, 3, names[i]);
  lua_remove(L, 3);
}

/* t:allclose(u[, rtol = 1e-5[, atol = 1e-8[, equal_nan = false]]]): same shape, and
** |t - u| <= atol + rtol * |u| everywhere; the last three by name, too */
static int tensor_allclose(lua_State *L) {
  mtl_enter(L);
  unpack_tolerances(L);
  const mt_tensor *t = mtl_check_tensor(L, 1, "allclose");
  const mt_tensor *u = mtl_check_tensor(L, 2, "allclose");
  const double rtol = check_tolerance(L, 3, 1e-5), atol = check_tolerance(L, 4, 1e-8);
  const bool equal_nan = lua_toboolean(L, 5);
  bool close = mt_same_shape(&t->v, &u->v);
  if (close) {
    lua_settop(L, 2);
    t = mtl_push_on_cpu(L, 1, MT_F64, "allclose");
    u = mtl_push_on_cpu(L, 2, MT_F64, "allclose");
    const double *a = (const double *)t->v.data, *e = (const double *)u->v.data;
    const int64_t n = mt_numel(&t->v);
    for (int64_t i = 0; i < n && close; i++) {
      close = a[i] == e[i] || (equal_nan && isnan(a[i]) && isnan(e[i])) ||
              (isfinite(e[i]) && fabs(a[i] - e[i]) <= atol + rtol * fabs(e[i]));
    }
    mtl_free_tensor(L, 3);
    mtl_free_tensor(L, 4);
  }
  lua_pushboolean(L, close);
  return 1;
}

/* ---- bytes ---- */

static void reverse_bytes(char *p, int64_t n, size_t size) {
  for (int64_t i = 0; i < n; i++, p += size) {
    for (size_t a = 0, b = size - 1; a < b; a++, b--) {
      const char byte = p[a];
      p[a] = p[b];
      p[b] = byte;
    }
  }
}

/* mt._from_bytes(string, dtype, shape[, big_endian = false[, offset = 0]]): a CPU
** tensor of the elements that lie in a string behind offset bytes */
static int from_bytes(lua_State *L) {
  static const char fname[] = "_from_bytes";
  mt_context *ctx = mtl_enter(L);
  size_t length;
  int ndim;
  int64_t shape[MT_MAX_DIMS];
  if (lua_type(L, 1) != LUA_TSTRING) {
    mtl_argerror(L, 1, fname, "string expected, got %s", mtl_typename(L, 1));
  }
  const char *bytes = lua_tolstring(L, 1, &length);
  const mt_dtype dtype = mtl_check_dtype(L, 2, fname);
  if (!lua_istable(L, 3)) {
    mtl_argerror(L, 3, fname, "list of sizes expected, got %s", mtl_typename(L, 3));
  }
  mtl_check_shape(L, 3, fname, &ndim, shape);
  const bool big_endian = lua_toboolean(L, 4);
  const int64_t offset = lua_isnoneornil(L, 5) ? 0 : mtl_check_int(L, 5, fname);
  if (offset < 0 || (uint64_t)offset > length) {
    mtl_argerror(L, 5, fname, "offset %lld is not within the %zu byte%s of the string",
                 (long long)offset, length, length == 1 ? "" : "s");
  }
  int64_t n;
  const size_t size = mt_dtype_size(dtype), rest = length - (size_t)offset;
  raise_if(L, fname, mt_shape_numel(ndim, shape, size, &n));
  if ((uint64_t)n * size > rest) {
    mtl_argerror(L, 1, fname, "%s of shape %s takes %llu byte%s, the string has %zu",
                 mt_dtype_name(dtype), mt_shape_text(ndim, shape),
                 (unsigned long long)n * size, n * (int64_t)size == 1 ? "" : "s", rest);
  }
  mt_tensor **t = mtl_new_tensor(L);
  mt_guard_name(fname);
  raise_if(L, fname, mt_empty(ctx, dtype, cpu, ndim, shape, t));
  if (n == 0) return 1;
  char *data = (*t)->v.data;
  memcpy(data, bytes + offset, (size_t)n * size);
  if (big_endian) reverse_bytes(data, n, size);
  if (dtype == MT_BOOL) {
    for (int64_t i = 0; i < n; i++) data[i] = data[i] != 0;
  }
  return 1;
}

/* mt._to_bytes(t) -> string: the elements in order, little-endian */
static int to_bytes(lua_State *L) {
  mtl_enter(L);
  lua_settop(L, 1);
  const mt_tensor *t = mtl_push_on_cpu(L, 1, -1, "_to_bytes");
  const size_t size = mt_dtype_size(t->v.dtype);
  lua_pushlstring(L, t->v.data, (size_t)mt_numel(&t->v) * size);
  mtl_free_tensor(L, 2);
  return 1;
}

static const struct {
  const char *name;
  mt_dtype dtype;
} casts[] = {{"float", MT_F32},     {"double", MT_F64}, {"half", MT_F16},
             {"bfloat16", MT_BF16}, {"long", MT_I64},   {"int", MT_I32},
             {"short", MT_I16},     {"char", MT_I8},    {"byte", MT_U8},
             {"bool", MT_BOOL}};

static const luaL_Reg methods[] = {{"to", tensor_to},
                                   {"cpu", tensor_cpu},
                                   {"cuda", tensor_cuda},
                                   {"gpu", tensor_gpu},
                                   {"item", tensor_item},
                                   {"totable", tensor_totable},
                                   {"copy_", tensor_copy_into},
                                   {"zero_", tensor_zero},
                                   {"equal", tensor_equal},
                                   {"allclose", tensor_allclose},
                                   {NULL, NULL}};

static const luaL_Reg functions[] = {{"equal", tensor_equal},
                                     {"allclose", tensor_allclose},
                                     {"_from_bytes", from_bytes},
                                     {"_to_bytes", to_bytes},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_convert(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  mtl_push_methods(L);
  luaL_setfuncs(L, methods, 0);
  for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++) {
    lua_pushinteger(L, casts[i].dtype);
    lua_pushstring(L, casts[i].name);
    lua_pushcclosure(L, tensor_cast, 2);
    lua_setfield(L, -2, casts[i].name);
  }
  lua_pop(L, 1);
}
