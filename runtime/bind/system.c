/* runtime/bind/system.c -- settings of the state and the process: seed, threads,
** devices; and what mt.info() tells for bug reports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"
#include "runtime/core/toolchain.h"
#include "runtime/mytensor.h"

/* ---- random numbers ---- */

/* mt.manual_seed(n): the same seed gives the same numbers on every device */
static int mt_manual_seed(lua_State *L) {
  mtl_refuse_capture(L, "manual_seed");
  const int64_t seed = mtl_check_int(L, 1, "manual_seed");
  mt_context *ctx = mtl_context(L);
  ctx->seed = (uint64_t)seed;
  ctx->position = 0;
  return 0;
}

/* mt.get_rng_state() -> state: a table for mt.set_rng_state */
static int mt_get_rng_state(lua_State *L) {
  const mt_context *ctx = mtl_context(L);
  lua_createtable(L, 0, 2);
  lua_pushinteger(L, (lua_Integer)ctx->seed);
  lua_setfield(L, -2, "seed");
  lua_pushinteger(L, (lua_Integer)ctx->position);
  lua_setfield(L, -2, "position");
  return 1;
}

static uint64_t check_field(lua_State *L, const char *key) {
  int is_int;
  lua_getfield(L, 1, key);
  const lua_Integer x = lua_tointegerx(L, -1, &is_int);
  if (!is_int || lua_type(L, -1) != LUA_TNUMBER) {
    mtl_argerror(L, 1, "set_rng_state", "what get_rng_state gave expected: no '%s'",
                 key);
  }
  lua_pop(L, 1);
  return (uint64_t)x;
}

/* mt.set_rng_state(state): go on from where mt.get_rng_state was called */
static int mt_set_rng_state(lua_State *L) {
  mtl_refuse_capture(L, "set_rng_state");
  if (!lua_istable(L, 1)) {
    return mtl_argerror(L, 1, "set_rng_state", "table expected, got %s",
                        mtl_typename(L, 1));
  }
  mt_context *ctx = mtl_context(L);
  const uint64_t seed = check_field(L, "seed"), position = check_field(L, "position");
  ctx->seed = seed;
  ctx->position = position;
  return 0;
}

/* ---- threads and algorithms ---- */

/* mt.set_num_threads(n): for all kernels of the process; a child of fork() has one */
static int mt_set_threads(lua_State *L) {
  const int64_t n = mtl_check_int(L, 1, "set_num_threads");
  if (n < 1 || n > 1024) {
    return mtl_argerror(L, 1, "set_num_threads", "%lld threads: 1 .. 1024 are possible",
                        (long long)n);
  }
  if (n > 1 && mt_is_forked()) {
    return luaL_error(L, "set_num_threads: a child of fork() works on one thread");
  }
  mt_set_num_threads((int)n);
  return 0;
}

/* mt.get_num_threads() -> integer: of all kernels of the process */
static int mt_get_threads(lua_State *L) {
  lua_pushinteger(L, mt_get_num_threads());
  return 1;
}

/* mt.set_deterministic(on): pin the algorithms that are otherwise picked by timing, and
** the order of sums at one place on GPUs */
static int mt_set_deterministic(lua_State *L) {
  if (!lua_isboolean(L, 1)) {
    return mtl_argerror(L, 1, "set_deterministic", "boolean expected, got %s",
                        mtl_typename(L, 1));
  }
  mtl_context(L)->deterministic = lua_toboolean(L, 1);
  return 0;
}

/* mt.is_deterministic(): what mt.set_deterministic set */
static int mt_is_deterministic(lua_State *L) {
  lua_pushboolean(L, mtl_context(L)->deterministic);
  return 1;
}

static const char *const precisions[] = {"highest", "high", "medium", NULL};

/* mt.set_matmul_precision("highest" | "high" | "medium"): of float32 products and
** convolutions on a GPU: float32, TF32 (10 bits behind the point), bfloat16 (7 bits) */
static int mt_set_matmul_precision(lua_State *L) {
  static const char fname[] = "set_matmul_precision";
  if (lua_type(L, 1) != LUA_TSTRING) {
    return mtl_argerror(L, 1, fname,
                        "\"highest\", \"high\" or \"medium\" expected, got %s",
                        mtl_typename(L, 1));
  }
  const char *name = lua_tostring(L, 1);
  for (int i = 0; precisions[i] != NULL; i++) {
    if (strcmp(name, precisions[i]) != 0) continue;
    mtl_context(L)->precision = i;
    return 0;
  }
  return mtl_argerror(L, 1, fname,
                      "unknown precision '%.40s': want highest, high or medium", name);
}

/* mt.get_matmul_precision() -> name: what mt.set_matmul_precision set; "highest" at
** first */
static int mt_get_matmul_precision(lua_State *L) {
  lua_pushstring(L, precisions[mtl_context(L)->precision]);
  return 1;
}

/* ---- devices ---- */

/* "auto" is a GPU if there is one. */
static mt_status parse_default_device(lua_State *L, const char *name,
                                      mt_device *d /* [out] */) {
  if (strcmp(name, "auto") != 0) {
    if (mtl_parse_device(L, name, d) == MT_OK) return MT_OK;
    return mt_fail(MT_EDEVICE, "unknown device '%.40s': want cpu, cuda, cuda:N or auto",
                   name);
  }
  *d = mtl_current_gpu(L);
  if (mt_backend_of(*d) == NULL) *d = (mt_device){MT_CPU, 0};
  return MT_OK;
}

/* mt.set_default_device(name): "cpu", "cuda", "cuda:1", or "auto": a GPU if there is
** one. Constructors raise if it is not there */
static int mt_set_default_device(lua_State *L) {
  static const char fname[] = "set_default_device";
  if (lua_type(L, 1) != LUA_TSTRING) {
    return mtl_argerror(L, 1, fname, "device name expected, got %s",
                        mtl_typename(L, 1));
  }
  if (parse_default_device(L, lua_tostring(L, 1), &mtl_context(L)->default_device) !=
      MT_OK) {
    return mtl_argerror(L, 1, fname, "%s", mt_last_error()->text);
  }
  return 0;
}

/* mt.get_default_device() -> name: "cpu" or "cuda:0" */
static int mt_get_default_device(lua_State *L) {
  lua_pushstring(L, mt_device_name(mtl_context(L)->default_device));
  return 1;
}

void mtl_preset_device(lua_State *L) {
  const char *source = "--device";
  lua_getfield(L, LUA_REGISTRYINDEX, "mytensor.device");
  const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
  if (name == NULL) {
    source = "MYTENSOR_DEVICE";
    name = mtl_getenv(L, source);
  }
  if (name != NULL && name[0] != '\0' &&
      parse_default_device(L, name, &mtl_context(L)->default_device) != MT_OK) {
    luaL_error(L, "%s: %s", source, mt_last_error()->text);
  }
  lua_pop(L, 1);
}

void mtl_check_isa(lua_State *L) {
  const char *isa = mtl_getenv(L, "MYTENSOR_ISA");
  if (isa != NULL && isa[0] != '\0' && strcmp(isa, "v1") != 0 &&
      strcmp(isa, "v3") != 0 && strcmp(isa, "v4") != 0) {
    luaL_error(L, "MYTENSOR_ISA: unknown instruction set '%s': want v1, v3 or v4", isa);
  }
}

/* ---- mt.info() ---- */

static void set_string(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

/* Push what /proc/cpuinfo calls the processor, or "unknown". */
static void push_cpu_name(lua_State *L) {
  char line[256], name[256] = "unknown";
  FILE *f = fopen("/proc/cpuinfo", "r");
  if (f != NULL) {
    while (fgets(line, sizeof line, f) != NULL) {
      if (sscanf(line, "model name : %255[^\n]", name) == 1) break;
    }
    fclose(f);
  }
  lua_pushstring(L, name);
}

/* Push a list of what the processor has that kernels are compiled for. */
static void push_cpu_features(lua_State *L) {
  lua_newtable(L);
#if defined(__x86_64__)
  __builtin_cpu_init();
  const struct {
    const char *name;
    int here;
  } features[] = {{"sse4.2", __builtin_cpu_supports("sse4.2")},
                  {"avx", __builtin_cpu_supports("avx")},
                  {"avx2", __builtin_cpu_supports("avx2")},
                  {"fma", __builtin_cpu_supports("fma")},
                  {"avx512f", __builtin_cpu_supports("avx512f")},
                  {"avx512bw", __builtin_cpu_supports("avx512bw")},
                  {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
                  {"avx512bf16", __builtin_cpu_supports("avx512bf16")}};
  int n = 0;
  for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
    if (!features[i].here) continue;
    lua_pushstring(L, features[i].name);
    lua_rawseti(L, -2, ++n);
  }
#endif
}

/* Push a line for each GPU, or why there is none. */
static void push_gpus(lua_State *L) {
  const char *reason = NULL;
  const mt_backend *backend = mt_cuda_backend(&reason);
  if (backend == NULL) {
    lua_pushstring(L, reason);
    return;
  }
  const int n = backend->device->device_count(), first = lua_gettop(L) + 1;
  luaL_checkstack(L, n + 1, NULL);
  for (int i = 0; i < n; i++) {
    mt_device_info g;
    char text[512];
    if (backend->device->describe(i, &g) != MT_OK) {
      snprintf(text, sizeof text, "cuda:%d %.300s", i, backend->device->error_text());
    } else {
      snprintf(text, sizeof text,
               "cuda:%d %s, capability %d.%d, %.1f GiB, driver %d.%d, runtime %d.%d", i,
               g.name, g.major, g.minor, (double)g.total_bytes / 0x1p30,
               g.driver / 1000, g.driver % 1000 / 10, g.runtime / 1000,
               g.runtime % 1000 / 10);
    }
    lua_pushfstring(L, i > 0 ? "; %s" : "%s", text);
  }
  lua_concat(L, lua_gettop(L) - first + 1);
}

/* mt.info() -> table: for bug reports: version, api_version, lua, compiler, cpu,
** cpu_features, threads, default_device, default_dtype, cuda, lua_files, libraries */
static int mt_info(lua_State *L) {
  const mt_context *ctx = mtl_context(L);
  const char *dir = mtl_getenv(L, "MYTENSOR_LUA");
  lua_createtable(L, 0, 12);
  set_string(L, "version", MT_VERSION);
  lua_pushinteger(L, MT_API_VERSION);
  lua_setfield(L, -2, "api_version");
  set_string(L, "lua", mtl_lua_release());
  set_string(L, "compiler", __VERSION__);
  push_cpu_name(L);
  lua_setfield(L, -2, "cpu");
  push_cpu_features(L);
  lua_setfield(L, -2, "cpu_features");
  lua_pushinteger(L, mt_get_num_threads());
  lua_setfield(L, -2, "threads");
  set_string(L, "default_device", mt_device_name(ctx->default_device));
  set_string(L, "default_dtype", mt_dtype_name(ctx->default_dtype));
  set_string(L, "lua_files", dir != NULL && dir[0] != '\0' ? dir : "embedded");
  lua_createtable(L, 0, 3);
  set_string(L, "zlib", zlibVersion());
  mtl_push_cudnn(L);
  lua_setfield(L, -2, "cudnn");
  const char *missing = mt_toolchain_missing();
  lua_pushfstring(L, missing ? "none (%s)" : "found", missing);
  lua_setfield(L, -2, "nvrtc");
  lua_setfield(L, -2, "libraries");
  push_gpus(L);
  lua_setfield(L, -2, "cuda");
  return 1;
}

static const luaL_Reg functions[] = {{"manual_seed", mt_manual_seed},
                                     {"get_rng_state", mt_get_rng_state},
                                     {"set_rng_state", mt_set_rng_state},
                                     {"set_num_threads", mt_set_threads},
                                     {"get_num_threads", mt_get_threads},
                                     {"set_deterministic", mt_set_deterministic},
                                     {"is_deterministic", mt_is_deterministic},
                                     {"set_matmul_precision", mt_set_matmul_precision},
                                     {"get_matmul_precision", mt_get_matmul_precision},
                                     {"set_default_device", mt_set_default_device},
                                     {"get_default_device", mt_get_default_device},
                                     {"info", mt_info},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_system(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  lua_createtable(L, 0, 2);
  set_string(L, "CPU", "cpu");
  set_string(L, "GPU", "cuda");
  lua_setfield(L, -2, "TensorDevice");
}
