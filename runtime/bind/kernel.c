/* runtime/bind/kernel.c -- mt.cuda.kernel: CUDA source as a function of tensors and
** numbers. lua/mytensor/kernel.lua reads the signature; here its calls are checked and
** launched. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/cuda_graph.h"
#include "runtime/core/plan.h"
#include "runtime/core/profile.h"
#include "runtime/core/toolchain.h"

#define KERNEL         "mytensor.cuda.Kernel"
#define MAX_PARAMETERS 64

typedef struct parameter {
  mt_dtype dtype;
  bool pointer;
  bool constant;    /* what it points to is only read */
  bool untyped;     /* void *: tensors of any dtype */
  bool has_no_sign; /* an unsigned integer */
  int64_t width;    /* elements of a vector type: float4 has 4 */
} parameter;

/* The user value is the table that kernel.lua has made: name, source, program, options,
** params, grid, block, shared. */
typedef struct kernel {
  const void *kind;
  mt_function *function[MT_MAX_GPUS]; /* NULL: not compiled there yet */
  char name[64];
  int nparams;
  parameter param[];
} kernel;

static const char kernel_kind = 0;

/* Of one call: the arguments as CUDA wants them. */
typedef struct arguments {
  mt_device device;
  bool any_tensor;
  int64_t elements; /* of the largest tensor that is written, or else read */
  mt_tensor *tensor[MAX_PARAMETERS]; /* NULL: a scalar */
  union {
    void *p;
    char bytes[8];
  } value[MAX_PARAMETERS];
  void *at[MAX_PARAMETERS];
} arguments;

static kernel *check_kernel(lua_State *L, int arg) {
  kernel *k = lua_type(L, arg) == LUA_TUSERDATA ? lua_touserdata(L, arg) : NULL;
  if (k == NULL || lua_rawlen(L, arg) < sizeof *k || k->kind != &kernel_kind) {
    luaL_typeerror(L, arg, KERNEL);
  }
  return k;
}

/* ---- making one ---- */

static void read_parameter(lua_State *L, parameter *p) {
  memset(p, 0, sizeof *p);
  lua_getfield(L, -1, "type");
  p->untyped = strcmp(luaL_checkstring(L, -1), "void") == 0;
  if (!p->untyped) p->dtype = mtl_check_dtype(L, -1, "kernel");
  lua_getfield(L, -2, "pointer");
  p->pointer = lua_toboolean(L, -1);
  lua_getfield(L, -3, "constant");
  p->constant = lua_toboolean(L, -1);
  lua_getfield(L, -4, "unsigned");
  p->has_no_sign = lua_toboolean(L, -1);
  lua_getfield(L, -5, "width");
  p->width = luaL_optinteger(L, -1, 1);
  lua_pop(L, 5);
}

/* The strings of the list on top, which they stay in. Popped. */
static const char **push_options(lua_State *L, int *n) {
  *n = (int)luaL_len(L, -1);
  const char **list = lua_newuserdatauv(L, ((size_t)*n + 1) * sizeof *list, 0);
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, -2, i + 1);
    list[i] = luaL_checkstring(L, -1);
    lua_pop(L, 1);
  }
  lua_remove(L, -2);
  return list;
}

static const char *field(lua_State *L, int table, const char *name) {
  lua_getfield(L, table, name);
  const char *s = luaL_checkstring(L, -1);
  lua_pop(L, 1); /* the table keeps it */
  return s;
}

/* Compile for a GPU as the table at def says. *log: from malloc. */
static mt_status compile(lua_State *L, int def, kernel *k, mt_device device,
                         char **log /* [out] */) {
  int n;
  mt_program *program = NULL;
  *log = NULL;
  lua_getfield(L, def, "options");
  const char **options = push_options(L, &n);
  const char *name = field(L, def, "program"), *source = field(L, def, "source");
  const mt_toolchain *t = mt_toolchain_of(device);
  if (t == NULL) return MT_EDEVICE;
  mt_status status = t->compile(device.index, name, source, options, n, &program, log);
  mt_function *f = NULL;
  if (status == MT_OK) status = t->function(program, k->name, &f);
  lua_pop(L, 1);
  if (status != MT_OK) return mt_toolchain_status(device, NULL, status);
  int bytes[MAX_PARAMETERS];
  for (int i = 0; i < k->nparams; i++) {
    const parameter *p = &k->param[i];
    bytes[i] = (int)(p->pointer ? sizeof(void *) : mt_dtype_size(p->dtype));
  }
  MT_TRY(mt_toolchain_check(t, f, k->name, k->nparams, bytes));
  k->function[device.index] = f;
  return MT_OK;
}

/* kernel, log = mt._kernel(table): nil, text, log where it cannot be compiled */
static int module_kernel(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_getfield(L, 1, "params");
  const lua_Integer n = luaL_len(L, 2);
  if (n > MAX_PARAMETERS) {
    return luaL_error(L, "mt.cuda.kernel: %d parameters, at most %d are possible",
                      (int)n, MAX_PARAMETERS);
  }
  kernel *k =
      lua_newuserdatauv(L, sizeof *k + (size_t)n * sizeof *k->param, 1); /* at 3 */
  memset(k, 0, sizeof *k);
  k->kind = &kernel_kind;
  k->nparams = (int)n;
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, 3, 1);
  luaL_setmetatable(L, KERNEL);
  const char *name = field(L, 1, "name");
  if (strlen(name) >= sizeof k->name) {
    return luaL_error(L, "mt.cuda.kernel: the name %s is too long", name);
  }
  memcpy(k->name, name, strlen(name) + 1);
  for (int i = 0; i < k->nparams; i++) {
    lua_rawgeti(L, 2, i + 1);
    read_parameter(L, &k->param[i]);
    lua_pop(L, 1);
  }
  char *log;
  const mt_status status = compile(L, 1, k, mtl_current_gpu(L), &log);
  if (status == MT_OK) {
    lua_settop(L, 3);
  } else {
    luaL_pushfail(L);
    lua_pushstring(L, mt_last_error()->text);
  }
  lua_pushstring(L, log); /* NULL: nil; short of memory, the log is lost */
  free(log);
  return status == MT_OK ? 2 : 3;
}

/* The kernel's function on a device, compiled there at its first use. */
static mt_function *function_on(lua_State *L, kernel *k, mt_device device) {
  if (k->function[device.index] != NULL) return k->function[device.index];
  char *log;
  lua_getiuservalue(L, 1, 1);
  const mt_status status = compile(L, lua_gettop(L), k, device, &log);
  lua_pop(L, 1);
  if (status != MT_OK) {
    lua_pushstring(L, log);
    free(log);
    const char *more = lua_tostring(L, -1);
    luaL_error(L, "%s: %s%s%s", k->name, mt_last_error()->text, more ? "\n" : "",
               more ? more : "");
  }
  free(log);
  return k->function[device.index];
}

/* ---- arguments ---- */

/* "bad argument #2 to 'k' (float *y: ...)" */
static int bad(lua_State *L, const kernel *k, int i, const char *text) {
  lua_getiuservalue(L, 1, 1);
  lua_getfield(L, -1, "params");
  lua_rawgeti(L, -1, i + 1);
  lua_getfield(L, -1, "text");
  return luaL_error(L, "bad argument #%d to '%s' (%s: %s)", i + 1, k->name,
                    luaL_tolstring(L, -1, NULL), text);
}

static int bad_format(lua_State *L, const kernel *k, int i, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char text[400];
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return bad(L, k, i, text);
}

static void read_float(lua_State *L, const kernel *k, int i, void *to) {
  static const double most[] = {
      [MT_F32] = FLT_MAX, [MT_F64] = DBL_MAX, [MT_F16] = 65504, [MT_BF16] = 0x1.fep127};
  const parameter *p = &k->param[i];
  if (lua_type(L, 2 + i) != LUA_TNUMBER) {
    bad_format(L, k, i, "number expected, got %s", mtl_typename(L, 2 + i));
  }
  const double x = lua_tonumber(L, 2 + i);
  if (isfinite(x) && fabs(x) > most[p->dtype]) {
    bad_format(L, k, i, "%.14g is out of range -%.6g .. %.6g", x, most[p->dtype],
               most[p->dtype]);
  }
  mt_store_f64(p->dtype, to, x);
}

static void read_integer(lua_State *L, const kernel *k, int i, void *to) {
  const parameter *p = &k->param[i];
  int64_t x, lo, hi;
  mtl_text e;
  if (!mtl_get_int(L, 2 + i, &x, &e)) bad(L, k, i, e.s);
  mt_dtype_limits(p->dtype, &lo, &hi);
  if (p->has_no_sign) {
    lo = 0;
    hi = p->dtype == MT_I64 ? hi : p->dtype == MT_U8 ? 255 : 2 * hi + 1;
  }
  if (x < lo || x > hi) {
    bad_format(L, k, i, "%lld is out of range %lld .. %lld", (long long)x,
               (long long)lo, (long long)hi);
  }
  memcpy(to, &x, mt_dtype_size(p->dtype)); /* the low bytes come first */
}

static void read_scalar(lua_State *L, const kernel *k, int i, void *to) {
  if (MT_IS_FLOAT(k->param[i].dtype)) {
    read_float(L, k, i, to);
  } else if (k->param[i].dtype == MT_BOOL) {
    if (!lua_isboolean(L, 2 + i)) {
      bad_format(L, k, i, "boolean expected, got %s", mtl_typename(L, 2 + i));
    }
    *(char *)to = (char)lua_toboolean(L, 2 + i);
  } else {
    read_integer(L, k, i, to);
  }
}

static void check_elements(lua_State *L, const kernel *k, int i, const mt_tensor *t) {
  const parameter *p = &k->param[i];
  if (!p->untyped && t->v.dtype != p->dtype) {
    bad_format(L, k, i, "%s expected, got a tensor of %s", mt_dtype_name(p->dtype),
               mt_dtype_name(t->v.dtype));
  }
  if (!mt_is_contiguous(&t->v)) {
    bad_format(L, k, i,
               "contiguous tensor expected, got a view of shape %s whose elements lie "
               "apart; :contiguous() gives a copy",
               mt_view_text(&t->v));
  }
  if (p->width == 1) return;
  const size_t bytes = mt_dtype_size(p->dtype) * (size_t)p->width;
  if (mt_numel(&t->v) % p->width != 0) {
    bad_format(L, k, i, "shape %s has %lld elements, no multiple of %d",
               mt_view_text(&t->v), (long long)mt_numel(&t->v), (int)p->width);
  }
  if (p->width != 3 && (uintptr_t)t->v.data % bytes != 0) {
    bad_format(L, k, i, "the elements do not begin at a multiple of %d bytes",
               (int)bytes);
  }
}

static void read_tensor(lua_State *L, const mt_context *ctx, const kernel *k, int i,
                        arguments *a) {
  mt_tensor *t = mtl_to_tensor(L, 2 + i);
  if (t == NULL) {
    bad_format(L, k, i, "tensor expected, got %s", mtl_typename(L, 2 + i));
    return;
  }
  const mt_device device = mt_device_of(t);
  if (device.kind == MT_CPU) bad(L, k, i, "tensor on a GPU expected, got one on cpu");
  if (!a->any_tensor) a->device = device;
  if (device.index != a->device.index) {
    bad_format(L, k, i, "tensor on %s; those before it are on cuda:%d",
               mt_device_name(device), a->device.index);
  }
  check_elements(L, k, i, t);
  if (!k->param[i].constant && mt_check_written(ctx, t) != MT_OK) {
    bad(L, k, i, mt_last_error()->text);
  }
  a->any_tensor = true;
  a->tensor[i] = t;
  a->value[i].p = t->v.data;
}

/* The arguments from 2 on. Nothing of Lua is allocated, but for an error. */
static void read_arguments(lua_State *L, const mt_context *ctx, const kernel *k,
                           arguments *a) {
  int64_t read = 1, written = -1;
  a->device = mtl_current_gpu(L);
  a->any_tensor = false;
  for (int i = 0; i < k->nparams; i++) {
    a->tensor[i] = NULL;
    a->at[i] = &a->value[i];
    if (!k->param[i].pointer) {
      read_scalar(L, k, i, a->value[i].bytes);
      continue;
    }
    read_tensor(L, ctx, k, i, a);
    const int64_t n = mt_numel(&a->tensor[i]->v) / k->param[i].width;
    if (k->param[i].constant) {
      if (n > read) read = n;
    } else if (n > written) {
      written = n;
    }
  }
  a->elements = written >= 0 ? written : read;
}

/* ---- the shape of a launch ---- */

static int bad_shape(lua_State *L, const kernel *k, const char *what,
                     const char *text) {
  return luaL_error(L, "%s: %s: %s", k->name, what, text);
}

/* The value on top: a number, up to three of them in a list. Popped. */
static void read_shape(lua_State *L, const kernel *k, const char *what,
                       uint32_t *size) {
  int n = 0;
  int64_t x[MT_MAX_DIMS];
  mtl_text e;
  if (!mtl_get_ints(L, -1, &n, x, &e)) bad_shape(L, k, what, e.s);
  if (n < 1 || n > 3) bad_shape(L, k, what, "1 to 3 numbers expected");
  for (int i = 0; i < n; i++) {
    if (x[i] < 0 || x[i] > INT32_MAX) {
      mtl_say(&e, "%lld is out of range 0 .. 2147483647", (long long)x[i]);
      bad_shape(L, k, what, e.s);
    }
    size[i] = (uint32_t)x[i];
  }
  lua_pop(L, 1);
}

/* Push what the call's own table (0: none), else the kernel's, says of what: not a
** function, which is called with the arguments. Returns whether there is a value. */
static bool push_shape(lua_State *L, const kernel *k, int own, const char *what) {
  if (own == 0 || lua_getfield(L, own, what) == LUA_TNIL) {
    lua_settop(L, k->nparams + 1 + (own != 0));
    lua_getiuservalue(L, 1, 1);
    lua_getfield(L, -1, what);
    lua_remove(L, -2);
  }
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return false;
  }
  if (!lua_isfunction(L, -1)) return true;
  const int fn = lua_gettop(L);
  luaL_checkstack(L, k->nparams + 4, NULL);
  for (int i = 0; i < k->nparams; i++) lua_pushvalue(L, 2 + i);
  lua_call(L, k->nparams, LUA_MULTRET);
  const int n = lua_gettop(L) - fn + 1;
  if (n == 1) return true;
  if (n < 1 || n > 3) bad_shape(L, k, what, "the function gave no number, or too many");
  lua_createtable(L, n, 0);
  lua_insert(L, fn);
  for (int i = n; i >= 1; i--) lua_rawseti(L, fn, i);
  return true;
}

static void check_keys(lua_State *L, const kernel *k, int own) {
  for (lua_pushnil(L); lua_next(L, own); lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (strcmp(key, "grid") != 0 && strcmp(key, "block") != 0 &&
        strcmp(key, "shared") != 0) {
      luaL_error(L, "%s: unknown option '%s'; there are grid, block, shared", k->name,
                 key);
    }
  }
}

/* Fill s; the grid may be left to set: false. */
static bool read_shapes(lua_State *L, const kernel *k, int own, mt_launch *s) {
  uint32_t shared[3] = {0, 1, 1};
  const bool has_grid = push_shape(L, k, own, "grid");
  if (has_grid) read_shape(L, k, "grid", s->grid);
  if (push_shape(L, k, own, "block")) read_shape(L, k, "block", s->block);
  if (push_shape(L, k, own, "shared")) read_shape(L, k, "shared", shared);
  if (shared[1] != 1 || shared[2] != 1)
    bad_shape(L, k, "shared", "one number expected");
  s->shared_bytes = shared[0];
  return has_grid;
}

/* A thread for each element. */
static void set_grid(lua_State *L, const kernel *k, int64_t elements, mt_launch *s) {
  const int64_t threads =
      (int64_t)s->block[0] * (int64_t)s->block[1] * (int64_t)s->block[2];
  const int64_t blocks = threads > 0 ? (elements + threads - 1) / threads : 1;
  if (blocks > INT32_MAX) bad_shape(L, k, "grid", "too many elements for one grid");
  s->grid[0] = (uint32_t)blocks;
}

/* ---- calling ---- */

/* kernel(..., {grid=, block=, shared=}?) */
static int kernel_call(lua_State *L) {
  kernel *const k = check_kernel(L, 1);
  mt_context *const ctx = mtl_context(L);
  const int n = lua_gettop(L) - 1;
  const int own = n == k->nparams + 1 && lua_istable(L, n + 1) ? n + 1 : 0;
  if (n != k->nparams && own == 0) {
    return luaL_error(L, "%s: %d arguments expected, got %d", k->name, k->nparams, n);
  }
  luaL_checkstack(L, 10, NULL);
  arguments a;
  mt_launch shape = {{1, 1, 1}, {256, 1, 1}, 0};
  read_arguments(L, ctx, k, &a); /* functions for the shape get what was checked */
  if (own != 0) check_keys(L, k, own);
  const bool has_grid = read_shapes(L, k, own, &shape);
  read_arguments(L, ctx, k, &a); /* and may have freed some of it */
  if (!has_grid) set_grid(L, k, a.elements, &shape);
  if (!a.any_tensor && mt_backend_of(a.device) == NULL) return mtl_raise(L, k->name);
  mt_function *const f = function_on(L, k, a.device);
  if (ctx->graph &&
      mt_graph_admit(ctx, k->name, k->nparams, a.tensor, 0, NULL) != MT_OK) {
    return mtl_raise(L, k->name);
  }
  mt_note_streams(ctx, k->nparams, a.tensor, 0, NULL);
  mt_mark mark;
  mt_profile_begin(ctx, mt_profile_name(ctx, k->name), false, k->nparams, a.tensor, 0,
                   NULL, &mark);
  if (ctx->graph) mt_graph_enter(ctx->graph, 0, NULL, k->nparams, a.tensor);
  const mt_status launched = mt_toolchain_of(a.device)->launch(
      f, a.device.index, ctx->stream[a.device.index], &shape, a.at);
  if (ctx->graph) mt_graph_leave(ctx->graph);
  const mt_status status = mt_kernel_status(ctx, a.device, k->name, launched);
  mt_profile_end(&mark, mt_op_info(MT_OP_clone), status, k->nparams, a.tensor, 0, NULL);
  if (status != MT_OK) return mtl_raise(L, k->name);
  for (int i = 0; i < k->nparams; i++) {
    if (a.tensor[i] != NULL && !k->param[i].constant) mt_bump(a.tensor[i]);
  }
  return 0;
}

/* tostring(kernel) */
static int kernel_tostring(lua_State *L) {
  check_kernel(L, 1);
  lua_getiuservalue(L, 1, 1);
  lua_getfield(L, -1, "text");
  lua_pushfstring(L, "<Kernel %s>", luaL_tolstring(L, -1, NULL));
  return 1;
}

/* mt.cuda.kernel({source=, name=, grid=, block=, shared=, signature=, options=}) ->
** function: the kernel `name` (needed where the source has several) of CUDA source,
** compiled now, as a function of its parameters, at most 64: numbers, and for pointers
** contiguous tensors of that dtype on one GPU, of any shape. They are checked, and the
** kernel is launched on the current stream. grid, block: a number, {x, y, z}, or a
** function of the arguments that gives them; by default 256 threads in a block, and a
** thread for each element of the largest tensor that is written, the one without const.
** shared: bytes of dynamic shared memory, 0 unless given. A table behind the arguments
** has others for this call. signature: the parameters, where the source hides them in
** macros. options: a list for the compiler. What does not compile is an error with the
** compiler's messages and the script's lines. Nothing is recorded: an mt.Function gives
** gradients */
static int cuda_kernel(lua_State *L) {
  lua_settop(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "mytensor.kernel");
  lua_call(L, 1, 1);
  lua_insert(L, 1);
  if (lua_pcall(L, 1, 1, 0) == LUA_OK) return 1;
  if (lua_type(L, -1) != LUA_TSTRING) return lua_error(L);
  return luaL_error(L, "%s", lua_tostring(L, -1)); /* with the caller's line */
}

static const luaL_Reg meta[] = {
    {"__call", kernel_call}, {"__tostring", kernel_tostring}, {NULL, NULL}};

/* stack: module */
void mtl_open_kernel(lua_State *L) {
  luaL_newmetatable(L, KERNEL);
  luaL_setfuncs(L, meta, 0);
  lua_pushliteral(L, KERNEL);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  lua_pushcfunction(L, module_kernel);
  lua_setfield(L, -2, "_kernel");
  lua_getfield(L, -1, "cuda");
  lua_pushcfunction(L, cuda_kernel);
  lua_setfield(L, -2, "kernel");
  lua_pop(L, 1);
}
