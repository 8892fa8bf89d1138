-- lua/mytensor/extension.lua: C, C++ and CUDA sources as modules: compiled when they
-- are first loaded, or ahead of time.

local mt = require "mytensor"
local compiler = require "mytensor.compiler"

local extension = {}

-- ---- options ------------------------------------------------------------------------

local KNOWN = { name = "string", sources = "table", flags = "flags",
  cuda_flags = "flags", link_flags = "flags", verbose = "boolean" }

local function list_of(key, value)
  local list = {}
  if type(value) == "string" then
    for word in value:gmatch "%S+" do list[#list + 1] = word end
  elseif value ~= nil then
    for i, word in ipairs(value) do
      if type(word) ~= "string" then
        error(("%s[%d]: string expected, got %s"):format(key, i, type(word)), 0)
      end
      list[i] = word
    end
    for k in pairs(value) do
      if not list[k] then
        error(("%s: list of strings expected, got key %s"):format(key, tostring(k)), 0)
      end
    end
  end
  for i, word in ipairs(list) do
    local odd = word:find "%z" and "zero byte"
      or key == "sources" and word:find "\n" and "line break"
    if odd then error(("%s[%d] holds a %s"):format(key, i, odd), 0) end
  end
  return list
end

-- more: an option, a string, that there is besides.
local function check_options(o, more)
  if type(o) ~= "table" then
    error(("table with name and sources expected, got %s"):format(type(o)), 0)
  end
  for key, value in pairs(o) do
    local wanted = KNOWN[key] or key == more and "string"
    if not wanted then
      error(("unknown option '%s'; there are name, sources, flags, cuda_flags, "
        .. "link_flags, verbose%s"):format(tostring(key), more and ", " .. more or ""),
        0)
    end
    local kind = type(value)
    if wanted == "flags" and kind ~= "string" and kind ~= "table" then
      error(("%s: string or list of strings expected, got %s"):format(key, kind), 0)
    elseif wanted ~= "flags" and kind ~= wanted then
      error(("%s: %s expected, got %s"):format(key, wanted, kind), 0)
    end
  end
  if not o.name then error("name is missing", 0) end
  if not o.name:find "^[%a_][%w_]*$" then
    error(("name '%s' is no identifier of C"):format(o.name), 0)
  end
  if not o.sources or #o.sources == 0 then error("sources = {...} is missing", 0) end
end

-- What is to be built: the options, the sources' texts, the commands' identities.
local function describe(o, more)
  check_options(o, more)
  local b = { name = o.name, sources = list_of("sources", o.sources), texts = {},
    languages = {}, flags = list_of("flags", o.flags), verbose = o.verbose,
    cuda_flags = list_of("cuda_flags", o.cuda_flags),
    link_flags = list_of("link_flags", o.link_flags) }
  for i, path in ipairs(b.sources) do
    local language = compiler.language_of(path)
    if not language then
      error(("%s: .c, .cpp or .cu expected"):format(path), 0)
    end
    local text, why = compiler.read(path)
    if not text then error(why, 0) end
    b.texts[i], b.languages[language] = text, true
  end
  b.identity = {}
  for _, language in ipairs { "c", "cpp", "cu" } do
    if b.languages[language] or (language == "cpp" and b.languages.cu) then
      local command, why = compiler.command(language)
      if not command then
        error(("%s: %s"):format(table.concat(b.sources, ", "), why), 0)
      end
      b.identity[#b.identity + 1] = compiler.identity(command)
    end
  end
  b.identity[#b.identity + 1] = compiler.surroundings(b.link_flags)
  b.architecture = b.languages.cu and compiler.architecture(b.cuda_flags) or {}
  return b
end

-- All that the result depends on but the headers that the sources include.
local function key_of(b)
  return mt._hash(b.name, compiler.headers_hash(), -- and so MT_API_VERSION
    table.concat(b.identity, "\n"), table.concat(b.sources, "\n"),
    table.concat(b.flags, "\n"), table.concat(b.cuda_flags, "\n"),
    table.concat(b.link_flags, "\n"), table.concat(b.architecture, "\n"),
    table.unpack(b.texts))
end

-- ---- building -----------------------------------------------------------------------

local function say(b, format, ...)
  if b.verbose then io.stderr:write(format:format(...), "\n") end
end

local function fail(what, problem, log)
  local text = compiler.read(log) or ""
  if #text > 20000 then text = text:sub(1, 20000) .. "\n..." end
  error(("%s %s\n%s"):format(what, problem, (text:gsub("%s+$", ""))), 0)
end

-- Compile and link b in a folder of its own: the module's file, and what it includes.
local function build_in(b, folder, include)
  local objects, commands, logs, dependencies = {}, {}, {}, {}
  for i, source in ipairs(b.sources) do
    local stem = ("%s/%d"):format(folder, i)
    objects[i], logs[i], dependencies[i] = stem .. ".o", stem .. ".log", stem .. ".d"
    commands[i] = compiler.compile_command { source = source, object = objects[i],
      dependencies = dependencies[i], name = b.name, include = include,
      flags = b.flags, cuda_flags = b.cuda_flags, architecture = b.architecture,
      with_cuda = b.languages.cu }
    say(b, "%s", commands[i])
  end
  local start = mt._clock()
  local ok = compiler.run(commands, logs)
  if ok ~= true then fail(b.sources[ok], "does not compile", logs[ok]) end
  local module = ("%s/%s.so"):format(folder, b.name)
  local link = compiler.link_command(objects, module, b.languages, b.flags,
    b.link_flags)
  say(b, "%s", link)
  local log = folder .. "/link.log"
  if compiler.run({ link }, { log }) ~= true or not mt._stat(module) then
    fail(b.name, "does not link", log)
  end
  say(b, "%s: built in %.1f s", b.name, mt._clock() - start)
  local included, seen = {}, {}
  for i, path in ipairs(dependencies) do
    for _, file in ipairs(compiler.dependencies(path, b.sources[i])) do
      if not seen[file] then included[#included + 1] = file end
      seen[file] = true
    end
  end
  return module, included, compiler.shadows(included, b.sources, b.flags, b.cuda_flags)
end

-- ---- the cache ----------------------------------------------------------------------
-- A folder for each key holds modules, one for each state of the headers that the
-- sources include, and a list: the file of the newest, then those headers with their
-- hashes, and what would be included in place of them, were it not absent.

local function hash_files(files)
  local parts = {}
  for i, file in ipairs(files) do
    local text = compiler.read(file)
    parts[i] = file .. "\t" .. (text and mt._hash(text) or "missing")
  end
  return parts
end

-- The module of a list that still holds.
local function find_module(folder)
  local list = compiler.read(folder .. "/list")
  if not list or list:sub(-5) ~= "\nend\n" then return nil end
  local lines = {}
  for line in list:gmatch "[^\n]+" do lines[#lines + 1] = line end
  for i = 2, #lines - 1 do
    local file, hash = lines[i]:match "^(.*)\t(%w+)$"
    local text = file and compiler.read(file)
    if (text and mt._hash(text) or "absent") ~= hash then return nil end
  end
  local name, size = lines[1]:match "^(%S+) (%d+)$"
  local path = name and folder .. "/" .. name
  if path and mt._stat(path) == math.tointeger(size) then return path end
  return nil
end

local function cannot_write(why)
  error(("the cache cannot be written: %s (MYTENSOR_CACHE names another folder, or is "
    .. "off)"):format(why), 0)
end

local function build_into(b, folder, include)
  -- a process that was killed leaves its own, where its compilers may still write
  os.execute("rm -rf " .. compiler.quote(folder) .. "/work-*")
  local work = ("%s/work-%s"):format(folder,
    mt._hash(tostring {}, tostring(mt._clock())))
  local ok, why = mt._make_folder(work)
  if not ok then cannot_write(why) end
  local _ <close> = compiler.removed(work)
  local module, included, absent = build_in(b, work, include)
  local hashes = hash_files(included)
  for _, path in ipairs(absent) do hashes[#hashes + 1] = path .. "\tabsent" end
  local name = ("%s-%s.so"):format(b.name, mt._hash(table.unpack(hashes)))
  local path = folder .. "/" .. name
  local size = mt._stat(module)
  ok, why = os.rename(module, path)
  if not ok then cannot_write(why) end
  table.insert(hashes, 1, ("%s %d"):format(name, size))
  ok, why = compiler.write(folder .. "/list", table.concat(hashes, "\n") .. "\nend\n")
  if not ok then cannot_write(why) end
  return path
end

-- The module's file in the cache, built if it is not there; its folder; was it built?
local function cached(b, cache)
  local folder = ("%s/extensions/%s-%s"):format(cache, b.name, key_of(b))
  local path = find_module(folder)
  if path then return path, folder end
  local ok, why = mt._make_folder(folder)
  if not ok then cannot_write(why) end
  local lock <close>, problem = mt._lock(folder .. "/lock")
  if not lock then cannot_write(problem) end
  path = find_module(folder) -- another process has built it meanwhile
  if path then return path, folder end
  local include
  include, why = compiler.write_headers(cache)
  if not include then cannot_write(why) end
  return build_into(b, folder, include), folder, true
end

-- ---- loading ------------------------------------------------------------------------

local modules = {} -- by file: what luaopen_<name> has returned

-- The function luaopen_<name> of a file; nil, why, and whether the file is no module.
local function find_open(path, name)
  if not package.loadlib then error("package.loadlib is not there", 0) end
  local open, why, where = package.loadlib(path, "luaopen_" .. name)
  if not open and where == "init" then
    why = ("no source defines luaopen_%s: MT_EXTENSION_OPEN(L) {...}, or int "
      .. "luaopen_%s(lua_State *L)"):format(name, name)
  end
  return open, why, where == "open"
end

local function call_open(open, name, path)
  local ok, value = pcall(open, name, path)
  if ok then return value end
  if type(value) ~= "string" then error(value, 0) end
  error(("luaopen_%s: %s"):format(name, (value:gsub("^mytensor%.%a+:%d+: ", ""))), 0)
end

local function load_cached(b, cache)
  local path, folder, new = cached(b, cache)
  if modules[path] then return modules[path].value end
  local open, why, broken = find_open(path, b.name)
  if broken then os.remove(folder .. "/list") end
  if broken and not new then -- damaged on disk
    path = cached(b, cache)
    open, why, broken = find_open(path, b.name)
    if broken then os.remove(folder .. "/list") end
  end
  if not open then error(("%s: %s"):format(b.name, why), 0) end
  local value = call_open(open, b.name, path)
  modules[path] = { value = value }
  return value
end

local function load_uncached(b)
  local key = key_of(b)
  local known = modules[key]
  if known and table.concat(hash_files(known.files)) == known.hashes then
    return known.value
  end
  local folder = compiler.new_folder()
  local _ <close> = compiler.removed(folder)
  local include, why = compiler.write_headers(folder)
  if not include then error(why, 0) end
  local path, included, files = build_in(b, folder, include)
  for _, file in ipairs(included) do -- but mytensor's own, which are gone then
    if file:sub(1, #folder) ~= folder then files[#files + 1] = file end
  end
  local hashes = table.concat(hash_files(files))
  local open
  open, why = find_open(path, b.name)
  if not open then error(("%s: %s"):format(b.name, why), 0) end
  local value = call_open(open, b.name, path)
  modules[key] = { value = value, files = files, hashes = hashes }
  return value
end

local function load_module(o)
  local b = describe(o)
  local cache = mt._cache_folder()
  if cache then return load_cached(b, cache) end
  return load_uncached(b)
end

-- What f(...) gives, its errors as those of a function of mt.extension, with the line
-- of the caller's caller.
local function call(name, f, ...)
  local ok, value = pcall(f, ...)
  if ok then return value end
  if type(value) ~= "string" then error(value, 0) end
  error(("mt.extension.%s: %s"):format(name, value), 3)
end

--- Compile .c, .cpp and .cu sources, unless an unchanged build is in the cache, and
--- load the module.
---
--- One source defines `luaopen_<name>`, by `MT_EXTENSION_OPEN(L) {...}` of mytensor.h,
--- which is found, as Lua's headers are. `MT_EXTENSION_CUDA` is defined where a .cu
--- file is among the sources. A build is used again while the sources, what they
--- include (but for the system's headers), flags and compilers are the same; several
--- processes may load at once. `$CC`, `$CXX` and `$NVCC` name other compilers. Flags in
--- one string are cut at blanks, where quotes do not count: a flag with a blank takes a
--- list. What does not compile or link is an error with what the compiler said.
--- @param options { name: string, sources: string[], flags?: string|string[] for cc and
---   c++ (-D and -I for nvcc, too), cuda_flags?: string|string[] for nvcc, link_flags?:
---   string|string[], verbose?: boolean tells the commands }
--- @return any module what luaopen_<name> returns
function extension.load(options)
  local value = call("load", load_module, options)
  return value
end

--- Compile sources to a file, a module that `require` finds where package.cpath does.
--- @param options table as for load; output: the file, `<name>.so` unless given
--- @return string path
function extension.build(options)
  local path = call("build", function(o)
    local b = describe(o, "output")
    local output = o.output or b.name .. ".so"
    local folder = compiler.new_folder()
    local _ <close> = compiler.removed(folder)
    local include, why = compiler.write_headers(folder)
    if not include then error(why, 0) end
    local text = assert(compiler.read((build_in(b, folder, include))))
    local ok
    ok, why = compiler.write(output, text)
    if not ok then error(why, 0) end
    return output
  end, options)
  return path
end

--- Where nvcc is: sources may hold .cu files then.
--- @return string? path nil if it was not found
--- @return string? reason
function extension.nvcc() return compiler.command "cu" end

--- A folder with mytensor.h and Lua's headers, for compiling modules by other means.
--- @return string path
function extension.include()
  local path = call("include", function()
    local cache = mt._cache_folder()
    if not cache then error("there is no cache to write headers to", 0) end
    local folder, why = compiler.write_headers(cache)
    if not folder then cannot_write(why) end
    return folder
  end)
  return path
end

-- ---- mtlua -l mytensor.extension build [folder] ------------------------------------

local MAKEFILE = [[
# Makefile -- builds %s.so, a module for mytensor. Written by mytensor.extension.
NAME       = %s
SOURCES    = %s
# With mytensor.h and Lua's headers:
INCLUDE   := $(shell %s include)
CFLAGS     = -O2
CXXFLAGS   = -O2 -std=c++17
NVCC       = %s
NVCCFLAGS  = -O3 -std=c++17
LDLIBS     = %s

MAKEFLAGS += --no-builtin-rules
OBJECTS    = $(addsuffix .o,$(SOURCES))
DEFINES    = -DMT_EXTENSION_NAME=$(NAME) -isystem $(INCLUDE) -MMD
DEFINES   += $(if $(filter %%.cu,$(SOURCES)),-DMT_EXTENSION_CUDA=1)

$(NAME).so: $(OBJECTS)
    %s -shared -o $@ $(OBJECTS) $(LDFLAGS) $(LDLIBS)
%%.c.o: %%.c
    $(CC) $(CFLAGS) -fPIC $(DEFINES) -c -o $@ $<
%%.cpp.o: %%.cpp
    $(CXX) $(CXXFLAGS) -fPIC $(DEFINES) -c -o $@ $<
%%.cu.o: %%.cu
    $(NVCC) $(NVCCFLAGS) -Xcompiler -fPIC $(DEFINES) -c -o $@ $<
clean:
    rm -f $(NAME).so $(OBJECTS) $(OBJECTS:.o=.d)
.PHONY: clean
-include $(OBJECTS:.o=.d)
]]
MAKEFILE = MAKEFILE:gsub("\n    ", "\n\t")

-- What pwd prints in a folder.
local function absolute(folder)
  local p = assert(io.popen("cd " .. compiler.quote(folder) .. " && pwd"))
  local path = p:read "l" or folder
  p:close()
  return path
end

-- The words that started this Lua, up to the command.
local function interpreter()
  local words, first = {}, 0
  while arg[first - 1] do first = first - 1 end
  for i = first, -1 do words[#words + 1] = compiler.quote(arg[i]) end
  if words[1]:find "/" and not words[1]:find "^/" then
    words[1] = absolute "." .. "/" .. words[1]
  end
  return table.concat(words, " ")
end

local function makefile(b)
  local nvcc = extension.nvcc() or "nvcc"
  local cpp = b.languages.cpp or b.languages.cu
  local names = {}
  for i, path in ipairs(b.sources) do names[i] = path:match "[^/]*$" end
  return MAKEFILE:format(b.name, b.name, table.concat(names, " "), interpreter(), nvcc,
    b.languages.cu and "-L$(dir $(NVCC))../lib64 -lcudart_static -lpthread -ldl -lrt"
      or "", cpp and "$(CXX)" or "$(CC)")
end

-- A source whose name means something to make; nil: there is none.
local function odd_name(sources)
  for _, path in ipairs(sources) do
    local name = path:match "[^/]*$"
    if name:find "[^%w_.+,@\x80-\xff-]" then return name end
  end
  return nil
end

-- The sources of a folder, and the name that one of them gives its luaopen_.
local function scan(folder)
  local list, name = {}, nil
  local p = assert(io.popen("ls -1 " .. compiler.quote(folder)))
  for file in p:lines() do
    if compiler.language_of(file) then
      local path = folder == "." and file or folder .. "/" .. file
      list[#list + 1] = path
      local text = compiler.read(path)
      name = name or text and text:match "luaopen_([%a_][%w_]*)%s*%("
    end
  end
  p:close()
  return list, name
end

local COMMANDS = {}

function COMMANDS.build(folder, name)
  folder = folder and folder:gsub("(.)/+$", "%1"):gsub("^%-", "./-") or "."
  local sources, found = scan(folder)
  if #sources == 0 then error(folder .. ": no .c, .cpp or .cu files", 0) end
  if not name and not found then
    found = absolute(folder):match "([^/]*)$":gsub("[^%w_]", "_")
  end
  name = name or found
  local options = { name = name, sources = sources, verbose = true,
    output = folder .. "/" .. name .. ".so" }
  print(extension.build(options))
  local path = folder .. "/Makefile"
  if mt._stat(path) then
    print(path .. " is there already")
  elseif odd_name(sources) then
    print(("no Makefile: make cannot take the name '%s'"):format(odd_name(sources)))
  else
    local ok, why = compiler.write(path, makefile(describe(options, "output")))
    if not ok then error(why, 0) end
    print(path)
  end
end

function COMMANDS.include() print(extension.include()) end

-- Does the command line say `-l mytensor.extension` and then a command?
local function wanted_command()
  if type(arg) ~= "table" or not COMMANDS[arg[0]] then return nil end
  for i = -1, -100, -1 do
    if arg[i] == nil then return nil end
    if arg[i] == "-lmytensor.extension"
      or (arg[i] == "mytensor.extension" and arg[i - 1] == "-l") then
      return COMMANDS[arg[0]]
    end
  end
  return nil
end

local command = wanted_command()
if command then
  local ok, why = pcall(command, table.unpack(arg))
  if not ok then
    io.stderr:write((tostring(why):gsub("^mytensor%.extension:%d+: ", "")), "\n")
  end
  os.exit(ok, true)
end

return extension
