-- lua/mytensor/nn/pair.lua: sizes over height and width, given as a number or {h, w}.

local check = require "mytensor.check"

local pair = {}

--- @param n integer which argument
--- @param name string of the function
--- @param v any the value given
--- @param what string what it is called in messages
--- @param least integer the smallest legal value
--- @return integer[] {h, w}
function pair.check(n, name, v, what, least)
  if type(v) ~= "table" then
    local i = check.integer(n, name, v, what, least)
    return { i, i }
  end
  if #v ~= 2 then
    check.fail(n, name, "%s must be an integer or {height, width}, got %d values", what,
               #v)
  end
  return {
    check.integer(n, name, v[1], what .. " (height)", least),
    check.integer(n, name, v[2], what .. " (width)", least),
  }
end

--- @param p integer[]
--- @return string "3" or "{3, 5}"
function pair.text(p)
  if p[1] == p[2] then return ("%d"):format(p[1]) end
  return ("{%d, %d}"):format(p[1], p[2])
end

--- ", stride = 2" unless the pair is the default.
--- @return string
function pair.option_text(name, p, default)
  if p[1] == default[1] and p[2] == default[2] then return "" end
  return (", %s = %s"):format(name, pair.text(p))
end

return pair
