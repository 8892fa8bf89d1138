/* runtime/autograd/grad_sort.c -- gradients of sort and topk, _scatter,
** _scatter_fold and _masked_select: elements go back to where they came from. */
#include "runtime/autograd/rules.h"

static mt_tensor *zeros_like(mt_calc *c, const mt_meta *m) {
  return mt_czeros(c, m->dtype, m->device, m->ndim, m->shape);
}

/* No position occurs twice, so nothing needs adding. */
static mt_status sort_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_attr *const dim = &call->attr[call->op->dim_slot];
  mt_tensor *const in[] = {zeros_like(c, &call->in_meta[0]), call->out[1], call->g[0]};
  call->dx[0] = mt_ca(c, MT_OP__scatter, 3, in, 0, 1, dim, NULL);
  return c->status;
}

const mt_grad_rule mt_grad_sort = {0, 1u << 1, sort_run};

static mt_status masked_select_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const in[] = {zeros_like(c, &call->in_meta[0]), call->in[1], call->g[0]};
  call->dx[0] = mt_ca(c, MT_OP_masked_scatter, 3, in, 0, 0, NULL, NULL);
  return c->status;
}

const mt_grad_rule mt_grad_masked_select = {1u << 1, 0, masked_select_run};

/* ---- _scatter, _scatter_fold ---- */

enum { PROD, AMAX, AMIN, SET }; /* SET: _scatter */

static mt_tensor *scatter(mt_grad_call *call, mt_tensor *x, mt_tensor *src, int how) {
  const mt_attr attr[] = {call->attr[0], mt_attr_i(how == SET ? 1 : how)};
  mt_tensor *const in[] = {x, call->in[1], src};
  const mt_op op = how == SET ? MT_OP__scatter : MT_OP__scatter_fold;
  return mt_ca(call->calc, op, 3, in, 0, 2, attr, NULL);
}

static mt_tensor *gather(mt_grad_call *call, mt_tensor *x) {
  mt_tensor *const in[] = {x, call->in[1]};
  return mt_ca(call->calc, MT_OP_gather, 2, in, 0, 1, call->attr, NULL);
}

static mt_tensor *added(mt_grad_call *call, mt_tensor *x, mt_tensor *src) {
  mt_tensor *const in[] = {x, call->in[1], src};
  return mt_ca(call->calc, MT_OP_scatter_add, 3, in, 0, 1, call->attr, NULL);
}

/* The part of src that the index covers. */
static mt_tensor *covered(mt_grad_call *call, mt_tensor *src) {
  const mt_meta *const index = &call->in_meta[1];
  for (int d = 0; d < index->ndim && src; d++) {
    const mt_attr attr[] = {mt_attr_i(d), mt_attr_i(0), mt_attr_i(index->shape[d])};
    if (src->v.shape[d] != index->shape[d])
      src = mt_c1a(call->calc, MT_OP_narrow, src, 3, attr);
  }
  return src;
}

/* t filled up with zeros to src's shape, where that is larger than the index. */
static mt_tensor *filled_up(mt_grad_call *call, mt_tensor *t) {
  mt_calc *const c = call->calc;
  const mt_meta *const src = &call->in_meta[2];
  for (int d = 0; d < src->ndim && t; d++) {
    int64_t shape[MT_MAX_DIMS];
    if (t->v.shape[d] == src->shape[d]) continue;
    for (int i = 0; i < src->ndim; i++) shape[i] = t->v.shape[i];
    shape[d] = src->shape[d] - t->v.shape[d];
    mt_tensor *const in[] = {t,
                             mt_czeros(c, src->dtype, src->device, src->ndim, shape)};
    const mt_attr dim = mt_attr_i(d);
    t = mt_ca(c, MT_OP_cat, 2, in, 0, 1, &dim, NULL);
  }
  return t;
}

/* 1, 2, 3, ... in the index's shape, in the order in which it is gone through. */
static mt_tensor *numbers(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const index = &call->in_meta[1];
  const mt_attr count[] = {mt_attr_i(1), mt_attr_i(1)};
  mt_tensor *const zeros =
      mt_czeros(c, MT_I64, index->device, index->ndim, index->shape);
  return mt_c1a(c, MT_OP__arange, zeros, 2, count);
}

/* What was written last has the gradient: each writes its number and reads it back. */
static mt_status set_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  if (call->needs[0]) {
    mt_tensor *const zeros = mt_czeros(c, x->dtype, x->device, call->in_meta[1].ndim,
                                       call->in_meta[1].shape);
    call->dx[0] = scatter(call, call->g[0], zeros, SET);
  }
  if (call->needs[2]) {
    mt_tensor *const number = numbers(call);
    mt_tensor *const table = mt_czeros(c, MT_I64, x->device, x->ndim, x->shape);
    mt_tensor *const read = gather(call, scatter(call, table, number, SET));
    mt_tensor *const last = mt_c2(c, MT_OP_eq, read, number);
    mt_tensor *const g =
        mt_c3(c, MT_OP_where, last, gather(call, call->g[0]), mt_cnum(c, 0));
    call->dx[2] = filled_up(call, g);
  }
  return c->status;
}

/* Shared evenly among all that are as large as the result. */
static mt_status extreme_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const y = call->out[0], *const src = covered(call, call->in[2]);
  mt_tensor *const own = mt_c2(c, MT_OP_eq, call->in[0], y);
  mt_tensor *const theirs = mt_c2(c, MT_OP_eq, src, gather(call, y));
  const mt_attr dtype = mt_attr_i(call->in_meta[0].dtype);
  mt_tensor *const mine = mt_c1a(c, MT_OP__cast, own, 1, &dtype);
  mt_tensor *const ties = added(call, mine, mt_c1a(c, MT_OP__cast, theirs, 1, &dtype));
  mt_tensor *const safe = mt_c2(c, MT_OP_maximum, ties, mt_cnum(c, 1));
  mt_tensor *const share = mt_c2(c, MT_OP_div, call->g[0], safe);
  if (call->needs[0]) call->dx[0] = mt_c3(c, MT_OP_where, own, share, mt_cnum(c, 0));
  if (call->needs[2])
    call->dx[2] = filled_up(
        call, mt_c3(c, MT_OP_where, theirs, gather(call, share), mt_cnum(c, 0)));
  return c->status;
}

/* t with its zeros replaced by 1. */
static mt_tensor *without_zeros(mt_calc *c, mt_tensor *t, mt_tensor *zero) {
  return mt_c3(c, MT_OP_where, zero, mt_cnum(c, 1), t);
}

/* g times the product of the others: y / x, but where x is 0, or the only 0 among the
** factors, the product without it. */
static mt_status product_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const x = call->in[0], *const src = covered(call, call->in[2]);
  mt_tensor *const g = call->g[0];
  mt_tensor *const zero_x = mt_c2(c, MT_OP_eq, x, mt_cnum(c, 0));
  mt_tensor *const safe_x = without_zeros(c, x, zero_x);
  if (call->needs[0]) {
    mt_tensor *const others = scatter(call, safe_x, src, PROD);
    call->dx[0] = mt_c2(c, MT_OP_div, mt_c2(c, MT_OP_mul, g, others), safe_x);
  }
  if (call->needs[2]) {
    mt_tensor *const zero = mt_c2(c, MT_OP_eq, src, mt_cnum(c, 0));
    const mt_attr dtype = mt_attr_i(MT_I64);
    mt_tensor *const none = mt_czeros(c, MT_I64, call->in_meta[0].device,
                                      call->in_meta[0].ndim, call->in_meta[0].shape);
    mt_tensor *const count =
        gather(call, added(call, none, mt_c1a(c, MT_OP__cast, zero, 1, &dtype)));
    mt_tensor *const lone =
        mt_c2(c, MT_OP_logical_and, zero, mt_c2(c, MT_OP_eq, count, mt_cnum(c, 1)));
    mt_tensor *const others = scatter(call, x, without_zeros(c, src, lone), PROD);
    mt_tensor *const at_zero = gather(call, mt_c2(c, MT_OP_mul, g, others));
    mt_tensor *const plain =
        mt_c2(c, MT_OP_div, gather(call, mt_c2(c, MT_OP_mul, g, call->out[0])),
              without_zeros(c, src, zero));
    call->dx[2] = filled_up(call, mt_c3(c, MT_OP_where, lone, at_zero, plain));
  }
  return c->status;
}

const mt_grad_rule mt_grad_scatter = {1u << 1, 0, set_run};

static mt_status scatter_fold_run(mt_grad_call *call) {
  return call->attr[1].i[0] == PROD ? product_run(call) : extreme_run(call);
}

const mt_grad_rule mt_grad_scatter_fold = {7, 1, scatter_fold_run};
