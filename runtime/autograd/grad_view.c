/* runtime/autograd/grad_view.c -- gradients of views: the inverse view of the gradient,
** or the gradient put into zeros by the same view. */
#include <string.h>
#include "runtime/autograd/geometry.h"
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* ---- strided regions ---- */

static mt_view view_of_meta(const mt_meta *m) {
  mt_view v = {.dtype = m->dtype, .ndim = m->ndim};
  memcpy(v.shape, m->shape, (size_t)m->ndim * sizeof *m->shape);
  memcpy(v.stride, m->stride, (size_t)m->ndim * sizeof *m->stride);
  return v;
}

static bool meta_contiguous(const mt_meta *m) {
  const mt_view v = view_of_meta(m);
  return mt_is_contiguous(&v);
}

static bool meta_overlaps(const mt_meta *m) {
  const mt_view v = view_of_meta(m);
  return mt_overlaps_itself(&v);
}

static int64_t meta_numel(const mt_meta *m) {
  int64_t n = 1;
  for (int d = 0; d < m->ndim; d++) n *= m->shape[d];
  return n;
}

/* One past the last position in the storage; the offset, if there are no elements. */
static int64_t meta_end(const mt_meta *m) {
  if (meta_numel(m) == 0) return m->offset;
  int64_t last = m->offset;
  for (int d = 0; d < m->ndim; d++) last += (m->shape[d] - 1) * m->stride[d];
  return last + 1;
}

static mt_tensor *as_strided(mt_calc *c, mt_tensor *t, const mt_meta *m,
                             int64_t offset) {
  if (!t) return NULL;
  const mt_attr attr[] = {mt_attr_list(m->ndim, m->shape),
                          mt_attr_list(m->ndim, m->stride), mt_attr_i(offset)};
  return mt_c1a(c, MT_OP__as_strided, t, 3, attr);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static mt_tensor *zero_memory(mt_calc *c, const mt_meta *a, const mt_meta *b,
                              int64_t *shift) {
  const int64_t lo = smaller(a->offset, b->offset);
  const int64_t n = larger(meta_end(a), meta_end(b)) - lo;
  mt_tensor *const t = mt_czeros(c, a->dtype, a->device, 1, &n);
  *shift = t ? t->offset - lo : 0;
  return t;
}

mt_placed mt_place(mt_calc *c, mt_tensor *value, const mt_meta *base,
                   const mt_meta *view, bool fresh) {
  mt_placed p = {NULL, NULL, 0};
  if (!value || c->status != MT_OK) return p;
  if (meta_contiguous(base)) {
    const bool usable = !fresh && mt_is_contiguous(&value->v);
    p.whole = p.memory = usable ? value : mt_c1(c, MT_OP_clone, value);
    if (p.memory) p.shift = p.memory->offset - base->offset;
    return p;
  }
  p.memory = zero_memory(c, base, view, &p.shift);
  p.whole = as_strided(c, p.memory, base, base->offset + p.shift);
  mt_cinplace(c, MT_OP__copy, 2, (mt_tensor *[]){p.whole, value}, NULL);
  return p;
}

mt_tensor *mt_region(mt_calc *c, const mt_placed *p, const mt_meta *view) {
  return as_strided(c, p->memory, view, view->offset + p->shift);
}

/* Positions (from 1) in a memory of n elements of those that m reaches, as a vector. */
static mt_tensor *positions(mt_calc *c, int64_t n, const mt_meta *m, int64_t offset) {
  mt_tensor *const all = mt_ccount(c, m->device, 1, &n, 1);
  const int64_t count = meta_numel(m);
  mt_tensor *const at = as_strided(c, all, m, all ? all->offset + offset : 0);
  return mt_creshape(c, at, 1, &count);
}

/* memory with value (of m's shape) added where m reaches. */
static mt_tensor *add_overlapping(mt_calc *c, mt_tensor *memory, const mt_meta *m,
                                  int64_t offset, mt_tensor *value) {
  if (!memory || !value) return NULL;
  const int64_t count = meta_numel(m);
  const mt_attr dim = mt_attr_i(0);
  mt_tensor *const in[] = {memory, positions(c, memory->v.shape[0], m, offset),
                           mt_creshape(c, value, 1, &count)};
  return mt_ca(c, MT_OP_index_add, 3, in, 0, 1, &dim, NULL);
}

/* An expanded input: each of its elements gets its share of what its memory got. */
static mt_tensor *share_out(mt_calc *c, mt_tensor *memory, const mt_meta *x,
                            int64_t offset) {
  if (!memory) return NULL;
  mt_tensor *const ones = mt_cones(c, x->dtype, x->device, x->ndim, x->shape);
  mt_tensor *const zeros =
      mt_czeros(c, x->dtype, x->device, memory->v.ndim, memory->v.shape);
  mt_tensor *const counts = add_overlapping(c, zeros, x, offset, ones);
  return mt_c2(c, MT_OP_div, memory, mt_c2(c, MT_OP_maximum, counts, mt_cnum(c, 1)));
}

static mt_status as_strided_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  const mt_attr *const attr = call->attr;
  const mt_meta y = {x->dtype,  x->device, attr[0].n,
                     attr[0].i, attr[1].i, attr[2].i[0]};
  int64_t shift;
  mt_tensor *memory = zero_memory(c, x, &y, &shift);
  if (!memory) return c->status;
  const int64_t origin = memory->offset;
  if (meta_overlaps(&y)) {
    memory = add_overlapping(c, memory, &y, y.offset + shift - origin, call->g[0]);
  } else {
    mt_tensor *const region = as_strided(c, memory, &y, y.offset + shift);
    mt_cinplace(c, MT_OP__copy, 2, (mt_tensor *[]){region, call->g[0]}, NULL);
  }
  if (meta_overlaps(x)) {
    memory = share_out(c, memory, x, x->offset + shift - origin);
  }
  if (!memory) return c->status;
  call->dx[0] = as_strided(c, memory, x, x->offset + shift - origin + memory->offset);
  return c->status;
}

const mt_grad_rule mt_grad_as_strided = {0, 0, as_strided_run};

/* ---- inverse views ---- */

static mt_status view_run(mt_grad_call *c) {
  c->dx[0] = mt_creshape(c->calc, c->g[0], c->in_meta[0].ndim, c->in_meta[0].shape);
  return c->calc->status;
}

const mt_grad_rule mt_grad_view = {0, 0, view_run};

static mt_status expand_run(mt_grad_call *c) {
  c->dx[0] = mt_csum_to(c->calc, c->g[0], c->in_meta[0].ndim, c->in_meta[0].shape);
  return c->calc->status;
}

const mt_grad_rule mt_grad_expand = {0, 0, expand_run};

static mt_status transpose_run(mt_grad_call *c) {
  c->dx[0] =
      mt_ctranspose(c->calc, c->g[0], (int)c->attr[0].i[0], (int)c->attr[1].i[0]);
  return c->calc->status;
}

const mt_grad_rule mt_grad_transpose = {0, 0, transpose_run};

static mt_status permute_run(mt_grad_call *c) {
  int64_t inverse[MT_MAX_DIMS] = {0};
  const int n = c->attr[0].n;
  for (int d = 0; d < n; d++) inverse[c->attr[0].i[d]] = d;
  c->dx[0] = mt_cpermute(c->calc, c->g[0], n, inverse);
  return c->calc->status;
}

const mt_grad_rule mt_grad_permute = {0, 0, permute_run};

/* ---- parts put into zeros ---- */

static mt_tensor *input_zeros(mt_grad_call *c) {
  return mt_czeros_of(c->calc, &c->in_meta[0]);
}

/* The same view of zeros, overwritten by g: for views that reach no element twice. */
static mt_status same_view_run(mt_grad_call *c) {
  mt_tensor *const zeros = input_zeros(c);
  mt_tensor *const part = mt_c1a(c->calc, c->op->op, zeros, c->op->nattr, c->attr);
  mt_cinplace(c->calc, MT_OP__copy, 2, (mt_tensor *[]){part, c->g[0]}, NULL);
  c->dx[0] = zeros;
  return c->calc->status;
}

const mt_grad_rule mt_grad_narrow = {0, 0, same_view_run};
const mt_grad_rule mt_grad_slice = {0, 0, same_view_run};
const mt_grad_rule mt_grad_select = {0, 0, same_view_run};
const mt_grad_rule mt_grad_diagonal = {0, 0, same_view_run};

static mt_tensor *select(mt_calc *c, mt_tensor *t, int64_t dim, int64_t index) {
  const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(index)};
  return mt_c1a(c, MT_OP_select, t, 2, attr);
}

/* Overlapping windows: their j-th elements, over all windows, do not overlap; nor does
** one window. Add up along whichever is shorter. */
static mt_status unfold_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const int64_t dim = call->attr[0].i[0], size = call->attr[1].i[0],
                step = call->attr[2].i[0];
  if (step >= size || call->in_meta[0].ndim == 0) return same_view_run(call);
  const int last = call->in_meta[0].ndim;
  const int64_t windows = call->out_meta[0].shape[dim];
  mt_tensor *const zeros = input_zeros(call);
  mt_tensor *const part = mt_c1a(c, MT_OP_unfold, zeros, 3, call->attr);
  const int64_t along = size <= windows ? last : dim;
  for (int64_t j = 0; j < smaller(size, windows) && c->status == MT_OK; j++) {
    mt_tensor *const in[] = {select(c, part, along, j),
                             select(c, call->g[0], along, j)};
    mt_cinplace(c, MT_OP_add, 2, in, NULL);
  }
  call->dx[0] = zeros;
  return c->status;
}

const mt_grad_rule mt_grad_unfold = {0, 0, unfold_run};
