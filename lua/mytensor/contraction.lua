-- lua/mytensor/contraction.lua: sums of products of tensors whose dims have labels: the
-- cheapest order, and a plan of permutations and batched products, for einsum and
-- tensordot.

local contraction = {}

-- ---- the order ----------------------------------------------------------------------
-- A set of operands is a bit mask. What an intermediate result keeps is what the output
-- or another operand has.

local most_for_best = 9 -- operands: 3^n pairs of subsets are looked at

local function popcount(x)
  local n = 0
  while x ~= 0 do
    x = x & (x - 1)
    n = n + 1
  end
  return n
end

-- label -> bits of the operands that have it; the output is bit n.
local function occurrences(inputs, output)
  local bits = {}
  for i, labels in ipairs(inputs) do
    for _, label in ipairs(labels) do
      bits[label] = (bits[label] or 0) | 1 << (i - 1)
    end
  end
  for _, label in ipairs(output) do
    bits[label] = (bits[label] or 0) | 1 << #inputs
  end
  return bits
end

-- Multiplications of the product of sets a and b.
local function cost_of(bits, sizes, a, b)
  local both, cost = a | b, 1.0
  for label, where in pairs(bits) do
    if where & both ~= 0 and (where & a == 0 or where & ~a ~= 0)
        and (where & b == 0 or where & ~b ~= 0) then
      cost = cost * sizes[label]
    end
  end
  return cost
end

-- The cheapest of all trees, by dynamic programming over subsets.
local function best_order(n, bits, sizes)
  local all = (1 << n) - 1
  local cost, cut = {}, {}
  for i = 0, n - 1 do cost[1 << i] = 0.0 end
  local sets = {}
  for s = 1, all do sets[s] = s end
  table.sort(sets, function(a, b)
    local x, y = popcount(a), popcount(b)
    if x ~= y then return x < y end
    return a < b
  end)
  for _, s in ipairs(sets) do
    if s & (s - 1) ~= 0 then
      local part = (s - 1) & s
      while part > 0 do
        local rest = s ~ part
        if part > rest then
          local c = cost[part] + cost[rest] + cost_of(bits, sizes, part, rest)
          if not cost[s] or c < cost[s] then cost[s], cut[s] = c, part end
        end
        part = (part - 1) & s
      end
    end
  end
  local steps = {}
  local function visit(s)
    local part = cut[s]
    if not part then return end
    visit(part)
    visit(s ~ part)
    steps[#steps + 1] = { part, s ~ part }
  end
  visit(all)
  return steps
end

-- Of many operands always the pair that is cheapest now.
local function greedy_order(n, bits, sizes)
  local sets, steps = {}, {}
  for i = 0, n - 1 do sets[#sets + 1] = 1 << i end
  while #sets > 1 do
    local best, at, with
    for i = 1, #sets do
      for j = i + 1, #sets do
        local c = cost_of(bits, sizes, sets[i], sets[j])
        if not best or c < best then best, at, with = c, i, j end
      end
    end
    steps[#steps + 1] = { sets[at], sets[with] }
    sets[at] = sets[at] | sets[with]
    table.remove(sets, with)
  end
  return steps
end

-- ---- the plan -----------------------------------------------------------------------
-- Shapes are part of a plan, so its steps know all dims and sizes beforehand.

-- dims of labels in wanted's order; nil: they are in that order.
local function order_of(labels, wanted)
  local place, order, moved = {}, {}, false
  for d, label in ipairs(labels) do place[label] = d end
  for i, label in ipairs(wanted) do
    order[i] = place[label]
    moved = moved or order[i] ~= i
  end
  return moved and order or nil
end

local function size_of(list, sizes)
  local n = 1
  for _, label in ipairs(list) do n = n * sizes[label] end
  return n
end

local function shape_of(list, sizes)
  local shape = {}
  for i, label in ipairs(list) do shape[i] = sizes[label] end
  return shape
end

local function join(...)
  local list = {}
  for _, part in ipairs { ... } do table.move(part, 1, #part, #list + 1, list) end
  return list
end

-- Diagonals, and sizes of 1 that others stretch.
local function prepare(labels, shape, sizes)
  local steps, current = {}, {}
  table.move(labels, 1, #labels, 1, current)
  local d = 1
  while d <= #current do
    local e = d + 1
    while e <= #current and current[e] ~= current[d] do e = e + 1 end
    if e <= #current then
      steps[#steps + 1] = { "diagonal", 0, d, e }
      local label = table.remove(current, e)
      table.remove(current, d)
      current[#current + 1] = label
    else
      d = d + 1
    end
  end
  local size = {}
  for i, label in ipairs(labels) do size[label] = shape[i] end
  for i = #current, 1, -1 do
    if size[current[i]] == 1 and sizes[current[i]] ~= 1 then
      steps[#steps + 1] = { "select", i, 1 }
      table.remove(current, i)
    end
  end
  return steps, current
end

-- Sums over what nobody else has.
local function sum_alone(steps, labels, bits, own)
  local summed = {}
  for i = #labels, 1, -1 do
    if bits[labels[i]] == own then
      table.insert(summed, 1, i)
      table.remove(labels, i)
    end
  end
  if #summed > 0 then steps[#steps + 1] = { "sum", summed } end
end

local function set_of(labels)
  local set = {}
  for _, label in ipairs(labels) do set[label] = true end
  return set
end

-- The labels of a and b: those of both that the result keeps, of a alone, of b alone,
-- of both and summed. keep: label -> is it in the result?
local function groups_of(a, b, keep, sizes)
  local in_a, in_b = set_of(a), set_of(b)
  local batch, left, right, inner = {}, {}, {}, {}
  for _, label in ipairs(a) do
    if not in_b[label] then
      left[#left + 1] = label
    elseif keep[label] then
      batch[#batch + 1] = label
    end
  end
  for _, label in ipairs(size_of(a, sizes) >= size_of(b, sizes) and a or b) do
    if in_a[label] and in_b[label] and not keep[label] then
      inner[#inner + 1] = label
    end
  end
  for _, label in ipairs(b) do
    if not in_a[label] then right[#right + 1] = label end
  end
  return batch, left, right, inner
end

-- Has b what the final result begins with, so that it should stand in front?
local function b_leads(a, b, first)
  local in_a, in_b = set_of(a), set_of(b)
  for _, label in ipairs(first) do
    if in_a[label] ~= in_b[label] then return in_b[label] == true end
  end
  return false
end

local function ones(n)
  local list = {}
  for i = 1, n do list[i] = 1 end
  return list
end

-- Nothing is summed: dims of size 1 stand for the other's.
local function mul_step(a, b, batch, left, right, sizes)
  local many = shape_of(batch, sizes)
  return {
    kind = "mul", a_order = order_of(a, join(batch, left)),
    b_order = order_of(b, join(batch, right)),
    a_shape = join(many, shape_of(left, sizes), ones(#right)),
    b_shape = join(many, ones(#left), shape_of(right, sizes)),
  }
end

-- A batch of products of matrices. b's dims are left where they lie, if they are in
-- order: a transposed view serves as well.
local function matmul_step(a, b, batch, left, right, inner, sizes)
  local many = #batch > 0 and { size_of(batch, sizes) } or {}
  local rows, columns, depth = size_of(left, sizes), size_of(right, sizes),
    size_of(inner, sizes)
  local plain = order_of(b, join(batch, inner, right)) == nil
  return {
    kind = "matmul", transpose = not plain,
    a_order = order_of(a, join(batch, left, inner)),
    b_order = not plain and order_of(b, join(batch, right, inner)) or nil,
    a_shape = join(many, { rows, depth }),
    b_shape = join(many, plain and { depth, columns } or { columns, depth }),
    shape = shape_of(join(batch, left, right), sizes),
  }
end

-- One product of tensors with labels a and b; first: labels of the final result.
local function pair_step(a, b, keep, sizes, first)
  local batch, left, right, inner = groups_of(a, b, keep, sizes)
  local swap = b_leads(a, b, first)
  if swap then
    left, right, a, b = right, left, b, a
  end
  local step = #inner == 0 and mul_step(a, b, batch, left, right, sizes)
    or matmul_step(a, b, batch, left, right, inner, sizes)
  step.swap, step.labels = swap, join(batch, left, right)
  return step
end

--- The steps from tensors to their product.
--- @param inputs any[][] the labels of each tensor's dims
--- @param shapes integer[][]
--- @param output any[] the labels of the result's dims
--- @param sizes table label -> size
function contraction.plan(inputs, shapes, output, sizes)
  local n = #inputs
  local plan = { prepare = {}, steps = {} }
  local labels = {}
  for i = 1, n do
    plan.prepare[i], labels[i] = prepare(inputs[i], shapes[i], sizes)
  end
  local bits = occurrences(labels, output)
  for i = 1, n do sum_alone(plan.prepare[i], labels[i], bits, 1 << (i - 1)) end
  bits = occurrences(labels, output)
  local place = {} -- set -> index of its value
  for i = 1, n do place[1 << (i - 1)] = i end
  local order = n <= most_for_best and best_order(n, bits, sizes)
    or greedy_order(n, bits, sizes)
  local last = n
  for k, pair in ipairs(order) do
    local i, j = place[pair[1]], place[pair[2]]
    local both, keep = pair[1] | pair[2], {}
    for label, where in pairs(bits) do
      keep[label] = where & both ~= 0 and where & ~both ~= 0
    end
    local first = k == #order and output or {}
    local step = pair_step(labels[i], labels[j], keep, sizes, first)
    if step.swap then i, j = j, i end
    last = last + 1
    step.i, step.j = i, j
    plan.steps[k] = step
    labels[last] = step.labels
    place[both] = last
  end
  plan.final = order_of(labels[last], output)
  return plan
end

local function arranged(x, order, shape)
  if order then x = x:permute(order) end
  return shape and x:reshape(shape) or x
end

--- The product of tensors by a plan for their shapes.
function contraction.run(plan, tensors)
  local values = {}
  for i, steps in ipairs(plan.prepare) do
    local x = tensors[i]
    for _, step in ipairs(steps) do x = x[step[1]](x, table.unpack(step, 2)) end
    values[i] = x
  end
  for k, step in ipairs(plan.steps) do
    local a = arranged(values[step.i], step.a_order, step.a_shape)
    local b = arranged(values[step.j], step.b_order, step.b_shape)
    values[step.i], values[step.j] = nil, nil
    local y
    if step.kind == "mul" then
      y = a * b
    else
      y = a:matmul(step.transpose and b:transpose(-1, -2) or b)
    end
    values[#plan.prepare + k] = step.shape and y:reshape(step.shape) or y
  end
  local y = values[#plan.prepare + #plan.steps]
  return plan.final and y:permute(plan.final) or y
end

return contraction
