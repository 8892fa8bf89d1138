/* runtime/bind/arithmetic.c -- the metamethods of tensors: + - * / // % ^ & | ~ << >> #. */
#include "runtime/bind/args.h"

#include <stdio.h>

static const struct {
  const char *event, *sign;
  mt_op op;
} OPERATORS[] = {
    {"__add", "+", MT_OP_add},
    {"__sub", "-", MT_OP_sub},
    {"__mul", "*", MT_OP_mul},
    {"__div", "/", MT_OP_div},
    {"__idiv", "//", MT_OP_floordiv},
    {"__mod", "%", MT_OP_remainder},
    {"__pow", "^", MT_OP_pow},
    {"__band", "&", MT_OP_bitwise_and},
    {"__bor", "|", MT_OP_bitwise_or},
    {"__bxor", "~", MT_OP_bitwise_xor},
    {"__shl", "<<", MT_OP_bitwise_left_shift},
    {"__shr", ">>", MT_OP_bitwise_right_shift},
    {"__unm", "-", MT_OP_neg},
    {"__bnot", "~", MT_OP_bitwise_not},
};

static bool is_number(lua_State *L, int index) {
  return lua_type(L, index) == LUA_TNUMBER || lua_isboolean(L, index);
}

/* "tensor of shape [2, 3]", "string" */
static void describe(lua_State *L, int index, mtl_text *e) {
  const mt_tensor *t = mtl_to_tensor(L, index);
  if (t)
    mtl_say(e, "tensor of shape %.300s", mt_view_text(&t->v));
  else
    mtl_say(e, "%s", mtl_typename(L, index));
}

static int raise_operands(lua_State *L, int nin, const char *sign) {
  mtl_text a, b;
  describe(L, 1, &a);
  if (nin == 1) return luaL_error(L, "'%s' does not take a %s", sign, a.s);
  describe(L, 2, &b);
  return luaL_error(L, "'%s' does not take a %s and a %s", sign, a.s, b.s);
}

/* What the op says names its arguments; an operator has none. */
static int raise_result(lua_State *L, const char *sign) {
  mt_error *e = mt_last_error();
  if (e->status == MT_ELUA) return mtl_raise(L, sign);
  return luaL_error(L, "'%s': %s", sign, e->text);
}

/* y = a + b, y = -x; upvalue: the place in OPERATORS. Lua calls a metamethod of one operand
** with that operand twice. */
static int operate(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const lua_Integer which = lua_tointeger(L, lua_upvalueindex(1));
  const mt_op op = OPERATORS[which].op;
  const char *sign = OPERATORS[which].sign;
  const int nin = mt_op_info(op)->nin;
  mt_tensor *in[2], *y;
  lua_settop(L, nin);
  for (int i = 1; i <= nin; i++) {
    if (is_number(L, i))
      mtl_check_operand(L, i, sign);
    else if (!mtl_to_tensor(L, i))
      return raise_operands(L, nin, sign);
  }
  mt_tensor **result = mtl_new_tensor(L);
  for (int i = 0; i < nin; i++) { /* a finalizer may have freed one meanwhile */
    in[i] = mtl_to_tensor(L, i + 1);
    if (!in[i]) return raise_operands(L, nin, sign);
  }
  for (int i = 0; i < nin; i++) mt_retain(in[i]);
  const mt_status status = mt_apply(ctx, op, nin, in, NULL, &y, NULL);
  for (int i = 0; i < nin; i++) mt_release(in[i]);
  if (status != MT_OK) return raise_result(L, sign);
  *result = y;
  return 1;
}

/* n = #x: the size of dim 1 */
static int tensor_len(lua_State *L) {
  const mt_tensor *x = mtl_check_tensor(L, 1, "#");
  if (x->v.ndim == 0) return luaL_error(L, "'#': a 0-dim tensor has no length");
  lua_pushinteger(L, x->v.shape[0]);
  return 1;
}

/* a < b, a <= b: errors, for Lua would make one boolean of the result */
static int tensor_order(lua_State *L) {
  const char *sign = lua_tostring(L, lua_upvalueindex(1));
  const char *swapped = sign[1] ? "ge" : "gt", *plain = sign[1] ? "le" : "lt";
  return luaL_error(
      L,
      "'%s' compares no tensors, since Lua makes one boolean of its result; "
      "a:%s(b), or a:%s(b) the other way round, compare elements",
      sign, plain, swapped);
}

/* stack: module */
void mtl_open_arithmetic(lua_State *L) {
  mtl_push_metatable(L);
  for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++) {
    lua_pushinteger(L, (lua_Integer)i);
    lua_pushcclosure(L, operate, 1);
    lua_setfield(L, -2, OPERATORS[i].event);
  }
  lua_pushcfunction(L, tensor_len);
  lua_setfield(L, -2, "__len");
  lua_pushliteral(L, "<");
  lua_pushcclosure(L, tensor_order, 1);
  lua_setfield(L, -2, "__lt");
  lua_pushliteral(L, "<=");
  lua_pushcclosure(L, tensor_order, 1);
  lua_setfield(L, -2, "__le");
  lua_pop(L, 1);
}
