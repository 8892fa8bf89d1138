-- lua/mytensor/nn/init.lua: mt.nn, whose classes are loaded at their first use.

local mt = require "mytensor"

local files = {
  Module = "module",
  Parameter = "parameter",
  Sequential = "sequential",
  ModuleList = "module_list",
  Linear = "linear",
  Embedding = "embedding",
  Conv2d = "conv2d",
  LayerNorm = "layer_norm",
  MaxPool2d = "max_pool2d",
  AvgPool2d = "avg_pool2d",
  Flatten = "flatten",
  Identity = "identity",
  Dropout = "dropout",
  ReLU = "relu",
  LeakyReLU = "leaky_relu",
  Sigmoid = "sigmoid",
  Tanh = "tanh",
  GELU = "gelu",
  Softmax = "softmax",
  LogSoftmax = "log_softmax",
  CrossEntropyLoss = "cross_entropy_loss",
  MSELoss = "mse_loss",
  init = "initialise",
  utils = "utils",
}

return setmetatable(mt.nn, {
  __members = files, -- what completion offers
  __index = function(self, name)
    local file = files[name]
    if not file then return nil end
    local value = require("mytensor.nn." .. file)
    rawset(self, name, value)
    return value
  end,
})
