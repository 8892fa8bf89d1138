-- spec/fuzz_spec.lua: every public function with random arguments of random types,
-- shapes and dtypes, under a memory limit: errors or results, never a crash.
--
-- MYTENSOR_FUZZ_SEED and MYTENSOR_FUZZ_CALLS repeat or extend a run; with
-- MYTENSOR_FUZZ_LOG=file each call is noted there before it is made.

local mt = require "mytensor"
local hostile = require "spec.support.hostile"

local SEED = tonumber(os.getenv "MYTENSOR_FUZZ_SEED") or os.time()
local CALLS = tonumber(os.getenv "MYTENSOR_FUZZ_CALLS") or 20000
local LIMIT = 256 << 20

local DTYPES = { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16",
  "int8", "uint8", "bool" }
local random = math.random

local function pick(list) return list[random(#list)] end

-- ---- random arguments ---------------------------------------------------------------
local NUMBERS = { 0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 1e30, -1e30, 0 / 0, math.huge,
  -math.huge, math.maxinteger, math.mininteger, 1 << 31, 1 << 40, 7, 100, -0.0, 2 ^ 53 }
local STRINGS = { "", "mean", "sum", "none", "cpu", "cuda", "cuda:99", "float32",
  "int64", "x", "\0", ("a"):rep(3000), "%s%s%n", "auto" }

local function shape()
  local s = {}
  for i = 1, random(0, 4) do s[i] = pick { 0, 1, 2, 3, 4, 5, 1, 2, 3, 17 } end
  return s
end

local function opts()
  local o = {}
  if random(2) == 1 then o.dtype = pick(DTYPES) end
  if random(4) == 1 then o.device = pick { "cpu", "cpu", "cuda", "nowhere" } end
  if random(4) == 1 then o.requires_grad = true end
  return o
end

local LAYOUTS = {
  function(t) return t end,
  function(t) return t end,
  function(t) return t:dim() > 1 and t:transpose(1, -1) or t end,
  function(t)
    return t:dim() > 0 and t:size(1) > 1 and t:narrow(1, 2, t:size(1) - 1) or t
  end,
  function(t) return t:unsqueeze(1):expand(3, table.unpack(t:shape())) end,
  function(t) return t:dim() > 0 and t:size(1) > 0 and t:select(1, -1) or t end,
}

local function tensor()
  local dtype = pick(DTYPES)
  if random(2) == 1 then dtype = pick { "float32", "float64", "int64", "bool" } end
  local t = mt.zeros(shape(), { dtype = dtype })
  local fill = random(4)
  if fill == 1 then
    t:fill_(pick { 1, 2, 3, -1 })
  elseif fill == 2 and dtype:find "float" then
    t = mt.randn(t:shape(), { dtype = "float32" }):to(dtype)
  elseif fill == 3 then
    t = mt.randint(-3, 5, t:shape()):to(dtype)
  end
  if (dtype == "float32" or dtype == "float64") and random(3) == 1 then
    t = t:detach():requires_grad_()
    if random(2) == 1 then t = t * 1 end
  end
  return pick(LAYOUTS)(t)
end

-- Tensors that several calls use, so that they meet each other's results.
local pool, closed = {}, false -- closed: finalizers that come late put nothing there
local function is_freed(t) return tostring(t):find("freed", 1, true) ~= nil end
local function pooled()
  if closed then return tensor() end
  if #pool > 0 and random(2) == 1 then
    local i = random(#pool)
    if not is_freed(pool[i]) then return pool[i] end
    pool[i] = tensor()
    return pool[i]
  end
  local t = tensor()
  pool[random(16) > 8 and random(math.max(#pool, 1)) or math.min(#pool + 1, 24)] = t
  return t
end

local argument
local MAKERS = {
  { 10, pooled },
  { 4, function() return random(-2, 5) end },
  { 2, function() return pick(NUMBERS) end },
  { 2, shape },
  { 2, opts },
  { 1, function() return pick(STRINGS) end },
  { 1, function() return random(2) == 1 end },
  { 1, function() return nil end },
  { 1, function() return { pooled(), pooled() } end },
  { 1, function() return { random(4), { random(3), random(4) }, {} } end },
  { 1, function()
    local list = {}
    for i = 1, random(0, 4) do list[i] = argument(1) end
    return list
  end },
  { 1, function()
    return pick { function(...) return ... end, function() return mt.ones(2) end,
      function() error "thrown" end, tostring, math.sin }
  end },
  { 2, function() return pick(LAYOUTS)(pooled()) end },
  { 1, function()
    local t = tensor()
    t:free()
    return t
  end },
  { 1, function() return pick { io.stdout, coroutine.create(print), _G.math } end },
}
local TOTAL = 0
for _, m in ipairs(MAKERS) do TOTAL = TOTAL + m[1] end

function argument(depth)
  if depth and depth > 3 then return 1 end
  local r = random(TOTAL)
  for _, m in ipairs(MAKERS) do
    r = r - m[1]
    if r <= 0 then return m[2](depth) end
  end
end

-- Likely arguments of an op, by its parameters.
local function fitting(params)
  local args = {}
  for i, p in ipairs(params) do
    if p.optional and random(3) == 1 then break end
    local kind = p.type
    if random(12) == 1 then
      args[i] = argument()
    elseif kind == "tensor" then
      args[i] = pooled()
    elseif kind == "tensors" then
      local t = pooled()
      args[i] = { t, random(2) == 1 and t or pooled() }
    elseif kind == "bool" then
      args[i] = random(2) == 1
    elseif kind == "float" or kind == "number" then
      args[i] = pick(NUMBERS)
    elseif kind == "dtype" then
      args[i] = pick(DTYPES)
    elseif kind == "shape" or kind == "ints" or kind == "dims" or kind == "pair" then
      args[i] = random(2) == 1 and random(-2, 4) or shape()
    elseif kind:find "|" then
      args[i] = pick { kind:match "^%w+", kind:match "%w+$", "x" }
    else
      args[i] = random(-2, 5)
    end
  end
  return args
end

-- ---- public functions ---------------------------------------------------------------
-- What a run of random calls must not do: end or stop the process, change what the
-- other specs rely on, fill the disk or the screen.
local EXCLUDED = {
  set_memory_limit = true, set_num_threads = true, set_default_dtype = true,
  set_default_device = true, manual_seed = true, set_rng_state = true,
  set_printoptions = true, set_deterministic = true, save_tensors = true, show = true,
  load_tensors = true, data_ptr = true, free = true, keep = true,
  set_grad_enabled = true, set_matmul_precision = true,
}

local function collect_functions(targets, path, t, seen, depth)
  if seen[t] or depth > 2 then return end
  seen[t] = true
  local names = {}
  for name in pairs(t) do
    if type(name) == "string" and not name:find "^_" and not EXCLUDED[name] then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = t[name]
    if type(value) == "function" then
      targets[#targets + 1] = { name = path .. name, f = value }
    elseif type(value) == "table" and path == "" and (name == "nn" or name == "Tensor"
        or name == "cuda") then
      collect_functions(targets, name .. ".", value, seen, depth + 1)
    end
  end
end

local function public_functions()
  local params = {}
  for _, row in ipairs(mt.ops()) do
    params[row.name] = row.params
    params[row.name .. "_"] = row.inplace and row.params or nil
  end
  local targets = {}
  collect_functions(targets, "", mt, {}, 0)
  -- those that are loaded at their first use
  for _, file in ipairs { "arrange", "bridge", "like", "measure",
    "products", "sampling" } do
    collect_functions(targets, file .. ".", require("mytensor." .. file), {}, 0)
  end
  targets[#targets + 1] = { name = "einsum of equations", f = function(...)
    return mt.einsum(pick { "ij,jk->ik", "i,i", "ij,ij->", "...i,i...", "ii->i",
      "ij->ji", "i,j,k->kij", "bij,bjk", "ab,bc,cd,de" }, ...)
  end }
  for _, target in ipairs(targets) do
    target.params = params[target.name:match "[^.]*$"]
  end
  -- classes: made, and called with a tensor
  for _, name in ipairs { "Linear", "Conv2d", "LayerNorm", "MaxPool2d", "AvgPool2d",
    "Embedding", "Flatten", "Dropout", "ReLU", "LeakyReLU", "Sigmoid", "Tanh", "GELU",
    "Softmax", "LogSoftmax", "CrossEntropyLoss", "MSELoss", "Sequential",
    "Parameter" } do
    local class = mt.nn[name]
    targets[#targets + 1] = { name = "nn." .. name, f = function(a, b, c, ...)
      return class(b, c, ...)(a, b)
    end }
  end
  for _, name in ipairs { "SGD", "Adam", "AdamW" } do
    local class = mt.optim[name]
    targets[#targets + 1] = { name = "optim." .. name, f = function(a, ...)
      local optimiser = class(...)
      optimiser:step()
      return a
    end }
  end
  local operators = {
    add = function(a, b) return a + b end, sub = function(a, b) return a - b end,
    mul = function(a, b) return a * b end, div = function(a, b) return a / b end,
    idiv = function(a, b) return a // b end, mod = function(a, b) return a % b end,
    pow = function(a, b) return a ^ b end, unm = function(a) return -a end,
    band = function(a, b) return a & b end, bor = function(a, b) return a | b end,
    bxor = function(a, b) return a ~ b end, bnot = function(a) return ~a end,
    shl = function(a, b) return a << b end, shr = function(a, b) return a >> b end,
    len = function(a) return #a end, eq = function(a, b) return a == b end,
    lt = function(a, b) return a < b end, concat = function(a, b) return a .. b end,
    call = function(a, b) return a(b) end, tostring = tostring,
    index = function(a, b) return a[b] end,
    newindex = function(a, b, c) a[b] = c end,
    pairs = function(a) return (next(a)) end,
    ipairs = function(a) return ipairs(a)(a, 0) end,
    close = function(a) local x <close> = a; return x end,
  }
  local names = {}
  for name in pairs(operators) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    targets[#targets + 1] = { name = "operator " .. name, f = operators[name],
      tensors = true }
  end
  return targets
end

-- ---- results ------------------------------------------------------------------------
local KNOWN = {}
for _, dtype in ipairs(DTYPES) do KNOWN[dtype] = true end

-- A tensor's metadata must be consistent whatever made it.
local function inspect(t, name)
  local s, stride = t:shape(), t:stride()
  local n = 1
  for _, size in ipairs(s) do
    if size < 0 then error(name .. ": a negative size", 0) end
    n = n * size
  end
  if n ~= t:numel() then error(name .. ": numel is not the product of the sizes", 0) end
  if #stride ~= #s then error(name .. ": strides and sizes differ in number", 0) end
  if not KNOWN[t:dtype()] then error(name .. ": dtype " .. tostring(t:dtype()), 0) end
  if not tostring(t):find "^<Tensor shape=" then error(name .. ": tostring", 0) end
  if n > 0 and n < 100 then t:reshape({ n }):totable() end
end

-- Walk the graph of what was recorded, here and there once more through the gradient.
local function differentiate(t)
  if not t.requires_grad or t:numel() > 5000 or random(3) > 1 then return end
  pcall(function()
    local leaf = t:detach():clone():requires_grad_()
    local again = random(3) == 1
    local y = (t * leaf):sum()
    local g = mt.grad({ y }, { leaf }, { create_graph = again, retain_graph = true })
    if again and g[1].requires_grad then g[1]:sum():backward() end
    y:backward()
  end)
end

local function usable(t)
  return mt.is_tensor(t) and not is_freed(t)
end

local function describe_value(v, depth)
  if mt.is_tensor(v) then return tostring(v) end
  if type(v) == "string" then return ("%q"):format(v:sub(1, 20)) end
  if type(v) == "table" and (depth or 0) < 2 then
    local parts = {}
    for k, e in pairs(v) do
      parts[#parts + 1] = tostring(k) .. "=" .. describe_value(e, (depth or 0) + 1)
      if #parts > 6 then break end
    end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return tostring(v)
end

-- ---- calls --------------------------------------------------------------------------
local function arguments_for(target)
  local args
  if target.params and random(4) > 1 then
    args = fitting(target.params)
    args.n = #target.params
    return args
  end
  args = { n = random(0, 5) }
  for k = 1, args.n do args[k] = argument() end
  if target.tensors or random(2) == 1 then
    args[1] = pooled()
    args.n = math.max(args.n, target.tensors and 3 or 1)
  end
  return args
end

local function note(log, i, name, args)
  if not log then return end
  local parts = {}
  for k = 1, args.n do parts[k] = describe_value(args[k]) end
  log:write(i, " ", name, "(", table.concat(parts, ", "), ")\n")
  log:flush()
end

-- Look at what a call gave: true and its results, or false and the error.
local function judge(target, got)
  if got[1] then
    for k = 2, got.n do
      if usable(got[k]) then
        inspect(got[k], target.name)
        differentiate(got[k])
        if got[k]:numel() < 5000 and random(4) == 1 then
          pool[random(24)] = got[k]
          for j = 1, 24 do pool[j] = pool[j] or got[k] end
        end
      end
    end
  elseif got[2] == nil then
    error(target.name .. ": an error that is nil", 0)
  elseif type(got[2]) == "string" and got[2]:find "internal" then
    error(target.name .. ": " .. got[2], 0)
  end
  return got[1]
end

local function run(targets, log)
  local errors, results, depth = 0, 0, 0
  local scenes = hostile {
    pick = pick, tensor = tensor, pooled = pooled, argument = argument,
    apply = function() -- as a hook or a finalizer would, within another call
      if depth > 2 then return end
      depth = depth + 1
      local target = pick(targets)
      local made, args = pcall(arguments_for, target)
      if made then pcall(target.f, table.unpack(args, 1, args.n)) end
      depth = depth - 1
    end,
  }
  for i = 1, CALLS do
    if i > #targets and random(8) == 1 then
      local scene = pick(scenes)
      note(log, i, scene.name, { n = 0 })
      depth = 0
      local ok, err = pcall(scene.f)
      if not ok and tostring(err):find "internal" then error(scene.name .. err, 0) end
      mt.set_grad_enabled(true) -- a hook or a finalizer may have left it off
    else
      local target = i <= #targets and targets[i] or pick(targets)
      local made, args = pcall(arguments_for, target)
      if made then
        note(log, i, target.name, args)
        local got = table.pack(pcall(target.f, table.unpack(args, 1, args.n)))
        if judge(target, got) then results = results + 1 else errors = errors + 1 end
      end
    end
  end
  return results, errors
end

describe("every public function", function()
  local title = "gives results or errors for %d random calls, seed %d"
  it(title:format(CALLS, SEED), function()
    local mode = collectgarbage "generational" -- the scenes change it
    collectgarbage(mode)
    math.randomseed(SEED)
    mt.manual_seed(SEED)
    mt.set_memory_limit(LIMIT)
    local path = os.getenv "MYTENSOR_FUZZ_LOG"
    local log = path and assert(io.open(path, "w"))
    local targets = public_functions()
    assert.is_true(#targets > 200, #targets .. " functions only")
    local output, silent = io.stdout, io.tmpfile()
    io.output(silent)
    local ok, results, errors = pcall(run, targets, log)
    io.output(output)
    silent:close()
    if log then log:close() end
    closed = true
    for k in pairs(pool) do pool[k] = nil end
    collectgarbage "restart"
    collectgarbage(mode)
    for _ = 1, 3 do collectgarbage() end -- finalizers are hostile, too
    mt.scope(function() end) -- lets go of scopes whose coroutine has failed
    mt.set_memory_limit()
    mt.set_default_device "cpu"
    if not ok then error(("seed %d: %s"):format(SEED, tostring(results)), 0) end
    assert.is_true(mt.is_grad_enabled())
    assert.is_true(results > CALLS / 20, results .. " results only")
    assert.is_true(errors > CALLS / 20, errors .. " errors only")
    assert.equal(6, mt.tensor({ 1, 2, 3 }):sum():item())
  end)
end)
