-- spec/support/coverage.lua: how many ops have reference values, reference gradients,
-- and difference quotients of their gradients, in each dtype. The harness runs them on
-- every device.

local mt = require "mytensor"
local reference = require "spec.support.reference"

local coverage = {}

coverage.dtypes = { "float32", "float64", "float16", "bfloat16", "int64", "int32",
  "int16", "int8", "uint8", "bool" }
coverage.kinds = { "values", "gradients", "gradients of gradients" }

local IS_FLOAT = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

-- The dtypes of integers in which a case runs: that of its first tensor.
local function dtype_of(case)
  for _, input in ipairs(case.inputs) do
    if type(input) == "table" then
      return (input.list and input.list[1] or input).dtype
    end
  end
end

-- Of a gradient that is 0 everywhere the harness asks for no gradient.
local function varies(case)
  for _, entry in ipairs(case.gradients or {}) do
    for _, v in ipairs(entry.data) do if v ~= 0 then return true end end
  end
  return false
end

--- dtype -> kind -> is there a case? For one op's cases.
function coverage.of(cases)
  local found = {}
  for _, dtype in ipairs(coverage.dtypes) do found[dtype] = {} end
  for _, case in ipairs(cases) do
    for _, dtype in ipairs(coverage.dtypes) do
      local here = found[dtype]
      if IS_FLOAT[dtype] and case.float then
        local half = dtype:find "16" ~= nil
        here.values = true
        if case.gradients and (case.check or not half) then here.gradients = true end
        if case.check and varies(case) and dtype == "float64" then
          here["gradients of gradients"] = true
        end
      elseif not case.float and dtype_of(case) == dtype then
        here.values = true
      end
    end
  end
  return found
end

--- dtype -> kind -> how many of the ops, and how many ops there are.
function coverage.count()
  local counts, ops = {}, 0
  for _, dtype in ipairs(coverage.dtypes) do
    counts[dtype] = {}
    for _, kind in ipairs(coverage.kinds) do counts[dtype][kind] = 0 end
  end
  for _, row in ipairs(mt.ops()) do
    if not row.internal then ops = ops + 1 end
    if reference.exists(row.name) then
      for dtype, kinds in pairs(coverage.of(reference.load(row.name))) do
        for kind in pairs(kinds) do counts[dtype][kind] = counts[dtype][kind] + 1 end
      end
    end
  end
  return counts, ops
end

return coverage
