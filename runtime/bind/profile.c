/* runtime/bind/profile.c -- starts and stops profiles, and hands over what they noted; the
** report is made in lua/mytensor/profile.lua. */
#include "runtime/bind/state.h"
#include "runtime/core/profile.h"

#define PROFILE "mytensor.Profile"

static const char profile_kind = 0;

typedef struct holder {
  const void *kind;
  mt_profile *profile; /* NULL: handed over */
} holder;

/* profile = mt._profile_start(back_to_back, ranges); nil: another one is running. One whose
** coroutine was abandoned ends when it is collected. */
static int profile_start(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mtl_refuse_capture(L, "profile");
  if (ctx->profile) lua_gc(L, LUA_GCCOLLECT);
  if (ctx->profile) return 0;
  holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (holder){&profile_kind, NULL};
  luaL_setmetatable(L, PROFILE);
  mtl_note_new(L, mtl_state_of(L));
  const bool back_to_back = lua_toboolean(L, 1), ranges = lua_toboolean(L, 2);
  if (mt_profile_start(ctx, back_to_back, ranges, &h->profile) != MT_OK) {
    return mtl_raise(L, "profile");
  }
  return 1;
}

static int profile_finalize(lua_State *L) {
  holder *h = mtl_to_kind(L, 1, &profile_kind, sizeof *h);
  if (h) {
    mt_profile_free(h->profile);
    h->profile = NULL;
  }
  return 0;
}

/* ---- what it noted ---- */

static void set_number(lua_State *L, const char *key, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, key);
}

static void set_text(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

static void set_integer(lua_State *L, const char *key, lua_Integer value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, key);
}

static void push_record(lua_State *L, const mt_record *r) {
  lua_createtable(L, 0, 14);
  set_text(L, "name", r->name);
  lua_pushboolean(L, r->gradient);
  lua_setfield(L, -2, "gradient");
  set_integer(L, "scope", r->scope);
  set_text(L, "device", mt_device_name(r->device));
  set_number(L, "start", r->start);
  set_number(L, "host", r->host);
  if (r->device_time >= 0) {
    set_number(L, "device_start", r->device_start);
    set_number(L, "device_time", r->device_time);
  }
  set_number(L, "bytes", r->cost.bytes);
  set_number(L, "flops", r->cost.flops);
  set_text(L, "dtype", mt_dtype_name(r->cost.dtype));
  set_number(L, "allocated", r->allocated);
  lua_createtable(L, r->ndim, 0);
  for (int d = 0; d < r->ndim; d++) {
    lua_pushinteger(L, (lua_Integer)r->shape[d]);
    lua_rawseti(L, -2, d + 1);
  }
  lua_setfield(L, -2, "shape");
}

static void push_scopes(lua_State *L, const mt_profile *p) {
  int parent;
  lua_newtable(L);
  for (int i = 1;; i++) {
    const char *name = mt_profile_scope_name(p, i, &parent);
    if (!name) return;
    lua_createtable(L, 0, 2);
    set_text(L, "name", name);
    set_integer(L, "parent", parent);
    lua_rawseti(L, -2, i);
  }
}

static void push_stretches(lua_State *L, const mt_profile *p) {
  const mt_stretch *list;
  const int64_t n = mt_profile_stretches(p, &list);
  lua_newtable(L);
  for (int64_t i = 0; i < n; i++) {
    lua_createtable(L, 0, 3);
    set_integer(L, "scope", list[i].scope);
    set_number(L, "start", list[i].start);
    set_number(L, "finish", list[i].end);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

/* {records=, scopes=, stretches=, dropped=} = mt._profile_stop(profile) */
static int profile_stop(lua_State *L) {
  holder *h = mtl_to_kind(L, 1, &profile_kind, sizeof *h);
  if (!h || !h->profile) return luaL_typeerror(L, 1, PROFILE);
  luaL_checkstack(L, 8, NULL);
  if (mt_profile_stop(h->profile) != MT_OK) return mtl_raise(L, "profile");
  const mt_profile *p = h->profile;
  const int64_t n = mt_profile_count(p);
  lua_createtable(L, 0, 4);
  lua_newtable(L);
  for (int64_t i = 0; i < n; i++) {
    push_record(L, mt_profile_record(p, i));
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "records");
  push_scopes(L, p);
  lua_setfield(L, -2, "scopes");
  push_stretches(L, p);
  lua_setfield(L, -2, "stretches");
  set_integer(L, "dropped", (lua_Integer)mt_profile_dropped(p));
  profile_finalize(L);
  return 1;
}

/* ---- scopes ---- */

/* before = mt._profile_enter(name): nil where no profile runs */
static int profile_enter(lua_State *L) {
  mt_profile *p = mtl_context(L)->profile;
  if (!p) return 0;
  lua_pushinteger(L, mt_profile_enter(p, luaL_checkstring(L, 1)));
  return 1;
}

/* mt._profile_leave(to) */
static int profile_leave(lua_State *L) {
  mt_profile *p = mtl_context(L)->profile;
  if (p) mt_profile_leave(p, (int)luaL_checkinteger(L, 1));
  return 0;
}

static const luaL_Reg functions[] = {{"_profile_start", profile_start},
                                     {"_profile_stop", profile_stop},
                                     {"_profile_enter", profile_enter},
                                     {"_profile_leave", profile_leave},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_profile(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  luaL_newmetatable(L, PROFILE);
  lua_pushcfunction(L, profile_finalize);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}
