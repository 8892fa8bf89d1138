-- spec/support/expect.lua: what specs expect of calls that raise.

local expect = {}

-- The text of the error that fn(...) raises; wanted: what the spec looks for there.
local function raised(wanted, fn, ...)
  local ok, err = pcall(fn, ...)
  if ok then error(("no error was raised, expected %s"):format(wanted), 3) end
  return tostring(err)
end

local function check(found, wanted, err)
  if not found then
    error(("expected an error with %s, got %s"):format(wanted, err), 3)
  end
  return err
end

--- The text of the error that fn(...) raises.
function expect.message(fn, ...)
  local err = raised("one", fn, ...)
  return err
end

--- The same; this text must stand in it.
function expect.says(text, fn, ...)
  local err = raised(text, fn, ...)
  return check(err:find(text, 1, true), text, err)
end

--- The same; it must match this Lua pattern.
function expect.matches(pattern, fn, ...)
  local err = raised(pattern, fn, ...)
  return check(err:find(pattern), pattern, err)
end

-- The keys of t, strings, in order.
function expect.names(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

return expect
