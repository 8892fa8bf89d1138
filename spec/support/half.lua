-- spec/support/half.lua: float16 and bfloat16, which are stored in 16 bits and computed
-- in float32: they must give what float64 gives for the same, rounded, inputs.

local mt = require "mytensor"
local harness = require "spec.support.harness"
local tensors = require "spec.support.tensors"
local tolerances = require "spec.support.tolerances"

local half = {}

local function each(args, fn)
  local list = {}
  for i, x in ipairs(args) do
    if type(x) == "table" then
      list[i] = each(x, fn)
    elseif mt.is_tensor(x) and tensors.is_float(x:dtype()) then
      list[i] = fn(x)
    else
      list[i] = x
    end
  end
  return list
end

local function results_of(name, args, case)
  local ok, results = pcall(harness.call, name, args, case.attrs)
  if not ok then error(("%s: %s"):format(case.name, results), 0) end
  if type(results[1]) == "table" then results = results[1] end
  return results
end

--- Values of every case of float inputs. Returns how many ran.
function half.forward(name, cases, dtype, device)
  local count = 0
  local tolerance = tolerances.of("half", dtype)
  for _, case in ipairs(cases) do
    if case.float then
      local args = harness.build(case, "float64", device)
      local given = each(args, function(x) return x:to(dtype) end)
      local exact = each(given, function(x) return x:to "float64" end)
      local got, want = results_of(name, given, case), results_of(name, exact, case)
      for i = 1, #want do
        local float = tensors.is_float(want[i]:dtype())
        local expected = float and want[i]:to(dtype) or want[i]
        local different = tensors.differ(got[i], expected, tolerance)
        if different then
          error(("%s: output %d: %s"):format(case.name, i, different), 0)
        end
      end
      count = count + 1
    end
  end
  return count
end

--- Gradients of sums, which come back in the half type. Cases where something is open,
--- infinite or NaN are left to the other dtypes. Returns how many ran.
function half.backward(name, cases, dtype, device)
  local count = 0
  local tolerance = tolerances.of("half", dtype)
  for _, case in ipairs(cases) do
    if case.check then
      local args = harness.build(case, "float64", device)
      local function gradients(list)
        local inputs = {}
        local leaves = each(list, function(x)
          local leaf = x:detach():clone():requires_grad_()
          inputs[#inputs + 1] = leaf
          return leaf
        end)
        local results, outputs = results_of(name, leaves, case), {}
        for _, y in ipairs(results) do
          if y.requires_grad then outputs[#outputs + 1] = y:sum() end
        end
        return mt.grad(outputs, inputs, { allow_unused = true }), #inputs
      end
      local given = each(args, function(x) return x:to(dtype) end)
      local got, n = gradients(given)
      local want = gradients(each(given, function(x) return x:to "float64" end))
      for i = 1, n do
        if want[i] then
          local different = tensors.differ(got[i], want[i]:to(dtype), tolerance)
          if different then
            error(("%s: gradient %d: %s"):format(case.name, i, different), 0)
          end
        end
      end
      count = count + 1
    end
  end
  return count
end

return half
