-- lua/mytensor/check.lua: argument checks of the Lua part, with messages in Lua's form.

local mt = require "mytensor"

local check = {}

-- Every Lua file of the library has a chunk name that starts like this one's.
local own = debug and debug.getinfo(1, "S").source:match("^(.*)check") or nil

--- The level of the first function outside the library, counted for `error` as called
--- by the function that calls this one: an error should point at the user's line.
local function user_level()
  if not own then return 2 end
  local level = 3
  while true do
    local info = debug.getinfo(level, "S")
    if not info then return 2 end
    if info.what ~= "C" and info.source:sub(1, #own) ~= own then return level - 1 end
    level = level + 1
  end
end

--- Raise an error whose position is the user's line.
--- @param format string for string.format, with what follows
function check.raise(format, ...)
  error(format:format(...), user_level())
end

--- Raise `bad argument #n to 'name' (...)`.
--- @param n integer which argument
--- @param name string of the function
--- @param format string for string.format, with what follows
function check.fail(n, name, format, ...)
  error(("bad argument #%d to '%s' (%s)"):format(n, name, format:format(...)),
        user_level())
end

--- What a value is called in a message.
--- @return string
function check.type_name(v)
  local meta = getmetatable(v)
  local name = type(meta) == "table" and rawget(meta, "__name") or meta
  return type(name) == "string" and name or math.type(v) or type(v)
end

--- Raise unless `v` has the type: a name that `type` returns, "integer", or "tensor".
function check.type(n, name, v, expected)
  local ok
  if expected == "tensor" then
    ok = mt.is_tensor(v)
    if ok and not pcall(v.dim, v) then check.fail(n, name, "the tensor was freed") end
  elseif expected == "integer" then
    ok = math.type(v) == "integer"
  else
    ok = type(v) == expected
  end
  if not ok then
    check.fail(n, name, "%s expected, got %s", expected, check.type_name(v))
  end
  return v
end

--- Raise unless `v` can be called: a function, or a value with __call.
function check.callable(n, name, v)
  if type(v) == "function" then return v end
  local meta = (debug and debug.getmetatable or getmetatable)(v)
  if type(meta) == "table" and meta.__call then return v end
  check.fail(n, name, "function expected, got %s", check.type_name(v))
end

--- Raise unless `v` is an integer (or a float that holds one) of at least `least`.
--- @return integer
function check.integer(n, name, v, what, least)
  local i = type(v) == "number" and math.tointeger(v)
  if not i then
    check.fail(n, name, "%s must be an integer, got %s", what,
               type(v) == "number" and tostring(v) or check.type_name(v))
  end
  if least and i < least then
    check.fail(n, name, "%s must be at least %d, got %d", what, least, i)
  end
  return i
end

--- Raise unless `dim` is one of the tensor's dims, from 1, or from the end if negative.
--- @return integer from 1
function check.dim(n, name, tensor, dim)
  dim = check.integer(n, name, dim, "dim")
  local ndim = tensor:dim()
  local d = dim < 0 and dim + ndim + 1 or dim
  if d < 1 or d > ndim then
    check.fail(n, name, "dim %d is out of range for shape %s", dim,
               check.shape_text(tensor:shape()))
  end
  return d
end

--- The same of tensors without dims, which have dim 1 and -1, as in reductions.
--- @return integer from 1
function check.any_dim(n, name, tensor, dim)
  if tensor:dim() == 0 and (dim == 1 or dim == -1) then return 1 end
  return check.dim(n, name, tensor, dim)
end

-- Pass on what a call of a function of the library gave, under the name of the function
-- that the user called.
local function renamed(n, shift, name, ok, ...)
  if ok then return ... end
  local err = ...
  if type(err) ~= "string" then error(err, 0) end
  local at, text = err:match "bad argument #(%d+) to '[%w_]+' %((.*)%)$"
  text = text or err:match "calling '[%w_]+' on bad self %((.*)%)$"
  if text then
    check.fail(shift and at and tonumber(at) + shift or n, name, "%s", text)
  end
  text = err:match "^[%l_]+: (.*)$" or err:match ":%d+: [%l_]+: (.*)$"
  if text then check.raise("%s: %s", name, text) end
  error(err, 0)
end

--- Call fn; an error that names it, or one of its arguments, becomes one of argument n
--- of the function that the user called.
--- @return any ... what fn gives
function check.call(n, name, fn, ...)
  return renamed(n, nil, name, pcall(fn, ...))
end

--- The same where the user's function has its arguments behind `shift` others; n: which
--- argument an error is about that names none.
--- @return any ... what fn gives
function check.call_behind(shift, n, name, fn, ...)
  return renamed(n, shift, name, pcall(fn, ...))
end

--- Raise unless `v` is a number in [low, high], or [low, high) with `open`. NaN fails.
--- @return number
function check.number(n, name, v, what, low, high, open)
  if type(v) ~= "number" then
    check.fail(n, name, "%s must be a number, got %s", what, check.type_name(v))
  end
  low, high = low or -math.huge, high or math.huge
  local inside = v >= low and (open and v < high or not open and v <= high)
  if not inside then
    local range
    if low == -math.huge and high == math.huge then
      range = "a number"
    elseif high == math.huge then
      range = ("at least %g"):format(low)
    else
      range = ("in [%g, %g%s"):format(low, high, open and ")" or "]")
    end
    check.fail(n, name, "%s must be %s, got %s", what, range, tostring(v))
  end
  return v
end

--- Raise unless `options` is nil or a table that has no other keys than those of
--- `known`, and booleans where those are the defaults.
--- @param known table<string, any> the defaults, `check.none` where there is none
--- @return table a new one: the defaults overlaid with the options
function check.options(n, name, options, known)
  local result = {}
  for key, value in pairs(known) do
    if value ~= check.none then result[key] = value end
  end
  if options == nil then return result end
  if type(options) ~= "table" or check.type_name(options) ~= "table" then
    check.fail(n, name, "table of options expected, got %s", check.type_name(options))
  end
  for key, value in pairs(options) do
    if known[key] == nil then
      local names = {}
      for k in pairs(known) do names[#names + 1] = k end
      table.sort(names)
      check.fail(n, name, "unknown option '%s' (known: %s)", tostring(key),
                 table.concat(names, ", "))
    end
    if type(known[key]) == "boolean" and type(value) ~= "boolean" then
      check.fail(n, name, "option '%s' must be true or false, got %s", key,
                 check.type_name(value))
    end
    result[key] = value
  end
  return result
end

-- The arguments behind the first by name, in a table that is the last one: by position.
local function placed(name, names, n, ...)
  local options = select(n, ...)
  if n < 2 or type(options) ~= "table" or getmetatable(options) ~= nil
      or type(next(options)) ~= "string" then
    return ...
  end
  local args = table.pack(...)
  args[n] = nil
  for key, value in pairs(options) do
    local at
    for i = 2, #names do at = names[i] == key and i or at end
    if not at then
      check.fail(n, name, "unknown option '%s'; '%s' takes %s", tostring(key), name,
                 table.concat(names, ", ", 2))
    elseif args[at] ~= nil then
      check.fail(n, name, "option '%s' is given by position, too", key)
    end
    args[at] = value
  end
  return table.unpack(args, 1, #names)
end

--- Functions of a table that take their arguments by name, too, as operators do:
--- `x:matrix_norm{p = 2}`.
--- @param functions table<string, function> they are replaced
--- @param names table<string, string[]> by function: its arguments
--- @return table functions
function check.take_names(functions, names)
  for name, list in pairs(names) do
    local fn = functions[name]
    functions[name] = function(...)
      return fn(placed(name, list, select("#", ...), ...))
    end
  end
  return functions
end

local float_dtypes = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

--- Can the tensor have a gradient?
--- @param tensor mytensor.Tensor
--- @return boolean
function check.is_float(tensor)
  return float_dtypes[tensor:dtype()] == true
end

local max_dims = 12 -- MT_MAX_DIMS of the runtime

--- What is wrong with a shape that a file gives: the runtime could not make it.
--- @param shape integer[]
--- @param width integer bytes of an element
--- @return string? nil if nothing
function check.shape_problem(shape, width)
  if #shape > max_dims then
    return ("%d dims, at most %d are possible"):format(#shape, max_dims)
  end
  local bytes = width + 0.0 -- a float: the product of sizes doesn't wrap
  for _, size in ipairs(shape) do bytes = bytes * math.max(size, 1) end
  if bytes >= 2 ^ 62 then
    return ("shape %s is too large"):format(check.shape_text(shape))
  end
end

--- The value that stands for "known, but without a default" in `check.options`.
check.none = {}

--- "[2, 3]", as tensors print their shapes.
--- @param shape integer[]
--- @return string
function check.shape_text(shape)
  return "[" .. table.concat(shape, ", ") .. "]"
end

return check
