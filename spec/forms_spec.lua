-- spec/forms_spec.lua: calls that another row of the op table serves, and names that
-- arguments have besides. spec/ops/matrix_spec.lua has the rows' values and gradients.

local mt = require "mytensor"
local says = require "spec.support.expect".says

local function int(list, dtype) return mt.tensor(list, { dtype = dtype or "int64" }) end

local function same(expected, t)
  assert.same(expected, t:totable())
end

describe("a sum with alpha", function()
  it("adds alpha times the second", function()
    local a, b = mt.tensor { 1, 2 }, mt.tensor { 10, 20 }
    same({ 6, 12 }, a:add(b, 0.5))
    same({ -4, -8 }, mt.sub(a, b, 0.5))
    same({ 6, 12 }, a:add(b, { alpha = 0.5 }))
    same({ 6, 12 }, a:add { b = b, alpha = 0.5 })
    same({ 21, 41 }, mt.add(1, b, 2))
    same({ 7, 8 }, a:add(3, 2))
    same({ 11, 22 }, a:add(b, nil))
  end)

  it("works in place", function()
    local a = mt.tensor { 1, 2 }
    assert.equal(a, a:add_(mt.tensor { 10, 20 }, -1))
    same({ -9, -18 }, a)
    same({ -29, -58 }, a:sub_(mt.tensor { 10, 20 }, { alpha = 2 }))
  end)

  it("has gradients", function()
    local a = mt.tensor { 1, 2 }:requires_grad_()
    local b = mt.tensor { 3, 4 }:requires_grad_()
    a:sub(b, 3):sum():backward()
    same({ 1, 1 }, a.grad)
    same({ -3, -3 }, b.grad)
  end)

  it("keeps integers, and wants a whole alpha beside them", function()
    local n = int { 1, 2 }
    assert.equal("int64", n:add(n, 3):dtype())
    same({ 4, 8 }, n:add(n, 3.0))
    assert.equal("float32", n:add(mt.ones(2), 0.5):dtype())
    local m = mt.tensor { true, false }
    same({ true, false }, m:add(m, 1))
    says("bad argument #2 to 'add' (alpha is 0.5, want a whole number beside integers)",
      function() n:add(n, 0.5) end)
    says("bad argument #3 to 'add' (alpha is 2, want 1 beside bool)",
      function() mt.add(m, m, 2) end)
    says("bad argument #2 to 'add' (alpha: number expected, got tensor)",
      function() n:add(2, n) end)
    says("bad argument #1 to 'add' (unknown option 'beta'; 'add' takes alpha)",
      function() n:add { b = n, beta = 1, alpha = 1 } end)
    says("bad argument #2 to 'add' (option 'b' is given by position, too)",
      function() n:add(n, { b = n }) end)
    says("bad argument #3 to 'add_' (too many arguments, 'add_' takes 2 at most)",
      function() n:add_(n, 1, 2) end)
  end)
end)

describe("clamp", function()
  local function three() return mt.tensor { -3, 0, 3 } end

  it("takes tensors, numbers beside them, and PyTorch's names", function()
    local x = three()
    local lo = mt.tensor { -1, 1, -1 }
    same({ -1, 1, 3 }, x:clamp(lo))
    same({ -1, 1, 2 }, x:clamp(lo, 2))
    same({ -1, 1, 2 }, x:clamp { min = lo, max = 2 })
    same({ -3, 0, 1 }, x:clamp { max = mt.tensor(1) })
    same({ -2, 0, 1 }, x:clamp { min = -2, max = 1 })
    same({ -1, 1, 3 }, x:clone():clamp_(lo))
  end)

  it("names itself and its argument", function()
    local x = three()
    says("bad argument #2 to 'clamp' (shapes [3] and [2] do not broadcast: 3 and 2)",
      function() x:clamp(0, mt.zeros(2)) end)
    says("bad argument #1 to 'clamp' (unknown option 'least'; 'clamp' takes lo, hi)",
      function() x:clamp { lo = x, least = 1 } end)
    says("bad argument #2 to 'clamp' (tensor or number expected, got string)",
      function() x:clamp(x, "1") end)
  end)
end)

describe("max and min", function()
  it("of two tensors are maximum and minimum", function()
    local a, b = mt.tensor { 1, 5 }, mt.tensor { 3, 2 }
    same({ 3, 5 }, a:max(b))
    same({ 1, 2 }, mt.min(a, b))
    says("bad argument #1 to 'max' (option 'dim': integer expected, got tensor)",
      function() a:max { dim = b } end)
  end)
end)

describe("a rounded quotient", function()
  it("keeps the dtype of integers", function()
    local a, b = int { 7, -7 }, int { 2, 2 }
    same({ 3, -3 }, a:div(b, "trunc"))
    same({ 3, -4 }, a:div(b, "floor"))
    same({ 3, -3 }, a:div(2, { rounding_mode = "trunc" }))
    same({ 3, -4 }, a:clone():div_(b, "floor"))
  end)

  it("is cut in float32 where the dtype has 16 bits", function()
    local a = mt.tensor({ 2047 }, { dtype = "float16" })
    local b = mt.tensor({ 2048 }, { dtype = "bfloat16" })
    same({ 0 }, a:div(mt.tensor({ 2048 }, { dtype = "float16" }), "trunc"))
    assert.equal("bfloat16", b:div(b, "trunc"):dtype())
  end)

  it("names the mode", function()
    says("bad argument #2 to 'div' (rounding_mode: 'up' is none of trunc|floor)",
      function() mt.ones(1):div(2, "up") end)
    says("bad argument #1 to 'div_' (integer division by zero at element 1)",
      function() int { 1 }:div_(int { 0 }, "trunc") end)
  end)
end)

describe("round", function()
  it("takes a number of decimals", function()
    local x = mt.tensor({ 3.14159, -1234.5 }, { dtype = "float64" })
    same({ 3.14, -1234.5 }, x:round(2))
    same({ 0, -1200 }, x:round { decimals = -2 })
    assert.equal(x, x:round_(1))
    same({ 3.1, -1234.5 }, x)
  end)

  it("names the dtype that has no decimals", function()
    says("calling 'round' on bad self (a float dtype expected, got int64)",
      function() int { 15 }:round(-1) end)
  end)
end)

describe("integers to a negative power", function()
  local function two() return int { 2, 3 } end

  it("are an error where it is an integer", function()
    local text = "integers to the power of -1 have fractions; a float, -1.0, gives "
      .. "floats"
    local n = two()
    says("'^': " .. text, function() return n ^ -1 end)
    says("bad argument #1 to 'pow' (" .. text, function() n:pow(-1) end)
    says("bad argument #2 to 'pow' (" .. text, function() mt.pow(n, -1) end)
    says("bad argument #1 to 'pow_' (" .. text, function() n:pow_(-1) end)
  end)

  it("are floats where it is one", function()
    assert.equal("float32", (two() ^ -1.0):dtype())
    same({ 0.5, 0.25 }, 2.0 ^ int { -1, -2 })
    same({ 0.25, 4 }, mt.tensor { 4, 0.25 } ^ -1)
    same({ 0, 0 }, two() ^ int { -1, -1 }) -- of tensors, the whole part
  end)
end)

describe("repeat_interleave", function()
  it("takes how often for each", function()
    local x = mt.tensor { { 1, 2 }, { 3, 4 } }
    same({ { 1, 2 }, { 1, 2 } }, x:repeat_interleave(int { 2, 0 }, 1))
    same({ 1, 3, 3, 3, 4 }, x:repeat_interleave(mt.tensor { 1, 0, 3, 1 }))
    same({ { 1, 1, 2 }, { 3, 3, 4 } },
      x:repeat_interleave { repeats = int { 2, 1 }, dim = -1 })
  end)

  it("names what does not fit", function()
    local x = mt.ones(3)
    says("bad argument #1 to 'repeat_interleave' (repeats has shape [2], want [3] or "
      .. "[1])",
      function() x:repeat_interleave(int { 1, 2 }) end)
    for _, bad in ipairs { -1, 1.5, 0 / 0, math.huge } do
      says("bad argument #1 to 'repeat_interleave' (repeats has elements that are "
        .. "negative or no whole numbers)",
        function() x:repeat_interleave(mt.tensor { 1, bad, 2 }) end)
    end
    says("bad argument #1 to 'repeat_interleave' (repeats sums up to 1.38351e+19)",
      function() x:repeat_interleave(mt.full({ 3 }, 1 << 62, { dtype = "int64" })) end)
  end)
end)

describe("view with a dtype", function()
  it("shares the bytes", function()
    local x = mt.tensor { 1, -2 }
    local bits = x:view "int32"
    same({ 0x3f800000, -0x40000000 }, bits)
    bits[1] = 0x40000000
    same({ 2, -2 }, x)
    same({ 2, -2 }, x:view "int16":view { dtype = "float32" })
    assert.same({ 1 }, x:view "int8":view "float64":shape())
  end)

  it("makes the last dim longer or shorter", function()
    local x = mt.zeros(3, 4)
    assert.same({ 3, 8 }, x:view "int16":shape())
    assert.same({ 3, 2 }, x:view "float64":shape())
    assert.same({ 4, 3 }, x:t():view "int32":shape())
    assert.same({ 0, 6 }, mt.zeros(0, 3):view "int16":shape())
    same({ 0, 0x3ff00000 }, mt.ones(2, { dtype = "float64" })[1]:view(1):view "int32")
    local y = mt.arange(8):view(2, 4)[{ {}, { 3, 4 } }]
    same({ { 2, 3 }, { 6, 7 } }, y:view "float64":view "float32")
  end)

  it("keeps the history in its own dtype only", function()
    local x = mt.ones(2):requires_grad_()
    assert.is_true(x:view "float32".requires_grad)
    assert.is_false(x:view "int32".requires_grad)
  end)

  it("counts as a change of what gradients need", function()
    local x = mt.ones(2):requires_grad_()
    local y = x:exp()
    y:view "int32":fill_(0)
    assert.is_false(pcall(function() y:sum():backward() end))
  end)

  it("says what does not fit", function()
    local text = "calling 'view' on bad self (elements of %d bytes do not fit float32 "
      .. "of shape %s: its last dim has to be contiguous, and its size, offset and "
      .. "other strides multiples of that)"
    local x = mt.zeros(3, 4)
    says(text:format(8, "[3, 3]"), function() mt.zeros(3, 3):view "int64" end)
    says(text:format(2, "[4, 3]"), function() x:t():view "int16" end)
    says(text:format(8, "[3, 2]"), function() x[{ {}, { 2, 3 } }]:view "float64" end)
    says(text:format(2, "[]"), function() mt.tensor(1):view "int16" end)
    says("calling 'view' on bad self (bool shares no bytes with float32; to() "
      .. "converts)",
      function() x:view "bool" end)
    says("bad argument #1 to 'view' (unknown dtype 'int33')",
      function() x:view "int33" end)
  end)
end)

describe("a number that an integer dtype does not hold", function()
  local function bytes() return int({ 1, 200 }, "uint8") end

  it("is an error in where, threshold and copy_", function()
    local x = bytes()
    local text = "value is %s: uint8 holds 0 .. 255)"
    says("bad argument #3 to 'where' (" .. text:format "300",
      function() mt.where(x:gt(9), x, 300) end)
    says("bad argument #2 to 'where' (" .. text:format "-1",
      function() mt.where(x:gt(9), -1, x) end)
    says("bad argument #2 to 'threshold' (" .. text:format "300",
      function() x:threshold(9, 300) end)
    says("bad argument #1 to 'threshold_' (" .. text:format "-1",
      function() x:threshold_ { threshold = 9, value = -1 } end)
    says("bad argument #1 to 'copy_' (" .. text:format "256",
      function() x:copy_(256) end)
    same({ 1, 200 }, x)
  end)

  it("is none where the result is a float, or the dtype holds it", function()
    local x = bytes()
    same({ 300, 200 }, mt.where(x:gt(9), x, mt.tensor(300.0)):float() * 1)
    same({ 0.5, 200 }, mt.where(x:gt(9), x, 0.5))
    same({ 7, 200 }, x:threshold(9, 7.9))
    same({ 0, 200 }, x:threshold { threshold = 9 })
    same({ 255, 255 }, x:clone():copy_(255.9))
    same({ 44, 44 }, x:clone():copy_(int { 300, 300 })) -- tensors wrap
  end)
end)

describe("bincount", function()
  it("takes floats that are whole, as indices do", function()
    same({ 1, 2, 0, 1 }, mt.tensor { 1, 2, 2, 4 }:bincount())
    same({ 0, 0.75 }, mt.tensor { 2, 2 }:bincount(mt.tensor { 0.5, 0.25 }))
    same({ 0, 0 }, mt.zeros(0):bincount { minlength = 2 })
  end)
end)

describe("arguments by name", function()
  it("have NumPy's and PyTorch's names, too", function()
    local x = mt.tensor { { 1, 2 }, { 3, 4 } }
    same({ { 4, 6 } }, x:sum { axis = 1, keepdims = true })
    same({ 0, 0 }, x:pairwise_distance { b = x, eps = 0 })
    says("is given by another name, too)", function() x:sum { dim = 1, axis = 1 } end)
    says("is given by another name, too)", function() x:clamp { lo = x, min = 1 } end)
    says("bad argument #1 to 'relu' (unknown option 'axis'; 'relu' takes no options)",
      function() x:relu { axis = 1 } end)
  end)

  it("are taken by functions that are no operators", function()
    local x = mt.tensor { { 3, 0 }, { 0, -4 } }
    assert.equal(7, x:matrix_norm { p = "nuc" }:item())
    same({ { -1.5, -1.5 }, { -2, -2 } }, (mt.gradient(x, { spacing = 2, dim = 2 })))
    local column = { src = mt.ones(2), dim = 2, index = 1 }
    same({ { 1, 0 }, { 1, -4 } }, x:select_scatter(column))
    same({ { 1, 0 }, { 0, -1 } }, mt.normalize(x, { dim = 1 }))
    says("bad argument #2 to 'matrix_norm' (unknown option 'ord'; 'matrix_norm' takes "
      .. "p, dim, keepdim)", function() x:matrix_norm { ord = 2 } end)
    says("bad argument #3 to 'matrix_norm' (option 'p' is given by position, too)",
      function() x:matrix_norm("nuc", { p = 2 }) end)
  end)

  it("are taken by allclose", function()
    local x = mt.tensor { 1, 0 / 0 }
    assert.is_false(x:allclose(x))
    assert.is_true(x:allclose(x, { equal_nan = true }))
    assert.is_true(mt.ones(1):allclose(mt.zeros(1), { atol = 1 }))
    says("bad argument #2 to 'allclose' (unknown option 'tol'; 'allclose' takes rtol, "
      .. "atol, equal_nan)", function() x:allclose(x, { tol = 1 }) end)
  end)
end)
