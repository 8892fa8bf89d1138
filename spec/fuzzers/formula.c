/* spec/fuzzers/formula.c -- libFuzzer target: mt_formula_parse gives a tree or a message, and
** a tree that is written out is read back as the same tree; so do formulas of steps. */
#include "runtime/core/formula.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct text {
  char s[1 << 16];
  size_t n;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *format,
                                                      ...) {
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, format, args);
  va_end(args);
  t->n += (size_t)n;
  if (t->n >= sizeof t->s) t->n = sizeof t->s - 1;
}

static void write_tree(text *t, const mt_expr *e) {
  static const char signs[] = {[MT_EXPR_ADD] = '+',
                               [MT_EXPR_SUB] = '-',
                               [MT_EXPR_MUL] = '*',
                               [MT_EXPR_DIV] = '/'};
  switch (e->kind) {
  case MT_EXPR_NAME: say(t, "%s", e->name); return;
  case MT_EXPR_NUMBER: say(t, e->whole ? "%.0f" : "num(%.16e)", e->number); return;
  case MT_EXPR_CALL: say(t, "%s(", e->name); break;
  case MT_EXPR_NEG: say(t, "(-"); break;
  default: say(t, "(");
  }
  for (int i = 0; i < e->nargs; i++) {
    if (i > 0) say(t, "%c", e->kind == MT_EXPR_CALL ? ',' : signs[e->kind]);
    write_tree(t, e->arg[i]);
  }
  say(t, ")");
}

static bool same(const mt_expr *a, const mt_expr *b) {
  if (a->kind != b->kind || a->nargs != b->nargs) return false;
  if (a->kind == MT_EXPR_NUMBER) return a->number == b->number && a->whole == b->whole;
  if (strcmp(a->name, b->name) != 0) return false;
  for (int i = 0; i < a->nargs; i++)
    if (!same(a->arg[i], b->arg[i])) return false;
  return true;
}

/* The whole of a tree is there. */
static void check(const mt_expr *e) {
  if (e->nargs < 0 || e->nargs > MT_EXPR_MAX_ARGS) abort();
  if (e->kind >= MT_EXPR_ADD && e->nargs != 2) abort();
  if (e->kind == MT_EXPR_NEG && e->nargs != 1) abort();
  if (memchr(e->name, '\0', sizeof e->name) == NULL) abort();
  for (int i = 0; i < e->nargs; i++) check(e->arg[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static text written;
  char *const input = malloc(size + 1); /* so that what is read beyond it is found */
  mt_expr *tree, *again;
  memcpy(input, data, size);
  input[size] = '\0';
  const mt_status status = mt_formula_parse(input, &tree);
  mt_formula steps;
  const mt_status other = mt_formula_parse_steps(input, &steps);
  for (int k = 0; k < steps.noutputs && other == MT_OK; k++) check(steps.output[k]);
  mt_formula_free(&steps);
  free(input);
  if (status != MT_OK) {
    if (tree != NULL || mt_last_error()->text[0] == '\0') abort();
    return 0;
  }
  check(tree);
  mt_expr_uses(tree, "x");
  written.n = 0;
  write_tree(&written, tree);
  if (mt_formula_parse(written.s, &again) == MT_OK) { /* else it nests too deeply */
    if (!same(tree, again)) {
      fprintf(stderr, "%s\n", written.s);
      abort();
    }
    mt_expr_free(again);
  } else if (written.n < 100) {
    fprintf(stderr, "%s: %s\n", written.s, mt_last_error()->text);
    abort();
  }
  mt_expr_free(tree);
  return 0;
}
