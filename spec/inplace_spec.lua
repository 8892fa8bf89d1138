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
