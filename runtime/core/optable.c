/* runtime/core/optable.c -- the live op table: ops.def made rows of mt_opinfo. */
#include <pthread.h>
#include <string.h>

#include "runtime/core/rules.h"
#include "runtime/core/signature.h"

/* Attributes of elementwise rows, as the text of a signature. */
#define P0             ""
#define P1(n, d)       ", " #n ":number=" #d
#define P2(n, d, m, e) P1(n, d) P1(m, e)

#define ELEMENTWISE(name_, kind_, dtypes_, inputs_, attrs_, doc_, ...) \
  [MT_OP_##name_] = {.op = MT_OP_##name_,                              \
                     .kind = MT_KIND_##kind_,                          \
                     .dtypes = MT_CLASS_##dtypes_,                     \
                     .name = #name_,                                   \
                     .doc = doc_,                                      \
                     .signature = inputs_ attrs_ " -> y",              \
                     .formula = {__VA_ARGS__}},
#define OTHER(name_, kind_, dtypes_, signature_, rule_, doc_) \
  [MT_OP_##name_] = {.op = MT_OP_##name_,                     \
                     .kind = MT_KIND_##kind_,                 \
                     .dtypes = MT_CLASS_##dtypes_,            \
                     .name = #name_,                          \
                     .doc = doc_,                             \
                     .signature = signature_,                 \
                     .rule = rule_},

#define MT_UNARY(name, dtypes, attrs, value, dx, doc) \
  ELEMENTWISE(name, UNARY, dtypes, "x", attrs, doc, #value, #dx)
#define MT_PREDICATE(name, dtypes, attrs, value, doc) \
  ELEMENTWISE(name, PREDICATE, dtypes, "x", attrs, doc, #value)
#define MT_BINARY(name, dtypes, attrs, value, da, db, doc) \
  ELEMENTWISE(name, BINARY, dtypes, "a, b", attrs, doc, #value, #da, #db)
#define MT_COMPARE(name, dtypes, attrs, value, doc) \
  ELEMENTWISE(name, COMPARE, dtypes, "a, b", attrs, doc, #value)
#define MT_TERNARY(name, dtypes, attrs, value, da, db, dc, doc) \
  ELEMENTWISE(name, TERNARY, dtypes, "a, b, c", attrs, doc, #value, #da, #db, #dc)
#define MT_CUSTOM(name, signature, rule, dtypes, gradient, doc) \
  OTHER(name, CUSTOM, dtypes, signature, mt_rule_##rule, doc)
#define MT_RANDOM(name, signature, rule, dtypes, gradient, doc) \
  OTHER(name, RANDOM, dtypes, signature, mt_rule_##rule, doc)
#define MT_VIEW(name, signature, rule, gradient, doc) \
  OTHER(name, VIEW, ANY, signature, mt_rule_##rule, doc)
#define MT_COMPOSITE(name, signature, build, doc) \
  OTHER(name, COMPOSITE, ANY, signature, NULL, doc)

static mt_opinfo table[MT_OP_COUNT] = {
#include "kernels/ops.def"
};

/* The gradient column of the rows that are not elementwise. */
#define MT_CUSTOM(name, signature, rule, dtypes, gradient, doc) \
  [MT_OP_##name] = #gradient,
#define MT_RANDOM(name, signature, rule, dtypes, gradient, doc) \
  [MT_OP_##name] = #gradient,
#define MT_VIEW(name, signature, rule, gradient, doc) [MT_OP_##name] = #gradient,

static const char *const gradient_rule[MT_OP_COUNT] = {
#include "kernels/ops.def"
};

const mt_opinfo *mt_op_rows;
static mt_status table_status;
static char table_error[sizeof((mt_error *)0)->text];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static bool flows(const char *gradient) {
  return gradient && strcmp(gradient, "NONE") != 0;
}

static uint32_t kept_inputs(const mt_opinfo *row) {
  static const char *const names[] = {"index", "labels", "mask", "marks", "cond"};
  uint32_t kept = 0;
  for (int k = 0; k < row->nparams; k++) {
    const mt_param *param = &row->param[k];
    if (param->type != MT_PARAM_INPUT && param->type != MT_PARAM_OPTIONAL) continue;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (strcmp(param->name, names[i]) == 0) kept |= 1u << param->slot;
  }
  return kept;
}

static int attribute_slot(const mt_opinfo *row, const char *name) {
  for (int k = 0; k < row->nparams; k++)
    if (row->param[k].type > MT_PARAM_LIST && strcmp(row->param[k].name, name) == 0)
      return row->param[k].slot;
  return -1;
}

static uint32_t class_mask(mt_dtypes class) {
  switch (class) {
  case MT_CLASS_FLOAT: return MT_FLOAT_MASK;
  case MT_CLASS_NUMBER: return MT_FLOAT_MASK | MT_INT_MASK;
  case MT_CLASS_INT: return MT_INT_MASK | MT_BIT(MT_BOOL);
  default: return MT_ALL_MASK;
  }
}

/* What composites give that no gradient flows from: positions, counts, masks, neighbours
** among the numbers of a dtype. */
static bool is_constant(const char *output) {
  return strcmp(output, "index") == 0 || strcmp(output, "count") == 0 ||
         strcmp(output, "mask") == 0 || strcmp(output, "next") == 0;
}

/* Rows that take bool although no kernel does: as integers that hold what may come of
** it, a count for sums. The result is bool, but where numbers stand in PyTorch's. */
static void take_bool(mt_opinfo *row) {
  row->for_bool = MT_BOOL;
  switch (row->op) {
  case MT_OP_sign:
  case MT_OP_fmax:
  case MT_OP_fmin:
  case MT_OP_heaviside: row->for_bool = MT_U8, row->truth = true; break;
  case MT_OP_scatter_add:
  case MT_OP_index_add: row->for_bool = MT_I64, row->truth = true; break;
  case MT_OP_square:
  case MT_OP_clamp: row->for_bool = MT_I64; break;
  default: break;
  }
}

static mt_status finish_row(mt_opinfo *row) {
  row->internal = row->name[0] == '_';
  row->differentiable = flows(gradient_rule[row->op]);
  for (int i = 1; i < 4; i++) {
    if (flows(row->formula[i])) {
      row->differentiable = true;
    } else {
      row->formula[i] = NULL;
    }
  }
  MT_TRY(mt_signature_parse(row, row->signature));
  row->kept = kept_inputs(row);
  row->dim_slot = attribute_slot(row, "dim");
  row->keepdim_slot = attribute_slot(row, "keepdim");
  for (int k = 0; k < row->nparams; k++) {
    const mt_param *p = &row->param[k];
    if (p->required) row->required |= 1u << k;
    if (p->type == MT_PARAM_DIM && p->preset.n > 0 && p->preset.i[0] < 0)
      row->counts_back = true;
  }
  row->as_they_are = class_mask(row->dtypes);
  take_bool(row);
  if (row->kind == MT_KIND_COMPOSITE) {
    row->differentiable = !is_constant(row->out_name[0]);
  } else if (row->kind == MT_KIND_UNARY || row->kind == MT_KIND_BINARY ||
             row->kind == MT_KIND_TERNARY || row->kind == MT_KIND_COMPARE ||
             row->op == MT_OP_logical_not) {
    row->inplace = true;
  }
  return MT_OK;
}

static void make_table(void) {
  for (int op = 0; op < MT_OP_COUNT; op++) {
    const mt_status status = finish_row(&table[op]);
    if (status != MT_OK && table_status == MT_OK) {
      table_status = status;
      memcpy(table_error, mt_last_error()->text, sizeof table_error);
    }
  }
}

const mt_opinfo *mt_op_table(void) {
  pthread_once(&table_once, make_table);
  __atomic_store_n(&mt_op_rows, table, __ATOMIC_RELEASE);
  return table;
}

mt_status mt_op_table_check(void) {
  pthread_once(&table_once, make_table);
  return table_status == MT_OK ? MT_OK : mt_fail(table_status, "%s", table_error);
}

int mt_op_find(const char *name) {
  for (int op = 0; op < MT_OP_COUNT; op++) {
    if (strcmp(table[op].name, name) == 0) return op;
  }
  return -1;
}

/* ---- formulas: parsed at the first question for one ---- */

static mt_expr *parsed[MT_OP_COUNT][4];
static mt_status formulas_status;
static pthread_once_t formulas_once = PTHREAD_ONCE_INIT;

static void parse_formulas(void) {
  for (int op = 0; op < MT_OP_COUNT; op++) {
    const mt_opinfo *row = mt_op_info((mt_op)op);
    for (int i = 0; i < 4; i++) {
      if (!row->formula[i]) continue;
      const mt_status status = mt_formula_parse(row->formula[i], &parsed[op][i]);
      if (status != MT_OK) formulas_status = status;
    }
  }
}

const mt_expr *mt_op_formula(mt_op op, int which) {
  pthread_once(&formulas_once, parse_formulas);
  return parsed[op][which];
}

void mt_op_presets(mt_op op, mt_attr *attr) {
  const mt_opinfo *row = mt_op_info(op);
  if (row->nattr == 0) return;
  for (int i = 0; i < row->nparams; i++) {
    const mt_param *p = &row->param[i];
    if (p->type > MT_PARAM_LIST) mt_attr_copy(&attr[p->slot], &p->preset);
  }
}
