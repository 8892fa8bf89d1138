/* runtime/bind/ops.c -- every row of the op table as mt.NAME and Tensor:NAME; mt.ops().
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/forms.h"
#include "runtime/bind/state.h"

/* A function of Lua: an op, and the name that it is called by. */
typedef struct callee {
  mt_op op;
  const mtl_form *form; /* [optional] */
  char name[36];
} callee;

/* A table among the first arguments may stand for a tensor, as mt.fuse's do: then its
** metatable's __op gets the op's name and the arguments. 0: none does. */
static int stands_in(lua_State *L, const char *name) {
  const int n = lua_gettop(L) < 3 ? lua_gettop(L) : 3;
  for (int i = 1; i <= n; i++) {
    if (!lua_istable(L, i) || luaL_getmetafield(L, i, "__op") == LUA_TNIL) continue;
    lua_insert(L, 1);
    lua_pushstring(L, name);
    lua_insert(L, 2);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
  }
  return 0;
}

static mt_op op_of(lua_State *L, const callee *f) {
  return f->form ? mtl_choose_form(L, f->form, f->name) : f->op;
}

static bool has_table(lua_State *L) {
  return lua_istable(L, 1) || lua_istable(L, 2) || lua_istable(L, 3);
}

/* y... = mt.NAME(inputs and attributes...) or x:NAME(...); upvalue: a callee */
static int call_op(lua_State *L) {
  mtl_state *s = mtl_enter_state(L);
  const callee *f = lua_touserdata(L, lua_upvalueindex(1));
  if (has_table(L) && stands_in(L, f->name)) return 1;
  return mtl_call_op_of(L, s, op_of(L, f), 1, f->name);
}

/* x:NAME_(...): the result overwrites x, which is returned; upvalue: a callee */
static int call_op_inplace(lua_State *L) {
  mtl_state *s = mtl_enter_state(L);
  const callee *f = lua_touserdata(L, lua_upvalueindex(1));
  return mtl_call_op_inplace_of(L, s, op_of(L, f), 1, f->name);
}

/* {i...} = mt.where(cond): the positions of what is not 0, a vector for each dim: a key
** for tensors of that shape. Upvalue: a callee */
static int call_where(lua_State *L) {
  if (lua_gettop(L) > 1) return call_op(L);
  mtl_enter(L);
  return mtl_where_true(L);
}

/* How many dims x at 1 has, of which t takes at most 2. */
static int check_flat(lua_State *L, const char *fname) {
  const mt_tensor *x = mtl_check_tensor(L, 1, fname);
  if (x->v.ndim > 2) {
    mtl_argerror(L, 1, fname, "at most 2 dims expected, got shape %s",
                 mt_view_text(&x->v));
  }
  lua_settop(L, 1);
  return x->v.ndim;
}

/* y = x:t(): a matrix transposed; what has fewer dims stays */
static int tensor_t(lua_State *L) {
  mtl_enter(L);
  if (check_flat(L, "t") < 2) return mtl_call_op(L, MT_OP__alias, 1, "t");
  lua_pushinteger(L, 1);
  lua_pushinteger(L, 2);
  return mtl_call_op(L, MT_OP_transpose, 1, "t");
}

/* x = x:t_(): x itself becomes x:t() */
static int tensor_t_inplace(lua_State *L) {
  mtl_state *s = mtl_enter_state(L);
  if (check_flat(L, "t_") < 2) return 1;
  lua_pushinteger(L, 1);
  lua_pushinteger(L, 2);
  return mtl_call_op_inplace_of(L, s, MT_OP_transpose, 1, "t_");
}

/* y = x:mT(): the last two dims exchanged */
static int tensor_matrix_transpose(lua_State *L) {
  mtl_enter(L);
  const mt_tensor *x = mtl_check_tensor(L, 1, "mT");
  if (x->v.ndim < 2) {
    return mtl_argerror(L, 1, "mT", "at least 2 dims expected, got shape %s",
                        mt_view_text(&x->v));
  }
  lua_settop(L, 1);
  lua_pushinteger(L, -2);
  lua_pushinteger(L, -1);
  return mtl_call_op(L, MT_OP_transpose, 1, "mT");
}

/* Names that people bring along. Each is one of ours under another name, never a
** second behaviour; an in-place form comes with it. */
static const struct {
  const char *name;
  mt_op op;
} ALIASES[] = {
    {"mm", MT_OP_matmul},  /* PyTorch and torch7: two matrices */
    {"mv", MT_OP_matmul},  /* a matrix and a vector */
    {"bmm", MT_OP_matmul}, /* batches of matrices */
    {"dot", MT_OP_matmul}, /* two vectors */
    {"cmul", MT_OP_mul},   /* torch7, where * was the matrix product */
    {"cdiv", MT_OP_div},   /* torch7 */
    /* PyTorch's second names, most of which are NumPy's first */
    {"absolute", MT_OP_abs},
    {"arccos", MT_OP_acos},
    {"arccosh", MT_OP_acosh},
    {"arcsin", MT_OP_asin},
    {"arcsinh", MT_OP_asinh},
    {"arctan", MT_OP_atan},
    {"arctan2", MT_OP_atan2},
    {"arctanh", MT_OP_atanh},
    {"broadcast_to", MT_OP_expand},
    {"clip", MT_OP_clamp},
    {"concat", MT_OP_cat},
    {"concatenate", MT_OP_cat},
    {"divide", MT_OP_div},
    {"expit", MT_OP_sigmoid},
    {"fix", MT_OP_trunc},
    {"gammaln", MT_OP_lgamma},
    {"psi", MT_OP_digamma},
    {"sgn", MT_OP_sign},
    {"trapz", MT_OP_trapezoid},
    {"vdot", MT_OP_matmul},
    {"floor_divide", MT_OP_floordiv},
    {"greater", MT_OP_gt},
    {"greater_equal", MT_OP_ge},
    {"less", MT_OP_lt},
    {"less_equal", MT_OP_le},
    {"multiply", MT_OP_mul},
    {"negative", MT_OP_neg},
    {"not_equal", MT_OP_ne},
    {"ravel", MT_OP_flatten},
    {"subtract", MT_OP_sub},
    {"swapaxes", MT_OP_transpose},
    {"swapdims", MT_OP_transpose},
    {"true_divide", MT_OP_div},
    {"col2im", MT_OP_fold},
    {"expand_dims", MT_OP_unsqueeze},
    {"ger", MT_OP_outer},
    {"moveaxis", MT_OP_movedim},
    {"multi_dot", MT_OP_chain_matmul},
    {"row_stack", MT_OP_vstack},
};

/* ---- mt.ops() ---- */

static const char *kind_name(mt_op_kind kind) {
  static const char *const names[] = {"unary",   "predicate", "binary",
                                      "compare", "ternary",   "custom",
                                      "random",  "view",      "composite"};
  return names[kind];
}

static const char *class_name(mt_dtypes dtypes) {
  static const char *const names[] = {"float", "any", "number", "int"};
  return names[dtypes];
}

static const char *type_name(const mt_param *p) {
  switch (p->type) {
  case MT_PARAM_INPUT:
  case MT_PARAM_OPTIONAL: return "tensor";
  case MT_PARAM_LIST: return "tensors";
  case MT_PARAM_INT: return "int";
  case MT_PARAM_FLOAT: return "float";
  case MT_PARAM_NUMBER: return "number";
  case MT_PARAM_BOOL: return "bool";
  case MT_PARAM_DIM: return "dim";
  case MT_PARAM_NEWDIM: return "newdim";
  case MT_PARAM_DIMS: return "dims";
  case MT_PARAM_INDEX: return "index";
  case MT_PARAM_INTS: return "ints";
  case MT_PARAM_PAIR: return "pair";
  case MT_PARAM_SHAPE: return "shape";
  case MT_PARAM_DTYPE: return "dtype";
  case MT_PARAM_CHOICE: return p->choices;
  }
  return "";
}

/* Push a preset as Lua would write it; false: there is none. */
static bool push_preset(lua_State *L, const mt_param *p) {
  const mt_attr *v = &p->preset;
  if (p->type <= MT_PARAM_LIST || v->n < 0) return false;
  switch (p->type) {
  case MT_PARAM_BOOL: lua_pushboolean(L, v->i[0] != 0); return true;
  case MT_PARAM_FLOAT: lua_pushnumber(L, v->f); return true;
  case MT_PARAM_NUMBER:
    if (v->is_int)
      lua_pushinteger(L, v->i[0]);
    else
      lua_pushnumber(L, v->f);
    return true;
  case MT_PARAM_DIM:
  case MT_PARAM_NEWDIM:
    lua_pushinteger(L, v->i[0] < 0 ? v->i[0] : v->i[0] + 1);
    return true;
  case MT_PARAM_DTYPE: lua_pushstring(L, mt_dtype_name((mt_dtype)v->i[0])); return true;
  case MT_PARAM_CHOICE: {
    const char *at = p->choices;
    for (int64_t i = v->i[0]; i > 0; i--) at = strchr(at, '|') + 1;
    lua_pushlstring(L, at, strcspn(at, "|"));
    return true;
  }
  default: lua_pushinteger(L, v->i[0]); return true;
  }
}

static void set_string(lua_State *L, const char *key, const char *value) {
  if (!value) return;
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

static void set_flag(lua_State *L, const char *key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}

static void push_param(lua_State *L, const mt_param *p) {
  lua_newtable(L);
  set_string(L, "name", p->name);
  set_string(L, "type", type_name(p));
  set_flag(L, "optional", !p->required);
  if (p->type <= MT_PARAM_LIST) set_flag(L, "list", p->type == MT_PARAM_LIST);
  if (push_preset(L, p)) lua_setfield(L, -2, "default");
}

static void push_row(lua_State *L, const mt_opinfo *op) {
  lua_newtable(L);
  set_string(L, "name", op->name);
  set_string(L, "kind", kind_name(op->kind));
  set_string(L, "dtypes", class_name(op->dtypes));
  if (op->for_bool != MT_BOOL) set_string(L, "for_bool", mt_dtype_name(op->for_bool));
  set_flag(L, "truth", op->truth);
  set_string(L, "signature", op->signature);
  set_string(L, "doc", op->doc);
  set_string(L, "value", op->formula[0]);
  set_flag(L, "differentiable", op->differentiable);
  set_flag(L, "inplace", op->inplace);
  set_flag(L, "internal", op->internal);
  set_flag(L, "random", op->kind == MT_KIND_RANDOM || op->op == MT_OP_dropout);
  lua_createtable(L, op->nparams, 0); /* params: all, in the order of the call */
  lua_createtable(L, op->nin, 0);
  lua_createtable(L, op->nattr, 0);
  for (int k = 0; k < op->nparams; k++) {
    push_param(L, &op->param[k]);
    lua_pushvalue(L, -1);
    lua_rawseti(L, -5, k + 1);
    lua_rawseti(L, op->param[k].type <= MT_PARAM_LIST ? -3 : -2, op->param[k].slot + 1);
  }
  lua_setfield(L, -4, "attrs");
  lua_setfield(L, -3, "inputs");
  lua_setfield(L, -2, "params");
  lua_createtable(L, op->nout, 0);
  for (int i = 0; i < op->nout; i++) {
    lua_pushstring(L, op->out_name[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "outputs");
  if (op->kind > MT_KIND_TERNARY) return;
  lua_createtable(L, op->nin, 0); /* one for each input; false: nothing flows */
  for (int i = 1; i <= op->nin; i++) {
    if (op->formula[i])
      lua_pushstring(L, op->formula[i]);
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, -2, i);
  }
  lua_setfield(L, -2, "gradients");
}

/* list = mt.ops(): the live op table, in the order of ops.def */
static int mt_ops(lua_State *L) {
  lua_createtable(L, MT_OP_COUNT, 0);
  for (int op = 0; op < MT_OP_COUNT; op++) {
    push_row(L, mt_op_info((mt_op)op));
    lua_rawseti(L, -2, op + 1);
  }
  return 1;
}

/* ---- registration ---- */

static void push_callee(lua_State *L, lua_CFunction fn, mt_op op, const char *name,
                        const char *bar) {
  callee *f = lua_newuserdatauv(L, sizeof *f, 0);
  f->op = op;
  f->form = mtl_form_of(op);
  snprintf(f->name, sizeof f->name, "%s%s", name, bar);
  lua_pushcclosure(L, fn, 1);
}

/* stack: module, methods */
static void register_op(lua_State *L, const mt_opinfo *op, const char *name) {
  char with_bar[40];
  push_callee(L, op->op == MT_OP_where ? call_where : call_op, op->op, name, "");
  if (!op->list) {
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
  }
  lua_setfield(L, -3, name);
  if (!op->inplace || op->list) return;
  snprintf(with_bar, sizeof with_bar, "%s_", name);
  push_callee(L, call_op_inplace, op->op, name, "_");
  lua_setfield(L, -2, with_bar);
}

static const luaL_Reg methods[] = {{"t", tensor_t},
                                   {"t_", tensor_t_inplace},
                                   {"mT", tensor_matrix_transpose},
                                   {NULL, NULL}};

/* stack: module */
void mtl_open_ops(lua_State *L) {
  if (mt_op_table_check() != MT_OK) luaL_error(L, "%s", mt_last_error()->text);
  lua_pushcfunction(L, mt_ops);
  lua_setfield(L, -2, "ops");
  mtl_push_methods(L);
  for (int op = 0; op < MT_OP_COUNT; op++) {
    const mt_opinfo *info = mt_op_info((mt_op)op);
    if (!info->internal) register_op(L, info, info->name);
  }
  for (size_t i = 0; i < sizeof ALIASES / sizeof *ALIASES; i++) {
    register_op(L, mt_op_info(ALIASES[i].op), ALIASES[i].name);
  }
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
}
