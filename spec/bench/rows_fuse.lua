-- spec/bench/rows_fuse.lua: rows of fused operators, for rows.lua. Those of `once` tell
-- their seconds themselves: what a process of its own takes for its first call.

local mt = require "mytensor"

local CHAIN = "silu(x * 1.5 + 0.25) * tanh(x) - x" -- six operations
local NORM = "gelu((x - mean(x, -1, true)) * rsqrt(var(x, -1, 0, true) + 1e-5) * w + b)"

local host = arg[0]
for i = -1, -20, -1 do host = arg[i] or host end

-- Seconds of the first call of a formula, and of one like it, in a process whose device
-- was used before.
local CHILD = [[
  local mt = require "mytensor"
  mt.set_default_device "cuda"
  local x, fuse = mt.rand(64, 1024):to(%q), mt.fuse
  x:sum():item()
  for i = 0, 1 do
    local start = mt._clock()
    local f = fuse("x, w, b", %q .. " + " .. %d + i)
    f(x, x, x)
    mt.cuda.synchronize()
    print(mt._clock() - start)
  end
]]

-- number: in the formula. NVRTC keeps what it compiled, too, so a first call has one of
-- its own.
local function first_call(formula, dtype, folder, number)
  local script = os.tmpname()
  local file = assert(io.open(script, "w"))
  file:write(CHILD:format(dtype, formula, number))
  file:close()
  local command = ("MYTENSOR_CACHE=%s %s %s"):format(folder, host, script)
  local pipe = assert(io.popen(command))
  local first, second = pipe:read("n", "n")
  pipe:close()
  os.remove(script)
  return assert(first, "the process failed"), second
end

local function fresh() return mt._clock() * 1e6 // 1 % 1e6 | 0 end

return function(rows, once, enqueued, vector, matrix, ROWS)
  rows.fuse_chain = vector(function(x)
    local f = mt.fuse("x", CHAIN)
    return function() return f(x) end
  end)
  rows.fuse_chain_compiled = rows.fuse_chain -- beside torch.compile
  function rows.fuse_chain_small()
    local f, x = mt.fuse("x", CHAIN), mt.rand(1024)
    return function() return f(x) end
  end
  enqueued.fuse_chain_small = 300
  rows.fuse_chain_fwdbwd = vector(function(x)
    local f, dy = mt.fuse("x", CHAIN), mt.ones_like(x)
    x:requires_grad_()
    return function() return mt.grad({ f(x) }, { x }, { grad_outputs = { dy } }) end
  end)
  rows.fuse_norm = matrix(function(x, m)
    local f, w, b = mt.fuse("x, w, b", NORM), mt.rand(m), mt.rand(m)
    return function() return f(x, w, b) end
  end, ROWS, 1024)

  -- With an empty cache, the median of five processes.
  local function first(formula, dtype)
    return function()
      local times, folder = {}, os.tmpname()
      for i = 1, 5 do
        os.remove(folder)
        times[i] = first_call(formula, dtype, folder, fresh())
        os.execute("rm -r " .. folder)
      end
      table.sort(times)
      return times[3]
    end
  end
  once.fuse_first = first(CHAIN, "float32")
  once.fuse_first_f16 = first(CHAIN, "float16")
  once.fuse_first_bf16 = first(CHAIN, "bfloat16")
  once.fuse_first_norm = first(NORM, "float32")
  -- The second formula: NVRTC and the driver were used before.
  function once.fuse_second()
    local folder = os.tmpname()
    os.remove(folder)
    local _, second = first_call(CHAIN, "float32", folder, fresh())
    os.execute("rm -r " .. folder)
    return second
  end
  -- From the disk; the second one, too.
  function once.fuse_disk()
    local folder, times = os.tmpname(), {}
    os.remove(folder)
    for i = 0, 5 do times[i] = first_call(CHAIN, "float32", folder, 7) end
    os.execute("rm -r " .. folder)
    table.sort(times)
    return times[3]
  end
  -- In a process that has it.
  function rows.fuse_again()
    local x = mt.rand(1024)
    return function() return mt.fuse("x", CHAIN)(x) end
  end
end
