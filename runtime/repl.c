/* runtime/repl.c -- the interactive mode: read a statement, run it, print its values.
 */
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "runtime/host.h"

static const char chunk_name[] = "=stdin";

/* The globals _PROMPT and _PROMPT2, if they are set, are the prompts. stack: name */
static int make_prompt(lua_State *L) {
  lua_pushglobaltable(L);
  lua_insert(L, 1);
  if (lua_gettable(L, 1) != LUA_TNIL) luaL_tolstring(L, -1, NULL);
  return 1;
}

/* A prompt that fails is told of, and does not keep the line from being read. */
static mth_input read_line(lua_State *L, int first) {
  const char *prompt = NULL;
  lua_pushcfunction(L, make_prompt);
  lua_pushstring(L, first ? "_PROMPT" : "_PROMPT2");
  if (mth_report(L, lua_pcall(L, 1, 1, 0)) != LUA_OK) lua_pushnil(L);
  prompt = lua_tostring(L, -1);
  if (prompt == NULL) prompt = first ? "> " : ">> ";
  const mth_input got = mth_edit_read(L, prompt);
  lua_remove(L, got == MTH_LINE ? -2 : -1);
  return got;
}

/* Does the syntax error on the top say that the statement just is not complete yet? */
static int is_incomplete(lua_State *L, int status) {
  static const char mark[] = "<eof>";
  if (status != LUA_ERRSYNTAX) return 0;
  size_t n;
  const char *text = lua_tolstring(L, -1, &n);
  const size_t m = sizeof mark - 1;
  return n >= m && strcmp(text + n - m, mark) == 0;
}

static int load(lua_State *L, const char *text, size_t n) {
  return luaL_loadbufferx(L, text, n, chunk_name, "t");
}

/* Compile the line at index line as an expression: pushes the function, or nothing. */
static int load_expression(lua_State *L, int line) {
  lua_pushfstring(L, "return %s", lua_tostring(L, line));
  const int status = load(L, lua_tostring(L, -1), lua_rawlen(L, -1));
  lua_remove(L, -2);
  if (status != LUA_OK) lua_pop(L, 1);
  return status == LUA_OK;
}

/* Compile the statement that begins with the line at index line, reading further lines
** while it is incomplete: pushes the function, or the message of the error. */
static mth_input load_statement(lua_State *L, int line, int *status) {
  lua_pushvalue(L, line);
  for (;;) {
    *status = load(L, lua_tostring(L, -1), lua_rawlen(L, -1));
    if (!is_incomplete(L, *status)) break;
    const mth_input got = read_line(L, 0);
    if (got == MTH_INTERRUPTED) return got;
    if (got == MTH_END) break; /* the error stays */
    mth_edit_remember(lua_tostring(L, -1));
    lua_remove(L, -2); /* the message */
    lua_pushliteral(L, "\n");
    lua_insert(L, -2);
    lua_concat(L, 3);
  }
  lua_remove(L, -2);
  return MTH_LINE;
}

/* Values of the stack from 1 on: by mytensor.repl's show_values, else by print. */
static void print_values(lua_State *L) {
  const int n = lua_gettop(L);
  if (n == 0) return;
  luaL_checkstack(L, LUA_MINSTACK, "too many results to print");
  int status = mth_repl_function(L, "show_values");
  if (status != LUA_OK) {
    lua_pop(L, 1);
    lua_getglobal(L, "print");
  }
  lua_insert(L, 1);
  status = mth_call(L, n, 0);
  mth_report(L, status);
}

static void complete(lua_State *L, const char *line, size_t end) {
  if (mth_repl_function(L, "complete") == LUA_OK) {
    lua_pushlstring(L, line, end);
    if (mth_call(L, 1, 1) == LUA_OK && lua_istable(L, -1)) return;
  }
  lua_pop(L, 1);
  lua_pushnil(L);
}

/* mt is at hand without a require; a global of that name that a script made stays. */
static void define_mt(lua_State *L) {
  if (lua_getglobal(L, "mt") == LUA_TNIL) {
    if (mth_report(L, mth_require(L, "mytensor")) == LUA_OK) lua_setglobal(L, "mt");
  }
}

/* Read one statement, run it and print what it gives.
** stack: light userdata of the mth_input to set */
static int run_line(lua_State *L) {
  mth_input *got = lua_touserdata(L, 1);
  lua_settop(L, 0);
  *got = read_line(L, 1);
  if (*got != MTH_LINE) return 0;
  const char *text = lua_tostring(L, 1);
  mth_edit_remember(text);
  if (text[0] == '=') { /* as in Lua 5.1 and 5.2 */
    lua_pushfstring(L, "return %s", text + 1);
    lua_replace(L, 1);
  }
  int status = LUA_OK;
  if (!load_expression(L, 1)) {
    if (load_statement(L, 1, &status) == MTH_INTERRUPTED) return 0;
  }
  lua_remove(L, 1);
  if (status == LUA_OK) status = mth_call(L, 0, LUA_MULTRET);
  if (status == LUA_OK) {
    print_values(L);
  } else {
    mth_report(L, status);
  }
  return 0;
}

void mth_repl(lua_State *L) {
  mth_input got = MTH_LINE;
  mth_set_interactive();
  define_mt(L);
  mth_edit_open(L, complete);
  while (got != MTH_END) { /* protected: a line that has no memory is not the last */
    got = MTH_LINE;
    lua_settop(L, 0);
    lua_pushcfunction(L, run_line);
    lua_pushlightuserdata(L, &got);
    mth_report(L, lua_pcall(L, 1, 0, 0));
  }
  putchar('\n');
  fflush(stdout);
}
