/* spec/support/faults.c -- makes chosen allocations of a process fail: the linker puts
** these functions in the place of malloc and its kin for our objects, Lua's and zlib's.
**
** Only `make test-faults` links this file, with --wrap=malloc and so on; the C library's
** own allocations stay as they are. A script finds the controls in the module "faults". */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
char *__real_strdup(const char *s);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
void *__real_mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset);
lua_State *__real_luaL_newstate(void);
void __real_luaL_openlibs(lua_State *L);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
void *__wrap_mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset);
lua_State *__wrap_luaL_newstate(void);
void __wrap_luaL_openlibs(lua_State *L);

/* ---- counting ------------------------------------------------------------------------
** Allocations number first .. first + width - 1 since arm() fail. */
static long seen, first, width, fired;
static long blocks; /* of C, not of Lua, that are alive */

static int fails(void) {
  if (__atomic_load_n(&first, __ATOMIC_RELAXED) == 0) return 0;
  const long n = __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
  if (n < first || n - first >= width) return 0;
  __atomic_add_fetch(&fired, 1, __ATOMIC_RELAXED);
  return 1;
}

static void count(long change) {
  __atomic_add_fetch(&blocks, change, __ATOMIC_RELAXED);
}

static void *counted(void *p) {
  if (p != NULL) count(1);
  return p;
}

/* ---- in the place of the C library --------------------------------------------------- */

void *__wrap_malloc(size_t n) { return fails() ? NULL : counted(__real_malloc(n)); }

void *__wrap_calloc(size_t n, size_t size) {
  return fails() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n) {
  if (fails()) return NULL;
  void *q = __real_realloc(p, n);
  return p == NULL ? counted(q) : q;
}

void __wrap_free(void *p) {
  if (p != NULL) count(-1);
  __real_free(p);
}

char *__wrap_strdup(const char *s) {
  return fails() ? NULL : counted(__real_strdup(s));
}

void *__wrap_aligned_alloc(size_t align, size_t n) {
  return fails() ? NULL : counted(__real_aligned_alloc(align, n));
}

int __wrap_posix_memalign(void **p, size_t align, size_t n) {
  if (fails()) return 12; /* ENOMEM */
  const int status = __real_posix_memalign(p, align, n);
  if (status == 0) count(1);
  return status;
}

void *__wrap_mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset) {
  return fails() ? MAP_FAILED : __real_mmap(p, n, prot, flags, fd, offset);
}

/* Lua's allocator, whose blocks are its collector's matter: they are not counted. */
static void *lua_alloc(void *user, void *p, size_t before, size_t n) {
  (void)user, (void)before;
  if (n == 0) {
    __real_free(p);
    return NULL;
  }
  /* Lua takes for granted that a block can be made smaller */
  if ((p == NULL || n > before) && fails()) return NULL;
  return __real_realloc(p, n);
}

lua_State *__wrap_luaL_newstate(void) {
  const long before = blocks;
  lua_State *L = __real_luaL_newstate();
  if (L != NULL) lua_setallocf(L, lua_alloc, NULL);
  blocks = before;
  return L;
}

/* ---- the module "faults" ------------------------------------------------------------- */

/* arm(n[, width = 1]): from now on allocation number n, or so many from it on, fail */
static int arm(lua_State *L) {
  const long n = (long)luaL_checkinteger(L, 1);
  width = (long)luaL_optinteger(L, 2, 1);
  seen = fired = 0;
  first = n;
  return 0;
}

/* disarm() -> how many failed, how many were asked for; never raises */
static int disarm(lua_State *L) {
  first = 0;
  lua_pushinteger(L, fired);
  lua_pushinteger(L, seen);
  return 2;
}

/* call(n, width, fn) -> how many failed, true and fn's result, or false and its error:
** armed while fn runs. Lua could not: after an error with all memory gone, it might lack
** the memory to call disarm. */
static int call_armed(lua_State *L) {
  const long n = (long)luaL_checkinteger(L, 1);
  luaL_checktype(L, 3, LUA_TFUNCTION);
  luaL_checkstack(L, 20, NULL);
  width = (long)luaL_checkinteger(L, 2);
  lua_pushvalue(L, 3);
  seen = fired = 0;
  first = n;
  const int status = lua_pcall(L, 0, 1, 0);
  first = 0;
  lua_pushinteger(L, fired);
  lua_pushboolean(L, status == LUA_OK);
  lua_pushvalue(L, -3);
  return 3;
}

/* blocks() -> how many blocks of C are alive */
static int live_blocks(lua_State *L) {
  lua_pushinteger(L, blocks);
  return 1;
}

int luaopen_mytensor(lua_State *L);

static int run_fresh(lua_State *L) {
  const char *code = lua_touserdata(L, 1);
  luaL_openlibs(L);
  luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
  if (luaL_loadbuffer(L, code, strlen(code), "=fresh") != LUA_OK) return lua_error(L);
  lua_call(L, 0, 0);
  return 0;
}

/* fresh(code, n[, width]) -> how many failed, message or nil: a state of its own loads
** the module and runs code while allocations fail, then is closed */
static int fresh(lua_State *L) {
  char message[512] = "";
  const char *code = luaL_checkstring(L, 1);
  const lua_Integer n = luaL_checkinteger(L, 2), many = luaL_optinteger(L, 3, 1);
  lua_State *own = luaL_newstate();
  if (own == NULL) return luaL_error(L, "no state");
  width = (long)many, seen = fired = 0;
  first = (long)n;
  lua_pushcfunction(own, run_fresh);
  lua_pushlightuserdata(own, (void *)(size_t)code);
  const int status = lua_pcall(own, 1, 0, 0);
  first = 0;
  if (status != LUA_OK) {
    const char *text = lua_tostring(own, -1);
    strncat(message, text != NULL ? text : "(no string)", sizeof message - 1);
  }
  lua_close(own);
  lua_pushinteger(L, fired);
  if (status == LUA_OK) return 1;
  lua_pushstring(L, message);
  return 2;
}

static int open_faults(lua_State *L) {
  static const luaL_Reg functions[] = {{"arm", arm},         {"disarm", disarm},
                                       {"call", call_armed}, {"blocks", live_blocks},
                                       {"fresh", fresh},     {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}

void __wrap_luaL_openlibs(lua_State *L) {
  __real_luaL_openlibs(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, open_faults);
  lua_setfield(L, -2, "faults");
  lua_pop(L, 1);
}
