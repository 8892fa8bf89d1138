/* kernels/cpu/fuse_work.h -- one call of a fused program, and what a thread has of it. */
#ifndef MT_CPU_FUSE_WORK_H
#define MT_CPU_FUSE_WORK_H

#include "kernels/cpu/fuse_code.h"
#include "kernels/cpu/reduce.h"

typedef struct mt_fuse_job {
  const mt_fuse_code *code;
  const mt_call *call;
  const mt_fuse_loops *loops;
  int nout;
  int64_t numel, length; /* elements; of a row */
  int64_t block;         /* elements of a register */
  int64_t batch, pitch;  /* rows at once; elements from one to the next in a register */
  int64_t rows;          /* all of them */
  int64_t slot_bytes;
  bool cut;                         /* rows are longer than a block */
  bool linear[MT_FUSE_MAX_ARGS];    /* elements lie as they are counted */
  int64_t period[MT_FUSE_MAX_ARGS]; /* elements that repeat themselves; 0: they don't */
  int64_t repeats;                  /* elements of room for these */
  bool streamed[MT_FUSE_MAX_OUTPUTS];
  bool exhausted; /* a thread had no memory */
} mt_fuse_job;

typedef struct mt_fuse_worker {
  const mt_fuse_job *j;
  char *memory;
  char **at;     /* [nregisters] where values are: in `home`, or in a tensor */
  char *home;    /* nregisters blocks */
  char *slot;    /* nslots of j->slot_bytes */
  mt_cell *cell; /* [nfolds][batch] */
  /* Where a block lies: an index, and where that is in the loops; of rows, how many they
  ** are, and the offset of each. */
  int64_t start;
  int64_t coord[MT_MAX_DIMS];
  int64_t rows;
  int64_t *offset; /* [nargs][batch], elements */
  char *repeated;  /* of each input that repeats itself: a block and a period */
} mt_fuse_worker;

static inline const mt_view *mt_fuse_view(const mt_fuse_job *j, int arg) {
  return arg < j->nout ? j->call->out[arg] : j->call->in[arg - j->nout];
}

static inline int64_t mt_fuse_round_up(int64_t n) {
  return (n + MT_ROW_UNIT - 1) & -MT_ROW_UNIT;
}

/* Repeat the first element up to a whole unit: what rows make of that is not kept. */
static inline void mt_fuse_pad(char *p, int64_t n, int width) {
  for (; n % MT_ROW_UNIT != 0; n++) memcpy(p + n * width, p, (size_t)width);
}

/* Slots (fuse_slots.c): element r of one is x; do a step of them; fill a register with a
** slot's values, each for n elements. */
void mt_fuse_set_slot(const mt_fuse_job *j, char *slot, int64_t r, double x);
void mt_fuse_slot_step(mt_fuse_worker *w, const mt_step *s);
void mt_fuse_spread(mt_fuse_worker *w, const mt_step *s, int64_t n, char *home);

#endif
