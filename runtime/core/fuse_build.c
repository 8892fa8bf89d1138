/* runtime/core/fuse_build.c -- a formula of a user becomes a graph: names, arguments,
** reductions over the last dim, and messages that say where something is wrong. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/core/fuse.h"

typedef struct builder {
  mt_fuse *f;
  const mt_formula *formula;
  int *step; /* nodes of the steps so far */
  int nsteps;
} builder;

/* The error at e, noted in the graph; -1. */
__attribute__((format(printf, 3, 4))) static int fail_at(builder *b, const mt_expr *e,
                                                         const char *format, ...) {
  char what[300];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (b->f->graph.status == MT_OK) {
    b->f->graph.status = mt_formula_fail(b->f->text, e->position, what);
  }
  return -1;
}

/* ---- names, and those that may have been meant ---- */

typedef enum reduction {
  SUM,
  MEAN,
  AMAX,
  AMIN,
  VAR,
  STD,
  LOGSUMEXP,
  SOFTMAX,
  LOG_SOFTMAX,
  NREDUCTIONS
} reduction;
static const char *const reductions[NREDUCTIONS] = {
    "sum", "mean", "amax", "amin", "var", "std", "logsumexp", "softmax", "log_softmax"};

static int find_reduction(const char *name) {
  for (int r = 0; r < NREDUCTIONS; r++) {
    if (strcmp(reductions[r], name) == 0) return r;
  }
  return -1;
}

static bool fuses(const mt_opinfo *op) {
  return op->kind <= MT_KIND_TERNARY && op->dtypes != MT_CLASS_INT && !op->internal;
}

/* Insertions, deletions, replacements and swaps between two short names. */
static int distance(const char *a, const char *b) {
  int row[3][32];
  const int n = (int)strlen(b);
  if (n > 30) return 99;
  int *before = row[0], *above = row[1], *here = row[2];
  for (int j = 0; j <= n; j++) above[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    here[0] = i;
    for (int j = 1; j <= n; j++) {
      int least = above[j - 1] + (a[i - 1] != b[j - 1]);
      if (above[j] + 1 < least) least = above[j] + 1;
      if (here[j - 1] + 1 < least) least = here[j - 1] + 1;
      const bool swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swap && before[j - 2] + 1 < least) least = before[j - 2] + 1;
      here[j] = least;
    }
    int *const free_row = before;
    before = above, above = here, here = free_row;
  }
  return above[n];
}

typedef struct nearest {
  const char *wanted, *name;
  int distance;
} nearest;

static void consider(nearest *n, const char *name) {
  const int d = distance(n->wanted, name);
  if (d < n->distance) n->distance = d, n->name = name;
}

static int unknown_name(builder *b, const mt_expr *e) {
  nearest n = {e->name, NULL, 4};
  for (int i = 0; i < b->f->nin; i++) consider(&n, b->f->in_name[i]);
  for (int i = 0; i < b->nsteps; i++) consider(&n, b->formula->step[i].name);
  if (n.name) {
    return fail_at(b, e, "unknown name '%s' (did you mean '%s'?)", e->name, n.name);
  }
  return fail_at(b, e, "unknown name '%s'; the arguments are %s", e->name,
                 b->f->in_text);
}

static int unknown_function(builder *b, const mt_expr *e) {
  const int op = mt_op_find(e->name);
  if (op >= 0) {
    const mt_opinfo *const info = mt_op_info((mt_op)op);
    return fail_at(b, e, "'%s' %s", e->name,
                   info->kind <= MT_KIND_TERNARY
                       ? "is of integers; a fused operator computes with floats"
                       : "is neither elementwise nor a reduction over the last dim");
  }
  nearest n = {e->name, NULL, 99};
  for (int i = 0; i < MT_OP_COUNT; i++) {
    if (fuses(mt_op_info((mt_op)i))) consider(&n, mt_op_info((mt_op)i)->name);
  }
  for (int r = 0; r < NREDUCTIONS; r++) consider(&n, reductions[r]);
  consider(&n, "where");
  return fail_at(b, e, "unknown function '%s' (did you mean '%s'?)", e->name, n.name);
}

static int name(builder *b, const mt_expr *e) {
  mt_fuse_graph *const g = &b->f->graph;
  for (int i = b->nsteps - 1; i >= 0; i--) {
    if (strcmp(b->formula->step[i].name, e->name) == 0) return b->step[i];
  }
  for (int i = 0; i < b->f->nin; i++) {
    if (strcmp(b->f->in_name[i], e->name) == 0) {
      return mt_fuse_input(g, i, MT_FUSE_FULL, false);
    }
  }
  if (strcmp(e->name, "pi") == 0) return mt_fuse_number(g, 3.141592653589793);
  if (strcmp(e->name, "inf") == 0) return mt_fuse_number(g, HUGE_VAL);
  return unknown_name(b, e);
}

/* ---- elementwise ---- */

static int build(builder *b, const mt_expr *e);

/* Values without their last dim do not meet others: dims are matched from the right. */
static bool meet(builder *b, const mt_expr *e, int n, const int *arg) {
  const mt_fuse_node *const node = b->f->graph.node;
  bool dropped = false, others = false;
  for (int i = 0; i < n; i++) {
    if (arg[i] < 0) return false;
    if (node[arg[i]].dropped)
      dropped = true;
    else
      others = others || node[arg[i]].space > MT_FUSE_CONSTANT;
  }
  if (!dropped || !others) return true;
  fail_at(b, e,
          "a value whose last dim was reduced meets one that has it: reduce with "
          "keepdim, as in sum(x, -1, true)");
  return false;
}

static bool is_boolean(const mt_expr *e) {
  return e->kind == MT_EXPR_NAME &&
         (strcmp(e->name, "true") == 0 || strcmp(e->name, "false") == 0);
}

static bool constant(builder *b, const mt_expr *e, const char *what, double *x) {
  const int v = is_boolean(e) ? 0 : build(b, e);
  if (v < 0) return false;
  if (is_boolean(e) || b->f->graph.node[v].kind != MT_FUSE_NUMBER) {
    fail_at(b, e, "%s must be a number", what);
    return false;
  }
  *x = b->f->graph.node[v].number[0];
  return true;
}

static const char *attribute_name(const mt_opinfo *op, int slot) {
  for (int k = 0; k < op->nparams; k++) {
    const mt_param *const p = &op->param[k];
    if (p->type > MT_PARAM_LIST && p->slot == slot) return p->name;
  }
  return "";
}

static int elementwise(builder *b, const mt_expr *e, mt_op op) {
  const mt_opinfo *const info = mt_op_info(op);
  if (e->nargs < info->nin || e->nargs > info->nin + info->nattr) {
    char most[24] = "";
    if (info->nattr > 0) snprintf(most, sizeof most, " to %d", info->nin + info->nattr);
    return fail_at(b, e, "'%s' takes %d%s argument%s, got %d", e->name, info->nin, most,
                   info->nin + info->nattr == 1 ? "" : "s", e->nargs);
  }
  int arg[3] = {-1, -1, -1};
  double number[2] = {0, 0};
  mt_attr preset[MT_MAX_ATTRS];
  mt_op_presets(op, preset);
  for (int i = 0; i < info->nin; i++) arg[i] = build(b, e->arg[i]);
  for (int i = 0; i < info->nattr && i < 2; i++) {
    char what[64];
    number[i] = preset[i].f;
    snprintf(what, sizeof what, "'%s' of '%s'", attribute_name(info, i), e->name);
    if (info->nin + i < e->nargs &&
        !constant(b, e->arg[info->nin + i], what, &number[i]))
      return -1;
  }
  return meet(b, e, info->nin, arg) ? mt_fuse_op(&b->f->graph, op, arg, number) : -1;
}

static int choice(builder *b, const mt_expr *e) {
  if (e->nargs != 3)
    return fail_at(b, e, "'where' takes 3 arguments, got %d", e->nargs);
  int arg[3];
  for (int i = 0; i < 3; i++) {
    const mt_expr *const x = e->arg[i];
    arg[i] = i == 0 && is_boolean(x)
                 ? mt_fuse_number(&b->f->graph, strcmp(x->name, "true") == 0)
                 : build(b, x);
  }
  return meet(b, e, 3, arg) ? mt_fuse_where(&b->f->graph, arg[0], arg[1], arg[2]) : -1;
}

/* ---- reductions ---- */

typedef struct reduce_arguments {
  bool dropped;
  double correction;
} reduce_arguments;

/* What follows x: dim, [correction,] keepdim. */
static bool read_reduction(builder *b, const mt_expr *e, int r, reduce_arguments *a) {
  const bool shaped = r == SOFTMAX || r == LOG_SOFTMAX; /* as x, without keepdim */
  const bool corrected = r == VAR || r == STD;
  const int most = shaped ? 2 : corrected ? 4 : 3;
  *a = (reduce_arguments){!shaped, 1};
  if (e->nargs < 1 || e->nargs > most) {
    fail_at(b, e, "'%s' takes 1 to %d arguments, got %d", e->name, most, e->nargs);
    return false;
  }
  double dim = shaped ? -1 : 0;
  if (e->nargs > 1 && !constant(b, e->arg[1], "the dim", &dim)) return false;
  if (dim != -1) {
    fail_at(b, e, "'%s' reduces the last dim only: %s(x, -1)", e->name, e->name);
    return false;
  }
  if (corrected && e->nargs > 2 &&
      !constant(b, e->arg[2], "the correction, which comes before keepdim,",
                &a->correction))
    return false;
  const mt_expr *const keep = e->nargs == most && !shaped ? e->arg[most - 1] : NULL;
  if (!keep) return true;
  if (!is_boolean(keep)) {
    fail_at(b, keep, "keepdim must be true or false");
    return false;
  }
  a->dropped = strcmp(keep->name, "false") == 0;
  return true;
}

static int sum(mt_fuse_graph *g, int x, bool dropped) {
  return mt_fuse_reduce(g, MT_FUSE_SUM, x, dropped, false);
}

static int mean(mt_fuse_graph *g, int x, bool dropped) {
  return mt_fuse_op2(g, MT_OP_div, sum(g, x, dropped), mt_fuse_length(g, x));
}

static int variance(mt_fuse_graph *g, int x, reduce_arguments a) {
  const int d = mt_fuse_op2(g, MT_OP_sub, x, mean(g, x, false));
  const int n =
      mt_fuse_op2(g, MT_OP_sub, mt_fuse_length(g, x), mt_fuse_number(g, a.correction));
  const int squares = sum(g, mt_fuse_op1(g, MT_OP_square, d), a.dropped);
  return mt_fuse_op2(g, MT_OP_div, squares, n);
}

/* The largest of a row. What it is added to and taken from has no gradient by it. */
static int largest(mt_fuse_graph *g, int x, bool dropped) {
  return mt_fuse_reduce(g, MT_FUSE_AMAX, x, dropped, true);
}

/* The same, or 0 where that is infinite: x less that never is NaN by it. */
static int shift(mt_fuse_graph *g, int x, bool dropped) {
  const int m = largest(g, x, dropped);
  return mt_fuse_where(g, mt_fuse_op1(g, MT_OP_isinf, m), mt_fuse_number(g, 0), m);
}

static int logsumexp(mt_fuse_graph *g, int x, bool dropped) {
  const int y =
      mt_fuse_op1(g, MT_OP_exp, mt_fuse_op2(g, MT_OP_sub, x, shift(g, x, false)));
  const int s = sum(g, y, dropped);
  return mt_fuse_op2(g, MT_OP_add, mt_fuse_op1(g, MT_OP_log, s), shift(g, x, dropped));
}

/* Of differences from the largest, so that large values lose no digits; an infinite one
** makes the whole row NaN, as in the ops. */
static int softmax(mt_fuse_graph *g, int x, bool logarithm) {
  const int d = mt_fuse_op2(g, MT_OP_sub, x, largest(g, x, false));
  const int y = mt_fuse_op1(g, MT_OP_exp, d), s = sum(g, y, false);
  return logarithm ? mt_fuse_op2(g, MT_OP_sub, d, mt_fuse_op1(g, MT_OP_log, s))
                   : mt_fuse_op2(g, MT_OP_div, y, s);
}

static int reduce(builder *b, const mt_expr *e, int r) {
  mt_fuse_graph *const g = &b->f->graph;
  reduce_arguments a;
  if (!read_reduction(b, e, r, &a)) return -1;
  const int x = build(b, e->arg[0]);
  if (x < 0) return -1;
  if (g->node[x].space != MT_FUSE_FULL) {
    return fail_at(b, e, "'%s' of %s", e->name,
                   g->node[x].space == MT_FUSE_ROW ? "what was reduced already"
                                                   : "a number");
  }
  switch (r) {
  case SUM: return sum(g, x, a.dropped);
  case MEAN: return mean(g, x, a.dropped);
  case AMAX: return mt_fuse_reduce(g, MT_FUSE_AMAX, x, a.dropped, false);
  case AMIN: return mt_fuse_reduce(g, MT_FUSE_AMIN, x, a.dropped, false);
  case VAR: return variance(g, x, a);
  case STD: return mt_fuse_op1(g, MT_OP_sqrt, variance(g, x, a));
  case LOGSUMEXP: return logsumexp(g, x, a.dropped);
  default: return softmax(g, x, r == LOG_SOFTMAX);
  }
}

/* ---- expressions ---- */

static int operation(builder *b, const mt_expr *e, mt_op op) {
  int arg[2] = {-1, -1};
  for (int i = 0; i < e->nargs; i++) arg[i] = build(b, e->arg[i]);
  return meet(b, e, e->nargs, arg) ? mt_fuse_op(&b->f->graph, op, arg, NULL) : -1;
}

static int call(builder *b, const mt_expr *e) {
  if (strcmp(e->name, "where") == 0) return choice(b, e);
  const int r = find_reduction(e->name);
  if (r >= 0) return reduce(b, e, r);
  const int op = mt_fuse_word(e->name);
  if (op < 0 || !fuses(mt_op_info((mt_op)op))) return unknown_function(b, e);
  return elementwise(b, e, (mt_op)op);
}

static int build(builder *b, const mt_expr *e) {
  if (b->f->graph.status != MT_OK) return -1;
  switch (e->kind) {
  case MT_EXPR_NUMBER: return mt_fuse_number(&b->f->graph, e->number);
  case MT_EXPR_NAME: return name(b, e);
  case MT_EXPR_CALL: return call(b, e);
  case MT_EXPR_NEG: return operation(b, e, MT_OP_neg);
  case MT_EXPR_ADD: return operation(b, e, MT_OP_add);
  case MT_EXPR_SUB: return operation(b, e, MT_OP_sub);
  case MT_EXPR_MUL: return operation(b, e, MT_OP_mul);
  case MT_EXPR_DIV: return operation(b, e, MT_OP_div);
  }
  return -1;
}

/* ---- operators ---- */

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* "a, b" */
static mt_status read_inputs(mt_fuse *f) {
  for (const char *s = f->in_text;;) {
    s += strspn(s, " \t\n");
    size_t n = 0;
    while (is_letter(s[n]) || (n > 0 && s[n] >= '0' && s[n] <= '9')) n++;
    if (n == 0 || n >= sizeof f->in_name[0]) {
      return mt_fail(MT_EARG, "fuse: names expected as in \"a, b\", got \"%.100s\"",
                     f->in_text);
    }
    if (f->nin == MT_FUSE_USER_INPUTS) {
      return mt_fail(MT_EARG, "fuse: more than %d arguments", MT_FUSE_USER_INPUTS);
    }
    memcpy(f->in_name[f->nin], s, n);
    for (int i = 0; i < f->nin; i++) {
      if (strcmp(f->in_name[i], f->in_name[f->nin]) == 0) {
        return mt_fail(MT_EARG, "fuse: two arguments are named '%s'", f->in_name[i]);
      }
    }
    f->nin++;
    s += n;
    s += strspn(s, " \t\n");
    if (*s == '\0') return MT_OK;
    if (*s++ != ',') {
      return mt_fail(MT_EARG, "fuse: names expected as in \"a, b\", got \"%.100s\"",
                     f->in_text);
    }
  }
}

/* Which inputs each output is made of. */
static mt_status find_dependencies(mt_fuse *f) {
  const mt_fuse_graph *const g = &f->graph;
  uint64_t *const bits = calloc((size_t)g->n + 1, sizeof *bits);
  if (!bits) return mt_fail(MT_EMEMORY, "fuse: out of memory");
  for (int i = 0; i < g->n; i++) {
    const mt_fuse_node *const v = &g->node[i];
    if (v->kind == MT_FUSE_INPUT) bits[i] = UINT64_C(1) << v->index;
    for (int a = 0; a < v->nargs; a++) bits[i] |= bits[v->arg[a]];
    f->reduces = f->reduces || v->kind >= MT_FUSE_SUM;
  }
  mt_status status = MT_OK;
  for (int k = 0; k < f->nout && status == MT_OK; k++) {
    f->depends[k] = bits[f->output[k]];
    if (f->depends[k] == 0) {
      status = mt_fail(MT_EARG, "fuse: result %d depends on no argument", k + 1);
    }
  }
  free(bits);
  return status;
}

static mt_status build_formula(mt_fuse *f, const mt_formula *formula) {
  builder b = {.f = f, .formula = formula};
  b.step = calloc((size_t)formula->nsteps + 1, sizeof *b.step);
  if (!b.step) return mt_fail(MT_EMEMORY, "fuse: out of memory");
  for (; b.nsteps < formula->nsteps && f->graph.status == MT_OK; b.nsteps++) {
    b.step[b.nsteps] = build(&b, formula->step[b.nsteps].value);
  }
  f->nout = formula->noutputs;
  for (int k = 0; k < f->nout; k++) f->output[k] = build(&b, formula->output[k]);
  free(b.step);
  MT_TRY(f->graph.status);
  mt_fuse_compact(&f->graph, f->nout, f->output);
  return find_dependencies(f);
}

mt_status mt_fuse_new(const char *what, const char *inputs, const char *text,
                      mt_fuse **out) {
  *out = NULL;
  mt_fuse *const f = calloc(1, sizeof *f);
  if (!f) return mt_fail(MT_EMEMORY, "fuse: out of memory");
  f->graph.open = true;
  f->name = strdup(what);
  f->in_text = strdup(inputs);
  f->text = strdup(text);
  mt_formula formula = {0};
  mt_status status = f->name && f->in_text && f->text
                         ? read_inputs(f)
                         : mt_fail(MT_EMEMORY, "fuse: out of memory");
  if (status == MT_OK) status = mt_formula_parse_steps(text, &formula);
  if (status == MT_OK) status = build_formula(f, &formula);
  mt_formula_free(&formula);
  if (status != MT_OK) {
    mt_fuse_free(f);
    return status;
  }
  *out = f;
  return MT_OK;
}

void mt_fuse_free(mt_fuse *f) {
  if (!f) return;
  for (int i = 0; i < f->nfused; i++) mt_fused_release(f->fused[i]);
  free(f->fused);
  mt_fuse_graph_free(&f->graph);
  free(f->name);
  free(f->in_text);
  free(f->text);
  free(f);
}
