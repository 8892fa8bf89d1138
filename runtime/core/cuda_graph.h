/* runtime/core/cuda_graph.h -- calls on a GPU that are captured once and replayed: what
** a graph holds, where its memory comes from, what its replays change. */
#ifndef MT_CUDA_GRAPH_H
#define MT_CUDA_GRAPH_H

#include "runtime/core/context.h"

/* A graph belongs to one state and GPU. While it is captured (ctx->graph), what the
** state asks of the GPU is recorded on a stream of its own, and nothing runs. Memory
** comes from a pool that only the graph uses, so that replays find it as they left it;
** what was there before and is used is held, lest it be freed. */
typedef struct mt_graph mt_graph;

/* parallel: calls that touch no common bytes may run side by side. MT_EDEVICE: the GPU is
** not there. */
mt_status mt_graph_new(mt_context *ctx, mt_device gpu, bool parallel,
                       mt_graph **out /* [out] */);
/* Wait for the replays under way and let everything go. The pool's memory can then be
** used again; tensors that lie there live on. */
void mt_graph_free(mt_graph *g);

/* MT_EUNSUPPORTED: the state captures another one. */
mt_status mt_graph_begin(mt_graph *g);
/* End the capture that begin began. keep false: forget it. Whatever the status, the
** state's stream is then what it was. */
mt_status mt_graph_end(mt_graph *g, bool keep);
/* Forget what was captured, to capture again: waits for replays under way. */
void mt_graph_drop(mt_graph *g);
/* Is there something to replay that draws from the state's present seed, or does not
** draw? */
bool mt_graph_is_ready(const mt_graph *g);

/* Before inputs are written: let the current stream wait for replays on another one. */
mt_status mt_graph_prepare(mt_graph *g);
/* Replay on the current stream; the state's random position goes on as if the calls had
** been made. */
mt_status mt_graph_replay(mt_graph *g);
int mt_graph_nodes(const mt_graph *g);
/* The replays change this storage too: an output's. */
void mt_graph_writes(mt_graph *g, mt_tensor *t);

/* ---- numbers that change between replays ---- */

/* A slot for attribute a, whose value grows by step with each replay; a tells kernels
** where it is. -1: there are no more, a stays a constant. */
int mt_graph_slot(mt_graph *g, mt_attr *a, double step);
int mt_graph_slots(const mt_graph *g); /* slots taken since begin */
void mt_graph_set_slot(mt_graph *g, int slot, double value);

/* ---- what dispatch and the allocator ask ---- */

/* May a call named so, over these tensors, be captured? MT_EUNSUPPORTED names it: it
** would run on the CPU, or on another GPU. */
mt_status mt_graph_admit(const mt_context *ctx, const char *name, int nin,
                         mt_tensor *const *in, int nout, mt_tensor *const *out);
/* A captured call, before its launches and after: what it reads (in) and writes (out).
** out: new tensors are NULL before. The allocator tells of what it takes meanwhile. */
void mt_graph_enter(mt_graph *g, int nin, mt_tensor *const *in, int nout,
                    mt_tensor *const *out);
void mt_graph_leave(mt_graph *g);
void mt_graph_takes(mt_graph *g, const void *p, size_t bytes);
/* MT_EUNSUPPORTED with "what cannot be captured" while a graph is captured. */
mt_status mt_graph_refuse(const mt_context *ctx, const char *what);
/* A captured call uses t: hold it, if its memory is not the graph's own. */
void mt_graph_hold(mt_graph *g, mt_tensor *t);
/* What a captured call adds to its constants; NULL: none is captured. */
const mt_replay *mt_graph_replay_values(mt_context *ctx);
/* The same for a call that draws again from an earlier position of this seed. */
const mt_replay *mt_graph_replay_of(mt_context *ctx, uint64_t seed, uint64_t position);
/* Whose memory a new block on the GPU is: the stream's, or that of the graph. */
void *mt_graph_pool(const mt_context *ctx, int gpu);

#endif
