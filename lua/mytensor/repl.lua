-- lua/mytensor/repl.lua: what the interactive mode of mtlua prints and completes.
local mt = require "mytensor"

local repl = {}

-- Keys of a table in a fixed order: sequence first, then by name.
local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b)
    if math.type(a) and math.type(b) then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end

-- A value of mt.info() as text: lists with commas, tables as "key value".
local function describe(value)
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for _, k in ipairs(sorted_keys(value)) do
    local text = describe(value[k])
    if type(k) == "string" then text = k .. " " .. text end
    parts[#parts + 1] = text
  end
  return #parts > 0 and table.concat(parts, ", ") or "none"
end

--- The version of mytensor, then one line for each thing that mt.info() knows.
function repl.print_versions()
  print(mt._VERSION)
  local info = mt.info()
  for _, k in ipairs(sorted_keys(info)) do
    print(("  %-16s %s"):format(k, describe(info[k])))
  end
end

--- Two lines that greet who starts the interactive mode.
function repl.print_banner()
  print(("%s on %s. The global mt is the module; Tab completes, "
    .. "Ctrl-D leaves."):format(mt._VERSION, mt.get_default_device()))
end

local function is_tensor(value)
  if type(value) ~= "userdata" then return false end
  local ok, show = pcall(function() return value.show end)
  return ok and type(show) == "function"
end

--- Print the values that a statement gave, as `print` does; tensors also with their
--- elements.
--- @param ... any
function repl.show_values(...)
  print(...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if is_tensor(value) then -- what it is stands above: not once more below
      local text = value:format():gsub("\n[^\n]*$", "")
      print(text)
    end
  end
end

local keywords = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto",
  "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until",
  "while",
}

-- Calls visit(name, value) for what can be written after `object.`, each name once.
local function each_member(object, visit)
  local seen_names, seen_tables = {}, {}
  local function walk(t, depth, hidden)
    if type(t) ~= "table" or seen_tables[t] or depth > 16 then return end
    seen_tables[t] = true
    for name, value in next, t do
      if type(name) == "string" and name:find "^[%a_][%w_]*$" and not seen_names[name]
        and not (hidden and name:find "^__") then
        seen_names[name] = true
        visit(name, value)
      end
    end
    local meta = debug.getmetatable(t)
    if meta then
      walk(rawget(meta, "__index"), depth + 1, true)
      walk(rawget(meta, "__members"), depth + 1, true)
    end
  end
  walk(object, 0, false)
  local meta = debug.getmetatable(object)
  if meta then
    -- Where __index is a function, the metatable itself is the class.
    local index = rawget(meta, "__index")
    walk(type(index) == "table" and index or meta, 0, true)
    walk(rawget(meta, "__members"), 0, true)
  end
  if is_tensor(object) then
    walk(mt.Tensor, 0, true)
    visit("grad")
    visit("requires_grad")
  end
end

-- The value of `name.name[1]["name"]`, or nil; never calls what is not a metamethod.
local function evaluate(path)
  local first, rest = path:match "^([%a_][%w_]*)(.*)$"
  if not first then return nil end
  local value = _G[first]
  while rest ~= "" and value ~= nil do
    local key, after = rest:match "^[.:]([%a_][%w_]*)(.*)$"
    if not key then
      key, after = rest:match "^%[(%-?%d+)%](.*)$"
      key = math.tointeger(tonumber(key))
    end
    if not key then
      local _
      _, key, after = rest:match "^%[([\"'])([^\"']*)%1%](.*)$"
    end
    if not key then return nil end
    local object = value
    local ok, member = pcall(function() return object[key] end)
    if not ok then return nil end
    value, rest = member, after
  end
  return value
end

--- What may stand for the name at the end of a line: globals and keywords, or the
--- fields and methods of what stands before `.` or `:`.
--- @param line string
--- @return string[] names, functions with an opening parenthesis
function repl.complete(line)
  local prefix = line:match "[%a_][%w_]*$" or ""
  local before = line:sub(1, #line - #prefix)
  local names = {}
  local function offer(name, value)
    if name:sub(1, #prefix) == prefix and (prefix ~= "" or name:sub(1, 1) ~= "_") then
      names[#names + 1] = type(value) == "function" and name .. "(" or name
    end
  end
  local operator = before:match "[.:]$"
  if operator and not before:find "%.%.$" then
    local path = before:sub(1, -2):match "[%w_.:%[%]\"'%-]*$"
    local object = evaluate(path)
    if object ~= nil then
      each_member(object, function(name, value)
        if operator == "." or type(value) == "function" then offer(name, value) end
      end)
    end
  else
    each_member(_G, offer)
    for _, word in ipairs(keywords) do offer(word) end
  end
  table.sort(names)
  return names
end

return repl
