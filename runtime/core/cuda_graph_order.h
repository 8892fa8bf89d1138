/* runtime/core/cuda_graph_order.h -- which captured calls must wait for which: those
** whose memory they read or overwrite. Private to cuda_graph.c. */
#ifndef MT_CUDA_GRAPH_ORDER_H
#define MT_CUDA_GRAPH_ORDER_H

#include <stdbool.h>
#include "kernels/graphs.h"

/* A stream that is captured makes a chain of its work. Here each call depends only on
** those before it that touch the same bytes, so that a GPU runs others beside it. What is
** launched between calls, unknown to us, follows all and is followed by all. */
typedef struct mt_graph_order mt_graph_order;

/* NULL: no memory; the capture stays a chain. */
mt_graph_order *mt_graph_order_new(const mt_graphs *api, int gpu, void *stream);
void mt_graph_order_free(mt_graph_order *o);

/* A call: enter, what it uses, ready; then its launches, before which it may use more;
** leave. */
void mt_graph_order_enter(mt_graph_order *o);
void mt_graph_order_use(mt_graph_order *o, const void *p, size_t bytes, bool writes);
void mt_graph_order_ready(mt_graph_order *o);
void mt_graph_order_leave(mt_graph_order *o);
/* The capture is useless: something would run too early. */
bool mt_graph_order_failed(const mt_graph_order *o);

#endif
