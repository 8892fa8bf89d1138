/* runtime/autograd/grad_index.c -- gradients of the ops that select by an index
** tensor. */
#include "runtime/autograd/parts.h"
#include "runtime/autograd/rules.h"

/* op(x, dim, index) and op(x, dim, index, src), with the dim and the index of the
** call. */
static mt_tensor *take(const mt_grad_call *call, mt_op op, mt_tensor *x) {
  return mt_calong(call->calc, op, x, call->attr[0].i[0], call->in[1], NULL);
}

static mt_tensor *put(const mt_grad_call *call, mt_op op, mt_tensor *x,
                      mt_tensor *src) {
  return mt_calong(call->calc, op, x, call->attr[0].i[0], call->in[1], src);
}

static mt_status embedding_run(mt_grad_call *call) {
  const mt_attr rows = mt_attr_i(call->in_meta[0].shape[0]);
  mt_tensor *const in[] = {call->in[1], call->g[0]};
  call->dx[0] = mt_ca(call->calc, MT_OP_embedding_backward, 2, in, 0, 1, &rows, NULL);
  return call->calc->status;
}

const mt_grad_rule mt_grad_embedding = {2, 0, embedding_run};

static mt_status embedding_backward_run(mt_grad_call *call) {
  if (call->needs[1])
    call->dx[1] = mt_c2(call->calc, MT_OP_embedding, call->g[0], call->in[0]);
  return call->calc->status;
}

const mt_grad_rule mt_grad_embedding_backward = {1, 0, embedding_backward_run};

static mt_status gather_run(mt_grad_call *call) {
  mt_tensor *const zeros = mt_czeros_of(call->calc, &call->in_meta[0]);
  call->dx[0] = put(call, MT_OP_scatter_add, zeros, call->g[0]);
  return call->calc->status;
}

const mt_grad_rule mt_grad_gather = {2, 0, gather_run};

/* src may be larger than index: the rest of it was not used. */
static mt_status scatter_add_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  if (call->needs[0]) call->dx[0] = call->g[0];
  if (call->needs[2])
    call->dx[2] =
        mt_cfill_up(c, take(call, MT_OP_gather, call->g[0]), &call->in_meta[2]);
  return c->status;
}

const mt_grad_rule mt_grad_scatter_add = {2, 0, scatter_add_run};

static mt_status index_select_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  mt_tensor *const zeros = mt_czeros_of(c, &call->in_meta[0]);
  call->dx[0] = put(call, MT_OP_index_add, zeros, call->g[0]);
  return c->status;
}

const mt_grad_rule mt_grad_index_select = {2, 0, index_select_run};

static mt_status index_add_run(mt_grad_call *call) {
  if (call->needs[0]) call->dx[0] = call->g[0];
  if (call->needs[2]) call->dx[2] = take(call, MT_OP_index_select, call->g[0]);
  return call->calc->status;
}

const mt_grad_rule mt_grad_index_add = {2, 0, index_add_run};

/* Which elements of the index are the last ones to name their position? A bool
** tensor that broadcasts along the dim of ndim dims. Counts 1 .. n, written through
** the index: who reads its own number back was the last. */
static mt_tensor *last_ones(const mt_grad_call *call, int ndim) {
  mt_calc *const c = call->calc;
  const mt_meta *const x = &call->in_meta[0];
  const int dim = (int)call->attr[0].i[0];
  mt_tensor *const index = call->in[1];
  const int64_t n = index->v.ndim ? index->v.shape[0] : 1;
  mt_tensor *const numbers = mt_ccount(c, x->device, 1, &n, 1);
  mt_tensor *const table = mt_czeros(c, MT_I64, x->device, 1, &x->shape[dim]);
  mt_tensor *const written = mt_calong(c, MT_OP_index_copy, table, 0, index, numbers);
  mt_tensor *const read = mt_calong(c, MT_OP_index_select, written, 0, index, NULL);
  int64_t shape[MT_MAX_DIMS];
  for (int d = 0; d < ndim; d++) shape[d] = d == dim ? n : 1;
  return mt_creshape(c, mt_c2(c, MT_OP_eq, read, numbers), ndim, shape);
}

/* The last slice that was written to a position stays there. */
static mt_status index_copy_run(mt_grad_call *call) {
  mt_calc *const c = call->calc;
  if (call->needs[0]) {
    mt_tensor *const zeros = mt_czeros_of(c, &call->in_meta[2]);
    call->dx[0] = put(call, MT_OP_index_copy, call->g[0], zeros);
  }
  if (call->needs[2]) {
    mt_tensor *const read = take(call, MT_OP_index_select, call->g[0]);
    mt_tensor *const last = last_ones(call, call->in_meta[0].ndim);
    call->dx[2] = mt_c3(c, MT_OP_where, last, read, mt_cnum(c, 0));
  }
  return c->status;
}

const mt_grad_rule mt_grad_index_copy = {2, 0, index_copy_run};
