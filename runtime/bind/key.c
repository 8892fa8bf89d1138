/* runtime/bind/key.c -- reading the keys of t[key]; errors come back as text. */
#include "runtime/bind/key.h"

#include <inttypes.h>
#include <string.h>

/* A range from .. to counts as Lua's for does; empty only where the one ends just before
** the other begins. */
static bool read_bounds(const mt_view *x, int dim, const int64_t *v, mtl_item *it,
                        mtl_text *e) {
  const int64_t size = x->shape[dim], step = v[2];
  const int64_t from = v[0] < 0 ? v[0] + size + 1 : v[0];
  const int64_t to = v[1] < 0 ? v[1] + size + 1 : v[1];
  if (step == 0) return mtl_say(e, "the step of a range for dim %d is 0", dim + 1);
  const int64_t lo = step > 0 ? from : to, hi = step > 0 ? to : from;
  const bool empty = hi == lo - 1 && lo >= 1 && hi <= size;
  if (!empty && (lo < 1 || hi > size || lo > hi || v[0] == 0 || v[1] == 0)) {
    return mtl_say(e,
                   "range %" PRId64 " .. %" PRId64 " is out of range for dim %d of "
                   "shape %s",
                   v[0], v[1], dim + 1, mt_view_text(x));
  }
  /* beyond the size all steps are alike */
  const int64_t wide = size + 1;
  it->step = step > wide ? wide : step < -wide ? wide : step < 0 ? -step : step;
  it->length = empty ? 0 : (hi - lo) / it->step + 1;
  it->backward = step < 0 && it->length > 1;
  it->start = step > 0 || empty ? lo - 1 : from - 1 - (it->length - 1) * it->step;
  return true;
}

/* {}, {a}, {a, b}, {a, b, step}; stack: the table on top */
static bool read_range(lua_State *L, const mt_view *x, int dim, mtl_item *it,
                       mtl_text *e) {
  int64_t v[MT_MAX_DIMS] = {0, 0, 1};
  mtl_text why;
  int n;
  it->kind = MTL_RANGE;
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
  it->length = x->shape[dim];
  it->step = 1;
  if (n == 0) return true;
  if (n == 1) v[1] = v[0];
  if (n < 3) v[2] = 1;
  return read_bounds(x, dim, v, it, e);
}

static bool read_tensor(mt_tensor *t, const mt_view *x, int dim, mtl_item *it,
                        mtl_text *e) {
  it->t = t;
  if (mt_dtype_of(t) != MT_BOOL) {
    it->kind = MTL_INDEX;
    it->dims = 1;
    return true;
  }
  it->kind = MTL_MASK;
  it->dims = t->v.ndim;
  bool fits = t->v.ndim > 0 ? dim + t->v.ndim <= x->ndim : x->ndim == 0;
  for (int i = 0; fits && i < t->v.ndim; i++) fits = t->v.shape[i] == x->shape[dim + i];
  if (fits) return true;
  return mtl_say(e, "mask of shape %s does not fit shape %s from dim %d on",
                 mt_view_text(&t->v), mt_view_text(x), dim + 1);
}

/* The item on top of the stack, which stands at dim. */
static bool read_item(lua_State *L, const mt_view *x, int dim, mtl_item *it,
                      mtl_text *e) {
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
    it->kind = MTL_AT;
    it->dims = 1;
    if (!mtl_get_int(L, -1, &it->start, &why)) {
      return mtl_say(e, "index for dim %d: %.300s", dim + 1, why.s);
    }
    return mtl_position_from_one(&it->start, x, dim, false, e);
  case LUA_TTABLE: return read_range(L, x, dim, it, e);
  default:
    return mtl_say(e,
                   "index for dim %d: integer, range, tensor or '...' expected, got %s",
                   dim + 1, mtl_typename(L, -1));
  }
}

static bool add_item(lua_State *L, const mt_view *x, int *dim, mtl_key *k,
                     mtl_text *e) {
  mtl_item *it = &k->items[k->n];
  if (!read_item(L, x, *dim, it, e)) return false;
  if (it->kind >= MTL_MASK) {
    if (k->tensors++ == 0) k->tensor = k->n;
    if (k->tensors > 1 && it->dims == 0) {
      return mtl_say(e, "a 0-dim mask stands alone in a key");
    }
  }
  k->backward = k->backward || it->backward;
  k->n++;
  *dim += it->dims;
  return true;
}

/* ---- "..." ---- */

static bool is_rest(lua_State *L, int index) {
  return lua_type(L, index) == LUA_TSTRING &&
         strcmp(lua_tostring(L, index), "...") == 0;
}

/* How many dims the items behind i stand for. */
static int dims_behind(lua_State *L, int index, lua_Unsigned i, lua_Unsigned n) {
  int dims = 0;
  while (++i <= n && dims <= MT_MAX_DIMS) {
    lua_rawgeti(L, index, (lua_Integer)i);
    const mt_tensor *t = mtl_to_tensor(L, -1);
    dims += t && mt_dtype_of(t) == MT_BOOL ? t->v.ndim : 1;
    lua_pop(L, 1);
  }
  return dims;
}

/* All of the dims up to last stay as they are. */
static void add_rest(const mt_view *x, int last, int *dim, mtl_key *k) {
  for (; *dim < last && k->n < MT_MAX_DIMS; ++*dim) {
    mtl_item *const it = &k->items[k->n++];
    memset(it, 0, sizeof *it);
    it->kind = MTL_RANGE;
    it->dims = 1;
    it->whole = true;
    it->length = x->shape[*dim];
    it->step = 1;
  }
}

/* Has the table at index other keys than 1 .. n? */
static bool has_more(lua_State *L, int index, lua_Unsigned n) {
  lua_Unsigned found = 0;
  for (lua_pushnil(L); found <= n && lua_next(L, index); found++) lua_pop(L, 1);
  if (found <= n) return false; /* lua_next has popped the last key */
  lua_pop(L, 1);
  return true;
}

bool mtl_read_key(lua_State *L, int index, const mt_view *x, mtl_key *k, mtl_text *e) {
  int dim = 0;
  k->n = k->tensors = 0;
  k->tensor = -1;
  k->backward = false;
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
  if (has_more(L, lua_absindex(L, index), n))
    return mtl_say(e, "an index table has keys beyond the first nil, at %d",
                   (int)n + 1);
  bool rest = false;
  for (lua_Unsigned i = 1; i <= n; i++) {
    if (lua_rawgeti(L, index, (lua_Integer)i) == LUA_TSTRING && is_rest(L, -1)) {
      lua_pop(L, 1);
      if (rest) return mtl_say(e, "'...' stands twice in a key");
      rest = true;
      add_rest(x, x->ndim - dims_behind(L, index, i, n), &dim, k);
      continue;
    }
    if (k->n == MT_MAX_DIMS) {
      lua_pop(L, 1);
      return mtl_say(e, "too many indices for shape %s", mt_view_text(x));
    }
    const bool ok = add_item(L, x, &dim, k, e);
    lua_pop(L, 1);
    if (!ok) return false;
  }
  return true;
}

void mtl_key_retain(const mtl_key *k) {
  for (int i = 0; i < k->n; i++)
    if (k->items[i].t) mt_retain(k->items[i].t);
}

void mtl_key_release(const mtl_key *k) {
  for (int i = 0; i < k->n; i++) mt_release(k->items[i].t);
}
