/* runtime/bind/call.c -- calls an op with arguments from Lua, as its signature says.
**
** A finalizer may run whenever Lua allocates, and free a tensor. So everything that
** allocates (numbers made tensors, result userdata) comes first; tensors are read after
** that, and held while the op runs, because its own allocations may collect garbage. */
#include <stdio.h>
#include <string.h>

#include "runtime/bind/call.h"

/* Only what is read is set: the whole is large. */
static void begin(mtl_call *c, lua_State *L, mt_op op, int first, const char *fname) {
  c->L = L;
  c->op = mt_op_info(op);
  c->fname = fname;
  c->first = first;
  c->options = c->more = 0;
  c->given = c->named = 0;
  for (int k = 0; k < c->op->nparams; k++) c->at[k] = 0;
}

/* ---- errors ---- */

/* Internal rows are forms of the op that has the rest of their name. */
static const char *public_name(const mt_opinfo *op) {
  return op->name + (op->name[0] == '_');
}

int mtl_raise_param(const mtl_call *c, int k, const char *text) {
  const char *name = c->op->param[k].name;
  const size_t n = strlen(name);
  if (c->named >> k & 1u) {
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

/* Inputs of composite ops that may be numbers, by name. */
static bool named_value(const mt_opinfo *op, int k) {
  static const char *const names[] = {"value", "values", "src", "q", "lo", "hi"};
  for (size_t i = 0; op->kind == MT_KIND_COMPOSITE && i < 6; i++)
    if (strcmp(op->param[k].name, names[i]) == 0) return true;
  return false;
}

/* May a number stand for this input? */
static bool takes_number(const mt_opinfo *op, int k) {
  if (op->param[k].type > MT_PARAM_OPTIONAL) return false;
  return op->kind <= MT_KIND_TERNARY || op->op == MT_OP_where || op->op == MT_OP__div ||
         named_value(op, k);
}

int mtl_raise_type(const mtl_call *c, int k, const char *got) {
  const mt_param *p = &c->op->param[k];
  const bool input = p->type <= MT_PARAM_LIST || (c->named >> k & 1u);
  mtl_text e;
  if (strcmp(got, "freed tensor") == 0) {
    return mtl_raise_param(c, k, "the tensor was freed");
  }
  mtl_say(&e, "%s%s%s%s expected, got %s", input ? "" : p->name, input ? "" : ": ",
          wanted(p->type), k > 0 && takes_number(c->op, k) ? " or number" : "", got);
  return mtl_raise_param(c, k, e.s);
}

/* mt_last_error() counts the parameters; Lua counts the arguments. */
static int raise_last(const mtl_call *c) {
  mt_error *e = mt_last_error();
  const int k = e->arg - 1;
  if (k >= 0 && k < c->op->nparams && e->status != MT_ELUA) {
    if (c->named >> k & 1u) {
      char text[sizeof e->text];
      memcpy(text, e->text, sizeof text);
      return mtl_raise_param(c, k, text);
    }
    e->arg = c->at[k]; /* 0 for a preset: no argument in particular */
  }
  const char *const name = public_name(c->op);
  const size_t n = strlen(name);
  if (e->arg == 0 && strncmp(e->text, name, n) == 0 && e->text[n] == ':') {
    return luaL_error(c->L, "%s", e->text); /* it names the op itself */
  }
  return mtl_raise(c->L, c->fname);
}

/* ---- which argument is which parameter ---- */

static int param_named(const mt_opinfo *op, const char *name) {
  for (int k = 0; k < op->nparams; k++) {
    if (strcmp(op->param[k].name, name) == 0) return k;
  }
  return -1;
}

/* Under the row's own name, or that of PyTorch or NumPy. */
static int find_param(const mt_opinfo *op, const char *name) {
  static const char *const names[][2] = {{"axis", "dim"},
                                         {"keepdims", "keepdim"},
                                         {"min", "lo"},
                                         {"max", "hi"},
                                         {"eps", "epsilon"}};
  const int k = param_named(op, name);
  for (size_t i = 0; k < 0 && i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i][0]) == 0) return param_named(op, names[i][1]);
  return k;
}

static int raise_unknown(const mtl_call *c, const char *key) {
  char names[200] = "no options";
  size_t n = 0;
  for (int k = 0; k < c->op->nparams; k++) {
    const mt_param *p = &c->op->param[k];
    const bool required = p->type <= MT_PARAM_LIST && p->type != MT_PARAM_OPTIONAL;
    if (required || n >= sizeof names) continue;
    n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", p->name);
  }
  return mtl_argerror(c->L, c->options, c->fname,
                      "unknown option '%.40s'; '%s' takes %s", key, public_name(c->op),
                      names);
}

/* Put each option on the stack. given: how many parameters came by position. */
static void take_options(mtl_call *c, int given) {
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
    if (c->named >> k & 1u) {
      mtl_argerror(L, c->options, c->fname, "option '%s' is given by another name, too",
                   key);
    }
    lua_insert(L, -2); /* the value stays below the key */
    c->at[k] = lua_gettop(L) - 1;
    c->given |= 1u << k;
    c->named |= 1u << k;
  }
}

static bool takes_several(const mt_param *p) {
  return p->type == MT_PARAM_SHAPE || p->type == MT_PARAM_INTS ||
         p->type == MT_PARAM_DIMS;
}

/* Does the table on top of the stack hold options? An empty one does where no list can
** be meant. */
static bool ends_with_options(const mtl_call *c, int count) {
  lua_State *L = c->L;
  const int top = lua_gettop(L);
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

/* Self is none of a method's arguments, as in Lua's own messages. */
static void raise_too_many(const mtl_call *c) {
  const int last = c->first + c->op->nparams;
  const int most = c->op->nparams - mtl_is_method_call(c->L);
  if (most == 0)
    mtl_argerror(c->L, last, c->fname, "too many arguments, '%s' takes none", c->fname);
  mtl_argerror(c->L, last, c->fname, "too many arguments, '%s' takes %d at most",
               c->fname, most);
}

static void place_arguments(mtl_call *c) {
  lua_State *L = c->L;
  const mt_opinfo *op = c->op;
  const int last = op->nparams - 1;
  int count = lua_gettop(L) - c->first + 1;
  if (count > 0 && lua_istable(L, -1) && ends_with_options(c, count)) {
    luaL_checkstack(L, 3 * MT_MAX_PARAMS, c->fname);
    c->options = lua_gettop(L);
    count--;
  }
  for (int k = 0; k < count && k <= last; k++) {
    if (lua_isnil(L, c->first + k)) continue;
    c->at[k] = c->first + k;
    c->given |= 1u << k;
  }
  if (count > op->nparams) {
    if (!takes_several(&op->param[last]) || lua_type(L, c->at[last]) != LUA_TNUMBER) {
      raise_too_many(c);
    }
    c->more = count - op->nparams;
  }
  if (c->options) take_options(c, count);
  const uint32_t missing = op->required & ~c->given;
  if (missing != 0) {
    const int k = __builtin_ctz(missing);
    mtl_raise_type(c, k, k < count ? "nil" : "no value");
  }
}

/* ---- inputs ---- */

static bool is_number(lua_State *L, int index) {
  return lua_type(L, index) == LUA_TNUMBER || lua_type(L, index) == LUA_TBOOLEAN;
}

/* Room for the pointers of a list. */
static void prepare_list(mtl_call *c) {
  lua_State *L = c->L;
  if (!lua_istable(L, c->at[0])) mtl_raise_type(c, 0, mtl_typename(L, c->at[0]));
  const lua_Unsigned n = lua_rawlen(L, c->at[0]);
  if (n == 0) mtl_raise_param(c, 0, "list of tensors expected, got an empty table");
  if (n > INT_MAX) mtl_raise_param(c, 0, "too many tensors");
  if (mtl_is_options(L, c->at[0])) {
    mtl_raise_param(c, 0, "options and list items in one table");
  }
  c->in = lua_newuserdatauv(L, (size_t)n * sizeof *c->in, 0);
  c->nin = (int)n;
}

/* Make tensors of the numbers among the inputs; what is neither is an error. */
static void convert_numbers(mtl_call *c, bool inplace) {
  lua_State *L = c->L;
  const mt_opinfo *op = c->op;
  bool some = false; /* one tensor at least */
  for (int k = 0; k < op->nparams; k++) {
    if (op->param[k].type > MT_PARAM_OPTIONAL || !c->at[k]) continue;
    if (!is_number(L, c->at[k])) {
      if (!mtl_to_tensor(L, c->at[k])) mtl_raise_type(c, k, mtl_typename(L, c->at[k]));
      some = true;
    } else if (!takes_number(op, k) || (inplace && k == 0)) {
      mtl_raise_type(c, k, luaL_typename(L, c->at[k]));
    }
  }
  if (!some) mtl_raise_type(c, 0, luaL_typename(L, c->at[0]));
  for (int k = 0; k < op->nparams; k++) {
    if (op->param[k].type <= MT_PARAM_OPTIONAL && c->at[k] && is_number(L, c->at[k])) {
      mtl_check_operand(L, c->at[k], c->fname);
    }
  }
}

/* False: what is given for some input is no tensor. */
static bool find_boxes(mtl_call *c) {
  bool all = true;
  for (int k = 0, left = c->op->nin; left > 0; k++) {
    const mt_param *p = &c->op->param[k];
    if (p->type > MT_PARAM_OPTIONAL) continue;
    left--;
    c->box[p->slot] = NULL;
    if (!c->at[k]) continue;
    c->box[p->slot] = mtl_to_box(c->L, c->at[k]);
    all = all && c->box[p->slot];
  }
  return all;
}

/* Everything that allocates in Lua. */
static void prepare_inputs(mtl_call *c, bool inplace) {
  if (c->op->list) {
    prepare_list(c);
    return;
  }
  if (!find_boxes(c)) {
    convert_numbers(c, inplace);
    find_boxes(c);
  }
  c->in = c->few;
  c->nin = c->op->nin;
}

static void read_list(mtl_call *c) {
  lua_State *L = c->L;
  for (int i = 0; i < c->nin; i++) {
    lua_rawgeti(L, c->at[0], i + 1);
    c->in[i] = mtl_to_tensor(L, -1);
    if (!c->in[i]) {
      mtl_text e;
      mtl_say(&e, "tensor expected at [%d] of the list, got %s", i + 1,
              mtl_typename(L, -1));
      mtl_raise_param(c, 0, e.s);
    }
    lua_pop(L, 1);
  }
}

static void raise_freed(const mtl_call *c) {
  for (int k = 0; k < c->op->nparams; k++) {
    const mt_param *p = &c->op->param[k];
    if (p->type > MT_PARAM_OPTIONAL || !c->at[k]) continue;
    if (!c->box[p->slot]->tensor) mtl_raise_type(c, k, "freed tensor");
  }
}

/* Nothing is allocated in Lua from here to the op's end. */
static void read_inputs(mtl_call *c) {
  if (c->op->list) {
    read_list(c);
    return;
  }
  for (int i = 0; i < c->nin; i++) {
    const mtl_box *b = c->box[i];
    if (b && !b->tensor) raise_freed(c);
    c->in[i] = b ? b->tensor : NULL;
  }
}

/* ---- calls ---- */

static void hold(const mtl_call *c) {
  for (int i = 0; i < c->nin; i++) mt_retain(c->in[i]);
}

static void let_go(const mtl_call *c) {
  for (int i = 0; i < c->nin; i++) mt_release(c->in[i]);
}

int mtl_call_op_of(lua_State *L, mtl_state *s, mt_op op, int first, const char *fname) {
  mtl_call c;
  mt_tensor **result[MT_MAX_OUTPUTS], *out[MT_MAX_OUTPUTS] = {NULL};
  begin(&c, L, op, first, fname);
  int nout = c.op->nout;
  place_arguments(&c);
  prepare_inputs(&c, false);
  for (int i = 0; i < nout; i++) result[i] = mtl_new_tensor_of(L, s);
  read_inputs(&c);
  mtl_read_attributes(&c);
  hold(&c);
  const mt_status status = mt_apply(&s->ctx, op, c.nin, c.in, c.attr, out, &nout);
  let_go(&c);
  if (status != MT_OK) return raise_last(&c);
  for (int i = 0; i < nout; i++) *result[i] = out[i];
  if (nout != c.op->nout) lua_settop(L, lua_gettop(L) - c.op->nout + nout);
  return nout;
}

int mtl_call_op_inplace_of(lua_State *L, mtl_state *s, mt_op op, int first,
                           const char *fname) {
  mtl_call c;
  begin(&c, L, op, first, fname);
  place_arguments(&c);
  prepare_inputs(&c, true);
  read_inputs(&c);
  mtl_read_attributes(&c);
  hold(&c);
  const mt_status status = mt_apply_inplace(&s->ctx, op, c.nin, c.in, c.attr);
  let_go(&c);
  if (status != MT_OK) return raise_last(&c);
  lua_pushvalue(L, first);
  return 1;
}

int mtl_call_op(lua_State *L, mt_op op, int first, const char *fname) {
  return mtl_call_op_of(L, mtl_state_of(L), op, first, fname);
}
