/* runtime/autograd/formula_grad.c -- gradients of elementwise rows, from the formulas
** of ops.def: by the fused kernel, or as differentiable ops under create_graph. */
#include <stdatomic.h>
#include <string.h>
#include "runtime/autograd/graph.h"

static bool is_unary(const mt_opinfo *op) { return op->nin == 1; }

/* The name of input i in the formulas. */
static const char *input_name(const mt_opinfo *op, int i) {
  static const char *const names[] = {"a", "b", "c"};
  return is_unary(op) ? "x" : names[i];
}

/* ---- what to save ---- */

enum { KNOWN = 1 << 7, USES_OUTPUT = 1 << 3 }; /* and bits 0 .. 2: the inputs */

/* What the gradient of input `which` uses, found once. */
static unsigned formula_uses(mt_op op, int which) {
  static _Atomic unsigned char cache[MT_OP_COUNT][3];
  unsigned uses = atomic_load_explicit(&cache[op][which], memory_order_relaxed);
  if (uses & KNOWN) return uses;
  const mt_opinfo *const info = mt_op_info(op);
  const mt_expr *const e = mt_op_formula(op, 1 + which);
  uses = KNOWN;
  if (e) {
    if (mt_expr_uses(e, "y")) uses |= USES_OUTPUT;
    for (int i = 0; i < info->nin; i++) {
      if (mt_expr_uses(e, input_name(info, i))) uses |= 1u << i;
    }
  }
  atomic_store_explicit(&cache[op][which], (unsigned char)uses, memory_order_relaxed);
  return uses;
}

void mt_formula_saves(mt_op op, const bool *needs, unsigned *save_in,
                      unsigned *save_out) {
  unsigned uses = 0;
  for (int i = 0; i < mt_op_info(op)->nin; i++) {
    if (needs[i]) uses |= formula_uses(op, i);
  }
  *save_in = uses & 7u;
  *save_out = uses & USES_OUTPUT ? 1u : 0u;
}

/* ---- evaluation as differentiable ops ---- */

/* A value on the way: a number, or a tensor. Numbers become tensors only where they
** meet one, so that they do not promote it. */
typedef struct value {
  mt_tensor *t; /* NULL: a number, or the calc has failed */
  double number;
} value;

static bool is_number(const value *v) { return v->t == NULL; }

static mt_tensor *as_tensor(mt_calc *c, value v) {
  return v.t ? v.t : mt_cnum(c, v.number);
}

/* A number, or a tensor that was one for the user: neither has a say about dtypes. */
static bool is_weak(const value *v) { return !v->t || v->t->wrapped; }

/* A weak value in the dtype of g. Of two such `where` would make the default dtype. */
static mt_tensor *as_typed(mt_grad_call *c, value v) {
  const mt_attr dtype = mt_attr_i(c->g[0]->v.dtype);
  return mt_c1a(c->calc, MT_OP__cast, as_tensor(c->calc, v), 1, &dtype);
}

static value from_tensor(mt_tensor *t) { return (value){t, 0}; }

static value eval_fail(mt_grad_call *c, const char *what, const char *name) {
  if (c->calc->status == MT_OK) {
    c->calc->status =
        mt_fail(MT_EINTERNAL, "%s: %s %s in its gradient", c->op->name, what, name);
  }
  return (value){NULL, 0};
}

static value eval_name(mt_grad_call *c, const char *name) {
  if (strcmp(name, "g") == 0) return from_tensor(c->g[0]);
  if (strcmp(name, "y") == 0) return from_tensor(c->out[0]);
  for (int i = 0; i < c->nin; i++) {
    if (strcmp(name, input_name(c->op, i)) == 0) return from_tensor(c->in[i]);
  }
  for (int i = 0; i < c->op->nparams; i++) {
    const mt_param *const p = &c->op->param[i];
    if (p->type >= MT_PARAM_INT && strcmp(name, p->name) == 0) {
      return (value){NULL, c->attr[p->slot].f};
    }
  }
  return eval_fail(c, "unknown name", name);
}

static double fold(mt_op op, double a, double b) {
  switch (op) {
  case MT_OP_add: return a + b;
  case MT_OP_sub: return a - b;
  case MT_OP_mul: return a * b;
  default: return a / b;
  }
}

/* An op of weak values only: as numbers are computed, in float64, and weak again. In
** the default dtype they would lose digits. */
static value eval_weak(mt_grad_call *c, mt_op op, int nin, mt_tensor **in, int nattr,
                       const mt_attr *attr) {
  const mt_attr dtype = mt_attr_i(MT_F64);
  for (int i = 0; i < nin; i++) in[i] = mt_c1a(c->calc, MT_OP__cast, in[i], 1, &dtype);
  mt_tensor *const y = mt_ca(c->calc, op, nin, in, 0, nattr, attr, NULL);
  if (y && MT_IS_FLOAT(y->v.dtype)) y->wrapped = true;
  return from_tensor(y);
}

static value eval_binary(mt_grad_call *c, mt_op op, value a, value b) {
  if (is_number(&a) && is_number(&b))
    return (value){NULL, fold(op, a.number, b.number)};
  mt_tensor *in[2] = {as_tensor(c->calc, a), as_tensor(c->calc, b)};
  if (is_weak(&a) && is_weak(&b)) return eval_weak(c, op, 2, in, 0, NULL);
  return from_tensor(mt_c2(c->calc, op, in[0], in[1]));
}

/* The words that are not names of ops. */
static int op_of_word(const char *word) {
  if (strcmp(word, "both") == 0) return MT_OP_logical_and;
  if (strcmp(word, "either") == 0) return MT_OP_logical_or;
  if (strcmp(word, "not_") == 0) return MT_OP_logical_not;
  return mt_op_find(word);
}

static value eval_call(mt_grad_call *c, const char *word, int n, value *arg) {
  const int op = op_of_word(word);
  if (op < 0) return eval_fail(c, "unknown word", word);
  const mt_opinfo *const info = mt_op_info((mt_op)op);
  const int nin = info->nin < n ? info->nin : n;
  mt_tensor *in[MT_EXPR_MAX_ARGS];
  mt_attr attr[MT_EXPR_MAX_ARGS];
  bool weak = true;
  for (int i = 0; i < nin; i++) {
    in[i] = as_tensor(c->calc, arg[i]);
    weak = weak && is_weak(&arg[i]);
  }
  if (op == MT_OP_where && is_weak(&arg[1]) && is_weak(&arg[2])) {
    in[1] = as_typed(c, arg[1]);
    in[2] = as_typed(c, arg[2]);
  }
  for (int i = nin; i < n; i++) {
    if (!is_number(&arg[i])) return eval_fail(c, "not a number: attribute of", word);
    attr[i - nin] = mt_attr_f(arg[i].number);
  }
  if (weak && op != MT_OP_where) return eval_weak(c, (mt_op)op, nin, in, n - nin, attr);
  return from_tensor(mt_ca(c->calc, (mt_op)op, nin, in, 0, n - nin, attr, NULL));
}

/* Recursion as deep as a formula of ops.def. */
static value eval(mt_grad_call *c, const mt_expr *e) {
  value arg[MT_EXPR_MAX_ARGS] = {{NULL, 0}};
  for (int i = 0; i < e->nargs; i++) {
    arg[i] = eval(c, e->arg[i]);
    if (c->calc->status != MT_OK) return (value){NULL, 0};
  }
  switch (e->kind) {
  case MT_EXPR_NAME: return eval_name(c, e->name);
  case MT_EXPR_NUMBER: return (value){NULL, e->number};
  case MT_EXPR_CALL: return eval_call(c, e->name, e->nargs, arg);
  case MT_EXPR_NEG:
    if (is_number(&arg[0])) return (value){NULL, -arg[0].number};
    if (is_weak(&arg[0])) return eval_weak(c, MT_OP_neg, 1, &arg[0].t, 0, NULL);
    return from_tensor(mt_c1(c->calc, MT_OP_neg, arg[0].t));
  case MT_EXPR_ADD: return eval_binary(c, MT_OP_add, arg[0], arg[1]);
  case MT_EXPR_SUB: return eval_binary(c, MT_OP_sub, arg[0], arg[1]);
  case MT_EXPR_MUL: return eval_binary(c, MT_OP_mul, arg[0], arg[1]);
  case MT_EXPR_DIV: return eval_binary(c, MT_OP_div, arg[0], arg[1]);
  }
  return eval_fail(c, "unknown kind of", "expression");
}

/* A formula without tensors: a constant in the shape of g. */
static mt_tensor *constant(mt_grad_call *c, double number) {
  const mt_attr attr = mt_attr_f(number);
  return mt_c1a(c->calc, MT_OP_fill, c->g[0], 1, &attr);
}

/* ---- the rule ---- */

static bool is_g(const mt_expr *e) {
  return e->kind == MT_EXPR_NAME && strcmp(e->name, "g") == 0;
}

/* What needs no kernel: g itself, and constants. Clears needs[i] of those done. */
static void shortcuts(mt_grad_call *c, bool *needs) {
  for (int i = 0; i < c->nin; i++) {
    const mt_expr *const e = needs[i] ? mt_op_formula(c->op->op, 1 + i) : NULL;
    if (e && is_g(e)) {
      c->dx[i] = c->g[0];
    } else if (e && e->kind == MT_EXPR_NUMBER) {
      c->dx[i] = constant(c, e->number);
    } else if (e) {
      continue;
    }
    needs[i] = false;
  }
}

static mt_status fused(mt_grad_call *c, const bool *needs) {
  mt_tensor *in[5] = {c->g[0], c->out[0]}, *dx[3] = {NULL};
  for (int i = 0; i < c->nin; i++) in[2 + i] = c->in[i];
  MT_TRY(mt_dispatch_gradient(c->calc->ctx, c->op->op, 2 + c->nin, in, c->attr, needs,
                              dx));
  for (int i = 0; i < c->nin; i++) {
    if (needs[i]) c->dx[i] = mt_cown(c->calc, dx[i]);
  }
  return c->calc->status;
}

mt_status mt_formula_gradient(mt_grad_call *c) {
  bool needs[3] = {false}, any = false;
  for (int i = 0; i < c->nin; i++) needs[i] = c->needs[i];
  shortcuts(c, needs);
  for (int i = 0; i < c->nin; i++) any = any || needs[i];
  if (any && c->calc->ctx->grad_enabled) {
    for (int i = 0; i < c->nin; i++) {
      if (!needs[i]) continue;
      const value v = eval(c, mt_op_formula(c->op->op, 1 + i));
      c->dx[i] = v.t || c->calc->status != MT_OK ? v.t : constant(c, v.number);
    }
  } else if (any) {
    MT_TRY(fused(c, needs));
  }
  for (int i = 0; i < c->nin; i++) {
    if (!c->needs[i] || !c->dx[i]) continue;
    const mt_meta *const m = &c->in_meta[i];
    c->dx[i] = mt_csum_to(c->calc, c->dx[i], m->ndim, m->shape);
  }
  return c->calc->status;
}

mt_tensor *mt_cgradient(mt_calc *c, mt_op op, mt_tensor *g, mt_tensor *x,
                        mt_tensor *y) {
  if (!g || c->status != MT_OK) return NULL;
  const mt_meta meta = {.ndim = g->v.ndim, .shape = g->v.shape};
  const bool needs = true;
  mt_tensor *dx = NULL;
  mt_grad_call call = {.calc = c,
                       .op = mt_op_info(op),
                       .nin = 1,
                       .nout = 1,
                       .in = &x,
                       .out = &y,
                       .g = &g,
                       .in_meta = &meta,
                       .needs = &needs,
                       .dx = &dx};
  const mt_status status = mt_formula_gradient(&call);
  if (c->status == MT_OK) c->status = status;
  return dx;
}
