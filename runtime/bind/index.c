/* runtime/bind/index.c -- t[key] and t[key] = value: methods, properties, elements. */
#include "runtime/bind/args.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/autograd/calc.h"

/* One item of a key: what happens to the dim (or dims) that it stands for. */
typedef struct item {
  enum { AT, RANGE, MASK, INDEX } kind;
  int64_t start, length, step; /* from 0; AT: start alone */
  bool whole;                  /* RANGE: the dim as it is */
  mt_tensor *t;                /* MASK, INDEX */
  int dims;                    /* how many dims of the tensor it stands for */
} item;

typedef struct key {
  int n;
  item items[MT_MAX_DIMS];
  int tensor; /* place of the only MASK or INDEX, or -1 */
} key;

/* ---- reading keys; errors come back as text ---- */

/* {}, {a}, {a, b}, {a, b, step}; stack: the table on top */
static bool read_range(lua_State *L, const mt_view *x, int dim, item *it, mtl_text *e) {
  const int64_t size = x->shape[dim];
  int64_t v[MT_MAX_DIMS] = {0, 0, 1};
  mtl_text why;
  int n;
  it->kind = RANGE;
  it->dims = 1;
  if (mtl_is_options(L, -1)) {
    return mtl_say(e, "a range has no named fields: {from, to} or {from, to, step}");
  }
  if (!mtl_get_ints(L, lua_gettop(L), &n, v, &why)) {
    return mtl_say(e, "range for dim %d: %s%.300s", dim + 1,
                   why.s[0] == '[' ? "item " : "", why.s);
  }
  if (n > 3) {
    return mtl_say(e, "range for dim %d: {from, to, step} expected, got %d numbers",
                   dim + 1, n);
  }
  it->whole = n == 0;
  it->length = size;
  it->step = 1;
  if (n == 0) return true;
  if (n == 1) v[1] = v[0];
  if (n < 3) v[2] = 1;
  const int64_t from = v[0] < 0 ? v[0] + size + 1 : v[0];
  const int64_t to = v[1] < 0 ? v[1] + size + 1 : v[1];
  if (v[2] < 1) return mtl_say(e, "step %" PRId64 " is not positive", v[2]);
  const bool empty = n > 1 && to == from - 1 && from >= 1 && to <= size;
  if (!empty && (from < 1 || to > size || from > to || v[0] == 0 || v[1] == 0)) {
    return mtl_say(e,
                   "range %" PRId64 " .. %" PRId64 " is out of range for dim %d of "
                   "shape %s",
                   v[0], v[1], dim + 1, mt_view_text(x));
  }
  it->start = from - 1;
  it->length = empty ? 0 : (to - from) / v[2] + 1;
  it->step = v[2];
  return true;
}

static bool read_tensor(mt_tensor *t, const mt_view *x, int dim, item *it,
                        mtl_text *e) {
  it->t = t;
  if (mt_dtype_of(t) != MT_BOOL) {
    it->kind = INDEX;
    it->dims = 1;
    return true;
  }
  it->kind = MASK;
  it->dims = t->v.ndim;
  bool fits = t->v.ndim > 0 ? dim + t->v.ndim <= x->ndim : x->ndim == 0;
  for (int i = 0; fits && i < t->v.ndim; i++) fits = t->v.shape[i] == x->shape[dim + i];
  if (fits) return true;
  return mtl_say(e, "mask of shape %s does not fit shape %s from dim %d on",
                 mt_view_text(&t->v), mt_view_text(x), dim + 1);
}

/* The item on top of the stack, which stands at dim. */
static bool read_item(lua_State *L, const mt_view *x, int dim, item *it, mtl_text *e) {
  mt_tensor *t = mtl_to_tensor(L, -1);
  mtl_text why;
  memset(it, 0, sizeof *it);
  if (dim >= x->ndim && !(t && x->ndim == 0 && mt_dtype_of(t) == MT_BOOL)) {
    if (x->ndim == 0) return mtl_say(e, "a 0-dim tensor has no elements to index");
    return mtl_say(e, "too many indices for shape %s", mt_view_text(x));
  }
  if (t) return read_tensor(t, x, dim, it, e);
  switch (lua_type(L, -1)) {
  case LUA_TNUMBER:
    it->kind = AT;
    it->dims = 1;
    if (!mtl_get_int(L, -1, &it->start, &why)) {
      return mtl_say(e, "index for dim %d: %.300s", dim + 1, why.s);
    }
    return mtl_position_from_one(&it->start, x, dim, false, e);
  case LUA_TTABLE: return read_range(L, x, dim, it, e);
  default:
    return mtl_say(e, "index for dim %d: integer, range or tensor expected, got %s",
                   dim + 1, mtl_typename(L, -1));
  }
}

static bool add_item(lua_State *L, const mt_view *x, int *dim, key *k, mtl_text *e) {
  item *it = &k->items[k->n];
  if (!read_item(L, x, *dim, it, e)) return false;
  if (it->kind >= MASK) {
    if (k->tensor >= 0)
      return mtl_say(e, "more than one mask or index tensor in a key");
    k->tensor = k->n;
  }
  k->n++;
  *dim += it->dims;
  return true;
}

/* The key at index: an integer, a mask, an index tensor, or a table of such and ranges. */
static bool read_key(lua_State *L, int index, const mt_view *x, key *k, mtl_text *e) {
  int dim = 0;
  k->n = 0;
  k->tensor = -1;
  if (!lua_istable(L, index)) {
    if (lua_type(L, index) != LUA_TNUMBER && !mtl_to_tensor(L, index)) {
      return mtl_say(e,
                     "a tensor is indexed by an integer, a table or a tensor, not by a "
                     "%s",
                     mtl_typename(L, index));
    }
    lua_pushvalue(L, index);
    const bool ok = add_item(L, x, &dim, k, e);
    lua_pop(L, 1);
    return ok;
  }
  if (mtl_is_options(L, index)) return mtl_say(e, "an index table has no named fields");
  const lua_Unsigned n = lua_rawlen(L, index);
  for (lua_Unsigned i = 1; i <= n; i++) {
    if (k->n == MT_MAX_DIMS) {
      return mtl_say(e, "too many indices for shape %s", mt_view_text(x));
    }
    lua_rawgeti(L, index, (lua_Integer)i);
    const bool ok = add_item(L, x, &dim, k, e);
    lua_pop(L, 1);
    if (!ok) return false;
  }
  return true;
}

/* ---- what a key means, as ops ---- */

/* The view that integers and ranges give. *at: the dim of it where the tensor item
** stands. */
static mt_tensor *basic_view(mt_calc *c, mt_tensor *x, const key *k, int *at) {
  int dim = 0;
  mt_tensor *v = x;
  for (int i = 0; i < k->n && v; i++) {
    const item *it = &k->items[i];
    const mt_attr attr[] = {mt_attr_i(dim), mt_attr_i(it->start), mt_attr_i(it->length),
                            mt_attr_i(it->step)};
    switch (it->kind) {
    case AT: v = mt_c1a(c, MT_OP_select, v, 2, attr); continue;
    case RANGE:
      if (it->step != 1)
        v = mt_c1a(c, MT_OP__slice, v, 4, attr);
      else if (!it->whole)
        v = mt_c1a(c, MT_OP_narrow, v, 3, attr);
      break;
    default: *at = dim; break;
    }
    dim += it->dims;
  }
  return v;
}

/* v with dims at .. at + n - 1 replaced by shape. */
static mt_tensor *reshape_dims(mt_calc *c, mt_tensor *v, int at, int n, int ndim,
                               const int64_t *shape) {
  int64_t full[2 * MT_MAX_DIMS];
  int m = 0;
  if (!v) return NULL;
  for (int i = 0; i < at; i++) full[m++] = v->v.shape[i];
  for (int i = 0; i < ndim; i++) full[m++] = shape[i];
  for (int i = at + n; i < v->v.ndim; i++) full[m++] = v->v.shape[i];
  if (m == v->v.ndim && n == ndim && memcmp(full, v->v.shape, (size_t)m * 8) == 0) {
    return v;
  }
  if (m > MT_MAX_DIMS) {
    c->status = mt_fail(MT_ESHAPE, "the result has %d dims, at most %d are possible", m,
                        MT_MAX_DIMS);
    return NULL;
  }
  return mt_creshape(c, v, m, full);
}

/* The tensor item as a vector of positions. */
static mt_tensor *positions(mt_calc *c, const item *it) {
  const int64_t n = mt_numel(&it->t->v);
  mt_tensor *flat = it->t->v.ndim == 1 ? it->t : mt_creshape(c, it->t, 1, &n);
  if (it->kind == INDEX || !flat) return flat;
  const mt_attr first[] = {mt_attr_i(1), mt_attr_i(0)};
  return mt_c1a(c, MT_OP_select, mt_c1(c, MT_OP_nonzero, flat), 2, first);
}

static mt_tensor *merge(mt_calc *c, mt_tensor *v, const item *it, int at) {
  const int64_t n = mt_numel(&it->t->v);
  return it->kind == INDEX ? v : reshape_dims(c, v, at, it->dims, 1, &n);
}

static mt_tensor *read_elements(mt_calc *c, mt_tensor *x, const key *k) {
  int at = 0;
  mt_tensor *v = basic_view(c, x, k, &at);
  if (!v) return NULL;
  if (k->tensor < 0) return v == x ? mt_c1(c, MT_OP__alias, x) : v;
  const item *it = &k->items[k->tensor];
  if (it->kind == MASK && it->dims == v->v.ndim) {
    return mt_c2(c, MT_OP_masked_select, v, it->t);
  }
  const mt_attr dim = mt_attr_i(at);
  mt_tensor *const in[] = {merge(c, v, it, at), positions(c, it)};
  mt_tensor *y = mt_ca(c, MT_OP_index_select, 2, in, 0, 1, &dim, NULL);
  if (it->kind == MASK) return y;
  return reshape_dims(c, y, at, 1, it->t->v.ndim, it->t->v.shape);
}

/* Apply an op in place unless the calc has failed. */
static void overwrite(mt_calc *c, mt_op op, int nin, mt_tensor *const *in,
                      const mt_attr *attr) {
  for (int i = 0; i < nin; i++) {
    if (!in[i]) return;
  }
  if (c->status == MT_OK) c->status = mt_apply_inplace(c->ctx, op, nin, in, attr);
}

static mt_tensor *cast_like(mt_calc *c, mt_tensor *value, const mt_tensor *x) {
  const mt_attr dtype = mt_attr_i(mt_dtype_of(x));
  if (mt_dtype_of(value) == mt_dtype_of(x) && !value->wrapped) return value;
  return mt_c1a(c, MT_OP__cast, value, 1, &dtype);
}

/* v[.., mask, ..] = one value */
static void fill_mask(mt_calc *c, mt_tensor *v, const item *it, int at,
                      mt_tensor *value) {
  int64_t shape[MT_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < it->dims; i++) shape[n++] = it->t->v.shape[i];
  while (at + n < v->v.ndim) shape[n++] = 1; /* dims behind the mask: broadcast */
  mt_tensor *mask = n == it->dims ? it->t : mt_creshape(c, it->t, n, shape);
  mt_tensor *const in[] = {v, mask, cast_like(c, value, v)};
  overwrite(c, MT_OP_masked_fill, 3, in, NULL);
}

/* v's slices at the item's positions = value, broadcast to what reading would give */
static void write_slices(mt_calc *c, mt_tensor *v, const item *it, int at,
                         mt_tensor *value) {
  const mt_attr dim = mt_attr_i(at);
  mt_tensor *flat = merge(c, v, it, at), *index = positions(c, it);
  if (!flat || !index) return;
  int64_t shape[2 * MT_MAX_DIMS]; /* of what reading would give */
  int n = 0;
  for (int i = 0; i < at; i++) shape[n++] = flat->v.shape[i];
  if (it->kind == MASK)
    shape[n++] = index->v.shape[0];
  else
    for (int i = 0; i < it->t->v.ndim; i++) shape[n++] = it->t->v.shape[i];
  for (int i = at + 1; i < flat->v.ndim; i++) shape[n++] = flat->v.shape[i];
  if (n > MT_MAX_DIMS) {
    c->status = mt_fail(MT_ESHAPE, "%d dims are assigned, at most %d are possible", n,
                        MT_MAX_DIMS);
    return;
  }
  mt_tensor *src = mt_cexpand(c, cast_like(c, value, v), n, shape);
  const int index_dims = it->kind == MASK ? 1 : it->t->v.ndim;
  src = reshape_dims(c, src, at, index_dims, 1, index->v.shape);
  mt_tensor *const in[] = {flat, index, src};
  if (flat == v) {
    overwrite(c, MT_OP_index_copy, 3, in, &dim);
  } else { /* several dims were made one, which may have needed a copy */
    mt_tensor *y = mt_ca(c, MT_OP_index_copy, 3, in, 0, 1, &dim, NULL);
    mt_tensor *const both[] = {v, reshape_dims(c, y, at, 1, it->dims, it->t->v.shape)};
    overwrite(c, MT_OP__copy, 2, both, NULL);
  }
}

static void write_elements(mt_calc *c, mt_tensor *x, const key *k, mt_tensor *value) {
  int at = 0;
  mt_tensor *v = basic_view(c, x, k, &at);
  if (!v) return;
  if (k->tensor < 0) {
    mt_tensor *const in[] = {v, value};
    overwrite(c, MT_OP__copy, 2, in, NULL);
    return;
  }
  const item *it = &k->items[k->tensor];
  if (it->kind == MASK && value->v.ndim == 0)
    fill_mask(c, v, it, at, value);
  else
    write_slices(c, v, it, at, value);
}

/* ---- Lua ---- */

static int raise_last(lua_State *L) {
  if (mt_last_error()->status == MT_ELUA) return mtl_raise(L, "index");
  return luaL_error(L, "%s", mt_last_error()->text);
}

static mt_tensor *check_live(lua_State *L, int arg) {
  mt_tensor *x = mtl_to_tensor(L, arg);
  if (!x) luaL_error(L, "attempt to index a %s", mtl_typename(L, arg));
  return x;
}

/* y = x[key] */
static int get_elements(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  mt_tensor **result = mtl_new_tensor(L);
  mt_tensor *x = check_live(L, 1);
  mtl_text e;
  key k;
  mt_calc c;
  if (!read_key(L, 2, &x->v, &k, &e)) return luaL_error(L, "%s", e.s);
  mt_tensor *other = k.tensor < 0 ? NULL : k.items[k.tensor].t;
  mt_retain(x);
  if (other) mt_retain(other);
  mt_calc_begin(&c, ctx);
  mt_tensor *y = read_elements(&c, x, &k);
  const mt_status status = mt_calc_end(&c, 1, &y);
  mt_release(x);
  mt_release(other);
  if (status != MT_OK) return raise_last(L);
  *result = y;
  return 1;
}

/* x[key] = value */
static int set_elements(lua_State *L) {
  mt_context *ctx = mtl_enter(L);
  const int type = lua_type(L, 3);
  if (type != LUA_TNUMBER && type != LUA_TBOOLEAN && !mtl_to_tensor(L, 3)) {
    return luaL_error(L, "number, boolean or tensor expected as the new value, got %s",
                      mtl_typename(L, 3));
  }
  mtl_check_operand(L, 3, "index");
  mt_tensor *x = check_live(L, 1), *value = mtl_to_tensor(L, 3);
  mtl_text e;
  key k;
  mt_calc c;
  if (!value) return luaL_error(L, "the new value was freed");
  if (!read_key(L, 2, &x->v, &k, &e)) return luaL_error(L, "%s", e.s);
  mt_tensor *other = k.tensor < 0 ? NULL : k.items[k.tensor].t;
  mt_retain(x);
  mt_retain(value);
  if (other) mt_retain(other);
  mt_calc_begin(&c, ctx);
  write_elements(&c, x, &k, value);
  const mt_status status = mt_calc_end(&c, 0, NULL);
  mt_release(x);
  mt_release(value);
  mt_release(other);
  return status == MT_OK ? 0 : raise_last(L);
}

/* x.grad, x.requires_grad; nil for other names, as libraries that look at values of any
** kind expect. */
static int get_property(lua_State *L, const char *name) {
  if (strcmp(name, "requires_grad") == 0) {
    lua_pushboolean(L, mt_requires_grad(check_live(L, 1)));
  } else if (strcmp(name, "grad") == 0) {
    mt_tensor **result = mtl_new_tensor(L);
    mt_tensor *g = mt_grad_of(check_live(L, 1));
    if (g)
      *result = mt_retain(g);
    else
      lua_pushnil(L);
  } else {
    lua_pushnil(L);
  }
  return 1;
}

/* __index; upvalue: the table of methods */
static int tensor_index(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING) return get_elements(L);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  return get_property(L, lua_tostring(L, 2));
}

static int set_property(lua_State *L, const char *name) {
  mt_tensor *x = check_live(L, 1);
  if (strcmp(name, "requires_grad") == 0) {
    if (!lua_isboolean(L, 3)) {
      return luaL_error(L, "requires_grad is a boolean, got %s", mtl_typename(L, 3));
    }
    if (mt_set_requires_grad(x, lua_toboolean(L, 3)) != MT_OK) return raise_last(L);
  } else if (strcmp(name, "grad") == 0) {
    mt_tensor *g = mtl_to_tensor(L, 3);
    if (!g && !lua_isnil(L, 3)) {
      return luaL_error(L, "grad is a tensor or nil, got %s", mtl_typename(L, 3));
    }
    if (mt_set_grad(x, g) != MT_OK) return raise_last(L);
  } else {
    return luaL_error(
        L, "a tensor has no field '%s': grad and requires_grad can be set", name);
  }
  return 0;
}

/* __newindex */
static int tensor_newindex(lua_State *L) {
  if (lua_type(L, 2) == LUA_TSTRING) return set_property(L, lua_tostring(L, 2));
  return set_elements(L);
}

/* stack: module */
void mtl_open_index(lua_State *L) {
  mtl_push_metatable(L);
  mtl_push_methods(L);
  lua_pushcclosure(L, tensor_index, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, tensor_newindex);
  lua_setfield(L, -2, "__newindex");
  lua_pop(L, 1);
  mtl_open_split(L);
}
