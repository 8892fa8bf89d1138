-- spec/support/answers.lua: an extension that tells a number out of a header, and
-- processes that load it, for the specs of mt.extension.

local idxfile = require "spec.support.idxfile"
local shell = require "spec.support.shell"

local answers = {}

-- A folder that is gone after the case, whose `finally` this is.
function answers.folder(finally)
  local path = idxfile.folder()
  finally(function() idxfile.remove(path) end)
  return path
end

function answers.needs(program, pending)
  if shell.run("command -v " .. program).code ~= 0 then pending("no " .. program) end
end

answers.COUNT = [[
#include "mytensor.h"
#include "answer.h"
static int answer(lua_State *L) { lua_pushinteger(L, ANSWER); return 1; }
MT_EXTENSION_OPEN(L) {
  static const luaL_Reg functions[] = {{"answer", answer}, {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
]]

-- Run Lua with a cache of its own; here: the folder of sources. A ccache in $CC, which
-- would not see a header come to stand before another, is to preprocess each time.
function answers.run(here, code, env)
  env = env or ("CCACHE_NODIRECT=1 MYTENSOR_CACHE=%s/cache"):format(here)
  return shell.lua_run(("local mt = require 'mytensor' local here = %q\n%s"):format(
    here, code), { env = env })
end

answers.LOAD = [[
  local clock = mt._clock()
  local count = mt.extension.load { name = "count", sources = { here .. "/count.c" } }
  io.stderr:write(mt._clock() - clock)
  print(count.answer())
]]

function answers.load_count(here, env)
  local r = answers.run(here, answers.LOAD, env)
  assert(r.code == 0, r.err)
  return math.tointeger(tonumber(r.out)), tonumber(r.err)
end

function answers.modules_in(here)
  local list = shell.run("find " .. here .. "/cache -name '*.so' | sort").out
  return select(2, list:gsub("\n", "")), list
end

return answers
