-- spec/programs_spec.lua: random programs of views and in-place ops: backward either
-- gives what central differences give, or says that a value was changed in place.

local mt = require "mytensor"

local PROGRAMS = 150
local SEED = tonumber(os.getenv "MYTENSOR_SEED") or os.time()
local STEP, TOLERANCE = 1e-6, 1e-5

-- Numbers of our own, so that a program is the same however often it runs.
local function generator(seed)
  local state = seed % 2147483647 + 1
  return function(lo, hi)
    state = state * 48271 % 2147483647
    return lo + state // 7 % (hi - lo + 1)
  end
end

local function some_dim(random, t)
  local dim = random(1, t:dim())
  return dim, t:size(dim)
end

-- Each gives a new tensor, made of t and of u of the same shape.
local MAKERS = {
  function(t, random) return t * (random(3, 15) / 10) end,
  function(t) return t:sin() end,
  function(t, _, u) return t + u end,
  function(t, _, u) return t * u end,
}

-- Each gives a view of t, which has a dim at least.
local VIEWS = {
  function(t, random)
    local dim, size = some_dim(random, t)
    local from = random(1, size)
    return t:narrow(dim, from, random(1, size - from + 1))
  end,
  function(t, random)
    local dim, size = some_dim(random, t)
    return t:select(dim, random(1, size))
  end,
  function(t) return t:transpose(1, -1) end,
  function(t) return t:unsqueeze(1) end,
  function(t) return t:reshape(-1) end,
  function(t, random)
    local dim, size = some_dim(random, t)
    return t:unfold(dim, math.min(2, size), random(1, 2))
  end,
}

-- Each changes t.
local CHANGES = {
  function(t, random) t:mul_(random(3, 15) / 10) end,
  function(t) t:sin_() end,
  function(t) t:exp_():mul_(0.1) end,
  function(t, random) t:fill_(random(1, 9) / 10) end,
  function(t, _, u) t:add_(u) end,
  function(t, _, u) t:mul_(u) end,
  function(t, _, u) t:copy_(u) end,
  function(t) t:mul_(t) end,
  function(t, random)
    if t:dim() > 0 then t[random(1, t:size(1))] = 0.5 end
  end,
}

local function same_shape(pool, t, random)
  local fitting = {}
  for _, u in ipairs(pool) do
    if table.concat(u:shape(), ",") == table.concat(t:shape(), ",") then
      fitting[#fitting + 1] = u
    end
  end
  return fitting[random(1, #fitting)]
end

-- The program of a seed on x and w, (3, 4) each: the sum over all tensors it made.
local function run(seed, x, w)
  local random = generator(seed)
  local pool = { x * 1, w * 1, mt.zeros({ 3, 4 }, { dtype = "float64" }) }
  for _ = 1, random(4, 14) do
    local t = pool[random(1, #pool)]
    local u, kind = same_shape(pool, t, random), random(1, 3)
    if kind == 1 then
      pool[#pool + 1] = MAKERS[random(1, #MAKERS)](t, random, u)
    elseif kind == 2 then
      if t:dim() > 0 and t:dim() < 5 then
        pool[#pool + 1] = VIEWS[random(1, #VIEWS)](t, random)
      end
    else
      local ok, err = pcall(CHANGES[random(1, #CHANGES)], t, random, u)
      -- Windows that overlap are not written to.
      if not ok and not err:find("share memory", 1, true) then error(err, 0) end
    end
  end
  local loss = 0
  for _, t in ipairs(pool) do loss = loss + (t * t:cos()):sum() end
  return loss
end

local function start(factor)
  return (mt.arange(12, { dtype = "float64" }):view(3, 4) * factor):sin()
end

local function slope(seed, points, which, i, j)
  local function at(offset)
    local moved = { points[1]:clone(), points[2]:clone() }
    moved[which][{ i, j }] = points[which][{ i, j }]:item() + offset
    return run(seed, moved[1], moved[2]):item()
  end
  return (at(STEP) - at(-STEP)) / (2 * STEP)
end

local function check(seed, points)
  local leaves = {}
  for k, t in ipairs(points) do leaves[k] = t:clone():requires_grad_() end
  local loss = run(seed, leaves[1], leaves[2])
  local ok, err = pcall(loss.backward, loss)
  if not ok then
    assert.truthy(err:find("changed in place", 1, true), seed .. ": " .. err)
    return false
  end
  for k, leaf in ipairs(leaves) do
    local i, j = seed % 3 + 1, seed % 4 + 1
    local want = slope(seed, points, k, i, j)
    local got = leaf.grad and leaf.grad[{ i, j }]:item() or 0
    assert.is_true(math.abs(got - want) <= TOLERANCE * (1 + math.abs(want)),
      ("program %d, leaf %d, [%d, %d]: %.9g, not %.9g"):format(
        seed, k, i, j, got, want))
  end
  return true
end

describe("backward through views and in-place ops", function()
  it("is right, or refused: random programs from seed " .. SEED, function()
    local points, right = { start(0.37), start(0.91) }, 0
    for seed = SEED, SEED + PROGRAMS - 1 do
      if check(seed, points) then right = right + 1 end
    end
    assert.is_true(right > PROGRAMS / 4, right .. " programs had a gradient")
  end)
end)
