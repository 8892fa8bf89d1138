-- spec/host_spec.lua: mtlua's command line is Lua's own, and one option more.

local shell = require "spec.support.shell"

if not shell.exists(shell.mtlua) then
  describe("mtlua", function()
    pending(shell.mtlua .. " is not built")
  end)
  return
end

local mtlua = shell.quote(require "lfs".currentdir() .. "/" .. shell.mtlua)
-- One signal, to mtlua alone: a second one, to its group, would end it at once.
local interrupt = "timeout --foreground --preserve-status -s INT 1 "
if shell.mtlua:find "^/" then mtlua = shell.quote(shell.mtlua) end

local function run(rest, opts) return shell.run(mtlua .. " " .. rest, opts) end

-- Run fn with the path of a file that holds text.
local function with_file(text, fn)
  local path = os.tmpname()
  shell.write(path, text)
  local ok, err = pcall(fn, path)
  os.remove(path)
  if not ok then error(err, 0) end
end

describe("mtlua", function()
  it("-e runs a statement, several in their order", function()
    local r = run [[-e 'io.write(1)' -e 'io.write(2)' -e'io.write(3)']]
    assert.equal("123", r.out)
    assert.equal(0, r.code)
  end)

  it("-l requires a module into a global, by another name too", function()
    assert.equal("function\n", run([[-l lfs -e 'print(type(lfs.dir))']]).out)
    assert.equal("function\n", run([[-l f=lfs -e 'print(type(f.dir))']]).out)
    local r = run [[-l no_such_module -e '']]
    assert.equal(1, r.code)
    assert.truthy(r.err:find "no_such_module", r.err)
  end)

  it("has mytensor at hand without a path", function()
    local r = shell.run("cd / && env -i " .. mtlua ..
      [[ -e 'print(require("mytensor").tensor{1, 2}:sum():item())']])
    assert.equal("3.0\n", r.out, r.err)
  end)

  it("runs a script with arg, negative indices and ...", function()
    with_file("print(arg[0] ~= nil, arg[1], arg[2], #arg, arg[-1] ~= nil, ...)",
      function(path)
        local r = run(path .. " one 'two 2'")
        assert.equal("true\tone\ttwo 2\t2\ttrue\tone\ttwo 2\n", r.out, r.err)
      end)
  end)

  it("reads standard input when it is no terminal, and with -", function()
    assert.equal("7\n", run("", { stdin = "print(3 + 4)" }).out)
    assert.equal("a\tb\n", run("- a b", { stdin = "print(...)" }).out)
    assert.equal("5\n", run([[-e 'x = 5' -]], { stdin = "print(x)" }).out)
  end)

  it("skips a first line that starts with #", function()
    with_file("#!/usr/bin/env mtlua\nprint 'ok'", function(path)
      assert.equal("ok\n", run(path).out)
    end)
  end)

  it("-- ends the options", function()
    with_file("print(...)", function(path)
      assert.equal("-e\n", run("-- " .. path .. " -e").out)
    end)
  end)

  it("-v shows versions, also mytensor's and what it found", function()
    local r = run "-v"
    assert.equal(0, r.code)
    assert.truthy(r.out:find "Lua 5%.4", r.out)
    assert.truthy(r.out:find "mytensor", r.out)
    assert.truthy(r.out:lower():find "cuda", r.out)
  end)

  it("-E ignores LUA_INIT and the paths, else they count", function()
    local env = "LUA_INIT='x = 42' "
    assert.equal("42\n", shell.run(env .. mtlua .. " -e 'print(x)'").out)
    assert.equal("nil\n", shell.run(env .. mtlua .. " -E -e 'print(x)'").out)
    assert.equal("43\n", shell.run("LUA_INIT_5_4='x = 43' " .. env .. mtlua ..
      " -e 'print(x)'").out)
    with_file("x = 44", function(path)
      assert.equal("44\n", shell.run(("LUA_INIT=@%s %s -e 'print(x)'"):format(path,
        mtlua)).out)
    end)
  end)

  it("-W turns warnings on", function()
    assert.equal("", run([[-e 'warn "hm"']]).err)
    assert.truthy(run([[-W -e 'warn "hm"']]).err:find "hm")
  end)

  it("gives errors with a traceback and exit status 1", function()
    local r = run [[-e 'local function f() error "bad" end f()']]
    assert.equal(1, r.code)
    assert.truthy(r.err:find "bad" and r.err:find "stack traceback", r.err)
    assert.truthy(r.err:find "mtlua: ", r.err) -- as it was called: with its path
    r = run [[-e 'error(setmetatable({}, {__tostring = function() return "odd" end}))']]
    assert.equal(1, r.code)
    assert.truthy(r.err:find "odd", r.err)
    r = run [[-e 'error({})']]
    assert.truthy(r.err:find "table value", r.err)
  end)

  it("gives syntax errors, unknown files and unknown options", function()
    assert.equal(1, run([[-e 'x =']]).code)
    local r = run "/no/such/file.lua"
    assert.equal(1, r.code)
    assert.truthy(r.err:find("/no/such/file.lua", 1, true), r.err)
    r = run "-q"
    assert.equal(1, r.code)
    assert.truthy(r.err:find("'-q'", 1, true) and r.err:find "usage", r.err)
    assert.equal(1, run("-e").code)
  end)

  it("exits with what os.exit says", function()
    assert.equal(7, run([[-e 'os.exit(7)']]).code)
    assert.equal(0, run([[-e 'os.exit(true)']]).code)
    assert.equal(1, run([[-e 'os.exit(false, true)']]).code)
  end)

  it("ends with 130 when Ctrl-C is not caught", function()
    local r = shell.run(interrupt .. mtlua
      .. " -e 'while true do end'; echo $?")
    assert.equal("130\n", r.out, r.err)
    assert.truthy(r.err:find "interrupted!", r.err)
  end)

  it("lets a script catch Ctrl-C", function()
    local r = shell.run(("%s%s -e %s"):format(interrupt, mtlua, shell.quote [[
        local ok, err = pcall(function() while true do end end)
        io.write(tostring(ok), " ", tostring(err)) os.exit(3)]]))
    assert.truthy(r.out:find "^false .*interrupted!", r.out .. r.err)
    assert.equal(3, r.code)
  end)

  it("--device sets the device of constructors", function()
    local code = [[ -e 'io.write(require("mytensor").zeros(1):device())']]
    assert.equal("cpu", run("--device cpu" .. code).out)
    assert.equal("cpu", run("--device=cpu" .. code).out)
    local r = run("--device tpu" .. code)
    assert.equal(1, r.code)
    assert.truthy(r.err:find "tpu", r.err)
    r = shell.run("MYTENSOR_DEVICE=nonsense " .. mtlua .. " --device cpu" .. code)
    assert.equal("cpu", r.out)
  end)

  it("takes no instruction set that there is not", function()
    local code = [[ -e 'io.write(require("mytensor").ones(2):sum():item())']]
    for _, isa in ipairs { "v1", "v3", "v4" } do
      assert.equal("2", shell.run("MYTENSOR_ISA=" .. isa .. " " .. mtlua .. code).out)
    end
    local r = shell.run("MYTENSOR_ISA=nonsense " .. mtlua .. code)
    assert.equal(1, r.code)
    assert.truthy(r.err:find("MYTENSOR_ISA: unknown instruction set 'nonsense': want "
      .. "v1, v3 or v4", 1, true), r.err)
  end)

  it("loads other C modules", function()
    assert.equal("table\n", run([[-e 'print(type(require "lfs"))']]).out)
  end)

  it("starts within 12 MB and one thread", function()
    local r = run [[-e 'for l in io.lines "/proc/self/status" do
      local k, v = l:match "^(%a+):%s*(%d+)"
      if k == "VmHWM" or k == "Threads" then print(k, v) end end']]
    if shell.sanitized then pending "a sanitizer runs" end
    assert.equal("1", r.out:match "Threads%s+(%d+)")
    assert.is_true(tonumber(r.out:match "VmHWM%s+(%d+)") < 12 * 1024, r.out)
  end)

  it("-i goes on interactively, without history or prompt noise in a pipe", function()
    local r = run([[-i -e 'x = 4']],
      { stdin = "x + 1\nlocal y = 2\nerror('oops')\nx * 2\n" })
    assert.equal(0, r.code)
    assert.truthy(r.out:find "5" and r.out:find "8", r.out)
    assert.truthy(r.err:find "oops", r.err)
  end)

  it("-i shows a tensor with its values", function()
    local r = run("-i", { stdin = 'mt = require "mytensor"\nmt.tensor{1.5, 2}\n' })
    assert.truthy(r.out:find("<Tensor shape=[2] on CPU>", 1, true), r.out)
    assert.truthy(r.out:find("1.5", 1, true), r.out)
  end)
end)
