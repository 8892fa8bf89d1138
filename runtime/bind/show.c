/* runtime/bind/show.c -- tensors as text: tostring, which never looks at elements, and
** show and format, which print them in aligned columns. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

#define GAP    2    /* spaces between columns */
#define VISITS 4096 /* places of a dim between two looks for Ctrl-C */

/* How all elements of one tensor are written. */
typedef enum style { STYLE_INTEGER, STYLE_BOOL, STYLE_FIXED, STYLE_SCI } style;

typedef struct printer {
  lua_State *L;
  luaL_Buffer *out;
  const mt_view *v;
  mtl_print options;
  bool summary; /* leave out the middle of long dims */
  style style;
  int precision;
  double scale; /* elements are divided by it: a shared power of ten */
  int width;    /* columns of the widest element */
} printer;

/* ---- which elements are shown ---- */

/* Dim d shows so many places, one of which may stand for the elements left out. */
static int64_t places(const printer *p, int d) {
  const int64_t n = p->v->shape[d], edge = p->options.edgeitems;
  return p->summary && n > 2 * edge + 1 ? 2 * edge + 1 : n;
}

/* The index, from 0, at a place of dim d; -1: left out there. */
static int64_t index_at(const printer *p, int d, int64_t place) {
  const int64_t n = p->v->shape[d], edge = p->options.edgeitems, count = places(p, d);
  if (count == n || place < edge) return place;
  return place == edge ? -1 : n - (count - place);
}

typedef void (*visitor)(printer *p, const char *element, void *state);

/* Call visit for each element shown of dims d, d + 1, ... */
static void visit_shown(printer *p, int d, const char *at, visitor visit, void *state) {
  if (d == p->v->ndim) {
    visit(p, at, state);
    return;
  }
  const int64_t bytes = p->v->stride[d] * (int64_t)mt_dtype_size(p->v->dtype);
  for (int64_t place = 0, n = places(p, d); place < n; place++) {
    const int64_t i = index_at(p, d, place);
    if (place % VISITS == 0) mtl_check_interrupt(p->L);
    if (i >= 0) visit_shown(p, d + 1, at + i * bytes, visit, state);
  }
}

/* ---- one element ---- */

static int write_element(const printer *p, const char *element, char *text,
                         size_t room) {
  const mt_dtype dtype = p->v->dtype;
  if (p->style == STYLE_BOOL) return snprintf(text, room, *element ? "true" : "false");
  if (p->style == STYLE_INTEGER) {
    return snprintf(text, room, "%" PRId64, mt_load_i64(dtype, element));
  }
  const double x = mt_load_f64(dtype, element) / p->scale;
  if (isnan(x)) return snprintf(text, room, "nan");
  if (isinf(x)) return snprintf(text, room, x > 0 ? "inf" : "-inf");
  return snprintf(text, room, p->style == STYLE_SCI ? "%.*e" : "%.*f", p->precision, x);
}

/* ---- how they are written ---- */

typedef struct extent {
  double least, most; /* magnitudes; of finite elements other than 0 */
  bool whole;         /* all finite ones are whole numbers */
} extent;

static void measure_element(printer *p, const char *element, void *state) {
  extent *e = state;
  const double x = fabs(mt_load_f64(p->v->dtype, element));
  if (!isfinite(x) || x == 0) return;
  if (x < e->least) e->least = x;
  if (x > e->most) e->most = x;
  if (x != floor(x)) e->whole = false;
}

static void measure_width(printer *p, const char *element, void *state) {
  char text[400];
  (void)state;
  const int n = write_element(p, element, text, sizeof text);
  if (n > p->width) p->width = n;
}

/* Whole numbers are written without a point. Where the usual digits behind the point
** would not show the elements well, they share a power of ten, or each has its own
** where they differ by too much. */
static void choose_float_style(printer *p) {
  const double smallest = 0.5 * pow(10, -p->options.precision);
  extent e = {HUGE_VAL, 0, true};
  visit_shown(p, 0, p->v->data, measure_element, &e);
  p->style = STYLE_FIXED;
  p->precision = p->options.precision;
  if (p->options.sci == MTL_SCI_ALWAYS) {
    p->style = STYLE_SCI;
  } else if (e.whole && e.most < 1e10) {
    p->precision = 0;
  } else if (p->options.sci == MTL_SCI_AUTO &&
             (e.most >= 1e5 || e.most < 1e-3 || e.least < smallest)) {
    double scale = pow(10, floor(log10(e.most)));
    if (e.most / scale + smallest >= 10) scale *= 10; /* would be rounded to 10 */
    if (e.most / e.least < 1e4 && scale > 1e-300 && scale < 1e300) {
      p->scale = scale;
    } else {
      p->style = STYLE_SCI;
    }
  }
}

static void choose_style(printer *p) {
  p->scale = 1;
  if (MT_IS_FLOAT(p->v->dtype)) {
    choose_float_style(p);
  } else {
    p->style = p->v->dtype == MT_BOOL ? STYLE_BOOL : STYLE_INTEGER;
  }
  visit_shown(p, 0, p->v->data, measure_width, NULL);
}

/* ---- lines ---- */

static void add_spaces(printer *p, int n) {
  while (n-- > 0) luaL_addchar(p->out, ' ');
}

static void add_cell(printer *p, const char *row, int64_t i) {
  const int d = p->v->ndim - 1;
  const int64_t stride = d >= 0 ? p->v->stride[d] : 0;
  char text[400] = "...";
  int n = 3;
  if (i >= 0) {
    const char *element = row + i * stride * (int64_t)mt_dtype_size(p->v->dtype);
    n = write_element(p, element, text, sizeof text);
    add_spaces(p, p->width - n);
  }
  luaL_addlstring(p->out, text, (size_t)n);
}

/* Places from .. to - 1 of the last dim in one line. */
static void add_line(printer *p, const char *row, int64_t from, int64_t to,
                     int indent) {
  mtl_check_interrupt(p->L);
  add_spaces(p, indent);
  for (int64_t place = from; place < to; place++) {
    if (place > from) add_spaces(p, GAP);
    add_cell(p, row, index_at(p, p->v->ndim - 1, place));
  }
  luaL_addchar(p->out, '\n');
}

static int64_t places_in_line(const printer *p, int indent) {
  const int room = p->options.linewidth - indent + GAP;
  const int64_t n = room / (p->width + GAP);
  return n > 0 ? n : 1;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void add_vector(printer *p, const char *at) {
  const int64_t n = places(p, 0), each = places_in_line(p, 0);
  for (int64_t from = 0; from < n; from += each) {
    add_line(p, at, from, smaller(from + each, n), 0);
  }
}

/* The last two dims; those of more columns than a line has room for in parts. */
static void add_matrix(printer *p, const char *at, int indent) {
  const int rows = p->v->ndim - 2, columns = rows + 1;
  const int64_t bytes = p->v->stride[rows] * (int64_t)mt_dtype_size(p->v->dtype);
  const int64_t n = places(p, columns), each = places_in_line(p, indent);
  for (int64_t from = 0; from < n; from += each) {
    const int64_t to = smaller(from + each, n);
    if (each < n) {
      char title[80];
      int64_t first = from, last = to - 1;
      if (index_at(p, columns, first) < 0 && first < last) first++;
      if (index_at(p, columns, last) < 0 && first < last) last--;
      snprintf(title, sizeof title, "columns %" PRId64 " .. %" PRId64 "\n",
               index_at(p, columns, first) + 1, index_at(p, columns, last) + 1);
      add_spaces(p, indent);
      luaL_addstring(p->out, title);
    }
    for (int64_t place = 0; place < places(p, rows); place++) {
      const int64_t i = index_at(p, rows, place);
      if (i >= 0) {
        add_line(p, at + i * bytes, from, to, indent);
      } else {
        add_spaces(p, indent);
        luaL_addstring(p->out, "...\n");
      }
    }
  }
}

/* Dims d, d + 1, ...: each matrix under the Lua index that gives it, as in [2][1]. */
static void add_blocks(printer *p, int d, const char *at, const char *title) {
  if (d == p->v->ndim - 2) {
    luaL_addstring(p->out, title);
    luaL_addchar(p->out, '\n');
    add_matrix(p, at, GAP);
    return;
  }
  const int64_t bytes = p->v->stride[d] * (int64_t)mt_dtype_size(p->v->dtype);
  for (int64_t place = 0; place < places(p, d); place++) {
    const int64_t i = index_at(p, d, place);
    char deeper[MT_MAX_DIMS * 22 + 1];
    snprintf(deeper, sizeof deeper, "%s[%" PRId64 "]", title, i + 1);
    if (i >= 0) {
      add_blocks(p, d + 1, at + i * bytes, deeper);
    } else {
      luaL_addstring(p->out, "...\n");
    }
  }
}

static void add_elements(printer *p) {
  const int ndim = p->v->ndim;
  if (mt_numel(p->v) == 0) {
    luaL_addstring(p->out, "(empty)\n");
    return;
  }
  choose_style(p);
  if (p->scale != 1) {
    char text[32];
    luaL_addlstring(p->out, text,
                    (size_t)snprintf(text, sizeof text, "%.0e *\n", p->scale));
  }
  if (ndim == 0) {
    add_cell(p, p->v->data, 0);
    luaL_addchar(p->out, '\n');
  } else if (ndim == 1) {
    add_vector(p, p->v->data);
  } else if (ndim == 2) {
    add_matrix(p, p->v->data, 0);
  } else {
    add_blocks(p, 0, p->v->data, "");
  }
}

/* ---- metadata ---- */

/* Write "<Tensor shape=[2, 3] int64 on CPU>"; float32 is not named unless always. */
static void describe(const mt_tensor *t, bool always, char *text, size_t room) {
  const mt_dtype dtype = mt_dtype_of(t);
  const mt_device device = mt_device_of(t);
  char place[16] = "CPU";
  if (device.kind != MT_CPU) {
    snprintf(place, sizeof place, device.index ? "GPU %d" : "GPU", device.index);
  }
  const bool named = always || dtype != MT_F32;
  snprintf(text, room, "<Tensor shape=%s%s%s on %s>", mt_view_text(&t->v),
           named ? " " : "", named ? mt_dtype_name(dtype) : "", place);
}

/* tostring(t) */
static int tensor_tostring(lua_State *L) {
  char text[512];
  const mt_tensor *t = mtl_to_tensor(L, 1);
  if (t == NULL) {
    if (!mtl_is_tensor(L, 1)) mtl_check_tensor(L, 1, "tostring");
    lua_pushliteral(L, "<Tensor freed>");
    return 1;
  }
  describe(t, false, text, sizeof text);
  lua_pushstring(L, text);
  return 1;
}

/* ---- options ---- */

static int64_t check_limit(lua_State *L, int arg, const char *fname, const char *key,
                           int64_t lo, int64_t hi) {
  const lua_Number x = lua_tonumber(L, -1);
  if (lua_type(L, -1) == LUA_TNUMBER && x >= (lua_Number)hi) return hi;
  if (lua_type(L, -1) != LUA_TNUMBER || !(x >= (lua_Number)lo)) {
    mtl_argerror(L, arg, fname, "option '%s': a number not below %lld expected", key,
                 (long long)lo);
  }
  return (int64_t)x;
}

/* Change the options by those of the table at arg (nil: none). */
static void read_options(lua_State *L, int arg, const char *fname, mtl_print *o) {
  if (lua_isnoneornil(L, arg)) return;
  if (!lua_istable(L, arg)) {
    mtl_argerror(L, arg, fname, "table of options expected, got %s",
                 mtl_typename(L, arg));
  }
  lua_pushnil(L);
  while (lua_next(L, arg)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (strcmp(key, "precision") == 0) {
      o->precision = (int)check_limit(L, arg, fname, key, 0, 17);
    } else if (strcmp(key, "threshold") == 0) {
      o->threshold = check_limit(L, arg, fname, key, 0, INT64_C(1) << 62);
    } else if (strcmp(key, "edgeitems") == 0) {
      o->edgeitems = (int)check_limit(L, arg, fname, key, 1, 1 << 20);
    } else if (strcmp(key, "linewidth") == 0) {
      o->linewidth = (int)check_limit(L, arg, fname, key, 1, 1 << 20);
    } else if (strcmp(key, "sci_mode") == 0) {
      const bool automatic =
          lua_type(L, -1) == LUA_TSTRING && strcmp(lua_tostring(L, -1), "auto") == 0;
      if (!lua_isboolean(L, -1) && !automatic) {
        mtl_argerror(L, arg, fname,
                     "option 'sci_mode': true, false or 'auto' expected");
      }
      o->sci = automatic              ? MTL_SCI_AUTO
               : lua_toboolean(L, -1) ? MTL_SCI_ALWAYS
                                      : MTL_SCI_NEVER;
    } else {
      mtl_argerror(L, arg, fname,
                   "unknown option '%.60s'; there are precision, threshold, edgeitems, "
                   "linewidth, sci_mode",
                   key);
    }
    lua_pop(L, 1);
  }
}

/* mt.set_printoptions(opts): precision (4), digits behind the point; threshold
** (1000), more elements are not all shown; edgeitems (3), those shown at either end
** then; linewidth (80); sci_mode ("auto", true or false) */
static int mt_set_printoptions(lua_State *L) {
  mtl_state *s = mtl_state_of(L);
  mtl_print o = s->print;
  luaL_checktype(L, 1, LUA_TTABLE);
  read_options(L, 1, "set_printoptions", &o);
  s->print = o;
  return 0;
}

/* mt.get_printoptions() -> table: as mt.set_printoptions takes it */
static int mt_get_printoptions(lua_State *L) {
  const mtl_print o = mtl_state_of(L)->print;
  lua_createtable(L, 0, 5);
  lua_pushinteger(L, o.precision);
  lua_setfield(L, -2, "precision");
  lua_pushinteger(L, o.threshold);
  lua_setfield(L, -2, "threshold");
  lua_pushinteger(L, o.edgeitems);
  lua_setfield(L, -2, "edgeitems");
  lua_pushinteger(L, o.linewidth);
  lua_setfield(L, -2, "linewidth");
  if (o.sci == MTL_SCI_AUTO) {
    lua_pushliteral(L, "auto");
  } else {
    lua_pushboolean(L, o.sci == MTL_SCI_ALWAYS);
  }
  lua_setfield(L, -2, "sci_mode");
  return 1;
}

/* ---- show ---- */

/* stack: tensor, options. Push the text, with a line end. */
static void push_text(lua_State *L, const char *fname) {
  mtl_enter(L);
  lua_settop(L, 2);
  mt_tensor **held = mtl_new_tensor(L); /* at 3: the elements, on the CPU */
  mt_tensor *t = mtl_check_tensor(L, 1, fname);
  char trailer[512];
  luaL_Buffer out;
  printer p = {.L = L, .out = &out, .options = mtl_state_of(L)->print};
  read_options(L, 2, fname, &p.options);
  describe(t, true, trailer, sizeof trailer);
  if (mt_device_of(t).kind == MT_CPU) {
    *held = mt_retain(t);
  } else {
    *held = mt_retain(mtl_push_on_cpu(L, 1, -1, fname));
    mtl_free_tensor(L, -1);
  }
  p.v = &(*held)->v;
  p.summary = mt_numel(p.v) > p.options.threshold;
  luaL_buffinit(L, &out);
  add_elements(&p);
  luaL_addstring(&out, trailer);
  luaL_addchar(&out, '\n');
  luaL_pushresult(&out);
  mtl_free_tensor(L, 3);
}

/* t:show([opts]): print the elements; opts as of mt.set_printoptions */
static int tensor_show(lua_State *L) {
  size_t n;
  push_text(L, "show");
  const char *text = lua_tolstring(L, -1, &n);
  lua_writestring(text, n);
  fflush(stdout);
  return 0;
}

/* t:format([opts]) -> string: what t:show prints, without the last line end */
static int tensor_format(lua_State *L) {
  size_t n;
  push_text(L, "format");
  const char *text = lua_tolstring(L, -1, &n);
  lua_pushlstring(L, text, n - 1);
  return 1;
}

static const luaL_Reg methods[] = {
    {"show", tensor_show}, {"format", tensor_format}, {NULL, NULL}};

static const luaL_Reg functions[] = {{"set_printoptions", mt_set_printoptions},
                                     {"get_printoptions", mt_get_printoptions},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_show(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  mtl_set_methods(L, methods);
  mtl_push_metatable(L);
  lua_pushcfunction(L, tensor_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
}
