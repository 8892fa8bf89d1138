-- spec/support/fused.lua: fused operators against the ops that they stand for.

local mt = require "mytensor"
local devices = require "spec.support.devices"
local fused = {}

-- The largest |a - b| / (1 + |b|), NaN in both being equal.
local function distance(a, b)
  local shapes = { table.concat(a:shape(), ", "), table.concat(b:shape(), ", ") }
  assert(shapes[1] == shapes[2], "shape " .. shapes[1] .. ", not " .. shapes[2])
  a, b = a:to("cpu"):double(), b:to("cpu"):double()
  local both = mt.logical_and(a:isnan(), b:isnan())
  local same = mt.logical_or(both, a:eq(b))
  local d = (a - b):abs() / (b:abs() + 1)
  d = mt.where(same, 0.0, d)
  if d:numel() == 0 then return 0 end
  return mt.where(d:isnan(), math.huge, d):amax():item()
end

function fused.near(a, b, tolerance, what)
  local d = distance(a, b)
  assert(d <= tolerance, ("%s: off by %g"):format(what or "value", d))
end

-- operator(...) and plain(...) have equal values, gradients, and (float64) gradients of
-- gradients by difference quotients.
function fused.agree(device, operator, plain, xs, tolerance)
  local n = select("#", plain(table.unpack(xs)))
  local ys, zs = { operator(table.unpack(xs)) }, { plain(table.unpack(xs)) }
  assert(n == #ys)
  local leaves = {}
  for _, x in ipairs(xs) do
    if mt.is_tensor(x) and x.requires_grad then leaves[#leaves + 1] = x end
  end
  for k = 1, n do
    fused.near(ys[k], zs[k], tolerance, "result " .. k)
    if ys[k].requires_grad then
      local dy = mt.randn(ys[k]:shape()):to(device):to(ys[k]:dtype())
      local options = { grad_outputs = { dy }, allow_unused = true,
        retain_graph = true }
      local got = mt.grad({ ys[k] }, leaves, options)
      local want = mt.grad({ zs[k] }, leaves, options)
      for i = 1, #leaves do
        local what = "gradient " .. i
        if want[i] then fused.near(got[i], want[i], 10 * tolerance, what) end
      end
    end
  end
end

--- `it` for one device; env: the _ENV of the spec file.
function fused.on(device, env)
  local on = device == "cuda" and devices.on_gpu(env) or env.it
  return function(name, fn) on(name .. " on " .. device, fn) end
end

--- Normally distributed float64 on the device.
function fused.double(device, ...)
  local shape = type(...) == "table" and ... or { ... }
  return mt.randn(shape, { dtype = "float64" }):to(device)
end

return fused
