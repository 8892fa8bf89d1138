/* runtime/bind/forms.c -- calls that another row of the op table serves, told by their
** arguments: clamp to tensors, sums with alpha, rounded quotients and the like. */
#include "runtime/bind/forms.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct mtl_form {
  mt_op op, instead;
  /* Is it this form? May make the arguments those of the other row. */
  bool (*takes)(lua_State *L, const char *fname);
};

/* Among the options in the table at index? */
static bool holds_tensor(lua_State *L, int index) {
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const bool is = lua_type(L, -2) == LUA_TSTRING && mtl_is_tensor(L, -1);
    lua_pop(L, 1);
    if (!is) continue;
    lua_pop(L, 1);
    return true;
  }
  return false;
}

/* Is there an option of this name in a table that is the last argument? */
static bool has_option(lua_State *L, const char *name) {
  if (lua_gettop(L) < 2 || !lua_istable(L, -1)) return false;
  const bool has = lua_getfield(L, -1, name) != LUA_TNIL;
  lua_pop(L, 1);
  return has;
}

/* A tensor behind the first argument. */
static bool tensor_behind(lua_State *L, const char *fname) {
  (void)fname;
  const int top = lua_gettop(L);
  for (int i = 2; i <= top && i <= 3; i++)
    if (mtl_is_tensor(L, i) || (lua_istable(L, i) && holds_tensor(L, i))) return true;
  return false;
}

static bool tensor_second(lua_State *L, const char *fname) {
  (void)fname;
  return mtl_is_tensor(L, 2);
}

/* view'int32', view{dtype = 'int32'} */
static bool text_behind(lua_State *L, const char *fname) {
  (void)fname;
  const int type = lua_type(L, 2);
  return type == LUA_TSTRING || (type == LUA_TTABLE && has_option(L, "dtype"));
}

/* More than the inputs, of which there are n; what is nil does not count. */
static bool more_than(lua_State *L, int n) {
  while (lua_gettop(L) > n && lua_isnil(L, -1)) lua_pop(L, 1);
  return lua_gettop(L) > n;
}

/* bernoulli(x) draws by x, x:bernoulli_() by 0.5. */
static bool probabilities_given(lua_State *L, const char *fname) {
  if (tensor_behind(L, fname)) return true;
  return fname[strlen(fname) - 1] != '_' && !more_than(L, 1);
}

static bool decimals_given(lua_State *L, const char *fname) {
  (void)fname;
  return more_than(L, 1);
}

static bool mode_given(lua_State *L, const char *fname) {
  (void)fname;
  return more_than(L, 2) || has_option(L, "rounding_mode");
}

static bool alpha_given(lua_State *L, const char *fname) {
  (void)fname;
  return more_than(L, 4) || has_option(L, "alpha");
}

/* ---- sums with alpha ---- */

static bool is_whole(lua_State *L, int index) {
  const mt_tensor *t = mtl_to_tensor(L, index);
  if (t) return !MT_IS_FLOAT(t->v.dtype);
  return lua_isboolean(L, index) || lua_isinteger(L, index);
}

/* The options in the table on top, b and alpha, by position. */
static void take_options(lua_State *L, const char *fname) {
  const int table = lua_gettop(L);
  lua_settop(L, 4);
  if (table < 4) lua_rotate(L, table, 4 - table); /* the table is at 4 */
  lua_pushnil(L);
  while (lua_next(L, 4)) {
    const char *const key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    const int at = strcmp(key, "alpha") == 0 ? 3 : strcmp(key, "b") == 0 ? 2 : 0;
    if (at == 0)
      mtl_argerror(L, table, fname, "unknown option '%.40s'; '%s' takes alpha", key,
                   fname);
    if (!lua_isnil(L, at))
      mtl_argerror(L, table, fname, "option '%s' is given by position, too", key);
    lua_replace(L, at);
  }
  lua_settop(L, 3);
}

static bool are_bools(lua_State *L) {
  const mt_tensor *a = mtl_to_tensor(L, 1), *b = mtl_to_tensor(L, 2);
  return a && b && a->v.dtype == MT_BOOL && b->v.dtype == MT_BOOL;
}

/* a, b, alpha -> a, b, 1, alpha as addcmul takes them; of integers a whole alpha */
static bool with_alpha(lua_State *L, const char *fname, bool minus) {
  if (!more_than(L, 2) && !has_option(L, "alpha")) return false;
  if (lua_gettop(L) > 3)
    mtl_argerror(L, 4, fname, "too many arguments, '%s' takes %d at most", fname,
                 mtl_is_method_call(L) ? 2 : 3);
  if (lua_istable(L, -1)) take_options(L, fname);
  if (lua_isnil(L, 3)) return lua_settop(L, 2), false;
  if (lua_type(L, 3) != LUA_TNUMBER)
    mtl_argerror(L, 3, fname, "alpha: number expected, got %s", mtl_typename(L, 3));
  int fits;
  const lua_Integer whole = lua_tointegerx(L, 3, &fits);
  const double given = lua_tonumber(L, 3), alpha = given == given ? given : (double)NAN;
  if (!fits && is_whole(L, 1) && is_whole(L, 2))
    mtl_argerror(L, 3, fname, "alpha is %.14g, want a whole number beside integers",
                 alpha);
  if (are_bools(L)) {
    if (alpha != 1)
      mtl_argerror(L, 3, fname, "alpha is %.14g, want 1 beside bool", alpha);
    return lua_settop(L, 2), false;
  }
  lua_settop(L, 2);
  lua_pushinteger(L, 1);
  if (fits)
    lua_pushinteger(L, minus ? (lua_Integer)(0 - (lua_Unsigned)whole) : whole);
  else
    lua_pushnumber(L, minus ? -alpha : alpha);
  return true;
}

static bool added(lua_State *L, const char *fname) {
  return with_alpha(L, fname, false);
}

static bool subtracted(lua_State *L, const char *fname) {
  return with_alpha(L, fname, true);
}

/* ---- numbers that are stored ---- */

/* Never another form, but an error where x's dtype does not hold the value: the row's
** kernel takes the nearest number that it does. */
static bool stores_value(lua_State *L, const char *fname) {
  const mt_tensor *x = mtl_to_tensor(L, 1);
  if (!x || MT_IS_FLOAT(x->v.dtype)) return false;
  const mt_dtype dtype = x->v.dtype; /* a finalizer may free x from here on */
  const bool named = has_option(L, "value");
  const int top = lua_gettop(L), at = named ? top + 1 : 3;
  if (named) lua_getfield(L, top, "value");
  if (lua_type(L, at) == LUA_TNUMBER) {
    const mt_attr value = lua_isinteger(L, at) ? mt_attr_i(lua_tointeger(L, at))
                                               : mt_attr_f(lua_tonumber(L, at));
    if (mt_check_holds(dtype, &value, 0) != MT_OK)
      mtl_argerror(L, named ? top : 3, fname, "%s", mt_last_error()->text);
  }
  lua_settop(L, top);
  return false;
}

static void say_fraction(int64_t power, mtl_text *e) {
  mtl_say(e,
          "integers to the power of %" PRId64 " have fractions; a float, %" PRId64
          ".0, gives floats",
          power, power);
}

bool mtl_is_fraction(const mt_tensor *a, const mt_tensor *b, mtl_text *e) {
  if (!b->wrapped || !MT_IS_INT(b->v.dtype) || MT_IS_FLOAT(a->v.dtype)) return false;
  const int64_t power = mt_load_i64(b->v.dtype, b->v.data);
  if (power < 0) say_fraction(power, e);
  return power < 0;
}

/* Never another form, but an error for integers to a negative integer. */
static bool takes_power(lua_State *L, const char *fname) {
  const mt_tensor *x = mtl_to_tensor(L, 1);
  mtl_text e;
  if (!x || MT_IS_FLOAT(x->v.dtype) || !lua_isinteger(L, 2) || lua_tointeger(L, 2) >= 0)
    return false;
  say_fraction(lua_tointeger(L, 2), &e);
  return mtl_argerror(L, 2, fname, "%s", e.s) != 0;
}

static const mtl_form FORMS[] = {
    {MT_OP_clamp, MT_OP__clamp, tensor_behind},
    {MT_OP_max, MT_OP_maximum, tensor_second},
    {MT_OP_min, MT_OP_minimum, tensor_second},
    {MT_OP_repeat_interleave, MT_OP__repeat_interleave, tensor_behind},
    {MT_OP_bernoulli, MT_OP__bernoulli, probabilities_given},
    {MT_OP_view, MT_OP__view, text_behind},
    {MT_OP_round, MT_OP__round, decimals_given},
    {MT_OP_div, MT_OP__div, mode_given},
    {MT_OP_index_add, MT_OP__index_add, alpha_given},
    {MT_OP_add, MT_OP_addcmul, added},
    {MT_OP_sub, MT_OP_addcmul, subtracted},
    {MT_OP_threshold, MT_OP_threshold, stores_value},
    {MT_OP_pow, MT_OP_pow, takes_power},
};

const mtl_form *mtl_form_of(mt_op op) {
  for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
    if (FORMS[i].op == op) return &FORMS[i];
  return NULL;
}

mt_op mtl_choose_form(lua_State *L, const mtl_form *form, const char *fname) {
  return form->takes(L, fname) ? form->instead : form->op;
}
