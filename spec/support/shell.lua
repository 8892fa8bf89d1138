-- spec/support/shell.lua: runs hosts and other programs, and tells what they did.

local shell = {}

local interpreter = arg[-1] or "lua5.4"
for i = -1, -20, -1 do
  if arg[i] then interpreter = arg[i] end
end

--- The Lua that runs the specs, and whether it is our host.
shell.lua = interpreter
shell.is_host = interpreter:find "mtlua" ~= nil

local function exists(path)
  local f = io.open(path, "r")
  if f then f:close() end
  return f ~= nil
end
shell.exists = exists

--- The folder of the build that runs.
shell.build = interpreter:match "^(.*)/mtlua$" or "build"
shell.mtlua = shell.build .. "/mtlua"

--- Is this a build with a sanitizer? They need more memory and time of their own.
shell.sanitized = shell.build:find "[at]san" ~= nil

--- gcc's options for Lua's headers; a bundle brings them along.
shell.lua_includes = "-isystem include/lua5.4 -isystem /usr/include/lua5.4 "
  .. "-isystem /usr/local/include/lua5.4"

--- Are there Lua's headers to compile with?
function shell.lua_headers()
  return shell.run("echo '#include <lauxlib.h>' | gcc -fsyntax-only "
    .. shell.lua_includes .. " -xc -").code == 0
end

function shell.quote(s)
  return "'" .. tostring(s):gsub("'", "'\\''") .. "'"
end

function shell.read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

function shell.write(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

--- Run a command line of sh. opts: stdin (text). Gives {out=, err=, code=, signal=}.
function shell.run(command, opts)
  local out, err, into = os.tmpname(), os.tmpname(), os.tmpname()
  shell.write(into, opts and opts.stdin or "")
  command = ("{ %s\n} >%s 2>%s <%s"):format(command, out, err, into)
  local _, how, code = os.execute(command)
  local result = {
    out = shell.read(out), err = shell.read(err),
    code = how == "exit" and code or nil, signal = how == "signal" and code or nil,
  }
  os.remove(out)
  os.remove(err)
  os.remove(into)
  return result
end

--- The command that runs this Lua with the module in reach, from any folder.
function shell.lua_command()
  local pwd = require "lfs".currentdir()
  local lua = interpreter
  if lua:find "/" and not lua:find "^/" then lua = pwd .. "/" .. lua end
  if shell.is_host then return shell.quote(lua) end
  local cpath = os.getenv "LUA_CPATH" or "build/?.so;;"
  cpath = cpath:gsub("^build/", pwd .. "/build/")
  return ("LUA_CPATH=%s %s"):format(shell.quote(cpath), shell.quote(lua))
end

--- Run a piece of Lua in a fresh process.
function shell.lua_run(code, opts)
  return shell.run(("%s %s -e %s"):format(opts and opts.env or "", shell.lua_command(),
    shell.quote(code)):gsub("^ +", ""), opts)
end

return shell
