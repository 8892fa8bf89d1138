-- spec/autograd_spec.lua: recording, backward, and what can go wrong between them.

local mt = require "mytensor"
local tensors = require "spec.support.tensors"
local expect = require "spec.support.expect"

local function leaf(values, dtype)
  return mt.tensor(values, { dtype = dtype, requires_grad = true })
end

local message = expect.message

describe("backward", function()
  it("fills grad of the leaves", function()
    local x, w = leaf { 1, 2 }, leaf { 3, 4 };
    (x * w):sum():backward()
    assert.same({ 3, 4 }, x.grad:totable())
    assert.same({ 1, 2 }, w.grad:totable())
    assert.is_false(x.grad.requires_grad)
  end)

  it("adds to the gradient that is there", function()
    local x = leaf { 1, 2 };
    (x * 3):sum():backward();
    (x * 4):sum():backward()
    assert.same({ 7, 7 }, x.grad:totable())
    x.grad = nil
    assert.is_nil(x.grad);
    (x * 5):sum():backward()
    assert.same({ 5, 5 }, x.grad:totable())
  end)

  it("does not add into a gradient that it was given", function()
    local x, g = leaf { 1 }, mt.ones(1)
    x:view(1):backward(g)
    x:view(1):backward(g)
    assert.equal(2, x.grad:item())
    assert.equal(1, g:item())
  end)

  it("adds up over every path, also diamonds and a tensor used twice", function()
    local x = leaf { 3 }
    local a = x * 2
    local b = a * a + a;
    (b + x):backward()
    -- d(4x^2 + 2x + x) = 8x + 3
    assert.equal(27, x.grad:item())
  end)

  it("takes the output's gradient, which a tensor of many elements needs", function()
    local x = leaf { 1, 2 };
    (x * x):backward(mt.tensor { 1, 10 })
    assert.same({ 2, 40 }, x.grad:totable())
    local err = message(function() (x * x):backward() end)
    assert.truthy(err:find("[2]", 1, true) or err:find "one element", err)
    err = message(function() (x * x):backward(mt.ones(3)) end)
    assert.truthy(err:find("[3]", 1, true) and err:find("[2]", 1, true), err)
  end)

  it("runs once, unless retain_graph", function()
    local x = leaf { 2 }
    local y = (x * x):sum()
    y:backward(nil, { retain_graph = true })
    y:backward()
    assert.equal(8, x.grad:item())
    local err = message(y.backward, y)
    assert.truthy(err:find "retain_graph", err)
  end)

  it("needs something that was recorded", function()
    local err = message(function() mt.ones(1):backward() end)
    assert.truthy(err:find "requires_grad" or err:find "grad", err)
  end)

  it("leaves grad of what is no leaf alone, unless retain_grad", function()
    local x = leaf { 1, 2 }
    local a, b = x * 2, x * 3
    b:retain_grad();
    (a * b):sum():backward()
    assert.is_nil(a.grad)
    assert.same({ 2, 4 }, b.grad:totable())
  end)

  it("frees the graph", function()
    local x = leaf { 1, 2, 3 }
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    do
      local y = x
      for _ = 1, 50 do y = y:mul(1.01):sigmoid() end
      y:sum():backward()
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before + 1, mt.memory_stats().live_tensors) -- x.grad
  end)

  it("walks a chain of 100,000 ops, and frees it, on small stacks", function()
    local x = leaf { 1 }
    local length = os.getenv "MYTENSOR_GC_STRESS" == "1" and 5000 or 100000
    do
      local y = x
      for _ = 1, length do y = y + 1 end
      y:backward()
      assert.equal(1, x.grad:item())
    end
    do
      local z = x
      for _ = 1, length do z = z * 1 end
      assert.is_true(z.requires_grad)
    end
    collectgarbage()
    collectgarbage()
  end)

  it("is the sum over what was broadcast", function()
    local a, b = leaf { { 1 }, { 2 } }, leaf { 1, 2, 3 };
    (a * b):sum():backward()
    assert.same({ { 6 }, { 6 } }, a.grad:totable())
    assert.same({ 3, 3, 3 }, b.grad:totable())
  end)

  it("goes through in-place ops and views of them", function()
    local x = leaf { 1, 2, 3, 4 }
    local y = x * 2
    y:narrow(1, 1, 2):mul_(10)
    y:mul_(y:detach())
    y:sum():backward()
    -- y = {20x, 20x, 2x, 2x} times its own values
    assert.same({ 400, 800, 12, 16 }, x.grad:totable())
  end)

  it("passes relu and elu where the input is NaN, as PyTorch does", function()
    for _, op in ipairs { "relu", "elu" } do
      local x = mt.tensor { 0 / 0, -1, 2 }:requires_grad_()
      x[op](x):backward(mt.tensor { 3, 3, 3 })
      assert.equal(3, x.grad[1]:item(), op)
      assert.equal(3, x.grad[3]:item(), op)
    end
  end)

  it("carries nothing into integer tensors", function()
    local x = leaf { 1.5, 2.5 }
    local i = x:to "int64"
    assert.is_false(i.requires_grad)
    local err = message(function() i:requires_grad_() end)
    assert.truthy(err:find("int64", 1, true), err)
  end)
end)

describe("mt.grad", function()
  it("gives gradients without touching grad", function()
    local x, w = leaf { 1, 2 }, leaf { 3, 4 }
    local g = mt.grad({ (x * w):sum() }, { x, w })
    assert.same({ 3, 4 }, g[1]:totable())
    assert.same({ 1, 2 }, g[2]:totable())
    assert.is_nil(x.grad)
  end)

  it("takes inner tensors as inputs", function()
    local x = leaf { 2 }
    local a = x * 3
    local g = mt.grad({ a * a }, { a })
    assert.equal(12, g[1]:item())
  end)

  it("takes several outputs and their gradients", function()
    local x = leaf { 1, 2 }
    local g = mt.grad({ x * 2, x:sum() }, { x },
      { grad_outputs = { mt.tensor { 1, 10 }, mt.tensor(100) } })
    assert.same({ 102, 120 }, g[1]:totable())
  end)

  it("names an unused input, or gives nil for it with allow_unused", function()
    local x, z = leaf { 1 }, leaf { 1 }
    local err = message(mt.grad, { x * 2 }, { x, z })
    assert.truthy(err:find "allow_unused", err)
    local g = mt.grad({ x * 2 }, { x, z }, { allow_unused = true })
    assert.equal(2, g[1]:item())
    assert.is_nil(g[2])
  end)

  it("differentiates again with create_graph", function()
    local x = leaf({ 2 }, "float64")
    local y = x ^ 4
    local g1 = mt.grad({ y }, { x }, { create_graph = true })[1]
    local g2 = mt.grad({ g1 }, { x }, { create_graph = true })[1]
    local g3 = mt.grad({ g2 }, { x })[1]
    assert.equal(32, g1:item())
    assert.equal(48, g2:item())
    assert.equal(48, g3:item())
  end)

  it("computes with numbers in float64 then, too", function()
    local x = leaf({ 1.7 }, "float64")
    local function both(y)
      local one = mt.grad({ y }, { x }, { retain_graph = true })[1]:item()
      assert.equal(one, mt.grad({ y }, { x }, { create_graph = true })[1]:item())
    end
    both(x:lerp(2.5, 0.3)) -- dx = g * (1 - 0.3)
    both(x:atan2(-0.568))
    both(mt.pow(0.3, x)) -- dx = g * y * log(0.3)
    local single = leaf { 1.7 }
    local g = mt.grad({ single:lerp(2.5, 0.3) }, { single }, { create_graph = true })
    assert.equal("float32", g[1]:dtype())
  end)

  it("knows its options only", function()
    local x = leaf { 1 }
    local err = message(mt.grad, { x * 2 }, { x }, { create_grph = true })
    assert.truthy(err:find("create_grph", 1, true), err)
  end)
end)

describe("no_grad", function()
  it("records nothing inside", function()
    local x = leaf { 1, 2 }
    local y = mt.no_grad(function(a) return a * 2 end, x)
    assert.is_false(y.requires_grad)
    assert.is_true((x * 2).requires_grad)
    assert.is_true(mt.is_grad_enabled())
  end)

  it("gives all results, and ends with an error too", function()
    local a, b, c = mt.no_grad(function(...) return ... end, 1, nil, "z")
    assert.equal(1, a)
    assert.is_nil(b)
    assert.equal("z", c)
    assert.truthy(message(mt.no_grad, function() error "inside" end):find "inside")
    assert.is_true(mt.is_grad_enabled())
  end)

  it("belongs to its coroutine: a yield takes it along and brings it back", function()
    local x = leaf { 1 }
    local co = coroutine.wrap(function()
      mt.no_grad(function()
        coroutine.yield(mt.is_grad_enabled(), (x * 2).requires_grad)
        coroutine.yield(mt.is_grad_enabled(), (x * 2).requires_grad)
      end)
      coroutine.yield(mt.is_grad_enabled(), (x * 2).requires_grad)
    end)
    for _, want in ipairs { false, false, true } do
      local enabled, recorded = co()
      assert.equal(want, enabled)
      assert.equal(want, recorded)
      assert.is_true(mt.is_grad_enabled())
      assert.is_true((x * 2).requires_grad)
    end
  end)

  it("ends when its coroutine dies", function()
    local co = coroutine.create(function()
      mt.no_grad(function() coroutine.yield() end)
    end)
    coroutine.resume(co)
    coroutine.close(co)
    assert.is_true(mt.is_grad_enabled())
    co = coroutine.create(function() mt.no_grad(function() error "x" end) end)
    coroutine.resume(co)
    assert.is_true(mt.is_grad_enabled())
    co = coroutine.create(function() -- where it cannot yield
      table.sort({ 1, 2 }, function() mt.no_grad(function() error "x" end) end)
    end)
    coroutine.resume(co)
    assert.is_true(mt.is_grad_enabled())
  end)

  it("closes what a suspended function left open, wherever that is asked", function()
    local closed = false
    local co = coroutine.create(function()
      mt.no_grad(function()
        local _ <close> = setmetatable({}, { __close = function() closed = true end })
        coroutine.yield()
      end)
    end)
    coroutine.resume(co)
    mt.no_grad(function()
      coroutine.close(co)
      assert.is_false(mt.is_grad_enabled())
    end)
    assert.is_true(closed)
    assert.is_true(mt.is_grad_enabled())
  end)

  it("lets leaves be changed in place", function()
    local x = leaf { 1, 2 }
    mt.no_grad(function() x:mul_(2) end)
    assert.same({ 2, 4 }, x:totable())
    assert.is_true(x.requires_grad)
    local err = message(x.mul_, x, 2)
    assert.truthy(err:find "leaf", err)
  end)
end)

describe("a tensor changed in place", function()
  it("that a rule still needs is an error that names the op", function()
    for name, case in pairs {
      mul = function(a, b) return a * b end,
      exp = function(a) return a:exp(), true end,
      matmul = function(a, b) return a:view(1, 2):matmul(b:view(2, 1)) end,
      pow = function(a, b) return a ^ b end,
    } do
      local x, w = leaf { 1, 2 }, leaf { 3, 4 }
      local a, b = x * 1, w * 1
      local y, of_result = case(a, b)
      if of_result then y:add_(1) else a:add_(1) end
      local err = message(function() y:sum():backward() end)
      assert.truthy(err:find(name, 1, true), name .. ": " .. err)
      assert.truthy(err:find "in place" or err:find "in%-place", err)
    end
  end)

  it("through a view counts as well", function()
    local x = leaf { 1, 2 }
    local a = x * 1
    local y = a * a
    a:narrow(1, 1, 1):zero_()
    message(function() y:sum():backward() end)
  end)

  it("that no rule needs is fine", function()
    local x = leaf { 1, 2 }
    local a = x * 1
    local y = a + 1
    a:zero_()
    y:sum():backward()
    assert.same({ 1, 1 }, x.grad:totable())
  end)
end)

describe("requires_grad", function()
  it("is read and set as a property or by requires_grad_", function()
    local x = mt.ones(2)
    assert.is_false(x.requires_grad)
    x.requires_grad = true
    assert.is_true(x.requires_grad)
    x:requires_grad_(false)
    assert.is_false(x.requires_grad)
    assert.is_true(rawequal(x, x:requires_grad_()))
    assert.is_true(x:is_leaf())
    local y = x * 2
    assert.is_false(y:is_leaf())
    message(function() y.requires_grad = false end)
  end)

  it("ends at detach_ for the tensor itself, but not for a view", function()
    local x = leaf { 1, 2 }
    local y = x * 2
    assert.equal("mul", y:grad_name())
    assert.is_true(rawequal(y, y:detach_()))
    assert.is_nil(y:grad_name())
    assert.is_false(y.requires_grad)
    local err = message(function() (x * 2):narrow(1, 1, 1):detach_() end)
    assert.truthy(err:find "view", err)
  end)

  it("ends at detach, which shares memory", function()
    local x = leaf { 1, 2 }
    local d = (x * 2):detach()
    assert.is_false(d.requires_grad)
    local e = x:detach()
    mt.no_grad(function() e:fill_(9) end)
    assert.same({ 9, 9 }, x:totable())
  end)

  it("grad takes tensors of the same shape and dtype only", function()
    local x = leaf { 1, 2 }
    x.grad = mt.tensor { 5, 6 }
    assert.same({ 5, 6 }, x.grad:totable())
    local err = message(function() x.grad = mt.ones(3) end)
    assert.truthy(err:find("[3]", 1, true), err)
    message(function() x.grad = mt.ones({ 2 }, { dtype = "float64" }) end)
    message(function() x.grad = 5 end)
  end)
end)

describe("a hook", function()
  it("sees the gradient and may replace it", function()
    local x = leaf { 1, 2 }
    local y = x * 2
    local seen
    y:register_hook(function(g)
      seen = g:totable()
      return g * 10
    end)
    y:sum():backward()
    assert.same({ 1, 1 }, seen)
    assert.same({ 20, 20 }, x.grad:totable())
  end)

  it("can be removed", function()
    local x, calls = leaf { 1 }, 0
    local hook = x:register_hook(function() calls = calls + 1 end);
    (x * 2):backward()
    x:remove_hook(hook);
    (x * 2):backward()
    assert.equal(1, calls)
  end)

  it("passes its error on, and leaves the library usable", function()
    local x = leaf { 1 }
    local y = x * 2
    y:register_hook(function() error("in the hook", 0) end)
    assert.truthy(message(y.backward, y):find "in the hook")
    local thrown = {}
    local z = x * 2
    z:register_hook(function() error(thrown) end)
    local _, err = pcall(z.backward, z)
    assert.is_true(rawequal(thrown, err));
    (x * 3):backward()
    assert.equal(3, x.grad:item())
  end)

  it("runs once, with the whole gradient, also where its leaf is gone", function()
    local seen = {}
    local function made()
      local x = leaf { 1 }
      x:register_hook(function(g) seen[#seen + 1] = g:item() end)
      return x * 2 + x * 3
    end
    local y = made()
    collectgarbage()
    collectgarbage()
    y:backward()
    assert.same({ 5 }, seen)
  end)

  it("can be removed by its handle", function()
    local x, calls = leaf { 1 }, 0
    local hook = x:register_hook(function() calls = calls + 1 end)
    hook:remove()
    hook:remove();
    (x * 2):backward()
    assert.equal(0, calls)
  end)

  it("may call backward of another graph", function()
    local x, w = leaf { 1 }, leaf { 1 }
    local y = x * 2
    y:register_hook(function() (w * 5):backward() end)
    y:backward()
    assert.equal(5, w.grad:item())
    assert.equal(2, x.grad:item())
  end)
end)

describe("detect_anomaly", function()
  it("names the op whose gradient is NaN", function()
    local x = leaf { 0, 1 }
    local err = message(mt.detect_anomaly, function()
      local y = x:sqrt() * 0
      y:sum():backward()
    end)
    assert.truthy(err:find "sqrt", err)
    assert.truthy(err:find "NaN" or err:find "nan", err)
  end)

  it("gives results through where nothing is wrong", function()
    assert.equal(5, mt.detect_anomaly(function() return 5 end))
  end)
end)

describe("gradcheck", function()
  it("accepts right gradients and refuses wrong ones", function()
    local x = leaf({ 0.5, 1.5 }, "float64")
    assert.is_true(mt.gradcheck(function(a) return a:exp() * a end, { x }))
    local Wrong = mt.Function("Wrong", {
      forward = function(ctx, a)
        ctx:save(a)
        return a * a
      end,
      backward = function(ctx, g) return ctx:saved() * g end,
    })
    assert.is_false((mt.gradcheck(function(a) return Wrong(a) end, { x },
      { raise = false })))
    assert.is_false((pcall(mt.gradcheck, function(a) return Wrong(a) end, { x })))
  end)
end)

describe("gradients", function()
  it("agree over many threads, and with a graph made in pieces", function()
    mt.manual_seed(3)
    local x = mt.randn(64, 32, { requires_grad = true })
    local w = mt.randn(32, 16, { requires_grad = true })
    local function loss() return x:matmul(w):tanh():square():mean() end
    local a = mt.grad({ loss() }, { x, w })
    local threads = mt.get_num_threads()
    mt.set_num_threads(1)
    local b = mt.grad({ loss() }, { x, w })
    mt.set_num_threads(threads)
    for i = 1, 2 do
      assert.is_nil(tensors.differ(a[i], b[i], { atol = 1e-7, rtol = 1e-5 }))
    end
  end)
end)
