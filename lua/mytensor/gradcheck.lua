-- lua/mytensor/gradcheck.lua: gradients compared with central differences, in float64.

local mt = require "mytensor"
local check = require "mytensor.check"

local gradcheck = {}

local defaults = {
  eps = 1e-6, atol = 1e-5, rtol = 1e-3, raise = true, max_full = 2500, seed = 1,
}

--- What ends a check: a message, told apart from errors by its type.
local Failure = {}
Failure.__index = Failure

local function fail(format, ...)
  error(setmetatable({ message = format:format(...) }, Failure), 0)
end

-- The elements as a flat list of numbers.
local function numbers(tensor)
  return tensor:detach():reshape(-1):totable()
end

-- A float64 leaf with the tensor's values.
local function leaf(tensor, requires_grad)
  local copy = tensor:detach():to("float64"):clone()
  return requires_grad and copy:requires_grad_() or copy
end

-- Which of the inputs are checked: the float tensors that require grad; all float
-- tensors if none does.
local function choose(name, inputs)
  local chosen, floats = {}, {}
  for i = 1, inputs.n do
    local x = inputs[i]
    if mt.is_tensor(x) and check.is_float(x) then
      floats[#floats + 1] = i
      if x.requires_grad then chosen[#chosen + 1] = i end
    end
  end
  if not chosen[1] then chosen = floats end
  if not chosen[1] then check.fail(2, name, "no float tensor among the inputs") end
  return chosen
end

-- The float outputs of fn as a list; `which`: their positions among all results.
local function evaluate(fn, inputs)
  local results = table.pack(fn(table.unpack(inputs, 1, inputs.n)))
  local outputs, which = {}, {}
  for i = 1, results.n do
    if mt.is_tensor(results[i]) and check.is_float(results[i]) then
      outputs[#outputs + 1], which[#which + 1] = results[i], i
    end
  end
  return outputs, which
end

-- The outputs' elements at x + delta in element j of input i.
local function evaluate_at(fn, inputs, i, values, j, delta)
  local old = values[j]
  values[j] = old + delta
  local moved = table.move(inputs, 1, inputs.n, 1, { n = inputs.n })
  moved[i] = mt.tensor(values, { dtype = "float64", device = inputs[i]:device() })
    :reshape(inputs[i]:shape())
  values[j] = old
  local rows = {}
  for k, output in ipairs((evaluate(fn, moved))) do rows[k] = numbers(output) end
  return rows
end

-- numeric[k][j][e]: the derivative of element e of output k by element j of input i.
local function numeric_jacobian(fn, inputs, i, eps)
  local values, jacobian = numbers(inputs[i]), {}
  for j = 1, #values do
    local above = evaluate_at(fn, inputs, i, values, j, eps)
    local below = evaluate_at(fn, inputs, i, values, j, -eps)
    for k = 1, #above do
      jacobian[k] = jacobian[k] or {}
      jacobian[k][j] = {}
      for e = 1, #above[k] do
        jacobian[k][j][e] = (above[k][e] - below[k][e]) / (2 * eps)
      end
    end
  end
  return jacobian
end

-- The gradients of <cotangent, output> to the chosen inputs, as lists of numbers.
local function analytic(output, inputs, chosen, cotangent)
  local targets = {}
  for t, i in ipairs(chosen) do targets[t] = inputs[i] end
  local grads = mt.grad({ output }, targets, {
    grad_outputs = { cotangent }, retain_graph = true, allow_unused = true,
  })
  local rows = {}
  for t, x in ipairs(targets) do
    local grad = grads[t]
    if grad == nil then
      rows[t] = numbers(mt.zeros_like(x))
    else
      local here, there = check.shape_text(x:shape()), check.shape_text(grad:shape())
      if here ~= there or grad:dtype() ~= x:dtype() then
        fail("the gradient of input %d is %s %s, the input %s %s", chosen[t], there,
             grad:dtype(), here, x:dtype())
      end
      rows[t] = numbers(grad)
    end
  end
  return rows
end

local function close(a, n, options)
  -- Written so that NaN is not close to anything; infinities only to themselves.
  return a == n or math.abs(a - n) <= options.atol + options.rtol * math.abs(n)
end

-- Every entry of the Jacobian of output k.
local function check_full(output, k, numeric, inputs, chosen, options, report)
  local size = output:numel()
  for e = 1, size do
    local unit = mt.zeros({ size }, { dtype = "float64", device = output:device() })
    unit[e] = 1
    local rows = analytic(output, inputs, chosen, unit:reshape(output:shape()))
    for t, i in ipairs(chosen) do
      for j = 1, #rows[t] do
        report(close(rows[t][j], numeric[i][k][j][e], options),
               "output element %d by element %d of input %d: %.10g by autograd, %.10g"
               .. " by differences", e, j, i, rows[t][j], numeric[i][k][j][e])
      end
    end
  end
end

-- The Jacobian of output k multiplied from the left by one random vector.
local function check_product(output, k, numeric, inputs, chosen, options, report)
  local size = output:numel()
  local cotangent = mt.empty({ size }, { dtype = "float64", device = output:device() })
  cotangent:uniform_(0.5, 1.5)
  local weights = numbers(cotangent)
  local rows = analytic(output, inputs, chosen, cotangent:reshape(output:shape()))
  for t, i in ipairs(chosen) do
    for j = 1, #rows[t] do
      local sum = 0
      for e = 1, size do sum = sum + weights[e] * numeric[i][k][j][e] end
      report(close(rows[t][j], sum, options),
             "weighted sum of the output by element %d of input %d: %.10g by autograd,"
             .. " %.10g by differences", j, i, rows[t][j], sum)
    end
  end
end

-- The outputs at the inputs; fails if fn gives other ones the second time.
local function evaluate_twice(fn, inputs)
  local outputs, which = evaluate(fn, inputs)
  local again = evaluate(fn, inputs)
  if not outputs[1] then fail("the function gave no float tensor") end
  for k, output in ipairs(outputs) do
    local first, second = numbers(output), again[k] and numbers(again[k]) or {}
    local same = #first == #second
    for e = 1, #first do
      same = same and (first[e] == second[e] or first[e] ~= first[e])
    end
    if not same then fail("output %d differs when computed twice", which[k]) end
  end
  return outputs, which
end

-- Count the entries that differ, and keep the text of the first.
local function reporter()
  local tally = { total = 0, wrong = 0 }
  return tally, function(ok, format, ...)
    tally.total = tally.total + 1
    if ok then return end
    tally.wrong = tally.wrong + 1
    tally.text = tally.text or format:format(...)
  end
end

local function run(fn, inputs, chosen, options)
  local outputs, which = evaluate_twice(fn, inputs)
  local numeric, inputs_size, differentiable = {}, 0, false
  for _, i in ipairs(chosen) do
    numeric[i] = numeric_jacobian(fn, inputs, i, options.eps)
    inputs_size = inputs_size + inputs[i]:numel()
  end
  for k, output in ipairs(outputs) do
    local empty = output:numel() == 0 or inputs_size == 0
    differentiable = differentiable or output.requires_grad or empty
    if output.requires_grad and not empty then
      local tally, report = reporter()
      local full = output:numel() * inputs_size <= options.max_full
      local compare = full and check_full or check_product
      compare(output, k, numeric, inputs, chosen, options, report)
      if tally.wrong > 0 then
        fail("output %d, %s (%d of %d entries differ)", which[k], tally.text,
             tally.wrong, tally.total)
      end
    end
  end
  if not differentiable then fail("no output depends on the inputs by a gradient") end
end

-- Run `body`; a Failure raises or returns by options.raise, other errors always raise.
local function guarded(name, options, body)
  local state = mt.get_rng_state()
  mt.manual_seed(options.seed)
  local fine, err = pcall(body)
  mt.set_rng_state(state)
  if fine then return true end
  if getmetatable(err) ~= Failure then error(err, 0) end
  local message = ("%s: %s"):format(name, err.message)
  if options.raise then check.raise("%s", message) end
  return false, message
end

local function prepare(name, fn, inputs, options)
  check.callable(1, name, fn)
  if mt.is_tensor(inputs) then inputs = { inputs } end
  check.type(2, name, inputs, "table")
  options = check.options(3, name, options, defaults)
  local count = inputs.n or #inputs
  local packed = table.move(inputs, 1, count, 1, { n = count })
  local chosen = choose(name, packed)
  local wanted = {}
  for _, i in ipairs(chosen) do wanted[i] = true end
  for i = 1, count do
    local x = packed[i]
    if mt.is_tensor(x) and check.is_float(x) then packed[i] = leaf(x, wanted[i]) end
  end
  return packed, chosen, options
end

--- Compare the gradients of `fn` with central differences.
---
--- `fn` gets float64 copies of the float tensors in `inputs`, the rest as it is, and
--- gives one or more tensors; those that aren't float are left out. Checked are the
--- inputs that require grad, or all float ones if none does. Every entry of the
--- Jacobian is compared when there are at most `max_full`; beyond that, for every input
--- element, the sum over the output weighted at random. `fn` must give the same when
--- called again.
--- @param fn function or what can be called: a module, an mt.Function
--- @param inputs mytensor.Tensor|table a list; may hold what isn't a tensor
--- @param options? table eps = 1e-6 (the step), atol = 1e-5, rtol = 1e-3,
---   raise = true (false: return false and the message), max_full = 2500, seed = 1
--- @return boolean, string?
function gradcheck.gradcheck(fn, inputs, options)
  local packed, chosen
  packed, chosen, options = prepare("gradcheck", fn, inputs, options)
  return guarded("gradcheck", options, function() run(fn, packed, chosen, options) end)
end

-- A function of the inputs and one cotangent for each output: its gradients to the
-- inputs.
local function gradient_function(fn, count, chosen)
  return function(...)
    local all = table.pack(...)
    local inputs = table.move(all, 1, count, 1, { n = count })
    local targets = {}
    for t, i in ipairs(chosen) do
      -- The copies for the differences don't require grad; the gradient needs it.
      if not inputs[i].requires_grad then
        inputs[i] = inputs[i]:detach():requires_grad_()
      end
      targets[t] = inputs[i]
    end
    local outputs = evaluate(fn, inputs)
    local recorded, cotangents = {}, {}
    for k, output in ipairs(outputs) do
      if output.requires_grad then
        recorded[#recorded + 1] = output
        cotangents[#cotangents + 1] = all[count + k]
      end
    end
    if not recorded[1] then fail("no output depends on the inputs by a gradient") end
    local grads = mt.grad(recorded, targets, {
      grad_outputs = cotangents, create_graph = true, allow_unused = true,
    })
    local results = {}
    for t = 1, #targets do
      results[t] = grads[t] or mt.zeros_like(targets[t])
    end
    return table.unpack(results, 1, #targets)
  end
end

--- Compare the gradients of the gradients of `fn` with central differences of its
--- gradients: to the inputs, and to the gradients that come from above.
--- @param fn function as for `gradcheck`
--- @param inputs mytensor.Tensor|table
--- @param options? table as for `gradcheck`
--- @return boolean, string?
function gradcheck.gradgradcheck(fn, inputs, options)
  local packed, chosen
  packed, chosen, options = prepare("gradgradcheck", fn, inputs, options)
  return guarded("gradgradcheck", options, function()
    local count, selected = packed.n, table.move(chosen, 1, #chosen, 1, {})
    local all = table.move(packed, 1, count, 1, {})
    for k, output in ipairs((evaluate(fn, packed))) do
      all[count + k] = mt.empty(output:shape(), { dtype = "float64",
                                                  device = output:device() })
        :uniform_(0.5, 1.5):requires_grad_()
      selected[#selected + 1] = count + k
      all.n = count + k
    end
    if not all.n then fail("the function gave no float tensor") end
    run(gradient_function(fn, count, chosen), all, selected, options)
  end)
end

return gradcheck
