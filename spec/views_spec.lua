-- spec/views_spec.lua: views share the storage of what they view, and never copy.

local mt = require "mytensor"
local expect = require "spec.support.expect"

local function matrix() return mt.arange(1, 13):view(3, 4):clone() end

local message = expect.message

local says = expect.says

-- name, view of a 3 x 4 matrix, shape
local VIEWS = {
  { "narrow", function(x) return x:narrow(1, 2, 2) end, { 2, 4 } },
  { "select", function(x) return x:select(2, -1) end, { 3 } },
  { "transpose", function(x) return x:transpose(1, 2) end, { 4, 3 } },
  { "permute", function(x) return x:permute(2, 1) end, { 4, 3 } },
  { "view", function(x) return x:view(2, -1) end, { 2, 6 } },
  { "reshape", function(x) return x:reshape(12) end, { 12 } },
  { "expand", function(x) return x:narrow(1, 1, 1):expand(5, 4) end, { 5, 4 } },
  { "unfold", function(x) return x:unfold(2, 2, 2) end, { 3, 2, 2 } },
  { "diagonal", function(x) return x:diagonal() end, { 3 } },
  { "unsqueeze", function(x) return x:unsqueeze(2) end, { 3, 1, 4 } },
  { "squeeze", function(x) return x:unsqueeze(1):squeeze() end, { 3, 4 } },
  { "flatten", function(x) return x:flatten() end, { 12 } },
  { "an index", function(x) return x[2] end, { 4 } },
  { "an index from the end", function(x) return x[-1] end, { 4 } },
  { "ranges", function(x) return x[{ { 1, 2 }, { 2, 3 } }] end, { 2, 2 } },
  { "a whole dim and an index", function(x) return x[{ {}, 3 }] end, { 3 } },
  { "detach", function(x) return x:detach() end, { 3, 4 } },
}

describe("a view", function()
  for _, v in ipairs(VIEWS) do
    local name, view, shape = table.unpack(v)
    it("by " .. name .. " shares memory and allocates none", function()
      local x = matrix()
      collectgarbage()
      collectgarbage()
      local before = mt.memory_stats().live_bytes
      local y = view(x)
      assert.equal(before, mt.memory_stats().live_bytes)
      assert.same(shape, y:shape())
      if name ~= "expand" then -- several elements of it share memory
        y:fill_(-1)
        assert.equal(y:numel(), x:eq(-1):sum():item())
      end
      x:fill_(7)
      assert.is_true(y:eq(7):all():item())
    end)
  end

  it("outlives what it views", function()
    local y = matrix()[2]
    collectgarbage()
    collectgarbage()
    assert.same({ 5, 6, 7, 8 }, y:totable())
  end)

  it("of a view of a view has the right elements", function()
    local x = mt.arange(1, 121):view(2, 3, 4, 5)
    local y = x:transpose(2, 4):narrow(3, 2, 3):select(1, 2):permute(3, 1, 2)
    assert.same({ 3, 5, 3 }, y:shape())
    for i = 1, 3 do
      for j = 1, 5 do
        for k = 1, 3 do
          -- y[i][j][k] = x[2][i][k + 1][j]
          assert.equal(((1 * 3 + i - 1) * 4 + k) * 5 + j, y[{ i, j, k }]:item())
        end
      end
    end
  end)
end)

describe("reshape", function()
  it("copies only if it must", function()
    local x = matrix()
    x:reshape(4, 3):fill_(1)
    assert.equal(12, x:sum():item())
    local t = x:transpose(1, 2)
    local copy = t:reshape(12)
    copy:fill_(5)
    assert.equal(12, x:sum():item())
    assert.is_true(t:reshape(4, 3, 1):select(3, 1):equal(t))
  end)

  it("and view infer one size, and name what does not fit", function()
    local x = matrix()
    assert.same({ 2, 6 }, x:view(2, -1):shape())
    for _, f in ipairs { "view", "reshape" } do
      says("[3, 4]", x[f], x, 5, -1)
      says("[5, 3]", x[f], x, 5, 3)
      message(x[f], x, -1, -1)
      message(x[f], x, -2, 6)
      says("[0, 3]", x[f], mt.zeros(0, 3), 0, -1)
    end
  end)

  it("leaves it to reshape where a view would need a copy", function()
    local t = matrix():transpose(1, 2)
    says("reshape", t.view, t, 12)
    assert.same({ 12 }, t:reshape(12):shape())
  end)
end)

describe("views with bad arguments", function()
  it("say what is allowed", function()
    local x = matrix()
    says("bad argument", x.narrow, x, 3, 1, 1)
    says("4", x.narrow, x, 2, 3, 3)
    says("narrow", x.narrow, x, 1, 0, 1)
    says("narrow", x.narrow, x, 1, 1, -1)
    says("select", x.select, x, 1, 4)
    says("select", x.select, x, 1, 0)
    says("transpose", x.transpose, x, 1, 3)
    says("permute", x.permute, x, 1, 1)
    says("permute", x.permute, x, 1)
    says("expand", x.expand, x, 3, 5)
    says("[3, 4]", x.expand, x, 4)
    says("unfold", x.unfold, x, 2, 5, 1)
    says("unfold", x.unfold, x, 2, 2, 0)
    says("diagonal", x.diagonal, x, 0, 1, 1)
    says("unsqueeze", x.unsqueeze, x, 4)
    says("flatten", x.flatten, x, 2, 1)
  end)
end)

describe("contiguous", function()
  it("gives the tensor itself, or a copy in row-major order", function()
    local x = matrix()
    x:contiguous():fill_(3)
    assert.equal(36, x:sum():item())
    local t = x:transpose(1, 2):contiguous()
    assert.is_true(t:is_contiguous())
    assert.same({ 3, 1 }, t:stride())
  end)
end)

describe("split and chunk", function()
  it("give lists of views", function()
    local x = matrix()
    local parts = x:split(2, 2)
    assert.equal(2, #parts)
    parts[2]:fill_(0)
    assert.equal(1 + 2 + 5 + 6 + 9 + 10, x:sum():item())
    local sizes = {}
    for i, part in ipairs(mt.arange(1, 11):chunk(4)) do sizes[i] = part:size(1) end
    assert.same({ 3, 3, 3, 1 }, sizes)
    local given = x:split({ 1, 2 }, 1)
    assert.same({ 2, 4 }, given[2]:shape())
    says("split", x.split, x, { 1, 1 }, 1)
    says("split", x.split, x, 0)
    says("chunk", x.chunk, x, 0)
  end)
end)

describe("a tensor that overlaps itself", function()
  it("reads as often as it is wide, and refuses elementwise writes", function()
    local x = mt.ones(1):expand(4)
    assert.equal(4, x:sum():item())
    says("share memory", function() x:add_(mt.arange(1, 5)) end)
  end)
end)
