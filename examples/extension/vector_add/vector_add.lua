-- examples/extension/vector_add/vector_add.lua: an operator in C and CUDA: compiled
-- when this script is first run, loaded in milliseconds after that.

local mt = require "mytensor"
local here = arg and arg[0] and arg[0]:match "^(.*/)" or "./"

local sources = { here .. "binding.c" }
local with_cuda = mt.extension.nvcc() and mt.cuda.is_available()
if with_cuda then sources[2] = here .. "kernel.cu" end
local vector_add = mt.extension.load {
  name = "vector_add",
  sources = sources,
  flags = "-O3",
}

for _, device in ipairs(with_cuda and { "cpu", "cuda" } or { "cpu" }) do
  local x = mt.randn({ 1000, 3 }, { device = device })
  local y = mt.randn({ 3, 1000 }, { device = device }):t()
  local z = vector_add.add(x, y)
  print(z, "equal to x + y: " .. tostring(z:equal(x + y)))
end
print(select(2, pcall(function() vector_add.add(mt.ones(2), mt.ones(3)) end)))
