/* runtime/core/fuse_writer.h -- what the files that write kernels' text share. */
#ifndef MT_FUSE_WRITER_H
#define MT_FUSE_WRITER_H

#include "runtime/core/fuse_source.h"

typedef struct mt_fuse_text {
  char *s; /* NULL after a failure */
  size_t n, capacity;
} mt_fuse_text;

typedef struct mt_fuse_writer {
  mt_fuse_text *t;
  const mt_fused *f;
  const mt_fuse_variant *v;
  int nin;                       /* inputs that are used */
  int place[MT_FUSE_MAX_INPUTS]; /* of an input among these */
  bool *need;                    /* [nnodes] of the level being written */
  bool *held;                    /* [f->nin] ROWS: kept in registers */
} mt_fuse_writer;

static inline const mt_fuse_node *mt_fuse_node_of(const mt_fuse_writer *w, int i) {
  return &w->f->program.node[i];
}

void mt_fuse_say(mt_fuse_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The C type that a dtype is stored as; the function that its elements are stored by. */
const char *mt_fuse_storage(int dtype);
const char *mt_fuse_store_of(int dtype);
/* What node i is called: "v7", "x0", or a number. */
void mt_fuse_say_value(const mt_fuse_writer *w, int i);
/* "const T v7 = op_mul(v5, x0);", of ops and choices. */
void mt_fuse_say_node(const mt_fuse_writer *w, int i, const char *indent);
/* An element of input k, stored at the expression `what`, as a T. */
void mt_fuse_say_load(const mt_fuse_writer *w, int k, const char *what);

/* Reductions among the lanes of a row (fuse_folds.c). */
extern const char mt_fuse_folds[];
/* The kernel of ROWS (fuse_source_rows.c). */
void mt_fuse_say_rows(const mt_fuse_writer *w);

#endif
