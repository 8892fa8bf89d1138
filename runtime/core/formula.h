/* runtime/core/formula.h -- parser of the formulas of ops.def: text to a small tree. */
#ifndef MT_FORMULA_H
#define MT_FORMULA_H

#include <stdbool.h>
#include "runtime/core/status.h"

typedef enum mt_expr_kind {
  MT_EXPR_NAME,   /* x y a b c g or an attribute */
  MT_EXPR_NUMBER, /* 3 or num(0.5) */
  MT_EXPR_CALL,   /* word(args) */
  MT_EXPR_NEG,
  MT_EXPR_ADD,
  MT_EXPR_SUB,
  MT_EXPR_MUL,
  MT_EXPR_DIV
} mt_expr_kind;

#define MT_EXPR_MAX_ARGS 4

typedef struct mt_expr {
  mt_expr_kind kind;
  int position;  /* in the text, from 1 */
  bool whole;    /* NUMBER: written without num() */
  double number; /* NUMBER */
  char name[24]; /* NAME, CALL */
  int nargs;
  struct mt_expr *arg[MT_EXPR_MAX_ARGS]; /* operands, left to right */
} mt_expr;

/* Parse text. MT_EARG with the position (from 1) of the first error; text may come from
** users: depth and length are limited. *out is freed by mt_expr_free. */
mt_status mt_formula_parse(const char *text, mt_expr **out /* [out] */);
void mt_expr_free(mt_expr *e);

/* A formula of several steps, as mt.fuse takes it: "t = exp(a); s = t:sum(-1, true);
** t / s, s". */
#define MT_FORMULA_MAX_OUTPUTS 16
typedef struct mt_formula_step {
  char name[24];
  int position;
  mt_expr *value;
} mt_formula_step;
typedef struct mt_formula {
  int nsteps, noutputs;
  mt_formula_step *step;
  mt_expr *output[MT_FORMULA_MAX_OUTPUTS];
} mt_formula;
mt_status mt_formula_parse_steps(const char *text, mt_formula *out /* [out] */);
/* Also of one that could not be parsed. */
void mt_formula_free(mt_formula *f);
/* "what at position 7, near 'exp(b)'", or "what at its end". Returns MT_EARG. */
mt_status mt_formula_fail(const char *text, int position, const char *what);
/* Is name used anywhere in e? */
bool mt_expr_uses(const mt_expr *e, const char *name);

/* An unsigned decimal number at the start of s, whatever the locale. Returns where it
** ends; NULL: none, or too large. whole: neither a point nor an exponent. */
const char *mt_number_parse(const char *s, double *x /* [out] */,
                            bool *whole /* [out] */);

#endif
