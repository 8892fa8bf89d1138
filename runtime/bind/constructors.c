/* runtime/bind/constructors.c -- new tensors: constants, ranges, random numbers,
** tables, and like another. */
#include <math.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/guard.h"

/* ---- what all of them share ---- */

/* A new tensor is written to in place by an op. */
static mt_status run_into(mt_context *ctx, mt_op op, mt_tensor *t, const mt_attr *given,
                          int n) {
  mt_attr attr[MT_MAX_ATTRS];
  mt_op_presets(op, attr);
  for (int i = 0; i < n; i++) attr[i] = given[i];
  mt_tensor *const in[1] = {t};
  mt_tensor *out[MT_MAX_OUTPUTS] = {t};
  return mt_dispatch(ctx, op, 1, in, attr, out, NULL);
}

mt_status mtl_fill(mt_context *ctx, mt_tensor *t, double value) {
  const mt_attr attr = mt_attr_f(value);
  return run_into(ctx, MT_OP_fill, t, &attr, 1);
}

/* What a constructor makes: where it stands, and how. */
typedef struct maker {
  lua_State *L;
  const char *fname;
  mt_context *ctx;
  mtl_options options;
  int ndim;
  int64_t shape[MT_MAX_DIMS];
  mt_tensor *t;
} maker;

static maker begin(lua_State *L, const char *fname) {
  return (maker){.L = L, .fname = fname, .ctx = mtl_enter(L)};
}

/* Read sizes from arg on, and the options behind them. */
static void read_shape(maker *m, int arg) {
  arg += mtl_check_shape(m->L, arg, m->fname, &m->ndim, m->shape);
  m->options = mtl_check_options(m->L, arg, m->fname);
}

/* Read the tensor at 1, whose shape, dtype and device serve unless the options at
** arg say otherwise. */
static void read_like(maker *m, int arg) {
  const mt_tensor *x = mtl_check_tensor(m->L, 1, m->fname);
  m->options = mtl_check_options(m->L, arg, m->fname);
  m->ndim = x->v.ndim;
  for (int d = 0; d < m->ndim; d++) m->shape[d] = x->v.shape[d];
  if (!m->options.has_dtype) m->options.dtype = mt_dtype_of(x);
  if (!lua_istable(m->L, arg) || lua_getfield(m->L, arg, "device") == LUA_TNIL) {
    m->options.device = mt_device_of(x); /* what getfield pushed does no harm */
  }
}

static void one_dim(maker *m, int64_t size) {
  m->ndim = 1;
  m->shape[0] = size;
}

static void raise_if(const maker *m, mt_status status) {
  if (status != MT_OK) mtl_raise(m->L, m->fname);
}

/* Push the tensor, its elements not yet set. */
static void make(maker *m) {
  mt_tensor **slot = mtl_new_tensor(m->L);
  mt_guard_name(m->fname);
  raise_if(m, mt_empty(m->ctx, m->options.dtype, m->options.device, m->ndim, m->shape,
                       slot));
  m->t = *slot;
}

/* stack: the tensor on top; return it */
static int finish(maker *m) {
  if (m->options.requires_grad) raise_if(m, mt_set_requires_grad(m->t, true));
  return 1;
}

static int finish_filled(maker *m, mt_attr value) {
  make(m);
  raise_if(m, run_into(m->ctx, MT_OP_fill, m->t, &value, 1));
  return finish(m);
}

/* Make the tensor with values drawn by op. */
static int finish_drawn(maker *m, mt_op op, int n, const mt_attr *attr) {
  if ((op == MT_OP_uniform || op == MT_OP_normal) && !MT_IS_FLOAT(m->options.dtype)) {
    return luaL_error(m->L, "%s: a float dtype expected, got %s", m->fname,
                      mt_dtype_name(m->options.dtype));
  }
  make(m);
  raise_if(m, run_into(m->ctx, op, m->t, attr, n));
  return finish(m);
}

/* The number or boolean at arg. */
static mt_attr check_value(lua_State *L, int arg, const char *fname) {
  if (lua_type(L, arg) == LUA_TBOOLEAN) return mt_attr_i(lua_toboolean(L, arg));
  if (lua_type(L, arg) != LUA_TNUMBER) {
    mtl_argerror(L, arg, fname, "number expected, got %s", mtl_typename(L, arg));
  }
  if (lua_isinteger(L, arg)) return mt_attr_i(lua_tointeger(L, arg));
  return mt_attr_f(lua_tonumber(L, arg));
}

/* A number at arg, finite. */
static mt_attr check_bound(lua_State *L, int arg, const char *fname) {
  if (lua_type(L, arg) != LUA_TNUMBER) {
    mtl_argerror(L, arg, fname, "number expected, got %s", mtl_typename(L, arg));
  }
  const mt_attr x = check_value(L, arg, fname);
  if (!isfinite(x.f)) mtl_argerror(L, arg, fname, "a finite number expected");
  return x;
}

/* ---- constants ---- */

/* mt.tensor(nested[, opts]): made of a table of tables of numbers or booleans, or of
** one number or boolean. opts of all constructors: dtype, device, requires_grad */
static int mt_tensor_new(lua_State *L) {
  maker m = begin(L, "tensor");
  m.options = mtl_check_options(L, 2, m.fname);
  mtl_read_nested(L, 1, m.fname, &m.options);
  m.t = mtl_to_tensor(L, -1);
  return finish(&m);
}

/* mt.Tensor.from_table(t[, opts]): as mt.tensor, of a table only */
static int tensor_from_table(lua_State *L) {
  maker m = begin(L, "from_table");
  if (!lua_istable(L, 1)) {
    return mtl_argerror(L, 1, m.fname, "table expected, got %s", mtl_typename(L, 1));
  }
  m.options = mtl_check_options(L, 2, m.fname);
  mtl_read_nested(L, 1, m.fname, &m.options);
  m.t = mtl_to_tensor(L, -1);
  return finish(&m);
}

/* mt.Tensor(shape[, device | opts]): zeros */
static int tensor_call(lua_State *L) {
  maker m = begin(L, "Tensor");
  lua_remove(L, 1);
  const int arg = 1 + mtl_check_shape(L, 1, m.fname, &m.ndim, m.shape);
  if (lua_type(L, arg) == LUA_TSTRING) {
    m.options = mtl_check_options(L, arg + 1, m.fname);
    m.options.device = mtl_check_device(L, arg, m.fname);
  } else {
    m.options = mtl_check_options(L, arg, m.fname);
  }
  return finish_filled(&m, mt_attr_i(0));
}

/* mt.empty(sizes...[, opts]): its elements are not set. Sizes are numbers or one
** list */
static int mt_empty_new(lua_State *L) {
  maker m = begin(L, "empty");
  read_shape(&m, 1);
  make(&m);
  return finish(&m);
}

/* mt.zeros(sizes...[, opts]): filled with 0 */
static int mt_zeros(lua_State *L) {
  maker m = begin(L, "zeros");
  read_shape(&m, 1);
  return finish_filled(&m, mt_attr_i(0));
}

/* mt.ones(sizes...[, opts]): filled with 1 */
static int mt_ones(lua_State *L) {
  maker m = begin(L, "ones");
  read_shape(&m, 1);
  return finish_filled(&m, mt_attr_i(1));
}

/* mt.full(shape, value[, opts]): filled with value; shape is a list or one size; a
** boolean gives dtype bool */
static int mt_full(lua_State *L) {
  maker m = begin(L, "full");
  if (lua_type(L, 1) == LUA_TNUMBER) {
    one_dim(&m, mtl_check_int(L, 1, m.fname));
  } else {
    mtl_check_shape(L, 1, m.fname, &m.ndim, m.shape);
  }
  const mt_attr value = check_value(L, 2, m.fname);
  m.options = mtl_check_options(L, 3, m.fname);
  if (!m.options.has_dtype && lua_isboolean(L, 2)) m.options.dtype = MT_BOOL;
  return finish_filled(&m, value);
}

/* mt.eye(n[, m][, opts]): ones on the diagonal of zeros (n, m) */
static int mt_eye(lua_State *L) {
  maker m = begin(L, "eye");
  const int64_t rows = mtl_check_int(L, 1, m.fname);
  const bool square = lua_type(L, 2) != LUA_TNUMBER;
  const int64_t columns = square ? rows : mtl_check_int(L, 2, m.fname);
  m.options = mtl_check_options(L, square ? 2 : 3, m.fname);
  m.ndim = 2;
  m.shape[0] = rows;
  m.shape[1] = columns;
  finish_filled(&m, mt_attr_i(0));
  const int64_t length = rows < columns ? rows : columns;
  if (length <= 0) return 1;
  const int64_t stride = columns + 1;
  mt_tensor **diagonal = mtl_new_tensor(L);
  raise_if(&m, mt_alias(m.t, 1, &length, &stride, 0, diagonal));
  raise_if(&m, mtl_fill(m.ctx, *diagonal, 1));
  lua_pop(L, 1);
  return 1;
}

/* ---- ranges ---- */

/* How many of start, start + step, ... lie before stop; -1: more than an int64
** holds. */
static int64_t range_length(mt_attr start, mt_attr stop, mt_attr step) {
  if (start.is_int && stop.is_int && step.is_int) {
    const int64_t a = start.i[0], b = stop.i[0], s = step.i[0];
    if (s > 0 ? a >= b : a <= b) return 0;
    const uint64_t width =
        s > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    const uint64_t each = s > 0 ? (uint64_t)s : -(uint64_t)s;
    const uint64_t n = (width - 1) / each + 1;
    return n <= INT64_MAX ? (int64_t)n : -1;
  }
  const double n = ceil((stop.f - start.f) / step.f);
  if (!(n < 9.2e18)) return -1;
  return n > 0 ? (int64_t)n : 0;
}

/* start + (n - 1) * step, as an integer where one holds it. */
static mt_attr last_of(mt_attr start, mt_attr step, int64_t n) {
  int64_t last;
  if (start.is_int && step.is_int && !__builtin_mul_overflow(n - 1, step.i[0], &last) &&
      !__builtin_add_overflow(last, start.i[0], &last))
    return mt_attr_i(last);
  return mt_attr_f(start.f + (double)(n - 1) * step.f);
}

/* mt.arange(stop[, opts]), mt.arange(start, stop[, step][, opts]): start, start +
** step, ... stop excluded, as in PyTorch; start is 0 and step 1 where not given */
static int mt_arange(lua_State *L) {
  maker m = begin(L, "arange");
  int count = 1; /* leading numbers */
  while (count < 3 && lua_type(L, count + 1) == LUA_TNUMBER) count++;
  const mt_attr first = check_bound(L, 1, m.fname);
  const mt_attr start = count == 1 ? mt_attr_i(0) : first;
  const mt_attr stop = count == 1 ? first : check_bound(L, 2, m.fname);
  const mt_attr step = count < 3 ? mt_attr_i(1) : check_bound(L, 3, m.fname);
  if (step.f == 0) return mtl_argerror(L, 3, m.fname, "step is 0");
  m.options = mtl_check_options(L, count + 1, m.fname);
  const bool whole = start.is_int && step.is_int;
  if (!MT_IS_FLOAT(m.options.dtype) && !whole) {
    return luaL_error(L, "%s: %s needs integers to start from and to step by", m.fname,
                      mt_dtype_name(m.options.dtype));
  }
  const int64_t n = range_length(start, stop, step);
  if (n < 0) return luaL_error(L, "%s: too many elements", m.fname);
  if (n > 0) { /* those between lie between */
    const mt_attr last = last_of(start, step, n);
    raise_if(&m, mt_check_holds(m.options.dtype, &start, 1));
    raise_if(&m, mt_check_holds(m.options.dtype, &last, count == 1 ? 1 : 2));
  }
  one_dim(&m, n);
  make(&m);
  const mt_attr attr[2] = {start, step};
  raise_if(&m, run_into(m.ctx, MT_OP__arange, m.t, attr, 2));
  return finish(&m);
}

/* mt.linspace(start, stop, n[, opts]): n values evenly spaced, both ends included */
static int mt_linspace(lua_State *L) {
  maker m = begin(L, "linspace");
  const mt_attr attr[2] = {check_bound(L, 1, m.fname), check_bound(L, 2, m.fname)};
  one_dim(&m, mtl_check_int(L, 3, m.fname));
  m.options = mtl_check_options(L, 4, m.fname);
  if (!MT_IS_FLOAT(m.options.dtype)) {
    return luaL_error(L, "%s: a float dtype expected, got %s", m.fname,
                      mt_dtype_name(m.options.dtype));
  }
  make(&m);
  raise_if(&m, run_into(m.ctx, MT_OP__linspace, m.t, attr, 2));
  return finish(&m);
}

/* ---- random numbers ---- */

/* mt.rand(sizes...[, opts]): uniform in [0, 1) */
static int mt_rand(lua_State *L) {
  maker m = begin(L, "rand");
  read_shape(&m, 1);
  return finish_drawn(&m, MT_OP_uniform, 0, NULL);
}

/* mt.randn(sizes...[, opts]): normally distributed, mean 0, variance 1 */
static int mt_randn(lua_State *L) {
  maker m = begin(L, "randn");
  read_shape(&m, 1);
  return finish_drawn(&m, MT_OP_normal, 0, NULL);
}

/* mt.randint(low, high, sizes...[, opts]): whole numbers, both ends included; int64 */
static int mt_randint(lua_State *L) {
  maker m = begin(L, "randint");
  int64_t least, most;
  const int64_t low = mtl_check_int(L, 1, m.fname), high = mtl_check_int(L, 2, m.fname);
  if (low > high) return mtl_argerror(L, 2, m.fname, "the interval is empty");
  read_shape(&m, 3);
  if (!m.options.has_dtype) m.options.dtype = MT_I64;
  if (!MT_IS_FLOAT(m.options.dtype)) {
    mt_dtype_limits(m.options.dtype, &least, &most);
    if (low < least || high > most) {
      return mtl_argerror(L, low < least ? 1 : 2, m.fname, "%s holds %lld .. %lld",
                          mt_dtype_name(m.options.dtype), (long long)least,
                          (long long)most);
    }
  }
  const mt_attr attr[2] = {mt_attr_i(low), mt_attr_i(high)};
  return finish_drawn(&m, MT_OP_random, 2, attr);
}

/* mt.randperm(n[, opts]): 1 .. n in a random order; int64 */
static int mt_randperm(lua_State *L) {
  maker m = begin(L, "randperm");
  one_dim(&m, mtl_check_int(L, 1, m.fname));
  m.options = mtl_check_options(L, 2, m.fname);
  if (!m.options.has_dtype) m.options.dtype = MT_I64;
  return finish_drawn(&m, MT_OP__permutation, 0, NULL);
}

/* ---- like another tensor ---- */

/* mt.empty_like(x[, opts]): of x's shape, dtype and device; its elements are not set */
static int mt_empty_like(lua_State *L) {
  maker m = begin(L, "empty_like");
  read_like(&m, 2);
  make(&m);
  return finish(&m);
}

/* mt.zeros_like(x[, opts]): zeros of x's shape, dtype and device */
static int mt_zeros_like(lua_State *L) {
  maker m = begin(L, "zeros_like");
  read_like(&m, 2);
  return finish_filled(&m, mt_attr_i(0));
}

/* mt.ones_like(x[, opts]): ones of x's shape, dtype and device */
static int mt_ones_like(lua_State *L) {
  maker m = begin(L, "ones_like");
  read_like(&m, 2);
  return finish_filled(&m, mt_attr_i(1));
}

/* mt.full_like(x, value[, opts]): x's shape, dtype and device, filled with value */
static int mt_full_like(lua_State *L) {
  maker m = begin(L, "full_like");
  read_like(&m, 3);
  return finish_filled(&m, check_value(L, 2, m.fname));
}

/* mt.rand_like(x[, opts]): uniform in [0, 1), of x's shape, dtype and device */
static int mt_rand_like(lua_State *L) {
  maker m = begin(L, "rand_like");
  read_like(&m, 2);
  return finish_drawn(&m, MT_OP_uniform, 0, NULL);
}

/* mt.randn_like(x[, opts]): normally distributed, of x's shape, dtype and device */
static int mt_randn_like(lua_State *L) {
  maker m = begin(L, "randn_like");
  read_like(&m, 2);
  return finish_drawn(&m, MT_OP_normal, 0, NULL);
}

/* ---- the default dtype ---- */

/* mt.set_default_dtype(dtype): what constructors use where no dtype is given; a float
** dtype */
static int mt_set_default_dtype(lua_State *L) {
  const mt_dtype d = mtl_check_dtype(L, 1, "set_default_dtype");
  if (!MT_IS_FLOAT(d)) {
    return mtl_argerror(L, 1, "set_default_dtype", "a float dtype expected, got %s",
                        mt_dtype_name(d));
  }
  mtl_context(L)->default_dtype = d;
  return 0;
}

/* mt.get_default_dtype() -> name: "float32" unless it was set */
static int mt_get_default_dtype(lua_State *L) {
  lua_pushstring(L, mt_dtype_name(mtl_context(L)->default_dtype));
  return 1;
}

static const luaL_Reg functions[] = {{"tensor", mt_tensor_new},
                                     {"empty", mt_empty_new},
                                     {"zeros", mt_zeros},
                                     {"ones", mt_ones},
                                     {"full", mt_full},
                                     {"eye", mt_eye},
                                     {"arange", mt_arange},
                                     {"linspace", mt_linspace},
                                     {"rand", mt_rand},
                                     {"randn", mt_randn},
                                     {"randint", mt_randint},
                                     {"randperm", mt_randperm},
                                     {"empty_like", mt_empty_like},
                                     {"zeros_like", mt_zeros_like},
                                     {"ones_like", mt_ones_like},
                                     {"full_like", mt_full_like},
                                     {"rand_like", mt_rand_like},
                                     {"randn_like", mt_randn_like},
                                     {"set_default_dtype", mt_set_default_dtype},
                                     {"get_default_dtype", mt_get_default_dtype},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_constructors(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  for (int d = 0; d < MT_NDTYPES; d++) { /* mt.int64 is "int64" */
    lua_pushstring(L, mt_dtype_name((mt_dtype)d));
    lua_setfield(L, -2, mt_dtype_name((mt_dtype)d));
  }
  mtl_push_methods(L); /* mt.Tensor */
  lua_pushcfunction(L, tensor_from_table);
  lua_setfield(L, -2, "from_table");
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, tensor_call);
  lua_setfield(L, -2, "__call");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}
