-- spec/ops/inverse_spec.lua: inverses, solutions and determinants of sizes at which the
-- kernels go other ways, by multiplying back, and what singular matrices give.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

-- so far from I may a x lie, beside 1: the condition is some hundreds
local allowed = { float64 = 1e-11, float32 = 5e-3 }

-- x x^T + 1, rows in another order: of a condition that grows slowly with the size.
local function square(shape)
  local n = shape[#shape]
  local x = mt.randn(shape, { dtype = "float64" }) / math.sqrt(n)
  local y = x:matmul(x:transpose(-1, -2)) + mt.eye(n, { dtype = "float64" })
  return y:roll(1, #shape - 1)
end

local shapes = {
  { 1, 1 }, { 4, 4 }, { 5, 5 }, { 16, 16 }, { 17, 17 }, { 31, 31 }, { 33, 33 },
  { 64, 64 }, { 65, 65 }, { 97, 97 }, { 128, 128 }, { 160, 160 }, { 200, 200 },
  { 239, 239 }, { 300, 300 }, { 1000, 3, 3 }, { 7, 40, 40 }, { 3, 260, 260 },
  { 2, 2, 130, 130 },
}

local function on(device)
  describe("elimination on " .. device, function()
    local function farthest(a, b) return (a - b):abs():max():item() end

    for dtype, most in pairs(allowed) do
      it("multiplies back, in " .. dtype, function()
        for _, shape in ipairs(shapes) do
          local n = shape[#shape]
          local a = square(shape):to(dtype)
          local exact, given = a:double(), a:to(device)
          local text = table.concat(shape, " x ")
          local one = mt.eye(n, { dtype = "float64" })
          local inverse = given:inverse():cpu():double()
          assert.is_true(farthest(exact:matmul(inverse), one) < most, text)
          for _, k in ipairs { 1, 7, 70 } do
            shape[#shape] = k
            local b = mt.randn(shape, { dtype = "float64" }):to(dtype)
            shape[#shape] = n
            local x = given:solve(b:to(device)):cpu():double()
            assert.is_true(farthest(exact:matmul(x), b:double()) < most, text)
          end
        end
      end)
    end

    it("multiplies determinants", function()
      for _, n in ipairs { 3, 33, 70, 200, 300 } do
        local a, b = square { n, n }:to(device), square { 2, n, n }:to(device)
        local sign, size = a:slogdet()
        local sign_b, size_b = b:slogdet()
        local both, sum = a:matmul(b):slogdet()
        assert.same((sign * sign_b):totable(), both:totable())
        assert.is_true(farthest(sum, size + size_b) < 1e-9, n)
        local unit = a / (size / n):exp()
        assert.is_true(math.abs(unit:det():item() - sign:item()) < 1e-9, n)
      end
    end)

    it("gives one matrix what it gives it in a batch", function()
      local a = square { 5, 20, 20 }:to(device)
      local all = a:inverse()
      for i = 1, 5 do assert.is_true(mt.equal(a[i]:inverse(), all[i])) end
    end)

    it("lets NaN through", function()
      local a = mt.eye(40):to(device)
      a[{ 7, 9 }] = 0 / 0
      assert.is_true(a:inverse():isnan():any():item())
      assert.is_true(a:det():isnan():item())
    end)

    it("has gradients of determinants that are 0, at any rank", function()
      local function det(x) return x:det() end
      local x = mt.tensor({
        { { 2, 1, 3 }, { 4, 2, 6 }, { 1, 0, 5 } },  -- rank 2
        { { 1, 2, 4 }, { 2, 4, 8 }, { 4, 8, 16 } }, -- rank 1, nothing is rounded
        { { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } },
        { { 2, 1, 0 }, { 1, 3, 1 }, { 0, 1, 4 } },  -- 18
      }, { dtype = "float64", device = device, requires_grad = true })
      assert.same({ 0, 0, 0 }, x[{ { 1, 3 } }]:det():totable())
      x:det():sum():backward()
      assert.same({ { 10, -14, -2 }, { -5, 7, 1 }, { 0, 0, 0 } },
        x.grad[1]:totable())
      assert.equal(0, x.grad[{ { 2, 3 } }]:abs():sum():item())
      assert.is_true(mt.gradcheck(det, { x }))
      assert.is_true(mt.gradgradcheck(det, { x }))
      for _, n in ipairs { 1, 2, 5 } do
        x = mt.zeros({ n, n }, { dtype = "float64", device = device })
        assert.is_true(mt.gradcheck(det, { x:requires_grad_() }), n)
        assert.is_true(mt.gradgradcheck(det, { x }), n)
      end
    end)

    it("has gradients of determinants of rank 1, 0 up to rounding", function()
      -- Of a minor a d - b c = 0, b / a and c times it are rounded: eps |b c| at most.
      -- For x = v v^T, v = 1, 2, 3, the |b c| of all minors sum to (1 2 + 1 3 + 2 3)^2.
      local v = mt.tensor { 1, 2, 3 }
      for dtype, epsilon in pairs { float64 = 2.0 ^ -52, float32 = 2.0 ^ -23 } do
        local x = v:outer(v):to(dtype):to(device):requires_grad_()
        local g = mt.grad(x:det(), x, { create_graph = true })[1] -- from the minors
        assert.is_true(g:abs():sum():item() <= 121 * epsilon, dtype)
      end
    end)

    it("has gradients of determinants of halves, 0 up to rounding", function()
      -- in float32 their determinants are small, their inverses beyond float16
      local x = mt.tensor({
        { { -49, -21, -31 }, { 23, 18, -25 }, { -26, -17, 12 } },
        { { -58, -16, 72 }, { 44, 16, -56 }, { -11, 10, 9 } },
        { { -26, 16, -10 }, { -18, 10, -36 }, { 28, -17, 17 } },
        { { -26, 18, 37 }, { -24, -18, -12 }, { -44, 12, 38 } },
        { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } },
      }, { dtype = "float64", requires_grad = true })
      x:det():sum():backward()
      for dtype, epsilon in pairs { float16 = 2.0 ^ -10, bfloat16 = 2.0 ^ -7 } do
        local a = x:detach():to(dtype):to(device):requires_grad_()
        a:det():sum():backward()
        local most = epsilon * x.grad:abs():max():item()
        assert.is_true(farthest(a.grad:cpu():double(), x.grad) <= most, dtype)
      end
    end)

    it("has second gradients of determinants that are 0 up to rounding", function()
      local function det(x) return x:det() end
      local x = mt.tensor({ { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } },
        { dtype = "float64" })
      for dtype, most in pairs { float64 = 1e-14, float32 = 1e-5, float16 = 1e-2 } do
        local a = x:to(dtype):to(device):requires_grad_()
        local g = mt.grad(a:det(), a, { create_graph = true })[1]
        local second = mt.grad(g[1][1], a)[1]:cpu():double()
        local want = mt.tensor({ { 0, 0, 0 }, { 0, 9, -8 }, { 0, -6, 5 } },
          { dtype = "float64" })
        assert.is_true(farthest(second, want) <= most, dtype)
      end
      mt.manual_seed(11)
      for n = 2, 5 do
        for _, scale in ipairs { 1, 1e-9, 1e9 } do
          -- of each four one is of rank n - 1, one of rank n, one of 0, one of 1
          local a = mt.randn({ 2, 4, n, n - 1 }, { dtype = "float64" })
          local b = mt.randn({ 2, 4, n - 1, n }, { dtype = "float64" })
          a[{ {}, 4, {}, { 2, -1 } }] = 0
          local product = a:matmul(b)
          for i = 1, 2 do
            product[i][2] = square { n, n }
            product[i][3]:zero_()
          end
          local given = product:to(device):requires_grad_()
          -- rows and columns of other sizes change nothing
          local row = mt.ones({ n, 1 }, { dtype = "float64" })
          row[1][1] = scale
          row = row:to(device)
          local function scaled(m) return det(m * row * row:t()) / scale ^ 2 end
          assert.is_true(mt.gradcheck(scaled, { given }), n)
          assert.is_true(mt.gradgradcheck(scaled, { given }), n)
        end
      end
    end)

    it("has second gradients of determinants that are small", function()
      for _, n in ipairs { 1, 4, 20 } do
        local one = mt.eye(n, { dtype = "float64", device = device })
        local x = (one * 1e-5):requires_grad_()
        local g = mt.grad(x:det(), x, { create_graph = true })[1]
        local second = mt.grad(g:trace(), x)[1] -- (n - 1) 1e-5^(n - 2) on the diagonal
        local want = one * ((n - 1) * (n == 1 and 0 or 1e-5 ^ (n - 2)))
        assert.is_true(farthest(second, want) <= 1e-12 * want:abs():max():item(), n)
      end
    end)

    it("lets NaN and infinity through second gradients", function()
      for _, bad in ipairs { 0 / 0, math.huge } do
        local x = mt.eye(3, { dtype = "float64" })
        x[2][3] = bad
        x = x:to(device):requires_grad_()
        local g = mt.grad(x:det(), x, { create_graph = true })[1]
        assert.is_true(mt.grad(g:sum(), x)[1]:isnan():any():item())
      end
    end)

    it("says so where a determinant of 0 is too large for that", function()
      local x = mt.zeros({ 3, 80, 80 }, { device = device })
      x[2] = 1e-5 * mt.eye(80):to(device) -- its determinant is too small for float32
      x:requires_grad_()
      expect.says("the gradient of det of shape [3, 80, 80], 2 of it 0", function()
        mt.grad(x:det():sum(), x, { create_graph = true })
      end)
      x[{ 2 }]:det():backward { create_graph = true }
      assert.equal(0, x.grad:abs():max():item())
    end)

    it("has first gradients of determinants that are 0 at any size", function()
      for dtype, most in pairs { float64 = 1e-11, float32 = 1e-3, float16 = 1e-2 } do
        for _, n in ipairs { 65, 130, 256 } do
          local one = mt.eye(n, { dtype = "float64" })
          local ones = mt.ones({ n, n }, { dtype = "float64" })
          local less = one:clone() -- one cofactor is 1, all others are 0
          less[n // 2]:zero_()
          local all = mt.stack { less, ones, ones * 0, one }
          all = all:to(dtype):to(device):requires_grad_()
          assert.equal(1, all:det():sum():item())
          all:det():sum():backward()
          local want = mt.zeros({ 4, n, n }, { dtype = "float64" })
          want[{ 1, n // 2, n // 2 }] = 1
          want[4] = one
          assert.is_true(farthest(all.grad:cpu():double(), want) < most, dtype)
        end
      end
    end)

    it("has first gradients that tell the determinant with another row", function()
      for _, n in ipairs { 65, 130 } do
        local x = square { n, n }
        local _, size = x:slogdet()
        x = x / (size / n):exp() -- a determinant of 1 or -1, but for the next line
        x[3] = x[n - 2]
        local given = x:clone():to(device):requires_grad_()
        local y = given:det()
        assert.equal(0, y:item())
        y:backward()
        local g, row = given.grad:cpu(), mt.randn({ n }, { dtype = "float64" })
        local largest = g:abs():max():item()
        assert.is_true(farthest(g[3], -g[n - 2]) < 1e-10 * largest, n)
        g[n - 2]:zero_()
        x[3] = row
        assert.is_true(math.abs(x:det():item() - g[3]:dot(row):item()) < 1e-9 * largest)
        g[3]:zero_()
        assert.is_true(g:abs():max():item() < 1e-10 * largest, n)
      end
    end)

    it("says which matrix is singular", function()
      for _, n in ipairs { 3, 250 } do
        local a = mt.eye(n):expand(4, n, n):clone():to(device)
        a[3][2]:zero_()
        expect.says("matrix 3 of the batch is singular: column 2 has no pivot",
          function()
            local x = a:inverse()
            if device == "cuda" then mt.cuda.synchronize() end
            return x
          end)
        assert.same({ 1, 1, 0, 1 }, a:det():totable())
        local sign, size = a:slogdet()
        assert.same({ 1, 1, 0, 1 }, sign:totable())
        assert.same({ 0, 0, -math.huge, 0 }, size:totable())
      end
    end)
  end)
end

devices.each(_ENV, on)
