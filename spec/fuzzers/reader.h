/* spec/fuzzers/reader.h -- what the fuzz targets of the file readers share: a Lua state, a
** file in memory, and coverage of Lua code for libFuzzer. */
#ifndef FUZZ_READER_H
#define FUZZ_READER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

int luaopen_mytensor(lua_State *L);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libFuzzer takes these for branches that were taken: one for each line of Lua code. */
#define COUNTERS (1 << 14)
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t lines[COUNTERS];

static void count_line(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "S", ar);
  uint32_t hash = 2166136261u;
  for (const char *s = ar->short_src; *s != '\0'; s++)
    hash = (hash ^ (uint8_t)*s) * 16777619u;
  lines[(hash + (uint32_t)ar->currentline * 7919u) % COUNTERS]++;
}

static lua_State *L;
static int file;      /* descriptor */
static char path[64]; /* its name */

static void stop(const char *text) {
  fprintf(stderr, "the reader raised: %s\n", text);
  abort();
}

/* A state with the function read(path) that code returns. */
static void open_reader(const char *code) {
  file = memfd_create("input", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  L = luaL_newstate();
  luaL_openlibs(L);
  luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
  if (luaL_loadstring(L, code) != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK)
    stop(lua_tostring(L, -1));
  lua_setglobal(L, "read");
  lua_settop(L, 0);
  lua_sethook(L, count_line, LUA_MASKLINE, 0);
}

/* read(path) of a file with these bytes; an error that it raises is a finding. */
static void read_file(const uint8_t *data, size_t size) {
  static unsigned runs;
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
    stop("no file in memory");
  lua_getglobal(L, "read");
  lua_pushstring(L, path);
  if (lua_pcall(L, 1, 0, 0) != LUA_OK) stop(lua_tostring(L, -1));
  lua_settop(L, 0);
  if (++runs % 64 == 0) lua_gc(L, LUA_GCCOLLECT);
}

#endif
