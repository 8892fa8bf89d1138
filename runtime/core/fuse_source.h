/* runtime/core/fuse_source.h -- what a fused kernel is compiled for, and its text. */
#ifndef MT_FUSE_SOURCE_H
#define MT_FUSE_SOURCE_H

#include "runtime/core/fuse.h"

typedef enum mt_fuse_layout {
  MT_FUSE_PIECES,  /* up to two loops, the inner one side by side: pieces of 16 bytes */
  MT_FUSE_STRIDED, /* any loops */
  MT_FUSE_ROWS     /* a row for some lanes, a block or several */
} mt_fuse_layout;

typedef enum mt_fuse_mode {
  MT_FUSE_UNUSED,
  MT_FUSE_BESIDE, /* elements lie side by side in dim 0 */
  MT_FUSE_APART,  /* they do not */
  MT_FUSE_ONE,    /* one for the whole of dim 0 */
  MT_FUSE_STAGED, /* BESIDE, rows too: a block's rows pass through shared memory */
  MT_FUSE_HOST    /* a number that comes with the launch */
} mt_fuse_mode;

/* All that the text depends on beside the program. Zeroed before it is filled, and
** compared as bytes. */
typedef struct mt_fuse_variant {
  uint16_t lanes;  /* ROWS: threads of a block for a row, a power of 2 */
  uint16_t blocks; /* ROWS: groups of so many threads in a block */
  uint8_t layout, compute;
  uint8_t width;  /* elements of a piece */
  uint8_t ndim;   /* STRIDED: of the loops; ROWS: of those around the row */
  uint8_t wide;   /* STRIDED, ROWS: 64-bit indices */
  uint8_t items;  /* ROWS: pieces of a row that a thread holds; 0: it reads them anew */
  uint8_t exact;  /* ROWS: each thread has so many */
  uint8_t staged; /* ROWS: are there inputs of that mode? Then results are like them */
  uint8_t rows;   /* ROWS: that a thread works on at once */
  uint8_t cluster; /* ROWS: blocks of a row */
  uint8_t mode[MT_FUSE_MAX_INPUTS], in_dtype[MT_FUSE_MAX_INPUTS];
  uint8_t out_dtype[MT_FUSE_MAX_OUTPUTS];
} mt_fuse_variant;

/* The arguments of a kernel are one struct of 8-byte words, in this order; arrays over
** the inputs that are used, and over dims, have one element more, so that none is empty.
**   out[nout], in[nin]: addresses; value[nin]: doubles of HOST inputs
**   PIECES: out_row[nout], in_row[nin] (bytes), rows, whole (pieces), left (elements)
**   others: length (of a row; STRIDED: of all), rows, size[ndim], out_stride[nout][ndim],
**           in_stride[nin][ndim], in_step[nin]: of dim 0 (elements) */
#define MT_FUSE_KERNEL "fused"

/* How many inputs several levels of reductions read: what a thread holds of a row. */
int mt_fuse_count_reread(mt_fused *f);
/* CUDA C++, from malloc; NULL: out of memory. */
char *mt_fuse_cuda(const mt_fused *f, const mt_fuse_variant *v);

/* Headers, embedded by the Makefile. */
extern const char mt_words_text[], mt_special_text[], mt_formulas_text[];

#endif
