-- spec/lua/measure_spec.lua: histograms, slopes, sums to a shape, on every device,
-- beside what PyTorch 1.13 gives.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

local says = expect.says

local function close(want, got, what)
  got = got:cpu():double()
  assert.is_true(got:allclose(mt.tensor(want, { dtype = "float64" }), 1e-5, 1e-6),
    what or got:format())
end

local function on(device)
  local function T(list, dtype)
    return mt.tensor(list, { device = device, dtype = dtype })
  end

  describe("on " .. device, function()
    it("histogram counts, weighs and divides", function()
      local x = T { 1, 2, 1, 4, 0, 3.5, 7, -1 }
      local count, edges = x:histogram(4, { range = { 0, 4 } })
      close({ 1, 2, 1, 2 }, count)
      close({ 0, 1, 2, 3, 4 }, edges)
      close({ 0, 7 }, (T { 1, 2, 1 }:histogram(T { 0, 1, 3 },
        { weight = T { 1, 2, 4 } })))
      count, edges = T { 1, 2, 1 }:histogram(2, { density = true })
      close({ 4 / 3, 2 / 3 }, count)
      close({ 1, 1.5, 2 }, edges)
      count, edges = T { { 3, 3 }, { 3, 3 } }:histogram(2)
      close({ 0, 4 }, count)
      close({ 2.5, 3, 3.5 }, edges)
      close({ 0, 0 }, (T({}):histogram(2)))
      close({ 2, 1 }, (T({ 1, 2, 1 }, "int64"):histogram(2)))
      close({ 1, 1 }, (T { 0, 0 / 0, 1 }:histogram(2, { range = { 0, 1 } })))
      close({ 1, 0, 3 }, (T { 0, 1, 2, 9 }:histogram(
        T { -math.huge, 1, 1, math.huge })))
    end)

    it("histogramdd counts points in boxes", function()
      local x = T { { 0, 1 }, { 1, 0 }, { 2, 0 }, { 2, 2 }, { 0.5, 3 } }
      local count, edges = x:histogramdd { 2, 3 }
      close({ { 0, 1, 1 }, { 2, 0, 1 } }, count)
      close({ 0, 1, 2 }, edges[1])
      close({ 0, 1, 2, 3 }, edges[2])
      count = x:histogramdd(2, { range = { { 0, 1 }, { 0, 2 } },
        weight = T { 1, 2, 4, 8, 16 } })
      close({ { 0, 1 }, { 2, 0 } }, count)
      count = mt.histogramdd(x, { T { 0, 2 }, T { 0, 1, 3 } }, { density = true })
      close({ { 0.2, 0.15 } }, count)
      close({ 0, 0 }, (T({}):view(0, 1):histogramdd(2)))
      close({ 1, 0 }, (T { { 0 }, { 0 / 0 }, { 9 } }:histogramdd(2,
        { range = { { 0, 1 } } })))
      close({ { 1, 0 } }, (T { { 0, 0 }, { 9, 0 }, { 1, 9 } }:histogramdd({ 1, 2 },
        { range = { { 0, 1 }, { 0, 1 } } })))
      count, edges = T { { 0, 0 }, { 9, 0 }, { 1, 9 } }:histogramdd({ T { 0, 1 }, 2 },
        { range = { false, { 0, 9 } } })
      close({ { 1, 1 } }, count)
      close({ 0, 4.5, 9 }, edges[2])
      assert.equal("float32", T({ { 1 } }, "int64"):histogramdd(1):dtype())
    end)

    it("interp is linear between points", function()
      local points, values = T { 1, 2, 4 }, T { 10, 20, 0 }
      close({ 10, 10, 15, 20, 5, 0, 0 },
        mt.interp(T { -1, 1, 1.5, 2, 3.5, 4, 9 }, points, values))
      close({ { 10 }, { 0 } }, mt.interp(T { { -math.huge }, { math.huge } }, points,
        values))
      assert.is_true(mt.interp(T(0 / 0), points, values):isnan():item())
      close({ 7, 7 }, mt.interp(T { 0, 3 }, T { 1 }, T { 7 }))
      close({ 12.5 }, mt.interp(T({ 1.25 }, "float64"), T({ 1, 2 }, "int64"),
        T({ 10, 20 }, "int64")))
      local at = T({ 1.25, 3 }, "float64"):requires_grad_()
      local known = T({ 1, 2, 4 }, "float64")
      local of = T({ 10, 20, 0 }, "float64"):requires_grad_()
      assert.is_true(mt.gradcheck(function(x, y) return mt.interp(x, known, y) end,
        { at, of }))
    end)

    it("interp gives the value of a point that it meets, beside any other", function()
      local function is(want, x, points, values)
        assert.same(want, mt.interp(T(x), T(points), T(values)):totable())
      end
      local inf = math.huge
      is({ 2, 4 }, { 1, 2 }, { 1, 1, 2, 2 }, { 1, 2, 3, 4 })
      is({ 1, 3, 3.5, 6, 6 }, { 0, 1, 1.5, 2, 3 }, { 1, 1, 1, 2, 2, 2 },
        { 1, 2, 3, 4, 5, 6 })
      is({ 3, inf }, { 1, 2 }, { 1, 2 }, { 3, inf })
      is({ -inf, 5, 5 }, { 0, 2, 4 }, { 1, 2, 3 }, { -inf, 5, 5 })
      is({ 7, 8 }, { 0, 1 }, { 0, 1, 2 }, { 7, 8, 0 / 0 })
      is({ -0x1p127, 0x1p127 }, { 1, 2 }, { 1, 2 }, { -0x1p127, 0x1p127 })
      is({ 1, 2, 3 }, { -inf, 0, inf }, { -inf, 0, inf }, { 1, 2, 3 })
      local function leaf(list)
        return T(list, "float64"):requires_grad_()
      end
      local x, points, values = leaf { 1, 2, 1.5, -inf }, leaf { -inf, 1, 1, 2, 2 },
        leaf { 1, 2, 3, 4, 5 }
      mt.interp(x, points, values):sum():backward()
      assert.same({ 1, 0, 1, 0 }, x.grad:totable())
      assert.same({ 0, 0, -1.5, -0.5, 0 }, points.grad:totable())
      assert.same({ 1, 0, 1.5, 0.5, 1 }, values.grad:totable())
    end)

    it("gradient takes numbers, coordinates, and parabolas at the ends", function()
      local x = T { 1, 4, 9, 16, 30 }
      close({ 3, 4, 6, 10.5, 14 }, (mt.gradient(x)))
      close({ 1.5, 2, 3, 5.25, 7 }, (mt.gradient(x, 2)))
      close({ 3, 17 / 6, 5.5, 6.3, 3.5 }, (mt.gradient(x, { T { 0, 1, 3, 4, 8 } })))
      close({ 2, 4, 6, 10.5, 17.5 }, (mt.gradient(x, 1, nil, 2)))
      local m = T { { 1, 2, 4 }, { 3, 7, 1 }, { 8, 8, 9 } }
      local down, right = mt.gradient(m)
      close({ { 2, 5, -3 }, { 3.5, 3, 2.5 }, { 5, 1, 8 } }, down)
      close({ { 1, 1.5, 2 }, { 4, -1, -6 }, { 0, 0.5, 1 } }, right)
      assert.is_true(mt.gradient(m, 1, 2):equal(right))
      assert.is_true(select(2, mt.gradient(m, { 1, 2 })):equal(right / 2))
      -- exact for parabolas, at any coordinates
      local at = T({ 0, 0.5, 2, 2.25 }, "float64")
      close({ 1, 2, 5, 5.5 }, (mt.gradient(at * at + at, { at }, 1, 2)))
      local leaf = mt.randn({ 4, 5 }, { dtype = "float64", device = device,
        requires_grad = true })
      assert.is_true(mt.gradcheck(function(t) return mt.gradient(t, 0.5, 2, 2) end,
        { leaf }))
    end)

    it("float_power is in float64", function()
      local y = T({ 1, 2, 3 }, "int32"):float_power(2)
      assert.equal("float64", y:dtype())
      close({ 1, 4, 9 }, y)
      close({ 2 ^ -1.5 }, T { 2 }:float_power(-1.5))
      close({ 4, 8 }, mt.float_power(2, T { 2, 3 }))
    end)

    it("sum_to_size undoes a broadcast", function()
      local x = T { { 1, 2, 3 }, { 4, 5, 6 } }
      assert.same({ { 5, 7, 9 } }, x:sum_to_size(1, 3):totable())
      assert.same({ 5, 7, 9 }, x:sum_to_size(3):totable())
      assert.same({ { 6 }, { 15 } }, x:sum_to_size { 2, 1 }:totable())
      assert.equal(21, x:sum_to_size({}):item())
      assert.is_true(x:sum_to_size(2, 3):equal(x))
      says("'sum_to_size' (shape [2, 3] does not sum to the shape given)",
        x.sum_to_size, x, 2)
      says("'sum_to_size' (shape [2, 3] does not sum", x.sum_to_size, x, 1, 2, 3)
    end)

    it("copies with a part replaced get both gradients", function()
      local x = T { { 1, 2, 3 }, { 4, 5, 6 } }
      local none = T { 0, 0 }
      assert.same({ { 1, 0, 3 }, { 4, 0, 6 } },
        x:select_scatter(none, 2, 2):totable())
      assert.same({ { 0, 2, 0 }, { 0, 5, 0 } },
        x:slice_scatter(mt.zeros_like(x):narrow(2, 1, 2), 2, 1, -1, 2):totable())
      assert.same({ { 1, 0, 3 }, { 4, 5, 0 } }, x:diagonal_scatter(none, 1):totable())
      assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, x:totable())
      local a, b = x:double():requires_grad_(), none:double():requires_grad_()
      for _, f in ipairs {
        function(s, t) return s:select_scatter(t, 2, -1) end,
        function(s, t) return s:diagonal_scatter(t) end,
        function(s, t) return s:slice_scatter(t:view(2, 1), 2, 2, 2) end,
      } do
        assert.is_true(mt.gradcheck(f, { a, b }))
      end
      says("'select_scatter' (src has shape [2], want [3])", x.select_scatter, x, none,
        1, 1)
      says("#4 to 'select_scatter' (index", x.select_scatter, x, none, 2, 4)
      says("'slice_scatter' (src has shape [2], want [2, 3])", x.slice_scatter, x, none)
      says("'diagonal_scatter'", x.diagonal_scatter, x, none, 0, 1, 1)
    end)

    it("index_reduce", function()
      local x = T { { 1, 2, 3 }, { 4, 5, 6 } }
      local at, src = T({ 1, 3, 1, 1 }, "int64"), T { { 2, 3, 4, 5 }, { 1, 2, 3, 4 } }
      close({ { 40, 2, 9 }, { 48, 5, 12 } }, x:index_reduce(2, at, src, "prod"))
      close({ { 11 / 3, 2, 3 }, { 8 / 3, 5, 2 } },
        x:index_reduce(2, at, src, "mean", false))
      says("'index_reduce' (src has shape [2, 4], want [4, 3])", x.index_reduce, x, 1,
        at, src, "sum")
      says("'index_reduce' (reduce: ", x.index_reduce, x, 2, at, src, "most")
    end)
  end)
end

devices.each(_ENV, on)

describe("wrong arguments", function()
  it("are named", function()
    local x = mt.zeros(2, 3)
    says("'gradient' (dim 1 of shape [2, 3] has fewer than 3 elements)", mt.gradient, x,
      1, nil, 2)
    says("'gradient' (1 spacings for 2 dims)", mt.gradient, x, { 1 })
    says("'gradient' (coordinates of shape [2] for dim 2 of shape [2, 3])", mt.gradient,
      x, { 1, mt.zeros(2) })
    says("#3 to 'gradient' (dim 3 is out of range", mt.gradient, x, 1, 3)
    says("'gradient' (edge_order is 3, want 1 or 2)", mt.gradient, x, 1, 1, 3)
    says("'histogram' (bins must be at least 1, got 0)", mt.histogram, x, 0)
    says("'histogram' (weight has shape [2], x [2, 3])", mt.histogram, x, 2,
      { weight = mt.zeros(2) })
    says("'histogram' (the range of the elements is not finite)", mt.histogram,
      x + 0 / 0, 2)
    says("'histogram' (a range beside edges)", mt.histogram, x, mt.arange(3),
      { range = { 0, 1 } })
    local function rising(...) return mt.tensor { ... } end
    says("#2 to 'histogram' (edge 3 is 1.0, below the one before, 2.0)", x.histogram, x,
      rising(0, 2, 1))
    says("#2 to 'histogram' (edge 1 is nan)", mt.histogram, x, rising(0 / 0, 2))
    says("#2 to 'histogram' (edge 2 is nan)", mt.histogram, x, rising(0, 0 / 0, 1))
    for count, range in ipairs { { 1 }, { 0, 1, 2 } } do
      says(("#3 to 'histogram' (the range has %d numbers, want 2)"):format(#range),
        mt.histogram, x, count, { range = range })
    end
    says("'interp' (a vector of one point or more expected, got shape [2, 3])",
      mt.interp, x, x, x)
    says("'interp' (values has shape [2], want [3])", mt.interp, x, mt.arange(3),
      mt.arange(2))
    says("'histogramdd' (points of 1 .. 12 dims expected, got shape [2])",
      mt.histogramdd, mt.zeros(2))
    says("'histogramdd' (2 bins for 3 dims)", mt.histogramdd, x, { 1, 2 })
    says("'histogramdd' (bins must be at least 1, got 0)", mt.histogramdd, x, 0)
    says("'histogramdd' (weight has shape [3], want [2])", mt.histogramdd, x, 2,
      { weight = mt.zeros(3) })
    local one = mt.zeros(5, 1)
    says("'histogramdd' (range[2] must be at least 1, got 0", mt.histogramdd, one, 2,
      { range = { { 1, 0 } } })
    says("#2 to 'histogramdd' (edge 2 of dim 3 is 0.0, below the one before, 1.0)",
      mt.histogramdd, x, { 1, rising(0, 1), rising(1, 0) })
    says("#2 to 'histogramdd' (edge 2 of dim 1 is nan)", mt.histogramdd, x,
      rising(0, 0 / 0))
    says("#3 to 'histogramdd' (2 ranges for 1 dims)", mt.histogramdd, one, 2,
      { range = { 0, 1 } })
    says("#3 to 'histogramdd' (0 ranges for 1 dims)", mt.histogramdd, one, 2,
      { range = {} })
    says("#3 to 'histogramdd' (the range of dim 1 has 3 numbers, want 2)",
      mt.histogramdd, one, 2, { range = { { 0, 1, 2 } } })
    says("'float_power' (tensor expected, got integer)", mt.float_power, 2, 3)
  end)
end)
