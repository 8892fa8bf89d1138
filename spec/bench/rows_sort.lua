-- spec/bench/rows_sort.lua: rows of sorting and selecting, for rows.lua: fewer elements
-- are sorted, since that takes longer.

local mt = require "mytensor"

return function(rows, on_gpu, LENGTH, SIDE)
  local function vector(make)
    return function() return make(mt.rand(LENGTH)) end
  end
  local function matrix(make)
    return function() return make(mt.rand(SIDE, SIDE)) end
  end

  local MANY = on_gpu and 1 << 26 or 1 << 20

  function rows.sort()
    local x = mt.rand(MANY)
    return function() return x:sort() end
  end
  function rows.sort_1024()
    local x = mt.rand(MANY // 1024, 1024)
    return function() return x:sort(2) end
  end
  function rows.sort_65536()
    local x = mt.rand(MANY // 65536, 65536)
    return function() return x:sort(2) end
  end
  function rows.sort_int64()
    local x = mt.randint(1, 1 << 30, MANY)
    return function() return x:sort() end
  end
  rows.topk = vector(function(x) return function() return x:topk(64) end end)
  rows.topk_rows = matrix(function(x)
    return function() return x:topk(50, 2) end
  end)
  function rows.unique()
    local x = mt.randint(1, MANY // 16, MANY)
    return function() return x:unique() end
  end
  rows.cumsum = vector(function(x) return function() return x:cumsum(1) end end)
  rows.cummax_dim1 = matrix(function(x) return function() return x:cummax(2) end end)
  -- A long index in order, and in no order.
  local function scatter(make, name)
    return function()
      local n = LENGTH // 4
      local x, src, index = mt.zeros(n), mt.rand(n), make(n)
      return function() return x[name](x, 1, index, src) end
    end
  end
  local function in_order(n) return mt.arange(1, n + 1, { dtype = "int64" }) end
  rows.scatter, rows.scatter_ordered = scatter(mt.randperm, "scatter"),
    scatter(in_order, "scatter")
  rows.scatter_add = scatter(function(n) return mt.randint(1, n // 16, n) end,
    "scatter_add")
  rows.scatter_add_ordered = scatter(in_order, "scatter_add")
  function rows.index_select()
    local x = mt.rand(LENGTH // 1024, 1024)
    local index = mt.randperm(LENGTH // 1024)
    return function() return x:index_select(1, index) end
  end
  function rows.index_add()
    local x, src = mt.zeros(LENGTH // 1024, 1024), mt.rand(LENGTH // 1024, 1024)
    local index = mt.randperm(LENGTH // 1024)
    return function() return x:index_add(1, index, src) end
  end
  rows.masked_select = vector(function(x)
    local mask = x:gt(0.5)
    return function() return x:masked_select(mask) end
  end)
end
