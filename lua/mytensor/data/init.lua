-- lua/mytensor/data/init.lua: mt.data, loaded at its first use.

local mnist = require "mytensor.data.mnist"

return {
  idx = require "mytensor.data.idx",
  mnist = mnist.mnist,
  fashion_mnist = mnist.fashion_mnist,
  TensorDataset = require "mytensor.data.dataset",
  DataLoader = require "mytensor.data.loader",
}
