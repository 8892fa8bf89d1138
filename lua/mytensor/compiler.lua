-- lua/mytensor/compiler.lua: the system's compilers: where they are, what they are
-- called with, and the files that they leave. For mt.extension.

local mt = require "mytensor"

local compiler = {}

local function quote(word)
  if word:find "^[%w_%-%+=/.,:@]+$" then return word end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end
compiler.quote = quote

function compiler.read(path)
  local size, why, regular = mt._stat(path)
  if not size then return nil, why end
  if not regular then return nil, path .. " is no regular file" end
  local f
  f, why = io.open(path, "rb")
  if not f then return nil, why end
  local text = f:read "a"
  f:close()
  if not text then return nil, path .. " cannot be read" end
  return text
end

-- Write a file beside its place, then rename it: others see all of it or nothing.
function compiler.write(path, text)
  local beside = ("%s.%s"):format(path, mt._hash(tostring {}, tostring(mt._clock())))
  local f, why = io.open(beside, "wb")
  if not f then return nil, why end
  local ok, problem = f:write(text)
  local closed, late = f:close()
  if ok and closed then ok, problem = os.rename(beside, path) end
  if ok then return true end
  os.remove(beside)
  return nil, problem or late
end

function compiler.new_folder()
  local path = os.tmpname()
  os.remove(path)
  local ok, why = mt._make_folder(path)
  if not ok then error(why, 0) end
  return path
end

--- What removes a folder at the end of a block.
function compiler.removed(path)
  return setmetatable({}, {
    __close = function() os.execute("rm -rf " .. quote(path)) end,
  })
end

-- ---- programs -----------------------------------------------------------------------

local function which(name)
  if name:find "/" then return mt._stat(name) and name or nil end
  for folder in (os.getenv "PATH" or "/usr/bin:/bin"):gmatch "[^:]+" do
    local path = folder .. "/" .. name
    if mt._stat(path) then return path end
  end
  return nil
end

-- The command that compiles a language, and each of its words that is a program: a file
-- that changes with the compiler. nil and the reason.
local LANGUAGES = {
  c = { variable = "CC", names = { "cc", "gcc", "clang" }, called = "a C compiler" },
  cpp = { variable = "CXX", names = { "c++", "g++", "clang++" },
    called = "a C++ compiler" },
}

local function nvcc()
  local named, home = os.getenv "NVCC", os.getenv "CUDA_HOME"
  if named and named ~= "" then return named end
  return home and which(home .. "/bin/nvcc") or which "nvcc"
    or which "/usr/local/cuda/bin/nvcc"
end

function compiler.command(language)
  if language == "cu" then
    local found = nvcc()
    if found then return found end
    return nil, "nvcc was not found (looked in $NVCC, $CUDA_HOME/bin, $PATH and "
      .. "/usr/local/cuda/bin)"
  end
  local l = LANGUAGES[language]
  local named = os.getenv(l.variable)
  if named and named:find "%S" then return named end
  for _, name in ipairs(l.names) do
    if which(name) then return name end
  end
  return nil, ("%s was not found (looked for $%s, %s)"):format(l.called, l.variable,
    table.concat(l.names, ", "))
end

--- What tells one version of a command from another.
function compiler.identity(command)
  local parts = { command }
  for word in command:gmatch "%S+" do
    local path = not word:find "^%-" and which(word)
    local size, time = nil, nil
    if path then size, time = mt._stat(path) end
    if size then parts[#parts + 1] = ("%s %d %d"):format(path, size, time) end
  end
  return table.concat(parts, "\n")
end

--- What a build depends on beside sources, flags and commands: the environment that
--- compilers read, and the files that are linked.
function compiler.surroundings(link_flags)
  local parts = {}
  for _, name in ipairs { "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS" } do
    parts[#parts + 1] = ("%s=%s"):format(name, os.getenv(name) or "")
  end
  for _, flag in ipairs(link_flags) do
    local size, time = mt._stat(flag)
    if size then parts[#parts + 1] = ("%s %d %d"):format(flag, size, time) end
  end
  return table.concat(parts, "\n")
end

-- ---- headers ------------------------------------------------------------------------

local headers_hash

--- A name for the headers in this binary: mytensor.h and Lua's.
function compiler.headers_hash()
  if not headers_hash then
    local all, names = mt._headers(), {}
    for name in pairs(all) do names[#names + 1] = name end
    table.sort(names)
    for i, name in ipairs(names) do names[i] = name .. "\n" .. all[name] end
    headers_hash = mt._hash(table.unpack(names))
  end
  return headers_hash
end

--- Write the headers below folder, unless they are there: the folder to include from.
function compiler.write_headers(folder)
  local path = ("%s/include-%s"):format(folder, compiler.headers_hash())
  local ok, why = mt._make_folder(path)
  if not ok then return nil, why end
  for name, text in pairs(mt._headers()) do
    if compiler.read(path .. "/" .. name) ~= text then
      ok, why = compiler.write(path .. "/" .. name, text)
      if not ok then return nil, why end
    end
  end
  return path
end

-- ---- compiling ----------------------------------------------------------------------

local PLAIN = {
  c = { "-std=gnu11", "-O2", "-fPIC" },
  cpp = { "-std=c++17", "-O2", "-fPIC" },
  cu = { "-std=c++17", "-O3", "-Xcompiler", "-fPIC" },
}

--- The language of a source by its name's end; nil: another.
function compiler.language_of(path)
  local ending = path:match "%.(%w+)$"
  return ({ c = "c", cpp = "cpp", cc = "cpp", cxx = "cpp", cu = "cu" })[ending]
end

local function add(words, list)
  for _, word in ipairs(list) do words[#words + 1] = quote(word) end
end

--- The files that, were they there, would be included in place of those that were: in
--- the folders of -I that are searched before, and beside the sources.
function compiler.shadows(included, sources, ...)
  local folders, list, seen = {}, {}, {}
  for _, source in ipairs(sources) do
    folders[#folders + 1] = source:match "^(.*)/[^/]*$" or "."
  end
  for _, flags in ipairs { ... } do
    for i, flag in ipairs(flags) do
      local folder = flag == "-I" and flags[i + 1] or flag:match "^%-I(.+)$"
      if folder then folders[#folders + 1] = folder:match "^(.-)/*$" end
    end
  end
  for _, file in ipairs(included) do
    for i, folder in ipairs(folders) do
      if file:sub(1, #folder + 1) == folder .. "/" then
        for k = 1, i - 1 do
          local path = folders[k] .. file:sub(#folder + 1)
          if not seen[path] and not mt._stat(path) then list[#list + 1] = path end
          seen[path] = true
        end
      end
    end
  end
  return list
end

-- nvcc takes what defines and includes; the rest of the flags is for the C compilers.
local function flags_for_nvcc(flags)
  local list, i = {}, 1
  while flags[i] do
    if flags[i]:find "^%-[DIU]." then
      list[#list + 1] = flags[i]
    elseif flags[i]:find "^%-[DIU]$" and flags[i + 1] then
      list[#list + 1] = flags[i] .. flags[i + 1]
      i = i + 1
    end
    i = i + 1
  end
  return list
end

local function names_architecture(flags)
  for _, flag in ipairs(flags) do
    if flag:find "^%-?%-arch" or flag:find "^%-?%-gencode" or flag:find "^%-?%-gpu%-"
      or flag:find "^%-?%-generate%-code" then
      return true
    end
  end
  return false
end

--- nvcc's words for the current GPU; none where there is no GPU: nvcc's own choice.
function compiler.architecture(cuda_flags)
  if names_architecture(cuda_flags) or not mt.cuda.is_available() then return {} end
  local ok, properties = pcall(mt.cuda.get_device_properties)
  if not ok then return {} end -- the GPU is lost
  local sm = properties.capability:gsub("%.", "")
  return { ("-gencode=arch=compute_%s,code=[sm_%s,compute_%s]"):format(sm, sm, sm) }
end

--- The command that compiles job.source to job.object, and lists in job.dependencies
--- what it includes. job: name, include (a folder), flags, cuda_flags, architecture,
--- with_cuda.
function compiler.compile_command(job)
  local language = compiler.language_of(job.source)
  local words = { (assert(compiler.command(language))) }
  add(words, PLAIN[language])
  if language == "cu" then
    add(words, job.architecture)
    add(words, flags_for_nvcc(job.flags))
    add(words, job.cuda_flags)
  else
    add(words, job.flags)
  end
  if job.with_cuda then add(words, { "-DMT_EXTENSION_CUDA=1" }) end
  local source = job.source:gsub("^[-@]", "./%0") -- no option, no list of them
  add(words, { "-DMT_EXTENSION_NAME=" .. job.name, "-isystem", job.include, "-MMD",
    "-MF", job.dependencies, "-c", "-o", job.object, source })
  return table.concat(words, " ")
end

-- Where nvcc's toolkit keeps the runtime to link with.
local function cudart_folders(command)
  local home = os.getenv "CUDA_HOME"
  local path = which(command) or command
  local above = path:match "^(.*)/bin/nvcc$"
  for _, folder in ipairs { home or "", above or "", "/usr/local/cuda" } do
    for _, tail in ipairs { "/lib64", "/targets/x86_64-linux/lib" } do
      if folder ~= "" and mt._stat(folder .. tail .. "/libcudart_static.a") then
        return { "-L" .. folder .. tail }
      end
    end
  end
  return {} -- where the linker looks anyway
end

--- The command that links objects to a module.
function compiler.link_command(objects, output, languages, flags, link_flags)
  local cpp = languages.cpp or languages.cu
  local words = { (assert(compiler.command(cpp and "cpp" or "c"))), "-shared" }
  add(words, flags)
  add(words, { "-o", output })
  add(words, objects)
  add(words, link_flags)
  if languages.cu then
    add(words, cudart_folders(compiler.command "cu"))
    add(words, { "-lcudart_static", "-Wl,--exclude-libs,libcudart_static.a",
      "-lpthread", "-ldl", "-lrt" })
  end
  return table.concat(words, " ")
end

--- Run commands at once, each with its output in a file of logs: true, or the number of
--- the first that failed.
function compiler.run(commands, logs)
  local lines = {}
  for i, command in ipairs(commands) do
    lines[#lines + 1] = ("{ %s\n} >%s 2>&1 & p%d=$!"):format(command, quote(logs[i]), i)
  end
  local count = #commands
  for i = 1, count do lines[#lines + 1] = ("wait $p%d; r%d=$?"):format(i, i) end
  for i = 1, count do lines[#lines + 1] = ("[ $r%d = 0 ] || exit %d"):format(i, i) end
  local script = table.concat(lines, "\n")
  if #script > 120000 then -- Linux has 128 KB for one argument
    error(("%d bytes of commands are too many for the shell: fewer sources or flags")
      :format(#script), 0)
  end
  local ok, how, code = os.execute(script)
  if ok then return true end
  if how == "signal" then error("interrupted!", 0) end
  return commands[code] and code or 1
end

-- Does a file belong to nvcc's toolkit, which nvcc's identity stands for?
local function in_toolkit(path)
  local command = compiler.command "cu"
  local home = command and (which(command) or command):match "^(.*)/bin/nvcc$"
  return home and path:sub(1, #home + 1) == home .. "/"
end

--- The files that a dependency file of make names, but the source and the toolkit's.
function compiler.dependencies(path, source)
  local text = compiler.read(path)
  if not text then return {} end
  local list, seen = {}, { [source] = true, ["./" .. source] = true }
  text = text:gsub("\\\r?\n", " "):gsub("^[^\n]-:%s", "")
  -- a blank of a name stands behind a \, and each \ before that is doubled
  text = text:gsub("(\\+)([ \t])", function(slashes, blank)
    if #slashes % 2 == 0 then return slashes .. blank end
    return ("\\"):rep(#slashes // 2) .. (blank == " " and "\0" or "\1")
  end)
  for word in text:gmatch "%S+" do
    word = word:gsub("[%z\1]", { ["\0"] = " ", ["\1"] = "\t" }):gsub("\\#", "#")
      :gsub("%$%$", "$")
    if not seen[word] and not word:find ":$" and not in_toolkit(word) then
      seen[word] = true
      list[#list + 1] = word
    end
  end
  return list
end

return compiler
