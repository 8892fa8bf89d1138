/* runtime/core/formula.c -- parser of the formulas of ops.def and of mt.fuse.
**
**   steps   = {name "=" sum ";"} sum {"," sum} [";"]
**   sum     = product {("+" | "-") product}
**   product = sign {("*" | "/" | "//" | "%") sign}
**   sign    = "-" sign | power
**   power   = operand {":" name "(" [sum {"," sum}] ")"} ["^" sign]
**   operand = "(" sum ")" | number | "num" "(" ["-"] number ")"
**           | name | name "(" sum {"," sum} ")"
**
** ops.def has but sums of products; steps, powers, // and %, x:f(y) for f(x, y), and
** numbers such as .5, 5. and 0x1F are for users, who know them from Lua. The text's
** length, the nesting and the number of nodes are limited, so that neither this parser
** nor one who walks its tree can run out of stack. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* newlocale, strtod_l */
#endif
#include "runtime/core/formula.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH  4096  /* bytes of a row's formula */
#define MAX_STEPS   65536 /* bytes of several steps */
#define MAX_NESTING 100   /* parentheses and signs around one place */
#define MAX_NODES   1000  /* of a row's formula, and for each step */

typedef struct parser {
  const char *text, *at, *who;
  int nesting, nodes;
  bool lua; /* a user's: numbers are Lua's */
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

static mt_status fail_near(const char *who, const char *text, const char *at,
                           const char *what) {
  const int position = (int)(at - text) + 1;
  if (*at == '\0') return mt_fail(MT_EARG, "%s: %s at its end", who, what);
  if (*at < ' ' || *at > '~') {
    return mt_fail(MT_EARG, "%s: %s at position %d, near byte %d", who, what, position,
                   (unsigned char)*at);
  }
  int n = 0;
  while (n < 20 && at[n] >= ' ' && at[n] <= '~') n++;
  return mt_fail(MT_EARG, "%s: %s at position %d, near '%.*s'", who, what, position, n,
                 at);
}

static mt_status fail_at(const parser *p, const char *at, const char *what) {
  return fail_near(p->who, p->text, at, what);
}

mt_status mt_formula_fail(const char *text, int position, const char *what) {
  return fail_near("fuse", text, text + position - 1, what);
}

/* ---- numbers ---- */

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* start .. end - 1 are digits: strtod sees a copy, never "inf" or "nan". */
static bool convert(const char *start, const char *end, bool whole, double *x) {
  char digits[64];
  const size_t n = (size_t)(end - start);
  if (n >= sizeof digits) return false;
  memcpy(digits, start, n);
  digits[n] = '\0';
  pthread_once(&c_locale_once, make_c_locale);
  *x = c_locale ? strtod_l(digits, NULL, c_locale) : strtod(digits, NULL);
  return isfinite(*x) && !(whole && *x > 9007199254740992.0); /* 2^53 */
}

const char *mt_number_parse(const char *s, double *x, bool *whole) {
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
  return convert(start, s, *whole, x) ? s : NULL;
}

static bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* A number as Lua writes them: 12 .5 5. 1e-3 0x1F 0xA.8p-1. As mt_number_parse. */
static const char *parse_lua_number(const char *s, double *x, bool *whole) {
  const char *const start = s;
  const bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
  if (hex) s += 2;
  int digits = 0;
  *whole = true;
  for (; is_digit(*s) || (hex && is_hex(*s)) || (*s == '.' && *whole); s++) {
    if (*s == '.')
      *whole = false;
    else
      digits++;
  }
  if (digits == 0) return NULL;
  if (*s == (hex ? 'p' : 'e') || *s == (hex ? 'P' : 'E')) {
    *whole = false;
    s++;
    if (*s == '+' || *s == '-') s++;
    if (!is_digit(*s)) return NULL;
    while (is_digit(*s)) s++;
  }
  return convert(start, s, *whole, x) ? s : NULL;
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
    return mt_fail(MT_EARG, "%s: more than %d operations and operands", p->who,
                   MAX_NODES);
  }
  *out = calloc(1, sizeof **out);
  if (!*out) return mt_fail(MT_EMEMORY, "%s: out of memory", p->who);
  (*out)->kind = kind;
  (*out)->position = (int)(p->at - p->text) + 1;
  return MT_OK;
}

/* *left becomes kind(*left, right), whose operator stands at sign; right is taken over,
** also on an error. */
static mt_status join(parser *p, mt_expr_kind kind, const char *sign, mt_expr **left,
                      mt_expr *right) {
  mt_expr *e;
  const mt_status status = new_node(p, kind, &e);
  if (status != MT_OK) {
    mt_expr_free(right);
    return status;
  }
  e->position = (int)(sign - p->text) + 1;
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

static bool begins_number(const parser *p) {
  return is_digit(*p->at) || (p->lua && *p->at == '.' && is_digit(p->at[1]));
}

static mt_status parse_number(parser *p, bool negative, mt_expr **out) {
  double x;
  bool whole;
  const char *const end =
      p->lua ? parse_lua_number(p->at, &x, &whole) : mt_number_parse(p->at, &x, &whole);
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
  if (!begins_number(p)) return fail_at(p, p->at, "number expected");
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
  (*out)->position = (int)(start - p->text) + 1;
  memcpy((*out)->name, start, n);
  if (call) return parse_arguments(p, *out);
  p->at = end;
  return MT_OK;
}

static mt_status parse_sign(parser *p, mt_expr **out);

static mt_status parse_operand(parser *p, mt_expr **out) {
  const char c = *p->at;
  if (c == '(') {
    p->at++;
    MT_TRY(parse_sum(p, out));
    return expect(p, ')');
  }
  if (begins_number(p)) return parse_number(p, false, out);
  if (is_letter(c)) return parse_name(p, out);
  return fail_at(p, p->at, "operand expected");
}

/* After ":": *out becomes name(*out, ...). */
static mt_status parse_method(parser *p, mt_expr **out) {
  skip_space(p);
  const char *const start = p->at;
  while (is_letter(*p->at) || (p->at > start && is_digit(*p->at))) p->at++;
  const size_t n = (size_t)(p->at - start);
  if (n == 0) return fail_at(p, start, "name of a method expected");
  if (n == 3 && memcmp(start, "num", n) == 0)
    return fail_at(p, start, "'num' is no method");
  mt_expr *call;
  if (n >= sizeof call->name) return fail_at(p, start, "name too long");
  MT_TRY(new_node(p, MT_EXPR_CALL, &call));
  call->position = (int)(start - p->text) + 1;
  memcpy(call->name, start, n);
  call->arg[0] = *out;
  call->nargs = 1;
  *out = call;
  MT_TRY(expect(p, '('));
  skip_space(p);
  if (*p->at == ')') {
    p->at++;
    return MT_OK;
  }
  return parse_arguments(p, call);
}

static mt_status parse_power(parser *p, mt_expr **out) {
  MT_TRY(parse_operand(p, out));
  for (skip_space(p); *p->at == ':'; skip_space(p)) {
    p->at++;
    MT_TRY(parse_method(p, out));
  }
  if (*p->at != '^') return MT_OK;
  const char *const sign = p->at++;
  mt_expr *right;
  const mt_status status = parse_sign(p, &right);
  if (status != MT_OK) {
    mt_expr_free(right);
    return status;
  }
  MT_TRY(join(p, MT_EXPR_CALL, sign, out, right));
  strcpy((*out)->name, "pow");
  return MT_OK;
}

static mt_status parse_sign(parser *p, mt_expr **out) {
  *out = NULL;
  skip_space(p);
  if (++p->nesting > MAX_NESTING) return fail_at(p, p->at, "nested too deeply");
  if (*p->at == '-') {
    p->at++;
    MT_TRY(new_node(p, MT_EXPR_NEG, out));
    const mt_status status = parse_sign(p, &(*out)->arg[0]);
    (*out)->nargs = (*out)->arg[0] ? 1 : 0;
    MT_TRY(status);
  } else {
    MT_TRY(parse_power(p, out));
  }
  p->nesting--;
  return MT_OK;
}

static mt_status parse_product(parser *p, mt_expr **out) {
  MT_TRY(parse_sign(p, out));
  for (;;) {
    skip_space(p);
    const char c = *p->at;
    if (c != '*' && c != '/' && c != '%') return MT_OK;
    const char *const sign = p->at++;
    const bool floored = c == '/' && *p->at == '/';
    if (floored) p->at++;
    mt_expr *right;
    const mt_status status = parse_sign(p, &right);
    if (status != MT_OK) {
      mt_expr_free(right);
      return status;
    }
    const bool call = floored || c == '%';
    MT_TRY(join(p,
                call       ? MT_EXPR_CALL
                : c == '*' ? MT_EXPR_MUL
                           : MT_EXPR_DIV,
                sign, out, right));
    if (call) strcpy((*out)->name, floored ? "floordiv" : "remainder");
  }
}

static mt_status parse_sum(parser *p, mt_expr **out) {
  MT_TRY(parse_product(p, out));
  for (;;) {
    skip_space(p);
    const char c = *p->at;
    if (c != '+' && c != '-') return MT_OK;
    const char *const sign = p->at++;
    mt_expr *right;
    const mt_status status = parse_product(p, &right);
    if (status != MT_OK) {
      mt_expr_free(right);
      return status;
    }
    MT_TRY(join(p, c == '+' ? MT_EXPR_ADD : MT_EXPR_SUB, sign, out, right));
  }
}

mt_status mt_formula_parse(const char *text, mt_expr **out) {
  parser p = {.text = text, .at = text, .who = "formula"};
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

/* ---- several steps ---- */

/* Is what follows "name ="? Then its name is taken. */
static bool begins_step(parser *p, mt_formula_step *step) {
  const char *at = p->at;
  if (!is_letter(*at)) return false;
  while (is_letter(*at) || is_digit(*at)) at++;
  const size_t n = (size_t)(at - p->at);
  while (is_space(*at)) at++;
  if (*at != '=' || at[1] == '=' || n >= sizeof step->name) return false;
  memset(step, 0, sizeof *step);
  memcpy(step->name, p->at, n);
  step->position = (int)(p->at - p->text) + 1;
  p->at = at + 1;
  return true;
}

static mt_status add_step(parser *p, mt_formula *f, const mt_formula_step *step) {
  if ((f->nsteps & (f->nsteps - 1)) == 0) { /* a power of two: full */
    const size_t room = f->nsteps > 0 ? 2 * (size_t)f->nsteps : 1;
    mt_formula_step *const more = realloc(f->step, room * sizeof *more);
    if (!more) return mt_fail(MT_EMEMORY, "fuse: out of memory");
    f->step = more;
  }
  mt_formula_step *const s = &f->step[f->nsteps++];
  *s = *step;
  p->nodes = 0;
  MT_TRY(parse_sum(p, &s->value));
  skip_space(p);
  if (*p->at != ';') return fail_at(p, p->at, "';' expected behind the step");
  p->at++;
  return MT_OK;
}

static mt_status parse_steps(parser *p, mt_formula *f) {
  mt_formula_step step;
  for (skip_space(p); begins_step(p, &step); skip_space(p)) {
    MT_TRY(add_step(p, f, &step));
  }
  for (;;) {
    if (f->noutputs == MT_FORMULA_MAX_OUTPUTS) {
      return fail_at(p, p->at, "more results than 16");
    }
    p->nodes = 0;
    MT_TRY(parse_sum(p, &f->output[f->noutputs++]));
    skip_space(p);
    if (*p->at != ',') break;
    p->at++;
  }
  if (*p->at == ';') p->at++;
  skip_space(p);
  return *p->at == '\0' ? MT_OK : fail_at(p, p->at, "operator expected");
}

mt_status mt_formula_parse_steps(const char *text, mt_formula *out) {
  parser p = {.text = text, .at = text, .who = "fuse", .lua = true};
  memset(out, 0, sizeof *out);
  if (strnlen(text, MAX_STEPS + 1) > MAX_STEPS) {
    return mt_fail(MT_EARG, "fuse: a formula longer than %d bytes", MAX_STEPS);
  }
  return parse_steps(&p, out);
}

void mt_formula_free(mt_formula *f) {
  for (int i = 0; i < f->nsteps; i++) mt_expr_free(f->step[i].value);
  for (int i = 0; i < f->noutputs; i++) mt_expr_free(f->output[i]);
  free(f->step);
  memset(f, 0, sizeof *f);
}
