/* spec/units/graph_order.c -- random captured calls over random bytes: those that touch
** the same ones, and one of them writes, must be ordered; others need not be.
**
** A capture is played here: a stream has nodes that its next work follows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/cuda_graph_order.h"

#define MOST 2048 /* nodes of a round */

static char *follows; /* [MOST * MOST] follows[a * MOST + b]: a comes after b */
static int nodes, current[MOST], ncurrent;

/* The addresses of these stand for nodes. */
static char names[MOST];

static mt_status dependencies(int device, void *stream, void **node, int *n) {
  (void)device, (void)stream;
  if (ncurrent > *n) return MT_EUNSUPPORTED;
  for (int i = 0; i < ncurrent; i++) node[i] = &names[current[i]];
  *n = ncurrent;
  return MT_OK;
}

static mt_status depend(int device, void *stream, void *const *node, int n) {
  (void)device, (void)stream;
  ncurrent = n;
  for (int i = 0; i < n; i++) current[i] = (int)((char *)node[i] - names);
  return MT_OK;
}

static int launch(void) {
  const int made = nodes++;
  for (int i = 0; i < ncurrent; i++) {
    follows[made * MOST + current[i]] = 1;
    for (int k = 0; k < made; k++)
      follows[made * MOST + k] |= follows[current[i] * MOST + k];
  }
  current[0] = made, ncurrent = 1;
  return made;
}

static unsigned state = 1;
static int pick(int n) {
  state = state * 1664525u + 1013904223u;
  return (int)((state >> 8) % (unsigned)n);
}

typedef struct access {
  int node, lo, hi, writes;
} access;

static access *seen;
static int nseen;

static int check(int node, int lo, int hi, int writes) {
  for (int i = 0; i < nseen; i++) {
    const access *a = &seen[i];
    if (a->node == node || a->hi <= lo || hi <= a->lo || !(a->writes || writes))
      continue;
    if (!follows[node * MOST + a->node]) {
      printf("node %d does not follow %d (bytes %d to %d)\n", node, a->node, lo, hi);
      return 1;
    }
  }
  return 0;
}

static int use(mt_graph_order *o, const char *memory, access *mine, int *n) {
  const int lo = pick(60) * 16, size = 16 * (1 + pick(pick(4) ? 1 : 6));
  mine[*n] = (access){0, lo, lo + size, pick(3) == 0};
  mt_graph_order_use(o, memory + lo, (size_t)size, mine[*n].writes);
  return (*n)++;
}

int main(int argc, char **argv) {
  static char memory[2048];
  static const mt_graphs api = {.dependencies = dependencies, .depend = depend};
  const int rounds = argc > 1 ? atoi(argv[1]) : 20;
  long pairs = 0, ordered = 0;
  follows = malloc((size_t)MOST * MOST);
  seen = malloc(sizeof *seen * MOST * 8);
  if (!follows || !seen) return 1;
  for (int round = 0; round < rounds; round++) {
    memset(follows, 0, (size_t)MOST * MOST);
    nodes = ncurrent = nseen = 0;
    mt_graph_order *o = mt_graph_order_new(&api, 0, NULL);
    for (int call = 0; call < 150; call++) {
      access mine[8];
      int n = 0, first = nodes;
      if (pick(25) == 0) { /* launched by somebody else: it may touch anything */
        const int node = launch();
        if (check(node, 0, 2048, 1)) return 1;
        seen[nseen++] = (access){node, 0, 2048, 1};
        continue;
      }
      mt_graph_order_enter(o);
      for (int k = pick(4); k >= 0; k--) use(o, memory, mine, &n);
      mt_graph_order_ready(o);
      if (pick(8) == 0) { /* views launch nothing, and touch nothing */
        mt_graph_order_leave(o);
        continue;
      }
      const int split = pick(2) ? n : 0; /* what was told before the first launch */
      if (split) {
        const int node = launch();
        for (int i = 0; i < n; i++)
          if (check(node, mine[i].lo, mine[i].hi, mine[i].writes)) return 1;
      }
      if (pick(3) == 0) use(o, memory, mine, &n);
      const int node = launch();
      for (int i = split; i < n; i++)
        if (check(node, mine[i].lo, mine[i].hi, mine[i].writes)) return 1;
      mt_graph_order_leave(o);
      for (int i = 0; i < n; i++) {
        mine[i].node = split && i < split ? first : node;
        seen[nseen++] = mine[i];
      }
    }
    for (int a = 0; a < nodes; a++)
      for (int b = 0; b < a; b++) pairs++, ordered += follows[a * MOST + b];
    if (mt_graph_order_failed(o)) return 1;
    mt_graph_order_free(o);
  }
  printf("all in order, %ld%% of the pairs free\n", 100 - 100 * ordered / pairs);
  free(follows), free(seen);
  return 0;
}
