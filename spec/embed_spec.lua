-- spec/embed_spec.lua: C programs that embed Lua and mytensor, and several states in
-- one process.

local devices = require "spec.support.devices"
local shell = require "spec.support.shell"

local function need_compiler()
  if shell.run("command -v gcc").code ~= 0 then pending "no gcc" end
end

describe("examples/embed", function()
  it("builds, and fits the line", function()
    need_compiler()
    if shell.sanitized then pending "a sanitizer runs" end
    if not shell.exists "Makefile" then pending "no Makefile: this is a bundle" end
    local r = shell.run "make --no-print-directory embed"
    assert.equal(0, r.code, r.err)
    assert.truthy(r.out:find("y = 2.000 * x + 1.000", 1, true), r.out)
  end)
end)

-- Compile a program of spec/support against the module of the build.
local function program(source, more)
  need_compiler()
  if not source:find "/" then source = "spec/support/" .. source end
  local so = shell.build .. "/mytensor.so"
  if not shell.exists(so) then pending(so .. " is not built") end
  local static = shell.run("ls /usr/lib/*/liblua5.4.a /usr/local/lib/liblua5.4.a "
    .. "/usr/lib*/liblua5.4.a 2>/dev/null").out:match "%S+"
  if not static then pending "no static Lua library" end
  local path = os.tmpname()
  local r = shell.run(table.concat({ "gcc -O1 -Wall -Wextra -Werror -I. -Iruntime",
    shell.lua_includes, "-o", path,
    source, more or "", "-Wl,-E -Wl,--whole-archive", static,
    "-Wl,--no-whole-archive -L" .. shell.build, "-l:mytensor.so",
    "-Wl,-rpath," .. shell.quote(require "lfs".currentdir() .. "/" .. shell.build),
    "-lm -ldl -lpthread" }, " "))
  assert.equal(0, r.code, r.err)
  return path
end

describe("a Lua older than 5.4.4", function()
  it("keeps its collector incremental: the generational one has bugs there", function()
    local function mode(release)
      local source = os.tmpname() .. ".c"
      shell.write(source, ([[
        #include <lauxlib.h>
        #include <lualib.h>
        #include <stdio.h>
        %s
        int main(int n, char **argv) {
          lua_State *L = luaL_newstate();
          luaL_openlibs(L);
          if (n == 2 && luaL_dostring(L, argv[1])) puts(lua_tostring(L, -1));
          lua_close(L);
          return 0;
        }]]):format(release and ('const char lua_ident[] = "$LuaVersion: Lua %s  $";')
                      :format(release) or ""))
      local path = program(source, "-Wl,-z,muldefs")
      local r = shell.run(("%s %s"):format(path, shell.quote(([[
        package.cpath = %q .. "/?.so"
        local mt = require "mytensor"
        for _ = 1, 3000 do mt.ones(300) end
        print(mt.info().lua, collectgarbage "incremental")
        ]]):format(shell.build))))
      os.remove(path)
      os.remove(source)
      return r.out .. r.err
    end
    assert.equal("Lua 5.4.2\tincremental\n", mode "5.4.2")
    assert.equal("Lua 5.4.6\tgenerational\n", mode "5.4.6")
  end)
end)

describe("several states", function()
  it("in one process, in one thread and in many, do not disturb each other", function()
    local path = program "two_states.c"
    local r = shell.run(path)
    os.remove(path)
    assert.equal("all states agree\n", r.out, r.err)
    assert.equal(0, r.code, r.err)
  end)

  it("in many threads on one GPU get right results, and their own errors", function()
    if not devices.cuda then
      devices.without_cuda(pending)
      return
    end
    local ready = shell.build .. "/two_states" -- a bundle brings it along
    local path = shell.exists(ready) and ready or program "two_states.c"
    local r = shell.run(path .. " cuda")
    if path ~= ready then os.remove(path) end
    assert.equal("all states agree\n", r.out, r.err)
    assert.equal(0, r.code, r.err)
  end)

  it("train in threads, come and go, and read each other's memory", function()
    local path = program "threads.c"
    for _, arguments in ipairs { " 10 1", " 4 2" } do
      local r = shell.run(path .. arguments)
      assert.equal(0, r.code, r.err)
      local _, right = r.out:gsub(": right\n", "")
      assert.equal(4, right, r.out)
    end
    os.remove(path)
  end)
end)
