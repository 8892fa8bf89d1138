-- lua/mytensor/utils/terminal.lua: what the terminal can show.

local mt = require "mytensor"

local terminal = {}

--- Is standard output a terminal that moves its cursor?
--- @return boolean
function terminal.interactive()
  return mt._isatty(1) and os.getenv "TERM" ~= "dumb"
end

--- Does the locale say that text is UTF-8?
--- @return boolean
function terminal.utf8()
  for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
    local value = os.getenv(name)
    if value and value ~= "" then
      return value:lower():find("utf%-?8") ~= nil
    end
  end
  return false
end

--- Characters in a line, as far as the environment tells.
--- @return integer
function terminal.columns()
  return math.tointeger(tonumber(os.getenv "COLUMNS")) or 80
end

return terminal
