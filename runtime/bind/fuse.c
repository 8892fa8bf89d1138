/* runtime/bind/fuse.c -- fused operators as Lua values; what mt.fuse is made of. */
#include <stdlib.h>
#include <string.h>

#include "runtime/autograd/fuse.h"
#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

static const char fuse_key = 0; /* registry: the metatable; the kind of its userdata */

typedef struct fuse_box {
  const void *kind;
  mt_fuse *f; /* NULL: not made yet, or collected */
} fuse_box;

static mt_fuse *check_fuse(lua_State *L, const char *fname) {
  const fuse_box *const b = mtl_to_kind(L, 1, &fuse_key, sizeof *b);
  if (!b || !b->f) mtl_argerror(L, 1, fname, "a fused operator expected");
  return b->f;
}

/* The last error, which mostly begins with the name already. */
static int raise(lua_State *L, const char *name) {
  const mt_error *const e = mt_last_error();
  if (e->status == MT_ELUA || e->status == MT_EINTERRUPT) return mtl_raise(L, name);
  const size_t n = strlen(name);
  if (strncmp(e->text, name, n) == 0 && e->text[n] == ':')
    return luaL_error(L, "%s", e->text);
  return luaL_error(L, "%s: %s", name, e->text);
}

/* ---- calls ---- */

static bool is_number(lua_State *L, int index) {
  return lua_type(L, index) == LUA_TNUMBER || lua_type(L, index) == LUA_TBOOLEAN;
}

static void check_count(lua_State *L, const mt_fuse *f, int given) {
  if (given == f->nin) return;
  luaL_error(L, "%s: %d argument%s expected (%s), got %d", f->name, f->nin,
             f->nin == 1 ? "" : "s", f->in_text, given);
}

/* Make tensors of the numbers; what is neither is an error. */
static void prepare_arguments(lua_State *L, const mt_fuse *f) {
  bool some = false;
  for (int i = 0; i < f->nin; i++) {
    if (is_number(L, i + 2)) continue;
    if (!mtl_to_tensor(L, i + 2)) {
      luaL_error(L, "%s: tensor or number expected for '%s', got %s", f->name,
                 f->in_name[i], mtl_typename(L, i + 2));
    }
    some = true;
  }
  if (!some) luaL_error(L, "%s: one of the arguments must be a tensor", f->name);
  for (int i = 0; i < f->nin; i++) {
    if (is_number(L, i + 2)) mtl_check_operand(L, i + 2, f->name);
  }
}

/* Is an argument a value of a function that is being traced? Then its metatable's __fused
** gets f and the arguments. */
static bool is_traced(lua_State *L) {
  for (int i = 2; i <= lua_gettop(L); i++) {
    if (lua_istable(L, i) && luaL_getmetafield(L, i, "__fused") != LUA_TNIL) {
      lua_insert(L, 1);
      return true;
    }
  }
  return false;
}

/* y, ... = f(a, b, ...) */
static int fuse_call(lua_State *L) {
  mtl_state *const s = mtl_enter_state(L);
  mt_fuse *const f = check_fuse(L, "fuse");
  mt_tensor *in[MT_FUSE_USER_INPUTS], *out[MT_FORMULA_MAX_OUTPUTS];
  mt_tensor **result[MT_FORMULA_MAX_OUTPUTS];
  check_count(L, f, lua_gettop(L) - 1);
  luaL_checkstack(L, f->nout + 8, f->name);
  if (is_traced(L)) {
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
  }
  prepare_arguments(L, f);
  for (int k = 0; k < f->nout; k++) result[k] = mtl_new_tensor_of(L, s);
  for (int i = 0; i < f->nin; i++) { /* a finalizer may have freed one meanwhile */
    in[i] = mtl_to_tensor(L, i + 2);
    if (!in[i]) luaL_error(L, "%s: '%s' is a freed tensor", f->name, f->in_name[i]);
  }
  for (int i = 0; i < f->nin; i++) mt_retain(in[i]);
  const mt_status status = mt_fuse_apply(&s->ctx, f, in, out);
  for (int i = 0; i < f->nin; i++) mt_release(in[i]);
  if (status != MT_OK) return raise(L, f->name);
  for (int k = 0; k < f->nout; k++) *result[k] = out[k];
  return f->nout;
}

/* ---- the object ---- */

static int fuse_gc(lua_State *L) {
  fuse_box *const b = mtl_to_kind(L, 1, &fuse_key, sizeof *b);
  if (b) {
    mt_fuse_free(b->f);
    b->f = NULL;
  }
  return 0;
}

/* tostring(f) */
static int fuse_tostring(lua_State *L) {
  const mt_fuse *const f = check_fuse(L, "tostring");
  lua_pushfstring(L, "%s(%s): %s", f->name, f->in_text, f->text);
  return 1;
}

/* text = fused:source(): the kernel for contiguous float32 tensors, as a GPU compiles it */
static int fuse_source(lua_State *L) {
  mt_fuse *const f = check_fuse(L, "source");
  luaL_Buffer b;
  char *text = NULL;
  luaL_buffinit(L, &b);
  char *const room =
      luaL_prepbuffsize(&b, MT_FUSE_SOURCE_MAX); /* may raise, at first */
  const mt_status status = mt_fuse_source(f, &text);
  if (status != MT_OK) return raise(L, f->name);
  const size_t n =
      strlen(text) < MT_FUSE_SOURCE_MAX ? strlen(text) : MT_FUSE_SOURCE_MAX;
  memcpy(room, text, n);
  free(text);
  luaL_pushresultsize(&b, n);
  return 1;
}

/* f.formula, f.inputs, f.name; upvalue: the methods */
static int fuse_index(lua_State *L) {
  const mt_fuse *const f = check_fuse(L, "index");
  const char *const key = lua_tostring(L, 2);
  if (!key) return 0;
  if (strcmp(key, "formula") == 0) {
    lua_pushstring(L, f->text);
  } else if (strcmp(key, "inputs") == 0) {
    lua_pushstring(L, f->in_text);
  } else if (strcmp(key, "name") == 0) {
    lua_pushstring(L, f->name);
  } else {
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
  }
  return 1;
}

/* f, or nil and what is wrong = mt._fuse(name, inputs, formula) */
static int module_fuse(lua_State *L) {
  const char *const name = luaL_checkstring(L, 1);
  const char *const inputs = luaL_checkstring(L, 2);
  size_t n;
  const char *const text = luaL_checklstring(L, 3, &n);
  if (strlen(text) != n) {
    lua_pushnil(L);
    lua_pushliteral(L, "fuse: the formula holds a byte 0");
    return 2;
  }
  fuse_box *const b = lua_newuserdatauv(L, sizeof *b, 0);
  *b = (fuse_box){&fuse_key, NULL};
  lua_rawgetp(L, LUA_REGISTRYINDEX, &fuse_key);
  lua_setmetatable(L, -2);
  if (mt_fuse_new(name, inputs, text, &b->f) == MT_OK) return 1;
  lua_pushnil(L);
  lua_pushstring(L, mt_last_error()->text);
  return 2;
}

static const luaL_Reg metamethods[] = {{"__call", fuse_call},
                                       {"__gc", fuse_gc},
                                       {"__tostring", fuse_tostring},
                                       {NULL, NULL}};

static const luaL_Reg methods[] = {{"source", fuse_source}, {NULL, NULL}};

/* stack: module */
void mtl_open_fuse(lua_State *L) {
  lua_pushcfunction(L, module_fuse);
  lua_setfield(L, -2, "_fuse");
  luaL_newlib(L, metamethods);
  lua_pushliteral(L, "mytensor.Fused");
  lua_setfield(L, -2, "__name");
  luaL_newlib(L, methods);
  lua_pushcclosure(L, fuse_index, 1);
  lua_setfield(L, -2, "__index");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &fuse_key);
}
