-- spec/inplace_spec.lua: forms that write into their first argument.

local mt = require "mytensor"
local expect = require "spec.support.expect"

local message = expect.message

describe("copy_", function()
  it("broadcasts and converts, and gives the tensor", function()
    local x = mt.zeros(2, 3)
    assert.is_true(rawequal(x, x:copy_(mt.tensor({ 1, 2, 3 }, { dtype = "int64" }))))
    assert.same({ { 1, 2, 3 }, { 1, 2, 3 } }, x:totable())
    x:transpose(1, 2):copy_(mt.arange(1, 7):view(3, 2))
    assert.same({ { 1, 3, 5 }, { 2, 4, 6 } }, x:totable())
    local i = mt.zeros({ 2 }, { dtype = "uint8" })
    i:copy_(mt.tensor { -3.7, 300 })
    assert.same({ 0, 255 }, i:totable())
  end)

  it("copes with overlap", function()
    local x = mt.arange(1, 7):clone()
    x:narrow(1, 2, 5):copy_(x:narrow(1, 1, 5))
    assert.same({ 1, 1, 2, 3, 4, 5 }, x:totable())
    local m = mt.arange(1, 10):view(3, 3):clone()
    m:copy_(m:transpose(1, 2))
    assert.same({ { 1, 4, 7 }, { 2, 5, 8 }, { 3, 6, 9 } }, m:totable())
  end)

  it("is recorded", function()
    local src = mt.ones({ 3 }, { requires_grad = true })
    local x = mt.zeros(2, 3)
    x:copy_(src)
    x:sum():backward()
    assert.same({ 2, 2, 2 }, src.grad:totable())
  end)

  it("names shapes that do not fit", function()
    local err = message(mt.zeros(2).copy_, mt.zeros(2), mt.zeros(3))
    assert.truthy(err:find("[3]", 1, true) and err:find("[2]", 1, true), err)
  end)
end)

describe("fill_ and zero_", function()
  it("set every element", function()
    local x = mt.zeros(2, 3)
    assert.is_true(rawequal(x, x:fill_(2.5)))
    assert.equal(15, x:sum():item())
    x:transpose(1, 2):narrow(1, 1, 1):zero_()
    assert.same({ { 0, 2.5, 2.5 }, { 0, 2.5, 2.5 } }, x:totable())
    local flags = mt.zeros({ 2 }, { dtype = "bool" }):fill_(true)
    assert.same({ true, true }, flags:totable())
  end)
end)

describe("an op with _", function()
  it("gives what the op without it gives, in the same memory", function()
    local x = mt.tensor { 1, 4, 9 }
    local view = x:narrow(1, 2, 2)
    view:sqrt_()
    assert.same({ 1, 2, 3 }, x:totable())
    x:add_(1):mul_(2):clamp_(5, 7)
    assert.same({ 5, 6, 7 }, x:totable())
  end)

  it("does not change shape or dtype", function()
    local x = mt.zeros(2)
    local err = message(x.add_, x, mt.zeros(3, 2))
    assert.truthy(err:find("[3, 2]", 1, true) or err:find("[2]", 1, true), err)
    local i = mt.ones({ 2 }, { dtype = "int64" })
    err = message(i.add_, i, 1.5)
    assert.truthy(err:find("int64", 1, true), err)
    message(i.div_, i, 2)
    message(i.exp_, i)
    assert.same({ 1, 1 }, i:totable())
  end)

  it("works on views whose strides are close, if no two elements meet", function()
    local x = mt.zeros(4, 5)
    local v = x:unfold(1, 3, 1):diagonal(0, 1, 2)
    assert.same({ 5, 6 }, v:stride())
    v:add_(mt.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } })
    assert.same({ { 1, 0, 0, 0, 0 }, { 3, 2, 0, 0, 0 }, { 5, 4, 0, 0, 0 },
      { 0, 6, 0, 0, 0 } }, x:totable())
  end)

  it("refuses exactly those views of which two elements meet", function()
    local seed = os.time()
    math.randomseed(seed)
    local met, apart = 0, 0
    for _ = 1, 300 do
      local x = mt.arange(math.random(4, 40), { dtype = "int64" })
      if math.random(2) == 1 then x = x:narrow(1, 1, #x // 4 * 4):view(-1, 4) end
      for _ = 1, math.random(3) do
        local dim = math.random(x:dim())
        if x:dim() > 1 and math.random(3) == 1 then
          x = x:diagonal(0, 1, 2)
        elseif x:dim() < 4 and x:size(dim) > 0 then
          x = x:unfold(dim, math.random(x:size(dim)), math.random(4))
        end
      end
      local seen, twice = {}, false
      for _, v in ipairs(x:reshape(-1):totable()) do
        twice, seen[v] = twice or seen[v] ~= nil, true
      end
      local ok = pcall(x.add_, x, 0)
      assert.equal(not twice, ok, ("seed %d: shape %s, strides %s"):format(seed,
        table.concat(x:shape(), " "), table.concat(x:stride(), " ")))
      if twice then met = met + 1 else apart = apart + 1 end
    end
    assert.is_true(met > 20 and apart > 20, met .. " " .. apart)
  end)

  it("works when an argument is the tensor itself", function()
    local x = mt.tensor { 1, 2, 3 }
    x:mul_(x)
    assert.same({ 1, 4, 9 }, x:totable())
    x:add_(x:narrow(1, 1, 1))
    assert.same({ 2, 5, 10 }, x:totable())
    local m = mt.arange(1, 5):view(2, 2):clone()
    m:add_(m:transpose(1, 2))
    assert.same({ { 2, 5 }, { 5, 8 } }, m:totable())
  end)

  it("works where the result is written over a shifted view of the argument", function()
    local x = mt.arange(1, 7):clone()
    x:narrow(1, 2, 5):add_(x:narrow(1, 1, 5))
    assert.same({ 1, 3, 5, 7, 9, 11 }, x:totable())
  end)
end)

describe("a view in place", function()
  it("is x itself in another shape, over the same elements", function()
    local x = mt.arange(6):view(2, 3)
    local row = x[2]
    assert.is_true(rawequal(x, x:transpose_(1, 2)))
    assert.same({ { 0, 3 }, { 1, 4 }, { 2, 5 } }, x:totable())
    x:unsqueeze_ { 1, -1 }
    assert.same({ 1, 3, 2, 1 }, x:shape())
    x:mul_(10)
    assert.same({ 30, 40, 50 }, row:totable())
    x:squeeze_():t_()
    assert.same({ { 0, 10, 20 }, { 30, 40, 50 } }, x:totable())
    assert.same({ 4, 3, 2 }, mt.zeros(2, 3, 4):swapaxes_(1, 3):shape())
    assert.same({ 3, 2, 4 }, mt.zeros(2, 3, 4):swapdims_(1, 2):shape())
    assert.same({ 3 }, mt.zeros(3):t_():shape())
  end)

  -- the same with views that are tensors of their own
  local function by_views(x, w)
    local y = x * 2
    local v = y[2]
    v:mul_(w)
    return (y:transpose(1, 2):unsqueeze(1):square() * w:view(3, 1)):sum()
  end

  it("is recorded, with the base's other views and what is written by them", function()
    local w = mt.tensor { 1, 2, 3 }
    local function in_place(x)
      local y = x * 2
      local v = y[2]
      y:transpose_(1, 2)
      v:mul_(w) -- the base has changed its shape meanwhile
      y:unsqueeze_(1):square_()
      return (y * w:view(3, 1)):sum()
    end
    local x = mt.randn({ 2, 3 }, { dtype = "float64" })
    local value, expected = in_place(x), by_views(x, w)
    assert.equal(expected:item(), value:item())
    x:requires_grad_()
    local a = mt.grad(in_place(x), x)[1]
    local b = mt.grad(by_views(x, w), x)[1]
    assert.is_true(a:allclose(b))
    assert.is_true(mt.gradcheck(in_place, { x }))
    assert.is_true(mt.gradgradcheck(in_place, { x }))
  end)

  it("leaves what was recorded before as it was", function()
    local x = mt.randn({ 2, 3 }, { requires_grad = true })
    local y = x * 1
    local z = (y * y):sum() -- keeps y
    y:t_()
    local t = (y * mt.arange(3):view(3, 1)):sum()
    assert.is_true(mt.grad(z, x, { retain_graph = true })[1]:allclose(2 * x:detach()))
    assert.same({ { 0, 1, 2 }, { 0, 1, 2 } }, mt.grad(t, x)[1]:totable())
  end)

  it("of a view whose base is written to later, too", function()
    local x = mt.ones({ 2, 3 }, { requires_grad = true })
    local y = x * 1
    local v = y:narrow(2, 1, 2)
    v:t_()
    y:mul_(mt.tensor { { 1, 2, 3 }, { 4, 5, 6 } })
    ;(v * mt.tensor { { 1, 10 }, { 100, 1000 } }):sum():backward()
    assert.same({ { 1, 200, 0 }, { 40, 5000, 0 } }, x.grad:totable())
  end)

  -- Views, changes of shape and of values in any order, of a tensor and of its views.
  local function anything(seed, x)
    math.randomseed(seed)
    local y, views = x * 1, {}
    local sum = mt.zeros({}, { dtype = "float64" })
    local steps = {
      function(t) if t:dim() > 1 then t:transpose_(math.random(t:dim()), -1) end end,
      function(t) if t:dim() < 5 then t:unsqueeze_(math.random(t:dim() + 1)) end end,
      function(t) t:squeeze_() end,
      function(t) if t:dim() > 0 then views[#views + 1] = t:select(-1, 1) end end,
      function(t)
        if t:dim() > 0 then views[#views + 1] = t:narrow(math.random(t:dim()), 1, 1) end
      end,
      function(t) t:mul_(math.random() + 0.5) end,
      function(t) t:add_(t * 0.5) end,
      function(t) sum = sum + t:clone():square():sum() end,
    }
    for _ = 1, math.random(4, 10) do
      local t = math.random(2) == 1 and views[math.random(#views + 1)] or y
      steps[math.random(#steps)](t)
    end
    for _, v in ipairs(views) do sum = sum + (v * v * v):sum() end
    local weights = mt.arange(1, y:numel() + 1, { dtype = "float64" })
    return sum + (y * weights:view(y:shape())):sum()
  end

  it("has the right gradient in any order of what may happen", function()
    local first = os.time()
    for seed = first, first + 99 do
      mt.manual_seed(seed)
      local x = mt.rand({ 2, 3, 2 }, { dtype = "float64", requires_grad = true })
      assert.is_true(mt.gradcheck(function(t) return anything(seed, t) end, { x }),
        "seed " .. seed)
    end
  end)

  it("is refused where a gradient knows the shape", function()
    local x = mt.ones({ 2, 3 }, { requires_grad = true })
    x:sum():backward()
    local y = x * 1
    for _, t in ipairs { x, x.grad } do
      local err = message(t.t_, t)
      assert.truthy(err:find("keeps its", 1, true), err)
    end
    local err = message(mt.no_grad, function() return y:unsqueeze_(1) end)
    assert.truthy(err:find("recording is off", 1, true), err)
    y:retain_grad()
    y:sum():backward()
    err = message(y.squeeze_, y)
    assert.truthy(err:find("that has a gradient", 1, true), err)
    assert.same({ 2, 3 }, y:shape())
    x.grad = nil
    x:requires_grad_(false)
    assert.same({ 3, 2 }, x:t_():shape())
  end)

  it("leaves x as it was after an error", function()
    local x = mt.zeros(2, 3)
    message(x.transpose_, x, 1, 3)
    message(x.unsqueeze_, x, 5)
    message(mt.zeros(2, 3, 4).t_, mt.zeros(2, 3, 4))
    assert.same({ 2, 3 }, x:shape())
  end)
end)

describe("a test in place", function()
  it("writes 0 and 1 in the tensor's dtype", function()
    local i = mt.tensor({ 1, 2, 3 }, { dtype = "int16" })
    assert.same({ 0, 1, 1 }, i:gt_(1):totable())
    assert.same({ 1, 0 }, mt.tensor { 0.5, 2 }:lt_(mt.tensor { 1, 1 }):totable())
    assert.same({ false, true }, mt.tensor { true, false }:logical_not_():totable())
    assert.same({ true, false },
      mt.tensor { true, true }:logical_and_(mt.tensor { 3, 0 }):totable())
    local x = mt.tensor { 1, 2 }
    assert.is_true(rawequal(x, x:less_equal_(1)))
    assert.same({ 1, 0 }, x:totable())
  end)

  it("has no gradient", function()
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    local y = x * 1
    y:ge_(2)
    ;(y + x):sum():backward()
    assert.same({ 1, 1 }, x.grad:totable())
  end)

  it("does not change the shape", function()
    local err = message(mt.zeros(2).eq_, mt.zeros(2), mt.zeros(3, 2))
    assert.truthy(err:find("[3, 2]", 1, true), err)
  end)
end)

describe("a running result in place", function()
  it("keeps an integer dtype, and wraps", function()
    local x = mt.tensor({ 100, 100, 100 }, { dtype = "uint8" })
    assert.same({ 100, 200, 44 }, x:cumsum_(1):totable())
    assert.equal("uint8", x:dtype())
    local y = mt.tensor({ 1, 2, 3 }, { dtype = "int32" })
    assert.same({ 1, 2, 6 }, y:cumprod_(1):totable())
    local err = message(mt.tensor { true }.cumsum_, mt.tensor { true }, 1)
    assert.truthy(err:find("bool", 1, true), err)
  end)
end)

describe("a composite in place", function()
  -- op_ on a tensor, and on a view of one
  local function forms(name, ...)
    local args = table.pack(...)
    return function(x)
      local y, base = x * 1, mt.stack({ x, x }, 1)
      y[name .. "_"](y, table.unpack(args, 1, args.n))
      local row = base[1]
      row[name .. "_"](row, table.unpack(args, 1, args.n))
      return y, base
    end
  end

  it("can be differentiated, twice", function()
    local x = mt.tensor({ { 0.1, 0.5 }, { 0.2, 0.9 } }, { dtype = "float64" })
    x:requires_grad_()
    for _, fn in ipairs {
      forms("clamp_max", 0.3), forms("clamp_min", 0.3), forms("nan_to_num"),
      forms("renorm", 2, 1, 0.1), forms("tril"), forms("masked_fill", x:gt(0.3), 7),
    } do
      assert.is_true(mt.gradcheck(fn, { x }))
      assert.is_true(mt.gradgradcheck(fn, { x }))
    end
    ;(x * 1):clamp_max_(0.3):sum():backward()
    assert.same({ { 1, 0 }, { 1, 0 } }, x.grad:totable())
  end)

  it("can be differentiated where an argument lies in the same memory", function()
    local x = mt.randn({ 3, 3 }, { dtype = "float64", requires_grad = true })
    local function product(t)
      local y = t * 1
      return y:addmm_(y, y:t(), 0.5, 2)
    end
    local y = x * 1
    assert.is_true(y:addmm(y, y:t(), 0.5, 2):equal(product(x)))
    assert.is_true(mt.gradcheck(product, { x }))
    assert.is_true(mt.gradgradcheck(product, { x }))
  end)

  it("still says when a tensor that its gradient needs was changed later", function()
    local x = mt.tensor({ 1, 2 }, { requires_grad = true })
    local w = mt.tensor({ { 3, 4 }, { 5, 6 } })
    local y = (x * 1):addmv_(w, x)
    w:mul_(2)
    local sum = y:sum()
    local err = message(sum.backward, sum)
    assert.truthy(err:find("addmv: a tensor that its gradient needs was changed in "
      .. "place", 1, true), err)
    y = x * 1
    local z = y:clamp_max(1.5):sum()
    y:mul_(2)
    err = message(z.backward, z)
    assert.truthy(err:find("clamp_max: a tensor", 1, true), err)
    z = (y * y):sum()
    y:mul_(2)
    err = message(z.backward, z)
    assert.truthy(err:find("mul: a tensor", 1, true), err)
  end)
end)

describe("mT", function()
  it("exchanges the last two dims", function()
    local x = mt.arange(12):view(1, 3, 4)
    assert.is_true(x:mT():equal(x:transpose(2, 3)))
    x:mT():zero_()
    assert.equal(0, x:sum():item())
    local err = message(mt.zeros(3).mT, mt.zeros(3))
    assert.truthy(err:find("at least 2 dims", 1, true), err)
  end)
end)

describe("clamp_min and clamp_max", function()
  it("take numbers that the dtype cannot hold, as clamp does", function()
    local x = mt.tensor({ 0, 100, 255 }, { dtype = "uint8" })
    assert.same({ 0, 100, 255 }, x:clamp_min(-1):totable())
    assert.same({ 0, 100, 255 }, x:clamp_max(300):totable())
    assert.same(x:clamp(1.5, 300):totable(), x:clamp_min(1.5):totable())
    assert.equal("uint8", x:clamp_min(1.5):dtype())
    assert.equal("float32", x:clamp_min(mt.tensor { 1.5 }):dtype())
    assert.same({ 0, 50, 50 }, x:clamp_max_(50):totable())
  end)

  it("keep x's dtype in place, within its kind", function()
    local x = mt.tensor({ 0, 100, 255 }, { dtype = "uint8" })
    local bound = mt.tensor({ 7, 7, 300 }, { dtype = "int64" })
    assert.same({ 0, 7, 255 }, x:clamp_max_(bound):totable())
    assert.equal("uint8", x:dtype())
    local h = mt.tensor({ 1, 2, 3 }, { dtype = "float16" })
    assert.same({ 2, 2, 3 }, h:clamp_min_(mt.tensor { 2, 2, 2 }):totable())
    local err = message(x.clamp_min_, x, mt.tensor { 1.5, 1.5, 1.5 })
    assert.truthy(err:find("float32 does not fit", 1, true), err)
  end)
end)
