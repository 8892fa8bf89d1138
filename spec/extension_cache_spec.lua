-- spec/extension_cache_spec.lua: mt.extension: what is built again and what is not;
-- names of any kind; modules built from the command line.

local answers = require "spec.support.answers"
local shell = require "spec.support.shell"

local COUNT, LOAD, load_count, modules_in, run = answers.COUNT, answers.LOAD,
  answers.load_count, answers.modules_in, answers.run

local function needs(program) answers.needs(program, pending) end
local function folder() return answers.folder(finally) end

describe("the builds of mt.extension", function()
  it("builds again what depends on more than sources and flags", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/count.c", COUNT:gsub('"answer.h"', "<answer.h>"))
    for i = 1, 2 do
      os.execute(("mkdir %s/%d"):format(here, i))
      shell.write(("%s/%d/answer.h"):format(here, i), "#define ANSWER " .. i .. "\n")
      assert.equal(i, (load_count(here, ("MYTENSOR_CACHE=%s/cache CPATH=%s/%d"):format(
        here, here, i))))
    end
    local headers = [[
      local headers = mt._headers()
      headers["mytensor.h"] = headers["mytensor.h"] .. "\n#define MORE 1\n"
      function mt._headers() return headers end]] -- those of another version
    shell.write(here .. "/more.c", '#include "mytensor.h"\n#ifndef MORE\n'
      .. "#define MORE 0\n#endif\n"
      .. "MT_EXTENSION_OPEN(L) { lua_pushinteger(L, MORE); return 1; }\n")
    for more, before in pairs { [0] = "", headers } do
      local r = run(here, before .. [[ print(mt.extension.load { name = "more",
        sources = { here .. "/more.c" } })]])
      assert.equal(more .. "\n", r.out, r.err)
    end
    shell.write(here .. "/linked.c", '#include "mytensor.h"\nint linked(void);\n'
      .. "MT_EXTENSION_OPEN(L) { lua_pushinteger(L, linked()); return 1; }\n")
    for answer = 1, 2 do
      shell.write(here .. "/part.c", "int linked(void) { return " .. answer .. "; }\n")
      os.execute(("cc -fPIC -c %s/part.c -o %s/part.o"):format(here, here))
      local r = run(here, [[print(mt.extension.load { name = "linked",
        sources = { here .. "/linked.c" }, link_flags = { here .. "/part.o" } })]])
      assert.equal(answer .. "\n", r.out, r.err)
    end
  end)

  it("takes folders and files of any name", function()
    needs "cc"
    for _, name in ipairs { "a b", "a#b$c", "a\tb", "a\\ b'" } do
      local top = folder()
      local here = top .. "/" .. name
      os.execute("mkdir " .. shell.quote(here))
      shell.write(here .. "/count.c", COUNT)
      shell.write(here .. "/answer.h", "#define ANSWER 1\n")
      local env = "MYTENSOR_CACHE=" .. top .. "/cache"
      assert.equal(1, (load_count(here, env)))
      assert.equal(1, (load_count(here, env)))
      assert.equal(1, (modules_in(top)))
      shell.write(here .. "/answer.h", "#define ANSWER 2\n")
      assert.equal(2, (load_count(here, env)))
      assert.equal(2, (modules_in(top)))
    end
    local here = folder()
    for _, name in ipairs { "-x.c", "@x.c", "-fno-such.c" } do
      shell.write(here .. "/" .. name, '#include "mytensor.h"\n'
        .. "MT_EXTENSION_OPEN(L) { lua_pushinteger(L, 8); return 1; }\n")
      local r = shell.run(("cd %s && MYTENSOR_CACHE=%s/cache %s -e %s"):format(here,
        here, shell.lua_command(), shell.quote(("print(require 'mytensor'"
          .. ".extension.load { name = 'x', sources = { %q } })"):format(name))))
      assert.equal("8\n", r.out, r.err)
    end
  end)

  it("is safe to run in several processes at once", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/count.c", COUNT)
    shell.write(here .. "/answer.h", "#define ANSWER 7\n")
    shell.write(here .. "/counting", "#!/bin/sh\necho call >>" .. here .. "/calls\n"
      .. 'exec cc "$@"\n')
    os.execute("chmod +x " .. here .. "/counting")
    local one = ("env CC=%s/counting MYTENSOR_CACHE=%s/cache %s -e %s & "):format(here,
      here, shell.lua_command(), shell.quote(("local mt = require 'mytensor' local "
        .. "here = %q\n%s"):format(here, LOAD)))
    local r = shell.run(one:rep(4) .. " wait")
    assert.equal(("7\n"):rep(4), r.out, r.err)
    assert.equal(1, (modules_in(here)))
    assert.equal("call\ncall\n", shell.read(here .. "/calls")) -- to compile, to link
  end)

  it("builds anew what was damaged", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/count.c", COUNT)
    shell.write(here .. "/answer.h", "#define ANSWER 5\n")
    load_count(here)
    local module = select(2, modules_in(here)):match "[^\n]+"
    local list = module:match "^(.*)/" .. "/list"
    local whole, text = shell.read(module), shell.read(list)
    for _, damage in ipairs {
      { module, whole:sub(1, #whole // 2) }, { module, "" }, { list, "" },
      { list, text:sub(1, -3) }, { list, "x\nend\n" },
    } do
      shell.write(damage[1], damage[2])
      assert.equal(5, (load_count(here)))
    end
    os.remove(module)
    assert.equal(5, (load_count(here)))
    local header = shell.run("ls " .. here .. "/cache/include-*/mytensor.h").out
    shell.write(header:match "[^\n]+", "#error damaged\n")
    shell.write(here .. "/count.c", COUNT .. "\n")
    assert.equal(5, (load_count(here)))
    shell.write(here .. "/count.c", COUNT)
    shell.write(module, ("\0"):rep(#whole)) -- as a crash of the system leaves it
    assert.equal(5, (load_count(here)))
  end)

  -- Begin to compile, and send a signal meanwhile; what the process said, its folder,
  -- and its environment.
  local function signalled(kill)
    needs "cc"
    local here = folder()
    shell.write(here .. "/count.c", COUNT)
    shell.write(here .. "/answer.h", "#define ANSWER 6\n")
    shell.write(here .. "/slow", "#!/bin/sh\ntouch " .. here .. "/begun\nsleep 1\n"
      .. 'exec cc "$@"\n')
    os.execute("chmod +x " .. here .. "/slow")
    local env = ("CC=%s/slow MYTENSOR_CACHE=%s/cache"):format(here, here)
    local code = ("local mt = require 'mytensor' local here = %q\n%s"):format(here,
      LOAD)
    local r = shell.run(("setsid env %s %s -e %s & n=0; while [ ! -e %s/begun ] && "
      .. "[ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done; %s$!; wait $!"):format(env,
      shell.lua_command(), shell.quote(code), here, kill))
    return r.err, here, env
  end

  it("cleans up behind a process that was killed", function()
    local _, here, env = signalled "kill -9 "
    assert.equal(6, (load_count(here, env)))
    assert.equal("", shell.run("ls -d " .. here .. "/cache/extensions/*/work*").out)
  end)

  it("ends by Ctrl-C", function()
    if not shell.is_host then pending "Ctrl-C is the host's matter" end
    local err, here, env = signalled "kill -INT -"
    assert.truthy(err:find("interrupted!", 1, true), err)
    assert.equal("", shell.run("ls -d " .. here .. "/cache/extensions/*/work*").out)
    assert.equal(6, (load_count(here, env)))
  end)

  it("needs no cache, and says what is wrong with the one it was given", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/count.c", COUNT)
    shell.write(here .. "/answer.h", "#define ANSWER 3\n")
    assert.equal(3, (load_count(here, "MYTENSOR_CACHE=off")))
    local shown = run(here, "print(mt._cache_folder())", "MYTENSOR_CACHE=some/where")
      .out
    assert.truthy(shown:find "^/.*/some/where\n$", shown)
    assert.equal(0, (modules_in(here)))
    local changed = run(here, [[
      local options = { name = "count", sources = { here .. "/count.c" } }
      local first = mt.extension.load(options)
      assert(first == mt.extension.load(options))
      local f <close> = io.open(here .. "/answer.h", "w")
      f:write "#define ANSWER 4\n"
      f:close()
      print(mt.extension.load(options).answer())
    ]], "MYTENSOR_CACHE=off")
    assert.equal("4\n", changed.out, changed.err)
    local r = run(here, LOAD, "MYTENSOR_CACHE=/dev/null/cache")
    assert.equal(1, r.code)
    assert.truthy(r.err:find("mt.extension.load: the cache cannot be written: "
      .. "/dev/null: Not a directory (MYTENSOR_CACHE names another folder, or is off)",
      1, true), r.err)
  end)
end)

describe("mtlua -l mytensor.extension", function()
  local function command(line, env)
    local lua = shell.lua_command()
    if not shell.is_host then lua = lua .. " -l mytensor" end
    return shell.run(("%s %s -l mytensor.extension %s"):format(env or "", lua, line))
  end

  it("builds a module and a Makefile that builds it again", function()
    needs "cc"
    local here = folder()
    local env = "MYTENSOR_CACHE=" .. here .. "/cache"
    os.execute("mkdir " .. here .. "/count")
    shell.write(here .. "/count/count.c", COUNT)
    shell.write(here .. "/count/answer.h", "#define ANSWER 11\n")
    local r = command("build " .. here .. "/count/", env)
    assert.equal(0, r.code, r.err)
    assert.equal(("%s/count/count.so\n%s/count/Makefile\n"):format(here, here), r.out)
    local function answer()
      local q = shell.lua_run(("package.cpath = '%s/count/?.so;' .. package.cpath "
        .. "require 'mytensor' print(require 'count'.answer())"):format(here))
      return q.out .. q.err
    end
    assert.equal("11\n", answer())
    if shell.run("command -v make").code == 0 then
      shell.write(here .. "/count/answer.h", "#define ANSWER 12\n")
      os.remove(here .. "/count/count.so")
      local path = shell.lua_command():match "^LUA_CPATH=%S+" or ""
      r = shell.run(("cd %s/count && %s %s make"):format(here, env, path))
      assert.equal(0, r.code, r.err)
      assert.equal("12\n", answer())
    end
    r = command("build " .. here .. "/count other", env)
    assert.equal(("%s/count/other.so\n%s/count/Makefile is there already\n"):format(
      here, here), r.out, r.err)
  end)

  it("writes no Makefile that make would not understand", function()
    needs "cc"
    local here = folder()
    shell.write(here .. "/my count.c", COUNT:gsub('#include "answer.h"', "")
      :gsub("ANSWER", "9"))
    local r = command("build " .. here .. " count", "MYTENSOR_CACHE=off")
    assert.equal(0, r.code, r.err)
    assert.equal(here .. "/count.so\nno Makefile: make cannot take the name "
      .. "'my count.c'\n", r.out)
    assert.is_false(shell.exists(here .. "/Makefile"))
  end)

  it("tells where the headers are", function()
    local here = folder()
    local r = command("include", "MYTENSOR_CACHE=" .. here)
    assert.equal(0, r.code, r.err)
    local path = r.out:match "^(.*)\n$"
    for _, name in ipairs { "mytensor.h", "lua.h", "lauxlib.h", "luaconf.h" } do
      assert.is_true(shell.exists(path .. "/" .. name), name)
    end
    assert.equal(shell.read "runtime/mytensor.h", shell.read(path .. "/mytensor.h"))
  end)

  it("says what is wrong", function()
    local here = folder()
    local r = command("build " .. here)
    assert.equal(1, r.code)
    assert.equal(here .. ": no .c, .cpp or .cu files\n", r.err)
  end)

  it("is a module like others with any other script", function()
    local here = folder()
    shell.write(here .. "/script.lua", "print(type(require 'mytensor.extension'.load))")
    local r = command(here .. "/script.lua")
    assert.equal("function\n", r.out, r.err)
  end)
end)
