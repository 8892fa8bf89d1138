-- spec/ops/matrix_spec.lua: every op of mt.ops(), in every dtype, layout and direction,
-- against the reference data. An op without data, or a differentiable one without a
-- check of its gradient, is red.

local mt = require "mytensor"
local coverage = require "spec.support.coverage"
local devices = require "spec.support.devices"
local half = require "spec.support.half"
local harness = require "spec.support.harness"
local reference = require "spec.support.reference"

local INTEGERS = { "int64", "int32", "int16", "int8", "uint8", "bool" }

-- Random ops have no reference: random_spec.lua tests what can be said about them.
local random = require "spec.support.random_ops"
-- Internal rows (_name) are reached through other functions; the file that tests each.
local internal = require "spec.support.internal_ops"

describe("the op table", function()
  it("has reference data for every op", function()
    local missing = {}
    for _, row in ipairs(mt.ops()) do
      if not (row.random and random[row.name]) and not internal[row.name]
          and not reference.exists(row.name) then
        missing[#missing + 1] = row.name
      end
    end
    assert.same({}, missing)
  end)

  it("has an op for all reference data", function()
    local unknown = {}
    for _, name in ipairs(reference.names()) do
      if not harness.rows[name] and not harness.functions[name] then
        unknown[#unknown + 1] = name
      end
    end
    assert.same({}, unknown)
  end)

  it("describes every op", function()
    for _, row in ipairs(mt.ops()) do
      assert.is_string(row.doc, row.name)
      assert.is_true(#row.doc > 0, row.name .. " has no description")
      assert.is_true(#row.outputs > 0, row.name .. " has no outputs")
    end
  end)
end)

-- A collector that never rests makes everything a hundred times slower: then the first
-- cases of each op serve, in one dtype, without difference quotients.
local stress = os.getenv "MYTENSOR_GC_STRESS" == "1"
local FLOATS = stress and { "float32" } or { "float32", "float64" }
local STRESSED_CASES = 2

-- What ran without a failure: device -> dtype -> kind -> number of ops.
local ran = {}
local function note(device, dtype, kind, count)
  if count == 0 then return end
  local list = ran[device] or {}
  ran[device] = list
  list[dtype] = list[dtype] or {}
  list[dtype][kind] = (list[dtype][kind] or 0) + 1
end

-- One test for each op, dtype, device and direction.
local function test_op(name, row)
  local function cases()
    local list = reference.load(name)
    return stress and table.move(list, 1, STRESSED_CASES, 1, {}) or list
  end
  -- an op whose outputs are all integers or bools has nothing to differentiate
  local float_result = false
  for _, case in ipairs(cases()) do
    for _, out in ipairs(case.outputs) do
      float_result = float_result or out.dtype == nil
    end
  end
  local differentiable = float_result and (row == nil or row.differentiable)

  local function on_device(device)
    for _, dtype in ipairs(FLOATS) do
      it(("%s in %s"):format(dtype, device), function()
        note(device, dtype, "values", harness.forward(name, cases(), dtype, device))
        if row and row.inplace then harness.inplace(name, cases(), dtype, device) end
      end)
      if differentiable then
        it(("%s in %s, gradient"):format(dtype, device), function()
          note(device, dtype, "gradients",
            harness.backward(name, cases(), dtype, device))
          if row and row.inplace then
            harness.inplace_backward(name, cases(), dtype, device)
          end
        end)
      end
    end
    if stress then return end
    for _, dtype in ipairs { "float16", "bfloat16" } do
      it(("%s in %s"):format(dtype, device), function()
        note(device, dtype, "values", half.forward(name, cases(), dtype, device))
        if not differentiable then return end
        note(device, dtype, "gradients", half.backward(name, cases(), dtype, device))
      end)
    end
    it("integers and bool on " .. device, function()
      for _, dtype in ipairs(INTEGERS) do
        note(device, dtype, "values", harness.forward(name, cases(), dtype, device))
        if row and row.inplace then harness.inplace(name, cases(), dtype, device) end
      end
    end)
    if differentiable then
      it("difference quotients on " .. device, function()
        local n = harness.quotients(name, cases(), device, mt.gradcheck)
        local with_gradient = false
        for _, case in ipairs(cases()) do
          with_gradient = with_gradient or case.gradients ~= nil
        end
        assert.is_true(with_gradient, "no case of " .. name .. " has a gradient")
        assert.is_true(n > 0, "no smooth case of " .. name)
      end)
      it("difference quotients of the gradient on " .. device, function()
        note(device, "float64", "gradients of gradients",
          harness.quotients(name, cases(), device, mt.gradgradcheck))
      end)
    end
  end

  devices.each(_ENV, on_device)
end

teardown(function()
  for _, device in ipairs(devices.list) do
    if ran[device] then
      print(("ops checked on %s: %s"):format(device,
        table.concat(coverage.kinds, ", ")))
    end
    for _, dtype in ipairs(coverage.dtypes) do
      local list = ran[device] and ran[device][dtype]
      if list then
        local numbers = {}
        for i, kind in ipairs(coverage.kinds) do numbers[i] = list[kind] or 0 end
        print(("  %-8s %s"):format(dtype, table.concat(numbers, ", ")))
      end
    end
  end
end)

for _, row in ipairs(mt.ops()) do
  if reference.exists(row.name) then
    describe(row.name, function() test_op(row.name, row) end)
  end
end
for name in pairs(harness.functions) do
  describe(name, function() test_op(name, nil) end)
end
