-- spec/lua/optim_spec.lua: optimisers against PyTorch's trajectories, and their state.

local mt = require "mytensor"
local expect = require "spec.support.expect"
local nn, optim = mt.nn, mt.optim
local reference = dofile "spec/reference/optim/steps.lua"

local raises = expect.says

local function parameters(dtype)
  local list = {}
  for i, values in ipairs(reference.start) do
    list[i] = mt.tensor(values, { dtype = dtype, requires_grad = true })
  end
  return list
end

local function set_gradients(list, step, dtype)
  for i, values in ipairs(reference.gradients[step]) do
    list[i].grad = values and mt.tensor(values, { dtype = dtype }) or nil
  end
end

local function check_values(list, expected, tolerance, what)
  for i, values in ipairs(expected) do
    for j, actual in ipairs(list[i]:detach():reshape(-1):totable()) do
      assert.is_true(math.abs(actual - values[j]) <= tolerance,
                     ("%s, parameter %d, element %d: %.15g is not %.15g"):format(
                       what, i, j, actual, values[j]))
    end
  end
end

describe("the trajectory of", function()
  for number, case in ipairs(reference.cases) do
    for _, dtype in ipairs { "float64", "float32" } do
      local title = "%s (case %d) in %s is PyTorch's"
      it(title:format(case.name, number, dtype), function()
        local list = parameters(dtype)
        local optimiser = optim[case.name](list, case.options)
        local tolerance = dtype == "float64" and 1e-12 or 2e-6
        for step, expected in ipairs(case.steps) do
          set_gradients(list, step, dtype)
          optimiser:step()
          check_values(list, expected, tolerance, "step " .. step)
        end
      end)
    end

    it(("%s (case %d) goes on from a saved state"):format(case.name, number), function()
      local list = parameters "float64"
      local optimiser = optim[case.name](list, case.options)
      for step = 1, 3 do
        set_gradients(list, step, "float64")
        optimiser:step()
      end
      local copies = {}
      for i, p in ipairs(list) do copies[i] = p:detach():clone():requires_grad_() end
      local other = optim[case.name](copies, { lr = 99 })
      other:load_state_dict(optimiser:state_dict())
      for step = 4, #case.steps do
        set_gradients(copies, step, "float64")
        other:step()
      end
      check_values(copies, case.steps[#case.steps], 1e-12, "the end")
    end)
  end
end)

describe("an optimiser", function()
  it("takes groups with options of their own", function()
    local a, b = table.unpack(parameters "float64")
    local optimiser = optim.SGD({ { params = { a } }, { params = b, lr = 1 } },
                                { lr = 0.5 })
    assert.equal(0.5, optimiser.param_groups[1].lr)
    assert.equal(1, optimiser.param_groups[2].lr)
    a.grad, b.grad = mt.ones_like(a), mt.ones_like(b)
    optimiser:step()
    check_values({ a, b }, { { 0, -1.75, 1.5 }, { -0.25, -1.5, 0.5, -0.75 } }, 1e-12,
                 "groups")
  end)

  it("lets SGD's groups give lr, if all do", function()
    local a, b = table.unpack(parameters "float64")
    assert.equal(2, #optim.SGD { { params = { a }, lr = 1 },
                                 { params = { b }, lr = 2 } }.param_groups)
    raises("bad argument #1 to 'SGD' (lr must be a number, got nil)", optim.SGD,
           { { params = { a }, lr = 1 }, { params = { b } } })
  end)

  it("follows changes of the learning rate", function()
    local list = parameters "float64"
    local optimiser = optim.SGD(list, { lr = 1 })
    optimiser.param_groups[1].lr = 0
    set_gradients(list, 1, "float64")
    optimiser:step()
    check_values({ list[1] }, { reference.start[1] }, 0, "lr = 0")
  end)

  it("clears gradients, and leaves parameters without one alone", function()
    local list = parameters "float64"
    local optimiser = optim.Adam(list)
    set_gradients(list, 1, "float64")
    optimiser:zero_grad()
    assert.is_nil(list[1].grad)
    optimiser:step()
    check_values({ list[1] }, { reference.start[1] }, 0, "no gradient")
  end)

  it("runs a closure, and returns what it gave", function()
    local list = parameters "float64"
    local optimiser = optim.SGD(list, { lr = 0.1 })
    local loss = optimiser:step(function()
      optimiser:zero_grad()
      local l = list[1]:square():sum()
      l:backward()
      return l
    end)
    assert.equal(0.25 + 1.5625 + 4, loss:item())
    check_values({ list[1] }, { { 0.4, -1, 1.6 } }, 1e-12, "closure")
  end)

  it("records nothing of its step", function()
    local p = nn.Parameter(mt.ones { 2 })
    local optimiser = optim.AdamW({ p })
    p:sum():backward()
    optimiser:step()
    assert.is_true(p:is_leaf())
    assert.is_true(p.requires_grad)
  end)

  it("adds groups later, by the options of the start", function()
    local a, b = table.unpack(parameters "float64")
    local optimiser = optim.SGD({ a }, { lr = 0.25, momentum = 0.5 })
    optimiser:add_param_group { params = { b } }
    assert.equal(0.25, optimiser.param_groups[2].lr)
    raises("bad argument #1 to 'SGD' (group 3, parameter 1 is in the list twice)",
           optimiser.add_param_group, optimiser, { params = { b } })
  end)

  it("shows its groups", function()
    local optimiser = optim.SGD(parameters "float32", { lr = 0.1, momentum = 0.9 })
    assert.equal("SGD(2 parameters, dampening = 0, lr = 0.1, momentum = 0.9, nesterov ="
                 .. " false, weight_decay = 0)", tostring(optimiser))
  end)

  it("trains a network", function()
    mt.manual_seed(5)
    local model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    local x = mt.randn(64, 2)
    local target = x:narrow(2, 1, 1) * x:narrow(2, 2, 1)
    local first, last
    local optimiser = optim.Adam(model:parameters(), { lr = 0.03 })
    for _ = 1, 200 do
      optimiser:zero_grad()
      local loss = nn.MSELoss()(model(x), target)
      loss:backward()
      optimiser:step()
      last = loss:item()
      first = first or last
    end
    assert.is_true(last < first / 20, ("from %g to %g only"):format(first, last))
  end)
end)

describe("an optimiser's arguments", function()
  local function sgd(options)
    return pcall(optim.SGD, parameters "float32", options)
  end

  it("are checked", function()
    local p = nn.Parameter(mt.zeros { 2 })
    for text, call in pairs {
      ["#2 to 'SGD' (lr must be at least 0, got -0.1)"] =
        function() optim.SGD({ p }, { lr = -0.1 }) end,
      ["#2 to 'SGD' (momentum must be at least 0, got -1)"] =
        function() optim.SGD({ p }, { lr = 1, momentum = -1 }) end,
      ["#2 to 'SGD' (nesterov needs a momentum above 0 and no dampening)"] =
        function() optim.SGD({ p }, { lr = 1, nesterov = true }) end,
      ["#2 to 'SGD' (unknown option 'momentun' (known: dampening, lr, momentum,"
       .. " nesterov, weight_decay))"] =
        function() optim.SGD({ p }, { lr = 1, momentun = 1 }) end,
      ["#2 to 'Adam' (betas[2] must be in [0, 1), got 1)"] =
        function() optim.Adam({ p }, { betas = { 0.9, 1 } }) end,
      ["#2 to 'Adam' (betas must be a list of two numbers)"] =
        function() optim.Adam({ p }, { betas = 0.9 }) end,
      ["#2 to 'AdamW' (epsilon must be at least 0, got nan)"] =
        function() optim.AdamW({ p }, { epsilon = math.abs(0 / 0) }) end,
      ["#1 to 'Adam' (the list of parameters is empty)"] =
        function() optim.Adam {} end,
      ["#1 to 'Adam' (table expected, got nil)"] =
        function() optim.Adam() end,
      ["#1 to 'SGD' (group 1, parameter 2: tensor expected, got integer)"] =
        function() optim.SGD({ p, 3 }, { lr = 1 }) end,
      ["#1 to 'SGD' (group 1, parameter 1 requires no grad)"] =
        function() optim.SGD({ mt.zeros { 2 } }, { lr = 1 }) end,
      ["#1 to 'SGD' (group 1, parameter 1 is the result of an operation, no"
       .. " parameter)"] =
        function() optim.SGD({ p * 2 }, { lr = 1 }) end,
      ["#1 to 'SGD' (group 1, parameter 2 is in the list twice)"] =
        function() optim.SGD({ p, p }, { lr = 1 }) end,
    } do
      raises("bad argument " .. text, call)
    end
    assert.is_true(sgd { lr = 0 })
  end)

  it("are copied: later changes of the caller's table do nothing", function()
    local betas = { 0.9, 0.999 }
    local optimiser = optim.Adam(parameters "float32", { betas = betas })
    betas[1] = 7
    assert.equal(0.9, optimiser.param_groups[1].betas[1])
  end)
end)

describe("load_state_dict of an optimiser", function()
  it("wants the same groups and shapes", function()
    local list = parameters "float64"
    local optimiser = optim.Adam(list)
    set_gradients(list, 1, "float64")
    optimiser:step()
    local dict = optimiser:state_dict()
    raises("bad argument #1 to 'load_state_dict' (group 1: 1 parameters here, 2 given)",
           optim.Adam({ list[1] }).load_state_dict, optim.Adam({ list[1] }), dict)
    local swapped = optim.Adam { list[2], list[1] }
    raises("of parameter 1: shape [2, 2] here, [3] given", swapped.load_state_dict,
           swapped, dict)
    raises("fields 'param_groups' and 'state' expected", optimiser.load_state_dict,
           optimiser, {})
  end)

  it("has taken a snapshot: later steps don't change it", function()
    local list = parameters "float64"
    local optimiser = optim.SGD(list, { lr = 0.1, momentum = 0.9 })
    set_gradients(list, 1, "float64")
    optimiser:step()
    local dict = optimiser:state_dict()
    local before = dict.state[1].momentum:clone()
    set_gradients(list, 2, "float64")
    optimiser:step()
    assert.is_true(before:equal(dict.state[1].momentum))
  end)
end)

describe("clip_grad_norm_", function()
  local function with_gradients()
    local a, b = nn.Parameter(mt.zeros { 2 }), nn.Parameter(mt.zeros { 1, 2 })
    local c = nn.Parameter(mt.zeros { 1 }) -- without a gradient
    a.grad, b.grad = mt.tensor { 3, 0 }, mt.tensor { { 0, 4 } }
    return { a, b, c }
  end

  it("scales all gradients by one factor and gives the norm before", function()
    local list = with_gradients()
    local norm = nn.utils.clip_grad_norm_(list, 1)
    assert.equal(5, norm:item())
    assert.is_true(math.abs(list[1].grad[1]:item() - 0.6) < 1e-6)
    assert.is_true(math.abs(list[2].grad[{ 1, 2 }]:item() - 0.8) < 1e-6)
    assert.is_nil(list[3].grad)
  end)

  it("leaves gradients below the limit as they are", function()
    local list = with_gradients()
    optim.clip_grad_norm_(list, 5.1)
    assert.same({ 3, 0 }, list[1].grad:totable())
    assert.same({ { 0, 4 } }, list[2].grad:totable())
  end)

  it("gives 0 when there is no gradient", function()
    local p = nn.Parameter(mt.zeros { 1 })
    assert.equal(0, nn.utils.clip_grad_norm_({ p }, 1):item())
  end)

  it("checks its arguments", function()
    raises("bad argument #2 to 'clip_grad_norm_' (max_norm must be at least 0, got -1)",
           nn.utils.clip_grad_norm_, with_gradients(), -1)
    raises("bad argument #1 to 'clip_grad_norm_' (parameter 1: tensor expected, got"
           .. " integer)", nn.utils.clip_grad_norm_, { 1 }, 1)
  end)
end)

describe("clip_grad_value_", function()
  it("limits each element", function()
    local p = nn.Parameter(mt.zeros { 3 })
    p.grad = mt.tensor { -3, 0.5, 2 }
    nn.utils.clip_grad_value_({ p }, 1)
    assert.same({ -1, 0.5, 1 }, p.grad:totable())
  end)

  it("steps only where there is a gradient, and forgets all of them", function()
    local a, b = mt.ones(3):requires_grad_(), mt.ones(2):requires_grad_()
    local list = { a, b }
    assert.same({}, mt._with_grads(list))
    a.grad = mt.ones(3)
    assert.equal(1, #mt._with_grads(list))
    for _, make in ipairs { mt.optim.SGD, mt.optim.Adam } do
      local optimiser = make(list, { lr = 0.5 })
      optimiser:step()
      assert.same({ 1, 1 }, b:totable())
    end
    assert.is_true(a:lt(0.5):all():item())
    b.grad = mt.ones(2)
    assert.equal(list, mt._with_grads(list))
    mt._clear_grads(list)
    assert.is_nil(a.grad)
    assert.is_nil(b.grad)
    local ok, message = pcall(mt._sgd_step, list, nil, nil, 1, 0, 0, 0, false)
    assert.is_false(ok)
    assert.truthy(message:find("#1 to '_sgd_step' ([1] has no gradient)", 1, true),
      message)
    ok, message = pcall(mt._clear_grads, { a, 3 })
    assert.is_false(ok)
    assert.truthy(message:find("tensor expected at [2], got number", 1, true), message)
  end)
end)
