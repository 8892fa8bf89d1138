-- spec/fuse_spec.lua: mt.fuse, on every device: against the ops that it stands for.

local mt = require "mytensor"
local fused = require "spec.support.fused"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"
local near = fused.near

local function randn_on_gpu(...) return mt.randn(...):to("cuda") end

local fails = expect.says

for _, device in ipairs { "cpu", "cuda" } do
  local on_device = fused.on(device, _ENV)
  local function double(...) return fused.double(device, ...) end
  local function agree(...) return fused.agree(device, ...) end
  local function randn(...) return mt.randn(...):to(device) end

  describe("a fused formula", function()
    on_device("is what its ops give, with gradients", function()
      local swiglu = mt.fuse("a, b", "silu(a) * b")
      local a, b = randn(33, 70):requires_grad_(), randn(33, 70):requires_grad_()
      agree(swiglu, function(x, y) return x:silu() * y end, { a, b }, 1e-6)
    end)

    on_device("knows operators, numbers, methods, steps and several results", function()
      local f = mt.fuse("a, b", "t = (-a ^ 2 + 0.5) % 3; u = t:exp() // 2; "
        .. "t / (u + 1e1) - 2^-1, t:maximum(b):clamp(-1, pi), where(gt(a, b), a, inf)")
      agree(f, function(a, b)
        local t = (-(a ^ 2) + 0.5) % 3
        local u = t:exp() // 2
        return t / (u + 10) - 0.5, t:maximum(b):clamp(-1, math.pi),
          mt.where(a:gt(b), a, math.huge)
      end, { double(5, 17):requires_grad_(), double(17):requires_grad_() }, 1e-12)
    end)

    on_device("broadcasts, and takes any strides", function()
      local f = mt.fuse("a, b, c", "a * b + c")
      local function plain(a, b, c) return a * b + c end
      local a = double(3, 40, 50)
      for _, xs in ipairs {
        { a, double(50), double(40, 1) }, { a:transpose(2, 3), double(40), 2.5 },
        { double(50), double(3, 1, 1), a },
        { a:permute(3, 1, 2), double(1), a:permute(3, 1, 2) },
        { a:narrow(3, 3, 30), double(40, 60):narrow(2, 5, 30), double(3, 1, 30) },
        { a:select(1, 2), a:select(1, 3):t():contiguous():t(), double(1, 1) },
        { double(7):expand(2, 7), double(2, 1):expand(2, 7), -1 },
      } do
        for i, x in ipairs(xs) do
          if mt.is_tensor(x) then xs[i] = x:detach():requires_grad_() end
        end
        agree(f, plain, xs, 1e-13)
      end
    end)

    on_device("takes numbers, 0-dim tensors of the CPU, and empty tensors", function()
      local f = mt.fuse("a, b", "a * b")
      near(f(randn(5) * 0 + 3, 2), mt.full({ 5 }, 6), 0)
      near(f(2, mt.full({ 5 }, 3, { device = device })), mt.full({ 5 }, 6), 0)
      local three = mt.tensor(3.0):requires_grad_()
      local y = f(mt.full({ 5 }, 2, { device = device }), three)
      near(y, mt.full({ 5 }, 6), 0)
      y:sum():backward()
      assert.equal(10.0, three.grad:item())
      assert.equal("cpu", three.grad:device())
      assert.same({ 0, 3 }, f(randn(0, 3), randn(3)):shape())
      assert.same({}, f(randn(1):squeeze(), 2):shape())
    end)

    on_device("computes in the dtype that the ops have", function()
      local f = mt.fuse("a, b", "tanh(a) + b")
      local function plain(a, b) return a:tanh() + b end
      local tolerance = { float64 = 1e-14, float32 = 1e-6, float16 = 3e-3,
        bfloat16 = 2e-2 }
      local a, b = randn(9, 40), randn(9, 40) * 3
      for _, p in ipairs { "float64", "float32", "float16", "bfloat16", "int64",
        "uint8", "bool" } do
        for _, q in ipairs { "float32", "float16", "bfloat16", "int32" } do
          local x, y = a:abs():to(p), b:to(q)
          local z = f(x, y)
          local want = plain(x:to(z:dtype()), y) -- what is between is not rounded
          local dtype = (x + y):dtype()
          assert.equal(tolerance[dtype] and dtype or "float32", z:dtype())
          near(z, want, tolerance[z:dtype()], p .. " and " .. q)
        end
      end
      assert.equal("float16", f(a:half(), 2.5):dtype())
      assert.equal("bool", mt.fuse("a", "gt(a, 0)")(a):dtype())
      local mask = mt.fuse("m, a", "where(m, a, 0)")
      near(mask(a:gt(0), b), mt.where(a:gt(0), b, 0), 0)
    end)

    on_device("passes NaN and infinity as the ops do", function()
      local f = mt.fuse("a, b", "maximum(a, b), sign(a), relu(a), isnan(a * b)")
      local inf, nan = math.huge, 0 / 0
      local a = mt.tensor { nan, 1, inf, -inf, 0, -0.0 }:to(device)
      local b = mt.tensor { 1, nan, -inf, inf, inf, 2 }:to(device)
      local ys = { f(a, b) }
      near(ys[1], mt.maximum(a, b), 0)
      near(ys[2], a:sign(), 0)
      near(ys[3], a:relu(), 0)
      assert.is_true(ys[4]:equal((a * b):isnan()))
    end)

    on_device("has gradients of gradients", function()
      for _, text in ipairs { "silu(a) * b", "a ^ 3 / (1 + b * b)", "atan2(a, b)",
        "softplus(a) * gelu(b)", "where(gt(a, b), a * b, a - b)",
        "hypot(a, b) * erf(a)",
      } do
        local f = mt.fuse("a, b", text)
        local a, b = double(3, 4):requires_grad_(), double(4):requires_grad_()
        local function call(...) return f(...) end
        assert.is_true(mt.gradcheck(call, { a, b }), text)
        assert.is_true(mt.gradgradcheck(call, { a, b }), text)
      end
    end)
  end)

  describe("a fused reduction", function()
    local LAYER_NORM = "m = mean(x, -1, true); v = var(x, -1, 0, true); "
      .. "(x - m) * rsqrt(v + 1e-5) * w + b"

    on_device("is softmax, layer norm, and what else goes along rows", function()
      local cases = {
        { "x:exp() / x:exp():sum(-1, true) + 0 * w * b",
          function(x, w, b) return x:exp() / x:exp():sum(-1, true) + 0 * w * b end },
        { "softmax(x * w) - b", function(x, w, b) return (x * w):softmax(-1) - b end },
        { "log_softmax(x, -1) * w + b",
          function(x, w, b) return x:log_softmax(-1) * w + b end },
        { LAYER_NORM, function(x, w, b) return mt.layer_norm(x, w, b) end },
        { "(x - b):square():mean(-1) + w:sum(-1)",
          function(x, w, b) return (x - b):square():mean(-1) + w:sum(-1) end },
        { "logsumexp(x + w, -1, true) * amax(b, -1, true)", function(x, w, b)
          return (x + w):logsumexp(-1, true) * b:amax(-1, true)
        end },
        { "std(x * w, -1) - amin(x - b, -1)", function(x, w, b)
          return (x * w):std(-1) - (x - b):amin(-1)
        end },
      }
      for _, shape in ipairs { { 7, 33 }, { 2, 3, 260 }, { 3, 2100 }, { 40, 1 },
        { 2, 40000 } } do
        local n = shape[#shape]
        for _, case in ipairs(cases) do
          local f = mt.fuse("x, w, b", case[1])
          local xs = { double(shape):requires_grad_(), double { n }:requires_grad_(),
            double { n }:requires_grad_() }
          if not (n == 1 and case[1]:find "std") then
            agree(f, case[2], xs, 1e-10)
            for i, x in ipairs(xs) do xs[i] = x:detach():float():requires_grad_() end
            agree(f, case[2], xs, 2e-5)
          end
        end
      end
    end)

    on_device("takes rows that are not contiguous, and columns beside them", function()
      local f = mt.fuse("x, s", "(x * s):mean(-1, true) + x * s")
      local function plain(x, s) return (x * s):mean(-1, true) + x * s end
      local x = double(6, 5, 40)
      for _, xs in ipairs { { x:permute(3, 1, 2), double(6, 1) },
        { x:narrow(3, 2, 30), double(5, 1) }, { x:transpose(1, 3), 2 },
        { double(40):expand(5, 40), double(5, 1) },
        { double(1):expand(5, 9), double(9) },
        { double(4, 1), double(4, 1) }, { double(1):squeeze(), double(3) } } do
        for i, t in ipairs(xs) do
          if mt.is_tensor(t) then xs[i] = t:detach():requires_grad_() end
        end
        agree(f, plain, xs, 1e-12)
      end
    end)

    on_device("shares the gradient of amax among ties", function()
      local f = mt.fuse("x", "amax(x, -1)")
      local x = mt.tensor { { 1, 3, 3 }, { 2, 2, 2 } }:to(device):requires_grad_()
      f(x):sum():backward()
      near(x.grad, mt.tensor { { 0, 0.5, 0.5 }, { 1 / 3, 1 / 3, 1 / 3 } }, 1e-6)
    end)

    on_device("of rows without elements is what the ops give", function()
      local f = mt.fuse("x", "sum(x, -1), mean(x, -1)")
      local s, m = f(randn(3, 0))
      assert.same({ 0, 0, 0 }, s:totable())
      assert.is_true(m:isnan():all():item())
      fails("without elements", mt.fuse("x", "amax(x, -1)"), randn(3, 0))
      assert.same({ 0 }, mt.fuse("x", "sum(x, -1)")(randn(0, 3)):shape())
    end)

    on_device("has gradients of gradients", function()
      for _, text in ipairs { "softmax(x * w)", LAYER_NORM:gsub("b$", "w"),
        "log_softmax(x) * w", "(x - w):square():mean(-1)",
        "x / sqrt((x * x):sum(-1, true)) * w" } do
        local f = mt.fuse("x, w", text)
        local x, w = double(3, 5):requires_grad_(), double(5):requires_grad_()
        local function call(...) return f(...) end
        assert.is_true(mt.gradcheck(call, { x, w }), text)
        assert.is_true(mt.gradgradcheck(call, { x, w }), text)
      end
    end)
  end)
end

describe("mt.fuse", function()
  it("traces a function", function()
    local f = mt.fuse(function(x, w)
      local y = x * w
      for _ = 1, 2 do y = mt.silu(y) + 1 end
      return mt.where(mt.gt(y, 0), y, -x):softmax(-1),
        y:sum { dim = -1, keepdim = true },
        mt.maximum(0, x):clamp { hi = 2 }
    end)
    local x, w = mt.randn(3, 5), mt.randn(5)
    local a, b, c = f(x, w)
    local y = ((x * w):silu() + 1):silu() + 1
    near(a, mt.where(y:gt(0), y, -x):softmax(-1), 1e-6)
    near(b, y:sum(-1, true), 1e-6)
    near(c, x:relu():clamp { hi = 2 }, 1e-6)
    assert.equal("x, w", f.inputs)
    assert.truthy(f.formula:find("softmax", 1, true))
  end)

  it("traces the forms that operators have", function()
    local f = mt.fuse(function(x, w)
      return x:add(w, 2), mt.sub(x, w, { alpha = 0.5 }), x:div(w, "trunc"),
        x:div(w, { rounding_mode = "floor" }), x:max(w), mt.min(x, w),
        x:clamp(w), x:clamp { min = w, max = 0.5 }, x:clamp { min = 0 },
        x:mean { axis = -1, keepdims = true }
    end)
    local x, w = mt.randn(3, 5):mul(4), mt.randn(5)
    w[2], x[{ 2, 2 }] = 0 / 0, 0 / 0
    local got = { f(x, w) }
    for i, want in ipairs { x:add(w, 2), x:sub(w, 0.5), x:div(w, "trunc"),
      x:div(w, "floor"), x:max(w), x:min(w), x:clamp(w), x:clamp(w, 0.5),
      x:clamp_min(0), x:mean(-1, true) } do
      assert.is_true(got[i]:allclose(want, 1e-6, 1e-6, true), i)
    end
  end)

  it("says what a traced function cannot do", function()
    local t = mt.ones(2)
    local cases = {
      { "'<': values are not known", function(x) return x > 0 and x or -x end },
      { "'==': values are not known", function(x) return x == -x and x or -x end },
      { "'matmul' is neither elementwise nor a reduction", function(x)
        return x:matmul(x)
      end },
      { "'exp_' works in place", function(x) return x:exp_() end },
      { "a tensor that is no argument", function(x) return x + t end },
      { "a tensor that is no argument", function(x) return mt.add(t, x) end },
      { "cannot be indexed", function(x) return x[1] end },
      { "'&' is of integers", function(x) return x & 1 end },
      { "result 1 of the function is a number", function() return 1 end },
      { "returned nothing", function(_) end },
      { "'sum' reduces the last dim only", function(x) return x:sum(1) end },
      { "unknown option 'low'", function(x) return x:clamp { low = 1 } end },
      { "unknown option 'beta'", function(x) return x:add(x, { beta = 1 }) end },
      { "a string among the arguments", function(x) return x + {} .. "a" end },
    }
    cases[#cases] = { "a table among the arguments", function(x) return x + {} end }
    cases[9][2] = function(x) return 1, x end
    for _, case in ipairs(cases) do fails(case[1], mt.fuse, case[2]) end
    fails("the function takes no arguments", mt.fuse, function() return 1 end)
    fails("the function must not take ...", mt.fuse, function(...) return ... end)
    local escaped
    mt.fuse(function(x) escaped = x return x + 1 end)
    fails("outlived the traced function", function() return escaped + 1 end)
  end)

  it("reads numbers as Lua does", function()
    local x = mt.randn(5, { dtype = "float64" })
    local f = mt.fuse("a", "a*.5 + 5. - 0x1F + 1e-3 + .25E+1 + 0xA.8p-1 + num(.5)")
    near(f(x), x * .5 + 5. - 0x1F + 1e-3 + .25E+1 + 0xA.8p-1 + .5, 1e-14)
    near(mt.fuse("a", "a + 3.:exp()")(x), x + math.exp(3.), 1e-14)
    for _, text in ipairs { ".", "1..2", "0x", "1e", "0x1p", "5.e", ".5.5", "0x1.8.1",
      "1e999", "9007199254740994", "0x20000000000002", "3e+", "0xg", ".x" } do
      assert.is_false(pcall(mt.fuse, "a", "a + " .. text), text)
    end
  end)

  it("says where a formula is wrong, and what may have been meant", function()
    local cases = {
      { "operand expected at its end", "a +" },
      { "unknown name 'alpha'", "alpha * b" },
      { "unknown function 'sliu' (did you mean 'silu'?) at position 5", "a + sliu(b)" },
      { "'silu' takes 1 argument, got 2 at position 1", "silu(a, b)" },
      { "'clamp' takes 1 to 3 arguments, got 4", "clamp(a, 1, 2, 3)" },
      { "'slope' of 'leaky_relu' must be a number at position 15", "leaky_relu(a, b)" },
      { "'where' takes 3 arguments", "where(a, b)" },
      { "'bitwise_not' is of integers", "bitwise_not(a)" },
      { "'conv2d' is neither elementwise", "conv2d(a, b)" },
      { "'sum' reduces the last dim only: sum(x, -1) at position 1", "sum(a)" },
      { "'mean' reduces the last dim only", "mean(a, 1)" },
      { "keepdim must be true or false", "mean(a, -1, 1)" },
      { "reduce with keepdim", "a - mean(a, -1)" },
      { "'sum' of what was reduced already", "sum(sum(a, -1, true), -1)" },
      { "'sum' of a number", "sum(2, -1)" },
      { "depends on no argument", "1 + pi" },
      { "';' expected", "t = a, t" },
      { "name of a method expected", "a:(b)" },
      { "'num' is no method", "a:num(2)" },
      { "operator expected", "a b" },
      { "malformed", "1.5x * a" },
      { "nested too deeply", ("("):rep(200) .. "a" .. (")"):rep(200) },
      { "longer than 65536 bytes", "a" .. (" "):rep(70000) },
      { "holds a byte 0", "a\0" },
      { "more results than 16", ("a, "):rep(16) .. "a" },
    }
    for _, case in ipairs(cases) do fails("fuse: ", mt.fuse, "a, b", case[2]) end
    for _, case in ipairs(cases) do fails(case[1], mt.fuse, "a, b", case[2]) end
    fails("names expected", mt.fuse, "a b", "a")
    fails("names expected", mt.fuse, "", "a")
    fails("two arguments are named 'a'", mt.fuse, "a, a", "a")
    fails("more than 16 arguments", mt.fuse,
      "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "a")
    fails("formula expected, got nil", mt.fuse, "a")
    fails("a function, or names of arguments expected", mt.fuse, 5)
    fails("unknown option 'nam'", mt.fuse, "a", "a", { nam = "x" })
  end)

  it("says what is wrong with a call, under its name", function()
    local f = mt.fuse("a, b", "a * b", { name = "product" })
    fails("product: 2 arguments expected (a, b), got 1", f, mt.ones(2))
    fails("product: tensor or number expected for 'b', got string", f, mt.ones(2), "x")
    fails("product: one of the arguments must be a tensor", f, 1, 2)
    fails("product: argument 'b': shapes [2] and [3] do not broadcast", f, mt.ones(2),
      mt.ones(3))
    local freed = mt.ones(2)
    freed:free()
    fails("product: tensor or number expected for 'a', got freed tensor", f, freed, 1)
    local x = mt.ones(2):requires_grad_()
    local h = x * 2
    local y = f(h, h)
    h:add_(1)
    fails("product", function() y:sum():backward() end)
  end)

  it("is an object that shows what it does", function()
    local f = mt.fuse("a, b", "silu(a) * b", { name = "swiglu" })
    assert.equal("swiglu(a, b): silu(a) * b", tostring(f))
    assert.equal("silu(a) * b", f.formula)
    assert.equal("a, b", f.inputs)
    assert.equal("swiglu", f.name)
    assert.is_nil(f.other)
    assert.truthy(f:source():find("__global__", 1, true))
  end)

  it("records nothing under no_grad, and once-used graphs end", function()
    local f = mt.fuse("a", "a * a")
    local x = mt.ones(3):requires_grad_()
    mt.no_grad(function() assert.is_false(f(x).requires_grad) end)
    local y = f(x):sum()
    y:backward()
    assert.same({ 2, 2, 2 }, x.grad:totable())
    y = f(x)
    y:sum():backward()
    fails("fuse: the graph was released", function() y:sum():backward() end)
  end)

  it("saves only what its gradient needs", function()
    local x = mt.ones(3):requires_grad_()
    local h = x * 1
    local y = mt.fuse("a, b", "a + b")(h, 2)
    h:add_(1) -- not saved, so that it may change
    y:sum():backward()
    assert.same({ 1, 1, 1 }, x.grad:totable())
  end)

  it("computes the same on one thread and on two", function()
    local threads = mt.get_num_threads()
    local f = mt.fuse("x, w", "e = gelu(x * w); e, softmax(e)")
    local x, w = mt.randn(300, 1003), mt.randn(1003)
    mt.set_num_threads(1)
    local a, b = f(x, w)
    mt.set_num_threads(2)
    local c, d = f(x, w)
    mt.set_num_threads(threads)
    assert.is_true(a:equal(c))
    assert.is_true(b:equal(d))
  end)

  it("writes results that are larger than the caches", function()
    local f = mt.fuse("a, b", "a * 2 + b")
    local n = (33 << 20) // 4 + 13
    local a, b = mt.rand(n), mt.rand(n)
    assert.is_true(f(a, b):equal(a * 2 + b))
  end)

  it("works inside a captured graph, with its gradient", function()
    if not devices.cuda then return devices.without_cuda(pending) end
    local f = mt.fuse("x", "silu(x) * softmax(x)")
    local x = randn_on_gpu(64, 256):requires_grad_()
    local step <close> = mt.cuda.graph(function(scale)
      local y = f(x * scale)
      return y, mt.grad({ y:sum() }, { x })[1]
    end)
    for _, scale in ipairs { 1.5, -0.25, 0.75 } do -- called, captured, replayed
      local s = mt.tensor(scale, { device = "cuda" })
      local y, dx = step(s)
      local z = (x * s):silu() * (x * s):softmax(-1)
      near(y, z, 1e-5)
      near(dx, mt.grad({ z:sum() }, { x })[1], 1e-5)
    end
  end)

  it("leaves nothing behind", function()
    collectgarbage()
    collectgarbage()
    local before = mt.memory_stats().live_tensors
    do
      local f = mt.fuse("x, w", "softmax(x * w)")
      local x, w = mt.randn(4, 5):requires_grad_(), mt.randn(5):requires_grad_()
      for _ = 1, 3 do
        local y = f(x, w)
        local dx = mt.grad({ y:square():sum() }, { x, w }, { create_graph = true })
        local dd = mt.grad({ dx[1]:square():sum() }, { w })
        assert.same({ 5 }, dd[1]:shape())
      end
    end
    collectgarbage()
    collectgarbage()
    assert.equal(before, mt.memory_stats().live_tensors)
  end)
end)
