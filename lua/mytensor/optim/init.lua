-- lua/mytensor/optim/init.lua: mt.optim, loaded at its first use.

local optimiser = require "mytensor.optim.optimiser"

return {
  Optimiser = optimiser,
  SGD = require "mytensor.optim.sgd",
  Adam = require "mytensor.optim.adam",
  AdamW = require "mytensor.optim.adamw",
  clip_grad_norm_ = require("mytensor.nn.utils").clip_grad_norm_,
}
