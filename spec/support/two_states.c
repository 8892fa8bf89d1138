/* spec/support/two_states.c -- several Lua states with mytensor in one process: side by
** side in one thread, then one in each of several threads at once.
**
**   two_states [device] */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <mytensor.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 4

static const char define[] =
    "mt = require 'mytensor'\n"
    "-- steps that are captured and replayed, against those that are not\n"
    "function replay(seed)\n"
    "  local function run(graph)\n"
    "    mt.manual_seed(seed)\n"
    "    local w = mt.randn(8, 8, {requires_grad = true})\n"
    "    local function step(x)\n"
    "      w.grad = nil\n"
    "      local loss = (x:matmul(w):tanh() + mt.randn(16, 8)):square():mean()\n"
    "      loss:backward()\n"
    "      mt.no_grad(function() w:sub_(w.grad * 0.1) end)\n"
    "      return loss\n"
    "    end\n"
    "    if graph then step = mt.cuda.graph(step) end\n"
    "    local total = 0\n"
    "    for i = 1, 20 do total = total + step(mt.randn(16, 8)):item() end\n"
    "    return total\n"
    "  end\n"
    "  local eager, replayed = run(false), run(true)\n"
    "  assert(eager == replayed, eager .. ' is not ' .. replayed)\n"
    "end\n"
    "function work(seed, n)\n"
    "  if device == 'cuda' then replay(seed) end\n"
    "  mt.manual_seed(seed)\n"
    "  local w = mt.randn(8, 8, {requires_grad = true})\n"
    "  local total = 0\n"
    "  for i = 1, n do\n"
    "    local y = mt.randn(16, 8):matmul(w):tanh()\n"
    "    local loss = y:square():mean()\n"
    "    loss:backward()\n"
    "    total = total + loss:item() + w.grad:sum():item()\n"
    "    w.grad = nil\n"
    "    mt.no_grad(function() w:mul_(0.999) end)\n"
    "  end\n"
    "  return total\n"
    "end\n"
    "-- a label that is out of range is this state's own error\n"
    "function fault(label)\n"
    "  local logits = mt.zeros(4, 3)\n"
    "  for _ = 1, 20 do\n"
    "    local ok, err = pcall(function()\n"
    "      local labels = mt.tensor {1, label, 2, 3}\n"
    "      return mt.cross_entropy(logits, labels):item()\n"
    "    end)\n"
    "    if label <= 3 then assert(ok, err)\n"
    "    else assert(not ok and err:find(label, 1, true), err) end\n"
    "  end\n"
    "end\n";

static const char *device = "cpu";

static lua_State *open_state(void) {
  lua_State *L = luaL_newstate();
  if (L == NULL) return NULL;
  luaL_openlibs(L);
  luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
  lua_pop(L, 1);
  lua_pushstring(L, device);
  lua_setglobal(L, "device");
  if (luaL_dostring(L, define) ||
      luaL_dostring(L, "mt.set_default_device(device) mt.set_deterministic(true)")) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    lua_close(L);
    return NULL;
  }
  return L;
}

static int work(lua_State *L, int seed, int n, double *result) {
  lua_getglobal(L, "work");
  lua_pushinteger(L, seed);
  lua_pushinteger(L, n);
  if (lua_pcall(L, 2, 1, 0) != LUA_OK) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    return 1;
  }
  *result = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return 0;
}

static int fault(lua_State *L, int label) {
  lua_getglobal(L, "fault");
  lua_pushinteger(L, label);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK) return 0;
  fprintf(stderr, "%s\n", lua_tostring(L, -1));
  return 1;
}

/* State and settings of one do not show in the other, also after one is closed. */
static int side_by_side(double *expected) {
  double b = 0, again = 0;
  lua_State *one = open_state(), *two = open_state();
  if (one == NULL || two == NULL) return 1;
  if (luaL_dostring(one, "require('mytensor').set_default_dtype('float64')")) return 1;
  if (luaL_dostring(two, "assert(require('mytensor').zeros(1):dtype() == 'float32')")) {
    fprintf(stderr, "%s\n", lua_tostring(two, -1));
    return 1;
  }
  if (luaL_dostring(one, "require('mytensor').set_default_dtype('float32')")) return 1;
  if (work(one, 1, 20, expected) || work(two, 1, 20, &b)) return 1;
  lua_close(one);
  if (work(two, 1, 20, &again)) return 1;
  lua_close(two);
  return !(*expected == b && b == again);
}

typedef struct job {
  int label; /* 1 .. 3 are right */
  double result;
  int failed;
} job;

static void *run_job(void *user) {
  job *j = user;
  lua_State *L = open_state();
  j->failed = L == NULL || work(L, 1, 20, &j->result) || fault(L, j->label) ||
              work(L, 1, 20, &j->result);
  if (L != NULL) lua_close(L);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc > 1) device = argv[1];
  double expected = 0;
  pthread_t thread[THREADS];
  job jobs[THREADS];
  if (side_by_side(&expected)) {
    fprintf(stderr, "two states disturb each other\n");
    return 1;
  }
  for (int i = 0; i < THREADS; i++) {
    jobs[i].label = i % 2 ? 2 : 100 + i;
    if (pthread_create(&thread[i], NULL, run_job, &jobs[i]) != 0) return 1;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    if (jobs[i].failed || !(jobs[i].result == expected)) {
      fprintf(stderr, "thread %d: %.17g, not %.17g\n", i, jobs[i].result, expected);
      return 1;
    }
  }
  puts("all states agree");
  return 0;
}
