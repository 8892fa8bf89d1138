/* runtime/bind/stream.c -- mt.cuda.Stream and mt.cuda.Event: queues of work on a GPU and
** marks in them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

#define STREAM "mytensor.cuda.Stream"
#define EVENT  "mytensor.cuda.Event"

/* A stream is never destroyed: blocks of the allocator belong to it. The process keeps
** those that nobody uses for the next who wants one. */
typedef struct stream {
  struct stream *next; /* in the list of unused ones */
  void *handle;
  int gpu;
} stream;

static const char stream_kind = 0, event_kind = 0;

static stream *unused;
static pthread_mutex_t unused_lock = PTHREAD_MUTEX_INITIALIZER;

/* Lua's hold of a stream. */
typedef struct holder {
  const void *kind;
  stream *stream; /* NULL: finalized */
} holder;

typedef struct event {
  const void *kind;
  void *handle; /* NULL: destroyed */
  int gpu;
  bool timing, recorded;
} event;

static const mt_device_api *api_of(int gpu) {
  return mt_backend_of((mt_device){MT_CUDA, (int8_t)gpu})->device;
}

static int raise_if(lua_State *L, mt_status status, int gpu, const char *fname) {
  if (status == MT_OK) return 0;
  return luaL_error(L, "%s: %s", fname, api_of(gpu)->error_text());
}

/* ---- streams ---- */

static stream *take_unused(int gpu) {
  pthread_mutex_lock(&unused_lock);
  stream **at = &unused;
  while (*at && (*at)->gpu != gpu) at = &(*at)->next;
  stream *s = *at;
  if (s) *at = s->next;
  pthread_mutex_unlock(&unused_lock);
  return s;
}

static void give_unused(stream *s) {
  pthread_mutex_lock(&unused_lock);
  s->next = unused;
  unused = s;
  pthread_mutex_unlock(&unused_lock);
}

static stream *check_stream(lua_State *L, int arg) {
  const holder *h = mtl_to_kind(L, arg, &stream_kind, sizeof *h);
  if (!h) luaL_typeerror(L, arg, STREAM);
  if (!h->stream) luaL_argerror(L, arg, "the stream was finalized");
  return h->stream;
}

/* mt.cuda.Stream([device]) -> stream: a queue of its own for work on a GPU. It does not
** wait for the work of other streams: that is what mt.cuda.Event is for */
static int new_stream(lua_State *L) {
  const int gpu = mtl_check_gpu(L, 1, "Stream").index;
  holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (holder){&stream_kind, NULL};
  luaL_setmetatable(L, STREAM);
  mtl_note_new(L, mtl_state_of(L));
  stream *s = take_unused(gpu);
  if (!s) {
    s = calloc(1, sizeof *s);
    if (!s) return luaL_error(L, "mt.cuda.Stream: out of memory");
    const mt_status status = api_of(gpu)->stream_create(gpu, &s->handle);
    if (status != MT_OK) free(s);
    raise_if(L, status, gpu, "mt.cuda.Stream");
    s->gpu = gpu;
  }
  h->stream = s;
  return 1;
}

/* __gc, __close */
static int stream_finalize(lua_State *L) {
  holder *h = mtl_to_kind(L, 1, &stream_kind, sizeof *h);
  if (h && h->stream) {
    give_unused(h->stream);
    h->stream = NULL;
  }
  return 0;
}

/* mt.cuda.Stream:use(fn, ...) -> results of fn(...): meanwhile the stream is the current
** one of its GPU, and "cuda" means that GPU; fn may not yield */
static int stream_use(lua_State *L) {
  const stream *s = check_stream(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  mtl_refuse_capture(L, "use");
  return mtl_call_on(L, 2, s->gpu, s->handle);
}

/* mt.cuda.Stream:synchronize(): wait until all that the stream was given is done; bad
** data that a kernel met is an error here */
static int stream_synchronize(lua_State *L) {
  const stream *s = check_stream(L, 1);
  mt_context *ctx = mtl_enter(L);
  void *const current = ctx->stream[s->gpu];
  ctx->stream[s->gpu] = s->handle;
  const mt_status status = mt_synchronize(ctx, (mt_device){MT_CUDA, (int8_t)s->gpu});
  ctx->stream[s->gpu] = current;
  return status == MT_OK ? 0 : mtl_raise(L, "synchronize");
}

/* mt.cuda.Stream:device() -> name: "cuda:0" */
static int stream_device(lua_State *L) {
  const stream *s = check_stream(L, 1);
  lua_pushstring(L, mt_device_name((mt_device){MT_CUDA, (int8_t)s->gpu}));
  return 1;
}

static int stream_tostring(lua_State *L) {
  const stream *s = check_stream(L, 1);
  lua_pushfstring(L, "<Stream on cuda:%d>", s->gpu);
  return 1;
}

/* ---- events ---- */

static event *check_event(lua_State *L, int arg) {
  event *e = mtl_to_kind(L, arg, &event_kind, sizeof *e);
  if (!e) luaL_typeerror(L, arg, EVENT);
  if (!e->handle) luaL_argerror(L, arg, "the event was finalized");
  return e;
}

/* The stream at arg; none: the current one of this GPU. */
static stream check_stream_or_current(lua_State *L, int arg, int gpu) {
  if (lua_isnoneornil(L, arg)) {
    return (stream){NULL, mtl_context(L)->stream[gpu], gpu};
  }
  return *check_stream(L, arg);
}

/* Does {timing = true} stand at arg? */
static bool check_timing(lua_State *L, int arg) {
  if (lua_isnoneornil(L, arg)) return false;
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, "Event", "table of options expected, got %s",
                 mtl_typename(L, arg));
  }
  bool timing = false;
  for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (strcmp(key, "timing") != 0) {
      mtl_argerror(L, arg, "Event", "unknown option '%.40s'; there is timing", key);
    }
    timing = lua_toboolean(L, -1);
  }
  return timing;
}

/* mt.cuda.Event([{timing=}]) -> event: a mark on the current GPU; with timing the time
** between two of them can be told */
static int new_event(lua_State *L) {
  const bool timing = check_timing(L, 1);
  const int gpu = mtl_check_gpu(L, 2, "Event").index;
  event *e = lua_newuserdatauv(L, sizeof *e, 0);
  *e = (event){&event_kind, NULL, gpu, timing, false};
  luaL_setmetatable(L, EVENT);
  mtl_note_new(L, mtl_state_of(L));
  raise_if(L, api_of(gpu)->event_create(gpu, timing, &e->handle), gpu, "mt.cuda.Event");
  return 1;
}

/* __gc, __close */
static int event_finalize(lua_State *L) {
  event *e = mtl_to_kind(L, 1, &event_kind, sizeof *e);
  if (e && e->handle) {
    api_of(e->gpu)->event_destroy(e->gpu, e->handle);
    e->handle = NULL;
  }
  return 0;
}

/* mt.cuda.Event:record([stream]): mark the end of what the stream, else the current
** one, has been given until now */
static int event_record(lua_State *L) {
  event *e = check_event(L, 1);
  mtl_refuse_capture(L, "record");
  const stream s = check_stream_or_current(L, 2, e->gpu);
  if (s.gpu != e->gpu) {
    return mtl_argerror(L, 2, "record",
                        "the event is on cuda:%d, the stream on cuda:%d", e->gpu,
                        s.gpu);
  }
  raise_if(L, api_of(e->gpu)->event_record(e->gpu, e->handle, s.handle), e->gpu,
           "record");
  e->recorded = true;
  return 0;
}

/* mt.cuda.Event:wait([stream]): what the stream, else the current one, is given from now
** on runs when the mark has been reached */
static int event_wait(lua_State *L) {
  const event *e = check_event(L, 1);
  mtl_refuse_capture(L, "wait");
  const stream s = check_stream_or_current(L, 2, mtl_current_gpu(L).index);
  return raise_if(L, api_of(s.gpu)->event_wait(s.gpu, s.handle, e->handle), s.gpu,
                  "wait");
}

/* Wait until e has been reached; Ctrl-C ends that. */
static void wait_event(lua_State *L, const event *e) {
  const mt_device d = {MT_CUDA, (int8_t)e->gpu};
  if (mt_wait_event(mtl_enter(L), d, e->handle) != MT_OK) mtl_raise(L, "synchronize");
}

/* mt.cuda.Event:synchronize(): wait here until the mark has been reached */
static int event_synchronize(lua_State *L) {
  const event *e = check_event(L, 1);
  mtl_refuse_capture(L, "synchronize");
  wait_event(L, e);
  return raise_if(L, api_of(e->gpu)->event_synchronize(e->gpu, e->handle), e->gpu,
                  "synchronize");
}

/* mt.cuda.Event:query(): has the mark been reached? */
static int event_query(lua_State *L) {
  const event *e = check_event(L, 1);
  mtl_refuse_capture(L, "query");
  lua_pushboolean(L, api_of(e->gpu)->event_done(e->gpu, e->handle));
  return 1;
}

static void check_timed(lua_State *L, int arg, const event *e, int gpu) {
  if (e->gpu != gpu) {
    mtl_argerror(L, arg, "elapsed", "events on cuda:%d and cuda:%d", gpu, e->gpu);
  }
  if (!e->timing) {
    mtl_argerror(L, arg, "elapsed", "the event was made without {timing = true}");
  }
  if (!e->recorded) mtl_argerror(L, arg, "elapsed", "the event was never recorded");
}

/* mt.cuda.Event:elapsed(other) -> float: milliseconds from this mark to the other; waits
** for both */
static int event_elapsed(lua_State *L) {
  const event *from = check_event(L, 1), *to = check_event(L, 2);
  mtl_refuse_capture(L, "elapsed");
  const int gpu = from->gpu;
  const mt_device_api *api = api_of(gpu);
  check_timed(L, 1, from, gpu);
  check_timed(L, 2, to, gpu);
  double ms = 0;
  wait_event(L, from);
  wait_event(L, to);
  mt_status status = api->event_synchronize(gpu, from->handle);
  if (status == MT_OK) status = api->event_synchronize(gpu, to->handle);
  if (status == MT_OK) status = api->event_elapsed(gpu, from->handle, to->handle, &ms);
  raise_if(L, status, gpu, "elapsed");
  lua_pushnumber(L, ms);
  return 1;
}

static int event_tostring(lua_State *L) {
  const event *e = check_event(L, 1);
  lua_pushfstring(L, "<Event on cuda:%d>", e->gpu);
  return 1;
}

static const luaL_Reg stream_meta[] = {{"__gc", stream_finalize},
                                       {"__close", stream_finalize},
                                       {"__tostring", stream_tostring},
                                       {NULL, NULL}};
static const luaL_Reg stream_methods[] = {{"use", stream_use},
                                          {"synchronize", stream_synchronize},
                                          {"device", stream_device},
                                          {NULL, NULL}};
static const luaL_Reg event_meta[] = {{"__gc", event_finalize},
                                      {"__close", event_finalize},
                                      {"__tostring", event_tostring},
                                      {NULL, NULL}};
static const luaL_Reg event_methods[] = {
    {"record", event_record},           {"wait", event_wait},
    {"synchronize", event_synchronize}, {"query", event_query},
    {"elapsed", event_elapsed},         {NULL, NULL}};
static const luaL_Reg functions[] = {
    {"Stream", new_stream}, {"Event", new_event}, {NULL, NULL}};

static void new_class(lua_State *L, const char *name, const luaL_Reg *meta,
                      const luaL_Reg *methods) {
  luaL_newmetatable(L, name);
  luaL_setfuncs(L, meta, 0);
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__metatable"); /* what getmetatable gives: no way to change it */
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}

/* stack: mt.cuda */
void mtl_open_streams(lua_State *L) {
  new_class(L, STREAM, stream_meta, stream_methods);
  new_class(L, EVENT, event_meta, event_methods);
  luaL_setfuncs(L, functions, 0);
}
