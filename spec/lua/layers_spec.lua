-- spec/lua/layers_spec.lua: the layers: shapes, values by hand, gradients, messages.

local mt = require "mytensor"
local expect = require "spec.support.expect"
local nn = mt.nn

local raises = expect.says

local function near(expected, actual, tolerance)
  assert.is_true(math.abs(expected - actual) <= (tolerance or 1e-6),
                 ("%.9g is not %.9g"):format(actual, expected))
end

describe("nn.Linear", function()
  it("computes x * W^T + b over the last dim", function()
    local m = nn.Linear(3, 2)
    mt.no_grad(function()
      m.weight:copy_(mt.tensor { { 1, 2, 3 }, { 4, 5, 6 } })
      m.bias:copy_(mt.tensor { 10, 20 })
    end)
    assert.same({ { 16, 35 } }, m(mt.tensor { { 1, 1, 1 } }):totable())
    assert.same({ 4, 5, 2 }, m(mt.zeros(4, 5, 3)):shape())
  end)

  it("works without a bias, and in another dtype", function()
    local m = nn.Linear(3, 2, { bias = false, dtype = "float64" })
    assert.is_nil(m.bias)
    assert.equal("float64", m.weight:dtype())
    assert.equal(1, #m:parameters())
    assert.equal("Linear(3, 2, bias = false)", tostring(m))
  end)

  it("names what is wrong with its arguments", function()
    raises("bad argument #1 to 'Linear' (number of features in must be an integer,"
           .. " got string)", nn.Linear, "3", 2)
    raises("bad argument #2 to 'Linear' (number of features out must be at least 0,"
           .. " got -1)", nn.Linear, 3, -1)
    raises("bad argument #3 to 'Linear' (unknown option 'bais' (known: bias, device,"
           .. " dtype))", nn.Linear, 3, 2, { bais = false })
    raises("bad argument #3 to 'Linear' (table of options expected, got boolean)",
           nn.Linear, 3, 2, false)
  end)
end)

describe("nn.Conv2d", function()
  it("has the shapes of the arithmetic of convolution", function()
    local m = nn.Conv2d(3, 8, { 3, 5 }, { stride = 2, padding = { 1, 2 } })
    assert.same({ 8, 3, 3, 5 }, m.weight:shape())
    assert.same({ 8 }, m.bias:shape())
    assert.same({ 2, 8, 5, 6 }, m(mt.zeros(2, 3, 10, 11)):shape())
    assert.equal("Conv2d(3, 8, {3, 5}, stride = 2, padding = {1, 2})", tostring(m))
  end)

  it("takes groups and dilation", function()
    local m = nn.Conv2d(4, 6, 3, { groups = 2, dilation = 2, bias = false })
    assert.same({ 6, 2, 3, 3 }, m.weight:shape())
    assert.same({ 1, 6, 4, 4 }, m(mt.zeros(1, 4, 8, 8)):shape())
    assert.equal("Conv2d(4, 6, 3, dilation = 2, groups = 2, bias = false)", tostring(m))
  end)

  it("adds the bias to a sum over the window", function()
    local m = nn.Conv2d(1, 1, 2)
    mt.no_grad(function()
      m.weight:fill_(1)
      m.bias:fill_(0.5)
    end)
    local x = mt.tensor({ 1, 2, 3, 4, 5, 6, 7, 8, 9 }):reshape(1, 1, 3, 3)
    assert.same({ { { { 12.5, 16.5 }, { 24.5, 28.5 } } } }, m(x):totable())
  end)

  it("names what is wrong with its arguments", function()
    raises("bad argument #3 to 'Conv2d' (kernel size must be an integer, got nil)",
           nn.Conv2d, 1, 2)
    raises("bad argument #3 to 'Conv2d' (kernel size (width) must be at least 1, got"
           .. " 0)", nn.Conv2d, 1, 2, { 3, 0 })
    raises("bad argument #3 to 'Conv2d' (kernel size must be an integer or"
           .. " {height, width}, got 3 values)", nn.Conv2d, 1, 2, { 3, 3, 3 })
    raises("bad argument #4 to 'Conv2d' (groups = 2 divides not both 3 channels in and"
           .. " 4 out)", nn.Conv2d, 3, 4, 1, { groups = 2 })
  end)
end)

describe("pooling layers", function()
  local function image() return mt.arange(1, 17):reshape(1, 1, 4, 4) end

  it("take the largest of each window, or the mean", function()
    local x = image()
    assert.same({ { { { 6, 8 }, { 14, 16 } } } }, nn.MaxPool2d(2)(x):totable())
    assert.same({ { { { 3.5, 5.5 }, { 11.5, 13.5 } } } }, nn.AvgPool2d(2)(x):totable())
  end)

  it("give one value, and take strides and padding", function()
    local x = image()
    assert.equal(1, select("#", nn.MaxPool2d(2)(x)))
    assert.same({ 1, 1, 3, 3 }, nn.MaxPool2d(2, { stride = 1 })(x):shape())
    assert.same({ 1, 1, 2, 2 }, nn.AvgPool2d(3, { stride = 2, padding = 1 })(x):shape())
    assert.equal("MaxPool2d(2, stride = 1)", tostring(nn.MaxPool2d(2, { stride = 1 })))
    assert.equal("AvgPool2d(3, padding = 1)",
                 tostring(nn.AvgPool2d(3, { padding = 1 })))
  end)
end)

describe("activation layers", function()
  it("are the functions of their names", function()
    local x = mt.tensor { -2, -0.5, 0, 1, 3 }
    for name, method in pairs {
      ReLU = "relu", Sigmoid = "sigmoid", Tanh = "tanh", GELU = "gelu",
      Softmax = "softmax", LogSoftmax = "log_softmax",
    } do
      assert.is_true(nn[name]()(x):equal(x[method](x)), name)
    end
    assert.is_true(nn.GELU { approximate = "tanh" }(x):equal(x:gelu_tanh()))
    assert.is_true(nn.LeakyReLU(0.2)(x):equal(x:leaky_relu(0.2)))
    assert.equal(x, nn.Identity()(x))
  end)

  it("take a dim where they need one", function()
    local y = nn.Softmax(1)(mt.zeros(4, 3))
    near(0.25, y[{ 1, 1 }]:item())
    assert.equal("Softmax(dim = 1)", tostring(nn.Softmax(1)))
    raises("bad argument #1 to 'GELU' (approximate must be 'none' or 'tanh', got"
           .. " 'erf')", nn.GELU, { approximate = "erf" })
  end)
end)

describe("nn.Flatten", function()
  it("keeps the batch dim, or takes other bounds", function()
    assert.same({ 2, 60 }, nn.Flatten()(mt.zeros(2, 3, 4, 5)):shape())
    assert.same({ 2, 12, 5 }, nn.Flatten(2, 3)(mt.zeros(2, 3, 4, 5)):shape())
    assert.same({ 120 }, nn.Flatten(1)(mt.zeros(2, 3, 4, 5)):shape())
  end)
end)

describe("nn.LayerNorm", function()
  it("gives the last dims mean 0 and variance 1", function()
    mt.manual_seed(3)
    local x = mt.randn(5, 4, 6) * 3 + 2
    for _, shape in ipairs { 6, { 4, 6 } } do
      local m = nn.LayerNorm(shape)
      local y = m(x)
      assert.same({ 5, 4, 6 }, y:shape())
      local dims = shape == 6 and { 3 } or { 2, 3 }
      assert.is_true(y:mean(dims):abs():max():item() < 1e-6)
      assert.is_true((y:var(dims, 0) - 1):abs():max():item() < 1e-4)
    end
  end)

  it("starts with weight 1 and bias 0, or goes without", function()
    local m = nn.LayerNorm({ 2, 3 }, { dtype = "float64" })
    assert.same({ { 1, 1, 1 }, { 1, 1, 1 } }, m.weight:totable())
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, m.bias:totable())
    assert.equal("float64", m.bias:dtype())
    assert.equal("LayerNorm([2, 3])", tostring(m))
    local without = nn.LayerNorm(3, { bias = false, epsilon = 0.5 })
    assert.equal(1, #without:parameters())
    assert.equal("LayerNorm([3], epsilon = 0.5, bias = false)", tostring(without))
    local plain = nn.LayerNorm(3, { affine = false })
    assert.equal(0, #plain:parameters())
    assert.equal("LayerNorm([3], affine = false)", tostring(plain))
    -- deviations -1 and 1, variance 1
    local y = nn.LayerNorm(2, { affine = false })(mt.tensor { 3, 5 })
    near(-1 / math.sqrt(1 + 1e-5), y[1]:item())
  end)

  it("trains both", function()
    local m = nn.LayerNorm(4)
    local x = mt.randn(7, 4)
    m(x):sum():backward()
    assert.same({ 7, 7, 7, 7 }, m.bias.grad:totable())
    local sums = mt.layer_norm(x):sum(1)
    assert.is_true((m.weight.grad - sums):abs():max():item() < 1e-5)
  end)

  it("names what is wrong with its arguments", function()
    raises("bad argument #1 to 'LayerNorm' (shape must be an integer, got nil)",
           nn.LayerNorm)
    raises("bad argument #1 to 'LayerNorm' (shape must have at least one dim, got {})",
           nn.LayerNorm, {})
    raises("bad argument #1 to 'LayerNorm' (shape[2] must be at least 0, got -1)",
           nn.LayerNorm, { 2, -1 })
    raises("bad argument #2 to 'LayerNorm' (epsilon must be at least 0, got -1)",
           nn.LayerNorm, 2, { epsilon = -1 })
    raises("bad argument #2 to 'layer_norm' (weight has shape [3], the last 1 dims of"
           .. " input [2, 4] want [4])", nn.LayerNorm(3), mt.zeros(2, 4))
    raises("bad argument #1 to 'LayerNorm' (input [2, 4] does not end with [3])",
           nn.LayerNorm(3, { affine = false }), mt.zeros(2, 4))
  end)
end)

describe("nn.Dropout", function()
  it("zeroes and rescales in training, passes in evaluation", function()
    mt.manual_seed(11)
    local m, x = nn.Dropout(0.25), mt.ones(10000)
    local y = m(x)
    local kept = y:ne(0):sum():item()
    -- 7500 expected, standard deviation 43
    assert.is_true(math.abs(kept - 7500) < 220, tostring(kept))
    near(4 / 3, y:max():item())
    m:eval()
    assert.is_true(m(x):equal(x))
  end)

  it("wants a probability", function()
    raises("bad argument #1 to 'Dropout' (p must be in [0, 1], got 1.5)", nn.Dropout,
           1.5)
  end)
end)

describe("nn.Embedding", function()
  it("looks rows up by index, and trains them", function()
    local m = nn.Embedding(5, 3)
    local index = mt.tensor({ { 1, 5 }, { 2, 5 } }, { dtype = "int64" })
    local y = m(index)
    assert.same({ 2, 2, 3 }, y:shape())
    assert.is_true(y[{ 1, 2 }]:equal(m.weight[5]))
    y:sum():backward()
    assert.same({ { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 0, 0, 0 }, { 2, 2, 2 } },
                m.weight.grad:totable())
  end)
end)

describe("losses", function()
  it("compute cross entropy of classes from 1", function()
    local loss = nn.CrossEntropyLoss()
    local logits = mt.tensor { { 0, 0, 0, 0 }, { 1, 2, 3, 4 } }
    local labels = mt.tensor({ 3, 4 }, { dtype = "int64" })
    local second = math.log(math.exp(-3) + math.exp(-2) + math.exp(-1) + 1)
    near((math.log(4) + second) / 2, loss(logits, labels):item())
    near(math.log(4) + second,
         nn.CrossEntropyLoss { reduction = "sum" }(logits, labels):item(), 1e-5)
    local each = nn.CrossEntropyLoss { reduction = "none" }(logits, labels)
    assert.same({ 2 }, each:shape())
    near(math.log(4), each[1]:item())
  end)

  it("compute the mean squared error", function()
    local x, t = mt.tensor { 1, 2, 3 }, mt.tensor { 1, 4, 0 }
    near(13 / 3, nn.MSELoss()(x, t):item())
    near(13, nn.MSELoss { reduction = "sum" }(x, t):item())
    assert.same({ 0, 4, 9 }, nn.MSELoss { reduction = "none" }(x, t):totable())
  end)

  it("want a known reduction", function()
    raises("bad argument #1 to 'MSELoss' (reduction must be 'mean', 'sum' or 'none',"
           .. " got 'avg')", nn.MSELoss, { reduction = "avg" })
  end)
end)

describe("options that say yes or no", function()
  it("are booleans", function()
    raises("bad argument #2 to 'LayerNorm' (option 'affine' must be true or false, got "
      .. "string)", nn.LayerNorm, 4, { affine = "no" })
    raises("bad argument #2 to 'LayerNorm' (option 'bias' must be true or false, got "
      .. "integer)", nn.LayerNorm, 4, { bias = 3 })
    raises("bad argument #3 to 'Linear' (option 'bias' must be true or false, got "
      .. "integer)", nn.Linear, 4, 3, { bias = 0 })
    assert.is_nil(nn.LayerNorm(4, { affine = false }).weight)
  end)
end)

describe("nn.Sequential", function()
  it("chains modules, counts them, and gives them by number", function()
    local m = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    assert.equal(2, #m)
    assert.equal("ReLU", m[2].__name)
    assert.same({ 4, 3 }, m(mt.zeros(4, 2)):shape())
    assert.equal(m, m:append(nn.Linear(3, 1)))
    assert.same({ 4, 1 }, m(mt.zeros(4, 2)):shape())
    m[2] = nn.Tanh()
    assert.equal("Tanh", m[2].__name)
    assert.equal(3, #m)
  end)

  it("takes a list too, and none at all", function()
    assert.equal(2, #nn.Sequential { nn.ReLU(), nn.Tanh() })
    local x = mt.zeros(2)
    assert.equal(x, nn.Sequential()(x))
  end)

  it("wants modules", function()
    raises("bad argument #1 to 'Sequential' (module expected, got the class ReLU: "
      .. "ReLU(...) makes one)", nn.Sequential, nn.ReLU)
    raises("bad argument #1 to 'ModuleList' (a list of modules expected, got a table "
      .. "with the key a)", nn.ModuleList, { a = nn.ReLU() })
    raises("bad argument #2 to 'Sequential' (module expected, got function)",
           nn.Sequential, nn.ReLU(), print)
  end)

  it("is a chain without gaps, of modules only", function()
    local m = nn.Sequential(nn.ReLU(), nn.Tanh())
    local function set(key, value) return function() m[key] = value end end
    raises("Sequential[4]: there are 2 modules: replace one, append at [3] or remove "
      .. "[2]", set(4, nn.ReLU()))
    raises("Sequential[1]: there are 2 modules", set(1, nil))
    raises("Sequential[0]: there are 2 modules", set(0, nn.ReLU()))
    raises("Sequential[3]: module expected, got function", set(3, print))
    raises("Sequential[1]: module expected, got boolean", set(1, true))
    m[2] = nil
    assert.equal(1, #m)
    m.head = nn.Linear(2, 2) -- a child, but no link
    m.note = "x"
    assert.equal(1, #m)
    assert.equal(2, #m:parameters())
    assert.same({ 0, 3 }, m(mt.tensor { -1, 3 }):totable())
    m:append(nn.Tanh())
    assert.equal("Tanh", m[2].__name)
    assert.equal(2, #m)
  end)

  it("gives the gradient to every layer", function()
    local m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GELU(), nn.MaxPool2d(2),
                            nn.Flatten(), nn.Linear(8, 3))
    nn.CrossEntropyLoss()(m(mt.randn { 2, 1, 6, 6 }), mt.tensor { 1, 3 }):backward()
    for name, p in m:named_parameters() do
      assert.is_true(p.grad:abs():sum():item() > 0, name)
    end
  end)
end)

describe("nn.Sequential of a Conv2d, a ReLU and a MaxPool2d", function()
  -- calls of conv2d and max_pool2d that name an activation while m runs on x
  local function fused_calls(m, x)
    local conv2d, max_pool2d, seen = mt.conv2d, mt.max_pool2d, {}
    mt.conv2d = function(...)
      seen[#seen + 1] = select(8, ...) and "conv2d" or nil
      return conv2d(...)
    end
    mt.max_pool2d = function(...)
      seen[#seen + 1] = select(6, ...) and "max_pool2d" or nil
      return max_pool2d(...)
    end
    local ok, y = pcall(m, x)
    mt.conv2d, mt.max_pool2d = conv2d, max_pool2d
    assert.is_true(ok, y)
    return table.concat(seen, " "), y
  end

  it("computes in one pass what follows, with the same gradients", function()
    mt.manual_seed(6)
    local x = mt.randn(2, 3, 12, 11)
    local function compare(calls, ...)
      local modules, z = { ... }, x
      local m = nn.Sequential(modules)
      local seen, y = fused_calls(m, x)
      assert.equal(calls, seen)
      for _, module in ipairs(modules) do z = module(z) end
      assert.is_true(y:equal(z))
      local parameters = m:parameters()
      local g = mt.grad({ y:square():sum() }, parameters)
      local h = mt.grad({ z:square():sum() }, parameters)
      for i = 1, #parameters do assert.is_true(g[i]:equal(h[i]), i) end
    end
    local conv, relu, pool = nn.Conv2d(3, 4, 3, { padding = 1 }), nn.ReLU(),
      nn.MaxPool2d(3, { stride = 2, padding = 1 })
    compare("conv2d", conv, relu)
    compare("conv2d", conv, relu, nn.AvgPool2d(2))
    compare("max_pool2d", conv, relu, pool)
    compare("", conv, pool)
    compare("max_pool2d", conv, nn.Tanh(), relu, pool)
    local hook = pool:register_forward_hook(function() end)
    compare("conv2d", conv, relu, pool)
    hook.remove()
    hook = relu:register_forward_hook(function() end)
    compare("", conv, relu, pool)
    hook.remove()
    local Mine = mt.class("Mine", nn.Conv2d)
    compare("max_pool2d", Mine(3, 4, 3), relu, pool)
    compare("", Mine(3, 4, 3), relu)
  end)
end)

describe("nn.Sequential with an activation behind a Linear", function()
  -- mt.linear calls that name an activation while fn runs
  local function fused_calls(fn)
    local original, count = mt.linear, 0
    mt.linear = function(x, w, b, activation)
      if activation then count = count + 1 end
      return original(x, w, b, activation)
    end
    local results = table.pack(pcall(fn))
    mt.linear = original
    assert.is_true(results[1], results[2])
    return count, table.unpack(results, 2, results.n)
  end

  local function differ(a, b)
    return (a - b):abs():max():item() / (b:abs():max():item() + 1e-30)
  end

  it("gives the values and gradients of the two modules alone", function()
    mt.manual_seed(5)
    for _, bias in ipairs { true, false } do
      local one, two = nn.Linear(33, 20, { bias = bias }), nn.Linear(20, 3)
      local m = nn.Sequential(one, nn.ReLU(), two, nn.ReLU())
      local x = mt.randn(17, 33):requires_grad_()
      local count, y = fused_calls(function() return m(x) end)
      assert.equal(2, count)
      y:square():sum():backward()
      local grads = { x.grad }
      for _, p in ipairs(m:parameters()) do grads[#grads + 1] = p.grad end
      m:zero_grad()
      x.grad = nil
      local z = two(one(x):relu()):relu()
      z:square():sum():backward()
      assert.is_true(differ(y, z) < 1e-6)
      local want = { x.grad }
      for _, p in ipairs(m:parameters()) do want[#want + 1] = p.grad end
      assert.equal(#want, #grads)
      for i = 1, #want do assert.is_true(differ(grads[i], want[i]) < 1e-5, i) end
    end
  end)

  it("computes gelu in one pass only where nothing is recorded", function()
    local m = nn.Sequential(nn.Linear(5, 4), nn.GELU())
    local x = mt.randn(3, 5)
    local count, y = fused_calls(function() return m(x) end)
    assert.equal(0, count)
    local again, z = fused_calls(function() return mt.no_grad(m, x) end)
    assert.equal(1, again)
    assert.is_true(differ(z, y) < 1e-6)
    m = nn.Sequential(nn.Linear(5, 4), nn.GELU { approximate = "tanh" })
    assert.equal(0, (fused_calls(function() return mt.no_grad(m, x) end)))
  end)

  it("leaves both apart that have hooks, a forward of their own, or a subclass",
     function()
    local x = mt.randn(3, 5)
    local function count_of(linear, activation)
      local m = nn.Sequential(linear, activation)
      local count, y = fused_calls(function() return m(x) end)
      assert.is_true(differ(y, activation(linear(x))) < 1e-6)
      return count
    end
    local seen = 0
    local linear, relu = nn.Linear(5, 4), nn.ReLU()
    assert.equal(1, count_of(linear, relu))
    local hook = linear:register_forward_hook(function() seen = seen + 1 end)
    assert.equal(0, count_of(linear, relu))
    hook.remove()
    hook = relu:register_forward_pre_hook(function() seen = seen + 1 end)
    assert.equal(0, count_of(linear, relu))
    hook.remove()
    assert.equal(4, seen)
    assert.equal(1, count_of(linear, relu))
    relu.forward = function(_, y) return y * 2 end
    assert.equal(0, count_of(linear, relu))
    local Mine = mt.class("Mine", nn.Linear)
    assert.equal(0, count_of(Mine(5, 4), nn.ReLU()))
    local own = nn.ReLU()
    rawset(own, "forward", function(_, y) return y * 3 end)
    assert.equal(0, count_of(nn.Linear(5, 4), own))
    local call = nn.Linear.__call
    nn.Linear.__call = function(...) return call(...) * 2 end
    local apart = count_of(nn.Linear(5, 4), nn.ReLU())
    nn.Linear.__call = call
    assert.equal(0, apart)
    local Other = mt.class("Other", nn.ReLU)
    assert.equal(0, count_of(nn.Linear(5, 4), Other()))
    local forward = nn.ReLU.forward
    nn.ReLU.forward = function(_, y) return y:tanh() end
    local ok, message = pcall(count_of, nn.Linear(5, 4), nn.ReLU())
    nn.ReLU.forward = forward
    assert.is_true(ok, message)
  end)

  it("forgets nothing of a linear without activation that is changed in place",
     function()
    local w, x = mt.randn(4, 5):requires_grad_(), mt.randn(3, 5)
    local y = mt.linear(x, w)
    y:mul_(2)
    y:sum():backward()
    local z = mt.linear(x, w, nil, "relu")
    z:mul_(2)
    raises("linear", z.backward, z:sum())
  end)
end)

describe("nn.ModuleList", function()
  it("registers its modules and has no forward", function()
    local m = nn.ModuleList { nn.Linear(1, 1), nn.Linear(1, 1) }
    assert.equal(4, #m:parameters())
    local n = 0
    for i, layer in ipairs(m) do
      assert.equal(m[i], layer)
      n = n + 1
    end
    assert.equal(2, n)
    raises("ModuleList has no method 'forward'", m, 1)
  end)
end)

describe("mt.nn", function()
  it("has nil under unknown names", function()
    assert.is_nil(nn.Liner)
  end)
end)
