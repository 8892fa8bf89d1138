-- lua/mytensor/nn/embedding.lua: a table of vectors, looked up by index.

local mt = require "mytensor"
local check = require "mytensor.check"
local class = require "mytensor.class"
local initialise = require "mytensor.nn.initialise"
local Module = require "mytensor.nn.module"
local Parameter = require "mytensor.nn.parameter"

--- Rows of a matrix at given positions. They start normally distributed.
--- @class mytensor.nn.Embedding: mytensor.nn.Module
--- @field weight mytensor.Tensor (rows, width)
local Embedding = class("Embedding", Module)

--- @param rows integer how many vectors
--- @param width integer elements of each
--- @param options? { dtype: string, device: string }
function Embedding:init(rows, width, options)
  rows = check.integer(1, "Embedding", rows, "number of rows", 0)
  width = check.integer(2, "Embedding", width, "width", 0)
  options = check.options(3, "Embedding", options,
                          { dtype = check.none, device = check.none })
  self.rows, self.width = rows, width
  self.weight = Parameter(mt.empty({ rows, width }, options))
  initialise.normal_(self.weight)
end

--- @param index mytensor.Tensor (...), positions 1..rows
--- @return mytensor.Tensor (..., width)
function Embedding:forward(index)
  return mt.embedding(self.weight, index)
end

function Embedding:extra_repr()
  return ("%d, %d"):format(self.rows, self.width)
end

return Embedding
