-- lua/mytensor/fuse.lua: operators made of a formula, or of a Lua function that is run
-- once with values that note what is done to them.

local mt = require "mytensor"
local check = require "mytensor.check"

-- What tensors call their operators.
local SIGNS = { __add = "+", __sub = "-", __mul = "*", __div = "/", __idiv = "//",
  __mod = "%", __pow = "^" }
local ALIASES = { cmul = "mul", cdiv = "div" }
local REDUCTIONS = { "sum", "mean", "amax", "amin", "var", "std", "logsumexp",
  "softmax", "log_softmax" }
local ELEMENTWISE = { unary = true, predicate = true, binary = true, compare = true,
  ternary = true }

local rows -- name -> row of mt.ops(), of those that a formula may name

local function known()
  if rows then return rows end
  rows = {}
  local others = { where = true }
  for _, name in ipairs(REDUCTIONS) do others[name] = true end
  for _, row in ipairs(mt.ops()) do
    local elementwise = ELEMENTWISE[row.kind] and row.dtypes ~= "int"
    if elementwise or others[row.name] then rows[row.name] = row end
  end
  return rows
end

-- ---- values while a function is traced ----------------------------------------------
local Value = { __name = "fused value" }
local tapes = setmetatable({}, { __mode = "k" }) -- value -> its tape
local names = setmetatable({}, { __mode = "k" }) -- value -> its name

local function fail(format, ...)
  check.raise("fuse: %s", format:format(...))
end

local function new_value(tape, name)
  local value = setmetatable({}, Value)
  tapes[value], names[value] = tape, name
  return value
end

local function number_text(x)
  if math.type(x) == "integer" then return ("%d"):format(x) end
  if x == math.huge then return "inf" elseif x == -math.huge then return "-inf" end
  return ("%.17g"):format(x)
end

local function operand(tape, x)
  if type(x) == "number" then
    if x ~= x then fail("a NaN among the arguments") end
    return number_text(x)
  elseif type(x) == "boolean" then
    return tostring(x)
  elseif tapes[x] == tape then
    return names[x]
  elseif tapes[x] then
    fail("a value of another function that is traced")
  elseif mt.is_tensor(x) then
    fail("a tensor that is no argument: give it to the function as one")
  end
  fail("a %s among the arguments of an operation", check.type_name(x))
end

local function tape_of(...)
  for i = 1, select("#", ...) do
    local tape = tapes[(select(i, ...))]
    if tape then
      if tape.ended then fail("a value outlived the traced function") end
      return tape
    end
  end
end

local function note(tape, expression)
  tape.count = tape.count + 1
  local name = tape.prefix .. tape.count
  tape[#tape + 1] = name .. " = " .. expression
  return new_value(tape, name)
end

-- PyTorch's and NumPy's names of arguments, as operators take them.
local SYNONYMS = { axis = "dim", keepdims = "keepdim", min = "lo", max = "hi",
  eps = "epsilon" }

-- Arguments by name, in a table behind those by position.
local function append_options(row, args, options)
  local left = {}
  for key, value in pairs(options) do left[SYNONYMS[key] or key] = value end
  local last = #args
  for i, param in ipairs(row.params) do
    if left[param.name] ~= nil then
      if i <= #args then
        fail("%s: '%s' is given by position, too", row.name, param.name)
      end
      for k = #args + 1, i - 1 do args[k] = row.params[k].default or false end
      args[i] = left[param.name]
      left[param.name] = nil
      last = i
    end
  end
  if next(left) ~= nil then
    fail("%s: unknown option '%s'", row.name, tostring((next(left))))
  end
  return last
end

-- What is given behind a and b, by position or by this name.
local function third(name, value)
  if type(value) == "table" and not tapes[value] then return value[name] or value end
  return value
end

local record

local function bounded(x, beyond, bound)
  if bound == nil then return x end
  local takes = record(beyond, x, bound)
  if type(bound) ~= "number" then
    takes = record("logical_or", takes, record("ne", bound, bound))
  end
  return record("where", takes, bound, x)
end

-- The calls of runtime/bind/forms.c: another row, with its arguments; a value alone is
-- the result.
local FORMS = {}

function FORMS.add(a, b, alpha)
  alpha = third("alpha", alpha)
  if type(alpha) ~= "number" then return "add", a, b, alpha end
  return "addcmul", a, b, 1, alpha
end

function FORMS.sub(a, b, alpha)
  alpha = third("alpha", alpha)
  if type(alpha) ~= "number" then return "sub", a, b, alpha end
  return "addcmul", a, b, 1, -alpha
end

function FORMS.div(a, b, mode)
  mode = third("rounding_mode", mode)
  if mode == "floor" then return "floordiv", a, b end
  if mode == "trunc" then return "trunc", record("div", a, b) end
  return "div", a, b, mode
end

function FORMS.max(a, b, ...) return tapes[b] and "maximum" or "max", a, b, ... end

function FORMS.min(a, b, ...) return tapes[b] and "minimum" or "min", a, b, ... end

function FORMS.clamp(x, lo, hi, ...)
  local low, high = lo, hi
  if type(lo) == "table" and not tapes[lo] then
    low, high = lo.lo or lo.min, lo.hi or lo.max
  end
  local is_value = type(low) == "table" and tapes[low]
    or type(high) == "table" and tapes[high]
  if not is_value then return "clamp", x, lo, hi, ... end
  return bounded(bounded(x, "lt", low), "gt", high)
end

local function record_row(name, ...)
  local row = known()[name]
  if not row then
    fail("'%s' is neither elementwise nor a reduction over the last dim",
      tostring(name))
  end
  local tape = tape_of(...)
  local args, n = { ... }, select("#", ...)
  while n > 0 and args[n] == nil do n = n - 1 end
  if type(args[n]) == "table" and not tapes[args[n]] then
    local options = table.remove(args)
    n = append_options(row, args, options)
  end
  for i = 1, n do
    if args[i] == nil then fail("%s: argument %d is nil", name, i) end
    args[i] = operand(tape, args[i])
  end
  return note(tape, ("%s(%s)"):format(name, table.concat(args, ", ")))
end

local function finished(name, ...)
  if tapes[name] then return name end
  return record_row(name, ...)
end

function record(name, ...)
  name = ALIASES[name] or name
  local form = FORMS[name]
  if form then return finished(form(...)) end
  return record_row(name, ...)
end

function Value.__op(name, ...) return record(name, ...) end

-- ---- an operator called while a function is traced ----------------------------------

-- A formula's text with other names; numbers and what is called stay.
local function renamed(text, to)
  return (text:gsub("([%w_.]+)(%s*%(?)", function(word, behind)
    return not behind:find "%(" and to[word] and to[word] .. behind or nil
  end))
end

-- The parts between commas that stand in no parentheses.
local function split(text)
  local parts, depth, from = {}, 0, 1
  for at, sign in text:gmatch "()([(),])" do
    if sign == "," and depth == 0 then
      parts[#parts + 1] = text:sub(from, at - 1)
      from = at + 1
    elseif sign ~= "," then
      depth = depth + (sign == "(" and 1 or -1)
    end
  end
  parts[#parts + 1] = text:sub(from)
  return parts
end

-- Its formula becomes steps of the tape.
function Value.__fused(f, ...)
  local tape, args, to = tape_of(...), { ... }, {}
  for i, name in ipairs(split(f.inputs:gsub("%s", ""))) do
    local x = args[i]
    if type(x) == "boolean" then x = x and 1 or 0 end
    local text = operand(tape, x)
    to[name] = names[tapes[x] and x or note(tape, text)]
  end
  local last
  for statement in f.formula:gmatch "[^;]+" do
    local name, value = statement:match "^%s*([%a_][%w_]*)%s*=(.*)$"
    if name then
      to[name] = names[note(tape, renamed(value, to))]
    elseif statement:find "%S" then
      last = statement
    end
  end
  local results = split(last)
  for i, text in ipairs(results) do results[i] = note(tape, renamed(text, to)) end
  return table.unpack(results)
end

for event, sign in pairs(SIGNS) do
  Value[event] = function(a, b)
    local tape = tape_of(a, b)
    return note(tape, ("%s %s %s"):format(operand(tape, a), sign,
      operand(tape, b)))
  end
end

function Value.__unm(a)
  local tape = tape_of(a)
  return note(tape, "-" .. names[a])
end

function Value:__index(name)
  if type(name) ~= "string" then
    fail("a value cannot be indexed while the function is traced")
  end
  if name:find "[^_]_$" then
    fail("'%s' works in place, which a fused operator cannot", name)
  end
  if not known()[ALIASES[name] or name] and not FORMS[name] then
    fail("'%s' is neither elementwise nor a reduction over the last dim", name)
  end
  return function(...) return record(name, ...) end
end

local function control(what)
  return function()
    fail("%s: values are not known while the function is traced; a:gt(b) and "
      .. "mt.where(cond, a, b) choose by element", what)
  end
end

for event, what in pairs { __lt = "'<'", __le = "'<='", __eq = "'=='", __len = "'#'",
  __concat = "'..'", __newindex = "an assignment", __call = "a call" } do
  Value[event] = control(what)
end
for event, what in pairs { __band = "'&'", __bor = "'|'", __bxor = "'~'",
  __shl = "'<<'", __shr = "'>>'", __bnot = "'~'" } do
  Value[event] = function()
    fail("%s is of integers; a fused operator computes with floats", what)
  end
end

function Value:__tostring() return "fused value " .. names[self] end

-- ---- tracing ------------------------------------------------------------------------

-- The names that the function gives its parameters, if a formula can have them.
local function parameter_names(fn)
  local info = debug.getinfo(fn, "u")
  if info.isvararg then fail("the function must not take ...") end
  if info.nparams == 0 then fail("the function takes no arguments") end
  local list, taken = {}, {}
  for i = 1, info.nparams do
    local name = debug.getlocal(fn, i)
    if not name or not name:find "^[%a_][%w_]*$" or #name > 20 or taken[name] then
      name = "x" .. i
    end
    taken[name] = true
    list[i] = name
  end
  return list, taken
end

local function trace(fn)
  local list, taken = parameter_names(fn)
  local tape = { count = 0, prefix = "t" }
  for name in pairs(taken) do
    if name:find "^t%d+$" then tape.prefix = "step_" end
  end
  local args = {}
  for i, name in ipairs(list) do args[i] = new_value(tape, name) end
  local results = table.pack(fn(table.unpack(args)))
  tape.ended = true
  if results.n == 0 then fail("the function returned nothing") end
  for i = 1, results.n do
    if tapes[results[i]] ~= tape then
      fail("result %d of the function is a %s that does not depend on its arguments",
        i, mt.is_tensor(results[i]) and "tensor" or type(results[i]))
    end
    results[i] = names[results[i]]
  end
  tape[#tape + 1] = table.concat(results, ", ")
  return table.concat(list, ", "), table.concat(tape, "; ")
end

--- A new operator that runs a whole chain as one kernel, with one pass over memory: of
--- a formula, as in `mt.fuse("a, b", "silu(a) * b")`, or of a function, as in
--- `mt.fuse(function(a, b) return a:silu() * b end)`, which is called once, with
--- values that note what is done to them; fused operators that it calls become part of
--- this one. Formulas know numbers as Lua has them, `+ - * / // % ^`, the
--- elementwise ops of floats with their attributes (`clamp(x, -1, 1)`), `where`,
--- reductions over the last dim (`sum mean amax amin var std logsumexp softmax
--- log_softmax`, with arguments as elsewhere: `sum(x, -1, true)`), methods
--- (`x:exp():sum(-1)`), `pi` and `inf`, steps (`"e = exp(x); e / e:sum(-1, true)"`)
--- and several results (`"a + b, a - b"`). What is called takes tensors and numbers,
--- one tensor at least, broadcasts, works in floats (half types in float32, integers in
--- the default dtype; conditions count as 0 and 1) on the CPU and on GPUs, and has
--- gradients of any order, each again one kernel. At most 16 arguments and 16 results;
--- what is wrong in a formula is an error that says where.
--- `f.formula`, `f.inputs`, `f.name`; `f:source()` is the CUDA C++ made of it.
--- @param inputs string|function names of the arguments, or a function to be traced
--- @param formula? string of these
--- @param opts? { name: string } what errors and `tostring` call it
--- @return mytensor.Fused
local function fuse(inputs, formula, opts)
  if type(inputs) == "function" then
    if opts ~= nil then fail("too many arguments") end
    opts = formula
  elseif type(inputs) ~= "string" then
    fail("a function, or names of arguments expected, got %s", check.type_name(inputs))
  elseif type(formula) ~= "string" then
    fail("formula expected, got %s", check.type_name(formula))
  end
  local name = "fuse"
  if opts ~= nil then
    if type(opts) ~= "table" then
      fail("options expected, got %s", check.type_name(opts))
    end
    for key, value in pairs(opts) do
      if key ~= "name" then
        fail("unknown option '%s'; there is name", tostring(key))
      elseif type(value) ~= "string" then
        fail("name: string expected, got %s", check.type_name(value))
      end
      name = value
    end
  end
  if type(inputs) == "function" then inputs, formula = trace(inputs) end
  local made, problem = mt._fuse(name, inputs, formula)
  if not made then check.raise("%s", problem) end
  return made
end

return fuse
