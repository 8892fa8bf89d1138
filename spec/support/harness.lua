-- spec/support/harness.lua: runs reference cases of one op in every dtype, layout and
-- direction.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"
local tolerances = require "spec.support.tolerances"

local harness = {}

--- The row of an op in mt.ops().
local rows = {}
for _, row in ipairs(mt.ops()) do rows[row.name] = row end
harness.rows = rows

-- Functions of the module that are no ops of the table but have reference data: their
-- parameters in order.
harness.functions = {
  split = { { name = "x", type = "tensor" }, { name = "size" }, { name = "dim" } },
  chunk = { { name = "x", type = "tensor" }, { name = "count" }, { name = "dim" } },
}

local function is_input(param)
  return param.type == "tensor" or param.type == "tensors"
end

--- Call an op as Lua code does: everything by position, or (by_name) all but the first
--- argument in the trailing table. `_name`: that form of the op `name`.
function harness.call(name, inputs, attrs, by_name, as_method)
  local row = rows[name:gsub("_$", "")] or rows[name]
  local params = row and row.params or harness.functions[name]
  local args, named, k = { n = #params }, {}, 0
  for i, param in ipairs(params) do
    local value
    if is_input(param) then
      k = k + 1
      value = inputs[k] or nil
    else
      value = attrs[param.name]
    end
    if by_name and i > 1 then
      named[param.name] = value
    else
      args[i] = value
    end
  end
  if by_name and next(named) ~= nil then
    args[2], args.n = named, 2
  elseif by_name then
    args.n = 1
  else
    while args.n > 0 and args[args.n] == nil do args.n = args.n - 1 end
  end
  name = name:gsub("^_", "")
  local f = as_method and inputs[1][name] or mt[name]
  if not f then error("mt." .. name .. " does not exist", 0) end
  return table.pack(f(table.unpack(args, 1, args.n)))
end

-- dtype of a case's float inputs, or nil if it has none
local function dtype_of_case(case, dtype)
  return case.float and dtype or nil
end

--- Does the case run in this dtype? Cases of float inputs run in every float dtype,
--- cases of integer inputs in the dtype of their first input only.
function harness.takes(case, dtype)
  if case.float then return tensors.is_float(dtype) end
  for _, input in ipairs(case.inputs) do
    if type(input) == "table" then
      local entry = input.list and input.list[1] or input
      return entry.dtype == dtype
    end
  end
  return false
end

-- Build the inputs of a case in a layout.
-- Gives the op's arguments and the leaves: {leaf=, spread=} for each float input.
local function build(case, dtype, device, layout, grad)
  local leaves, used = {}, false
  local function one(entry)
    local x = tensors.build(entry, dtype, device)
    local float = entry.dtype == nil
    local leaf, view, spread = x, nil, nil
    if layout then
      local l, v, s = tensors.layouts[layout](x)
      if l then
        leaf, view, spread = l, v, s
        used = true
      end
    end
    if float then
      if grad then leaf:requires_grad_() end
      leaves[#leaves + 1] = { leaf = leaf, spread = spread, entry = entry }
    end
    return view and view(leaf) or leaf
  end
  local args = {}
  for i, input in ipairs(case.inputs) do
    if type(input) ~= "table" then
      args[i] = input
    elseif input.list then
      local list = {}
      for j, entry in ipairs(input.list) do list[j] = one(entry) end
      args[i] = list
    else
      args[i] = one(input)
    end
  end
  return args, leaves, used
end
harness.build = build

local function fail(case, layout, what, text)
  error(("%s, %s: %s: %s"):format(case.name, layout, what, text), 0)
end

local function outputs_of(name, results, case)
  -- split and chunk give a list
  if harness.functions[name] and type(results[1]) == "table" then
    results = results[1]
  end
  if #results ~= #case.outputs then
    error(("%s: %d results, not %d"):format(case.name, #results, #case.outputs), 0)
  end
  return results
end

local function check_values(name, case, outs, dtype, device, layout)
  local tolerance = tolerances.of(name, dtype)
  for i, entry in ipairs(case.outputs) do
    local different = tensors.difference(outs[i], entry,
      { dtype = dtype, tolerance = tolerance, exact = case.exact })
    if different then fail(case, layout, "output " .. i, different) end
    local at = outs[i]:device()
    if at ~= device and at ~= device .. ":0" then
      fail(case, layout, "output " .. i, "on " .. at)
    end
  end
end

-- Backward with the case's cotangents.
local function backward(case, outs, dtype, device)
  local ys, dys = {}, {}
  for i, entry in ipairs(case.cotangents) do
    if entry then
      ys[#ys + 1] = outs[i]
      dys[#dys + 1] = tensors.build(entry, dtype, device)
    end
  end
  return ys, dys
end

-- Gradients of the leaves.
local function gradients_of(case, outs, leaves, dtype, device)
  local ys, dys = backward(case, outs, dtype, device)
  local inputs = {}
  for i, l in ipairs(leaves) do inputs[i] = l.leaf end
  return mt.grad(ys, inputs, { grad_outputs = dys, allow_unused = true })
end

local function check_gradients(name, case, outs, leaves, dtype, device, layout)
  local found = gradients_of(case, outs, leaves, dtype, device)
  local tolerance = tolerances.of(name, dtype)
  for i, entry in ipairs(case.gradients) do
    local l, g = leaves[i], found[i]
    if not g then g = mt.zeros(l.leaf:shape(), { dtype = dtype, device = device }) end
    local what = "gradient of input " .. i
    if l.spread then
      -- open elements would take part in sums and frames: such inputs are contiguous
      -- only
      local expected = l.spread(tensors.build(entry, dtype, device))
      local different = tensors.differ(g, expected, tolerance)
      if different then fail(case, layout, what, different) end
    else
      local different = tensors.difference(g, entry,
        { dtype = dtype, tolerance = tolerance })
      if different then fail(case, layout, what, different) end
    end
  end
end

local function has_open(case)
  for _, list in ipairs { case.outputs, case.gradients or {} } do
    for _, entry in ipairs(list) do
      for _, v in ipairs(entry.data) do if v == false then return true end end
    end
  end
  return false
end

-- The broadcast layout changes the values: the contiguous run of the same values is
-- what it must give.
local function against_contiguous(name, case, dtype, device, gradients)
  local layout = "broadcast"
  local args, leaves, used = build(case, dtype, device, layout, gradients)
  if not used then return end
  local plain, plain_leaves = {}, {}
  local k = 0
  local function copy(x)
    if type(x) ~= "userdata" then return x end
    local c = x:detach():clone()
    if tensors.is_float(c:dtype()) and gradients then
      c:requires_grad_()
      k = k + 1
      plain_leaves[k] = { leaf = c }
    end
    return c
  end
  for i, x in ipairs(args) do
    if type(x) == "table" then
      plain[i] = {}
      for j, e in ipairs(x) do plain[i][j] = copy(e) end
    else
      plain[i] = copy(x)
    end
  end
  -- what a GPU finds wrong with values is said when it is waited for
  local function settled(fn, ...)
    local results = fn(...)
    if device ~= "cpu" then mt.cuda.synchronize() end
    return results
  end
  local function run(a)
    local ok, results = pcall(settled, harness.call, name, a, case.attrs)
    if not ok then return nil, results end
    return harness.functions[name] and type(results[1]) == "table" and results[1]
      or results
  end
  local want = run(plain)
  if not want then return end -- such values are an error, here and there
  local outs, err = run(args)
  if not outs then fail(case, layout, "call", err) end
  local tolerance = tolerances.of(name, dtype)
  local function same(a, b, what)
    local different = tensors.differ(a, b, tolerance)
    if different then fail(case, layout, what, different) end
  end
  for i = 1, #want do same(outs[i], want[i], "output " .. i) end
  if not gradients then return end
  local fine, expected = pcall(settled, gradients_of, case, want, plain_leaves, dtype,
                               device)
  local well, got = pcall(settled, gradients_of, case, outs, leaves, dtype, device)
  if not fine and not well then return end
  if not fine then fail(case, "contiguous", "gradients", expected) end
  if not well then fail(case, layout, "gradients", got) end
  for i, l in ipairs(leaves) do
    local e = expected[i]
    if got[i] or e then
      if not got[i] or not e then fail(case, layout, "gradient " .. i, "is missing") end
      same(got[i], l.spread and l.spread(e) or e, "gradient " .. i)
    end
  end
end

-- The size of the outputs may depend on the values: then broadcasting makes no sense.
local VALUE_DEPENDENT = {
  masked_select = true, nonzero = true, argwhere = true, unique = true,
  unique_consecutive = true, bincount = true,
}

-- view never copies: other layouts than the contiguous one are an error more often than
-- not.
local CONTIGUOUS_ONLY = { view = true, view_as = true, as_strided = true }

local function layouts_of(name)
  return CONTIGUOUS_ONLY[name] and { "contiguous" }
    or { "contiguous", "transposed", "sliced" }
end

--- Values of every case that takes this dtype, in every layout. Returns how many ran.
function harness.forward(name, cases, dtype, device)
  local count = 0
  for number, case in ipairs(cases) do
    if harness.takes(case, dtype) then
      for _, layout in ipairs(layouts_of(name)) do
        local args, _, used = build(case, dtype_of_case(case, dtype), device, layout)
        if used or layout == "contiguous" then
          local by_name = number % 2 == 0 and not harness.functions[name]
          local ok, results = pcall(harness.call, name, args, case.attrs, by_name)
          if not ok then fail(case, layout, "call", results) end
          local outs = outputs_of(name, results, case)
          check_values(name, case, outs, dtype, device, layout)
          count = count + 1
        end
      end
      if not VALUE_DEPENDENT[name] and not CONTIGUOUS_ONLY[name] then
        against_contiguous(name, case, dtype_of_case(case, dtype), device, false)
      end
    end
  end
  return count
end

--- Gradients of every case that has some.
function harness.backward(name, cases, dtype, device)
  local count = 0
  for _, case in ipairs(cases) do
    if case.gradients and harness.takes(case, dtype) then
      local layouts = has_open(case) and { "contiguous" } or layouts_of(name)
      for _, layout in ipairs(layouts) do
        local args, leaves, used = build(case, dtype, device, layout, true)
        if used or layout == "contiguous" then
          if layout == "contiguous" then
            for _, l in ipairs(leaves) do l.spread = nil end
          end
          local results = harness.call(name, args, case.attrs)
          local outs = outputs_of(name, results, case)
          check_gradients(name, case, outs, leaves, dtype, device, layout)
          count = count + 1
        end
      end
      if not VALUE_DEPENDENT[name] and #layouts > 1 then
        against_contiguous(name, case, dtype, device, true)
      end
    end
  end
  return count
end

local function all_zero(entries)
  for _, entry in ipairs(entries or {}) do
    for _, v in ipairs(entry.data) do if v ~= 0 then return false end end
  end
  return true
end

--- Difference quotients of the smooth cases, in float64. which: mt.gradcheck or
--- mt.gradgradcheck. Returns how many ran.
function harness.quotients(name, cases, device, which)
  local count = 0
  for _, case in ipairs(cases) do
    -- where the gradient is zero everywhere, its own gradient is nothing to ask for
    if case.check and not (which == mt.gradgradcheck and all_zero(case.gradients)) then
      local args, leaves = build(case, "float64", device, nil, true)
      local inputs = {}
      for i, l in ipairs(leaves) do inputs[i] = l.leaf end
      local function fn(...)
        local given, k = { ... }, 0
        local function next_of(x)
          if type(x) == "userdata" and tensors.is_float(x:dtype()) then
            k = k + 1
            return given[k]
          end
          return x
        end
        local call_args = {}
        for i, x in ipairs(args) do
          if type(x) == "table" then
            local list = {}
            for j, e in ipairs(x) do list[j] = next_of(e) end
            call_args[i] = list
          else
            call_args[i] = next_of(x)
          end
        end
        local results = harness.call(name, call_args, case.attrs)
        results = outputs_of(name, results, case)
        -- only what a gradient flows from
        local float = {}
        for _, y in ipairs(results) do
          if tensors.is_float(y:dtype()) then float[#float + 1] = y end
        end
        return table.unpack(float)
      end
      local was = mt.is_deterministic()
      mt.set_deterministic(true) -- or a GPU may add in another order the second time
      local ok, good, err = pcall(which, fn, inputs)
      mt.set_deterministic(was)
      if not ok then fail(case, "float64", "difference quotients", good) end
      if not good then fail(case, "float64", "difference quotients", tostring(err)) end
      count = count + 1
    end
  end
  return count
end

-- Does the case's result fit into its first input?
local function fits_in_place(case, dtype)
  local first, out = case.inputs[1], case.outputs[1]
  return harness.takes(case, dtype) and type(first) == "table" and not first.list
    and tensors.same_shape(first.shape, out.shape)
    and (out.dtype or dtype) == (first.dtype or dtype)
end

--- The in-place form gives the same values, and returns its first input.
function harness.inplace(name, cases, dtype, device)
  local count = 0
  for _, case in ipairs(cases) do
    if fits_in_place(case, dtype) then
      for _, layout in ipairs { "contiguous", "transposed", "sliced" } do
        local args, _, used = build(case, dtype_of_case(case, dtype), device, layout)
        if used or layout == "contiguous" then
          local results = harness.call(name .. "_", args, case.attrs, false, true)
          if not rawequal(results[1], args[1]) then
            fail(case, layout, "in place", "the result is not the first input")
          end
          check_values(name, case, { args[1] }, dtype, device, layout .. ", in place")
          count = count + 1
        end
      end
    end
  end
  return count
end

-- What an op may write into: the value of x, as a tensor of its own and as a view.
local WRITTEN = {
  ["a tensor"] = function(x) return x * 1 end,
  ["a view"] = function(x) return mt.stack({ x, x }, 1)[2] end,
}

--- The in-place form has the gradients of the op. Returns how many cases ran.
function harness.inplace_backward(name, cases, dtype, device)
  local count = 0
  for _, case in ipairs(cases) do
    if case.gradients and fits_in_place(case, dtype) and not case.inputs[1].dtype then
      for what, written in pairs(WRITTEN) do
        local args, leaves = build(case, dtype, device, nil, true)
        args[1] = written(args[1])
        local ok, results = pcall(harness.call, name .. "_", args, case.attrs, false,
                                  true)
        if not ok then fail(case, what, "in place", results) end
        local well, err = pcall(check_gradients, name, case, results, leaves, dtype,
                                device, what .. " in place")
        if not well then fail(case, what, "in place, gradients", err) end
        count = count + 1
      end
    end
  end
  return count
end

return harness
