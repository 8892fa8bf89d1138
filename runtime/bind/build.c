/* runtime/bind/build.c -- what mt.extension needs of the system beyond Lua's io and os:
** hashes, folders, locks, and the headers inside the binary. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/bind/args.h"
#include "runtime/bind/embedded.h"
#include "runtime/bind/state.h"

#define LOCK "mytensor.lock"

static int fail(lua_State *L, const char *path) {
  const char *why = strerror(errno);
  luaL_pushfail(L);
  lua_pushfstring(L, "%s: %s", path, why);
  return 2;
}

/* mt._hash(...) -> 32 digits that depend on every byte of the strings and on where each
** ends */
static int hash(lua_State *L) {
  static const uint64_t prime = UINT64_C(1099511628211); /* FNV-1a, twice */
  uint64_t a = UINT64_C(14695981039346656037), b = ~a;
  for (int i = 1; i <= lua_gettop(L); i++) {
    size_t n;
    const char *s = luaL_checklstring(L, i, &n);
    for (size_t k = 0; k < n; k++) {
      a = (a ^ (unsigned char)s[k]) * prime;
      b = (b ^ (unsigned char)s[k]) * prime + (b >> 32);
    }
    a = (a ^ n) * prime + i;
    b = (b ^ n) * prime + (b >> 32) + i;
  }
  char text[33];
  snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)a,
           (unsigned long long)b);
  lua_pushstring(L, text);
  return 1;
}

/* mt._make_folder(path) -> true, or nil and a message: with those above it, for the user
** alone */
static int make_folder(lua_State *L) {
  size_t n;
  const char *path = luaL_checklstring(L, 1, &n);
  char *copy = lua_newuserdatauv(L, n + 1, 0);
  memcpy(copy, path, n + 1);
  for (size_t i = 1; i <= n; i++) {
    if (copy[i] != '/' && copy[i] != '\0') continue;
    copy[i] = '\0';
    struct stat info;
    if (mkdir(copy, 0700) != 0 && errno != EEXIST) return fail(L, copy);
    if (stat(copy, &info) != 0) return fail(L, copy);
    if (!S_ISDIR(info.st_mode)) {
      errno = ENOTDIR;
      return fail(L, copy);
    }
    if (i < n) copy[i] = '/';
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* mt._stat(path) -> size, time of the last change, is it a regular file?; nil and a
** message */
static int file_stat(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  struct stat info;
  if (stat(path, &info) != 0) return fail(L, path);
  lua_pushinteger(L, (lua_Integer)info.st_size);
  lua_pushinteger(L, (lua_Integer)info.st_mtim.tv_sec * 1000000000 +
                         (lua_Integer)info.st_mtim.tv_nsec);
  lua_pushboolean(L, S_ISREG(info.st_mode));
  return 3;
}

/* ---- locks ---- */

typedef struct lock {
  const void *kind;
  int file; /* -1: closed */
} lock;

static const char lock_kind = 0;

/* mt._lock(path) -> a lock to be closed, which one process and state holds at a time;
** nil and a message */
static int new_lock(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  lock *k = lua_newuserdatauv(L, sizeof *k, 0);
  *k = (lock){&lock_kind, -1};
  luaL_setmetatable(L, LOCK);
  k->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (k->file < 0) return fail(L, path);
  if (flock(k->file, LOCK_EX) != 0) return fail(L, path); /* EINTR: Ctrl-C */
  return 1;
}

/* __gc, __close */
static int lock_close(lua_State *L) {
  lock *k = mtl_to_kind(L, 1, &lock_kind, sizeof *k);
  if (k != NULL && k->file >= 0) close(k->file);
  if (k != NULL) k->file = -1;
  return 0;
}

/* ---- the environment ---- */

/* mt._cache_folder() -> where compiled code is kept; nil: nowhere */
static int cache_folder(lua_State *L) {
  const char *named = mtl_getenv(L, "MYTENSOR_CACHE");
  if (named != NULL && named[0] != '\0') {
    char here[4096];
    if (strcmp(named, "off") == 0) return 0;
    if (named[0] != '/' && getcwd(here, sizeof here) != NULL) {
      lua_pushfstring(L, "%s/%s", here, named); /* compilers may run elsewhere */
    } else {
      lua_pushstring(L, named);
    }
    return 1;
  }
  const char *base = mtl_getenv(L, "XDG_CACHE_HOME");
  const char *home = mtl_getenv(L, "HOME");
  if (base != NULL && base[0] == '/') {
    lua_pushfstring(L, "%s/mytensor", base);
  } else if (home != NULL && home[0] == '/') {
    lua_pushfstring(L, "%s/.cache/mytensor", home);
  } else {
    return 0;
  }
  return 1;
}

/* mt._headers() -> table: from the name of a header to its text */
static int headers(lua_State *L) {
  lua_createtable(L, 0, 8);
  for (const mt_embedded *f = mt_embedded_headers; f->name != NULL; f++) {
    lua_pushlstring(L, f->data, f->size);
    lua_setfield(L, -2, f->name);
  }
  return 1;
}

static const luaL_Reg functions[] = {
    {"_hash", hash},     {"_make_folder", make_folder},   {"_stat", file_stat},
    {"_lock", new_lock}, {"_cache_folder", cache_folder}, {"_headers", headers},
    {NULL, NULL}};

/* stack: module */
void mtl_open_build(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  luaL_newmetatable(L, LOCK);
  lua_pushcfunction(L, lock_close);
  lua_setfield(L, -2, "__gc");
  lua_pushcfunction(L, lock_close);
  lua_setfield(L, -2, "__close");
  lua_pop(L, 1);
}
