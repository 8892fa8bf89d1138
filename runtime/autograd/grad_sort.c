/* runtime/autograd/grad_sort.c -- gradients of sort and topk, _scatter,
** _scatter_fold and _masked_select: elements go back to where they came from. */
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* No position occurs twice, so nothing needs adding. */
static mt_status sort_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const int64_t dim = call->attr[call->op->dim_slot].i[0];
  call->dx[0] = mt_calong(c, MT_OP__scatter, mt_czeros_of(c, &call->in_meta[0]), dim,
                          call->out[1], call->g[0]);
  return c->status;
}

const mt_grad_rule mt_grad_sort = {0, 1u << 1, sort_run};

static mt_status masked_select_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const zeros = mt_czeros_of(c, &call->in_meta[0]);
  call->dx[0] = mt_c3(c, MT_OP_masked_scatter, zeros, call->in[1], call->g[0]);
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
  const int64_t dim = call->attr[0].i[0];
  return mt_calong(call->calc, MT_OP_gather, x, dim, call->in[1], NULL);
}

static mt_tensor *added(mt_grad_call *call, mt_tensor *x, mt_tensor *src) {
  const int64_t dim = call->attr[0].i[0];
  return mt_calong(call->calc, MT_OP_scatter_add, x, dim, call->in[1], src);
}

/* The part of src that the index covers. */
static mt_tensor *covered(mt_grad_call *call, mt_tensor *src) {
  const mt_meta *const index = &call->in_meta[1];
  for (int d = 0; d < index->ndim && src; d++) {
    if (src->v.shape[d] != index->shape[d])
      src = mt_cpart(call->calc, src, d, 0, index->shape[d]);
  }
  return src;
}

/* t for src, which may be larger than the index: the rest was not used. */
static mt_tensor *filled_up(mt_grad_call *call, mt_tensor *t) {
  return mt_cfill_up(call->calc, t, &call->in_meta[2]);
}

/* What was written last has the gradient: each writes its number and reads it back. */
static mt_status set_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0], *const index = &call->in_meta[1];
  if (call->needs[0]) {
    mt_tensor *const zeros =
        mt_czeros(c, x->dtype, x->device, index->ndim, index->shape);
    call->dx[0] = scatter(call, call->g[0], zeros, SET);
  }
  if (call->needs[2]) {
    mt_tensor *const number = mt_ccount(c, index->device, index->ndim, index->shape, 1);
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
  const mt_dtype dtype = mt_wide_dtype(call->in_meta[0].dtype);
  mt_tensor *const ties =
      added(call, mt_ccast(c, own, dtype), mt_ccast(c, theirs, dtype));
  mt_tensor *const safe = mt_c2(c, MT_OP_maximum, ties, mt_cnum(c, 1));
  mt_tensor *const share = mt_cshare(c, call->g[0], safe);
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
    mt_tensor *const none = mt_czeros(c, MT_I64, call->in_meta[0].device,
                                      call->in_meta[0].ndim, call->in_meta[0].shape);
    mt_tensor *const count = gather(call, added(call, none, mt_ccast(c, zero, MT_I64)));
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
