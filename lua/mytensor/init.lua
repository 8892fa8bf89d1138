-- lua/mytensor/init.lua: completes the table that the C part made: the Lua parts,
-- loaded at their first use.

local mt = ...

-- Name in `mt` -> the file that makes it. A file returns the value itself, or, where a
-- second string stands, a table with the value under that name.
local parts = {
  class = { "mytensor.class" },
  optim = { "mytensor.optim" },
  data = { "mytensor.data" },
  utils = { "mytensor.utils" },
  fuse = { "mytensor.fuse" },
  extension = { "mytensor.extension" },
  gradcheck = { "mytensor.gradcheck", "gradcheck" },
  gradgradcheck = { "mytensor.gradcheck", "gradgradcheck" },
  profile = { "mytensor.profile", "profile" },
  profile_range = { "mytensor.profile", "profile_range" },
  save_tensors = { "mytensor.serialisation", "save_tensors" },
  load_tensors = { "mytensor.serialisation", "load_tensors" },
}

-- File -> its functions of the module, and whether they are methods, too.
local functions = {
  arrange = { meshgrid = false, broadcast_tensors = false, broadcast_shapes = false,
    tensor_split = true, hsplit = true, vsplit = true, dsplit = true,
    combinations = true, tril_indices = false, triu_indices = false, one_hot = false,
    logspace = false, unravel_index = false, select_scatter = true,
    slice_scatter = true, diagonal_scatter = true, index_reduce = true },
  measure = { histogram = true, histogramdd = true, gradient = false,
    interp = false, float_power = true, sum_to_size = true },
  products = { einsum = false, tensordot = true, matrix_norm = true, normalize = false,
    cosine_similarity = false, matrix_exp = true },
  sampling = { multinomial = true, poisson = true, exponential_ = true,
    log_normal_ = true, cauchy_ = true, geometric_ = true, randint_like = false },
  like = { finfo = false, iinfo = false, promote_types = false, result_type = false,
    type_as = true, new_zeros = true, new_ones = true, new_empty = true,
    new_full = true, new_tensor = true, fill_diagonal_ = true },
  bridge = { iter = true, map = true, apply = true, frombuffer = false,
    tobytes = true },
}
for file, names in pairs(functions) do
  for name, is_method in pairs(names) do
    parts[name] = { "mytensor." .. file, name }
    if is_method then
      mt.Tensor[name] = function(...)
        mt.Tensor[name] = mt[name]
        return mt[name](...)
      end
    end
  end
end

setmetatable(mt, {
  __members = parts, -- what completion offers
  __index = function(self, name)
    local part = parts[name]
    if not part then return nil end
    local value = require(part[1])
    if part[2] then value = value[part[2]] end
    rawset(self, name, value)
    return value
  end,
})

require "mytensor.nn" -- adds the classes to the table of forward and backward pairs

return mt
