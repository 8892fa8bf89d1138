/* runtime/bind/arithmetic.c -- the metamethods of tensors: + - * / // % ^ & | ~ << >> #. */
#include <stdio.h>

#include "runtime/bind/args.h"
#include "runtime/bind/forms.h"
#include "runtime/bind/state.h"

typedef struct operation {
  const char *event, *sign;
  mt_op op;
  int nin;
} operation;

static const operation OPERATORS[] = {
    {"__add", "+", MT_OP_add, 2},
    {"__sub", "-", MT_OP_sub, 2},
    {"__mul", "*", MT_OP_mul, 2},
    {"__div", "/", MT_OP_div, 2},
    {"__idiv", "//", MT_OP_floordiv, 2},
    {"__mod", "%", MT_OP_remainder, 2},
    {"__pow", "^", MT_OP_pow, 2},
    {"__band", "&", MT_OP_bitwise_and, 2},
    {"__bor", "|", MT_OP_bitwise_or, 2},
    {"__bxor", "~", MT_OP_bitwise_xor, 2},
    {"__shl", "<<", MT_OP_bitwise_left_shift, 2},
    {"__shr", ">>", MT_OP_bitwise_right_shift, 2},
    {"__unm", "-", MT_OP_neg, 1},
    {"__bnot", "~", MT_OP_bitwise_not, 1},
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

/* Lua asks the left operand first. Where that is a tensor, and the right one is something
** else with the operator, as a value that mt.fuse traces: the right one's turn. */
static bool right_operates(lua_State *L, const operation *o) {
  if (o->nin < 2 || mtl_is_tensor(L, 2)) return false;
  if (!lua_istable(L, 2) && !lua_isuserdata(L, 2)) return false;
  if (luaL_getmetafield(L, 2, o->event) == LUA_TNIL) return false;
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return true;
}

/* Make tensors of the numbers among the operands; what is neither is an error. */
static void prepare_operands(lua_State *L, const operation *o) {
  for (int i = 1; i <= o->nin; i++) {
    if (is_number(L, i))
      mtl_check_operand(L, i, o->sign);
    else if (!mtl_to_tensor(L, i))
      raise_operands(L, o->nin, o->sign);
  }
}

static bool find_boxes(lua_State *L, int n, mtl_box **box) {
  for (int i = 0; i < n; i++) {
    box[i] = mtl_to_box(L, i + 1);
    if (!box[i]) return false;
  }
  return true;
}

/* y = a + b, y = -x; upvalue: its place in OPERATORS. Lua calls a metamethod of one operand
** with that operand twice. */
static int operate(lua_State *L) {
  mtl_state *s = mtl_enter_state(L);
  const operation *o = lua_touserdata(L, lua_upvalueindex(1));
  mtl_box *box[2];
  mt_tensor *in[2], *y;
  lua_settop(L, o->nin);
  if (!find_boxes(L, o->nin, box)) {
    if (right_operates(L, o)) return 1;
    prepare_operands(L, o);
    find_boxes(L, o->nin, box);
  }
  mt_tensor **result = mtl_new_tensor_of(L, s);
  for (int i = 0; i < o->nin; i++) { /* a finalizer may have freed one meanwhile */
    in[i] = box[i]->tensor;
    if (!in[i]) return raise_operands(L, o->nin, o->sign);
  }
  mtl_text e;
  if (o->op == MT_OP_pow && mtl_is_fraction(in[0], in[1], &e))
    return luaL_error(L, "'^': %s", e.s);
  for (int i = 0; i < o->nin; i++) mt_retain(in[i]);
  const mt_status status = mt_apply(&s->ctx, o->op, o->nin, in, NULL, &y, NULL);
  for (int i = 0; i < o->nin; i++) mt_release(in[i]);
  if (status != MT_OK) return raise_result(L, o->sign);
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
    lua_pushlightuserdata(L, (void *)&OPERATORS[i]);
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
