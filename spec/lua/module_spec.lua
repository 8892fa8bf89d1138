-- spec/lua/module_spec.lua: nn.Module: registration, traversal, state, hooks, the tree.

local mt = require "mytensor"
local expect = require "spec.support.expect"
local nn = mt.nn
local class = mt.class

local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return list
end

local raises = expect.says

local Net = class("Net", nn.Module)
function Net:init()
  self.second = nn.Linear(3, 2)
  self.first = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
  self.scale = nn.Parameter(mt.ones { 2 })
  self:register_buffer("count", mt.zeros { 1 })
end
function Net:forward(x) return self.second(self.first(x)) * self.scale end

describe("nn.Parameter", function()
  it("makes a leaf that requires grad over the same storage", function()
    local t = mt.zeros { 2 }
    local p = nn.Parameter(t)
    assert.is_true(p.requires_grad)
    assert.is_false(t.requires_grad)
    mt.no_grad(function() p:fill_(3) end)
    assert.same({ 3, 3 }, t:totable())
  end)

  it("may be frozen from the start, of integers only so", function()
    assert.is_false(nn.Parameter(mt.zeros { 2 }, false).requires_grad)
    raises("bad argument #1 to 'Parameter' (only float tensors can have gradients, this"
           .. " is int64)", nn.Parameter, mt.zeros({ 2 }, { dtype = "int64" }))
    raises("bad argument #1 to 'Parameter' (tensor expected, got integer)",
           nn.Parameter, 3)
  end)
end)

describe("nn.Module", function()
  it("registers by assignment, in its order, parents first", function()
    assert.same({ "scale", "second.weight", "second.bias", "first.1.weight",
                  "first.1.bias" }, names(Net():named_parameters()))
    assert.same({ "count" }, names(Net():named_buffers()))
    assert.same({ "second", "first" }, names(Net():named_children()))
    assert.same({ "", "second", "first", "first.1", "first.2" },
                names(Net():named_modules()))
    assert.equal(5, #Net():parameters())
    assert.equal(5, #Net():modules())
    assert.equal(2, #Net():children())
    assert.equal(1, #Net():buffers())
  end)

  it("takes a leaf that requires grad as a parameter, others as fields", function()
    local m = nn.Module()
    m.leaf = mt.zeros({ 2 }, { requires_grad = true })
    m.plain = mt.zeros { 2 }
    m.result = m.leaf * 2
    assert.same({ "leaf" }, names(m:named_parameters()))
    assert.same({}, names(m:named_buffers()))
    assert.is_true(mt.is_tensor(m.plain))
  end)

  it("keeps a frozen parameter a parameter", function()
    local m = Net()
    m:requires_grad_(false)
    assert.equal(5, #m:parameters())
    for _, p in ipairs(m:parameters()) do assert.is_false(p.requires_grad) end
    m:requires_grad_()
    for _, p in ipairs(m:parameters()) do assert.is_true(p.requires_grad) end
  end)

  it("forgets what is set to nil, and replaces in place", function()
    local m = Net()
    m.second.bias = nil
    m.scale = nn.Parameter(mt.zeros { 2 })
    assert.same({ "scale", "second.weight", "first.1.weight", "first.1.bias" },
                names(m:named_parameters()))
    assert.same({ 0, 0 }, m.scale:totable())
    m.first = nil
    assert.same({ "scale", "second.weight" }, names(m:named_parameters()))
  end)

  it("turns a field into a child when a module is assigned to it", function()
    local m = nn.Module()
    m.part = 5
    m.part = nn.ReLU()
    assert.same({ "part" }, names(m:named_children()))
    m.part = 5
    assert.same({}, names(m:named_children()))
  end)

  it("keeps a buffer a buffer when a tensor is assigned to it", function()
    local m = Net()
    m.count = m.count + 1
    assert.same({ "count" }, names(m:named_buffers()))
    assert.same({ 1 }, m.count:totable())
  end)

  it("refuses a plain tensor in the place of a parameter", function()
    local m = Net()
    raises("cannot assign a tensor that isn't a parameter to the parameter 'scale' of"
           .. " Net", function() m.scale = mt.zeros { 2 } end)
  end)

  it("refuses names with dots, and buffers over parameters", function()
    local m = Net()
    raises("the name 'a.b' of a module must be without dots and not empty",
           function() m["a.b"] = nn.ReLU() end)
    raises("bad argument #1 to 'register_buffer' ('scale' is a parameter already)",
           m.register_buffer, m, "scale", mt.zeros { 1 })
  end)

  it("names a shared tensor once, but under each name in the state", function()
    local m = nn.Module()
    m.a = nn.Linear(2, 2)
    m.b = nn.Linear(2, 2)
    m.b.weight = m.a.weight
    assert.same({ "a.weight", "a.bias", "b.bias" }, names(m:named_parameters()))
    local dict = m:state_dict()
    assert.truthy(dict["a.weight"] and dict["b.weight"])
  end)

  it("says which class lacks a forward", function()
    local Lazy = class("Lazy", nn.Module)
    raises("Lazy has no method 'forward'", Lazy())
  end)

  it("finds a module by its dotted name", function()
    local m = Net()
    assert.equal(m.first[2], m:get_submodule "first.2")
    assert.equal(m, m:get_submodule "")
    raises("Net has no module 'first.9'", m.get_submodule, m, "first.9")
  end)

  it("switches all modules between training and evaluation", function()
    local m = Net()
    assert.is_true(m.training)
    assert.equal(m, m:eval())
    for _, part in ipairs(m:modules()) do assert.is_false(part.training) end
    m:train()
    for _, part in ipairs(m:modules()) do assert.is_true(part.training) end
  end)

  it("applies a function to children first", function()
    local seen = {}
    Net():apply(function(m) seen[#seen + 1] = m.__name end)
    assert.same({ "Linear", "Linear", "ReLU", "Sequential", "Net" }, seen)
  end)

  it("clears gradients", function()
    local m = nn.Linear(2, 1)
    m(mt.ones(3, 2)):sum():backward()
    assert.truthy(m.weight.grad)
    m:zero_grad()
    assert.is_nil(m.weight.grad)
    assert.is_nil(m.bias.grad)
  end)

  it("draws the tree", function()
    assert.equal(table.concat({
      "Net(",
      "  (second): Linear(3, 2)",
      "  (first): Sequential(",
      "    (1): Linear(2, 3)",
      "    (2): ReLU()",
      "  )",
      ")",
    }, "\n"), tostring(Net()))
  end)
end)

describe("hooks", function()
  it("see inputs and outputs, may replace them, and can be removed", function()
    local m, seen = nn.ReLU(), {}
    local before = m:register_forward_pre_hook(function(_, x) return x + 1 end)
    local after = m:register_forward_hook(function(module, inputs, y)
      seen = { module, inputs[1]:item(), y:item() }
      return y * 10
    end)
    assert.equal(30, m(mt.tensor { 2 }):item())
    assert.same({ m, 3, 3 }, seen)
    before.remove()
    assert.equal(20, m(mt.tensor { 2 }):item())
    after.remove()
    assert.equal(2, m(mt.tensor { 2 }):item())
  end)
end)

describe("state_dict and load_state_dict", function()
  it("copy parameters and buffers from one network to another", function()
    local a, b = Net(), Net()
    a.count:fill_(7)
    local missing, unexpected = b:load_state_dict(a:state_dict())
    assert.same({}, missing)
    assert.same({}, unexpected)
    for name, t in pairs(a:state_dict()) do
      assert.is_true(t:equal(b:state_dict()[name]), name)
      assert.is_false(t.requires_grad)
    end
    local x = mt.ones(1, 2)
    assert.is_true(a(x):equal(b(x)))
  end)

  it("leave out buffers that aren't persistent", function()
    local m = nn.Module()
    m:register_buffer("kept", mt.zeros { 1 })
    m:register_buffer("dropped", mt.zeros { 1 }, false)
    assert.truthy(m:state_dict().kept)
    assert.is_nil(m:state_dict().dropped)
    assert.equal(2, #m:buffers())
  end)

  it("list all that doesn't fit, and change nothing then", function()
    local m = Net()
    local dict = m:state_dict()
    local before = m.scale:clone()
    dict.scale, dict.extra, dict.count = mt.zeros { 3 }, mt.zeros { 1 }, nil
    dict["second.bias"] = mt.full({ 2 }, 9)
    raises("bad argument #1 to 'load_state_dict' (does not fit Net:\n"
           .. "  missing: count\n  unexpected: extra\n"
           .. "  scale: shape [2] here, [3] given)", m.load_state_dict, m, dict)
    assert.is_true(before:equal(m.scale))
    assert.is_false(m.second.bias:equal(dict["second.bias"]))
  end)

  it("tolerate other names with strict = false, not other shapes", function()
    local m = Net()
    local missing, unexpected = m:load_state_dict(
      { scale = mt.full({ 2 }, 4), extra = mt.zeros { 1 } }, { strict = false })
    assert.same({ "extra" }, unexpected)
    assert.same({ "count", "first.1.bias", "first.1.weight", "second.bias",
                  "second.weight" }, missing)
    assert.same({ 4, 4 }, m.scale:totable())
    raises("scale: shape [2] here, [5] given", m.load_state_dict, m,
           { scale = mt.zeros { 5 } }, { strict = false })
    raises("unknown option 'stict' (known: strict)", m.load_state_dict, m, {},
           { stict = false })
  end)
end)

describe("Module:to", function()
  it("converts float tensors, keeps integer ones, and shared ones shared", function()
    local m = nn.Module()
    m.a = nn.Linear(2, 2)
    m.b = nn.Linear(2, 2)
    m.b.weight = m.a.weight
    m:register_buffer("steps", mt.zeros({ 1 }, { dtype = "int64" }))
    assert.equal(m, m:to "float64")
    assert.equal("float64", m.a.bias:dtype())
    assert.equal("int64", m.steps:dtype())
    assert.is_true(rawequal(m.a.weight, m.b.weight))
    assert.is_true(m.a.weight.requires_grad)
    assert.equal(3, #m:parameters())
    assert.equal("float32", m:float().a.bias:dtype())
    assert.equal("float64", m:double().a.bias:dtype())
    assert.equal("float16", m:half().a.bias:dtype())
    assert.equal("bfloat16", m:bfloat16().a.bias:dtype())
    assert.equal("int64", m.steps:dtype())
  end)

  it("keeps the tensors themselves when nothing changes", function()
    local m = nn.Linear(2, 2)
    local weight = m.weight
    m:to(weight:device()):to { dtype = "float32" }
    assert.is_true(rawequal(weight, m.weight))
  end)

  it("keeps frozen parameters frozen, and takes gradients along", function()
    local m = nn.Linear(2, 1)
    m.bias:requires_grad_(false)
    m(mt.ones(3, 2)):sum():backward()
    m:double()
    assert.is_false(m.bias.requires_grad)
    assert.equal("float64", m.weight.grad:dtype())
    assert.same({ { 3, 3 } }, m.weight.grad:totable())
  end)

  it("refuses dtypes without gradients, and unknown options", function()
    local m = nn.Linear(2, 1)
    raises("bad argument #1 to 'to' (a module takes a float dtype, got int64)",
           m.to, m, "int64")
    raises("bad argument #1 to 'to' (unknown option 'type' (known: device, dtype))",
           m.to, m, { type = "float64" })
  end)
end)
