/* runtime/bind/elements.c -- what the keys of t[key] mean, as ops: views for integers and
** ranges, then one selection by all masks and index tensors together. */
#include <string.h>

#include "runtime/autograd/parts.h"
#include "runtime/bind/key.h"

/* ---- integers and ranges ---- */

/* The view that they give. at[i]: the dim of it where item i stands. Backward ranges are
** not turned yet. */
static mt_tensor *basic_view(mt_calc *c, mt_tensor *x, const mtl_key *k, int *at) {
  int dim = 0;
  mt_tensor *v = x;
  for (int i = 0; i < k->n && v; i++) {
    const mtl_item *it = &k->items[i];
    const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(it->start), mt_attr_i(it->length),
                            mt_attr_i(it->step)};
    at[i] = dim;
    switch (it->kind) {
    case MTL_AT: v = mt_c1a(c, MT_OP_select, v, 2, attr); continue;
    case MTL_RANGE:
      if (it->step != 1)
        v = mt_c1a(c, MT_OP__slice, v, 4, attr);
      else if (!it->whole)
        v = mt_c1a(c, MT_OP_narrow, v, 3, attr);
      break;
    default: break;
    }
    dim += it->dims;
  }
  return v;
}

/* t with n of its dims turned round: a copy. */
static mt_tensor *turned(mt_calc *c, mt_tensor *t, int n, const int64_t *dims) {
  if (n == 0 || !t) return t;
  const mt_attr attr = mt_attr_list(n, dims);
  return mt_c1a(c, MT_OP_flip, t, 1, &attr);
}

/* The dims of the view that are to be turned. */
static int backward_dims(const mtl_key *k, const int *at, int64_t *dims) {
  int n = 0;
  for (int i = 0; i < k->n && k->backward; i++)
    if (k->items[i].backward) dims[n++] = at[i];
  return n;
}

/* v with dims at .. at + n - 1 replaced by shape. */
static mt_tensor *reshape_dims(mt_calc *c, mt_tensor *v, int at, int n, int ndim,
                               const int64_t *shape) {
  int64_t full[2 * MT_MAX_DIMS];
  int m = 0;
  if (!v) return NULL;
  for (int i = 0; i < at; i++) full[m++] = v->v.shape[i];
  for (int i = 0; i < ndim; i++) full[m++] = shape[i];
  for (int i = at + n; i < v->v.ndim; i++) full[m++] = v->v.shape[i];
  if (m == v->v.ndim && n == ndim && memcmp(full, v->v.shape, (size_t)m * 8) == 0) {
    return v;
  }
  if (m > MT_MAX_DIMS) {
    c->status = mt_fail(MT_ESHAPE, "the result has %d dims, at most %d are possible", m,
                        MT_MAX_DIMS);
    return NULL;
  }
  return mt_creshape(c, v, m, full);
}

/* ---- masks and index tensors: one vector of positions along one dim ---- */

/* What is selected: positions in dim `at` of `from`, which stands for `merged` dims of
** the view; reading gives `shape` in its place. */
typedef struct selection {
  mt_tensor *from, *index;
  int at, merged;
  int ndim;
  int64_t shape[MT_MAX_DIMS];
  int64_t sizes[MT_MAX_DIMS]; /* of the merged dims */
  bool moved;                 /* they were brought to the front */
  int64_t order[MT_MAX_DIMS]; /* if moved: the dims of the view in their new order */
} selection;

/* Positions along a dim of a size, from 1, counted from its beginning; what is out of
** range faults. */
static mt_tensor *checked(mt_calc *c, mt_tensor *index, int64_t size) {
  if (!index) return NULL;
  mt_tensor *const places = mt_ccount(c, mt_device_of(index), 1, &size, 1);
  mt_tensor *const y =
      mt_calong(c, MT_OP_index_select, places, 0, mt_cflat(c, index), NULL);
  return mt_creshape(c, y, index->v.ndim, index->v.shape);
}

/* One item alone. */
static void select_one(mt_calc *c, mt_tensor *v, const mtl_item *it, int at,
                       selection *s) {
  const int64_t n = mt_numel(&it->t->v);
  s->at = at;
  s->merged = it->dims;
  s->moved = false;
  for (int i = 0; i < it->dims; i++) s->sizes[i] = v->v.shape[at + i];
  s->from = it->kind == MTL_INDEX ? v : reshape_dims(c, v, at, it->dims, 1, &n);
  s->index = mt_cflat(c, it->t);
  if (it->kind == MTL_INDEX) {
    s->ndim = it->t->v.ndim;
    memcpy(s->shape, it->t->v.shape, sizeof s->shape);
    return;
  }
  s->index = mt_cpick(c, mt_c1(c, MT_OP_nonzero, s->index), 1, 0, false);
  s->ndim = 1;
  s->shape[0] = s->index ? s->index->v.shape[0] : 0;
}

/* The vectors of positions that the items stand for: a mask gives one for each of its
** dims. dim[i]: that of the view. */
static int position_vectors(mt_calc *c, const mtl_key *k, const int *at,
                            mt_tensor **index, int *dim) {
  int n = 0;
  for (int i = 0; i < k->n; i++) {
    const mtl_item *it = &k->items[i];
    if (it->kind == MTL_INDEX) {
      index[n] = it->t, dim[n++] = at[i];
    } else if (it->kind == MTL_MASK) {
      mt_tensor *const all = mt_c1(c, MT_OP_nonzero, it->t);
      for (int d = 0; d < it->dims; d++) {
        index[n] = mt_cpick(c, all, 1, d, false), dim[n++] = at[i] + d;
      }
    }
  }
  return n;
}

/* Bring the dims of the vectors together: to the front, unless they are neighbours. */
static mt_tensor *gathered_dims(mt_calc *c, mt_tensor *v, int n, const int *dim,
                                selection *s) {
  s->moved = false;
  s->at = dim[0];
  for (int i = 1; i < n; i++) s->moved = s->moved || dim[i] != dim[0] + i;
  if (!s->moved) return v;
  int m = 0;
  bool taken[MT_MAX_DIMS] = {false};
  for (int i = 0; i < n; i++) s->order[m++] = dim[i], taken[dim[i]] = true;
  for (int d = 0; d < v->v.ndim; d++)
    if (!taken[d]) s->order[m++] = d;
  s->at = 0;
  return mt_cpermute(c, v, m, s->order);
}

/* Several items: their vectors are broadcast, and number the elements of their dims. */
static void select_several(mt_calc *c, mt_tensor *v, const mtl_key *k, const int *at,
                           selection *s) {
  mt_tensor *index[MT_MAX_DIMS], *sum = NULL;
  int dim[MT_MAX_DIMS] = {0};
  const int n = position_vectors(c, k, at, index, dim);
  s->from = s->index = NULL;
  s->ndim = 0;
  for (int i = 0; i < n && c->status == MT_OK; i++)
    if (mt_broadcast(&s->ndim, s->shape, &index[i]->v) != MT_OK)
      c->status =
          mt_fail(MT_ESHAPE, "indices do not broadcast: %s", mt_last_error()->text);
  if (c->status != MT_OK) return;
  s->merged = n;
  v = gathered_dims(c, v, n, dim, s);
  if (!v) return;
  int64_t stride = 1;
  for (int i = n - 1; i >= 0; i--) {
    s->sizes[i] = v->v.shape[s->at + i];
    mt_tensor *const place =
        mt_c2(c, MT_OP_sub, checked(c, index[i], s->sizes[i]), mt_cint(c, 1));
    mt_tensor *const part = mt_c2(c, MT_OP_mul, place, mt_cint(c, stride));
    sum = i == n - 1 ? part : mt_c2(c, MT_OP_add, sum, part);
    stride *= s->sizes[i];
  }
  sum = mt_c2(c, MT_OP_add, sum, mt_cint(c, 1));
  s->from = reshape_dims(c, v, s->at, n, 1, &stride);
  s->index = sum ? mt_cflat(c, mt_cexpand(c, sum, s->ndim, s->shape)) : NULL;
}

static void select_elements(mt_calc *c, mt_tensor *v, const mtl_key *k, const int *at,
                            selection *s) {
  if (k->tensors == 1)
    select_one(c, v, &k->items[k->tensor], at[k->tensor], s);
  else
    select_several(c, v, k, at, s);
}

/* ---- reading ---- */

mt_tensor *mtl_read_elements(mt_calc *c, mt_tensor *x, const mtl_key *k) {
  int at[MT_MAX_DIMS];
  int64_t back[MT_MAX_DIMS];
  mt_tensor *v = basic_view(c, x, k, at);
  v = turned(c, v, backward_dims(k, at, back), back);
  if (!v) return NULL;
  if (k->tensors == 0) return v == x ? mt_c1(c, MT_OP__alias, x) : v;
  const mtl_item *it = &k->items[k->tensor];
  if (k->tensors == 1 && it->kind == MTL_MASK && it->dims == v->v.ndim) {
    return mt_c2(c, MT_OP_masked_select, v, it->t);
  }
  selection s;
  select_elements(c, v, k, at, &s);
  if (c->status != MT_OK) return NULL;
  mt_tensor *y = mt_calong(c, MT_OP_index_select, s.from, s.at, s.index, NULL);
  return reshape_dims(c, y, s.at, 1, s.ndim, s.shape);
}

/* ---- writing ---- */

/* v[.., mask, ..] = one value */
static void fill_mask(mt_calc *c, mt_tensor *v, const mtl_item *it, int at,
                      mt_tensor *value) {
  int64_t shape[MT_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < it->dims; i++) shape[n++] = it->t->v.shape[i];
  while (at + n < v->v.ndim) shape[n++] = 1; /* dims behind the mask: broadcast */
  mt_tensor *mask = n == it->dims ? it->t : mt_creshape(c, it->t, n, shape);
  mt_tensor *const in[] = {v, mask, mt_cas(c, value, v->v.dtype)};
  mt_cinplace(c, MT_OP_masked_fill, 3, in, NULL);
}

/* Where dim d of the view, no selected one, is in what reading would give. */
static int64_t place_of(const selection *s, int64_t d) {
  if (!s->moved) return d < s->at ? d : d - s->merged + s->ndim;
  int place = s->merged;
  while (s->order[place] != d) place++;
  return place - s->merged + s->ndim;
}

/* v's elements at the selection = value, broadcast to what reading would give */
static void write_selected(mt_calc *c, mt_tensor *v, const mtl_key *k, const int *at,
                           mt_tensor *value, bool accumulate) {
  selection s;
  select_elements(c, v, k, at, &s);
  if (!s.from || !s.index || c->status != MT_OK) return;
  const mt_attr dim = mt_attr_i(s.at);
  int64_t shape[2 * MT_MAX_DIMS], back[MT_MAX_DIMS]; /* of what reading would give */
  int n = 0;
  for (int i = 0; i < s.at; i++) shape[n++] = s.from->v.shape[i];
  for (int i = 0; i < s.ndim; i++) shape[n++] = s.shape[i];
  for (int i = s.at + 1; i < s.from->v.ndim; i++) shape[n++] = s.from->v.shape[i];
  if (n > MT_MAX_DIMS) {
    c->status = mt_fail(MT_ESHAPE, "%d dims are assigned, at most %d are possible", n,
                        MT_MAX_DIMS);
    return;
  }
  mt_tensor *src = mt_cexpand(c, mt_cas(c, value, v->v.dtype), n, shape);
  const int nback = backward_dims(k, at, back);
  for (int i = 0; i < nback; i++) back[i] = place_of(&s, back[i]);
  src = turned(c, src, nback, back);
  src = reshape_dims(c, src, s.at, s.ndim, 1, s.index->v.shape);
  const mt_op op = accumulate ? MT_OP_index_add : MT_OP_index_copy;
  mt_tensor *const in[] = {s.from, s.index, src};
  if (s.from->storage == v->storage) {
    mt_cinplace(c, op, 3, in, &dim);
    return;
  }
  /* several dims were made one, which needed a copy */
  mt_tensor *y = mt_calong(c, op, s.from, s.at, s.index, src);
  y = reshape_dims(c, y, s.at, 1, s.merged, s.sizes);
  if (s.moved && y) v = mt_cpermute(c, v, v->v.ndim, s.order);
  mt_tensor *const both[] = {v, y};
  mt_cinplace(c, MT_OP__copy, 2, both, NULL);
}

void mtl_write_elements(mt_calc *c, mt_tensor *x, const mtl_key *k, mt_tensor *value,
                        bool accumulate) {
  int at[MT_MAX_DIMS];
  int64_t back[MT_MAX_DIMS];
  mt_tensor *v = basic_view(c, x, k, at);
  if (!v) return;
  if (k->tensors == 0) {
    const int nback = backward_dims(k, at, back);
    if (nback > 0) value = mt_cexpand(c, value, v->v.ndim, v->v.shape);
    mt_tensor *const in[] = {v, turned(c, value, nback, back)};
    if (accumulate && in[1]) {
      mt_tensor *const sum[] = {v, mt_cas(c, in[1], v->v.dtype)};
      mt_cinplace(c, MT_OP_add, 2, sum, NULL);
    } else {
      mt_cinplace(c, MT_OP__copy, 2, in, NULL);
    }
    return;
  }
  const mtl_item *it = &k->items[k->tensor];
  if (k->tensors == 1 && it->kind == MTL_MASK && value->v.ndim == 0 && !accumulate)
    fill_mask(c, v, it, at[k->tensor], value);
  else
    write_selected(c, v, k, at, value, accumulate);
}
