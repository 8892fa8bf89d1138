/* runtime/bind/state.c -- the context of a Lua state, and how a status from below becomes
** a Lua error. */
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/bind/state.h"

static const char state_key = 0; /* its address is the registry's key */
static const char error_key = 0;
static const char late_key = 0; /* weak table: handles that finalizers made */

static pthread_once_t setup_once = PTHREAD_ONCE_INIT;

/* ---- the context ---- */

/* The main thread that this thread of the process asked for last: its address stays the
** same until its state is closed, anywhere in the process. */
static _Thread_local struct {
  lua_State *L;
  mtl_state *state;
  unsigned closings;
} last;
static unsigned closed_states; /* how many; atomic */

static void collect_all(mt_context *ctx) {
  mtl_state *s = (mtl_state *)ctx;
  if (mtl_can_finalize(s->main))
    lua_gc(s->main, LUA_GCCOLLECT); /* not in a finalizer */
}

/* __gc of the context. It is older than any tensor: at lua_close it comes last. */
static int state_close(lua_State *L) {
  mtl_state *s = lua_touserdata(L, 1);
  if (s == NULL || s != mtl_state_of(L) || s->closed) return 0;
  s->closed = true;
  __atomic_add_fetch(&closed_states, 1, __ATOMIC_RELEASE);
  const char *fault = mt_context_close(&s->ctx);
  if (fault != NULL) {
    lua_warning(L, "mytensor: ", 1);
    lua_warning(L, fault, 0);
  }
  mtl_drop_pending(s, 0);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &late_key);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    mtl_free_tensor(L, lua_gettop(L));
  }
  return 0;
}

void mtl_note_new(lua_State *L, const mtl_state *s) {
  if (s->closed) luaL_error(L, "mytensor: the Lua state is closing");
  if (lua_gc(L, LUA_GCISRUNNING) > 0) return;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &late_key);
  lua_pushvalue(L, -2);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

static void push_weak_table(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

/* ---- interrupts ----------------------------------------------------------------------
** A host that wants to stop its script, as lua and mtlua do after Ctrl-C, sets a hook in
** the main thread, from a signal handler. Within a long op Lua does not get to call it:
** we see that it has changed, in whatever thread runs a part of the op. */

static int hook_is_new(void *arg) {
  const mtl_state *s = arg;
  const lua_Hook hook = lua_gethook(s->main);
  return hook != s->hook && hook != NULL;
}

void mtl_expect_hook(lua_State *L) {
  mtl_state *s = mtl_state_of(L);
  if (lua_gethookcount(s->main) != 1) s->hook = lua_gethook(s->main);
}

int mtl_do_nothing(lua_State *L) { return (void)L, 0; }

/* In a coroutine: the host's hook is called there, and where it ends itself, as after
** Ctrl-C, it ends for the main thread too, or that would meet the error once more. */
static void raise_in_coroutine(lua_State *L, lua_State *main) {
  const lua_Hook host = lua_gethook(main), own = lua_gethook(L);
  const int mask = lua_gethookmask(L), count = lua_gethookcount(L);
  if (host == NULL || !lua_checkstack(L, 2)) return;
  lua_sethook(L, host, LUA_MASKCALL, 0);
  lua_pushcfunction(L, mtl_do_nothing);
  const int status = lua_pcall(L, 0, 0, 0);
  if (lua_gethook(L) == NULL) lua_sethook(main, NULL, 0, 0);
  lua_sethook(L, own, mask, count);
  if (status != LUA_OK) lua_error(L);
}

/* Raise what the host's hook raises; it looks at nothing but the state. */
static int raise_interrupt(lua_State *L) {
  const mtl_state *s = mtl_state_of(L);
  const lua_Hook hook = lua_gethook(L);
  lua_Debug ar;
  if (L != s->main) raise_in_coroutine(L, s->main);
  if (L == s->main && hook != NULL && lua_getstack(L, 0, &ar)) {
    ar.event = LUA_HOOKCOUNT;
    ar.currentline = -1;
    hook(L, &ar);
  }
  return luaL_error(L, "interrupted!");
}

void mtl_check_interrupt(lua_State *L) {
  if (hook_is_new(mtl_state_of(L))) raise_interrupt(L);
}

void mtl_open_state(lua_State *L) {
  pthread_once(&setup_once, mt_autograd_setup);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key) == LUA_TNIL) {
    mtl_state *s = lua_newuserdatauv(L, sizeof *s, 0);
    memset(s, 0, sizeof *s);
    mt_context_init(&s->ctx);
    s->ctx.collect = collect_all;
    s->ctx.lua = s;
    s->pace.bytes = MTL_STEP_BYTES;
    s->ctx.interrupt = (mt_interrupt){hook_is_new, s, 0};
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    s->main = lua_tothread(L, -1);
    lua_pop(L, 1);
    s->print = (mtl_print){4, 1000, 3, 80, MTL_SCI_AUTO};
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
    push_weak_table(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &late_key);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, state_close);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
    lua_pushboolean(L, 0); /* a place that mtl_keep_error need not make */
    lua_rawsetp(L, LUA_REGISTRYINDEX, &error_key);
  }
  lua_pop(L, 1);
}

mt_context *mtl_context(lua_State *L) {
  const unsigned closings = __atomic_load_n(&closed_states, __ATOMIC_ACQUIRE);
  if (last.L == L && last.closings == closings) return &last.state->ctx;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
  mtl_state *s = lua_touserdata(L, -1);
  lua_pop(L, 1); /* the registry keeps it */
  if (s == NULL) luaL_error(L, "mytensor is not loaded in this Lua state");
  if (L == s->main && !s->closed) last.L = L, last.state = s, last.closings = closings;
  return &s->ctx;
}

void mtl_drop_pending(mtl_state *s, int keep) {
  while (s->npending > keep) mt_release(s->pending[--s->npending]);
}

mtl_state *mtl_enter_state(lua_State *L) {
  mtl_state *s = mtl_state_of(L);
  if (mtl_step_is_due(s) || s->npending > 0) mtl_step_collector(L, s);
  s->hook = lua_gethook(s->main);
  /* In a coroutine Lua does not call it: an interrupt that waits is raised here. */
  if (s->hook != NULL && L != s->main && lua_gethookcount(s->main) == 1) {
    raise_interrupt(L);
  }
  return s;
}

mt_context *mtl_enter(lua_State *L) { return &mtl_enter_state(L)->ctx; }

const char *mtl_getenv(lua_State *L, const char *name) {
  lua_getfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
  const int ignored = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return ignored ? NULL : getenv(name);
}

/* ---- errors ---- */

bool mtl_is_method_call(lua_State *L) {
  lua_Debug ar;
  if (!lua_getstack(L, 0, &ar)) return false;
  lua_getinfo(L, "n", &ar);
  return strcmp(ar.namewhat, "method") == 0;
}

/* As luaL_argerror, but always by the name that the documentation uses. */
static int argument_error(lua_State *L, int arg, const char *fname, const char *text) {
  if (mtl_is_method_call(L) && --arg == 0) {
    return luaL_error(L, "calling '%s' on bad self (%s)", fname, text);
  }
  return luaL_error(L, "bad argument #%d to '%s' (%s)", arg, fname, text);
}

int mtl_argerror(lua_State *L, int arg, const char *fname, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return argument_error(L, arg, fname, text);
}

mt_status mtl_keep_error(lua_State *L) {
  lua_rawsetp(L, LUA_REGISTRYINDEX, &error_key);
  return mt_fail(MT_ELUA, "an error in a Lua function");
}

int mtl_raise(lua_State *L, const char *fname) {
  const mt_error *e = mt_last_error();
  if (e->status == MT_EINTERRUPT) return raise_interrupt(L);
  if (e->status == MT_ELUA) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &error_key);
    lua_pushboolean(L, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &error_key);
    return lua_error(L);
  }
  if (e->arg > 0) return argument_error(L, e->arg, fname, e->text);
  const size_t n = strlen(fname); /* core's text may name the op already */
  if (strncmp(e->text, fname, n) == 0 && e->text[n] == ':') {
    return luaL_error(L, "%s", e->text);
  }
  return luaL_error(L, "%s: %s", fname, e->text);
}
