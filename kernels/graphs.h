/* kernels/graphs.h -- calls that are recorded once and replayed: the table "graphs" of
** a GPU backend. */
#ifndef MT_GRAPHS_H
#define MT_GRAPHS_H

#include "kernels/kernel.h"

/* What a captured graph's replays change, on the device. A number of an optimiser's
** step has a slot: its learning rate, its count of steps. */
#define MT_GRAPH_SLOTS 64
typedef struct mt_graph_values {
  mt_replay replay; /* first: mt_call.replay points to it */
  double slot[MT_GRAPH_SLOTS], step[MT_GRAPH_SLOTS]; /* slot += step by each replay */
} mt_graph_values;

/* In mt_attr.is_int of MT_MANY_SGD and MT_MANY_ADAM: i[0] is the address, on the device,
** of a double to be used instead of f. */
#define MT_ATTR_SLOT 2

/* A status other than MT_OK has its text in mt_device_api.error_text(). */
typedef struct mt_graphs {
  /* A new stream: what it is given is recorded from now on, and not run. Other threads
  ** are not hindered, and this one may allocate and wait for other streams. */
  mt_status (*begin)(int device, void **stream /* [out] */);
  /* End the recording, whatever has become of it, and destroy the stream. graph NULL:
  ** forget it. */
  mt_status (*end)(int device, void *stream, void **graph /* [out] [optional] */,
                   int *nodes /* [out] [optional] */);
  /* What the recorded stream's next work is to follow: nodes of the graph. n: room, then
  ** how many. And to say it. */
  mt_status (*dependencies)(int device, void *stream, void **node /* [out] */,
                            int *n /* [in] [out] */);
  mt_status (*depend)(int device, void *stream, void *const *node, int n);
  mt_status (*launch)(int device, void *graph, void *stream);
  void (*destroy)(int device, void *graph);
  /* The next replay's values: drawn more positions, one more replay, each slot's step.
  ** In a graph, its last work. */
  mt_status (*advance)(int device, void *stream, mt_graph_values *values,
                       uint64_t drawn);
  /* *values = from, which lies on the host and may be changed at once. */
  mt_status (*set)(int device, void *stream, mt_graph_values *values,
                   const mt_graph_values *from);
} mt_graphs;

#endif
