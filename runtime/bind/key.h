/* runtime/bind/key.h -- keys of t[key], and what they mean as ops. */
#ifndef MT_KEY_H
#define MT_KEY_H

#include "runtime/autograd/calc.h"
#include "runtime/bind/args.h"

/* One item of a key: what happens to the dim (or dims) that it stands for. */
typedef struct mtl_item {
  enum { MTL_AT, MTL_RANGE, MTL_MASK, MTL_INDEX } kind;
  int64_t start, length, step; /* from 0; AT: start alone */
  bool whole;                  /* RANGE: the dim as it is */
  bool backward;               /* RANGE: then turned round */
  mt_tensor *t;                /* MASK, INDEX */
  int dims;                    /* how many dims of the tensor it stands for */
} mtl_item;

typedef struct mtl_key {
  int n;
  mtl_item items[MT_MAX_DIMS];
  int tensors;   /* how many are MASK or INDEX */
  int tensor;    /* place of the first, or -1 */
  bool backward; /* some range is */
} mtl_key;

/* The key at index, for x: an integer, a mask, an index tensor, or a table of such, of
** ranges, and of "..." for the dims that the others leave. */
bool mtl_read_key(lua_State *L, int index, const mt_view *x, mtl_key *k, mtl_text *e);
/* Hold the tensors of a key while ops run. */
void mtl_key_retain(const mtl_key *k);
void mtl_key_release(const mtl_key *k);

/* x[key]. */
mt_tensor *mtl_read_elements(mt_calc *c, mt_tensor *x, const mtl_key *k);
/* x[key] = value, or with accumulate value added, also several times at one place. */
void mtl_write_elements(mt_calc *c, mt_tensor *x, const mtl_key *k, mt_tensor *value,
                        bool accumulate);

#endif
