/* runtime/bind/optim.c -- steps of optimisers, norms and scaling over lists of
** tensors: one kernel call for a whole list. */
#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/cuda_graph.h"

/* Lists of n tensors each that belong together: parameters, gradients, averages. */
#define MAX_LISTS 4

typedef struct lists {
  lua_State *L;
  const char *fname;
  int count;                 /* lists */
  int n;                     /* tensors in each */
  int arg[MAX_LISTS];        /* 0: the gradients of the first list's tensors */
  mt_tensor **of[MAX_LISTS]; /* [n], in memory of Lua */
  mt_tensor **subset;        /* [count * n], for those of one dtype and device */
  bool *done;                /* [n] */
} lists;

/* ---- reading ---- */

static lists begin(lua_State *L, const char *fname, int arg) {
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, fname, "list of tensors expected, got %s",
                 mtl_typename(L, arg));
  }
  const lua_Unsigned n = lua_rawlen(L, arg);
  if (n > 1 << 24) mtl_argerror(L, arg, fname, "too many tensors");
  return (lists){.L = L, .fname = fname, .n = (int)n};
}

static void add_list(lists *l, int arg) {
  lua_State *L = l->L;
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, l->fname, "list of tensors expected, got %s",
                 mtl_typename(L, arg));
  }
  const lua_Unsigned n = lua_rawlen(L, arg);
  if (n != (lua_Unsigned)l->n) {
    mtl_argerror(L, arg, l->fname, "%llu tensors, but the first list has %d",
                 (unsigned long long)n, l->n);
  }
  l->arg[l->count++] = arg;
}

/* The gradients: the list at arg; nil: those that the parameters have. */
static void add_gradients(lists *l, int arg) {
  if (lua_isnoneornil(l->L, arg))
    l->arg[l->count++] = 0;
  else
    add_list(l, arg);
}

static mt_tensor *own_gradient(const lists *l, int i) {
  mt_tensor *g = mt_grad_of(l->of[0][i]);
  if (g == NULL) mtl_argerror(l->L, l->arg[0], l->fname, "[%d] has no gradient", i + 1);
  return g;
}

/* Read the tensors of all lists; nothing allocates in Lua after that. */
static void read_lists(lists *l) {
  lua_State *L = l->L;
  const size_t n = (size_t)l->n, count = (size_t)l->count;
  luaL_checkstack(L, 4, NULL);
  mt_tensor **room = lua_newuserdatauv(L, 2 * count * n * sizeof *room + n + 1, 0);
  for (int k = 0; k < l->count; k++) {
    l->of[k] = room + (size_t)k * n;
    for (int i = 0; i < l->n; i++) {
      if (l->arg[k] == 0) {
        l->of[k][i] = own_gradient(l, i);
        continue;
      }
      lua_rawgeti(L, l->arg[k], i + 1);
      mt_tensor *t = mtl_to_tensor(L, -1);
      if (t == NULL) {
        mtl_argerror(L, l->arg[k], l->fname, "tensor expected at [%d], got %s", i + 1,
                     mtl_typename(L, -1));
      }
      l->of[k][i] = t;
      lua_pop(L, 1);
    }
  }
  l->subset = room + count * n;
  l->done = (bool *)(l->subset + count * n);
  for (int i = 0; i < l->n; i++) l->done[i] = false;
}

static bool same_kind(const mt_tensor *a, const mt_tensor *b) {
  return mt_dtype_of(a) == mt_dtype_of(b) &&
         mt_same_device(mt_device_of(a), mt_device_of(b));
}

/* Each tensor must be of a float dtype, and as its counterpart in the first list. */
static void check_lists(const lists *l, int nwritten) {
  for (int k = 0; k < l->count; k++) {
    if (l->arg[k] == 0) continue; /* a gradient is like its tensor */
    for (int i = 0; i < l->n; i++) {
      const mt_tensor *t = l->of[k][i], *first = l->of[0][i];
      if (!MT_IS_FLOAT(mt_dtype_of(t))) {
        mtl_argerror(l->L, l->arg[k], l->fname, "[%d]: a float dtype expected, got %s",
                     i + 1, mt_dtype_name(mt_dtype_of(t)));
      }
      if (!mt_same_shape(&t->v, &first->v)) {
        mtl_argerror(l->L, l->arg[k], l->fname, "[%d]: shape %s, its parameter has %s",
                     i + 1, mt_view_text(&t->v), mt_view_text(&first->v));
      }
      if (!same_kind(t, first)) {
        mtl_argerror(l->L, l->arg[k], l->fname, "[%d]: %s on %s, its parameter is %s",
                     i + 1, mt_dtype_name(mt_dtype_of(t)),
                     mt_device_name(mt_device_of(t)),
                     mt_dtype_name(mt_dtype_of(first)));
      }
      if (k < nwritten && mt_overlaps_itself(&t->v)) {
        mtl_argerror(l->L, l->arg[k], l->fname,
                     "[%d]: elements of shape %s share memory", i + 1,
                     mt_view_text(&t->v));
      }
    }
  }
}

static void retain_all(const lists *l) {
  for (int k = 0; k < l->count; k++)
    for (int i = 0; i < l->n; i++) mt_retain(l->of[k][i]);
}

static void release_all(const lists *l) {
  for (int k = 0; k < l->count; k++)
    for (int i = 0; i < l->n; i++) mt_release(l->of[k][i]);
}

/* Gather in subset, list after list, the tensors of the dtype and device of the
** first that is not done yet; returns how many of each list. 0: all are done. */
static int next_subset(lists *l) {
  int first = 0, n = 0;
  while (first < l->n && l->done[first]) first++;
  for (int i = first; i < l->n; i++) {
    if (!l->done[i] && same_kind(l->of[0][i], l->of[0][first])) n++;
  }
  for (int i = first, at = 0; i < l->n; i++) {
    if (l->done[i] || !same_kind(l->of[0][i], l->of[0][first])) continue;
    for (int k = 0; k < l->count; k++) l->subset[k * n + at] = l->of[k][i];
    l->done[i] = true;
    at++;
  }
  return n;
}

static double check_number(lua_State *L, int arg, const char *fname) {
  if (lua_type(L, arg) != LUA_TNUMBER) {
    mtl_argerror(L, arg, fname, "number expected, got %s", mtl_typename(L, arg));
  }
  return lua_tonumber(L, arg);
}

/* ---- steps ---- */

/* One step of all parameters. The gradients are the last list. While a graph is captured
** the results are the first slot of the step's numbers and how many there are. */
static int run_step(lists *l, mt_many which, int nattr, const double *attr) {
  mt_context *ctx = mtl_context(l->L);
  read_lists(l);
  check_lists(l, l->count - 1);
  retain_all(l);
  const int slots = ctx->graph ? mt_graph_slots(ctx->graph) : 0;
  mt_status status = MT_OK;
  for (int n = next_subset(l); n > 0 && status == MT_OK; n = next_subset(l)) {
    const int nout = (l->count - 1) * n;
    status =
        mt_dispatch_many(ctx, which, n, l->subset + nout, nout, l->subset, nattr, attr);
  }
  release_all(l);
  if (status != MT_OK) return mtl_raise(l->L, l->fname);
  if (!ctx->graph) return 0;
  lua_pushinteger(l->L, slots);
  lua_pushinteger(l->L, mt_graph_slots(ctx->graph) - slots);
  return 2;
}

/* mt._sgd_step(params, grads or nil, momenta or nil, lr, momentum, dampening, weight_decay,
** nesterov) */
static int sgd_step(lua_State *L) {
  static const char fname[] = "_sgd_step";
  mtl_enter(L);
  lists l = begin(L, fname, 1);
  add_list(&l, 1);
  if (!lua_isnoneornil(L, 3)) add_list(&l, 3);
  add_gradients(&l, 2);
  const double attr[6] = {check_number(L, 4, fname), check_number(L, 5, fname),
                          check_number(L, 6, fname), check_number(L, 7, fname),
                          lua_toboolean(L, 8),       0};
  return run_step(&l, MT_MANY_SGD, 6, attr);
}

/* mt._adam_step(params, grads or nil, averages, square_averages, step, lr, beta1, beta2,
** epsilon, weight_decay, decoupled) */
static int adam_step(lua_State *L) {
  static const char fname[] = "_adam_step";
  mtl_enter(L);
  lists l = begin(L, fname, 1);
  add_list(&l, 1);
  add_list(&l, 3);
  add_list(&l, 4);
  add_gradients(&l, 2);
  double attr[7];
  for (int i = 0; i < 6; i++) attr[i] = check_number(L, 5 + i, fname);
  attr[6] = lua_toboolean(L, 11);
  if (!(attr[0] >= 1)) mtl_argerror(L, 5, fname, "a step from 1 expected");
  return run_step(&l, MT_MANY_ADAM, 7, attr);
}

/* ---- norms ---- */

/* total += the sum of squares of n tensors; total on their device, or NULL at first. */
static mt_status add_squares(mt_context *ctx, int n, mt_tensor *const *t,
                             mt_tensor **total) {
  mt_tensor *sum = NULL, *both = NULL;
  MT_TRY(mt_empty(ctx, MT_F64, mt_device_of(t[0]), 0, NULL, &sum));
  mt_status status = mt_dispatch_many(ctx, MT_MANY_SQUARE_SUM, n, t, 1, &sum, 0, NULL);
  if (status == MT_OK && *total != NULL) {
    mt_tensor *const in[2] = {*total, sum};
    status = mt_dispatch(ctx, MT_OP_add, 2, in, NULL, &both, NULL);
    mt_release(sum);
    sum = both;
  }
  if (status != MT_OK) {
    mt_release(sum);
    return status;
  }
  mt_release(*total);
  *total = sum;
  return MT_OK;
}

static mt_status norm_of(mt_context *ctx, lists *l, mt_tensor **out) {
  mt_tensor *total = NULL, *root = NULL;
  mt_status status = MT_OK;
  for (int n = next_subset(l); n > 0 && status == MT_OK; n = next_subset(l)) {
    status = add_squares(ctx, n, l->subset, &total);
  }
  if (status == MT_OK) {
    status = mt_dispatch(ctx, MT_OP_sqrt, 1, &total, NULL, &root, NULL);
  }
  if (status == MT_OK) {
    const mt_tensor *like = l->of[0][0];
    status = mt_convert(ctx, root, mt_dtype_of(like), mt_device_of(like), out);
  }
  mt_release(total);
  mt_release(root);
  return status;
}

/* mt._grad_norm(list) -> 0-dim tensor: the 2-norm of all elements of all tensors */
static int grad_norm(lua_State *L) {
  static const char fname[] = "_grad_norm";
  mt_context *ctx = mtl_enter(L);
  lists l = begin(L, fname, 1);
  if (l.n == 0) mtl_argerror(L, 1, fname, "the list is empty");
  add_list(&l, 1);
  mt_tensor **out = mtl_new_tensor(L);
  read_lists(&l);
  for (int i = 0; i < l.n; i++) {
    if (!MT_IS_FLOAT(mt_dtype_of(l.of[0][i]))) {
      mtl_argerror(L, 1, fname, "[%d]: a float dtype expected, got %s", i + 1,
                   mt_dtype_name(mt_dtype_of(l.of[0][i])));
    }
  }
  retain_all(&l);
  const mt_status status = norm_of(ctx, &l, out);
  release_all(&l);
  if (status != MT_OK) return mtl_raise(L, fname);
  lua_pop(L, 1); /* read_lists' memory */
  return 1;
}

/* mt._scale_(list, factor): in place; factor is a number or a 0-dim tensor */
static int scale(lua_State *L) {
  static const char fname[] = "_scale_";
  mt_context *ctx = mtl_enter(L);
  lists l = begin(L, fname, 1);
  add_list(&l, 1);
  mt_tensor *factor = mtl_check_operand(L, 2, fname);
  if (factor->v.ndim != 0) {
    return mtl_argerror(L, 2, fname,
                        "a number or a 0-dim tensor expected, got shape %s",
                        mt_view_text(&factor->v));
  }
  read_lists(&l);
  check_lists(&l, 1);
  factor = mtl_check_tensor(L, 2, fname);
  retain_all(&l);
  mt_retain(factor);
  mt_status status = MT_OK;
  for (int n = next_subset(&l); n > 0 && status == MT_OK; n = next_subset(&l)) {
    mt_tensor *here = NULL; /* the factor on the device of these */
    const mt_device device = mt_device_of(l.subset[0]);
    if (mt_same_device(mt_device_of(factor), device)) {
      here = mt_retain(factor);
    } else {
      status = mt_convert(ctx, factor, mt_dtype_of(factor), device, &here);
    }
    if (status == MT_OK) {
      status = mt_dispatch_many(ctx, MT_MANY_SCALE, 1, &here, n, l.subset, 0, NULL);
    }
    mt_release(here);
  }
  mt_release(factor);
  release_all(&l);
  return status == MT_OK ? 0 : mtl_raise(L, fname);
}

/* ---- what a step walks over ---- */

/* The tensor at [i] of the list at arg. */
static mt_tensor *list_item(lua_State *L, int arg, const char *fname, lua_Integer i) {
  lua_rawgeti(L, arg, i);
  mt_tensor *t = mtl_to_tensor(L, -1);
  if (t == NULL) {
    mtl_argerror(L, arg, fname, "tensor expected at [%d], got %s", (int)i,
                 mtl_typename(L, -1));
  }
  lua_pop(L, 1);
  return t;
}

/* mt._clear_grads(list): no tensor of it has a gradient any more */
static int clear_grads(lua_State *L) {
  static const char fname[] = "_clear_grads";
  const int n = begin(L, fname, 1).n;
  for (int i = 1; i <= n; i++) {
    if (mt_set_grad(list_item(L, 1, fname, i), NULL) != MT_OK) mtl_raise(L, fname);
  }
  return 0;
}

/* mt._with_grads(list) -> list: those that have a gradient; list itself if all do */
static int with_grads(lua_State *L) {
  static const char fname[] = "_with_grads";
  const int n = begin(L, fname, 1).n;
  int have = 0;
  lua_settop(L, 1);
  for (int i = 1; i <= n; i++) have += mt_grad_of(list_item(L, 1, fname, i)) != NULL;
  if (have == n) return 1;
  lua_createtable(L, have, 0);
  for (int i = 1, at = 0; i <= n; i++) {
    if (mt_grad_of(list_item(L, 1, fname, i)) == NULL) continue;
    lua_rawgeti(L, 1, i);
    lua_rawseti(L, 2, ++at);
  }
  return 1;
}

/* mt._states(states, list, key) -> list of states[t][key] for each t of the list; nil if
** one is not there */
static int collect_states(lua_State *L) {
  static const char fname[] = "_states";
  luaL_checktype(L, 1, LUA_TTABLE);
  const int n = begin(L, fname, 2).n;
  lua_settop(L, 3);
  lua_createtable(L, n, 0);
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, 2, i);
    if (lua_isnil(L, -1) || lua_rawget(L, 1) != LUA_TTABLE) return 0;
    lua_pushvalue(L, 3);
    if (lua_rawget(L, -2) == LUA_TNIL) return 0;
    lua_rawseti(L, 4, i);
    lua_pop(L, 1);
  }
  return 1;
}

static const luaL_Reg functions[] = {{"_sgd_step", sgd_step},
                                     {"_adam_step", adam_step},
                                     {"_clear_grads", clear_grads},
                                     {"_with_grads", with_grads},
                                     {"_states", collect_states},
                                     {"_grad_norm", grad_norm},
                                     {"_scale_", scale},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_optim(lua_State *L) { luaL_setfuncs(L, functions, 0); }
