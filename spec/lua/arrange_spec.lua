-- spec/lua/arrange_spec.lua: grids, pieces, combinations, triangles of positions; loops
-- and Lua functions over elements, bytes.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

local says = expect.says

local function lists(tensors)
  local result = {}
  for i, t in ipairs(tensors) do result[i] = t:totable() end
  return result
end

local function on(device)
  local function range(from, to)
    return mt.arange(from, to + 1, { device = device })
  end

  describe("on " .. device, function()
    it("meshgrid gives views of a grid", function()
      local x, y = mt.meshgrid(range(1, 2), range(3, 5))
      assert.same({ { 1, 1, 1 }, { 2, 2, 2 } }, x:totable())
      assert.same({ { 3, 4, 5 }, { 3, 4, 5 } }, y:totable())
      local u = mt.meshgrid({ range(1, 2), range(3, 5) }, { indexing = "xy" })
      assert.same({ { 1, 2 }, { 1, 2 }, { 1, 2 } }, u:totable())
      local leaf = range(1, 2):requires_grad_()
      mt.meshgrid(leaf, range(1, 3)):sum():backward()
      assert.same({ 3, 3 }, leaf.grad:totable())
      says("'meshgrid' (a vector expected, got shape [2, 2])", mt.meshgrid,
        mt.ones(2, 2))
      says("indexing: 'ij' or 'xy' expected", mt.meshgrid, x:flatten(),
        { indexing = "z" })
    end)

    it("unravel_index gives positions of each dim", function()
      local x = mt.arange(24, { device = device }):view(2, 3, 4)
      local i, j, k = mt.unravel_index(mt.tensor({ { 1, 24 }, { 8, -1 } },
        { device = device }), x:shape())
      assert.same({ { 1, 2 }, { 1, 2 } }, i:totable())
      assert.same({ { 1, 3 }, { 2, 3 } }, j:totable())
      assert.same({ { 1, 4 }, { 4, 4 } }, k:totable())
      assert.equal("int64", i:dtype())
      i, j, k = mt.unravel_index(x:argmax(), { 2, 3, 4 })
      assert.same({ 2, 3, 4 }, { i:item(), j:item(), k:item() })
      assert.same({ 2, 1 }, { mt.unravel_index(-2, { 2, 2 }) })
      local text = "'unravel_index' (a position in a tensor of shape [2, 2] expected: "
        .. "1 .. 4 or -4 .. -1)"
      for _, bad in ipairs { 0, 5, -5, math.mininteger } do
        says(text, mt.unravel_index, bad, { 2, 2 })
        says(text, mt.unravel_index, mt.tensor({ 1, bad }, { dtype = "int64" }),
          { 2, 2 })
      end
      says(text, mt.unravel_index, mt.tensor { 1.5 }, { 2, 2 })
      says("'unravel_index' (shape[1] must be at least 0, got -1)", mt.unravel_index, 1,
        { -1 })
      assert.same({ 0 }, mt.unravel_index(mt.zeros(0), { 3 }):shape())
    end)

    it("broadcast_tensors expands to one shape", function()
      local x, y = mt.broadcast_tensors(range(1, 3), mt.ones(2, 1, { device = device }))
      assert.same({ 2, 3 }, x:shape())
      assert.same({ 2, 3 }, y:shape())
      assert.same({ 4, 2, 3 }, mt.broadcast_shapes({ 2, 1 }, { 4, 1, 3 }, {}))
      says("#2 to 'broadcast_shapes' (size [1] must be at least 0, got -2)",
           mt.broadcast_shapes, { 1 }, { -2 })
      says("broadcast_tensors: shapes [3], [2] do not broadcast: dim 1 is 3 and 2",
        mt.broadcast_tensors, range(1, 3), range(1, 2))
    end)

    it("tensor_split and its kin cut into views", function()
      local x = range(1, 7)
      assert.same({ { 1, 2, 3 }, { 4, 5 }, { 6, 7 } }, lists(x:tensor_split(3)))
      assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6, 7 } }, lists(x:tensor_split { 3, 5 }))
      assert.same({ { 1, 2, 3, 4, 5, 6 }, { 7 } }, lists(x:tensor_split { -1 }))
      assert.same({ {}, { 1, 2, 3, 4, 5, 6, 7 } }, lists(x:tensor_split { 1 }))
      assert.same({ { 1 }, { 2 }, {} }, lists(range(1, 2):tensor_split(3)))
      local m = range(1, 8):view(2, 4)
      assert.same({ { { 1, 2 }, { 5, 6 } }, { { 3, 4 }, { 7, 8 } } },
        lists(m:hsplit(2)))
      assert.same({ { { 1, 2, 3, 4 } }, { { 5, 6, 7, 8 } } }, lists(m:vsplit(2)))
      assert.same({ { { { 1, 2 }, { 3, 4 } } }, { { { 5, 6 }, { 7, 8 } } } },
        lists(range(1, 8):view(2, 2, 2):vsplit(2)))
      assert.equal(2, #range(1, 8):view(2, 2, 2):dsplit(2))
      m:hsplit(2)[1]:fill_(0)
      assert.equal(3 + 4 + 7 + 8, m:sum():item())
      says("4 elements do not make 3 equal pieces", m.hsplit, m, 3)
      says("2 dims or more expected, got shape [7]", x.vsplit, x, 1)
      says("position [2] is 2: 4 .. 8 expected", x.tensor_split, x, { 4, 2 })
      says("dim 2 is out of range for shape [7]", x.tensor_split, x, 2, 2)
    end)

    it("combinations come in order", function()
      local x = range(1, 4)
      assert.same({ { 1, 2 }, { 1, 3 }, { 1, 4 }, { 2, 3 }, { 2, 4 }, { 3, 4 } },
        x:combinations():totable())
      assert.same({ { 1, 1 }, { 1, 2 }, { 2, 2 } },
        range(1, 2):combinations(2, true):totable())
      assert.same({ 4, 3 }, x:combinations(3):shape())
      assert.same({ 0, 5 }, x:combinations(5):shape())
      assert.same({ 0, 2 }, x:narrow(1, 1, 0):combinations():shape())
      says("more than 4194304 rows of 5", mt.combinations, mt.ones(1000), 5)
      says("at most 8388608", mt.combinations, mt.ones(1), 1 << 31, true)
      says("more than 4194304 rows of 2 elements", mt.combinations, mt.ones(3000), 2)
      assert.same({ 1, 200000 }, mt.combinations(mt.ones(1), 200000, true):shape())
      local twos = {}
      for i = 1, 46 do twos[i] = mt.ones(2, { device = device }) end
      says("the result of shape [70368744177664, 46] takes 2.41e+07 GiB",
        mt.cartesian_prod, twos)
      says("a vector expected, got shape [2, 2]", mt.combinations, mt.ones(2, 2))
      local leaf = range(1, 3):requires_grad_()
      leaf:combinations():sum():backward()
      assert.same({ 2, 2, 2 }, leaf.grad:totable())
    end)

    it("triangles have positions", function()
      local opts = { device = device }
      assert.same({ { 1, 2, 2 }, { 1, 1, 2 } },
        mt.tril_indices(2, 2, 0, opts):totable())
      assert.same({ { 1, 1, 2 }, { 2, 3, 3 } },
        mt.triu_indices(3, nil, 1, opts):totable())
      assert.equal("int64", mt.tril_indices(2, 2, 0, opts):dtype())
    end)

    it("one_hot marks the class", function()
      local labels = range(1, 3):long()
      assert.same({ { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
        mt.one_hot(labels):totable())
      assert.same({ 1, 3, 5 }, mt.one_hot(labels:unsqueeze(1), 5):shape())
      assert.same({ 0, 2 }, mt.one_hot(labels:narrow(1, 1, 0), 2):shape())
      says("labels 1 .. 3: 1 .. 2 expected", mt.one_hot, labels, 2)
      says("labels 0 .. 2", mt.one_hot, labels - 1)
      local whole = "argument #1 to 'one_hot' (labels that are whole numbers expected)"
      says(whole, mt.one_hot, labels + 0.5)
      says(whole, mt.one_hot, labels / 0, 3)
      says(whole, mt.one_hot, labels * (0 / 0), 3)
      says(whole, mt.one_hot, labels:gt(1))
    end)

    it("logspace has evenly spaced logarithms", function()
      local y = mt.logspace(0, 3, 4, 10, { dtype = "float64", device = device })
      assert.is_true(y:cpu():allclose(mt.tensor({ 1, 10, 100, 1000 },
        { dtype = "float64" })))
      assert.same({ 1, 2, 4, 8 },
        mt.logspace(0, 3, 4, 2, { device = device }):totable())
      says("unknown option 'colour'", mt.logspace, 0, 1, 2, 3, { colour = 1 })
      says("first must be a number, got", mt.logspace, 0 / 0, 1, 2)
    end)

    it("unsqueeze takes several places, squeeze several dims", function()
      local x = range(1, 6):view(2, 3)
      assert.same({ 1, 2, 3, 1 }, x:unsqueeze({ 1, -1 }):shape())
      assert.same({ 2, 1, 1, 3 }, x:unsqueeze({ 3, 2 }):shape())
      assert.same({ 2, 3 }, x:unsqueeze({ 1, -1 }):squeeze({ 1, 4 }):shape())
      says("stands twice", x.unsqueeze, x, { 1, 1 })
      says("one dim expected", mt.stack, { x, x }, { 1, 2 })
    end)

    it("loops give slices", function()
      local x = range(1, 6):view(2, 3)
      local rows, columns = {}, {}
      for i, row in x:iter() do rows[i] = row:totable() end
      for i, column in x:iter(-1) do columns[i] = column:sum():item() end
      assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, rows)
      assert.same({ 5, 7, 9 }, columns)
      for _, row in x:iter() do row:mul_(2) end
      assert.equal(42, x:sum():item())
      for _ in x:narrow(1, 1, 0):iter() do error "no slice is there" end
      says("a tensor with dims expected", mt.iter, mt.tensor(1))
      says("dim 3 is out of range for shape [2, 3]", x.iter, x, 3)
    end)

    it("map and apply call Lua for each element", function()
      local x = range(1, 4):view(2, 2)
      local y = x:t():map(function(v) return v * v end)
      assert.same({ { 1, 9 }, { 4, 16 } }, y:totable())
      assert.equal(x:device(), y:device())
      assert.same({ { 2, 5 }, { 5, 8 } },
        x:map(x:t(), function(a, b) return a + b end):totable())
      assert.same({ true, false },
        mt.tensor({ false, true }, { device = device }):map(
          function(b) return not b end):totable())
      assert.equal("int8", x:char():map(function(v) return v end):dtype())
      assert.equal(x, x:apply(function(v) if v > 2 then return 0 end end))
      assert.same({ { 1, 2 }, { 0, 0 } }, x:totable())
      assert.same({ 0, 2 }, mt.ones(0, 2, { device = device }):map(print):shape())
      says("map: the function gave string for element 1", x.map, x,
           function() return "1" end)
      says("apply: the function gave table for element 1", x.apply, x,
           function() return {} end)
      says("the function gave nil for element 2", x.map, x,
        function(v) if v == 1 then return v end end)
      says("function expected, got integer", x.map, x, 1)
      says("shape [2, 2] expected, got [4]", x.map, x, x:flatten(), print)
    end)

    it("bytes go to a string and back", function()
      for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64",
        "int32", "int16", "int8", "uint8", "bool" } do
        local x = mt.arange(0, 6):view(2, 3):to(dtype):to(device):t()
        local bytes = x:tobytes()
        assert.equal(6 * x:element_size(), #bytes)
        local y = mt.frombuffer(bytes, dtype, { 3, 2 }, { device = device })
        assert.equal(x:device(), y:device())
        assert.is_true(y:equal(x), dtype)
      end
    end)
  end)
end

devices.each(_ENV, on)

describe("frombuffer", function()
  it("takes an offset, and the other order of bytes", function()
    local bytes = "xx" .. string.pack(">i4i4", 258, -1)
    local t = mt.frombuffer(bytes, "int32", nil, { offset = 2, big_endian = true })
    assert.same({ 258, -1 }, t:totable())
    assert.same({ 0 }, mt.frombuffer("", "int32"):shape())
    assert.same({ 1.5 }, mt.frombuffer(string.pack("<f", 1.5)):totable())
  end)

  it("says what does not fit", function()
    says("5 bytes are no multiple of the 4 of float32", mt.frombuffer, "12345")
    says("float64 of shape [2] takes 16 bytes, 8 are there", mt.frombuffer,
      ("x"):rep(8), "float64", { 2 })
    says("unknown dtype 'float33'", mt.frombuffer, "", "float33")
    says("offset 9 lies behind the 8 bytes", mt.frombuffer, ("x"):rep(8), "int8", nil,
      { offset = 9 })
    says("string expected, got integer", mt.frombuffer, 12)
    says("unknown option 'colour'", mt.frombuffer, "", "int8", nil, { colour = 1 })
  end)
end)
