/* runtime/bind/attributes.c -- reads the attributes of an op call: Lua values as the op's
** signature wants them. */
#include <inttypes.h>
#include <string.h>

#include "runtime/bind/call.h"

static bool read_dims(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  const mt_view *x = &c->in[0]->v;
  uint32_t seen = 0;
  if (v->n == 0 && c->op->param[k].preset.n < 0 && !c->op->param[k].required) {
    *v = mt_attr_none(); /* an empty list: all dims */
    return true;
  }
  for (int i = 0; i < v->n; i++) {
    const int64_t given = v->i[i];
    if (!mtl_dim_from_one(&v->i[i], x->ndim, x, e)) return false;
    if (seen >> v->i[i] & 1u) return mtl_say(e, "dim %" PRId64 " stands twice", given);
    seen |= 1u << v->i[i];
  }
  return true;
}

/* Dims that the result has besides the input's: places in the result. */
static bool read_new_dims(const mtl_call *c, mt_attr *v, mtl_text *e) {
  const int ndim = c->in[0]->v.ndim + v->n;
  uint32_t seen = 0;
  if (v->n != 1 && c->op->op != MT_OP_unsqueeze) return mtl_say(e, "one dim expected");
  if (ndim > MT_MAX_DIMS) return mtl_say(e, "more than %d dims", MT_MAX_DIMS);
  for (int i = 0; i < v->n; i++) {
    const int64_t given = v->i[i];
    if (!mtl_dim_from_one(&v->i[i], ndim, NULL, e)) return false;
    if (seen >> v->i[i] & 1u) return mtl_say(e, "dim %" PRId64 " stands twice", given);
    seen |= 1u << v->i[i];
  }
  return true;
}

/* An index belongs to the dim attribute before it. */
static bool read_index(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  const mt_param *next = &c->op->param[k + 1];
  const bool end = k + 1 < c->op->nparams && strcmp(next->name, "length") == 0;
  int64_t dim = 0;
  for (int j = 0; j < k; j++) {
    if (c->op->param[j].type == MT_PARAM_DIM) dim = c->attr[c->op->param[j].slot].i[0];
  }
  return mtl_position_from_one(&v->i[0], &c->in[0]->v, (int)dim, end, e);
}

static bool read_choice(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  const char *choices = c->op->param[k].choices, *at = choices;
  const char *word = lua_tostring(c->L, c->at[k]);
  const size_t n = strlen(word);
  for (int64_t i = 0; at; i++) {
    const char *bar = strchr(at, '|');
    const size_t length = bar ? (size_t)(bar - at) : strlen(at);
    if (length == n && memcmp(at, word, n) == 0) {
      *v = mt_attr_i(i);
      return true;
    }
    at = bar ? bar + 1 : NULL;
  }
  return mtl_say(e, "%s: '%.40s' is none of %s", c->op->param[k].name, word, choices);
}

static bool read_integers(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  mtl_text why;
  if (!mtl_get_ints(c->L, c->at[k], &v->n, v->i, &why)) {
    return mtl_say(e, "%s%s%.300s", c->op->param[k].name, why.s[0] == '[' ? "" : ": ",
                   why.s);
  }
  const int more = k == c->op->nparams - 1 ? c->more : 0;
  for (int i = 0; i < more; i++) {
    if (v->n == MT_MAX_DIMS) {
      return mtl_say(e, "more than %d numbers for '%s'", MT_MAX_DIMS,
                     c->op->param[k].name);
    }
    if (!mtl_get_int(c->L, c->at[k] + 1 + i, &v->i[v->n++], &why)) {
      return mtl_say(e, "%s[%d]: %.300s", c->op->param[k].name, v->n, why.s);
    }
  }
  return true;
}

static bool read_pair(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  if (!read_integers(c, k, v, e)) return false;
  if (v->n == 1) v->i[1] = v->i[0];
  if (v->n < 1 || v->n > 2) {
    return mtl_say(e, "%s: integer or {height, width} expected, got %d integers",
                   c->op->param[k].name, v->n);
  }
  v->n = 2;
  return true;
}

/* The Lua types that this parameter takes. */
static bool type_fits(lua_State *L, int index, mt_param_type type) {
  const int t = lua_type(L, index);
  switch (type) {
  case MT_PARAM_BOOL: return t == LUA_TBOOLEAN;
  case MT_PARAM_NUMBER: return t == LUA_TNUMBER || t == LUA_TBOOLEAN;
  case MT_PARAM_NEWDIM:
  case MT_PARAM_DIMS:
  case MT_PARAM_INTS:
  case MT_PARAM_SHAPE:
  case MT_PARAM_PAIR: return t == LUA_TNUMBER || t == LUA_TTABLE;
  case MT_PARAM_DTYPE:
  case MT_PARAM_CHOICE: return t == LUA_TSTRING;
  default: return t == LUA_TNUMBER;
  }
}

static bool set_integer(mt_attr *v, int64_t x) {
  v->n = 1;
  v->is_int = 1;
  v->f = (double)x;
  v->i[0] = x;
  return true;
}

static bool set_float(mt_attr *v, double x) {
  v->n = 1;
  v->is_int = 0;
  v->f = x;
  v->i[0] = 0;
  return true;
}

static bool read_number(lua_State *L, int index, mt_attr *v) {
  if (lua_isboolean(L, index)) return set_integer(v, lua_toboolean(L, index));
  if (lua_isinteger(L, index)) return set_integer(v, lua_tointeger(L, index));
  return set_float(v, lua_tonumber(L, index));
}

static bool read_integer(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  mtl_text why;
  int64_t x;
  if (!mtl_get_int(c->L, c->at[k], &x, &why)) {
    return mtl_say(e, "%s: %.300s", c->op->param[k].name, why.s);
  }
  return set_integer(v, x);
}

static bool read_attribute(const mtl_call *c, int k, mt_attr *v, mtl_text *e) {
  const mt_view *x = &c->in[0]->v;
  mt_dtype dtype;
  switch (c->op->param[k].type) {
  case MT_PARAM_BOOL: return set_integer(v, lua_toboolean(c->L, c->at[k]));
  case MT_PARAM_FLOAT: return set_float(v, lua_tonumber(c->L, c->at[k]));
  case MT_PARAM_NUMBER: return read_number(c->L, c->at[k], v);
  case MT_PARAM_DIM:
    return read_integer(c, k, v, e) && mtl_dim_from_one(&v->i[0], x->ndim, x, e);
  case MT_PARAM_NEWDIM: return read_integers(c, k, v, e) && read_new_dims(c, v, e);
  case MT_PARAM_DIMS: return read_integers(c, k, v, e) && read_dims(c, k, v, e);
  case MT_PARAM_INDEX: return read_integer(c, k, v, e) && read_index(c, k, v, e);
  case MT_PARAM_INTS:
  case MT_PARAM_SHAPE: return read_integers(c, k, v, e);
  case MT_PARAM_PAIR: return read_pair(c, k, v, e);
  case MT_PARAM_CHOICE: return read_choice(c, k, v, e);
  case MT_PARAM_DTYPE:
    if (!mtl_get_dtype(c->L, c->at[k], &dtype, e)) return false;
    return set_integer(v, dtype);
  default: return read_integer(c, k, v, e);
  }
}

/* The commonest: integers one after the other. False: others, and nothing was done. */
static bool read_plain_integers(const mtl_call *c, int k, mt_attr *v) {
  const int count = 1 + (k == c->op->nparams - 1 ? c->more : 0);
  if (count > MT_MAX_DIMS) return false;
  for (int i = 0; i < count; i++) {
    if (!lua_isinteger(c->L, c->at[k] + i)) return false;
    v->i[i] = lua_tointeger(c->L, c->at[k] + i);
  }
  v->n = count;
  return true;
}

void mtl_read_attributes(mtl_call *c) {
  if (c->op->nattr == 0) return;
  for (int k = 0; k < c->op->nparams; k++) {
    const mt_param *p = &c->op->param[k];
    mtl_text e;
    if (p->type <= MT_PARAM_LIST) continue;
    mt_attr *v = &c->attr[p->slot];
    if (!c->at[k]) {
      mt_attr_copy(v, &p->preset);
      continue;
    }
    v->n = 1;
    v->is_int = 1;
    v->f = 0;
    if ((p->type == MT_PARAM_SHAPE || p->type == MT_PARAM_INTS) &&
        read_plain_integers(c, k, v))
      continue;
    if (!type_fits(c->L, c->at[k], p->type)) {
      mtl_raise_type(c, k, mtl_typename(c->L, c->at[k]));
    }
    if (!read_attribute(c, k, v, &e)) mtl_raise_param(c, k, e.s);
  }
}
