-- spec/run.lua: runs the specs with busted inside whatever Lua runs this file.
--
--   build/mtlua spec/run.lua [options] [what ...]
--   LUA_CPATH='build/?.so;;' lua5.4 spec/run.lua [options] [what ...]
--
-- what: a spec file, a folder, or a name (`ops` is spec/ops/, `views` is
-- spec/views_spec.lua). Without any: all, in the order of ORDER below.
--   --filter=PATTERN  only the specs whose full name matches the Lua pattern
--   --list            names of the files, without running them
--   --verbose         every spec by name, with its time
-- The last line is "N passed, N failed, N skipped"; the exit status is 0 only if
-- something passed and nothing failed. MYTENSOR_GC_STRESS=1: the collector never rests.

local ORDER = {
  "spec/import_spec.lua", "spec/construct_spec.lua", "spec/dtype_spec.lua",
  "spec/convert_spec.lua", "spec/promotion_spec.lua", "spec/views_spec.lua",
  "spec/index_spec.lua", "spec/show_spec.lua", "spec/inplace_spec.lua", "spec/ops",
  "spec/autograd_spec.lua", "spec/function_spec.lua", "spec/programs_spec.lua",
  "spec/lua",
  "spec/errors_spec.lua", "spec/host_spec.lua", "spec/embed_spec.lua",
  "spec/memory_spec.lua", "spec/cuda_spec.lua", "spec/cudnn_spec.lua",
  "spec/fuzz_spec.lua",
}
local STRESSED = {
  "spec/ops", "spec/views_spec.lua", "spec/autograd_spec.lua", "spec/errors_spec.lua",
}

local stress = os.getenv "MYTENSOR_GC_STRESS" == "1"
if stress then collectgarbage("incremental", 1, 1000, 1) end

package.path = "./?.lua;" .. package.path
-- Before busted: what its modules' loading leaves is not ours to check, and the module
-- must be among the loaded ones before any file is.
local mt = require "mytensor"
local lfs = require "lfs"
local system = require "system"

-- ---- which files --------------------------------------------------------------------
local function mode(path)
  return lfs.attributes(path, "mode")
end

local function files_in(dir, list)
  local names = {}
  for name in lfs.dir(dir) do
    if not name:find "^%." then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local path = dir .. "/" .. name
    if mode(path) == "directory" then
      files_in(path, list)
    elseif name:find "_spec%.lua$" then
      list[#list + 1] = path
    end
  end
  return list
end

local function usage(text)
  io.stderr:write("spec/run.lua: ", text, "\n")
  os.exit(2, true)
end

local function files_of(what)
  what = what:gsub("/+$", "")
  local short = what .. "_spec.lua"
  for _, path in ipairs { what, "spec/" .. what, "spec/" .. short, "spec/ops/" .. short,
    "spec/lua/" .. short } do
    if mode(path) == "directory" then return files_in(path, {}) end
    if mode(path) == "file" then return { path } end
  end
  usage("no spec file, folder or name: " .. what)
end

local filter, listing, verbose
local wanted = {}
for _, a in ipairs(arg) do
  local pattern = a:match "^%-%-filter=(.*)$"
  if pattern then
    filter = pattern
  elseif a == "--list" then
    listing = true
  elseif a == "--verbose" then
    verbose = true
  elseif a:find "^%-" then
    usage("unknown option " .. a)
  else
    wanted[#wanted + 1] = a
  end
end
if mode "spec/run.lua" ~= "file" then usage "start me in the folder above spec/" end

local files, seen = {}, {}
local function add(list)
  for _, path in ipairs(list) do
    if not seen[path] then
      seen[path] = true
      files[#files + 1] = path
    end
  end
end
if #wanted > 0 then
  for _, what in ipairs(wanted) do add(files_of(what)) end
elseif stress then
  for _, what in ipairs(STRESSED) do add(files_of(what)) end
else
  for _, what in ipairs(ORDER) do
    if mode(what) then add(files_of(what)) end
  end
  add(files_in("spec", {})) -- those that ORDER does not know come last
end
if listing then
  for _, path in ipairs(files) do print(path) end
  os.exit(0, true)
end

-- ---- busted -------------------------------------------------------------------------
local busted = require "busted.core"()
require "busted"(busted)
busted.register("file", "file", {}) -- files share what is loaded: no insulation

local passed, failed, skipped = 0, 0, 0
local file_passed, file_skipped
local current = ""
local started = system.monotime()

local function full_name(element)
  local names = {}
  while element and element.descriptor ~= "file" and element.descriptor ~= "suite" do
    table.insert(names, 1, tostring(element.name or element.descriptor))
    element = busted.context.parent(element)
  end
  return table.concat(names, " ")
end

local function report(name, message, trace)
  failed = failed + 1
  io.write(("FAILED %s: %s\n"):format(current, name))
  for line in (tostring(message) .. "\n"):gmatch "(.-)\n" do
    io.write("  ", line, "\n")
  end
  if trace and trace.traceback and os.getenv "MYTENSOR_SPEC_TRACE" then
    io.write(trace.traceback, "\n")
  end
  io.flush()
end

if filter then
  local function matches(name)
    local parent = busted.context.get()
    return nil, (full_name(parent) .. " " .. tostring(name)):find(filter) ~= nil
  end
  for _, descriptor in ipairs { "it", "pending" } do
    busted.subscribe({ "register", descriptor }, matches, { priority = 1 })
  end
end

busted.subscribe({ "test", "end" }, function(element, _, status)
  if status == "success" then
    passed, file_passed = passed + 1, file_passed + 1
  elseif status == "pending" then
    skipped, file_skipped = skipped + 1, file_skipped + 1
  end
  if verbose then
    io.write(("  %7.3f s  %-8s %s\n"):format(element.duration or 0, status,
      full_name(element)))
  end
  return nil, true
end)
local reasons = {} -- why specs were skipped, in the order of their first appearance
busted.subscribe({ "pending" }, function(_, _, message)
  local reason = tostring(message):gsub("^[^:\n]*:%d+: ", "")
  if not reasons[reason] then reasons[#reasons + 1] = reason end
  reasons[reason] = (reasons[reason] or 0) + 1
  return nil, true
end)
-- failures and errors of specs, and errors outside them (describe, setup, a broken
-- file)
for _, channel in ipairs { "failure", "error" } do
  busted.subscribe({ channel }, function(element, _, message, trace)
    report(full_name(element), message, trace)
    return nil, true
  end)
end

-- Tensors and bytes that are alive on the CPU and the GPUs, and how many blocks were
-- written beyond (MYTENSOR_GUARD=1).
local function live()
  local s = mt.memory_stats "cpu"
  local tensors, bytes, overruns = s.live_tensors, s.live_bytes, s.overruns
  for i = 0, mt.cuda.device_count() - 1 do
    s = mt.cuda.memory_stats(i)
    tensors, bytes = tensors + s.live_tensors, bytes + s.live_bytes
    overruns = overruns + s.overruns
  end
  return tensors, bytes, overruns
end

-- Run a file; its closures, which hold its tensors, are garbage when this returns.
local function load_and_execute(path)
  local chunk, err = loadfile(path)
  if not chunk then
    report("(loading)", err)
    return
  end
  busted.executors.file(path, setmetatable({
    getTrace = function(_, info) return info end,
  }, { __call = chunk }))
  busted.execute()
  local env = busted.context.get().env
  busted.context.clear()
  busted.context.get().env = env
end

local function run_file(path)
  current = path
  file_passed, file_skipped = 0, 0
  local before, t0 = failed, system.monotime()
  local _, _, overruns_before = live()
  local globals = {}
  for k in next, _G do globals[k] = true end
  load_and_execute(path)
  local tensors, bytes, overruns
  for _ = 1, 20 do -- a finalizer may make tensors, and objects with finalizers
    collectgarbage()
    tensors, bytes, overruns = live()
    if tensors == 0 and bytes == 0 then break end
  end
  if tensors ~= 0 or bytes ~= 0 then
    report("(memory)", ("%d tensors and %d bytes are alive"):format(tensors, bytes))
  end
  if overruns ~= overruns_before then
    report("(guard)", ("%d blocks were written beyond"):format(
      overruns - overruns_before))
  end
  for k in next, _G do
    if not globals[k] then
      report("(globals)", ("%s left the global %s"):format(path, tostring(k)))
      rawset(_G, k, nil)
    end
  end
  io.write(("%-32s %4d passed, %d failed, %d skipped  (%.1f s)\n"):format(path,
    file_passed, failed - before, file_skipped, system.monotime() - t0))
  io.flush()
end

io.write(("%s, %s, %d files\n"):format(_VERSION, mt._VERSION, #files))
for _, path in ipairs(files) do run_file(path) end
for _, reason in ipairs(reasons) do
  io.write(("skipped %d: %s\n"):format(reasons[reason], reason))
end
io.write(("%.1f s\n"):format(system.monotime() - started))
io.write(("%d passed, %d failed, %d skipped\n"):format(passed, failed, skipped))
io.flush()
os.exit(failed == 0 and passed > 0, true)
