-- spec/support/devices.lua: on which devices the specs run, and why not on the others.

local assert = require "luassert"
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

--- Give it(name, fn) for cases that need the GPU. before: called first in each.
function devices.on_gpu(it, pending, before)
  return function(name, fn)
    it(name, function()
      if not devices.cuda then return devices.without_cuda(pending) end
      if before then before() end
      fn()
    end)
  end
end

--- Assert that fn(...) raises an error whose text has the Lua pattern.
function devices.fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "no error, expected " .. pattern)
  assert.truthy(tostring(err):find(pattern), tostring(err))
end

return devices
