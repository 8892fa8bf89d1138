/* runtime/core/profile.c -- notes of calls for mt.profile: the clock of the host, events
** around the work of GPUs, scopes. */
#include "runtime/core/profile.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/profiling.h"
#include "runtime/core/cuda_graph.h"

#define MOST_RECORDS (INT64_C(1) << 20)
#define QUEUED       48     /* calls that a GPU is held back for */
#define HELD         1.5e-3 /* seconds at most */

typedef struct scope {
  char *name;
  int parent, child, sibling; /* 0: none */
} scope;

/* Events of one GPU, in pairs; and what holds it back. */
typedef struct gpu {
  const mt_device_api *api;
  const mt_profiling *more; /* NULL: not there */
  void **event;
  int nevents, room;
  void *base; /* the event at host time base_time; NULL: the GPU was not used */
  double base_time;
  double between;         /* seconds that two events with nothing between them show */
  uint32_t *flag, ticket; /* pinned */
  bool held;
  int queued;
  double since;
} gpu;

struct mt_profile {
  mt_context *ctx;
  bool back_to_back, ranges;
  double t0;
  int depth;
  mt_record *record;
  int *event; /* [n] number of the first of a pair; -1: none */
  int64_t n, room, dropped;
  double allocated;
  scope *scope;
  int nscopes, scope_room, current, node;
  char **name; /* [nnames] of what is no op */
  int nnames, name_room;
  mt_stretch *stretch;
  int64_t nstretches, stretch_room;
  gpu gpus[MT_MAX_GPUS];
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool grow(void **list, int64_t n, int64_t *room, size_t size) {
  if (n < *room) return true;
  const int64_t more = *room ? 2 * *room : 256;
  void *p = realloc(*list, (size_t)more * size);
  if (!p) return false;
  *list = p, *room = more;
  return true;
}

/* ---- starting and stopping ---- */

mt_status mt_profile_start(mt_context *ctx, bool back_to_back, bool ranges,
                           mt_profile **out) {
  mt_profile *p = *out = calloc(1, sizeof *p);
  scope *first = calloc(64, sizeof *first);
  if (!p || !first) {
    free(p), free(first);
    return mt_fail(MT_EMEMORY, "out of memory");
  }
  p->ctx = ctx;
  p->back_to_back = back_to_back, p->ranges = ranges;
  p->scope = first, p->scope_room = 64, p->nscopes = 1; /* 0: none */
  p->node = -1;
  p->t0 = now();
  ctx->profile = p;
  ctx->watch |= MT_WATCH_PROFILE;
  return MT_OK;
}

/* A device's times of a call, once its events have been reached. */
static void read_events(const mt_profile *p, mt_record *r, int event) {
  const int index = r->device.index;
  const gpu *g = &p->gpus[index];
  double from = 0, took = 0;
  if (g->api->event_elapsed(index, g->base, g->event[event], &from) != MT_OK ||
      g->api->event_elapsed(index, g->event[event], g->event[event + 1], &took) !=
          MT_OK)
    return;
  took = took * 1e-3 - g->between;
  r->device_start = g->base_time + from * 1e-3;
  r->device_time = took > 1e-7 ? took : 1e-7;
}

mt_status mt_profile_stop(mt_profile *p) {
  mt_status status = MT_OK;
  mt_profile_leave(p, 0);
  p->ctx->profile = NULL;
  p->ctx->watch &= ~MT_WATCH_PROFILE;
  p->ctx->scope = 0;
  mt_profile_release(p);
  for (int i = 0; i < MT_MAX_GPUS; i++) {
    if (!p->gpus[i].base) continue;
    const mt_status waited = p->gpus[i].api->device_synchronize(i);
    if (waited != MT_OK) status = mt_fail(waited, "%s", p->gpus[i].api->error_text());
  }
  for (int64_t k = 0; k < p->n && status == MT_OK; k++)
    if (p->event[k] >= 0) read_events(p, &p->record[k], p->event[k]);
  for (int i = 0; i < MT_MAX_GPUS; i++) {
    gpu *g = &p->gpus[i];
    for (int k = 0; k < g->nevents; k++) g->api->event_destroy(i, g->event[k]);
    if (g->base) g->api->event_destroy(i, g->base);
    if (g->flag) g->api->host_free(g->flag);
    free(g->event);
    *g = (gpu){0};
  }
  return status;
}

void mt_profile_free(mt_profile *p) {
  if (!p) return;
  if (p->ctx->profile == p) mt_profile_stop(p);
  for (int i = 1; i < p->nscopes; i++) free(p->scope[i].name);
  for (int i = 0; i < p->nnames; i++) free(p->name[i]);
  free(p->name);
  free(p->scope);
  free(p->stretch);
  free(p->record);
  free(p->event);
  free(p);
}

int64_t mt_profile_count(const mt_profile *p) { return p->n; }
int64_t mt_profile_dropped(const mt_profile *p) { return p->dropped; }
const mt_record *mt_profile_record(const mt_profile *p, int64_t i) {
  return &p->record[i];
}

/* ---- scopes ---- */

/* The scope of that name within parent, made if need be; parent if there is no memory. */
static int find_scope(mt_profile *p, int parent, const char *name) {
  for (int i = p->scope[parent].child; i; i = p->scope[i].sibling)
    if (strcmp(p->scope[i].name, name) == 0) return i;
  int64_t room = p->scope_room;
  if (!grow((void **)&p->scope, p->nscopes, &room, sizeof *p->scope)) return parent;
  p->scope_room = (int)room;
  char *copy = strdup(name);
  if (!copy) return parent;
  const int i = p->nscopes++;
  p->scope[i] = (scope){copy, parent, 0, p->scope[parent].child};
  p->scope[parent].child = i;
  return i;
}

static void range(const mt_profile *p, const char *name) {
  const char *reason;
  const mt_backend *backend = p->ranges ? mt_cuda_backend(&reason) : NULL;
  const mt_profiling *t =
      backend && backend->table ? backend->table("profiling") : NULL;
  if (!t) return;
  if (name)
    t->range_push(name);
  else
    t->range_pop();
}

int mt_profile_enter(mt_profile *p, const char *name) {
  const int before = p->current;
  const int made = find_scope(p, before, name);
  if (made == before) return before;
  p->current = p->ctx->scope = made;
  range(p, name);
  if (grow((void **)&p->stretch, p->nstretches, &p->stretch_room, sizeof *p->stretch))
    p->stretch[p->nstretches++] = (mt_stretch){made, now() - p->t0, -1};
  return before;
}

/* The latest stretch of the scope ends now. */
static void close_stretch(mt_profile *p, int of) {
  int64_t i = p->nstretches - 1;
  while (i >= 0 && (p->stretch[i].scope != of || p->stretch[i].end >= 0)) i--;
  if (i >= 0) p->stretch[i].end = now() - p->t0;
}

int mt_profile_leave(mt_profile *p, int to) {
  const int before = p->current;
  while (p->current != to && p->current != 0) {
    close_stretch(p, p->current);
    range(p, NULL);
    p->current = p->ctx->scope = p->scope[p->current].parent;
  }
  return before;
}

int mt_profile_node(mt_profile *p, int of) {
  const int before = p->node;
  p->node = of;
  return before;
}

const char *mt_profile_scope_name(const mt_profile *p, int of, int *parent) {
  if (of <= 0 || of >= p->nscopes) return NULL;
  *parent = p->scope[of].parent;
  return p->scope[of].name;
}

int64_t mt_profile_stretches(const mt_profile *p, const mt_stretch **list) {
  *list = p->stretch;
  return p->nstretches;
}

const char *mt_profile_name(mt_context *ctx, const char *name) {
  mt_profile *p = ctx->profile;
  if (!p) return NULL;
  for (int i = 0; i < p->nnames; i++)
    if (strcmp(p->name[i], name) == 0) return p->name[i];
  int64_t room = p->name_room;
  if (!grow((void **)&p->name, p->nnames, &room, sizeof *p->name)) return "?";
  p->name_room = (int)room;
  char *copy = strdup(name);
  if (!copy) return "?";
  return p->name[p->nnames++] = copy;
}

/* ---- GPUs ---- */

static void let_run(gpu *g) {
  if (!g->held) return;
  __atomic_store_n(g->flag, g->ticket, __ATOMIC_RELEASE);
  g->held = false;
}

void mt_profile_release(mt_profile *p) {
  for (int i = 0; i < MT_MAX_GPUS; i++) let_run(&p->gpus[i]);
}

static void hold_back(gpu *g, int index, void *stream) {
  if (!g->flag || g->held) return;
  if (g->more->hold(index, stream, g->flag, g->ticket + 1) != MT_OK) return;
  g->ticket++;
  g->held = true;
  g->queued = 0;
  g->since = now();
}

/* Record an event on the current stream; its number, or -1. */
static int mark_time(mt_profile *p, gpu *g, int index) {
  int64_t room = g->room;
  if (!grow((void **)&g->event, g->nevents, &room, sizeof *g->event)) return -1;
  g->room = (int)room;
  void *event = NULL;
  if (g->api->event_create(index, 1, &event) != MT_OK) return -1;
  g->event[g->nevents] = event;
  if (g->api->event_record(index, event, p->ctx->stream[index]) != MT_OK) {
    g->api->event_destroy(index, event);
    return -1;
  }
  return g->nevents++;
}

/* What does a pair of events show that has nothing to time? */
static void measure_between(mt_profile *p, gpu *g, int index) {
  hold_back(g, index, p->ctx->stream[index]);
  int last = -1;
  for (int i = 0; i < 9; i++) last = mark_time(p, g, index);
  let_run(g);
  if (last != g->nevents - 1 || last < 8 ||
      g->api->event_synchronize(index, g->event[last]) != MT_OK)
    return;
  double least = 1e9, ms = 0;
  for (int i = last - 7; i <= last; i++) {
    if (g->api->event_elapsed(index, g->event[i - 1], g->event[i], &ms) != MT_OK)
      return;
    if (ms < least) least = ms;
  }
  g->between = least * 1e-3;
}

static gpu *use_gpu(mt_profile *p, int index) {
  gpu *g = &p->gpus[index];
  if (g->base) return g;
  const mt_backend *backend = mt_backend_of((mt_device){MT_CUDA, (int8_t)index});
  if (!backend) return NULL;
  g->api = backend->device;
  g->more = backend->table ? backend->table("profiling") : NULL;
  void *base = NULL, *stream = p->ctx->stream[index];
  if (g->api->open(index) != MT_OK || g->api->event_create(index, 1, &base) != MT_OK)
    return NULL;
  if (p->back_to_back && g->more) g->flag = g->api->host_alloc(sizeof *g->flag);
  if (g->flag) *g->flag = 0;
  measure_between(p, g, index);
  if (g->api->event_record(index, base, stream) != MT_OK ||
      g->api->event_synchronize(index, base) != MT_OK) {
    g->api->event_destroy(index, base);
    return NULL;
  }
  g->base = base;
  g->base_time = now() - p->t0;
  return g;
}

/* ---- calls ---- */

mt_device mt_profile_device(int nin, mt_tensor *const *in, int nout,
                            mt_tensor *const *out) {
  for (int i = 0; i < nin + nout; i++) {
    const mt_tensor *t = i < nin ? in[i] : out[i - nin];
    if (t && mt_device_of(t).kind != MT_CPU) return mt_device_of(t);
  }
  return (mt_device){MT_CPU, 0};
}

static bool make_room(mt_profile *p) {
  int64_t room = p->room;
  if (p->n >= MOST_RECORDS) return false;
  if (!grow((void **)&p->event, p->n, &room, sizeof *p->event)) return false;
  return grow((void **)&p->record, p->n, &p->room, sizeof *p->record);
}

void mt_profile_begin(mt_context *ctx, const char *name, bool gradient, int nin,
                      mt_tensor *const *in, int nout, mt_tensor *const *out,
                      mt_mark *mark) {
  mark->p = NULL;
  if (!ctx->profile) return;
  mt_profile_begin_on(ctx, name, gradient, mt_profile_device(nin, in, nout, out), true,
                      mark);
}

void mt_profile_begin_on(mt_context *ctx, const char *name, bool gradient,
                         mt_device device, bool timed, mt_mark *mark) {
  mt_profile *p = ctx->profile;
  mark->p = NULL;
  if (!p) return;
  if (p->depth > 0 || !make_room(p)) {
    if (p->depth == 0) p->dropped++;
    return;
  }
  p->depth++;
  *mark = (mt_mark){.p = p, .record = p->n, .event = -1};
  p->event[p->n] = -1;
  mt_record *r = &p->record[p->n++];
  memset(r, 0, sizeof *r);
  r->name = name;
  r->gradient = gradient || p->node >= 0;
  r->scope = p->node >= 0 ? p->node : p->current;
  r->device = device;
  r->device_start = r->device_time = -1;
  range(p, name);
  if (device.kind != MT_CPU && timed && !ctx->graph) {
    gpu *g = use_gpu(p, device.index);
    if (g) hold_back(g, device.index, ctx->stream[device.index]);
    if (g) mark->event = mark_time(p, g, device.index);
  }
  mark->allocated = p->allocated;
  mark->start = now();
  r->start = mark->start - p->t0;
  p->allocated -= (double)ctx->gc_debt; /* what the host allocates shows there */
}

void mt_profile_end(mt_mark *mark, const mt_opinfo *op, mt_status status, int nin,
                    mt_tensor *const *in, int nout, mt_tensor *const *out) {
  mt_profile *p = mark->p;
  if (!p) return;
  const double end = now();
  mt_record *r = &p->record[mark->record];
  p->depth--;
  r->host = end - mark->start;
  p->allocated += (double)p->ctx->gc_debt;
  const double allocated = p->allocated - mark->allocated;
  r->allocated = allocated > 0 ? allocated : 0;
  if (status == MT_OK) {
    r->cost = mt_cost_of(op, nin, in, nout, out);
    if (nout > 0 && out[0]) {
      r->ndim = out[0]->v.ndim;
      memcpy(r->shape, out[0]->v.shape, (size_t)r->ndim * sizeof *r->shape);
    }
  }
  if (mark->event >= 0) {
    gpu *g = &p->gpus[r->device.index];
    if (mark_time(p, g, r->device.index) == mark->event + 1)
      p->event[mark->record] = mark->event;
    if (g->held && (++g->queued >= QUEUED || end - g->since > HELD)) let_run(g);
  }
  range(p, NULL);
}

void mt_profile_allocated(mt_profile *p, size_t bytes) {
  p->allocated += (double)bytes;
}
