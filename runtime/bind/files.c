/* runtime/bind/files.c -- small services that Lua's own libraries lack: gunzip, is
** this a terminal, a steady clock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/bind/args.h"
#include "runtime/bind/state.h"

#define MAX_UNPACKED ((size_t)4 << 30) /* bytes; unless the caller says otherwise */
#define PIECE        ((size_t)8 << 20) /* bytes unpacked between two looks for Ctrl-C */

/* ---- gzip ---- */

/* A userdata, so that an error at any point frees both parts. */
typedef struct unpacker {
  const void *kind;
  z_stream z;
  bool open; /* z is initialised */
  unsigned char *out;
  size_t size, capacity, limit;
} unpacker;

static void unpacker_clear(unpacker *u) {
  if (u->open) inflateEnd(&u->z);
  u->open = false;
  free(u->out);
  u->out = NULL;
}

static const char unpacker_kind = 0;

/* __gc */
static int unpacker_gc(lua_State *L) {
  unpacker *u = mtl_to_kind(L, 1, &unpacker_kind, sizeof *u);
  if (u != NULL) unpacker_clear(u);
  return 0;
}

static const char too_long[] = "the unpacked data is longer than the limit";
static const char no_memory[] = "not enough memory for the unpacked data";

static const char *grow(unpacker *u) {
  if (u->capacity == u->limit) return too_long;
  size_t capacity = u->capacity < u->limit / 2 ? u->capacity * 2 : u->limit;
  unsigned char *out = realloc(u->out, capacity);
  if (out == NULL) return no_memory;
  u->out = out;
  u->capacity = capacity;
  return NULL;
}

/* Unpack one member of a gzip file. Returns NULL or what is wrong. Raises if the script
** was interrupted. */
static const char *unpack_member(lua_State *L, unpacker *u) {
  for (;;) {
    mtl_check_interrupt(L);
    if (u->size == u->capacity) {
      const char *problem = grow(u);
      if (problem != NULL) return problem;
    }
    const size_t room = u->capacity - u->size;
    u->z.next_out = u->out + u->size;
    u->z.avail_out = (uInt)(room < PIECE ? room : PIECE);
    const uInt given = u->z.avail_out;
    const int result = inflate(&u->z, Z_NO_FLUSH);
    u->size += given - u->z.avail_out;
    if (result == Z_STREAM_END) return NULL;
    if (result == Z_BUF_ERROR && u->z.avail_in == 0 && u->z.avail_out > 0) {
      return "the gzip data ends early";
    }
    if (result != Z_OK && result != Z_BUF_ERROR) {
      return u->z.msg != NULL        ? u->z.msg
             : result == Z_MEM_ERROR ? no_memory
                                     : "bad data";
    }
    if (result == Z_OK && u->z.avail_in == 0 && u->z.avail_out > 0) {
      return "the gzip data ends early";
    }
  }
}

/* The size that the last four bytes tell, modulo 2^32; a hint only. */
static size_t size_hint(const unsigned char *p, size_t n) {
  if (n < 18) return 4096;
  const size_t hint = (size_t)p[n - 4] | (size_t)p[n - 3] << 8 |
                      (size_t)p[n - 2] << 16 | (size_t)p[n - 1] << 24;
  const size_t most = n * 1100 + 64; /* deflate packs no tighter */
  return (hint < most ? hint : most) + 64;
}

static const char *unpack(lua_State *L, unpacker *u, const unsigned char *p, size_t n) {
  if (n > UINT_MAX) return "more than 4 GB of gzip data";
  u->capacity = size_hint(p, n);
  if (u->capacity > u->limit) u->capacity = u->limit;
  u->out = malloc(u->capacity > 0 ? u->capacity : 1);
  if (u->out == NULL) return no_memory;
  if (inflateInit2(&u->z, 16 + MAX_WBITS) != Z_OK) return no_memory;
  u->open = true;
  u->z.next_in = (unsigned char *)(uintptr_t)p;
  u->z.avail_in = (uInt)n;
  do { /* a file may hold several members, and zeros behind them */
    const char *problem = unpack_member(L, u);
    if (problem != NULL) return problem;
    while (u->z.avail_in > 0 && *u->z.next_in == 0) u->z.next_in++, u->z.avail_in--;
    if (u->z.avail_in > 0 && inflateReset(&u->z) != Z_OK) return "bad data";
  } while (u->z.avail_in > 0);
  return NULL;
}

/* mt._gunzip(data[, limit]) -> the unpacked string, or nil and a message */
static int gunzip(lua_State *L) {
  size_t n;
  mtl_enter(L);
  if (lua_type(L, 1) != LUA_TSTRING) {
    return mtl_argerror(L, 1, "_gunzip", "string expected, got %s", mtl_typename(L, 1));
  }
  const char *data = lua_tolstring(L, 1, &n);
  const int64_t limit =
      lua_isnoneornil(L, 2) ? (int64_t)MAX_UNPACKED : mtl_check_int(L, 2, "_gunzip");
  if (limit < 0) return mtl_argerror(L, 2, "_gunzip", "a limit below 0");
  unpacker *u = lua_newuserdatauv(L, sizeof *u, 0);
  memset(u, 0, sizeof *u);
  u->kind = &unpacker_kind;
  u->limit = (size_t)limit;
  luaL_setmetatable(L, "mytensor.unpacker");
  const char *problem = unpack(L, u, (const unsigned char *)data, n);
  if (problem != NULL) {
    lua_pushnil(L);
    lua_pushstring(L,
                   problem); /* may be zlib's own memory: copied before it is freed */
    unpacker_clear(u);
    return 2;
  }
  lua_pushlstring(L, (const char *)u->out, u->size);
  unpacker_clear(u);
  return 1;
}

/* ---- terminal and clock ---- */

/* mt._isatty(descriptor): 1 is standard output */
static int is_terminal(lua_State *L) {
  const int64_t fd = mtl_check_int(L, 1, "_isatty");
  lua_pushboolean(L, fd >= 0 && fd <= INT_MAX && isatty((int)fd));
  return 1;
}

/* mt._clock() -> seconds of a clock that only goes forward */
static int steady_clock(lua_State *L) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  lua_pushnumber(L, (lua_Number)now.tv_sec + (lua_Number)now.tv_nsec * 1e-9);
  return 1;
}

static const luaL_Reg functions[] = {{"_gunzip", gunzip},
                                     {"_json_decode", mtl_json_decode},
                                     {"_isatty", is_terminal},
                                     {"_clock", steady_clock},
                                     {NULL, NULL}};

/* stack: module */
void mtl_open_files(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  luaL_newmetatable(L, "mytensor.unpacker");
  lua_pushcfunction(L, unpacker_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}
