/* runtime/bind/call.c -- calls an op with arguments from Lua, as its signature says.
**
** A finalizer may run whenever Lua allocates, and free a tensor. So everything that
** allocates (numbers made tensors, result userdata) comes first; tensors are read after
** that, and held while the op runs, because its own allocations may collect garbage. */
#include "runtime/bind/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct call {
  lua_State *L;
  const mt_opinfo *op;
  const char *fname;
  int first;               /* stack position of the first argument */
  int options;             /* stack position of the options table; 0: none */
  int at[MT_MAX_PARAMS];   /* stack position of each parameter's value; 0: not given */
  int more[MT_MAX_PARAMS]; /* further values behind it that belong to it */
  bool named[MT_MAX_PARAMS]; /* it stood in the options table */
  mt_attr attr[MT_MAX_ATTRS];
  int nin;
  mt_tensor **in;
  mt_tensor *few[MT_MAX_PARAMS]; /* in, but for a list */
} call;

/* ---- errors ---- */

static int raise_param(const call *c, int k, const char *text) {
  const char *name = c->op->param[k].name;
  const size_t n = strlen(name);
  if (c->named[k]) {
    if (strncmp(text, name, n) == 0 && text[n] == ':') text += n + 2;
    return mtl_argerror(c->L, c->options, c->fname, "option '%s': %s", name, text);
  }
  return mtl_argerror(c->L, c->at[k] ? c->at[k] : c->first + k, c->fname, "%s", text);
}

static const char *wanted(mt_param_type type) {
  switch (type) {
  case MT_PARAM_LIST: return "list of tensors";
  case MT_PARAM_FLOAT:
  case MT_PARAM_NUMBER: return "number";
  case MT_PARAM_BOOL: return "boolean";
  case MT_PARAM_DIMS: return "dim or list of dims";
  case MT_PARAM_INTS:
  case MT_PARAM_SHAPE: return "integer or list of integers";
  case MT_PARAM_PAIR: return "integer or {height, width}";
  case MT_PARAM_DTYPE: return "dtype name";
  case MT_PARAM_CHOICE: return "string";
  case MT_PARAM_INPUT:
  case MT_PARAM_OPTIONAL: return "tensor";
  default: return "integer";
  }
}

/* May a number stand for this input? */
static bool takes_number(const mt_opinfo *op, int k) {
  if (op->param[k].type != MT_PARAM_INPUT) return false;
  return op->kind <= MT_KIND_TERNARY || op->op == MT_OP_where ||
         (op->op == MT_OP_masked_fill && k == 2);
}

static int raise_type(const call *c, int k, const char *got) {
  const mt_param *p = &c->op->param[k];
  const bool input = p->type <= MT_PARAM_LIST || c->named[k];
  mtl_text e;
  if (strcmp(got, "freed tensor") == 0) {
    return raise_param(c, k, "the tensor was freed");
  }
  mtl_say(&e, "%s%s%s%s expected, got %s", input ? "" : p->name, input ? "" : ": ",
          wanted(p->type), k > 0 && takes_number(c->op, k) ? " or number" : "", got);
  return raise_param(c, k, e.s);
}

/* mt_last_error() counts the parameters; Lua counts the arguments. */
static int raise_last(const call *c) {
  mt_error *e = mt_last_error();
  const int k = e->arg - 1;
  if (k >= 0 && k < c->op->nparams && e->status != MT_ELUA) {
    if (c->named[k]) {
      char text[sizeof e->text];
      memcpy(text, e->text, sizeof text);
      return raise_param(c, k, text);
    }
    e->arg = c->at[k]; /* 0 for a preset: no argument in particular */
  }
  const size_t n = strlen(c->op->name);
  if (e->arg == 0 && strncmp(e->text, c->op->name, n) == 0 && e->text[n] == ':') {
    return luaL_error(c->L, "%s", e->text); /* it names the op itself */
  }
  return mtl_raise(c->L, c->fname);
}

/* ---- which argument is which parameter ---- */

static int find_param(const mt_opinfo *op, const char *name) {
  for (int k = 0; k < op->nparams; k++) {
    if (strcmp(op->param[k].name, name) == 0) return k;
  }
  return -1;
}

static int raise_unknown(const call *c, const char *key) {
  char names[200] = "no options";
  size_t n = 0;
  for (int k = 0; k < c->op->nparams; k++) {
    const mt_param *p = &c->op->param[k];
    if (p->type <= MT_PARAM_LIST || n >= sizeof names) continue;
    n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", p->name);
  }
  return mtl_argerror(c->L, c->options, c->fname,
                      "unknown option '%.40s'; '%s' takes %s", key, c->op->name, names);
}

/* Put each option on the stack. given: how many parameters came by position. */
static void take_options(call *c, int given) {
  lua_State *L = c->L;
  lua_pushnil(L);
  while (lua_next(L, c->options)) {
    if (lua_type(L, -2) != LUA_TSTRING) {
      mtl_argerror(L, c->options, c->fname, "options and list items in one table");
    }
    const char *key = lua_tostring(L, -2);
    const int k = find_param(c->op, key);
    if (k < 0) raise_unknown(c, key);
    if (k < given && c->at[k]) {
      mtl_argerror(L, c->options, c->fname, "option '%s' is given by position, too",
                   key);
    }
    lua_insert(L, -2); /* the value stays below the key */
    c->at[k] = lua_gettop(L) - 1;
    c->named[k] = true;
  }
}

static bool takes_several(const mt_param *p) {
  return p->type == MT_PARAM_SHAPE || p->type == MT_PARAM_INTS ||
         p->type == MT_PARAM_DIMS;
}

/* Does the table on top of the stack hold options? An empty one does where no list can
** be meant. */
static bool ends_with_options(const call *c, int count) {
  lua_State *L = c->L;
  const int top = lua_gettop(L);
  if (count == 0 || !lua_istable(L, top)) return false;
  if (count == 1 && c->op->list) return false; /* cat{...}: never walk a long list */
  if (mtl_is_options(L, top)) return true;
  lua_pushnil(L);
  if (lua_next(L, top)) {
    lua_pop(L, 2);
    return false;
  }
  const int k = count - 1;
  return k > 0 && (k >= c->op->nparams || !takes_several(&c->op->param[k]));
}

static void place_arguments(call *c) {
  lua_State *L = c->L;
  const mt_opinfo *op = c->op;
  const int last = op->nparams - 1;
  int count = lua_gettop(L) - c->first + 1;
  luaL_checkstack(L, 3 * MT_MAX_PARAMS, c->fname);
  if (ends_with_options(c, count)) {
    c->options = lua_gettop(L);
    count--;
  }
  for (int k = 0; k < count && k <= last; k++) {
    if (!lua_isnil(L, c->first + k)) c->at[k] = c->first + k;
  }
  if (count > op->nparams) {
    if (!takes_several(&op->param[last]) || lua_type(L, c->at[last]) != LUA_TNUMBER) {
      mtl_argerror(L, c->first + op->nparams, c->fname,
                   "too many arguments, '%s' takes %d at most", op->name, op->nparams);
    }
    c->more[last] = count - op->nparams;
  }
  if (c->options) take_options(c, count);
  for (int k = 0; k <= last; k++) {
    if (op->param[k].required && !c->at[k]) {
      raise_type(c, k, k < count ? "nil" : "no value");
    }
  }
}

/* ---- inputs ---- */

static bool is_number(lua_State *L, int index) {
  return lua_type(L, index) == LUA_TNUMBER || lua_type(L, index) == LUA_TBOOLEAN;
}

/* Make tensors of numbers, and room for the pointers of a list. Allocates in Lua. */
static void prepare_inputs(call *c, bool inplace) {
  lua_State *L = c->L;
  const mt_opinfo *op = c->op;
  bool some = false; /* one tensor at least */
  for (int k = 0; k < op->nparams; k++) {
    const mt_param *p = &op->param[k];
    if (p->type > MT_PARAM_LIST || !c->at[k]) continue;
    if (p->type == MT_PARAM_LIST) {
      if (!lua_istable(L, c->at[k])) raise_type(c, k, mtl_typename(L, c->at[k]));
      const lua_Unsigned n = lua_rawlen(L, c->at[k]);
      if (n == 0) raise_param(c, k, "list of tensors expected, got an empty table");
      if (n > INT_MAX) raise_param(c, k, "too many tensors");
      if (mtl_is_options(L, c->at[k])) {
        raise_param(c, k, "options and list items in one table");
      }
      c->in = lua_newuserdatauv(L, (size_t)n * sizeof *c->in, 0);
      c->nin = (int)n;
      return;
    }
    if (!is_number(L, c->at[k])) {
      if (!mtl_to_tensor(L, c->at[k])) raise_type(c, k, mtl_typename(L, c->at[k]));
      some = true;
    } else if (!takes_number(op, k) || (inplace && k == 0)) {
      raise_type(c, k, luaL_typename(L, c->at[k]));
    }
  }
  if (!some) raise_type(c, 0, luaL_typename(L, c->at[0]));
  for (int k = 0; k < op->nparams; k++) {
    if (op->param[k].type <= MT_PARAM_OPTIONAL && c->at[k] && is_number(L, c->at[k])) {
      mtl_check_operand(L, c->at[k], c->fname);
    }
  }
  c->in = c->few;
  c->nin = op->nin;
}

static void read_list(call *c) {
  lua_State *L = c->L;
  for (int i = 0; i < c->nin; i++) {
    lua_rawgeti(L, c->at[0], i + 1);
    c->in[i] = mtl_to_tensor(L, -1);
    if (!c->in[i]) {
      mtl_text e;
      mtl_say(&e, "tensor expected at [%d] of the list, got %s", i + 1,
              mtl_typename(L, -1));
      raise_param(c, 0, e.s);
    }
    lua_pop(L, 1);
  }
}

/* Nothing is allocated in Lua from here to the op's end. */
static void read_inputs(call *c) {
  if (c->op->list) {
    read_list(c);
    return;
  }
  for (int k = 0; k < c->op->nparams; k++) {
    const mt_param *p = &c->op->param[k];
    if (p->type > MT_PARAM_OPTIONAL) continue;
    mt_tensor *t = c->at[k] ? mtl_to_tensor(c->L, c->at[k]) : NULL;
    if (c->at[k] && !t) raise_type(c, k, mtl_typename(c->L, c->at[k]));
    c->in[p->slot] = t;
  }
}

/* ---- attributes ---- */

static bool read_dims(const call *c, int k, mt_attr *v, mtl_text *e) {
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

/* An index belongs to the dim attribute before it. */
static bool read_index(const call *c, int k, mt_attr *v, mtl_text *e) {
  const mt_param *next = &c->op->param[k + 1];
  const bool end = k + 1 < c->op->nparams && strcmp(next->name, "length") == 0;
  int64_t dim = 0;
  for (int j = 0; j < k; j++) {
    if (c->op->param[j].type == MT_PARAM_DIM) dim = c->attr[c->op->param[j].slot].i[0];
  }
  return mtl_position_from_one(&v->i[0], &c->in[0]->v, (int)dim, end, e);
}

static bool read_choice(const call *c, int k, mt_attr *v, mtl_text *e) {
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

static bool read_integers(const call *c, int k, mt_attr *v, mtl_text *e) {
  mtl_text why;
  if (!mtl_get_ints(c->L, c->at[k], &v->n, v->i, &why)) {
    return mtl_say(e, "%s%s%.300s", c->op->param[k].name, why.s[0] == '[' ? "" : ": ",
                   why.s);
  }
  for (int i = 0; i < c->more[k]; i++) {
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

static bool read_pair(const call *c, int k, mt_attr *v, mtl_text *e) {
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
  case MT_PARAM_DIMS:
  case MT_PARAM_INTS:
  case MT_PARAM_SHAPE:
  case MT_PARAM_PAIR: return t == LUA_TNUMBER || t == LUA_TTABLE;
  case MT_PARAM_DTYPE:
  case MT_PARAM_CHOICE: return t == LUA_TSTRING;
  default: return t == LUA_TNUMBER;
  }
}

static bool read_number(lua_State *L, int index, mt_attr *v) {
  if (lua_isboolean(L, index))
    *v = mt_attr_i(lua_toboolean(L, index));
  else if (lua_isinteger(L, index))
    *v = mt_attr_i(lua_tointeger(L, index));
  else
    *v = mt_attr_f(lua_tonumber(L, index));
  return true;
}

static bool read_integer(const call *c, int k, mt_attr *v, mtl_text *e) {
  mtl_text why;
  int64_t x;
  if (!mtl_get_int(c->L, c->at[k], &x, &why)) {
    return mtl_say(e, "%s: %.300s", c->op->param[k].name, why.s);
  }
  *v = mt_attr_i(x);
  return true;
}

static bool read_attribute(const call *c, int k, mt_attr *v, mtl_text *e) {
  const mt_view *x = &c->in[0]->v;
  mt_dtype dtype;
  switch (c->op->param[k].type) {
  case MT_PARAM_BOOL: *v = mt_attr_i(lua_toboolean(c->L, c->at[k])); return true;
  case MT_PARAM_FLOAT: *v = mt_attr_f(lua_tonumber(c->L, c->at[k])); return true;
  case MT_PARAM_NUMBER: return read_number(c->L, c->at[k], v);
  case MT_PARAM_DIM:
    return read_integer(c, k, v, e) && mtl_dim_from_one(&v->i[0], x->ndim, x, e);
  case MT_PARAM_NEWDIM:
    return read_integer(c, k, v, e) && mtl_dim_from_one(&v->i[0], x->ndim + 1, NULL, e);
  case MT_PARAM_DIMS: return read_integers(c, k, v, e) && read_dims(c, k, v, e);
  case MT_PARAM_INDEX: return read_integer(c, k, v, e) && read_index(c, k, v, e);
  case MT_PARAM_INTS:
  case MT_PARAM_SHAPE: return read_integers(c, k, v, e);
  case MT_PARAM_PAIR: return read_pair(c, k, v, e);
  case MT_PARAM_CHOICE: return read_choice(c, k, v, e);
  case MT_PARAM_DTYPE:
    if (!mtl_get_dtype(c->L, c->at[k], &dtype, e)) return false;
    *v = mt_attr_i(dtype);
    return true;
  default: return read_integer(c, k, v, e);
  }
}

static void read_attributes(call *c) {
  mt_op_presets(c->op->op, c->attr);
  for (int k = 0; k < c->op->nparams; k++) {
    const mt_param *p = &c->op->param[k];
    mtl_text e;
    if (p->type <= MT_PARAM_LIST || !c->at[k]) continue;
    mt_attr v = {.n = 1, .is_int = 1};
    if (!type_fits(c->L, c->at[k], p->type)) {
      raise_type(c, k, mtl_typename(c->L, c->at[k]));
    }
    if (!read_attribute(c, k, &v, &e)) raise_param(c, k, e.s);
    c->attr[p->slot] = v;
  }
}

/* ---- calls ---- */

static void hold(const call *c) {
  for (int i = 0; i < c->nin; i++) {
    if (c->in[i]) mt_retain(c->in[i]);
  }
}

static void let_go(const call *c) {
  for (int i = 0; i < c->nin; i++) mt_release(c->in[i]);
}

int mtl_call_op(lua_State *L, mt_op op, int first, const char *fname) {
  mt_context *ctx = mtl_context(L);
  call c = {.L = L, .op = mt_op_info(op), .fname = fname, .first = first};
  mt_tensor **result[MT_MAX_OUTPUTS], *out[MT_MAX_OUTPUTS] = {NULL};
  int nout = c.op->nout;
  place_arguments(&c);
  prepare_inputs(&c, false);
  for (int i = 0; i < nout; i++) result[i] = mtl_new_tensor(L);
  const int top = lua_gettop(L);
  read_inputs(&c);
  read_attributes(&c);
  hold(&c);
  const mt_status status = mt_apply(ctx, op, c.nin, c.in, c.attr, out, &nout);
  let_go(&c);
  if (status != MT_OK) return raise_last(&c);
  for (int i = 0; i < nout; i++) *result[i] = out[i];
  lua_settop(L, top - c.op->nout + nout);
  return nout;
}

int mtl_call_op_inplace(lua_State *L, mt_op op, int first, const char *fname) {
  mt_context *ctx = mtl_context(L);
  call c = {.L = L, .op = mt_op_info(op), .fname = fname, .first = first};
  place_arguments(&c);
  prepare_inputs(&c, true);
  read_inputs(&c);
  read_attributes(&c);
  hold(&c);
  const mt_status status = mt_apply_inplace(ctx, op, c.nin, c.in, c.attr);
  let_go(&c);
  if (status != MT_OK) return raise_last(&c);
  lua_pushvalue(L, first);
  return 1;
}
