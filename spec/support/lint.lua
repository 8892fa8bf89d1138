-- spec/support/lint.lua: what no linter knows: include layers, lengths, first lines.
-- Usage: lua5.4 spec/support/lint.lua (in the root); exits 1 on any finding.

local MAX_LINES = 500

-- Files that may be longer, each with its reason.
local LONG = {
  ["lua/API.md"] = "generated",
  ["lua/PORTING.md"] = "generated",
  ["lua/mytensor/meta.lua"] = "generated",
  ["kernels/OPS.md"] = "generated",
  ["spec/support/porting.lua"] = "one table",
  ["spec/bench/rows.lua"] = "one list, beside that of rows.py",
}

-- Which folders the files of a folder may include from: the longest prefix decides.
local LAYERS = {
  ["kernels/"] = { "kernels/*.h", "kernels/*.def", "contract.h" },
  ["kernels/cpu/"] = { "kernels/*.h", "kernels/*.def", "kernels/cpu/", "contract.h" },
  ["kernels/cuda/"] = {
    "kernels/*.h", "kernels/*.def", "kernels/cuda/", "contract.h",
  },
  ["runtime/core/"] = { "kernels/*.h", "kernels/*.def", "runtime/core/", "contract.h" },
  ["runtime/autograd/"] = {
    "kernels/*.h", "kernels/*.def", "contract.h", "runtime/core/", "runtime/autograd/",
  },
  ["runtime/bind/"] = {
    "kernels/*.h", "kernels/*.def", "contract.h", "runtime/core/", "runtime/autograd/",
    "runtime/bind/", "runtime/mytensor.h",
  },
  ["runtime/"] = { "runtime/*.h" },
  ["examples/"] = { "runtime/mytensor.h", "mytensor.h", "examples/" },
  ["spec/"] = { "runtime/mytensor.h", "mytensor.h", "spec/" },
  ["spec/fuzzers/"] = { "runtime/core/formula.h", "spec/fuzzers/" },
  ["spec/units/"] = { "kernels/*.h", "kernels/cuda/jit.cuh", "runtime/core/",
    "spec/units/" },
}

local LUA_USERS = { "runtime/bind/", "runtime/", "examples/", "spec/", "spec/fuzzers/" }

-- System headers that belong to some folders only.
local SYSTEM = {
  { pattern = "^lua", folders = LUA_USERS },
  { pattern = "^lauxlib", folders = LUA_USERS },
  { pattern = "^cu", folders = { "kernels/cuda/" } },
  { pattern = "^nv", folders = { "kernels/cuda/" } },
}

local findings = 0
local function report(path, line, format, ...)
  findings = findings + 1
  print(("%s:%d: %s"):format(path, line, format:format(...)))
end

-- The key of the table that is the longest prefix of path.
local function layer_of(path)
  local best
  for prefix in pairs(LAYERS) do
    if path:sub(1, #prefix) == prefix and (not best or #prefix > #best) then
      best = prefix
    end
  end
  return best
end

local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end

-- "dir/" allows what lies in dir, "dir/*.h" only files of dir itself, else one file.
local function allows(pattern, path)
  if pattern:sub(-1) == "/" then return path:sub(1, #pattern) == pattern end
  local dir, suffix = pattern:match "^(.*/)%*(.*)$"
  if not dir then return path == pattern end
  return path:match "^.*/" == dir and path:sub(-#suffix) == suffix
end

local function check_include(path, number, quote, name)
  local layer = layer_of(path)
  if quote == "<" then
    for _, rule in ipairs(SYSTEM) do
      if name:find(rule.pattern) then
        local ok = false
        for _, folder in ipairs(rule.folders) do ok = ok or folder == layer end
        if not ok then report(path, number, "%s may not include %s", layer, name) end
      end
    end
    return
  end
  local beside = path:match "^(.*/)" .. name
  local target = exists(beside) and beside or name
  for _, pattern in ipairs(LAYERS[layer]) do
    if allows(pattern, target) then return end
  end
  report(path, number, "%s may not include %s", layer, target)
end

local OPENING = { c = "/%* ", h = "/%* ", inc = "/%* ", def = "/%* ", cu = "// ",
  cuh = "// ", cpp = "// ", lua = "%-%-%-? ?", py = "# " }

local UNWANTED = {
  ["[ \t]$"] = "blanks at the end of the line",
  ["\t"] = "tab",
  ["%f[%w]TO" .. "DO%f[%W]"] = "left open: do it or file an issue",
  ["%f[%w]FIX" .. "ME%f[%W]"] = "left open: do it or file an issue",
}

local function check_file(path)
  local extension = path:match "%.(%w+)$"
  local opening = OPENING[extension]
  local number = 0
  for line in io.lines(path) do
    number = number + 1
    if opening then
      if number == 1 and not line:find("^" .. opening .. path:gsub("%p", "%%%0"))
        and not line:find "^#!" and not line:find "^%-%-%-@meta" then
        report(path, number, "the first line does not name the file")
      end
      for pattern, problem in pairs(UNWANTED) do
        if line:find(pattern) then report(path, number, problem) end
      end
      local quote, name = line:match '^%s*#%s*include%s*(["<])([^">]+)[">]'
      if quote and extension ~= "lua" and layer_of(path) then
        check_include(path, number, quote, name)
      end
    end
  end
  if (opening or extension == "md") and number > MAX_LINES and not LONG[path] then
    report(path, number, "%d lines: more than %d", number, MAX_LINES)
  end
end

local files = assert(io.popen "git ls-files --cached --others --exclude-standard")
local checked = 0
for path in files:lines() do
  if exists(path) and not path:find "^spec/reference/" then
    check_file(path)
    checked = checked + 1
  end
end
files:close()
print(("lint: %d files, %d findings"):format(checked, findings))
os.exit(findings == 0 and checked > 0, true)
