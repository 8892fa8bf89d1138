/* runtime/core/fuse_graph.c -- graphs of nodes: equal ones are made once, and what can
** be known beforehand is simplified. */
#include <stdlib.h>
#include <string.h>
#include "kernels/words.h"
#include "runtime/core/fuse.h"

#define MAX_NODES 30000

/* ---- storage ---- */

void mt_fuse_graph_free(mt_fuse_graph *g) {
  free(g->node);
  free(g->bucket);
  free(g->next);
  memset(g, 0, sizeof *g);
}

static int fail(mt_fuse_graph *g, mt_status status) {
  if (g->status == MT_OK) g->status = status;
  return -1;
}

static uint32_t hash(const mt_fuse_node *v) {
  const unsigned char *p = (const unsigned char *)v;
  uint32_t h = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < sizeof *v; i++) h = (h ^ p[i]) * 16777619u;
  return h;
}

static bool grow(mt_fuse_graph *g) {
  const int capacity = g->capacity > 0 ? 2 * g->capacity : 64;
  mt_fuse_node *const node = realloc(g->node, (size_t)capacity * sizeof *node);
  if (node) g->node = node;
  int *const next = realloc(g->next, (size_t)capacity * sizeof *next);
  if (next) g->next = next;
  int *const bucket = realloc(g->bucket, (size_t)capacity * sizeof *bucket);
  if (bucket) g->bucket = bucket;
  if (!node || !next || !bucket) return false;
  g->capacity = g->nbuckets = capacity;
  memset(bucket, -1, (size_t)capacity * sizeof *bucket);
  for (int i = 0; i < g->n; i++) {
    int *const head = &bucket[hash(&node[i]) % (uint32_t)capacity];
    next[i] = *head;
    *head = i;
  }
  return true;
}

/* The node of v's content, which was zeroed before it was filled. */
static int intern(mt_fuse_graph *g, const mt_fuse_node *v) {
  if (g->status != MT_OK) return -1;
  const uint32_t h = hash(v);
  if (g->nbuckets > 0) {
    for (int i = g->bucket[h % (uint32_t)g->nbuckets]; i >= 0; i = g->next[i]) {
      if (memcmp(&g->node[i], v, sizeof *v) == 0) return i;
    }
  }
  if (g->n == MAX_NODES) {
    return fail(g, mt_fail(MT_EARG, "fuse: more than %d operations", MAX_NODES));
  }
  if (g->n == g->capacity && !grow(g)) {
    return fail(g, mt_fail(MT_EMEMORY, "fuse: out of memory"));
  }
  const int i = g->n++;
  g->node[i] = *v;
  int *const head = &g->bucket[h % (uint32_t)g->nbuckets];
  g->next[i] = *head;
  *head = i;
  return i;
}

void mt_fuse_compact(mt_fuse_graph *g, int n, int *output) {
  if (g->status != MT_OK) return;
  int *const place = g->next; /* the table has done its work */
  for (int i = 0; i < g->n; i++) place[i] = -1;
  for (int k = 0; k < n; k++) {
    if (output[k] >= 0) place[output[k]] = 0;
  }
  for (int i = g->n - 1; i >= 0; i--) {
    for (int a = 0; a < g->node[i].nargs && place[i] == 0; a++) {
      place[g->node[i].arg[a]] = 0;
    }
  }
  int kept = 0;
  for (int i = 0; i < g->n; i++) {
    if (place[i] < 0) continue;
    mt_fuse_node v = g->node[i];
    for (int a = 0; a < v.nargs; a++) v.arg[a] = place[v.arg[a]];
    g->node[kept] = v;
    place[i] = kept++;
  }
  for (int k = 0; k < n; k++) {
    if (output[k] >= 0) output[k] = place[output[k]];
  }
  g->n = kept;
}

/* ---- leaves ---- */

static mt_fuse_node blank(mt_fuse_kind kind) {
  mt_fuse_node v;
  memset(&v, 0, sizeof v);
  v.kind = (uint8_t)kind;
  return v;
}

int mt_fuse_number(mt_fuse_graph *g, double x) {
  mt_fuse_node v = blank(MT_FUSE_NUMBER);
  v.number[0] = x;
  return intern(g, &v);
}

int mt_fuse_input(mt_fuse_graph *g, int index, mt_fuse_space space, bool dropped) {
  mt_fuse_node v = blank(MT_FUSE_INPUT);
  v.index = index;
  v.space = (uint8_t)space;
  v.dropped = dropped;
  return intern(g, &v);
}

int mt_fuse_row_length(mt_fuse_graph *g) {
  mt_fuse_node v = blank(MT_FUSE_LENGTH);
  v.space = MT_FUSE_ROW;
  return intern(g, &v);
}

int mt_fuse_length(mt_fuse_graph *g, int x) {
  if (x < 0) return -1;
  if (g->node[x].space != MT_FUSE_FULL) return mt_fuse_number(g, 1);
  if (!g->open) return mt_fuse_row_length(g);
  mt_fuse_node v = blank(MT_FUSE_LENGTH);
  v.space = MT_FUSE_ROW;
  v.nargs = 1;
  v.arg[0] = x;
  return intern(g, &v);
}

/* ---- numbers that can be computed beforehand ---- */

static const struct {
  const char *name;
  double (*of)(double);
} functions[] = {
#define F(word) \
  { #word, mt_##word##_f64 }
    F(abs),   F(exp),   F(expm1), F(log),    F(log1p), F(log2),  F(log10),
    F(sqrt),  F(sin),   F(cos),   F(tan),    F(asin),  F(acos),  F(atan),
    F(sinh),  F(cosh),  F(tanh),  F(erf),    F(erfc),  F(floor), F(ceil),
    F(trunc), F(round), F(sign),  F(sigmoid)
#undef F
};

/* False: not with what is known here. */
static bool evaluate(const mt_expr *e, const char *const *name, const double *value,
                     double *y) {
  double a[2] = {0, 0};
  for (int i = 0; i < e->nargs && i < 2; i++) {
    if (!evaluate(e->arg[i], name, value, &a[i])) return false;
  }
  switch (e->kind) {
  case MT_EXPR_NUMBER: *y = e->number; return true;
  case MT_EXPR_NEG: *y = -a[0]; return true;
  case MT_EXPR_ADD: *y = a[0] + a[1]; return true;
  case MT_EXPR_SUB: *y = a[0] - a[1]; return true;
  case MT_EXPR_MUL: *y = a[0] * a[1]; return true;
  case MT_EXPR_DIV: *y = a[0] / a[1]; return true;
  case MT_EXPR_NAME:
    for (int i = 0; name[i]; i++) {
      if (strcmp(name[i], e->name) == 0) return *y = value[i], true;
    }
    return false;
  case MT_EXPR_CALL:
    if (e->nargs == 2 && strcmp(e->name, "pow") == 0) {
      return *y = mt_pow_f64(a[0], a[1]), true;
    }
    for (size_t i = 0; e->nargs == 1 && i < sizeof functions / sizeof *functions; i++) {
      if (strcmp(functions[i].name, e->name) == 0) {
        return *y = functions[i].of(a[0]), true;
      }
    }
    return false;
  }
  return false;
}

/* ---- names in the formulas of ops.def ---- */

static const char *const unary_names[] = {"x", NULL};
static const char *const other_names[] = {"a", "b", "c", NULL};

int mt_fuse_word(const char *word) {
  if (strcmp(word, "both") == 0) return MT_OP_logical_and;
  if (strcmp(word, "either") == 0) return MT_OP_logical_or;
  const int op = mt_op_find(word);
  if (op < 0 || mt_op_info((mt_op)op)->kind > MT_KIND_TERNARY) return -1;
  return op;
}

/* ---- operators ---- */

static bool is_number(const mt_fuse_graph *g, int x, double value) {
  return g->node[x].kind == MT_FUSE_NUMBER && g->node[x].number[0] == value;
}

/* Is x itself what an op that changes nothing gives? Not where it is a condition. */
static bool stands(const mt_fuse_graph *g, int x) { return !g->node[x].boolean; }

/* What needs no node of its own; -1: nothing. */
static int simplified(mt_fuse_graph *g, mt_op op, const int *arg) {
  const int a = arg[0], b = mt_op_info(op)->nin > 1 ? arg[1] : -1;
  switch (op) {
  case MT_OP_add:
    if (is_number(g, a, 0) && stands(g, b)) return b;
    if (is_number(g, b, 0) && stands(g, a)) return a;
    return -1;
  case MT_OP_sub:
    if (is_number(g, b, 0) && stands(g, a)) return a;
    if (is_number(g, a, 0)) return mt_fuse_op1(g, MT_OP_neg, b);
    return -1;
  case MT_OP_mul:
    if (is_number(g, a, 1) && stands(g, b)) return b;
    if (is_number(g, b, 1) && stands(g, a)) return a;
    if (is_number(g, a, -1)) return mt_fuse_op1(g, MT_OP_neg, b);
    if (is_number(g, b, -1)) return mt_fuse_op1(g, MT_OP_neg, a);
    return -1;
  case MT_OP_div: return is_number(g, b, 1) && stands(g, a) ? a : -1;
  case MT_OP_neg:
    return g->node[a].kind == MT_FUSE_OP && g->node[a].op == MT_OP_neg
               ? g->node[a].arg[0]
               : -1;
  case MT_OP_pow:
    if (is_number(g, b, 1) && stands(g, a)) return a;
    if (is_number(g, b, 2)) return mt_fuse_op1(g, MT_OP_square, a);
    if (is_number(g, b, 3)) {
      return mt_fuse_op2(g, MT_OP_mul, a, mt_fuse_op1(g, MT_OP_square, a));
    }
    return is_number(g, b, -1) ? mt_fuse_op1(g, MT_OP_reciprocal, a) : -1;
  default: return -1;
  }
}

static bool all_numbers(const mt_fuse_graph *g, int n, const int *arg, double *x) {
  for (int i = 0; i < n; i++) {
    if (g->node[arg[i]].kind != MT_FUSE_NUMBER) return false;
    x[i] = g->node[arg[i]].number[0];
  }
  return true;
}

/* Space, level and arguments. */
static void inherit(const mt_fuse_graph *g, mt_fuse_node *v, int n, const int *arg) {
  v->nargs = (uint8_t)n;
  bool dropped = false;
  for (int i = 0; i < n; i++) {
    const mt_fuse_node *const u = &g->node[arg[i]];
    v->arg[i] = arg[i];
    if (u->space > v->space) v->space = u->space;
    if (u->level > v->level) v->level = u->level;
    dropped = dropped || u->dropped;
  }
  v->dropped = dropped && v->space == MT_FUSE_ROW;
}

int mt_fuse_op(mt_fuse_graph *g, mt_op op, const int *arg, const double *number) {
  const mt_opinfo *const info = mt_op_info(op);
  for (int i = 0; i < info->nin; i++) {
    if (arg[i] < 0) return -1;
  }
  const int simple = simplified(g, op, arg);
  if (simple >= 0 || g->status != MT_OK) return simple;
  double x[3], y;
  if (info->nattr == 0 && all_numbers(g, info->nin, arg, x) &&
      evaluate(mt_op_formula(op, 0), info->nin == 1 ? unary_names : other_names, x,
               &y)) {
    return mt_fuse_number(g, y);
  }
  mt_fuse_node v = blank(MT_FUSE_OP);
  v.op = (int16_t)op;
  v.boolean = info->kind == MT_KIND_PREDICATE || info->kind == MT_KIND_COMPARE;
  for (int i = 0; i < info->nattr; i++) v.number[i] = number[i];
  inherit(g, &v, info->nin, arg);
  return intern(g, &v);
}

int mt_fuse_op1(mt_fuse_graph *g, mt_op op, int x) {
  return mt_fuse_op(g, op, &x, NULL);
}

int mt_fuse_op2(mt_fuse_graph *g, mt_op op, int a, int b) {
  const int arg[2] = {a, b};
  return mt_fuse_op(g, op, arg, NULL);
}

/* May a choice of x leave out y, whose value does not matter? Not where the result has more
** elements by it: in an open graph any input may be what makes it larger. */
static bool may_drop(const mt_fuse_graph *g, int x, int y) {
  return g->node[y].space <= (g->open ? MT_FUSE_CONSTANT : g->node[x].space);
}

int mt_fuse_where(mt_fuse_graph *g, int cond, int a, int b) {
  if (cond < 0 || a < 0 || b < 0) return -1;
  if (a == b && may_drop(g, a, cond)) return a;
  if (g->node[cond].kind == MT_FUSE_NUMBER) {
    const bool yes = g->node[cond].number[0] != 0;
    if (may_drop(g, yes ? a : b, yes ? b : a)) return yes ? a : b;
  }
  if (!g->node[cond].boolean) {
    cond = mt_fuse_op2(g, MT_OP_ne, cond, mt_fuse_number(g, 0));
    if (cond < 0) return -1;
  }
  mt_fuse_node v = blank(MT_FUSE_WHERE);
  const int arg[3] = {cond, a, b};
  v.boolean = g->node[a].boolean && g->node[b].boolean;
  inherit(g, &v, 3, arg);
  return intern(g, &v);
}

int mt_fuse_reduce(mt_fuse_graph *g, mt_fuse_kind kind, int x, bool dropped,
                   bool detached) {
  if (x < 0) return -1;
  if (g->node[x].space != MT_FUSE_FULL) return x;
  mt_fuse_node v = blank(kind);
  v.nargs = 1;
  v.arg[0] = x;
  v.space = MT_FUSE_ROW;
  v.dropped = dropped;
  v.index = detached;
  v.level = (int16_t)(g->node[x].level + 1);
  return intern(g, &v);
}

/* ---- formulas of ops.def ---- */

static int find_name(const char *const *name, const char *wanted) {
  for (int i = 0; name[i]; i++) {
    if (strcmp(name[i], wanted) == 0) return i;
  }
  return -1;
}

static int call(mt_fuse_graph *g, const mt_expr *e, const int *arg) {
  if (strcmp(e->name, "where") == 0 && e->nargs == 3) {
    return mt_fuse_where(g, arg[0], arg[1], arg[2]);
  }
  const int op = mt_fuse_word(e->name);
  const mt_opinfo *const info = op < 0 ? NULL : mt_op_info((mt_op)op);
  if (!info || e->nargs < info->nin || e->nargs > info->nin + info->nattr) {
    return fail(g, mt_fail(MT_EINTERNAL, "fuse: no word named %s", e->name));
  }
  double number[2] = {0, 0};
  mt_attr preset[MT_MAX_ATTRS];
  mt_op_presets((mt_op)op, preset);
  for (int i = 0; i < info->nattr; i++) number[i] = preset[i].f;
  for (int i = info->nin; i < e->nargs; i++) {
    if (arg[i] < 0) return -1;
    if (g->node[arg[i]].kind != MT_FUSE_NUMBER) {
      return fail(g, mt_fail(MT_EINTERNAL, "fuse: %s: no number", e->name));
    }
    number[i - info->nin] = g->node[arg[i]].number[0];
  }
  return mt_fuse_op(g, (mt_op)op, arg, number);
}

int mt_fuse_expression(mt_fuse_graph *g, const mt_expr *e, const char *const *name,
                       const int *value) {
  int arg[MT_EXPR_MAX_ARGS] = {-1, -1, -1, -1};
  for (int i = 0; i < e->nargs; i++) {
    arg[i] = mt_fuse_expression(g, e->arg[i], name, value);
    if (arg[i] < 0) return -1;
  }
  switch (e->kind) {
  case MT_EXPR_NUMBER: return mt_fuse_number(g, e->number);
  case MT_EXPR_NEG: return mt_fuse_op1(g, MT_OP_neg, arg[0]);
  case MT_EXPR_ADD: return mt_fuse_op2(g, MT_OP_add, arg[0], arg[1]);
  case MT_EXPR_SUB: return mt_fuse_op2(g, MT_OP_sub, arg[0], arg[1]);
  case MT_EXPR_MUL: return mt_fuse_op2(g, MT_OP_mul, arg[0], arg[1]);
  case MT_EXPR_DIV: return mt_fuse_op2(g, MT_OP_div, arg[0], arg[1]);
  case MT_EXPR_CALL: return call(g, e, arg);
  case MT_EXPR_NAME: break;
  }
  const int i = find_name(name, e->name);
  if (i < 0) return fail(g, mt_fail(MT_EINTERNAL, "fuse: no value of %s", e->name));
  return value[i];
}
