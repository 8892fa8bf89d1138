/* runtime/bind/collect.c -- when Lua's collector is stepped for tensors, whose memory it
** does not see.
**
** The state runs in generational mode from the first step on: there a step looks at what
** is young, be there a million old tables, and most tensors die young. Those that have
** grown old, as the parts of a large graph do, are garbage until a major collection. It
** comes when live bytes have grown by an eighth, if there is time: steps are to take
** a twelfth of it, major ones half as much. */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "runtime/bind/state.h"

#define SHARE  12                  /* of the time: collecting may take 1 / SHARE */
#define WINDOW 0.25                /* seconds to look at */
#define MOST   ((size_t)512 << 10) /* bytes on the host between two steps */
#define ROOM   ((int64_t)64 << 20) /* growth that cannot wait for time */
#define DEPTH  12                  /* C calls for which there shall be room */

#define OTHER_STACK ((ptrdiff_t)1 << 20) /* bytes: 200 calls, Lua's limit, take less */

/* Lua's own text, with the release that runs; the header tells the one that we were
** compiled for. */
extern const char lua_ident[] __attribute__((weak));

const char *mtl_lua_release(void) {
  static _Thread_local char text[] = LUA_VERSION ".x"; /* one digit, so far */
  const char *const here = lua_ident;
  const char *found = here != NULL ? strstr(here, LUA_VERSION ".") : NULL;
  if (found == NULL) return LUA_RELEASE;
  text[sizeof LUA_VERSION] = found[sizeof LUA_VERSION];
  return text;
}

/* Before 5.4.4 the generational mode has bugs: it may free what is alive, or never see
** what has died. */
static bool generational_is_safe(void) {
  return mtl_lua_release()[sizeof LUA_VERSION] >= '4';
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool mtl_can_finalize(lua_State *L) {
  if (!lua_checkstack(L, 2 * LUA_MINSTACK)) return false;
  lua_pushcfunction(L, mtl_do_nothing);
  if (lua_pcall(L, 0, 0, 0) == LUA_OK) return true;
  lua_pop(L, 1);
  return false;
}

/* stack: how many more calls to make, each within the last */
static int descend(lua_State *L) {
  const lua_Integer more = lua_tointeger(L, 1) - 1;
  if (more == 0) return 0;
  lua_pushcfunction(L, descend);
  lua_pushinteger(L, more);
  lua_call(L, 1, 0);
  return 0;
}

bool mtl_is_deep(lua_State *L, mtl_state *s, const char *here) {
  const ptrdiff_t deep = s->shallow - here;
  if (deep < 0 || deep > OTHER_STACK) {
    s->shallow = here;
    return false;
  }
  if (!lua_checkstack(L, 2)) return true;
  lua_pushcfunction(L, descend);
  lua_pushinteger(L, DEPTH);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK) return false;
  lua_pop(L, 1);
  return true;
}

static int64_t live_bytes(const mtl_state *s) {
  const mt_device gpu = {MT_CUDA, (int8_t)s->ctx.gpu};
  const int64_t host = mt_memory_stats((mt_device){MT_CPU, 0}).live_bytes;
  return s->pace.gpu ? host + mt_memory_stats(gpu).live_bytes : host;
}

/* What has lived long ago is not to count: major_live falls to the most of late, which in
** training is what a whole step needs. */
static void forget(mtl_pace *p, int64_t live) {
  const double now = seconds();
  const bool idle = now > p->second + 1;
  if (live > p->lived[0] || idle) p->lived[0] = live;
  if (now < p->second) return;
  if (idle) p->lived[1] = live;
  const int64_t most = p->lived[0] > p->lived[1] ? p->lived[0] : p->lived[1];
  if (most < p->major_live) p->major_live = most;
  p->lived[1] = p->lived[0], p->lived[0] = live, p->second = now + 1;
}

/* A major collection, if live bytes have grown and there is time for it. */
static void collect_old(lua_State *L, mtl_state *s) {
  mtl_pace *p = &s->pace;
  const int64_t live = live_bytes(s);
  forget(p, live);
  const int64_t wanted = p->major_live + p->major_live / 8 + (int64_t)MTL_STEP_BYTES;
  if (live <= wanted) return;
  const double start = seconds();
  const int64_t most = p->major_live + p->major_live / 2 + ROOM;
  if (live <= most && start < p->major_next) return;
  lua_gc(L, LUA_GCCOLLECT);
  const double end = seconds();
  p->major_live = live_bytes(s);
  p->major_next = end + 2 * SHARE * (end - start);
}

/* Make steps as frequent as the time that they take allows. */
static void adapt(mtl_pace *p) {
  const double all = p->spent + p->between;
  if (all < WINDOW) return;
  if (p->spent * SHARE > all) {
    if (p->bytes < MOST) p->bytes *= 2;
  } else if (p->spent * SHARE * 4 < all && p->bytes > MTL_STEP_BYTES) {
    p->bytes /= 2;
  }
  p->spent = p->between = 0;
}

void mtl_step_collector(lua_State *L, mtl_state *s) {
  mtl_pace *p = &s->pace;
  /* 0: the script has stopped the collector; 0 or -1: we are within a finalizer. */
  if (lua_gc(L, LUA_GCISRUNNING) != 1) return;
  mtl_drop_pending(s, 0);
  if (!mtl_step_is_due(s) || !mtl_can_finalize(L)) return;
  /* Lua goes to work when its own bytes and these outweigh what it waits for: a fifth of
  ** its heap, or several times all of it in incremental mode and after a collection that
  ** freed little. For a GPU's round it is to wait for nothing. */
  const size_t kilobytes =
      s->ctx.gpu_debt >= MT_GC_CYCLE ? INT_MAX : s->ctx.gc_debt / 1024;
  p->gpu = p->gpu || s->ctx.gpu_debt > 0;
  s->ctx.gc_debt = s->ctx.gpu_debt = 0;
  const double start = seconds();
  if (!p->generational) {
    /* Once: a script may decide otherwise. */
    if (generational_is_safe()) lua_gc(L, LUA_GCGEN, 0, 0);
    p->generational = true;
    p->major_live = live_bytes(s);
  } else {
    lua_gc(L, LUA_GCSTEP, kilobytes < INT_MAX ? (int)kilobytes : INT_MAX);
    collect_old(L, s);
  }
  const double end = seconds();
  p->total += end - start;
  if (p->end > 0) p->between += start - p->end;
  p->spent += end - start;
  adapt(p);
  p->end = seconds();
}

/* seconds = mt._collecting(): the time that our steps of the collector have taken */
int mtl_collecting(lua_State *L) {
  lua_pushnumber(L, mtl_state_of(L)->pace.total);
  return 1;
}
