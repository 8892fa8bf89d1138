-- spec/lua/products_spec.lua: einsum, tensordot and norms of matrices, on every device,
-- against loops over all positions.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local expect = require "spec.support.expect"

local says = expect.says

local function near(want, got, what)
  assert.same(want:shape(), got:shape(), what)
  assert.is_true(got:cpu():allclose(want:cpu(), 1e-9, 1e-9), what)
end

-- Einstein's sum, element by element: every letter takes every value.
local function slow_einsum(equation, tensors)
  local left, right = equation:match "^(.-)%->(.*)$"
  local operands, sizes, letters = {}, {}, {}
  for part in (left .. ","):gmatch "([^,]*)," do operands[#operands + 1] = part end
  for i, part in ipairs(operands) do
    for d = 1, #part do
      local letter = part:sub(d, d)
      if not sizes[letter] then letters[#letters + 1] = letter end
      local size = tensors[i]:size(d)
      if size ~= 1 or not sizes[letter] then sizes[letter] = size end
    end
  end
  local shape, count, at, sums = {}, 1, {}, {}
  for d = 1, #right do
    shape[d] = sizes[right:sub(d, d)]
    count = count * shape[d]
  end
  for o = 1, count do sums[o] = 0.0 end
  local values, strides = {}, {}
  for i, t in ipairs(tensors) do
    values[i] = t:cpu():contiguous():view(t:numel()):totable()
    strides[i] = t:contiguous():stride()
  end
  local function visit(n)
    if n <= #letters then
      for value = 1, sizes[letters[n]] do
        at[letters[n]] = value
        visit(n + 1)
      end
      return
    end
    local product, o = 1.0, 0
    for i, part in ipairs(operands) do
      local position = 1
      for d = 1, #part do
        local stretched = tensors[i]:size(d) == 1
        local index = stretched and 0 or at[part:sub(d, d)] - 1
        position = position + index * strides[i][d]
      end
      product = product * values[i][position]
    end
    for d = 1, #right do o = o * shape[d] + at[right:sub(d, d)] - 1 end
    sums[o + 1] = sums[o + 1] + product
  end
  visit(1)
  return mt.tensor(sums, { dtype = "float64" }):view(shape)
end

local CASES = {
  { "ij,jk->ik", { 2, 3 }, { 3, 4 } }, { "ij,jk->ki", { 2, 3 }, { 3, 4 } },
  { "ij,kj->ik", { 2, 3 }, { 4, 3 } }, { "ji,jk->ki", { 3, 2 }, { 3, 4 } },
  { "bij,bjk->bik", { 2, 2, 3 }, { 2, 3, 2 } },
  { "bij,bjk->kbi", { 2, 2, 3 }, { 2, 3, 2 } },
  { "i,i->", { 3 }, { 3 } }, { "i,j->ij", { 2 }, { 3 } }, { "i,j->ji", { 2 }, { 3 } },
  { "ii->i", { 3, 3 } }, { "ii->", { 3, 3 } }, { "iij->ji", { 2, 2, 3 } },
  { "ijj,jk->ik", { 2, 3, 3 }, { 3, 2 } }, { "iiii->i", { 2, 2, 2, 2 } },
  { "ijij->ij", { 2, 3, 2, 3 } }, { "ij,ij->ij", { 2, 3 }, { 2, 3 } },
  { "ij,ij->", { 2, 3 }, { 2, 3 } }, { "ij,ij->i", { 2, 3 }, { 2, 3 } },
  { "ij,j->i", { 2, 3 }, { 3 } }, { "j,ij->i", { 3 }, { 2, 3 } },
  { "ijk->k", { 2, 3, 2 } }, { "ijk->", { 2, 3, 2 } }, { "ij->ji", { 2, 3 } },
  { "ij,kl->ijkl", { 2, 2 }, { 2, 3 } }, { "i,j,k->kij", { 2 }, { 3 }, { 2 } },
  { "ijkl,ijmn->klmn", { 2, 2, 2, 2 }, { 2, 2, 2, 2 } },
  { "abcd,cbe,ad->ed", { 2, 3, 2, 2 }, { 2, 3, 2 }, { 2, 2 } },
  { "ij,jk,kl,lm->im", { 2, 3 }, { 3, 2 }, { 2, 4 }, { 4, 2 } },
  { "a,ab,abc->c", { 2 }, { 2, 3 }, { 2, 3, 2 } },
  { "bhqd,bhkd->bhqk", { 2, 2, 3, 2 }, { 2, 2, 2, 2 } },
  { "bhqk,bkhd->bqhd", { 2, 2, 3, 2 }, { 2, 2, 2, 2 } },
  -- sizes of 1 stretch
  { "ij,jk->ik", { 2, 1 }, { 3, 4 } }, { "ij,ij->ij", { 1, 3 }, { 2, 1 } },
  { "i,->i", { 3 }, {} }, { "ij,jk->ik", { 0, 3 }, { 3, 2 } },
  { "ij,jk->ik", { 2, 0 }, { 0, 2 } },
}

local function on(device)
  local function randn(shape)
    return mt.randn(shape, { dtype = "float64" }):to(device)
  end
  before_each(function() mt.manual_seed(3) end)

  describe("einsum on " .. device, function()
    it("multiplies bool where nothing is summed", function()
      local a = mt.tensor({ { true, false }, { true, true } }, { device = device })
      local b = mt.tensor({ true, false }, { device = device })
      assert.same({ { true, false }, { true, false } },
        mt.einsum("ij,j->ij", a, b):totable())
      assert.same({ { true, false }, { false, false } },
        mt.einsum("i,j->ij", b, b):totable())
    end)

    it("takes nil at the end as left out, and nowhere else", function()
      local a = mt.ones({ 2 }, { device = device })
      assert.equal(2, mt.einsum("i,i", a, a, nil, nil):item())
      local ok, err = pcall(mt.einsum, "i,i,i", a, nil, a)
      assert.is_false(ok)
      assert.truthy(err:find("#3 to 'einsum' (tensor expected, got nil)", 1, true), err)
    end)

    for _, case in ipairs(CASES) do
      local equation = case[1]
      it(equation .. " is the sum it says", function()
        local tensors, leaves = {}, {}
        for i = 2, #case do tensors[i - 1] = randn(case[i]) end
        local want = slow_einsum(equation, tensors)
        near(want, mt.einsum(equation, table.unpack(tensors)), equation)
        near(want, mt.einsum(equation, tensors), equation)
        for i, t in ipairs(tensors) do
          if t:numel() == 0 then return end
          -- strided ones, too
          local wide = randn(t:shape()):unsqueeze(-1):expand(
            table.unpack(table.move({ 2 }, 1, 1, t:dim() + 1, t:shape()))):clone()
          wide:select(-1, 2):copy_(t)
          leaves[i] = wide:select(-1, 2):detach():requires_grad_()
        end
        local function fn(...) return mt.einsum(equation, ...) end
        near(want, fn(table.unpack(leaves)), equation .. ", strided")
        assert.is_true(mt.gradcheck(fn, leaves))
        assert.is_true(mt.gradgradcheck(fn, leaves))
      end)
    end

    it("lets '...' stand for any dims", function()
      local x, w = randn { 2, 3, 4 }, randn { 4, 5 }
      near(x:matmul(w), mt.einsum("...j,jk->...k", x, w))
      near(x:matmul(w), mt.einsum("...j , jk", x, w))
      near(x:transpose(-1, -2), mt.einsum("...jk->...kj", x))
      near((x * x):sum(1), mt.einsum("b...,b...->...", x, x))
      near(x * x[1], mt.einsum("...,...", x, x[1]))
      near(x:sum(), mt.einsum("...->", x))
    end)

    it("without an arrow orders by the alphabet", function()
      local x, w = randn { 2, 3 }, randn { 2, 4 }
      near(x:t():matmul(w), mt.einsum("ab,ac", x, w))
      near(x:t(), mt.einsum("ba", x))
    end)

    it("takes many operands, and the cheapest order", function()
      local tensors, letters = {}, "abcdefghijklmn"
      local parts = {}
      for i = 1, 13 do
        tensors[i] = randn { i % 3 + 1, (i + 1) % 3 + 1 }
        parts[i] = letters:sub(i, i + 1)
      end
      local want = tensors[1]
      for i = 2, 13 do want = want:matmul(tensors[i]) end
      near(want, mt.einsum(table.concat(parts, ",") .. "->an", tensors))
      -- from left to right this would be a matrix of 4,000 by 4,000
      local a, b, v = randn { 4000, 1 }, randn { 1, 4000 }, randn { 4000 }
      local before = mt.memory_stats(device).allocations
      near(a:matmul(b:matmul(v)), mt.einsum("ij,jk,k->i", a, b, v))
      assert.is_true(mt.memory_stats(device).allocations - before < 40)
    end)

    it("works in every dtype", function()
      for _, dtype in ipairs { "float16", "bfloat16", "float32", "int64", "int32" } do
        local a = mt.arange(0, 6):view(2, 3):to(dtype):to(device)
        local y = mt.einsum("ij,kj->ik", a, a)
        assert.equal(dtype, y:dtype())
        assert.same({ { 5, 14 }, { 14, 50 } }, y:double():totable())
        assert.same({ 0, 4 }, mt.einsum("ii->i", a:narrow(2, 1, 2)):double():totable())
      end
    end)

    -- PyTorch's dtypes: what one tensor is summed over alone is summed as sum() does
    it("sums small integers of one tensor in int64, products in their dtype", function()
      for _, dtype in ipairs { "int8", "uint8", "int16", "int32" } do
        local x = mt.full({ 3, 3 }, 100, { dtype = "int64", device = device }):to(dtype)
        for _, equation in ipairs { "ij->j", "ij->", "ij,k->k", "ij,k->jk" } do
          local operands = equation:find "," and { x, x[1] } or { x }
          assert.equal("int64", mt.einsum(equation, operands):dtype(), equation)
        end
        for _, equation in ipairs { "ij,ij->", "ij,jk->ik", "ij,kl->ijkl" } do
          assert.equal(dtype, mt.einsum(equation, x, x):dtype(), equation)
        end
        for _, equation in ipairs { "ii->i", "ij->ji" } do
          assert.equal(dtype, mt.einsum(equation, x):dtype(), equation)
        end
        assert.same({ 300, 300, 300 }, mt.einsum("ij->j", x):totable())
      end
    end)
  end)

  describe("tensordot on " .. device, function()
    it("multiplies over given dims", function()
      local a, b = randn { 2, 3, 4 }, randn { 3, 4, 5 }
      near(mt.einsum("ijk,jkl->il", a, b), a:tensordot(b))
      near(mt.einsum("ijk,klm->ijlm", a, b:transpose(1, 2)),
        a:tensordot(b:transpose(1, 2), 1))
      near(mt.einsum("ijk,lmn->ijklmn", a, b), a:tensordot(b, 0))
      near(mt.einsum("ijk,jkl->il", a, b), mt.tensordot(a, b, { { 2, -1 }, { 1, 2 } }))
      near(mt.einsum("ijk,kjl->il", a, b:transpose(1, 2)),
        mt.tensordot(a, b:transpose(1, 2), { { 2, 3 }, { 2, 1 } }))
      local leaves = { a:clone():requires_grad_(), b:clone():requires_grad_() }
      assert.is_true(mt.gradcheck(function(x, y) return x:tensordot(y) end, leaves))
    end)
  end)

  describe("directions on " .. device, function()
    it("normalize gives vectors of length 1", function()
      local x = randn { 3, 4 }
      near(mt.ones(3, { dtype = "float64" }), mt.normalize(x):norm(2, 2))
      near(mt.ones(4, { dtype = "float64" }), mt.normalize(x, 1, 1):abs():sum(1))
      assert.equal(0, mt.normalize(x * 0):abs():sum():item())
      assert.is_true(mt.gradgradcheck(mt.normalize, { x:requires_grad_() }))
    end)

    it("cosine_similarity is that of the angle", function()
      local a = mt.tensor({ { 1, 0 }, { 1, 1 } }, { dtype = "float64" }):to(device)
      local b = mt.tensor({ 2, 2 }, { dtype = "float64" }):to(device)
      near(mt.tensor({ math.sqrt(0.5), 1 }, { dtype = "float64" }),
        mt.cosine_similarity(a, b))
      assert.is_true(mt.gradcheck(mt.cosine_similarity,
        { randn({ 2, 3 }):requires_grad_(), randn({ 2, 3 }):requires_grad_() }))
    end)
  end)

  describe("matrix_exp on " .. device, function()
    it("is e to the power of a matrix", function()
      local turn = mt.tensor({ { 0, -1 }, { 1, 0 } }, { dtype = "float64",
        device = device })
      for _, angle in ipairs { 0, 0.3, 2, 30 } do
        local c, s = math.cos(angle), math.sin(angle)
        near(mt.tensor({ { c, -s }, { s, c } }, { dtype = "float64" }),
          (turn * angle):matrix_exp())
      end
      local list = mt.tensor({ 1, -2, 0.5 }, { device = device })
      assert.is_true(list:diag():matrix_exp():allclose(list:exp():diag(), 1e-6, 1e-7))
      local nilpotent = mt.tensor({ { 0, 100 }, { 0, 0 } }, { device = device })
      assert.same({ { { 1, 100 }, { 0, 1 } } }, nilpotent:unsqueeze(1):matrix_exp()
        :totable())
      local empty = mt.zeros(2, 0, 0, { device = device })
      assert.same({ 2, 0, 0 }, empty:matrix_exp():shape())
    end)

    it("has gradients, and those have some", function()
      local x = randn { 2, 3, 3 }:requires_grad_()
      assert.is_true(mt.gradcheck(mt.matrix_exp, { x }))
      assert.is_true(mt.gradgradcheck(mt.matrix_exp, { x }))
    end)
  end)

  describe("matrix_norm on " .. device, function()
    -- singular values 3, 2, 1 between two reflections
    local function reflection(list)
      local v = mt.tensor(list, { dtype = "float64" })
      return mt.eye(#list, { dtype = "float64" }) - v:outer(v) * (2 / v:dot(v):item())
    end
    local function known()
      local values = mt.tensor({ 3, 2, 1 }, { dtype = "float64" })
      return reflection({ 1, 2, -1 }):matmul(values:diag())
        :matmul(reflection({ 3, -1, 1, 2 }):narrow(1, 1, 3)):to(device)
    end

    it("knows the singular values", function()
      local a = known()
      for _, x in ipairs { a, a:t(), mt.stack { a, a * 2 } } do
        local scale = x:dim() == 3 and mt.tensor({ 1, 2 }, { dtype = "float64" }) or
          mt.tensor(1, { dtype = "float64" })
        near(scale * 3, x:matrix_norm(2))
        near(scale, x:matrix_norm(-2))
        near(scale * 6, x:matrix_norm "nuc")
        near(scale * math.sqrt(14), x:matrix_norm())
      end
      near(mt.tensor(3, { dtype = "float64" }), (known() * 1e-30):matrix_norm(2) * 1e30)
      assert.equal(0, mt.zeros(2, 3, { device = device }):matrix_norm(2):item())
      assert.equal(0, mt.zeros(2, 3, { device = device }):matrix_norm("nuc"):item())
    end)

    it("knows the smallest singular value of any shape", function()
      local function of(list)
        return mt.tensor(list, { dtype = "float64", device = device }):matrix_norm(-2)
      end
      local function is(want, got)
        assert.is_true(math.abs(got:item() - want) <= 1e-12 * want, got:item())
      end
      is(0.25, of { { 0, 4, 0 }, { 0, 0, -2 }, { 0.25, 0, 0 } })
      is(1e-9, of { { 1, 0 }, { 0, 1e-9 }, { 0, 0 } })
      is(1e-200, of { { 0, 1e-200 }, { 1, 0 } })
      is(5, of { { 3 }, { 4 } })
      is(0, of { { 1, 2 }, { 2, 4 } })
      is(0, of { { 1, 2, 0 }, { 2, 4, 0 } })
      local both = mt.stack { mt.zeros(2, 2), mt.eye(2) * 3 }:to(device)
      assert.same({ 0, 3 }, both:matrix_norm(-2):totable())
      assert.same({ 0 }, mt.zeros(0, 3, 3, { device = device }):matrix_norm(-2):shape())
    end)

    it("sums rows and columns", function()
      local x = mt.tensor({ { 3, -1 }, { 0, 2 }, { 1, 5 } }, { device = device })
      assert.equal(8, x:matrix_norm(1):item())
      assert.equal(4, x:matrix_norm(-1):item())
      assert.equal(6, x:matrix_norm(math.huge):item())
      assert.equal(2, x:matrix_norm(-math.huge):item())
      assert.same({ { 8 } }, x:matrix_norm(1, { 1, 2 }, true):totable())
      local y = x:unsqueeze(2):expand(3, 4, 2)
      assert.same({ 1, 4, 1 }, y:matrix_norm(1, { 1, 3 }, true):shape())
      assert.same({ 8, 8, 8, 8 }, y:matrix_norm(1, { 1, 3 }):totable())
      assert.same({ 6, 6, 6, 6 }, y:matrix_norm(1, { 3, 1 }):totable())
    end)

    it("has gradients, and those have some", function()
      local x = randn { 2, 3, 2 }:requires_grad_()
      for _, p in ipairs { "fro", "nuc", 2, -2, 1, math.huge } do
        local function fn(t) return t:matrix_norm(p) end
        assert.is_true(mt.gradcheck(fn, { x }), tostring(p))
        assert.is_true(mt.gradgradcheck(fn, { x }), tostring(p))
      end
      local square = randn({ 2, 3, 3 }):requires_grad_()
      local function fn(t) return t:matrix_norm(-2) end
      assert.is_true(mt.gradcheck(fn, { square }))
      assert.is_true(mt.gradgradcheck(fn, { square }))
    end)
  end)
end

devices.each(_ENV, on)

describe("products", function()
  it("name what is wrong", function()
    local a, b = mt.ones(2, 3), mt.ones(3, 4)
    local six = mt.ones(1, 1, 1, 1, 1, 1)
    says("'tensordot' (shapes [1, 1, 1, 1, 1, 1, 1] and [1, 1, 1, 1, 1, 1]: a result "
      .. "of 13 dims, at most 12 are possible)", mt.tensordot, six:unsqueeze(1), six, 0)
    says("'matrix_exp' (square matrices expected, got shape [2, 3])", a.matrix_exp, a)
    says("'matrix_exp' (floats expected, got int64)", mt.matrix_exp, a:long())
    says("'einsum' ('ij,jk->iz': no tensor has 'z')", mt.einsum, "ij,jk->iz", a, b)
    says("'einsum' ('ij': 1 operands, but 2 tensors)", mt.einsum, "ij", a, b)
    says("'1' is no subscript", mt.einsum, "i1,jk", a, b)
    local freed = mt.ones(2, 2)
    freed:free()
    says("bad argument #3 to 'einsum' (the tensor was freed)", mt.einsum, "ij,jk", a,
      freed)
    local mask = mt.ones(2):bool()
    says("bad argument #2 to 'einsum' (sums of products of bool are not supported",
      mt.einsum, "i,i->", mask, mask)
    local many, letters = {}, {}
    for i = 1, 13 do
      many[i], letters[i] = mt.ones(1), string.char(96 + i)
    end
    says("a product on the way has 13 dims, more than 12", mt.einsum,
      table.concat(letters, ",") .. "->" .. table.concat(letters), many)
    says("'.' is no subscript", mt.einsum, "i..,jk", a, b)
    says("'...' stands twice", mt.einsum, "......", a)
    says("'i' stands twice in the result", mt.einsum, "ij,jk->ii", a, b)
    says("tensor 1 has 2 dims, 'ijk' wants 3", mt.einsum, "ijk,jk", a, b)
    says("tensor 1 has 2 dims, '...ijk' wants 3 or more", mt.einsum, "...ijk", a)
    says("'j' is 3 in tensor 1 and 4 in tensor 2", mt.einsum, "ij,kj->ik", a, b)
    says("'i' is 2 and 3 in tensor 1 of shape [2, 3]", mt.einsum, "ii", a)
    says("bad argument #1 to 'einsum' (string expected, got mytensor.Tensor)",
      mt.einsum, a)
    says("bad argument #3 to 'einsum' (tensor expected, got", mt.einsum, "i,j", a, 2)
    says("dim 2 of shape [2, 3] and dim 2 of shape [3, 4] differ", mt.tensordot, a, b,
      { { 2 }, { 2 } })
    says("2 dims of a, 1 of b", mt.tensordot, a, b, { { 1, 2 }, { 2 } })
    says("3 dims of shapes [2, 3] and [3, 4]", mt.tensordot, a, b, 3)
    says("'fro', 'nuc', 2, -2, 1, -1, inf or -inf expected, got 3", a.matrix_norm, a, 3)
    says("shape [2, 0] has no singular values", mt.matrix_norm, mt.ones(2, 0), -2)
    says("two dims expected, got shape [3]", mt.matrix_norm, mt.ones(3))
    says("floats expected, got int64", mt.matrix_norm, a:long())
  end)
end)
