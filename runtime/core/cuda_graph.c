/* runtime/core/cuda_graph.c -- graphs of calls on a GPU: capture, replay, and the
** numbers that change in between. */
#include "runtime/core/cuda_graph.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/graphs.h"
#include "runtime/core/cuda_graph_order.h"
#include "runtime/core/memory.h"
#include "runtime/core/profile.h"

/* A tensor from outside that the graph uses. */
typedef struct held {
  mt_tensor *t; /* an alias */
  uint32_t version;
  bool written; /* by replays */
} held;

struct mt_graph {
  mt_context *ctx;
  int gpu;
  bool parallel;
  const mt_graphs *api;
  mt_graph_order *order; /* while it is captured; NULL: a chain */
  void *stream;          /* that is captured; NULL: none */
  void *outer;           /* the state's stream meanwhile */
  void *captured;        /* NULL: nothing to replay */
  int nodes;
  bool failed; /* no memory to hold something */
  /* random numbers */
  bool draws;
  uint64_t seed, first, drawn; /* position at the capture's begin; positions drawn */
  /* values on the device, and what they are there before the next replay */
  mt_graph_values *values, wanted, there;
  int nslots;
  bool known; /* `there` is so */
  /* what is held; slot[] finds an entry by its storage */
  held *held;
  int nheld, room;
  int *slot; /* [2 * room] 0: empty, else the entry's number from 1 */
  /* replays */
  bool launched; /* or, before, something to wait for on the stream `last` */
  bool noted;    /* the allocator knows of the last one's stream */
  void *last;    /* the stream of the last one */
};

static const mt_device_api *device_api(const mt_graph *g) {
  return mt_backend_of((mt_device){MT_CUDA, (int8_t)g->gpu})->device;
}

static mt_status api_status(const mt_graph *g, mt_status status) {
  if (status == MT_OK) return MT_OK;
  return mt_fail(status, "%s", device_api(g)->error_text());
}

mt_status mt_graph_new(mt_context *ctx, mt_device gpu, bool parallel, mt_graph **out) {
  *out = NULL;
  const mt_backend *backend = mt_backend_of(gpu);
  if (!backend) return MT_EDEVICE;
  const mt_graphs *api = backend->table ? backend->table("graphs") : NULL;
  if (!api) return mt_fail(MT_EUNSUPPORTED, "%s has no graphs", mt_device_name(gpu));
  mt_graph *g = calloc(1, sizeof *g);
  if (!g) return mt_fail(MT_EMEMORY, "out of memory");
  g->ctx = ctx, g->gpu = gpu.index, g->api = api, g->parallel = parallel;
  mt_gpu_pool_open(g->gpu, g);
  *out = g;
  return MT_OK;
}

static void release_held(mt_graph *g) {
  for (int i = 0; i < g->nheld; i++) mt_release(g->held[i].t);
  g->nheld = 0;
  if (g->slot) memset(g->slot, 0, 2 * (size_t)g->room * sizeof *g->slot);
}

void mt_graph_drop(mt_graph *g) {
  if (g->launched) device_api(g)->stream_synchronize(g->gpu, g->last);
  if (g->captured) g->api->destroy(g->gpu, g->captured);
  g->captured = NULL;
  g->nodes = 0;
  release_held(g);
}

void mt_graph_free(mt_graph *g) {
  if (!g) return;
  if (g->stream) mt_graph_end(g, false);
  mt_graph_drop(g);
  if (g->values) mt_gpu_give(g->gpu, g->values, sizeof *g->values);
  mt_gpu_pool_close(g->gpu, g, g->last);
  free(g->held);
  free(g->slot);
  free(g);
}

bool mt_graph_is_ready(const mt_graph *g) {
  return g->captured && (!g->draws || g->seed == g->ctx->seed);
}

int mt_graph_nodes(const mt_graph *g) { return g->nodes; }

/* ---- capture ---- */

mt_status mt_graph_refuse(const mt_context *ctx, const char *what) {
  if (!ctx->graph) return MT_OK;
  return mt_fail(MT_EUNSUPPORTED, "%s cannot be captured in a graph", what);
}

mt_status mt_graph_begin(mt_graph *g) {
  mt_context *ctx = g->ctx;
  if (ctx->graph)
    return mt_fail(MT_EUNSUPPORTED, "a graph cannot be captured within another");
  mt_graph_drop(g);
  g->last = ctx->stream[g->gpu];
  g->launched = true; /* the memory that it will take may be in use there */
  mt_gpu_pool_lend(g->gpu, g, g->last);
  if (!g->values) {
    MT_TRY(api_status(g, device_api(g)->open(g->gpu)));
    g->values = mt_gpu_take(g->gpu, g, sizeof *g->values);
    if (!g->values) return mt_fail(MT_EMEMORY, "out of memory on cuda:%d", g->gpu);
  }
  MT_TRY(api_status(g, g->api->begin(g->gpu, &g->stream)));
  g->outer = ctx->stream[g->gpu];
  g->seed = ctx->seed, g->first = ctx->position;
  g->draws = g->failed = g->known = false;
  g->nslots = 0;
  memset(&g->wanted, 0, sizeof g->wanted);
  ctx->stream[g->gpu] = g->stream;
  ctx->graph = g;
  ctx->watch |= MT_WATCH_GRAPH;
  mt_gpu_keep_segments(g->gpu, g, true);
  if (g->parallel) g->order = mt_graph_order_new(g->api, g->gpu, g->stream);
  return MT_OK;
}

mt_status mt_graph_end(mt_graph *g, bool keep) {
  mt_context *ctx = g->ctx;
  mt_status status = MT_OK;
  g->drawn = ctx->position - g->first;
  if (keep && (g->failed || (g->order && mt_graph_order_failed(g->order))))
    status = mt_fail(MT_EMEMORY, "out of memory");
  mt_graph_order_free(g->order);
  g->order = NULL;
  if (keep && status == MT_OK && (g->draws || g->nslots > 0))
    status = api_status(g, g->api->advance(g->gpu, g->stream, g->values, g->drawn));
  keep = keep && status == MT_OK;
  const mt_status ended =
      g->api->end(g->gpu, g->stream, keep ? &g->captured : NULL, &g->nodes);
  if (status == MT_OK && keep) status = api_status(g, ended);
  g->stream = NULL;
  g->noted = false;
  ctx->stream[g->gpu] = g->outer;
  ctx->graph = NULL;
  ctx->watch &= ~MT_WATCH_GRAPH;
  ctx->position = g->first; /* nothing has been drawn yet */
  mt_gpu_keep_segments(g->gpu, g, false);
  for (int i = 0; i < g->nheld; i++)
    g->held[i].written = g->held[i].t->storage->version != g->held[i].version;
  if (!g->captured) release_held(g);
  return status;
}

mt_status mt_graph_admit(const mt_context *ctx, const char *name, int nin,
                         mt_tensor *const *in, int nout, mt_tensor *const *out) {
  const mt_graph *g = ctx->graph;
  bool on_gpu = false, on_cpu = false;
  for (int i = 0; i < nin + nout; i++) {
    const mt_tensor *t = i < nin ? in[i] : out[i - nin];
    if (!t) continue;
    const mt_device d = mt_device_of(t);
    if (d.kind != MT_CPU && d.index != g->gpu)
      return mt_fail(MT_EUNSUPPORTED,
                     "%s: runs on %s and cannot be captured in a graph of cuda:%d",
                     name, mt_device_name(d), g->gpu);
    on_gpu = on_gpu || d.kind != MT_CPU;
    on_cpu = on_cpu || (d.kind == MT_CPU && !t->v.host);
  }
  if (on_cpu && !on_gpu)
    return mt_fail(MT_EUNSUPPORTED,
                   "%s: runs on the CPU and cannot be captured in a graph", name);
  return MT_OK;
}

static void use(mt_graph *g, const mt_tensor *t, bool writes) {
  if (t && mt_device_of(t).kind != MT_CPU)
    mt_graph_order_use(g->order, t->storage->data, t->storage->bytes, writes);
}

void mt_graph_enter(mt_graph *g, int nin, mt_tensor *const *in, int nout,
                    mt_tensor *const *out) {
  if (!g->order) return;
  mt_graph_order_enter(g->order);
  for (int i = 0; i < nin; i++) use(g, in[i], false);
  for (int i = 0; i < nout; i++) use(g, out[i], true);
  mt_graph_order_ready(g->order);
}

void mt_graph_leave(mt_graph *g) {
  if (g->order) mt_graph_order_leave(g->order);
}

void mt_graph_takes(mt_graph *g, const void *p, size_t bytes) {
  if (g->order) mt_graph_order_use(g->order, p, bytes, true);
}

static int *slot_for(const mt_graph *g, const mt_storage *s) {
  const size_t mask = 2 * (size_t)g->room - 1;
  size_t at = ((uintptr_t)s >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 32 & mask;
  while (g->slot[at] && g->held[g->slot[at] - 1].t->storage != s) at = (at + 1) & mask;
  return &g->slot[at];
}

static bool make_room(mt_graph *g) {
  const int room = g->room ? 2 * g->room : 64;
  held *list = realloc(g->held, (size_t)room * sizeof *list);
  if (!list) return false;
  g->held = list;
  int *slot = calloc(2 * (size_t)room, sizeof *slot);
  if (!slot) return false;
  free(g->slot);
  g->slot = slot, g->room = room;
  for (int i = 0; i < g->nheld; i++) *slot_for(g, g->held[i].t->storage) = i + 1;
  return true;
}

/* The entry of t's storage, made if it is not held yet; NULL: no memory. */
static held *hold(mt_graph *g, mt_tensor *t) {
  if (g->nheld == g->room && !make_room(g)) return NULL;
  int *at = slot_for(g, t->storage);
  if (*at) return &g->held[*at - 1];
  mt_tensor *alias;
  if (mt_alias_same(t, &alias) != MT_OK) return NULL;
  held *h = &g->held[g->nheld++];
  *h = (held){alias, t->storage->version, false};
  *at = g->nheld;
  return h;
}

void mt_graph_hold(mt_graph *g, mt_tensor *t) {
  if (t->storage->stream == g) return;
  if (!hold(g, t)) g->failed = true;
}

void mt_graph_writes(mt_graph *g, mt_tensor *t) {
  held *h = hold(g, t);
  if (h) h->written = true;
}

const mt_replay *mt_graph_replay_values(mt_context *ctx) {
  mt_graph *g = ctx->graph;
  if (!g) return NULL;
  g->draws = true;
  return &g->values->replay;
}

const mt_replay *mt_graph_replay_of(mt_context *ctx, uint64_t seed, uint64_t position) {
  const mt_graph *g = ctx->graph;
  if (!g || seed != g->seed || position - g->first >= ctx->position - g->first)
    return NULL;
  return mt_graph_replay_values(ctx);
}

void *mt_graph_pool(const mt_context *ctx, int gpu) {
  if (!ctx) return NULL;
  if (ctx->graph && ctx->graph->gpu == gpu) return ctx->graph;
  return ctx->stream[gpu];
}

/* ---- slots ---- */

int mt_graph_slot(mt_graph *g, mt_attr *a, double step) {
  if (g->nslots == MT_GRAPH_SLOTS) return -1;
  const int slot = g->nslots++;
  g->wanted.slot[slot] = a->f;
  g->wanted.step[slot] = step;
  a->is_int = MT_ATTR_SLOT;
  a->i[0] = (int64_t)(uintptr_t)&g->values->slot[slot];
  return slot;
}

int mt_graph_slots(const mt_graph *g) { return g->nslots; }

void mt_graph_set_slot(mt_graph *g, int slot, double value) {
  if (slot >= 0 && slot < g->nslots) g->wanted.slot[slot] = value;
}

/* ---- replays ---- */

/* Tell the allocator what the replays on this stream use. */
static void note_stream(mt_graph *g, void *stream) {
  for (int i = 0; i < g->nheld; i++) {
    const mt_storage *s = g->held[i].t->storage;
    if (s->stream != stream && s->stream != g && !s->release)
      mt_block_used_on(s->device, s->data, stream);
  }
}

/* `stream` goes on when `after` has reached this place. */
static mt_status wait_for(mt_graph *g, void *stream, void *after) {
  const mt_device_api *api = device_api(g);
  void *event = NULL;
  MT_TRY(api_status(g, api->event_create(g->gpu, 0, &event)));
  mt_status status = api->event_record(g->gpu, event, after);
  if (status == MT_OK) status = api->event_wait(g->gpu, stream, event);
  status = api_status(g, status);
  api->event_destroy(g->gpu, event);
  return status;
}

mt_status mt_graph_prepare(mt_graph *g) {
  void *stream = g->ctx->stream[g->gpu];
  if (g->launched && stream == g->last) return MT_OK;
  if (g->launched) MT_TRY(wait_for(g, stream, g->last));
  g->launched = true;
  g->noted = false;
  g->last = stream;
  return MT_OK;
}

static mt_status replay(mt_graph *g) {
  mt_context *ctx = g->ctx;
  MT_TRY(mt_graph_prepare(g));
  if (!g->noted) note_stream(g, g->last);
  g->noted = true;
  if (g->draws || g->nslots > 0) {
    g->wanted.replay.positions = ctx->position - g->first;
    if (!g->known || memcmp(&g->wanted, &g->there, sizeof g->wanted) != 0) {
      g->known = false;
      MT_TRY(api_status(g, g->api->set(g->gpu, g->last, g->values, &g->wanted)));
    }
  }
  MT_TRY(api_status(g, g->api->launch(g->gpu, g->captured, g->last)));
  g->known = true;
  ctx->position += g->drawn;
  g->wanted.replay.positions += g->drawn;
  g->wanted.replay.count++;
  for (int i = 0; i < g->nslots; i++) g->wanted.slot[i] += g->wanted.step[i];
  g->there = g->wanted;
  for (int i = 0; i < g->nheld; i++)
    if (g->held[i].written) g->held[i].t->storage->version++;
  return MT_OK;
}

mt_status mt_graph_replay(mt_graph *g) {
  mt_mark mark;
  mt_profile_begin_on(g->ctx, "graph", false, (mt_device){MT_CUDA, (int8_t)g->gpu},
                      true, &mark);
  const mt_status status = replay(g);
  mt_profile_end(&mark, NULL, status, 0, NULL, 0, NULL);
  return status;
}
