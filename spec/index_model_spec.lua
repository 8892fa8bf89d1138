-- spec/index_model_spec.lua: random keys on random shapes, against a model in plain Lua
-- that knows only positions: what t[key] reads, what t[key] = value writes, and the
-- gradients of both. MYTENSOR_INDEX_SEED repeats a run.

local mt = require "mytensor"

local CASES = 800
local DTYPES = { "int64", "int32", "int16", "uint8", "float32" }

local SEED = tonumber(os.getenv "MYTENSOR_INDEX_SEED") or os.time()

local rand = math.random
local function coin() return rand(2) == 1 end

local function product(shape)
  local p = 1
  for _, size in ipairs(shape) do p = p * size end
  return p
end

-- Every position of a shape, from 0, in row-major order.
local function positions(shape)
  local list = {}
  for e = 0, product(shape) - 1 do
    local position, rest = {}, e
    for d = #shape, 1, -1 do
      position[d] = rest % shape[d]
      rest = rest // shape[d]
    end
    list[#list + 1] = position
  end
  return list
end

-- The elements of a tensor, row-major.
local function flat(t)
  local list = {}
  local function walk(v)
    if type(v) ~= "table" then
      list[#list + 1] = v
    else
      for _, w in ipairs(v) do walk(w) end
    end
  end
  walk(t:totable())
  return list
end

local function describe_key(k)
  if mt.is_tensor(k) then
    local values, shape = describe_key(flat(k)), describe_key(k:shape())
    return ("%s%s of %s"):format(k:dtype(), values, shape)
  elseif type(k) == "table" then
    local parts = {}
    for i, v in ipairs(k) do parts[i] = describe_key(v) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return tostring(k)
end

-- A vector of values in a shape, also of none.
local function tensor_of(values, shape, dtype)
  if #values == 0 then return mt.zeros(shape, { dtype = dtype }) end
  return mt.tensor(values, { dtype = dtype }):reshape(shape)
end

-- Each maker gives an item of a key; what it selects, a list of positions within the
-- dims that it stands for; the result's dims in their place; how many dims that is.

local function integer(size)
  local i = rand(size)
  return coin() and i or i - size - 1, { { i - 1 } }, {}, 1
end

local function range(size)
  local item, selected = {}, {}
  local from, to, step = 1, size, 1
  if size > 0 and rand(3) > 1 then
    from = rand(size)
    to = rand(from - 1, size)
    item[1] = coin() and from or from - size - 1
    item[2] = to > 0 and coin() and to - size - 1 or to
    if coin() then
      step = rand(3)
      if to > 0 and rand(3) == 1 then
        from, to, step = to, from, -step
        item[1], item[2] = from, coin() and to or to - size - 1
      end
      item[3] = step
    elseif from == to and coin() then
      item[2] = nil
    end
  end
  for i = from, to, step do selected[#selected + 1] = { i - 1 } end
  return item, selected, { #selected }, 1
end

local function index_tensor(size)
  local shape, values, selected = {}, {}, {}
  for d = 1, rand(0, 2) do shape[d] = rand(0, 3) end
  local dtype = DTYPES[rand(#DTYPES)]
  for i = 1, product(shape) do
    local at = rand(size)
    values[i] = (dtype == "uint8" or coin()) and at or at - size - 1
    selected[i] = { at - 1 }
  end
  return tensor_of(values, shape, dtype), selected, shape, 1
end

local function mask(shape)
  local values, selected = {}, {}
  for i, position in ipairs(positions(shape)) do
    values[i] = coin()
    if values[i] then selected[#selected + 1] = position end
  end
  return tensor_of(values, shape, "bool"), selected, { #selected }, #shape
end

-- "..." for what a key says of dims that stay as they are. full: it names all dims.
local function shorten(key, full)
  if not full then
    key[#key + 1] = "..."
    return
  end
  for i, item in ipairs(key) do
    if type(item) == "table" and next(item) == nil then
      key[i] = "..."
      return
    end
  end
end

-- A key for shape, and what it selects in each group of dims. At most `most` items are
-- masks or index tensors.
local function random_key(shape, most)
  local key, groups, d, used = {}, {}, 1, 0
  while d <= #shape do
    local size, what = shape[d], rand(8)
    local item, selected, dims, n
    if rand(5) == 1 then
      break
    elseif what <= 2 and size > 0 then
      item, selected, dims, n = integer(size)
    elseif what <= 5 - most // 2 or used == most then
      item, selected, dims, n = range(size)
    elseif what <= 6 and size > 0 then
      item, selected, dims, n = index_tensor(size)
      used = used + 1
    else
      item, selected, dims, n = mask { table.unpack(shape, d, rand(d, #shape)) }
      used = used + 1
    end
    key[#key + 1] = item
    groups[#groups + 1] = { selected = selected, dims = dims, from = d,
      tensor = mt.is_tensor(item), integer = math.type(item) ~= nil }
    d = d + n
  end
  for rest = d, #shape do
    local whole = { shape[rest] }
    groups[#groups + 1] = { selected = positions(whole), dims = whole, from = rest }
  end
  if rand(3) == 1 then shorten(key, d > #shape) end
  local alone = #key == 1 and (math.type(key[1]) or mt.is_tensor(key[1]))
  return alone and coin() and key[1] or key, groups
end

-- The shape that several shapes broadcast to, or nil.
local function common(shapes)
  local result, most = {}, 0
  for _, shape in ipairs(shapes) do most = math.max(most, #shape) end
  for d = 1, most do
    local size = 1
    for _, shape in ipairs(shapes) do
      local s = shape[#shape - most + d] or 1
      if size ~= 1 and s ~= 1 and s ~= size then return nil end
      if s ~= 1 then size = s end
    end
    result[d] = size
  end
  return result
end

-- All masks and index tensors of a key made one group, which stands where they did, or
-- in front where ranges stand between them. nil: they do not broadcast.
local function joined(groups)
  local tensors, shapes, apart, last = {}, {}, false, nil
  for i, g in ipairs(groups) do
    if g.tensor then
      for k = (last or i) + 1, i - 1 do apart = apart or not groups[k].integer end
      last = i
      tensors[#tensors + 1], shapes[#shapes + 1] = g, g.dims
    end
  end
  if #tensors < 2 then return groups end
  local dims = common(shapes)
  if not dims then return nil end
  local one = { selected = {}, dims = dims, parts = tensors }
  for e, position in ipairs(positions(dims)) do
    local tuples = {}
    for k, g in ipairs(tensors) do
      local place = 0
      for d, size in ipairs(g.dims) do
        local at = position[#dims - #g.dims + d]
        place = place * size + (size == 1 and 0 or at)
      end
      tuples[k] = g.selected[place + 1]
    end
    one.selected[e] = tuples
  end
  local list = {}
  if apart then list[1] = one end
  for _, g in ipairs(groups) do
    if not g.tensor then
      list[#list + 1] = g
    elseif not apart and g == tensors[1] then
      list[#list + 1] = one
    end
  end
  return list
end

-- Places from 1 in the row-major order of shape, and the result's shape.
local function expected(shape, groups)
  local tuples, dims = { {} }, {}
  for _, group in ipairs(groups) do
    local longer = {}
    for _, tuple in ipairs(tuples) do
      for _, position in ipairs(group.selected) do
        local t = { table.unpack(tuple, 1, #shape) }
        for k, part in ipairs(group.parts or { group }) do
          local own = group.parts and position[k] or position
          for i, v in ipairs(own) do t[part.from + i - 1] = v end
        end
        longer[#longer + 1] = t
      end
    end
    tuples = longer
    table.move(group.dims, 1, #group.dims, #dims + 1, dims)
  end
  local places, seen, twice = {}, {}, false
  for i, tuple in ipairs(tuples) do
    local e = 0
    for d, size in ipairs(shape) do e = e * size + tuple[d] end
    places[i] = e + 1
    twice = twice or seen[e] ~= nil
    seen[e] = true
  end
  return places, dims, twice
end

-- 1, 2, 3, ... in a shape, sometimes over memory in another order.
local function numbered(shape)
  local n = product(shape)
  local x = mt.arange(1, n + 1):reshape(shape)
  if #shape < 2 or coin() then return x end
  local a = rand(#shape - 1)
  return x:transpose(a, a + 1):contiguous():transpose(a, a + 1)
end

local function check_case(check, case, shape, key, groups)
  local places, dims, twice = expected(shape, groups)
  local ok, err = xpcall(check, debug.traceback, shape, key, places, dims, twice)
  if ok then return end
  error(("seed %d, case %d: shape %s, key %s: %s"):format(SEED, case,
    describe_key(shape), describe_key(key), tostring(err)), 0)
end

local function each_case(check)
  math.randomseed(SEED)
  for case = 1, CASES do
    local shape = {}
    for d = 1, rand(0, 4) do shape[d] = rand(case % 7 == 0 and 0 or 1, 4) end
    local key, groups = random_key(shape, 1 + case % 3)
    groups = joined(groups)
    if groups then check_case(check, case, shape, key, groups) end
  end
end

describe("random keys", function()
  it("read what they select", function()
    each_case(function(shape, key, places, dims)
      local y = numbered(shape)[key]
      local want = {}
      for i, place in ipairs(places) do want[i] = place + 0.0 end
      assert.same(dims, y:shape())
      assert.same(want, flat(y))
    end)
  end)

  it("write where they select", function()
    each_case(function(shape, key, places, dims, twice)
      local x, want = numbered(shape), {}
      for i = 1, product(shape) do want[i] = i + 0.0 end
      local value = -7
      if not twice and coin() then
        value = mt.arange(1, #places + 1):neg():reshape(dims)
        if coin() then value = value:to("int64") end
        for i, place in ipairs(places) do want[place] = -i + 0.0 end
      else
        for _, place in ipairs(places) do want[place] = -7.0 end
      end
      x[key] = value
      assert.same(want, flat(x))
    end)
  end)

  it("send the gradient of reading back", function()
    each_case(function(shape, key, places, dims)
      local x, want = numbered(shape):clone(), {}
      x.requires_grad = true
      for i = 1, product(shape) do want[i] = 0.0 end
      for i, place in ipairs(places) do want[place] = want[place] + i end
      local weights = mt.arange(1, #places + 1):reshape(dims);
      (x[key] * weights):sum():backward()
      assert.same(want, flat(x.grad))
    end)
  end)

  it("send the gradient of writing to what was written", function()
    each_case(function(shape, key, places, dims, twice)
      if twice then return end
      local x, value = numbered(shape):clone(), mt.zeros(dims)
      x.requires_grad, value.requires_grad = true, true
      local y = x * 1
      y[key] = value;
      (y * numbered(shape)):sum():backward()
      local dx, dvalue = {}, {}
      for i = 1, product(shape) do dx[i] = i + 0.0 end
      for i, place in ipairs(places) do dx[place], dvalue[i] = 0.0, place + 0.0 end
      assert.same(dx, flat(x.grad))
      assert.same(dvalue, flat(value.grad))
    end)
  end)
end)
