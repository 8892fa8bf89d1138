-- examples/fuse.lua: operators of your own, from a formula and from a Lua function:
-- SwiGLU, and layer normalisation with scale, shift and activation, one kernel each.
-- Usage: mtlua [--device cuda] examples/fuse.lua

local mt = require "mytensor"
mt.manual_seed(1)

-- From a formula; the gradient is derived from it, and is one kernel, too.
local swiglu = mt.fuse("a, b", "silu(a) * b")
local a, b = mt.randn(4, 6):requires_grad_(), mt.randn(4, 6):requires_grad_()
swiglu(a, b):sum():backward()
print(swiglu, a.grad)

-- From a function, which is run once to see what it does.
local norm = mt.fuse(function(x, scale, shift)
  local centred = x - x:mean(-1, true)
  local variance = centred:square():mean(-1, true)
  return ((centred * (variance + 1e-5):rsqrt()) * scale + shift):gelu()
end)
local x, scale, shift = mt.randn(512, 1024), mt.rand(1024), mt.randn(1024)
local expected = mt.layer_norm(x, scale, shift):gelu()
local error_of = (norm(x, scale, shift) - expected):abs():max():item()
print(("layer norm, scale, shift and gelu: off by %.1e"):format(error_of))
assert(error_of < 1e-4)

-- What it saves: passes over memory. Of the processors' time, or of a GPU's.
local function milliseconds(fn)
  fn()
  if x:device() == "cpu" then
    local start = os.clock()
    for _ = 1, 20 do fn() end
    return (os.clock() - start) * 1e3
  end
  local from, to = mt.cuda.Event { timing = true }, mt.cuda.Event { timing = true }
  from:record()
  for _ = 1, 20 do fn() end
  to:record()
  return from:elapsed(to)
end
local fused = milliseconds(function() norm(x, scale, shift) end)
local apart = milliseconds(function()
  local centred = x - x:mean(-1, true)
  local variance = centred:square():mean(-1, true);
  ((centred * (variance + 1e-5):rsqrt()) * scale + shift):gelu()
end)
print(("fused it takes %.2f of the time that the ops take"):format(fused / apart))
