/* kernels/cpu/unrolled.h -- convolutions as products with matrices of unrolled windows,
** which are packed straight from the images. */
#ifndef MT_UNROLLED_H
#define MT_UNROLLED_H

#include "kernels/cpu/winograd.h"

/* One group of one image is a product: y (k x positions) = w (k x depth) windows
** (depth x positions); c and k count the channels of a group. */
typedef struct mt_unrolled {
  const mt_call *call;
  const mt_gemm_isa *isa;
  int64_t size; /* bytes of an element */
  int64_t word; /* of a packed one, and of a sum */
  bool half;    /* sums are rounded when they are complete */
  int64_t n, groups, c, k;
  int64_t h, w, ph, pw; /* of an image, and of its padding on each side */
  int64_t hp, wp;       /* of the padded image */
  int64_t sh, sw, ow;   /* strides, and windows in a row */
  int64_t depth;        /* c * kh * kw */
  int64_t positions;    /* oh * ow */
  int64_t columns;      /* of a block of windows */
  int64_t splits;       /* parts of positions that threads may take one by one */
  int64_t parts;        /* of the batch: weight gradient */
  int team;
  int64_t *koff;        /* [scratch] elements of a window, in the padded image */
  const void *bias;     /* of sums' dtype: [scratch] of half types; NULL: none */
  char *weight;         /* [scratch] packed, all groups */
  int64_t weight_bytes; /* of one group */
  char *sums;           /* [scratch] weight gradients of all parts but the first */
  char *own;            /* [scratch] of each thread */
  int64_t own_bytes, joff_bytes, block_bytes, image_bytes, product_bytes;
} mt_unrolled;

static inline int64_t mt_line(int64_t bytes) { return mt_round_up(bytes, 64); }
static inline bool mt_unrolled_padded(const mt_unrolled *v) {
  return v->ph > 0 || v->pw > 0;
}

/* Words of a packed row or column of so many elements. */
static inline int64_t mt_unrolled_words(const mt_unrolled *v, int64_t count) {
  return (count + v->isa->depth - 1) / v->isa->depth;
}

/* The parts of a thread's own scratch. */
typedef struct mt_room {
  int64_t *joff; /* where a block's windows begin */
  char *block, *image, *product;
} mt_room;

typedef void (*mt_unrolled_task)(const mt_unrolled *v, int64_t task, char *own);

/* Geometry of x, w and y; attr: stride, padding, dilation, groups. */
mt_unrolled mt_unrolled_make(const mt_call *call, const mt_view *x, const mt_view *w,
                             const mt_view *y, const mt_attr *attr);
/* Threads that the whole work, in multiply-adds, is worth. */
int mt_unrolled_team(const mt_unrolled *v, int64_t tasks);
/* Lay the scratch out; with a base, set the pointers. Returns the bytes. */
size_t mt_unrolled_lay_out(mt_unrolled *v, int64_t weight_bytes, int64_t sums_bytes,
                           char *base);
/* Where the elements of a window lie, from its first one. */
void mt_unrolled_depth(const mt_unrolled *v, const mt_view *w, const mt_attr *dilation);
/* Where the windows of positions from .. from + count - 1 begin. */
void mt_unrolled_positions(const mt_unrolled *v, int64_t from, int64_t count,
                           int64_t *joff /* [out] */);
/* Group g of image n, padded into the room given if need be. */
const char *mt_unrolled_image(const mt_unrolled *v, const char *x, int64_t n, int64_t g,
                              char *room);
mt_room mt_unrolled_rooms(const mt_unrolled *v, char *own);
void mt_unrolled_run(const mt_unrolled *v, int64_t tasks, mt_unrolled_task fn);
/* A block of packed panels of k words; see mt_block. */
void mt_unrolled_block(const mt_unrolled *v, int64_t m, int64_t n, int64_t k,
                       const void *a, const void *b, void *c, int64_t crs, mt_bias bias,
                       int accumulate, int relu);

#endif
