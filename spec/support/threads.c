/* spec/support/threads.c -- Lua states that train at once, each in a thread of its own: two
** in two, four in four, one that is opened and closed all the time beside them, and one
** that reads the memory of another. What each computes must not depend on the others.
**
** usage: threads [steps [kernel threads]] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include "runtime/mytensor.h"

#define MOST 8

static const char code[] =
    "local mt = require 'mytensor'\n"
    "local nn = mt.nn\n"
    "local path = os.tmpname()\n"
    "function train(seed, steps)\n"
    "  mt.manual_seed(seed)\n"
    "  local model = nn.Sequential(nn.Conv2d(1, 4, 3, {padding = 1}), nn.ReLU(),\n"
    "    nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * 16, 10))\n"
    "  local loss = nn.CrossEntropyLoss()\n"
    "  local optimiser = mt.optim.Adam(model:parameters(), {lr = 0.01})\n"
    "  local x = mt.randn(24, 1, 8, 8)\n"
    "  local labels = mt.randint(1, 10, {24})\n"
    "  local loader = mt.data.DataLoader {dataset = {x, labels}, batch_size = 8,\n"
    "    shuffle = true}\n"
    "  local sums = {}\n"
    "  for step = 1, steps do\n"
    "    for _, a, b in loader:iter() do\n"
    "      optimiser:zero_grad()\n"
    "      local l = loss(model(a), b)\n"
    "      l:register_hook(function(g) return g * 1 end)\n"
    "      l:backward()\n"
    "      optimiser:step()\n"
    "      sums[1] = (sums[1] or 0) + l:item()\n"
    "    end\n"
    "    local wide = mt.randn(200, 300):matmul(mt.randn(300, 40)):exp():sum()\n"
    "    sums[2] = (sums[2] or 0) + wide:item()\n"
    "    local a, b = mt.randn(60, 700):requires_grad_(), "
    "mt.randn(700):requires_grad_()\n"
    "    local fused = mt.fuse('a, b', 'softmax(gelu(a * b)) + a:mean(-1, true) - b')\n"
    "    for _, g in ipairs(mt.grad(fused(a, b):square():sum(), {a, b})) do\n"
    "      sums[2] = sums[2] + g:sum():item()\n"
    "    end\n"
    "    if step % 5 == 0 then collectgarbage() mt.empty_cache() end\n"
    "    assert(not pcall(mt.zeros, -1))\n"
    "  end\n"
    "  assert(mt.save_tensors(path, model:state_dict()))\n"
    "  local total = 0\n"
    "  for _, t in pairs(assert(mt.load_tensors(path))) do\n"
    "    total = total + t:double():sum():item()\n"
    "  end\n"
    "  os.remove(path)\n"
    "  return ('%.17g %.17g %.12g'):format(sums[1], sums[2], total)\n"
    "end\n"
    "function shared(t) return ('%.17g'):format((t * 2):exp():sum():item()) end\n";

static int steps = 10, kernel_threads = 1;

static lua_State *open_state(void) {
  lua_State *L = luaL_newstate();
  if (L == NULL) return NULL;
  luaL_openlibs(L);
  luaL_requiref(L, "mytensor", luaopen_mytensor, 0);
  lua_pop(L, 1);
  if (luaL_dostring(L, code)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    lua_close(L);
    return NULL;
  }
  return L;
}

/* What train gives, in text; false: it failed. */
static int train(lua_State *L, int seed, int n, char *text, size_t room) {
  lua_getglobal(L, "train");
  lua_pushinteger(L, seed);
  lua_pushinteger(L, n);
  const int ok = lua_pcall(L, 2, 1, 0) == LUA_OK;
  snprintf(text, room, "%s", lua_tostring(L, -1));
  lua_settop(L, 0);
  return ok;
}

/* ---- threads ---- */

typedef struct job {
  int seed, closing;
  const mytensor_info *lent; /* elements of another state; or NULL */
  char text[256], sum[64];
  int ok;
} job;

static void *train_job(void *user) {
  job *j = user;
  lua_State *L = open_state();
  j->ok = L != NULL;
  if (j->ok && j->lent != NULL) {
    const mytensor_api *mt = mytensor_get_api(L);
    lua_getglobal(L, "shared");
    mt->push_blob(L, j->lent->data, j->lent->dtype, j->lent->ndim, j->lent->shape, NULL,
                  NULL);
    j->ok = lua_pcall(L, 1, 1, 0) == LUA_OK;
    snprintf(j->sum, sizeof j->sum, "%s", lua_tostring(L, -1));
    lua_settop(L, 0);
  }
  if (j->ok) j->ok = train(L, j->seed, steps, j->text, sizeof j->text);
  if (L != NULL) lua_close(L);
  return NULL;
}

/* States that come and go. */
static void *closing_job(void *user) {
  job *j = user;
  j->ok = 1;
  for (int i = 0; i < 5 && j->ok; i++) {
    lua_State *L = open_state();
    j->ok = L != NULL && train(L, i, 1, j->text, sizeof j->text);
    if (L != NULL) lua_close(L);
  }
  return NULL;
}

/* n states train at once, the last of them comes and goes if closing. */
static int together(const char *title, int n, int closing, const mytensor_info *lent,
                    const char *sum, char expected[][256]) {
  pthread_t thread[MOST];
  job jobs[MOST];
  int failed = 0;
  memset(jobs, 0, sizeof jobs);
  for (int i = 0; i < n; i++) {
    jobs[i].seed = i % 2;
    jobs[i].lent = lent;
    jobs[i].closing = closing && i == n - 1;
    pthread_create(&thread[i], NULL, jobs[i].closing ? closing_job : train_job,
                   &jobs[i]);
  }
  for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < n; i++) {
    const char *wanted = expected[i % 2];
    if (jobs[i].ok && jobs[i].closing) continue;
    if (jobs[i].ok && strcmp(jobs[i].text, wanted) == 0 &&
        (lent == NULL || strcmp(jobs[i].sum, sum) == 0))
      continue;
    fprintf(stderr, "%s, thread %d: %s %s, not %s %s\n", title, i, jobs[i].text,
            jobs[i].sum, wanted, sum);
    failed = 1;
  }
  if (!failed) printf("%s: right\n", title);
  return failed;
}

int main(int argc, char **argv) {
  char expected[2][256], sum[64];
  mytensor_info lent;
  if (argc > 1) steps = atoi(argv[1]);
  if (argc > 2) kernel_threads = atoi(argv[2]);
  lua_State *L = open_state();
  if (L == NULL) return 1;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "mytensor");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "set_num_threads");
  lua_pushinteger(L, kernel_threads);
  lua_call(L, 1, 0);
  for (int i = 0; i < 2; i++)
    if (!train(L, i, steps, expected[i], sizeof expected[i])) {
      fprintf(stderr, "%s\n", expected[i]);
      return 1;
    }
  /* a tensor of this state, which the others may read while it lives */
  if (luaL_dostring(L, "t = require('mytensor').randn(100, 50) return shared(t)"))
    return 1;
  snprintf(sum, sizeof sum, "%s", lua_tostring(L, -1));
  lua_getglobal(L, "t");
  mytensor_get_api(L)->info(L, -1, &lent);
  int failed = together("two in two", 2, 0, NULL, "", expected);
  failed |= together("four in four", 4, 0, NULL, "", expected);
  failed |= together("one comes and goes", 3, 1, NULL, "", expected);
  failed |= together("memory of another", 3, 0, &lent, sum, expected);
  lua_close(L);
  return failed;
}
