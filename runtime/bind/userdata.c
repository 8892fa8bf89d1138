/* runtime/bind/userdata.c -- the Tensor userdata: how Lua owns a tensor, and the
** methods that tell about one without touching its elements. */
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

const char mtl_box_magic = 0;
static const char metatable_key = 0; /* registry keys */
static const char methods_key = 0;

/* ---- owning ---- */

static mt_tensor **new_box(lua_State *L, mtl_state *s) {
  mtl_box *b = lua_newuserdatauv(L, sizeof *b, 0);
  b->tensor = NULL;
  b->magic = &mtl_box_magic;
  lua_rawgeti(L, LUA_REGISTRYINDEX, s->metatable);
  lua_setmetatable(L, -2);
  mtl_note_new(L, s);
  if (s->nscopes > 0) mtl_scope_add(L);
  return &b->tensor;
}

static inline bool is_deep(lua_State *L, mtl_state *s) {
  const char *const here = __builtin_frame_address(0);
  return (size_t)(s->shallow - here) > MTL_SHALLOW && mtl_is_deep(L, s, here);
}

static int raise_deep(lua_State *L) {
  return luaL_error(L, "calls within calls leave no room on Lua's C stack");
}

mt_tensor **mtl_new_tensor_of(lua_State *L, mtl_state *s) {
  if (is_deep(L, s)) raise_deep(L);
  return new_box(L, s);
}

mt_tensor **mtl_new_tensor(lua_State *L) {
  return mtl_new_tensor_of(L, mtl_state_of(L));
}

void mtl_push_tensor(lua_State *L, mt_tensor *t) {
  mtl_state *s = mtl_state_of(L);
  if (is_deep(L, s)) {
    mt_release(t);
    raise_deep(L);
  }
  if (s->npending == MTL_MAX_PENDING) {
    mt_release(t);
    luaL_error(L, "not enough memory");
  }
  const int mine = s->npending++;
  s->pending[mine] = t;
  mt_tensor **slot = new_box(L, s);
  *slot = t;
  /* Anything above was left by a finalizer that ran out of memory meanwhile. */
  mtl_drop_pending(s, mine + 1);
  s->npending = mine;
}

bool mtl_is_tensor(lua_State *L, int arg) { return mtl_to_box(L, arg) != NULL; }

mt_tensor *mtl_to_tensor(lua_State *L, int arg) {
  const mtl_box *b = mtl_to_box(L, arg);
  return b != NULL ? b->tensor : NULL;
}

mt_tensor *mtl_check_tensor(lua_State *L, int arg, const char *fname) {
  const mtl_box *b = mtl_to_box(L, arg);
  if (b == NULL) {
    mtl_argerror(L, arg, fname, "tensor expected, got %s", mtl_typename(L, arg));
    return NULL;
  }
  if (b->tensor == NULL) mtl_argerror(L, arg, fname, "the tensor was freed");
  return b->tensor;
}

mt_tensor *mtl_check_operand(lua_State *L, int arg, const char *fname) {
  const int type = lua_type(L, arg);
  if (type != LUA_TNUMBER && type != LUA_TBOOLEAN) {
    return mtl_check_tensor(L, arg, fname);
  }
  mt_context *ctx = mtl_context(L);
  mt_tensor **slot = mtl_new_tensor(L);
  mt_status status;
  if (type == LUA_TBOOLEAN) {
    status = mt_scalar_bool(ctx, lua_toboolean(L, arg), slot);
  } else if (lua_isinteger(L, arg)) {
    status = mt_scalar_i64(ctx, lua_tointeger(L, arg), slot);
  } else {
    status = mt_scalar_f64(ctx, lua_tonumber(L, arg), slot);
  }
  if (status != MT_OK) mtl_raise(L, fname);
  mt_tensor *t = *slot;
  lua_replace(L, arg);
  return t;
}

void mtl_free_tensor(lua_State *L, int arg) {
  mtl_box *b = mtl_to_box(L, arg);
  if (b == NULL || b->tensor == NULL) return;
  mt_tensor *t = b->tensor;
  b->tensor = NULL; /* before anything that could come back here */
  mt_release(t);
}

/* __gc, __close */
static int tensor_finalize(lua_State *L) {
  mtl_free_tensor(L, 1);
  return 0;
}

/* t:free(): give the memory back now, unless a view or a graph still needs it; any
** use of t after that is an error */
static int tensor_free(lua_State *L) {
  if (mtl_to_box(L, 1) == NULL) mtl_check_tensor(L, 1, "free");
  mtl_free_tensor(L, 1);
  return 0;
}

/* __eq: do both handles hold one tensor? */
static int tensor_same(lua_State *L) {
  const mt_tensor *a = mtl_to_tensor(L, 1), *b = mtl_to_tensor(L, 2);
  lua_pushboolean(L, a != NULL && a == b);
  return 1;
}

void mtl_push_metatable(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &metatable_key);
}

void mtl_push_methods(lua_State *L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &methods_key); }

void mtl_set_methods(lua_State *L, const luaL_Reg *methods) {
  mtl_push_methods(L);
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
}

/* ---- what a tensor is ---- */

/* mt.is_tensor(x): true also for a freed one */
static int is_tensor(lua_State *L) {
  lua_pushboolean(L, mtl_to_box(L, 1) != NULL);
  return 1;
}

static int push_list(lua_State *L, int n, const int64_t *x) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, x[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* All of x, or the one that the dim at 2 names. */
static int push_sizes(lua_State *L, const mt_tensor *t, const int64_t *x,
                      const char *fname) {
  if (lua_isnoneornil(L, 2)) return push_list(L, t->v.ndim, x);
  lua_pushinteger(L, x[mtl_check_dim(L, 2, fname, t->v.ndim)]);
  return 1;
}

/* t:shape([d]) -> list: the size of each dim; with d the size of that one */
static int tensor_shape(lua_State *L) {
  const mt_tensor *t = mtl_check_tensor(L, 1, "shape");
  return push_sizes(L, t, t->v.shape, "shape");
}

/* t:size([d]) -> integer: of dim d; without d a list of all */
static int tensor_size(lua_State *L) {
  const mt_tensor *t = mtl_check_tensor(L, 1, "size");
  return push_sizes(L, t, t->v.shape, "size");
}

/* t:stride([d]) -> integer: elements from one position of dim d to the next; without
** d a list of all */
static int tensor_stride(lua_State *L) {
  const mt_tensor *t = mtl_check_tensor(L, 1, "stride");
  return push_sizes(L, t, t->v.stride, "stride");
}

/* t:dim() -> integer: how many dims there are */
static int tensor_dim(lua_State *L) {
  lua_pushinteger(L, mtl_check_tensor(L, 1, "dim")->v.ndim);
  return 1;
}

/* t:ndim() -> integer: how many dims there are */
static int tensor_ndim(lua_State *L) {
  lua_pushinteger(L, mtl_check_tensor(L, 1, "ndim")->v.ndim);
  return 1;
}

/* t:numel() -> integer: how many elements there are */
static int tensor_numel(lua_State *L) {
  lua_pushinteger(L, mt_numel(&mtl_check_tensor(L, 1, "numel")->v));
  return 1;
}

/* t:dtype() -> name: float32, float64, float16, bfloat16, int64, int32, int16, int8,
** uint8 or bool */
static int tensor_dtype(lua_State *L) {
  lua_pushstring(L, mt_dtype_name(mt_dtype_of(mtl_check_tensor(L, 1, "dtype"))));
  return 1;
}

/* t:device() -> name: "cpu" or "cuda:0" */
static int tensor_device(lua_State *L) {
  lua_pushstring(L, mt_device_name(mt_device_of(mtl_check_tensor(L, 1, "device"))));
  return 1;
}

/* t:is_contiguous(): row-major, without gaps */
static int tensor_is_contiguous(lua_State *L) {
  lua_pushboolean(L, mt_is_contiguous(&mtl_check_tensor(L, 1, "is_contiguous")->v));
  return 1;
}

/* t:is_floating_point(): is its dtype a float one? */
static int tensor_is_floating_point(lua_State *L) {
  const mt_tensor *t = mtl_check_tensor(L, 1, "is_floating_point");
  lua_pushboolean(L, MT_IS_FLOAT(mt_dtype_of(t)));
  return 1;
}

/* t:element_size() -> integer: bytes of one element */
static int tensor_element_size(lua_State *L) {
  const mt_tensor *t = mtl_check_tensor(L, 1, "element_size");
  lua_pushinteger(L, (lua_Integer)mt_dtype_size(mt_dtype_of(t)));
  return 1;
}

/* t:storage_offset() -> integer: elements between the storage's start and t's first */
static int tensor_storage_offset(lua_State *L) {
  lua_pushinteger(L, mtl_check_tensor(L, 1, "storage_offset")->offset);
  return 1;
}

/* t:data_ptr() -> integer: address of the first element */
static int tensor_data_ptr(lua_State *L) {
  const mt_tensor *t = mtl_check_tensor(L, 1, "data_ptr");
  lua_pushinteger(L, (lua_Integer)(intptr_t)t->v.data);
  return 1;
}

static const luaL_Reg metamethods[] = {{"__gc", tensor_finalize},
                                       {"__close", tensor_finalize},
                                       {"__eq", tensor_same},
                                       {NULL, NULL}};

static const luaL_Reg methods[] = {{"shape", tensor_shape},
                                   {"size", tensor_size},
                                   {"stride", tensor_stride},
                                   {"dim", tensor_dim},
                                   {"ndim", tensor_ndim},
                                   {"numel", tensor_numel},
                                   {"dtype", tensor_dtype},
                                   {"device", tensor_device},
                                   {"is_contiguous", tensor_is_contiguous},
                                   {"is_floating_point", tensor_is_floating_point},
                                   {"element_size", tensor_element_size},
                                   {"storage_offset", tensor_storage_offset},
                                   {"data_ptr", tensor_data_ptr},
                                   {"free", tensor_free},
                                   {NULL, NULL}};

static const luaL_Reg functions[] = {{"is_tensor", is_tensor}, {NULL, NULL}};

/* stack: module */
void mtl_open_tensor(lua_State *L) {
  luaL_newlib(L, metamethods);
  lua_pushliteral(L, MTL_TENSOR);
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, MTL_TENSOR); /* what getmetatable gives: no way to change it */
  lua_setfield(L, -2, "__metatable");
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &metatable_key);
  lua_pushvalue(L, -1);
  mtl_state_of(L)->metatable = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_setfield(L, LUA_REGISTRYINDEX, MTL_TENSOR); /* for luaL_testudata */
  luaL_newlib(L, methods);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &methods_key);
  lua_setfield(L, -2, "Tensor");
  luaL_setfuncs(L, functions, 0);
}
