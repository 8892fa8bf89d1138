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
