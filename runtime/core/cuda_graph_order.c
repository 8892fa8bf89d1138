/* runtime/core/cuda_graph_order.c -- dependencies among captured calls, by the bytes that
** they touch. */
#include "runtime/core/cuda_graph_order.h"
#include <stdlib.h>
#include <string.h>

#define MOST_NODES 1024 /* that the stream waits for */
#define MOST_CALLS 8192 /* beyond that a chain */
#define LAST_NODES 4

typedef struct call {
  void *node[LAST_NODES]; /* the last ones */
  int n;
  uint64_t *before; /* bits of the calls that it follows, directly or not */
} call;

/* Bytes lo .. hi - 1: who wrote them last, who has read them since. */
typedef struct span {
  const char *lo, *hi;
  int writer; /* -1: nobody of the graph */
  int nreaders, room;
  int *reader;
} span;

typedef struct use {
  const char *lo, *hi;
  bool writes;
} use;

struct mt_graph_order {
  const mt_graphs *api;
  int gpu;
  void *stream;
  bool chain;  /* something was too much: the rest is one */
  bool failed; /* and it could not be told to wait for what was before */
  bool within, ready, launched;
  call *calls;
  int ncalls, call_room;
  span *spans;
  int nspans, span_room;
  use *uses; /* of the call in progress */
  int nuses, use_room;
  int *dep; /* the calls that it must wait for */
  int ndeps, dep_room;
  int *leaf; /* calls that nothing waits for yet */
  int nleaves, leaf_room;
  void *barrier[MOST_NODES]; /* work that all must wait for */
  int nbarrier;
  void *now[MOST_NODES]; /* what the stream was told to wait for */
  int nnow;
};

static bool grow(void **list, int n, int *room, size_t size) {
  if (n < *room) return true;
  const int more = *room ? 2 * *room : 32;
  void *p = realloc(*list, (size_t)more * size);
  if (!p) return false;
  *list = p, *room = more;
  return true;
}

mt_graph_order *mt_graph_order_new(const mt_graphs *api, int gpu, void *stream) {
  mt_graph_order *o = calloc(1, sizeof *o);
  if (o) o->api = api, o->gpu = gpu, o->stream = stream;
  return o;
}

static void clear_spans(mt_graph_order *o) {
  for (int i = 0; i < o->nspans; i++) free(o->spans[i].reader);
  o->nspans = 0;
}

void mt_graph_order_free(mt_graph_order *o) {
  if (!o) return;
  clear_spans(o);
  for (int i = 0; i < o->ncalls; i++) free(o->calls[i].before);
  free(o->calls), free(o->spans), free(o->uses), free(o->dep), free(o->leaf);
  free(o);
}

/* ---- the stream's dependencies ---- */

static bool add_now(mt_graph_order *o, void *node) {
  for (int i = 0; i < o->nnow; i++)
    if (o->now[i] == node) return true;
  if (o->nnow == MOST_NODES) return false;
  o->now[o->nnow++] = node;
  return true;
}

static bool add_call_now(mt_graph_order *o, int number) {
  const call *c = &o->calls[number];
  for (int i = 0; i < c->n; i++)
    if (!add_now(o, c->node[i])) return false;
  return true;
}

static bool set_now(mt_graph_order *o) {
  return o->api->depend(o->gpu, o->stream, o->now, o->nnow) == MT_OK;
}

/* From here on the capture is a chain, which begins with all that there is. */
static void give_up(mt_graph_order *o) {
  o->chain = true;
  o->nnow = MOST_NODES;
  bool all = o->api->dependencies(o->gpu, o->stream, o->now, &o->nnow) == MT_OK;
  for (int i = 0; i < o->nleaves && all; i++) all = add_call_now(o, o->leaf[i]);
  for (int i = 0; i < o->ndeps && all; i++) all = add_call_now(o, o->dep[i]);
  if (!all || !set_now(o)) o->failed = true;
}

static bool is_now(const mt_graph_order *o, void *const *node, int n) {
  if (n != o->nnow) return false;
  for (int i = 0; i < n; i++) {
    bool found = false;
    for (int k = 0; k < n && !found; k++) found = o->now[k] == node[i];
    if (!found) return false;
  }
  return true;
}

/* Let the stream wait for everything: what is launched now may be anything. */
static bool wait_for_all(mt_graph_order *o) {
  o->nnow = 0;
  for (int i = 0; i < o->nleaves; i++)
    if (!add_call_now(o, o->leaf[i])) return false;
  if (o->nleaves == 0)
    for (int i = 0; i < o->nbarrier; i++) add_now(o, o->barrier[i]);
  return set_now(o);
}

/* ---- who must wait for whom ---- */

static bool follows(const mt_graph_order *o, int later, int earlier) {
  return o->calls[later].before[earlier >> 6] >> (earlier & 63) & 1u;
}

static bool add_dep(mt_graph_order *o, int of) {
  if (of < 0) return true;
  for (int i = 0; i < o->ndeps; i++)
    if (o->dep[i] == of) return true;
  if (!grow((void **)&o->dep, o->ndeps, &o->dep_room, sizeof *o->dep)) return false;
  o->dep[o->ndeps++] = of;
  return true;
}

static bool overlap(const span *s, const char *lo, const char *hi) {
  return s->lo < hi && lo < s->hi;
}

/* The nodes of the deps that no other of them follows; of none: the barrier's. */
static bool gather_nodes(mt_graph_order *o) {
  o->nnow = 0;
  for (int i = 0; i < o->ndeps; i++) {
    bool needed = true;
    for (int k = 0; k < o->ndeps && needed; k++)
      needed = k == i || !follows(o, o->dep[k], o->dep[i]);
    if (needed && !add_call_now(o, o->dep[i])) return false;
  }
  if (o->ndeps == 0) /* calls follow it themselves */
    for (int i = 0; i < o->nbarrier; i++) add_now(o, o->barrier[i]);
  return true;
}

void mt_graph_order_enter(mt_graph_order *o) {
  void *node[MOST_NODES];
  int n = MOST_NODES;
  o->within = true, o->ready = o->launched = false;
  o->nuses = o->ndeps = 0;
  if (o->chain) return;
  if (o->api->dependencies(o->gpu, o->stream, node, &n) != MT_OK ||
      o->ncalls == MOST_CALLS) {
    give_up(o);
    return;
  }
  if (is_now(o, node, n)) return;
  clear_spans(o); /* somebody else has launched something */
  o->nleaves = 0;
  o->nbarrier = n;
  memcpy(o->barrier, node, (size_t)n * sizeof *node);
}

static bool find_deps(mt_graph_order *o, const use *u) {
  for (int i = 0; i < o->nspans; i++) {
    const span *s = &o->spans[i];
    if (!overlap(s, u->lo, u->hi)) continue;
    if (!add_dep(o, s->writer)) return false;
    for (int k = 0; u->writes && k < s->nreaders; k++)
      if (!add_dep(o, s->reader[k])) return false;
  }
  return true;
}

/* The call has begun: its next launch waits for new deps, too. */
static bool add_late_deps(mt_graph_order *o) {
  void *node[MOST_NODES];
  int n = MOST_NODES;
  if (o->api->dependencies(o->gpu, o->stream, node, &n) != MT_OK) return false;
  o->launched = o->launched || !is_now(o, node, n);
  if (!gather_nodes(o)) return false;
  for (int i = 0; o->launched && i < n; i++)
    if (!add_now(o, node[i])) return false;
  return set_now(o);
}

void mt_graph_order_use(mt_graph_order *o, const void *p, size_t bytes, bool writes) {
  if (!o->within || o->chain || !p || bytes == 0) return;
  const use u = {p, (const char *)p + bytes, writes};
  const int before = o->ndeps;
  bool ok = find_deps(o, &u) &&
            grow((void **)&o->uses, o->nuses, &o->use_room, sizeof *o->uses);
  if (ok) o->uses[o->nuses++] = u;
  if (ok && o->ready && o->ndeps > before) ok = add_late_deps(o);
  if (!ok) give_up(o);
}

void mt_graph_order_ready(mt_graph_order *o) {
  if (o->chain) return;
  o->ready = true;
  if (!gather_nodes(o) || !set_now(o)) give_up(o);
}

/* ---- noting a call ---- */

static bool add_reader(span *s, int call_number) {
  if (!grow((void **)&s->reader, s->nreaders, &s->room, sizeof *s->reader))
    return false;
  s->reader[s->nreaders++] = call_number;
  return true;
}

static span *new_span(mt_graph_order *o, const use *u) {
  if (!grow((void **)&o->spans, o->nspans, &o->span_room, sizeof *o->spans))
    return NULL;
  span *s = &o->spans[o->nspans++];
  *s = (span){.lo = u->lo, .hi = u->hi, .writer = -1};
  return s;
}

/* What was written before within these bytes no longer matters. */
static void forget_within(mt_graph_order *o, const use *u) {
  for (int i = 0; i < o->nspans;) {
    span *s = &o->spans[i];
    if (u->lo <= s->lo && s->hi <= u->hi) {
      free(s->reader);
      *s = o->spans[--o->nspans];
    } else
      i++;
  }
}

static bool note_use(mt_graph_order *o, const use *u, int number) {
  if (u->writes) {
    forget_within(o, u);
    span *s = new_span(o, u);
    if (s) s->writer = number;
    return s != NULL;
  }
  for (int i = 0; i < o->nspans; i++) {
    span *s = &o->spans[i];
    if (s->lo != u->lo || s->hi != u->hi) continue;
    return s->writer == number || add_reader(s, number);
  }
  span *s = new_span(o, u);
  return s && add_reader(s, number);
}

static bool add_call(mt_graph_order *o, void *const *node, int n) {
  if (n > LAST_NODES ||
      !grow((void **)&o->calls, o->ncalls, &o->call_room, sizeof *o->calls))
    return false;
  const size_t used = (size_t)o->ncalls / 64 + 1;
  uint64_t *before = calloc(MOST_CALLS / 64, sizeof *before);
  if (!before) return false;
  for (int i = 0; i < o->ndeps; i++) {
    const uint64_t *more = o->calls[o->dep[i]].before;
    for (size_t w = 0; w < used; w++) before[w] |= more[w];
    before[o->dep[i] >> 6] |= UINT64_C(1) << (o->dep[i] & 63);
  }
  call *c = &o->calls[o->ncalls++];
  c->n = n;
  c->before = before;
  memcpy(c->node, node, (size_t)n * sizeof *node);
  return true;
}

/* The call is a leaf now; what it waits for is none any more. */
static bool move_leaves(mt_graph_order *o, int number) {
  int kept = 0;
  for (int i = 0; i < o->nleaves; i++)
    if (!follows(o, number, o->leaf[i])) o->leaf[kept++] = o->leaf[i];
  o->nleaves = kept;
  if (!grow((void **)&o->leaf, o->nleaves, &o->leaf_room, sizeof *o->leaf))
    return false;
  o->leaf[o->nleaves++] = number;
  return true;
}

/* The call that is left has ended in these nodes. */
static bool note_call(mt_graph_order *o, void *const *node, int n) {
  if (!add_call(o, node, n)) return false;
  const int number = o->ncalls - 1;
  if (!move_leaves(o, number)) return false;
  for (int writes = 0; writes < 2; writes++) /* it may do both with the same bytes */
    for (int i = 0; i < o->nuses; i++)
      if (o->uses[i].writes == writes && !note_use(o, &o->uses[i], number))
        return false;
  return true;
}

void mt_graph_order_leave(mt_graph_order *o) {
  void *node[MOST_NODES];
  int n = MOST_NODES;
  o->within = false;
  if (o->chain) return;
  bool ok = o->api->dependencies(o->gpu, o->stream, node, &n) == MT_OK;
  if (ok && (o->launched || !is_now(o, node, n))) ok = note_call(o, node, n);
  o->ndeps = 0;
  if (!ok || !wait_for_all(o)) give_up(o);
}

bool mt_graph_order_failed(const mt_graph_order *o) { return o->failed; }
