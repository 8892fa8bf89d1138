/* runtime/core/signature.c -- parses the signatures of ops.def, whose head describes
** them, and makes attribute values for callers in C. */
#include "runtime/core/signature.h"

#include <math.h>
#include <string.h>

static mt_status malformed(const char *text, const char *at, const char *what) {
  return mt_fail(MT_EINTERNAL, "signature '%s': %s at position %d", text, what,
                 (int)(at - text) + 1);
}

/* A piece of the signature: from at to end, blanks trimmed. */
typedef struct piece {
  const char *at, *end;
} piece;

static piece trim(piece p) {
  while (p.at < p.end && *p.at == ' ') p.at++;
  while (p.end > p.at && p.end[-1] == ' ') p.end--;
  return p;
}

static bool is(piece p, const char *word) {
  const size_t n = (size_t)(p.end - p.at);
  return strlen(word) == n && memcmp(p.at, word, n) == 0;
}

static bool copy(piece p, char *to, size_t size) {
  const size_t n = (size_t)(p.end - p.at);
  if (n == 0 || n >= size) return false;
  memcpy(to, p.at, n);
  to[n] = '\0';
  return true;
}

/* The first c of p, or its end. */
static const char *find(piece p, char c) {
  const char *at = memchr(p.at, c, (size_t)(p.end - p.at));
  return at ? at : p.end;
}

static bool parse_number(piece p, mt_attr *v) {
  bool whole;
  const bool negative = p.at < p.end && *p.at == '-';
  if (negative) p.at++;
  memset(v, 0, sizeof *v);
  v->n = 1;
  if (is(p, "inf") || is(p, "LIMIT")) {
    v->f = negative ? -(double)INFINITY : (double)INFINITY;
    return true;
  }
  if (mt_number_parse(p.at, &v->f, &whole) != p.end) return false;
  if (negative) v->f = -v->f;
  v->is_int = whole;
  if (whole) v->i[0] = (int64_t)v->f;
  return true;
}

static const struct {
  const char *name;
  mt_param_type type;
} TYPES[] = {
    {"int", MT_PARAM_INT},   {"float", MT_PARAM_FLOAT}, {"number", MT_PARAM_NUMBER},
    {"bool", MT_PARAM_BOOL}, {"dim", MT_PARAM_DIM},     {"newdim", MT_PARAM_NEWDIM},
    {"dims", MT_PARAM_DIMS}, {"index", MT_PARAM_INDEX}, {"ints", MT_PARAM_INTS},
    {"pair", MT_PARAM_PAIR}, {"shape", MT_PARAM_SHAPE}, {"dtype", MT_PARAM_DTYPE},
};

static bool parse_type(piece p, mt_param *param) {
  for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
    if (is(p, TYPES[i].name)) {
      param->type = TYPES[i].type;
      return true;
    }
  }
  param->type = MT_PARAM_CHOICE;
  return find(p, '|') < p.end && copy(p, param->choices, sizeof param->choices);
}

/* The type that a default without one tells. */
static bool type_of_preset(piece p, mt_param *param) {
  mt_attr v;
  if (is(p, "true") || is(p, "false")) {
    param->type = MT_PARAM_BOOL;
    return true;
  }
  if (!parse_number(p, &v)) return false;
  const bool dim = strcmp(param->name, "dim") == 0;
  param->type = dim ? MT_PARAM_DIM : v.is_int ? MT_PARAM_INT : MT_PARAM_FLOAT;
  return true;
}

static bool parse_choice(piece p, const char *choices, mt_attr *v) {
  piece rest = {choices, choices + strlen(choices)};
  for (int64_t i = 0; rest.at <= rest.end; i++) {
    const char *bar = find(rest, '|');
    const piece choice = {rest.at, bar};
    const size_t n = (size_t)(bar - rest.at);
    if (n == (size_t)(p.end - p.at) && memcmp(p.at, choice.at, n) == 0) {
      *v = mt_attr_i(i);
      return true;
    }
    rest.at = bar + 1;
  }
  return false;
}

static bool parse_preset(piece p, mt_param *param) {
  mt_attr *v = &param->preset;
  if (is(p, "none") && param->type != MT_PARAM_CHOICE) {
    *v = mt_attr_none();
    return true;
  }
  switch (param->type) {
  case MT_PARAM_CHOICE: return parse_choice(p, param->choices, v);
  case MT_PARAM_BOOL:
    *v = mt_attr_i(is(p, "true"));
    return is(p, "true") || is(p, "false");
  case MT_PARAM_DIMS: *v = mt_attr_none(); return is(p, "all");
  case MT_PARAM_NUMBER:
  case MT_PARAM_FLOAT: return parse_number(p, v);
  case MT_PARAM_INT: return parse_number(p, v) && v->is_int;
  case MT_PARAM_DIM:
  case MT_PARAM_NEWDIM: /* written as in Lua: from 1; a negative one stays */
    if (!parse_number(p, v) || !v->is_int || v->i[0] == 0) return false;
    if (v->i[0] > 0) v->i[0]--;
    return true;
  case MT_PARAM_PAIR:
    if (!parse_number(p, v) || !v->is_int) return false;
    v->n = 2;
    v->i[1] = v->i[0];
    return true;
  default: return false; /* the other types are required, or none */
  }
}

/* An input: `x`, `b?`, `xs...`. */
static bool parse_input(piece p, mt_param *param) {
  param->type = MT_PARAM_INPUT;
  param->required = true;
  if (p.end - p.at > 3 && memcmp(p.end - 3, "...", 3) == 0) {
    param->type = MT_PARAM_LIST;
    p.end -= 3;
  } else if (p.end > p.at && p.end[-1] == '?') {
    param->type = MT_PARAM_OPTIONAL;
    param->required = false;
    p.end--;
  }
  return copy(p, param->name, sizeof param->name);
}

static bool parse_attribute(piece p, mt_param *param) {
  const char *equals = find(p, '=');
  const char *colon = find((piece){p.at, equals}, ':');
  const piece preset = {equals < p.end ? equals + 1 : p.end, p.end};
  if (!copy((piece){p.at, colon}, param->name, sizeof param->name)) return false;
  if (colon < equals) {
    if (!parse_type((piece){colon + 1, equals}, param)) return false;
  } else if (!type_of_preset(preset, param)) {
    return false;
  }
  param->required = equals == p.end;
  param->preset = mt_attr_none();
  return param->required || parse_preset(preset, param);
}

static bool parse_output(mt_opinfo *info, piece p) {
  if (info->nout == MT_MAX_OUTPUTS) return false;
  if (p.end > p.at && p.end[-1] == '!') {
    info->inplace = true;
    p.end--;
  }
  return copy(p, info->out_name[info->nout++], sizeof info->out_name[0]);
}

static bool parse_param(mt_opinfo *info, piece p) {
  if (info->nparams == MT_MAX_PARAMS) return false;
  mt_param *param = &info->param[info->nparams++];
  memset(param, 0, sizeof *param);
  if (find(p, ':') < p.end || find(p, '=') < p.end) {
    param->slot = info->nattr++;
    return info->nattr <= MT_MAX_ATTRS && parse_attribute(p, param);
  }
  param->slot = info->nin++;
  if (!parse_input(p, param)) return false;
  if (param->type == MT_PARAM_LIST) {
    if (param->slot != 0) return false;
    info->list = true;
  }
  return !info->list || info->nin == 1; /* a list stands alone */
}

mt_status mt_signature_parse(mt_opinfo *info, const char *text) {
  const char *arrow = strstr(text, "->");
  if (!arrow) return malformed(text, text, "'->' expected");
  info->nparams = info->nin = info->nattr = info->nout = 0;
  piece rest = {text, arrow};
  for (int side = 0; side < 2; side++) {
    for (;;) {
      const char *comma = find(rest, ',');
      const piece p = trim((piece){rest.at, comma});
      if (side == 0 ? !parse_param(info, p) : !parse_output(info, p)) {
        return malformed(text, p.at, side == 0 ? "bad parameter" : "bad output");
      }
      if (comma == rest.end) break;
      rest.at = comma + 1;
    }
    rest = (piece){arrow + 2, arrow + strlen(arrow)};
  }
  return MT_OK;
}

/* ---- attribute values ---- */

mt_attr mt_attr_i(int64_t x) {
  return (mt_attr){.n = 1, .is_int = 1, .f = (double)x, .i = {x}};
}

mt_attr mt_attr_f(double x) { return (mt_attr){.n = 1, .f = x}; }

mt_attr mt_attr_list(int n, const int64_t *x) {
  mt_attr v = {.n = n, .is_int = 1};
  for (int k = 0; k < n && k < MT_MAX_DIMS; k++) v.i[k] = x[k];
  if (n > 0) v.f = (double)v.i[0];
  return v;
}

mt_attr mt_attr_none(void) { return (mt_attr){.n = -1}; }
