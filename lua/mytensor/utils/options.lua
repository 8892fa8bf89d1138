-- lua/mytensor/utils/options.lua: command line options of scripts.

local check = require "mytensor.check"

local options = {}

local convert = {
  integer = function(text) return math.tointeger(tonumber(text)) end,
  number = tonumber,
  string = function(text) return text end,
}

-- Which of the declarations has the name.
local function find(declared, name)
  for _, d in ipairs(declared) do
    if d[1] == name then return d end
  end
end

--- Parse `--name value`, `--name=value`, and `--name` alone for booleans.
--- @param args string[]
--- @param declared table[] each { name, type, default or nil, text }; the types are
---   "integer", "number", "string", "boolean"
--- @return table? name -> value; .help is true after --help; nil if something is wrong
--- @return string? message
function options.parse_options(args, declared)
  local result = {}
  for _, d in ipairs(declared) do result[d[1]] = d[3] end
  local i = 1
  while i <= #args do
    local argument = args[i]
    local name, value = argument:match "^%-%-([^=]+)=?(.*)$"
    if argument == "--help" or argument == "-h" then
      result.help = true
      return result
    elseif not name then
      return nil, ("unexpected argument '%s'"):format(argument)
    end
    local d = find(declared, name)
    if not d then return nil, ("unknown option '--%s'"):format(name) end
    local given = argument:find("=", 1, true) ~= nil
    if d[2] == "boolean" then
      if given then return nil, ("option '--%s' takes no value"):format(name) end
      result[name] = true
    else
      if not given then
        i = i + 1
        value = args[i]
        if value == nil then
          return nil, ("option '--%s' needs a value"):format(name)
        end
      end
      result[name] = convert[d[2]](value)
      if result[name] == nil then
        return nil, ("option '--%s' needs %s, got '%s'"):format(
          name, d[2] == "integer" and "an integer" or "a number", value)
      end
    end
    i = i + 1
  end
  return result
end

local function help(usage, declared)
  local lines = { "usage: " .. usage }
  for _, d in ipairs(declared) do
    local left = "--" .. d[1] .. (d[2] == "boolean" and "" or " " .. d[2]:upper())
    local default = d[3] ~= nil and d[2] ~= "boolean" and (" (%s)"):format(d[3]) or ""
    lines[#lines + 1] = ("  %-18s %s%s"):format(left, d[4] or "", default)
  end
  lines[#lines + 1] = ("  %-18s %s"):format("--help", "show this")
  return table.concat(lines, "\n") .. "\n"
end

--- The options of a script. `--help` shows them and ends it; what can't be understood
--- is reported and ends it with exit status 2.
--- @param args string[] usually `arg`
--- @param usage string the first line of the help
--- @param declared table[] as for `parse_options`
--- @return table name -> value
function options.options(args, usage, declared)
  check.type(1, "options", args, "table")
  check.type(2, "options", usage, "string")
  check.type(3, "options", declared, "table")
  local result, message = options.parse_options(args, declared)
  if not result then
    io.stderr:write(message, " (--help shows the options)\n")
    os.exit(2, true)
  elseif result.help then
    io.stdout:write(help(usage, declared))
    os.exit(0, true)
  end
  return result
end

return options
