/* runtime/core/formula.c -- parser of the formulas of ops.def and of mt.fuse.
**
**   sum     = product {("+" | "-") product}
**   product = sign {("*" | "/") sign}
**   sign    = "-" sign | "(" sum ")" | number | "num" "(" ["-"] number ")"
**           | name | name "(" sum {"," sum} ")"
**
** Users write formulas, too: the text's length, the nesting and the number of nodes are
** limited, so that neither this parser nor one who walks its tree can run out of stack.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* newlocale, strtod_l */
#endif
#include "runtime/core/formula.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH  4096 /* bytes */
#define MAX_NESTING 100  /* parentheses and signs around one place */
#define MAX_NODES   1000

typedef struct parser {
  const char *text, *at;
  int nesting, nodes;
} parser;

/* ---- characters, whatever the locale ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_space(parser *p) {
  while (is_space(*p->at)) p->at++;
}

static mt_status fail_at(const parser *p, const char *at, const char *what) {
  const int position = (int)(at - p->text) + 1;
  if (*at == '\0') return mt_fail(MT_EARG, "formula: %s at its end", what);
  if (*at < ' ' || *at > '~') {
    return mt_fail(MT_EARG, "formula: %s at position %d, near byte %d", what, position,
                   (unsigned char)*at);
  }
  int n = 0;
  while (n < 20 && at[n] >= ' ' && at[n] <= '~') n++;
  return mt_fail(MT_EARG, "formula: %s at position %d, near '%.*s'", what, position, n,
                 at);
}

/* ---- numbers ---- */

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

const char *mt_number_parse(const char *s, double *x, bool *whole) {
  char digits[64]; /* strtod sees a copy: never hexadecimal, "inf" or "nan" */
  size_t n = 0;
  const char *const start = s;
  *whole = true;
  while (is_digit(*s)) s++;
  if (s == start) return NULL;
  if (s[0] == '.' && is_digit(s[1])) {
    *whole = false;
    for (s++; is_digit(*s); s++) continue;
  }
  if (*s == 'e' || *s == 'E') {
    const char *e = s + 1;
    if (*e == '+' || *e == '-') e++;
    if (!is_digit(*e)) return NULL;
    *whole = false;
    for (s = e; is_digit(*s); s++) continue;
  }
  n = (size_t)(s - start);
  if (n >= sizeof digits) return NULL;
  memcpy(digits, start, n);
  digits[n] = '\0';
  pthread_once(&c_locale_once, make_c_locale);
  *x = c_locale ? strtod_l(digits, NULL, c_locale) : strtod(digits, NULL);
  if (!isfinite(*x) || (*whole && *x > 9007199254740992.0)) return NULL; /* 2^53 */
  return s;
}

/* ---- nodes ---- */

void mt_expr_free(mt_expr *e) {
  if (!e) return;
  for (int i = 0; i < e->nargs; i++) mt_expr_free(e->arg[i]);
  free(e);
}

bool mt_expr_uses(const mt_expr *e, const char *name) {
  if (!e) return false;
  if (e->kind == MT_EXPR_NAME && strcmp(e->name, name) == 0) return true;
  for (int i = 0; i < e->nargs; i++) {
    if (mt_expr_uses(e->arg[i], name)) return true;
  }
  return false;
}

static mt_status new_node(parser *p, mt_expr_kind kind, mt_expr **out) {
  if (++p->nodes > MAX_NODES) {
    return mt_fail(MT_EARG, "formula: more than %d operations and operands", MAX_NODES);
  }
  *out = calloc(1, sizeof **out);
  if (!*out) return mt_fail(MT_EMEMORY, "formula: out of memory");
  (*out)->kind = kind;
  return MT_OK;
}

/* *left becomes kind(*left, right); right is taken over, also on an error. */
static mt_status join(parser *p, mt_expr_kind kind, mt_expr **left, mt_expr *right) {
  mt_expr *e;
  const mt_status status = new_node(p, kind, &e);
  if (status != MT_OK) {
    mt_expr_free(right);
    return status;
  }
  e->nargs = 2;
  e->arg[0] = *left;
  e->arg[1] = right;
  *left = e;
  return MT_OK;
}

/* ---- grammar. On an error *out is what the caller frees: a partial tree or NULL. ----
 */

static mt_status parse_sum(parser *p, mt_expr **out);

static mt_status expect(parser *p, char c) {
  skip_space(p);
  if (*p->at != c) {
    return fail_at(p, p->at, c == ')' ? "')' expected" : "'(' expected");
  }
  p->at++;
  return MT_OK;
}

static mt_status parse_number(parser *p, bool negative, mt_expr **out) {
  double x;
  bool whole;
  const char *end = mt_number_parse(p->at, &x, &whole);
  if (!end || is_letter(*end) || *end == '.') {
    return fail_at(p, p->at, "malformed or too large number");
  }
  MT_TRY(new_node(p, MT_EXPR_NUMBER, out));
  (*out)->number = negative ? -x : x;
  (*out)->whole = whole;
  p->at = end;
  return MT_OK;
}

/* After "num(". */
static mt_status parse_num(parser *p, mt_expr **out) {
  skip_space(p);
  const bool negative = *p->at == '-';
  if (negative) p->at++;
  skip_space(p);
  if (!is_digit(*p->at)) return fail_at(p, p->at, "number expected");
  MT_TRY(parse_number(p, negative, out));
  (*out)->whole = false;
  return expect(p, ')');
}

static mt_status parse_arguments(parser *p, mt_expr *call) {
  for (;;) {
    if (call->nargs == MT_EXPR_MAX_ARGS) {
      return fail_at(p, p->at, "more arguments than any function takes");
    }
    const mt_status status = parse_sum(p, &call->arg[call->nargs]);
    if (call->arg[call->nargs]) call->nargs++; /* so that it is freed */
    MT_TRY(status);
    skip_space(p);
    if (*p->at != ',') return expect(p, ')');
    p->at++;
  }
}

static mt_status parse_name(parser *p, mt_expr **out) {
  const char *const start = p->at;
  while (is_letter(*p->at) || is_digit(*p->at)) p->at++;
  const size_t n = (size_t)(p->at - start);
  if (n >= sizeof((*out)->name)) return fail_at(p, start, "name too long");
  const char *const end = p->at;
  skip_space(p);
  const bool call = *p->at == '(';
  if (call) p->at++;
  if (call && n == 3 && memcmp(start, "num", 3) == 0) return parse_num(p, out);
  MT_TRY(new_node(p, call ? MT_EXPR_CALL : MT_EXPR_NAME, out));
  memcpy((*out)->name, start, n);
  if (call) return parse_arguments(p, *out);
  p->at = end;
  return MT_OK;
}

static mt_status parse_sign(parser *p, mt_expr **out) {
  *out = NULL;
  skip_space(p);
  if (++p->nesting > MAX_NESTING) return fail_at(p, p->at, "nested too deeply");
  const char c = *p->at;
  if (c == '-') {
    p->at++;
    MT_TRY(new_node(p, MT_EXPR_NEG, out));
    const mt_status status = parse_sign(p, &(*out)->arg[0]);
    (*out)->nargs = (*out)->arg[0] ? 1 : 0;
    MT_TRY(status);
  } else if (c == '(') {
    p->at++;
    MT_TRY(parse_sum(p, out));
    MT_TRY(expect(p, ')'));
  } else if (is_digit(c)) {
    MT_TRY(parse_number(p, false, out));
  } else if (is_letter(c)) {
    MT_TRY(parse_name(p, out));
  } else {
    return fail_at(p, p->at, "operand expected");
  }
  p->nesting--;
  return MT_OK;
}

static mt_status parse_product(parser *p, mt_expr **out) {
  MT_TRY(parse_sign(p, out));
  for (;;) {
    skip_space(p);
    const char c = *p->at;
    if (c != '*' && c != '/') return MT_OK;
    p->at++;
    mt_expr *right;
    const mt_status status = parse_sign(p, &right);
    if (status != MT_OK) {
      mt_expr_free(right);
      return status;
    }
    MT_TRY(join(p, c == '*' ? MT_EXPR_MUL : MT_EXPR_DIV, out, right));
  }
}

static mt_status parse_sum(parser *p, mt_expr **out) {
  MT_TRY(parse_product(p, out));
  for (;;) {
    skip_space(p);
    const char c = *p->at;
    if (c != '+' && c != '-') return MT_OK;
    p->at++;
    mt_expr *right;
    const mt_status status = parse_product(p, &right);
    if (status != MT_OK) {
      mt_expr_free(right);
      return status;
    }
    MT_TRY(join(p, c == '+' ? MT_EXPR_ADD : MT_EXPR_SUB, out, right));
  }
}

mt_status mt_formula_parse(const char *text, mt_expr **out) {
  parser p = {.text = text, .at = text};
  *out = NULL;
  if (strnlen(text, MAX_LENGTH + 1) > MAX_LENGTH) {
    return mt_fail(MT_EARG, "formula: longer than %d bytes", MAX_LENGTH);
  }
  mt_status status = parse_sum(&p, out);
  if (status == MT_OK && *p.at != '\0') {
    status = fail_at(&p, p.at, "operator expected");
  }
  if (status != MT_OK) {
    mt_expr_free(*out);
    *out = NULL;
  }
  return status;
}
