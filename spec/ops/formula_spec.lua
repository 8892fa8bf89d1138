-- spec/ops/formula_spec.lua: elementwise rows against their own formulas, evaluated in
-- Lua: value and gradients, in float64; integer rows in int64.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"
local words = require "spec.support.words"

local ELEMENTWISE = { unary = true, predicate = true, binary = true, compare = true,
  ternary = true }
local NAMES = { { "x" }, { "a", "b" }, { "a", "b", "c" } }
-- erf's series, sinh and hypot here lose some digits of their own
local TOLERANCE = { atol = 1e-11, rtol = 1e-10 }

local function compile(formula, row)
  local env = setmetatable({}, { __index = function(_, name)
    local word = words[name]
    if word == nil then error(row.name .. ": no word named " .. name, 0) end
    return word
  end })
  return assert(load("return " .. formula, "=" .. row.name, "t", env)), env
end

-- Attribute values that differ from the defaults are as good as these.
local function attributes(row)
  local values = {}
  for _, attr in ipairs(row.attrs) do values[attr.name] = attr.default end
  if row.name == "clamp" then values = { lo = -1.25, hi = 1.5 } end
  if row.name == "polygamma" then values = { order = 2 } end
  return values
end

-- Values where every op of the row's domain has something to say.
local POINTS = { -2.75, -1.5, -0.875, -0.25, 0.125, 0.5, 0.75, 1.25, 2.5, 3.75 }
local SPECIAL = { 0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 30.0, -30.0, math.huge, -math.huge,
  0 / 0 }

local function grid(n, values)
  local lists = {}
  for i = 1, n do lists[i] = {} end
  local total = math.tointeger((#values) ^ n)
  for k = 0, total - 1 do
    local rest = k
    for i = 1, n do
      lists[i][#lists[i] + 1] = values[rest % #values + 1]
      rest = rest // #values
    end
  end
  return lists
end

local function evaluate(row, formula, lists, extra)
  local f, env = compile(formula, row)
  local names = NAMES[#lists]
  for name, value in pairs(attributes(row)) do env[name] = value end
  local out = {}
  for k = 1, #lists[1] do
    for i, name in ipairs(names) do env[name] = lists[i][k] end
    for name, list in pairs(extra or {}) do env[name] = list[k] end
    out[k] = f()
    if out[k] == true then out[k] = 1 elseif out[k] == false then out[k] = 0 end
  end
  return out
end

local function call(row, xs)
  local attrs = attributes(row)
  local args = { table.unpack(xs) }
  if next(attrs) then args[#args + 1] = attrs end
  return mt[row.name](table.unpack(args))
end

local function inputs(lists, dtype)
  local xs = {}
  for i, list in ipairs(lists) do xs[i] = mt.tensor(list, { dtype = dtype }) end
  return xs
end

local function expect(t, list, what)
  local different = tensors.difference(t,
    { shape = { #list }, data = list, dtype = t:dtype() }, { tolerance = TOLERANCE })
  if different then error(what .. ": " .. different, 0) end
end

for _, row in ipairs(mt.ops()) do
  if ELEMENTWISE[row.kind] and not row.internal then
    describe(row.name, function()
      if row.dtypes == "int" then
        it("computes its formula on int64", function()
          local lists = grid(#row.inputs, { -7, -1, 0, 1, 2, 5, 62, 63, 64, 1 << 40 })
          expect(call(row, inputs(lists, "int64")), evaluate(row, row.value, lists),
            row.value)
        end)
        return
      end

      it("computes its formula", function()
        for _, points in ipairs { POINTS, SPECIAL } do
          local lists = grid(#row.inputs, points)
          expect(call(row, inputs(lists, "float64")), evaluate(row, row.value, lists),
            row.value)
        end
      end)

      if row.differentiable then
        it("has the gradients of its formulas", function()
          local lists = grid(#row.inputs, POINTS)
          local xs = inputs(lists, "float64")
          for _, x in ipairs(xs) do x:requires_grad_() end
          local y = call(row, xs)
          local g = {}
          for k = 1, #lists[1] do g[k] = (k % 7 - 3) / 4 + 1 / 8 end
          local dy = mt.tensor(g, { dtype = "float64" })
          local dxs = mt.grad({ y }, xs, { grad_outputs = { dy }, allow_unused = true })
          local extra = { g = g, y = tensors.flat(y) }
          for i, formula in ipairs(row.gradients) do
            if formula then
              local dx = dxs[i] or mt.zeros_like(xs[i])
              expect(dx, evaluate(row, formula, lists, extra), "gradient: " .. formula)
            end
          end
        end)
      end
    end)
  end
end
