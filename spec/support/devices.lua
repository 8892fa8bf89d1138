-- spec/support/devices.lua: on which devices the specs run, and why not on the others.

local mt = require "mytensor"
local devices = {}

local function cuda()
  if os.getenv "MYTENSOR_GC_STRESS" == "1" then return false, "not under GC stress" end
  return mt.cuda.is_available()
end

local available, reason = cuda()
devices.cuda = available
devices.reason = available and nil or "cuda: " .. tostring(reason)
devices.list = available and { "cpu", "cuda" } or { "cpu" }

--- What a case that needs the GPU does without one: pending with the reason, or a
--- failure where MYTENSOR_REQUIRE_CUDA is set.
function devices.without_cuda(pending)
  if os.getenv "MYTENSOR_REQUIRE_CUDA" == "1" then
    error("MYTENSOR_REQUIRE_CUDA is set, but " .. devices.reason, 0)
  end
  pending(devices.reason)
end

-- env, below: the _ENV of a spec file. What `pending` is there depends on when it is
-- looked up; kept from when the file was loaded, it would let a case pass.

local function skip_without_cuda(env, name)
  env.it(name, function() devices.without_cuda(env.pending) end)
end

--- Call on(device) for the CPU and for the GPU; without one, a case says so.
function devices.each(env, on)
  for _, device in ipairs(devices.list) do on(device) end
  if not devices.cuda then skip_without_cuda(env, "on cuda") end
end

--- Give it(name, fn) for cases that need the GPU. before(pending): called first in
--- each.
function devices.on_gpu(env, before)
  return function(name, fn)
    if not devices.cuda then return skip_without_cuda(env, name) end
    env.it(name, function()
      if before then before(env.pending) end
      fn()
    end)
  end
end

--- For on_gpu: nothing is captured in a graph while blocks of memory have guards.
function devices.without_guards(pending)
  if os.getenv "MYTENSOR_GUARD" == "1" then pending "guards: nothing is captured" end
end

return devices
