/* kernels/cpu/loop.h -- how mt_cpu_rows goes over its arguments. */
#ifndef MT_CPU_LOOP_H
#define MT_CPU_LOOP_H

#include "kernels/cpu/pack.h"
#include "kernels/cpu/stream.h"

#define MT_BLOCK_BYTES 4096 /* of a buffer */
#define MT_TILE_SIDE   128  /* elements of a tile along dim 0 */
#define MT_TILE_BYTES  64   /* and bytes along dim 1 */

typedef struct mt_loop {
  mt_space space;
  mt_row *rows; /* one for each output; NULL: the output is the input */
  const mt_attr *attr;
  int nout, nargs, nin;            /* args: outputs, then the inputs that are there */
  int8_t arg_of_in[MT_SPACE_ARGS]; /* -1: this input is not there */
  int8_t size[MT_SPACE_ARGS];      /* bytes of an element as stored */
  int8_t width[MT_SPACE_ARGS];     /* bytes of an element as rows see it */
  mt_dtype dtype[MT_SPACE_ARGS];
  bool half[MT_SPACE_ARGS]; /* converted to and from float */
  char *data[MT_SPACE_ARGS];
  int64_t stride[MT_MAX_DIMS][MT_SPACE_ARGS]; /* space's, side by side for the args */
  bool overlaps; /* the last unit of a block may be computed twice */
  int cut;       /* dims inside this one lie whole in a block */
  int64_t step;  /* how much of it does */
  int64_t ncut;  /* blocks along it */
  /* Of a block (if there is one, no more than n and plain are set), of the last one along
  ** dim cut: */
  mt_piece piece[2][MT_SPACE_ARGS];
  bool plain[2][MT_SPACE_ARGS]; /* no buffer: the piece is contiguous */
  bool still[MT_SPACE_ARGS];    /* the same for all blocks */
  bool streamed[MT_SPACE_ARGS]; /* an output that passes the caches by its buffer */
  const mt_stream_loops *stream;
  bool streams;
  bool tiled;
  int64_t height;                 /* rows of a tile */
  bool transposed[MT_SPACE_ARGS]; /* contiguous along dim 1 */
} mt_loop;

/* Choose blocks or tiles: from space, rows, nout, nargs, size, width, half and data on
** all the rest is set. May replace rows. */
void mt_loop_plan(mt_loop *l);

#endif
