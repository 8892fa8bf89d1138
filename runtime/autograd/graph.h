/* runtime/autograd/graph.h -- the recorded graph: nodes, edges, saved values, and
** autograd's part of a tensor. Private to runtime/autograd and runtime/bind/function.c.
**
** Who owns whom: a tensor's part owns the node that made it; a node owns the nodes
** before it, by its edges, and aliases (without history) of the values that its rule
** needs. A node never owns a tensor that has a history, and a leaf's accumulate node
** knows its leaf only weakly: so there are no cycles, also with create_graph. */
#ifndef MT_GRAPH_H
#define MT_GRAPH_H

#include "runtime/autograd/rule.h"

typedef struct mt_node mt_node;
typedef struct mt_task mt_task; /* backward.c */

/* Where a gradient goes: output number `output` of node. node NULL: nowhere. */
typedef struct mt_edge {
  mt_node *node;
  int output;
} mt_edge;

/* A value kept for backward. */
typedef struct mt_saved {
  mt_tensor *tensor; /* an alias without history; NULL: not saved */
  mt_edge edge; /* its history; not owned where it is the saving node's own output */
  uint32_t version; /* of the storage when it was saved */
} mt_saved;

typedef struct mt_hook {
  struct mt_hook *next;
  int id, output;
  mt_hook_fn fn;
  void *user;
  void (*release)(void *user);
} mt_hook;

struct mt_node {
  int refs;
  unsigned bytes;           /* of its block */
  bool released;            /* backward has passed it and dropped what it saved */
  int scope;                /* of the profile that was running; 0: none */
  uint64_t sequence;        /* larger than that of every node before it; leaves: 0 */
  const mt_opinfo *op;      /* NULL: accumulate, custom */
  const mt_grad_rule *rule; /* NULL and op: elementwise, by formula */
  const char *name;
  const char *composite; /* that it is a part of; NULL: none */
  int nin, nout, nattr;
  mt_edge *edge;               /* [nin] */
  mt_saved *in, *out;          /* [nin], [nout] */
  mt_meta *in_meta, *out_meta; /* [nin], [nout] */
  mt_attr *attr;               /* [nattr] */
  mt_autograd **watch;         /* [nout] weak: tensors with retain_grad; NULL: none */
  uint64_t seed, position;
  mt_custom *custom;
  mt_hook *hooks;
  mt_autograd *leaf; /* accumulate nodes; weak: NULL when the leaf is gone */
  mt_task *task;     /* what the innermost running backward knows of it */
  mt_node *next_dead;
};

struct mt_autograd {
  bool requires_grad;  /* a leaf's flag */
  bool retain;         /* retain_grad */
  bool unrecorded;     /* a view made while recording was off */
  mt_edge edge;        /* who made it; node NULL: a leaf */
  mt_node *accumulate; /* weak: a leaf's node while a graph uses it */
  mt_tensor *grad;
  mt_hook *hooks;    /* a leaf's; others' are in the node */
  mt_tensor *base;   /* a view's first tensor, which is no view; NULL: no view */
  uint32_t rewrites; /* how often an in-place op replaced the history */
  uint32_t seen;     /* the base's rewrites when edge was taken */
  mt_autograd *next_dead;
};

/* ---- nodes (graph.c) ---- */

/* A node with room for these, all 0. The metas are set from the tensors in[], out[]
** (NULL: left out). */
mt_status mt_node_new(int nin, mt_tensor *const *in, int nout, mt_tensor *const *out,
                      int nattr, mt_node **node /* [out] */);
/* Give it its place in the order of execution: after its edges have been set. */
void mt_node_stamp(mt_node *n);
/* The largest sequence so far: nodes made from now on have larger ones. */
uint64_t mt_node_last(void);
mt_node *mt_node_retain(mt_node *n);
/* Frees without recursion, whatever the length of the chain. */
void mt_node_release(mt_node *n);
/* Drop edges, saved values, hooks and the custom part: backward has passed. */
void mt_node_drop(mt_node *n);

/* The part of t, made if t has none. NULL: out of memory (noted). */
mt_autograd *mt_part(mt_tensor *t);
/* Where gradients of t go; a view's stale history is made anew first. The edge's node
** is a new reference; NULL if t does not require grad. */
mt_status mt_edge_of(mt_tensor *t, mt_edge *edge /* [out] */);
/* Make (node, output) the history of t, instead of what it had. */
mt_status mt_set_history(mt_tensor *t, mt_node *node, int output);
mt_status mt_watch(mt_tensor *t); /* let t's node know that it retains its gradient */

/* Keep t's value for node. own: t is that output of node (-1: it is not). */
mt_status mt_save(mt_saved *s, mt_tensor *t, mt_node *node, int own);
void mt_saved_drop(mt_saved *s, const mt_node *node);
/* The saved tensor, borrowed from calc; with its history if recording is on.
** MT_EGRAD: it was changed in place since. */
mt_status mt_saved_get(const mt_saved *s, mt_calc *calc, const char *name,
                       mt_tensor **t /* [out] */);

/* ---- views (inplace.c) ---- */

/* Note that y, an alias of x, is a view of it. */
mt_status mt_note_view(mt_tensor *y, mt_tensor *x, bool recording);
/* May x be changed in place while recording is on? MT_EGRAD: a leaf, a view of one. */
mt_status mt_check_inplace(mt_tensor *x);
/* x was changed in place and has got a new history: its base and its views follow. */
mt_status mt_history_rewritten(mt_tensor *x);
/* Take a view's history from its base anew. */
mt_status mt_view_refresh(mt_tensor *t);
/* Is t a view whose base got another history since? */
static inline bool mt_view_stale(const mt_autograd *p) {
  return p->base && p->base->autograd && !p->unrecorded &&
         p->seen != p->base->autograd->rewrites;
}

/* ---- recording (apply.c) ---- */

/* Is this a call with nothing but bool of a row that computes it as integers? */
bool mt_takes_bools(const mt_opinfo *op, int nin, mt_tensor *const *in);
/* Does one of the inputs require grad? */
bool mt_any_requires_grad(int nin, mt_tensor *const *in);
/* Make the node of op over in[] and out[]: edges, metas, attributes, saved inputs. The
** outputs are saved by mt_record_outputs, after an in-place op has run. skip: bits of
** inputs whose edge is left out. */
mt_status mt_record_inputs(const mt_opinfo *op, int nin, mt_tensor *const *in, int nout,
                           mt_tensor *const *out, int nattr, const mt_attr *attr,
                           unsigned skip, mt_node **node /* [out] */);
mt_status mt_record_outputs(mt_node *node, mt_tensor *const *out);

/* ---- elementwise gradients (formula_grad.c) ---- */

void mt_formula_saves(mt_op op, const bool *needs, unsigned *save_in,
                      unsigned *save_out);
mt_status mt_formula_gradient(mt_grad_call *c);

/* ---- hooks (hooks.c) ---- */

/* A node's hooks. A hook may free the leaf that owns them: look anew after each. */
static inline mt_hook *mt_hooks_of(const mt_node *n) {
  return n->leaf ? n->leaf->hooks : n->hooks;
}
/* Run those of one output over *g, which is owned and may be replaced. */
mt_status mt_hooks_run(mt_context *ctx, const mt_node *n, int output, mt_tensor **g);
void mt_hooks_free(mt_hook *list);

#endif
