-- lua/mytensor/profile.lua: mt.profile: what each op costs, on the host and on the GPU.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local json = require "mytensor.json"

local profile = {}

-- ---- ceilings: what a device could do -----------------------------------------------

local ceilings = {} -- device -> { bandwidth = bytes/s, flops = { kind -> flop/s } }

local function synchronise(device)
  if device ~= "cpu" then mt.cuda.synchronize(device) end
end

-- Seconds of the fastest of five runs.
local function fastest(device, fn)
  local least = math.huge
  fn()
  for _ = 1, 5 do
    synchronise(device)
    local start = mt._clock()
    fn()
    synchronise(device)
    least = math.min(least, mt._clock() - start)
  end
  return least
end

local function ceilings_of(device)
  local of = ceilings[device]
  if not of then
    of = { flops = {} }
    ceilings[device] = of
  end
  return of
end

-- Run without noise from, or traces in, what the caller does.
local function aside(fn, ...)
  local state = mt.get_rng_state()
  local results = table.pack(pcall(mt.no_grad, mt.scope, fn, ...))
  mt.set_rng_state(state)
  return results[1] and results[2] or nil -- nil: no memory for it
end

local function bandwidth(device)
  local of = ceilings_of(device)
  of.bandwidth = of.bandwidth or aside(function()
    local n = device == "cpu" and 1 << 24 or 1 << 26
    local from = mt.ones({ n }, { device = device })
    local to = mt.zeros({ n }, { device = device })
    return 8 * n / fastest(device, function() to:copy_(from) end)
  end)
  return of.bandwidth
end

-- What a product is computed in: its dtype, and for float32 on a GPU the precision.
local function kind_of(record)
  if record.device == "cpu" or record.dtype ~= "float32" then return record.dtype end
  return "float32 " .. mt.get_matmul_precision()
end

local function product_rate(device, kind)
  local of = ceilings_of(device)
  of.flops[kind] = of.flops[kind] or aside(function()
    local n, dtype = device == "cpu" and 512 or 4096, kind:match "^%w+"
    local a = mt.rand({ n, n }, { device = device }):to(dtype)
    local b = mt.rand({ n, n }, { device = device }):to(dtype)
    return 2 * n ^ 3 / fastest(device, function() return a:matmul(b) end)
  end)
  return of.flops[kind]
end

-- ---- the report ---------------------------------------------------------------------

--- What mt.profile found.
--- @class mytensor.ProfileReport
--- @field records table[] each call: name, gradient, module, device, dtype, shape (of
---   the first result), start, host, device_start, device_time (seconds), bytes, flops,
---   allocated (bytes)
--- @field seconds number that the function took
--- @field dropped integer calls that were not noted: those after a million (2^20), and
---   those that there was no memory for
local Report = class "ProfileReport"
Report.__name = "mytensor.ProfileReport"

-- "Sequential/1 Linear": the modules and ranges around a call.
local function scope_paths(scopes)
  local paths = { [0] = "" }
  for i, scope in ipairs(scopes) do -- a parent stands before its children
    local above = paths[scope.parent]
    paths[i] = above == "" and scope.name or above .. "/" .. scope.name
  end
  return paths
end

function Report:init(raw, seconds, given)
  local paths = scope_paths(raw.scopes)
  self.records, self.seconds, self.dropped = raw.records, seconds, raw.dropped
  self._stretches = raw.stretches
  for _, stretch in ipairs(raw.stretches) do stretch.name = paths[stretch.scope] end
  local wanted = {}
  for _, r in ipairs(self.records) do
    r.module, r.scope = paths[r.scope], nil
    local device = wanted[r.device] or {}
    wanted[r.device] = device
    if r.flops > 0 then
      r.kind = kind_of(r)
      device[r.kind] = true
    end
  end
  self.ceilings = {}
  for device, kinds in pairs(wanted) do
    local of = { bandwidth = given.bandwidth or bandwidth(device), flops = {} }
    for kind in pairs(kinds) do
      of.flops[kind] = given.flops or product_rate(device, kind)
    end
    self.ceilings[device] = of
  end
end

-- Seconds that the device should have taken, at its ceilings.
local function least_time(report, r)
  local of = report.ceilings[r.device]
  local by_bytes = of.bandwidth and r.bytes / of.bandwidth or 0
  local rate = r.kind and of.flops[r.kind]
  return math.max(by_bytes, rate and r.flops / rate or 0)
end

local keys = {
  op = function(r) return r.gradient and r.name .. " (backward)" or r.name end,
  module = function(r) return r.module == "" and "(no module)" or r.module end,
  shape = function(r)
    return ("%s [%s]"):format(r.name, table.concat(r.shape, ", "))
  end,
}

--- The calls in groups, those that took longest first.
--- @param by? string "op" (default), "module", or "shape" (op and shape)
--- @return table[] each { name=, device=, calls=, host=, device_time= (seconds; on the
---   CPU the host's), bytes=, flops=, allocated=, share= (of what the device could do
---   by its bandwidth or product rate; nil: unknown) }
function Report:rows(by)
  local key = keys[by or "op"]
  if not key then
    check.fail(1, "rows", "one of op, module, shape expected, got %s", tostring(by))
  end
  local groups, list = {}, {}
  for _, r in ipairs(self.records) do
    local name = key(r)
    local id = name .. "\0" .. r.device
    local row = groups[id]
    if not row then
      row = {
        name = name, device = r.device, calls = 0, host = 0, device_time = 0, bytes = 0,
        flops = 0, allocated = 0, least = 0, timed = 0,
      }
      groups[id] = row
      list[#list + 1] = row
    end
    local on_device = r.device == "cpu" and r.host or r.device_time
    row.calls, row.host = row.calls + 1, row.host + r.host
    row.bytes, row.flops = row.bytes + r.bytes, row.flops + r.flops
    row.allocated = row.allocated + r.allocated
    if on_device then
      row.device_time, row.timed = row.device_time + on_device, row.timed + 1
      row.least = row.least + least_time(self, r)
    end
  end
  for _, row in ipairs(list) do
    if row.device_time > 0 and row.least > 0 then
      row.share = row.least / row.device_time
    end
  end
  table.sort(list, function(a, b)
    if a.device_time ~= b.device_time then return a.device_time > b.device_time end
    if a.host ~= b.host then return a.host > b.host end
    return a.name < b.name
  end)
  return list
end

local function size_text(bytes)
  local units, i = { "B", "KB", "MB", "GB", "TB" }, 1
  while bytes >= 1000 and i < #units do bytes, i = bytes / 1000, i + 1 end
  return (i == 1 and "%.0f %s" or "%.1f %s"):format(bytes, units[i])
end

-- Of a row: what it reached, by what limits it.
local function rate_text(row)
  if row.device_time <= 0 then return "" end
  if row.flops > 0 then
    local rate = row.flops / row.device_time
    return (rate < 1e12 and "%.1f GFLOP/s" or "%.1f TFLOP/s"):format(
      rate * (rate < 1e12 and 1e-9 or 1e-12))
  end
  if row.bytes == 0 then return "" end
  return ("%.1f GB/s"):format(row.bytes / row.device_time * 1e-9)
end

-- In characters; in bytes where text is no UTF-8.
local function length(text) return utf8.len(text) or #text end

local function pad(text, width, left)
  local gap = (" "):rep(width - length(text))
  return left and text .. gap or gap .. text
end

local function layout(lines)
  local widths, out = {}, {}
  for _, line in ipairs(lines) do
    for i, cell in ipairs(line) do
      widths[i] = math.max(widths[i] or 0, length(cell))
    end
  end
  for _, line in ipairs(lines) do
    local cells = {}
    for i, cell in ipairs(line) do cells[i] = pad(cell, widths[i], i <= 2) end
    out[#out + 1] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  return table.concat(out, "\n")
end

--- The table of `rows`, as text; `tostring(report)` is that of the ops.
--- @param by? string
--- @return string
function Report:text(by)
  local rows, total, host = self:rows(by), 0, 0
  for _, row in ipairs(rows) do
    total, host = total + row.device_time, host + row.host
  end
  local lines = { {
    by or "op", "device", "calls", "host us", "device us", "%", "bytes", "allocated",
    "rate", "of limit",
  } }
  for _, row in ipairs(rows) do
    lines[#lines + 1] = {
      (row.name:gsub("%c", "?")), row.device, ("%d"):format(row.calls),
      ("%.1f"):format(row.host * 1e6),
      row.timed > 0 and ("%.1f"):format(row.device_time * 1e6) or "-",
      total > 0 and ("%.1f"):format(100 * row.device_time / total) or "-",
      size_text(row.bytes), size_text(row.allocated), rate_text(row),
      row.share and ("%.0f%%"):format(100 * row.share) or "-",
    }
  end
  local summary = ("%d calls in %.1f us: %.1f us in calls, %.1f us of devices"):format(
    #self.records, self.seconds * 1e6, host * 1e6, total * 1e6)
  if self.dropped > 0 then
    summary = ("%s; %d more were not noted"):format(summary, self.dropped)
  end
  return layout(lines) .. "\n" .. summary
end

function Report:__tostring() return self:text() end

-- ---- the trace ----------------------------------------------------------------------

-- A name of the user's, which may be no UTF-8, as JSON must be.
local function quoted(text)
  if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
  return json.quote(text)
end

local function event(name, track, start, seconds, arguments)
  local text = '{"ph":"X","name":%s,"pid":0,"tid":%d,"ts":%.3f,"dur":%.3f%s}'
  return text:format(quoted(name), track, start * 1e6, seconds * 1e6,
                     arguments and ',"args":{' .. arguments .. "}" or "")
end

-- The number of a track; its name goes to the events when it is first used.
local function tracks(events)
  local numbers, count = {}, 0
  return function(name)
    if not numbers[name] then
      count = count + 1
      numbers[name] = count
      local text = '{"ph":"M","name":"thread_name","pid":0,"tid":%d,"args":{"name":%s}}'
      events[#events + 1] = text:format(count, quoted(name))
    end
    return numbers[name]
  end
end

--- Write the calls as a trace that chrome://tracing and ui.perfetto.dev show: a track
--- for the host, one for modules and ranges, one for each GPU.
--- @param path string
--- @return boolean? true; or nil and a message
function Report:trace(path)
  check.type(1, "trace", path, "string")
  local events = {}
  local track = tracks(events)
  for _, s in ipairs(self._stretches) do
    if s.finish >= 0 then
      events[#events + 1] = event(s.name, track "modules", s.start, s.finish - s.start)
    end
  end
  for _, r in ipairs(self.records) do
    local name = keys.op(r)
    local arguments = ('"shape":"[%s]","dtype":"%s","bytes":%.0f,"flops":%.0f,'
                       .. '"allocated":%.0f,"module":%s'):format(
      table.concat(r.shape, ", "), r.dtype, r.bytes, r.flops, r.allocated,
      quoted(r.module))
    events[#events + 1] = event(name, track "host", r.start, r.host, arguments)
    if r.device_time then
      events[#events + 1] = event(name, track(r.device), r.device_start,
                                  r.device_time, arguments)
    end
  end
  local file, message = io.open(path, "w")
  if not file then return nil, message end
  local ok, problem = file:write('{"traceEvents":[\n', table.concat(events, ",\n"),
                                 '\n],"displayTimeUnit":"ns"}\n')
  local closed, closing = file:close()
  if not ok then return nil, problem end
  if not closed then return nil, closing end
  return true
end

-- ---- profiling ----------------------------------------------------------------------

-- A scope that ends with the block that it is declared in.
local Scope = { __close = function(self) mt._profile_leave(self.before) end }

local function enter(name)
  return setmetatable({ before = mt._profile_enter(name) or 0 }, Scope)
end

-- What a module is called within the one that calls it: its field there, its class.
local function module_name(stack, module)
  local caller, kind = stack[#stack], module.__name
  if not caller then return kind end
  local state = caller._state
  for _, name in ipairs(state.order) do
    if rawequal(state.values[name], module) then return name .. " " .. kind end
  end
  return kind
end

local function watch_modules()
  local stack = {}
  mt.nn.Module._watch(function(module, run, ...)
    local scope <close> = enter(module_name(stack, module)) -- luacheck: ignore
    local depth = #stack
    stack[depth + 1] = module
    local stacked <close> = setmetatable({}, { -- luacheck: ignore
      __close = function() for i = #stack, depth + 1, -1 do stack[i] = nil end end,
    })
    return run(module, ...)
  end)
end

--- Name a part of the program for mt.profile, and for tools that show NVTX ranges.
--- Where no profile runs it costs a call.
--- @param name string
--- @param fn function
--- @param ... any its arguments
--- @return any what fn returns
function profile.profile_range(name, fn, ...)
  check.type(1, "profile_range", name, "string")
  check.callable(2, "profile_range", fn)
  local scope <close> = enter(name) -- luacheck: ignore
  return fn(...)
end

local function check_ceilings(given)
  if given == nil then return {} end
  check.type(2, "profile", given, "table")
  local o = check.options(2, "profile", given, { bandwidth = check.none,
                                                 flops = check.none })
  for _, name in ipairs { "bandwidth", "flops" } do
    if o[name] ~= nil then check.number(2, "profile", o[name], name, 0) end
  end
  return o
end

--- Run `fn` and tell what each op took: calls, time on the host and on the device,
--- bytes, and the share of what the device could do.
---
---     local report, loss = mt.profile(function() return step(x, y) end)
---     print(report)                 -- the ops
---     print(report:text "module")   -- by modules and ranges
---     report:trace "step.json"      -- for chrome://tracing
---
--- Ops of backward and of optimisers count too. Times on a GPU are taken by events
--- around each op, while the GPU is held back until some ops are queued, so that short
--- ones aren't charged with the host's time (with back_to_back = false it isn't); what
--- two events show that have nothing between them is taken off. Limits are measured
--- once for each device, by a copy and by a product, or given. One profile runs at a
--- time in a Lua state; an error of `fn` ends it and is raised again.
--- @param fn function
--- @param options? table ceilings = { bandwidth = bytes a second, flops = a second },
---   back_to_back = true, modules = true (tell which module a call belongs to), nvtx =
---   true (name ops and modules for attached tools)
--- @return mytensor.ProfileReport
--- @return any what fn returned
function profile.profile(fn, options)
  check.callable(1, "profile", fn)
  local o = check.options(2, "profile", options, {
    ceilings = check.none, back_to_back = true, modules = true, nvtx = true,
  })
  local given = check_ceilings(o.ceilings)
  local start = mt._clock()
  local handle = mt._profile_start(o.back_to_back, o.nvtx)
  if not handle then check.raise "profile: another one is running" end
  if o.modules then watch_modules() end
  local results = table.pack(pcall(fn))
  local seconds = mt._clock() - start
  mt.nn.Module._watch(nil)
  local stopped, raw = pcall(mt._profile_stop, handle)
  if not results[1] then error(results[2], 0) end
  if not stopped then error(raw, 0) end
  return Report(raw, seconds, given), table.unpack(results, 2, results.n)
end

return profile
