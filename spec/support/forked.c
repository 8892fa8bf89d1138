/* spec/support/forked.c -- a C module whose run(fn) calls fn in a child of fork(). */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#define SECONDS 20

int luaopen_forked(lua_State *L);

/* run(fn) -> the string that fn gives in the child or its error, how the child ended */
static int run(lua_State *L) {
  int ends[2];
  luaL_checktype(L, 1, LUA_TFUNCTION);
  if (pipe(ends) != 0) return luaL_error(L, "no pipe");
  const pid_t child = fork();
  if (child < 0) return luaL_error(L, "no child");
  if (child == 0) {
    size_t n;
    lua_settop(L, 1);
    const int ok = lua_pcall(L, 0, 1, 0) == LUA_OK;
    const char *text = luaL_tolstring(L, -1, &n);
    const ssize_t written = write(ends[1], text, n < 4000 ? n : 4000);
    _exit(ok && written >= 0 ? 0 : 1);
  }
  close(ends[1]);
  int status = 0;
  pid_t done = 0;
  for (int i = 0; done == 0 && i < SECONDS * 100; i++) {
    nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    done = waitpid(child, &status, WNOHANG);
  }
  if (done == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  char text[4096];
  const ssize_t n = read(ends[0], text, sizeof text);
  close(ends[0]);
  lua_pushlstring(L, text, n > 0 ? (size_t)n : 0);
  lua_pushstring(L, done == 0             ? "hangs"
                    : WIFSIGNALED(status) ? "killed"
                    : WEXITSTATUS(status) ? "failed"
                                          : "done");
  return 2;
}

int luaopen_forked(lua_State *L) {
  lua_pushcfunction(L, run);
  return 1;
}
