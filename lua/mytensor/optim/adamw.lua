-- lua/mytensor/optim/adamw.lua: Adam with decoupled weight decay (Loshchilov and
-- Hutter, arXiv 1711.05101).

local class = require "mytensor.class"
local Adam = require "mytensor.optim.adam"

--- Each step also shrinks the parameter by lr * weight_decay. As PyTorch's AdamW.
--- weight_decay is 0.01 by default, the other options are Adam's.
--- @class mytensor.optim.AdamW: mytensor.optim.Adam
local AdamW = class("AdamW", Adam)

AdamW.defaults = {
  lr = 1e-3, betas = { 0.9, 0.999 }, epsilon = 1e-8, weight_decay = 0.01,
}
AdamW.decoupled = true

return AdamW
