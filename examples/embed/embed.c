/* examples/embed/embed.c -- a C program with Lua and mytensor inside: Lua fits a line
** to measurements that C holds. `make embed` builds and runs it; from an installed
** mytensor: gcc embed.c $(pkg-config --cflags --libs mytensor lua5.4) -o embed */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <mytensor.h>
#include <stdio.h>

static const char script[] = "local mt = require 'mytensor'\n"
                             "local w = mt.zeros(2, {requires_grad = true})\n"
                             "function fit(x, y)\n"
                             "  for _ = 1, 500 do\n"
                             "    local loss = (w[1] * x + w[2] - y):square():mean()\n"
                             "    loss:backward()\n"
                             "    mt.no_grad(function() w:sub_(w.grad * 0.1) end)\n"
                             "    w.grad = nil\n"
                             "  end\n"
                             "  return w:detach()\n"
                             "end\n";

int main(void) {
  float x[] = {0, 1, 2, 3};
  float y[] = {1, 3, 5, 7};
  const int64_t shape[] = {4};
  lua_State *L = luaL_newstate();
  if (L == NULL) return 1;
  luaL_openlibs(L);
  luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
  const mytensor_api *mt = mytensor_get_api(L);
  int failed = luaL_dostring(L, script);
  if (!failed) {
    lua_getglobal(L, "fit"); /* the tensors lie over x and y: nothing is copied */
    mt->push_blob(L, x, MYTENSOR_FLOAT32, 1, shape, NULL, NULL);
    mt->push_blob(L, y, MYTENSOR_FLOAT32, 1, shape, NULL, NULL);
    failed = lua_pcall(L, 2, 1, 0);
  }
  if (failed) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
  } else {
    mytensor_info w;
    mt->info(L, -1, &w);
    printf("y = %.3f * x + %.3f\n", (double)((float *)w.data)[0],
           (double)((float *)w.data)[1]);
  }
  lua_close(L);
  return failed;
}
