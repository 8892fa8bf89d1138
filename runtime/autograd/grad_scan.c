/* runtime/autograd/grad_scan.c -- gradient of the running sum: the running sum from the
** other end. */
#include "runtime/autograd/rules.h"

static mt_status cumsum_run(mt_grad_call *c) {
  const mt_attr attr[] = {c->attr[0], mt_attr_i(!c->attr[1].i[0])};
  c->dx[0] = mt_c1a(c->calc, MT_OP_cumsum, c->g[0], 2, attr);
  return c->calc->status;
}

const mt_grad_rule mt_grad_cumsum = {0, 0, cumsum_run};
