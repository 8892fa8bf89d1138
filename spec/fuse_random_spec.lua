-- spec/fuse_random_spec.lua: every elementwise op fused, and random formulas: values
-- and gradients against the ops, on every device. MYTENSOR_FUZZ_SEED repeats a run,
-- MYTENSOR_FUSE_CALLS makes it longer.

local mt = require "mytensor"
local fused = require "spec.support.fused"
local near = fused.near

for _, device in ipairs { "cpu", "cuda" } do
  local on_device = fused.on(device, _ENV)
  local function double(...) return fused.double(device, ...) end
  local function agree(...) return fused.agree(device, ...) end

  describe("every elementwise op", function()
    on_device("is the same when it is fused", function()
      local CALLS = { unary = "%s(a)", predicate = "%s(a)", binary = "%s(a, b)",
        compare = "%s(a, b)", ternary = "%s(a, b, c)" }
      local calls, list = {}, {}
      for _, row in ipairs(mt.ops()) do
        if CALLS[row.kind] and row.dtypes ~= "int" and not row.internal then
          calls[#calls + 1] = CALLS[row.kind]:format(row.name)
          list[#list + 1] = row
        end
      end
      assert.is_true(#list > 70)
      local a = (mt.rand({ 40 }, { dtype = "float64" }) * 0.6 + 0.2):to(device)
      local b = (mt.rand({ 40 }, { dtype = "float64" }) * 0.6 + 0.2):to(device)
      local c = (mt.rand({ 40 }, { dtype = "float64" }) * 0.6 + 0.2):to(device)
      for first = 1, #list, 16 do
        local last = math.min(first + 15, #list)
        local f = mt.fuse("a, b, c", table.concat(calls, ", ", first, last))
        agree(f, function(...)
          local ys, xs = {}, { ... }
          for i = first, last do
            ys[#ys + 1] = mt[list[i].name](table.unpack(xs, 1, #list[i].inputs))
          end
          return table.unpack(ys)
        end, { a:requires_grad_(), b:requires_grad_(), c:requires_grad_() }, 1e-10)
      end
    end)
  end)

  -- ---- random formulas --------------------------------------------------------------
  local UNARY = { "silu(%s)", "sigmoid(%s)", "tanh(%s)", "sin(%s)", "relu(%s)",
    "gelu(%s)",
    "leaky_relu(%s, 0.2)", "clamp(%s, -1, 1)", "abs(%s)", "square(tanh(%s))", "-(%s)",
    "softplus(%s)", "exp(sin(%s))", "log1p(abs(%s))", "sqrt(1 + square(%s))",
    "elu(%s, 0.7)", "atan(%s)", "erf(%s)", "mish(%s)", "(%s) ^ 2", "mean(%s, -1, true)",
    "softmax(%s)", "amax(%s, -1, true)", "sum(sigmoid(%s), -1, true)" }
  local BINARY = { "(%s + %s)", "(%s - %s)", "(%s * %s)", "maximum(%s, %s)",
    "minimum(%s, %s)", "%s / (2 + sin(%s))", "hypot(%s, 1 + abs(%s))",
    "where(gt(%s, 0.1), 1, 0.5) * %s", "lerp(%s, %s, 0.3)", "addcmul(%s, a, %s, 0.5)" }

  local function random_formula(depth, reduces)
    if depth == 0 or math.random(6) == 1 then
      return ({ "a", "b", "c", "(c - 0.75)", "(b / 2)" })[math.random(5)]
    end
    if math.random(2) == 1 then
      local n = reduces and #UNARY or #UNARY - 4
      local unary = UNARY[math.random(n)]
      local inner = random_formula(depth - 1, reduces)
      -- of what has been reduced there is no reduction
      if unary:find "true%)" or unary:find "softmax" then inner = inner .. " + a" end
      return unary:format(inner)
    end
    return BINARY[math.random(#BINARY)]:format(random_formula(depth - 1, reduces),
      random_formula(depth - 1, reduces))
  end

  -- The formula, run op by op.
  local function unfused(text)
    local env = setmetatable({}, { __index = mt })
    function env.softmax(x) return x:softmax(-1) end
    return function(a, b, c)
      env.a, env.b, env.c = a, b, c
      return assert(load("return " .. text, "=formula", "t", env))()
    end
  end

  describe("random formulas", function()
    on_device("give what their ops give", function()
      local seed = tonumber(os.getenv "MYTENSOR_FUZZ_SEED") or os.time()
      print("seed " .. seed)
      math.randomseed(seed)
      mt.manual_seed(seed)
      local calls = tonumber(os.getenv "MYTENSOR_FUSE_CALLS")
        or device == "cuda" and 12 or 120 -- there each is compiled, and its gradients
      for i = 1, calls do
        local reduces = i % 3 == 0
        local text = "a * 1 + " .. random_formula(5, reduces)
        local ok, f = pcall(mt.fuse, "a, b, c", text)
        assert.is_true(ok, text .. ": " .. tostring(f))
        local a = double(3, 2, 37)
        local b = double(({ { 37 }, { 2, 37 }, { 2, 1 } })[i % 3 + 1])
        local xs = { a:requires_grad_(), b:requires_grad_(), double(1, 37) }
        if i % 2 == 0 then
          xs[1] = double(37, 2, 3):permute(3, 2, 1):requires_grad_()
        end
        local plain = unfused(text)
        local good, err = pcall(agree, f, plain, xs, 1e-9)
        assert.is_true(good, ("seed %d: %s: %s"):format(seed, text, err))
        local want = plain(table.unpack(xs))
        for k, x in ipairs(xs) do xs[k] = x:detach():float() end
        good, err = pcall(near, f(table.unpack(xs)), want, 2e-3)
        assert.is_true(good, ("seed %d: float32: %s: %s"):format(seed, text, err))
      end
    end)
  end)
end

describe("formulas with random changes", function()
  it("are errors that say so, or operators", function()
    local seed = tonumber(os.getenv "MYTENSOR_FUZZ_SEED") or os.time()
    print("seed " .. seed)
    math.randomseed(seed)
    local texts = { "silu(a) * b", "t = exp(a); t / sum(t, -1, true)",
      "a:sum(-1), b ^ -2",
      "softmax(a * b) + clamp(a, -1, inf)", "where(gt(a, b), a // 2, b % 3)",
      "std(a, -1, 0, true) - logsumexp(b, -1)" }
    local letters = "ab();:,=+-*/%^.012 tsx\0\255_"
    local made = 0
    for _ = 1, 3000 do
      local text = texts[math.random(#texts)]
      for _ = 1, math.random(2) do
        local i, k = math.random(#text), math.random(#letters)
        local before = text:sub(1, i - math.random(0, 1))
        text = before .. letters:sub(k, k) .. text:sub(i + 1)
      end
      local ok, f = pcall(mt.fuse, "a, b", text)
      if ok then
        made = made + 1
        local a, b = mt.rand(2, 3):requires_grad_(), mt.rand(2, 3):requires_grad_()
        local called, y = pcall(f, a, b)
        if called and y.requires_grad then
          mt.grad({ y:sum() }, { a, b }, { allow_unused = true })
        end
      else
        assert.truthy(tostring(f):find "fuse: ", ("%q: %s"):format(text, f))
      end
    end
    assert.is_true(made > 20, made .. " operators")
  end)
end)
